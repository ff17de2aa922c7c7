"""A run of a network so small that its whole Hessian can be written down, with a checkpoint that is not finite."""

import numpy as np
import torch
from saddles import exact_hessian
from torch import nn
from torch.nn import functional

NUMBERS = (0, 1, 2, 3)


def small():
    """A network of 45 weights in float64, and 40 samples of it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        inputs = torch.randn(40, 3, dtype=torch.float64)
        targets = torch.randint(0, 3, (40,))
    return nn.CrossEntropyLoss(), network, (inputs, targets), {}


def other_samples():
    loss, network, (inputs, targets), metrics = small()
    return loss, network, (inputs + 1, targets), metrics


def without_derivatives():
    from workers.function_evaluator import FunctionEvaluator

    _, network, _, _ = small()
    return FunctionEvaluator(
        lambda state: {"loss": float(sum(np.sum(array**2) for array in state.values()))},
        {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()},
    )


def train_small(folder, not_finite=(), epochs=3):
    """Trains it; at these epochs the weights that are kept are not numbers."""
    from collectors import SummaryCollector

    loss_function, network, (inputs, targets), _ = small()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    settings = {"unit": "epoch", "intervals": [range(epochs + 1)], "num_samples": 40}
    with SummaryCollector(folder, keep_default_action=False, collect_landscape=settings).watch(network) as run:
        for epoch in range(1, epochs + 1):
            optimizer.zero_grad()
            loss = loss_function(network(inputs), targets)
            loss.backward()
            optimizer.step()
            run.step(loss)
            before = network[0].weight.detach().clone()
            with torch.no_grad():
                if epoch in not_finite:
                    network[0].weight[0, 0] = float("nan")
                run.end_epoch()
                network[0].weight.copy_(before)
    return folder


def dense_hessian(state):
    """Returns the loss and its whole Hessian at a state by plain PyTorch, parameters in the network's order."""
    _, network, (inputs, targets), _ = small()
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
    loss = functional.cross_entropy(network(inputs), targets)
    return loss.item(), exact_hessian(network, functional.cross_entropy, inputs, targets).numpy()


def flat(direction):
    _, network, _, _ = small()
    return np.concatenate([direction[name].reshape(-1) for name, _ in network.named_parameters()])
