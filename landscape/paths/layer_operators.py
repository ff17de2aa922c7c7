"""What becomes of axes in operators that have weights, and in attention, pooling and products of matrices."""

from __future__ import annotations

import re

from .axis_labels import Axes, Axis
from .operation import Operation, Result, Rule, UnknownOperatorError, broadcast


def _linear(operation: Operation) -> Result:
    inputs, weight = operation.axes("input"), operation.axes("weight")
    operation.labels.join(inputs[-1], weight[1])
    for bias in operation.optional("bias"):
        weight[0] = operation.labels.join(weight[0], bias[0])
    return [*inputs[:-1], weight[0]]


def _convolution(operation: Operation) -> Result:
    labels, inputs, weight = operation.labels, operation.axes("input"), operation.axes("weight")
    places = len(weight) - 2
    transposed = operation.name.startswith("conv_transpose") or operation.arguments.get("transposed", False)
    groups = operation.arguments.get("groups", 1)
    channels = len(inputs) - places - 1
    operation.fix([*inputs[channels + 1 :], *weight[2:]])
    # Where there are groups of channels, they number the parts of the weight's first axis; its second is of one group.
    outer, _ = labels.divide([weight[0]], (groups, labels.length(weight[0]) // groups))
    of_all = [*outer, *weight[1]]
    into, result = (weight[0], of_all) if transposed else (of_all, weight[0])
    labels.join(inputs[channels], into)
    for bias in operation.optional("bias"):
        result = labels.join(result, bias[0])
    return [*inputs[:channels], result, *(operation.fixed(length) for length in operation.shape[channels + 1 :])]


def _channel_norm(operation: Operation) -> Result:
    inputs = operation.axes("input")
    # Statistics that were not kept are those of the batch.
    operation.labels.mix([*inputs[:1], *inputs[2:]], inputs)
    for tensor in operation.optional("weight", "bias", "running_mean", "running_var"):
        inputs[1] = operation.labels.join(inputs[1], tensor[0])
    return inputs


def _group_norm(operation: Operation) -> Result:
    labels, inputs = operation.labels, operation.first
    groups = operation["num_groups"]
    outer, inner = labels.divide([inputs[1]], (groups, labels.length(inputs[1]) // groups))
    labels.mix([inner, *inputs[2:]], [inputs[0], outer, inner, *inputs[2:]])
    inputs[1] = [*outer, *inner]
    for tensor in operation.optional("weight", "bias"):
        inputs[1] = labels.join(inputs[1], tensor[0])
    return inputs


def _layer_norm(operation: Operation) -> Result:
    inputs = operation.axes("input")
    count = len(operation["normalized_shape"])
    operation.labels.mix(inputs[-count:], inputs)
    return [*inputs[:-count], *broadcast(operation.labels, [inputs[-count:], *operation.optional("weight", "bias")])]


def _weight_norm(operation: Operation) -> Result:
    axes = operation.axes("v")
    kept = operation["dim"] % len(axes)
    operation.labels.mix([axis for place, axis in enumerate(axes) if place != kept], axes)
    return broadcast(operation.labels, [axes, operation.axes("g")])


def _prelu(operation: Operation) -> Result:
    inputs, weight = operation.first, operation.axes("weight")
    if weight and weight[0]:
        inputs[1] = operation.labels.join(inputs[1], weight[0])
    return inputs


def _pixel_shuffle(operation: Operation) -> Result:
    """Parts of each channel become places, which have an order."""
    *batch, channels, _, _ = operation.first
    factor, labels, shape = operation["upscale_factor"], operation.labels, operation.shape
    kept, parts = labels.divide([channels], (shape[-3], factor**2))
    labels.fix(parts)
    return [*batch, kept, *map(operation.fixed, shape[-2:])]


def _pixel_unshuffle(operation: Operation) -> Result:
    *batch, channels, _, _ = operation.first
    *_, height, width = operation.shape
    parts = operation.fixed(operation["downscale_factor"] ** 2)
    return [*batch, [*channels, *parts], operation.fixed(height), operation.fixed(width)]


def _channel_shuffle(operation: Operation) -> Result:
    inputs, groups = operation.first, operation["groups"]
    outer, inner = operation.labels.divide([inputs[1]], (groups, operation.shape[1] // groups))
    return [inputs[0], [*inner, *outer], *inputs[2:]]


def _places(operation: Operation) -> Result:
    """Pooling and interpolation: the axes of places have an order, all others are untouched."""
    found = re.search(r"([123])d", operation.name)
    if found is None:
        raise UnknownOperatorError
    kept, inputs = len(operation.first) - int(found[1]), operation.first
    operation.fix(inputs[kept:])
    results = tuple(
        [*inputs[:kept], *(operation.fixed(length) for length in shape[kept:])]
        for shape in operation.shapes
        if shape is not None
    )
    return results if len(results) > 1 else results[0]


def _embedding(operation: Operation) -> Result:
    weight = operation.axes("weight")
    operation.labels.fix(weight[0])
    return [*operation.axes("indices"), weight[1]]


def _matmul(operation: Operation) -> Result:
    one, other = operation.all_axes()
    return _product(operation, one, other)


def _addmm(operation: Operation) -> Result:
    added, one, other = operation.all_axes()
    return broadcast(operation.labels, [added, _product(operation, one, other)])


def _product(operation: Operation, one: Axes, other: Axes) -> Axes:
    operation.labels.join(one[-1], other[-2] if len(other) > 1 else other[0])
    outer = broadcast(operation.labels, [one[:-2], other[:-2]])
    return [*outer, *one[:-1][-1:], *(other[-1:] if len(other) > 1 else [])]


def _einsum(operation: Operation) -> Result:
    inputs, arrow, output = operation["equation"].replace(" ", "").partition("->")
    if not arrow or "." in inputs:
        raise UnknownOperatorError
    found: dict[str, Axis] = {}
    for letters, axes in zip(inputs.split(","), operation.all_axes(), strict=True):
        for letter, axis in zip(letters, axes, strict=True):
            known = found.get(letter)
            found[letter] = operation.labels.join(known, axis) if known and axis else known or axis
    return [found[letter] for letter in output]


def _attention(operation: Operation) -> Result:
    query, key, value = (operation.axes(name) for name in ("query", "key", "value"))
    labels = operation.labels
    if operation["enable_gqa"]:
        raise UnknownOperatorError
    labels.join(query[-1], key[-1])
    key[-2] = labels.join(key[-2], value[-2])
    if operation["is_causal"]:
        operation.fix([query[-2], key[-2]])
    labels.mix([*query[-2:], *key[-2:], *value[-2:]], [*query, *key, *value])
    scores = [*broadcast(labels, [query[:-2], key[:-2], value[:-2]]), query[-2], key[-2]]
    scores = broadcast(labels, [scores, *operation.optional("attn_mask")])
    return [*scores[:-1], value[-1]]


def _recurrent(operation: Operation) -> Result:
    """LSTM, GRU and plain recurrent layers, in one direction and without projections."""
    labels, inputs, states = operation.labels, operation.axes("input"), operation.arguments["hx"]
    count, biases = operation["num_layers"], operation["has_biases"]
    weights = [item.axes for item in operation["params"]]
    step = 4 if biases else 2
    if operation["bidirectional"] or len(weights) != step * count:
        raise UnknownOperatorError
    hidden = [item.axes for item in (states if isinstance(states, list | tuple) else [states])]
    features = inputs[-1]
    labels.mix(inputs[:-1], inputs)
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


LAYER_RULES: dict[str, Rule] = {
    "linear": _linear,
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"),
        _convolution,
    ),
    **dict.fromkeys(("batch_norm", "instance_norm"), _channel_norm),
    "group_norm": _group_norm,
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    "_weight_norm": _weight_norm,
    "prelu": _prelu,
    **dict.fromkeys(
        [f"{kind}_pool{axes}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for axes in (1, 2, 3)]
        + [f"max_pool{axes}d_with_indices" for axes in (2, 3)]
        + ["upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d"],
        _places,
    ),
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    **dict.fromkeys(("channel_shuffle", "native_channel_shuffle"), _channel_shuffle),
    "embedding": _embedding,
    **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv", "vdot"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _addmm),
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
}
