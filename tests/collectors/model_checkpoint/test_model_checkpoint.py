"""ModelCheckpoint: which files there are, what they hold, and when they go."""

import os
import random
import threading
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from monitored_runs import At, WithoutLength
from own_processes import ended_process
from runs import batches
from torch import nn
from waiting import PATIENCE

from collectors.callbacks.callback import Callback
from collectors.callbacks.function_callbacks import LambdaCallback
from collectors.errors import CheckpointError, CheckpointWriteError
from collectors.files import system
from collectors.model.model import Model
from collectors.model_checkpoint.archive import Archive, decode, encode, write_archive
from collectors.model_checkpoint.checkpoint_file import latest_checkpoint, load_checkpoint
from collectors.model_checkpoint.config import CheckpointConfig
from collectors.model_checkpoint.model_checkpoint import ModelCheckpoint
from collectors.model_checkpoint.random_state import capture_random_state, dataset_generators, restore_random_state


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def build(network=None):
    torch.manual_seed(0)
    network = nn.Linear(3, 2) if network is None else network
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    return Model(network, nn.CrossEntropyLoss(), optimizer, {"zero": lambda outputs, targets: 0.0})


def names(folder):
    return sorted(path.name.removesuffix(".safetensors") for path in folder.iterdir())


def train(folder, epochs=2, callbacks=(), prefix="CKP", data=None, model=None, stateful=None, **config):
    checkpoint = ModelCheckpoint(prefix, folder, CheckpointConfig(**config), stateful=stateful)
    (model or build()).train(epochs, data or batches(), [checkpoint, *callbacks])
    return checkpoint


def fail(run_context):
    raise ArithmeticError("failed")


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"prefix": 3}, TypeError, "prefix must be a str, or a function of cb_params that returns one, but got int"),
        ({"prefix": "a/b"}, ValueError, "prefix must be a part of a file name: not blank, without '/'"),
        ({"prefix": "p" * 181}, ValueError, "prefix must be a part of a file name: .* at most 180 bytes"),
        ({"directory": 3}, TypeError, "directory must be a path"),
        ({"directory": ""}, ValueError, "directory must be a path that is not blank"),
        ({"config": CheckpointConfig}, TypeError, "config must be a CheckpointConfig or None, but got type"),
        ({"stateful": [1]}, TypeError, "stateful must be a dict of objects with state_dict and load_state_dict"),
        ({"stateful": {1: nn.Linear(1, 1)}}, TypeError, "a key of stateful must be a str"),
        ({"stateful": {"a": nn.Linear}}, TypeError, r"stateful\['a'\] must be an object with .* but got type"),
    ],
)
def test_wrong_arguments(arguments, error, match):
    with pytest.raises(error, match=match):
        ModelCheckpoint(**arguments)


def test_the_directory_is_no_file_and_can_be_written(tmp_path):
    file = tmp_path / "file"
    file.write_text("text")
    for directory in (file, file / "below" / "it"):
        with pytest.raises(NotADirectoryError, match=r"directory must be a directory, but .*file is a file"):
            ModelCheckpoint(directory=directory)
    locked = tmp_path / "locked"
    locked.mkdir()
    if os.geteuid() == 0:
        # Root may write everywhere, so somebody else has to try.
        os.seteuid(65534)
    else:
        locked.chmod(0o500)
    try:
        for directory in (locked, locked / "below"):
            with pytest.raises(PermissionError, match=r"directory must be writable, but .* is not; choose another"):
                ModelCheckpoint(directory=directory)
    finally:
        os.seteuid(os.getuid())
        locked.chmod(0o700)


def test_the_default_directory_is_the_present_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = ModelCheckpoint()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    build().train(1, batches(1), checkpoint)
    assert names(tmp_path) == ["CKP-1_1", "elsewhere"]


