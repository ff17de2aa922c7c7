import copy
import functools
from collections import namedtuple

import numpy as np
import pytest
import torch
import torchmetrics
from monitored_runs import Hearing, OldStyle, WithoutLength
from scripts import run_python
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from collectors.callbacks.callback import EVAL_HOOKS, LEGACY_HOOKS, TRAIN_HOOKS, BuiltInCallback, RunContext
from collectors.callbacks.callback_manager import CallbackManager
from collectors.callbacks.function_callbacks import LambdaCallback
from collectors.model.forward import to_device
from collectors.model.model import Model
from collectors.networks.batches import sample_count

HOOKS = (*TRAIN_HOOKS, *EVAL_HOOKS)
STEP = ["on_train_step_begin", "on_train_step_end"]
SUMMED = functools.partial(nn.functional.cross_entropy, reduction="sum")


def batches(sizes=(4, 4), seed=0):
    generator = torch.Generator().manual_seed(seed)

    def batch(size):
        inputs = torch.randn(size, 3, generator=generator, dtype=torch.float64)
        return inputs, torch.randint(0, 2, (size,), generator=generator)

    return [batch(size) for size in sizes]


DATA = batches()


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).double().mean()


def build(learning_rate=0.1, metrics="accuracy", loss_fn="mean", net=None, **settings):
    net = network() if net is None else net
    return Model(
        net,
        nn.CrossEntropyLoss(reduction=loss_fn) if isinstance(loss_fn, str) else loss_fn,
        torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9),
        {"accuracy": accuracy} if metrics == "accuracy" else metrics,
        **settings,
    )


def plain_training(net, data, epochs, learning_rate=0.1):
    """The oracle: an ordinary PyTorch loop."""
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    for _ in range(epochs):
        for inputs, targets in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
    return net


def assert_equal_weights(first, second, rtol=0, atol=0):
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=rtol, atol=atol)


class Recorder(Hearing):
    """Writes down every hook; does in a given hook what it is told to."""

    def __init__(self, diary=None, name=None, at=None, action=None):
        self.diary = [] if diary is None else diary
        self.name, self.at, self.action = name, at, action
        self.contexts, self.errors = [], []

    def write(self, what):
        self.diary.append(what if self.name is None else f"{self.name}.{what}")

    def hear(self, hook, run_context):
        self.write(hook)
        self.contexts.append(run_context)
        if self.at == hook:
            self.action(run_context)

    def __enter__(self):
        self.write("enter")
        return self

    def __exit__(self, *exception):
        self.write("exit")

    def on_exception(self, run_context, error):
        self.write("on_exception")
        self.errors.append(error)


def fail(run_context):
    raise ArithmeticError("the hook failed")


def test_the_order_of_hooks():
    trained, evaluated, fitted = Recorder(), Recorder(), Recorder()
    build().train(2, batches(), trained)
    build().eval(batches(), evaluated)
    build().fit(3, batches(), batches((4,)), valid_frequency=2, callbacks=fitted)
    epoch = ["on_train_epoch_begin", *STEP, *STEP, "on_train_epoch_end"]
    assert trained.diary == ["enter", "on_train_begin", *epoch, *epoch, "on_train_end", "exit"]
    assert evaluated.diary == ["enter", *EVAL_HOOKS[:2], *EVAL_HOOKS[2:4] * 2, *EVAL_HOOKS[4:], "exit"]
    within = [*epoch[:-1], *EVAL_HOOKS, "on_train_epoch_end"]
    assert fitted.diary == ["enter", "on_train_begin", *epoch, *within, *epoch, "on_train_end", "exit"]
    for recorder in (trained, fitted):
        assert len(set(map(id, recorder.contexts))) == 1


@pytest.mark.parametrize(
    ("frequency", "evaluated"), [(1, [3, 4, 5]), (2, [4]), ([1, 3, 5], [3, 5]), (range(4, 9), [4, 5]), ((), [])]
)
def test_epochs_that_are_evaluated(frequency, evaluated):
    seen = []
    epochs = LambdaCallback(on_eval_begin=lambda context: seen.append(context.original_args().cur_epoch_num))
    build().fit(5, batches(), batches(), frequency, epochs, initial_epoch=2)
    assert seen == evaluated


def test_fit_without_validation_is_train():
    recorder, model = Recorder(), build(metrics=None)
    model.fit(2, batches(), callbacks=[recorder])
    assert not set(recorder.diary) & set(EVAL_HOOKS)
    assert_equal_weights(model.network, plain_training(network(), batches(), 2))


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "on_train_end"])
def test_a_stop_from_any_hook_stops_fit(hook):
    recorder = Recorder(at=hook, action=RunContext.request_stop)
    build().fit(3, batches(), batches(), callbacks=recorder)
    diary = recorder.diary
    assert diary[-3:] == ["on_train_epoch_end", "on_train_end", "exit"]
    assert diary.count("on_train_epoch_begin") == 1
    # What asks before or in the first step shortens the epoch to it; the evaluation is whole unless asked inside.
    assert diary.count("on_train_step_end") == (1 if hook in TRAIN_HOOKS[:4] else 2)
    assert diary.count("on_eval_step_end") == (1 if hook in EVAL_HOOKS[:4] else 2)
    assert diary.count("on_eval_end") == 1


