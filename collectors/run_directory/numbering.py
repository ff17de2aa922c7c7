"""Which epoch or step each checkpoint is of, by its name or by what it says of itself, and in which order they come."""

from __future__ import annotations

import functools
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ..files.places import AnyPath, with_slashes
from ..weights.foreign_checkpoint import AMBIGUOUS_SUFFIXES, CHECKPOINT_SUFFIXES, ForeignCheckpoint

Unit = Literal["epoch", "step"]
_BOTH: tuple[Unit, ...] = ("epoch", "step")

# Numbers with a decimal point or an exponent are losses and the like, and count nothing.
_NUMBER = re.compile(
    r"\d+\.\d+(?:e[+-]?\d+|[kKmM])?(?![A-Za-z0-9])|\d+e[+-]\d+(?![A-Za-z0-9])|(\d+)(?:([kKmM])(?![A-Za-z0-9]))?"
)
_ZEROS = {"k": "000", "m": "000000"}
_WORD_BEFORE = re.compile(r"([A-Za-z]+)[^A-Za-z0-9]*$")
# A word with a number of its own belongs to that.
_WORD_BEHIND = re.compile(r"[^A-Za-z0-9]*([A-Za-z]+)(?![A-Za-z]|[^A-Za-z0-9]*\d)")
_SUFFIXES = (*CHECKPOINT_SUFFIXES, *AMBIGUOUS_SUFFIXES, ".index.json")
_SUFFIX = re.compile(f"(?:{'|'.join(map(re.escape, _SUFFIXES))})+$", re.IGNORECASE)
_UNITS: Mapping[str, Unit] = {
    **dict.fromkeys(("epoch", "epochs", "ep", "e"), "epoch"),
    **dict.fromkeys(("step", "steps", "globalstep", "iter", "iters", "iteration", "iterations", "it", "itr"), "step"),
    "ba": "step",  # Composer's batch
}
# What other numbers in names count: trainings, not how far one was.
_OF_TRAININGS = {
    "seed", "fold", "run", "rank", "version", "v", "trial", "rep", "replica", "worker", "exp", "experiment", "lr", "bs",
}  # fmt: skip
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


class _Count(NamedTuple):
    value: int
    word: str
    unit: Unit | None


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
    wanted = _BOTH if unit is None else (unit,)
    # The one integer counts that is not the same in all names; of several, the one beside "epoch" or "step".
    labelled = [(label, tuple(_only(counts, label) for _, counts in parsed)) for label in wanted]
    for label, found in labelled:
        if None not in found and len({*found}) == len(found):
            return None if _several_trainings(parsed) else Numbers(found, label, "name")
    same = Counter(text for text, counts in parsed if counts).most_common(1)
    if not same or _several_trainings(parsed):
        return None
    shared, most = same[0]
    columns = enumerate(zip(*(counts for text, counts in parsed if text == shared), strict=True))
    # The place of each number that differs, and what it counts.
    differing = {place: column[0].unit for place, column in columns if len({count.value for count in column}) > 1}
    for label, found in labelled:
        if label in differing.values() and sum(number is not None for number in found) >= most:
            return Numbers(found, label, "name")
    if len(differing) != 1 or not {None, *wanted}.issuperset(differing.values()):
        return None
    ((place, said),) = differing.items()
    numbers = tuple(counts[place].value if text == shared else None for text, counts in parsed)
    return Numbers(numbers, unit or said, "name")


def numbers_inside(counters: Sequence[Mapping[str, int]], unit: Unit | None = None) -> Numbers | None:
    """Returns the numbers inside checkpoints, under "epoch" or "step"; None where no two of them differ."""
    wanted = _BOTH if unit is None else (unit,)
    ways = [Numbers(tuple(item.get(label) for item in counters), label, f"{label} inside") for label in wanted]
    several = [way for way in ways if len({*way.found} - {None}) > 1]
    # Epochs that are all different come first, then steps.
    return next((way for way in several if way.is_complete), next(iter(several), None))


class SeenCheckpoint:
    """A checkpoint without values: shapes by the plain network's names; ``said`` tells what was removed or left out."""

    def __init__(self, place: AnyPath, checkpoint: ForeignCheckpoint) -> None:
        self.place, self.counters, self.framework = place, checkpoint.counters, checkpoint.framework
        self.shapes = {name: array.shape for name, array in checkpoint.tensors.items()}
        self.dtypes = {name: array.dtype.name for name, array in checkpoint.tensors.items()}
        self.said = (*checkpoint.said, *checkpoint.left_out)


