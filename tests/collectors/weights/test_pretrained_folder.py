"""Folders as ``save_pretrained`` and a Trainer write them; tests/frameworks has them written by Transformers itself."""

import json

import numpy as np
import pytest
import torch
from remote_stores import empty_memory
from runs import SmallNetwork, seeded, snapshot
from safetensors.torch import save_file

from collectors import import_checkpoints
from collectors.errors import CheckpointError
from collectors.weights.aligned import as_reader
from collectors.weights.foreign_checkpoint import read_checkpoint

SAVE = {"safetensors": save_file, "bin": torch.save}
STEM = {"safetensors": "model", "bin": "pytorch_model"}


def parts(folder, state, suffix, count=2):
    """Writes a checkpoint in parts; returns their index."""
    folder.mkdir(parents=True)
    places = {
        name: f"{STEM[suffix]}-{index % count + 1:05d}-of-{count:05d}.{suffix}" for index, name in enumerate(state)
    }
    for file in set(places.values()):
        SAVE[suffix]({name: state[name] for name in state if places[name] == file}, folder / file)
    index = folder / f"{STEM[suffix]}.{suffix}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    (folder / "config.json").write_text("{}")
    return index


def trainers_checkpoint(folder, state, step):
    index = parts(folder / f"checkpoint-{step}", state, "safetensors")
    torch.save({"state": {}, "param_groups": []}, index.with_name("optimizer.pt"))
    index.with_name("trainer_state.json").write_text(json.dumps({"epoch": step / 800, "global_step": step}))


def assert_equal(arrays, state):
    np.testing.assert_equal(dict(arrays), {name: tensor.numpy() for name, tensor in state.items()})


@pytest.fixture
def state():
    return snapshot(seeded(SmallNetwork))


@pytest.mark.parametrize("suffix", SAVE)
@pytest.mark.parametrize("form", ["folder", "index"])
def test_a_checkpoint_in_parts(tmp_path, state, suffix, form):
    index = parts(tmp_path / "whole", state, suffix)
    path = index if form == "index" else index.parent
    assert_equal(read_checkpoint(path).tensors, state)
    reader = as_reader("origin", path)
    assert_equal({name: reader.read(name) for name in reader.shapes}, state)


@pytest.mark.parametrize("suffix", SAVE)
def test_a_checkpoint_in_one_file(tmp_path, state, suffix):
    SAVE[suffix](state, tmp_path / f"{STEM[suffix]}.{suffix}")
    (tmp_path / "config.json").write_text("{}")
    assert_equal(read_checkpoint(tmp_path).tensors, state)
    assert str(tmp_path) in as_reader("origin", tmp_path).label


@pytest.mark.parametrize("suffix", SAVE)
def test_a_lone_part_names_the_index(tmp_path, state, suffix):
    index = parts(tmp_path / "whole", state, suffix)
    part = index.with_name(f"{STEM[suffix]}-00002-of-00002.{suffix}")
    for read in (read_checkpoint, lambda path: as_reader("origin", path)):
        with pytest.raises(CheckpointError, match=rf"part 2 of 2 and holds some .*; give .*whole, .*{index}\."):
            read(part)
    index.unlink()
    with pytest.raises(CheckpointError, match=rf"{index.name} \(which is not beside it; copy it, too\)"):
        read_checkpoint(part)
    lone = part.rename(part.with_name(f"{STEM[suffix]}-00001-of-00001.{suffix}"))
    assert read_checkpoint(lone).tensors


def test_parts_that_are_missing_or_others(tmp_path, state):
    index = parts(tmp_path / "whole", state, "safetensors")
    part = index.with_name("model-00002-of-00002.safetensors")
    part.rename(tmp_path / "aside")
    with pytest.raises(CheckpointError, match=r"names the part model-00002-of-00002.safetensors, which is not beside"):
        read_checkpoint(index.parent)
    save_file({"other": torch.ones(2)}, part)
    with pytest.raises(CheckpointError, match=r"says that model-00002-of-00002.safetensors holds '.*', which it does"):
        read_checkpoint(index)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{}", "index.json is damaged or no index of a checkpoint"),
        ("[]", "is damaged or no index of a checkpoint"),
        ("{", "is damaged or no index of a checkpoint"),
        ('{"weight_map": {"a": "../secret.safetensors"}}', r"the part '../secret.safetensors' is no file beside it"),
        ('{"weight_map": {"a": "secret.txt"}}', "the part 'secret.txt' is no file beside it"),
        ('{"weight_map": {"a": 3}}', "the part '3' is no file beside it"),
        ('{"weight_map": {}}', "holds no tensors"),
    ],
)
def test_an_index_that_is_none(tmp_path, content, match):
    save_file({"a": torch.ones(2)}, tmp_path / "secret.safetensors")
    (tmp_path / "folder").mkdir()
    index = tmp_path / "folder" / "model.safetensors.index.json"
    index.write_text(content)
    with pytest.raises(CheckpointError, match=match):
        read_checkpoint(index.parent)


