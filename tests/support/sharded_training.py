"""Trainings whose parameters are divided among two processes.

Both see the same data, so that the weights are those of a training in one process. Beside every checkpoint lies what
PyTorch itself gathers at that step.
"""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import torch
from leaving import leave
from loaded_processes import in_two_ranks
from runs import TiedNetwork, batches, seeded
from torch import distributed, nn
from torch.nn import functional
from waiting import PATIENCE, wait_until

from collectors.model.model import Model
from collectors.recording.summary_collector import SummaryCollector

STEPS = 5
LAYERS = 96


class CountingNetwork(TiedNetwork):
    """Tied and frozen parameters, and a buffer that every step changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.block.norm1.weight.requires_grad = False

    def forward(self, tokens):
        self.count += 1
        return super().forward(tokens)


def tokens(count=STEPS, seed=0):
    """Returns batches of shape (4, 6) of the network's 11 tokens."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 11, (4, 6), generator=generator) for _ in range(count)]


def loss_of(network, batch):
    return functional.cross_entropy(network(batch).float(), batch)


def train(network, run, data, after_step=lambda step: None, first=0):
    """Trains with SGD, whose state begins at zero; calls a function after each step, and with 0 before the first."""
    optimizer = torch.optim.SGD([item for item in network.parameters() if item.requires_grad], lr=0.3)
    after_step(first)
    for step, batch in enumerate(data, first + 1):
        optimizer.zero_grad()
        loss = loss_of(network, batch)
        loss.backward()
        optimizer.step()
        after_step(step)
        run.step(loss)


def watched(directory, network, first=0, **options):
    settings = {"intervals": [range(STEPS + 1)]}
    collector = SummaryCollector(directory, keep_default_action=False, collect_landscape=settings, **options)
    return collector.watch(network, start_step=first)


def fsdp2(network=None, **options):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import fully_shard

    network = seeded(CountingNetwork) if network is None else network
    fully_shard(network.block, **options)
    network.block = checkpoint_wrapper(network.block)
    return fully_shard(network, **options)


