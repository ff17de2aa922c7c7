"""The page of a report: one HTML file without any script, which needs no network."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from workers.metric_names import name_in_set, other_datasets

from ..caption_sentences import capital
from ..captions import Caption, multiples_captions
from ..drawing.canvas import save_figure
from ..figures.multiples import plot_multiples
from .end import SHARPNESS
from .flatness import ALONG, AROUND, RECIPES
from .measuring import Findings
from .path import GAP, PATH
from .statement import Answer, Statement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GENERATOR = "summary-landscape report"  # by which a page is recognized as a report
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


def title_of(name: str) -> str:
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
    title = title_of(name)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="{GENERATOR}">'
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
