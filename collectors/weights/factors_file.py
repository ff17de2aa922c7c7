"""The Kronecker factors of a training's second-order optimizer as a safetensors file, beside a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from ..errors import CheckpointError
from .kronecker import LayerFactors
from .safetensors_file import CheckpointFile

_FORMAT, _VERSION = "summary-landscape factors", "1"
_A, _G = "A", "G"


def factor_tensors(factors: Iterable[LayerFactors]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Returns the tensors of a file, ``<weight>/A`` and ``<weight>/G``, and what its header says of them."""
    tensors, layers = {}, {}
    for layer in factors:
        tensors[f"{layer.weight}/{_A}"], tensors[f"{layer.weight}/{_G}"] = layer.a, layer.g
        layers[layer.weight] = {"shape": list(layer.shape), "positions": layer.positions}
    return tensors, {"format": _FORMAT, "format_version": _VERSION, "layers": json.dumps(layers)}


def read_factors(file: CheckpointFile) -> tuple[LayerFactors, ...]:
    """Reads the factors of each layer.

    Raises:
        CheckpointError: the file holds no factors, those of a newer version, or is damaged.
    """
    said = file.metadata
    if said.get("format") != _FORMAT:
        raise CheckpointError(
            f"{file.label} holds no factors of an optimizer. Give a file <network>_<number>_<unit>_factors.safetensors "
            'of a training with Thor and collect_landscape={"factors": True, ...}.'
        )
    if said.get("format_version") != _VERSION:
        raise CheckpointError(
            f"{file.label} has format_version {said.get('format_version')}, this program reads {_VERSION}; upgrade "
            "summary-landscape."
        )
    try:
        layers = json.loads(said["layers"])
        return tuple(
            LayerFactors(
                weight,
                tuple(int(size) for size in facts["shape"]),
                file.read(f"{weight}/{_A}"),
                file.read(f"{weight}/{_G}"),
                _finite(facts["positions"]),
            )
            for weight, facts in layers.items()
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"{file.label} is damaged: it holds no whole factors ({type(error).__name__}: {error}). Restore it from a "
            "copy."
        ) from error


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"positions must be a finite number, but got {number}")
    return number
