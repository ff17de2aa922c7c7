"""Keras: names, numbering, and what Keras' own evaluation says. KERAS_BACKEND chooses the back end (PyTorch)."""

import functools
import gc
import json
import os
import subprocess
import sys
import threading
import warnings

import keras
import keras_cases
import numpy as np
import pytest
from cases import mean_loss
from cases import own_values as measured_at_own_weights
from filter_lengths import assert_as_long_as_the_weights_of_each_output
from keras_cases import BACK_END, QUIET, CrashAfter, data, halves, saving, small_model, two_inputs
from pages import code_blocks, run_page_block, takes_minutes
from waiting import PATIENCE

from collectors.keras import SummaryCollector
from collectors.networks.keras_network import to_array
from collectors.networks.readers import describe_network, framework_of, read_network
from collectors.run_directory import RunDirectory
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError, SamplesError
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan

pytestmark = QUIET

layers = keras.layers
STEPS = {"unit": "step", "intervals": [list(range(13))]}
EPOCHS = {"unit": "epoch", "intervals": [[0, 1, 2, 3]]}
imports_anew = pytest.mark.timeout(4 * PATIENCE)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KERAS_BACKEND": BACK_END}

own_values = functools.partial(measured_at_own_weights, plan=MeasurementPlan(batch_size=32))


def assert_as_keras(model, x, y, weights=None, batch_size=50):
    """Compares every value that Keras' own evaluation knows with ours; returns ours."""
    expected = model.evaluate(x, y, sample_weight=weights, batch_size=batch_size, verbose=0, return_dict=True)
    values, description = own_values((model, model, (x, y) if weights is None else (x, y, weights), None))
    for name, value in expected.items():
        if name in values or not name.endswith("_loss"):
            assert values[name] == pytest.approx(float(value), rel=1e-5), name
    return values, description


def all_layers():
    return keras.Sequential(
        [
            keras.Input((8, 8, 2)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3, depth_multiplier=2),
            layers.SeparableConv2D(4, 2),
            layers.Conv2DTranspose(3, 2),
            layers.Dropout(0.1),
            layers.Flatten(),
            layers.Dense(7),
            layers.Dense(5, name="head"),
        ]
    )


def recurrent():
    tokens = keras.Input((6,))
    hidden = layers.Bidirectional(layers.GRU(2, return_sequences=True))(layers.Embedding(7, 4)(tokens))
    return keras.Model(tokens, layers.Dense(2)(layers.MultiHeadAttention(2, 3)(hidden, hidden)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(3) for _ in range(2)]
        self.scale = self.add_weight(shape=(3,), name="scale")
        self.shift = self.add_weight(shape=(3,), name="shift", trainable=False)

    def call(self, inputs):
        for block in self.blocks:
            inputs = block(inputs)
        return inputs * self.scale + self.shift


def subclassed():
    model = Subclassed()
    model(np.zeros((1, 4), np.float32))
    return model


BUILDS = {build.__name__: build for build in (all_layers, recurrent, subclassed, two_inputs)}


@pytest.fixture(scope="module")
def described():
    """What is read of each model, where others have been built before some of them."""
    return {name: describe_network(build()) for name, build in BUILDS.items()}


@pytest.mark.parametrize("name", BUILDS)
def test_names_do_not_depend_on_models_built_before(name, described):
    assert described[name] == describe_network(BUILDS[name]())
    assert len({info.name for info in described[name].tensors}) == len(described[name].tensors)


@pytest.fixture(scope="module")
def new_process(tmp_path_factory):
    """What a process printed in which two_inputs is the first model, and the run of its training, which crashed."""
    folder = tmp_path_factory.mktemp("new_process")
    code = (
        "import json\nfrom keras_cases import *\nfrom collectors.networks.readers import describe_network\n"
        "print(json.dumps(describe_network(two_inputs()).to_json()), flush=True)\n"
        f"collector = SummaryCollector({str(folder)!r}, collect_landscape={STEPS!r})\n"
        "small_model().fit(*data(32), batch_size=8, epochs=3, verbose=0, callbacks=[collector, CrashAfter(7)])"
    )
    command, patience = [sys.executable, "-c", code], 2 * PATIENCE
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=patience)
    assert "Crash" in ended.stderr
    return ended.stdout, folder


@imports_anew
def test_names_in_a_new_process_are_the_same(new_process, described):
    assert json.loads(new_process[0]) == json.loads(json.dumps(described["two_inputs"].to_json()))


@imports_anew
def test_a_crash_of_the_process_is_whole(new_process):
    assert present(new_process[1]) == list(range(8))


