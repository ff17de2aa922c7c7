"""The number that says what a network computes: equal for equal code, another one for whatever changes a value."""

import functools
import os
import random
import re
import sys

import pytest
import torch
from scripts import run_script
from torch import nn

from workers.torch.compiled.network_code import UnknownCodeError, code_of_network

SCALE = 2.0


def helper(inputs, power=2):
    return inputs**power * SCALE


def other_helper(inputs, power=3):
    return inputs**power * SCALE


class Base(nn.Module):
    def __init__(self, width=4, factor=1.0, act=torch.tanh):
        super().__init__()
        self.layer = nn.Linear(3, width)
        self.norm = nn.BatchNorm1d(width)
        self.factor, self.act = factor, act
        self.table = torch.arange(3.0)
        self.settings = {"shift": (1, 2), "parts": [0.5]}

    def forward(self, inputs):
        return self.act(helper(self.norm(self.layer(inputs + self.table))) * self.factor)


class Child(Base):
    def forward(self, inputs):
        return super().forward(inputs) + 1


def changed(change):
    network = Base()
    change(network)
    return network


def with_attributes(**values):
    return changed(lambda network: vars(network).update(values))


def make_closure(value):
    return lambda inputs: inputs + value


def test_weights_and_buffers_do_not_count():
    first, second = Base(), Base()
    second.norm.running_mean.add_(1)
    assert code_of_network(first) == code_of_network(second) == code_of_network(first)


@pytest.mark.parametrize(
    "other",
    [
        lambda: Base(width=5),
        lambda: Base(factor=1.5),
        lambda: Base(factor=1),  # an int, not a float
        lambda: Base(act=torch.sigmoid),
        lambda: Base(act=helper),
        lambda: Base(act=functools.partial(helper, power=4)),
        lambda: Base(act=make_closure(1.0)),
        lambda: Base(act=make_closure(2.0)),
        Child,
        lambda: Base().eval(),
        lambda: Base().double(),
        lambda: changed(lambda network: network.table.add_(1)),
        lambda: changed(lambda network: network.settings["parts"].append(1)),
        lambda: changed(lambda network: network.layer.register_forward_hook(lambda *_: None)),
        lambda: changed(lambda network: setattr(network, "forward", make_closure(3.0))),
        lambda: changed(lambda network: setattr(network.norm, "eps", 0.1)),
        lambda: changed(lambda network: setattr(network.layer, "bias", None)),
        lambda: changed(lambda net: setattr(net.layer, "weight", nn.Parameter(torch.zeros(3, 4).t()))),  # its layout
    ],
)
def test_whatever_changes_a_value_counts(other):
    assert code_of_network(other()) != code_of_network(Base())
    assert code_of_network(Base(act=make_closure(1.0))) != code_of_network(Base(act=make_closure(2.0)))


@pytest.mark.parametrize(("name", "value"), [("SCALE", 3.0), ("helper", other_helper)])
def test_functions_and_numbers_that_a_forward_reaches_by_name_count(name, value, monkeypatch):
    before = code_of_network(Base())
    with monkeypatch.context() as patch:
        patch.setitem(globals(), name, value)
        assert code_of_network(Base()) != before
    assert code_of_network(Base()) == before


def test_patterns_and_cached_functions_count_by_what_they_are():
    def with_all(pattern, power):
        return with_attributes(pattern=re.compile(pattern), act=functools.lru_cache(lambda inputs: inputs**power))

    first, again, *others = (code_of_network(with_all(*of)) for of in (("a", 2), ("a", 2), ("b", 2), ("a", 3)))
    assert first == again
    assert first not in others


class Slotted:
    __slots__ = ("__weakref__", "value")

    def __init__(self, value):
        self.value = value


class Numbers(list):
    pass


@pytest.mark.parametrize("kind", [Slotted, lambda value: Numbers([value])])
def test_objects_of_classes_in_python_count_by_their_values(kind):
    first, again, other = (code_of_network(with_attributes(of_a_class=kind(value))) for value in (1, 1, 2))
    assert first == again != other


def test_tied_weights_are_another_network():
    def pair(tied):
        network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        if tied:
            network[1].weight = network[0].weight
        return network

    assert code_of_network(pair(True)) != code_of_network(pair(False))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (sys.__stdout__, "TextIOWrapper"),
        (random.Random(0), r"random\.Random"),
        (torch.Generator(), "Generator"),
        (torch.zeros(2**20), "large array"),
    ],
)
def test_what_cannot_be_compared_is_an_error(value, text):
    with pytest.raises(UnknownCodeError, match=text):
        code_of_network(with_attributes(table=value))


@pytest.mark.slow
def test_every_process_finds_the_same_number():
    script = (
        "import torch; from torch import nn; from workers.torch.compiled.network_code import code_of_network\n"
        "class Net(nn.Sequential):\n    kinds = {'a', 'b', 'c'}\n"
        "    def forward(self, x): return super().forward(x) if 'a' in {'a', 'b', 'c'} else x\n"
        "print(code_of_network(Net(nn.Conv2d(1, 2, 3), nn.GELU(), nn.LSTM(3, 4))))"
    )
    found = {run_script(script, env={**os.environ, "PYTHONHASHSEED": seed}) for seed in ("1", "2")}
    assert len(found) == 1
