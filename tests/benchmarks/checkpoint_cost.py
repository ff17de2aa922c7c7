"""What saving checkpoints costs a training: LeNet-5 and a network of 25 M parameters, with and without a collector.

Run it by hand: ``python tests/benchmarks/checkpoint_cost.py``. The goals: at most 2 % of the training's time where
checkpoints are at least 0.5 s apart, at most 150 us of the training thread for a checkpoint of LeNet-5, and for
25 M parameters no more than copying them in host memory. The hard case, 20 checkpoints in an epoch of a fraction of a
second, is printed for what it is.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field

import torch
from networks import LeNet5
from torch import nn
from torch.nn import functional

from collectors.recording.summary_collector import SummaryCollector

BATCH = 32


@dataclass
class Training:
    """Seconds of one training: its steps, waiting for the disk at the end, and the thread's own of each checkpoint."""

    loop: float
    writing: float
    saves: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def wide() -> nn.Module:
    """A perceptron of 25 M parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(1024, 4096), *[nn.ReLU(), nn.Linear(4096, 4096)], nn.ReLU(),
                         nn.Linear(4096, 1000))  # fmt: skip


def train(build: object, steps: int, every: int | None) -> Training:
    """Trains for some steps; saves every so many of them, none for None."""
    torch.manual_seed(0)
    network = build()  # type: ignore[operator]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    images, labels = torch.rand(BATCH, 1, 32, 32), torch.randint(0, 10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    if every is None:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return Training(time.perf_counter() - start, 0.0)
    numbers = list(range(every, steps + 1, every))
    with tempfile.TemporaryDirectory() as folder:
        collector = SummaryCollector(
            folder,
            keep_default_action=False,
            collect_landscape={"unit": "step", "create_landscape": {"train": True, "result": False},
                               "intervals": [numbers]},
        )  # fmt: skip
        with collector.watch(network) as run:
            result = Training(0.0, 0.0)
            start = time.perf_counter()
            for number in range(1, steps + 1):
                step()
                wall, processor = time.perf_counter(), time.thread_time()
                run.step()
                if number % every == 0:
                    result.saves.append(time.perf_counter() - wall)
                    result.processor.append(time.thread_time() - processor)
            end = time.perf_counter()
        result.loop, result.writing = end - start, time.perf_counter() - end
    return result


def host_copy(network: nn.Module) -> float:
    """Returns the median seconds of copying all parameters into new host memory."""
    times, kept = [], []
    for _ in range(9):
        start = time.perf_counter()
        kept.append([parameter.detach().numpy().copy() for parameter in network.parameters()])
        times.append(time.perf_counter() - start)
        del kept[:-2]  # as many as wait for the disk
    return statistics.median(times)


def compare(name: str, build: object, steps: int, every: int, repeats: int) -> list[Training]:
    """Trains with and without in turn, and prints the slowdown; the first checkpoint works out the names."""
    plain, collected = [], []
    for _ in range(repeats):
        plain.append(train(build, steps, None).loop)
        collected.append(train(build, steps, every))
    before, after = statistics.median(plain), statistics.median([run.loop for run in collected])
    count = steps // every
    slowdown = statistics.median([run.loop / loop - 1 for run, loop in zip(collected, plain, strict=True)])
    print(f"{name}: {count} checkpoints, {before / count:.3f} s apart")
    print(f"  without a collector            {1e3 * before:9.1f} ms")
    print(f"  with one                       {1e3 * after:9.1f} ms   slowdown {100 * slowdown:.1f} %")
    print(f"  waiting for the disk at the end{1e3 * statistics.median([run.writing for run in collected]):9.1f} ms")
    return collected


def pays(runs: list[Training]) -> tuple[float, float]:
    """Returns the training thread's median wall clock and processor time for a checkpoint after the first."""
    saves = [value for run in runs for value in run.saves[1:]]
    processor = [value for run in runs for value in run.processor[1:]]
    return statistics.median(saves), statistics.median(processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    one = train(LeNet5, 200, None).loop / 200
    spaced = max(1, round(0.6 / one))
    compare("LeNet-5, checkpoints far apart", LeNet5, 4 * spaced, spaced, options.repeats)
    hard = compare("LeNet-5, the hard case", LeNet5, 100, 5, options.repeats)
    wall, processor = pays(hard)
    copy = host_copy(LeNet5())
    print(f"  the training thread pays       {1e6 * wall:9.0f} us a checkpoint ({1e6 * processor:.0f} of CPU; "
          f"the bare copies {1e6 * copy:.0f})")  # fmt: skip
    big = compare("25 M parameters", wide, 24, 6, options.repeats)
    wall, processor = pays(big)
    copy = host_copy(wide())
    print(f"  the training thread pays       {1e3 * wall:9.2f} ms a checkpoint ({1e3 * processor:.2f} of CPU)")
    print(f"  the bare host copy             {1e3 * copy:9.2f} ms   ratio {wall / copy:.2f}")


if __name__ == "__main__":
    main()
