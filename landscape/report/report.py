"""Report: what a run can tell, as answers in words, and what is not known."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collectors.files.local_files import begins_as_ours
from collectors.files.places import AnyPath, write_to
from collectors.run_directory.directory import RunDirectory
from workers.metric_names import other_datasets

from ..caption_sentences import capital
from ..curvature.facts import failures
from ..errors import LandscapeWriteError
from ..record.checks import PointStatus
from ..record.option_kinds import ReportOptions
from ..record.options import OPTIONS, with_defaults
from ..replacing import first_bytes
from ..summary_json import as_json
from .end import answer_end
from .flatness import RECIPES, answer_flatness, answer_recipes
from .measuring import DEFAULT_STEM, Findings, MeasuresRun, ReportMeasuring
from .page import GENERATOR, report_html, title_of
from .path import GAP, PATH, answer_gap, answer_path
from .statement import Answer, Unknown

REPORT_VERSION = 1  # grows when a name of ``Report.to_json`` goes or changes its meaning; a new name alone leaves it
_HEAD = 4096  # bytes of a page, in which its title ends


@dataclass(frozen=True)
class Report:
    """What a run can tell.

    Attributes:
        run: the run directory.
        answers: to each question, with the sentences they rest on.
        unknown: what is not known, and what it would cost to know it, in sentences.
        page: the page that shows all of it, with pictures.
    """

    run: AnyPath
    answers: tuple[Answer, ...]
    unknown: tuple[str, ...]
    page: AnyPath

    def __str__(self) -> str:
        lines = [f"{self.run}"]
        for answer in self.answers:
            lines += ["", answer.question, _wrapped(f"{capital(answer.verdict)}.", "  ")]
            lines += [_wrapped(item.text) for item in answer.statements]
        lines += ["", "What is not known", *(_wrapped(text) for text in self.unknown)]
        return "\n".join([*lines, "", f"With pictures: {self.page}"])

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON values; null stands for NaN and infinities.

        Its names: ``report_version``, ``run``, ``page``, ``unknown``, and ``answers``: of each its ``name``,
        ``question``, ``verdict``, whether it is ``known``, and ``statements``: ``text``, ``picture`` and ``number``
        (the attributes of ``Number``).
        """
        found: dict[str, Any] = {"report_version": REPORT_VERSION, "run": str(self.run), "page": str(self.page)}
        return {**found, **as_json({"answers": list(map(asdict, self.answers)), "unknown": self.unknown})}


def make_report(
    measures: MeasuresRun,
    run: RunDirectory,
    callback_fn: Callable[[], Any],
    recipes: Mapping[str, Any] | None,
    folder: AnyPath,
    options: Mapping[str, Any],
) -> Report | None:
    chosen = with_defaults("SummaryLandscape.report", ReportOptions, options)
    page = folder / f"{chosen['name'] or DEFAULT_STEM}.html"
    if page.is_dir():
        raise LandscapeWriteError(f"{page} is a directory, but the page of the report goes there. Give another name=.")
    there = first_bytes(page, _HEAD)
    if there and not (begins_as_ours(page.name, there) and GENERATOR.encode() in there[:512]):
        raise LandscapeWriteError(
            f"{page} is there and is no report; it was left as it is. Move it away, or give another name=."
        )
    # A run that was renamed still replaces the report in its own folder.
    is_own = not there or folder == run.path or f"<title>{title_of(run.path.name)}<".encode() in there
    if not (is_own or chosen["overwrite"]):
        raise LandscapeWriteError(
            f"{page} is the report of another run; it was left as it is. Give another name=, or overwrite=True."
        )
    findings = ReportMeasuring(measures, run, callback_fn, folder, chosen).findings(recipes)
    if findings is None:
        return None
    unknown = _unknown(findings, run.path, folder, chosen)
    report = Report(run.path, tuple(answers_of(findings)), tuple(unknown), page)
    text = report_html(report.run.name, report.answers, report.unknown, findings).encode()
    write_to(page, text)
    return report


_QUESTIONS = {
    PATH: ("Where did the training go, and how much of that does the plane show?", answer_path),
    "end": ("Is the end a minimum, a saddle, or is the loss still falling?", answer_end),
    "flatness": ("How flat is the end?", answer_flatness),
    GAP: ("How large is the gap between training and test?", answer_gap),
    RECIPES: ("Which recipe ends flatter?", answer_recipes),
}


def answers_of(findings: Findings) -> list[Answer]:
    """Returns the answers, each of which is known where any of its verdicts is."""
    answers = []
    for name, (question, answer) in _QUESTIONS.items():
        if name != RECIPES or findings.compares:
            verdicts, statements = answer(findings)
            is_known = not all(isinstance(text, Unknown) for text in verdicts)
            answers.append(Answer(name, question, "; ".join(verdicts), is_known, tuple(statements)))
    return answers


_PARTS = {
    "diverged": "The training diverged",
    "left_out": "Checkpoints that were left out",
    "path": "The plane of the path",
    "around": "The plane around the end",
    "end": "The curvature at the end",
    "along": "The sharpness along the run",
    "bottom": "The curvature of each sample along the lowest eigenvector",
    "comparison": "The comparison of the recipes",
}


