"""Keras: statistics of batch normalization anew at each point, on each back end, against float64 in NumPy."""

import keras
import numpy as np
import pytest
from cases import check_recalibration, mean_loss, open_evaluator
from keras_cases import QUIET, data

from workers.errors import SamplesError

pytestmark = QUIET

layers = keras.layers
EPSILON = 1e-3


class Twice(keras.Model):
    """Uses one normalization layer twice, and another one as training never does."""

    def __init__(self, **normalizing):
        super().__init__()
        self.dense, self.norm = layers.Dense(6, name="dense"), layers.BatchNormalization(name="norm", **normalizing)
        self.kept, self.drop = layers.BatchNormalization(name="kept"), layers.Dropout(0.5, seed=3)
        self.head = layers.Dense(4, name="head")

    def call(self, inputs, training=None):
        hidden = self.norm(keras.ops.tanh(self.norm(self.dense(inputs), training=training)), training=training)
        return self.head(self.drop(self.kept(hidden, training=False), training=training))


def built(frozen=False, **normalizing):
    keras.utils.set_random_seed(0)
    network = Twice(**normalizing)
    network.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    network(data()[0])
    random = np.random.default_rng(1)
    for layer in (network.norm, network.kept):
        layer.set_weights([random.uniform(0.5, 2, 6) for _ in layer.weights])
        layer.trainable = not frozen
    return network


def outputs_of(state, inputs, statistics, computed):
    """Returns logits in float64; ``statistics`` gives those of a use of the layer, which ``computed`` gets to know."""

    def normalized(values, name, mean, variance):
        scaled = (values - mean) / np.sqrt(variance + EPSILON)
        return scaled * state[f"{name}/gamma"] + state[f"{name}/beta"]

    values = inputs @ state["dense/kernel"] + state["dense/bias"]
    for use in range(2):
        values = np.tanh(values) if use else values
        own = values.mean(0), values.var(0)
        computed.append(own)
        values = normalized(values, "norm", *(own if statistics is None else statistics))
    values = normalized(values, "kept", state["kept/moving_mean"], state["kept/moving_variance"])
    return values @ state["head/kernel"] + state["head/bias"]


def loss_at(state, batch_size):
    x, y = data()
    batches = [x[start : start + batch_size].astype(np.float64) for start in range(0, len(x), batch_size)]
    computed = []
    for batch in batches:
        if len(batch) > 1:
            outputs_of(state, batch, None, computed)
    averaged = [np.mean(part, axis=0) for part in zip(*computed, strict=True)]
    return mean_loss(outputs_of(state, x.astype(np.float64), averaged, []), y)


# With 7 the last batch holds a single sample, which is left out.
@pytest.mark.parametrize(("batch_size", "renorm"), [(50, False), (16, False), (7, False), (16, True)])
def test_statistics_are_averaged_over_the_batches_and_the_uses_of_a_layer(batch_size, renorm):
    network = built(renorm=renorm)
    check_recalibration((network, network, data(), None), batch_size, loss_at, differs=1e-2)
    assert (network.norm.momentum, network.norm.renorm, "call" in vars(network.norm)) == (0.99, renorm, False)


def test_what_has_no_statistics_of_samples():
    network = built(frozen=True)
    with pytest.warns(UserWarning, match="changes nothing: the network has no normalization statistics"):
        open_evaluator((network, network, data(), None), buffers="recalibrate").close()
    network = built()
    with pytest.raises(SamplesError, match="needs batches of at least two samples"):
        open_evaluator((network, network, data(1), None), buffers="recalibrate")
