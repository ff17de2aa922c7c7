"""The real browser that tests open pages in."""

import os
import shutil
from contextlib import contextmanager

import pytest

_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]


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
        found = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield found
        found.close()
