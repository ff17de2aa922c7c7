"""The contract between a network and everything that moves it through weight space (contract 2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from collectors.networks.weight_space import State, WeightSpace
from collectors.shapes import Float, Float64

from .curvature.products import WITHOUT_GRADIENTS, ProductSettings, ShareProducts
from .curves.curve import CurveTask, Fitting
from .errors import CallbackFunctionError, CurvatureError, CurveError
from .hardware import peak_memory
from .measurement_options import MeasurementOptions
from .measurement_plan import MeasurementPlan, Workload
from .metric_names import metric_name_problem

NUMERATORS, DENOMINATORS = "numerators", "denominators"
"""Under which names ``Evaluator.measure`` returns the sums of single samples."""


@dataclass(frozen=True)
class SampleMemory:
    """Where samples are kept."""

    held: tuple[bytes, ...] = ()  # other workers' samples, used if they begin, go on and end like this one's
    shared: bool = False  # whether this worker's samples are kept for others
    folder: str | None = None  # where they go then on systems that have no shared memory without names
    limit: int | float = 0.5  # bytes (int), or a share of free memory (float); what takes more is read in each pass
    obstacle: str = "only PyTorch networks are measured so"  # why that is not possible, in a few words; or empty


@dataclass(frozen=True)
class PassCost:
    """What a pass over samples costs that are read anew in each, as it was measured last."""

    points: int  # how many points are worth one pass
    reading: float  # seconds in which the samples are read
    point: float  # seconds of measuring one point in it


@dataclass(frozen=True)
class OriginMeasurement:
    """A plane's origin, measured by one worker.

    Attributes:
        values: over all samples: once, or twice where nothing else is repeated.
        repeated: over the same few samples, before all of them and afterwards; empty where all were measured twice.
        elsewhere: of a point far from it, over those few samples or over all.
        seconds: of measuring a point over all samples.
        seconds_of_extremes: of these, those of the ends of the Hessian's spectrum.
        products: with the Hessian, that these took.
        pass_cost: where samples are read anew in each pass, what one costs.
        memory: the most bytes that the process had taken by then; 0 where the system does not say.
    """

    values: tuple[dict[str, float], ...]
    repeated: tuple[dict[str, float], ...] = ()
    elsewhere: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    seconds_of_extremes: float = 0.0
    products: int = 0
    pass_cost: PassCost | None = None
    memory: int = field(default_factory=peak_memory)


@dataclass(frozen=True)
class MeasurementSetup:
    """What an evaluator of a framework needs beside the user's network, data, loss and metrics."""

    options: MeasurementOptions = field(default_factory=MeasurementOptions)
    threads: int = 1  # of the CPU that may be used; JAX takes as many as this process has cores when it starts
    device: str = "cpu"  # or "cuda:0", ...; Keras and MindSpore themselves say where they compute
    plan: MeasurementPlan | None = None  # how to compute; None tunes one on the real network and data
    restore_network: bool = True  # whether ``close`` puts it back; a worker of its own saves that memory
    # Whether a tuned plan is compiled, and for how much work (PyTorch); None compiles none. The other frameworks always
    # compile, or never do.
    workload: Workload | None = None
    memory: SampleMemory = SampleMemory()
    devices: tuple[str, ...] = ()  # all of the worker's, ``device`` first, over which a network may be spread


@dataclass(frozen=True)
class Partition:
    """How a loss and the metrics are added up on one plane; all workers of a pool take the first one's.

    Attributes:
        candidate: which of the evaluator's own ways to add the loss up.
        own_batches: whether the data set's own batches are kept, because the loss or a metric belongs to them.
        at_once: whether samples that came without batches are then measured all at once.
        notes: for the loss and each metric that keeps the batches, a sentence that says so.
        further: the same of each data set beside the main one.
    """

    candidate: int = 0
    own_batches: bool = False
    at_once: bool = True
    notes: tuple[str, ...] = ()
    further: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class DataSetDescription:
    """One of the data sets that callback_fn names; its samples are those that are really used."""

    name: str
    num_samples: int
    samples_sha256: str
    partition_dependent: bool = False


@dataclass(frozen=True)
class KeptSamples:
    """The samples of a data set whose losses are kept at each point."""

    name: str  # of the data set; "" where it has none
    count: int
    targets: bytes = b""  # int64 in little-endian bytes; empty where targets are not one whole number for each sample
    weights: bytes = b""  # of each in the mean, float64 in little-endian bytes; empty where all count alike
    is_sum: bool = False  # whether the loss of all samples is a sum, and no mean


