"""Planes along the directions in which the loss bends most: eigenvectors of its Hessian at a set of weights."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from collectors.files.places import AnyPath, check_directory
from collectors.networks.weight_space import WeightSpace
from collectors.weights.aligned import AlignedState, Weights, align, as_reader
from collectors.weights.safetensors_file import StateReader
from workers.curvature.measuring import CurvatureSettings
from workers.curvature.products import MATRICES, ProductSettings
from workers.errors import CurvatureError
from workers.pool import Pool
from workers.users_code import warn_user

from ..errors import error_message
from ..grid.kept_plane import read_kept
from ..planes.axis_curvature import BOTTOM, FROM_THE_TOP, USUAL, AxisCurvature
from ..planes.directions import Direction, as_direction, random_direction
from ..planes.from_checkpoints import plane_of_eigenvectors
from ..planes.plane import Plane
from ..record.identity import eigenvectors_identity, identity_of
from ..record.run import Run
from ..record.workers import open_workers
from ..roles import OriginRole, named_origin
from .data import MATRIX_NAMES
from .experiment import curvature_task, find_out_how_losses_add_up


@dataclass(frozen=True)
class EigenvectorSettings:
    """Which eigenvectors a plane goes along; ``OPTIONS`` explains and checks them."""

    which: tuple[str, ...] = USUAL
    matrix: str = "hessian"
    rise: float = 1.0
    tolerance: float = 1e-3
    max_products: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.matrix == "ggn" and BOTTOM in self.which:
            raise ValueError(
                'which must not have "bottom" with matrix="ggn", whose lowest eigenvalue is zero, or nearly zero, in '
                'very many directions: take "second" or another, or matrix="hessian".'
            )

    @classmethod
    def of_run(cls, options: Mapping[str, Any]) -> EigenvectorSettings:
        """Returns the settings of a run's options, whether or not it draws eigenvectors."""
        drawn = options["directions"] in MATRICES
        matrix = options["directions"] if drawn else "hessian"
        settings = cls(options["which"], matrix, options["rise"], seed=options["seed"])
        if not drawn and (settings.which, settings.rise) != (cls.which, cls.rise):
            name = "rise" if settings.which == cls.which else "which"
            raise ValueError(
                f'{name} must be left out where no eigenvectors are drawn; directions="hessian", for one, draws them.'
            )
        return settings

    @property
    def label(self) -> str:
        """What the file names of such planes end with, so that several lie side by side."""
        return self.matrix if self.which == USUAL else "_".join((self.matrix, *self.which))

    @property
    def measured(self) -> CurvatureSettings:
        return CurvatureSettings(
            ProductSettings(self.matrix),  # type: ignore[arg-type]
            top=max((FROM_THE_TOP.index(name) + 1 for name in self.which if name != BOTTOM), default=0),
            bottom=int(BOTTOM in self.which),
            trace_probes=0,
            tolerance=self.tolerance,
            max_products=self.max_products,
            # Both vectors of a double eigenvalue span the plane, of which one search finds a single one.
            keep_vectors=True,
            seed=self.seed,
        )


def find_hessian_plane(
    origin: Weights, callback_fn: Callable[[], Any], name: str | None, kept_beside: object, chosen: Mapping[str, Any]
) -> Plane:
    settings = EigenvectorSettings(**{item.name: chosen[item.name] for item in fields(EigenvectorSettings)})
    role = named_origin(name)
    kept = None if kept_beside is None else check_directory("kept_beside", kept_beside)
    reader = as_reader("origin", origin)
    # Products run eagerly.
    with open_workers(callback_fn, {**chosen, "compile": False}, rehearsal=chosen["dry_run"]) as pool:
        return plane_along_eigenvectors(pool, reader, settings, Run.checked(chosen), role=role, kept=kept)


def plane_along_eigenvectors(
    pool: Pool, reader: StateReader, settings: EigenvectorSettings, run: Run, *, role: OriginRole, kept: AnyPath | None
) -> Plane:
    """Returns the plane workers find, or that lies beside the landscape ``kept``; a random one for a rehearsal."""
    space = pool.description.space
    state = align(reader, space)
    identity = eigenvectors_identity(
        identity_of(pool.description, ("samples", "seed_each_point")), settings.matrix, state.sha256(), settings.which,
        tolerance=settings.tolerance, seed=settings.seed,
    )  # fmt: skip
    plane = None if kept is None else read_kept(kept, identity)
    if plane is not None and plane.curvature is not None:
        return replace(plane, curvature=replace(plane.curvature, rise=settings.rise), origin_role=role)
    unknown = (math.nan,) * len(settings.which)
    curvature = AxisCurvature(
        settings.matrix, settings.which, unknown, unknown, pool.description.num_samples, settings.rise
    )
    if run.rehearsal:
        any_directions = [_any_direction(space, state, index) for index in range(len(settings.which))]
        return plane_of_eigenvectors(state, space, any_directions, curvature, identity, role=role)
    asked = settings.measured
    find_out_how_losses_add_up(pool, {0: state})
    result = pool.measure_curvature(curvature_task("origin", state, asked))
    found = result.values
    if found is None:
        raise CurvatureError(f"{state.label} has no plane along eigenvectors: {error_message(result.error or '')}")
    assert found.vectors is not None
    rows = [asked.top if name == BOTTOM else FROM_THE_TOP.index(name) for name in settings.which]
    values, errors = (tuple(values[rows].tolist()) for values in (found.eigenvalues, found.residuals))
    curvature = replace(curvature, eigenvalues=values, residuals=errors)
    which, listed = ", ".join(settings.which), _listed(values)
    if not found.converged[rows].all():
        warn_user(
            f"the eigenvectors {which} have not converged after {found.products} products: eigenvalues {listed}, "
            f"residuals {_listed(errors)}. Raise max_products of Measure.hessian_plane; measurements take its plane, "
            "with another output= or overwrite=True where a file goes along these.",
        )
    if run.progress:
        text = f"eigenvalues {listed} ({which})"
        print(f"{MATRIX_NAMES[settings.matrix]}: {text}, {found.products} products", file=sys.stderr)  # noqa: T201
    directions = [as_direction(found.vectors[row], space) for row in rows]
    return plane_of_eigenvectors(state, space, directions, curvature, identity, notes=found.notes, role=role)


def _any_direction(space: WeightSpace, state: AlignedState, index: int) -> Direction:
    drawn = random_direction(space, state, seed=0, index=index, normalization="none", perturb_one_dimensional=True)
    vector = np.concatenate([drawn[tensor.name].reshape(-1) for tensor in space.trainable])
    return as_direction(np.asarray(vector / np.linalg.norm(vector)), space)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" if math.isfinite(value) else str(value) for value in values)
