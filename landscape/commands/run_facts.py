"""What files and run directories hold, in words and as JSON for programs (``landscape info``)."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath, is_url
from collectors.run_directory import RunDirectory

from .. import figures
from ..facts import as_lines, summary_text
from ..record.checks import PointStatus
from ..record.hdf5 import COMPARISON, CURVATURE, LANDSCAPE, FileKind
from ..record.run import forecast_kept
from ..record.whole_file import Header, read_header
from ..record.writer import is_being_written
from ..sampling.sampling import share_of
from ..summary_json import as_json, summary_json

if TYPE_CHECKING:
    from ..interactive.watch import Chart

T = TypeVar("T")

RUN_SUMMARY_VERSION = 1
"""Grows when a name of ``run_json`` goes or changes its meaning; a new name alone leaves it."""

_MOST_RANGES = 12


def charts() -> dict[FileKind, Chart]:
    from ..comparison.comparison import Comparison, comparison_json, comparison_text
    from ..curvature.curvature import Curvature
    from ..curvature.facts import curvature_json, curvature_text
    from ..interactive.watch import Chart

    return {
        CURVATURE: Chart(Curvature.load, figures.plot_sharpness, curvature_text, curvature_json),
        COMPARISON: Chart(Comparison.load, figures.plot_comparison, comparison_text, comparison_json),
    }


def facts_of(kind: FileKind) -> tuple[Callable[..., Any], Callable[[Any], str], Callable[[Any], dict[str, Any]]]:
    """Returns what reads a kind of file, and what says in words and as JSON values what it holds."""
    if kind != LANDSCAPE:
        chart = charts()[kind]
        return chart.load, chart.facts, chart.json
    from ..landscape import Landscape

    return Landscape.load, summary_text, summary_json


def print_result(measure: Callable[[], T], values: Callable[[T], Any], *, dry_run: bool) -> T:
    """Prints as JSON what ``measure`` returns, or of a dry run the lines of its forecast, and nothing else."""
    with contextlib.redirect_stdout(io.StringIO()), forecast_kept() as lines:
        found = measure()
    print_facts(lambda: {"forecast": lines} if dry_run else values(found), str, as_json=True)
    return found


def print_facts(values: Callable[[], Any], text: Callable[[], str], *, as_json: bool) -> None:
    typer.echo(json.dumps(values(), indent=2, allow_nan=False) if as_json else text())


@dataclass(frozen=True)
class FoundFile:
    place: AnyPath
    typed: str  # as it can be typed: a path as the run's was given, or a URL
    header: Header | None  # None where it cannot be read
    problem: str = ""
    being_measured: bool = False  # by a process of this machine

    @property
    def word(self) -> str:
        return "unreadable" if self.header is None else self.header.kind.word

    @property
    def is_measured(self) -> bool:
        """Whether it has a value that can be shown."""
        return self.header is not None and self.header.counts[PointStatus.MEASURED] > 0


@dataclass(frozen=True)
class RunContents:
    """A run directory, and what lies in it beside the checkpoints."""

    typed: str
    run: RunDirectory
    files: Sequence[FoundFile]
    event_files: Sequence[str]

    @property
    def missing(self) -> list[int]:
        """The numbers that were asked for, or are listed, and have no checkpoint."""
        return self.run.missing(tuple(sorted(self.run.settings.numbers | self.run.metadata.files.keys())))


def read_contents(typed: str) -> RunContents:
    """Returns what is in the run directory that was typed; of files only what they say of themselves is read."""
    run = RunDirectory(typed)
    places = sorted(run.path.iterdir()) if isinstance(run.path, Path) else run.path.files()
    events = [place.name for place in places if "tfevents" in place.name]
    found = (_read(place, typed) for place in places if place.suffix == ".h5" and not place.name.startswith("."))
    return RunContents(typed, run, [file for file in found if file is not None], events)


def _read(place: AnyPath, run: str) -> FoundFile | None:
    """Returns a file of ours; None for another program's."""
    here = place if is_url(run) else Path(run) / place.name
    typed = str(here) if isinstance(place, Path) else f"{run.rstrip('/')}/{place.name}"
    try:
        header = read_header(place)
    except LandscapeError as error:
        return FoundFile(place, typed, None, str(error))
    if header is None:
        return None
    return FoundFile(place, typed, header, being_measured=isinstance(place, Path) and is_being_written(place))


def run_text(contents: RunContents) -> str:
    """Returns what a run directory holds, one fact to a line."""
    run, unit = contents.run, contents.run.settings.unit
    known, network, asked = run.metadata, run.metadata.network, run.settings
    steps = f", of {known.step_per_epoch} steps each" if unit == "epoch" and known.step_per_epoch else ""
    size = f", {network['parameters']:,} parameters" if isinstance(network.get("parameters"), int) else ""
    frozen = None if known.frozen is None else f"in {known.frozen.file}, once for all checkpoints"
    events = len(contents.event_files)
    rows = [
        ("run", f"{contents.typed}{' (imported checkpoints)' if known.imported else ''}"),
        ("network", f"{network.get('name', 'of no known name')}{size} ({known.framework})"),
        ("unit", f"{unit}s{steps}"),
        ("checkpoints", f"{len(contents.run.present_numbers)}{_counted(': ', unit, contents.run.present_numbers)}"),
        ("missing", _counted("", unit, contents.missing)),
        ("training ended at", "" if known.final_number is None else f"{unit} {known.final_number}"),
        ("frozen parameters", frozen),
        ("logged values", f"in {events} event file{'s' * (events > 1)} of TensorBoard" if events else None),
        ("asked for", None if known.imported else _asked(asked)),  # no training asked for an import's
        *((file.word, _file_text(file)) for file in contents.files),
    ]
    return as_lines([(name, text) for name, text in rows if text])