@dataclass(frozen=True)
class EvaluatorDescription:
    """What an evaluator says of itself; all workers of a pool must say the same.

    Metrics, samples_sha256, partition_dependent, is_sum, plan, notes and partition are preliminary until
    ``Evaluator.load``.

    Attributes:
        space: the network's description.
        metrics: names of what ``measure`` returns, "loss" first; those of a data set beside the main one end with its
            name ("loss@test").
        num_samples: how many samples of the main data set are really used.
        samples_sha256: of those samples.
        options: what is measured.
        partition_dependent: whether the loss or a metric does not split into samples, so that the loader's own
            batches are part of its meaning.
        plan: how it is computed.
        device: where, such as "cpu" or "cuda".
        notes: what the user should know, in sentences.
        streamed: whether samples are read anew in each pass, so that points should be measured many at once.
        datasets: the data sets by name, the main one first; empty where there is one without a name.
        groups_sha256: of each sample's group; empty without groups.
        kept: the samples whose losses are kept, of each data set; empty where none are.
        partition: how the loss and the metrics are added up; None where that is no question.
        is_sum: whether the loss is known to be a sum over samples, and no mean.
        splits: whether ``Evaluator.measure`` gives the sums of single samples where it is asked for them.
        held: what other workers of this machine need to use this one's samples; empty where they cannot.

    Raises:
        CallbackFunctionError: a landscape file cannot store a metric under its name.
    """

    space: WeightSpace
    metrics: tuple[str, ...]
    num_samples: int
    samples_sha256: str
    options: MeasurementOptions
    partition_dependent: bool
    plan: MeasurementPlan
    device: str
    notes: tuple[str, ...] = ()
    streamed: bool = False
    datasets: tuple[DataSetDescription, ...] = ()
    groups_sha256: str = ""
    kept: tuple[KeptSamples, ...] = ()
    partition: Partition | None = None
    is_sum: bool = False
    splits: bool = False
    held: bytes = field(default=b"", compare=False, repr=False)

    def __post_init__(self) -> None:
        for problem in map(metric_name_problem, self.metrics):
            if problem is not None:
                raise CallbackFunctionError(problem)
        # So that no plan says otherwise than the options, whoever wrote the evaluator.
        object.__setattr__(self, "plan", replace(self.plan, precision=self.options.precision))


class Evaluator(ABC):
    """Measures one network. Subclasses hold what is particular to a framework.

    ``load`` is costly and called once per plane, ``measure`` is cheap and called often. An evaluator that has more to
    offer implements ``MakesProducts`` or ``FitsCurves`` as well.
    """

    @property
    @abstractmethod
    def description(self) -> EvaluatorDescription:
        """What this evaluator measures, and how."""

    @abstractmethod
    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        *,
        far_points: Sequence[Sequence[float]] = (),
        partition: Partition | None = None,
    ) -> OriginMeasurement | None:
        """Puts a plane on the device.

        Args:
            origin: every parameter at the plane's origin, by name.
            directions: for each axis, every trainable parameter's displacement, by name.
            buffers: every buffer at the origin, by name.
            end_buffers: given on a line or a plane through networks unless buffers are fixed: for each axis, by name,
                the buffers of the network at 1 along it that are not the same in all. ``BuffersBetween`` says what
                those that it names are at a point, where statistics are not recalibrated; all others are the origin's.
            far_points: given where ``description.partition`` is not None: far from the origin in the region that will
                be measured, the farthest first; of each the coordinates. There it shows whether a loss splits into
                samples, which samples need not differ enough for at the weights that callback_fn gives.
            partition: what another worker found out; taken as it is.

        Returns:
            The origin, where it was measured on the way. None lets the pool measure it with ``measure``.
        """

    @abstractmethod
    def measure(
        self, points: Float64[np.ndarray, "points axes"], *, sums: bool = False
    ) -> dict[str, Float[np.ndarray, " ..."]]:
        """Measures points of the loaded plane.

        Args:
            points: coordinates, shape (points, axes), in units of the directions.
            sums: given where ``description.splits``: whether the result is that of the main data set's single samples,
                NUMERATORS of shape (points, samples), and DENOMINATORS of shape (samples,) unless the loss is a sum.

        Returns:
            For every name in ``description.metrics`` one value per point, shape (points,); with ``keep_samples`` also
            each set's losses of samples, float32 of shape (points, samples), under ``SAMPLE_LOSSES``.
        """

    @abstractmethod
    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        """Measures one full set of weights, off the plane; the loaded plane stays in place.

        Args:
            parameters: every parameter, by name.
            buffers: every buffer, by name; None takes the origin's, recalibrated where points are.

        Returns:
            One value for every name in ``description.metrics``.
        """

    def close(self) -> None:  # noqa: B027
        """Leaves the user's network as it was found, bit for bit; there may be nothing to do."""


@runtime_checkable
class MakesProducts(Protocol):
    """What an evaluator implements whose loss can be differentiated twice."""

    def products(self, settings: ProductSettings) -> ShareProducts:
        """Returns what makes products of the main data set's loss; nothing else is measured until it is closed.

        Args:
            settings: which products.

        Raises:
            CurvatureError: the network has no such products.
        """


@runtime_checkable
class FitsCurves(Protocol):
    """What an evaluator implements that fits curves between two networks."""

    def fit_curve(self, task: CurveTask, begun: Fitting | None, seconds: float) -> Fitting:
        """Goes on with fitting a curve on the main data set, and leaves the network as it was found.

        Args:
            task: the curve.
            begun: how far an earlier call came, in whatever process; None begins.
            seconds: after how long it returns, once a step is done; the result is the same, however it is cut.

        Raises:
            CurveError: the loss is not finite on the curve, or there are no gradients.
        """


def products_of(evaluator: Evaluator, settings: ProductSettings) -> ShareProducts:
    """Returns an evaluator's products; CurvatureError where it makes none."""
    if isinstance(evaluator, MakesProducts):
        return evaluator.products(settings)
    raise CurvatureError(
        f"{type(evaluator).__name__} makes no products of the Hessian, because it has no second derivatives: networks "
        f"of PyTorch, JAX, Keras and MindSpore have them. {WITHOUT_GRADIENTS}."
    )


def fit_curve(evaluator: Evaluator, task: CurveTask, begun: Fitting | None, seconds: float) -> Fitting:
    """Lets an evaluator go on with fitting a curve; CurveError where it cannot."""
    if isinstance(evaluator, FitsCurves):
        return evaluator.fit_curve(task, begun, seconds)
    raise CurveError(
        f"{type(evaluator).__name__} cannot fit a curve, which needs gradients of the loss: networks of PyTorch, "
        "JAX, Keras and MindSpore have them. The barrier on the straight line can be measured in any framework "
        "(Measure.barrier)."
    )
