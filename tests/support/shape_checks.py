"""Executes the shape annotations of our packages while the tests run.

Only array annotations are checked: everything else is the business of mypy and of our own validators, whose errors
the tests want to see. Only functions that have some are touched, because each call of such a function takes longer.
"""

import ast
import random
import re
import sys
import typing
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader

import jaxtyping
from beartype import beartype
from beartype._check.code import codemain

from collectors import shapes

# Of a list, an element is checked that a random number chooses; those of the user's own generator stay as they are.
codemain.getrandbits = random.Random(0).getrandbits

_NAMES = shapes.__all__
_WRITTEN = re.compile(rf"\b({'|'.join(_NAMES)})\[")

for _name in _NAMES:
    setattr(shapes, _name, getattr(jaxtyping, _name))


def only_shapes(function):
    """Checks a function's array annotations at each call."""
    function.__annotations__ = {
        name: hint if _WRITTEN.search(str(hint)) else typing.Any for name, hint in function.__annotations__.items()
    }
    return beartype(function)


checked = jaxtyping.jaxtyped(typechecker=only_shapes)


def execute_shapes(*packages):
    """Checks the array annotations of all modules of packages that are imported from now on."""
    sys.meta_path.insert(0, _Finder(packages))


class _Finder(MetaPathFinder):
    def __init__(self, packages):
        self._packages = packages

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] not in self._packages:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if type(spec.loader) is SourceFileLoader:
                    spec.loader = _Loader(name, spec.loader.path)
                return spec
        return None


class _Loader(SourceFileLoader):
    def get_code(self, fullname):
        path = self.get_filename(fullname)
        source = self.get_data(path)
        if not _WRITTEN.search(source.decode()):
            return super().get_code(fullname)
        # What is compiled is not kept: other programs import the module without checks.
        tree = _Decorating().visit(ast.parse(source, path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _Decorating(ast.NodeTransformer):
    def visit_FunctionDef(self, node):
        arguments = node.args
        hints = [item.annotation for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        # Innermost, where the annotations still are.
        return self._decorated(node, [*hints, node.returns], len(node.decorator_list))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node):
        fields = [item.annotation for item in node.body if isinstance(item, ast.AnnAssign)]
        # Outermost, where a dataclass has its constructor already.
        return self._decorated(node, fields, 0)

    def _decorated(self, node, hints, position):
        if any(hint is not None and _WRITTEN.search(ast.unparse(hint)) for hint in hints):
            decorator = ast.parse("__import__('shape_checks').checked", mode="eval").body
            for part in ast.walk(decorator):
                ast.copy_location(part, node)
            node.decorator_list.insert(position, decorator)
        return self.generic_visit(node)
