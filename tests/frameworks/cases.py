"""What every framework gives to the contract tests: one network to measure, one training to watch."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from measured_planes import measure_plane
from PIL import Image

from collectors.callbacks.callback import EVAL_HOOKS, TRAIN_HOOKS, Callback
from collectors.networks.readers import describe_network, read_network
from collectors.networks.weight_space import direction_dtype
from collectors.run_directory import RunDirectory
from collectors.weights.foreign_checkpoint import read_checkpoint
from landscape import SummaryLandscape
from landscape.figures import save_figure
from workers.callback_fn import make_evaluator
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan

HERE = Path(__file__).parent
# What scripts of processes of their own put into sys.path.
FOLDERS = [str(folder) for folder in (HERE.parent / "support", HERE, HERE.parents[1])]
# Before any test file imports Keras.
os.environ.setdefault("KERAS_BACKEND", "torch")

# Framework to the packages that it needs; a session of make says which must be there (test_sessions.py).
PACKAGES = {
    "torch": ("torch",),
    "arrays": ("sklearn",),
    "lightning": ("lightning", "pytorch_lightning"),
    "transformers": ("transformers", "peft"),
    "composer": ("composer",),
    "deepspeed": ("deepspeed",),
    "keras": ("keras", os.environ["KERAS_BACKEND"]),
    "jax": ("jax", "flax", "optax"),
    "mindspore": ("mindspore",),
    "trackers": ("wandb", "mlflow"),
}


@dataclass(frozen=True)
class EvaluatorCase:
    """A network with its data, in the form that a user's callback_fn returns it."""

    name: str  # shown in the test's name
    # Returns what callback_fn returns, (model, network, dataset, metrics), anew with equal weights and data each time;
    # at least 40 samples and one metric named "accuracy" (None where the case has no metrics).
    build: Callable[[], Any]
    # Given what ``build`` returned, the framework's own plain evaluation of the loss over all samples (eval mode, its
    # own loss function and data pipeline, none of our code).
    own_loss: Callable[[Any], float]
    # Freezes one parameter of a built network and returns its name in the ``WeightSpace``; None where the framework has
    # no frozen parameters.
    freeze: Callable[[Any], str] | None = None
    freeze_all: Callable[[Any], None] | None = None  # freezes every parameter; None where that cannot be
    # "done" where ``buffers="recalibrate"`` works, "refused" where it is a clear error, "nothing" where a warning says
    # that the network has no such buffers.
    recalibrate: str = "refused"
    # Returns a value that compares equal exactly when a network is as it was found, bit for bit (values, modes,
    # trainability); None takes the arrays alone.
    restored: Callable[[Any], Any] | None = None
    closes: float = 1e-5  # a relative tolerance between our loss and ``own_loss``


@dataclass(frozen=True)
class CollectorCase:
    """A training under watch: 32 samples, batches of 8, so 4 steps in each epoch, 3 epochs."""

    name: str  # shown in the test's name
    # Trains with the trainer's own SummaryCollector, from equal weights each time:
    # ``train(summary_dir, collect_landscape, existing="error", crash_after=None, checkpoint=None)``.
    # ``crash_after``: raises ``Crash`` from user code (a callback, the data, the loss) right after that many optimizer
    # steps are done; ``checkpoint``: with ``crash_after`` a path where the trainer has saved its own checkpoint at the
    # end of epoch 1, otherwise the path from which it resumes (as its users do) and trains to the end.
    train: Callable[..., None]
    can_resume: bool = True  # whether the trainer has checkpoints of its own to resume from


class Crash(Exception):
    """Raised in the middle of a training, to see what is left behind."""


# Set by make: what a session is for. It fails, instead of testing nothing, where one of them is missing.
ASKED = os.environ.get("FRAMEWORKS", "").split()


def installed(framework):
    return all(find_spec(package) is not None for package in PACKAGES[framework])


