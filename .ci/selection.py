"""What a change can break: slow tests, by the imports near them, and environments, by their adapters."""

import ast
import fnmatch
import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rotation
from imports import Imports

# Changes of these mean everything: no import leads to them. Helpers of tests are imported, and tests/gate tests .ci.
PROJECT = "pyproject.toml"
EVERYTHING = (PROJECT, "Makefile", "constraints/*", "tests/data/*")
# Of that file, what no test sees: lint and types run for every change.
LINTED, DESCRIPTIVE = ("importlinter", "mypy", "ruff"), ("classifiers", "description", "keywords", "urls")
# A part of the gate, which tests/gate tests, though the conftest of all tests loads it.
CHOOSING = "tests/support/chosen.py"
# Its cases are pages of the documentation, called by their files' names; each takes minutes.
PAGES = "tests/test_documentation.py"
# All pages go on where it ends.
FIRST_PAGE = "quick_start.md"
SLOW, ROOM = "slow", "room"
# Over any number of imports nearly every test reaches nearly every file, so those that are farther from a change count
# as what it cannot break: they have their turn. The tests of tests/mutants are all as near to what they catch.
NEAR = 2
# Of more files than these, those that are one import away count, and others in turn until there are so many: on two
# slow cores all of them take longer than a change can wait.
MOST = 64


@dataclass(frozen=True)
class Environment:
    """A group of tests with packages of its own.

    Attributes:
        target: how make runs them.
        folder: where their packages are; "" where the gate does not make it.
        adapters: patterns of the product's files that are written for these packages.
        tests: patterns of its tests and of their helpers.
        one_core: whether its tests run in one process.
    """

    target: str
    folder: str
    adapters: tuple[str, ...]
    tests: tuple[str, ...]
    one_core: bool = False


_KERAS = (
    "collectors/keras.py",
    "collectors/networks/keras_network.py",
    "collectors/weights/keras_file.py",
    "collectors/weights/tensorflow_file.py",
    "workers/keras/*",
)
_JAX = ("collectors/jax.py", "collectors/networks/jax_*.py", "collectors/weights/jax_file.py", "workers/jax/*")
ENVIRONMENTS = (
    Environment(
        "test-trainers",
        ".venv-trainers",
        (
            "collectors/lightning.py",
            "collectors/transformers.py",
            "workers/lightning.py",
            "landscape/trackers.py",
            *_JAX,
            *_KERAS,
        ),
        tuple(f"tests/frameworks/*{name}*" for name in ("lightning", "transformers", "keras", "jax", "trackers")),
    ),
    Environment("test-keras-on-jax", ".venv-trainers", (*_KERAS, *_JAX), ("tests/frameworks/*keras*",)),
    Environment("test-keras-on-tensorflow", ".venv-tensorflow", _KERAS, ("tests/frameworks/*keras*",)),
    Environment(
        "test-mindspore",
        ".venv-mindspore",
        (
            "collectors/mindspore.py",
            "collectors/networks/mindspore_*.py",
            "collectors/weights/mindspore_file.py",
            "workers/mindspore/*",
        ),
        ("tests/frameworks/*mindspore*",),
    ),
    Environment(
        "test-composer",
        ".venv-composer",
        ("collectors/composer/*", "workers/composer_loss.py"),
        ("tests/frameworks/*composer*",),
    ),
    Environment(
        "test-deepspeed",
        ".venv-deepspeed",
        (
            "collectors/recording/summary_collector.py",
            "collectors/networks/torch_readers.py",
            "collectors/weights/sharded_folder.py",
        ),
        ("tests/frameworks/*deepspeed*",),
        one_core=True,
    ),
    Environment(
        "test-peers",
        ".venv-peers",
        (
            "collectors/second_order/*",
            "landscape/exchange/landscaper.py",
            "workers/torch/derivatives/*",
            "workers/curvature/*",
        ),
        ("tests/landscape/exchange/test_landscaper.py", "*curvlinops*"),
        one_core=True,
    ),
)

# Other versions that pyproject.toml allows: in their turn only. The gate makes no environment of the newest, because on
# Python 3.14 PyTorch brings CUDA: 2.7 GB to fetch.
VERSIONS = (
    Environment("test-oldest", ".venv-oldest", (), ()),
    Environment("test-newest-if-there", "", (), ()),
)


