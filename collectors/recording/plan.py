"""What a SummaryCollector records and when."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Any

from ..summary.lineage import check_custom_lineage
from ..summary.writer import check_export_options, require_tensorboard
from ..validation import check_bool, check_instance, check_int, check_keys, wrong_value

SWITCHES = (
    "collect_metric",
    "collect_graph",
    "collect_train_lineage",
    "collect_eval_lineage",
    "collect_input_data",
    "collect_dataset_graph",
)
HISTOGRAMS = "histogram_regular"
TENSOR_RECORDS = 20
# The ``cb_params`` of a run, or those of its keys that are known.
Parameters = Mapping[str, Any]
INSTALL = "pip install 'summary-landscape[tensorboard]'"


class SummaryPlan:
    """The checked summary part of a SummaryCollector's arguments; the user asked for the items ``asked`` by name."""

    def __init__(
        self,
        collect_freq: Any,
        specified: Mapping[str, Any],
        keep_default_action: bool,
        custom_lineage_data: Any,
        collect_tensor_freq: Any,
        max_file_size: Any,
        export_options: Any,
    ) -> None:
        # ``specified`` is checked already.
        self.every = check_int("collect_freq", collect_freq, minimum=1)
        check_instance("custom_lineage_data", custom_lineage_data, (Mapping, type(None)), "a dict or None")
        self.asked = {key for key in SWITCHES if specified.get(key)} | {HISTOGRAMS} & set(specified)
        self.items = self.asked | ({*SWITCHES, HISTOGRAMS} - set(specified) if keep_default_action else set())
        self.pattern: re.Pattern[str] | None = specified.get(HISTOGRAMS)
        self.tensors_every = optional_positive("collect_tensor_freq", collect_tensor_freq)
        self.custom_lineage = check_custom_lineage("custom_lineage_data", custom_lineage_data or {})
        self.max_file_size = optional_positive("max_file_size", max_file_size)
        self.export_options = check_export_options(export_options)

    def collects(self, step: int) -> bool:
        """Returns whether everything but tensors is recorded."""
        return step % self.every == 0

    def collects_tensors(self, step: int, total: int | None) -> bool:
        """Returns whether tensors are recorded at a step (the first is 1); ``total`` is None while nobody knows it."""
        if self.tensors_every is not None:
            return step % self.tensors_every == 0
        return self.collects(step) if total is None else step in tensor_steps(self.every, total)

    def without_parameters(self) -> SummaryPlan:
        """Returns the plan for a network whose parameters are divided among processes."""
        # A process sees parts of the parameters, and looking at the whole would make it wait for the others.
        items = {HISTOGRAMS, "collect_graph"}
        if items & self.asked:
            warnings.warn(
                f"{' and '.join(sorted(items & self.asked))} record nothing, because the parameters are divided among "
                "processes; checkpoints and all other records are as usual.",
                UserWarning,
                stacklevel=6,
            )
        plan = copy.copy(self)
        plan.items = self.items - items
        return plan

    def where_possible(self, says_something: bool, landscape: bool) -> SummaryPlan | None:
        """Returns the plan; None if nothing is to be recorded, or TensorBoard is missing and nothing was asked for."""
        options = (self.custom_lineage, self.export_options, self.tensors_every, self.max_file_size)
        is_asked_for = bool(self.asked) or any(options)
        if not self.items and not is_asked_for:
            return None
        try:
            require_tensorboard()
        except ImportError:
            if is_asked_for:
                raise
            # A user who asks for landscapes alone need not hear of summaries.
            if says_something or not landscape:
                warnings.warn(
                    f"SummaryCollector records no summaries, because TensorBoard cannot be imported; {INSTALL}, or say "
                    "keep_default_action=False to do without.",
                    UserWarning,
                    stacklevel=3,
                )
            return None
        return self


def check_specified(value: object) -> dict[str, Any]:
    """Returns a copy of ``collect_specified_data``, checked but for ``collect_landscape``, its expression compiled."""
    if value is None:
        return {}
    given = check_keys("collect_specified_data", value, (*SWITCHES, HISTOGRAMS, "collect_landscape"))
    for key in SWITCHES:
        if key in given:
            check_bool(f"collect_specified_data[{key!r}]", given[key])
    pattern = given.get(HISTOGRAMS)
    if pattern is not None:
        name = "collect_specified_data['histogram_regular']"
        check_instance(name, pattern, str, "a regular expression (str) or None")
        try:
            given[HISTOGRAMS] = re.compile(pattern)
        except re.error as error:
            raise wrong_value(name, f"a valid regular expression ({error})", pattern) from error
    return given


@lru_cache(maxsize=16)
def tensor_steps(every: int, total: int) -> Container[int]:
    """Returns the multiples of ``every`` up to ``total``, or twenty steps if those are more; 0 is the first step."""
    if total // every + 1 <= TENSOR_RECORDS:
        return range(0, total + 1, every)
    stride = total // (TENSOR_RECORDS - 1)
    if stride > 1:
        return range(0, total + 1, stride)[:TENSOR_RECORDS]
    # A stride of 1 would spend them all on the beginning of a run of 20 to 37 steps.
    return frozenset(index * total // (TENSOR_RECORDS - 1) for index in range(TENSOR_RECORDS))


def optional_positive(name: str, value: Any) -> int | None:
    return None if value is None else check_int(name, value, minimum=1)
