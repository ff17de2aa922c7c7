"""TensorFlow's checkpoints (NAME.index beside NAME.data-...), as Keras 2 wrote them; no code from them ever runs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import CheckpointError

ENDING = ".index"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Where a network's own names do not begin: of optimizers, metrics and counters.
_BESIDE = re.compile(r"(optimizer|keras_api|save_counter|_CHECKPOINTABLE_OBJECT_GRAPH)(/|$)|.*/\.OPTIMIZER_SLOT/")
_LAYER = re.compile(r"layer_with_weights-(\d+)")


def load_weights(path: Path, network: Any) -> None:
    """Gives a keras.Model the weights of a checkpoint, or raises an error that says what does not fit."""
    values = _read(path)
    variables = {id(variable): variable for variable in network.variables}
    given = set()
    for name, array in values.items():
        variable = variables.get(id(_at(network, name.split("/"))))
        if variable is None:
            raise ValueError(f"it holds {name!r}, where the network has no variable")
        variable.assign(array)
        given.add(id(variable))
    if missing := [variable.path for variable in network.weights if id(variable) not in given]:
        raise ValueError(f"it holds nothing for {', '.join(missing)}")


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """Returns the values of variables, by the attributes that lead from the network to each, divided by "/"."""
    try:
        from tensorflow import errors, train
    except ImportError:
        raise CheckpointError(
            f"checkpoint {path} was written by TensorFlow, which alone reads it; pip install tensorflow-cpu."
        ) from None
    whole = path.with_suffix("")
    parts = [part for part in path.parent.iterdir() if part.name.startswith(f"{whole.name}.data-")]
    if not parts:
        raise CheckpointError(
            f"checkpoint {path} says where values are, in {whole.name}.data-00000-of-00001, which is not beside it; "
            "copy both."
        )
    try:
        reader = train.load_checkpoint(str(whole))
        types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
        names = [name for name in shapes if name.endswith(_VALUE) and not _BESIDE.match(name)]
        claimed = sum(types[name].size * math.prod(shapes[name]) for name in names)
        if claimed > (size := sum(part.stat().st_size for part in parts)):
            raise ValueError(f"it claims {claimed} bytes, but its parts have {size}")
        return {name.removesuffix(_VALUE): reader.get_tensor(name) for name in names}
    except (errors.OpError, ValueError, RuntimeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged ({str(error).splitlines()[0]}); copy it again.") from error


def _at(network: Any, attributes: Sequence[str]) -> Any:
    """Returns what attributes lead to, or None; Keras 2 counts the layers of a network that is made of layers."""
    found = network
    for attribute in attributes:
        if layer := _LAYER.fullmatch(attribute):
            layers, index = [item for item in getattr(found, "layers", ()) if item.weights], int(layer[1])
            found = layers[index] if index < len(layers) else None
        elif attribute.isdecimal() and isinstance(found, Sequence):
            found = found[int(attribute)] if int(attribute) < len(found) else None
        else:
            found = None if attribute.startswith("__") else getattr(found, attribute, None)
    return found
