"""Writes tests/data/zero_1 to zero_3 with DeepSpeed, in two processes; DeepSpeed 0.19.8 wrote those that are there.

Run it twice at once: ``DS_ACCELERATOR=cpu python write_zero_parts.py RANK FOLDER STAGE``, RANK being 0 and 1.
"""

import os
import sys

RANK, FOLDER, STAGE = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.environ.update(RANK=str(RANK), LOCAL_RANK=str(RANK), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29777")

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402


class Network(nn.Module):
    """Tied and frozen parameters, a buffer, and two groups of parameters in the optimizer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.norm = nn.LayerNorm(3)
        self.register_buffer("seen", torch.zeros(2))
        self.fixed = nn.Linear(3, 3).requires_grad_(False)
        self.out = nn.Linear(3, 5)
        self.out.weight = self.embedding.weight

    def forward(self, tokens):
        self.seen += 1
        return self.out(self.fixed(self.norm(self.embedding(tokens))))


def main():
    torch.manual_seed(3)
    network = Network()
    deepspeed.init_distributed("gloo")
    trained = [item for item in network.parameters() if item.requires_grad]
    groups = [
        {"params": [item for item in trained if item.ndim > 1], "weight_decay": 0.1},
        {"params": [item for item in trained if item.ndim < 2], "weight_decay": 0.0},
    ]
    configuration = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": STAGE},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": STAGE != 2},
    }
    optimizer = torch.optim.SGD(groups, lr=0.1)
    engine, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=configuration)
    for _ in range(3):
        tokens = torch.randint(0, 5, (4,))
        engine.backward(nn.functional.cross_entropy(engine(tokens).float(), tokens))
        engine.step()
    engine.save_checkpoint(FOLDER, tag="global_step3")
    if RANK == 0:
        whole = get_fp32_state_dict_from_zero_checkpoint(FOLDER)
        save_file({name: item.detach().clone() for name, item in whole.items()}, f"{FOLDER}/expected.safetensors")
    torch.distributed.barrier()


if __name__ == "__main__":
    main()
