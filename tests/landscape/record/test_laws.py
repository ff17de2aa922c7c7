"""What every experiment promises, whatever it measures: one suite over all of them."""

import itertools
import json
import re
import resource
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from small_curvature import other_samples, small, train_small
from torch import nn

from landscape import MeasurementPlan, SummaryLandscape, evaluate, random_plane
from landscape.commands.run_facts import charts
from landscape.errors import (
    LandscapeError,
    LandscapeFormatError,
    LandscapeIdentityError,
    LandscapeLockedError,
    LandscapeWriteError,
)
from landscape.functions import barrier, compare, connect, measure_curvature, refine
from landscape.interactive.watch import WatchServer
from landscape.paths import fitting
from landscape.paths.fitting import CURVE_FILE
from landscape.record import driver
from landscape.record.hdf5 import COMPARISON, CURVATURE, KINDS, LANDSCAPE, FileKind
from landscape.record.run import Run
from landscape.record.writer import FileWriter, lock_landscape
from workers.pools.in_process import InProcessPool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.room(
        "landscape.comparison", "landscape.curvature", "landscape.grid", "landscape.paths", "landscape.record"
    ),
    pytest.mark.filterwarnings("ignore:the loss is not finite, or was not measured"),
]

QUIET = {"device_ids": [0], "progress": False, "plan": MeasurementPlan(batch_size=24)}
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(24) % 3


def network(seed):
    torch.manual_seed(seed)
    return nn.Linear(4, 3)


def callback():
    return nn.CrossEntropyLoss(), network(0), (INPUTS, TARGETS), {}


def other_callback():
    return nn.CrossEntropyLoss(), network(0), (INPUTS + 1, TARGETS), {}


def never_called():
    raise AssertionError


@dataclass(frozen=True)
class Case:
    """An experiment."""

    file: str  # that it writes into a folder
    kind: FileKind
    measure: Callable[..., Any]  # measures it there, of (folder, callback_fn, options), for what the user holds
    stop: int  # after how many looks at the clock part of it is measured
    callbacks: tuple[Callable[[], Any], Callable[[], Any]] = (callback, other_callback)
    forecast: str = ""  # what a dry run says; of an adaptive grid it says so each time

    def __call__(self, folder, *, other=False, **options):
        folder.mkdir(exist_ok=True)
        found = self.measure(folder, self.callbacks[other], **{**QUIET, **options})
        return getattr(found, "landscape", found)

    @property
    def unbuilt(self):
        """The same, to be refused before the network is built; a way between two networks asks it for its names."""
        return self if self.measure is line else replace(self, callbacks=(never_called,) * 2)

    def bytes(self, folder):
        return (folder / self.file).read_bytes()


def grid(folder, callback_fn, **options):
    return evaluate(random_plane(network(0), seed=0), callback_fn, output=folder / "grid.h5", size=5, **options)


def line(folder, callback_fn, **options):
    return barrier(network(0), network(1), callback_fn, 7, output=folder / "line.h5", **options)


def refined(folder, callback_fn, **options):
    plane, base = random_plane(network(0), seed=0), folder.parent / "base.h5"
    if not base.exists():
        evaluate(plane, callback, output=base, size=3, **QUIET)
    return refine(base, callback_fn, factor=2, plane=plane, output=folder / "fine.h5", **options)


def run_beside(folder):
    run = folder.parent / "run"
    if not run.exists():
        train_small(run)
    return SummaryLandscape(run)


def curvature(folder, callback_fn, **options):
    how = {**options, "plan": MeasurementPlan(batch_size=40), "top": 1}
    return run_beside(folder).gen_curvature(callback_fn, output=folder, trace_probes=2, **how)


def of_run(folder, callback_fn, **options):
    what = {"landscape_size": 3, "create_landscape": {"train": False}}
    return run_beside(folder).gen_landscapes_with_multi_process(callback_fn, what, output=folder, **options)


def of_weights(folder, callback_fn, **options):
    how = {**options, "plan": MeasurementPlan(batch_size=40), "top": 1}
    return measure_curvature(callback_fn()[1], callback_fn, output=folder / "curvature.h5", **how)


def comparison(folder, callback_fn, **options):
    recipes = {name: [network(first + seed) for seed in range(3)] for name, first in (("a", 0), ("b", 3))}
    return compare(recipes, callback_fn, directions=4, points=3, output=folder / "compared.h5", **options)


def curve(folder, callback_fn, **options):
    return connect(network(0), network(1), callback_fn, steps=6, output=folder / "curve.safetensors", **options)


