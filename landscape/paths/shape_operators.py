"""What becomes of axes in operators that reshape, choose, join and reduce tensors."""

from __future__ import annotations

from .axis_labels import Axes, NoCommonPartsError
from .operation import Operation, Result, Rule, UnknownOperatorError, broadcast


def pointwise(operation: Operation) -> Result:
    """Element by element: axes at the same place go together."""
    return broadcast(operation.labels, operation.all_axes())


def _same(operation: Operation) -> Result:
    return operation.first


def _softmax(operation: Operation) -> Result:
    axes = operation.first
    operation.labels.mix([axes[place] for place in operation.dimensions("dim", len(axes))], axes)
    return axes


def _constant(operation: Operation) -> Result:
    # All elements are equal, so that any permutation leaves them as they are.
    return operation.labels.new_axes(operation.shape)


def _reshape(operation: Operation) -> Result:
    return operation.labels.divide(operation.first, operation.shape)


def _permute(operation: Operation) -> Result:
    axes = operation.first
    return [axes[place] for place in operation.dimensions("dims", len(axes))]


def _transpose(operation: Operation) -> Result:
    axes = operation.first
    names = [name for name in operation.arguments if name.startswith(("dim", "axis"))]
    one, other = (operation[name] for name in names) if names else (-1, -2) if len(axes) > 1 else (0, 0)
    axes[one], axes[other] = axes[other], axes[one]
    return axes


def _movedim(operation: Operation) -> Result:
    axes = operation.first
    sources = operation.dimensions("source", len(axes))
    targets = operation.dimensions("destination", len(axes))
    rest = iter([axis for place, axis in enumerate(axes) if place not in sources])
    moved = dict(zip(targets, sources, strict=True))
    return [axes[moved[place]] if place in moved else next(rest) for place in range(len(axes))]


def _expand(operation: Operation) -> Result:
    axes, shape = operation.first, operation.shape
    missing = len(shape) - len(axes)
    result: Axes = []
    for place, length in enumerate(shape):
        known = axes[place - missing] if place >= missing else []
        # Along an axis that was repeated all entries are equal.
        result.append(known or operation.labels.new_axis(length))
    return result


def _repeat(operation: Operation) -> Result:
    times, axes = operation["repeats"], operation.first
    axes = [[] for _ in range(len(times) - len(axes))] + axes
    return [[*operation.labels.new_axis(count), *axis] for count, axis in zip(times, axes, strict=True)]


def _repeat_interleave(operation: Operation) -> Result:
    axes, count = operation.first, operation["repeats"]
    if operation["dim"] is None or not isinstance(count, int):
        raise UnknownOperatorError
    (place,) = operation.dimensions("dim", len(axes))
    axes[place] = [*axes[place], *operation.labels.new_axis(count)]
    return axes


def _select(operation: Operation) -> Result:
    axes = operation.first
    operation.labels.fix(axes.pop(operation["dim"]))
    return axes


def _slice(operation: Operation) -> Result:
    axes, shape, place = operation.first, operation.shape, operation["dim"]
    whole, length = operation.labels.length(axes[place]), shape[place]
    if whole == length:
        return axes
    start = operation["start"] or 0
    start += whole if start < 0 else 0
    if operation.arguments.get("step", 1) == 1 and whole % length == 0 and start % length == 0:
        axes[place] = _parts(operation, axes, place, length)
    else:
        operation.labels.fix(axes[place])
        axes[place] = operation.fixed(length)
    return axes


def _split(operation: Operation) -> Result:
    axes = operation.first
    place = operation["dim"] % len(axes)
    lengths = [shape[place] for shape in operation.shapes if shape is not None]
    if len(set(lengths)) == 1:
        part = _parts(operation, axes, place, lengths[0])
        return tuple([*axes[:place], part, *axes[place + 1 :]] for _ in lengths)
    operation.labels.fix(axes[place])
    return tuple([*axes[:place], operation.fixed(length), *axes[place + 1 :]] for length in lengths)


def _glu(operation: Operation) -> Result:
    axes, place = operation.first, operation["dim"]
    axes[place] = _parts(operation, axes, place, operation.shape[place])
    return axes


def _unbind(operation: Operation) -> Result:
    axes = operation.first
    operation.labels.fix(axes.pop(operation["dim"]))
    return tuple(list(axes) for _ in operation.shapes)