def test_the_folders_of_a_trainer(tmp_path, state):
    states = {step: snapshot(seeded(SmallNetwork, step)) for step in (500, 1000, 1500)}
    for step, weights in states.items():
        trainers_checkpoint(tmp_path / "output", weights, step)
    (tmp_path / "output" / "runs").mkdir()
    # The folder itself has the last weights, as trainer.save_model() leaves them.
    save_file(states[1500], tmp_path / "output" / "model.safetensors")
    torch.save({"lr": 1}, tmp_path / "output" / "training_args.bin")
    said = []
    run = import_checkpoints(tmp_path / "run", tmp_path / "output", report=said.append)
    assert run.settings.unit == "step"
    assert sorted(run.metadata.files) == [500, 1000, 1500]
    for step, weights in states.items():
        held = run.checkpoint(step)
        assert_equal({name: held.read(name) for name in held.shapes}, weights)
    assert "    1000  name  checkpoint-1000" in said[0].splitlines()
    files = [tmp_path / "output" / f"checkpoint-{step}" / "model.safetensors.index.json" for step in (1000, 500, 1500)]
    again = import_checkpoints(tmp_path / "again", files)
    assert again.metadata == run.metadata


def test_a_trainers_folders_behind_a_url(tmp_path):
    for step in (5, 10, 15):
        trainers_checkpoint(tmp_path / "output", snapshot(seeded(SmallNetwork, step)), step)
    here = import_checkpoints(tmp_path / "here", tmp_path / "output")
    with empty_memory() as system:
        system.put(str(tmp_path / "output"), "/", recursive=True)
        there = import_checkpoints(tmp_path / "there", "memory://output")
        assert there.metadata == here.metadata
        one = as_reader("origin", "memory://output/checkpoint-10/model.safetensors.index.json")
        held = here.checkpoint(10)
        for name in held.shapes:
            np.testing.assert_array_equal(one.read(name), held.read(name))


def test_what_is_named_behind_a_url_is_what_is_read(tmp_path, state):
    index = parts(tmp_path / "whole", state, "safetensors")
    (tmp_path / "whole" / "other.safetensors.index.json").write_bytes(index.read_bytes())
    save_file({"other": torch.ones(2)}, tmp_path / "whole" / "model.safetensors")
    with empty_memory() as system:
        system.put(str(tmp_path / "whole"), "/", recursive=True)
        for name in (index.name, "other.safetensors.index.json"):
            reader = as_reader("origin", f"memory://whole/{name}")
            assert_equal({name: reader.read(name) for name in reader.shapes}, state)
        match = rf"part 2 of 2 .*; give the folder memory:///whole, .*, memory:///whole/{index.name}\."
        with pytest.raises(CheckpointError, match=match):
            as_reader("origin", "memory://whole/model-00002-of-00002.safetensors")


def test_a_folder_with_an_adapter_alone(tmp_path):
    adapter = {f"base_model.model.0.lora_{part}.weight": torch.ones(2, 3) for part in "AB"}
    save_file(adapter, tmp_path / "adapter_model.safetensors")
    for read in (read_checkpoint, lambda path: as_reader("origin", path)):
        with pytest.raises(CheckpointError, match=r"holds LoRA adapters alone \('base_model.*merge_and_unload"):
            read(tmp_path)
    whole = {**adapter, "base_model.model.0.base_layer.weight": torch.ones(5, 3)}
    save_file(whole, tmp_path / "adapter_model.safetensors")
    assert len(read_checkpoint(tmp_path).tensors) == 3