RECORDS = {
    "grid": Case("grid.h5", LANDSCAPE, grid, 12, forecast="grid.h5: 25 points x "),
    "adaptive grid": Case(
        "grid.h5", LANDSCAPE, lambda *where, **how: grid(*where, sampling="adaptive", tolerance=0.2, **how), 12
    ),
    "line": Case("line.h5", LANDSCAPE, line, 6, forecast="line.h5: "),
    "refined": Case("fine.h5", LANDSCAPE, refined, 8, forecast="fine.h5: 16 points x "),
    "curvature": Case("curvature_0-3.h5", CURVATURE, curvature, 2, (small, other_samples),
        "curvature_0-3.h5: 4 epochs: 32 products x "),
    "comparison": Case("compared.h5", COMPARISON, comparison, 6,
        forecast="compared.h5: 6 networks x 4 lines: 54 points x "),
}  # fmt: skip
ALL = {
    **RECORDS,
    "curve": Case("curve.safetensors", CURVE_FILE.kind, curve, 3, forecast="curve.safetensors: 6 steps: 6 steps x "),
}
FORECAST = {
    **{name: case for name, case in ALL.items() if case.forecast},
    "curvature at weights": Case(
        "curvature.h5", CURVATURE, of_weights, 2, (small, other_samples), "curvature.h5: 1 checkpoint: "
    ),
    "landscape of a run": Case(
        "landscape_3_random.h5", LANDSCAPE, of_run, 12, (small, other_samples), "landscape_3_random.h5: 9 points x "
    ),
}
REPLACED = {name: case for name, case in ALL.items() if name != "refined"}


def over(cases):
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


@pytest.fixture(autouse=True)
def fixed(monkeypatch):
    """Equal files have equal bytes, and a curve is written after each step."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(fitting, "KEEP_SECONDS", 0.0)


@pytest.fixture
def clock(monkeypatch):
    """A second is over whenever somebody looks at the clock."""
    looks = itertools.count()
    monkeypatch.setattr(Run, "spent", property(lambda _run: float(next(looks))))


@pytest.fixture(scope="module")
def measured():
    """The folders in which each experiment was measured that nothing disturbed."""
    return {}


@pytest.fixture
def whole(request, measured, tmp_path_factory, tmp_path):
    """The file of an experiment that nothing disturbed, in a folder of this test, with what lies beside it."""
    case = request.getfixturevalue("case")
    if case not in measured:
        measured[case] = tmp_path_factory.mktemp("measured")
        case(measured[case] / "whole")
    shutil.copytree(measured[case], tmp_path, dirs_exist_ok=True)
    return case.bytes(tmp_path / "whole")


@over(ALL)
@pytest.mark.usefixtures("clock")
def test_a_budget_ends_it_and_the_same_call_goes_on_to_the_same_bytes(case, whole, tmp_path):
    with pytest.warns(UserWarning, match=r"the budget of .* ended .* The same call continues from here\.") as caught:
        half = case(tmp_path / "half", budget=case.stop)
    assert {item.filename for item in caught if "the budget of" in str(item.message)} == {__file__}, "the user's line"
    assert case.bytes(tmp_path / "half") != whole
    assert (tmp_path / "half" / case.file).exists()
    again = case(tmp_path / "half")
    assert case.bytes(tmp_path / "half") == whole
    assert half.report.measured > 0
    assert again.report.resumed > 0
    assert case(tmp_path / "half").report.measured <= 1, "the origin of a grid is compared"


@over(ALL)
@pytest.mark.filterwarnings("ignore:the loss was not measured at one of the two networks")
def test_a_budget_in_which_nothing_new_is_measured_is_called_too_small(case, tmp_path):
    goes_on = case.file == "curve.safetensors"  # by a step in each call
    for _ in range(2):
        with pytest.warns(UserWarning, match="the budget of") as caught:
            case(tmp_path / "none", budget=1e-6)
        (text,) = (str(item.message) for item in caught if "the budget of" in str(item.message))
        assert ("No time was left to measure anything new" in text) != goes_on


@over(ALL)
def test_a_budget_is_no_matter_where_all_is_measured(case, whole, tmp_path):
    case(tmp_path / "whole", budget=1e-6)
    assert case.bytes(tmp_path / "whole") == whole


class Snapshots(FileWriter):
    """Writes after each change, and keeps what a kill would leave."""

    found: list[bytes]

    def update(self, change):
        found = super().update(change)
        self._write()
        self.found.append(Path(self._path).read_bytes())
        return found


@over(ALL)
def test_a_kill_at_any_write_leaves_a_whole_file_that_is_continued(case, whole, tmp_path, monkeypatch):
    found: list[bytes] = []
    with monkeypatch.context() as patch:
        patch.setattr(Snapshots, "found", found, raising=False)
        patch.setattr(driver, "FileWriter", Snapshots)
        case(tmp_path / "watched")
    assert len(found) > 3
    for number in (0, len(found) // 2, len(found) - 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / case.file).write_bytes(found[number])
        case(folder)
        assert case.bytes(folder) == whole, f"after write {number}"


@over(RECORDS)
def test_what_failed_is_kept_with_its_reason_and_measured_again(case, whole, tmp_path, monkeypatch):
    def failing(run):
        def one_fails(self, tasks):
            for number, result in enumerate(run(self, tasks)):
                yield replace(result, values=None, error="it failed") if number == 1 else result

        return one_fails

    with monkeypatch.context() as patch:
        for name in ("run", "run_curvature"):
            patch.setattr(InProcessPool, name, failing(getattr(InProcessPool, name)))
        with pytest.warns(UserWarning, match=r"failed|could not be measured|left out"):
            failed = case(tmp_path / "failed")
    assert any("it failed" in text for text in failed.errors.values())
    again = case(tmp_path / "failed")
    assert not again.errors
    assert again.complete
    if case.file != "grid.h5":  # of an adaptive grid the points may be others
        assert case.bytes(tmp_path / "failed") == whole


@over(ALL)
def test_another_experiment_is_refused_and_its_file_stays(case, whole, tmp_path):
    file = tmp_path / "whole" / case.file
    with pytest.raises(LandscapeIdentityError, match=r"holds another experiment; it was left as it is\. These differ"):
        case(tmp_path / "whole", other=True)
    assert file.read_bytes() == whole
    assert [item.name for item in file.parent.iterdir()] == [case.file]


@over(REPLACED)
def test_overwriting_replaces_another_experiment(case, whole, tmp_path):
    case(tmp_path / "other", other=True)
    case(tmp_path / "whole", other=True, overwrite=True)
    assert case.bytes(tmp_path / "whole") == case.bytes(tmp_path / "other") != whole


@over(ALL)
def test_a_damaged_file_is_refused_and_stays(case, whole, tmp_path):
    file = tmp_path / "whole" / case.file
    damaged = whole[: len(whole) // 2]
    file.write_bytes(damaged)
    with pytest.raises(LandscapeError, match=r"is damaged|truncated|bytes"):
        case(tmp_path / "whole")
    assert file.read_bytes() == damaged
    if case in REPLACED.values():
        case(tmp_path / "whole", overwrite=True)
        assert file.read_bytes() == whole


@pytest.fixture
def full(monkeypatch):
    """Lets a call make no file longer than 1 kB, as on a disk that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@over(ALL)
