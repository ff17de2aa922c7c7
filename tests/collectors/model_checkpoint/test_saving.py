import os
import stat

import numpy as np
import pytest
import torch
from torch import nn

from collectors import load_checkpoint, save_checkpoint

KEY = b"0123456789abcdef"


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


@pytest.mark.parametrize("options", [{}, {"enc_key": KEY}, {"enc_key": KEY, "enc_mode": "AES-CBC"}])
def test_what_is_saved_is_loaded(options, tmp_path):
    saved, other = network(), nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    info = {"epoch": 3, "accuracy": 0.1, "note": "best", "best": True, "losses": np.arange(3.0)}
    path = save_checkpoint(saved, tmp_path / "new" / "best", info, **options)
    assert path == tmp_path / "new" / "best.safetensors"
    assert [item.name for item in path.parent.iterdir()] == ["best.safetensors"]
    keys = {"dec_key": options.get("enc_key"), "dec_mode": options.get("enc_mode", "AES-GCM")}
    loaded = load_checkpoint(tmp_path / "new" / "best", **keys)  # by the name that it was given, or by that of the file
    loaded = load_checkpoint(path, **keys)
    loaded.load_into(other)
    torch.testing.assert_close(other.state_dict(), saved.state_dict(), rtol=0, atol=0)
    np.testing.assert_array_equal(loaded.info.pop("losses"), info.pop("losses"))
    assert loaded.info == info
    assert loaded.training_state is None
    if options:
        with pytest.raises(ValueError, match="dec_key must be given"):
            load_checkpoint(path)


def test_a_file_that_is_there_is_replaced(tmp_path):
    path = save_checkpoint(nn.Linear(1, 1), tmp_path / "a.safetensors")
    assert save_checkpoint(network(), str(path)) == path
    assert set(load_checkpoint(path).weights) >= {"0.weight", "1.running_mean"}
    assert load_checkpoint(path).info == {}


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"network": 3}, TypeError, "network must be a network of a supported framework"),
        ({"path": 3}, TypeError, "path must be"),
        ({"append_dict": [1]}, TypeError, "append_dict must be a dict or None, but got list"),
        ({"append_dict": {1: 2}}, TypeError, "a key of append_dict must be a str, but got int"),
        ({"append_dict": {"a": object()}}, TypeError, r"append_dict\['a'\] must be an int, float, bool, str, tensor"),
        ({"enc_key": "text"}, TypeError, "enc_key must be"),
        ({"enc_key": b"short"}, ValueError, "enc_key must have 16, 24 or 32 bytes"),
        ({"enc_mode": "SM4-CBC"}, ValueError, "enc_mode must be"),
    ],
)
def test_wrong_arguments_leave_nothing_behind(change, error, match, tmp_path):
    arguments = {"network": nn.Linear(1, 1), "path": tmp_path / "new" / "a"} | change
    with pytest.raises(error, match=match):
        save_checkpoint(**arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(PermissionError):
        save_checkpoint(nn.Linear(1, 1), tmp_path / "a")