def runs_here(framework):
    """Returns whether a framework's tests run in this session: those asked for, or all that are installed."""
    return framework in ASKED if ASKED else installed(framework)


def all_cases(kind):
    """Returns the EVALUATOR_CASES or COLLECTOR_CASES of every framework that this session tests."""
    names = [name for name in PACKAGES if runs_here(name) and (HERE / f"{name}_cases.py").exists()]
    modules = [import_module(f"{name}_cases") for name in names]
    return [case for module in modules for case in getattr(module, kind, [])]


def weights(folder, number):
    """Returns a run's checkpoint, whose SHA-256 is checked on opening."""
    file = RunDirectory(folder).checkpoint(number)
    return {name: file.read(name) for name in file.shapes}


def assert_same(found, expected, rtol=1e-5, atol=1e-7):
    """Asserts that two states have the same names, in order, and values."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        found_value, value = found[name].astype(np.float64), value.astype(np.float64)
        np.testing.assert_allclose(found_value, value, rtol=rtol, atol=atol, err_msg=name)


def assert_imported(run, framework, states, callback_fn, losses):
    """Asserts that a run of imported checkpoints holds states, by number, whose losses are measured and drawn."""
    assert run.metadata.framework == framework
    assert sorted(run.metadata.files) == list(states)
    for number, state in states.items():
        found = read_checkpoint(run.checkpoint_path(number)).tensors
        assert found.keys() == state.keys()
        for name, values in state.items():
            np.testing.assert_array_equal(found[name], values, strict=True)
    wanted = {"landscape_size": 3, "num_samples": 50, "create_landscape": {"train": True, "result": False}}
    landscapes = SummaryLandscape(run.path).gen_landscapes_with_multi_process(
        callback_fn, wanted, device_ids=[0], progress=False
    )
    np.testing.assert_allclose(landscapes[0].checkpoints.metrics["loss"], losses, rtol=1e-5)
    save_figure(landscapes[0].plot(), picture := run.path / "plane.png")
    with Image.open(picture) as drawn:
        assert len(drawn.convert("RGB").resize((64, 64)).getcolors(64 * 64)) > 10


def open_evaluator(built, batch_size=16, device="cpu", **options):
    """Returns an evaluator of what callback_fn returned, in a plan that is given where there is a batch size."""
    plan = None if batch_size is None else MeasurementPlan(batch_size)
    return make_evaluator(built, MeasurementSetup(MeasurementOptions(**options), plan=plan, device=device))


def parts_of(network):
    """Returns a network's parameters and its buffers, by name."""
    space, state = describe_network(network), read_network(network)
    return [{info.name: state[info.name] for info in part} for part in (space.parameters, space.buffers)]


def own_plane(built, evaluator, seed=0, scale=0.3):
    """Returns a plane through the network's own weights, in random directions."""
    generator = np.random.default_rng(seed)
    directions = [
        {
            info.name: (scale * generator.standard_normal(info.shape)).astype(direction_dtype(info.dtype))
            for info in evaluator.description.space.trainable
        }
        for _ in range(2)
    ]
    parameters, buffers = parts_of(built[1])
    return parameters, directions, buffers


def mean_loss(logits, targets):
    """Returns the mean cross entropy of logits, in float64."""
    logits = logits - logits.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(targets)), targets]))