def test_a_stop_at_the_end_changes_nothing_and_is_forgotten_by_the_next_run():
    recorder, stopping, model = Recorder(), Recorder(at="on_train_end", action=RunContext.request_stop), build()
    for callback in (recorder, stopping, stopping):
        model.fit(2, batches(), batches(), callbacks=callback)
    assert stopping.diary == recorder.diary * 2


@pytest.mark.parametrize("hook", EVAL_HOOKS)
def test_a_stop_from_any_hook_stops_eval(hook):
    recorder = Recorder(at=hook, action=RunContext.request_stop)
    result = build().eval(batches((4, 4, 4)), recorder)
    assert recorder.diary.count("on_eval_step_end") == (1 if hook in EVAL_HOOKS[:4] else 3)
    assert recorder.diary[-3:] == ["on_eval_epoch_end", "on_eval_end", "exit"]
    assert set(result) == {"accuracy"}


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("hook", HOOKS)
def test_an_error_in_any_hook_of_any_callback(hook, position):
    diary = []
    names = "abc"
    recorders = [Recorder(diary, name, hook if name == names[position] else None, fail) for name in names]
    with pytest.raises(ArithmeticError, match=r"^the hook failed$") as caught:
        build().fit(2, batches(), batches(), callbacks=recorders)
    assert diary[:3] == ["a.enter", "b.enter", "c.enter"]
    told = [f"{name}.on_exception" for name in names]
    assert diary[-6:] == [*told, "c.exit", "b.exit", "a.exit"]
    assert diary[-7 - position : -6] == [f"{name}.{hook}" for name in names[: position + 1]]
    assert all(recorder.errors == [caught.value] for recorder in recorders)
    assert diary.count("a.exit") == 1


def test_an_error_in_an_evaluation_leaves_training_as_it_was():
    model = build(net=nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).double())
    recorder = Recorder(at="on_eval_step_end", action=fail)
    with pytest.raises(ArithmeticError):
        model.fit(2, batches((4, 4, 4)), batches(), callbacks=recorder)
    params = recorder.contexts[0].original_args()
    assert (params.mode, params.cur_step_num, params.batch_num) == ("train", 3, 3)
    assert all(module.training for module in model.network.modules())


def test_a_true_exit_value_does_not_hide_an_error():
    class Swallows(Recorder):
        def __exit__(self, *exception):
            return True

    with pytest.raises(ArithmeticError):
        build().train(1, batches(), Swallows(at="on_train_end", action=fail))


def test_legacy_hooks_run_in_both_phases_and_warn_in_fit():
    callback, model = OldStyle(), build()
    train, evaluation = ([(mode, hook) for hook in LEGACY_HOOKS] for mode in ("train", "eval"))
    model.train(1, batches((4,)), callback)
    model.eval(batches((4,)), callback)
    with pytest.warns(DeprecationWarning, match="OldStyle with the legacy hooks"):
        model.fit(1, batches((4,)), batches((4,)), callbacks=callback)
    assert callback.calls == [*train, *evaluation, *train[:4], *evaluation, *train[4:]]


def test_a_strict_manager_refuses_legacy_hooks_in_fit():
    manager, model = CallbackManager([OldStyle()], strict=True), build()
    with pytest.raises(ValueError, match=r"OldStyle with .*Rename begin to on_train_begin or on_eval_begin"):
        model.fit(1, batches(), callbacks=manager)
    model.train(1, batches(), callbacks=manager)
    assert manager.callbacks[0].calls


def test_built_in_callbacks_choose_whether_they_hear_fit_evaluations():
    class Quiet(BuiltInCallback, Recorder):
        pass

    class Curious(Quiet):
        called_in_fit_evaluation = True

    quiet, curious, model = Quiet(), Curious(), build()
    model.fit(1, batches(), batches(), callbacks=[quiet, curious])
    assert not set(quiet.diary) & set(EVAL_HOOKS)
    assert "on_eval_end" in curious.diary
    model.eval(batches(), quiet)
    assert "on_eval_end" in quiet.diary


class Snapshots(Hearing):
    """Keeps a shallow copy of cb_params from every hook."""

    def __init__(self):
        self.taken = {hook: [] for hook in HOOKS}

    def hear(self, hook, run_context):
        self.taken[hook].append(copy.copy(run_context.original_args()))


EVAL_KEYS = {"mode", "network", "eval_network", "valid_dataset", "batch_num", "cur_step_num", "list_callback"}
EVAL_KEYS |= {"dataset_sink_mode"}
TRAIN_KEYS = {"mode", "network", "train_network", "loss_fn", "optimizer", "train_dataset", "train_dataset_element"}
TRAIN_KEYS |= {"epoch_num", "cur_epoch_num", "batch_num", "cur_step_num", "initial_step", "parallel_mode"}
TRAIN_KEYS |= {"device_number", "list_callback", "dataset_sink_mode", "last_save_ckpt_step", "latest_ckpt_file"}
TRAIN_KEYS |= {"loss_scale_manager", "loss_scale_mananger"}


