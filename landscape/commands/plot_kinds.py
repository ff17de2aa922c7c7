"""The kinds of picture that ``plot`` draws: which one fits, what may be said of it, and the drawing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..rendering.picture import check_png
from .arguments import numbers_between, options_named, read_clip, read_levels, usual_dpi

if TYPE_CHECKING:
    from ..captions import Caption
    from ..figures import Look
    from ..landscape import Landscape


PLANE_KINDS = {
    "contour": "plot_contour", "lines": "plot_contour_lines", "heatmap": "plot_heatmap", "surface": "plot_surface",
}  # fmt: skip
TOPOLOGY_KINDS = {"persistence": "plot_persistence", "merge_tree": "plot_merge_tree"}
HERO = "hero"
_CURVATURE_KINDS = {"sharpness": "plot_sharpness", "spectrum": "plot_spectrum"}
_COMPARISON = "comparison"
KINDS = (
    *PLANE_KINDS, HERO, "profile", "barriers", "difference", "multiples", "uncertainty", "animation", *TOPOLOGY_KINDS,
    *_CURVATURE_KINDS, _COMPARISON,
)  # fmt: skip
OWNERS = {
    "columns": "multiples", "significance": "difference",
    **dict.fromkeys(("pixels", "labels", "background", "interpolation"), HERO),
    **dict.fromkeys(("move", "turn", "seconds", "rate"), "animation"),
}  # fmt: skip
_OF_ALL = ("style", "font", "theme", "size")
_OF_LANDSCAPES = ("scale", "levels", "aspect", "trajectory", "clip", "colormap", "camera")
_OF_CHARTS = {"sharpness": ("scale", "learning_rate"), "spectrum": ("number", "width"), _COMPARISON: ()}
_MOVING = (".gif", ".mp4")
FUNCTIONS = {
    **{function: kind for kind, function in (PLANE_KINDS | TOPOLOGY_KINDS | _CURVATURE_KINDS).items()},
    "plot_profile": "profile", "plot_barriers": "barriers", "plot_difference": "difference",
    "plot_multiples": "multiples", "plot_uncertainty": "uncertainty", "walk_frames": "animation", "plot_hero": HERO,
    "orbit_frames": "animation --move orbit",
}  # fmt: skip


def chart_of(kind: str, files: Sequence[str]) -> str:
    """Returns the kind of picture of a curvature or a comparison file; "" for one of landscapes."""
    from ..record.hdf5 import COMPARISON, CURVATURE
    from ..record.whole_file import kind_of

    if kind != "auto" or len(files) != 1:
        return kind if kind in (*_CURVATURE_KINDS, _COMPARISON) else ""
    return {CURVATURE: "sharpness", COMPARISON: _COMPARISON}.get(kind_of(files[0]), "")


def check_fits_file(chart: str, typed: Collection[str]) -> None:
    """Refuses typed options that belong to pictures of other files; ``chart`` is as ``chart_of`` returns it."""
    for name in typed:
        owner = next((kind for kind, names in _OF_CHARTS.items() if name in names), None)
        if chart:
            fits = name in (*_OF_ALL, *_OF_CHARTS[chart], "kind", "title", "dpi")
        else:
            fits = owner is None or name in _OF_LANDSCAPES
        if not fits:
            others = "pictures of landscapes" if owner is None else f"--kind {owner}"
            raise ValueError(
                f"{_flag(name)} must be left out for a {chart or 'landscape'}; it belongs to "
                f"{'other pictures' if chart == _COMPARISON else others}."
            )


def draw_chart(chart: str, files: Sequence[str], output: Path, look: Mapping[str, Any], dpi: int | None) -> None:
    """Draws a curvature or a comparison file as a picture."""
    from .. import figures
    from ..comparison.comparison import Comparison
    from ..curvature.curvature import Curvature

    if len(files) != 1:
        raise ValueError(f"--kind {chart} needs one file, but got {len(files)}.")
    if output.suffix.lower() in _MOVING:
        raise ValueError(f"--output must end in .png, .pdf or .svg for a {chart}, but got {str(output)!r}.")
    loaded: Any = (Comparison if chart == _COMPARISON else Curvature).load(files[0])
    draw: Any = getattr(figures, _CURVATURE_KINDS.get(chart, "plot_comparison"))
    with options_named({"path": "--output"}):
        figures.save_figure(draw(loaded, **look), output, dpi=dpi or usual_dpi(look))


def _flag(name: str) -> str:
    return "--no-trajectory" if name == "trajectory" else f"--{name.replace('_', '-')}"


def choose_kind(kind: str, landscapes: list[Landscape], output: Path, metrics: list[str]) -> str:
    """Returns the kind of picture, once it fits the files and the output's name."""
    moving = output.suffix.lower() in _MOVING
    count = len(landscapes)
    if kind == "auto":
        line = landscapes[0].y is None
        several = count > 1 or (len(metrics) > 1 and not line)
        kind = "animation" if moving else "multiples" if several else "profile" if line else "contour"
    if kind == "difference" and (count, len(metrics)) not in ((2, 1), (1, 2)):
        raise ValueError(
            "--kind difference needs two files, or one file and --metric twice (the second is subtracted from the "
            f"first), but got {count} files and {len(metrics)} metrics."
        )
    needed = count if kind in ("barriers", "difference", "multiples") else 1
    if count != needed:
        raise ValueError(
            f"--kind {kind} needs one file; several make multiples, and two a difference, but got {count}."
        )
    if kind == HERO:
        check_png("--output", output)
    if moving != (kind == "animation"):
        raise ValueError(
            f"--output must end in .gif or .mp4 for an animation, but got {str(output)!r}."
            if not moving
            else f"--output {str(output)!r} is an animation, but --kind is {kind}; leave --kind out, or write a .png."
        )
    return kind


