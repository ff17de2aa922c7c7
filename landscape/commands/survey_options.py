"""The options of a survey on the command line: those of ``SurveyOptions`` and ``RunOptions``, read from text."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from workers.measurement_options import BUFFER_POLICIES, SAMPLE_CHOICES
from workers.measurement_plan import PRECISIONS

from ..grid.settings import SAMPLINGS
from ..planes.axis_curvature import USUAL, WHICH
from ..planes.directions import DIRECTIONS, NORMALIZATIONS
from ..planes.further_runs import PLANES_OF, as_also
from ..planes.pca import CENTERINGS
from ..record.options import EXPLANATIONS, RunOptions, parameters, set_options
from .arguments import numbers, options_named

_Command = Callable[..., None]

WORKER_OPTIONS = ("devices_per_worker", "workers_per_device", "address")
# The same in Python's evaluate and in a run.
SURVEY_OPTIONS = (
    *WORKER_OPTIONS, "seed", "samples", "buffers", "recalibration_batch_size", "precision", "groups", "seed_each_point",
    "extremes", "keep_samples", "sampling", "tolerance", "relative_tolerance", "budget", "limits", "margin",
    "overwrite", "save_directions", "progress", "plan", "sample_memory", "compile",
)  # fmt: skip


def choice(choices: Sequence[str], *flags: str, help: str, **more: Any) -> Any:
    """Returns typer's option of a few words, which its help lists and a shell completes.

    Whoever takes the value checks it, so that a wrong word gets the same error as in Python.
    """

    def complete(incomplete: str) -> list[str]:
        return [word for word in choices if word.startswith(incomplete)]

    return typer.Option(*flags, help=help, metavar=f"[{'|'.join(choices)}]", autocompletion=complete, **more)


def explained(name: str, explanations: Mapping[str, str] = EXPLANATIONS) -> str:
    """Returns the first sentence on an option, for a help; Python -OO leaves none."""
    sentence = explanations.get(name, "").replace("``", "").split(". ")[0].rstrip(".")
    return f"{sentence[:1].upper()}{sentence[1:]}."


@dataclass(frozen=True)
class _Typed:
    """An option whose value is typed in another form than Python's.

    Attributes:
        annotation: what typer reads.
        option: typer's.
        default: of what is typed; ... takes Python's.
        read: makes of it what Python takes.
    """

    annotation: Any
    option: Any
    default: Any = ...
    read: Callable[[Any], Any] = lambda value: value


def _number_or_text(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(","))


def _choice_of(name: str, choices: Sequence[str], *flags: str) -> _Typed:
    return _Typed(str, choice(choices, *flags, help=explained(name)))


_TYPED = {
    # --samples is how many.
    "samples": _choice_of("samples", SAMPLE_CHOICES, "--sample-choice"),
    "buffers": _choice_of("buffers", ("auto", *BUFFER_POLICIES)),
    "precision": _choice_of("precision", PRECISIONS),
    "groups": _Typed(str | None, choice(("target",), help="Measure the loss of each class too: target.")),
    "sampling": _choice_of("sampling", SAMPLINGS),
    "normalization": _choice_of("normalization", NORMALIZATIONS),
    "centering": _choice_of("centering", CENTERINGS),
    "directions": _Typed(str, choice(DIRECTIONS, help="Directions of the result's landscape.")),
    "which": _Typed(
        str,
        typer.Option(metavar="NAMES", help=f"One or two eigenvectors, such as top,bottom; of {', '.join(WHICH)}."),
        ",".join(USUAL),
        _names,
    ),
    "rise": _Typed(
        float, typer.Option(help="How much the loss rises along an eigenvector to the end of its axis, as a parabola.")
    ),
    "budget": _Typed(str | None, typer.Option(help=explained("budget")), None, _number_or_text),
    "limits": _Typed(
        str | None,
        typer.Option(help="Where the grid ends: lowest,highest of both axes, or x0,x1,y0,y1."),
        read=lambda text: numbers("--limits", text),
    ),
    "plan": _Typed(str | None, typer.Option(metavar="FILE", help=explained("plan"))),
    "sample_memory": _Typed(str, typer.Option(help=explained("sample_memory"))),
    "compile": _Typed(
        bool | None,
        typer.Option(help="torch.compile; when absent, where it pays off."),
        None,
        lambda value: "auto" if value is None else value,
    ),
    "also": _Typed(
        list[str] | None,
        typer.Option(
            metavar="[NAME=]RUN",
            help="Another run to draw on the intervals' planes, or a file of weights; may be given several times.",
        ),
        read=as_also,
    ),
    "plane_of": _choice_of("plane_of", PLANES_OF),
    "dry_run": _Typed(bool, typer.Option("--dry-run", help=explained("dry_run"))),
}


def with_options(*names: str) -> Callable[[_Command], _Command]:
    """Gives a command, in place of its ``**options``, those of ``RunOptions`` in the form that is typed."""

    def complete(command: _Command) -> _Command:
        shown = []
        for option in parameters(RunOptions):
            if option.name not in names:
                continue
            typed = _TYPED.get(option.name) or _Typed(option.annotation, typer.Option(help=explained(option.name)))
            default = option.default if typed.default is ... else typed.default
            shown.append(option.replace(annotation=Annotated[typed.annotation, typed.option], default=default))

        @functools.wraps(command)
        def read(**given: Any) -> None:
            with options_named(option_names(*names)):
                known = {name: _TYPED[name].read(value) for name, value in given.items() if name in _TYPED}
            command(**{**given, **known})

        read.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
        set_options(read, shown, evaluated=True)
        return read

    return complete


def option_names(*names: str) -> dict[str, str]:
    """Returns for each option of ``RunOptions`` what is typed for it, for ``options_named``."""
    return {name: "--sample-choice" if name == "samples" else f"--{name.replace('_', '-')}" for name in names}
