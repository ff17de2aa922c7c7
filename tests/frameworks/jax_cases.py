"""JAX: the evaluator of flax.linen, flax.nnx and a plain function, and collectors in a hand-written loop."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
from cases import CollectorCase, Crash, EvaluatorCase
from flax import linen, nnx

from collectors.jax import JaxNetwork
from collectors.recording.summary_collector import SummaryCollector

CLASSES = 3
per_sample = optax.softmax_cross_entropy_with_integer_labels


def features(count=40, width=5):
    return np.random.default_rng(1).standard_normal((count, width)).astype(np.float32)


def images(count=40):
    return np.random.default_rng(2).standard_normal((count, 8, 8, 2)).astype(np.float32)


def classes(count=40):
    return np.random.default_rng(3).integers(0, CLASSES, count)


def accuracy(outputs, targets):
    return (outputs.argmax(-1) == targets).mean()


def mean_loss(outputs, targets):
    return per_sample(outputs, targets).mean()


class LinenConvolutions(linen.Module):
    @linen.compact
    def __call__(self, inputs, train=False):
        hidden = linen.Conv(4, (3, 3))(inputs)
        hidden = linen.relu(linen.BatchNorm(use_running_average=not train)(hidden))
        hidden = linen.Dropout(0.5, deterministic=not train)(hidden)
        return linen.Dense(CLASSES)(hidden.mean((1, 2)))


class NnxPerceptron(nnx.Module):
    def __init__(self, rngs, width=8, param_dtype=jnp.float32):
        self.layers = nnx.List(
            [nnx.Linear(5, width, rngs=rngs, param_dtype=param_dtype), nnx.Linear(width, width, rngs=rngs)]
        )
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.head = nnx.Linear(width, CLASSES, rngs=rngs)

    def __call__(self, inputs):
        hidden = inputs
        for layer in self.layers:
            hidden = nnx.relu(layer(hidden))
        return self.head(self.dropout(self.norm(hidden)))


def new_layers(width=8):
    generator = np.random.default_rng(0)
    sizes = [(5, width), (width, CLASSES)]
    return [
        {"weight": jnp.asarray(generator.standard_normal(size), jnp.float32) / 2, "bias": jnp.zeros(size[1])}
        for size in sizes
    ]


def predict(layers, inputs):
    for layer in layers[:-1]:
        inputs = jnp.tanh(inputs @ layer["weight"] + layer["bias"])
    return inputs @ layers[-1]["weight"] + layers[-1]["bias"]


@functools.cache
def linen_variables():
    model = LinenConvolutions()
    variables = model.init(jax.random.key(0), images(2))
    _, moved = model.apply(
        variables, images(), train=True, mutable=["batch_stats"], rngs={"dropout": jax.random.key(1)}
    )
    return {"params": variables["params"], "batch_stats": moved["batch_stats"]}


def build_linen():
    model = LinenConvolutions()
    update = functools.partial(model.apply, train=True, mutable=["batch_stats"], rngs={"dropout": jax.random.key(1)})
    network = JaxNetwork(model.apply, linen_variables(), update=update)
    return per_sample, network, (images(), classes()), {"accuracy": accuracy}


@functools.cache
def split_module():
    module = NnxPerceptron(nnx.Rngs(0))
    module(features())  # in train mode, so that its statistics move
    return nnx.split(module)


def build_nnx():
    module = nnx.merge(*split_module())
    batches = [(features()[start : start + 16], classes()[start : start + 16]) for start in (0, 16, 32)]
    return mean_loss, module, batches, {"accuracy": accuracy}


def build_plain():
    return per_sample, JaxNetwork(predict, new_layers()), (features(), classes()), {"accuracy": accuracy}


def own_loss(built):
    _, network, _, _ = built
    if isinstance(network, JaxNetwork):
        inputs = images() if "batch_stats" in network.parameters else features()
        return float(mean_loss(network.apply(network.parameters, inputs), classes()))
    network.eval()
    return float(mean_loss(network(features()), classes()))


def freeze(network, name="0.bias"):
    object.__setattr__(network, "trainable", lambda other: other != name)
    return name


def freeze_all(network):
    object.__setattr__(network, "trainable", lambda name: False)


def modes(network):
    """Returns what the evaluator might have moved in a module beside its arrays: modes and random counts."""
    if not isinstance(network, nnx.Module):
        return None
    return (network.dropout.deterministic, network.norm.use_running_average, int(network.dropout.rngs.count[...]))


EVALUATOR_CASES = [
    EvaluatorCase(
        "flax.linen",
        build_linen,
        own_loss,
        functools.partial(freeze, name="Dense_0.bias"),
        freeze_all,
        recalibrate="done",
    ),
    EvaluatorCase("flax.nnx", build_nnx, own_loss, restored=modes, recalibrate="done"),
    EvaluatorCase("JAX function", build_plain, own_loss, freeze, freeze_all, recalibrate="nothing"),
]


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(layers, state, inputs, targets):
    loss, gradients = jax.value_and_grad(lambda layers: mean_loss(predict(layers, inputs), targets))(layers)
    updates, state = optax.sgd(0.1, momentum=0.9).update(gradients, state)
    return optax.apply_updates(layers, updates), state, loss


def train_loop(summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None):
    layers, start = new_layers(), 0
    state = optax.sgd(0.1, momentum=0.9).init(layers)
    if checkpoint is not None and crash_after is None:
        layers, state = jax.tree.map(jnp.asarray, pickle.loads(checkpoint.read_bytes()))
        start = 1
    step = 4 * start
    collector = SummaryCollector(summary_dir, collect_landscape=collect_landscape, existing=existing)
    with collector.watch(lambda: layers, start_epoch=start, start_step=step) as run:
        for epoch in range(start, 3):
            for begin in range(0, 32, 8):
                batch = features(32)[begin : begin + 8], classes(32)[begin : begin + 8]
                layers, state, loss = train_step(layers, state, *batch)
                run.step(loss)
                step += 1
                if step == crash_after:
                    raise Crash
            run.end_epoch()
            if epoch == 0 and checkpoint is not None:
                checkpoint.write_bytes(pickle.dumps(jax.tree.map(np.asarray, (layers, state))))


def train_module(summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None):
    module = NnxPerceptron(nnx.Rngs(0))
    optimizer = nnx.Optimizer(module, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def one_step(module, optimizer, inputs, targets):
        loss, gradients = nnx.value_and_grad(lambda module: mean_loss(module(inputs), targets))(module)
        optimizer.update(module, gradients)
        return loss

    step = 0
    with SummaryCollector(summary_dir, collect_landscape=collect_landscape, existing=existing).watch(module) as run:
        for _ in range(3):
            for begin in range(0, 32, 8):
                inputs, targets = features(32)[begin : begin + 8], classes(32)[begin : begin + 8]
                run.step(one_step(module, optimizer, inputs, targets))
                step += 1
                if step == crash_after:
                    raise Crash
            run.end_epoch()


COLLECTOR_CASES = [
    CollectorCase("JAX loop with donated arrays", train_loop),
    CollectorCase("flax.nnx loop", train_module, can_resume=False),
]
