"""A network as named tensors (``WeightSpace``) with arrays as values (``State``), whatever its framework."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import ml_dtypes  # noqa: F401 -- NumPy knows its types by their names from then on
import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError

State: TypeAlias = Mapping[str, NDArray[Any]]
Role: TypeAlias = Literal["parameter", "buffer"]

_MOST_SHOWN = 6
_WRAPPERS = re.compile(r"(?:^|(?<=\.))_(?:orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)\.")


def canonical_name(name: str) -> str:
    """Returns a tensor's name without ``module.`` in front, and what ``torch.compile``, FSDP and checkpointing add."""
    name = _WRAPPERS.sub("", name)
    while name.startswith("module."):
        name = _WRAPPERS.sub("", name.removeprefix("module."))
    return name


def wrappers_in(name: str) -> list[str]:
    """Returns what ``canonical_name`` removes from a tensor's name, one by one."""
    return ["module."] * name.startswith("module.") + _WRAPPERS.findall(name)


def is_extra_state(name: str) -> bool:
    """Returns whether PyTorch calls so what a layer's ``get_extra_state`` returns, which is no weight."""
    return name.rpartition(".")[2] == "_extra_state"


def extra_states_left_out(names: Collection[str]) -> str:
    return f"left out: {some_names(names)}, which layers keep beside their weights (get_extra_state)."


def some_names(names: Collection[object], write: Callable[[object], str] = repr) -> str:
    """Returns the first few names, quoted or written in another way, and how many more there are."""
    shown = ", ".join(map(write, [*names][:_MOST_SHOWN]))
    return shown + (f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else "")


