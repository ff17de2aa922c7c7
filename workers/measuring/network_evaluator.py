"""What the evaluators of networks do alike, whatever the framework: they keep to a plan and say what they measure."""

from __future__ import annotations

import warnings
from dataclasses import replace

from collectors.networks.weight_space import WeightSpace

from ..evaluator import Evaluator, EvaluatorDescription, MeasurementSetup
from ..measurement_plan import MeasurementPlan
from ..samples.samples import Samples


class NetworkEvaluator(Evaluator):
    """The base of each framework's evaluator, whose constructor ends with ``_describe``."""

    _plan: MeasurementPlan
    _notes: list[str]
    _description: EvaluatorDescription

    @property
    def description(self) -> EvaluatorDescription:
        """What this evaluator measures, and how."""
        return self._description

    def use_batch_size(self, batch_size: int) -> None:
        """Measures in smaller batches from now on."""
        self._plan = replace(self._plan, batch_size=batch_size)
        self._description = replace(self._description, plan=self._plan)

    def _warn(self, *texts: str) -> None:
        self._notes.extend(texts)
        for text in texts:
            warnings.warn(text, stacklevel=3)

    def _describe(
        self,
        space: WeightSpace,
        metrics: tuple[str, ...],
        samples: Samples,
        setup: MeasurementSetup,
        device: str,
        *,
        partition_dependent: bool,
    ) -> None:
        self._description = EvaluatorDescription(
            space=space,
            metrics=metrics,
            num_samples=samples.count,
            samples_sha256=samples.sha256(with_batches=partition_dependent),
            options=setup.options,
            partition_dependent=partition_dependent,
            plan=self._plan,
            device=device,
            notes=tuple(self._notes),
        )