@dataclass
class Selection:
    """What a change can break.

    Attributes:
        everything: why everything counts as touched; empty if it does not.
        tests: files with slow tests, relative to the root, or single cases ("tests/test_documentation.py[view.md]"),
            and the changed file that each of them reaches.
        others: files whose slow tests are far from the change, or do not reach it: a share of them runs.
        environments: targets of make, and why each of them runs.
        near: how many files with slow tests are near the change; not all of many count.
    """

    everything: str = ""
    tests: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    environments: dict[str, str] = field(default_factory=dict)
    near: int = 0


def select(imports: Imports, changed: Iterable[str] | None, number: int) -> Selection:
    """Returns what runs for a change.

    Args:
        imports: of the project.
        changed: the paths that differ, relative to the root; None if nothing is known to compare with.
        number: of the change, in the rotation.

    Raises:
        ValueError: a slow test reaches no product module and names no room.
    """
    root = imports.root
    paths = sorted(changed) if changed is not None else []
    reason = "there is no commit to compare with" if changed is None else _everything(imports, paths)
    found = Selection(reason, environments=environments(imports, paths, reason, number) | versions(number))
    touched = {file for path in paths for file in _touched(imports, path)}
    named = {test: rooms(test) for test in slow_tests(root)}
    reached = {test: imports.reached(test, *names, at_most=NEAR) for test, names in named.items()}
    near = {test: hit for test, files in reached.items() if (hit := sorted(files & touched))}
    found.near = len(near)
    if len(near) > MOST and not reason:
        one_away = {test: imports.reached(test, *named[test], at_most=1) for test in near}
        nearest = {test: hit for test, files in one_away.items() if (hit := sorted(files & touched))}
        farther = [test for test in near if test not in nearest]
        steps = max(1, math.ceil(len(farther) / max(1, MOST - len(nearest))))
        near = nearest | {test: near[test] for test in farther[number % steps :: steps]}
    for test in named:
        name = imports.name(test)
        pages = _pages(imports, near.get(test, [])) if name == PAGES and not reason else None
        if pages is not None:
            found.tests |= {f"{name}[{page}]": f"docs/{page}" for page in pages}
            found.others.append(name)
        elif reason or test in near:
            found.tests[name] = reason or imports.name(near[test][0])
        else:
            found.others.append(name)
    lost = [
        imports.name(test)
        for test, names in named.items()
        if not names and not any(imports.is_product(path) for path in reached[test])
    ]
    if lost:
        raise ValueError(
            f"Slow tests that import no product module must name what they use, pytestmark = pytest.mark.room('docs', "
            f"'landscape.commands.plot'), so that a change of it can select them: {', '.join(lost)}"
        )
    return found


def slow_tests(root: Path) -> list[Path]:
    """Returns the test files that have slow tests."""
    return [path for path in sorted((root / "tests").rglob("test_*.py")) if _marked(path, SLOW)]


def rooms(test: Path) -> tuple[str, ...]:
    """Returns what the ``room`` markers of a test file name."""
    calls = [node for node in _marks(test) if isinstance(node, ast.Call) and node.func.attr == ROOM]
    return tuple(argument.value for call in calls for argument in call.args if isinstance(argument, ast.Constant))


def _marked(path: Path, name: str) -> bool:
    return any((node.func if isinstance(node, ast.Call) else node).attr == name for node in _marks(path))


