"""Weights that another process reads by itself: the same bits as here, or an error, and never other bytes."""

import os
import pickle
import sys
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from remote_stores import empty_memory
from runs import SmallNetwork, collected, seeded
from scripts import run_script

from collectors.errors import CheckpointError
from collectors.files.places import LocalCopies, check_directory
from collectors.networks.readers import describe_network
from collectors.networks.weight_space import describe_arrays, numpy_dtype
from collectors.run_directory import RunDirectory
from collectors.weights.aligned import NetworkState, align
from collectors.weights.safetensors_file import (
    STORABLE_DTYPES,
    CheckpointFile,
    MemoryState,
    portable,
    read_whole,
    write_checkpoint,
)


def elsewhere(reader):
    """The same set of weights, as another process would get it."""
    return pickle.loads(pickle.dumps(portable(reader)))()


def assert_same(found, expected):
    assert dict(found.shapes) == dict(expected.shapes)
    assert dict(found.dtypes) == dict(expected.dtypes)
    for name in expected.shapes:
        assert found.read(name).dtype == expected.read(name).dtype
        assert found.read(name).tobytes() == expected.read(name).tobytes()
        assert found.read_block(name, 0, 0).size == 0


def with_header(path, header, data):
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + data)
    return path


@pytest.fixture
def path(tmp_path):
    generator = np.random.default_rng(0)
    state = {
        dtype: np.abs(generator.normal(size=(3, 5)).astype(numpy_dtype(dtype)))
        for dtype in STORABLE_DTYPES - {"float8_e8m0fnu"}
    }
    state |= {"scalar": np.array(3.0), "empty": np.zeros((0, 4)), "nan": np.array([np.nan, -0.0], ml_dtypes.bfloat16)}
    write_checkpoint(tmp_path / "net_3_step.safetensors", state | {"large": generator.normal(size=(700, 500))})
    return tmp_path / "net_3_step.safetensors"


class TestFile:
    def test_it_is_read_once_and_held_once_with_every_element_type(self, path):
        assert_same(elsewhere(CheckpointFile(path)), CheckpointFile(path))
        read = portable(CheckpointFile(path))
        tracemalloc.start()
        state = read()
        arrays = [state.read(name) for name in state.shapes]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(array.nbytes for array in arrays) > 2.8e6
        assert peak < 1.1 * sum(array.nbytes for array in arrays)

    def test_a_relative_path_is_that_of_this_process(self, path, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        read = portable(CheckpointFile(path.name))
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        assert_same(read(), CheckpointFile(path))

    @pytest.mark.parametrize("place", [0, 9, 3000, -1])
    def test_one_changed_byte(self, path, place):
        read = portable(CheckpointFile(path))
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"is not the expected file here|is not a whole safetensors file"):
            read()

    def test_a_larger_one_is_not_even_read(self, path, monkeypatch):
        read = portable(CheckpointFile(path))
        write_checkpoint(path, {"x": np.zeros(10**6)})
        monkeypatch.setattr("collectors.weights.safetensors_file._fill", None)
        with pytest.raises(CheckpointError, match="is not the expected file here"):
            read()

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: None], ids=["pipe", "folder", "nothing"])
    def test_something_else_in_its_place(self, path, make):
        """Nobody waits for what a pipe may say."""
        read = portable(CheckpointFile(path))
        os.truncate(path, 5000)
        with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
            read()
        path.unlink()
        make(path)
        with pytest.raises(CheckpointError, match="is not the expected file here"):
            read()

    def test_gaps_between_tensors_count(self, tmp_path):
        header = (
            '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}}'
        )
        path = with_header(tmp_path / "gap.safetensors", header, b"\1\2xyz\3")
        file = CheckpointFile(path)
        assert_same(elsewhere(file), file)
        with_header(path, header, b"\1\2xyZ\3")
        with pytest.raises(CheckpointError, match="is not the expected file here"):
            elsewhere(file)

    def test_a_file_behind_a_url(self, path):
        with empty_memory() as memory:
            memory.pipe_file("/run/3.safetensors", path.read_bytes())
            memory.pipe_file("/run/4.safetensors", path.read_bytes()[:-1])
            remote, copies = check_directory("summary_dir", "memory://run"), LocalCopies()
            file = CheckpointFile(copies.copy_of(remote / "3.safetensors"), "the label", remote / "3.safetensors")
            pickled = pickle.dumps(portable(file))
            assert b"landscape-copy" not in pickled  # the copy is of this machine
            assert_same(pickle.loads(pickled)(), CheckpointFile(path))
            memory.rm_file("/run/3.safetensors")
            with pytest.raises(CheckpointError, match="the label is not the expected file here"):
                pickle.loads(pickled)()
            with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
                read_whole(remote / "4.safetensors", "4", path.stat().st_size, "")


