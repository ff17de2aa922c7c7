"""What a user holds of a file: numbers that nobody can change by accident."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

from numpy.typing import NDArray


class ReadOnly(ABC):
    """A copy of data whose attributes, mappings and arrays cannot be changed; it can be copied and pickled."""

    _mappings: ClassVar[tuple[str, ...]] = ("errors", "attributes")

    @abstractmethod
    def _numbers(self) -> Iterable[NDArray[Any]]:
        """Returns the arrays that nobody may change."""

    def _take(self, data: object, **others: object) -> None:
        """Takes a copy of all attributes of ``data``, and ``others`` as they are."""
        contents = {name: value for name, value in _contents(data, self._mappings).items() if name not in others}
        self.__setstate__({**copy.deepcopy(contents), **others})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is read-only, so its {name!r} cannot be set.")

    def __getstate__(self) -> dict[str, Any]:
        return _contents(self, self._mappings)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in self._mappings:
            vars(self)[name] = MappingProxyType(state[name])
        for array in self._numbers():
            array.flags.writeable = False


def _contents(data: object, mappings: tuple[str, ...]) -> dict[str, Any]:
    """Returns attributes as they can be copied and pickled, which a ``MappingProxyType`` cannot be."""
    return {name: dict(value) if name in mappings else value for name, value in vars(data).items()}
