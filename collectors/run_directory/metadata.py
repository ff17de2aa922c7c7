"""``train_metadata.json``: what a run directory holds, as a validated object (contract 1)."""

from __future__ import annotations

import json
import ntpath
import os
import re
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ..errors import RunDirectoryError
from ..files.file_kinds import ENOUGH_BYTES, other_kind
from ..files.places import AnyPath
from ..validation import check_bool, check_instance, check_int, check_keys, wrong_type
from .settings import LandscapeSettings, check_intervals

FORMAT_VERSION = 1
_REFERENCE_KEYS = (
    "epoch_group", "model_params_file_map", "step_per_epoch", "unit", "num_samples", "landscape_size",
    "create_landscape",
)  # fmt: skip
_OUR_KEYS = ("format_version", "framework", "network", "sha256", "frozen", "factors", "trained_to", "imported")
_SIZE_LIMIT = 64 * 1024 * 1024
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")

T = TypeVar("T")


@dataclass(frozen=True)
class NamedFile:
    """A file beside the checkpoints: its name inside ``ckpt_dir``, and its SHA-256."""

    file: str
    sha256: str


@dataclass
class RunMetadata:
    """The content of ``train_metadata.json``; what belongs to a checkpoint is found by its number."""

    settings: LandscapeSettings
    files: dict[int, str] = field(default_factory=dict)  # the checkpoint's name inside ``ckpt_dir``
    sha256: dict[int, str] = field(default_factory=dict)  # of that file; empty for directories of other programs
    step_per_epoch: int | None = None  # None while it is not known
    framework: str = "torch"  # "mindspore" where the reference's own collector wrote the directory
    # {"name": class name, "parameters": number of elements, "trainable": names}; what is trainable is only reported,
    # the network itself decides in phase 2.
    network: dict[str, Any] = field(default_factory=dict)
    frozen: NamedFile | None = None  # the frozen parameters, which all checkpoints share; None if there are none
    # Of the optimizer, which earlier versions could save; they are not read.
    factors: dict[int, NamedFile] = field(default_factory=dict)
    # The number with whose weights training ended; None where it has not ended, failed, ended with the weights of no
    # number (inside an epoch, while epochs are counted), or where that is not known.
    trained_to: int | None = None
    imported: bool = False

    @property
    def final_number(self) -> int | None:
        """The number of the checkpoint with the weights that training ended with; None if there is none, or unknown."""
        return self.trained_to if self.trained_to in self.files else None

    @property
    def file_names(self) -> set[str]:
        beside = [self.frozen, *self.factors.values()]
        return {*self.files.values(), *(item.file for item in beside if item is not None)}

    def to_json(self) -> str:
        factors = {str(number): asdict(self.factors[number]) for number in sorted(self.factors)}
        content = {
            "format_version": FORMAT_VERSION,
            **self.settings.to_metadata(),
            "step_per_epoch": self.step_per_epoch,
            "framework": self.framework,
            "network": self.network,
            "model_params_file_map": {str(number): self.files[number] for number in sorted(self.files)},
            "sha256": {str(number): self.sha256[number] for number in sorted(self.sha256)},
            **({} if self.frozen is None else {"frozen": asdict(self.frozen)}),
            **({"factors": factors} if factors else {}),
            **({} if self.trained_to is None else {"trained_to": self.trained_to}),
            **({"imported": True} if self.imported else {}),
        }
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def load(cls, path: AnyPath) -> RunMetadata:
        try:
            if path.exists() and not path.is_file():
                raise RunDirectoryError(f"{path} is not a regular file; restore it from a copy.")
            with path.open("rb") as file:
                # A read with a limit allocates all of it.
                size = file.seek(0, os.SEEK_END)
                if size > _SIZE_LIMIT:
                    raise RunDirectoryError(f"{path} is larger than {_SIZE_LIMIT} bytes and cannot be ours.")
                file.seek(0)
                raw = file.read(size)
        except FileNotFoundError as error:
            above = path.parent.parent
            remedy = (
                f"Give the folder above it, {above.parent}."
                if (above.parent / path.parent.name / path.name).exists()
                else "Train with a SummaryCollector that writes there, or build a run directory with "
                "`landscape convert --from checkpoints`."
            )
            raise RunDirectoryError(f"{above} holds no collected run: {path} does not exist. {remedy}") from error
        except OSError as error:
            raise RunDirectoryError(f"{path} cannot be read: {error.strerror}.") from error
        try:
            content = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            kind = other_kind(raw[:ENOUGH_BYTES], "JSON", "text", "nothing")
            if kind is not None:
                raise RunDirectoryError(f"{path} is {kind}.") from error
            raise RunDirectoryError(
                f"{path} is not valid JSON ({error}); it is truncated or damaged. Restore it from a copy, or build a "
                "new run directory from the checkpoints beside it with `landscape convert --from checkpoints`."
            ) from error
        try:
            return cls._parse(content)
        except (TypeError, ValueError) as error:
            raise RunDirectoryError(f"{path} is not usable: {error}") from error

    @classmethod
    def _parse(cls, content: object) -> RunMetadata:
        given = check_keys("the metadata", content, (*_REFERENCE_KEYS, *_OUR_KEYS), required=_REFERENCE_KEYS)
        version = check_int("format_version", given.get("format_version", 0), minimum=0)
        if version > FORMAT_VERSION:
            raise ValueError(
                f"format_version is {version}, this program reads up to {FORMAT_VERSION}; upgrade summary-landscape."
            )
        groups = _numbered("epoch_group", given["epoch_group"], list, "a list")
        settings = LandscapeSettings(
            intervals=check_intervals("epoch_group", [groups[index] for index in sorted(groups)]),
            **{key: given[key] for key in ("unit", "landscape_size", "num_samples", "create_landscape")},
        )
        steps, label = given["step_per_epoch"], "model_params_file_map"
        files = _numbered(label, given[label], str, "a str")
        return cls(
            settings=settings,
            files={number: _file_name(f"{label}[{str(number)!r}]", name) for number, name in files.items()},
            sha256=_numbered("sha256", given.get("sha256", {}), str, "a str"),
            step_per_epoch=None if steps is None else check_int("step_per_epoch", steps, minimum=1),
            framework=check_instance("framework", given.get("framework", "mindspore"), str, "a str"),
            network=check_instance("network", given.get("network", {}), dict, "a dict"),
            frozen=_named_file("frozen", given["frozen"]) if "frozen" in given else None,
            factors={
                number: _named_file(f"factors[{str(number)!r}]", item)
                for number, item in _numbered("factors", given.get("factors", {}), dict, "a dict").items()
            },
            trained_to=check_int("trained_to", given["trained_to"], minimum=0) if "trained_to" in given else None,
            imported=check_bool("imported", given.get("imported", False)),
        )


