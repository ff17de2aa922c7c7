"""Saving and loading by hand, also what layers keep beside their weights (``get_extra_state``)."""

import copy
import os
import stat

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from collectors import CheckpointConfig, Model, ModelCheckpoint, load_checkpoint, save_checkpoint
from collectors.errors import CheckpointError
from collectors.model_checkpoint.checkpoint_file import latest_checkpoint

KEY = b"0123456789abcdef"


class Scaled(nn.Linear):
    """Divides by the largest input that it has met, which no parameter and no buffer holds."""

    largest, calls, kept = 1e-3, 0, None

    def forward(self, inputs):
        if self.training:
            self.largest, self.calls = max(self.largest, float(inputs.detach().abs().max())), self.calls + 1
        return super().forward(inputs / self.largest)

    def get_extra_state(self):
        return {"largest": self.largest, "calls": (self.calls, torch.full((2,), self.calls)), "kept": self.kept}

    def set_extra_state(self, state):
        self.largest, (self.calls, calls), self.kept = state["largest"], state["calls"], state["kept"]
        assert torch.equal(calls, torch.full((2,), self.calls))


def network():
    torch.manual_seed(0)
    return nn.Sequential(Scaled(3, 4), nn.BatchNorm1d(4), Scaled(4, 2))


def batches():
    generator = torch.Generator().manual_seed(0)
    return [(1.5**step * torch.randn(2, 3, generator=generator), torch.tensor([0, 1])) for step in range(4)]


def model(trained):
    return Model(trained, nn.CrossEntropyLoss(), torch.optim.Adam(trained.parameters(), lr=0.1))


def same(one, other):
    states = one.state_dict(), other.state_dict()
    for name, value in states[0].items():
        if name.endswith("_extra_state"):
            assert value["largest"] == states[1][name]["largest"]
            assert value["calls"][0] == states[1][name]["calls"][0]
        else:
            assert torch.equal(value, states[1][name])


@pytest.mark.parametrize("options", [{}, {"enc_key": KEY}, {"enc_key": KEY, "enc_mode": "AES-CBC"}])
@pytest.mark.filterwarnings("error")
def test_what_is_saved_is_loaded(options, tmp_path):
    saved, other = network(), network()
    model(saved).train(1, batches())
    info = {"epoch": 3, "accuracy": 0.1, "note": "best", "best": True, "losses": np.arange(3.0)}
    path = save_checkpoint(saved, tmp_path / "new" / "best", info, **options)
    assert path == tmp_path / "new" / "best.safetensors"
    assert [item.name for item in path.parent.iterdir()] == ["best.safetensors"]
    keys = {"dec_key": options.get("enc_key"), "dec_mode": options.get("enc_mode", "AES-GCM")}
    loaded = load_checkpoint(tmp_path / "new" / "best", **keys)  # by the name that it was given, or by that of the file
    loaded = load_checkpoint(path, **keys)
    loaded.load_into(nn.DataParallel(other))
    same(saved, other)
    np.testing.assert_array_equal(loaded.info.pop("losses"), info.pop("losses"))
    assert loaded.info == info
    assert loaded.training_state is None


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


@pytest.mark.parametrize("of_its_own", [False, True])
@pytest.mark.filterwarnings("error")
def test_a_resumed_training_ends_as_the_undisturbed_one(of_its_own, tmp_path):
    undisturbed, begun, resumed = network(), network(), network()
    average = torch.optim.swa_utils.AveragedModel(begun) if of_its_own else None
    model(undisturbed).train(2, batches())
    config = CheckpointConfig(save_checkpoint_steps=3, saved_network=average)
    model(begun).train(1, batches(), [ModelCheckpoint("CKP", tmp_path, config)])
    model(resumed).train(2, batches(), resume_from=tmp_path / "CKP-1_3.safetensors")
    same(undisturbed, resumed)
    assert undisturbed[0].calls == 8
    # The checkpoint's own network is the average, which has met nothing yet.
    loaded = load_checkpoint(latest_checkpoint(tmp_path))
    assert loaded.extra_states["0._extra_state"]["calls"][0] == (0 if of_its_own else 4)


def test_what_no_checkpoint_can_hold_is_left_out_with_a_warning(tmp_path):
    saved, other = network(), network()
    saved[0].largest, saved[2].largest, saved[2].kept = 3.0, 5.0, object()
    with pytest.warns(UserWarning, match=r"holds more than a checkpoint can; left out: '2\._extra_state'.* is object"):
        path = save_checkpoint(saved, tmp_path / "a")
    with pytest.warns(UserWarning, match=r"network holds more than weights; left out: '2\._extra_state'"):
        load_checkpoint(path).load_into(other)
    assert (other[0].largest, other[2].largest) == (3.0, 1e-3)


def test_other_layers(tmp_path):
    path = save_checkpoint(network(), tmp_path / "a")
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.warns(UserWarning, match=r"a\.safetensors holds more than weights; left out: '0\._extra_state', '2\."):
        load_checkpoint(path).load_into(plain)
    same(plain, nn.Sequential(*copy.deepcopy(plain)))
    with pytest.warns(UserWarning, match=r"network holds more than weights; left out: '0\._extra_state', '2\."):
        load_checkpoint(save_checkpoint(plain, tmp_path / "b")).load_into(network())

    class Other(Scaled):
        def set_extra_state(self, state):
            raise KeyError("amax")

    with pytest.raises(CheckpointError, match=r"layer Other \('0\._extra_state'\) does not take: KeyError\('amax'\)"):
        load_checkpoint(path).load_into(nn.Sequential(Other(3, 4), nn.BatchNorm1d(4), Scaled(4, 2)))


@pytest.mark.filterwarnings("error")
def test_tensors_in_a_file_of_another_program_are_extra_states(tmp_path):
    class Amax(nn.Linear):
        history = None

        def get_extra_state(self):
            return self.history

        def set_extra_state(self, state):
            self.history = state

    target = Amax(3, 4)
    save_file({**nn.Linear(3, 4).state_dict(), "_extra_state": torch.arange(7)}, tmp_path / "a.safetensors")
    load_checkpoint(tmp_path / "a.safetensors").load_into(target)
    assert torch.equal(target.history, torch.arange(7))