def test_names_are_readable(described):
    names = [info.name for info in described["all_layers"].tensors]
    assert names[:3] == ["conv2d/kernel", "conv2d/bias", "batch_normalization/gamma"]
    assert {"dense/kernel", "head/kernel", "seed_generator/seed_generator_state"} <= set(names)
    assert [info.name for info in described["subclassed"].tensors] == [
        "scale", "shift", "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias",
    ]  # fmt: skip
    assert "inner/dense_1/kernel" in {info.name for info in described["two_inputs"].tensors}


def test_two_weights_of_one_name_stay_apart():
    class Twice(layers.Layer):
        def build(self, shape):
            self.one = self.add_weight(shape=(2,), name="weight")
            self.other = self.add_weight(shape=(3,), name="weight")

        def call(self, inputs):
            return inputs

    names = [info.name for info in describe_network(keras.Sequential([keras.Input((2,)), Twice()])).tensors]
    assert names == ["twice/weight", "twice/weight:1"]


def test_a_model_that_was_loaded_has_the_names_of_one_that_was_built(tmp_path):
    model = small_model()
    model.optimizer.build(model.trainable_variables)
    with saving():
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert describe_network(loaded) == describe_network(small_model())


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float16"])
def test_losses_and_metrics_come_from_float32_outputs(policy):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(6, activation="tanh", dtype=policy)])
    model.add(layers.Dense(3, dtype=policy))
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((64, 4)).astype(np.float32), generator.integers(0, 3, 64)
    judge = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    seen = []

    def again(y_true, y_pred):
        seen.append(keras.backend.standardize_dtype(y_pred.dtype))
        return keras.ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

    values, description = own_values((judge, model, (x, y), {"again": again}))
    expected = mean_loss(to_array(model(x, training=False)).astype(np.float64), y)
    # JAX may leave the rounding of the outputs out, which is that of one unit in each.
    allowed = 1e-6 if BACK_END == "torch" else 0.1 * 2.0**-8
    assert values["loss"] == pytest.approx(expected, rel=allowed)
    assert values["again"] == pytest.approx(expected, rel=allowed)
    assert set(seen) == {"float32"}
    assert not description.notes


def test_a_keras_loss_of_low_precision_gets_a_note():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    data = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32), np.arange(32) % 3
    judge = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="bfloat16")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, description = own_values((judge, model, data, None))
    (note,) = [note for note in description.notes if "the loss comes out in bfloat16, which keeps about two" in note]
    assert note in {str(item.message) for item in told}


FILTERED = {
    "dense": (lambda: layers.Dense(3), (4,)),
    "convolution": (lambda: layers.Conv2D(4, 2, groups=2), (3, 3, 4)),
    "transposed": (lambda: layers.Conv2DTranspose(4, 2), (3, 3, 3)),
    "depthwise": (lambda: layers.DepthwiseConv2D(2, depth_multiplier=3), (3, 3, 2)),
    "heads": (lambda: layers.EinsumDense("ab,bcd->acd", (2, 3), bias_axes="cd"), (4,)),
    "joined": (lambda: layers.EinsumDense("acd,cde->ae", 4, bias_axes="e"), (2, 3)),
}


@pytest.mark.parametrize("name", FILTERED)
def test_a_direction_is_as_long_as_the_weights_of_each_output(name):
    make, shape = FILTERED[name]
    model = keras.Sequential([keras.Input(shape), make()])
    kernel = next(info.name for info in describe_network(model).tensors if info.name.endswith("kernel"))

    def outputs_of(values):
        model.set_weights([values, *(np.zeros_like(array) for array in model.get_weights()[1:])])
        outputs = to_array(model(np.ones((1, *shape), np.float32)))
        axes = 2 if name == "heads" else 1
        return outputs.reshape(-1, int(np.prod(outputs.shape[-axes:]))).T

    assert_as_long_as_the_weights_of_each_output(model, kernel, outputs_of)


def test_biases_of_two_axes_have_no_filters():
    gates, attention = layers.GRU(3), layers.MultiHeadAttention(2, 3)
    inputs = keras.Input((5, 4))
    model = keras.Model(inputs, gates(attention(inputs, inputs)))
    biases = [info for info in describe_network(model).tensors if info.name.endswith("bias")]
    assert {len(info.shape) for info in biases} == {1, 2}
    assert {info.filter_axes for info in biases} == {()}


