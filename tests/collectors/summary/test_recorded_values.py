"""Learning rates are read back as the training used them."""

import sys

import torch

from collectors import SummaryCollector
from collectors.summary.recorded_values import gradient_descent_rates


def train(directory, rates, optimizer=torch.optim.SGD, **more):
    """Three steps with each rate."""
    network = torch.nn.Linear(2, 1)
    moves = optimizer(network.parameters(), lr=rates[0])
    with SummaryCollector(directory, collect_freq=2).watch(network, optimizer=moves, **more) as run:
        for rate in rates:
            moves.param_groups[0]["lr"] = rate
            for _ in range(3):
                moves.zero_grad()
                loss = network(torch.ones(4, 2)).square().mean()
                loss.backward()
                moves.step()
                run.step(loss)


def test_each_step_has_the_rate_that_was_last_recorded(tmp_path):
    # Recorded at the first step and at every second: 1, 2, 4, 6.
    train(tmp_path, [0.5, 0.25])
    found = gradient_descent_rates(tmp_path, [0, 1, 2, 3, 4, 5, 6, 100])
    assert found == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25]


def test_before_the_first_record_of_a_resumed_training_nothing_is_known(tmp_path):
    train(tmp_path, [0.5], start_step=10)
    assert gradient_descent_rates(tmp_path, [5, 10, 11, 13]) == [None, None, 0.5, 0.5]


def test_the_rate_of_another_optimizer_is_no_rate_of_gradient_descent(tmp_path):
    train(tmp_path, [0.5], torch.optim.Adam)
    assert gradient_descent_rates(tmp_path, [1, 2]) is None


def test_where_nothing_is_recorded_nothing_is_known(tmp_path, monkeypatch):
    assert gradient_descent_rates(tmp_path, [0, 1]) is None
    assert gradient_descent_rates(tmp_path / "missing", [0]) is None
    (tmp_path / "x.tfevents").write_bytes(b"no events")
    assert gradient_descent_rates(tmp_path, [0]) is None
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    assert gradient_descent_rates(tmp_path, [0]) is None
