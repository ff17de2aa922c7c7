import math

import numpy as np
import pytest
import torch
from monitored_runs import (
    NAN,
    OnAccelerator,
    WithoutLength,
    batches,
    context,
    mean_target,
    model,
    on_accelerator,
    stop_after,
)

from collectors import CheckpointConfig, History, Model, ModelCheckpoint

TWO, EQUAL, WEIGHTED = batches([1.0, 4.0], [2, 1]), batches([1.0, 2.0, 6.0]), batches([1.0, 2.0, 6.0], [4, 3, 1])
MEAN = float(np.average([1.0, 2.0, 6.0], weights=[4, 3, 1]))


@pytest.mark.parametrize(
    ("run", "epochs", "outputs"),
    [
        (lambda history: model().train(2, WEIGHTED, history), [1, 2], {"net_output": [MEAN, MEAN]}),
        (lambda history: model().train(2, WithoutLength(WEIGHTED), history), [1, 2], {"net_output": [MEAN, MEAN]}),
        (lambda history: model().eval(TWO, history), [1], {"net_output": [2.0], "mean_target": [2.0]}),
        (lambda history: model().train(9, EQUAL, [history, stop_after(5)]), [1, 2], {"net_output": [3.0, 1.5]}),
        (lambda history: model().train(1, batches([1.0, NAN]), history), [1], {"net_output": [NAN]}),
    ],
    ids=["weighted by samples", "of unknown length", "an evaluation of its own", "cut short", "nan stays"],
)
def test_the_mean_of_an_epoch(run, epochs, outputs):
    history = History()
    run(history)
    assert history.epoch == {"epoch": epochs}
    np.testing.assert_equal(history.history, outputs)


@pytest.mark.parametrize("kind", [tuple, list, lambda pair: {"x": pair[0], "y": pair[1]}, lambda pair: (*pair, None)])
def test_steps_weigh_as_much_as_their_samples_in_any_form_of_batch(kind):
    history = History()
    for loss, samples in ((1.0, 16), (3.0, 4)):
        batch = kind((torch.zeros(samples, 3), torch.zeros(samples)))
        history.on_train_step_end(context(net_outputs=loss, train_dataset_element=batch))
    history.on_train_epoch_end(context(cur_epoch_num=1))
    assert history.history == {"net_output": [pytest.approx(1.4)]}


def test_fit_notes_metrics_and_eval_loss_for_each_run_anew():
    history = History()
    model().fit(2, batches([1.0, 2.0]), batches([7.0, 10.0], [2, 1]), callbacks=history)
    first_epoch, first = history.epoch, history.history
    model().train(3, batches([2.0]), history, initial_epoch=1)
    assert history.epoch == {"epoch": [2, 3]}
    assert history.history == {"net_output": [2.0, 2.0]}
    assert first_epoch == {"epoch": [1, 2]}
    assert first == {"net_output": [1.5, 1.5], "mean_target": [8.0, 8.0], "eval_loss": [8.0, 8.0]}


@pytest.mark.parametrize(
    ("valid_frequency", "expected"),
    [(2, [None, 7.0, None, 7.0, None]), ([1, 4], [7.0, None, None, 7.0, None]), (6, None)],
)
def test_metrics_belong_to_their_epochs(valid_frequency, expected):
    history = History()
    model().fit(5, batches([1.0]), batches([7.0]), valid_frequency, callbacks=history)
    assert history.epoch == {"epoch": [1, 2, 3, 4, 5]}
    assert history.history.get("mean_target") == history.history.get("eval_loss") == expected


def test_a_metric_that_comes_late_and_nan_as_a_result():
    history = History()
    for epoch, results in enumerate([{}, {"a": NAN}, {"b": 2.0}, {}], 1):
        run_context = context(net_outputs=1.0, cur_epoch_num=epoch, metrics=results)
        history.on_train_epoch_begin(run_context)
        history.on_train_step_end(run_context)
        history.on_train_epoch_end(run_context)
    assert history.history["net_output"] == [1.0] * 4
    assert history.history["a"][0] is None
    assert math.isnan(history.history["a"][1])
    assert history.history["a"][2:] == [None, None]
    assert history.history["b"] == [None, None, 2.0, None]


def test_a_failed_run_leaves_nothing_for_the_next():
    history = History()
    with pytest.raises(ValueError, match="train_dataset must yield"):
        model().train(1, WithoutLength([]), history)
    model().train(1, batches([2.0]), history)
    assert history.history == {"net_output": [2.0]}


def test_an_epoch_without_a_step_has_no_mean():
    history = History()
    history.on_train_epoch_begin(context())
    history.on_train_epoch_end(context(cur_epoch_num=1))
    assert math.isnan(history.history["net_output"][0])


def test_a_loss_on_an_accelerator_is_read_once_an_epoch():
    history = History()
    for loss in (1.0, 2.0, 6.0):
        history.on_train_step_end(context(net_outputs=on_accelerator(loss)))
    assert OnAccelerator.reads == 0
    history.on_train_epoch_end(context(cur_epoch_num=1))
    assert OnAccelerator.reads == 1
    assert history.history == {"net_output": [3.0]}


def test_a_metric_may_not_take_the_loss_name():
    with pytest.raises(ValueError, match=r"metrics must not have one called 'net_output'.*Give it another"):
        model({"net_output": mean_target}).fit(1, batches([1.0]), batches([1.0]), callbacks=History())


def test_a_resumed_run_has_the_whole_history(tmp_path):
    inputs = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    batches = [(part, part.sum(1, keepdim=True)) for part in inputs.split(4)]

    def model():
        torch.manual_seed(1)
        network = torch.nn.Linear(3, 1)
        return Model(network, torch.nn.MSELoss(), torch.optim.SGD(network.parameters(), 0.1))

    whole = History()
    model().train(3, batches, callbacks=[whole])
    model().train(2, batches, callbacks=[History(), ModelCheckpoint("CKP", tmp_path, CheckpointConfig(5))])
    (middle,) = tmp_path.glob("CKP-2_2.safetensors")
    resumed = History()
    model().train(3, batches, callbacks=[resumed], resume_from=middle)
    assert resumed.epoch == whole.epoch
    assert resumed.history == whole.history
