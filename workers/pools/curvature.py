"""What one worker does where curvature is measured: whole sets of weights, or some shares of the samples at one."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from collectors.networks.weight_space import State

from ..curvature.measuring import CurvatureSettings, CurvatureValues, measure_state_curvature
from ..curvature.products import SHARES, Layout, ProductSettings, ShareProducts, add_in_order
from ..errors import PoolError
from ..evaluator import Evaluator, products_of

CurvatureOutcome: TypeAlias = tuple[CurvatureValues | None, str | None]
"""The curvature, or the traceback of what went wrong."""


class WorkerCurvature:
    """Measures curvature with an evaluator, whose network is as it was found after each call but ``open``."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._checked: ProductSettings | None = None
        self._shares: ShareProducts | None = None
        self._is_at: object = None

    def measure(self, read: Callable[[], tuple[State, State | None]], settings: CurvatureSettings) -> CurvatureOutcome:
        """Measures the curvature at one set of weights; the first time the products are tried for symmetry."""
        self.close()
        with products_of(self._evaluator, settings.products) as shares:
            values, error = measure_on(shares, read, settings, check=self._checked != settings.products)
        if values is not None:
            self._checked = settings.products
        return values, error

    def open(self, settings: ProductSettings) -> tuple[Layout, list[int]]:
        """Gets ready for shares of the samples; returns how vectors are made, and the samples in each share."""
        self.close()
        self._shares = products_of(self._evaluator, settings)
        return self._shares.layout, [self._shares.samples_in(share) for share in range(SHARES)]

    def add(
        self,
        where: tuple[object, ProductSettings, Callable[[], tuple[State, State | None]]],
        method: str,
        parts: Sequence[range],
        options: Mapping[str, Any],
        *arguments: Any,
    ) -> list[Any]:
        """Returns what a method of ``ShareProducts`` gives for some shares, added up for each part of them."""
        # Which weights these are; settings, for a worker that is not open; and what reads the weights.
        key, settings, read = where
        if self._shares is None:
            self.open(settings)
        opened = self._shares
        assert opened is not None
        if self._is_at != key:
            opened.move(*read())
            self._is_at = key

        def made() -> Iterator[Any]:
            numbers = [share for part in parts for share in part]
            if method == "product" and not options:
                (vector,) = arguments
                return opened.products(vector, numbers)
            return (getattr(opened, method)(*arguments, share, **options) for share in numbers)

        with opened.together():
            found = made()  # in the order in which they are added
            return [add_in_order(part, found) for part in parts]

    def close(self) -> tuple[str, ...]:
        """Leaves the network as it was found; returns what the user should know of what was done since ``open``."""
        if self._shares is None:
            return ()
        notes = self._shares.notes
        self._shares.close()
        self._shares = self._is_at = None
        return notes


def measure_on(
    shares: ShareProducts, read: Callable[[], tuple[State, State | None]], settings: CurvatureSettings, *, check: bool
) -> CurvatureOutcome:
    """Measures the curvature at one set of weights; any exception but a PoolError becomes its traceback."""
    try:
        return measure_state_curvature(shares, *read(), settings, check=check), None
    except PoolError:
        raise
    except Exception:
        return None, traceback.format_exc()
