"""What a user may choose about how a loss is measured, apart from the network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from collectors.validation import check_bool, check_choice, check_int, wrong_type, wrong_value

from .measurement_plan import PRECISIONS

BUFFER_POLICIES = ("fixed", "recalibrate", "interpolate")
SAMPLE_CHOICES = ("first", "random")
AUTO = "auto"
_SHARE = 0.5
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+|%)\s*")
_EXPECTED = '"auto" (half of what is free), a number of bytes, or text such as "8GB" or "25%" (of what is free)'


def check_num_samples(name: str, number: Any) -> int | dict[str, int | None] | None:
    """Returns how many samples count, of each data set where these have names; None stands for all."""
    if isinstance(number, Mapping):
        return {of: None if count is None else check_int(f"{name}[{of!r}]", count, 1) for of, count in number.items()}
    return None if number is None else check_int(name, number, minimum=1)


def check_groups(name: str, groups: Any) -> Any:
    """Returns what makes groups of samples, or None."""
    if groups is not None and not callable(groups) and groups != "target":
        raise wrong_value(name, '"target", a function of (inputs, targets), or None', groups)
    return groups


def memory_limit(value: object, name: str = "sample_memory") -> int | float:
    """Returns the bytes that samples may take (int), or their share of free memory (float): "auto", 8, "8GB", "25%"."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong_type(name, _EXPECTED, value)
    if value == AUTO:
        return _SHARE
    match = None if isinstance(value, int) else _TEXT.fullmatch(value.lower())
    size: int | float = 0
    if isinstance(value, int) or value.strip().isdigit():
        size = int(value)
    elif match is not None and match[2] in _UNITS:
        size = int(float(match[1]) * _UNITS[match[2]])
    elif match is not None and match[2] == "%" and float(match[1]) <= 100:
        size = float(match[1]) / 100
    if size <= 0:
        raise wrong_value(name, _EXPECTED, value)
    return size


@dataclass(frozen=True)
class MeasurementOptions:
    """What is measured, apart from the network itself.

    Attributes:
        num_samples: how many samples a value is averaged over; None means all of the data set. Of several data sets,
            one number for each of them, or a mapping by name, in which those that are left out count in full.
        samples: "first" (in data-set order) or "random" (a seeded subset).
        seed: of that subset, and of what a loss draws where ``seed_each_point`` is set.
        buffers: "fixed" (the origin's), "recalibrate" (normalization statistics are recomputed at each point) or
            "interpolate" (between the networks through which the plane goes).
        recalibration_batch_size: samples per batch while statistics are recomputed.
        precision: of the forward passes: "float32" (the network computes as it was built, float32 in full), or, for
            PyTorch, "tf32" (matrix products and convolutions of float32 in TensorFloat-32, on GPUs) or, for PyTorch
            and Keras, "bfloat16" (under autocast; weights stay float32, and loss and metrics get outputs in float32).
        groups: of samples whose losses are measured each, beside the loss of all: "target" (the classes), or a function
            of (inputs, targets) of a batch that returns a whole number for each sample; None for no groups.
        seed_each_point: whether a loss that draws random numbers draws the same ones at every point, by ``seed`` (for
            PyTorch). The data set's own batches are kept then, because draws belong to them.
        extremes: whether both ends of the Hessian's spectrum are measured at every point, beside the loss.
        keep_samples: whether the loss of each sample is returned for every point, beside the loss of all.
    """

    num_samples: int | Mapping[str, int | None] | None = None
    samples: str = "first"
    seed: int = 0
    buffers: str = "fixed"
    recalibration_batch_size: int = 256
    precision: str = "float32"
    groups: str | Callable[[Any, Any], Any] | None = None
    seed_each_point: bool = False
    extremes: bool = False
    keep_samples: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_samples", check_num_samples("num_samples", self.num_samples))
        check_choice("samples", self.samples, SAMPLE_CHOICES)
        check_int("seed", self.seed, minimum=0)
        check_choice("buffers", self.buffers, BUFFER_POLICIES)
        check_int("recalibration_batch_size", self.recalibration_batch_size, minimum=2)
        check_choice("precision", self.precision, PRECISIONS)
        check_groups("groups", self.groups)
        check_bool("seed_each_point", self.seed_each_point)
        check_bool("keep_samples", self.keep_samples)
        if check_bool("extremes", self.extremes) and self.buffers == "recalibrate":
            raise ValueError(
                'extremes=True needs buffers="fixed" or "interpolate": with "recalibrate" the statistics of all '
                "samples are a part of the loss, and products of the Hessian do not follow them."
            )

    @property
    def count(self) -> int | None:
        """How many samples of a single data set; of several, ``find_data_sets`` gives each of them its own options."""
        if isinstance(self.num_samples, Mapping):
            raise ValueError(f"num_samples must be one number for a single data set, but got {self.num_samples}.")
        return self.num_samples
