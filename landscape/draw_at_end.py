"""A training that ends with its picture: what a SummaryCollector calls when everything is on disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.files.remote_path import RemotePath
from collectors.validation import wrong_type

from .figures import save_figure
from .landscape import Landscape
from .record.options import RunOptions, documented, with_defaults
from .summary_landscape import SummaryLandscape

if TYPE_CHECKING:
    from typing import Unpack


class DrawAtEnd:
    """Measures and draws the landscapes of a run as soon as its training has ended.

    It is the ``at_end`` of the SummaryCollector of any trainer; in a distributed training, rank 0 alone calls it. It
    measures in the training's own process, beside what the training still holds in memory, unless ``device_ids`` names
    more than one device. Each picture lies beside its landscape file, as ``<stem>.png``.

    Example::

        collector = SummaryCollector(
            "run", collect_landscape={"unit": "epoch", "intervals": [range(0, 21)]}, at_end=DrawAtEnd(callback_fn)
        )

    Args:
        callback_fn: as ``SummaryLandscape.gen_landscapes_with_multi_process`` takes it.
        collect_landscape: settings that replace the collected ones, such as ``landscape_size``.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means the first one.
        output: the directory for landscape files and pictures; None means the run directory.
        log: called with each landscape, such as ``landscape.log_to_wandb`` and ``landscape.log_to_mlflow``.

    Further options are those of ``SummaryLandscape.gen_landscapes_with_multi_process``, by name.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an option has a wrong value.
    """

    @documented(RunOptions)
    def __init__(
        self,
        callback_fn: Callable[[], Any],
        collect_landscape: Mapping[str, Any] | None = None,
        device_ids: list[int] | None = None,
        output: str | os.PathLike[str] | None = None,
        *,
        log: Iterable[Callable[[Landscape], Any]] = (),
        **options: Unpack[RunOptions],
    ) -> None:
        if not callable(callback_fn):
            raise wrong_type("callback_fn", "a function without arguments", callback_fn)
        if not isinstance(log, Iterable) or not all(map(callable, functions := tuple(log))):
            raise wrong_type("log", "a list of functions of a Landscape, such as [log_to_wandb]", log)
        # The file of a plan may not be here yet, and is read where it is needed.
        with_defaults("DrawAtEnd", RunOptions, {name: item for name, item in options.items() if name != "plan"})
        self._log = functions
        self._arguments = (callback_fn, collect_landscape, [0] if device_ids is None else device_ids, output)
        self._options = options

    def __call__(self, run_directory: str | os.PathLike[str]) -> list[Landscape]:
        """Draws the landscapes of a run directory, and returns them.

        Raises:
            LandscapeError: a landscape cannot be measured or drawn; the subclass and the text say why.
        """
        landscapes = SummaryLandscape(run_directory).gen_landscapes_with_multi_process(
            *self._arguments, **self._options
        )
        for landscape in landscapes:
            _save_picture(landscape)
        for landscape in landscapes:
            for log in self._log:
                log(landscape)
        return landscapes


def _save_picture(landscape: Landscape) -> None:
    assert landscape.path is not None
    name = f"{landscape.path.stem}.png"
    figure = landscape.plot_contour()
    if isinstance(landscape.path, RemotePath):
        with tempfile.TemporaryDirectory() as folder:
            save_figure(figure, Path(folder) / name)
            (landscape.path.parent / name).upload(Path(folder) / name)
    else:
        save_figure(figure, landscape.path.parent / name)