def test_a_full_disk_ends_it_and_what_was_there_stays(case, whole, tmp_path, full):
    folder = tmp_path / "whole"
    full()
    with pytest.raises(LandscapeWriteError, match=r"cannot be written: .* untouched\. Free some space"):
        case(folder, **({"overwrite": True} if case in REPLACED.values() else {}))
    assert case.bytes(folder) == whole
    assert [item.name for item in folder.iterdir()] == [case.file]


@over(ALL)
def test_a_file_has_one_writer(case, whole, tmp_path):
    file = tmp_path / "whole" / case.file
    with lock_landscape(file, case.kind), pytest.raises(LandscapeLockedError, match="is being written by"):
        case.unbuilt(tmp_path / "whole")
    assert file.read_bytes() == whole


@over(RECORDS)
def test_a_file_of_another_kind_is_refused_and_stays(case, tmp_path):
    folder, (other, *_) = tmp_path / "taken", (kind for kind in KINDS if kind is not case.kind)
    folder.mkdir()
    with h5py.File(folder / case.file, "w") as file:
        file.attrs["format"] = np.bytes_(other.format)
    before = case.bytes(folder)
    with pytest.raises(LandscapeFormatError, match=f"is a {other.word} file, which {re.escape(other.reader)} reads"):
        case.unbuilt(folder)
    if case in REPLACED.values():
        with pytest.raises(LandscapeWriteError, match=f"is no {case.kind.word} file and was left as it is"):
            case.unbuilt(folder, overwrite=True)
    assert case.bytes(folder) == before


@over(ALL)
def test_the_plan_of_the_file_is_used_again(case, whole, tmp_path):
    case(tmp_path / "whole", plan=None)
    assert case.bytes(tmp_path / "whole") == whole


@over(FORECAST)
def test_a_dry_run_says_what_it_would_cost_and_writes_nothing(case, tmp_path, capsys):
    folder = tmp_path / "dry"
    assert not case(folder, dry_run=True)
    assert list(folder.iterdir()) == []
    said = capsys.readouterr().out
    assert said.startswith("dry run: reads the data set")
    assert f"\n{case.forecast}" in said
    case(folder)
    before = case.bytes(folder)
    assert not case(folder, dry_run=True)
    assert case.bytes(folder) == before
    assert re.search("nothing is left to measure|: 0 points x ", capsys.readouterr().out)


@over(RECORDS)
@pytest.mark.usefixtures("clock")
def test_it_names_the_command_that_watches_it(case, tmp_path, capsys):
    file = tmp_path / "half" / case.file
    with pytest.warns(UserWarning, match="the budget of"):
        case(tmp_path / "half", budget=case.stop, progress=True)
    assert f": watch it: landscape plot --watch {file}\n" in capsys.readouterr().err
    with WatchServer(file, charts=charts()) as server:
        progress = json.loads(server.progress(""))
        assert progress["phase"] == "stopped"
        assert 0 < progress["done"] < progress["total"]
        page = server.page().decode()
        assert (progress["reload"], progress["content"] is None) == (case.kind is not LANDSCAPE,) * 2
        assert ('http-equiv="refresh"' in page) == progress["reload"]
        assert case.kind is LANDSCAPE or progress["text"] in page
        case(tmp_path / "half")
        assert json.loads(server.progress(""))["phase"] == "complete"
        assert case.kind is LANDSCAPE or "data:image/png" in server.page().decode()
        assert 'http-equiv="refresh"' not in server.page().decode()
