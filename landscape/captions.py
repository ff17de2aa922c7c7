"""What a paper must say under a picture, and what it tells people who cannot see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from collectors.validation import check_choice

from .caption_sentences import (
    called,
    capital,
    joined,
    lowest_text,
    of_each,
    off_plane_text,
    path_text,
    points_text,
    range_text,
    samples_sentence,
    scale_text,
    walk_text,
    where_text,
)
from .drawing.look import Look, check_dimensions, check_look
from .drawing.sheet import shared_scale, topology_scale
from .drawing.texts import network_name, placed_barrier_text, precision_notes
from .figures.barriers import barriers_scale
from .figures.difference import subtract
from .figures.kinds import KINDS
from .figures.multiples import SHARED_KINDS, picture_scales, uncertainty_metrics, usual_kind
from .figures.profile import left_scale, right_scale, sides
from .grid.data import LandscapeData
from .grid.differences import ends_of_way
from .scales.landscape_scale import known
from .topology.topology import find_topology, topology_text, wanted_topology

_PICTURES = {
    "contour": "Filled contours", "lines": "Contour lines", "heatmap": "A heat map",
    "surface": "A surface seen at an angle",
    "hero": "A rendered surface seen at an angle", "profile": "A curve", "barriers": "Curves",
    "difference": "Filled contours of a difference", "multiples": "Pictures side by side",
    "uncertainty": "Heat maps of the errors", "animation": "A film", "orbit": "A film",
    "persistence": "A persistence diagram", "merge_tree": "A merge tree",
}  # fmt: skip
_DRAWN = {
    "lines": "Lines", "surface": "Colours and heights", "hero": "Colours and heights", "orbit": "Colours and heights",
    "profile": "Vertical axis", "merge_tree": "Vertical axis",
    "persistence": "Both axes", "barriers": "Vertical axis",
}  # fmt: skip
_WITH_HEIGHTS = ("surface", "hero", "orbit", "profile")
_OF_MINIMA = ("persistence", "merge_tree")


@dataclass(frozen=True)
class Caption:
    """What stands under a picture."""

    text: str  # how the picture was made: method, seeds, explained variance, samples, metric, tolerance, scale
    alt: str  # what it shows, for people who cannot see it

    def __str__(self) -> str:
        return f"Caption: {self.text}\n\nAlternative text: {self.alt}\n"


def write_caption(
    landscape: LandscapeData, kind: str | None = None, *, persistence: float | None = None, **look: Any
) -> Caption:
    """Returns caption and alternative text of a picture: only what the file tells, which may lack seeds and samples."""
    options = check_look("caption", cast(Look, look))
    kind = ("profile" if landscape.y is None else "contour") if kind is None else kind
    check_choice("kind", kind, tuple(_PICTURES))
    metric, picture = look.get("metric", "loss"), KINDS["animation" if kind == "orbit" else kind]
    if kind == "barriers":
        ends_of_way(landscape, metric)
        return barriers_caption({"": landscape}, **look)
    if picture.of in ("plane", "line"):
        function = "orbit_frames" if kind == "orbit" else picture.function
        check_dimensions(function, landscape, plane=picture.of == "plane")
    if kind == "difference":
        raise ValueError(
            'kind must be that of a picture of one surface, but "difference" subtracts two; '
            "Landscape.caption_difference describes it."
        )
    if kind == "uncertainty":
        return _uncertainty_caption(landscape, options)
    if kind in _OF_MINIMA:
        return _minima_caption(landscape, kind, persistence, options)
    values, name = landscape[metric], called(landscape, metric)
    with_path = look.get("trajectory", True)
    ground = "surface" if kind in ("hero", "orbit") else kind if kind in SHARED_KINDS else usual_kind([landscape])
    scale = shared_scale(SHARED_KINDS[ground], [landscape], options)
    marked = wanted_topology(landscape, metric, look.get("topology", False))
    paths = (path_text(landscape), off_plane_text(landscape, metric)) if with_path else ()
    sentences = [*_made(name, landscape, metric, *paths), scale_text(scale, _DRAWN.get(kind, "Colours"))]
    alt = [
        f"{_PICTURES[kind]} of {name}{_of(landscape)}",
        range_text(name, values, landscape.status),
        lowest_text(landscape, values),
        walk_text(landscape, metric, projected=kind in _WITH_HEIGHTS) if with_path else "",
        "" if marked is None else f"Minima are marked: {topology_text(marked, landscape)}",
    ]
    return _caption(sentences, alt, landscape)


def difference_caption(
    first: LandscapeData, other: LandscapeData | str, minus: str | None = None, *, significance: float | None = 2.0,
    **look: Any,
) -> Caption:  # fmt: skip
    """Returns what a paper says under ``plot_difference`` with these arguments, and what the picture shows."""
    options = check_look("caption_difference", cast(Look, look))
    found = subtract(first, other, minus, options)
    measured = known(found.values, found.status)
    ours, theirs = found.landscapes
    names = tuple(called(item, metric) for item, metric in zip(found.landscapes, found.metrics, strict=True))
    if ours is theirs:
        what = " minus ".join(names)
        about = [_about(what, ours)]
        sides_called = names
    else:
        sides_called = _files(found.landscapes)
        what = f"difference of {names[0]}"
        places = {side: _about(names[0], item) for side, item in zip(sides_called, found.landscapes, strict=True)}
        about = [f"{capital(what)}: {' minus '.join(sides_called)}", *of_each(places)]
    each = list(zip(sides_called, found.landscapes, found.metrics, strict=True))
    chance = found.chance(significance) if significance else None
    sentences = [
        *about,
        path_text(ours) if look.get("trajectory", True) else "",
        *of_each({side: points_text(item, metric) for side, item, metric in each}),
        *of_each({side: samples_sentence(item, metric) for side, item, metric in each}),
        f"Colours change at zero, below which {sides_called[0]} is lower",
        scale_text(found.scale(options), "Colours"),
        "" if chance is None else f"Hatched: {chance[1]}",
    ]
    lower, higher = int((measured < 0).sum()), int((measured > 0).sum())
    signs = f"It is below zero, where {sides_called[0]} is lower, at {lower:,} points, and above zero at {higher:,}"
    alt = [
        f"Filled contours of the {what}" + (_of(ours) if ours is theirs else f", {' minus '.join(sides_called)}"),
        range_text("difference", measured, found.status),
        signs if lower or higher else "",
        *(lowest_text(ours, measured, word) for word in ("lowest", "highest")),
        "" if chance is None else f"Hatched is what may be chance: {chance[1]}",
    ]
    return _caption(sentences, alt, ours, theirs)


def barriers_caption(ways: Mapping[str, LandscapeData], **look: Any) -> Caption:
    metric = look.get("metric", "loss")
    lines = list(ways.values())
    names = [called(line, metric) for line in lines]
    heights = {name: placed_barrier_text(line, metric) for name, line in ways.items()}
    sentences = [
        *of_each({way: _about(name, line) for (way, line), name in zip(ways.items(), names, strict=True)}),
        *of_each({way: points_text(line, metric) for way, line in ways.items()}),
        *of_each({way: samples_sentence(line, metric) for way, line in ways.items()}),
        "A barrier is the largest rise above the straight line between the values of both ends (dotted)",
        *of_each({way: capital(text) for way, text in heights.items()}),
        scale_text(barriers_scale(lines, look), "Vertical axis"),  # type: ignore[arg-type]
    ]
    curves = "A curve" if len(lines) == 1 else f"{len(lines)} curves"
    alt = [f"{curves} of {names[0]}{_of(lines[0])} between two networks"]
    for (way, line), name in zip(ways.items(), names, strict=True):
        span = range_text(name, line[metric], line.status)
        alt += [f"{way}: {span}" if way else span, lowest_text(line, line[metric]), capital(heights[way])]
    return _caption(sentences, alt, *lines)


def profile_caption(landscape: LandscapeData, metrics: Sequence[str], **look: Any) -> Caption:
    main, *others = metrics
    beside, right = sides(landscape, main, others)
    shown = [main, *beside, *right]
    names = [called(landscape, metric) for metric in shown]
    what = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    with_path = look.get("trajectory", True)
    left = left_scale(landscape, [main, *beside], {**look, "metric": main})  # type: ignore[typeddict-item]
    sentences = [
        _about(what, landscape),
        off_plane_text(landscape, main) if with_path else "",
        points_text(landscape, main),
        *of_each({name: samples_sentence(landscape, each) for name, each in zip(names, shown, strict=True)}),
        scale_text(left, "Left axis" if right else "Vertical axis"),
        scale_text(right_scale(landscape, right), "Right axis") if right else "",
    ]
    alt = [f"{'Curves' if len(names) > 1 else 'A curve'} of {what}{_of(landscape)}"]
    for name, metric in zip(names, shown, strict=True):
        alt += [range_text(name, landscape[metric], landscape.status), lowest_text(landscape, landscape[metric])]
    walk = walk_text(landscape, main, projected=True) if with_path else ""
    return _caption(sentences, [*alt, walk], landscape)


def multiples_captions(
    landscapes: Sequence[LandscapeData], metrics: Sequence[str], kind: str | None = None, **look: Any
) -> list[Caption]:
    chosen = kind or usual_kind(landscapes)
    pictures = picture_scales(landscapes, metrics, chosen, look)  # type: ignore[arg-type]
    captions = []
    files = _files(landscapes)
    for number, (landscape, metric, scale) in enumerate(pictures, 1):
        panel_look = {**look, "metric": metric, "scale": scale, "levels": None, "clip": None}
        found = write_caption(landscape, chosen, **panel_look)
        which = f" ({files[(number - 1) // len(metrics)]})" if len(landscapes) > 1 else ""
        place = f"Picture {number} of {len(pictures)}{which}: "
        shared = sum(other is scale for _, _, other in pictures)
        also = f" The {shared} pictures of this quantity share one scale." if shared > 1 else ""
        captions.append(Caption(place + found.text + also, place + found.alt))
    return captions


def _uncertainty_caption(landscape: LandscapeData, look: Look) -> Caption:
    metric = look.get("metric", "loss")
    maps = uncertainty_metrics(landscape, metric)
    scales = [scale for _, _, scale in picture_scales([landscape], list(maps), "heatmap", {**look, "metric": "loss"})]
    path = path_text(landscape) if look.get("trajectory", True) else ""
    sentences = [
        *_made(" and ".join(maps.values()), landscape, metric, path),
        *(scale_text(scale, f"Colours of the {title}") for title, scale in zip(maps.values(), scales, strict=True)),
    ]
    pictures = "A heat map" if len(maps) == 1 else "Heat maps"
    alt = [f"{pictures} of the errors of {called(landscape, metric)}{_of(landscape)}"]
    for error, title in maps.items():
        values = landscape[error]
        alt += [range_text(title, values, landscape.status), lowest_text(landscape, values, "highest")]
    return _caption(sentences, alt, landscape)


def _minima_caption(landscape: LandscapeData, kind: str, persistence: float | None, look: Look) -> Caption:
    metric = look.get("metric", "loss")
    name, found = called(landscape, metric), find_topology(landscape, metric, persistence)
    least = "twice its error" if persistence is None else f"{persistence:g}"
    sentences = [
        *_made(f"minima of {name}", landscape, metric),
        f"A minimum counts where its barrier is higher than {least}",
        scale_text(topology_scale(found, landscape, look), _DRAWN[kind]) if found.minima else "",
    ]
    values = landscape[metric]
    alt = [
        f"{_PICTURES[kind]} of the minima of {name}{_of(landscape)}",
        range_text(name, values, landscape.status),
        lowest_text(landscape, values),
        f"Minima: {topology_text(found, landscape)}",
    ]
    return _caption(sentences, alt, landscape)


def _caption(sentences: list[str], alt: list[str], *landscapes: LandscapeData) -> Caption:
    notes = [capital(note) for note in precision_notes(*landscapes)]
    return Caption(joined([*sentences, *notes]), joined(alt))


def _made(what: str, landscape: LandscapeData, metric: str, *paths: str) -> list[str]:
    """Returns what a picture shows and where it lies, how far the path is from it, and how it was measured."""
    return [_about(what, landscape), *paths, points_text(landscape, metric), samples_sentence(landscape, metric)]


def _about(what: str, landscape: LandscapeData) -> str:
    return f"{capital(what)}{_of(landscape)} {where_text(landscape)}"


def _of(landscape: LandscapeData) -> str:
    network = network_name(landscape.attributes)
    return f" of {network}" if network else ""


def _files(landscapes: Sequence[LandscapeData]) -> tuple[str, ...]:
    """Returns what landscapes are called beside each other: by their files or, where these do not tell, by number."""
    stems = tuple("" if landscape.path is None else landscape.path.stem for landscape in landscapes)
    if all(stems) and len(set(stems)) == len(stems):
        return stems
    words = ("the first", "the second")
    return words if len(stems) == 2 else tuple(f"number {place}" for place in range(1, len(stems) + 1))
