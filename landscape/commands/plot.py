"""The command that shows: ``plot``, as a page, of landscapes or of one file that is measured, a picture or a film."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collectors.files.local_files import write_text
from collectors.files.places import is_url
from collectors.validation import check_choice, check_float

from .. import captions, figures
from ..drawing.appearance import STYLES
from ..drawing.canvas import check_png
from ..drawing.texts import unit_of
from ..errors import MEASURE_BARRIER
from ..figures.kinds import KINDS, OPTIONS, Picture, by_file, names_of, usual_picture
from ..interactive.page import SIZES, save_page
from ..record.hdf5 import COMPARISON, CURVATURE, LANDSCAPE
from ..record.option import Option
from ..record.whole_file import fetched_once, kind_of
from ..replacing import check_no_input
from .arguments import check_left_out, numbers_between, options_named
from .next_steps import picture_beside
from .options import OUTPUT, with_options
from .run_facts import charts, facts_of

if TYPE_CHECKING:
    from ..landscape import Landscape

_MOVING, _PAGES = (".gif", ".mp4"), (".html", ".htm")
_OF_BOTH = ("aspect", "camera")  # options of pictures that a page has too
_OF_PAGES: Mapping[str, Option] = {
    "page": Option("full", SIZES, help="full is one file, which needs no network; small lets the plotly script lie "
        "beside the page.", panel="Page"),
    "show": Option(None, help="Open the page in the browser; by default where no --output says where it goes.",
        flags=("--open/--no-open",), typed=bool | None, panel="Page"),
    "watch": Option(False, help="Show one file while it is measured, or before it is there; Ctrl-C ends that, and "
        "never the run.", flags=("--watch",), panel="Page"),
    "port": Option(None, help="Of --watch: port on this machine; by default a free one.", typed=int | None,
        panel="Page"),
}  # fmt: skip
_OF_PLOT: Mapping[str, Option] = {
    "kind": Option("auto", ("auto", *KINDS), help="hero is a surface with light and shadows, for a first page, profile "
        "is of a line, barriers of lines and curves between two networks, difference of two files or metrics, "
        "multiples side by side on one scale, uncertainty maps of the standard error and of the interpolation error, "
        "persistence and merge_tree how deep the grid's minima are and which saddles join them; sharpness and spectrum "
        "are of a curvature file, comparison of a comparison file. auto: contour, profile, sharpness or comparison of "
        "one file, multiples of several files or metrics, animation for a GIF or MP4."),
    **OPTIONS,
    **_OF_PAGES,
    "caption": Option(False, help="Also write <output>_caption.txt: a caption with method, seeds and samples, and a "
        "text for people who cannot see the picture, which a PNG, SVG or PDF holds too.", flags=("--caption",)),
}  # fmt: skip


def _levels(flag: str, text: str) -> int | str | list[float]:
    if text.isdigit():
        return int(text)
    if "," not in text:
        try:
            return [float(text)]
        except ValueError:
            return text
    return list(numbers_between(",", flag, text, "numbers with commas between them", float))


def _clip(flag: str, text: str) -> float | tuple[float | None, float | None]:
    """Returns one number, or two of which one may be left out."""
    try:
        ends = [float(part) if part.strip() else None for part in text.split(",")]
    except ValueError:
        ends = []
    if len(ends) == 1 and ends[0] is not None:
        return ends[0]
    if len(ends) != 2:
        raise ValueError(f"{flag} must be the largest value, or smallest,largest such as 0.1,2, but got {text!r}.")
    return ends[0], ends[1]


def _pixels(flag: str, text: str) -> tuple[float, ...]:
    """Returns width and height as a hero takes them, which says what is wrong with a part of a pixel."""
    sides = numbers_between("x", flag, text, "width and height such as 1920x1080", float, (2,))
    return tuple(int(side) if side.is_integer() else side for side in sides)


_READ: Mapping[str, Callable[[str, Any], Any]] = {
    "levels": _levels,
    "clip": _clip,
    "size": lambda flag, text: numbers_between("x", flag, text, "width and height in inches such as 8x5", float, (2,)),
    "pixels": _pixels,
}


@with_options(
    "output",
    *_OF_PLOT,
    table={
        **_OF_PLOT,
        "output": replace(OUTPUT, typed=Path | None, panel="", help="PNG, PDF or SVG; GIF or MP4 for an animation; "
            "HTML for an interactive page, one file to look at and to share. Without it: of landscapes a page beside "
            "the first file (for a URL, here), which is opened; where options of pictures are given, and of other "
            "files, a PNG or an MP4 there."),
    },
    read=_READ,
    called={
        MEASURE_BARRIER: "Measure it with `landscape connect A B`.",
        "titles": "--title",
        **{picture.function: f"--kind {kind}" for kind, picture in KINDS.items()},
        "orbit_frames": "--kind animation --move orbit",
    },
)  # fmt: skip
@fetched_once()
def plot(
    files: Annotated[
        list[str],
        typer.Argument(help="Landscape files, or a curvature or comparison file, or their URLs.", metavar="FILE..."),
    ],
    *,
    output: Path | None,
    **options: Any,
) -> None:
    """Shows landscape files as an interactive page, a picture or a film, or a curvature or a comparison file.

    landscape plot run/landscape_0-20_pca.h5
    landscape plot run/landscape_0-20_pca.h5 --kind surface -o surface.png
    landscape plot run/landscape_0-20_pca.h5 --watch
    """
    pages = {name: options.pop(name) for name in _OF_PAGES}
    typed = {name: value for name, value in options.items() if value not in (_OF_PLOT[name].default, [], None)}
    of_pictures = {name: value for name, value in typed.items() if name not in _OF_BOTH}
    look = {name: options[name] for name in _OF_BOTH}
    if pages["watch"]:
        unused = {"output": output, "page": pages["page"], **of_pictures}
        check_left_out("with --watch, which shows a page of its own", unused, {**_OF_PLOT, **_OF_PAGES})
        _watch(files, pages["port"] or 0, pages["show"], look)
        return
    check_left_out("without --watch", {"port": pages.pop("port")}, _OF_PAGES)
    are_landscapes = not output and not of_pictures and all(kind_of(file) == LANDSCAPE for file in files)
    if output.suffix.lower() in _PAGES if output else are_landscapes:
        check_left_out("for a page; it belongs to pictures, such as --output NAME.png", of_pictures, _OF_PLOT)
        with options_named({"path": "--output"}):
            _make_page(files, output, pages["page"], pages["show"], look)
        return
    pages["show"] = pages["show"] or None  # a picture is never opened
    check_left_out("for a picture; it belongs to pages, such as --output NAME.html", pages, _OF_PAGES)
    if output is None:
        output = picture_beside(files[0]).with_suffix(".mp4" if typed.get("kind") == "animation" else ".png")
    check_no_input("--output", output, files)
    kind, dpi, caption = (typed.pop(name, None) for name in ("kind", "dpi", "caption"))
    picture, objects = _read(kind, files, output, typed.get("metric", []))
    wanted = {**_with_topology(picture, typed), "theme": options["theme"]}
    checked = picture.checked(objects, wanted)
    beside = _captions(picture, objects, checked) if caption else []
    for name, value in (("dpi", dpi), ("path", output)):
        if name in picture.options:
            wanted[name] = value
    with options_named({"path": "--output", **({"kind": "--over"} if "over" in picture.options else {})}):
        drawn = picture(objects, wanted)
    description = " ".join(item.alt for item in beside) or None
    with options_named({"path": "--output"}):
        if isinstance(drawn, figures.Rendering):
            drawn.save(output, description=description)
            # Standard output is the file's name, as for every picture.
            typer.echo("\n".join(drawn.caption), err=True)
        elif "path" not in picture.options:
            axes = drawn[0] if isinstance(drawn, list) else drawn
            # In print 300 dots per inch are asked for, on a screen 200 are enough.
            usual = 400 if STYLES[options["style"]]["paper"] else 200
            figures.save_figure(axes, output, dpi=dpi or usual, description=description)
        typer.echo(str(output))
        if beside:
            target = output.with_name(f"{output.stem}_caption.txt")
            write_text(target, "\n".join(map(str, beside)))
            typer.echo(str(target))


def _make_page(
    files: Sequence[str], output: Path | None, size: str, show: bool | None, look: Mapping[str, Any]
) -> None:
    """Writes the page of landscape files, beside the first of them where nothing else is said, and opens it then."""
    from ..landscape import Landscape

    target = Path(files[0]).with_suffix(".html") if output is None else output
    if output is None and is_url(files[0]):
        target = Path(target.name)
    page = save_page([Landscape.load(file) for file in files], target, size=size, **look)
    typer.echo(str(target))
    if (output is None if show is None else show) and not webbrowser.open(page.resolve().as_uri()):
        typer.echo("No browser could be opened here; open that file in one.", err=True)


def _watch(files: Sequence[str], port: int, show: bool | None, look: Mapping[str, Any]) -> None:
    from ..interactive.watch import WatchServer

    if len(files) != 1:
        raise ValueError(f"--watch shows one file, but got {len(files)}; give one FILE.")
    (file,) = files
    if is_url(file):
        raise ValueError(
            f"FILE must be a file of this machine, but got the URL {file!r}. Leave out --watch for a page of what is "
            "there now, or have the run write to a folder."
        )
    path = Path(file)
    server = WatchServer(path, port, charts=charts(), **look)
    with server:
        try:
            if not path.exists():
                typer.echo(f"There is no file {file} yet; the page fills when a run writes it.", err=True)
            typer.echo(f"Watching {file} at {server.address}")
            typer.echo("Only this machine can open that address. Ctrl-C ends watching; the run goes on.", err=True)
            if show is not False:
                webbrowser.open(server.address)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("\nStopped watching.", err=True)


def draw_beside(landscape: Landscape) -> Path:
    """Draws a landscape as ``landscape plot`` does without options, beside its file, and returns the picture's path."""
    target = picture_beside(landscape.path)
    picture = KINDS[usual_picture([landscape], [])]
    with options_named({"path": "--plot"}):
        figures.save_figure(picture([landscape], {"theme": OPTIONS["theme"].default}), target)
    return target