def check_recalibration(built, batch_size, loss_at, differs=1e-3, rtol=1e-5):
    """Checks losses by recalibrated statistics on a line; returns the network's loss by its own ones.

    ``loss_at`` returns the loss of a state in float64; by the own statistics the loss ``differs`` by more than that.
    """
    network = built[1]
    before, (parameters, buffers) = read_network(network), parts_of(network)
    random, trainable = np.random.default_rng(2), describe_network(network).trainable
    direction = {info.name: 0.5 * random.standard_normal(info.shape).astype("f") for info in trainable}
    end = {name: array + np.float32(0.5) for name, array in buffers.items() if array.dtype.kind == "f"}
    state = {name: array.astype(np.float64) for name, array in before.items()}

    def expected(place, share=0.0):
        """Returns the loss at a place of the line, with a share of the other network's buffers."""
        moved = {name: state[name] + place * array for name, array in direction.items()}
        return loss_at(state | moved | {name: state[name] + share / 2 for name in end}, batch_size)

    evaluator = open_evaluator(built, buffers="recalibrate", recalibration_batch_size=batch_size)
    evaluator.load(parameters, [direction], buffers)
    places = (0.0, 0.7, -0.4)  # the first is the network itself
    losses = evaluator.measure(np.reshape(places, (3, 1)))["loss"]
    np.testing.assert_allclose(losses, [expected(place) for place in places], rtol=rtol)
    at_origin = evaluator.measure_state(parameters, None)["loss"]
    np.testing.assert_allclose(at_origin, expected(0.0), rtol=rtol)
    own = evaluator.measure_state(parameters, buffers)["loss"]
    assert abs(own / at_origin - 1) > differs
    # Between two networks each keeps its own.
    evaluator.load(parameters, [direction], buffers, [end])
    *at_ends, middle = evaluator.measure(np.array([[0.0], [1.0], [0.5]]))["loss"]
    last = {name: parameters[name] + direction.get(name, np.float32(0)) for name in parameters}
    np.testing.assert_allclose(at_ends, [own, evaluator.measure_state(last, buffers | end)["loss"]], rtol=rtol / 10)
    np.testing.assert_allclose(middle, expected(0.5, 0.5), rtol=rtol)
    evaluator.close()
    assert_unchanged(network, before)
    return own


def assert_unchanged(network, before):
    for name, array in read_network(network).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def another(network, seed=0):
    """Returns the weights of another network of the same form."""
    random = np.random.default_rng(seed)
    return {
        name: (values * (1 + 0.1 * random.standard_normal(values.shape))).astype(values.dtype)
        if values.dtype.kind == "f"
        else values
        for name, values in read_network(network).items()
    }


def own_values(built, plan=None, **options):
    """Returns what an evaluator measures at the network's own weights, and its description."""
    evaluator = make_evaluator(built, MeasurementSetup(MeasurementOptions(**options), plan=plan))
    parameters, buffers = parts_of(built[1])
    values = measure_plane(evaluator, (parameters, [], buffers), np.zeros((1, 0)))
    return {name: float(column[0]) for name, column in values.items()}, evaluator.description


class Recorder(Callback):
    """Notes each hook with the numbers of epoch and step, what it was left with, and what it was told."""

    def __init__(self, stop_at=None):
        self.calls, self.errors, self.params, self.stop_at = [], [], {}, stop_at

    @property
    def names(self):
        return [call if isinstance(call, str) else call[0] for call in self.calls]

    def __enter__(self):
        self.calls.append("enter")
        return self

    def __exit__(self, exception_type, exception, traceback):
        self.calls.append("exit" if exception is None else f"exit {exception_type.__name__}")

    def on_exception(self, run_context, error):
        self.errors.append(error)


class Numbers(Callback):
    """Notes what an exception finds: the mode, the numbers of epoch and step, and how many batches there are."""

    def __init__(self):
        self.at_exception = []

    def on_exception(self, run_context, error):
        params = run_context.original_args()
        self.at_exception.append((params.mode, params.cur_epoch_num, params.cur_step_num, params.batch_num))


def _recording(hook):
    def record(self, run_context):
        params = run_context.original_args()
        self.params[hook] = dict(params)
        self.calls.append((hook, params.get("cur_epoch_num"), params.get("cur_step_num")))
        if hook == self.stop_at:
            run_context.request_stop()

    return record


for _hook in (*TRAIN_HOOKS, *EVAL_HOOKS):
    setattr(Recorder, _hook, _recording(_hook))