def test_the_directory_is_created_late_and_privately(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    checkpoint = ModelCheckpoint(directory=tmp_path / "link" / "a" / "b")
    assert names(real) == []
    build().train(1, batches(1), checkpoint)
    assert (real / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert checkpoint.latest_ckpt_file_name == str(real / "a" / "b" / "CKP-1_1.safetensors")
    # Not read-only: whoever may delete a run may delete its files.
    assert Path(checkpoint.latest_ckpt_file_name).stat().st_mode & 0o200


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ["CKP-1_4", "CKP-2_1", "CKP-2_2", "CKP-2_3", "CKP-2_4"]),
        ({"save_checkpoint_steps": 3}, ["CKP-1_3", "CKP-2_2", "CKP-2_4"]),
        ({"save_checkpoint_steps": 4}, ["CKP-1_4", "CKP-2_4"]),
        ({"save_checkpoint_steps": 100}, ["CKP-2_4"]),
        ({"save_checkpoint_seconds": 10**6}, ["CKP-2_4"]),
        ({"keep_checkpoint_max": 1}, ["CKP-2_4"]),
        ({"keep_checkpoint_max": 0}, ["CKP-2_4"]),
        ({"keep_checkpoint_max": 2, "save_checkpoint_steps": 2}, ["CKP-2_2", "CKP-2_4"]),
        ({"keep_checkpoint_per_n_minutes": 10**6}, ["CKP-2_4"]),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True, "thread"])
def test_files(config, expected, asynchronous, folder):
    checkpoint = ModelCheckpoint("CKP", folder, CheckpointConfig(async_save=asynchronous, **config))
    assert checkpoint.latest_ckpt_file_name == ""
    build().fit(2, batches(), batches(), callbacks=checkpoint)
    assert names(folder) == expected
    assert checkpoint.latest_ckpt_file_name == str(folder / f"{expected[-1]}.safetensors")


def test_a_second_run_begins_anew(folder):
    checkpoint = ModelCheckpoint("CKP", folder, CheckpointConfig(3, keep_checkpoint_max=1))
    model = build()
    model.train(1, batches(), checkpoint)
    model.train(2, batches(), checkpoint)
    assert names(folder) == ["CKP-1_4", "CKP_1-2_4"]
    train(folder, 1, keep_checkpoint_max=1)
    assert names(folder) == ["CKP-1_4", "CKP_1-2_4", "CKP_2-1_4"]


def test_prefixes_that_look_alike(folder):
    train(folder, 1, prefix="CKP-1")
    train(folder, 1, prefix="CKP-1_2", keep_checkpoint_max=1)
    before = names(folder)
    train(folder, 2, prefix="CKP", keep_checkpoint_max=1)
    assert names(folder) == sorted([*before, "CKP-2_4"])


@pytest.mark.parametrize(("linux", "second"), [(True, "ckp"), (False, "ckp_1")])
def test_prefixes_that_are_one_to_the_system(folder, monkeypatch, linux, second):
    """On macOS and Windows ckp-1_4 would take the place of CKP-1_4."""
    train(folder, 1, prefix="CKP", keep_checkpoint_max=1)
    monkeypatch.setattr(system, "LINUX", linux)
    train(folder, 1, prefix="ckp", keep_checkpoint_max=1)
    assert names(folder) == ["CKP-1_4", f"{second}-1_4"]


def test_files_of_others_stay(folder):
    folder.mkdir()
    others = ["CKP-text.safetensors", "CKP-1_1.ckpt", "notes.txt", "CKP-0_0.safetensors.bak", ".CKP-1_1.safetensors"]
    for name in others:
        (folder / name).write_text("mine")
    train(folder, 2, keep_checkpoint_max=1)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*others, "CKP-2_4.safetensors"])


def test_two_checkpoints_in_one_directory(folder):
    first = ModelCheckpoint("CKP", folder, CheckpointConfig(1, keep_checkpoint_max=2))
    second = ModelCheckpoint("CKP", folder, CheckpointConfig(4, keep_checkpoint_max=2))
    build().train(2, batches(), [first, second])
    assert names(folder) == ["CKP-2_3", "CKP-2_4", "CKP_1-1_4", "CKP_1-2_4"]


