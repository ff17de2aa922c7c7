import functools
import itertools
import runpy

import pytest
import torch
from monitored_runs import batches, model
from places import ROOT

from collectors.callbacks.callback import Callback
from collectors.networks.readers import read_network
from collectors.weights.foreign_checkpoint import read_checkpoint

EXAMPLES = ROOT / "docs" / "examples"


@functools.cache
def names_of(example):
    return runpy.run_path(str(EXAMPLES / f"{example}.py"))


class Weights(Callback):
    """The weights after each step, by epoch and step."""

    def __init__(self):
        self.after = {}

    def on_train_step_end(self, run_context):
        cb_params = run_context.original_args()
        state = {name: array.copy() for name, array in read_network(cb_params.network).items()}
        self.after[cb_params.cur_epoch_num, cb_params.cur_step_num] = state


def assert_holds(path, state):
    found = read_checkpoint(path).tensors
    assert found.keys() == state.keys()
    assert all((found[name] == state[name]).all() for name in state)


@pytest.mark.parametrize(
    ("seconds", "stopped_at"), [(0.0, (1, 1)), (1.0, (1, 1)), (2.5, (1, 3)), (5.0, (2, 5)), (100.0, None)]
)
def test_stops_after_the_step_in_which_the_time_is_up(seconds, stopped_at):
    # One second passes from look to look: at train begin, then after each step.
    callback = names_of("stop_at_time")["StopAtTime"](seconds, itertools.count().__next__)
    for _ in range(2):  # each run has a time of its own
        weights = Weights()
        model().train(2, batches([1.0, 2.0, 3.0]), [weights, callback])
        assert callback.stopped_at == stopped_at
        assert max(weights.after) == (stopped_at or (2, 6))


def test_the_file_stops_a_training_that_would_take_hours():
    callback = names_of("stop_at_time")["main"](0.2)
    # A million epochs end by the stop alone.
    assert callback.stopped_at is not None
    assert callback.seconds == 0.2


def test_saves_after_every_step_under_the_threshold(tmp_path):
    callback, weights = names_of("save_best")["SaveBelowLoss"](0.5, tmp_path / "new" / "folder"), Weights()
    model().train(2, batches([1.0, 0.25, 0.5, 0.125]), [weights, callback])
    names = ["1_2", "1_4", "2_6", "2_8"]
    assert callback.saved == [tmp_path / "new" / "folder" / f"{name}.safetensors" for name in names]
    assert sorted(callback.folder.iterdir()) == callback.saved
    for path in callback.saved:
        epoch, step = path.stem.split("_")
        assert_holds(path, weights.after[int(epoch), int(step)])


def test_keeps_the_best_accuracy_so_far(tmp_path):
    results = iter([0.25, 0.75, 0.5, 0.75, float("nan")])
    callback, weights = names_of("save_best")["SaveBestAccuracy"](tmp_path / "new"), Weights()
    trained = model({"accuracy": lambda outputs, targets: next(results)})
    trained.loss_fn = torch.nn.MSELoss()
    trained.fit(5, batches([1.0, 2.0]), batches([1.0]), callbacks=[weights, callback])
    assert (callback.best, callback.best_epoch) == (0.75, 2)
    assert_holds(callback.path, weights.after[2, 4])
    assert list(callback.path.parent.iterdir()) == [callback.path]
    callback = names_of("save_best")["SaveBestAccuracy"](tmp_path / "without an evaluation")
    model().train(2, batches([1.0]), callback)
    assert callback.best_epoch is None
    assert not list(tmp_path.glob("without*/*"))


def test_a_second_run_forgets_the_first(tmp_path):
    names = names_of("save_best")
    below, best = names["SaveBelowLoss"](0.5, tmp_path), names["SaveBestAccuracy"](tmp_path)
    for accuracy in (0.75, 0.5):
        trained = model({"accuracy": lambda outputs, targets, accuracy=accuracy: accuracy})
        trained.fit(1, batches([0.25]), batches([1.0]), callbacks=[below, best])
        assert (best.best, best.best_epoch) == (accuracy, 1)
        assert_holds(best.path, read_network(trained.network))
        assert len(below.saved) == 1


def test_the_file_leaves_its_checkpoints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXAMPLES / "save_best.py"), run_name="__main__")
    assert (tmp_path / "checkpoints" / "best_accuracy.safetensors").is_file()
    assert "Eval result: epoch 10, metrics: {'accuracy': 0." in capsys.readouterr().out
    assert callable(names["main"])
