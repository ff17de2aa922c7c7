"""What to type next: the line after a measurement, and commands for what a run directory holds and lacks."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from collectors.files.places import is_url

from ..facts import sample_counts
from ..planes.plane_file import identity_of_directions
from ..record.checks import PointStatus
from ..record.option_kinds import RunCurvatureOptions
from ..record.options import options_of
from ..sampling.grids import is_even
from ..sampling.sampling import share_of
from .run_facts import FoundFile, RunContents

PLACEHOLDER = "module:callback_fn"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_FEWEST = 3  # checkpoints of a plane
_WITH_CURVATURE = ("torch", "jax", "keras")
_OF_CURVATURE = ("top", "bottom", "matrix", "trace_probes", "tolerance", "max_products")
_OF_SAMPLES = ("seed", "samples", "seed_each_point")


def picture_beside(file: object) -> Path:
    """Returns where the picture of a file goes: beside it, or, where that is behind a URL, into this folder."""
    path = Path(str(file))
    return Path(f"{path.stem}.png") if is_url(str(file)) else path.with_suffix(".png")


def show_where_to_look(measured: Sequence[Any]) -> None:
    """Says on standard error, which no program reads, how to look at the files of what was measured."""
    for item in measured:
        if item.path is not None and has_values(item):
            typer.echo(f"Look at it: {_typed('plot', item.path)}", err=True)


def has_values(measured: Any) -> bool:
    return bool((measured.statuses[0] == PointStatus.MEASURED).any())


def steps_of(contents: RunContents, flags: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns what can be done with a run: the purpose, and the command; ``flags`` are those of ``curvature``."""
    from ..report.measuring import DEFAULT_STEM

    function = next(_functions(contents.files), PLACEHOLDER)
    # A name that moves a terminal's cursor is shown above, without what it does.
    files = [file for file in contents.files if file.typed.isprintable()]
    shares = [file for file in files if _share_of(file)]
    files = [file for file in files if file not in shares]
    steps = [step for file in files for step in _continuing(file, contents, function, flags)]
    steps += _joining(shares, [file.typed for file in files])
    asked = (contents.typed, "--function", function)
    if lacking := _lacking(contents):
        # What is there may be on another grid, or of other samples, and would be refused.
        there = [f"--no-{name}" for name in ("train", "result") if name not in lacking]
        steps.append(("find out whether that is the loss that was trained", _typed("check", *asked)))
        steps.append(("measure its landscapes", _typed("run", *asked, *there)))
    shown = [file for file in files if file.is_measured]
    planes = [file for file in shown if file.word == "landscape"]
    steps += [("look at a landscape in the browser", _typed("plot", file.typed)) for file in planes]
    drawn = [*planes[:1], *(file for file in shown if file.word != "landscape")]
    steps += [("draw a picture", _typed("plot", file.typed, "-o", picture_beside(file.typed))) for file in drawn]
    has_curvature = any(file.word == "curvature" for file in files)
    if planes and not has_curvature and contents.run.metadata.framework in _WITH_CURVATURE:
        steps.append(("measure how sharp it is", _typed("curvature", *asked)))
    if len(contents.run.present_numbers) >= _FEWEST:
        begun = next((file for file in files if file.header and file.place.name.startswith(f"{DEFAULT_STEM}_")), None)
        over = [] if begun is None else _of_samples(begun, contents, flags)
        steps.append(("have it all in words, on one page", _typed("report", *asked, *over)))
    return steps


def steps_text(contents: RunContents, steps: Sequence[tuple[str, str]]) -> str:
    """Returns the steps as text: each purpose once, with its commands below, each on a line of its own."""
    lines: list[str] = []
    for purpose in dict.fromkeys(purpose for purpose, _ in steps):
        lines += [f"To {purpose}:", *(f"  {command}" for other, command in steps if other == purpose)]
    if any(PLACEHOLDER in command for _, command in steps):
        lines.append(f"{PLACEHOLDER} is your function: it returns the loss, the network, the data and the metrics.")
    for function in dict.fromkeys(_functions(contents.files)):
        if any(function in command for _, command in steps) and not _is_found(function):
            module = function.partition(":")[0]
            lines.append(f"What has --function {function} runs in the folder where the module {module} lies.")
    if len(contents.run.present_numbers) < _FEWEST:
        lines.append(
            f"A plane needs three checkpoints, but {len(contents.run.present_numbers)} are there; train longer."
        )
    return "\n".join(lines)


def _functions(files: Iterable[FoundFile]) -> Iterator[str]:
    """Yields the functions with which files were measured, as they were typed."""
    for file in files:
        text = None if file.header is None else file.header.attributes.get("function")
        # The text comes from a file, which somebody else may have written.
        if isinstance(text, str) and _FUNCTION.fullmatch(text):
            yield text


def _lacking(contents: RunContents) -> list[str]:
    """Returns which landscapes that the settings ask for have no file yet: "train", "result"."""
    wanted = contents.run.settings
    intervals = [contents.run.present(interval) for interval in wanted.intervals]
    usable = [interval for interval in intervals if len(interval) >= _FEWEST]
    known = [file.header.attributes for file in contents.files if file.header is not None and file.word == "landscape"]
    paths = [said.get("intervals") for said in known if said.get("decomposition") == "pca"]
    ends = [said.get("intervals") for said in known if said.get("decomposition") != "pca"]
    lacks = {
        "train": any([interval] not in paths for interval in usable),
        "result": bool(usable) and [usable[-1][-1:]] not in ends,
    }
    return [name for name, is_lacking in lacks.items() if is_lacking and getattr(wanted.create_landscape, name)]


