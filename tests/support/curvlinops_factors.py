"""K-FAC's factors by curvlinops, in the environment of the peers: ``python curvlinops_factors.py work.pt found.pt``."""

import sys
import warnings

import torch
from torch import nn


def network():
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(32, 20), nn.Tanh(), nn.Linear(20, 10)),
    )


def main(work, found):
    warnings.simplefilter("ignore")
    import curvlinops

    given = torch.load(work, weights_only=True)
    net = network()
    net.load_state_dict(given["weights"])
    kfac = curvlinops.KFACLinearOperator(
        net,
        nn.CrossEntropyLoss(),
        list(net.parameters()),
        [(given["images"], given["targets"])],
        fisher_type="empirical",
        kfac_approx="expand",
        separate_weight_and_bias=True,
        check_deterministic=False,
    )
    kfac.compute_kronecker_factors()
    torch.save({"a": dict(kfac._input_covariances), "g": dict(kfac._gradient_covariances)}, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