@dataclass(frozen=True)
class TensorInfo:
    """One named tensor of a network."""

    name: str  # canonical
    shape: tuple[int, ...]
    dtype: str  # NumPy's name of the element type ("bfloat16" and the like come from ml_dtypes)
    role: Role
    trainable: bool = False  # whether an optimizer may move it; a plane spans the trainable tensors
    # The axes whose entries are the layer's filters, which is what feeds one output each; none for biases, for the
    # parameters of normalization layers and gains of weight normalization, and for fewer than two axes.
    filter_axes: tuple[int, ...] = ()
    # Into how many parts of equal length the first axis falls, each with filters of its own (grouped transposed
    # convolutions).
    filter_groups: int = 1
    aliases: tuple[str, ...] = ()  # further names of the same storage (tied weights); they change with it

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def filter_size(self) -> int:
        """Number of elements of a filter; all of them where there are no filters."""
        return self.size // max(1, math.prod(self.shape[axis] for axis in self.filter_axes) * self.filter_groups)

    def filters(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns a view of a contiguous array of this shape: axes of filters, then the axes of a filter's elements."""
        axes = self.filter_axes
        if self.filter_groups > 1:
            array = array.reshape(self.filter_groups, -1, *self.shape[1:])
            axes = (0, *(axis + 1 for axis in axes))
        return np.moveaxis(array, axes, range(len(axes)))

    @property
    def filter_dimensions(self) -> int:
        """Number of axes that number the filters, as ``filters`` returns them."""
        return len(self.filter_axes) + (self.filter_groups > 1)


@dataclass(frozen=True, repr=False)
class WeightSpace:
    """The description of a network's state: what a plane may span and what a checkpoint must hold."""

    framework: str  # "torch", ...
    network: str  # the network's class name
    tensors: tuple[TensorInfo, ...]  # parameters and buffers in the network's own order, each storage once

    def __repr__(self) -> str:
        counts = f"{len(self.parameters)} parameters, {len(self.buffers)} buffers"
        return f"WeightSpace({self.network} of {self.framework}; {counts}; {self.dimension} trainable weights)"

    @property
    def parameters(self) -> tuple[TensorInfo, ...]:
        """All parameters, frozen ones included."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "parameter")

    @property
    def trainable(self) -> tuple[TensorInfo, ...]:
        """The parameters that a plane spans."""
        return tuple(tensor for tensor in self.tensors if tensor.trainable)

    @property
    def buffers(self) -> tuple[TensorInfo, ...]:
        """What the network remembers besides its parameters, such as running statistics."""
        return tuple(tensor for tensor in self.tensors if tensor.role == "buffer")

    @property
    def dimension(self) -> int:
        return sum(tensor.size for tensor in self.trainable)

    def differences(self, other: WeightSpace) -> list[str]:
        """Returns one line for each tensor in which the other network differs; none when they are equal."""
        # Which axes number the filters is no difference: that matters where a direction is drawn; earlier versions told
        # other ones for a gain of weight normalization.
        ours, theirs = (
            {tensor.name: replace(tensor, filter_axes=(), filter_groups=1) for tensor in space.tensors}
            for space in (self, other)
        )
        if (self.framework, self.network, list(ours.items())) == (other.framework, other.network, list(theirs.items())):
            return []
        lines = [
            f"{name}: {asdict(ours[name]) if name in ours else 'absent'} against "
            f"{asdict(theirs[name]) if name in theirs else 'absent'}"
            for name in dict.fromkeys((*ours, *theirs))
            if ours.get(name) != theirs.get(name)
        ]
        if self.network != other.network:
            lines.insert(0, f"class {self.network} against {other.network}")
        return lines or ["the same tensors in another order"]

    def check_state(self, where: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
        """Returns each tensor's name in a state; CheckpointError lists what is missing, unknown or of another shape."""
        found: dict[str, str] = {}
        problems: list[str] = []
        known: set[str] = set()
        for tensor in self.tensors:
            names = (tensor.name, *tensor.aliases)
            known.update(names)
            stored = next((name for name in names if name in shapes), None)
            if stored is None:
                problems.append(f"  {tensor.name} {tensor.shape}: missing")
            elif tuple(shapes[stored]) != tensor.shape:
                problems.append(f"  {tensor.name}: the network has {tensor.shape}, found {tuple(shapes[stored])}")
            else:
                found[tensor.name] = stored
        problems += [f"  {name} {tuple(shapes[name])}: unknown" for name in shapes if name not in known]
        if problems:
            shown = problems[:40] + ([f"  ... and {len(problems) - 40} more"] if len(problems) > 40 else [])
            raise CheckpointError(
                f"{where} does not fit the network {self.network}:\n"
                + "\n".join(shown)
                + "\nUse the network that was trained, or the run directory of this network."
            )
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> WeightSpace:
        lists = ("shape", "filter_axes", "aliases")
        tensors = []
        for tensor in value["tensors"]:
            parts: dict[str, Any] = {name: tuple(part) if name in lists else part for name, part in tensor.items()}
            tensors.append(TensorInfo(**parts))
        return cls(str(value["framework"]), str(value["network"]), tuple(tensors))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns the NumPy element type of that name, ml_dtypes' ones ("bfloat16", "float8_e4m3fn") included."""
    return np.dtype(name)


def direction_dtype(dtype: str) -> np.dtype[Any]:
    """Returns the element type in which points along a direction are computed: float64 for float64, else float32."""
    return np.dtype(np.float64 if dtype in ("float64", "complex128") else np.float32)


def move_along(
    space: WeightSpace, origin: State, directions: Sequence[State], coordinates: Sequence[float]
) -> dict[str, NDArray[Any]]:
    """Returns each trainable parameter at origin + coordinates times directions, in its element type, in new memory."""
    point = {}
    for info in space.trainable:
        value = origin[info.name].astype(direction_dtype(info.dtype))
        for coordinate, direction in zip(coordinates, directions, strict=True):
            value += value.dtype.type(coordinate) * direction[info.name]
        with np.errstate(over="ignore"):  # a float16 weight may leave its range, and is infinite then
            point[info.name] = value.astype(numpy_dtype(info.dtype), copy=False)
    return point


def state_sha256(state: State) -> str:
    """Returns the SHA-256 of names, types, shapes and values, independent of the dictionary's order."""
    digest = hashlib.sha256()
    for name in sorted(state):
        array = np.ascontiguousarray(state[name])
        digest.update(f"{name}|{array.dtype.name}|{state[name].shape}|".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def describe_arrays(arrays: State, network: str = "arrays", *, filter_axis: int = 0) -> WeightSpace:
    """Returns the description of a network of which only the arrays are known.

    Args:
        arrays: name to array; floating-point arrays are trainable parameters, all others are buffers.
        network: its name.
        filter_axis: the axis of arrays with two axes and more whose entries are the filters (0 where a matrix is
            applied as ``weight @ x``, -1 where it is ``x @ weight``).

    Raises:
        TypeError: a value is not an array.
    """
    tensors = []
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(f"arrays must map names to NumPy arrays, but {name!r} is a {type(array).__name__}.")
        floating = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        axes = (filter_axis % array.ndim,) if floating and array.ndim >= 2 else ()
        role: Role = "parameter" if floating else "buffer"
        tensors.append(TensorInfo(name, array.shape, array.dtype.name, role, floating, axes))
    return WeightSpace("arrays", network, tuple(tensors))
