"""What becomes of axes in the operators of a network's graph: a table of rules, by PyTorch's names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import torch

from .axis_labels import Axes, Axis, NoCommonPartsError, Operation, Result, UnknownOperatorError

Rule: TypeAlias = Callable[[Operation], Result]
RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


@_rule("copy", "floor_divide", "masked_fill", "rsub", "true_divide", "where", "__and__", "__or__")
def pointwise(operation: Operation) -> Result:
    """Combines element by element: axes at the same place, counted from the last one, go together."""
    return operation.labels.broadcast(operation.all_axes())


_rule("alias", "alpha_dropout", "clone", "contiguous", "detach", "dropout", "feature_dropout", "lift_fresh_copy",
      "to", "_to_copy", "type_as", "hardswish", "log_sigmoid")(lambda operation: operation.first)  # fmt: skip
# All elements are equal, so that any permutation leaves them as they are.
_rule("full", "full_like", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "zeros", "zeros_like",
      "scalar_tensor")(lambda operation: operation.labels.new_axes(operation.shape))  # fmt: skip
_rule("flatten", "reshape", "squeeze", "unflatten", "unsqueeze", "view", "_unsafe_view")(
    lambda operation: operation.labels.divide(operation.first, operation.shape)
)
_rule("glu")(lambda operation: _cut(operation, operation.shape[operation["dim"]]))


@_rule("linear")
def _linear(operation: Operation) -> Result:
    inputs, weight = operation.axes("input"), operation.axes("weight")
    operation.labels.join(inputs[-1], weight[1])
    return [*inputs[:-1], operation.joined(weight[0], "bias")]


@_rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution")
def _convolution(operation: Operation) -> Result:
    labels, inputs, weight = operation.labels, operation.axes("input"), operation.axes("weight")
    places = len(weight) - 2
    transposed = operation.name.startswith("conv_transpose") or operation.arguments.get("transposed", False)
    groups = operation.arguments.get("groups", 1)
    channels = len(inputs) - places - 1
    labels.fix(*inputs[channels + 1 :], *weight[2:])
    # Where there are groups of channels, they number the parts of the weight's first axis; its second is of one group.
    outer, _ = labels.divide([weight[0]], (groups, labels.length(weight[0]) // groups))
    of_all = [*outer, *weight[1]]
    into, result = (weight[0], of_all) if transposed else (of_all, weight[0])
    labels.join(inputs[channels], into)
    result = operation.joined(result, "bias")
    return [*inputs[:channels], result, *(operation.fixed(length) for length in operation.shape[channels + 1 :])]


@_rule("batch_norm", "instance_norm")
def _channel_norm(operation: Operation) -> Result:
    inputs = operation.axes("input")
    # Statistics that were not kept are those of the batch.
    operation.labels.mixed.append(([*inputs[:1], *inputs[2:]], inputs))
    inputs[1] = operation.joined(inputs[1], "weight", "bias", "running_mean", "running_var")
    return inputs


@_rule("group_norm")
def _group_norm(operation: Operation) -> Result:
    labels, inputs = operation.labels, operation.first
    groups = operation["num_groups"]
    outer, inner = labels.divide([inputs[1]], (groups, labels.length(inputs[1]) // groups))
    labels.mixed.append(([inner, *inputs[2:]], [inputs[0], outer, inner, *inputs[2:]]))
    inputs[1] = operation.joined([*outer, *inner], "weight", "bias")
    return inputs


@_rule("layer_norm", "rms_norm")
def _layer_norm(operation: Operation) -> Result:
    inputs = operation.axes("input")
    count = len(operation["normalized_shape"])
    operation.labels.mixed.append((inputs[-count:], inputs))
    return operation.labels.broadcast([inputs, *operation.optional("weight", "bias")])


@_rule("_weight_norm")
def _weight_norm(operation: Operation) -> Result:
    axes = operation.axes("v")
    kept = operation["dim"] % len(axes)
    operation.labels.mixed.append(([axis for place, axis in enumerate(axes) if place != kept], axes))
    return operation.labels.broadcast([axes, operation.axes("g")])


@_rule("prelu")
def _prelu(operation: Operation) -> Result:
    inputs, weight = operation.first, operation.axes("weight")
    if weight and weight[0]:
        inputs[1] = operation.labels.join(inputs[1], weight[0])
    return inputs


@_rule("pixel_shuffle")
def _pixel_shuffle(operation: Operation) -> Result:
    """Parts of each channel become places, which have an order."""
    *batch, channels, _, _ = operation.first
    factor, labels, shape = operation["upscale_factor"], operation.labels, operation.shape
    kept, parts = labels.divide([channels], (shape[-3], factor**2))
    labels.fix(parts)
    return [*batch, kept, *map(operation.fixed, shape[-2:])]


@_rule("pixel_unshuffle")
def _pixel_unshuffle(operation: Operation) -> Result:
    *batch, channels, _, _ = operation.first
    parts = operation.fixed(operation["downscale_factor"] ** 2)
    return [*batch, [*channels, *parts], *map(operation.fixed, operation.shape[-2:])]


@_rule("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(operation: Operation) -> Result:
    inputs, groups = operation.first, operation["groups"]
    outer, inner = operation.labels.divide([inputs[1]], (groups, operation.shape[1] // groups))
    return [inputs[0], [*inner, *outer], *inputs[2:]]


@_rule(
    *(f"{kind}_pool{axes}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for axes in (1, 2, 3)),
    *(f"max_pool{axes}d_with_indices" for axes in (2, 3)),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d"),
)
def _places(operation: Operation) -> Result:
    """Pooling and interpolation: the axes of places have an order, all others are untouched."""
    inputs = operation.first
    kept = len(inputs) - int(re.findall("([123])d", operation.name)[0])
    operation.labels.fix(*inputs[kept:])
    results = tuple(
        [*inputs[:kept], *map(operation.fixed, shape[kept:])] for shape in operation.shapes if shape is not None
    )
    return results if len(results) > 1 else results[0]


@_rule("embedding")
def _embedding(operation: Operation) -> Result:
    weight = operation.axes("weight")
    operation.labels.fix(weight[0])
    return [*operation.axes("indices"), weight[1]]


@_rule("addmm", "baddbmm", "bmm", "dot", "matmul", "mm", "mv", "vdot")
def _product(operation: Operation) -> Result:
    labels = operation.labels
    *added, one, other = operation.all_axes()
    labels.join(one[-1], other[-2] if len(other) > 1 else other[0])
    outer = labels.broadcast([one[:-2], other[:-2]])
    return labels.broadcast([*added, [*outer, *one[:-1][-1:], *(other[-1:] if len(other) > 1 else [])]])


@_rule("einsum")
def _einsum(operation: Operation) -> Result:
    inputs, arrow, output = operation["equation"].replace(" ", "").partition("->")
    if not arrow or "." in inputs:
        raise UnknownOperatorError
    of_letter: dict[str, Axis] = {}
    for letters, axes in zip(inputs.split(","), operation.all_axes(), strict=True):
        for letter, axis in zip(letters, axes, strict=True):
            other = of_letter.get(letter)
            of_letter[letter] = operation.labels.join(other, axis) if other and axis else other or axis
    return [of_letter[letter] for letter in output]


@_rule("scaled_dot_product_attention")
def _attention(operation: Operation) -> Result:
    query, key, value = (operation.axes(name) for name in ("query", "key", "value"))
    labels = operation.labels
    if operation["enable_gqa"]:
        raise UnknownOperatorError
    labels.join(query[-1], key[-1])
    key[-2] = labels.join(key[-2], value[-2])
    if operation["is_causal"]:
        labels.fix(query[-2], key[-2])
    labels.mixed.append(([*query[-2:], *key[-2:], *value[-2:]], [*query, *key, *value]))
    scores = [*labels.broadcast([query[:-2], key[:-2], value[:-2]]), query[-2], key[-2]]
    scores = labels.broadcast([scores, *operation.optional("attn_mask")])
    return [*scores[:-1], value[-1]]


@_rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(operation: Operation) -> Result:
    """LSTM, GRU and plain recurrent layers, in one direction and without projections."""
    labels, inputs, states = operation.labels, operation.axes("input"), operation["hx"]
    count = operation["num_layers"]
    weights = [item.axes for item in operation["params"]]
    step = 4 if operation["has_biases"] else 2
    if operation["bidirectional"] or len(weights) != step * count:
        raise UnknownOperatorError
    hidden = [item.axes for item in (states if isinstance(states, list | tuple) else [states])]
    features = inputs[-1]
    labels.mixed.append((inputs[:-1], inputs))
    for layer in range(count):
        into, again, *added = weights[layer * step : (layer + 1) * step]
        width = labels.labels(again[1])
        gates = labels.length(again[0]) // labels.length(width)
        kinds = operation.fixed(gates)
        labels.join(features, into[1])
        for tensor in (into, again, *added):
            labels.join([*kinds, *width], tensor[0])
        for state in hidden:
            labels.fix(state[0])
            labels.join(state[-1], width)
        features = labels.labels(width)
    return ([*inputs[:-1], features], *(list(state) for state in hidden))


@_rule("permute", "movedim", "moveaxis", "numpy_T", "matrix_H", "mT", "swapaxes", "swapdims", "t", "transpose")
def _reordered(operation: Operation) -> Result:
    axes, others = operation.first, list(operation.arguments.values())[1:]
    # By what the operator does itself to a tensor that has no elements, and axes of different lengths.
    moved = getattr(torch.ops.aten, operation.name)(torch.empty([*range(len(axes))], device="meta"), *others)
    return [axes[place] for place in moved.shape]


@_rule("expand", "expand_as", "broadcast_to", "repeat")
def _expand(operation: Operation) -> Result:
    shape, axes = operation.shape, operation.first
    axes = [[] for _ in range(len(shape) - len(axes))] + axes
    expanded = [1 if axis else length for axis, length in zip(axes, shape, strict=True)]
    # Along an axis that was repeated all entries are equal.
    times = operation.arguments.get("repeats", expanded)
    return [[*operation.labels.new_axis(count), *axis] for count, axis in zip(times, axes, strict=True)]


@_rule("repeat_interleave")
def _repeat_interleave(operation: Operation) -> Result:
    axes, count = operation.first, operation["repeats"]
    if operation["dim"] is None or not isinstance(count, int):
        raise UnknownOperatorError
    (place,) = operation.dimensions("dim", len(axes))
    axes[place] = [*axes[place], *operation.labels.new_axis(count)]
    return axes


@_rule("select", "unbind")
def _without_axis(operation: Operation) -> Result:
    axes = operation.first
    operation.labels.fix(axes.pop(operation["dim"]))
    return axes if operation.name == "select" else tuple(list(axes) for _ in operation.shapes)


@_rule("slice", "narrow")
def _slice(operation: Operation) -> Result:
    axes, place = operation.first, operation["dim"]
    whole, length = operation.labels.length(axes[place]), operation.shape[place]
    if whole == length:
        return axes
    start = operation["start"] or 0
    start += whole if start < 0 else 0
    step = operation.arguments.get("step", 1)
    return _cut(operation, length, fits=step == 1 and whole % length == 0 and start % length == 0)


@_rule("chunk", "split", "split_with_sizes", "tensor_split")
def _split(operation: Operation) -> Result:
    lengths = [shape[operation["dim"]] for shape in operation.shapes if shape is not None]
    return tuple(_cut(operation, length, fits=len(set(lengths)) == 1) for length in lengths)


def _cut(operation: Operation, length: int, *, fits: bool = True) -> Axes:
    """Returns axes of which one is cut to one of its parts, equal ones if it ``fits``; which part cannot change."""
    labels, axes, place = operation.labels, operation.first, operation["dim"]
    try:
        if not fits:
            raise NoCommonPartsError
        outer, part = labels.divide([axes[place]], (labels.length(axes[place]) // length, length))
        labels.fix(outer)
        axes[place] = labels.labels(part)
    except NoCommonPartsError:
        labels.fix(axes[place])
        axes[place] = operation.fixed(length)
    return axes


@_rule("cat", "concat")
def _cat(operation: Operation) -> Result:
    # An empty tensor may have other axes: a cache to which nothing was added.
    tensors = [list(axes) for axes in operation.all_axes() if all(operation.labels.length(axis) for axis in axes)]
    place = operation["dim"]
    if len(tensors) == 1:
        return tensors[0]
    for axes in tensors:
        operation.labels.fix(axes[place])
        axes[place] = []
    result = operation.labels.broadcast(tensors)
    result[place] = operation.fixed(operation.shape[place])
    return result


@_rule("stack")
def _stack(operation: Operation) -> Result:
    result = operation.labels.broadcast(operation.all_axes())
    place = operation["dim"] % (len(result) + 1)
    result.insert(place, operation.fixed(operation.shape[place]))
    return result


@_rule("all", "amax", "amin", "any", "linalg_vector_norm", "logsumexp", "max", "mean", "min", "norm", "prod", "std",
       "sum", "var")  # fmt: skip
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
    operation.labels.fix(*(axes[place] for place in places))
    return tuple(list(kept) for _ in operation.shapes)


@_rule("log_softmax", "softmax", "_log_softmax", "_softmax", "cumprod", "cumsum", "flip", "roll")
def _along(operation: Operation) -> Result:
    axes = operation.first
    places = operation.dimensions("dims" if "dims" in operation.arguments else "dim", len(axes))
    mixed = [axes[place] for place in places]
    if "softmax" not in operation.name:  # which of them comes first matters
        operation.labels.fix(*mixed)
    operation.labels.mixed.append((mixed, axes))
    return axes


@_rule("tril", "triu")
def _triangle(operation: Operation) -> Result:
    operation.labels.fix(*operation.first[-2:])
    return operation.first


@_rule("constant_pad_nd", "pad")
def _pad(operation: Operation) -> Result:
    axes, shape = operation.first, operation.shape
    for place, axis in enumerate(axes):
        before = 2 * (len(axes) - 1 - place)
        if operation.labels.length(axis) != shape[place] or any(operation["pad"][before : before + 2]):
            operation.labels.fix(axis)
            axes[place] = operation.fixed(shape[place])
    return axes
