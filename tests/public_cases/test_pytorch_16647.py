"""pytorch/pytorch#16647: what a data set raised could not be read in the error that arrived."""

import re

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from landscape import evaluate, random_plane
from workers.errors import CallbackFunctionError


class Rows(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return torch.ones(4), {"a": 0, "b": 1}[["a", "b", "c"][index]]


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_it_is_one_sentence_with_the_line_of_the_data_set():
    network = nn.Linear(4, 3)
    line = Rows.__getitem__.__code__.co_firstlineno + 1
    text = rf"what callback_fn returned raised KeyError: 'c' \({re.escape(__file__)}, line {line}\)$"
    with pytest.raises(CallbackFunctionError, match=text):
        evaluate(
            random_plane(network), lambda: (nn.CrossEntropyLoss(), network, Rows(), {}), size=3, device_ids=[0],
            progress=False,
        )  # fmt: skip
