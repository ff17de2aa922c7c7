"""Which source files a test reaches through imports, read from the sources: nothing is imported or run.

An import counts wherever it stands, also inside a function, for that is how frameworks are loaded; one that only type
checkers see does not, and one inside a fixture of a conftest counts for the tests that name the fixture. A name of a
lazy door (``from landscape import evaluate``) leads to the module that the door takes it from, and to nothing else
behind the door.
"""

import ast
import functools
import heapq
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = ("collectors", "workers", "landscape")
# Tests import their helpers by bare names: tests/conftest.py and tests/stress put these folders on the path.
_HELPERS = ("support", "frameworks", "stress")
_IMPORT = re.compile(r"^[ \t\"]*(?:from ([\w.]+) import (\([\w ,*\n]+|[\w ,*]+)|import ([\w.]+))", re.MULTILINE)


class Imports:
    """The imports between the source files of a project.

    Args:
        root: the folder that holds the three packages and ``tests``.
        gone: paths of modules, relative to it, that count as if they were still there, without imports of their own.
    """

    def __init__(self, root: Path, gone: Iterable[str] = ()):
        self.root = root
        absent = [root / path for path in gone]
        product = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
        product += [path for path in absent if self.is_product(path)]
        self._modules = {self._module(path): path for path in product}
        helpers = [path for folder in _HELPERS for path in (root / "tests" / folder).glob("*.py")]
        helpers += [path for path in absent if path.parent.parent == root / "tests" and path.parent.name in _HELPERS]
        self._helpers = {path.stem: path for path in helpers}
        self._doors = {
            name: self._lazy(name, path)
            for name, path in self._modules.items()
            if path.stem == "__init__" and path.exists()
        }

    def reached(self, test: Path, *rooms: str, at_most: float = math.inf) -> frozenset[Path]:
        """Returns the files that a test reaches: itself, helpers of tests, the product's.

        Args:
            test: its file. The conftests of its folder and of those above are reached too.
            *rooms: modules ("landscape.commands.plot"), rooms and other folders that it is about but does not import.
                What their files import is not reached, unless they are tests.
            at_most: over so many imports. One by the test or by one of its helpers is the first.
        """
        conftests = [folder / "conftest.py" for folder in test.parents if self.root in folder.parents]
        waiting = [(0, path) for path in (test, *conftests) if path.is_file()]
        found: set[Path] = set()
        for path in self._in_rooms(rooms):
            if self.root / "tests" in path.parents:
                waiting.append((0, path))
            else:
                found.add(path)
        heapq.heapify(waiting)
        words = {word for _, path in waiting for word in _names_used(path)}
        followed: set[Path] = set()
        while waiting:
            hops, path = heapq.heappop(waiting)
            if path not in followed:
                followed.add(path)
                skipped = self._fixtures(path) - words if path in conftests else frozenset()
                for each in self.imported(path, skipped):
                    if (further := hops + self.is_product(each)) <= at_most:
                        heapq.heappush(waiting, (further, each))
        return frozenset(found | followed)

    def product(self) -> list[Path]:
        """Returns the source files of the three packages."""
        return list(self._modules.values())

    def tests(self) -> list[Path]:
        """Returns the source files of the tests, their helpers too."""
        return list((self.root / "tests").rglob("*.py"))

    def name(self, path: Path) -> str:
        """Returns a file's path, relative to the root."""
        return path.relative_to(self.root).as_posix()

    def is_product(self, path: Path) -> bool:
        """Whether a file belongs to one of the three packages."""
        return path.relative_to(self.root).parts[0] in PACKAGES

    def users_of(self, paths: Iterable[str]) -> Iterator[tuple[Path, Path]]:
        """Yields each file that imports one of the paths, which are relative to the root, and that path."""
        wanted = {self.root / path for path in paths}
        for user in [*self.product(), *self.tests()]:
            yield from ((user, path) for path in sorted(self.imported(user) & wanted))

    def _in_rooms(self, rooms: tuple[str, ...]) -> Iterator[Path]:
        for room in rooms:
            place = self.root / room
            if not place.exists():
                place = self.root / room.replace(".", "/")
            if not (place.is_dir() or room in self._modules or (self.root / room).is_file()):
                raise ValueError(f"room({room!r}) is neither a module, nor a folder or a file below {self.root}")
            yield from self._run_by(room)
            yield from (path for path in (place.rglob("*") if place.is_dir() else [self.root / room]) if path.is_file())

    @functools.cache  # noqa: B019 - it lives as long as the program that asks
    def _fixtures(self, path: Path) -> frozenset[str]:
        """Returns the fixtures of a conftest that run for who names them."""
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        marks = {node.name: " ".join(map(ast.unparse, node.decorator_list)) for node in functions}
        return frozenset(name for name, mark in marks.items() if "fixture" in mark and "autouse" not in mark)

    @functools.cache  # noqa: B019 - it lives as long as the program that asks
    def imported(self, path: Path, skipped: frozenset[str] = frozenset()) -> frozenset[Path]:
        """Returns the files that running a file runs: what it, or a page's code, imports, and the doors above that.

        Args:
            path: of the file.
            skipped: functions of it that do not run.
        """
        if path.suffix in (".md", ".ipynb"):
            return frozenset(self._in_text(path.read_text()))
        if path.suffix != ".py" or not path.exists():
            return frozenset()
        module = self._module(path)
        package = module if path.stem == "__init__" else module.rpartition(".")[0]
        text = path.read_text()
        nodes = list(_that_run(ast.parse(text), skipped))
        named: dict[str, str] = {}  # what packages and modules of the product are called in this file
        found: set[Path] = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found |= self._run_by(alias.name)
                    whole = alias.name if alias.asname else alias.name.split(".")[0]
                    named[alias.asname or whole] = whole
            elif isinstance(node, ast.ImportFrom):
                source = _absolute(node, package)
                for alias in node.names:
                    found |= self._behind(source, alias.name)
                    named[alias.asname or alias.name] = f"{source}.{alias.name}"
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and module not in self._doors:
                found |= self._in_text(node.value)
                if node.value.startswith(".") and "import_module" in text:
                    found |= self._run_by(f"{package}{node.value}")
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in named:
                found |= self._behind(named[node.value.id], node.attr)
        return frozenset(found)

    def _in_text(self, text: str) -> set[Path]:
        """Returns what a text names: modules for ``import_module``, and what scripts in other processes import."""
        found = self._run_by(text) if "." in text else set()
        for source, names, module in _IMPORT.findall(text):
            found |= self._run_by(module)
            for name in re.findall(r"\w+|\*", names):
                found |= self._behind(source, name)
        return found

    def _behind(self, source: str, name: str) -> set[Path]:
        """Returns the files that ``from source import name`` runs."""
        if f"{source}.{name}" in self._modules:
            return self._run_by(f"{source}.{name}")
        door = self._doors.get(source, {})
        homes = door.values() if name == "*" else [door[name]] if name in door else []
        return self._run_by(source).union(*(self._run_by(home) for home in homes))

    def _run_by(self, module: str) -> set[Path]:
        """Returns the files that importing a module runs: its own and the doors above it."""
        parts = module.split(".")
        if parts[0] not in PACKAGES:
            return {self._helpers[module]} if module in self._helpers else set()
        names = (".".join(parts[: length + 1]) for length in range(len(parts)))
        return {self._modules[name] for name in names if name in self._modules}

    def _module(self, path: Path) -> str:
        path = path.relative_to(self.root)
        return ".".join(path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts)

    @staticmethod
    def _lazy(package: str, door: Path) -> dict[str, str]:
        """Returns the modules from which a door takes its names: by its stub, or what it imports for type checkers."""
        stub = door.with_suffix(".pyi")
        tree = ast.parse((stub if stub.is_file() else door).read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return {alias.asname or alias.name: _absolute(node, package) for node in imports for alias in node.names}


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Returns the full name of the module that an import names."""
    above = package.split(".")[: 1 - node.level or None] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def _is_room(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "room"


@functools.cache
def _names_used(path: Path) -> frozenset[str]:
    """Returns all words of a test file but the names of its own functions."""
    return frozenset(re.findall(r"(?<!def )\b\w+", path.read_text())) if path.suffix == ".py" else frozenset()


def _that_run(tree: ast.AST, skipped: frozenset[str]) -> Iterator[ast.AST]:
    """Yields all nodes but functions to skip, docstrings, those below ``if TYPE_CHECKING:`` and ``room`` markers."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) and node.name in skipped:
            continue
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
        elif not (_is_room(node) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))):
            waiting += ast.iter_child_nodes(node)
