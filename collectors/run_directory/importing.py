"""Builds a run directory from checkpoints that people already have."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import CheckpointError, RunDirectoryError, reason_of
from ..files.places import check_directory
from ..networks.weight_space import TensorInfo, WeightSpace
from ..validation import check_choice, check_instance, check_path, wrong_type
from ..weights.torch_file import read_state_dict
from .directory import CHECKPOINT_FOLDER, METADATA_NAME, RunDirectory
from .existing_run import EXISTING
from .settings import LandscapeSettings, check_interval
from .writer import RunWriter


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
    """Builds a run directory from checkpoints, which stay as they are.

    Args:
        run_directory: where to build it: a folder, or an fsspec URL such as ``s3://bucket/run``.
        paths: at least three, in the order of training: safetensors, or PyTorch state dicts, also nested
            ones ({"state_dict": ...}, {"model": ...}); prefixes that wrappers add ("module.", "_orig_mod.") are
            removed. Checkpoints of divided networks are folders: those of ``torch.distributed.checkpoint`` (FSDP, with
            Lightning or accelerate too) and of DeepSpeed's ZeRO, from any number of processes. No code from a file ever
            runs, and none takes more memory than its size allows.
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
        ValueError: fewer than three files, numbers that do not fit them, or a file inside the run directory.
        CheckpointError: a file cannot be read, or holds another network than the first one.
        CheckpointWriteError: a checkpoint could not be written; what was written is removed again.
        RunDirectoryError: the directory already holds a run.
    """
    target = check_directory("run_directory", run_directory)
    files = _check_paths(paths)
    settings = LandscapeSettings.from_dict(
        {
            "intervals": [_check_numbers(numbers, len(files))],
            "unit": unit,
            "landscape_size": landscape_size,
            "num_samples": num_samples,
        },
        "import_checkpoints",
    )
    check_instance("network_name", network_name, str, "a str")
    check_choice("existing", existing, tuple(choice for choice in EXISTING if choice != "resume"))
    folder = target / CHECKPOINT_FOLDER
    for file in files:
        # realpath, because resolve() fails for links in a circle.
        places = (Path(os.path.realpath(file)).parent, Path(os.path.realpath(file.parent)))
        if isinstance(folder, Path) and Path(os.path.realpath(folder)) in places:
            raise ValueError(
                f"paths must lie outside the run directory that is built, but {file} is inside it and could be "
                "replaced; import into another directory."
            )
    above = (folder, *folder.parents) if isinstance(folder, Path) else ()
    try:
        created = [path for path in above if not path.exists()]
        holds_a_run = (folder / METADATA_NAME).exists()
    except OSError as error:
        raise RunDirectoryError(
            f"run directory {target} cannot be read: {reason_of(error)}. Choose a directory that can be written."
        ) from error
    if existing == "error" and holds_a_run:
        raise RunDirectoryError(
            f"{target} already holds a run ({folder / METADATA_NAME} exists). Choose another run directory, or replace "
            'that run with existing="overwrite".'
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
        for number, file in zip(settings.intervals[0], files, strict=True):
            writer.save(number, read_state_dict(file))
        writer.close()
    except BaseException:
        writer.discard()
        with contextlib.suppress(OSError):
            for path in created:
                path.rmdir()
        raise
    return RunDirectory(target)


def _check_paths(paths: object) -> list[Path]:
    if isinstance(paths, str | bytes | os.PathLike) or not isinstance(paths, Sequence):
        raise wrong_type("paths", "a list of paths", paths)
    files = [check_path(f"paths[{index}]", item) for index, item in enumerate(paths)]
    if len(files) < 3:
        raise ValueError(
            f"paths must hold at least three files (a plane needs three checkpoints), but got {len(files)}."
        )
    return files


def _check_numbers(numbers: object, count: int) -> Sequence[int]:
    if numbers is None:
        return range(1, count + 1)
    chosen = check_interval("numbers", numbers)
    if len(chosen) != count:
        raise ValueError(f"numbers must have one entry for each of the {count} files, but got {list(chosen)}.")
    return chosen


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