def _unknown(findings: Findings, run: AnyPath, folder: AnyPath, chosen: Mapping[str, Any]) -> list[str]:
    """Returns what no answer says, what it would cost, and what to type to know it."""
    path, around, curvature = findings.path, findings.around, findings.curvature
    named = (item.attributes.get("function") for item in (path, around, curvature) if item is not None)
    function = next((name for name in named if name), "module:callback_fn")

    def command(name: str, *words: str, seed: int = chosen["seed"]) -> str:
        options = [*_as_typed(chosen), *(["--output", str(folder)] if folder != run else [])]
        options += ["--seed", str(seed)] if seed else []
        return shlex.join(["landscape", name, str(run), "--function", str(function), *options, *words])

    texts = []
    for landscape, what in ((path, "the plane of the path"), (around, "the plane around the end")):
        if landscape is None:
            continue
        counts, size = landscape.status_counts, landscape.status.size
        if left := counts[PointStatus.PENDING]:
            texts.append(
                f"{left} of {size} points of {what} are not measured, because the budget ended. The same call measures "
                f"them, which costs at most {left} losses."
            )
        elif not landscape.complete and (left := counts[PointStatus.INTERPOLATED]):
            texts.append(
                f"{left} of {size} points of {what} are only interpolated, because the budget ended. The same call "
                "measures more."
            )
    found = None if path is None else path.checkpoints
    if found is not None and (left := int((found.status == PointStatus.PENDING).sum())):
        of = f"The losses of {left} of {len(found.status)} checkpoints"
        texts.append(f"{of}: the budget ended before. The same call measures them.")
    texts += [f"{what}: {findings.missing[name]}." for name, what in _PARTS.items() if name in findings.missing]
    if (compared := findings.comparison) is not None:
        if left := compared.status_counts[PointStatus.PENDING]:
            texts.append(f"{left} lines of the comparison: the budget ended before. The same call measures them.")
        out = compared.left_out.items()
        texts += [f"Left out of the comparison, {name}: {why.removesuffix('.')}." for name, why in out]
    if (along := findings.along) is not None:
        if left := along.status_counts[PointStatus.PENDING]:
            texts.append(f"The sharpness at {left} of {len(along.number)} checkpoints: the budget ended before.")
        texts += [f"The sharpness along the run: {text.removesuffix('.')}." for text in failures(along)]
    if curvature is not None and (left := curvature.weights - curvature.eigenvalues.shape[1]) > 0:
        end = str(curvature.number[0])
        passes = int(curvature.forward_passes[0] / max(int(curvature.products[0]), 1) * 160)
        texts.append(
            f"{left:,} of the {curvature.weights:,} eigenvalues: the {curvature.top} largest ones and the lowest one "
            f"were measured. The density of all of them costs about as much as {passes} losses of all samples: "
            + command("curvature", "--numbers", end, "--top", "1", "--density", "4x40", "--name", "density")
        )
    if around is not None:
        measured = around.status_counts[PointStatus.MEASURED] or around.status.size
        text = f"The loss in other random directions. A plane of two others costs about {measured:,} losses"
        seed, more = chosen["seed"] + 1, ["--no-train", "--sampling", "adaptive"]
        if around.attributes.get("perturb_one_dimensional"):
            more.append("--perturb-one-dimensional")
        # The command takes the last checkpoint, whatever its weights are.
        is_last = "diverged" not in findings.missing
        texts.append(f"{text}: {command('run', *more, '--name', f'seed{seed}', seed=seed)}" if is_last else f"{text}.")
    if path is not None and not other_datasets(path.metrics):
        texts.append(
            "The loss on test samples. Let callback_fn return a dict of data sets, {'train': ..., 'test': ...}; each "
            "point then also costs a loss of the test samples."
        )
    if not findings.compares:
        name = ["--name", chosen["name"]] if chosen["name"] else []
        texts.append(
            "Whether another seed or another optimizer ends elsewhere. This is one run, and an interval needs three "
            "trained runs of each recipe: "
            + command("report", *name, "--recipe", "sgd=RUN,RUN,RUN", "--recipe", "adam=RUN,RUN,RUN")
        )
    texts.append(
        "Whether this holds for samples that were not measured; only the intervals over samples say something about "
        "them. And the loss that training minimized, if it had terms that callback_fn has not, such as weight decay."
    )
    return texts


def _as_typed(chosen: Mapping[str, Any]) -> Iterator[str]:
    """Yields the options that say over which samples a report was measured, as commands take them."""
    if isinstance(samples := chosen["num_samples"], Mapping):
        samples = ",".join(f"{name}={count}" for name, count in samples.items() if count is not None)
    if samples:
        yield from ("--samples", str(samples))
    if chosen["samples"] != OPTIONS["samples"].default:
        yield from ("--sample-choice", chosen["samples"])
    if chosen["seed_each_point"]:
        yield "--seed-each-point"


def _wrapped(text: str, mark: str = "  - ") -> str:
    return textwrap.fill(text, 100, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)