def test_functions_as_prefix_and_directory(tmp_path):
    checkpoint = ModelCheckpoint(
        lambda params: f"epoch{params.cur_epoch_num}",
        lambda params: tmp_path / f"until{params.epoch_num}",
        CheckpointConfig(keep_checkpoint_max=9),
    )
    build().train(2, batches(), checkpoint)
    assert names(tmp_path / "until2") == ["epoch1", "epoch2"]
    assert load_checkpoint(checkpoint.latest_ckpt_file_name).training_state.step == 8
    for prefix, error in ((lambda params: 3, TypeError), (lambda params: "a/b", ValueError)):
        with pytest.raises(error, match="prefix must be a"):
            build().train(1, batches(), ModelCheckpoint(prefix, tmp_path))
    train(lambda params: tmp_path / "named", 1, prefix="it", keep_checkpoint_max=1)
    assert names(tmp_path / "named") == ["it-1_4"]


def test_a_function_as_directory_replaces_no_file_of_an_earlier_run(tmp_path):
    def directory(params):
        return tmp_path / f"epoch {params.cur_epoch_num}"

    for _ in range(2):
        first, second = (ModelCheckpoint("CKP", directory, CheckpointConfig(2)) for _ in range(2))
        build().train(2, batches(), [first, second])
    for epoch in (1, 2):
        expected = [f"{run}-{epoch}_{step}" for run in ("CKP", "CKP_1", "CKP_2", "CKP_3") for step in (2, 4)]
        assert names(tmp_path / f"epoch {epoch}") == expected


def test_cb_params_name_the_latest_file(folder):
    def look(run_context):
        params = run_context.original_args()
        seen.append((params.last_save_ckpt_step, params.latest_ckpt_file))

    seen = []
    train(folder, 1, [LambdaCallback(on_train_step_begin=look)], save_checkpoint_steps=2)
    assert seen == [(None, None), (None, None), (2, str(folder / "CKP-1_2.safetensors")), *seen[2:3]]


def test_evaluations_and_other_ranks_write_nothing(folder, monkeypatch):
    checkpoint = ModelCheckpoint("CKP", folder)
    build().eval(batches(), checkpoint)
    assert checkpoint.latest_ckpt_file_name == ""
    for rank in ("1", "2"):
        monkeypatch.setenv("RANK", rank)
        train(folder, 1)
    assert not folder.exists()


def test_a_data_set_of_unknown_length(folder):
    train(folder, 2, data=WithoutLength(batches()), save_checkpoint_steps=3)
    assert names(folder) == ["CKP-1_3", "CKP-2_2", "CKP-2_4"]


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
        self.layers[2].weight = self.layers[0].weight
        self.scalar = nn.Parameter(torch.tensor(2.0, dtype=torch.bfloat16))
        self.frozen = nn.Parameter(torch.arange(4).double(), requires_grad=False)

    def forward(self, inputs):
        return (self.layers(inputs) * self.scalar)[:, :2]


@pytest.mark.parametrize("config", [{}, {"async_save": True}, {"enc_key": bytes(16)}])
def test_weights_go_into_a_file_and_back(config, folder):
    model = build(Everything())
    train(folder, 1, model=model, **config)
    loaded = load_checkpoint(latest_checkpoint(folder), config.get("enc_key"))
    assert "layers.2.weight" not in loaded.weights
    other = Everything()
    untouched = other.layers[0].weight.data_ptr()
    loaded.load_into(nn.DataParallel(other))
    torch.testing.assert_close(other.state_dict(), model.network.state_dict(), rtol=0, atol=0)
    assert other.layers[0].weight.data_ptr() == other.layers[2].weight.data_ptr() == untouched
    assert not other.frozen.requires_grad


