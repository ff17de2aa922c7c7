"""Small trainings under watch of a collector, and what their checkpoints must hold."""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from collectors.files.places import check_directory
from collectors.networks.readers import describe_network
from collectors.recording.summary_collector import SummaryCollector
from collectors.run_directory import RunDirectory
from collectors.run_directory.settings import LandscapeSettings
from collectors.run_directory.writer import RunWriter

# Of what collected() saves.
SETTINGS = LandscapeSettings((tuple(range(9)),))


class SmallNetwork(nn.Sequential):
    """Parameters, running statistics and an integer buffer; in train mode every step moves all of them."""

    def __init__(self, width=5):
        super().__init__(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, 2))


class TiedNetwork(nn.Module):
    """A GPT-like network: the output layer is the embedding, the causal mask is a buffer that is not saved."""

    def __init__(self, tokens=11, width=8):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight
        mask = torch.full((6, 6), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens), src_mask=self.mask, is_causal=True)).transpose(1, 2)


def seeded(build, seed=0):
    """Returns build(), with PyTorch's generator set for it alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def batches(count=4, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(6, 3, generator=generator).to(dtype), torch.randint(0, 2, (6,), generator=generator))
        for _ in range(count)
    ]


def snapshot(network):
    """Returns an independent copy of a network's state dict."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def train(network, run=None, epochs=2, data=None, first_step=0):
    """Trains; returns {step: state dict} with the state before the first step, and {epoch: state dict}."""
    data = batches() if data is None else data
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    steps, by_epoch, step = {first_step: snapshot(network)}, {0: snapshot(network)}, first_step
    for epoch in range(1, epochs + 1):
        for inputs, targets in data:
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(inputs).float(), targets)
            loss.backward()
            optimizer.step()
            step += 1
            steps[step] = snapshot(network)
            if run is not None:
                run.step(loss)
        by_epoch[epoch] = snapshot(network)
        if run is not None:
            run.end_epoch()
    return steps, by_epoch


def collected(directory, network=None, *, epochs=2, existing="error", error=None, **landscape):
    """Trains a network under watch, and may end with an error; returns its run directory and the states."""
    network = seeded(SmallNetwork) if network is None else network
    settings = {"intervals": [range(9)], **landscape}
    collector = SummaryCollector(directory, keep_default_action=False, collect_landscape=settings, existing=existing)
    with collector.watch(network) as run:
        steps, by_epoch = train(network, run, epochs)
        if error is not None:
            raise error
    return RunDirectory(directory), steps, by_epoch


def writer(directory, network=None, **arguments):
    """Returns a writer of steps 0 to 8 that a test calls by hand."""
    where = check_directory("summary_dir", directory)
    return RunWriter(where, SETTINGS, describe_network(network or SmallNetwork()), **arguments)


def metadata_path(directory):
    return directory / "ckpt_dir" / "train_metadata.json"


def contents(directory):
    """Returns the files of a run by their names."""
    return {path.name: path.read_bytes() for path in (directory / "ckpt_dir").iterdir() if path.is_file()}


def names(folder):
    """Returns the sorted names of what lies in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


def raw_bytes(tensor):
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def assert_holds(checkpoint, state):
    """Asserts that a checkpoint file holds exactly these tensors, bit for bit."""
    assert set(checkpoint.shapes) == set(state)
    for name, tensor in state.items():
        assert checkpoint.shapes[name] == tuple(tensor.shape)
        assert checkpoint.dtypes[name] == str(tensor.dtype).removeprefix("torch.")
        assert checkpoint.read(name).tobytes() == raw_bytes(tensor), name
