"""karpathy/nanochat#432: whether a checkpoint of Ctrl-C, somewhere within a step, is a consistent state."""

import torch
from torch import nn

from collectors import CheckpointConfig, Model, ModelCheckpoint

BATCHES = [(torch.randn(4, 3, generator=torch.Generator().manual_seed(n)), torch.arange(4) % 2) for n in range(4)]


def train(folder=None, resume_from=None, interrupted_at=None):
    torch.manual_seed(0)
    network = nn.Linear(3, 2)
    calls = []

    def clip_gradients(_):
        calls.append(1)
        if len(calls) == interrupted_at:
            raise KeyboardInterrupt

    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    model = Model(network, nn.CrossEntropyLoss(), optimizer, clip_gradients=clip_gradients)
    saving = folder and ModelCheckpoint("run", folder, CheckpointConfig(100, exception_save=True))
    try:
        model.train(1, BATCHES, saving, resume_from=resume_from)
    except KeyboardInterrupt:
        assert interrupted_at
    return network.weight.detach().clone()


def test_what_goes_on_from_it_ends_where_an_undisturbed_training_does(tmp_path):
    expected = train()
    train(tmp_path, interrupted_at=3)
    (saved,) = tmp_path.iterdir()
    assert torch.equal(train(resume_from=saved), expected)