def test_what_lies_in_memory_cannot_be_read_elsewhere():
    assert portable(MemoryState({"x": np.ones(3)})) is None
    space = describe_arrays({"x": np.ones(3)})
    assert portable(align(MemoryState({"x": np.ones(3)}), space)) is None


def test_other_names_and_element_types(tmp_path):
    path = tmp_path / "wrapped.safetensors"
    write_checkpoint(path, {"module.x": np.linspace(0, 1, 7), "module._orig_mod.y": np.ones(2, np.float32)})
    space = describe_arrays({"x": np.ones(7, np.float32), "y": np.ones(2, ml_dtypes.bfloat16)})
    reader = align(CheckpointFile(path), space)
    assert_same(elsewhere(reader), reader)
    assert elsewhere(reader).dtypes == {"x": "float32", "y": "bfloat16"}


class TestRun:
    @pytest.fixture
    def run(self, tmp_path):
        network = seeded(SmallNetwork)
        network[0].requires_grad_(False)
        return collected(tmp_path / "run", network)[0], describe_network(network)

    def test_frozen_parameters(self, run):
        directory, space = run
        reader = directory.checkpoint(3, space)
        assert "0.weight" not in CheckpointFile(directory.checkpoint_path(3)).shapes
        assert_same(elsewhere(reader), reader)
        (directory.path / "ckpt_dir" / "SmallNetwork_frozen.safetensors").unlink()
        with pytest.raises(CheckpointError, match=r"frozen\.safetensors is not the expected file here"):
            elsewhere(reader)

    def test_a_network_s_state_in_a_fresh_process(self, run, tmp_path):
        directory, space = run
        reader = directory.checkpoint(3, space)
        kinds = [(space, True, None), (space, False, None), (space, False, {"given": np.arange(3.0)})]
        pickled = pickle.dumps([NetworkState(portable(reader), *kind) for kind in kinds])
        (tmp_path / "pickled").write_bytes(pickled)
        script = (
            "import pickle, sys; from pathlib import Path\n"
            "states = [read() for read in pickle.loads(Path(sys.argv[1]).read_bytes())]\n"
            "assert not {'torch', 'h5py', 'landscape', 'collectors.run_directory'} & set(sys.modules)\n"
            "print(pickle.dumps(states).hex())"
        )
        places = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        there = pickle.loads(bytes.fromhex(run_script(script, tmp_path / "pickled", cwd="/", env=places)))
        for kind, state in zip(kinds, there, strict=True):
            for found, expected in zip(state, NetworkState(lambda: reader, *kind)(), strict=True):
                assert (found is None) == (expected is None)
                for name, array in (expected or {}).items():
                    assert found[name].dtype == array.dtype
                    assert found[name].tobytes() == array.tobytes()
                assert found is None or list(found) == list(expected)

    def test_behind_a_url(self, run):
        local, space = run
        with empty_memory() as memory:
            memory.put(f"{local.path}/ckpt_dir", "/run/ckpt_dir", recursive=True)
            directory = RunDirectory("memory://run")
            reader = directory.checkpoint(3, space)
            assert_same(elsewhere(reader), local.checkpoint(3, space))