def _named_file(name: str, value: object) -> NamedFile:
    keys = ("file", "sha256")
    given = check_keys(name, value, keys, required=keys)
    texts = {key: check_instance(f"{name}[{key!r}]", given[key], str, "a str") for key in keys}
    return NamedFile(_file_name(f"{name}['file']", texts["file"]), texts["sha256"])


def _numbered(name: str, value: object, kind: type[T], expected: str) -> dict[int, T]:
    if not isinstance(value, dict):
        raise wrong_type(name, "a dict with numbers as keys", value)
    result: dict[int, T] = {}
    for key, item in value.items():
        # One spelling for each number, and few digits: otherwise two keys could mean the same checkpoint.
        if not _NUMBER.fullmatch(key):
            raise ValueError(
                f"a key of {name} must be a non-negative number without leading zeros, but got {key[:80]!r}."
            )
        result[int(key)] = check_instance(f"{name}[{key!r}]", item, kind, expected)
    return result


def _file_name(label: str, path: str) -> str:
    # Only the last part counts: directories may have moved, and nothing outside ckpt_dir is ever read.
    name = ntpath.basename(path)
    try:
        usable = name not in ("", ".", "..") and "\0" not in name and len(os.fsencode(name)) <= 255
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise ValueError(f"{label} must name a file, but got {path[:200]!r}.")
    return name
