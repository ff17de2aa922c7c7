"""Callbacks of this library inside MindSpore's own Model, beside MindSpore's."""

import contextlib

import mindspore
import numpy as np
import pytest
from cases import Crash, Numbers, Recorder, assert_same, weights
from mindspore_cases import FOUR_STEPS, TWO_EPOCHS, CrashAfter, dataset, model_of, without_dropout
from monitored_runs import stop_after

import collectors
from collectors import (
    CheckpointConfig,
    History,
    LambdaCallback,
    LearningRateScheduler,
    LossMonitor,
    ModelCheckpoint,
    TimeMonitor,
    load_checkpoint,
)
from collectors.callbacks.callback import LEGACY_HOOKS
from collectors.mindspore import InMindSpore, SummaryCollector
from collectors.networks.mindspore_network import read
from collectors.run_directory import RunDirectory


def train(callbacks, epochs=2, **options):
    network = without_dropout()
    model_of(network).train(epochs, dataset(32, 8), callbacks=callbacks, dataset_sink_mode=False, **options)
    return network


def fit(callbacks, epochs=2):
    model = model_of(without_dropout(), metrics={"accuracy"})
    model.fit(epochs, dataset(32, 8), dataset(16, 8), callbacks=callbacks, dataset_sink_mode=False)


def collecting(folder, landscape=TWO_EPOCHS, kind=collectors.SummaryCollector):
    return kind(folder, collect_landscape=landscape, keep_default_action=False)


def in_our_model(callback, epochs=2):
    """Runs a callback in our Model, on as many batches."""
    import torch

    layer = torch.nn.Linear(1, 1)
    batches = [(torch.ones(8, 1), torch.ones(8, 1))] * 4
    made = collectors.Model(
        layer, torch.nn.MSELoss(), torch.optim.SGD(layer.parameters(), 0.1), metrics={"zero": lambda a, b: 0.0}
    )
    made.fit(epochs, batches, batches[:2], callbacks=callback)


def test_the_hooks_are_those_of_our_model_and_our_monitors_tell_of_them(mode, capsys):
    pytest.importorskip("torch")
    ours, theirs, history, losses = Recorder(), Recorder(), History(), []
    in_our_model(ours)
    note = LambdaCallback(on_train_step_end=lambda run: losses.append(float(run.original_args().net_outputs.asnumpy())))
    fit([InMindSpore(theirs, history, LossMonitor(3), TimeMonitor(data_time=True), note)])
    assert history.epoch == {"epoch": [1, 2]}
    assert history.history["net_output"] == pytest.approx([np.mean(losses[:4]), np.mean(losses[4:])], rel=1e-6)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("epoch", "Train"))]
    assert [line.split(":")[0] for line in lines] == ["epoch", "Train epoch time", "epoch", "Train epoch time"]
    assert lines[0] == f"epoch: 1 step: 3, loss is {losses[2]}"
    assert lines[2] == f"epoch: 2 step: 2, loss is {losses[5]}"
    assert theirs.calls == ours.calls
    for hook, params in ours.params.items():
        for key in ("mode", "epoch_num", "cur_epoch_num", "batch_num", "cur_step_num", "initial_step"):
            assert theirs.params[hook].get(key) == params.get(key), (hook, key)
        assert ("metrics" in theirs.params[hook]) == ("metrics" in params), hook
    assert theirs.params["on_eval_end"]["metrics"].keys() == {"accuracy"}
    assert theirs.params["on_train_end"]["train_network"] is not None


def test_an_evaluation_alone(mode):
    recorder, history = Recorder(), History()
    made = model_of(without_dropout(), metrics={"accuracy", "loss"})
    results = made.eval(dataset(32, 8), callbacks=[InMindSpore(recorder, history)], dataset_sink_mode=False)
    steps = ["on_eval_step_begin", "on_eval_step_end"] * 4
    begin, end = ["on_eval_begin", "on_eval_epoch_begin"], ["on_eval_epoch_end", "on_eval_end"]
    assert recorder.names == ["enter", *begin, *steps, *end, "exit"]
    assert history.epoch == {"epoch": [1]}
    assert history.history["accuracy"] == [results["accuracy"]]
    assert history.history["net_output"] == pytest.approx([results["loss"]], rel=1e-6)