def test_an_async_file_holds_the_moment_it_was_asked_for(folder):
    """The thread is held back until training has moved on."""
    moved = threading.Event()
    weights = {}

    class Slow(dict):
        def items(self):
            assert moved.wait(PATIENCE)
            return super().items()

    class Hold(Callback):
        def on_train_step_end(self, run_context):
            params = run_context.original_args()
            weights[params.cur_step_num] = params.network.weight.detach().clone()
            if params.cur_step_num == 2:
                assert params.latest_ckpt_file is None
                moved.set()

    original = Archive.pack

    def pack(*arguments):
        archive = original(*arguments)
        object.__setattr__(archive, "arrays", Slow(archive.arrays))
        return archive

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archive, "pack", pack)
        train(folder, 1, [Hold()], data=batches(2), async_save=True, save_checkpoint_steps=1)
    assert torch.equal(torch.from_numpy(load_checkpoint(folder / "CKP-1_1.safetensors").weights["weight"]), weights[1])
    assert not torch.equal(weights[1], weights[2])


def test_appended_values(folder):
    counter = torch.zeros(2)
    own = {"rate": 0.1, "on": True, "name": "mine", "count": 10**18, "tensor": counter, "epoch_num": 10}
    count = At("on_train_step_end", 3, lambda run_context: counter.add_(1))
    train(folder, 2, [count], save_checkpoint_steps=4, append_info=["step_num", own])
    first, second = (load_checkpoint(folder / f"CKP-{epoch}_4.safetensors").info for epoch in (1, 2))
    plain = {"rate": 0.1, "on": True, "name": "mine", "count": 10**18}
    assert {name: first[name] for name in plain} == plain
    assert type(first["on"]) is bool
    assert (first["step_num"], first["epoch_num"]) == (4, 11)
    assert (second["step_num"], second["epoch_num"]) == (8, 12)
    assert torch.equal(first["tensor"], torch.ones(2))


def test_a_saved_network_of_its_own(folder):
    model = build()
    average = torch.optim.swa_utils.AveragedModel(model.network)
    update = At("on_train_step_end", 3, lambda run_context: average.update_parameters(model.network))
    train(folder, 1, [update], model=model, saved_network=average, save_checkpoint_steps=4)
    file = folder / "CKP-1_4.safetensors"
    loaded = load_checkpoint(file)
    assert np.array_equal(loaded.weights["weight"], average.module.weight.detach())
    assert not np.array_equal(loaded.weights["weight"], model.network.weight.detach())
    other = torch.optim.swa_utils.AveragedModel(nn.Linear(3, 2))
    loaded.load_into(other)
    plain = nn.Linear(3, 2)
    loaded.load_into(plain)
    assert torch.equal(plain.weight, average.module.weight)
    # It can be resumed all the same: the weights of both networks are there.
    resumed = build()
    resumed.train(2, batches(), resume_from=file)
    model.train(2, batches(), initial_epoch=1)
    assert torch.equal(resumed.network.weight, model.network.weight)
    train(folder, 1, model=build(), prefix="bare", saved_network=average, training_state=False)
    assert load_checkpoint(latest_checkpoint(folder, "bare")).training_state is None
    # The trained network is not saved twice.
    train(folder, 1, model=model, prefix="same", saved_network=nn.DataParallel(model.network))
    assert load_checkpoint(latest_checkpoint(folder, "same")).training_state.network is None


def test_networks_that_do_not_fit(folder):
    train(folder, 1)
    loaded = load_checkpoint(latest_checkpoint(folder))
    network = nn.Sequential(nn.Linear(3, 2))
    before = network[0].weight.detach().clone()
    with pytest.raises(CheckpointError, match=r"CKP-1_4.safetensors does not fit the network Sequential:\n  0.weight"):
        loaded.load_into(network)
    assert torch.equal(network[0].weight, before)
    with pytest.raises(CheckpointError, match=r"  weight: the network has \(2, 4\), found \(2, 3\)"):
        loaded.load_into(nn.Linear(4, 2))
    with pytest.raises(CheckpointError, match=r"  bias \(2,\): unknown"):
        loaded.load_into(nn.Linear(3, 2, bias=False))


