import subprocess
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
from monitored_runs import (
    INFINITY,
    NAN,
    Hearing,
    OnAccelerator,
    WithoutLength,
    batches,
    context,
    loss_of_the_batch,
    model,
    on_accelerator,
)
from torch import nn

from collectors.callbacks.callback import RunContext, step_loss
from collectors.callbacks.loss_monitor import LossMonitor
from collectors.model.model import Model


class EndHooks(Hearing):
    def __init__(self):
        self.calls = []

    def hear(self, hook, run_context):
        if hook.endswith("end"):
            self.calls.append(hook.removeprefix("on_train_"))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"per_print_times": -1}, ValueError, "per_print_times must be an int of at least 0, but got -1"),
        ({"per_print_times": 1.0}, TypeError, r"per_print_times must be an int of at least 0, but got float: 1\.0"),
        ({"non_finite_action": "stop"}, ValueError, "non_finite_action must be one of 'raise', 'request_stop', 'warn'"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        LossMonitor(**arguments)


@pytest.mark.parametrize(
    ("net_outputs", "expected"),
    [
        (2, 2.0),
        (0.5, 0.5),
        (np.float32(0.5), 0.5),
        (np.array([1.0, 2.0, 6.0]), 3.0),
        (np.array([[1, 2]]), 1.5),
        (np.array([1.5, 2.5], ml_dtypes.bfloat16), 2.0),
        (torch.tensor(0.25), 0.25),
        (torch.tensor([1, 2]), 1.5),
        (torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16), 1.5),
        (torch.tensor([60000.0, 60000.0], dtype=torch.float16), 60000.0),
        (torch.tensor(1.0, requires_grad=True), 1.0),
        ((torch.tensor([1.0, 3.0]), torch.tensor(NAN)), 2.0),
        ([4.0, "overflow", None], 4.0),
        (((5.0, 1.0), 2.0), 5.0),
        (torch.tensor([-INFINITY, 1.0]), -INFINITY),
    ],
)
def test_the_loss_of_a_step(net_outputs, expected):
    loss = step_loss(net_outputs)
    assert isinstance(loss, float)
    np.testing.assert_equal(loss, expected)


TENSORS = (torch.tensor([]), torch.tensor([1j]), np.array([]), np.array(["a"]), np.zeros(2, "V3"))


@pytest.mark.parametrize("wrong", [None, {}, "0.5", True, [], ((), 1.0), 1j, {"loss": 1.0}, *TENSORS])
def test_outputs_without_a_number(wrong):
    with pytest.raises(TypeError, match=r"cb_params\.net_outputs must be the loss \(a number.*but got"):
        step_loss(wrong)