def fsdp2_in_bfloat16():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return fsdp2(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def fsdp1(original_parameters=True):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    network = seeded(CountingNetwork)
    if not original_parameters:
        network.block.norm1.weight.requires_grad = True  # one flat parameter is trained or not
    policy = ModuleWrapPolicy({nn.TransformerEncoderLayer})
    # Otherwise it takes a GPU of the machine.
    return FullyShardedDataParallel(
        network, auto_wrap_policy=policy, use_orig_params=original_parameters, device_id=torch.device("cpu")
    )


def fsdp1_flat():
    return fsdp1(original_parameters=False)


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    network = seeded(CountingNetwork)
    plan = {"linear1": ColwiseParallel(), "linear2": RowwiseParallel()}
    parallelize_module(network.block, init_device_mesh("cpu", (2,)), plan)
    return network


CASES = {item.__name__: item for item in (fsdp2, fsdp2_in_bfloat16, fsdp1, fsdp1_flat, tensor_parallel)}


def gathered(network):
    """Returns what PyTorch itself gathers."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    # On CPU, offloading ends FSDP 1 with a segmentation fault (PyTorch 2.13).
    options = StateDictOptions(full_state_dict=True)
    return {name: tensor.clone() for name, tensor in get_model_state_dict(network, options=options).items()}


def collect(rank, folder, case):
    network, states = CASES[case](), {}

    def keep(step):
        state = gathered(network)
        if rank == 0:
            states[step] = state

    # Each rank names a directory of its own, so that a second writer would be seen.
    with watched(folder / f"{case}_{rank}", network) as run:
        train(network, run, tokens(), keep)
    torch.save(states, folder / f"{case}_{rank}.pt")


def distributed_checkpoints(rank, folder):
    """Saves what torch.distributed.checkpoint makes of two divisions, and what PyTorch gathers."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict

    for name, build in (("fsdp2", fsdp2), ("tensor_parallel", tensor_parallel)):
        network = build()
        optimizer = torch.optim.Adam([item for item in network.parameters() if item.requires_grad], lr=0.1)
        for number, batch in enumerate(tokens(3)):
            loss_of(network, batch).backward()
            optimizer.step()
            model, state = get_state_dict(network, optimizer)
            content = {"model": model, "optimizer": state, "step": number}
            checkpoint.save(content, checkpoint_id=str(folder / f"parts_{name}_{number}"))
            whole = gathered(network)
            if rank == 0:
                torch.save(whole, folder / f"parts_{name}_{number}.pt")


def with_records(rank, folder):
    """Trains with our own loop and all records; what a process sees only in part must not make it wait."""
    network = fsdp2()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    collector = SummaryCollector(
        folder / f"records_{rank}", collect_freq=1, collect_landscape={"intervals": [range(3)]}
    )
    Model(network, nn.CrossEntropyLoss(), optimizer).train(1, [(item, item) for item in tokens(2)], collector)


def records_alone(rank, folder):
    """Records without checkpoints; FSDP 1 shows each process a piece of the parameters under their own names."""
    network = fsdp1()
    optimizer = torch.optim.SGD([item for item in network.parameters() if item.requires_grad], lr=0.1)
    collector = SummaryCollector(folder / f"alone_{rank}", collect_freq=1)
    with collector.watch(network, optimizer=optimizer) as run:
        train(network, run, tokens(2))


def peak_of_gathering(rank, folder):
    """Writes by how many MiB each process grows while layers of 4 MiB are gathered."""
    import resource

    from torch.distributed.fsdp import fully_shard

    from collectors.networks.readers import sharded_reader

    peaks = []
    for build in (fully_shard, lambda network: flat_units(network)):
        # What PyTorch loads when it gathers for the first time is no part of the network.
        small = sharded_reader(build(nn.Sequential(build(nn.Linear(2, 2)), build(nn.Linear(2, 2)))), keeps=rank == 0)
        small.describe()
        small()
        # Divided one by one: the whole network never was in this process, so its peak is that of gathering.
        network = build(nn.Sequential(*(build(nn.Linear(1024, 1024, bias=False)) for _ in range(LAYERS))))
        reader = sharded_reader(network, keeps=rank == 0)
        reader.describe()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        state = reader()
        peaks.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        assert len(state) == (LAYERS if rank == 0 else 0)
    (folder / f"peak_{rank}.txt").write_text(" ".join(map(str, peaks)))


def documented(rank, folder):
    """Runs the code of docs/trainers/sharded.md."""
    import re

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))

        def forward(self, inputs):
            return self.blocks(inputs)

    page = Path(__file__).parents[2] / "docs" / "trainers" / "sharded.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (folder / "documented").mkdir(exist_ok=True)
    os.chdir(folder / "documented")
    names = {}
    exec(code, names)
    names["train"](Blocks(), batches(3))


def flat_units(network):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(network, device_id=torch.device("cpu"), use_orig_params=True)


def after_evaluation(rank, folder):
    """An evaluation leaves the root's parameters whole and in bfloat16."""
    network = fsdp2_in_bfloat16()
    with watched(folder / f"evaluated_{rank}", network) as run:
        train(network, run, tokens(2))
        with torch.no_grad():
            network(tokens(1)[0])
        run.step()
    state = gathered(network)
    torch.save(state, folder / f"evaluated_{rank}.pt")


def refused(rank, folder):
    """A directory that holds a run is an error on every rank, and so is a wrapper's inside."""
    outcomes = []
    for network, directory in ((fsdp2(), "fsdp2_0"), (fsdp1().module, "inside")):
        try:
            with watched(folder / directory, network) as run:
                train(network, run, tokens())
        except Exception as error:
            outcomes.append(f"{type(error).__name__}: {error}")
    (folder / f"refused_{rank}.txt").write_text("\n".join(outcomes))