def test_parameters_in_train():
    snapshots, model, data = Snapshots(), build(), batches((4, 4, 2))
    model.train(5, data, snapshots, initial_epoch=3)
    (begin,) = snapshots.taken["on_train_begin"]
    assert begin.train_dataset is data
    whole = {"mode": "train", "network": model.network, "train_network": model.network, "loss_fn": model.loss_fn}
    whole |= {"optimizer": model.optimizer, "train_dataset": data, "train_dataset_element": None}
    whole |= {"list_callback": [snapshots], "epoch_num": 5, "cur_epoch_num": 3, "batch_num": 3, "cur_step_num": 9}
    whole |= {"initial_step": 9, "parallel_mode": "stand_alone", "device_number": 1, "dataset_sink_mode": False}
    assert begin == {**begin, **whole, "loss_scale_manager": None, "loss_scale_mananger": None}
    assert set(begin) == TRAIN_KEYS
    steps = snapshots.taken["on_train_step_end"]
    assert [step.cur_step_num for step in steps] == [10, 11, 12, 13, 14, 15]
    assert [step.cur_epoch_num for step in steps] == [4, 4, 4, 5, 5, 5]
    assert all(set(step) == TRAIN_KEYS | {"net_outputs"} for step in steps)
    for index, step in enumerate(steps):
        assert step.train_dataset_element[0] is data[index % 3][0]
        assert step.net_outputs.shape == ()
        assert not step.net_outputs.requires_grad
    expected = nn.functional.cross_entropy(network()(data[0][0]), data[0][1])
    assert torch.equal(steps[0].net_outputs, expected)
    assert [step.cur_step_num for step in snapshots.taken["on_train_step_begin"]] == [10, 11, 12, 13, 14, 15]


def test_parameters_in_eval():
    snapshots, model, data = Snapshots(), build(), batches((4, 4, 2))
    result = model.eval(data, snapshots)
    (begin,) = snapshots.taken["on_eval_begin"]
    assert set(begin) == EVAL_KEYS
    assert (begin.mode, begin.batch_num, begin.cur_step_num) == ("eval", 3, 0)
    assert begin.valid_dataset is data
    assert begin.network is begin.eval_network is model.network
    steps = snapshots.taken["on_eval_step_end"]
    assert [step.cur_step_num for step in steps] == [1, 2, 3]
    loss, outputs, targets = steps[1].net_outputs
    assert torch.equal(outputs, model.network(data[1][0]))
    assert targets is data[1][1]
    assert torch.equal(loss, nn.functional.cross_entropy(outputs, targets))
    assert not outputs.requires_grad
    assert "metrics" not in snapshots.taken["on_eval_epoch_end"][0]
    (end,) = snapshots.taken["on_eval_end"]
    assert set(end) == EVAL_KEYS | {"eval_dataset_element", "net_outputs", "metrics"}
    assert end.metrics == result


def test_without_a_loss_function_there_are_outputs_alone_and_no_eval_loss():
    snapshots, data = Snapshots(), [({"inputs": inputs, "labels": labels}, None) for inputs, labels in batches()]
    model = build(net=OwnLoss("mean"), loss_fn=None, metrics={"loss": lambda outputs, targets: outputs})
    model.eval(data, snapshots)
    assert torch.equal(snapshots.taken["on_eval_step_end"][0].net_outputs, model.network(**data[0][0]))
    model.fit(1, data, data, callbacks=snapshots)
    assert set(snapshots.taken["on_eval_end"][-1].eval_results) == {"loss"}


def test_parameters_in_fit():
    snapshots = Snapshots()
    build().fit(2, batches((4, 4, 4)), batches((4, 4)), callbacks=snapshots, valid_frequency=[1])
    (end,) = snapshots.taken["on_eval_end"]
    assert set(end) > TRAIN_KEYS | EVAL_KEYS
    assert set(end.metrics) == {"accuracy"}
    assert end.eval_results["accuracy"] == end.metrics["accuracy"]
    assert (end.mode, end.cur_step_num, end.batch_num) == ("eval", 2, 2)
    assert (end.epoch_num, end.cur_epoch_num) == (2, 1)
    assert all("metrics" not in taken for taken in snapshots.taken["on_eval_epoch_end"])
    first, second = snapshots.taken["on_train_epoch_end"]
    assert (first.mode, first.cur_step_num, first.batch_num) == ("train", 3, 3)
    assert first.metrics == end.metrics
    assert set(first.eval_results) == {"accuracy", "eval_loss"}
    assert first.net_outputs.shape == ()
    assert "eval_network" in second
    assert "metrics" not in second
    assert "eval_results" not in second
    assert "metrics" not in snapshots.taken["on_train_epoch_begin"][1]
    assert "metrics" not in snapshots.taken["on_train_end"][0]


