"""zhuyu-cs/MeanFlow#12: of a file with the network and its average, somebody measured the wrong one."""

import numpy as np
import torch

from collectors.run_directory import RunDirectory
from collectors.run_directory.importing import import_checkpoints


def test_the_average_is_taken_where_it_is_asked_for(tmp_path):
    for number in range(3):
        weight = torch.full((2, 3), float(number))
        torch.save({"model": {"w": weight}, "ema": {"w": -weight}}, tmp_path / f"epoch_{number}.pt")
    import_checkpoints(tmp_path / "run", sorted(tmp_path.glob("*.pt")), strip_prefix="ema.")
    run = RunDirectory(tmp_path / "run")
    for number in range(3):
        np.testing.assert_array_equal(run.checkpoint(number).read("w"), np.full((2, 3), -number, np.float32))
