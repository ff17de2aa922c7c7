"""Finds the top of a Hessian's spectrum with one of the other tools: ``python curvature_peers.py JSON``.

The JSON names the tool (``name``) and ``work`` (the file of ``prepare_work``). Each line that it then reads is a
search, [top, tolerance], with the tool's own meaning of a tolerance, and is answered by a line. Each tool gets what
suits it best, before any clock starts: all samples at once with the first derivatives kept, where it has a way to, or
mini-batches; attention that can be differentiated twice; and enough steps, where it asks for their number.
"""

import contextlib
import importlib
import importlib.metadata
import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from networks import read_work
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

Batches: TypeAlias = list[tuple[torch.Tensor, torch.Tensor]]
Solver: TypeAlias = Callable[[int, float], list[float]]
"""From how many eigenvalues and a tolerance to the eigenvalues."""

MINI_BATCHES = (64, 256)
STEPS = (10, 15, 20, 30, 40)
_TRIES = 3


class TooFewStepsError(Exception):
    """The number of steps was too small; its user would take more, and only that run is timed."""


class Counted:
    """A method that counts its calls."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method, self.calls = method, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self._method(*arguments)


class Peer:
    """A tool whose products are counted."""

    ways = ("all samples at once", *(f"batches of {size}" for size in MINI_BATCHES))
    _counted: Counted
    _arguments: tuple[Any, ...]

    @property
    def products(self) -> int:
        return self._counted.calls

    def multiply(self) -> None:
        self._counted(*self._arguments)


class PyHessian(Peer):
    """PyHessian 0.1: deflated power iteration; a single batch keeps its first derivatives."""

    def __init__(self, network: nn.Module, batches: Batches, way: str) -> None:
        module = importlib.import_module("pyhessian.hessian")  # the package has a class of this name
        once = way == self.ways[0]
        kinds = {"data": batches[0]} if once else {"dataloader": batches}
        self._made = module.hessian(network, nn.CrossEntropyLoss(), cuda=False, **kinds)
        self._arguments = ([torch.randn_like(item) for item in network.parameters()],)
        if once:
            self._counted = module.hessian_vector_product = Counted(_plain(module.hessian_vector_product))
            self._arguments = (self._made.gradsH, self._made.params, *self._arguments)
        else:
            self._counted = self._made.dataloader_hv_product = Counted(self._made.dataloader_hv_product)

    def solve(self, top: int, tolerance: float) -> list[float]:
        return self._made.eigenvalues(maxIter=1000, tol=tolerance, top_n=top)[0]


class Landscaper(Peer):
    """Landscaper 1.3.1: PyHessian's code, with first derivatives kept for all batches (``try_cache``)."""

    ways = tuple(f"{way}, derivatives kept" for way in Peer.ways)

    def __init__(self, network: nn.Module, batches: Batches, _way: str) -> None:
        from landscaper.hessian import PyHessian as Made

        self._arguments = ([torch.randn_like(item) for item in network.parameters()],)
        self._made = Made(network, nn.CrossEntropyLoss(), batches, torch.device("cpu"), try_cache=True)
        self._counted = self._made.hv_product = Counted(self._made.hv_product)

    def solve(self, top: int, tolerance: float) -> list[float]:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bars
            return self._made.eigenvalues(maxIter=1000, tol=tolerance, top_n=top)[0]


class Eigenthings(Peer):
    """hessian-eigenthings 1.0.0a5: Lanczos with the number of steps that its user gives; derivatives are made anew."""

    def __init__(self, network: nn.Module, batches: Batches, _way: str) -> None:
        import hessian_eigenthings

        self._find = hessian_eigenthings.lanczos
        loss = hessian_eigenthings.supervised_loss(nn.CrossEntropyLoss())
        self._made = hessian_eigenthings.HessianOperator(network, batches, loss)
        self._counted = self._made.matvec = Counted(self._made.matvec)
        self._arguments = (torch.randn(self._made.size),)
        self.steps = STEPS[0]

    def solve(self, top: int, tolerance: float) -> list[float]:
        found = self._find(self._made, k=top, max_iter=self.steps, tol=tolerance, which="LA", seed=0)
        if not found.converged.all() and self.steps < STEPS[-1]:
            raise TooFewStepsError
        return found.eigenvalues.tolist()


PEERS: dict[str, Any] = {"PyHessian": PyHessian, "Landscaper": Landscaper, "hessian-eigenthings": Eigenthings}


def _plain(function: Any) -> Any:
    return function._method if isinstance(function, Counted) else function


def _cut(work: dict[str, Any], way: str) -> Batches:
    sizes = [size for size in MINI_BATCHES if f"batches of {size}" in way]
    size = sizes[0] if sizes else len(work["inputs"])
    return list(zip(work["inputs"].split(size), work["targets"].split(size), strict=True))


class Clock:
    """Seconds of the clock and of the processor, from now on."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        """Returns "seconds" and "processor"; those of other processes are not in the latter."""
        now = time.perf_counter(), time.process_time()
        return {"seconds": now[0] - self._start[0], "processor": now[1] - self._start[1]}


def answer_searches(search: Callable[[int, float], dict[str, Any]], way: str, version: str) -> None:
    """Says that it is ready, then answers each line that is read."""
    print(json.dumps({"way": way, "version": version}), flush=True)
    for line in sys.stdin:
        print(json.dumps(search(*json.loads(line))), flush=True)


def _fastest_way(kind: Any, path: str) -> str:
    """Returns the way whose products take least time; one that holds all samples in one mini-batch is no other."""
    seconds = {}
    for way in kind.ways:
        network, work = read_work(path)
        if way != kind.ways[0] and len(_cut(work, way)) == 1:
            continue
        made = kind(network, _cut(work, way), way)
        made.multiply()
        tries = []
        for _ in range(_TRIES):
            clock = Clock()
            made.multiply()
            tries.append(clock.stop()["seconds"])
        seconds[way] = min(tries)
    return min(seconds, key=lambda way: seconds[way])


def main(wanted: dict[str, Any]) -> None:
    kind, path = PEERS[wanted["name"]], wanted["work"]
    steps_of: dict[tuple[int, float], list[int]] = {}

    def search(top: int, tolerance: float) -> dict[str, Any]:
        steps = steps_of.setdefault((top, tolerance), list(STEPS))
        while True:
            torch.manual_seed(0)
            network, work = read_work(path)
            batches = _cut(work, way)
            clock = Clock()
            made = kind(network, batches, way)
            made.steps = steps[0]
            try:
                values = made.solve(top, tolerance)
            except TooFewStepsError:
                steps.pop(0)
                continue
            return {"products": made.products, "values": values, **clock.stop()}

    with sdpa_kernel(SDPBackend.MATH):
        way = _fastest_way(kind, path)
        answer_searches(search, way, importlib.metadata.version(wanted["name"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
