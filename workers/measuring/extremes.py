"""Both ends of the Hessian's spectrum at each point, beside the loss (Li et al. 2018, section 6)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collectors.networks.buffers_between import BuffersBetween
from collectors.networks.weight_space import State, move_along
from collectors.shapes import Float64

from ..curvature.eigenpairs import find_eigenpairs
from ..curvature.measuring import check_products, weights_length_of
from ..curvature.products import Products, ProductSettings, ShareProducts
from ..errors import CallbackFunctionError
from ..evaluator import Evaluator, EvaluatorDescription, OriginMeasurement, products_of
from ..metric_names import EXTREMES
from .checks import check_loaded, check_points
from .memory_shortage import use_batch_size
from .sample_loss import as_columns

TOLERANCE = 1e-2  # of each end's residual, as a share of its own size

_MAX_PRODUCTS = 200  # after which an end that is not known so well is NaN


class WithExtremes(Evaluator):
    """Measures what another evaluator measures, and the ends of the Hessian's spectrum of the main data set's loss."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._inner = evaluator
        self._plane: tuple[State, Sequence[State], State, Sequence[State]] | None = None
        self._is_checked = False
        clashes = sorted({*EXTREMES} & {*evaluator.description.metrics})
        if clashes:
            raise CallbackFunctionError(
                f"extremes=True measures {', '.join(EXTREMES)}, but callback_fn has metrics of the name {clashes}. "
                "Rename these, or leave extremes out."
            )
        products_of(evaluator, ProductSettings()).close()

    @property
    def description(self) -> EvaluatorDescription:
        inner = self._inner.description
        return replace(inner, metrics=(*inner.metrics, *EXTREMES), options=replace(inner.options, extremes=True))

    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        **options: Any,
    ) -> OriginMeasurement | None:
        """Puts a plane on the device; the ends at its origin are known once, and how long they take."""
        self._plane = (origin, directions, buffers, end_buffers)
        measured = self._inner.load(origin, directions, buffers, *([end_buffers] if end_buffers else []), **options)
        if measured is None:
            return None
        with products_of(self._inner, ProductSettings()) as shares:
            shares.move(origin, buffers)
            if not self._is_checked:
                check_products(Products(shares, weights_length_of(origin, shares.layout)), 0)
                self._is_checked = True
            shares.move(origin, buffers)  # forgets what is kept: each point makes its own
            start = time.perf_counter()
            ends, products = self._ends(shares, origin)
            seconds = time.perf_counter() - start
        return replace(
            measured,
            values=tuple(values | ends for values in measured.values),
            seconds=measured.seconds + seconds,
            seconds_of_extremes=seconds,
            products=products,
        )

    def measure(
        self, points: Float64[np.ndarray, "points axes"], **options: Any
    ) -> dict[str, Float64[np.ndarray, " points"]]:
        origin, directions, buffers, end_buffers = check_loaded(self._plane)
        checked, space = check_points(points, len(directions)), self.description.space
        between = BuffersBetween(space, buffers, end_buffers)
        values = self._inner.measure(points, **options)
        if options.get("sums"):
            return values
        ends_of_points = []
        with products_of(self._inner, ProductSettings()) as shares:
            for point in checked.tolist():
                parameters = {**origin, **move_along(space, origin, directions, point)}
                shares.move(parameters, {**buffers, **between.at(point)})
                ends_of_points.append(self._ends(shares, parameters)[0])
        return values | as_columns(ends_of_points, EXTREMES)

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        values = self._inner.measure_state(parameters, buffers)
        with products_of(self._inner, ProductSettings()) as shares:
            shares.move(parameters, check_loaded(self._plane)[2] if buffers is None else buffers)
            return values | self._ends(shares, parameters)[0]

    def use_batch_size(self, batch_size: int) -> None:
        use_batch_size(self._inner, batch_size)

    def products(self, settings: ProductSettings) -> ShareProducts:
        return products_of(self._inner, settings)

    def close(self) -> None:
        self._inner.close()

    def _ends(self, shares: ShareProducts, parameters: State) -> tuple[dict[str, float], int]:
        """Returns the ends where the network is, and how many products that took."""
        highest = lowest = float("nan")
        products = Products(shares, weights_length_of(parameters, shares.layout))
        gradient = products.gradient() if np.isfinite(products.loss) else np.full(1, np.nan)
        if np.isfinite(gradient).all():
            # Every point is searched from one start, so that equal weights give equal bits, whoever measures them.
            ends = find_eigenpairs(
                products,
                1,
                1,
                tolerance=TOLERANCE,
                max_products=_MAX_PRODUCTS,
                memory=shares.memory_for_vectors,
                gradient=gradient,
            )
            highest, lowest = (
                float(value) if converged else float("nan")
                for value, converged in zip(ends.values, ends.converged, strict=True)
            )
        with np.errstate(all="ignore"):
            ratio = float(np.abs(np.divide(lowest, highest)))
        return dict(zip(EXTREMES, (highest, lowest, ratio), strict=True)), products.count