def test_what_cannot_be_stored_is_named(folder):
    class Strange(Callback):
        def state_dict(self):
            return {"set": {1, 2}}

        def load_state_dict(self, state):
            pass

    with pytest.raises(TypeError, match=r"checkpoint/training/callbacks/1/1/set must be made of .* but it is set"):
        train(folder, 1, [Strange()])
    network = build()
    network.network.register_parameter("checkpoint/x", nn.Parameter(torch.ones(1)))
    with pytest.raises(ValueError, match=r"network's tensors \['checkpoint/x'\] must not begin with 'checkpoint/'"):
        train(folder, 1, model=network)


@pytest.mark.parametrize(
    ("hook", "step", "saves", "expected"),
    [
        ("on_train_step_begin", 1, True, []),
        ("on_train_step_begin", 7, True, ["CKP-2_2_breakpoint"]),
        ("on_train_step_end", 7, True, ["CKP-2_3_breakpoint"]),
        ("on_train_epoch_begin", 4, True, ["CKP-1_4_breakpoint"]),
        ("on_train_step_begin", 3, False, []),
    ],
)
def test_an_exception_leaves_the_steps_that_were_done_if_asked_for(hook, step, saves, expected, folder):
    with pytest.raises(ArithmeticError) as caught:
        train(folder, 2, [At(hook, step, fail)], exception_save=saves, save_checkpoint_steps=100)
    assert not hasattr(caught.value, "__notes__")
    assert names(folder) == expected


def test_an_evaluation_that_fails_inside_a_training_leaves_nothing(folder):
    def evaluate(run_context):
        with pytest.raises(ArithmeticError, match="failed"):
            model.eval(batches(), [checkpoint, LambdaCallback(on_eval_step_end=fail)])

    model = build()
    checkpoint = ModelCheckpoint("CKP", folder, CheckpointConfig(3, exception_save=True))
    model.train(1, batches(), [checkpoint, At("on_train_step_end", 3, evaluate)])
    assert names(folder) == ["CKP-1_3", "CKP-1_4"]


