"""The learning rate that a collector recorded stands beside the curvature, as a limit to compare sharpness with."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from collectors import SummaryCollector
from landscape import Curvature, SummaryLandscape

INPUTS = torch.linspace(-1, 1, 24).reshape(12, 2)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


def callback_fn():
    return nn.MSELoss(), network(), (INPUTS, INPUTS.sum(1, keepdim=True)), {}


def train(directory, rates, unit, optimizer=torch.optim.SGD):
    """Epochs of two steps, each with a rate of its own."""
    model = network()
    moves = optimizer(model.parameters(), lr=rates[0])
    last = len(rates) * (1 if unit == "epoch" else 2)
    wanted = {"unit": unit, "intervals": [range(last + 1)], "num_samples": 12}
    with SummaryCollector(directory, collect_freq=1, collect_landscape=wanted).watch(model, optimizer=moves) as run:
        for rate in rates:
            moves.param_groups[0]["lr"] = rate
            for _ in range(2):
                moves.zero_grad()
                loss = nn.functional.mse_loss(model(INPUTS), INPUTS.sum(1, keepdim=True))
                loss.backward()
                moves.step()
                run.step(loss)
            run.end_epoch()


def measure(directory, numbers=None):
    options = {"top": 1, "trace_probes": 2, "device_ids": [0], "progress": False}
    found = SummaryLandscape(directory).gen_curvature(callback_fn, numbers, **options)
    assert found is not None
    return found


def limit(found):
    lines = found.plot_sharpness(Figure().add_subplot()).get_lines()
    (line,) = (line for line in lines if str(line.get_label()).startswith("2 / learning rate"))
    return np.asarray(line.get_ydata()).tolist()


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("epoch", [20, 20, 10, 5]), pytest.param("step", [20, 20, 20, 10, 10, 5, 5], marks=pytest.mark.slow)],
)
def test_each_checkpoint_has_the_rate_of_its_step(tmp_path, unit, expected):
    train(tmp_path, [0.1, 0.2, 0.4], unit)
    assert limit(measure(tmp_path)) == pytest.approx(expected)


@pytest.mark.slow
def test_numbers_that_join_later_keep_the_rates_of_the_others(tmp_path):
    train(tmp_path, [0.1, 0.2, 0.4], "epoch")
    measure(tmp_path, [0, 3])
    (tmp_path / "curvature_0-3.h5").rename(tmp_path / "curvature_1-2.h5")
    found = measure(tmp_path, [1, 2])
    assert found.number.tolist() == [0, 1, 2, 3]
    assert limit(found) == pytest.approx([20, 20, 10, 5])


@pytest.mark.slow
def test_one_rate_is_one_number_and_other_optimizers_have_none(tmp_path):
    train(tmp_path / "sgd", [0.1, 0.1], "epoch")
    found = measure(tmp_path / "sgd", [0, 2])
    assert found.attributes["learning_rate"] == pytest.approx(0.1)
    assert limit(Curvature.load(str(found.path))) == pytest.approx([20, 20])
    train(tmp_path / "adam", [0.1, 0.1], "epoch", torch.optim.Adam)
    assert "learning_rate" not in measure(tmp_path / "adam", [0, 2]).attributes
