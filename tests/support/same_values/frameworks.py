"""Calls that need a framework beside PyTorch; each is made where its packages are installed."""

import functools

import door
import networks as net
import numpy as np
from grids import OPTIONS, measured
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from values import of_barrier, of_curvature

from landscape import MeasurementPlan

# Each framework says itself how it computes.
FREE = {"plan": MeasurementPlan(batch_size=16, threads=1)}


def arrays(count=40):
    inputs, targets = net.features(count)
    return inputs.numpy(), targets.numpy()


def _jax():
    """Returns what callback_fn gives for a function of named arrays."""
    import jax.numpy as jnp
    import optax

    from collectors.jax import JaxNetwork

    def predict(layers, inputs):
        return jnp.tanh(inputs @ layers["first"] + layers["bias"]) @ layers["last"]

    generator = np.random.default_rng(0)
    shapes = {"first": (6, 8), "bias": (8,), "last": (8, 3)}
    layers = {name: jnp.asarray(generator.standard_normal(shape), jnp.float32) for name, shape in shapes.items()}
    accuracy = {"accuracy": lambda outputs, targets: (outputs.argmax(-1) == targets).mean()}
    return optax.softmax_cross_entropy_with_integer_labels, JaxNetwork(predict, layers), arrays(), accuracy


def _linen():
    import jax
    import optax
    from flax import linen

    from collectors.jax import JaxNetwork

    class Network(linen.Module):
        @linen.compact
        def __call__(self, inputs, train=False):
            hidden = linen.BatchNorm(use_running_average=not train)(linen.Dense(8)(inputs))
            return linen.Dense(3)(linen.relu(hidden))

    network = JaxNetwork(Network().apply, Network().init(jax.random.key(0), arrays(2)[0]))
    return optax.softmax_cross_entropy_with_integer_labels, network, arrays(), {}


def _nnx():
    import optax
    from flax import nnx

    layers = nnx.Rngs(0)
    module = nnx.Sequential(nnx.Linear(6, 8, rngs=layers), nnx.relu, nnx.Linear(8, 3, rngs=layers))
    return optax.softmax_cross_entropy_with_integer_labels, module, arrays(), {}


def _keras():
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8), layers.BatchNormalization(), layers.Activation("tanh"), layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=["accuracy"])
    return model, model, arrays(), None


def _lightning():
    import lightning

    from workers.lightning import evaluator_from

    class Network(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = net.normalized()

        def forward(self, inputs):
            return self.body(inputs)

        def validation_step(self, batch, batch_idx):
            inputs, targets = batch
            return nn.functional.cross_entropy(self(inputs), targets)

    class Data(lightning.LightningDataModule):
        def val_dataloader(self):
            return DataLoader(TensorDataset(*net.features()), 16)

    return evaluator_from(Network, Data)()


def _transformers():
    import transformers

    from workers import OwnLoss

    settings = transformers.GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    network = net.seeded(lambda: transformers.GPT2LMHeadModel(settings))
    tokens, _ = net.sentences()
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    return OwnLoss(), network, DataLoader(rows, 8), {}


def _mindspore():
    import mindspore
    from mindspore import dataset, train

    class Network(mindspore.nn.Cell):
        def __init__(self):
            super().__init__()
            self.first, self.last = mindspore.nn.Dense(6, 8), mindspore.nn.Dense(8, 3)
            generator = np.random.default_rng(0)
            for _, parameter in self.parameters_and_names():
                parameter.set_data(mindspore.Tensor(generator.normal(size=parameter.shape).astype(np.float32)))

        def construct(self, inputs):
            return self.last(mindspore.ops.tanh(self.first(inputs)))

    network, (inputs, targets) = Network(), arrays()
    loss = mindspore.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    data = dataset.NumpySlicesDataset({"input": inputs, "label": targets.astype(np.int32)}, shuffle=False).batch(16)
    metrics = {"accuracy": train.Accuracy()}
    return train.Model(network, loss, metrics=metrics), network, data, metrics


def _composer():
    import composer

    network = composer.ComposerClassifier(net.perceptron(), num_classes=net.CLASSES)
    return None, network, DataLoader(TensorDataset(*net.features()), 16), {}


def grid(build, **options):
    """Measures a random plane through a framework's network."""
    network = build()[1]
    return measured(door.random_plane(network, seed=3, perturb_one_dimensional=True), build, **{**FREE, **options})


def jax_curvature(**options):
    given = {**OPTIONS, **FREE, "output": "curvature.h5", "top": 2, **options}
    return of_curvature(door.measure_curvature(_jax()[1], _jax, **given))


def jax_eigenvectors():
    given = {name: OPTIONS[name] for name in ("device_ids", "progress")}
    return measured(door.hessian_plane(_jax()[1], _jax, **given), _jax, **FREE)


def jax_barrier():
    network = _jax()[1]
    other = {name: np.asarray(array)[..., ::-1] for name, array in network.parameters.items()}
    return of_barrier(door.barrier(network, other, _jax, 7, output="landscape.h5", **{**OPTIONS, **FREE}))


JAX, FLAX = ("jax", "optax"), ("jax", "optax", "flax")
CALLS = {
    "JAX": (JAX, functools.partial(grid, _jax)),
    "JAX, random samples and groups": (
        JAX, functools.partial(grid, _jax, num_samples=17, samples="random", groups="target")
    ),
    "JAX, kept samples": (JAX, functools.partial(grid, _jax, keep_samples=True)),
    "JAX, curvature": (JAX, jax_curvature),
    "JAX, curvature of ggn and density": (
        JAX, functools.partial(jax_curvature, matrix="ggn", density_probes=2, density_steps=8)
    ),
    "JAX, plane along eigenvectors": (JAX, jax_eigenvectors),
    "JAX, barrier": (JAX, jax_barrier),
    "flax.linen": (FLAX, functools.partial(grid, _linen)),
    "flax.nnx": (FLAX, functools.partial(grid, _nnx)),
    "Keras": (("keras",), functools.partial(grid, _keras)),
    "Keras, recalibrated": (("keras",), functools.partial(grid, _keras, buffers="recalibrate")),
    "Lightning": (("lightning",), functools.partial(grid, _lightning)),
    "Transformers": (("transformers",), functools.partial(grid, _transformers)),
    "MindSpore": (("mindspore",), functools.partial(grid, _mindspore)),
    "Composer": (("composer",), functools.partial(grid, _composer)),
}  # fmt: skip
