"""Products by curvlinops, in the environment of the peers: ``python curvlinops_products.py work.pt found.pt``."""

import sys
import warnings

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 4)).double()


def main(work, found):
    warnings.simplefilter("ignore")
    import curvlinops

    given = torch.load(work, weights_only=True)
    net = network()
    net.load_state_dict(given["weights"])
    arguments = net, nn.CrossEntropyLoss(), list(net.parameters()), [(given["inputs"], given["targets"])]
    products = {}
    for name, operator in (("hessian", curvlinops.HessianLinearOperator), ("ggn", curvlinops.GGNLinearOperator)):
        products[name] = operator(*arguments, check_deterministic=False) @ given["vector"]
    torch.save(products, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
