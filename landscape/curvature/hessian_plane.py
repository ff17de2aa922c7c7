"""Planes along the directions in which the loss bends most: eigenvectors of its Hessian at a set of weights."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.files.places import AnyPath, check_directory
from collectors.networks.weight_space import WeightSpace
from collectors.weights.aligned import AlignedState, Weights, align, as_reader
from collectors.weights.safetensors_file import StateReader
from workers.curvature.measuring import CurvatureSettings
from workers.curvature.products import MATRICES, ProductSettings
from workers.errors import CurvatureError
from workers.evaluator import EvaluatorDescription
from workers.pool import Pool
from workers.users_code import warn_user

from ..errors import error_message
from ..grid.kept_plane import read_kept
from ..planes.axis_curvature import BOTTOM, FROM_THE_TOP, USUAL, AxisCurvature
from ..planes.directions import random_direction
from ..planes.from_checkpoints import plane_of_eigenvectors
from ..planes.plane import Plane
from ..record.identity import eigenvectors_identity, identity_of
from ..record.options import EigenvectorOptions, RunOptions, documented, with_defaults
from ..record.run import duration_text
from ..record.workers import open_workers
from ..roles import UNKNOWN, OriginRole, named_origin
from .experiment import curvature_task, find_out_how_losses_add_up

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import Float


# How long a product takes, in forward passes over all samples.
_PASSES_FOR_A_PRODUCT = (4, 7)
_MATRICES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix"}


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
    def of_run(cls, options: RunOptions) -> EigenvectorSettings:
        """Returns the settings of a run's options, whether or not it draws eigenvectors."""
        drawn = options["directions"] in MATRICES
        settings = cls(
            options["which"],  # type: ignore[arg-type]
            options["directions"] if drawn else "hessian",
            options["rise"],
            seed=options["seed"],
        )
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

    def cost(self, seconds_per_point: float) -> str:
        """Returns what finding the eigenvectors will cost, in words."""
        fewest, most = (20, 90) if BOTTOM in self.which else (8, 25)
        (shortest, longest), names = _PASSES_FOR_A_PRODUCT, " and ".join(self.which)
        times = [duration_text(seconds_per_point * count) for count in (fewest * shortest, most * longest)]
        return (
            f"before that its directions, the eigenvectors {names}: about {fewest} to {most} products, each as long as "
            f"{shortest} to {longest} points; {times[0]} to {times[1]}"
        )

    @property
    def measured(self) -> CurvatureSettings:
        """The settings with which workers find the eigenvectors."""
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

    def identity(self, description: EvaluatorDescription, state: AlignedState) -> dict[str, Any]:
        """Returns what the eigenvectors are of."""
        measured = identity_of(description, ("samples", "seed_each_point"))
        return eigenvectors_identity(
            measured, self.matrix, state.sha256(), self.which, tolerance=self.tolerance, seed=self.seed
        )


@documented(EigenvectorOptions)
def hessian_plane(
    origin: Weights,
    callback_fn: Callable[[], Any],
    *,
    name: str | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    kept_beside: str | os.PathLike[str] | None = None,
    device_ids: list[int] | None = None,
    **options: Unpack[EigenvectorOptions],
) -> Plane:
    """Returns a plane, or a line, along eigenvectors of the loss's Hessian at a set of weights.

    The directions have length one, so that coordinates are distances in weight space, and the loss bends along each as
    its eigenvalue says: half the eigenvalue times the distance squared. The plane's own axes reach to where that is
    ``rise``. Random directions average over all eigenvalues, so that a saddle looks like a minimum in them; along
    ("top", "bottom") it does not.

    Args:
        origin: the weights: a network, a state dict, a file, or a ``StateReader``.
        callback_fn: takes no argument, returns (model, network, dataset, metrics); PyTorch or JAX.
        name: what pictures call the network, such as "SGD"; None calls it the origin.
        num_samples: samples that the loss is a mean over; None means all of the data set.
        kept_beside: a landscape file for which an earlier call found this plane; its vectors are read instead.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        **options: see ``EigenvectorOptions``.

    Returns:
        The plane. ``evaluate`` keeps its vectors beside the landscape file, and continues with those.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        CurvatureError: the network or the loss has no second derivatives; the text says what else there is.
        CheckpointError: the weights do not fit the network or are not finite.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.

    Source: Boettcher and Wheeler 2024 (saddles in random planes); Ghorbani, Krishnan and Xiao 2019.
    """
    chosen: EigenvectorOptions = with_defaults("hessian_plane", EigenvectorOptions, options)
    settings = EigenvectorSettings(**{item.name: chosen[item.name] for item in fields(EigenvectorSettings)})  # type: ignore[literal-required]
    # Products run eagerly.
    how = {**chosen, "num_samples": num_samples, "device_ids": device_ids, "compile": False}
    role = named_origin(name)
    kept = None if kept_beside is None else check_directory("kept_beside", kept_beside)
    reader = as_reader("origin", origin)
    with open_workers(callback_fn, how) as pool:
        return plane_along_eigenvectors(pool, reader, settings, role=role, kept=kept, progress=chosen["progress"])