def _cat(operation: Operation) -> Result:
    # An empty tensor may have other axes: a cache to which nothing was added.
    tensors = [axes for axes in operation.all_axes() if all(operation.labels.length(axis) for axis in axes)]
    place = operation["dim"]
    if len(tensors) == 1:
        return tensors[0]
    for axes in tensors:
        operation.labels.fix(axes[place])
    fixed = [[*axes[: place % len(axes)], [], *axes[place % len(axes) + 1 :]] for axes in tensors]
    result = broadcast(operation.labels, fixed)
    result[place] = operation.fixed(operation.shape[place])
    return result


def _stack(operation: Operation) -> Result:
    result = broadcast(operation.labels, operation.all_axes())
    place = operation["dim"] % (len(result) + 1)
    result.insert(place, operation.fixed(operation.shape[place]))
    return result


def _reduce(operation: Operation) -> Result:
    if "other" in operation.arguments:  # the larger of two tensors
        return pointwise(operation)
    axes = operation.first
    places = set(operation.dimensions("dim", len(axes)))
    kept = [
        [] if place in places else axis
        for place, axis in enumerate(axes)
        if place not in places or operation.arguments.get("keepdim")
    ]
    if len(operation.shapes) == 1:
        return kept
    # Of a maximum also the place is returned, which depends on the order.
    operation.fix([axes[place] for place in places])
    return tuple(list(kept) for _ in operation.shapes)


def _ordered(operation: Operation) -> Result:
    axes = operation.first
    places = operation.dimensions("dims" if "dims" in operation.arguments else "dim", len(axes))
    ordered = [axes[place] for place in places]
    operation.fix(ordered)
    operation.labels.mix(ordered, axes)
    return axes


def _triangle(operation: Operation) -> Result:
    axes = operation.first
    operation.fix(axes[-2:])
    return axes


def _pad(operation: Operation) -> Result:
    axes, shape = operation.first, operation.shape
    for place, axis in enumerate(axes):
        if operation.labels.length(axis) != shape[place] or any(_padding(operation, len(axes), place)):
            operation.labels.fix(axis)
            axes[place] = operation.fixed(shape[place])
    return axes


def _padding(operation: Operation, count: int, place: int) -> list[int]:
    before = 2 * (count - 1 - place)
    return list(operation["pad"][before : before + 2])


def _parts(operation: Operation, axes: Axes, place: int, length: int) -> list[int]:
    """Returns the labels of one of the equal parts into which an axis falls; which part it is cannot change."""
    try:
        outer, part = operation.labels.divide([axes[place]], (operation.labels.length(axes[place]) // length, length))
    except NoCommonPartsError:
        operation.labels.fix(axes[place])
        return operation.fixed(length)
    operation.labels.fix(outer)
    return operation.labels.labels(part)


SHAPE_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("alias", "alpha_dropout", "clone", "contiguous", "detach", "dropout", "feature_dropout", "lift_fresh_copy",
         "to", "_to_copy", "type_as", "hardswish", "log_sigmoid"), _same),
    **dict.fromkeys(("log_softmax", "softmax", "_log_softmax", "_softmax"), _softmax),
    **dict.fromkeys(("copy", "floor_divide", "masked_fill", "rsub", "true_divide", "where", "__and__", "__or__"),
                    pointwise),
    **dict.fromkeys(("full", "full_like", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "zeros",
                     "zeros_like", "scalar_tensor"), _constant),
    **dict.fromkeys(("flatten", "reshape", "squeeze", "unflatten", "unsqueeze", "view", "_unsafe_view"), _reshape),
    **dict.fromkeys(("numpy_T", "matrix_H", "mT", "swapaxes", "swapdims", "t", "transpose"), _transpose),
    **dict.fromkeys(("movedim", "moveaxis"), _movedim),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expand),
    **dict.fromkeys(("slice", "narrow"), _slice),
    **dict.fromkeys(("chunk", "split", "split_with_sizes", "tensor_split"), _split),
    **dict.fromkeys(("cat", "concat"), _cat),
    **dict.fromkeys(("all", "amax", "amin", "any", "linalg_vector_norm", "logsumexp", "max", "mean", "min", "norm",
                     "prod", "std", "sum", "var"), _reduce),
    **dict.fromkeys(("cumprod", "cumsum", "flip", "roll"), _ordered),
    **dict.fromkeys(("constant_pad_nd", "pad"), _pad),
    "glu": _glu,
    "permute": _permute,
    "repeat": _repeat,
    "repeat_interleave": _repeat_interleave,
    "select": _select,
    "stack": _stack,
    **dict.fromkeys(("tril", "triu"), _triangle),
    "unbind": _unbind,
}  # fmt: skip