def test_an_interrupt_is_an_exception(folder):
    interrupt = At("on_train_step_begin", 3, Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train(folder, 2, [interrupt], exception_save=True, async_save=True)
    assert names(folder) == ["CKP-1_1", "CKP-1_2", "CKP-1_2_breakpoint"]


def refuse(folder):
    """Makes every further write in a folder fail, for root as well: the folder is a file now."""

    def act(run_context):
        folder.rename(folder.with_name("moved"))
        folder.write_text("in the way")

    return act


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("step", [1, 3, 8])
def test_a_failed_write_stops_training(asynchronous, step, folder):
    model = build()
    reached = []
    count = LambdaCallback(on_train_step_begin=lambda run_context: reached.append(1))
    with pytest.raises(CheckpointWriteError, match=r"CKP-\d_\d\.safetensors could not be written: .*free some space"):
        train(folder, 2, [At("on_train_step_begin", step, refuse(folder)), count], model=model, async_save=asynchronous)
    assert step <= len(reached) <= min(8, step + asynchronous)


def test_a_failed_write_does_not_hide_the_error_of_the_run(folder):
    def both(run_context):
        refuse(folder)(run_context)
        raise ArithmeticError("failed")

    with pytest.raises(ArithmeticError, match="failed") as caught:
        train(folder, 2, [At("on_train_step_begin", 3, both)], exception_save=True)
    assert "CKP-1_2_breakpoint.safetensors could not be written" in caught.value.__notes__[0]


def test_old_files_go_only_after_the_new_one_is_there(folder):
    # The next file's place is taken by a folder, which no file can replace.
    guard = At("on_train_step_begin", 3, lambda run_context: (folder / "CKP-1_3.safetensors").mkdir())
    with pytest.raises(CheckpointWriteError, match=r"CKP-1_3\.safetensors could not be written"):
        train(folder, 2, [guard], keep_checkpoint_max=1)
    assert load_checkpoint(folder / "CKP-1_2.safetensors").training_state.step == 2
    assert names(folder) == ["CKP-1_2", "CKP-1_3"]


def test_leftovers_of_killed_writers_go(folder):
    folder.mkdir()
    ended = ended_process()
    gone = folder / f".CKP-1_1.safetensors.{ended}.00000000.tmp"
    alive = folder / f".CKP-1_2.safetensors.{os.getppid()}.00000000.tmp"
    foreign = folder / f".notes.safetensors.{ended}.00000000.tmp"
    for path in (gone, alive, foreign):
        path.write_text("half")
    train(folder, 1, data=batches(1))
    assert sorted(path.name for path in folder.iterdir()) == [alive.name, foreign.name, "CKP-1_1.safetensors"]


def resume(folder, config, directory=None, prefix="CKP", resume_from=None):
    checkpoint = ModelCheckpoint(prefix, directory or folder, config)
    build().train(3, batches(), checkpoint, resume_from=resume_from or latest_checkpoint(folder))


@pytest.fixture
def interrupted(folder):
    with pytest.raises(ArithmeticError):
        train(folder, 3, [At("on_train_step_begin", 7, fail)])
    assert names(folder) == ["CKP-1_2", "CKP-1_3", "CKP-1_4", "CKP-2_1", "CKP-2_2"]
    return folder


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CheckpointConfig(keep_checkpoint_max=5), ["CKP-2_4", "CKP-3_1", "CKP-3_2", "CKP-3_3", "CKP-3_4"]),
        (CheckpointConfig(6, keep_checkpoint_max=2), ["CKP-2_2", "CKP-3_4"]),
    ],
    ids=["as before", "with a smaller maximum"],
)
def test_a_resumed_run_goes_on_with_its_prefix_and_files(interrupted, config, expected):
    resume(interrupted, config)
    assert names(interrupted) == expected


def test_elsewhere_or_under_another_name_a_resumed_run_has_no_old_files(interrupted, tmp_path):
    before = names(interrupted)
    resume(interrupted, CheckpointConfig(keep_checkpoint_max=1), prefix="other")
    assert names(interrupted) == [*before, "other-3_4"]
    resume(interrupted, CheckpointConfig(keep_checkpoint_max=1), directory=tmp_path / "elsewhere")
    assert names(tmp_path / "elsewhere") == ["CKP-3_4"]
    assert names(interrupted) == [*before, "other-3_4"]


@pytest.mark.parametrize("start", ["CKP-1_3", "CKP-1_4"])
def test_a_run_resumed_before_later_files_leaves_them_and_becomes_the_latest(start, interrupted):
    before = {name: (interrupted / f"{name}.safetensors").read_bytes() for name in names(interrupted)}
    with pytest.raises(ArithmeticError):
        build().train(
            3,
            batches(),
            [ModelCheckpoint("CKP", interrupted, CheckpointConfig(1)), At("on_train_step_begin", 6, fail)],
            resume_from=interrupted / f"{start}.safetensors",
        )
    assert {name: (interrupted / f"{name}.safetensors").read_bytes() for name in before} == before
    assert latest_checkpoint(interrupted).name == "CKP_1-2_1.safetensors"
    resume(interrupted, CheckpointConfig(100))
    assert latest_checkpoint(interrupted).name == "CKP_1-3_4.safetensors"


def test_a_run_resumed_beside_a_later_run_leaves_its_files_and_becomes_the_latest(folder):
    for epochs in (2, 1):
        train(folder, epochs, save_checkpoint_steps=4)
    resume(folder, CheckpointConfig(4), resume_from=folder / "CKP-2_4.safetensors")
    assert names(folder) == ["CKP-1_4", "CKP-2_4", "CKP_1-1_4", "CKP_2-3_4"]
    assert latest_checkpoint(folder).name == "CKP_2-3_4.safetensors"