def out_of_disk(rank, folder):
    """The directory vanishes under the writer; both ranks must hear of it."""
    network, directory = fsdp2(), folder / "vanished"

    def vanish(step):
        if step == 2 and rank == 0:
            shutil.rmtree(directory)
            directory.write_text("no folder any more")

    try:
        with watched(directory, network) as run:
            train(network, run, tokens(), vanish)
    except Exception as error:
        (folder / f"out_of_disk_{rank}.txt").write_text(f"{type(error).__name__}: {error}")


def interrupted(rank, folder):
    network = fsdp2()
    # A shell starts what runs in the background with interrupts switched off.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), watched(folder / "interrupted", network) as run:

        def interrupt(step):
            if step == 3:
                os.kill(os.getpid(), signal.SIGINT)

        train(network, run, tokens(), interrupt)


def within_an_epoch(rank, folder):
    """Stops and goes on inside the third epoch; only rank 0 sees how many steps the epochs before had."""
    from collectors.run_directory import RunDirectory

    network, directory = fsdp2(), folder / f"epochs_{rank}"

    def watch(existing, **start):
        epochs = {"unit": "epoch", "intervals": [range(4)]}
        options = {"keep_default_action": False, "collect_landscape": epochs, "existing": existing}
        return SummaryCollector(directory, **options).watch(network, **start)

    def step(run):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(1)
        run.step()

    with contextlib.suppress(KeyboardInterrupt), watch("error") as run:
        for _ in range(2):
            step(run)
            step(run)
            run.end_epoch()
        step(run)
        raise KeyboardInterrupt
    digests = [RunDirectory(directory).metadata.sha256 for _ in range(1 - rank)]
    with watch("resume", start_epoch=2, start_step=5) as run:
        step(run)
        run.end_epoch()
    if rank == 0:
        digests.append(RunDirectory(directory).metadata.sha256)
        torch.save(digests, folder / "epochs.pt")


def killed(rank, folder, victim):
    """One process dies in the middle; the other ends with an error of PyTorch."""
    from collectors.run_directory import RunDirectory

    network, directory = fsdp2(), folder / f"killed_{victim}"

    def kill(step):
        if step == 3:
            wait_until(lambda: 2 in RunDirectory(directory).metadata.files, what="the metadata of the first steps")
        if step == 4 and rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)

    with watched(directory, network) as run:
        train(network, run, tokens(), kill)


def resumed(rank, folder, victim):
    """Goes on from the last checkpoint of the training of which one process was killed."""
    from collectors.networks.torch_network import to_tensor
    from collectors.run_directory import RunDirectory

    directory = folder / f"killed_{victim}"
    run = RunDirectory(directory)
    last = max(run.metadata.files)
    checkpoint = run.checkpoint(last)
    distributed.barrier()
    network = seeded(CountingNetwork)
    state = {name: to_tensor(checkpoint.read(name)) for name in checkpoint.shapes}
    network.load_state_dict({**state, "head.weight": state["embedding.weight"]})
    with watched(directory, fsdp2(network), first=last, existing="resume") as run:
        train(network, run, tokens()[last:], first=last)


def main(rank, folder, cases):
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for case in cases:
        name, _, number = case.partition("-")
        if name in CASES:
            collect(rank, folder, name)
        else:
            globals()[name](rank, folder, *([int(number)] if number else []))
    distributed.barrier()
    distributed.destroy_process_group()


def process(rank, folder, cases):
    main(rank, folder, cases)
    leave()


def together(folder, *cases):
    """Runs cases, one after the other, in two processes; returns their exit codes and outputs."""
    folder.mkdir(exist_ok=True)
    (folder / "meeting").unlink(missing_ok=True)
    return in_two_ranks(process, folder, cases, patience=len(cases) * PATIENCE)
