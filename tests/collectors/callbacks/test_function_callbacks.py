"""Callbacks that are made of functions: of any hooks, and of a learning rate's schedule."""

import copy
import re

import numpy as np
import pytest
import torch
from monitored_runs import batches, context, model
from torch import nn

from collectors.callbacks.callback import EVAL_HOOKS, LEGACY_HOOKS, TRAIN_HOOKS
from collectors.callbacks.function_callbacks import LambdaCallback, LearningRateScheduler

ORDER = ("epoch_begin", "epoch_end", "step_begin", "step_end", "begin", "end")
NEW = (*(f"on_train_{name}" for name in ORDER), *(f"on_eval_{name}" for name in ORDER))


def recorded(names, diary):
    """Returns a function for each name that notes the name and the phase it is called in."""
    return {
        name: lambda run_context, name=name: diary.append((name, run_context.original_args().mode)) for name in names
    }


@pytest.mark.parametrize("name", [*NEW, *ORDER])
@pytest.mark.parametrize("wrong", [3, "print", 0, False, [print]])
def test_what_cannot_be_called_is_refused_at_once(name, wrong):
    text = rf"^{name} must be a function of one argument \(the run context\) or None, but got {type(wrong).__name__}"
    with pytest.raises(TypeError, match=text):
        LambdaCallback(**{name: wrong})


@pytest.mark.parametrize("name", [*NEW, *ORDER])
def test_each_new_name_runs_alone_and_each_legacy_name_in_both_phases(name):
    calls = []
    callback = LambdaCallback(**{name: calls.append})
    for hook in (*TRAIN_HOOKS, *EVAL_HOOKS):
        getattr(callback, hook)(hook)
    assert calls == ([name] if name in NEW else [f"on_train_{name}", f"on_eval_{name}"])
    getattr(callback, name)("by hand")
    assert calls[-1] == "by hand"


def test_legacy_names_run_in_a_fit_without_a_warning_but_where_a_new_name_wins_in_its_phase():
    diary = []
    callback = LambdaCallback(**recorded((*ORDER, "on_train_step_end"), diary))
    model().fit(1, batches([1.0]), batches([2.0]), callbacks=callback)
    training, evaluation = ([(name, mode) for name in LEGACY_HOOKS] for mode in ("train", "eval"))
    assert diary == [*training[:3], ("on_train_step_end", "train"), *evaluation, *training[4:]]


def used_rates(rates):
    """A callback that keeps the learning rates that each step uses."""

    def keep(run_context):
        rates.append([float(group["lr"]) for group in run_context.original_args().optimizer.param_groups])

    return LambdaCallback(on_train_step_begin=keep)


def two_groups():
    network = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)).double()
    groups = [{"params": network[0].parameters()}, {"params": network[1].parameters(), "lr": 0.125}]
    return model(network=network, optimizer=torch.optim.SGD(groups, lr=0.5))


class Calls:
    """A function of a schedule that notes how it is called."""

    def __init__(self, change=lambda rate, step: rate):
        self.change, self.calls = change, []

    def __call__(self, rate, step):
        self.calls.append((rate, step))
        return self.change(rate, step)


def halve(rate, step):
    return rate / 2


FUNCTION = r"learning_rate_function must be a function of \(learning rate, number of steps done\).*but got"


@pytest.mark.parametrize(
    ("function", "options", "text"),
    [
        *((wrong, {}, FUNCTION) for wrong in (None, 0.1, "cosine", [0.1, 0.2])),
        (max, {"before_first_step": 1}, "before_first_step must be a bool, but got int: 1"),
    ],
)
def test_wrong_arguments_of_a_scheduler(function, options, text):
    with pytest.raises(TypeError, match=text):
        LearningRateScheduler(function, **options)


def warm_up(rate, step):
    return 0.125 * (step + 1)


PAIRS = [(0.5, 1), (0.125, 1), (0.25, 2), (0.0625, 2), (0.125, 3), (0.03125, 3)]


@pytest.mark.parametrize(
    ("build", "change", "before", "calls", "rates"),
    [
        (model, halve, False, PAIRS[::2], [[0.5], [0.25], [0.125]]),
        (model, warm_up, True, [(0.5, 0), (0.125, 1), (0.25, 2), (0.375, 3)], [[0.125], [0.25], [0.375]]),
        (two_groups, halve, False, PAIRS, [[0.5, 0.125], [0.25, 0.0625], [0.125, 0.03125]]),
    ],
    ids=["one group", "before the first step", "two groups"],
)
def test_the_next_step_is_the_first_to_use_it(build, change, before, calls, rates):
    schedule, used = Calls(change), []
    build().train(3, batches([1.0]), [LearningRateScheduler(schedule, before_first_step=before), used_rates(used)])
    assert schedule.calls == calls
    assert all(type(rate) is float and type(step) is int for rate, step in schedule.calls)
    assert used == rates