def test_two_checkpoints_in_one_directory_both_go_on_with_their_files(folder):
    for epochs, file in ((2, None), (3, "CKP_1-2_4"), (4, "CKP_1-3_4")):
        two = [ModelCheckpoint("CKP", folder, CheckpointConfig(4, keep_checkpoint_max=count)) for count in (1, 2)]
        build().train(epochs, batches(), two, resume_from=file and folder / f"{file}.safetensors")
        assert names(folder) == [f"CKP-{epochs}_4", f"CKP_1-{epochs - 1}_4", f"CKP_1-{epochs}_4"]


def test_a_training_that_begins_before_the_first_file_of_another_takes_a_prefix_of_its_own(folder):
    meanwhile = At("on_train_step_begin", 1, lambda run_context: train(folder, 1, save_checkpoint_steps=4))
    train(folder, 1, [meanwhile], save_checkpoint_steps=4)
    assert names(folder) == ["CKP-1_4", "CKP_1-1_4"]


def test_of_two_trainings_that_are_resumed_at_once_one_goes_on_with_the_files(interrupted):
    before, file = names(interrupted), latest_checkpoint(interrupted)
    config = CheckpointConfig(6, keep_checkpoint_max=9)
    meanwhile = At("on_train_step_begin", 7, lambda run_context: resume(interrupted, config))
    build().train(3, batches(), [ModelCheckpoint("CKP", interrupted, config), meanwhile], resume_from=file)
    assert names(interrupted) == [*before, "CKP-3_4", "CKP_1-3_4"]


def test_what_an_exception_left_is_later_too(folder):
    with pytest.raises(ArithmeticError):
        train(folder, 3, [At("on_train_step_begin", 7, fail)], exception_save=True, save_checkpoint_steps=3)
    assert names(folder) == ["CKP-1_3", "CKP-2_2", "CKP-2_2_breakpoint"]
    (folder / "CKP-2_2.safetensors").unlink()
    resume(folder, CheckpointConfig(100), resume_from=folder / "CKP-1_3.safetensors")
    assert names(folder) == ["CKP-1_3", "CKP-2_2_breakpoint", "CKP_1-3_4"]


def test_a_run_after_files_were_deleted_is_the_latest(folder):
    for _ in range(2):
        train(folder, 1)
    for file in folder.glob("CKP-*"):
        file.unlink()
    checkpoint = train(folder, 1)
    assert latest_checkpoint(folder) == Path(checkpoint.latest_ckpt_file_name)


def test_a_changed_checkpoint_cannot_have_foreign_files_deleted(interrupted, tmp_path):
    outside = tmp_path / "CKP-9_9.safetensors"
    inside = interrupted / "precious.safetensors"
    for path in (outside, inside):
        path.write_text("precious")
    loaded = load_checkpoint(latest_checkpoint(interrupted))
    (_, state, _), *_ = loaded.training_state.callbacks
    state["run"]["files"] = ["precious.safetensors", "../CKP-9_9.safetensors", str(outside), *state["run"]["files"]]
    resume(interrupted, CheckpointConfig(keep_checkpoint_max=1), resume_from=loaded)
    assert names(interrupted) == ["CKP-3_4", "precious"]
    assert outside.exists()


