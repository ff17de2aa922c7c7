"""What a summary record accepts: values are checked and copied when added, so that later steps cannot alter them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..validation import check_choice, check_instance, wrong_type, wrong_value
from .graph import is_torch_network, network_graph, parse_graph
from .lineage import EvalLineage, TrainLineage, check_custom_lineage, check_dataset_graph, check_lineage

IMAGE_CHANNELS = (1, 3, 4)
# A protocol buffer holds at most 2 GiB; the rest of the event needs a little of that.
LARGEST_VALUE = 2**31 - 2**20
_LANDSCAPE_KINDS = ("scalar", "image", "tensor", "histogram")
# Element types of ml_dtypes, which TensorBoard does not read.
_NARROW = re.compile(r"bfloat16|float[468]_\w+|u?int[124]")
_ARRAYS = "a number, a NumPy array or a tensor"


@dataclass(frozen=True)
class SummaryValue:
    plugin: str  # under which it was added; a plugin filter sees this
    kind: str  # how it is written; a landscape is written as an image and as tensors
    name: str
    content: NDArray[Any] | bytes | dict[str, Any]  # a copy: array (image: N, H, W, C), serialized graph, or facts

    @property
    def size(self) -> int:
        """About how many bytes of memory it holds."""
        content = self.content
        if isinstance(content, np.ndarray):
            return content.nbytes
        return len(content) if isinstance(content, bytes) else 1024


@dataclass(frozen=True)
class SummaryStep:
    """All values of one call of ``record``; ``wall_time`` is in seconds since 1970."""

    step: int
    wall_time: float
    values: tuple[SummaryValue, ...]

    @property
    def size(self) -> int:
        return 256 + sum(256 + value.size for value in self.values)


def check_value(plugin: str, name: Any, value: Any) -> tuple[SummaryValue, ...]:
    """Returns copies of what must be written for one value of a plugin that ``check_plugin`` returned."""
    if not check_instance("name", name, str, "a str").strip():
        raise wrong_value("name", "a name that is not empty", name)
    if plugin == "landscape":
        return _landscape(name, value)
    return (SummaryValue(plugin, plugin, name, _CHECKS[plugin](f"the {plugin} {name!r}", value)),)


def check_plugin(plugin: Any) -> str:
    """Returns the plugin's name; LANDSCAPE, as the documents write it, is ``landscape``."""
    check_instance("plugin", plugin, str, "a str")
    return check_choice("plugin", "landscape" if plugin == "LANDSCAPE" else plugin, (*_CHECKS, "landscape"))


def check_network(name: str, value: Any) -> Any:
    if value is None or is_torch_network(value):
        return cast(Any, value)
    raise wrong_type(name, "a torch.nn.Module or None", value)


def to_summary_array(name: str, value: Any) -> NDArray[Any]:
    """Returns a copy as a native NumPy array; bfloat16 and narrower types become float32, longer floats float64."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        array = _tensor_to_array(name, value)
    elif "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
        raise wrong_type(name, f"{_ARRAYS} without a mask (fill the masked elements first)", value)
    elif isinstance(value, np.ndarray | np.generic | bool | int | float | complex) or hasattr(value, "__array__"):
        # A Python int beyond 64 bits would become an array of objects.
        value = float(value) if isinstance(value, int) and abs(value) >= 2**63 else value
        array = np.array(value, order="C", copy=True, subok=False)
    else:
        raise wrong_type(name, _ARRAYS, value)
    dtype = array.dtype
    # Names are slow to make, so they are asked for only where NumPy does not know the type itself.
    if dtype.isbuiltin == 2 and _NARROW.fullmatch(dtype.name):
        array = array.astype(np.float32)
    elif dtype.kind not in "biufc":
        raise TypeError(
            f"{name} must hold booleans, integers, floats or complex numbers, but its elements are {dtype}; convert it "
            "first."
        )
    elif dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
        array = array.astype(np.float64 if dtype.kind == "f" else np.complex128)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.nbytes > LARGEST_VALUE:
        raise wrong_value(name, f"of at most {LARGEST_VALUE} bytes (record a part of it)", f"{array.nbytes} bytes")
    return array


def _tensor_to_array(name: str, tensor: Any) -> NDArray[Any]:
    from ..networks.torch_network import to_array

    if str(tensor.layout) != "torch.strided" or tensor.is_meta or hasattr(tensor, "full_tensor"):
        raise wrong_type(name, "a dense tensor with values (not sparse, sharded or on the meta device)", tensor)
    try:
        return to_array(tensor)
    except (TypeError, RuntimeError, AttributeError) as error:
        raise TypeError(
            f"{name} must be a tensor that NumPy can hold, but its elements are {tensor.dtype} ({error}); convert it, "
            "for example with .float()."
        ) from error


def _scalar(name: str, value: Any) -> NDArray[Any]:
    array = to_summary_array(name, value)
    if array.size != 1:
        raise wrong_value(name, "exactly one number", f"an array of shape {array.shape}")
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a real number, but got {array.dtype}; record int() or float() of it.")
    return array.reshape(())


def _tensor(name: str, value: Any) -> NDArray[Any]:
    array = to_summary_array(name, value)
    if array.ndim == 0:
        raise wrong_value(name, "an array with at least one axis (a single number is a scalar)", "an array without any")
    return array


def _real(name: str, array: NDArray[Any], part: str) -> NDArray[Any]:
    if array.dtype.kind == "c":
        raise TypeError(f"{name} must hold real numbers, but got {array.dtype}; record its {part}.")
    return array


def _image(name: str, value: Any) -> NDArray[Any]:
    expected = "an image batch of shape (N, C, H, W) or (N, H, W, C) with 1, 3 or 4 channels and no empty axis"
    array = _real(name, to_summary_array(name, value), "absolute value")
    if array.ndim == 4 and array.size:
        if array.shape[1] in IMAGE_CHANNELS:
            return array.transpose(0, 2, 3, 1)
        if array.shape[3] in IMAGE_CHANNELS:
            return array
    raise wrong_value(name, expected, f"an array of shape {array.shape}")


def _landscape(name: str, value: Any) -> tuple[SummaryValue, ...]:
    method = getattr(value, "summary_values", None)
    if not callable(method):
        raise wrong_type(f"the landscape {name!r}", "an object with a method summary_values()", value)
    parts = method()
    label = f"summary_values() of the landscape {name!r}"
    for kind in check_instance(label, parts, Mapping, "a dict from plugin to array"):
        if kind not in _LANDSCAPE_KINDS:
            raise wrong_value(f"a key of {label}", "one of " + ", ".join(map(repr, _LANDSCAPE_KINDS)), kind)
    return tuple(
        SummaryValue("landscape", kind, f"{name}/{kind}", _CHECKS[kind](f"the {kind} of {label}", part))
        for kind, part in parts.items()
    )


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "scalar": _scalar,
    "image": _image,
    "tensor": _tensor,
    "histogram": lambda name, value: _real(name, _tensor(name, value), "real and imaginary parts"),
    "graph": lambda name, value: network_graph(value) if is_torch_network(value) else parse_graph(name, value),
    "train_lineage": lambda name, value: check_lineage(name, value, TrainLineage),
    "eval_lineage": lambda name, value: check_lineage(name, value, EvalLineage),
    "dataset_graph": check_dataset_graph,
    "custom_lineage_data": check_custom_lineage,
}
