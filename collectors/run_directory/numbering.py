"""Which epoch or step each of a folder's checkpoints is of: from their names, or from what they say of themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..weights.foreign_checkpoint import AMBIGUOUS_SUFFIXES, CHECKPOINT_SUFFIXES

Unit = Literal["epoch", "step"]

# Numbers with a decimal point are losses and the like, and count nothing.
_NUMBER = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?(?![A-Za-z0-9])|\d+")
_WORD_BEFORE = re.compile(r"([A-Za-z]+)[^A-Za-z0-9]*$")
# A word with a number of its own belongs to that.
_WORD_BEHIND = re.compile(r"[^A-Za-z0-9]*([A-Za-z]+)(?![A-Za-z]|[^A-Za-z0-9]*\d)")
_SUFFIXES = (*CHECKPOINT_SUFFIXES, *AMBIGUOUS_SUFFIXES, ".index.json")
_SUFFIX = re.compile(f"(?:{'|'.join(map(re.escape, _SUFFIXES))})+$", re.IGNORECASE)
_UNITS: Mapping[str, Unit] = {
    **dict.fromkeys(("epoch", "epochs", "ep", "e"), "epoch"),
    **dict.fromkeys(("step", "steps", "globalstep", "iter", "iters", "iteration", "iterations", "it", "itr"), "step"),
}
# What other numbers in names count: trainings, not how far one was.
_OF_TRAININGS = frozenset(
    (
        "seed",
        "fold",
        "run",
        "rank",
        "version",
        "v",
        "trial",
        "rep",
        "replica",
        "worker",
        "exp",
        "experiment",
        "lr",
        "bs",
    )
)
_DIGITS = re.compile(r"(\d+)")
_LONGEST_NUMBER = 18


@dataclass(frozen=True)
class Numbers:
    """A number for each checkpoint, None where one way of finding them, the ``source`` ("name"), finds none."""

    found: tuple[int | None, ...]
    unit: Unit | None
    source: str

    @property
    def is_complete(self) -> bool:
        return None not in self.found and len({*self.found}) == len(self.found)


@dataclass(frozen=True)
class _Count:
    value: int
    word: str


def natural_key(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Returns a key by which names are sorted as people count: 2 before 10."""
    parts = [part for part in _DIGITS.split(name) if part]
    return tuple((False, int(part), "") if part.isdecimal() else (True, 0, part) for part in parts)


def numbers_of_names(paths: Sequence[Sequence[str]], unit: Unit | None = None) -> Numbers | None:
    """Returns the numbers in names, the last parts in which paths differ; None where they leave a choice."""
    depth = min(map(len, paths), default=0)
    level = next((index for index in range(1, depth + 1) if len({parts[-index] for parts in paths}) > 1), None)
    if level is None:
        return None
    # Folders may have a point in their names.
    names = [_SUFFIX.sub("", parts[-level]) if level == 1 else parts[-level] for parts in paths]
    parsed = [_counts(name) for name in names]
    wanted: tuple[Unit, ...] = ("epoch", "step") if unit is None else (unit,)
    # The one integer counts that is not the same in all names; of several, the one beside "epoch" or "step".
    labelled = [(label, tuple(_only(counts, label) for _, counts in parsed)) for label in wanted]
    for label, found in labelled:
        if None not in found and len({*found}) == len(found):
            return None if _several_trainings(parsed) else Numbers(found, label, "name")
    same = Counter(text for text, counts in parsed if counts).most_common(1)
    if not same or _several_trainings(parsed):
        return None
    members = [counts for text, counts in parsed if text == same[0][0]]
    differing = [column for column in zip(*members, strict=True) if len({count.value for count in column}) > 1]
    for label, found in labelled:
        if sum(number is not None for number in found) >= len(members) and any(
            _unit_of(column[0]) == label for column in differing
        ):
            return Numbers(found, label, "name")
    if len(differing) != 1 or _unit_of(differing[0][0]) is not None:
        return None
    place = next(index for index, column in enumerate(zip(*members, strict=True)) if column == differing[0])
    found = tuple(counts[place].value if text == same[0][0] else None for text, counts in parsed)
    return Numbers(found, unit, "name")


def numbers_inside(counters: Sequence[Mapping[str, int]], unit: Unit | None = None) -> Numbers | None:
    """Returns the numbers inside checkpoints, under "epoch" or "step"; None where no two of them differ."""
    wanted: tuple[Unit, ...] = ("epoch", "step") if unit is None else (unit,)
    ways = [Numbers(tuple(item.get(label) for item in counters), label, f"{label} inside") for label in wanted]
    several = [way for way in ways if len({*way.found} - {None}) > 1]
    # Epochs that are all different come first, then steps.
    return next((way for way in several if way.is_complete), several[0] if several else None)


def _counts(name: str) -> tuple[str, list[_Count]]:
    """Returns the text around a name's numbers, and the whole numbers with the word that each belongs to."""
    counts = []
    for match in _NUMBER.finditer(name):
        if "." in match[0] or len(match[0]) > _LONGEST_NUMBER:
            continue
        before, behind = _WORD_BEFORE.search(name[: match.start()]), _WORD_BEHIND.match(name[match.end() :])
        word = before[1].lower() if before else ""
        if word not in _UNITS and word not in _OF_TRAININGS and behind and behind[1].lower() in _UNITS:
            word = behind[1].lower()
        counts.append(_Count(int(match[0]), word))
    return _NUMBER.sub("#", name), counts


def _unit_of(count: _Count) -> Unit | None:
    return _UNITS.get(count.word)


def _only(counts: Sequence[_Count], unit: Unit) -> int | None:
    found = [count.value for count in counts if _unit_of(count) == unit]
    return found[0] if len(found) == 1 else None


def _several_trainings(parsed: Sequence[tuple[str, Sequence[_Count]]]) -> bool:
    """Returns whether the names number seeds, folds or the like, in which they differ."""
    values: dict[str, set[int]] = {}
    for _, counts in parsed:
        for count in counts:
            if count.word in _OF_TRAININGS:
                values.setdefault(count.word, set()).add(count.value)
    return any(len(found) > 1 for found in values.values())
