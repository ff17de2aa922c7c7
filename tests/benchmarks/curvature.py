"""Compares the top of a Hessian's spectrum with the tools that find it too; a part of ``make bench``.

    python tests/benchmarks/curvature.py --peers .venv-peers/bin/python --output docs/benchmarks.md

All contenders have the same network, samples and number of eigenvalues, each in a process of its own, which searches
when its turn comes: what else the machine does meets all alike. Products and errors do not depend on that, times do. It
replaces the page's section on curvature, and takes about ten minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from curvature_peers import PEERS
from networks import prepare_work, read_work
from results_page import Goal, busy_line, machine_line
from scipy.sparse.linalg import LinearOperator, eigsh
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = Path(__file__).parent
TURNS, ENOUGH_SECONDS = 7, 20.0
"""Of each search, at most; no further turn begins after that time."""
HEADING = "## Curvature"
_COLUMNS = ("products", "error", "time", "of ours", "processor")
_NEXT = "## Our own parts"  # before which the section stands on a page that has none yet
_WIDTH = 125
TOPS, TOLERANCE = (2, 5), 1e-3
FINE = 1e-6
"""Of the peers' tolerances, one at which their errors are about as small as ours."""
LOOSER, THEIR_ERROR = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6), 1e-3
"""Tolerances, and the error that power iteration may make with the first of them that suffices."""

GOALS = {2: 2.5, 5: 4.0}
"""How many times as long the fastest tool by power iteration takes, with each tolerance."""

POWER_ITERATION = ("PyHessian", "Landscaper")
MOST_PRODUCTS = {2: 14, 5: 22}
LARGEST_ERROR = 1e-5
DOORS = {"ours, in process": [0], "ours, two workers": [0, 1]}
_MANNER = (
    "The largest eigenvalues of the Hessian of the mean loss over all samples. Every tool has the same network "
    "and samples and a process of its own; they search in turn. Seconds are those of the search alone: imports, data, "
    "workers, the choice of batch sizes and first products are not in them, for anybody; medians of up to seven "
    "searches, and the seconds of the processor beside them (two threads use two at once, and wait busily for each "
    "other). Ratios are medians over turns. Errors are the largest relative one of all eigenvalues against SciPy's "
    "`eigsh` in float64, converged to 1e-10. Products are those with all samples.",
    "**What the others get.** PyHessian and Landscaper (power iteration) take all samples at once or mini-batches "
    "of 64 or 256, whichever is fastest, and keep their first derivatives where they have a way to. They "
    "stop where two steps differ by `tol`, 1e-3 unless their user says otherwise, which does not bound the error: they "
    "are timed with it, and with the first of 1e-3, 3e-4, 1e-4, ... at which no eigenvalue is more than 1e-3 off, "
    "which a run before finds. With 1e-6 their errors come near ours. hessian-eigenthings (Lanczos) must be told how "
    "many steps to make: it gets the fewest of 10, 15, 20, 30, 40 after which it says itself that all have converged "
    "to 1e-3, and the runs before that are not timed. Attention is switched to its plain form for all, without which "
    "they raise.",
    "**What we get.** The defaults (tolerance 1e-3 of each eigenvalue's residual), without the trace, which the others "
    "do not measure. The seconds hold the loss and its gradient, the first derivatives that are kept, and three "
    "products with eight samples, which check that products come out again and that the matrix is symmetric.",
)


@dataclass(frozen=True)
class Case:
    """A network at which the Hessian is taken; with ``fine``, PyHessian also searches with the finer tolerance."""

    network: str
    samples: int
    epochs: int
    fine: bool = False


CASES = (Case("LeNet-5", 512, 10, fine=True), Case("transformer", 512, 10, fine=True), Case("ResNet-20", 64, 10))
QUICK = (Case("LeNet-5", 64, 2, fine=True), Case("transformer", 64, 2))


@dataclass(frozen=True)
class Found:
    """What a contender answered turn by turn for each (top, tolerance), and by top the tolerance that is sufficient."""

    name: str
    way: str
    jobs: dict[tuple[int, float], list[dict[str, float]]]
    sufficient: dict[int, float] = field(default_factory=dict)

    def median(self, job: tuple[int, float], what: str) -> float:
        return statistics.median(turn[what] for turn in self.jobs[job])

    def ratio(self, job: tuple[int, float], ours: Found, what: str = "seconds") -> float:
        """Returns how many times as long it takes as ours with the tolerance that is the default, turn by turn."""
        pairs = zip(self.jobs[job], ours.jobs[job[0], TOLERANCE], strict=False)
        return statistics.median(one[what] / other[what] for one, other in pairs)

    def cells(self, tolerance: float, ours: Found) -> list[str]:
        cells = []
        for job in ((top, tolerance) for top in TOPS):
            if job not in self.jobs:
                cells += [""] * len(_COLUMNS)
                continue
            elsewhere = self.name == "ours, two workers"
            cells += [f"{self.median(job, 'products'):.0f}", f"{self.median(job, 'error'):.0e}"]
            cells += [f"{self.median(job, 'seconds'):.2f} s", "" if self is ours else f"{self.ratio(job, ours):.1f} x"]
            cells.append("" if elsewhere else f"{self.median(job, 'processor'):.2f} s")
        return cells


