"""What a run says before it measures where memory or the disk seem not to suffice."""

import contextlib
import errno
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hungry_network import memory_limit
from torch import nn

from collectors.errors import LandscapeError
from landscape import evaluate, random_plane
from landscape.grid.experiment import load_plane
from landscape.planes import random_line
from workers.measurement_options import MeasurementOptions
from workers.pools.open_pool import open_pool

WIDTH = 1500
"""Of a layer whose plane takes 36 MB on each worker."""


def wide(width=WIDTH):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Linear(width, 2))
    return nn.CrossEntropyLoss(), network, (torch.ones(8, 4), torch.zeros(8, dtype=torch.int64)), {}


def measure(path, callback_fn=wide, **how):
    plane = random_plane(callback_fn()[1], seed=0)
    return evaluate(plane, callback_fn, size=3, device_ids=[0], progress=False, output=path, **how)


def load_in(megabytes, plane, device_ids):
    with open_pool(wide, MeasurementOptions(), device_ids=device_ids) as pool, memory_limit(megabytes):
        # Whether it fits in the end is another question.
        with contextlib.suppress(LandscapeError):
            load_plane(pool, plane, [(1.0,) * plane.dimension])


def test_one_process():
    text = (
        "the plane takes 36.2 MB of this machine's memory, but no more than 2.* MB seem to be free, so the system may "
        "end workers or become slow; measure a line instead of a plane, or use a machine with more memory."
    )
    with pytest.warns(UserWarning, match=text):
        load_in(20, random_plane(wide()[1], seed=0), [0])
    with pytest.warns(UserWarning, match=r"takes 27.* MB .* become slow; use a machine with more\."):
        load_in(20, random_line(wide()[1], seed=0), [0])


@pytest.mark.filterwarnings("ignore:.*device:UserWarning")
@pytest.mark.slow
def test_several_workers():
    text = (
        "takes 109 MB .*, once on each of 2 workers and once for all of them, .*; pass at most 1 of device_ids, measure"
    )
    with pytest.warns(UserWarning, match=text):
        load_in(85, random_plane(wide()[1], seed=0), [0, 1])


def test_nothing_is_said_where_there_is_enough(recwarn, tmp_path):
    measure(tmp_path / "a.h5")
    assert not [item for item in recwarn if re.search("seem to be free|has .* for it", str(item.message))]


def test_a_disk_that_does_not_say_how_much_it_has_left_ends_nothing(tmp_path, monkeypatch):
    def fails(folder):
        raise OSError(errno.EIO, "Input/output error", str(folder))

    monkeypatch.setattr(shutil, "disk_usage", fails)
    assert np.isfinite(measure(tmp_path / "a.h5").loss).all()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_disk_with_less_than_the_file_takes(dry_run, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=100))
    with pytest.warns(UserWarning, match=r"a\.h5 will have up to [\d.]+ kB, but its disk has .*B for it; give output="):
        found = measure(tmp_path / "a.h5", lambda: wide(3), keep_samples=True, dry_run=dry_run)
    assert dry_run or np.isfinite(found.loss).all()