def test_roles_and_filter_axes(described):
    tensors = {info.name: info for info in described["all_layers"].tensors}
    assert {name: tensors[name].filter_axes for name in tensors if tensors[name].filter_axes} == {
        "conv2d/kernel": (3,),
        "depthwise_conv2d/kernel": (2, 3),
        "separable_conv2d/depthwise_kernel": (2, 3),
        "separable_conv2d/pointwise_kernel": (3,),
        "conv2d_transpose/kernel": (2,),
        "dense/kernel": (1,),
        "head/kernel": (1,),
    }
    assert described["recurrent"].tensors[0].filter_axes == (0,)  # an embedding: one vector for each token
    buffers = {name for name, info in tensors.items() if info.role == "buffer"}
    assert buffers == {
        "batch_normalization/moving_mean",
        "batch_normalization/moving_variance",
        "seed_generator/seed_generator_state",
    }
    assert all(info.trainable for name, info in tensors.items() if name not in buffers)


def test_what_the_user_freezes_stays_a_parameter():
    model = all_layers()
    model.layers[1].trainable = False  # the normalization
    tensors = {info.name: info for info in describe_network(model).tensors}
    assert tensors["batch_normalization/gamma"].role == "parameter"
    assert not tensors["batch_normalization/gamma"].trainable
    assert tensors["batch_normalization/moving_mean"].role == "buffer"
    assert tensors["conv2d/kernel"].trainable


def test_a_keras_model_is_no_torch_network():
    assert framework_of(small_model()) == "keras"


def test_a_model_without_weights_is_named():
    with pytest.raises(TypeError, match=r"network Subclassed has no weights yet; call it on one batch"):
        describe_network(Subclassed())


@pytest.mark.skipif(BACK_END != "torch", reason="only the PyTorch back end wraps PyTorch modules")
def test_torch_modules_inside_are_measured():
    torch = pytest.importorskip("torch")
    keras.utils.set_random_seed(0)
    inside = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Dropout(0.5))
    model = keras.Sequential([keras.Input((6,)), layers.TorchModuleWrapper(inside, output_shape=(None, 4))])
    model.compile("sgd", CrossEntropy(from_logits=True))
    assert_as_keras(model, *data())
    inside.train()
    own_values((model, model, data(), {}))
    assert inside.training


@pytest.mark.skipif(BACK_END != "torch", reason="only the PyTorch back end wraps PyTorch modules")
def test_torch_modules_with_buffers_are_refused():
    torch = pytest.importorskip("torch")
    inside = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    model = keras.Sequential([keras.Input((3,)), layers.TorchModuleWrapper(inside, output_shape=(None, 2))])
    with pytest.raises(TypeError, match=r"wraps a PyTorch module with buffers .*running_mean"):
        describe_network(model)


class Weights(keras.callbacks.Callback):
    """Keeps the weights after each step, as Keras' own get_weights tells them."""

    def on_train_begin(self, logs=None):
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        if BACK_END == "jax":
            self.model.jax_state_sync()
        self.steps.append([to_array(variable) for variable in self.model.weights])


def fit(model, *callbacks, **options):
    arguments = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0, **options}
    return model.fit(*data(32), callbacks=list(callbacks), **arguments)


def present(folder):
    return RunDirectory(folder).present(tuple(range(20)))


def test_checkpoints_hold_what_keras_had_after_each_step_and_no_training_is_changed(tmp_path):
    model, seen = small_model(), Weights()
    watched = fit(model, SummaryCollector(tmp_path, collect_freq=1, collect_landscape=STEPS), seen)
    assert watched.history == fit(small_model()).history
    names = [info.name for info in describe_network(model).tensors if "seed" not in info.name]
    for number in range(1, 13):
        file = RunDirectory(tmp_path).checkpoint(number)
        for name, value in zip(names, seen.steps[number - 1], strict=True):
            np.testing.assert_array_equal(file.read(name), value)


def test_epochs_go_on_behind_initial_epoch(tmp_path):
    with pytest.warns(UserWarning, match=r"without saving \[0\]"):
        fit(small_model(), SummaryCollector(tmp_path, collect_landscape=EPOCHS), initial_epoch=1)
    assert present(tmp_path) == [1, 2, 3]


def test_a_second_fit_is_a_training_of_its_own_in_epochs(tmp_path):
    model = small_model()
    fit(model)
    fit(model, SummaryCollector(tmp_path / "epochs", collect_landscape=EPOCHS))
    assert present(tmp_path / "epochs") == [0, 1, 2, 3]
    fit(model, SummaryCollector(tmp_path / "steps", collect_landscape={"unit": "step", "intervals": [range(24, 37)]}))
    assert RunDirectory(tmp_path / "steps").present(tuple(range(50))) == list(range(24, 37))


