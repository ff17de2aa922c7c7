"""Reads event files back with TensorBoard's own reader."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.util.tensor_util import make_ndarray

EVERYTHING = dict.fromkeys(("scalars", "images", "histograms", "tensors"), 0)


def event_files(directory):
    """Returns the event files of a directory, in the order in which TensorBoard reads them."""
    return sorted(path for path in Path(directory).iterdir() if "tfevents" in path.name)


def events(directory):
    """Returns all events of all files, without those that only tell the version."""
    found = [event for path in event_files(directory) for event in LegacyEventFileLoader(str(path)).Load()]
    return [event for event in found if event.WhichOneof("what") in ("summary", "graph_def")]


def accumulated(directory):
    """Returns TensorBoard's view of a directory, with nothing thinned out."""
    accumulator = EventAccumulator(str(directory), size_guidance=EVERYTHING)
    accumulator.Reload()
    return accumulator


def scalars(directory, tag):
    """Returns (step, value) of a series."""
    return [(item.step, item.value) for item in accumulated(directory).Scalars(tag)]


def tensors(directory, tag):
    """Returns the arrays of a tensor series, or the texts of a text series."""
    return [make_ndarray(item.tensor_proto) for item in accumulated(directory).Tensors(tag)]
