"""Report: what a run can tell, as answers in words, and what is not known; its page needs no script and no network."""

from __future__ import annotations

import base64
import html
import io
import shlex
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from collectors.files.local_files import begins_as_ours
from collectors.files.places import AnyPath, write_to
from collectors.run_directory.directory import RunDirectory
from workers.metric_names import name_in_set, other_datasets

from ..caption_sentences import capital
from ..captions import Caption, multiples_captions
from ..curvature.facts import failures
from ..drawing.canvas import save_figure
from ..errors import LandscapeWriteError
from ..figures.multiples import plot_multiples
from ..record.checks import PointStatus
from ..record.option_kinds import ReportOptions
from ..record.options import OPTIONS, with_defaults
from ..replacing import first_bytes
from ..summary_json import as_json
from .end import SHARPNESS, answer_end
from .flatness import ALONG, AROUND, RECIPES, answer_flatness, answer_recipes
from .measuring import DEFAULT_STEM, Findings, MeasuresRun, ReportMeasuring
from .path import GAP, PATH, answer_gap, answer_path
from .statement import Answer, Statement, Unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPORT_VERSION = 1  # grows when a name of ``Report.to_json`` goes or changes its meaning; a new name alone leaves it
_HEAD = 4096  # bytes of a page, in which its title ends
_GENERATOR = "summary-landscape report"  # by which a page is recognized as a report
_DPI = 120
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; } a { color: #0b57a4; }
.verdict { font-size: 1.15rem; font-weight: 600; } .unknown { color: #8a4b00; }
details { color: #444; font-size: 0.875rem; margin: 0.1rem 0 0.6rem; } summary { cursor: pointer; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; overflow-x: auto; }
img { max-width: 100%; min-width: 36rem; height: auto; background: #fff; }
figcaption { color: #444; font-size: 0.875rem; }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #161616; } a { color: #8ab8f0; }
  .unknown { color: #f0b060; } img { filter: brightness(0.85); } details, figcaption { color: #b5b5b5; } }
"""


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
    if there and not (begins_as_ours(page.name, there) and _GENERATOR.encode() in there[:512]):
        raise LandscapeWriteError(
            f"{page} is there and is no report; it was left as it is. Move it away, or give another name=."
        )
    # A run that was renamed still replaces the report in its own folder.
    is_own = not there or folder == run.path or f"<title>{_title_of(run.path.name)}<".encode() in there
    if not (is_own or chosen["overwrite"]):
        raise LandscapeWriteError(
            f"{page} is the report of another run; it was left as it is. Give another name=, or overwrite=True."
        )
    findings = ReportMeasuring(measures, run, callback_fn, folder, chosen).findings(recipes)
    if findings is None:
        return None
    unknown = _unknown(findings, run.path, folder, chosen)
    report = Report(run.path, tuple(answers_of(findings)), tuple(unknown), page)
    write_to(page, report_html(run.path.name, report.answers, report.unknown, findings).encode())
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


def _title_of(name: str) -> str:
    return html.escape(f"Report on {name}").encode("utf-8", "replace").decode("utf-8")


def report_html(name: str, answers: Sequence[Answer], unknown: Sequence[str], findings: Findings) -> str:
    pictures = {key: _picture(key, draw, caption) for key, (draw, caption) in _drawings(findings).items()}
    drawn: set[str] = set()
    sections = []
    for answer in answers:
        shown = [key for key in dict.fromkeys(item.picture for item in answer.statements) if key in pictures]
        sections.append(_section(answer, pictures.keys(), [pictures[key] for key in shown if key not in drawn]))
        drawn.update(shown)
    items = "".join(f"<li>{html.escape(text)}</li>" for text in unknown)
    title = _title_of(name)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="{_GENERATOR}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; style-src '
        "'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><main>{''.join(sections)}"
        f'<section id="unknown"><h2>What is not known</h2><ul>{items}</ul></section></main></body></html>\n'
    )


def _section(answer: Answer, pictures: Collection[str], figures: Sequence[str]) -> str:
    kind = "verdict" if answer.known else "verdict unknown"
    verdict = html.escape(f"{capital(answer.verdict)}.")
    sentences = "".join(_sentence(item, linked=item.picture in pictures) for item in answer.statements)
    return (
        f'<section id="{answer.name}"><h2>{html.escape(answer.question)}</h2><p class="{kind}">{verdict}</p>'
        f"<ul>{sentences}</ul>{''.join(figures)}</section>"
    )


def _sentence(item: Statement, *, linked: bool) -> str:
    number = item.number
    link = f' <a href="#picture-{item.picture}">picture</a>' if linked else ""
    formulas = [number.formula, *(text for text in (number.low_formula, number.high_formula) if text)]
    arrays = ", ".join(
        f"<code>{html.escape(name)}</code> = <code>{html.escape(place)}</code>" for name, place in number.arrays.items()
    )
    written = "; ".join(f"<code>{html.escape(text)}</code>" for text in formulas)
    value = f"{number.value:.6g}, {html.escape(number.interval)}"
    return (
        f"<li>{html.escape(item.text)}{link}<details><summary>{value}</summary>"
        f"In <code>{html.escape(number.file)}</code>: {arrays}. Formula{'s' if len(formulas) > 1 else ''}: {written}."
        "</details></li>"
    )


def _drawings(findings: Findings) -> dict[str, tuple[Callable[[], Axes], Caption]]:
    path = findings.path
    planes = ((PATH, path), (AROUND, findings.around))
    found: dict[str, tuple[Callable[[], Axes], Caption]] = {
        key: (plane.plot_contour, plane.caption("contour")) for key, plane in planes if plane is not None
    }
    if findings.curvature is not None:
        found[SHARPNESS] = (findings.curvature.plot_spectrum, findings.curvature.caption("spectrum"))
    if findings.along is not None:
        found[ALONG] = (findings.along.plot_sharpness, findings.along.caption("sharpness"))
    if path is not None and (others := other_datasets(path.metrics)):
        metrics = ["loss", *(name_in_set("loss", name) for name in others)]
        captions = multiples_captions([path], metrics)
        both = Caption(*(" ".join(texts) for texts in zip(*((item.text, item.alt) for item in captions), strict=True)))
        found[GAP] = (lambda: plot_multiples(path, metrics=metrics)[0], both)
    if findings.comparison is not None:
        found[RECIPES] = (findings.comparison.plot, findings.comparison.caption())
    return found


def _picture(key: str, draw: Callable[[], Axes], caption: Caption) -> str:
    image = io.BytesIO()
    save_figure(draw(), image, dpi=_DPI)
    data = base64.b64encode(image.getvalue()).decode("ascii")
    return (
        f'<figure id="picture-{key}"><img alt="{html.escape(caption.alt)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(caption.text)}</figcaption></figure>"
    )