def plane_along_eigenvectors(
    pool: Pool,
    reader: StateReader,
    settings: EigenvectorSettings,
    *,
    role: OriginRole = UNKNOWN,
    kept: AnyPath | None = None,
    progress: bool = True,
    rehearsal: bool = False,
) -> Plane:
    """Returns the plane workers find, or that lies beside the landscape ``kept``; a random one for a ``rehearsal``."""
    space = pool.description.space
    state = align(reader, space)
    identity = settings.identity(pool.description, state)
    plane = None if kept is None else read_kept(kept, identity)
    if plane is not None and plane.curvature is not None:
        return replace(plane, curvature=replace(plane.curvature, rise=settings.rise), origin_role=role)
    if rehearsal:
        vectors = [_any_vector(space, state, index) for index in range(len(settings.which))]
        unknown = (math.nan,) * len(vectors)
        curvature = AxisCurvature(
            settings.matrix, settings.which, unknown, unknown, pool.description.num_samples, settings.rise
        )
        return plane_of_eigenvectors(state, space, vectors, curvature, identity, role=role)
    asked = settings.measured
    find_out_how_losses_add_up(pool, {0: state})
    result = pool.measure_curvature(curvature_task("origin", state, asked))
    found = result.values
    if found is None:
        raise CurvatureError(f"{state.label} has no plane along eigenvectors: {error_message(result.error or '')}")
    assert found.vectors is not None
    rows = [asked.top if name == BOTTOM else FROM_THE_TOP.index(name) for name in settings.which]
    curvature = AxisCurvature(
        settings.matrix,
        settings.which,
        tuple(float(found.eigenvalues[row]) for row in rows),
        tuple(float(found.residuals[row]) for row in rows),
        pool.description.num_samples,
        settings.rise,
    )
    if not found.converged[rows].all():
        warn_user(
            f"the eigenvectors {', '.join(settings.which)} have not converged after {found.products} products: "
            f"eigenvalues {_listed(curvature.eigenvalues)}, residuals {_listed(curvature.residuals)}. Raise "
            "max_products, or the tolerance.",
        )
    if progress:
        text = f"eigenvalues {_listed(curvature.eigenvalues)} ({', '.join(settings.which)})"
        print(f"{_MATRICES[settings.matrix]}: {text}, {found.products} products", file=sys.stderr)  # noqa: T201
    vectors = [found.vectors[row] for row in rows]
    return plane_of_eigenvectors(state, space, vectors, curvature, identity, notes=found.notes, role=role)


def _any_vector(space: WeightSpace, state: AlignedState, index: int) -> Float[np.ndarray, " weights"]:
    drawn = random_direction(space, state, seed=0, index=index, normalization="none", perturb_one_dimensional=True)
    vector = np.concatenate([drawn[tensor.name].reshape(-1) for tensor in space.trainable])
    return np.asarray(vector / np.linalg.norm(vector))


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" if math.isfinite(value) else str(value) for value in values)
