"""How far the loss rises on the way from one network to another."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from collectors.files.places import AnyPath
from collectors.networks.buffers_between import has_statistics
from collectors.validation import wrong_value
from workers.measuring.sample_loss import mean_and_stderr
from workers.pool import Pool
from workers.pools.first_call import FirstCall
from workers.users_code import warn_user

from ..figures import Look, plot_barriers
from ..grid.data import LandscapeData
from ..grid.differences import BARRIER, ends_of_way, highest_rise
from ..grid.measuring import Grid, measure_plane
from ..grid.tasks import shares
from ..landscape import Landscape
from ..planes.from_weights import line_between
from ..planes.plane import Plane, buffer_policy
from ..record.checks import PointStatus

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Drawing


@dataclass(frozen=True, eq=False)
class Barrier:
    """How far the loss on a line or a curve rises above the chord between its ends.

    Attributes:
        height: the largest rise above the straight line between the two ends' losses (Entezari et al. 2022); 0 where
            the loss nowhere rises above it, infinite where the loss is, NaN where an end has no finite loss.
        stderr: its standard error over samples, of the differences that each sample has at these three points; NaN
            where samples have no losses of their own or memory does not hold them, and where nothing rises.
        at: where it is: 0 is the first network, 1 the second.
        landscape: all that was measured.
        limit: where nothing rises: how high the barrier may be at the point that comes nearest to one, the end of a
            one-sided interval of 95 % over samples; NaN where samples have no losses of their own.
    """

    height: float
    stderr: float
    at: float
    landscape: Landscape
    limit: float = math.nan

    @classmethod
    def of(cls, landscape: Landscape) -> Barrier:
        """Returns the barrier of a line or a curve that was measured from 0 to 1.

        Args:
            landscape: such as that of a file.

        Raises:
            ValueError: it is a plane, or was not measured at 0 and at 1.
        """
        rise = highest_rise(landscape)
        return cls(rise.height, rise.stderr, rise.at, landscape, rise.limit)

    def __repr__(self) -> str:
        error = f" ± {self.stderr:.2g}" if math.isfinite(self.stderr) else ""
        losses = " and ".join(f"{value:.4g}" for value in ends_of_way(self.landscape))
        if self.height == 0:
            limit = f", at most {self.limit:.2g} with 95 % confidence" if math.isfinite(self.limit) else ""
            return f"Barrier(none: no point rises above the chord{limit}; losses at the ends {losses})"
        return f"Barrier({self.height:.4g}{error} at t = {self.at:.3g}; losses at the ends {losses})"

    def plot(self, others: Mapping[str, Barrier] | None = None, ax: Drawing | None = None, **look: Unpack[Look]) -> Any:
        """Draws the loss on the way, with the barrier marked; see ``figures.plot_barriers``.

        Args:
            others: further ways between the same networks, by name; this one is "straight", or "curved" along a curve.
            ax: where to draw; None makes a figure.
            **look: see ``figures.Look``.

        Raises:
            ValueError: ``others`` has this one's name.
        """
        name = "curved" if self.landscape.attributes.get("decomposition") == "path" else "straight"
        if others and name in others:
            raise wrong_value("others", f"ways of other names than {name!r}, which is this one's", list(others))
        ways = {name: self, **(others or {})}
        return plot_barriers({name: way.landscape for name, way in ways.items()}, ax, **look)


def measure_barrier(
    line: Plane | None,
    ends: tuple[Any, Any],
    names: Sequence[str] | None,
    callback_fn: Callable[[], Any],
    points: int,
    path: AnyPath | None,
    chosen: Mapping[str, Any],
) -> Barrier | None:
    if line is None:
        callback_fn = callback_fn if isinstance(callback_fn, FirstCall) else FirstCall(callback_fn, chosen)
        line = line_between(*ends, network=callback_fn.space, names=names)
    if chosen["buffers"] == "auto":
        recalibrated = line.space.framework in ("torch", "keras") and any(map(has_statistics, line.end_buffers))
        policy = "recalibrate" if recalibrated else "interpolate" if line.end_buffers else "fixed"
        if policy != buffer_policy("auto", line.decomposition, line.end_buffers):
            chosen = {**chosen, "buffers": policy}
    grid, closing = Grid(x=np.linspace(0, 1, points)), functools.partial(_find_stderr, line)
    measured = measure_plane(line, callback_fn, grid, chosen, path, closing)
    if measured is None:
        return None
    result = Barrier.of(Landscape(measured[0], report=measured[1]))
    loss = result.landscape.loss
    missing = int(np.isnan(loss).sum())
    if math.isnan(result.height):
        what = "was not measured" if PointStatus.PENDING in result.landscape.status[[0, -1]] else "is not finite"
        warn_user(f"the loss {what} at one of the two networks, so there is no barrier between them to speak of.")
    elif result.height == math.inf:
        warn_user("the loss is infinite between the two networks, and so is the barrier.")
    elif missing:
        warn_user(
            f"the loss is not finite, or was not measured, at {missing} of {len(loss)} points between the two "
            "networks; the barrier is that of the others, and may be higher.",
        )
    return result


def _find_stderr(line: Plane, pool: Pool, data: LandscapeData) -> dict[str, Any]:
    rise = highest_rise(data)
    at = rise.at if rise.height else rise.nearest
    is_known = math.isfinite(rise.stderr) or math.isfinite(rise.limit)
    if is_known or not (math.isfinite(rise.height) and math.isfinite(at)):
        return {}
    losses = pool.sample_losses([shares(line, (place,)) for place in (0.0, at, 1.0)])
    if losses is None:
        return {}
    # Each sample's own rise above its own chord: what is alike at the three places does not count.
    rises = np.array([at - 1, 1.0, -at]) @ losses.numerators
    reduction = "sum" if losses.denominators is None else "mean"
    _, _, stderr = mean_and_stderr(rises, losses.denominators, reduction)
    return {BARRIER: {"at": at, "height": rise.height, "stderr": float(stderr)}} if math.isfinite(stderr) else {}
