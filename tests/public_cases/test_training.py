"""Reports of other projects on training, and on what is recorded of it."""

from __future__ import annotations

import copy

import pytest
import torch
from event_reading import accumulated
from torch import nn

from collectors import CheckpointConfig, Model, ModelCheckpoint, SummaryCollector, SummaryRecord

INPUTS, TARGETS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, inputs, targets):
        outputs = self.inner(inputs)
        return nn.functional.cross_entropy(outputs, targets, reduction="none"), outputs


def test_a_step_is_that_of_the_mean_of_the_samples_losses():
    """lisiyao21/Bailando#15: a network that returns the loss of each sample could not be trained."""
    torch.manual_seed(0)
    network = WithLoss()
    expected = copy.deepcopy(network).double()
    expected(INPUTS.double(), TARGETS)[0].mean().backward()
    wanted = expected.inner.weight.detach() - 0.5 * expected.inner.weight.grad
    model = Model(network, optimizer=torch.optim.SGD(network.parameters(), lr=0.5))
    model.train(1, [({"inputs": INPUTS, "targets": TARGETS}, None)])
    torch.testing.assert_close(network.inner.weight.detach().double(), wanted, rtol=1e-5, atol=1e-6)


BATCHES = [(torch.randn(4, 3, generator=torch.Generator().manual_seed(n)), torch.arange(4) % 2) for n in range(4)]


def train(folder=None, resume_from=None, interrupted_at=None):
    torch.manual_seed(0)
    network = nn.Linear(3, 2)
    calls = []

    def clip_gradients(_):
        calls.append(1)
        if len(calls) == interrupted_at:
            raise KeyboardInterrupt

    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    model = Model(network, nn.CrossEntropyLoss(), optimizer, clip_gradients=clip_gradients)
    saving = folder and ModelCheckpoint("run", folder, CheckpointConfig(100, exception_save=True))
    try:
        model.train(1, BATCHES, saving, resume_from=resume_from)
    except KeyboardInterrupt:
        assert interrupted_at
    return network.weight.detach().clone()


def test_what_goes_on_from_ctrl_c_ends_where_an_undisturbed_training_does(tmp_path):
    """karpathy/nanochat#432: whether a checkpoint of Ctrl-C, somewhere within a step, is a consistent state."""
    expected = train()
    train(tmp_path, interrupted_at=3)
    (saved,) = tmp_path.iterdir()
    assert torch.equal(train(resume_from=saved), expected)


def record(network, folder, **items):
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), lr=0.0))
    model.train(1, [(INPUTS, TARGETS)] * 2, SummaryCollector(folder, 1, collect_specified_data=items))


def test_hooks_see_numbers_alone(tmp_path):
    """pytorch/vision#5193: hooks of a user met the symbols of torch.fx when a network's graph was taken."""
    seen, network = [], nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 3)))
    network[1].register_forward_hook(lambda layer, inputs, outputs: seen.append(type(outputs)))
    record(network, tmp_path, collect_graph=True)
    assert seen == [torch.Tensor, torch.Tensor]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.tensor(2.0)), nn.Linear(4, 3)

    def forward(self, inputs):
        return self.scale * self.inner(inputs)


def test_the_histogram_of_one_number_holds_its_value(tmp_path):
    """wandb/wandb#3601: a parameter that is one number had no histogram."""
    record(Scaled(), tmp_path, histogram_regular="scale")
    value = accumulated(tmp_path).Histograms("scale/auto")[-1].histogram_value
    assert (value.num, value.sum) == (1, pytest.approx(2.0))


def test_a_closed_record_takes_no_values(tmp_path):
    """lanpa/tensorboardX#69: it was open whether a writer that was closed takes values."""
    record = SummaryRecord(str(tmp_path))
    record.close()
    with pytest.raises(ValueError, match=r"the SummaryRecord of .* is closed; open a new one"):
        record.add_value("scalar", "loss", 0.25)


def test_closing_names_the_values_that_were_not_recorded(tmp_path):
    """wandb/wandb#204: values that were logged and never committed were lost without a word."""
    record = SummaryRecord(str(tmp_path))
    record.add_value("scalar", "loss", 0.25)
    with pytest.warns(UserWarning, match=r"not written, 1 in all: scalar 'loss'.*record\(step\)"):
        record.close()