def test_the_weights_are_those_of_a_loop_with_these_rates():
    generator = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(4, 3, generator=generator).double(), torch.randn(4, 1, generator=generator).double())
        for _ in range(3)
    ]
    torch.manual_seed(1)
    network = nn.Linear(3, 1).double()
    oracle = copy.deepcopy(network)
    trained = model(network=network)
    trained.loss_fn = nn.MSELoss()
    trained.train(2, data, LearningRateScheduler(lambda rate, step: 0.25 / step))
    rate = 0.5
    for step, (inputs, targets) in enumerate(data * 2, 1):
        oracle.zero_grad()
        nn.functional.mse_loss(oracle(inputs), targets).backward()
        torch.optim.SGD(oracle.parameters(), rate).step()
        rate = 0.25 / step
    torch.testing.assert_close(network.state_dict(), oracle.state_dict(), rtol=1e-12, atol=1e-12)


def test_a_resumed_run_goes_on_counting():
    keep = Calls()
    model().train(3, batches([1.0, 1.0]), LearningRateScheduler(keep, before_first_step=True), initial_epoch=2)
    assert [step for _, step in keep.calls] == [4, 5, 6]


def test_a_wrong_result_changes_no_group():
    trained = two_groups()
    scheduler = LearningRateScheduler(lambda rate, step: -1.0 if rate == 0.125 else 0.0625)
    with pytest.raises(ValueError, match="for parameter group 1 after step 1 must be"):
        trained.train(1, batches([1.0]), scheduler)
    assert [group["lr"] for group in trained.optimizer.param_groups] == [0.5, 0.125]


def test_a_rate_that_is_a_tensor_stays_the_same_tensor():
    network = nn.Linear(1, 1)
    rate = torch.tensor(0.5)
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    scheduler = LearningRateScheduler(halve)
    for _ in range(2):
        scheduler.on_train_step_end(context(optimizer=optimizer, cur_step_num=1))
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == 0.125


@pytest.mark.parametrize("result", [0.25, 0.0, 0, 2, np.float32(0.25), np.array(0.25), torch.tensor(0.25)])
def test_allowed_results(result):
    trained = model()
    trained.train(1, batches([1.0]), LearningRateScheduler(lambda rate, step: result))
    assert trained.optimizer.param_groups[0]["lr"] == float(result)
    assert type(trained.optimizer.param_groups[0]["lr"]) is float


@pytest.mark.parametrize(
    ("result", "error", "got"),
    [
        (float("nan"), ValueError, "nan"),
        (float("inf"), ValueError, "inf"),
        (-float("inf"), ValueError, "-inf"),
        (-1e-9, ValueError, "-1e-09"),
        (torch.tensor(float("nan")), ValueError, "nan"),
        (None, TypeError, "NoneType: None"),
        ("0.1", TypeError, "str: '0.1'"),
        (True, TypeError, "bool: True"),
        ([0.1], TypeError, "list: [0.1]"),
        (torch.tensor([0.1]), TypeError, "Tensor: tensor([0.1"),
        (1j, TypeError, "complex: 1j"),
    ],
)
def test_wrong_results(result, error, got):
    text = "the result of learning_rate_function for parameter group 0 after step 1 must be a finite number of at least"
    with pytest.raises(error, match=f"{re.escape(text)}.*but got {re.escape(got)}"):
        model().train(1, batches([1.0]), LearningRateScheduler(lambda rate, step: result))


@pytest.mark.parametrize("params", [{}, {"optimizer": None}, {"optimizer": nn.ReLU()}, {"optimizer": "SGD"}], ids=str)
def test_a_trainer_without_a_usable_optimizer(params):
    with pytest.raises(TypeError, match=r"cb_params\.optimizer must be an optimizer with param_groups.*but got"):
        LearningRateScheduler(max).on_train_begin(context(**params))


def test_does_nothing_in_evaluation():
    trained, keep = model(), Calls()
    trained.eval(batches([1.0]), LearningRateScheduler(keep, before_first_step=True))
    assert keep.calls == []
    assert trained.optimizer.param_groups[0]["lr"] == 0.5
    model().fit(2, batches([1.0, 1.0]), batches([1.0] * 3), callbacks=LearningRateScheduler(keep))
    assert [step for _, step in keep.calls] == [1, 2, 3, 4]
