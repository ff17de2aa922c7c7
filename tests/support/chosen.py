"""Which of the slow tests run for a change: those of chosen files, and a share of all others.

Options of pytest that .ci/gate.py gives; .ci/selection.py tells which files a change can break.
"""

import zlib
from pathlib import Path


def add_options(parser):
    group = parser.getgroup("chosen", "which slow tests run for a change")
    group.addoption(
        "--chosen-files", type=Path, help="a file with paths of test files, or single cases of them, one a line"
    )
    group.addoption("--share", help="of the other files, this share of the tests runs: 3/5 is the fourth of five")


def deselect(config, items):
    """Deselects the tests that are neither in a chosen file nor in the share."""
    listed = config.getoption("--chosen-files")
    if listed is None:
        return
    files = set(listed.read_text().split())
    kept, left = [], []
    for item in items:
        file, case = item.path.relative_to(config.rootpath).as_posix(), item.nodeid.partition("[")[2]
        is_chosen = file in files or f"{file}[{case}" in files
        (kept if is_chosen or in_share(item.nodeid, config.getoption("--share")) else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def in_share(test, share):
    """Whether a test is in a share; its function decides, so that its cases stay together, but those of pages."""
    number, count = map(int, share.split("/"))
    name = test if test.endswith(".md]") else test.partition("[")[0]
    return zlib.crc32(name.encode()) % count == number