def check_fits(chosen: str, metrics: Sequence[str], typed: Mapping[str, Any]) -> None:
    """Refuses options that do not belong to the kind of picture."""
    if "over" in typed and chosen not in ("animation", "multiples"):
        raise ValueError(
            f"--over must be left out for a {chosen}: it says what an animation or multiples show. Use --kind "
            f"{typed['over']}."
        )
    if len(metrics) > 1 and chosen not in ("profile", "multiples", "difference"):
        raise ValueError(
            f"--metric must be given once for a {chosen}; a profile, multiples and a difference show several."
        )
    if chosen == "animation" and "trajectory" in typed and typed.get("move") != "orbit":
        raise ValueError("--no-trajectory must be left out for an animation of the path; --move orbit needs none.")
    for name in typed:
        owner = OWNERS.get(name, chosen)
        if chosen != owner:
            article = "an" if chosen in ("animation", "uncertainty") else "a"
            raise ValueError(f"{_flag(name)} must be left out for {article} {chosen}; it belongs to --kind {owner}.")


def read_look(options: Mapping[str, Any], chosen: str) -> Any:
    """Returns the options of a picture as figures take them, without those that choose by themselves."""
    names = (*_OF_ALL, *_OF_CHARTS.get(chosen, _OF_LANDSCAPES))
    return {name: _READ.get(name, lambda value: value)(options[name]) for name in names if options[name] is not None}


def _read_size(text: str) -> tuple[float, ...]:
    return numbers_between("x", "--size", text, "width and height in inches such as 8x5", float, (2,))


_READ: Mapping[str, Callable[[Any], Any]] = {"levels": read_levels, "clip": read_clip, "size": _read_size}


def read_pixels(text: str) -> tuple[float, ...]:
    """Returns --pixels as a hero takes it, which says what is wrong with a part of a pixel."""
    sides = numbers_between("x", "--pixels", text, "width and height such as 1920x1080", float, (2,))
    return tuple(int(side) if side.is_integer() else side for side in sides)


def read_topology(chosen: str, persistence: float | None, *, topology: bool) -> Look:
    """Returns --topology with --persistence as the figures take it; nothing where no minima are marked."""
    from collectors.validation import check_float

    if persistence is not None:
        check_float("--persistence", persistence, minimum=0)
        if not topology and chosen not in TOPOLOGY_KINDS:
            raise ValueError(
                f"--persistence must be left out for a {chosen} without --topology; it says which minima count."
            )
    return {"topology": True if persistence is None else persistence} if topology else {}