def _read(kind: str | None, files: Sequence[str], output: Path, metrics: Sequence[str]) -> tuple[Picture, list[Any]]:
    """Returns the kind of picture, which fits the output's name, and what it is drawn of."""
    if kind is None and len(files) == 1:
        kind = {CURVATURE: "sharpness", COMPARISON: "comparison"}.get(kind_of(files[0]))
    of = KINDS[kind].file if kind else "landscape"
    load, *_ = facts_of({"curvature": CURVATURE, "comparison": COMPARISON}.get(of, LANDSCAPE))
    objects = [load(file) for file in files]
    is_moving = output.suffix.lower() in _MOVING
    kind = kind or ("animation" if is_moving else usual_picture(objects, metrics))
    picture = KINDS[kind]
    for name in metrics if of == "landscape" else ():
        for landscape in objects:
            check_choice("--metric", name, tuple(landscape.metrics))
    if kind == "hero":
        check_png("--output", output)
    if is_moving and kind != "animation":
        instead = ", the name of an animation (--kind animation)" if of == "landscape" else ""
        raise ValueError(
            f"--output must end in .png, .pdf, .svg or .pgf for {picture.called}, but got {str(output)!r}{instead}."
        )
    if kind == "animation" and not is_moving:
        raise ValueError(f"--output must end in .gif or .mp4 for an animation, but got {str(output)!r}.")
    return picture, objects


