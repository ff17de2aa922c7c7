import pytest
import torch
from monitored_runs import WithoutLength, batches, context, model, stop_after
from torch import nn

from collectors.callbacks.callback import Callback
from collectors.callbacks.time_monitor import TimeMonitor

CLOCK = "collectors.callbacks.time_monitor.perf_counter"  # time: a false clock takes its place


class Clock:
    """Stands still until somebody moves it."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(CLOCK, clock)
    return clock


class SlowData:
    def __init__(self, clock, seconds, count):
        self.clock, self.seconds, self.count = clock, seconds, count

    def __len__(self):
        return self.count

    def __iter__(self):
        for batch in batches([1.0] * self.count):
            self.clock.now += self.seconds
            yield batch


class SlowSteps(Callback):
    def __init__(self, clock, train=0.0, evaluate=0.0):
        self.clock, self.train, self.evaluate = clock, train, evaluate

    def on_train_step_begin(self, run_context):
        self.clock.now += self.train

    def on_eval_step_begin(self, run_context):
        self.clock.now += self.evaluate


def line(phase, epoch, step, data=None):
    """Returns what is printed of an epoch; the times are in milliseconds."""
    text = f"{phase} epoch time: {epoch:.3f} ms, per step time: {step:.3f} ms"
    return text + ("\n" if data is None else f" (data time: {data:.3f} ms)\n")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"data_size": 0}, ValueError, "data_size must be an int of at least 1, but got 0"),
        ({"data_size": "10"}, TypeError, "data_size must be an int of at least 1, but got str"),
        ({"data_time": 1}, TypeError, "data_time must be a bool, but got int: 1"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        TimeMonitor(**arguments)


@pytest.mark.parametrize("data_size", [None, 99])
@pytest.mark.parametrize("has_length", [True, False])
def test_training(clock, capsys, data_size, has_length):
    data = SlowData(clock, 0.25, 4)
    if not has_length:
        data = WithoutLength(data)
    model().train(2, data, [TimeMonitor(data_size), SlowSteps(clock, train=1.0)])
    assert capsys.readouterr().out == line("Train", 5000, 1250) * 2


def test_an_evaluation_of_its_own(clock, capsys):
    model().eval(SlowData(clock, 0.125, 2), [TimeMonitor(data_time=True), SlowSteps(clock, evaluate=0.5)])
    assert capsys.readouterr().out == line("Eval", 1250, 625, 125)


@pytest.mark.parametrize("slow_callback_first", [True, False])
def test_fit_separates_training_and_evaluation(clock, capsys, slow_callback_first):
    callbacks = [TimeMonitor(data_time=True), SlowSteps(clock, train=1.0, evaluate=16.0)]
    if slow_callback_first:
        # Its steps then count as waiting for data, because they come before the monitor hears of the batch.
        callbacks.reverse()
    training, evaluation = SlowData(clock, 0.25, 4), SlowData(clock, 0.125, 2)
    model().fit(3, training, evaluation, valid_frequency=2, callbacks=callbacks)
    train = line("Train", 5000, 1250, 1250 if slow_callback_first else 250)
    evaluate = line("Eval", 32250, 16125, 16125 if slow_callback_first else 125)
    assert capsys.readouterr().out == train + evaluate + train + train


@pytest.mark.parametrize(
    ("epochs", "first", "expected"),
    [(9, 0, line("Train", 5000, 1250) + line("Train", 2500, 1250)), (3, 2, line("Train", 5000, 1250))],
    ids=["stopped after six steps", "resumed"],
)
def test_a_run_that_is_not_whole_divides_by_its_own_steps(clock, capsys, epochs, first, expected):
    callbacks = [TimeMonitor(), SlowSteps(clock, train=1.0), stop_after(6)]
    model().train(epochs, SlowData(clock, 0.25, 4), callbacks, initial_epoch=first)
    assert capsys.readouterr().out == expected


def test_several_runs_with_one_monitor(clock, capsys):
    callbacks = [TimeMonitor(data_time=True), SlowSteps(clock, train=1.0)]
    for _ in range(2):
        model().train(1, SlowData(clock, 0.25, 4), callbacks)
        clock.now += 100.0
        assert capsys.readouterr().out == line("Train", 5000, 1250, 250)
    model().eval(SlowData(clock, 0.125, 1), callbacks)
    assert capsys.readouterr().out == line("Eval", 125, 125, 125)


def test_a_failed_run_leaves_nothing_for_the_next(clock, capsys):
    class Fails(Callback):
        def on_eval_step_end(self, run_context):
            raise RuntimeError("broken")

    monitor = TimeMonitor()
    with pytest.raises(RuntimeError, match="broken"):
        model().fit(1, SlowData(clock, 1.0, 1), SlowData(clock, 1.0, 1), callbacks=[monitor, Fails()])
    assert capsys.readouterr().out == ""
    clock.now += 50.0
    model().eval(SlowData(clock, 1.0, 1), monitor)
    model().train(1, SlowData(clock, 2.0, 1), monitor)
    assert capsys.readouterr().out == line("Eval", 1000, 1000) + line("Train", 2000, 2000)


@pytest.mark.parametrize("end", ["on_eval_end", "on_exception"])
def test_an_evaluation_in_the_middle_of_an_epoch_is_no_waiting_for_data(clock, capsys, end):
    monitor = TimeMonitor(data_time=True)
    for seconds, step, name in (
        (0.0, 0, "on_train_begin"),
        (0.0, 0, "on_train_epoch_begin"),
        (0.25, 0, "on_train_step_begin"),
        (1.0, 1, "on_train_step_end"),
        (0.0, 1, "on_eval_begin"),
        (64.0, 1, end),
        (0.25, 1, "on_train_step_begin"),
        (1.0, 2, "on_train_step_end"),
        (0.0, 2, "on_train_epoch_end"),
    ):
        clock.now += seconds
        mode, error = "train" if "train" in name else "eval", [ArithmeticError()] if name == "on_exception" else []
        getattr(monitor, name)(context(cur_step_num=step, batch_num=2, mode=mode), *error)
    assert capsys.readouterr().out == line("Train", 2500, 1250, 250)


@pytest.mark.parametrize(
    ("at_begin", "at_end", "data_size", "steps"),
    [
        ({"cur_step_num": 10}, {"cur_step_num": 15, "batch_num": 8}, 2, 5),
        ({"cur_step_num": 10}, {"cur_step_num": 9, "batch_num": 8}, 2, 8),
        ({}, {"batch_num": 8}, 2, 8),
        ({}, {"batch_num": None}, 2, 2),
        ({}, {"batch_num": 0}, 2, 2),
        ({}, {}, 2, 2),
    ],
)
def test_what_the_time_is_divided_by(clock, capsys, at_begin, at_end, data_size, steps):
    monitor = TimeMonitor(data_size)
    monitor.on_train_epoch_begin(context(**at_begin))
    clock.now += 4.0
    monitor.on_train_epoch_end(context(**at_end))
    assert capsys.readouterr().out == line("Train", 4000, 4000 / steps)


@pytest.mark.parametrize("params", [{}, {"batch_num": None}, {"batch_num": -1}])
def test_no_number_of_steps(params):
    monitor = TimeMonitor()
    monitor.on_train_epoch_begin(context())
    with pytest.raises(ValueError, match=r"data_size must be given.*TimeMonitor\(data_size=<steps per epoch>\)"):
        monitor.on_train_epoch_end(context(**params))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_has_done_its_work_when_the_time_is_taken(monkeypatch):
    idle = []

    def clock():
        idle.append(torch.cuda.current_stream().query())
        return 0.0

    monkeypatch.setattr(CLOCK, clock)
    network = nn.Linear(1, 1).cuda()
    monitor, work = TimeMonitor(), torch.ones(4096, 4096, device="cuda")
    for hook in ("on_train_epoch_begin", "on_eval_begin", "on_eval_end", "on_train_epoch_end"):
        for _ in range(20):
            work @ work
        mode = "eval" if "eval" in hook else "train"
        getattr(monitor, hook)(context(network=network, cur_step_num=0, batch_num=1, mode=mode))
    assert idle == [True] * 4