def _marks(path: Path) -> list[ast.Attribute | ast.Call]:
    """Returns the nodes ``pytest.mark.NAME`` and ``pytest.mark.NAME(...)`` of a file."""

    def is_mark(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "mark"

    nodes = list(ast.walk(ast.parse(path.read_text())))
    return [node for node in nodes if is_mark(node) or (isinstance(node, ast.Call) and is_mark(node.func))]


def _everything(imports: Imports, paths: list[str]) -> str:
    """Returns the first change that means everything, or nothing."""
    gone = [path for path in paths if path.endswith(".py") and not (imports.root / path).exists()]
    for user, path in Imports(imports.root, gone).users_of(gone) if gone else ():
        return f"{imports.name(path)} is gone, but {imports.name(user)} imports it"
    for path in paths:
        if any(fnmatch.fnmatch(path, pattern) for pattern in EVERYTHING):
            return f"{path} changed"
        if path.startswith("tests/support/") and path not in gone and not _has_users(imports, imports.root / path):
            return f"{path} changed, which no test imports or names"
    return ""


def _has_users(imports: Imports, helper: Path) -> bool:
    others = [path for path in imports.tests() if path != helper]
    return any(helper in imports.imported(path) or imports.name(helper) in rooms(path) for path in others)


def _pages(imports: Imports, hit: Iterable[Path]) -> list[str] | None:
    """Returns the names of the pages that changed; None where all may break. What they type has tests of its own."""
    docs = [path for path in (imports.root / "docs").glob("*.md") if path.name != FIRST_PAGE]
    # Pages in folders have no code that runs here.
    whole = [path for path in hit if path.name == FIRST_PAGE or not (path.suffix == ".md" or imports.is_product(path))]
    return None if whole else [path.name for path in hit if path in docs]


def _touched(imports: Imports, path: str) -> set[Path]:
    """Returns the files that a changed path stands for: data of a package count as its modules."""
    file = imports.root / path
    if path == CHOOSING:
        return {*(imports.root / "tests" / "gate").glob("test_*.py")}
    if not imports.is_product(file) or file.suffix == ".py":
        return {file}
    package = next(folder for folder in file.parents if (folder / "__init__.py").exists())
    return {file, *package.glob("*.py")}


def environments(imports: Imports, paths: list[str], reason: str, number: int) -> dict[str, str]:
    """Returns the environments whose adapters, what these import, tests or their helpers changed, and one other."""
    found, paths = {}, [path for path in paths if path != CHOOSING]
    product = [imports.name(path) for path in imports.product()]
    tests = imports.tests()
    of_some = tuple(pattern for environment in ENVIRONMENTS for pattern in environment.tests)
    of_all = [path for path in paths if path.startswith("tests/frameworks/") and not _fits(path, of_some)]
    for environment in ENVIRONMENTS:
        adapters = {path for path in product if _fits(path, environment.adapters)}
        contracts = {imports.name(path) for name in adapters for path in imports.imported(imports.root / name)}
        own = [path for path in tests if _fits(imports.name(path), environment.tests)]
        helpers = {imports.name(path) for test in own for path in imports.reached(test, at_most=0)}
        mine = [path for path in paths if path in adapters | contracts | helpers or _fits(path, environment.tests)]
        if cause := reason or next(iter([*mine, *of_all]), ""):
            found[environment.target] = cause
    others = [environment.target for environment in ENVIRONMENTS if environment.target not in found]
    if others:
        found[others[number % len(others)]] = f"its turn in change {number}"
    return found


def versions(number: int) -> dict[str, str]:
    """Returns the environments with other versions whose turn it is, and why: each runs once in five changes."""
    return {
        environment.target: f"its turn in change {number}"
        for place, environment in enumerate(VERSIONS)
        if number % rotation.SHARES == rotation.SHARES - 1 - place
    }


def _fits(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def of_working_tree(root: Path) -> tuple[Selection, int]:
    """Returns what runs for the change that the working tree holds, and the change's number."""
    turn = rotation.read(root)
    commit = rotation.base(root, turn)
    changed = rotation.changed(root, commit) if commit else None
    if commit and changed and PROJECT in changed and _tested(root, commit) == _tested(root):
        changed.remove(PROJECT)
    return select(Imports(root), changed, turn.number), turn.number


def _tested(root: Path, commit: str = "") -> dict[str, Any] | None:
    """Returns what tests see of pyproject.toml, in the working tree or in a commit; None where it is not there."""
    file = root / PROJECT
    text = rotation.git(root, "show", f"{commit}:{PROJECT}") if commit else file.read_text() if file.exists() else None
    if text is None:
        return None
    found = tomllib.loads(text)
    for table, names in (("tool", LINTED), ("project", DESCRIPTIVE)):
        found[table] = {name: value for name, value in found.get(table, {}).items() if name not in names}
    return found


def text(selection: Selection, number: int) -> str:
    """Returns a selection in words."""
    lines = [f"Change {number}" + (f": everything, because {selection.everything}" if selection.everything else "")]
    near = f", of {selection.near} at most {NEAR} imports away" if len(selection.tests) < selection.near else ""
    lines += [f"slow tests that it can break: {len(selection.tests)} files{near}"]
    lines += [f"  {test}  ({why})" for test, why in selection.tests.items()]
    share = f"share {number % rotation.SHARES} of {rotation.SHARES}"
    lines += [f"{share} of the slow tests of {len(selection.others)} other files"]
    lines += ["environments:", *(f"  make {target}  ({why})" for target, why in selection.environments.items())]
    return "\n".join(lines)
