"""Directions that were kept in files: those of a landscape, or one's own."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from collectors.errors import CheckpointError
from collectors.networks.weight_space import some_names
from collectors.weights.aligned import as_reader

# As a plane's file names them, beside its origin.
_OF_A_PLANE = re.compile(r"direction_(\d+)/(.+)", re.DOTALL)
_REST_OF_A_PLANE = ("origin/", "buffer/", "end_buffer_")


def read_directions(paths: Sequence[str | os.PathLike[str]]) -> list[dict[str, NDArray[Any]]]:
    """Returns directions by the names of the parameters, as ``custom_plane`` takes them."""
    found = []
    for path in paths:
        reader = as_reader("directions", path)
        names = list(reader.shapes)
        if any(_OF_A_PLANE.fullmatch(name) for name in names):
            names = [name for name in names if not name.startswith(_REST_OF_A_PLANE)]
        arrays = {name: reader.read(name) for name in names}
        named = {name: _OF_A_PLANE.fullmatch(name) for name in arrays}
        if not any(named.values()):
            found.append(arrays)
            continue
        parts: dict[int, dict[str, NDArray[Any]]] = {}
        for name, match in named.items():
            if match is not None:
                parts.setdefault(int(match[1]), {})[match[2]] = arrays[name]
        if sorted(parts) != list(range(len(parts))) or None in named.values():
            raise CheckpointError(
                f"{path} holds no directions of a plane: all names must begin with direction_0/ or direction_1/, but "
                f"there are {some_names(arrays)}. Give a file that save_directions wrote, or one for each "
                "direction with the parameters' own names."
            )
        found += [parts[index] for index in sorted(parts)]
    return found