def _share_of(file: FoundFile) -> str:
    """Returns which share of a landscape a file has, such as "2of4"; "" where it is a landscape of its own."""
    share = "" if file.header is None else share_of(file.header.attributes)
    return share if file.place.stem.endswith(f"_{share}") else ""


def _joining(shares: Sequence[FoundFile], others: Sequence[str]) -> Iterator[tuple[str, str]]:
    wholes = [f"{file.typed.removesuffix(f'_{_share_of(file)}.h5')}.h5" for file in shares]
    for whole in dict.fromkeys(wholes):
        parts = [file.typed for file, other in zip(shares, wholes, strict=True) if other == whole]
        if whole not in others and len(parts) > 1:
            # What is behind a URL is joined in this folder.
            output = Path(whole).name if is_url(whole) else whole
            yield "join the shares of a landscape, when their jobs have ended", _typed("merge", *parts, "-o", output)


def _continuing(
    file: FoundFile, contents: RunContents, function: str, flags: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    header = file.header
    if header is None or header.complete:
        return
    function = next(_functions([file]), function)
    if file.being_measured:
        yield "watch what is being measured", _typed("plot", file.typed, "--watch")
    elif file.word == "curvature":
        if (typed := _curvature_options(file, contents, flags)) is not None:
            yield "continue what is not complete", _typed("curvature", contents.typed, "--function", function, *typed)
    elif file.word == "landscape" and not share_of(header.attributes) and _has_its_plane(file):
        axes = [np.array(axis) for axis in header.axes]
        # On the grid that it has; everything else, the file says.
        size = "x".join(map(str, dict.fromkeys(reversed(header.shape))))
        if all(len(axis) > 1 and is_even(axis) for axis in axes):
            command = _typed("evaluate", file.typed, "--size", size, "--function", function)
            yield "continue what is not complete", command


def _has_its_plane(file: FoundFile) -> bool:
    """Returns whether the plane of a landscape can be made again, from the run or from the file beside it."""
    assert file.header is not None
    said = file.header.attributes
    identity = said.get("identity")
    if isinstance(identity, Mapping) and identity.get("groups") and said.get("groups") != "target":
        return False  # a function made the groups, which no file holds
    plane = identity.get("plane") if isinstance(identity, Mapping) else None
    is_of_run = "intervals" in said and said.get("decomposition") in ("pca", "random")
    return is_of_run or (plane is not None and identity_of_directions(file.place) == plane)


def _curvature_options(file: FoundFile, contents: RunContents, flags: Mapping[str, str]) -> list[object] | None:
    """Returns what was typed for a curvature file, where it differs from the default; None where nothing names it."""
    from ..curvature.data import curvature_file, vectors_place

    assert file.header is not None
    said = file.header.attributes
    numbers = list(file.header.numbers)
    ending = curvature_file("", numbers, str(said.get("matrix"))) if numbers else ""
    if not (ending and file.place.name.endswith(ending)):
        return None
    typed = [*_words(said, _OF_CURVATURE, flags), *_of_samples(file, contents, flags)]
    identity = said.get("identity")
    steps = identity.get("density_steps") if isinstance(identity, Mapping) else None
    probes = said.get("density_probes")
    if isinstance(probes, int) and isinstance(steps, int) and probes:
        typed += [flags["density"], f"{probes}x{steps}"]
    if numbers != contents.run.present_numbers:
        typed += [flags["numbers"], ",".join(map(str, numbers))]
    stem = file.place.name.removesuffix(ending)
    if any(vectors_place(file.place, number).exists() for number in numbers):
        typed.append(flags["keep_vectors"])
    return [*typed, *([] if stem == "curvature" else [flags["name"], stem])]


def _of_samples(file: FoundFile, contents: RunContents, flags: Mapping[str, str]) -> list[object]:
    """Returns what was typed for the samples of a file, where it differs from the default or the run's settings."""
    assert file.header is not None
    typed = _words(file.header.attributes, _OF_SAMPLES, flags)
    counts = sample_counts(file.header.attributes)
    named = ",".join(f"{name}={count}" if name else str(count) for name, count in counts.items())
    if counts and named.isprintable() and contents.run.settings.num_samples not in (counts, counts.get("")):
        typed += [flags["num_samples"], named]
    return typed


def _words(attributes: Mapping[str, Any], names: Iterable[str], flags: Mapping[str, str]) -> list[object]:
    table = options_of(RunCurvatureOptions)
    typed: list[object] = []
    for name in names:
        value = attributes.get(name)
        with contextlib.suppress(TypeError, ValueError):  # of a damaged file, or one that somebody made up
            if value is not None and table[name].checked(flags[name], value) != table[name].default:
                typed += [flags[name]] if value is True else [flags[name], value]
    return typed


def _is_found(function: str) -> bool:
    """Returns whether the function's module is in the working directory or installed; nothing is imported."""
    top = function.partition(":")[0].partition(".")[0]
    here = Path.cwd() / top
    return here.with_suffix(".py").is_file() or here.is_dir() or importlib.util.find_spec(top) is not None


def _typed(*words: object) -> str:
    # A program that no folder of PATH has is called as it was now.
    is_found = Path(sys.argv[0]).name != "landscape" or shutil.which("landscape")
    return shlex.join(["landscape" if is_found else sys.argv[0], *map(str, words)])
