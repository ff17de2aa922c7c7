"""The kinds of pictures: what each is drawn of, which options it takes, and what draws it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collectors.validation import check_choice, check_int, wrong_value

from ..drawing.appearance import FONTS, STYLES, THEMES
from ..drawing.camera import MOVES
from ..drawing.look import CurvatureLook, Look
from ..grid.data import LandscapeData
from ..record.option import Option
from ..scales.choosing import SCALES
from ..scales.frame import ASPECTS
from .barriers import plot_barriers
from .comparison import plot_comparison
from .contour import plot_contour, plot_contour_lines, plot_heatmap
from .difference import plot_difference
from .films.film import save_animation
from .hero import plot_hero
from .minima import plot_merge_tree, plot_persistence
from .multiples import PLANE_KINDS, plot_multiples, plot_uncertainty, usual_kind
from .profile import plot_profile
from .sharpness import plot_sharpness
from .spectrum import plot_spectrum
from .surface3d import plot_surface


def _check_dpi(name: str, value: Any) -> int | None:
    return None if value is None else check_int(name, value, minimum=20, maximum=2400)


OPTIONS: Mapping[str, Option] = {
    "metric": Option(None, help="Which of the measured values, such as loss@test; repeat it to draw more on a profile "
        "or as multiples, or to subtract the second from the first in a difference.", typed=list[str] | None),
    "scale": Option("auto", SCALES, help="symlog is log on both sides of zero."),
    "levels": Option("auto", help="auto, how many, their spacing (linear, log, quantile), or values such as "
        "0.1,0.5,2."),
    "clip": Option(None, help="The largest value with a colour of its own, or smallest,largest such as 0.1,2 or 0.1,",
        typed=str | None),
    "colormap": Option(None, help="Matplotlib's name of the colours, such as cividis.", typed=str | None),
    "trajectory": Option(True, help="Draw runs' paths, networks and the origin."),
    "style": Option("screen", tuple(STYLES), help="paper is as wide as a column, with small type and no title; "
        "neurips, icml and nature are as wide as these venues ask, slides has large type."),
    "font": Option("sans", tuple(FONTS), help="serif looks like Times."),
    "theme": Option("light", tuple(THEMES), help="Dark on light, or light on dark."),
    "aspect": Option("equal", ASPECTS, help="equal draws a plane to scale, by distances in weight space; fill lets it "
        "fill a square."),
    "legend": Option(True, help="Draw a legend."),
    "over": Option("auto", ("auto", *PLANE_KINDS), help="What an animation walks over, or multiples show."),
    "title": Option(None, help="In place of the landscape's own, '' for none; of multiples, once for each picture.",
        typed=list[str] | None),
    "size": Option(None, help="Width and height of a picture, such as 8x5.", flags=("--inches",), typed=str | None),
    "dpi": Option(None, _check_dpi, help="Dots per inch; 200 by default, 400 for a paper, 300 for a hero, 80 for a "
        "GIF.", typed=int | None),
    "camera": Option(None, help="From where a surface is seen, the same for every file: default, front, side, above, "
        "low, auto, or azimuth,elevation such as -60,30.", typed=str | None),
    "pixels": Option(None, help="Width and height such as 1920x1080; 3840x2160 by default.",
        typed=str | None, panel="Hero"),
    "labels": Option(False, help="Write a colour bar, a legend and the caption below it.",
        flags=("--labels",), panel="Hero"),
    "background": Option(None, help="One of matplotlib's colours, such as white; by default it is clear.",
        typed=str | None, panel="Hero"),
    "interpolation": Option(None, help="Between the grid's points: smooth (through every point), the "
        "default, or linear.", typed=str | None, panel="Hero"),
    "columns": Option(None, help="Of multiples: how many stand in a row.", typed=int | None),
    "move": Option(None, help="walk (the default) shows the optimizer on its way beside its loss "
        "curve, orbit goes around the surface.", typed=str | None, words=MOVES, panel="Animation"),
    "turn": Option(None, help="How far the camera goes around the surface, in degrees; 360 for an "
        "orbit, 0 for a walk by default.", typed=float | None, panel="Animation"),
    "seconds": Option(None, help="How long it takes; 6 by default.", typed=float | None, panel="Animation"),
    "rate": Option(None, help="Frames per second; 30 by default, 20 for a GIF, which can have 50.",
        typed=int | None, panel="Animation"),
    "number": Option(None, help="Of a spectrum: which checkpoint; the last measured one by default.",
        typed=int | None, panel="Curvature"),
    "width": Option(None, help="Of a spectrum: of the Gaussian that smooths it; a hundredth of its range by default.",
        typed=float | None, panel="Curvature"),
    "significance": Option(None, help="Of a difference: hatches what lies within so many standard errors; 2 by "
        "default, 0 hatches nothing.", typed=float | None),
    "topology": Option(False, help="Mark minima of the grid and saddles between them.", flags=("--topology",)),
    "persistence": Option(None, help="Of minima: count those with a barrier higher than this; by default higher than "
        "twice the error.", typed=float | None),
    "learning_rate": Option(None, help="Of sharpness: draws 2 / learning rate; by default where it was recorded.",
        typed=float | None, panel="Curvature"),
}  # fmt: skip
"""What is typed, and what its help says; the functions check it, and their texts explain it."""

_LOOK = tuple(Look.__annotations__)


@dataclass(frozen=True)
class Picture:
    name: str  # what users call it
    draw: Callable[..., Any]  # takes the objects, and the options by name
    options: tuple[str, ...]  # the names that it takes; what can be typed is among ``OPTIONS``
    function: str  # by which errors call it
    of: str  # what it is drawn of: "plane", "line", "landscape" (which is either), "curvature" or "comparison"
    several: str = ""  # of what it takes more than one: "objects", "metrics", "both", or "pair" for two of either

    @property
    def called(self) -> str:
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"

    @property
    def file(self) -> str:
        """The kind of file that it is drawn of: "landscape", "curvature" or "comparison"."""
        return "landscape" if self.of in ("plane", "line") else self.of

    def __call__(self, objects: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Draws, and returns axes, a list of them, a rendering or a file, as the function does."""
        return self.draw(objects, **self.checked(objects, options))

    def checked(self, objects: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options; a ValueError says what belongs to another kind, or is not as many as it takes."""
        metrics, count = names_of(options.get("metric", "loss")), len(objects)
        if "metric" in options and not metrics:
            raise wrong_value("metric", "a name, or a list of at least one", options["metric"])
        if self.several == "pair" and (count, len(metrics)) not in ((2, 1), (1, 2)):
            raise ValueError(
                f'kind="{self.name}" needs two landscapes, or two metrics of one (the second is subtracted from the '
                f"first), but got {count} landscape{'' if count == 1 else 's'} and {len(metrics)} "
                f"metric{'' if len(metrics) == 1 else 's'}."
            )
        if count != 1 and self.several in ("", "metrics"):
            others = "; several make multiples, and two a difference" if self.file == "landscape" else ""
            raise ValueError(f'kind="{self.name}" needs one {self.of}{others}, but got {count}.')
        for name, value in options.items():
            if name not in self.options:
                raise self._misplaced(name, value)
        names = {"metric": metrics, "title": names_of(options.get("title"))}
        if len(metrics) > 1 and self.several not in ("both", "metrics", "pair"):
            which = "a profile, multiples and a difference show several"
            raise ValueError(f"metric must be given once for {self.called}; {which}.")
        if len(names["title"]) > 1 and self.several != "both":
            raise ValueError(f"title must be given once for {self.called}; only multiples have several.")
        single = {name: values[0] for name, values in names.items() if len(values) == 1 and name in options}
        return {**options, **single}

    def _misplaced(self, name: str, value: object) -> Exception:
        owners = [picture for picture in KINDS.values() if name in picture.options]
        if not owners:
            return TypeError(f'kind="{self.name}" has no option {name!r}; it has {", ".join(self.options)}.')
        owners = [picture for picture in owners if picture.file == self.file] or owners
        files = {picture.file for picture in owners}
        belongs = " or ".join(f'kind="{picture.name}"' for picture in owners)
        if len(owners) > 2:
            belongs = f"pictures of {files.pop()}s" if len(files) == 1 else "other pictures"
        if name == "ax" and self.file == "landscape":
            return ValueError(f"ax must be left out for {self.called}, which makes a figure of its own.")
        instead = f' Use kind="{value}".' if name == "over" and self.file == "landscape" else ""
        # What is switched off is typed as such.
        switched = f"{name}={value}" if isinstance(value, bool) else name
        return ValueError(f"{switched} must be left out for {self.called}; it belongs to {belongs}.{instead}")


def names_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def usual_picture(landscapes: Sequence[LandscapeData], metrics: Sequence[str]) -> str:
    several = len(landscapes) > 1 or (len(metrics) > 1 and landscapes[0].y is not None)
    return "multiples" if several else usual_kind(landscapes)


def by_file(landscapes: Sequence[LandscapeData]) -> dict[str, LandscapeData]:
    """Returns landscapes by the names of their files, or by number where they lie in none; a single one needs none."""
    numbers = map(str, range(1, len(landscapes) + 1)) if len(landscapes) > 1 else [""]
    names = [number if item.path is None else item.path.stem for number, item in zip(numbers, landscapes, strict=True)]
    if len(set(names)) < len(names):
        raise ValueError('kind="barriers" calls each way by its file\'s name, so these must differ.')
    return dict(zip(names, landscapes, strict=True))


def _of_one(name: str, function: Callable[..., Any], options: tuple[str, ...], of: str) -> Picture:
    return Picture(name, lambda objects, **more: function(objects[0], **more), options, function.__name__, of)


def _profile(lines: Sequence[LandscapeData], metric: Any = "loss", **options: Any) -> Any:
    first, *others = names_of(metric)
    return plot_profile(lines[0], others=others, metric=first, **options)


def _barriers(lines: Sequence[LandscapeData], **options: Any) -> Any:
    return plot_barriers(by_file(lines), **options)


def _difference(landscapes: Sequence[LandscapeData], **options: Any) -> Any:
    of_one = len(landscapes) == 1
    surfaces = [*landscapes, *(options.pop("metric") if of_one else ())]
    return plot_difference(*surfaces, **options)


def _multiples(landscapes: Sequence[LandscapeData], metric: Any = "loss", **options: Any) -> Any:
    titles, over, columns = (options.pop(name, None) for name in ("title", "over", "columns"))
    titles = None if titles is None else names_of(titles)
    return plot_multiples(landscapes, titles, _checked(over), columns, metrics=names_of(metric), **options)


def _animation(landscapes: Sequence[LandscapeData], path: Any = None, over: str | None = None, **options: Any) -> Any:
    return save_animation(landscapes, path, _checked(over), **options)


def _checked(over: str | None) -> str | None:
    return None if over is None else check_choice("over", over, tuple(PLANE_KINDS))


_HERO = ("pixels", "dpi", "labels", "background", "interpolation")
_ANIMATION = ("path", "over", "move", "turn", "seconds", "rate", "dpi")
_FLAT, _CURVATURE = (*_LOOK, "ax"), (*CurvatureLook.__annotations__, "ax")
KINDS: Mapping[str, Picture] = {
    picture.name: picture
    for picture in (
        _of_one("contour", plot_contour, _FLAT, "plane"),
        _of_one("lines", plot_contour_lines, _FLAT, "plane"),
        _of_one("heatmap", plot_heatmap, _FLAT, "plane"),
        _of_one("surface", plot_surface, _FLAT, "plane"),
        _of_one("hero", plot_hero, (*_LOOK, *_HERO), "plane"),
        Picture("profile", _profile, _FLAT, "plot_profile", "line", several="metrics"),
        Picture("barriers", _barriers, _FLAT, "plot_barriers", "line", several="objects"),
        Picture("difference", _difference, (*_FLAT, "significance"), "plot_difference", "plane", several="pair"),
        Picture("multiples", _multiples, (*_LOOK, "over", "columns"), "plot_multiples", "landscape", several="both"),
        _of_one("uncertainty", plot_uncertainty, _LOOK, "plane"),
        Picture("animation", _animation, (*_LOOK, *_ANIMATION), "walk_frames", "plane", several="objects"),
        _of_one("persistence", plot_persistence, (*_FLAT, "persistence"), "landscape"),
        _of_one("merge_tree", plot_merge_tree, (*_FLAT, "persistence"), "landscape"),
        _of_one("sharpness", plot_sharpness, (*_CURVATURE, "scale", "learning_rate"), "curvature"),
        _of_one("spectrum", plot_spectrum, (*_CURVATURE, "number", "width"), "curvature"),
        _of_one("comparison", plot_comparison, _CURVATURE, "comparison"),
    )
}
OF_LANDSCAPES = tuple(name for name, picture in KINDS.items() if picture.file == "landscape")