class Contender:
    """A process that searches when it is asked to."""

    def __init__(self, command: list[str], wanted: dict[str, Any]) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, json.dumps(wanted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )
        self._name = f"{command[-1]} {wanted}"
        self.facts = self._answer()
        """Its "way" and "version"."""

    def search(self, top: int, tolerance: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps([top, tolerance]), file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._said.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        self._said.seek(0)
        raise RuntimeError(f"{self._name} failed with {self._process.wait()}:\n{self._said.read()[-4000:]}")


def reference(path: Path, count: int) -> np.ndarray:
    """Returns the largest eigenvalues in float64, the largest first, by another method and other code."""
    network, work = read_work(path)
    network.double()
    parameters = list(network.parameters())
    with sdpa_kernel(SDPBackend.MATH):
        loss = functional.cross_entropy(network(work["inputs"].double()), work["targets"])
        first = torch.autograd.grad(loss, parameters, create_graph=True)
        ends = np.cumsum([item.numel() for item in parameters])[:-1]

        def multiply(vector: np.ndarray) -> np.ndarray:
            parts = np.split(vector.reshape(-1), ends)
            vectors = [torch.from_numpy(part).reshape(item.shape) for part, item in zip(parts, parameters, strict=True)]
            products = torch.autograd.grad(first, parameters, vectors, retain_graph=True)
            return torch.cat([item.reshape(-1) for item in products]).numpy()

        size = sum(item.numel() for item in parameters)
        operator = LinearOperator((size, size), matvec=multiply, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(size)
        values = eigsh(operator, count, which="LA", tol=1e-10, v0=start, return_eigenvectors=False)
    return np.sort(values)[::-1]


def compare(case: Case, python: Path, folder: Path) -> tuple[dict[str, Found], dict[str, str]]:
    path = folder / f"{case.network}.pt"
    prepare_work(path, case.network, case.samples, case.epochs)
    expected = reference(path, max(TOPS))
    with contextlib.ExitStack() as stack:
        contenders = {}
        for name in (*DOORS, *PEERS):
            wanted: dict[str, Any] = {"work": str(path)}
            if name in DOORS:
                command, wanted = [sys.executable, str(HERE / "curvature_ours.py")], wanted | {"devices": DOORS[name]}
            else:
                command, wanted = [str(python), str(HERE / "curvature_peers.py")], wanted | {"name": name}
            contenders[name] = Contender(command, wanted)
            stack.callback(contenders[name].close)
        found = {name: Found(name, contender.facts["way"], {}) for name, contender in contenders.items()}
        for top in TOPS:
            for name in POWER_ITERATION:
                for tolerance in LOOSER:
                    if error_of(contenders[name].search(top, tolerance), expected) <= THEIR_ERROR:
                        found[name].sufficient[top] = tolerance
                        break
            start, turns = time.perf_counter(), 0
            while not turns or (turns < TURNS and time.perf_counter() - start < ENOUGH_SECONDS):
                turns += 1
                for name, contender in contenders.items():
                    tolerances = {TOLERANCE, found[name].sufficient.get(top, TOLERANCE)}
                    if case.fine and name == "PyHessian":
                        tolerances.add(FINE)
                    for tolerance in sorted(tolerances, reverse=True):
                        answer = contender.search(top, tolerance)
                        answer["error"] = error_of(answer, expected)
                        found[name].jobs.setdefault((top, tolerance), []).append(answer)
    for item in found.values():
        print(f"{case.network}, {item.name}: {_terminal(item)}", flush=True)
    return found, {name: contenders[name].facts["version"] for name in PEERS}


def error_of(answer: dict[str, Any], expected: np.ndarray) -> float:
    """Returns the largest relative error of the eigenvalues that somebody found."""
    values = np.sort(answer["values"])[::-1]
    return float(np.abs(values / expected[: len(values)] - 1).max())


def goals(case: Case, found: dict[str, Found]) -> list[Goal]:
    """Returns how many times as long the fastest tool by power iteration takes as we do."""
    ours = found["ours, in process"]
    made = []
    for top, wanted in GOALS.items():
        fine, job = (top, FINE), (top, TOLERANCE)
        if fine in found["PyHessian"].jobs:
            text = f"{case.network}, top {top}: less time than PyHessian, tol {FINE:.0e}"
            made.append(Goal(text, wanted, found["PyHessian"].ratio(fine, ours)))
        peer = min((found[name] for name in POWER_ITERATION), key=lambda item: item.median(job, "seconds"))
        made.append(Goal(f"{case.network}, top {top}: less time than {peer.name}", wanted, peer.ratio(job, ours)))
        text = f"{case.network}, top {top}: less time of the processor than {peer.name}"
        made.append(Goal(text, wanted, peer.ratio(job, ours, "processor")))
        as_exact = {
            name: (top, found[name].sufficient[top]) for name in POWER_ITERATION if top in found[name].sufficient
        }
        if as_exact:
            name = min(as_exact, key=lambda name: found[name].median(as_exact[name], "seconds"))
            text = f"{case.network}, top {top}: less time than {name}, at most 1e-3 off (tol {as_exact[name][1]:.0e})"
            made.append(Goal(text, wanted, found[name].ratio(as_exact[name], ours)))
    for top in TOPS:
        ratio = 1 / found["ours, two workers"].ratio((top, TOLERANCE), ours)
        made.append(Goal(f"{case.network}, top {top}: two workers against one process with two threads", 1.0, ratio))
    return made


def limits(case: Case, found: dict[str, Found]) -> list[str]:
    """Returns rows on our products and errors, which no other program can disturb."""
    rows = []
    for top in TOPS:
        ours, job = found["ours, in process"], (top, TOLERANCE)
        for what, most, text in (("products", MOST_PRODUCTS[top], "{:.0f}"), ("error", LARGEST_ERROR, "{:.0e}")):
            value = ours.median(job, what)
            mark = "reached" if value <= most else "**not reached**"
            rows.append(
                f"| {case.network}, top {top}: {what} | at most {text.format(most)} | {text.format(value)} | {mark} |"
            )
    return rows


def section(
    cases: list[tuple[Case, dict[str, Found]]], versions: dict[str, str], machine: list[str], seconds: float
) -> str:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [HEADING, ""]
    for text in _MANNER:
        lines += [*textwrap.wrap(text, _WIDTH, break_on_hyphens=False, break_long_words=False), ""]
    lines += [f"{today}. It took {seconds:.0f} s.", "", *[f"- {line}" for line in machine]]
    lines += ["- peers: " + ", ".join(f"{name} {number}" for name, number in versions.items()), ""]
    lines += ["| | goal | found | |", "|---|---|---|---|"]
    for case, found in cases:
        lines += [
            f"| {item.text} | {item.wanted:g} x | {item.found:.2f} x | {item.mark} |" for item in goals(case, found)
        ]
        lines += limits(case, found)
    for case, found in cases:
        lines += ["", f"**{case.network}, {case.samples} samples**", ""]
        header = [f"top {top}: {what}" for top in TOPS for what in _COLUMNS]
        lines += [f"| | {' | '.join(header)} |", "|---" * (1 + len(header)) + "|"]
        ours = found["ours, in process"]
        for item in found.values():
            for tolerance in sorted({tolerance for _, tolerance in item.jobs}, reverse=True):
                name = item.name if tolerance == TOLERANCE else f"{item.name}, tol {tolerance:.0e}"
                lines.append(f"| {name} | {' | '.join(item.cells(tolerance, ours))} |")
        lines += ["", "; ".join(f"{item.name}: {item.way}" for item in found.values()) + "."]
    return "\n".join(lines) + "\n"


def put_in(page: str, text: str) -> str:
    """Returns the page with the section in place of the one that is there, or before our own parts."""
    own = re.compile(rf"^{re.escape(HEADING)}$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if own.search(page):
        return own.sub(lambda _: f"{text}\n", page, count=1).rstrip("\n") + "\n"
    before, mark, after = page.partition(f"{_NEXT}\n")
    return (f"{before}{text}\n{mark}{after}" if mark else f"{page.rstrip()}\n\n{text}").rstrip("\n") + "\n"


def _terminal(item: Found) -> str:
    return "; ".join(
        f"top {job[0]} (tol {job[1]:.0e}) {item.median(job, 'products'):.0f} products, "
        f"{item.median(job, 'seconds'):.2f} s ({item.median(job, 'processor'):.2f} s of the processor, "
        f"{len(turns)} turns), "
        f"error {item.median(job, 'error'):.0e}"
        for job, turns in item.jobs.items()
    )


def main(python: Path, output: Path | None, *, quick: bool, only: str | None) -> None:
    load, start = [busy_line("before")], time.perf_counter()
    found, versions = [], {}
    with tempfile.TemporaryDirectory(prefix="landscape-bench-") as name:
        for case in [case for case in (QUICK if quick else CASES) if only in (None, case.network)]:
            results, numbers = compare(case, python, Path(name))
            found.append((case, results))
            versions |= numbers
    seconds = time.perf_counter() - start
    machine = [machine_line(), *load, busy_line("after"), f"PyTorch {torch.__version__}"]
    if threads := os.environ.get("OMP_NUM_THREADS"):
        machine.append(f"OMP_NUM_THREADS={threads}")
    text = section(found, versions, machine, seconds)
    print(f"\n{text}")
    if output is not None:
        output.write_text(put_in(output.read_text("utf-8") if output.exists() else "", text), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="the Python of the peers' environment")
    parser.add_argument("--output", type=Path, help="the page whose section is replaced; none is written without it")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to see that everything runs")
    parser.add_argument("--only", help="the one network to measure, such as LeNet-5")
    arguments = parser.parse_args()
    main(arguments.peers, arguments.output, quick=arguments.quick, only=arguments.only)