@dataclass(frozen=True)
class ImportOrder:
    """Which checkpoints are imported, by number; left out are ``copies``, each with the one of the same weights."""

    chosen: tuple[tuple[int, SeenCheckpoint], ...]
    unit: Unit
    source: str
    copies: tuple[tuple[AnyPath, AnyPath], ...] = ()

    def table(self) -> str:
        """Returns the numbers, where they come from and the files, and what was removed or left out, in lines."""
        places = [item.place for _, item in self.chosen]
        short = dict(zip(map(str, places), short_names(places), strict=True))
        width = max(len(self.source), len("from"))
        lines = [f"{self.unit:>8}  {'from':<{width}}  checkpoint"]
        lines += [f"{number:>8}  {self.source:<{width}}  {short[str(item.place)]}" for number, item in self.chosen]
        lines += [f"Left out: {copy} has the same weights as {short[str(of)]}." for copy, of in self.copies]
        notes = dict.fromkeys(text for _, item in self.chosen for text in item.said)
        for text in notes:
            by = [short[str(item.place)] for _, item in self.chosen if text in item.said]
            # Sentences begin with what was removed or with a small letter.
            everywhere = len(by) == len(self.chosen)
            lines.append(f"{text[:1].upper()}{text[1:]}" if everywhere else f"In {', '.join(by[:5])}: {text}")
        return "\n".join(lines)


def import_order(
    found: Sequence[SeenCheckpoint],
    digest: Callable[[SeenCheckpoint], str],
    *,
    numbers: Sequence[int] | None = None,
    unit: Unit | None = None,
) -> ImportOrder:
    """Returns the checkpoints in the order of training; ``digest`` (of weights) is called where two may be alike."""
    names, counters = [_parts(item.place) for item in found], [item.counters for item in found]
    by_name, inside = numbers_of_names(names, unit), numbers_inside(counters, unit)
    if numbers is not None:
        _warn_of_another_order(found, numbers, by_name)
        labels: Sequence[Unit | None] = (None, *_BOTH) if unit is None else (unit,)
        said = [way for label in labels for way in (numbers_of_names(names, label), numbers_inside(counters, label))]
        # What counts the same, as far as each checkpoint says something.
        fitting = (way.unit for way in said if way is not None and _agree(way.found, numbers))
        return _complete(found, Numbers(tuple(numbers), next(fitting, unit), "given"))
    ways = [way for way in (by_name, inside) if way is not None]
    # Names such as CKP-2_5 of one epoch count its steps from 1; those inside count all.
    of_steps = inside is not None and inside.unit == "step" and inside.is_complete
    unnamed = numbers_of_names(names)
    if of_steps and unnamed is not None and unnamed.unit is None and all("epoch" in item for item in counters):
        ways.reverse()
    for way in ways:
        if way.is_complete:
            return _complete(found, way)
    digest_of = functools.cache(lambda index: digest(found[index]))
    for way in ways:
        order = _without_copies(found, way, digest_of)
        if order is not None:
            return order
    raise _unclear(found, ways, unit)


def _agree(found: Sequence[int | None], numbers: Sequence[int]) -> bool:
    return all(one in (None, other) for one, other in zip(found, numbers, strict=True))


def short_names(places: Sequence[AnyPath]) -> list[str]:
    """Returns the paths without the folders that all of them share."""
    parts = [_parts(place) for place in places]
    shared = len(
        [*itertools.takewhile(lambda names: len({*names}) == 1, zip(*(item[:-1] for item in parts), strict=False))]
    )
    return ["/".join(item[shared:]) for item in parts]


def _counts(name: str) -> tuple[str, list[_Count]]:
    """Returns the text around a name's numbers, and the whole numbers with the word that each belongs to."""
    counts: list[_Count] = []

    def note(match: re.Match[str]) -> str:
        digits = (match[1] or "") + _ZEROS.get((match[2] or "").lower(), "")
        if not 0 < len(digits) <= _LONGEST_NUMBER:
            return "~"
        before, behind = _WORD_BEFORE.search(name[: match.start()]), _WORD_BEHIND.match(name[match.end() :])
        word = before[1].lower() if before else ""
        if word not in _UNITS and word not in _OF_TRAININGS and behind and behind[1].lower() in _UNITS:
            word = behind[1].lower()
        counts.append(_Count(int(digits), word, _UNITS.get(word)))
        return "#"

    return _NUMBER.sub(note, name), counts