def test_the_raw_network_of_a_wrapped_one():
    raw, snapshots = network(), Snapshots()
    wrapped = nn.DataParallel(raw)
    model = build(net=wrapped)
    model.train(1, batches(), snapshots)
    (begin,) = snapshots.taken["on_train_begin"]
    assert begin.network is raw
    assert begin.train_network is model.network is wrapped


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(*joined(batches((4, 4, 2))), strict=True)


class MapStyle(Dataset):
    """Whole batches by their numbers."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index >= 3:
            raise IndexError
        return batches((4, 4, 2))[index]


def joined(data):
    return tuple(torch.cat(part) for part in zip(*data, strict=True))


def split(sizes, inputs, targets):
    return list(zip(inputs.split(list(sizes)), targets.split(list(sizes)), strict=True))


DATA_SETS = {
    "list": lambda: batches((4, 4, 2)),
    "loader": lambda: DataLoader(TensorDataset(*joined(batches((4, 4, 2)))), batch_size=4),
    "unsized": lambda: WithoutLength(batches((4, 4, 2))),
    "stream": lambda: DataLoader(Stream(), batch_size=4),
    "map-style": MapStyle,
}


@pytest.mark.parametrize("kind", DATA_SETS)
def test_training_equals_a_plain_loop_bit_for_bit(kind):
    model, seen = build(), Snapshots()
    for parameter in model.network.parameters():
        parameter.grad = torch.full_like(parameter, 1e6)  # left over, and it does not count
    model.fit(2, DATA_SETS[kind](), DATA_SETS[kind](), callbacks=seen)
    assert_equal_weights(model.network, plain_training(network(), batches((4, 4, 2)), 2))
    known = kind not in ("unsized", "stream")
    steps = seen.taken["on_train_step_end"]
    assert [taken.batch_num for taken in steps] == [3 if known else None] * 3 + [3] * 3
    assert [taken.cur_step_num for taken in steps] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum", SUMMED])
@pytest.mark.parametrize(
    ("sizes", "groups"), [((4, 4, 4, 4), (8, 8)), ((4, 4, 4, 2), (8, 6)), ((4, 4, 4), (8, 4)), ((4, 2, 1), (6, 1))]
)
def test_accumulated_gradients_equal_the_big_batch(sizes, groups, reduction, sized):
    data = batches(sizes)
    accumulated = build(gradient_accumulation_steps=2, loss_fn=reduction)
    reference = build(loss_fn=reduction)
    accumulated.train(3, data if sized else WithoutLength(data))
    reference.train(3, split(groups, *joined(data)))
    assert_equal_weights(accumulated.network, reference.network, rtol=1e-12, atol=1e-14)


def test_hooks_see_the_weights_after_the_last_group():
    seen, model = [], build(gradient_accumulation_steps=2)
    keep = LambdaCallback(on_train_step_end=lambda context: seen.append(copy.deepcopy(context.original_args().network)))
    model.train(1, batches((4, 4, 4)), keep)
    assert_equal_weights(seen[-1], model.network)


def test_clipping_sees_complete_gradients_and_changes_the_step():
    norms = []

    def clip(parameters):
        assert isinstance(parameters, list)
        norms.append(float(nn.utils.clip_grad_norm_(parameters, 1e-3)))

    model = build(clip_gradients=clip, gradient_accumulation_steps=2)
    model.train(1, batches((4, 4, 4, 4)))
    net = network()
    inputs, targets = joined(batches((4, 4)))
    nn.functional.cross_entropy(net(inputs), targets).backward()
    expected = torch.linalg.vector_norm(torch.cat([parameter.grad.reshape(-1) for parameter in net.parameters()]))
    assert len(norms) == 2
    assert norms[0] == pytest.approx(float(expected), rel=1e-12)
    moved = sum(
        float((a - b).detach().square().sum())
        for a, b in zip(model.network.parameters(), network().parameters(), strict=True)
    )
    assert moved**0.5 < 0.1 * (1e-3 + 1.9e-3) * (1 + 1e-9)


class OwnLoss(nn.Module):
    """A network that returns its loss in one of several forms."""

    def __init__(self, kind):
        super().__init__()
        self.inner, self.kind = network(), kind

    def forward(self, inputs, labels):
        outputs = self.inner(inputs)
        loss = nn.functional.cross_entropy(outputs, labels, reduction="none" if "each" in self.kind else "mean")
        kind = self.kind.split()[0]
        return [loss, outputs] if kind == "list" else (loss, outputs) if kind == "tuple" else loss


@pytest.mark.parametrize("kind", ["mean", "each", "tuple", "list", "tuple of one for each sample"])
def test_a_network_that_returns_its_loss(kind):
    model = build(net=OwnLoss(kind), loss_fn=None)
    model.train(2, [({"inputs": inputs, "labels": labels}, None) for inputs, labels in batches()])
    assert_equal_weights(model.network.inner, plain_training(network(), batches(), 2))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, left, right):
        return self.inner(left + right)


PAIR = namedtuple("PAIR", "left right")


@pytest.mark.parametrize(
    "make",
    [
        lambda half: (half, half),
        lambda half: [half, half],
        lambda half: {"right": half, "left": half},
        lambda half: PAIR(half, half),
    ],
    ids=["tuple", "list", "dict", "named tuple"],
)
def test_several_inputs(make):
    data = [(make(inputs / 2), targets) for inputs, targets in batches()]
    model = build(net=TwoInputs())
    model.train(2, data)
    assert_equal_weights(model.network.inner, plain_training(network(), batches(), 2))


def test_a_distributed_sampler_hears_the_epoch():
    data = TensorDataset(*joined(batches()))
    sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True)
    orders = []
    keep = LambdaCallback(on_train_step_end=lambda run: orders.append(run.original_args().train_dataset_element[0]))
    build().train(3, DataLoader(data, batch_size=8, sampler=sampler), keep, initial_epoch=1)
    assert sampler.epoch == 2
    assert not torch.equal(orders[0], orders[1])


def test_training_puts_the_network_in_train_mode_before_callbacks_begin():
    def freeze(run_context):
        assert run_context.original_args().network.training
        run_context.original_args().network[1].eval()

    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).double()
    net.eval()
    build(net=net).fit(2, batches(), batches(), callbacks=LambdaCallback(on_train_begin=freeze))
    assert [module.training for module in net] == [True, False, True]
    assert torch.equal(net[1].running_mean, torch.zeros(5, dtype=torch.float64))


def test_nan_stays_nan():
    recorder = Snapshots()
    build(learning_rate=float("inf")).fit(1, batches(), batches(), callbacks=recorder)
    (end,) = recorder.taken["on_train_epoch_end"]
    assert end.net_outputs.isnan()
    assert np.isnan(end.eval_results["eval_loss"])


@pytest.mark.parametrize("batch_sizes", [(10,), (4, 4, 2), (7, 3), (1,) * 10])
def test_results_do_not_depend_on_the_batch_size(batch_sizes):
    inputs, targets = joined(batches((10,)))
    data = split(batch_sizes, inputs, targets)
    metrics = {
        "function": accuracy,
        "number": lambda outputs, targets: float((outputs.argmax(1) == targets).double().mean()),
        "array": lambda outputs, targets: np.mean(outputs.argmax(1).numpy() == targets.numpy()),
        "object": torchmetrics.Accuracy(task="multiclass", num_classes=2),
    }
    outputs = network()(inputs)
    expected = float(accuracy(outputs, targets))
    assert 0 < expected < 1
    for reduction in ("mean", "sum", SUMMED):
        seen = Snapshots()
        model = build(0.0, metrics, reduction)
        result = model.eval(data)
        assert list(result) == list(metrics)
        for value in result.values():
            assert isinstance(value, float)
            assert value == pytest.approx(expected, rel=1e-6)
        model.fit(1, batches(), data, callbacks=seen)
        (end,) = seen.taken["on_eval_end"]
        expected_loss = nn.functional.cross_entropy(outputs, targets).item()
        assert end.eval_results["eval_loss"] == pytest.approx(expected_loss, rel=1e-12)


def test_an_evaluation_starts_afresh():
    model = build(metrics=[torchmetrics.Accuracy(task="multiclass", num_classes=2)])
    assert list(model.metrics) == ["MulticlassAccuracy"]
    first = model.eval(batches((4,)))
    model.eval(batches((9, 9), seed=1))
    assert model.eval(batches((4,))) == first


def test_metrics_in_a_set_and_a_collection():
    arguments = {"task": "multiclass", "num_classes": 2}
    accuracy_metric, matrix = torchmetrics.Accuracy(**arguments), torchmetrics.ConfusionMatrix(**arguments)
    model = build(metrics={accuracy_metric, matrix})
    assert list(model.metrics) == ["MulticlassAccuracy", "MulticlassConfusionMatrix"]
    result = model.eval(batches())
    assert int(result["MulticlassConfusionMatrix"].sum()) == 8
    collection = torchmetrics.MetricCollection({"accuracy": torchmetrics.Accuracy(**arguments)})
    assert build(metrics={"all": collection}).eval(batches()) == {"all/accuracy": result["MulticlassAccuracy"]}


def test_evaluation_changes_nothing():
    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2)).double()
    net[1].eval()
    before = copy.deepcopy(net)
    modes = [module.training for module in net.modules()]
    model = build(net=net)
    assert model.eval(batches()) == model.eval(batches())
    model.predict(batches()[0][0])
    assert [module.training for module in net.modules()] == modes
    assert_equal_weights(net, before)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_gradients_can_be_taken_in_evaluation_hooks():
    def differentiate(run_context):
        params = run_context.original_args()
        params.network(params.eval_dataset_element[0]).sum().backward()

    model = build()
    model.eval(batches(), LambdaCallback(on_eval_step_end=differentiate))
    assert all(parameter.grad is not None for parameter in model.network.parameters())


def test_predict():
    net = nn.Sequential(network(), nn.Dropout(0.9))
    inputs = batches()[0][0]
    predicted = build(net=net).predict(inputs)
    assert torch.equal(predicted, network()(inputs))
    assert not predicted.requires_grad
    two = TwoInputs()
    for given in ([inputs, inputs], [(inputs, inputs)], [{"left": inputs, "right": inputs}]):
        assert torch.equal(build(net=two).predict(*given), two(inputs, inputs))


@pytest.mark.parametrize("pack", [tuple, list, lambda pair: dict(zip(("left", "right"), pair, strict=True))])
def test_predict_takes_several_inputs_as_a_batch_has_them(pack):
    inputs = batches()[0][0]
    assert torch.equal(build(net=TwoInputs()).predict(pack([inputs, -inputs])), TwoInputs()(inputs, -inputs))


def test_predict_computes_as_eval_does_in_mixed_precision():
    def keep(outputs, targets):
        seen.append(outputs)
        return 0.0

    seen = []
    inputs, targets = batches()[0]
    model = build(net=nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), metrics={"kept": keep}, amp_level="O2")
    model.eval([(inputs.float(), targets)])
    assert seen[0].dtype == torch.float32
    assert torch.equal(model.predict(inputs.float()), seen[0])


@pytest.mark.parametrize(
    ("inputs", "targets", "count"),
    [
        (torch.ones(3, 2), torch.ones(3), 3),
        ({"scale": torch.tensor(2.0), "images": (torch.ones(5, 1),)}, None, 5),
        (torch.tensor(1.0), [torch.ones(4)], 4),
        ("text", torch.tensor(1.0), 1),
    ],
)
def test_samples_are_counted_along_the_first_axis(inputs, targets, count):
    assert sample_count(inputs, targets) == count


@pytest.mark.parametrize(
    ("level", "expected"), [("O0", torch.float32), ("O2", torch.bfloat16), ("auto", torch.float32)]
)
def test_mixed_precision_on_the_cpu(level, expected):
    seen = []

    def loss_fn(outputs, targets):
        seen.append(outputs.dtype)
        return nn.functional.cross_entropy(outputs, targets)

    model = build(net=network().float(), loss_fn=loss_fn, amp_level=level)
    data = [(inputs.float(), targets) for inputs, targets in batches()]
    model.fit(1, data, data)
    assert set(seen) == {expected}
    assert model.predict(data[0][0]).dtype == expected
    assert all(parameter.dtype == torch.float32 for parameter in model.network.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("level", ["O0", "O2", "auto"])
def test_training_on_cuda(level):
    snapshots = Snapshots()
    model = build(
        net=network().float(),
        amp_level=level,
        device="cuda",
        gradient_accumulation_steps=2,
        clip_gradients=lambda parameters: nn.utils.clip_grad_norm_(parameters, 1.0),
        metrics=[torchmetrics.Accuracy(task="multiclass", num_classes=2)],
    )
    data = [(inputs.float(), targets) for inputs, targets in batches((4, 4, 2))]
    model.fit(20, data, data, callbacks=snapshots)
    losses = [taken.eval_results["eval_loss"] for taken in snapshots.taken["on_train_epoch_end"]]
    assert losses[-1] < losses[0]
    assert (snapshots.taken["on_train_begin"][0].loss_scale_manager is None) == (level == "O0")
    assert snapshots.taken["on_train_step_end"][0].train_dataset_element[0].is_cuda


def test_batches_follow_the_network_to_its_device():
    def look(run_context):
        seen.append(run_context.original_args().train_dataset_element)
        raise InterruptedError

    seen = []
    loss = nn.CrossEntropyLoss(weight=torch.ones(2, dtype=torch.float64))
    model = build(loss_fn=loss, device="meta")
    assert next(model.network.parameters()).device.type == "meta"
    assert loss.weight.device.type == "meta"
    inputs, targets = batches()[0]
    with pytest.raises(InterruptedError):
        model.train(1, [(({"a": [inputs], "b": (inputs, "text")},), targets)], LambdaCallback(on_train_step_begin=look))
    (((moved,), moved_targets),) = seen
    assert moved["a"][0].device.type == moved["b"][0].device.type == moved_targets.device.type == "meta"
    assert moved["b"][1] == "text"


def test_the_progress_bar_shows_epochs_and_steps(capsys):
    build().train(3, batches(), progress=True)
    shown = capsys.readouterr().err
    assert "epoch 3/3" in shown
    assert "6/6" in shown
    build().train(3, batches())
    build().fit(2, WithoutLength(batches()), progress=True)
    assert "4 steps, " in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["dataset_sink_mode", "valid_dataset_sink_mode"])
def test_sinks_warn_and_change_nothing(mode):
    model, recorder = build(), Snapshots()
    with pytest.warns(UserWarning, match=f"^{mode}=True has no effect"):
        model.fit(2, batches(), batches(), callbacks=recorder, sink_size=1, **{mode: True})
    assert recorder.taken["on_train_begin"][0].dataset_sink_mode is False
    assert len(recorder.taken["on_train_step_end"]) == 4
    for method, arguments in ((model.train, (1,)), (model.eval, ())):
        with pytest.warns(UserWarning, match="dataset_sink_mode=True has no effect"):
            method(*arguments, DATA, dataset_sink_mode=True)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"network": nn.Linear}, TypeError, r"network must be a torch\.nn\.Module, but got type"),
        ({"loss_fn": 3}, TypeError, r"loss_fn must be a function \(an object, not its class\) or None, but got int"),
        ({"optimizer": torch.optim.SGD}, TypeError, r"optimizer must be a torch.optim.Optimizer or None, but got type"),
        ({"metrics": "acc"}, TypeError, "metrics must be a dict of metrics, or a set or list of torchmetrics objects"),
        ({"metrics": {3: accuracy}}, TypeError, "a key of metrics must be a str"),
        ({"metrics": {"a": 3}}, TypeError, r"metrics\['a'\] must be a torchmetrics object, a function of"),
        ({"metrics": {"a": torchmetrics.Accuracy}}, TypeError, r"metrics\['a'\] must be .* but got ABCMeta|type"),
        ({"metrics": [accuracy]}, TypeError, "an item of metrics must be a torchmetrics object .functions need a name"),
        ({"metrics": [torchmetrics.MeanMetric()] * 2}, ValueError, "two items called 'MeanMetric'; give names"),
        ({"amp_level": "O1"}, ValueError, "amp_level must be one of 'O0', 'O2', 'O3', 'auto', but got 'O1'"),
        ({"gradient_accumulation_steps": 0}, ValueError, "gradient_accumulation_steps must be an int of at least 1"),
        ({"device": 0}, TypeError, "device must be a device name"),
        ({"device": "gpu"}, ValueError, "device must be a device that PyTorch knows"),
        ({"clip_gradients": 1.0}, TypeError, "clip_gradients must be a function"),
    ],
)
def test_constructor_errors(arguments, error, match):
    with pytest.raises(error, match=match):
        Model(**{"network": network(), **arguments})


@pytest.mark.parametrize("method", ["train", "fit"])
@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"epoch": 0}, ValueError, "epoch must be an int of at least 1, but got 0"),
        ({"initial_epoch": -1}, ValueError, "initial_epoch must be an int of at least 0"),
        ({"initial_epoch": 2}, ValueError, r"initial_epoch must be less than epoch \(2\)"),
        ({"sink_size": 0}, ValueError, "sink_size must be -1 or an int of at least 1, but got 0"),
        ({"dataset_sink_mode": 1}, TypeError, "dataset_sink_mode must be a bool"),
        ({"progress": None}, TypeError, "progress must be a bool"),
        ({"callbacks": [3]}, TypeError, r"callbacks\[0\] must be a Callback"),
        ({"callbacks": "x"}, TypeError, "callbacks must be a Callback, a list or tuple of them, or None"),
        ({"train_dataset": []}, ValueError, "train_dataset must yield at least one batch, but got none"),
        ({"train_dataset": WithoutLength([])}, ValueError, "train_dataset must yield at least one batch"),
        ({"train_dataset": DataLoader([0], 4, drop_last=True)}, ValueError, "at least one batch.*drop_last=True"),
        ({"train_dataset": 3}, TypeError, "train_dataset must be a DataLoader or another iterable"),
        ({"train_dataset": iter(batches())}, TypeError, "train_dataset must be iterable again and again, but got list"),
        ({"train_dataset": [torch.ones(2)]}, TypeError, r"train_dataset must .* pairs, but its batch 0 is a Tensor"),
        ({"train_dataset": [*DATA, (DATA[0][0],) * 3]}, ValueError, "its batch 2 is a tuple of 3. Several inputs go"),
        ({"train_dataset": WithoutLength(batches()), "initial_epoch": 1}, ValueError, "must have a length when"),
    ],
)
def test_training_errors(method, arguments, error, match):
    with pytest.raises(error, match=match):
        getattr(build(), method)(**{"epoch": 2, "train_dataset": batches(), **arguments})


NO_METRICS = "metrics must be given to evaluate on valid_dataset"
NO_BATCH = "valid_dataset must yield at least one batch"
NO_OPTIMIZER = "optimizer must be given to train, but is None"
NO_LOSS = "loss_fn must return a scalar tensor, the loss, but returned"
OWN_LOSS = r"network \(as there is no loss_fn\) must return a scalar tensor"
NO_NUMBER = r"metrics\['mine'\] must return one number for a batch, but returned "


def without_optimizer():
    return Model(network(), nn.CrossEntropyLoss(), metrics={"accuracy": accuracy})


def measured_by(value):
    return build(metrics={"mine": lambda outputs, targets: value(outputs)}).eval(DATA)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: build().fit(1, DATA, DATA, "1"), TypeError, "valid_frequency must be .* epoch numbers, but got str"),
        (lambda: build().fit(1, DATA, DATA, True), TypeError, "valid_frequency must be an int or a list"),
        (lambda: build().fit(1, DATA, DATA, 0), ValueError, "valid_frequency must be an int of at least 1"),
        (lambda: build().fit(1, DATA, DATA, [1, 0]), ValueError, r"valid_frequency\[1\] must be an int of at least 1"),
        (lambda: build(metrics=None).fit(1, DATA, DATA), ValueError, NO_METRICS),
        (lambda: build(metrics=None).eval(DATA), ValueError, NO_METRICS),
        (lambda: build().eval([]), ValueError, NO_BATCH),
        (lambda: build().eval(WithoutLength([])), ValueError, NO_BATCH),
        (lambda: build().fit(1, DATA, []), ValueError, NO_BATCH),
        (lambda: build().fit(1, DATA, WithoutLength([])), ValueError, NO_BATCH),
        (lambda: build().eval(None), TypeError, "valid_dataset must be a DataLoader or another iterable"),
        (lambda: build().eval([{"inputs": 1, "targets": 2}]), TypeError, "its batch 0 is a dict"),
        (lambda: build().fit(1, DATA, DATA, valid_dataset_sink_mode=1), TypeError, "sink_mode must be a bool"),
        (lambda: measured_by(lambda outputs: outputs[:, 0]), TypeError, NO_NUMBER + r"Tensor of shape \(4,\)"),
        (lambda: measured_by(lambda outputs: None), TypeError, f"{NO_NUMBER}NoneType"),
        (lambda: measured_by(str), TypeError, f"{NO_NUMBER}str"),
        (lambda: without_optimizer().train(1, DATA), ValueError, NO_OPTIMIZER),
        (lambda: without_optimizer().fit(1, DATA), ValueError, NO_OPTIMIZER),
        (lambda: build(loss_fn="none").train(1, DATA), ValueError, rf"{NO_LOSS} one of shape \(4,\).*reduction='mean'"),
        (lambda: build(loss_fn=lambda *_: 1.0).fit(1, DATA), TypeError, f"{NO_LOSS} float"),
        (lambda: build(loss_fn=None).train(1, DATA), ValueError, OWN_LOSS),
    ],
)
def test_what_a_call_refuses(call, error, match):
    with pytest.raises(error, match=match):
        call()


WARNED = """
import torch, warnings
from collectors import Callback, Model