def _with_topology(picture: Picture, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options with --persistence as ``topology`` where minima are only marked."""
    if "persistence" not in typed or "persistence" in picture.options or "topology" not in picture.options:
        return dict(typed)
    persistence = check_float("--persistence", typed["persistence"], minimum=0)
    if "topology" not in typed:
        raise ValueError(
            f"--persistence must be left out for {picture.called} without --topology; it says which minima count."
        )
    return {**{name: value for name, value in typed.items() if name != "persistence"}, "topology": persistence}


def _captions(picture: Picture, landscapes: Sequence[Any], options: Mapping[str, Any]) -> list[captions.Caption]:
    """Returns the caption of a picture; of multiples, one for each of them."""
    first = landscapes[0]
    if picture.file == "comparison":
        return [first.caption()]
    if picture.file == "curvature":
        return [first.caption(picture.name, options.get("number"), options.get("learning_rate"))]
    metrics = names_of(options.get("metric", "loss"))
    look: dict[str, Any] = {name: options[name] for name in figures.Look.__annotations__ if name in options}
    look["metric"] = metrics[0]
    without = {name: value for name, value in look.items() if name not in ("metric", "title")}
    if picture.name == "multiples" or (picture.name == "animation" and len(landscapes) > 1):
        alike = picture.name == "animation" and len({unit_of(each) for each in landscapes}) == 1
        clock = " All walk on one clock." if alike else ""
        found = captions.multiples_captions(landscapes, metrics, options.get("over"), **without)
        return [replace(each, text=each.text + clock) for each in found]
    if picture.name == "difference":
        significance = options.get("significance", 2.0)
        if len(metrics) > 1:
            return [captions.difference_caption(first, *metrics, significance=significance, **without)]
        return [captions.difference_caption(first, landscapes[1], significance=significance, **look)]
    if picture.name == "barriers":
        return [captions.barriers_caption(by_file(landscapes), **look)]
    if picture.name == "profile" and len(metrics) > 1:
        return [captions.profile_caption(first, metrics, **without)]
    over_surface = options.get("move") == "orbit" or options.get("over") == "surface"
    kind = "orbit" if over_surface else picture.name
    return [captions.write_caption(first, kind, persistence=options.get("persistence"), **look)]
