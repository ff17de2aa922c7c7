"""The documented hooks of our callbacks do their work when they are called by hand, and are called when overridden."""

import inspect
import itertools

import numpy as np
import pytest
import torch
from monitored_runs import batches, context, mean_target, model
from torch import nn

from collectors import (
    CheckpointConfig,
    History,
    LambdaCallback,
    LearningRateScheduler,
    LossMonitor,
    ModelCheckpoint,
    RunContext,
    SummaryCollector,
    TimeMonitor,
    load_checkpoint,
)
from collectors.callbacks.callback import LEGACY_HOOKS, BuiltInCallback, CallbackParameters
from collectors.run_directory import RunDirectory

LANDSCAPE = {"intervals": [[1, 2, 3]], "unit": "step"}
KINDS = {
    kind.__name__: (kind, arguments)
    for kind, *arguments in (
        (LossMonitor, 0),
        (TimeMonitor,),
        (History,),
        (LambdaCallback, lambda run_context: None),
        (LearningRateScheduler, lambda rate, step: rate),
        (ModelCheckpoint,),
        (SummaryCollector,),
    )
}
NAMES = [f"{name}=None" for name in ("epoch_begin", "epoch_end", "step_begin", "step_end", "begin", "end")]
NEW_NAMES = [f"on_{phase}_{name}" for phase in ("train", "eval") for name in NAMES]
IN_FIT_EVALUATIONS = {"TimeMonitor", "LambdaCallback", "SummaryCollector"}


def counting(kind, names=LEGACY_HOOKS):
    """Returns a subclass that notes its hooks, each with the phase, and then does what its base does."""

    def overriding(hook):
        def override(self, run_context):
            self.calls.append((hook, run_context.original_args().get("mode")))
            getattr(super(subclass, self), hook)(run_context)

        return override

    subclass = type(f"Counting{kind.__name__}", (kind,), {name: overriding(name) for name in names} | {"calls": None})
    return subclass


def made(name, folder, names=LEGACY_HOOKS):
    kind, arguments = KINDS[name]
    options = {
        "ModelCheckpoint": {"directory": folder},
        "SummaryCollector": {"summary_dir": folder, "collect_landscape": LANDSCAPE, "keep_default_action": False},
    }
    callback = counting(kind, names)(*arguments, **options.get(name, {}))
    callback.calls = []
    return callback


@pytest.mark.parametrize(
    ("kind", "arguments", "in_fit_evaluations"),
    [
        (LossMonitor, "per_print_times=1, *, non_finite_action='raise'", False),
        (TimeMonitor, "data_size=None, data_time=False", True),
        (History, "", False),
        (LambdaCallback, ", ".join([*NAMES, "*", *NEW_NAMES]), True),
        (LearningRateScheduler, "learning_rate_function, *, before_first_step=False", False),
        (ModelCheckpoint, "prefix='CKP', directory=None, config=None, *, stateful=None", False),
    ],
)
def test_arguments_their_order_and_their_defaults(kind, arguments, in_fit_evaluations):
    signature = inspect.signature(kind)
    bare = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({arguments})"
    assert issubclass(kind, BuiltInCallback)
    assert kind.called_in_fit_evaluation == in_fit_evaluations


@pytest.mark.parametrize("name", KINDS)
def test_an_overridden_hook_runs_once_in_each_phase(name, tmp_path):
    callback = made(name, tmp_path)
    model().fit(1, batches([1.0, 2.0, 3.0]), batches([2.0]), callbacks=callback)
    steps = ["step_begin", "step_end"] * 3
    evaluation = [(hook, "eval") for hook in LEGACY_HOOKS]
    assert [call for call in callback.calls if call[1] == "eval"] == (evaluation if name in IN_FIT_EVALUATIONS else [])
    training = [hook for hook, phase in callback.calls if phase == "train"]
    assert training == ["begin", "epoch_begin", *steps, "epoch_end", "end"]
    callback.calls.clear()
    model().eval(batches([1.0]), callback)
    assert callback.calls == evaluation


@pytest.mark.parametrize("name", KINDS)
def test_both_spellings_overridden_run_once_each(name, tmp_path):
    both = [*LEGACY_HOOKS, *(f"on_train_{hook}" for hook in LEGACY_HOOKS)]
    callback = made(name, tmp_path, both)
    model().train(1, batches([1.0, 2.0, 3.0]), callback)
    expected = [hook for hook in both for _ in range(3 if "step" in hook else 1)]
    assert sorted(hook for hook, _ in callback.calls) == sorted(expected)


def hand_written_loop(callback, hooks, epochs=2, steps=3, **params):
    """Calls some hooks of a callback as a loop of one's own does; the loss of step i is i."""
    params = CallbackParameters(batch_num=steps, cur_step_num=0, cur_epoch_num=0, **params)
    run_context = RunContext(params)

    def call(hook):
        if hook in hooks:
            getattr(callback, hook)(run_context)

    call("begin")
    for epoch in range(1, epochs + 1):
        params.cur_epoch_num = epoch
        call("epoch_begin")
        for _ in range(steps):
            params.cur_step_num += 1
            params.net_outputs = torch.tensor(float(params.cur_step_num))
            call("step_end")
        call("epoch_end")
    call("end")
    return params


