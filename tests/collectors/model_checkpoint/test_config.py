"""CheckpointConfig, argument by argument: PARITY's tables, with the flaws listed there mended."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from collectors import ModelCheckpoint
from collectors.callbacks.callback import RunContext
from collectors.model_checkpoint.config import CheckpointConfig
from collectors.model_checkpoint.writer import Retention

DEFAULTS = {
    "save_checkpoint_steps": 1,
    "save_checkpoint_seconds": 0,
    "keep_checkpoint_max": 5,
    "keep_checkpoint_per_n_minutes": 0,
    "integrated_save": True,
    "async_save": False,
    "saved_network": None,
    "append_info": None,
    "enc_key": None,
    "enc_mode": "AES-GCM",
    "exception_save": False,
    "crc_check": False,
    "remove_redundancy": False,
    "format": "safetensors",
    "training_state": True,
}
NUMBERS = list(DEFAULTS)[:4]


def test_the_arguments_their_order_and_their_defaults():
    parameters = inspect.signature(CheckpointConfig).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == DEFAULTS
    assert list(parameters) == list(DEFAULTS)
    assert [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY] == [
        "training_state"
    ]


def test_every_argument_is_an_attribute():
    network = nn.Linear(1, 1)
    given = {
        "save_checkpoint_steps": 7,
        "keep_checkpoint_max": 2,
        "async_save": "thread",
        "saved_network": network,
        "append_info": ["epoch_num"],
        "enc_key": bytes(16),
        "enc_mode": "AES-CBC",
        "exception_save": True,
        "crc_check": True,
        "training_state": False,
    }
    config = CheckpointConfig(**given)
    expected = {**DEFAULTS, "save_checkpoint_seconds": None, "keep_checkpoint_per_n_minutes": None, **given}
    assert {name: getattr(config, name) for name in DEFAULTS} == expected
    assert "enc_key" not in repr(config)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), [1, None, 5, None]),
        ((1, 0, 5, 0), [1, None, 5, None]),
        ((10, None, 1, None), [10, None, 1, None]),
        # A time that is asked for wins over the default number of steps, as does one over the default maximum.
        ({"save_checkpoint_seconds": 100}, [None, 100, 5, None]),
        ({"keep_checkpoint_per_n_minutes": 3}, [1, None, None, 3]),
        ((0, 1, 0, 1), [None, 1, None, 1]),
        ((None, 1, None, 1), [None, 1, None, 1]),
        ((np.int64(2), 0, np.int32(3), 0), [2, None, 3, None]),
        # Nothing to keep would be pointless: one file is kept.
        ((1, 0, 0, 0), [1, None, 1, None]),
        ((1, None, None, None), [1, None, 1, None]),
        ({"keep_checkpoint_max": 0}, [1, None, 1, None]),
    ],
)
def test_what_the_four_numbers_come_to(given, expected):
    config = CheckpointConfig(**given) if isinstance(given, dict) else CheckpointConfig(*given)
    assert [getattr(config, name) for name in NUMBERS] == expected
    policy = dict(zip(NUMBERS, expected, strict=True))
    assert config.get_checkpoint_policy() == {**policy, "saved_network": None}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("value", "error"), [(-1, ValueError), (1.0, TypeError), ("1", TypeError), (True, TypeError), ([1], TypeError)]
)
def test_wrong_numbers(name, value, error):
    with pytest.raises(error, match=f"{name} must be an int of at least 0, but got"):
        CheckpointConfig(**{name: value})


@pytest.mark.parametrize(
    "given",
    [
        (0, 0, 0, 0),
        (None, None, None, None),
        (0, None, 0, None),
        (0, 0, 3, 0),
        {"save_checkpoint_steps": 0},
        {"save_checkpoint_steps": None, "keep_checkpoint_per_n_minutes": 3},
    ],
)
def test_a_policy_that_would_never_save(given):
    with pytest.raises(ValueError, match="save_checkpoint_steps or save_checkpoint_seconds must be positive"):
        CheckpointConfig(**given) if isinstance(given, dict) else CheckpointConfig(*given)


@pytest.mark.parametrize("names", [NUMBERS[:2], NUMBERS[2:]])
def test_both_ways_at_once(names):
    with pytest.raises(ValueError, match=f"{names[0]} and {names[1]} exclude each other, but got 1 and 2. Give one"):
        CheckpointConfig(**dict(zip(names, (1, 2), strict=True)))


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"integrated_save": 1}, TypeError, "integrated_save must be a bool, but got int"),
        ({"async_save": 1}, TypeError, "async_save must be a bool or 'thread', but got int"),
        ({"async_save": "fork"}, ValueError, "async_save must be one of 'thread', but got 'fork'"),
        ({"async_save": "process"}, ValueError, r"async_save must be a bool or 'thread' \(a forked process can hang"),
        ({"saved_network": "network"}, TypeError, r"saved_network must be a torch\.nn\.Module or None, but got str"),
        ({"append_info": "epoch_num"}, TypeError, "append_info must be a list of .* but got str"),
        ({"append_info": [1]}, TypeError, r'append_info\[0\] must be "epoch_num", "step_num" or a dict, but got int'),
        ({"append_info": ["epoch"]}, ValueError, r"append_info\[0\] must be one of 'epoch_num', 'step_num', but got"),
        ({"append_info": [{"a": 1}, {"b": 1}]}, TypeError, r"append_info\[1\] is a second dict"),
        ({"append_info": [{1: 1}]}, TypeError, r"a key of append_info\[0\] must be a str, but got int"),
        ({"append_info": [{"a": [1]}]}, TypeError, r"append_info\[0\]\['a'\] must be an int, float, bool, str, tensor"),
        ({"append_info": [{"step_num": 1.5}]}, TypeError, r"append_info\[0\]\['step_num'\] must be an int, but got"),
        ({"enc_key": "k" * 16}, TypeError, "enc_key must be bytes of length 16, 24 or 32, or None, but got str.$"),
        ({"enc_key": b""}, ValueError, r"enc_key must have 16, 24 or 32 bytes .* but got 0\. secrets\.token_bytes"),
        ({"enc_mode": "SM4-CBC"}, ValueError, "enc_mode must be one of 'AES-GCM', 'AES-CBC', but got 'SM4-CBC'"),
        ({"exception_save": 0}, TypeError, "exception_save must be a bool"),
        ({"crc_check": "no"}, TypeError, "crc_check must be a bool"),
        ({"remove_redundancy": 1}, TypeError, "remove_redundancy must be a bool"),
        ({"format": "ckpt"}, ValueError, "format must be one of 'safetensors', but got 'ckpt'"),
        ({"training_state": None}, TypeError, "training_state must be a bool"),
        ({"anything": 1}, TypeError, "anything"),
    ],
)
def test_wrong_arguments(given, error, match):
    with pytest.raises(error, match=match):
        CheckpointConfig(**given)


@pytest.mark.parametrize("given", [{"integrated_save": False}, {"remove_redundancy": True}])
def test_what_has_no_effect_warns(given):
    with pytest.warns(UserWarning, match=f"^{next(iter(given))}=.* has no effect"):
        CheckpointConfig(**given)


@pytest.mark.parametrize(
    ("given", "append", "info"),
    [
        (None, None, {}),
        ([], None, {}),
        ([{}], None, {}),
        (["epoch_num"], {"epoch_num": 0}, {"epoch_num": 3}),
        (("epoch_num", "step_num"), {"epoch_num": 0, "step_num": 0}, {"epoch_num": 3, "step_num": 40}),
        ([{"epoch_num": 10, "step_num": 100}], {"epoch_num": 10, "step_num": 100}, {"epoch_num": 13, "step_num": 140}),
        # The base counts wherever it stands.
        (["step_num", {"step_num": 5}], {"step_num": 5}, {"step_num": 45}),
        ([{"step_num": 5}, "step_num"], {"step_num": 5}, {"step_num": 45}),
        (
            ["epoch_num", {"rate": 0.1, "on": True, "name": "a", "count": 2}],
            {"epoch_num": 0, "rate": 0.1, "on": True, "name": "a", "count": 2},
            {"epoch_num": 3, "rate": 0.1, "on": True, "name": "a", "count": 2},
        ),
    ],
)
def test_append_info(given, append, info):
    config = CheckpointConfig(append_info=given)
    assert config.append_dict == append
    assert config.info(3, 40) == info
    assert config.info(3, 40) == info


def test_append_info_takes_tensors_and_arrays():
    values = {"tensor": torch.ones(2), "array": np.ones(3), "number": np.float32(0.5)}
    assert CheckpointConfig(append_info=[values]).append_dict == values


def test_saving_by_time(tmp_path, monkeypatch):
    clock, params, saved = SimpleNamespace(now=100.0), {"network": nn.Linear(1, 1), "cur_step_num": 0}, []
    turned = SimpleNamespace(monotonic=lambda: clock.now)  # time: the test turns the clock
    monkeypatch.setattr("collectors.model_checkpoint.run.time", turned)
    checkpoint = ModelCheckpoint(directory=tmp_path, config=CheckpointConfig(save_checkpoint_seconds=10))
    checkpoint.begin(RunContext(params))
    for params["cur_step_num"], clock.now in enumerate((100.0, 110.0, 110.5, 115.0, 120.5, 121.0), 1):
        checkpoint.step_end(RunContext(params))
        saved.append(len([*tmp_path.glob("*.safetensors")]))
    assert saved == [0, 0, 1, 1, 1, 2]


def test_keeping_one_file_of_every_few_minutes(tmp_path):
    paths = [tmp_path / str(number) for number in range(7)]
    times = [1000.0, 1001.0, 1119.0, 1120.0, 1121.0, 1500.0, 1590.0]
    retention = Retention(None, 2, [tmp_path / "before"])
    removed = [retention.add(path, now) for path, now in zip(paths, times, strict=True)]
    assert removed == [[], [paths[0]], [paths[1]], [], [paths[3]], [], [paths[5]]]
    assert retention.files == [tmp_path / "before", paths[2], paths[4], paths[6]]