def test_steps_behind_an_optimizer_that_made_none(tmp_path):
    with pytest.raises(ValueError, match=r"goes on at initial_epoch=1 with an optimizer that has made none"):
        fit(small_model(), SummaryCollector(tmp_path, collect_landscape=STEPS), initial_epoch=1)


def test_accumulated_batches_are_one_step(tmp_path):
    model = small_model()
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), loss="sparse_categorical_crossentropy")
    fit(model, SummaryCollector(tmp_path, collect_landscape={"unit": "step", "intervals": [range(7)]}))
    assert present(tmp_path) == list(range(7))
    assert RunDirectory(tmp_path).metadata.step_per_epoch == 2


def accumulating(every):
    return keras.optimizers.SGD(0.1, gradient_accumulation_steps=every)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.LossScaleOptimizer(accumulating(2)),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**127),
    ],
    ids=["accumulates", "skips"],
)
def test_steps_under_a_loss_scale_are_iterations(tmp_path, optimizer):
    model = small_model()
    # 16 times 2**127 is no float32, so that the first batches of "skips" have infinite gradients whatever the loss.
    model.compile(optimizer(), loss="sparse_categorical_crossentropy", loss_weights=16.0)
    with pytest.warns(UserWarning, match="without saving"):
        fit(model, SummaryCollector(tmp_path, collect_landscape=STEPS))
    assert 0 < int(model.optimizer.iterations) < 12
    assert present(tmp_path) == list(range(int(model.optimizer.iterations) + 1))


def test_a_batch_that_waits_for_others_counts_in_the_next_fit(tmp_path):
    model = small_model()
    model.compile(accumulating(3), loss="sparse_categorical_crossentropy")
    landscape = {"unit": "step", "intervals": [range(5)]}
    with pytest.warns(UserWarning, match=r"without saving \[2, 3, 4\]"):
        fit(model, SummaryCollector(tmp_path, collect_landscape=landscape), epochs=1)
    fit(model, SummaryCollector(tmp_path, collect_landscape=landscape, existing="resume"), initial_epoch=1)
    assert present(tmp_path) == list(range(int(model.optimizer.iterations) + 1)) == list(range(5))


@pytest.mark.skipif(BACK_END != "torch", reason="there are histograms on the PyTorch back end alone")
def test_histograms_have_the_names_of_the_weights(tmp_path):
    pytest.importorskip("tensorboard")
    from event_reading import accumulated

    model = small_model()
    names = [info.name for info in describe_network(model).trainable]
    collector = SummaryCollector(tmp_path, collect_specified_data={"histogram_regular": names[1]})
    fit(model, collector)
    assert accumulated(tmp_path).Tags()["histograms"] == [f"{names[1]}/auto"]


@pytest.mark.skipif(BACK_END == "torch", reason="Keras allows one step per execution on the PyTorch back end")
def test_several_steps_of_one_execution(tmp_path):
    model = small_model(steps_per_execution=3)
    with pytest.raises(ValueError, match=r"compiled with steps_per_execution=3, and Keras shows its weights only"):
        fit(model, SummaryCollector(tmp_path / "steps", collect_landscape=STEPS))
    fit(model, SummaryCollector(tmp_path / "epochs", collect_landscape=EPOCHS))
    assert present(tmp_path / "epochs") == [0, 1, 2, 3]
    assert RunDirectory(tmp_path / "epochs").metadata.step_per_epoch == 4


