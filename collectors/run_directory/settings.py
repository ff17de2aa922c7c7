"""The ``collect_landscape`` dictionary, validated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..validation import check_bool, check_choice, check_int, check_keys, wrong_type, wrong_value

UNITS = ("step", "epoch")
SMALLEST_LANDSCAPE, LARGEST_LANDSCAPE = 3, 256
LONGEST_INTERVAL = 1_000_000
_KEYS = ("landscape_size", "unit", "create_landscape", "num_samples", "intervals")


@dataclass(frozen=True)
class CreateLandscape:
    """Which landscapes: of each interval on its PCA plane (``train``), of the end on a random one (``result``)."""

    train: bool = True
    result: bool = True

    @classmethod
    def from_dict(cls, value: object, name: str = "create_landscape") -> CreateLandscape:
        """Returns the validated choice; a key that is absent keeps its default (True)."""
        if isinstance(value, CreateLandscape):
            value = asdict(value)
        given = check_keys(name, value, ("train", "result"))
        chosen = cls(**{key: check_bool(f"{name}[{key!r}]", item) for key, item in given.items()})
        if not (chosen.train or chosen.result):
            raise ValueError(
                f"{name} must ask for at least one landscape, but train and result are both False; "
                "set one of them to True, or leave collect_landscape out."
            )
        return chosen


@dataclass(frozen=True)
class LandscapeSettings:
    """What to collect while training, and how to draw it later.

    Attributes:
        intervals: groups of step or epoch numbers; each is sorted, unique and has at least three. The number
            0 is the state before the first step.
        unit: whether the numbers count steps or epochs.
        landscape_size: grid points per axis, 3 to 256; 40 by default.
        num_samples: how many samples a loss is averaged over, 2048 by default (MindSpore's documents also say 128, its
            code is 2048); by name, where callback_fn returns several data sets.
        create_landscape: which landscapes to generate.

    Raises:
        TypeError: an attribute has the wrong type.
        ValueError: an attribute has a wrong value.
    """

    intervals: tuple[tuple[int, ...], ...]
    unit: str = "step"
    landscape_size: int = 40
    num_samples: int | dict[str, int] = 2048
    create_landscape: CreateLandscape = field(default_factory=CreateLandscape)

    def __post_init__(self) -> None:
        for key, item in _validated({key: getattr(self, key) for key in _KEYS}).items():
            object.__setattr__(self, key, item)

    @classmethod
    def from_dict(cls, value: object, name: str = "collect_landscape") -> LandscapeSettings:
        """Returns settings from the dictionary that users write.

        Raises:
            TypeError: an item has the wrong type.
            ValueError: a key is unknown, ``intervals`` is missing, or an item has a wrong value.
        """
        given = check_keys(name, value, _KEYS, required=("intervals",))
        return cls(**_validated(given, name))

    def override(self, value: object) -> LandscapeSettings:
        """Returns settings in which the given items replace ours; None changes nothing."""
        if value is None:
            return self
        return replace(self, **_validated(check_keys("collect_landscape", value, _KEYS), "collect_landscape"))

    @property
    def numbers(self) -> frozenset[int]:
        """All step or epoch numbers of all intervals."""
        return frozenset(number for interval in self.intervals for number in interval)

    def to_metadata(self) -> dict[str, Any]:
        """Returns our part of ``train_metadata.json``."""
        return {
            "epoch_group": {str(index): list(interval) for index, interval in enumerate(self.intervals)},
            "unit": self.unit,
            "num_samples": self.num_samples,
            "landscape_size": self.landscape_size,
            "create_landscape": asdict(self.create_landscape),
        }


def check_intervals(name: str, value: object) -> tuple[tuple[int, ...], ...]:
    """Returns intervals as tuples of sorted, unique, non-negative numbers, at least three each."""
    intervals = tuple(check_interval(f"{name}[{index}]", item) for index, item in enumerate(_sequence(name, value)))
    if not intervals:
        raise ValueError(f"{name} must hold at least one interval, but it is empty; for example [range(0, 21)].")
    for index, interval in enumerate(intervals):
        if interval in intervals[:index]:
            raise ValueError(f"{name}[{index}] repeats {name}[{intervals.index(interval)}]; give each interval once.")
    return intervals


def check_interval(name: str, value: object) -> tuple[int, ...]:
    """Returns sorted, unique, non-negative numbers, at least three; errors as in ``check_intervals``."""
    interval = tuple(
        check_int(f"{name}[{index}]", number, minimum=0) for index, number in enumerate(_sequence(name, value))
    )
    if len(interval) < 3:
        raise ValueError(
            f"{name} must hold at least three numbers (a plane needs three checkpoints), but got {list(interval)}."
        )
    for earlier, later in itertools.pairwise(interval):
        if later <= earlier:
            raise ValueError(
                f"{name} must be sorted and without repetition, but {later} follows {earlier}; write sorted(set(...))."
            )
    return interval


def _validated(given: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    checks: dict[str, Callable[[Any, str], Any]] = {
        "intervals": lambda value, label: check_intervals(label, value),
        "unit": lambda value, label: check_choice(label, value, UNITS),
        "landscape_size": lambda value, label: check_int(label, value, SMALLEST_LANDSCAPE, LARGEST_LANDSCAPE),
        "num_samples": _check_num_samples,
        "create_landscape": CreateLandscape.from_dict,
    }
    return {key: checks[key](item, key if name is None else f"{name}[{key!r}]") for key, item in given.items()}


def _check_num_samples(value: object, name: str) -> int | dict[str, int]:
    if isinstance(value, Mapping):
        return {str(key): check_int(f"{name}[{key!r}]", item, minimum=1) for key, item in value.items()}
    return check_int(name, value, minimum=1)


def _sequence(name: str, value: object) -> Sequence[Any]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Sequence):
        raise wrong_type(name, "a list, a tuple or a range", value)
    # A slice, because len() fails for the longest ranges.
    if value[LONGEST_INTERVAL : LONGEST_INTERVAL + 1]:
        raise wrong_value(name, f"at most {LONGEST_INTERVAL} items long", value)
    return value
