"""What curvlinops computes, in the environment of the peers: ``curvlinops_peer.py KIND work.pt found.pt``."""

import subprocess
import sys
import warnings

import torch
from torch import nn


def perceptron():
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 4)).double()


def convolutions():
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(32, 20), nn.Tanh(), nn.Linear(20, 10)),
    )


def by_curvlinops(kind, folder, **work):
    """Returns what curvlinops makes of weights, inputs, targets and more; skips the test where it is not installed."""
    import pytest
    from places import ROOT
    from waiting import PATIENCE

    python = ROOT / ".venv-peers/bin/python"
    if not python.exists():
        pytest.skip("curvlinops 3.0.1 is not installed in .venv-peers")
    torch.save(work, folder / "work.pt")
    command = [python, __file__, kind, folder / "work.pt", folder / "found.pt"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return torch.load(folder / "found.pt", weights_only=True)


def products(curvlinops, given, *arguments):
    operators = {"hessian": curvlinops.HessianLinearOperator, "ggn": curvlinops.GGNLinearOperator}
    return {
        name: operator(*arguments, check_deterministic=False) @ given["vector"] for name, operator in operators.items()
    }


def factors(curvlinops, _given, *arguments):
    kfac = curvlinops.KFACLinearOperator(
        *arguments, fisher_type="empirical", kfac_approx="expand", separate_weight_and_bias=True,
        check_deterministic=False,
    )  # fmt: skip
    kfac.compute_kronecker_factors()
    return {"a": dict(kfac._input_covariances), "g": dict(kfac._gradient_covariances)}


def main(kind, work, found):
    warnings.simplefilter("ignore")
    import curvlinops

    given = torch.load(work, weights_only=True)
    build, compute = {"products": (perceptron, products), "factors": (convolutions, factors)}[kind]
    net = build()
    net.load_state_dict(given["weights"])
    data = [(given["inputs"], given["targets"])]
    torch.save(compute(curvlinops, given, net, nn.CrossEntropyLoss(), list(net.parameters()), data), found)


if __name__ == "__main__":
    main(*sys.argv[1:])