def run_json(contents: RunContents, steps: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Returns the facts as JSON values.

    Its names: ``summary_version``, ``kind`` ("run"), ``directory``, ``framework``, ``network`` (as the metadata have
    it), ``unit``, ``step_per_epoch``, ``imported``, ``trained_to`` (null where that is not known), ``checkpoints`` and
    ``missing`` (numbers), ``frozen_parameters`` (their file), ``logged_values`` (names of event files), ``asked_for``
    (``intervals``, ``landscape_size``, ``num_samples``, ``create_landscape``), ``files`` (each with ``file``, ``kind``,
    ``complete``, ``being_measured``, ``shape``, ``points``, ``decomposition``, ``function``, and ``problem`` where it
    cannot be read, all else but ``file`` being null then), and ``next`` (each with ``purpose`` and ``command``).
    """
    known, settings = contents.run.metadata, contents.run.settings
    found: dict[str, Any] = {
        "summary_version": RUN_SUMMARY_VERSION,
        "kind": "run",
        "directory": contents.typed,
        "framework": known.framework,
        "network": known.network,
        "unit": settings.unit,
        "step_per_epoch": known.step_per_epoch,
        "imported": known.imported,
        "trained_to": known.final_number,
        "checkpoints": contents.run.present_numbers,
        "missing": contents.missing,
        "frozen_parameters": None if known.frozen is None else known.frozen.file,
        "logged_values": list(contents.event_files),
        "asked_for": {
            "intervals": [list(interval) for interval in settings.intervals],
            "landscape_size": settings.landscape_size,
            "num_samples": settings.num_samples,
            "create_landscape": asdict(settings.create_landscape),
        },
        "files": [_file_json(file) for file in contents.files],
        "next": [{"purpose": purpose, "command": command} for purpose, command in steps],
    }
    plain: dict[str, Any] = as_json(found)
    return plain


def _file_json(file: FoundFile) -> dict[str, Any]:
    header = file.header
    return {
        "file": file.typed,
        "kind": header and header.kind.word,
        "complete": header and header.complete,
        "being_measured": header and file.being_measured,
        "shape": header and list(header.shape),
        "points": header and {status.name.lower(): count for status, count in header.counts.items()},
        "decomposition": header and header.attributes.get("decomposition"),
        "function": header and header.attributes.get("function"),
        "problem": file.problem or None,
    }


def _asked(settings: Any) -> str:
    kinds = {"train": "of the path", "result": "around the result"}
    wanted = [text for name, text in kinds.items() if getattr(settings.create_landscape, name)]
    intervals = "; ".join(f"{settings.unit}s {_ranges(interval)}" for interval in settings.intervals)
    samples = settings.num_samples
    count = (
        f"{samples:,}" if isinstance(samples, int) else ", ".join(f"{name} {item:,}" for name, item in samples.items())
    )
    size = settings.landscape_size
    return f"landscapes {' and '.join(wanted)}: {intervals}; {size} x {size} points, {count} samples"


def _file_text(file: FoundFile) -> str:
    header = file.header
    if header is None:
        return f"{file.place.name}: {file.problem}"
    shape = " x ".join(map(str, reversed(header.shape)))
    unit = {"curvature": str(header.attributes.get("unit", "set")), "comparison": "line"}.get(file.word, "point")
    counts = [f"{count:,} {status.name.lower()}" for status, count in header.counts.items() if count]
    # What is measured comes first, as everybody asks for that.
    counts.sort(key=lambda text: not text.endswith("measured"))
    kind = header.attributes.get("decomposition") if file.word == "landscape" else None
    share = share_of(header.attributes)
    unfinished = f"the share {share} of a landscape" if share else "not complete"
    state = "being measured now" if file.being_measured else "complete" if header.complete else unfinished
    about = ", ".join([*([str(kind)] if kind else []), f"{shape} {unit}{'' if header.shape == (1,) else 's'}", *counts])
    return f"{file.place.name}: {about}; {state}"


def _counted(before: str, unit: str, numbers: Sequence[int]) -> str:
    return f"{before}{unit}{'s' * (len(numbers) > 1)} {_ranges(numbers)}" if numbers else ""


def _ranges(numbers: Sequence[int]) -> str:
    """Returns numbers as text, three and more at equal distances as a range."""
    texts, start = [], 0
    while start < len(numbers):
        end = start + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == numbers[start + 1] - numbers[start]:
            end += 1
        if end - start < 3:
            end = start + 1
            texts.append(str(numbers[start]))
        else:
            distance = numbers[start + 1] - numbers[start]
            every = f" (every {distance})" if distance > 1 else ""
            texts.append(f"{numbers[start]} to {numbers[end - 1]}{every}")
        start = end
    shown = texts if len(texts) <= _MOST_RANGES else [*texts[: _MOST_RANGES - 2], "...", texts[-1]]
    return ", ".join(shown)