class StopAt(keras.callbacks.Callback):
    """Asks for a stop after the second batch of an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.last = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training |= batch == 1 and self.epoch == self.last

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch + 1


def test_an_epoch_that_was_cut_short_is_none(tmp_path):
    with pytest.warns(UserWarning, match=r"ended at epoch 2 without saving \[3\]"):
        fit(small_model(), SummaryCollector(tmp_path, collect_landscape=EPOCHS), StopAt(3))
    assert present(tmp_path) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
@pytest.mark.parametrize(("cut", "whole"), [(3, [0, 1, 2]), (1, [0])])
def test_an_epoch_of_unknown_length_that_was_cut_short_is_none(tmp_path, cut, whole):
    torch = pytest.importorskip("torch")

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return zip(*data(32), strict=True)

    collector, batches = SummaryCollector(tmp_path, collect_landscape=EPOCHS), torch.utils.data.DataLoader(Stream(), 8)
    with pytest.warns(UserWarning, match=f"ended at epoch {cut - 1} without saving"):
        small_model().fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=[collector, StopAt(cut)])
    assert present(tmp_path) == whole


def test_a_crash_without_with_is_whole_once_the_callback_is_gone(tmp_path):
    with pytest.raises(keras_cases.Crash):
        fit(small_model(), SummaryCollector(tmp_path, collect_landscape=STEPS), CrashAfter(7))
    gc.collect()
    assert present(tmp_path) == list(range(8))
    assert "checkpoint-writer" not in {thread.name for thread in threading.enumerate()}


def test_a_failed_fit_can_be_followed_by_another(tmp_path):
    collector = SummaryCollector(tmp_path, collect_landscape=STEPS, existing="overwrite")
    with pytest.raises(keras_cases.Crash):
        fit(small_model(), collector, CrashAfter(7))
    fit(small_model(), collector)
    assert present(tmp_path) == list(range(13))


def test_records_of_a_training(tmp_path):
    pytest.importorskip("tensorboard")
    from event_reading import scalars

    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=1, decay_rate=0.5)
    model = small_model()
    model.compile(keras.optimizers.SGD(schedule), loss="sparse_categorical_crossentropy")
    fit(model, SummaryCollector(tmp_path, collect_freq=1))
    assert [step for step, _ in scalars(tmp_path, "loss/auto")] == list(range(1, 13))
    rates = [rate for _, rate in scalars(tmp_path, "learning_rate/auto")]
    np.testing.assert_allclose(rates, 0.1 * 0.5 ** np.arange(12), rtol=1e-5)


def test_the_learning_rates_of_several_optimizers_are_recorded(tmp_path):
    pytest.importorskip("tensorboard")
    from event_reading import scalars

    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("this Keras has no MultiOptimizer")
    rates = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.25), {".*bias": keras.optimizers.SGD(0.5)})
    model = small_model()
    model.compile(keras.optimizers.MultiOptimizer(rates), loss="sparse_categorical_crossentropy")
    fit(model, SummaryCollector(tmp_path, collect_freq=1, collect_landscape=STEPS))
    assert present(tmp_path) == list(range(13))
    for series, rate in (("auto", 0.5), ("group_1/auto", 0.25)):
        assert [value for _, value in scalars(tmp_path, f"learning_rate/{series}")] == [rate] * 12


def classifier(loss, activation="softmax", **compiling):
    model = small_model()
    if activation is None:
        model.layers[-1].activation = keras.activations.linear
    model.compile("sgd", loss, **{"metrics": ["accuracy"], **compiling})
    return model


CrossEntropy = keras.losses.SparseCategoricalCrossentropy


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        "crossentropy",
        CrossEntropy(),
        CrossEntropy(ignore_class=2),
        CrossEntropy(reduction="sum"),
        lambda y_true, y_pred: keras.losses.sparse_categorical_crossentropy(y_true, y_pred),
    ],
    ids=["name", "crossentropy", "object", "ignore_class", "sum", "function"],
)
def test_the_compiled_loss_is_keras_own(loss):
    values, description = assert_as_keras(classifier(loss), *data())
    assert values["loss_stderr"] > 0
    assert not description.partition_dependent


def test_sample_weights_count_as_in_keras():
    weights = np.random.default_rng(2).uniform(0.1, 3, 50).astype("float32")
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight"):
        values, _ = assert_as_keras(
            classifier(CrossEntropy(reduction=reduction), weighted_metrics=["accuracy"]), *data(), weights
        )
        assert values["accuracy"] != values["weighted_accuracy"]


def test_the_standard_error_is_that_of_the_samples():
    model = classifier(CrossEntropy())
    x, y = data()
    own = to_array(keras.losses.sparse_categorical_crossentropy(y, model.predict(x, verbose=0))).astype(np.float64)
    values, _ = own_values((CrossEntropy(), model, (x, y), {}))
    assert values["loss"] == pytest.approx(own.mean(), rel=1e-5)
    assert values["loss_stderr"] == pytest.approx(own.std(ddof=1) / np.sqrt(50), rel=1e-4)


def test_a_function_of_the_batch_has_no_standard_error():
    mean = lambda y_true, y_pred: keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred))  # noqa: E731
    values, _ = assert_as_keras(classifier(mean), *data())
    assert "loss_stderr" not in values


def test_what_layers_add_is_keras_own():
    class Squares(layers.Layer):
        def call(self, inputs):
            self.add_loss(keras.ops.mean(keras.ops.square(inputs)))
            return inputs

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(5, activity_regularizer="l2", bias_regularizer="l1"),
            Squares(),
            layers.Dense(4),
        ]
    )
    model.compile("sgd", CrossEntropy(from_logits=True))
    assert_as_keras(model, *data())
    alone, _ = own_values((CrossEntropy(from_logits=True), model, data(), {}))
    assert alone["loss"] < own_values((model, model, data(), {}))[0]["loss"]


def test_a_loss_of_the_models_own_is_keras_own():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layers.Dense(4)

        def call(self, inputs):
            return self.layer(inputs)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            assert not training
            return keras.ops.mean(keras.ops.square(y_pred)) + keras.ops.mean(x)

    model = Own()
    model(data()[0])
    model.compile("sgd")
    assert_as_keras(model, *data())


def test_a_head_of_zeros_decides_nothing():
    """There all samples have the same loss, and every way to add it up looks right."""

    def weighted(labels, outputs):
        weights = keras.ops.take(
            keras.ops.convert_to_tensor(np.float32([0.2, 1.0, 3.0, 0.6])), keras.ops.cast(labels, "int32")
        )
        losses = keras.ops.sparse_categorical_crossentropy(labels, outputs)
        return keras.ops.sum(losses * weights) / keras.ops.sum(weights)

    x, y = data()
    y = np.asarray(y).reshape(-1)
    model = keras.Sequential([keras.Input(x.shape[1:]), layers.Dense(int(y.max()) + 1, activation="softmax")])
    state = read_network(model)
    model.layers[-1].set_weights([np.zeros_like(item) for item in model.layers[-1].get_weights()])
    batches = [(x[start : start + 9], y[start : start + 9]) for start in range(0, len(x), 9)]
    setup = MeasurementSetup(MeasurementOptions(), plan=MeasurementPlan(16))
    evaluator = make_evaluator((weighted, model, batches, {}), setup)
    assert not evaluator.description.partition_dependent
    with pytest.warns(UserWarning, match="loss depends on how samples are batched, so the data set's own batches"):
        evaluator.load(state, [state, state], {}, far_points=[(1.0, 1.0)])
    assert evaluator.description.partition_dependent
    assert evaluator.description.plan.batch_size is None
    evaluator.close()


def test_several_outputs_are_keras_own():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,))
    hidden = layers.Dense(5, activation="tanh")(inputs)
    outputs = {"classes": layers.Dense(4, name="classes")(hidden), "sum": layers.Dense(1, name="sum")(hidden)}
    x, y = data()
    targets = {"classes": y, "sum": x.sum(1, keepdims=True)}
    for model, labels in (
        (keras.Model(inputs, outputs), targets),
        (keras.Model(inputs, list(outputs.values())), list(targets.values())),
    ):
        losses = {"classes": CrossEntropy(from_logits=True), "sum": "mse"}
        model.compile("sgd", losses, loss_weights={"classes": 1.0, "sum": 0.3}, metrics={"sum": ["mae"]})
        values, _ = assert_as_keras(model, x, labels)
        assert {"loss", "loss_stderr", "sum_mae"} <= set(values)


def test_masks_count_as_in_keras():
    keras.utils.set_random_seed(0)
    tokens = np.random.default_rng(0).integers(0, 5, (50, 7))
    model = keras.Sequential(
        [
            keras.Input((7,)),
            layers.Embedding(5, 4, mask_zero=True),
            layers.SimpleRNN(6, return_sequences=True),
            layers.Dense(5),
        ]
    )
    model.compile("sgd", CrossEntropy(from_logits=True), metrics=["accuracy"], weighted_metrics=["accuracy"])
    values, description = assert_as_keras(model, tokens, (tokens + 1) % 5)
    assert values["loss_stderr"] > 0
    assert not description.partition_dependent


def test_metrics_from_everywhere():
    model = small_model()
    metrics = {
        "object": keras.metrics.SparseCategoricalCrossentropy(),
        "each": keras.metrics.sparse_categorical_accuracy,
        "own": lambda y_true, y_pred: keras.ops.mean(keras.ops.max(y_pred, axis=1)),
    }
    values, description = own_values((model, model, data(), metrics))
    assert description.metrics == ("loss", "loss_stderr", "accuracy", "object", "each", "own")
    assert values["each"] == pytest.approx(values["accuracy"])
    assert values["object"] == pytest.approx(own_values((CrossEntropy(), model, data(), {}))[0]["loss"], rel=1e-5)


def test_metrics_of_the_model_keep_what_they_have_seen():
    model = small_model()
    x, y = data()
    model.evaluate(x[:20], y[:20], verbose=0)
    before = [to_array(variable) for variable in model.metrics_variables]
    own_values((model, model, (x, y), None))
    for variable, value in zip(model.metrics_variables, before, strict=True):
        np.testing.assert_array_equal(to_array(variable), value)


def torch_samples(x, y, *further):
    torch = pytest.importorskip("torch")
    return torch.utils.data.TensorDataset(*(torch.from_numpy(array) for array in (x, y, *further)))


def torch_loader(x, y):
    samples = torch_samples(x, y)
    return sys.modules["torch"].utils.data.DataLoader(samples, 16, shuffle=True)


def tensorflow_samples(x, y):
    return pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices((x, y))


FORMS = {
    "pair": lambda x, y: [x, y],
    "loader": torch_loader,
    "torch_dataset": torch_samples,
    "weights": lambda x, y: torch_samples(x, y, np.ones(50, np.float32)),
    "batches": lambda x, y: [(x[:25], y[:25]), (x[25:], y[25:])],
    "generator": lambda x, y: ((x[start : start + 10], y[start : start + 10]) for start in range(0, 50, 10)),
    "py_dataset": keras_cases.Batches,
    "tf_data": lambda x, y: tensorflow_samples(x, y).batch(16).prefetch(2),
}


@pytest.fixture(scope="module")
def evaluated():
    """A model, and what Keras says of it on the first 40 samples."""
    model, (x, y) = small_model(), data()
    return model, model.evaluate(x[:40], y[:40], batch_size=40, verbose=0, return_dict=True)


@pytest.mark.parametrize("kind", FORMS)
def test_the_same_samples_in_any_form(kind, evaluated):
    model, expected = evaluated
    values, description = own_values((model, model, FORMS[kind](*data()), None), num_samples=40)
    assert description.num_samples == 40
    assert values["loss"] == pytest.approx(float(expected["loss"]), rel=1e-5)
    assert values["accuracy"] == pytest.approx(float(expected["accuracy"]), rel=1e-5)


@pytest.mark.skipif(BACK_END != "tensorflow", reason="tf.data needs TensorFlow")
def test_data_of_tensorflow_that_nobody_can_measure():
    model, (x, y) = small_model(), data()
    shuffled = tensorflow_samples(x, y).shuffle(50).batch(16)
    endless = tensorflow_samples(x, y).batch(16).repeat()
    ragged = sys.modules["tensorflow"].ragged.constant([[1, 2], [3]] * 25)
    for dataset, message in (
        (shuffled, "first batch changed between two reads"),
        (endless, r"dataset has no end, .* tf.data's repeat\(\).* leave repeat\(\) out, or say with num_samples"),
        ((ragged, y), r"must give arrays, but gave a RaggedTensor.* make it dense"),
    ):
        with pytest.raises(SamplesError, match=message):
            own_values((model, model, dataset, None))
    values, _ = own_values((model, model, endless, None), num_samples=50)
    assert values["loss"] == pytest.approx(own_values((model, model, (x, y), None))[0]["loss"], rel=1e-6)


@pytest.mark.skipif(BACK_END != "tensorflow", reason="only TensorFlow has layers that read texts")
def test_texts_are_keras_own():
    texts, targets = np.array(["a b c", "b c d", "c d e", "a a a"] * 10), np.arange(40) % 2
    words = layers.TextVectorization(max_tokens=20, output_sequence_length=5, vocabulary=list("abcde"))
    inputs = keras.Input((), dtype="string")
    model = keras.Model(
        inputs, layers.Dense(2)(layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(words(inputs))))
    )
    model.compile("sgd", CrossEntropy(from_logits=True))
    expected = model.evaluate(tensorflow_samples(texts, targets).batch(40), verbose=0)
    for dataset in ((texts, targets), tensorflow_samples(texts, targets).batch(8)):
        assert own_values((model, model, dataset, None))[0]["loss"] == pytest.approx(expected, rel=1e-5)


def test_inputs_as_a_list_are_not_batches():
    (left, right), targets, weights = halves()
    model = two_inputs()
    assert_as_keras(model, [left, right], targets, weights)
    values, _ = own_values((model, model, ([left, right], targets), None))
    batches = [([left[:30], right[:30]], targets[:30]), ([left[30:], right[30:]], targets[30:])]
    assert own_values((model, model, batches, None))[0]["loss"] == pytest.approx(values["loss"], rel=1e-6)


def compiled_with_a_broken_metric(model):
    def broken(y_true, y_pred):
        raise ArithmeticError("broken")

    model.compile("sgd", CrossEntropy(), metrics=[broken])
    return model


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda m, x, y: (keras.Sequential([keras.Input((6,)), layers.Dense(4)]), m, (x, y), {}),
         CallbackFunctionError, r"a compiled model, but Sequential is not compiled"),
        (lambda m, x, y: (CrossEntropy, m, (x, y), {}),
         CallbackFunctionError, r"the class SparseCategoricalCrossentropy \(make an object of it\)"),
        (lambda m, x, y: (3, m, (x, y), {}), CallbackFunctionError, r"the first item .* must be .* but is 3 \(int\)"),
        (lambda m, x, y: (m, m, (x, y), {"accuracy": keras.metrics.AUC()}),
         CallbackFunctionError, r"metric 'accuracy' is among the compiled metrics already"),
        (lambda m, x, y: (m, m, (x, y), {"top": "accuracy"}),
         CallbackFunctionError, r"metric 'top' must be a keras.metrics.Metric or a function"),
        (lambda m, x, y: (m, m, (x, y), {"top": lambda y_true: 1.0}),
         CallbackFunctionError, r"^metric 'top' raised TypeError: .* 1 positional argument"),
        (lambda m, x, y: (m, m, (x, y), {"top": keras.metrics.Mean()}),
         CallbackFunctionError, r"^metric 'top' raised "),
        (lambda m, x, y: (compiled_with_a_broken_metric(m), m, (x, y), {}),
         CallbackFunctionError, r"^one of the compiled metrics raised ArithmeticError: broken"),
        (lambda m, x, y: (m, m, (x, y), [keras.metrics.AUC()]), CallbackFunctionError, r"a dict of metrics .* list"),
        (lambda m, x, y: (m, m, (x, y, y, y), {}), SamplesError, r"\(x, y\) or \(x, y, sample_weight\), but gave"),
        (lambda m, x, y: (m, m, 5, {}), TypeError, r"dataset must be \(x, y\) or .* but got int"),
        (lambda m, x, y: (m, m, (x, y[:-1]), {}), SamplesError, r"as many targets as inputs"),
        (lambda m, x, y: (m, m, (x[:, :3], y), {}), CallbackFunctionError, r"cannot be evaluated on its data set"),
    ],
)  # fmt: skip
def test_wrong_returns_are_named(change, error, message):
    with pytest.raises(error, match=message):
        own_values(change(small_model(), *data()))


def test_a_test_step_of_its_own_is_refused():
    class Own(keras.Sequential):
        def test_step(self, *arguments):
            return super().test_step(*arguments)

    model = Own([keras.Input((6,)), layers.Dense(4)])
    model.compile("sgd", "mse")
    with pytest.raises(CallbackFunctionError, match="Own has a test_step of its own"):
        own_values((model, model, data(), {}))


def test_metrics_of_a_models_own_method_are_missed():
    class Own(keras.Sequential):
        def compute_metrics(self, *arguments, **options):
            return {**super().compute_metrics(*arguments, **options), "own": 1.0}

    model = Own([keras.Input((6,)), layers.Dense(4)])
    model.compile("sgd", "mse", metrics=["mae"])
    x, _ = data()
    with pytest.warns(UserWarning, match="Own has a compute_metrics of its own, which is not called"):
        values, _ = own_values((model, model, (x, x[:, :4]), {}))
    assert "mae" in values
    assert "own" not in values


def test_the_network_of_the_page_has_the_loss_of_float64():
    """So all back ends agree, which are not installed side by side."""
    page = {"__name__": "page"}
    exec(code_blocks("keras")[0], page)
    model, network, (images, targets), _ = page["callback_fn"]()
    generator = np.random.default_rng(0)
    network.set_weights([generator.standard_normal(array.shape) / 10 for array in network.get_weights()])
    kernel, bias, dense, offset = (array.astype(np.float64) for array in network.get_weights())
    windows = np.lib.stride_tricks.sliding_window_view(images[..., 0].astype(np.float64), (3, 3), axis=(1, 2))
    hidden = np.maximum(np.einsum("nabij,ijc->nabc", windows, kernel[:, :, 0]) + bias, 0)
    expected = mean_loss(hidden.reshape(len(images), -1) @ dense + offset, targets)
    values, _ = own_values((model, network, (images, targets), {}))
    assert values["loss"] == pytest.approx(expected, rel=1e-5)


@takes_minutes
@pytest.mark.skipif(BACK_END == "jax", reason="the page is run with PyTorch and TensorFlow, in half of the time")
def test_the_how_to_page(tmp_path):
    (block,) = code_blocks("keras")
    assert "andscape" in run_page_block(block, tmp_path / "page", environment={"KERAS_BACKEND": BACK_END})
    assert (tmp_path / "page" / "run" / "landscape_0-5_pca.h5").exists()
