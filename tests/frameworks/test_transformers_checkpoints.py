"""Folders that Transformers and peft wrote, imported, and as weights of a plane."""

import warnings

import numpy as np
import pytest
from test_transformers import make_adapted
from transformers_cases import make_gpt2, trainer
from worker_cases import seeded

from collectors import import_checkpoints
from collectors.errors import CheckpointError
from collectors.networks.readers import describe_network, read_network
from collectors.weights.aligned import align, as_reader


def assert_is(reader, network):
    space = describe_network(network)
    aligned = align(reader, space)
    for name, array in read_network(network).items():
        np.testing.assert_array_equal(aligned.read(name), array, err_msg=name)


def test_the_folders_of_a_trainer(tmp_path):
    network = seeded(make_gpt2)
    training = trainer(network, tmp_path / "output", [], save_strategy="steps", save_steps=4)
    training.train()
    training.save_model()
    said = []
    run = import_checkpoints(tmp_path / "run", tmp_path / "output", report=said.append)
    assert (run.settings.unit, sorted(run.metadata.files)) == ("step", [4, 8, 12])
    assert "      12  name  checkpoint-12" in said[0].splitlines()
    assert_is(run.checkpoint(12), network)
    assert_is(as_reader("origin", tmp_path / "output" / "checkpoint-12"), network)
    epochs = import_checkpoints(tmp_path / "epochs", tmp_path / "output", numbers=[1, 2, 3], unit="epoch")
    assert_is(epochs.checkpoint(3), network)


def test_weights_in_parts(tmp_path):
    network = seeded(make_gpt2)
    network.save_pretrained(tmp_path / "parts", max_shard_size="2KB")
    parts = sorted((tmp_path / "parts").glob("model-*.safetensors"))
    assert len(parts) > 1
    assert_is(as_reader("origin", tmp_path / "parts"), network)
    assert_is(as_reader("origin", tmp_path / "parts" / "model.safetensors.index.json"), network)
    with pytest.raises(CheckpointError, match=r"is part 1 of \d+ .*/model.safetensors.index.json\."):
        as_reader("origin", parts[0])
    files = []
    for number in (5, 10, 15):
        seeded(make_gpt2, number).save_pretrained(tmp_path / "all" / f"step_{number}", max_shard_size="2KB")
        files.append(tmp_path / "all" / f"step_{number}")
    for paths in (tmp_path / "all", files):
        run = import_checkpoints(tmp_path / "run", paths, existing="overwrite")
        assert (run.settings.unit, sorted(run.metadata.files)) == ("step", [5, 10, 15])
        assert_is(run.checkpoint(10), seeded(make_gpt2, 10))


def test_the_network_without_its_head(tmp_path):
    """Its names lack the prefix under which the whole network has it."""
    network = seeded(make_gpt2)
    network.transformer.save_pretrained(tmp_path / "base")
    assert_is(as_reader("origin", tmp_path / "base"), network)


def test_an_adapter_alone_and_merged(tmp_path):
    network = seeded(make_adapted)
    network.save_pretrained(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=r"holds LoRA adapters alone .*merge_and_unload\(\) of peft"):
        import_checkpoints(tmp_path / "run", [tmp_path / "adapter"] * 3)
    with pytest.raises(CheckpointError, match="holds LoRA adapters alone"):
        as_reader("origin", tmp_path / "adapter")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged = network.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    assert_is(as_reader("origin", tmp_path / "merged"), merged)
