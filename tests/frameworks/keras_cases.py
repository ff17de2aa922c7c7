"""Keras on the back end that KERAS_BACKEND names (PyTorch where it names none): models, data, trainings."""

import contextlib
import math
import warnings

import keras
import numpy as np
import pytest
from cases import CollectorCase, Crash, EvaluatorCase

from collectors.keras import SummaryCollector
from collectors.networks.keras_network import named_variables, torch_modules

BACK_END = keras.backend.backend()
# Keras' own way of reading a variable or a tensor makes NumPy 2 warn; the contract tests run without this filter.
QUIET = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
layers = keras.layers


def data(count=50, seed=0):
    """Returns features of shape (count, 6) and classes of four."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((count, 6)).astype("float32")
    return features, (features[:, :4] + 0.3 * generator.standard_normal((count, 4))).argmax(1)


def small_model(seed=0, dropout=True, **compiling):
    """Returns a compiled Sequential with normalization, a regularizer and dropout, whose seeds Keras does not save."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, kernel_regularizer=keras.regularizers.L2(0.01)),
            layers.BatchNormalization(),
            layers.Activation("tanh"),
            *([layers.Dropout(0.2)] if dropout else []),
            layers.Dense(4, activation="softmax"),
        ]
    )
    compiling = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"], **compiling}
    model.compile(keras.optimizers.Adam(0.05), **compiling)
    return model


def two_inputs(seed=0):
    """Returns a compiled functional model of two inputs, one of them in a nested model."""
    keras.utils.set_random_seed(seed)
    left, right = keras.Input((3,), name="left"), keras.Input((3,), name="right")
    inner = keras.Sequential([keras.Input((3,)), layers.Dense(5, activation="tanh"), layers.Dense(5)], name="inner")
    joined = layers.Concatenate()([inner(left), layers.Dense(5)(right)])
    model = keras.Model([left, right], layers.Dense(4, name="head")(layers.LayerNormalization()(joined)))
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    return model


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return math.ceil(len(self.x) / 16)

    def __getitem__(self, index):
        part = slice(16 * index, 16 * index + 16)
        return self.x[part], self.y[part]


def halves():
    features, targets = data()
    weights = np.random.default_rng(1).uniform(0.2, 2, len(targets)).astype("float32")
    return [features[:, :3], features[:, 3:]], targets, weights


def build_sequential():
    model = small_model()
    return model, model, Batches(*data()), None


def build_functional():
    model = two_inputs()
    return model, model, halves(), {}


def evaluate(model, x, y, weights=None):
    return float(model.evaluate(x, y, sample_weight=weights, batch_size=50, verbose=0, return_dict=True)["loss"])


def freeze_first(network):
    layer = next(layer for layer in network.layers if layer.weights)
    layer.trainable = False
    return next(info.name for info, variable in named_variables(network) if variable is layer.weights[0])


def freeze_all(network):
    network.trainable = False


def look(network):
    """Returns what a network has beside its arrays: modes and trainability."""
    modules = torch_modules(network) if BACK_END == "torch" else ()
    return ([module.training for module in modules], [variable.trainable for variable in network.variables])


class CrashAfter(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise Crash


@contextlib.contextmanager
def saving():
    """Keras' own way of saving a model makes NumPy 2 warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation doesn't accept a copy", DeprecationWarning)
        yield


def fit(model, folder, collect_landscape, existing, others=(), crash_after=None, **options):
    collector = SummaryCollector(folder, collect_landscape=collect_landscape, existing=existing)
    callbacks = [collector, *others] + ([CrashAfter(crash_after)] if crash_after else [])
    arguments = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0, **options}
    # As the how-to page says: so that all is on disk at once where fit fails.
    with collector, saving():
        model.fit(*data(32), callbacks=callbacks, **arguments)


def train_with_backup(folder, collect_landscape, existing="error", crash_after=None, checkpoint=None):
    backup = [] if checkpoint is None else [keras.callbacks.BackupAndRestore(str(checkpoint))]
    fit(small_model(dropout=False), folder, collect_landscape, existing, backup, crash_after)


def train_with_saved_model(folder, collect_landscape, existing="error", crash_after=None, checkpoint=None):
    model, options, others = small_model(dropout=False), {}, []
    if crash_after is not None and checkpoint is not None:
        others = [keras.callbacks.ModelCheckpoint(f"{checkpoint}.keras")]
    elif checkpoint is not None:
        with saving():
            model, options = keras.models.load_model(f"{checkpoint}.keras"), {"initial_epoch": 1}
    fit(model, folder, collect_landscape, existing, others, crash_after, **options)


EVALUATOR_CASES = [
    EvaluatorCase(
        name=f"keras-{BACK_END}-{name}",
        build=build,
        own_loss=lambda built, samples=samples: evaluate(built[0], *samples()),
        freeze=freeze_first,
        freeze_all=freeze_all,
        recalibrate=recalibrate,
        restored=look,
    )
    for name, build, samples, recalibrate in (
        ("sequential", build_sequential, data, "done"),
        ("functional", build_functional, halves, "nothing"),
    )
]

COLLECTOR_CASES = [
    CollectorCase(name=f"keras-{BACK_END}-backup", train=train_with_backup),
    CollectorCase(name=f"keras-{BACK_END}-saved-model", train=train_with_saved_model),
]
