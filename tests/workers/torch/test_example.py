"""The inputs of the first samples, in whatever form the data set and the network have."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from workers import OwnLoss
from workers.errors import CallbackFunctionError
from workers.pools.first_call import FirstCall

X, Y = torch.arange(40.0).reshape(10, 4), torch.arange(10) % 3


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, left, right, scale=1.0, **others):
        return self.layer(left + right) * scale


def example(result, count=4):
    return FirstCall(lambda: result).example(count)


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (X.numpy(), Y.numpy()),
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True),
        [(X[:4], Y[:4]), (X[4:], Y[4:])],
        {"train": (X, Y), "test": (X[5:], Y[5:])},
    ],
)
def test_of_pairs(data):
    torch.testing.assert_close(example((nn.CrossEntropyLoss(), nn.Linear(4, 3), data, {})), X[:4])


def test_of_several_inputs():
    left, right = example((nn.CrossEntropyLoss(), Two(), [((X, 2 * X), Y)], {}), 10)
    torch.testing.assert_close((left, right), (X, 2 * X))


def test_of_a_network_that_computes_its_own_loss():
    network = Two().train()

    def step(net, batch):
        return nn.functional.cross_entropy(net(batch["x"], right=2 * batch["x"], more=batch["y"]), batch["y"])

    found = example((OwnLoss(step), network, [{"x": X, "y": Y}], {}), 10)
    assert list(found) == ["left", "right", "more"]
    torch.testing.assert_close(found["right"], 2 * X)
    assert network.training
    assert not network._forward_pre_hooks


def test_what_cannot_be_found():
    def fails(net, batch):
        raise RuntimeError("no such entry")

    for step, text in (
        (fails, "the network's own loss raised RuntimeError: no such entry"),
        (lambda net, batch: net.layer(batch[0]).sum(), "the network's own loss never calls the network itself"),
    ):
        with pytest.raises(CallbackFunctionError, match=text):
            example((OwnLoss(step), Two(), [[X, Y]], {}))
