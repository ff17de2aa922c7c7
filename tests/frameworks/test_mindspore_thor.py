"""Our THOR beside MindSpore's own, on the CPU: its operators without a right CPU kernel are replaced."""

import types

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import Tensor, ops
from mindspore import nn as ms_nn
from scipy.linalg import block_diag
from torch import nn

from collectors import thor

SIZE, STEPS, CLASSES = 16, 10, 10


class CholeskyTrsm:
    """L^-1 of each diagonal block. Without split_dim, as for an Embedding's G, one matrix."""

    def __init__(self, split_dim=None):
        self.split = split_dim

    def __call__(self, matrix):
        whole = matrix.asnumpy().astype(np.float64)
        if self.split is None:
            return Tensor(np.linalg.inv(np.linalg.cholesky(whole)).astype(np.float32))
        size = min(self.split, len(whole))
        count = -(-len(whole) // size)
        found = np.zeros((count, size, size))
        for index in range(count):
            block, part = np.eye(size), whole[index * size : (index + 1) * size, index * size : (index + 1) * size]
            block[: len(part), : len(part)] = part
            found[index] = np.linalg.inv(np.linalg.cholesky(block))
        return Tensor(found.astype(np.float32))


class UpdateThorGradient:
    """G^-1 gradient A^-1 of the blocks' inverses."""

    def __init__(self, split_dim=128):
        pass

    def __call__(self, g, gradient, a):
        middle = gradient.asnumpy().astype(np.float64)
        left, right = (block_diag(*blocks.astype(np.float64)) for blocks in (g.asnumpy(), a.asnumpy()[0]))
        rows, columns = middle.shape
        return Tensor((left[:rows, :rows] @ middle @ right[:columns, :columns]).astype(np.float32))


class ThorIm2Col:
    """The patches of a convolution with padding "same", of shape (channels, height, width, samples, rows, columns)."""

    def __init__(self, kernel_size, stride, pad_mode):
        self.kernel, self.stride = kernel_size[0], stride[0] if isinstance(stride, tuple) else stride

    def __call__(self, images):
        images = images.asnumpy()
        height, width = images.shape[2:]
        kernel, stride = self.kernel, self.stride
        rows, columns = -(-height // stride), -(-width // stride)
        down, right = (max((n - 1) * stride + kernel - m, 0) for n, m in ((rows, height), (columns, width)))
        sides = ((0, 0), (0, 0), (down // 2, down - down // 2), (right // 2, right - right // 2))
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(images, sides), (kernel, kernel), (2, 3))
        return Tensor(windows[:, :, ::stride, ::stride].transpose(1, 4, 5, 0, 2, 3).astype(np.float32))


class ApplyMomentum:
    """As MindSpore documents it; its kernel for the CPU ignores ``use_nesterov``."""

    def __init__(self, use_nesterov=False):
        self.nesterov = use_nesterov

    def __call__(self, weight, moment, learning_rate, gradient, momentum):
        moment.set_data(moment * momentum + gradient)
        ahead = gradient + moment * momentum if self.nesterov else moment
        weight.set_data(weight - learning_rate * ahead)
        return weight


@pytest.fixture(autouse=True)
def mindspore_on_the_cpu(monkeypatch):
    import mindspore.nn.layer.thor_layer as layers
    from mindspore.ops import operations
    from mindspore.train.train_thor import convert_utils

    ms.set_context(mode=ms.PYNATIVE_MODE)
    monkeypatch.setattr(operations, "CholeskyTrsm", CholeskyTrsm)
    monkeypatch.setattr(operations, "UpdateThorGradient", UpdateThorGradient)
    monkeypatch.setattr(operations, "ApplyMomentum", ApplyMomentum)
    monkeypatch.setattr(layers, "ThorIm2Col", ThorIm2Col)
    # On a GPU its layers compute in float32.
    monkeypatch.setattr(convert_utils, "context", types.SimpleNamespace(get_context=lambda key: "GPU"))


class TheirNetwork(ms_nn.Cell):
    def __init__(self, padding):
        super().__init__()
        self.conv = ms_nn.Conv2d(1, 4, 3, stride=2, pad_mode=padding, has_bias=False)
        self.words = ms_nn.Embedding(9, 12)
        self.first = ms_nn.Dense(4 * (5 if padding == "same" else 4) ** 2, 12)
        self.norm = ms_nn.LayerNorm((12,), epsilon=1e-5)
        self.last = ms_nn.Dense(12, CLASSES)

    def construct(self, image, word):
        hidden = ops.relu(self.conv(image)).reshape((image.shape[0], -1))
        return self.last(ops.tanh(self.norm(self.first(hidden)) + self.words(word)))


class OurNetwork(nn.Module):
    def __init__(self, padding):
        super().__init__()
        # 9 x 9 pixels, stride 2: "same" is one pixel on each side.
        self.conv = nn.Conv2d(1, 4, 3, stride=2, padding=1 if padding == "same" else 0, bias=False)
        self.words = nn.Embedding(9, 12)
        self.first = nn.Linear(4 * (5 if padding == "same" else 4) ** 2, 12)
        self.norm = nn.LayerNorm(12)
        self.last = nn.Linear(12, CLASSES)

    def forward(self, image, word):
        hidden = torch.relu(self.conv(image)).flatten(1)
        return self.last(torch.tanh(self.norm(self.first(hidden)) + self.words(word)))


NAMES = {"words.embedding_table": "words.weight", "norm.gamma": "norm.weight", "norm.beta": "norm.bias"}


def train_theirs(padding, data, start, frequency, settings):
    """Returns the weights after the steps; the second-order steps are those that ModelThor would make."""
    network = TheirNetwork(padding)
    for parameter in network.trainable_params():
        parameter.set_data(Tensor(start[NAMES.get(parameter.name, parameter.name)]))
    rates = [Tensor(np.full(STEPS, value, np.float32)) for value in (0.02, 0.03)]
    optimizer = ms_nn.thor(network, *rates, 0.9, batch_size=SIZE, frequency=frequency, **settings)
    loss_fn = ms_nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def loss(image, word, target):
        return loss_fn(network(image, word), target)

    gradients = ms.value_and_grad(loss, None, optimizer.parameters)
    for step, batch in enumerate(data):
        network.add_flags_recursive(thor=step % frequency == 0)
        optimizer.thor = step % frequency == 0
        _, found = gradients(*(Tensor(part) for part in batch))
        optimizer(found)
    return {NAMES.get(p.name, p.name): p.asnumpy() for p in network.trainable_params()}


def train_ours(padding, data, start, frequency, settings):
    network = OurNetwork(padding)
    network.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in start.items()})
    optimizer = thor(network, 0.02, 0.03, 0.9, frequency=frequency, factors="mindspore_gpu", **settings)
    for image, word, target in data:
        optimizer.zero_grad()
        outputs = network(torch.from_numpy(image), torch.from_numpy(word).long())
        nn.functional.cross_entropy(outputs, torch.from_numpy(target).long()).backward()
        optimizer.step()
    return {name: value.numpy() for name, value in network.state_dict().items()}


@pytest.mark.parametrize(
    ("padding", "frequency", "settings"),
    [
        ("same", 2, {}),
        ("valid", 4, {}),
        ("same", 4, {"weight_decay": 0.01, "use_nesterov": True}),
        ("same", 4, {"enable_clip_grad": True, "decay_filter": lambda x: "norm" not in x.name, "weight_decay": 0.02}),
    ],
    ids=["same", "valid", "decay and Nesterov", "clipped"],
)
def test_weights_after_ten_steps_are_those_of_mindspore(padding, frequency, settings):
    rng = np.random.default_rng(0)
    start = {
        name: (rng.standard_normal(value.shape) * 0.2).astype(np.float32)
        for name, value in OurNetwork(padding).state_dict().items()
    }
    data = [
        (
            rng.random((SIZE, 1, 9, 9)).astype(np.float32),
            rng.integers(0, 9, SIZE).astype(np.int32),
            rng.integers(0, CLASSES, SIZE).astype(np.int32),
        )
        for _ in range(STEPS)
    ]
    theirs = train_theirs(padding, data, start, frequency, settings)
    ours = train_ours(padding, data, start, frequency, settings)
    assert set(theirs) == set(ours)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-5, err_msg=name)
        assert np.abs(value - start[name]).max() > 1e-3, f"{name} did not move"
