"""The real browser that tests open pages in."""

import ctypes.util
import os
import shutil
from contextlib import contextmanager

import pytest

_ARGUMENTS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-gl=angle",
    # Without a graphics card, putting a page together by OpenGL takes a third of a page test's time.
    "--disable-gpu-compositing",
]
# Mesa draws a surface in half the time that Chromium's own software needs.
_MESA = ["--use-angle=gl-egl", "--ignore-gpu-blocklist", "--ozone-platform=headless"]
_WITHOUT_MESA = ["--disable-gpu", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


@contextmanager
def chromium():
    """Starts Chromium, or skips the test where there is none; in CI that is a failure."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium is installed, and CI must test the page in a real browser")
        pytest.skip("no Chromium is installed (apt-get install chromium), so the page cannot be opened")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        graphics = _MESA if ctypes.util.find_library("EGL_mesa") else _WITHOUT_MESA
        found = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS + graphics)
        yield found
        found.close()
