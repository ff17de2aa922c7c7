"""Plants faults that were caught once, one at a time, and says whether each is still caught.

python tests/mutants/run.py [NAME ...]      plants those faults, or all, in a copy of the working tree
python tests/mutants/run.py --list          what they break
python tests/mutants/run.py --selector      whether the gate would run the test that catches each

A fault is a file NAME.patch: a line "breaks: <sentence>", a line "caught by: <pytest's name of a test>", and what
`git diff` prints. It exits with 1 if a fault is not caught, or cannot be planted. All tests run once without a fault,
then each with its own.
"""

import argparse
import ast
import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_HEADERS = ("breaks", "caught by")
_PASSED, _FAILED = 0, 1  # as pytest ends


class MutantError(Exception):
    """A fault that says nothing: its file is not as it must be, or its test fails anyway."""


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Attributes:
        patch: its file.
        breaks: what it breaks, in a sentence.
        test: pytest's name of the test that catches it.
    """

    patch: Path
    breaks: str
    test: str

    @property
    def changed(self) -> list[str]:
        """The files that it changes, relative to the root."""
        return re.findall(r"^\+\+\+ b/(.+)$", self.patch.read_text(), re.MULTILINE)


def read(patch: Path) -> Mutant:
    """Returns the fault in a file.

    Raises:
        MutantError: there is no such file, or a header or the patch is missing.
    """
    if not patch.is_file():
        raise MutantError("there is no such file")
    before, begin, _ = patch.read_text().partition("diff --git ")
    found = [re.search(rf"^{header}: (\S.*)$", before, re.MULTILINE) for header in _HEADERS]
    if lacks := [header for header, line in zip(_HEADERS, found, strict=True) if line is None]:
        raise MutantError(f"the line '{lacks[0]}: ...' is missing")
    if not begin:
        raise MutantError("what git diff prints is missing")
    return Mutant(patch, *(line[1] for line in found if line))


def copy_of(root: Path, folder: Path) -> None:
    """Copies the working tree into an empty folder, without what git ignores, and with uncommitted edits."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z").stdout.split("\0")
    for path in filter(None, listed):
        # A file that is deleted and not yet committed is still listed.
        if (root / path).is_file():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / path, folder / path)
    # Inside another repository `git apply` would leave out, without a word, what lies above.
    _git(folder, "init", "--quiet")


def is_caught(mutant: Mutant, folder: Path) -> bool:
    """Returns whether the test of a fault fails with it; the copy stays as it was.

    Raises:
        MutantError: the patch does not apply, or the test cannot begin with it.
    """
    applied = _git(folder, "apply", str(mutant.patch))
    if applied.returncode:
        raise MutantError(f"the patch does not apply: {applied.stderr.strip()}")
    try:
        status, printed = run_tests(folder, [mutant.test])
    finally:
        _git(folder, "apply", "--reverse", str(mutant.patch))
    if status not in (_PASSED, _FAILED):
        raise MutantError(f"with the fault {mutant.test} cannot even begin (pytest ends with {status}):\n{printed}")
    return status == _FAILED


def failing_anyway(tests: Sequence[str], folder: Path) -> dict[str, str]:
    """Returns the tests that do not pass without a fault, each with what it printed."""
    if not tests:
        return {}
    status, printed = run_tests(folder, tests)
    if status == _PASSED:
        return {}
    # Where one cannot be found, none is run, and none is named.
    named = [test for test in tests if f"FAILED {test}" in printed or f"ERROR {test}" in printed]
    alone = {test: run_tests(folder, [test]) for test in named or tests}
    return {test: printed for test, (status, printed) in alone.items() if status != _PASSED}


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Runs tests with the packages of a folder; returns pytest's status and what it printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    # Compiled files are told from old ones by size and time, which a planted fault may leave as they were.
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def why_it_runs(mutant: Mutant, root: Path) -> str | None:
    """Returns why the gate runs the test of a fault, whatever the rotation; None if it does not."""
    if not is_slow(mutant.test, root):
        return "it is quick"
    imports = imports_of(root)
    from selection import select

    return select(imports, mutant.changed, 0).tests.get(mutant.test.partition("::")[0])


@functools.cache
def imports_of(root: Path) -> Any:
    """Returns the imports of a project, as the gate reads them."""
    sys.path.append(str(ROOT / ".ci"))
    from imports import Imports

    return Imports(root)


def is_slow(test: str, root: Path) -> bool:
    """Returns whether a test, its class or its file is marked as slow, or one of its cases."""
    file, *names = test.partition("[")[0].split("::")
    found: ast.AST = ast.parse((root / file).read_text())
    marks = [node for node in ast.iter_child_nodes(found) if ast.unparse(node).startswith("pytestmark")]
    for name in names:
        found = next(node for node in ast.iter_child_nodes(found) if getattr(node, "name", None) == name)
        marks += getattr(found, "decorator_list", [])
    return any("pytest.mark.slow" in ast.unparse(mark) for mark in marks)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Does what the arguments say; returns the status to exit with."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of faults; without one, all")
    parser.add_argument("--list", action="store_true", help="print what they break; plant nothing")
    parser.add_argument(
        "--selector", action="store_true", help="print whether the gate runs their tests; plant nothing"
    )
    asked = parser.parse_args(arguments)
    home = root / "tests" / "mutants"
    patches = [home / f"{name}.patch" for name in asked.names] or sorted(home.glob("*.patch"))
    failures = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder).resolve()
        anyway: dict[str, str] = {}
        if not (asked.list or asked.selector):
            copy_of(root, copy)
            anyway = failing_anyway(_tests_of(patches), copy)
        for patch in patches:
            try:
                mutant = read(patch)
                if asked.list:
                    good, text = True, mutant.breaks
                elif asked.selector:
                    why = why_it_runs(mutant, root)
                    good, text = why is not None, f"{mutant.test} {f'runs: {why}' if why else 'DOES NOT RUN'}"
                elif mutant.test in anyway:
                    raise MutantError(f"{mutant.test} fails without the fault too:\n{anyway[mutant.test]}")
                else:
                    good = is_caught(mutant, copy)
                    text = f"caught by {mutant.test}" if good else f"NOT CAUGHT by {mutant.test}"
            except MutantError as error:
                good, text = False, f"ERROR: {error}"
            failures += not good
            print(f"{patch.stem}: {text}", flush=True)
    return int(failures > 0)


def _tests_of(patches: Sequence[Path]) -> list[str]:
    found = []
    for patch in patches:
        with contextlib.suppress(MutantError):
            found.append(read(patch).test)
    return list(dict.fromkeys(found))


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
