"""``Measure``: what is measured with which data, on which devices; then one method for each kind of measurement."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from collectors.shapes import Float64
from collectors.validation import check_instance, check_int
from collectors.weights.aligned import Weights, as_reader
from workers.curvature.probes import Trace
from workers.curves.curve import CurveShape, FittingSettings

from .comparison.comparison import Comparison
from .comparison.measuring import compare_recipes
from .curvature.curvature import Curvature
from .curvature.experiment import measure_weights
from .curvature.hessian_plane import find_hessian_plane
from .curvature.lines import measure_trace
from .grid.data import LandscapeData
from .grid.forecast import SurveyReport
from .grid.measuring import A_PLANE, Grid, measure_plane, measure_points
from .grid.regridding import find_change, read_source, regrid
from .landscape import Landscape
from .paths.barrier import Barrier, measure_barrier
from .paths.path import Path, fit_curve
from .planes.curved_line import CurvedLine
from .planes.extent import check_extent
from .planes.plane import Plane
from .record.driver import measuring
from .record.option import check_useful
from .record.option_kinds import (
    ChangeOptions,
    CompareOptions,
    CurvatureOptions,
    EigenvectorOptions,
    GridOptions,
    MeasureOptions,
    SamplingOptions,
)
from .record.options import OPTIONS, documented, with_defaults
from .record.workers import given_plan, measurement_options
from .record.writer import output_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


@documented(MeasureOptions)
class Measure:
    """Measures a network's loss: over grids and at points, its curvature, barriers and curves between networks.

    ``Measure(callback_fn, num_samples=1000, device_ids=[0, 1])`` holds what measurements share; each method takes what
    is its own, and refuses a shared option that it has no use for: make another ``Measure`` for it. With
    ``dry_run=True`` a method prints what it would measure and how long that would take, writes nothing and returns
    None; only ``hessian_plane`` returns a plane for a dry run of ``grid``, whose directions are any ones.

    Args:
        callback_fn: takes no argument, returns (model, network, dataset, metrics); for PyTorch a Model or a loss
            function, an nn.Module, a DataLoader, Dataset or pair of tensors, and a dict of metrics. Or an Evaluator.
            It may be a lambda, a closure or a notebook's function.
        **options: see ``MeasureOptions``.

    Raises:
        TypeError: an argument has the wrong type; so do all methods.
        ValueError: an argument has a wrong value; so do all methods.
        LandscapeError: of a method: something else went wrong; the subclass and the text say what, and how to fix it.
            ``NondeterministicLossError``: the same weights gave two losses.
    """

    def __init__(self, callback_fn: Callable[[], Any], **options: Unpack[MeasureOptions]) -> None:
        self._options: dict[str, Any] = with_defaults("Measure", MeasureOptions, options)
        measurement_options(self._options)
        self._callback_fn = callback_fn

    @documented(GridOptions)
    @measuring
    def grid(
        self,
        plane: Plane | Path,
        *,
        size: int | tuple[int, int] = 40,
        x: ArrayLike | None = None,
        y: ArrayLike | None = None,
        output: str | os.PathLike[str] | None = None,
        **options: Unpack[GridOptions],
    ) -> Landscape | None:
        """Measures a plane or a line.

        Args:
            plane: from ``random_plane``, ``pca_plane``, ``plane_through``, ``line_between``, ``hessian_plane``, ..., or
                a ``Path``. The vectors of ``hessian_plane`` are always kept beside ``output``, as ``save_directions``
                does, and the control points of a path in ``<stem>_path.safetensors``.
            size: points along each axis where the plane's own axes are taken.
            x: coordinates along the first direction, shape (nx,), increasing; None takes the plane's own axes, or
                those of ``limits`` or ``margin``.
            y: coordinates along the second direction, shape (ny,), increasing; a line has none.
            output: the landscape file, or its fsspec URL such as ``s3://bucket/run/landscape.h5``; None keeps the
                landscape in memory only. A file of the same identity is continued; if it is on another grid, all that
                is measured must be on the new grid as well, and is kept.
            **options: see ``GridOptions``.

        Returns:
            The landscape; its ``path`` is ``output``.
        """
        chosen = self._with("grid", GridOptions, options)
        route, plane = (plane, plane.line()) if isinstance(plane, Path) else (None, plane)
        _check_saves(isinstance(plane, CurvedLine), chosen)
        check_instance("plane", plane, Plane, A_PLANE)
        if plane.dimension == 1 and y is not None:
            raise ValueError("y must be None for a line, which has one direction; use a plane, or leave y out.")
        limits, margin = check_extent(chosen["limits"], chosen["margin"])
        if not (x is None and y is None) and not (limits is None and margin is None):
            raise ValueError("x and y say where the grid ends; leave out limits and margin, or x and y.")

        path = None if output is None else output_file(output, plane.checkpoints, rehearsal=chosen["dry_run"])
        grid = Grid(size, x, y, limits, margin)
        with route.kept_beside(path, chosen) if route else contextlib.nullcontext():
            return _landscape(measure_plane(plane, self._callback_fn, grid, chosen, path))

    @measuring
    def points(self, plane: Plane, points: ArrayLike) -> dict[str, Float64[np.ndarray, " k"]] | None:
        """Measures k points of a plane or a line, wherever they lie; nothing is interpolated or written.

        With a landscape's options, the numbers are the same as that landscape's; with its plan too, to the last bit.

        Args:
            plane: as ``grid`` takes it, but no path.
            points: coordinates, shape (k, 2) on a plane and (k, 1) on a line, in units of the directions.

        Returns:
            Every metric by name, "loss" first, each of the shape (k,) in the order of the points; NaN where a point
            failed, which a warning says.
        """
        return measure_points(plane, self._callback_fn, points, self._with("points"))

    @documented(SamplingOptions)
    @measuring
    def barrier(
        self,
        a: Weights | Path,
        b: Weights | None = None,
        points: int = 25,
        *,
        names: Sequence[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Barrier | None:
        """Measures the loss on the way between two networks, and how far it rises above its ends.

        Statistics of BatchNorm are computed anew at each point (``buffers="recalibrate"``), because those of neither
        network suit the weights between them (Jordan et al. 2023); where a framework cannot do that they are
        interpolated.

        Args:
            a: weights of the first network: a network, a state dict, or the path of a file of weights. Or a ``Path``,
                along which the loss is measured.
            b: those of the second; None with a ``Path``.
            points: how many, both ends among them.
            names: what pictures call the two; by default the names of files, or "a" and "b".
            output: the landscape file of the way, or its fsspec URL; None keeps it in memory only. A file of the same
                identity is continued. Beside it the control points of a path are kept.
            **options: see ``SamplingOptions``.

        Returns:
            The barrier; of several data sets, that of the first one. Two equal networks raise a ``PlaneError``.
        """
        chosen = self._with("barrier", SamplingOptions, options)
        check_int("points", points, minimum=3)
        route = a if isinstance(a, Path) else None
        if (route is None) == (b is None):
            raise TypeError("barrier takes two networks, or a Path alone.")
        if route is not None and names is not None:
            raise ValueError("names must be left out for a Path, whose ends have names.")
        _check_saves(route is not None, chosen)
        path = None if output is None else output_file(output, () if route else (a, b), rehearsal=chosen["dry_run"])
        with route.kept_beside(path, chosen) if route else contextlib.nullcontext():
            line = None if route is None else route.line()
            return measure_barrier(line, (a, b), names, self._callback_fn, points, path, chosen)

    @measuring
    def connect(
        self,
        a: Weights,
        b: Weights,
        kind: str = "bezier",
        bends: int = 1,
        steps: int = 500,
        learning_rate: float = 0.01,
        batch_size: int = 64,
        *,
        names: Sequence[str] | None = None,
        output: str | os.PathLike[str] | None = None,
    ) -> Path | None:
        """Fits a curve between two networks, so that the loss along it is low on average.

        The networks may be of PyTorch, JAX, Keras or MindSpore. The curve's bends begin on the straight line and follow
        the gradient of the loss at random places of the curve, by Adam with a rate that falls linearly to zero. The
        gradient of a bend is its share in the point times the gradient there. Layers compute as in evaluation, but
        BatchNorm with the statistics of each batch. Of several data sets the first one is used, and of several devices
        one.

        Args:
            a: weights of the first network: a network, a state dict, or the path of a file of weights.
            b: those of the last one.
            kind: "bezier" (a smooth curve) or "polygon" (straight from bend to bend).
            bends: how many control points there are between the networks.
            steps: of Adam.
            learning_rate: of its first step.
            batch_size: samples of a step; a loss that belongs to its batches gets those of the data set.
            names: what pictures call the two; by default the names of files, or "a" and "b".
            output: the path's file (.safetensors), or its fsspec URL; None keeps it in memory. The bends are written
                every few seconds, and the same call goes on from there, with the same bits.

        Raises:
            PlaneError: both networks are the same.
            CurveError: the loss is not finite on the curve, or there are no gradients.

        Source: Garipov, Izmailov, Podoprikhin, Vetrov, Wilson 2018; Draxler, Veschgini, Salmhofer, Hamprecht 2018.
        """
        chosen = self._with("connect")
        settings = FittingSettings(CurveShape(kind, bends), steps, learning_rate, batch_size, chosen["seed"])
        path = None if output is None else output_file(output, (a, b), rehearsal=chosen["dry_run"])
        return fit_curve((a, b), names, self._callback_fn, settings, path, chosen)

    @documented(ChangeOptions)
    @measuring
    def regrid(
        self,
        file: str | os.PathLike[str],
        *,
        size: int | tuple[int, int] | None = None,
        factor: int | tuple[int, int] | None = None,
        margin: float | None = None,
        limits: Sequence[float] | None = None,
        run: str | os.PathLike[str] | None = None,
        plane: Plane | None = None,
        output: str | os.PathLike[str] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Landscape | None:
        """Measures a landscape on a finer or on a wider grid; what is measured already is kept.

        Finer: with ``factor``, and with a ``size`` whose cells divide those of the file (79 for 40 points), every
        measured point is kept, and the file itself gets the finer grid. Any other size shares few points with the file:
        then it stays as it is, the new landscape goes beside it (``<stem>_80x80.h5``, if ``output`` says nothing else),
        and a warning says how many points are kept and which size would keep all of them. Wider: whole cells are added,
        until the grid reaches as far as ``margin`` or ``limits`` ask for. After an interruption the same call
        continues. How the landscape was measured (samples, buffers, precision, seed, sampling, plan), the file says.

        Args:
            file: the landscape file, or its fsspec URL.
            size: points along each axis, or (points along x, points along y).
            factor: into how many each cell is divided along each axis, or (along x, along y).
            margin: how far the grid has to reach beyond the path on each side, as a share of the path's range; on
                planes without a path, as random ones are, a share of [-1, 1].
            limits: which coordinates the grid has to reach: the lowest and the highest of both axes, or x0, x1, y0, y1.
            run: the run directory whose plane it is; None looks in the file's folder, then where the file says.
            plane: the plane, if it is not that of one run.
            output: where the new landscape goes, if not into the file.
            **options: see ``ChangeOptions``.

        Returns:
            The landscape on the new grid; its ``path`` says where it lies.
        """
        chosen = self._with("regrid", ChangeOptions, options)
        source = read_source(file)
        change = find_change(source, size, factor, margin, limits, output)
        return _landscape(regrid(source, change, self._callback_fn, plane, run, output, chosen))

    @documented(CurvatureOptions)
    @measuring
    def curvature(
        self, weights: Weights, *, output: str | os.PathLike[str] | None = None, **options: Unpack[CurvatureOptions]
    ) -> Curvature | None:
        """Measures how a loss bends at one set of weights: eigenvalues of its Hessian, their sum, their density.

        It takes PyTorch, JAX, Keras or MindSpore, and of several data sets the first one;
        ``SummaryLandscape.gen_curvature`` goes along a run.

        Args:
            weights: a network, a state dict, or the path of a file of weights.
            output: the curvature file, or its fsspec URL; None keeps all in memory. A file of the same identity is
                continued.
            **options: see ``CurvatureOptions``.

        Returns:
            The curvature, with one row; its ``path`` is ``output``.

        Raises:
            CurvatureError: the loss is not finite, or the network or the loss has no second derivative.
        """
        chosen = self._with("curvature", CurvatureOptions, options)
        reader = as_reader("weights", weights)
        path = None if output is None else output_file(output, (reader,), rehearsal=chosen["dry_run"])
        return measure_weights(reader, self._callback_fn, path, chosen)

    @documented(EigenvectorOptions)
    def hessian_plane(
        self,
        origin: Weights,
        *,
        name: str | None = None,
        kept_beside: str | os.PathLike[str] | None = None,
        **options: Unpack[EigenvectorOptions],
    ) -> Plane:
        """Returns a plane, or a line, along eigenvectors of the loss's Hessian at a set of weights.

        The directions have length one, so that coordinates are distances in weight space, and the loss bends along each
        as its eigenvalue says: half the eigenvalue times the distance squared. The plane's own axes reach to where that
        is ``rise``. Random directions average over all eigenvalues, so that a saddle looks like a minimum in them;
        along ("top", "bottom") it does not.

        Args:
            origin: the weights: a network, a state dict, a file, or a ``StateReader``.
            name: what pictures call the network, such as "SGD"; None calls it the origin.
            kept_beside: a landscape file for which an earlier call found this plane; its vectors are read instead.
            **options: see ``EigenvectorOptions``.

        Returns:
            The plane. ``grid`` keeps its vectors beside the landscape file, and continues with those. In a dry run
            nothing is searched, and any directions stand for them.

        Raises:
            CurvatureError: the network or the loss has no second derivatives; the text says what else there is.

        Source: Boettcher and Wheeler 2024 (saddles in random planes); Ghorbani, Krishnan and Xiao 2019.
        """
        chosen = self._with("hessian_plane", EigenvectorOptions, options)
        return find_hessian_plane(origin, self._callback_fn, name, kept_beside, chosen)

    def trace(self, weights: Weights, lines: int = 30) -> Trace:
        """Estimates the trace of the loss's Hessian (the sum of its eigenvalues) in any framework, without derivatives.

        Each line goes through the weights in a random direction of -1 and 1, and takes two losses; the mean of their
        second differences is the trace (Hutchinson 1990). The step is chosen so that the loss rises by a thousandth of
        itself, but no shorter than the rounding of the weights allows, and tried against its half. Where derivatives
        exist, ``curvature`` needs fewer passes for the same accuracy.

        Args:
            weights: a network, a state dict, or the path of a file of weights.
            lines: how many.

        Returns:
            The trace, its 95 % interval (Student's t; NaN for one line), and what each line gave.
        """
        return measure_trace(weights, self._callback_fn, lines, self._with("trace"))

    @documented(CompareOptions)
    @measuring
    def compare(
        self,
        recipes: Mapping[str, Sequence[Any] | Mapping[Any, Any]],
        *,
        output: str | os.PathLike[str] | None = None,
        **options: Unpack[CompareOptions],
    ) -> Comparison | None:
        """Measures the loss along lines through several networks of each recipe, and says which recipe is flatter.

        All networks are measured along the same random directions (with the same random numbers, each scaled to its
        weights) and over the same samples. The network is the unit of the statistics: three of each at least. Buffers
        are each network's own, or computed at each point (``buffers="recalibrate"``).

        Args:
            recipes: the networks of each recipe, two recipes at least: a list of networks, state dicts, files of
                weights or run directories (whose last checkpoint is taken), all of one architecture. Or a dict from
                names to these, such as seeds; recipes that are both given so are compared in pairs of the same name.
            output: the comparison file, or its fsspec URL; None keeps all in memory. A file of the same identity is
                continued, line by line, and may get more networks or directions.
            **options: see ``CompareOptions``.

        Returns:
            The comparison; its ``path`` is ``output``.

        Source: Li, Xu, Taylor, Studer, Goldstein 2018 (the lines); Welch 1947, Holm 1979 (the tests).
        """
        return compare_recipes(recipes, self._callback_fn, output, self._with("compare", CompareOptions, options))

    def _with(self, method: str, kind: type[Any] | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """Returns all options of a measurement, checked; a ValueError for one that it has no use for."""
        check_useful(method, self._options, OPTIONS)
        chosen = {**self._options, **(with_defaults(f"Measure.{method}", kind, options or {}) if kind else {})}
        # The precision of another grid is the file's.
        return chosen if method == "regrid" else {**chosen, "plan": given_plan(chosen)}


def _landscape(measured: tuple[LandscapeData, SurveyReport] | None) -> Landscape | None:
    return None if measured is None else Landscape(measured[0], report=measured[1])


def _check_saves(is_curve: bool, chosen: Mapping[str, Any]) -> None:
    if is_curve and chosen["save_directions"]:
        raise ValueError(
            "save_directions must be left out for a path: give the path itself, whose control points are kept anyway."
        )
