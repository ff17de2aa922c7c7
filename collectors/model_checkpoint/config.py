"""CheckpointConfig: when a ModelCheckpoint saves, what it saves, and what it keeps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..networks.readers import is_network
from ..validation import check_bool, check_choice, check_instance, check_int, wrong_type, wrong_value
from .encryption import check_encryption

_COUNTERS = ("epoch_num", "step_num")
_SAVING = ("save_checkpoint_steps", "save_checkpoint_seconds")
_KEEPING = ("keep_checkpoint_max", "keep_checkpoint_per_n_minutes")


class _Default(int):
    """A default that differs from the same number given by the user."""


_STEPS, _SECONDS, _MAXIMUM, _MINUTES = _Default(1), _Default(0), _Default(5), _Default(0)


@dataclass(frozen=True)
class CheckpointConfig:
    """The policy of a ``ModelCheckpoint``; each argument is an attribute as well.

    Args:
        save_checkpoint_steps: save every this many steps. 0 or None: not by steps. Default 1, unless
            ``save_checkpoint_seconds`` is given.
        save_checkpoint_seconds: save at the first step that ends more than this many seconds after the previous
            save. 0 or None: not by time.
        keep_checkpoint_max: how many of the run's files are kept, the newest; 0 or None keeps one, unless the
            next argument is given. Default 5, on the same condition.
        keep_checkpoint_per_n_minutes: keep one file for every period of this many minutes, the newest. 0 or None: not
            by time.
        integrated_save: accepted for compatibility with MindSpore: sharded tensors are not supported, so there are no
            parts to merge, and False warns.
        async_save: True or "thread" writes files on a thread of their own; a failure then surfaces at a later
            step, at the latest at the end.
        saved_network: the network to save; None is the one that trains.
        append_info: what ``load_checkpoint(...).info`` will hold: "epoch_num" and "step_num" (the counters when
            the file was saved), and at most one dict of your own: str to int, float, bool, str, tensor or array.
            An "epoch_num" or "step_num" in the dict is a base that the counter is added to.
        enc_key: the key to encrypt files with: 16, 24 or 32 bytes. None does not encrypt.
        enc_mode: "AES-GCM", or "AES-CBC" (with an HMAC-SHA256: both are authenticated).
        exception_save: whether an exception or interrupt leaves a checkpoint behind as well
            (``<prefix>-<epoch>_<step>_breakpoint.safetensors``). A training goes on from it with the step that failed;
            what that step has moved already (statistics of BatchNorm, in an optimizer step parameters) stays moved.
        crc_check: accepted for compatibility with MindSpore: a SHA-256 is always stored, and checked on loading.
        remove_redundancy: accepted for compatibility with MindSpore: only rank 0 writes, so there is none; True warns.
        format: "safetensors", the only one.
        training_state: whether a file holds what ``Model.train(resume_from=...)`` needs to go on bit by bit:
            the state of the optimizer, the gradient scaler, callbacks and random generators, and the place in
            the data. With a ``saved_network`` of its own it holds the weights of both networks; training goes on with
            those of the network that trains. An average goes on where ``ModelCheckpoint(stateful=...)`` names it.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value, both ways to save or both ways to keep are asked for, or
            nothing would ever be saved.
        ImportError: there is an ``enc_key`` and the package ``cryptography`` is missing.
    """

    save_checkpoint_steps: int | None = _STEPS
    save_checkpoint_seconds: int | None = _SECONDS
    keep_checkpoint_max: int | None = _MAXIMUM
    keep_checkpoint_per_n_minutes: int | None = _MINUTES
    integrated_save: bool = True
    async_save: bool | str = False
    saved_network: Any = None
    append_info: Sequence[str | Mapping[str, Any]] | None = None
    enc_key: bytes | None = field(default=None, repr=False)
    enc_mode: str = "AES-GCM"
    exception_save: bool = False
    crc_check: bool = False
    remove_redundancy: bool = False
    format: str = "safetensors"
    training_state: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if not self._choose(*_SAVING):
            raise ValueError(
                "save_checkpoint_steps or save_checkpoint_seconds must be positive, but both are 0 or None, so nothing "
                "would ever be saved. Give one of them."
            )
        if not self._choose(*_KEEPING):
            self._set(keep_checkpoint_max=1)
        if not check_bool("integrated_save", self.integrated_save):
            _warn_without_effect("integrated_save=False", "sharded tensors are not supported, so no file is a part")
        self._set(async_save=_check_async(self.async_save))
        if self.saved_network is not None and not is_network(self.saved_network):
            raise wrong_type("saved_network", "a torch.nn.Module or None", self.saved_network)
        self._set(_append_dict=_check_append_info(self.append_info))
        check_encryption(self.enc_key, self.enc_mode)
        check_bool("exception_save", self.exception_save)
        check_bool("crc_check", self.crc_check)
        if check_bool("remove_redundancy", self.remove_redundancy):
            _warn_without_effect("remove_redundancy=True", "only rank 0 writes, so no two files hold the same")
        check_choice("format", self.format, ("safetensors",))
        check_bool("training_state", self.training_state)

    @property
    def append_dict(self) -> dict[str, Any] | None:
        """What ``append_info`` asks for: your own values, and the base of each counter that is stored."""
        append_dict: dict[str, Any] | None = self.__dict__["_append_dict"]
        return None if append_dict is None else dict(append_dict)

    def info(self, epoch: int, step: int) -> dict[str, Any]:
        """Returns the values to store in a file that is saved after that epoch and step."""
        info = self.append_dict or {}
        for name, count in zip(_COUNTERS, (epoch, step), strict=True):
            if name in info:
                info[name] += count
        return info

    def get_checkpoint_policy(self) -> dict[str, Any]:
        """Returns the four numbers and ``saved_network`` by name; what does not apply is None."""
        return {name: getattr(self, name) for name in (*_SAVING, *_KEEPING, "saved_network")}

    def _choose(self, *names: str) -> bool:
        """Leaves at most one of two numbers, the user's rather than a default; returns whether there is one."""
        given = {name: getattr(self, name) for name in names}
        numbers = {
            name: None if value is None else check_int(name, value, minimum=0) or None for name, value in given.items()
        }
        if all(numbers.values()):
            default = next((name for name, value in given.items() if isinstance(value, _Default)), None)
            if default is None:
                both = " and ".join(map(str, numbers.values()))
                raise ValueError(f"{' and '.join(names)} exclude each other, but got {both}. Give one of them.")
            numbers[default] = None
        self._set(**numbers)
        return any(numbers.values())

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _check_async(value: Any) -> bool | str:
    if not isinstance(check_instance("async_save", value, (bool, np.bool_, str), "a bool or 'thread'"), str):
        return bool(value)
    if value == "process":
        raise wrong_value("async_save", "a bool or 'thread' (a forked process can hang beside threads and CUDA)", value)
    return check_choice("async_save", value, ("thread",))