def test_nan_stops_the_training(mode):
    recorder = Recorder()
    network = without_dropout()
    network.classifier.weight.set_data(mindspore.Tensor(np.full((5, 144), np.nan, np.float32)))
    with pytest.raises(ValueError, match="In epoch: 1 step: 1, loss is NAN or INF"):
        model_of(network).train(1, dataset(32, 8), [InMindSpore(recorder, LossMonitor())], dataset_sink_mode=False)
    assert [str(error)[:18] for error in recorder.errors] == ["In epoch: 1 step: "]
    assert recorder.calls[-1] == "exit ValueError"


def test_an_initial_epoch_goes_on_counting(pynative):
    recorder = Recorder()
    train([InMindSpore(recorder)], epochs=3, initial_epoch=1)
    assert recorder.calls[1] == ("on_train_begin", 1, 4)
    steps = [call for call in recorder.calls if call[0] == "on_train_step_end"]
    assert steps == [("on_train_step_end", 2 + (step - 5) // 4, step) for step in range(5, 13)]
    assert recorder.params["on_train_begin"]["epoch_num"] == 3
    assert recorder.params["on_train_begin"]["initial_step"] == 4


@pytest.mark.parametrize("kind", ["adapted", "collector"])
def test_a_sink_size_without_a_sink_leaves_epochs_as_they_are(pynative, tmp_path, kind):
    recorder, network = Recorder(), without_dropout()
    adapted = kind == "adapted"
    ours = InMindSpore(recorder, collecting(tmp_path)) if adapted else collecting(tmp_path, kind=SummaryCollector)
    model_of(network).train(2, dataset(32, 8), callbacks=[ours], dataset_sink_mode=True, sink_size=3)
    assert RunDirectory(tmp_path).present((0, 1, 2)) == [0, 1, 2]
    assert RunDirectory(tmp_path).metadata.step_per_epoch == 4
    saved, trained = weights(tmp_path, 2), read(network)
    assert_same(saved, {name: trained[name] for name in saved}, rtol=0, atol=0)
    if adapted:
        assert recorder.params["on_train_begin"]["batch_num"] == 4


@pytest.mark.parametrize("hook", ["on_train_step_end", "on_train_epoch_end", "on_eval_begin", "on_eval_end"])
def test_a_stop_ends_the_training(hook, pynative):
    recorder = Recorder(stop_at=hook)
    fit([InMindSpore(recorder)], epochs=5)
    assert {call[1] for call in recorder.calls if call[0] == "on_train_step_end"} == {1}
    assert recorder.calls[-1] == "exit"
    assert recorder.calls[-2][0] == "on_train_end"


def test_an_error_elsewhere_is_told(pynative):
    recorder = Recorder()
    with pytest.raises(Crash):
        train([InMindSpore(recorder), CrashAfter(3)])
    assert [type(error) for error in recorder.errors] == [Crash]
    assert recorder.calls[-1] == "exit Crash"


class CrashInEvaluation(mindspore.train.Callback):
    def on_eval_step_end(self, run_context):
        if run_context.original_args().cur_epoch_num == 2:
            raise Crash


def test_what_an_evaluation_that_fails_leaves_is_of_the_training(pynative, tmp_path):
    seen = Numbers()
    saving = ModelCheckpoint("run", tmp_path, CheckpointConfig(100, exception_save=True))
    with pytest.raises(Crash):
        fit([InMindSpore(seen, saving), CrashInEvaluation()])
    assert seen.at_exception == [("train", 2, 8, 4)]
    assert [path.name for path in tmp_path.iterdir()] == ["run-2_4_breakpoint.safetensors"]


def test_one_adapter_for_several_runs(pynative):
    history = History()
    adapter = InMindSpore(history)
    for _ in range(2):
        train([adapter])
        assert history.epoch == {"epoch": [1, 2]}


def test_both_collectors_together(mode, tmp_path):
    theirs = mindspore.SummaryCollector(
        str(tmp_path / "theirs"),
        collect_specified_data={"collect_landscape": dict(FOUR_STEPS)},
        keep_default_action=False,
    )
    train([theirs, InMindSpore(collecting(tmp_path / "ours", FOUR_STEPS))])
    a, b = RunDirectory(tmp_path / "theirs"), RunDirectory(tmp_path / "ours")
    assert a.present((1, 2, 3, 4)) == b.present((1, 2, 3, 4)) == [1, 2, 3, 4]
    for number in (1, 4):
        theirs, ours = weights(tmp_path / "theirs", number), weights(tmp_path / "ours", number)
        assert_same({name: theirs[name] for name in ours}, ours, rtol=0, atol=0)


def test_our_collector_is_that_of_the_framework(pynative, tmp_path):
    for folder, callback in (
        ("plain", collecting(tmp_path / "plain", kind=SummaryCollector)),
        ("adapted", InMindSpore(collecting(tmp_path / "adapted"))),
    ):
        train([callback])
        assert RunDirectory(tmp_path / folder).present((0, 1, 2)) == [0, 1, 2]
    assert_same(*(weights(tmp_path / folder, 2) for folder in ("plain", "adapted")), rtol=0, atol=0)


def test_an_epoch_that_is_cut_short_does_not_count(pynative, tmp_path):
    with pytest.warns(UserWarning, match=r"training ended at epoch 1 without saving \[2\]"):
        train([InMindSpore(stop_after(6), collecting(tmp_path))])
    assert RunDirectory(tmp_path).present((0, 1, 2)) == [0, 1]


def test_our_checkpoints_hold_the_weights(pynative, tmp_path):
    checkpoint = ModelCheckpoint("own", tmp_path, CheckpointConfig(save_checkpoint_steps=4))
    network = train([InMindSpore(checkpoint)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own-1_4.safetensors", "own-2_4.safetensors"]
    weights = load_checkpoint(checkpoint.latest_ckpt_file_name).weights
    for name, value in read(network).items():
        np.testing.assert_array_equal(weights[name], value)


@pytest.mark.parametrize("kind", ["adapted", "collector"])
def test_an_overridden_hook_is_called_once(kind, pynative, tmp_path):
    calls = []

    def overriding(hook):
        def override(self, run_context):
            calls.append((hook, run_context.original_args().mode))
            getattr(super(subclass, self), hook)(run_context)

        return override

    base = History if kind == "adapted" else SummaryCollector
    subclass = type("Mine", (base,), {hook: overriding(hook) for hook in LEGACY_HOOKS})
    callback = InMindSpore(subclass()) if kind == "adapted" else collecting(tmp_path, kind=subclass)
    model_of(without_dropout()).train(2, dataset(16, 8), callbacks=[callback], dataset_sink_mode=False)
    epoch = ["epoch_begin", *["step_begin", "step_end"] * 2, "epoch_end"]
    assert calls == [(hook, "train") for hook in ("begin", *epoch, *epoch, "end")]
    if kind == "collector":
        assert RunDirectory(tmp_path).present((0, 1, 2)) == [0, 1, 2]


def test_a_subclass_of_the_collector_in_a_fit(pynative, tmp_path):
    """MindSpore takes it for a callback of a user's, which it enters and leaves around each evaluation."""

    class Mine(SummaryCollector):
        pass

    fit([collecting(tmp_path, kind=Mine)])
    assert RunDirectory(tmp_path).present((0, 1, 2)) == [0, 1, 2]


def test_what_in_mindspore_refuses(pynative, tmp_path):
    with pytest.raises(ValueError, match="callbacks must be given, at least one"):
        InMindSpore()
    with pytest.raises(TypeError, match=r"one is a mindspore\.train\.Callback, which Model takes as it is"):
        InMindSpore(mindspore.train.LossMonitor())
    with pytest.raises(TypeError, match=r"Of the collectors, give collectors\.SummaryCollector"):
        InMindSpore(SummaryCollector(tmp_path, keep_default_action=False))
    with pytest.raises(TypeError, match=r"callbacks\[0\] must be a Callback"):
        InMindSpore(History)
    with pytest.raises(TypeError, match=r"cb_params\.optimizer must be an optimizer with param_groups"):
        train([InMindSpore(LearningRateScheduler(lambda rate, step: rate))])


def test_steps_that_cannot_be_seen(mode, tmp_path):
    own = collecting(tmp_path / "own", FOUR_STEPS, SummaryCollector)
    for callback in (own, InMindSpore(collecting(tmp_path / "adapted", FOUR_STEPS))):
        parameters = mindspore.train.callback._callback.InternalCallbackParam(
            list_callback=[callback], dataset_sink_mode=True, sink_size=4
        )
        text = 'unit="step", but with dataset_sink_mode=True'
        with pytest.raises(ValueError, match=text) if mode == "graph" else contextlib.nullcontext():
            callback.on_train_begin(mindspore.train.RunContext(parameters))
    assert not (tmp_path / "adapted").exists()
