"""Builds a run directory from checkpoints that people already have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import CheckpointError
from .network_state import TensorInfo, WeightSpace
from .run_directory import RunDirectory
from .run_writer import EXISTING, RunWriter
from .settings import LandscapeSettings, check_intervals
from .state_dict_file import read_state_dict
from .validation import check_choice, check_int, check_path, wrong_type


def import_checkpoints(
    run_directory: str | os.PathLike[str],
    paths: Sequence[str | os.PathLike[str]],
    *,
    numbers: Sequence[int] | None = None,
    unit: str = "epoch",
    landscape_size: int = 40,
    num_samples: int = 2048,
    network_name: str = "network",
    existing: str = "error",
) -> RunDirectory:
    """Builds a run directory from checkpoint files, which stay as they are.

    Args:
        run_directory: where to build it.
        paths: at least three files in the order of training: safetensors, or PyTorch state dicts, also nested
            ones ({"state_dict": ...}, {"model": ...}); prefixes that wrappers add ("module.", "_orig_mod.") are
            removed. PyTorch files are read with ``weights_only=True``: no code from a file ever runs.
        numbers: the step or epoch of each file, rising; 1, 2, 3, ... when absent.
        unit: what the numbers count, "step" or "epoch".
        landscape_size: grid points per axis, a default for phase 2.
        num_samples: samples to average the loss over, a default for phase 2.
        network_name: what to call the network in file names and titles.
        existing: what to do when the directory already holds a run: "error" or "overwrite".

    Returns:
        The run directory, ready for ``SummaryLandscape``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: fewer than three files, or numbers that do not fit them.
        CheckpointError: a file cannot be read, or holds another network than the first one.
        RunDirectoryError: the directory already holds a run.
    """
    target = check_path("run_directory", run_directory)
    if isinstance(paths, str | os.PathLike) or not isinstance(paths, Sequence):
        raise wrong_type("paths", "a list of paths", paths)
    files = [check_path(f"paths[{index}]", item) for index, item in enumerate(paths)]
    if numbers is None:
        numbers = range(1, len(files) + 1)
    chosen = [check_int(f"numbers[{index}]", item, minimum=0) for index, item in enumerate(numbers)]
    if len(chosen) != len(files):
        raise ValueError(f"numbers must have one entry for each of the {len(files)} files, but got {chosen}.")
    interval = check_intervals("numbers", [chosen])
    check_choice("existing", existing, tuple(choice for choice in EXISTING if choice != "resume"))
    settings = LandscapeSettings(interval).override(
        {"unit": unit, "landscape_size": landscape_size, "num_samples": num_samples}, "import_checkpoints"
    )
    first = read_state_dict(files[0])
    shapes = {name: array.shape for name, array in first.items()}
    # All files are checked before the first is written, so that a bad one leaves nothing behind.
    for file in files[1:]:
        _check_equal(file, shapes, {name: array.shape for name, array in read_state_dict(file).items()}, files[0])
    space = WeightSpace(
        "torch",
        network_name,
        tuple(TensorInfo(name, array.shape, array.dtype.name, "parameter") for name, array in first.items()),
    )
    writer = RunWriter(target, settings, space, existing=existing)
    try:
        for number, file in zip(chosen, files, strict=True):
            writer.save(number, read_state_dict(file))
    finally:
        writer.close()
    return RunDirectory(target)


def _check_equal(
    path: Path, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], first: Path
) -> None:
    lines = [
        f"  {name}: {expected.get(name, 'absent')} in {first.name}, {found.get(name, 'absent')} here"
        for name in dict.fromkeys((*expected, *found))
        if expected.get(name) != found.get(name)
    ]
    if lines:
        raise CheckpointError(
            f"checkpoint {path} holds another network than {first}:\n"
            + "\n".join(lines[:40])
            + "\nImport one run at a time."
        )