def captions_of(
    landscapes: list[Landscape], chosen: str, over: str, metrics: list[str], look: Look, more: dict[str, Any]
) -> list[Caption]:
    """Returns the caption of the picture that ``draw`` draws; of multiples, one for each of them."""
    from .. import captions

    first: Landscape = landscapes[0]
    first_look: dict[str, Any] = {**look, "metric": metrics[0]}
    if chosen == "multiples":
        return captions.multiples_captions(landscapes, metrics, None if over == "auto" else over, **look)
    if chosen == "difference":
        chance: dict[str, Any] = {name: value for name, value in more.items() if name == "significance"}
        if len(metrics) > 1:
            return [captions.difference_caption(first, metrics[0], metrics[1], **chance, **look)]
        return [captions.difference_caption(first, landscapes[1], **chance, **first_look)]
    if chosen == "barriers":
        return [captions.barriers_caption(_by_stem(landscapes), **_linear({**look, "metric": metrics[0]}))]
    if chosen == "profile" and len(metrics) > 1:
        return [captions.profile_caption(first, metrics, **look)]
    kind = more.get("move", "walk") if chosen == "animation" else chosen
    kind = chosen if kind == "walk" else kind
    return [captions.write_caption(first, kind, persistence=more.get("persistence"), **first_look)]


def write_beside(output: Path, captions: list[Caption]) -> None:
    """Writes captions into a file beside the picture, if there are any."""
    from collectors.files.local_files import write_text

    if captions:
        beside = output.with_name(f"{output.stem}_caption.txt")
        write_text(beside, "\n".join(map(str, captions)))
        typer.echo(str(beside))


def draw(
    chosen: str,
    landscapes: list[Landscape],
    output: Path,
    over: str,
    metrics: list[str],
    look: Look,
    dpi: int | None,
    more: dict[str, Any],
    description: str | None,
) -> None:
    """Draws the chosen kind into the output."""
    from .. import figures

    first: Look = {**look, "metric": metrics[0]}
    if chosen == "animation":
        with options_named({"kind": "--over"}):
            figures.save_animation(landscapes[0], output, None if over == "auto" else over, dpi=dpi, **more, **first)
        return
    if chosen == HERO:
        hero = figures.plot_hero(landscapes[0], dpi=dpi, **more, **first)
        hero.save(output)
        # Standard output is the file's name, as for every picture.
        typer.echo("\n".join(hero.caption), err=True)
        return
    drawn: Any
    if chosen == "multiples":
        shown = None if over == "auto" else over
        drawn = figures.plot_multiples(landscapes, kind=shown, metrics=metrics, **more, **look)[0]
    elif chosen == "difference" and len(metrics) > 1:
        drawn = figures.plot_difference(landscapes[0], metrics[0], metrics[1], **more, **look)
    elif chosen == "difference":
        drawn = figures.plot_difference(landscapes[0], landscapes[1], **more, **first)
    elif chosen == "uncertainty":
        drawn = figures.plot_uncertainty(landscapes[0], **first)[0]
    elif chosen == "barriers":
        drawn = figures.plot_barriers(_by_stem(landscapes), **_linear(first))
    elif chosen == "profile":
        drawn = figures.plot_profile(landscapes[0], others=metrics[1:], **first)
    elif chosen in TOPOLOGY_KINDS:
        drawn = getattr(figures, TOPOLOGY_KINDS[chosen])(landscapes[0], **more, **first)
    else:
        drawn = getattr(figures, PLANE_KINDS[chosen])(landscapes[0], **first)
    figures.save_figure(drawn, output, dpi=dpi or usual_dpi(look), description=description)


def _by_stem(landscapes: list[Landscape]) -> dict[str, Landscape]:
    """Returns landscapes by the names of their files, which must differ."""
    found = {str(Path(str(item.path)).stem): item for item in landscapes}
    if len(found) < len(landscapes):
        raise ValueError("--kind barriers calls each way by its file's name, so these must differ.")
    return found


def _linear(look: Look) -> Look:
    return {**look, "scale": "linear"} if look.get("scale") == "auto" else look