def _only(counts: Sequence[_Count], unit: Unit) -> int | None:
    found = [count.value for count in counts if count.unit == unit]
    return found[0] if len(found) == 1 else None


def _several_trainings(parsed: Sequence[tuple[str, Sequence[_Count]]]) -> bool:
    """Returns whether the names number seeds, folds or the like, in which they differ."""
    different = {(count.word, count.value) for _, counts in parsed for count in counts if count.word in _OF_TRAININGS}
    return len(different) > len({word for word, _ in different})


def _complete(found: Sequence[SeenCheckpoint], way: Numbers) -> ImportOrder:
    chosen = sorted(
        ((number, item) for number, item in zip(way.found, found, strict=True) if number is not None),
        key=lambda pair: pair[0],
    )
    steps = all(item.counters.get("step") == number for number, item in chosen)
    return ImportOrder(tuple(chosen), way.unit or ("step" if steps else "epoch"), way.source)


def _without_copies(
    found: Sequence[SeenCheckpoint], way: Numbers, digest_of: Callable[[int], str]
) -> ImportOrder | None:
    """Returns the order without files such as "last" and "best" that have the weights of a numbered one; else None."""
    kept: dict[int, int] = {}
    copies: list[tuple[int, int]] = []
    # Those without a number come last: they may be copies of any numbered one.
    for index, number in sorted(enumerate(way.found), key=lambda item: item[1] is None):
        if number is not None and number not in kept:
            kept[number] = index
            continue
        numbered = kept.values() if number is None else [kept[number]]
        same = next((other for other in numbered if digest_of(other) == digest_of(index)), None)
        if same is None:
            return None
        copies.append((index, same))
    if len(kept) < 3:
        return None
    numbers = replace(way, found=tuple(kept))
    left_out = tuple((found[index].place, found[same].place) for index, same in copies)
    return replace(_complete([found[index] for index in kept.values()], numbers), copies=left_out)


def _warn_of_another_order(found: Sequence[SeenCheckpoint], numbers: Sequence[int], by_name: Numbers | None) -> None:
    if by_name is None or not by_name.is_complete:
        return
    named = [number for number in by_name.found if number is not None]
    order = sorted(range(len(found)), key=lambda index: numbers[index])
    for earlier, later in itertools.pairwise(order):
        if named[earlier] > named[later]:
            names = short_names([found[earlier].place, found[later].place])
            warnings.warn(
                f"numbers put {names[0]} ({numbers[earlier]}) before {names[1]} ({numbers[later]}), the other way "
                "round than the numbers in the names. They belong to the files in the order in which those are given; "
                "a shell gives ep_10 before ep_2.",
                stacklevel=4,
            )
            return


def _unclear(found: Sequence[SeenCheckpoint], ways: Sequence[Numbers], unit: Unit | None) -> ValueError:
    width = max([6, *(len(way.source) for way in ways)])
    columns = [[way.source, *("-" if number is None else number for number in way.found)] for way in ways]
    cells = [[f"{cell:>{width}}" for cell in column] for column in columns]
    names = ["checkpoint", *short_names([item.place for item in found])]
    rows = [*zip(*cells, names, strict=True)]
    lines = ["  " + "  ".join(row) for row in (rows if ways else rows[1:])]
    other: Unit = "step" if unit == "epoch" else "epoch"
    remedy = ""
    if unit is not None and numbers_of_names([_parts(item.place) for item in found], other) is not None:
        remedy = f' The names count {other}s; pass unit="{other}".'
    why = (
        "the numbers are missing or repeated, and the weights differ"
        if ways
        else "no one number differs in their names, and they hold no epoch and no step"
    )
    return ValueError(
        f"paths must say which epoch or step each checkpoint is of, but {why}:\n"
        + "\n".join(lines[:60])
        + (f"\n  ... and {len(lines) - 60} more" if len(lines) > 60 else "")
        + "\nPass numbers= with one number for each of them in this order (such as 1,2,3), or name only those of one "
        f"training.{remedy}"
    )


def _parts(place: AnyPath) -> list[str]:
    return with_slashes(place).rstrip("/").split("/")
