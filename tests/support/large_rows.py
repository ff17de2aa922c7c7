"""A data set of any size whose rows cost nothing but the time to copy them, and a network for it."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

WIDTH, CLASSES = 1 << 14, 4
ROW_BYTES = 4 * WIDTH
_NOISE = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)


class LargeRows(Dataset):
    """Rows of 64 KiB, which are pieces of the same noise."""

    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        start = index * 7919 % (len(_NOISE) - WIDTH)
        row = _NOISE[start : start + WIDTH] * np.float32(1 + index % 3)
        return torch.from_numpy(row), index * 31 % CLASSES


def large_rows_network():
    torch.manual_seed(0)
    return nn.Linear(WIDTH, CLASSES)
