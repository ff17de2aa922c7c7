"""A PyTorch data set as facts for a run's lineage: its pipeline, its folder, how many samples it has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Where data sets keep the folder or the file that they read; torchvision's call it root.
_PLACES = ("root", "root_dir", "data_dir", "data_path", "directory", "path", "file_path", "filename")
_LOADER_FACTS = ("batch_size", "drop_last", "num_workers", "pin_memory", "prefetch_factor", "timeout")
_SAMPLER_FACTS = ("num_samples", "replacement", "num_replicas", "rank", "shuffle", "seed", "batch_size", "drop_last")
_DEEPEST = 16
_LONGEST_TEXT = 200


def dataset_graph(dataset: Any) -> dict[str, Any]:
    """Returns the pipeline as nested dicts: ``op_type``, ``parameters``, ``operations``, ``sampler``, ``children``."""
    # The outermost is what yields batches; children are what it reads from.
    return _node(dataset, 0)


def dataset_path(dataset: Any) -> str | None:
    return next(filter(None, map(_place, _parts(dataset, 0))), None)


def dataset_size(dataset: Any) -> int | None:
    """Returns the exact number of samples, or None if only an epoch can show it."""
    if isinstance(dataset, list | tuple):
        counts = [samples_of(batch) for batch in dataset]
        return None if None in counts else sum(count or 0 for count in counts)
    # Without a batch sampler the items of the inner data set are whole batches.
    if getattr(dataset, "batch_sampler", dataset) is None:
        return None
    return _length(getattr(dataset, "dataset", None))


def dataset_batch_size(dataset: Any, element: Any) -> int | None:
    """Returns the samples per batch: the loader's setting, else the size of the given batch."""
    size = getattr(dataset, "batch_size", None)
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    return samples_of(element)


def samples_of(element: Any) -> int | None:
    """Returns how many samples a batch (inputs, targets) has, or None if it is not such a pair."""
    if not isinstance(element, tuple | list) or len(element) != 2:
        return None
    from ..networks.batches import sample_count

    return sample_count(*element)


class EpochSamples:
    """Counts the samples of the first whole epoch, for data sets that do not know their size."""

    def __init__(self) -> None:
        self._batches = self._samples = 0
        self.total: int | None = None

    def add(self, element: Any) -> None:
        if self.total is None:
            self._batches += 1
            self._samples += samples_of(element) or 0

    def end_epoch(self, batches: int | None) -> None:
        """Notes the end of an epoch of so many batches; one of which we did not see all does not count."""
        if self.total is None and self._samples and self._batches == batches:
            self.total = self._samples
        self._batches = self._samples = 0


def _node(part: Any, depth: int) -> dict[str, Any]:
    sampler = getattr(part, "sampler", None)
    facts = _facts(part, _LOADER_FACTS)
    length, place = _length(part), _place(part)
    if length is not None:
        facts["batches" if sampler is not None else "samples"] = length
    if place is not None:
        facts["path"] = place
    return {
        "op_type": type(part).__name__,
        "parameters": facts,
        "operations": [
            operation for name in ("transform", "target_transform") for operation in _operations(part, name)
        ],
        "sampler": None
        if sampler is None
        else {"op_type": type(sampler).__name__, "parameters": _facts(sampler, _SAMPLER_FACTS)},
        "children": [_node(child, depth + 1) for child in _children(part)] if depth < _DEEPEST else [],
    }


def _facts(owner: Any, names: tuple[str, ...]) -> dict[str, Any]:
    facts = {name: getattr(owner, name, None) for name in names}
    return {name: fact for name, fact in facts.items() if isinstance(fact, bool | int | float | str)}


def _operations(part: Any, name: str) -> Iterator[dict[str, Any]]:
    transform = getattr(part, name, None)
    steps = getattr(transform, "transforms", None)
    for step in steps if isinstance(steps, list | tuple) else [] if transform is None else [transform]:
        label = getattr(step, "__name__", None) or type(step).__name__
        yield {"operation": label, "applied_to": name, "parameters": {"text": _text(step)}}


def _text(value: Any) -> str:
    try:
        return repr(value)[:_LONGEST_TEXT]
    except Exception:
        # A user's object may raise anything in its repr; the training must go on.
        return type(value).__name__


def _children(part: Any) -> list[Any]:
    several = getattr(part, "datasets", None)
    if isinstance(several, list | tuple):
        return list(several)
    child = getattr(part, "dataset", None)
    return [] if child is None or child is part else [child]


def _parts(part: Any, depth: int) -> Iterator[Any]:
    yield part
    if depth < _DEEPEST:
        for child in _children(part):
            yield from _parts(child, depth + 1)


def _place(part: Any) -> str | None:
    for name in _PLACES:
        value = getattr(part, name, None)
        if not isinstance(value, str | os.PathLike):
            continue
        text = os.fspath(value)
        if isinstance(text, str) and text and "\0" not in text and os.path.exists(text):  # noqa: PTH110
            path = Path(text).absolute()
            return str(path if path.is_dir() else path.parent)
    return None


def _length(part: Any) -> int | None:
    try:
        return len(part)
    except (TypeError, NotImplementedError):
        return None