def test_model_checkpoint_by_its_two_documented_hooks(tmp_path):
    network = nn.Linear(3, 2)
    checkpoint = ModelCheckpoint("CKP", tmp_path, CheckpointConfig(2, append_info=["epoch_num", "step_num"]))
    params = hand_written_loop(checkpoint, ("step_end", "end"), steps=3, network=network, epoch_num=2)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["CKP-1_2", "CKP-2_1", "CKP-2_3"]
    assert params.latest_ckpt_file == checkpoint.latest_ckpt_file_name == str(tmp_path / "CKP-2_3.safetensors")
    loaded = load_checkpoint(params.latest_ckpt_file)
    assert (loaded.info, loaded.training_state) == ({"epoch_num": 2, "step_num": 6}, None)
    np.testing.assert_array_equal(loaded.weights["weight"], network.weight.detach())
    # The run ended; the next loop is another run.
    hand_written_loop(checkpoint, ("begin", "step_end", "end"), epochs=1, network=network)
    assert sorted(path.stem for path in tmp_path.iterdir())[3:] == ["CKP_1-1_2", "CKP_1-1_3"]


def test_model_checkpoint_by_its_last_hook_alone(tmp_path):
    ModelCheckpoint("CKP", tmp_path).end(context(network=nn.Linear(1, 1), cur_step_num=7, cur_epoch_num=2, batch_num=5))
    assert [path.name for path in tmp_path.iterdir()] == ["CKP-2_2.safetensors"]


@pytest.mark.parametrize("mode", [{}, {"mode": "train"}, {"mode": "eval"}])
def test_time_monitor_by_its_two_documented_hooks(mode, capsys, monkeypatch):
    patched = "collectors.callbacks.time_monitor.perf_counter"  # time: a false clock
    monkeypatch.setattr(patched, itertools.count(1000.0).__next__)
    hand_written_loop(TimeMonitor(), ("epoch_begin", "epoch_end"), epochs=2, steps=2, **mode)
    phase = "Eval" if mode.get("mode") == "eval" else "Train"
    line = f"{phase} epoch time: 1000.000 ms, per step time: 500.000 ms"
    assert capsys.readouterr().out.splitlines() == [line, line]


def test_history_by_its_two_documented_hooks():
    history = History()
    assert (history.epoch, history.history) == ({"epoch": []}, {"net_output": []})
    for _ in range(2):
        hand_written_loop(history, ("begin", "epoch_end"), metrics={"accuracy": 0.5})
        assert history.epoch == {"epoch": [1, 2]}
        assert history.history == {"net_output": [3.0, 6.0], "accuracy": [0.5, 0.5]}  # an epoch's last loss


def test_history_by_hand_with_the_steps():
    history = History()
    hand_written_loop(history, ("begin", "step_end", "epoch_end"))
    assert (history.epoch, history.history) == ({"epoch": [1, 2]}, {"net_output": [2.0, 5.0]})
    hand_written_loop(history, LEGACY_HOOKS, epochs=1, mode="eval", metrics={"accuracy": 0.5})
    assert (history.epoch, history.history) == ({"epoch": [1]}, {"net_output": [2.0], "accuracy": [0.5]})


def test_learning_rate_scheduler_by_its_documented_hook():
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = LearningRateScheduler(lambda rate, step: rate / 2)
    hand_written_loop(scheduler, ("step_end",), epochs=1, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.125
    hand_written_loop(scheduler, LEGACY_HOOKS, epochs=1, optimizer=optimizer, mode="eval")
    assert optimizer.param_groups[0]["lr"] == 0.125


def test_loss_monitor_by_its_documented_hooks(capsys):
    hand_written_loop(LossMonitor(2), ("step_end", "epoch_end"), epochs=1, metrics={"accuracy": 0.5})
    assert capsys.readouterr().out.splitlines() == [
        "epoch: 1 step: 2, loss is 2.0",
        "Eval result: epoch 1, metrics: {'accuracy': 0.5}",
    ]


def test_lambda_callback_by_hand_and_below_its_subclass():
    diary = []

    class Mine(LambdaCallback):
        def step_end(self, run_context):
            diary.append("mine")
            super().step_end(run_context)

    callback = Mine(step_end=lambda run_context: diary.append("given"))
    hand_written_loop(callback, ("step_end",), epochs=1, steps=1)
    model().train(1, batches([1.0]), callback)
    assert diary == ["mine", "given"] * 2


def test_summary_collector_by_hand(tmp_path):
    network = nn.Linear(3, 2)
    collector = SummaryCollector(tmp_path, collect_landscape=LANDSCAPE, keep_default_action=False)
    hand_written_loop(collector, LEGACY_HOOKS, epochs=1, network=network)
    run = RunDirectory(tmp_path)
    assert run.present((1, 2, 3)) == [1, 2, 3]
    np.testing.assert_array_equal(run.checkpoint(3).read("weight"), network.weight.detach().numpy())


@pytest.mark.parametrize("hook", ["step_begin", "step_end", "epoch_end", "on_train_step_end"])
def test_summary_collector_whose_beginning_was_forgotten(hook, tmp_path):
    collector = SummaryCollector(tmp_path, collect_landscape=LANDSCAPE, keep_default_action=False)
    with pytest.raises(RuntimeError, match=r"a training that did not begin; call its begin\(run_context\)"):
        getattr(collector, hook)(context(network=nn.Linear(1, 1), cur_step_num=1, cur_epoch_num=1))


def test_the_results_are_those_of_the_plain_class(tmp_path):
    plain, overriding = History(), made("History", tmp_path)
    for callback in (plain, overriding):
        model({"target": mean_target}).fit(2, batches([1.0, 4.0]), batches([2.0]), callbacks=callback)
    assert (overriding.epoch, overriding.history) == (plain.epoch, plain.history)
    assert plain.history == {"net_output": [2.5, 2.5], "target": [2.0, 2.0], "eval_loss": [2.0, 2.0]}