def _check_append_info(value: Any) -> dict[str, Any] | None:
    expected = 'a list of "epoch_num", "step_num" and at most one dict, or None'
    check_instance("append_info", value, (list, tuple, type(None)), expected)
    result: dict[str, Any] = {}
    entries = None
    for index, item in enumerate(value or ()):
        name = f"append_info[{index}]"
        if isinstance(item, str):
            result.setdefault(check_choice(name, item, _COUNTERS), 0)
        elif not isinstance(item, Mapping):
            raise wrong_type(name, '"epoch_num", "step_num" or a dict', item)
        elif entries is not None:
            raise TypeError(
                f"{name} is a second dict, but append_info may have only one; put all values into one dict."
            )
        else:
            entries = {
                key: check_int(f"{name}[{key!r}]", entry) if key in _COUNTERS else check_info_value(name, key, entry)
                for key, entry in item.items()
            }
            result.update(entries)
    return result or None


def check_info_value(name: str, key: Any, value: Any) -> Any:
    check_instance(f"a key of {name}", key, str, "a str")
    if isinstance(value, int | float | str | np.generic | np.ndarray) or hasattr(value, "detach"):
        return value
    raise wrong_type(f"{name}[{key!r}]", "an int, float, bool, str, tensor or array", value)


def _warn_without_effect(argument: str, reason: str) -> None:
    warnings.warn(f"{argument} has no effect: {reason}. Leave it out.", UserWarning, stacklevel=4)