def test_the_latest_checkpoint(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "absent") is None
    order = ["CKP-1_9", "CKP-2_1", "CKP-2_10", "CKP-10_1", "CKP-10_1_breakpoint", "CKP_2-1_1", "CKP_10-1_1"]
    for name in ("CKP-1-99_1", "CKP_x-99_1", "-99_1", "CKP-99", "a-1_2-99_1"):
        (tmp_path / f"{name}.safetensors").write_text("")
    for name in ("CKP-99_1.ckpt", "CKP-99_1.safetensors.tmp"):
        (tmp_path / name).write_text("")
    for name in order:
        (tmp_path / f"{name}.safetensors").write_text("")
        assert latest_checkpoint(tmp_path).name == f"{name}.safetensors"
    assert latest_checkpoint(str(tmp_path), "CKP-1").name == "CKP-1-99_1.safetensors"
    with pytest.raises(TypeError, match="prefix must be a str"):
        latest_checkpoint(tmp_path, 3)
    with pytest.raises(TypeError, match="directory must be a path"):
        latest_checkpoint(3)


def test_nested_states_go_through_json(tmp_path):
    tree = {
        "numbers": [1, -(2**70), 0.1, float("inf"), True, None, "text", b"\x00\xff"],
        3: {"3": (1, (2.5,)), 4.5: [], (1, 2): {}},
        "3": Counter({5: 2}),
        "tensors": [torch.ones(2, dtype=torch.bfloat16), torch.tensor(3), torch.empty(0, 2), np.arange(3)],
        "numpy": [np.float64(0.25), np.int32(4), np.bool_(False)],
        1: np.zeros(1),
        "1": np.ones(1),
    }
    tree["tensors"].append(nn.Parameter(torch.ones(1)))
    write_archive(tmp_path / "a.safetensors", Archive.pack({}, tree, None), None, "AES-GCM")
    back = load_checkpoint(tmp_path / "a.safetensors").info
    assert list(back) == list(tree)
    assert [type(item) for item in back["numbers"]] == [type(item) for item in tree["numbers"]]
    for key in ("numbers", 3, "3", "numpy"):
        assert back[key] == tree[key]
    assert type(back["3"]) is Counter
    assert type(back["numpy"][2]) is bool
    torch.testing.assert_close(back["tensors"][:3], tree["tensors"][:3], rtol=0, atol=0)
    assert np.array_equal(back["tensors"][3], np.arange(3))
    assert (back[1], back["1"]) == (0, 1)


@pytest.mark.parametrize("wrong", [object(), {1, 2}, range(3), 1j, np.array([1j]), np.array(["a"]), np.longdouble(1)])
def test_what_no_state_may_hold(wrong):
    with pytest.raises(TypeError, match=r"it/a/0 (must be made of|has elements of type)"):
        encode({"a": [wrong]}, "it", {})


class WithGenerators:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.numpy = np.random.default_rng(seed)
        self.old = np.random.RandomState(seed)
        self.python = random.Random(seed)
        self.dataset = self
        self.transforms = [type("T", (), {})(), 3]
        self.transforms[0].rng = np.random.default_rng(seed + 1)
        self.target_transform = type("T", (), {})()
        self.target_transform.rng = np.random.default_rng(seed + 2)

    def draw(self):
        local = [torch.rand(1, generator=self.generator).item(), self.numpy.random(), self.old.normal()]
        local += [self.python.gauss(0, 1), self.transforms[0].rng.random(), self.target_transform.rng.random()]
        return [*local, torch.rand(1).item(), random.random(), np.random.normal()]  # noqa: NPY002


def test_random_states():
    first, second = WithGenerators(1), WithGenerators(2)
    found = ["generator", "numpy", "old", "python", "target_transform.rng", "transforms.0.rng"]
    assert sorted(dataset_generators(first)) == found
    first.draw()
    arrays = {}
    state = encode(capture_random_state(first), "it", arrays)
    expected = [first.draw() for _ in range(3)]
    restore_random_state(decode(state, arrays), second)
    assert [second.draw() for _ in range(3)] == expected
    state = capture_random_state(first)
    with pytest.raises(CheckpointError, match=r"train_dataset has no generators \['generator', 'numpy'"):
        restore_random_state(state, [])
    with pytest.raises(CheckpointError, match="random state does not fit this process"):
        restore_random_state({**state, "torch": torch.ones(3)}, first)
