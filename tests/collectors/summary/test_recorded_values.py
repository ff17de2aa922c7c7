"""Learning rates and losses are read back as the training used and had them."""

import sys

import pytest
import torch

from collectors import Model, SummaryCollector
from collectors.summary.recorded_values import RecordedTraining, gradient_descent_rates, recorded_training
from collectors.summary.writer import record


def train(directory, rates, optimizer=torch.optim.SGD, collector_options=None, **more):
    """Three steps with each rate."""
    network = torch.nn.Linear(2, 1)
    moves = optimizer(network.parameters(), lr=rates[0])
    with SummaryCollector(directory, **(collector_options or {"collect_freq": 2})).watch(
        network, optimizer=moves, **more
    ) as run:
        for rate in rates:
            moves.param_groups[0]["lr"] = rate
            for _ in range(3):
                moves.zero_grad()
                loss = network(torch.ones(4, 2)).square().mean()
                loss.backward()
                moves.step()
                run.step(loss)


@pytest.mark.parametrize(
    ("rates", "options", "expected"),
    [
        # Recorded at the first step and at every second: 1, 2, 4, 6.
        ([0.5, 0.25], {}, {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5, 4: 0.25, 5: 0.25, 6: 0.25, 100: 0.25}),
        # Before the first record of a resumed training nothing is known.
        ([0.5], {"start_step": 10}, {5: None, 10: None, 11: 0.5, 13: 0.5}),
    ],
)
def test_each_step_has_the_rate_that_was_last_recorded(tmp_path, rates, options, expected):
    train(tmp_path, rates, **options)
    assert gradient_descent_rates(tmp_path, list(expected)) == list(expected.values())


@pytest.mark.parametrize("sizes", [{}, {"max_file_size": 200}], ids=["one file", "many files"])
def test_what_an_abandoned_part_of_a_training_recorded_does_not_count(tmp_path, sizes):
    options = {"collect_freq": 2, **sizes}
    train(tmp_path, [0.5, 0.5, 0.5], collector_options=options)
    train(tmp_path, [0.25], collector_options={"collect_freq": 100, **sizes}, start_step=4)
    assert list(recorded_training(tmp_path).losses) == [1, 2, 4, 5]
    assert gradient_descent_rates(tmp_path, [4, 5, 6, 8]) == [0.5, 0.25, 0.25, 0.25]


def test_the_rate_of_another_optimizer_is_no_rate_of_gradient_descent(tmp_path):
    train(tmp_path, [0.5], torch.optim.Adam)
    assert gradient_descent_rates(tmp_path, [1, 2]) is None


def test_a_damaged_record_ends_its_file(tmp_path):
    train(tmp_path, [0.5])
    before = recorded_training(tmp_path)
    for name in ("events.out.tfevents.1", "events.out.tfevents.2"):
        (tmp_path / name).write_bytes(record(b"\xff\xff\xff\xff no event"))
    (file,) = tmp_path.glob("*_MS")
    file.chmod(0o600)
    file.write_bytes(file.read_bytes() + record(b"\xff\xff\xff"))
    assert recorded_training(tmp_path) == before


@pytest.mark.parametrize(
    ("read", "nothing"), [(lambda run: gradient_descent_rates(run, [0]), None), (recorded_training, RecordedTraining())]
)
def test_where_nothing_is_recorded_or_can_be_read_nothing_is_known(tmp_path, monkeypatch, read, nothing):
    assert read(tmp_path) == read(tmp_path / "missing") == nothing
    (tmp_path / "x.tfevents").write_bytes(b"no events")
    assert read(tmp_path) == nothing
    train(tmp_path, [0.5])
    assert read(tmp_path) != nothing
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    assert read(tmp_path) == nothing


def test_losses_are_read_with_what_they_are_of(tmp_path):
    network = torch.nn.Linear(2, 1)
    data = torch.utils.data.TensorDataset(torch.ones(10, 2), torch.zeros(10, 1))
    loader = torch.utils.data.DataLoader(data, 5)
    losses = []

    class Kept(torch.nn.MSELoss):
        def forward(self, outputs, targets):
            losses.append(super().forward(outputs, targets))
            return losses[-1]

    model = Model(network, Kept(), torch.optim.SGD(network.parameters(), 0.1), {"mse": torch.nn.MSELoss()})
    model.fit(2, loader, loader, callbacks=[SummaryCollector(tmp_path, collect_freq=1)])
    found = recorded_training(tmp_path)
    assert list(found.losses) == [1, 2, 3, 4]
    trained = [loss.item() for loss in losses if loss.requires_grad]
    assert list(found.losses.values()) == trained
    assert (found.loss_function, found.batch_size, found.samples) == ("Kept", 5, 10)


def test_a_loop_of_ones_own_logs_losses_alone(tmp_path):
    train(tmp_path, [0.5, 0.25])
    found = recorded_training(tmp_path)
    assert list(found.losses) == [1, 2, 4, 6]
    assert (found.loss_function, found.batch_size, found.samples) == ("", None, None)


def test_an_evaluation_afterwards_changes_nothing(tmp_path):
    train(tmp_path, [0.5])
    network = torch.nn.Linear(2, 1)
    data = [(torch.ones(4, 2), torch.zeros(4, 1))]
    Model(network, torch.nn.MSELoss(), metrics={"mae": lambda outputs, targets: (outputs - targets).abs().mean()}).eval(
        data, [SummaryCollector(tmp_path)]
    )
    assert gradient_descent_rates(tmp_path, [1, 2]) == [0.5, 0.5]
