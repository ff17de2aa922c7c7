"""DeepSpeed's ZeRO in two real processes, on CPUs (``make test-deepspeed``)."""

import os
from pathlib import Path

import numpy as np
import pytest
from own_processes import free_ports
from runs import TiedNetwork, seeded
from scripts import run_python
from waiting import PATIENCE

from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from collectors.weights.foreign_checkpoint import read_checkpoint

pytestmark = pytest.mark.slow

STEPS = 4
SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import deepspeed
from runs import TiedNetwork, seeded
from leaving import leave
from sharded_training import loss_of, tokens
from collectors.recording.summary_collector import SummaryCollector

folder = sys.argv[1]
# Sums in shared memory, which DeepSpeed compiles for minutes; PyTorch's own do as well.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
deepspeed.init_distributed("gloo", verbose=False)
for stage, precision, watched in {trainings!r}:
    saved = f"{{folder}}/{{stage}}-{{precision}}/saved"
    network = seeded(TiedNetwork)
    network.block.norm1.weight.requires_grad = False
    options = {{"type": "Adam", "params": {{"lr": 0.05, "torch_adam": True}}}}
    configuration = {{
        "train_micro_batch_size_per_gpu": 4, "zero_optimization": {{"stage": stage}}, "optimizer": options,
        "zero_allow_untested_optimizer": True, "bf16": {{"enabled": precision == "bfloat16"}},
    }}
    trained = [item for item in network.parameters() if item.requires_grad]
    engine, *_ = deepspeed.initialize(model=network, model_parameters=trained, config=configuration)
    collector = SummaryCollector(
        f"{{folder}}/{{stage}}-{{precision}}/run", keep_default_action=False,
        collect_landscape={{"intervals": [range(5)]}},
    )
    with collector.watch(engine.module if watched == "inside" else engine) as run:
        engine.save_checkpoint(saved, tag="0")
        for step, batch in enumerate(tokens(4), 1):
            engine.backward(loss_of(engine, batch))
            engine.step()
            engine.save_checkpoint(saved, tag=str(step))
            run.step()
leave()
"""


TRAININGS = [(1, "bfloat16", "engine"), (2, "float32", "inside"), (3, "bfloat16", "inside"), (3, "float32", "engine")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with what the same two processes recorded of each training, one after the other."""
    tests, folder = Path(__file__).parents[1], tmp_path_factory.mktemp("deepspeed")
    script = folder / "train.py"
    script.write_text(SCRIPT.format(trainings=TRAININGS))
    (port,) = free_ports(1)
    environment = {
        **os.environ,
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(tests / "support"), str(tests.parent)]),
    }
    launcher = "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port
    run_python(*launcher, script, folder, env=environment, patience=2 * PATIENCE)
    return folder


@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize(("stage", "precision"), [training[:2] for training in TRAININGS])
def test_checkpoints_are_what_deepspeed_itself_puts_together(trained, stage, precision):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    folder = trained / f"{stage}-{precision}"
    network = seeded(TiedNetwork)
    network.block.norm1.weight.requires_grad = False
    space = describe_network(network)
    run = RunDirectory(folder / "run")
    assert run.metadata.network["name"] == "TiedNetwork"
    assert run.metadata.network["trainable"] == [tensor.name for tensor in space.trainable]
    assert run.present(tuple(range(9))) == [*range(STEPS + 1)]
    for number in range(STEPS + 1):
        expected = get_fp32_state_dict_from_zero_checkpoint(str(folder / "saved"), tag=str(number))
        checkpoint = run.checkpoint(number)
        assert set(checkpoint.shapes) == {tensor.name for tensor in space.tensors}
        # With ZeRO 1, DeepSpeed leaves out what is frozen.
        assert set(checkpoint.shapes) - set(expected) <= {"block.norm1.weight"}
        for name in set(checkpoint.shapes) & set(expected):
            found = checkpoint.read(name).astype(np.float32)
            np.testing.assert_array_equal(found, expected[name].detach().float().numpy())
        np.testing.assert_array_equal(checkpoint.read("block.norm1.weight").astype(np.float32), np.ones(8))
        # What DeepSpeed saves can be imported as well.
        parts = read_checkpoint(folder / "saved" / str(number)).tensors
        for name in checkpoint.shapes:
            np.testing.assert_array_equal(parts[name].astype(np.float32), checkpoint.read(name).astype(np.float32))
        assert {checkpoint.dtypes[tensor.name] for tensor in space.trainable} == {"float32"}
    moved = run.checkpoint(STEPS).read("block.linear1.weight") - run.checkpoint(0).read("block.linear1.weight")
    assert np.abs(moved).max() > 0.01
