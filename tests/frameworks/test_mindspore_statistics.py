"""MindSpore: statistics of batch normalization anew at each point, in both modes, against float64 in NumPy."""

import mindspore
import mindspore_cases
import numpy as np
import pytest
from cases import assert_unchanged, check_recalibration, mean_loss, open_evaluator
from mindspore import nn

from collectors.networks.readers import read_network
from workers.errors import CallbackFunctionError, SamplesError

CLASSES, EPSILON = 4, 1e-5
SAMPLES = mindspore_cases.arrays(50)
X, Y = SAMPLES["image"].reshape(50, -1)[:, :6], SAMPLES["label"] % CLASSES


class Normalized(nn.Cell):
    """Two layers of normalization, one that never follows batches, one that no pass uses, and dropout."""

    def __init__(self, several=False):
        super().__init__()
        self.dense, self.activation = nn.Dense(6, 6), nn.Tanh()
        self.first, self.second = nn.BatchNorm1d(6), nn.BatchNorm1d(6, momentum=0.5)
        self.kept, self.unused = nn.BatchNorm1d(6, use_batch_statistics=False), nn.BatchNorm1d(3)
        self.dropout, self.head = nn.Dropout(p=0.5), nn.Dense(6, CLASSES)
        self.several = several
        random = np.random.default_rng(1)
        for name, parameter in self.parameters_and_names():
            value = random.normal(scale=0.5, size=parameter.shape).astype("f")
            positive = name.endswith(("gamma", "moving_variance"))
            parameter.set_data(mindspore.Tensor(np.abs(value) + 0.5 if positive else value))

    def construct(self, inputs):
        hidden = self.second(self.activation(self.first(self.dense(inputs))))
        hidden = self.first(hidden) if self.several else hidden
        return self.head(self.dropout(self.kept(hidden)))


def built(**options):
    network = Normalized(**options)
    return mindspore_cases.model_of(network), network, (X, Y), {}


def logits_of(state, inputs, statistics, computed):
    """Returns logits in float64; without statistics, by those of the batch, which ``computed`` gets to know."""
    values = inputs.astype(np.float64) @ state["dense.weight"].T + state["dense.bias"]
    for number, name in enumerate(("first", "second", "kept")):
        values = np.tanh(values) if name == "second" else values
        mean, variance = values.mean(0), values.var(0)
        if name == "kept":
            mean, variance = state["kept.moving_mean"], state["kept.moving_variance"]
        elif statistics is None:
            computed.append((mean, values.var(0, ddof=1)))  # what training keeps
        else:
            mean, variance = statistics[number]
        values = (values - mean) / np.sqrt(variance + EPSILON)
        values = values * state[f"{name}.gamma"] + state[f"{name}.beta"]
    return values @ state["head.weight"].T + state["head.bias"]


def loss_at(state, batch_size):
    batches = [X[start : start + batch_size] for start in range(0, len(X), batch_size)]
    computed = []
    for batch in batches:
        if len(batch) > 1:
            computed.append(part := [])
            logits_of(state, batch, None, part)
    averaged = np.mean(computed, axis=0)
    return mean_loss(logits_of(state, X, averaged, []), Y)


# With 7 the last batch holds a single sample, which is left out.
@pytest.mark.parametrize("batch_size", [50, 16, 7])
def test_statistics_are_averaged_over_the_batches(mode, batch_size):
    callback = built()
    network = callback[1]
    training = network.first.training
    check_recalibration(callback, batch_size, loss_at)
    assert (network.first.momentum, network.second.momentum) == (pytest.approx(0.1), 0.5)
    assert (network.first.bn_train.momentum, network.first.training) == (pytest.approx(0.1), training)


def test_a_network_that_computes_its_loss(mode):
    _, network, _, _ = built()
    check_recalibration((None, mindspore_cases.WithOwnLoss(network), (X, Y), {}), 16, loss_at)


def test_a_layer_that_is_used_twice_is_refused(mode):
    callback = built(several=True)
    before = read_network(callback[1])
    with pytest.raises(
        CallbackFunctionError, match=r"uses its layer 'first' 2 times in a forward pass.*buffers=\"fixed\""
    ):
        open_evaluator(callback, buffers="recalibrate")
    assert_unchanged(callback[1], before)


def test_layers_of_another_kind_are_refused(pynative):
    network = nn.Dense(6, CLASSES)
    network.running_mean = mindspore.Parameter(np.zeros(CLASSES, "f"), requires_grad=False)
    with pytest.raises(CallbackFunctionError, match=r"in its layer '', a Dense, .*nn\.BatchNorm1d, 2d and 3d"):
        open_evaluator((mindspore_cases.model_of(network), network, (X, Y), {}), buffers="recalibrate")


def test_what_has_no_statistics(pynative):
    network = nn.Dense(6, CLASSES)
    with pytest.warns(UserWarning, match="changes nothing: the network has no normalization statistics"):
        open_evaluator((mindspore_cases.model_of(network), network, (X, Y), {}), buffers="recalibrate").close()
    model, network, _, _ = built()
    with pytest.raises(SamplesError, match="needs batches of at least two samples"):
        open_evaluator((model, network, (X[:1], Y[:1]), {}), buffers="recalibrate")