class OldStyle(Callback):
    def epoch_end(self, run_context):
        pass

network = torch.nn.Linear(2, 1)
model = Model(network, torch.nn.MSELoss(), torch.optim.SGD(network.parameters(), 0.1), {"error": torch.nn.L1Loss()})
batches = [(torch.zeros(4, 2), torch.zeros(4, 1))]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(1, batches, batches, callbacks=OldStyle(), dataset_sink_mode=True)
print(len(caught), {(warning.filename == __file__, warning.lineno) for warning in caught})
"""


@pytest.mark.slow
def test_warnings_name_the_line_of_the_user(tmp_path):
    # Executed shape annotations would add frames of their own, so this runs without them.
    script = tmp_path / "script.py"
    script.write_text(WARNED)
    assert run_python(script).strip() == "2 {(True, 14)}"


def test_packed_sequences_are_one_argument():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(3, 2)

        def forward(self, sequences):
            return self.layer(sequences)[1][0]

    packed = nn.utils.rnn.pack_sequence([torch.ones(4, 3), torch.ones(2, 3)])
    network = Recurrent()
    model = Model(network, nn.functional.mse_loss, torch.optim.SGD(network.parameters(), lr=0.1))
    before = network.layer.weight_hh_l0.detach().clone()
    model.train(1, [(packed, torch.zeros(2, 2))])
    assert not torch.equal(before, network.layer.weight_hh_l0)
    assert sample_count(packed, torch.zeros(2, 2)) == 2
    assert sample_count((packed, torch.zeros(7)), torch.zeros(2, 2)) == 2
    assert to_device(packed, torch.device("meta")).data.is_meta


def test_an_optimizer_that_calls_for_a_closure_is_refused_by_name():
    network = nn.Linear(1, 1)
    model = Model(network, nn.functional.mse_loss, torch.optim.LBFGS(network.parameters()))
    with pytest.raises(TypeError, match=r"step needs no closure, but got LBFGS\. Train with LBFGS in a loop"):
        model.train(1, [(torch.ones(2, 1), torch.ones(2, 1))])


def test_after_an_error_in_clipping_the_same_model_trains_again():
    failing = [True]

    def clip(parameters):
        if failing.pop() if failing else False:
            raise ArithmeticError("clip failed")

    scaler = torch.amp.GradScaler("cpu", enabled=True)
    model = build(clip_gradients=clip, loss_scale_manager=scaler)
    with pytest.raises(ArithmeticError, match="clip failed"):
        model.train(1, batches((4, 4)))
    model.train(1, batches((4, 4)))
