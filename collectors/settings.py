"""The ``collect_landscape`` dictionary, validated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .validation import check_bool, check_choice, check_int, check_keys, wrong_type

UNITS = ("step", "epoch")
SMALLEST_LANDSCAPE, LARGEST_LANDSCAPE = 3, 256
_KEYS = ("landscape_size", "unit", "create_landscape", "num_samples", "intervals")


@dataclass(frozen=True)
class CreateLandscape:
    """Which landscapes to generate.

    Attributes:
        train: one landscape for each interval, on the plane of its principal directions.
        result: one landscape around the last checkpoint, along random directions.
    """

    train: bool = True
    result: bool = True

    @classmethod
    def from_dict(cls, value: object, name: str = "create_landscape") -> CreateLandscape:
        """Returns the validated choice; a key that is absent keeps its default (True)."""
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
        landscape_size: grid points per axis.
        num_samples: how many samples a loss is averaged over.
        create_landscape: which landscapes to generate.
    """

    intervals: tuple[tuple[int, ...], ...]
    unit: str = "step"
    landscape_size: int = 40
    num_samples: int = 2048
    create_landscape: CreateLandscape = field(default_factory=CreateLandscape)

    @classmethod
    def from_dict(cls, value: object, name: str = "collect_landscape") -> LandscapeSettings:
        """Returns settings from the dictionary that users write.

        Raises:
            TypeError: an item has the wrong type.
            ValueError: a key is unknown, ``intervals`` is missing, or an item has a wrong value.
        """
        given = check_keys(name, value, _KEYS, required=("intervals",))
        return cls(**_validated(given, name))

    def override(self, value: object, name: str = "collect_landscape") -> LandscapeSettings:
        """Returns settings in which the given items replace ours; None changes nothing."""
        if value is None:
            return self
        return replace(self, **_validated(check_keys(name, value, _KEYS), name))

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
            "create_landscape": {
                "train": self.create_landscape.train,
                "result": self.create_landscape.result,
            },
        }


def check_intervals(name: str, value: object) -> tuple[tuple[int, ...], ...]:
    """Returns intervals as tuples of sorted, unique, non-negative numbers, at least three each.

    Raises:
        TypeError: the value is no list of lists or ranges of ints.
        ValueError: there is no interval, or one is too short, unsorted, repeated or negative.
    """
    intervals = tuple(
        tuple(
            check_int(f"{name}[{index}][{place}]", number, minimum=0)
            for place, number in enumerate(_sequence(f"{name}[{index}]", item))
        )
        for index, item in enumerate(_sequence(name, value))
    )
    if not intervals:
        raise ValueError(f"{name} must hold at least one interval, but it is empty; for example [range(0, 21)].")
    for index, interval in enumerate(intervals):
        if len(interval) < 3:
            raise ValueError(
                f"{name}[{index}] must hold at least three numbers (a plane needs three checkpoints), "
                f"but got {list(interval)}."
            )
        if any(later <= earlier for earlier, later in itertools.pairwise(interval)):
            raise ValueError(
                f"{name}[{index}] must be sorted and without repetition, but got {list(interval)}; "
                f"write {sorted(set(interval))}."
            )
    if len(set(intervals)) != len(intervals):
        raise ValueError(f"{name} holds the same interval twice: {[list(item) for item in intervals]}.")
    return intervals


def _validated(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    checks: dict[str, Callable[[Any, str], Any]] = {
        "intervals": lambda value, label: check_intervals(label, value),
        "unit": lambda value, label: check_choice(label, value, UNITS),
        "landscape_size": lambda value, label: check_int(label, value, SMALLEST_LANDSCAPE, LARGEST_LANDSCAPE),
        "num_samples": lambda value, label: check_int(label, value, minimum=1),
        "create_landscape": CreateLandscape.from_dict,
    }
    return {key: checks[key](item, f"{name}[{key!r}]") for key, item in given.items()}


def _sequence(name: str, value: object) -> Sequence[Any]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise wrong_type(name, "a list, a tuple or a range", value)
    return value
