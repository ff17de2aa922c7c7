"""The oldest versions that are tested are those that pyproject.toml allows."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version
from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Its other versions have no build for CPUs in the package index.
ELSEWHERE = {"torch"}


def test_what_is_tested_as_the_oldest_is_what_the_ranges_begin_with():
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints" / "oldest.txt").read_text(), re.MULTILINE))
    pinned = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    extras = re.search(r"^EXTRAS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split(",")
    installed = [extra for extra in extras if extra not in ("docs", "dev")]
    lines = PROJECT["dependencies"] + [line for extra in installed for line in PROJECT["optional-dependencies"][extra]]
    for requirement in map(Requirement, lines):
        name = requirement.name.lower().replace("_", "-")
        lowest = next(part.version for part in requirement.specifier if part.operator == ">=")
        if name not in ELSEWHERE:
            assert Version(pinned[name]).release[: len(Version(lowest).release)] == Version(lowest).release, name
