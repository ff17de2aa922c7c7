"""ACEsuit/mace#525: parameters that a network got later were left out without a word."""

import pytest
from torch import nn

from collectors import SummaryCollector


def test_the_first_checkpoint_with_them_says_so(tmp_path):
    network = nn.Sequential(nn.Linear(4, 3))
    wanted = {"intervals": [range(4)], "unit": "epoch"}
    with SummaryCollector(tmp_path, collect_landscape=wanted).watch(network) as run:
        run.end_epoch()
        network.append(nn.Linear(3, 2))
        with pytest.warns(UserWarning, match=r"at epoch 2 than when collecting began \('1\.weight', '1\.bias'\)"):
            run.end_epoch()
        run.end_epoch()