def test_no_callback_imports_a_framework():
    code = """import sys
from collectors.callbacks import callback, callback_manager, function_callbacks, history, loss_monitor, time_monitor
assert callback.step_loss([2.0, 1.0]) == 2.0
sys.exit('torch' in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


DATA = batches([1.0, 2.0, 3.0])
PLAIN = {"cur_step_num": 3, "batch_num": 2, "cur_epoch_num": 2, "net_outputs": [0.5, 1]}


def printed_lines(*printed):
    return "".join(f"epoch: {epoch} step: {step}, loss is {loss}\n" for epoch, step, loss in printed)


@pytest.mark.parametrize(
    ("per_print_times", "printed"),
    [
        (0, []),
        (1, [(1, 1, 1.0), (1, 2, 2.0), (1, 3, 3.0), (2, 1, 1.0), (2, 2, 2.0), (2, 3, 3.0)]),
        (2, [(1, 2, 2.0), (2, 1, 1.0), (2, 3, 3.0)]),
        (3, [(1, 3, 3.0), (2, 3, 3.0)]),
        (5, [(2, 2, 2.0)]),
        (7, []),
    ],
)
@pytest.mark.parametrize("has_length", [True, False])
def test_prints_the_loss(per_print_times, printed, has_length, capsys):
    model().train(2, DATA if has_length else WithoutLength(DATA), LossMonitor(per_print_times))
    assert capsys.readouterr().out == printed_lines(*printed)


@pytest.mark.parametrize(
    ("per_print_times", "run", "printed"),
    [
        (
            1,
            lambda monitor: model().train(2, WithoutLength(batches([1.0, 2.0]), batches([3.0, 4.0, 5.0])), monitor),
            [(1, 1, 1.0), (1, 2, 2.0), (2, 1, 3.0), (2, 2, 4.0), (2, 3, 5.0)],
        ),
        (1, lambda monitor: model().eval(batches([1.0, 2.0]), monitor), [(1, 1, 1.0), (1, 2, 2.0)]),
        (2, lambda monitor: model().train(3, DATA, monitor, initial_epoch=1), [(2, 2, 2.0), (3, 1, 1.0), (3, 3, 3.0)]),
        (1, lambda monitor: monitor.step_end(RunContext(PLAIN)), [(2, 1, 0.5)]),
    ],
    ids=["epochs of unequal lengths", "an evaluation", "a resumed run", "a plain dict and no begin hook"],
)
def test_steps_are_counted_within_their_epoch(per_print_times, run, printed, capsys):
    run(LossMonitor(per_print_times))
    assert capsys.readouterr().out == printed_lines(*printed)


def test_prints_the_metrics_of_evaluated_epochs_in_fit(capsys):
    model().fit(3, batches([1.0]), batches([7.0, 8.0]), valid_frequency=2, callbacks=LossMonitor())
    assert capsys.readouterr().out.splitlines() == [
        "epoch: 1 step: 1, loss is 1.0",
        "epoch: 2 step: 1, loss is 1.0",
        "Eval result: epoch 2, metrics: {'mean_target': 7.5}",
        "epoch: 3 step: 1, loss is 1.0",
    ]
    model().fit(1, batches([1.0]), batches([7.0]), callbacks=LossMonitor(0))
    assert capsys.readouterr().out == ""


def test_the_rhythm_survives_going_back_to_an_earlier_step(capsys):
    monitor = LossMonitor(3)
    monitor.begin(context(cur_step_num=0, batch_num=100))
    for step in [1, 2, 3, 4, 5, 6, 7, 8, 4, 5, 6, 7, 1, 2, 3]:
        monitor.step_end(context(cur_step_num=step, cur_epoch_num=1, batch_num=100, net_outputs=float(step)))
    assert [line.split()[3] for line in capsys.readouterr().out.splitlines()] == ["3,", "6,", "6,", "3,"]


@pytest.mark.parametrize("loss", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("per_print_times", [0, 1, 100])
def test_raises_and_names_the_step(loss, per_print_times, capsys):
    data = WithoutLength(batches([1.0, 2.0]), batches([1.0, loss]))
    text = rf"In epoch: 2 step: 2, loss is NAN or INF \({loss}\), terminating training\. Lower the learning rate"
    with pytest.raises(ValueError, match=text):
        model().train(3, data, LossMonitor(per_print_times))
    assert str(loss) not in capsys.readouterr().out


@pytest.mark.parametrize(
    "net_outputs",
    [NAN, (NAN, 1.0), [torch.tensor(NAN), torch.tensor(1.0)], (torch.tensor([1.0, NAN]), "scale"), (np.float32(NAN),)],
)
def test_nan_is_found_inside_tuples_and_arrays(net_outputs):
    with pytest.raises(ValueError, match="In epoch: 4 step: 2, loss is NAN or INF"):
        LossMonitor(0).step_end(context(cur_step_num=5, batch_num=3, cur_epoch_num=4, net_outputs=net_outputs))


def test_raises_in_an_evaluation():
    with pytest.raises(ValueError, match="In epoch: 1 step: 2, loss is NAN"):
        model().eval(batches([1.0, NAN]), LossMonitor(0))


def test_a_network_that_returns_its_loss_in_evaluation():
    class ReturnsItsLoss(nn.Module):
        def forward(self, inputs):
            return inputs.mean() * NAN, inputs

    with pytest.raises(ValueError, match="step: 1, loss is NAN"):
        Model(ReturnsItsLoss(), metrics={"one": lambda outputs, targets: 1.0}).eval(batches([1.0]), LossMonitor())


def test_request_stop_ends_the_run_in_good_order(capsys):
    hooks = EndHooks()
    with pytest.warns(UserWarning, match="In epoch: 1 step: 2, loss is NAN or INF .*, training is asked to stop"):
        model().train(5, batches([1.0, NAN, 3.0]), [LossMonitor(non_finite_action="request_stop"), hooks])
    assert hooks.calls == ["step_end", "step_end", "epoch_end", "end"]
    assert capsys.readouterr().out.splitlines()[-1] == "epoch: 1 step: 2, loss is nan"


def test_request_stop_ends_an_evaluation():
    with pytest.warns(UserWarning, match="step: 1, loss is NAN"):
        results = model().eval(batches([INFINITY, 2.0]), LossMonitor(0, non_finite_action="request_stop"))
    assert results == {"mean_target": INFINITY}


def test_warn_goes_on_and_warns_once_for_each_stretch(capsys):
    hooks = EndHooks()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model().train(1, batches([NAN, NAN, 1.0, INFINITY, 2.0]), [LossMonitor(non_finite_action="warn"), hooks])
    told = [str(warning.message).split(" (")[0] for warning in caught]
    assert told == [f"In epoch: 1 step: {step}, loss is NAN or INF" for step in (1, 4)]
    assert hooks.calls == ["step_end"] * 5 + ["epoch_end", "end"]
    losses = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert losses == ["nan", "nan", "1.0", "inf", "2.0"]


def test_a_second_run_warns_again():
    monitor = LossMonitor(0, non_finite_action="warn")
    for _ in range(2):
        with pytest.warns(UserWarning, match="step: 1, loss is NAN"):
            model().train(1, batches([NAN]), monitor)


def test_a_failed_run_leaves_nothing_for_the_next(capsys):
    monitor = LossMonitor(3)
    with pytest.raises(ValueError, match="loss is NAN"):
        model().train(1, batches([1.0, 2.0, NAN]), monitor)
    model().train(1, batches([1.0, 2.0, 3.0]), monitor)
    assert capsys.readouterr().out == "epoch: 1 step: 3, loss is 3.0\n"


def steps(monitor, losses, first=1):
    for step, loss in enumerate(losses, first):
        monitor.step_end(context(cur_step_num=step, cur_epoch_num=1, batch_num=1000, net_outputs=loss))


def test_losses_on_an_accelerator_are_read_when_printed_and_at_the_end_of_the_epoch(capsys):
    monitor = LossMonitor(3)
    steps(monitor, [on_accelerator(1.0), on_accelerator(2.0)])
    assert OnAccelerator.reads == 0
    steps(monitor, [on_accelerator(3.0)], first=3)
    assert OnAccelerator.reads > 0
    assert capsys.readouterr().out == "epoch: 1 step: 3, loss is 3.0\n"
    steps(monitor, [on_accelerator(4.0)], first=4)
    assert OnAccelerator.reads == 0
    monitor.on_train_epoch_end(context(cur_epoch_num=1))
    assert OnAccelerator.reads == 1


@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_eval_epoch_end", "on_train_step_end"])
def test_nan_on_an_accelerator_is_found_by_the_end_of_the_epoch_and_before_a_later_loss_is_printed(hook, capsys):
    monitor = LossMonitor(3)
    steps(monitor, [on_accelerator(1.0), on_accelerator(NAN)])
    third = context(cur_step_num=3, cur_epoch_num=1, batch_num=1000, net_outputs=on_accelerator(3.0))
    with pytest.raises(ValueError, match="In epoch: 1 step: 2, loss is NAN"):
        getattr(monitor, hook)(third)
    assert capsys.readouterr().out == ""


def test_nan_on_an_accelerator_is_found_within_64_steps():
    monitor = LossMonitor(0)
    steps(monitor, [on_accelerator(NAN)] + [on_accelerator(1.0)] * 62)
    with pytest.raises(ValueError, match="In epoch: 1 step: 1, loss is NAN"):
        steps(monitor, [on_accelerator(1.0)], first=64)


def test_unread_losses_do_not_reach_the_next_run():
    monitor = LossMonitor(0)
    steps(monitor, [on_accelerator(NAN)])
    monitor.on_train_begin(context(cur_step_num=0, batch_num=1000))
    monitor.on_train_epoch_end(context(cur_epoch_num=1))
    assert OnAccelerator.reads == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_nan_is_found_on_a_gpu():
    network = nn.Linear(1, 1).double().cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="In epoch: 1 step: 2, loss is NAN"):
        Model(network, loss_of_the_batch, optimizer).train(1, batches([1.0, NAN, 2.0]), LossMonitor(0))


def test_a_trainer_that_counts_an_epochs_steps_knows_best(capsys):
    """After a resume the epochs before may have had another number of steps."""
    monitor, given = LossMonitor(), context(cur_step_num=30, batch_num=7)
    monitor.begin(given)
    monitor.epoch_begin(given)
    step = context(cur_step_num=31, batch_num=7, cur_epoch_num=5, net_outputs=0.5)
    step.epoch_steps = 1
    monitor.step_end(step)
    assert capsys.readouterr().out == "epoch: 5 step: 1, loss is 0.5\n"
