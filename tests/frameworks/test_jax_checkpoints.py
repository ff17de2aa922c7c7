"""What JAX' users saved while they trained (Flax' msgpack, Orbax' folders, NumPy's archives), imported and measured."""

import pickle
import shutil

import jax
import msgpack
import numpy as np
import orbax.checkpoint as orbax
import pytest
from cases import assert_imported
from flax import serialization, traverse_util
from jax_cases import LinenConvolutions, classes, images, mean_loss

from collectors import import_checkpoints
from collectors.errors import CheckpointError
from collectors.jax import JaxNetwork
from collectors.networks.readers import read_network
from collectors.weights.foreign_checkpoint import read_checkpoint

STEPS = (100, 200, 300, 400, 500)
MODEL = LinenConvolutions()
VARIABLES = [jax.tree.map(np.asarray, MODEL.init(jax.random.key(step), images(2))) for step in STEPS]


def as_msgpack(folder):
    for step, variables in zip(STEPS, VARIABLES, strict=True):
        (folder / f"step_{step}.msgpack").write_bytes(serialization.to_bytes(variables))


def as_train_states(folder):
    for step, variables in zip(STEPS, VARIABLES, strict=True):
        # As a compiled step leaves its count.
        state = {"step": jax.numpy.int32(step), **variables, "opt_state": {"0": {"mu": variables["params"]}}}
        (folder / f"checkpoint_{step}.msgpack").write_bytes(serialization.to_bytes(state))


def as_archives(folder):
    for step, variables in zip(STEPS, VARIABLES, strict=True):
        np.savez(folder / f"step_{step}.npz", **traverse_util.flatten_dict(variables, sep="/"))


def save_with_orbax(folder, trees):
    with orbax.StandardCheckpointer() as writer:
        for step, tree in zip(STEPS, trees, strict=True):
            writer.save(folder / str(step), tree)


def as_orbax(folder):
    states = zip(STEPS, VARIABLES, strict=True)
    trees = [{"step": step, **variables, "opt_state": {"mu": variables["params"]}} for step, variables in states]
    save_with_orbax(folder, trees)


def as_steps_of_a_manager(folder):
    with orbax.CheckpointManager(folder) as manager:
        for step, variables in zip(STEPS, VARIABLES, strict=True):
            manager.save(step, args=orbax.args.StandardSave(variables))


@pytest.mark.filterwarnings("ignore:the training's final checkpoint")
@pytest.mark.parametrize("write", [as_msgpack, as_train_states, as_archives, as_orbax, as_steps_of_a_manager])
def test_each_kind_is_imported_and_measured(write, tmp_path):
    (folder := tmp_path / "old").mkdir()
    write(folder)
    paths = str(folder / "*.npz") if write is as_archives else folder
    run = import_checkpoints(tmp_path / "run", paths, unit="step")
    networks = [JaxNetwork(MODEL.apply, variables) for variables in VARIABLES]
    data = images(50), classes(50)
    losses = [float(mean_loss(MODEL.apply(variables, data[0]), data[1])) for variables in VARIABLES]
    states = dict(zip(STEPS, map(read_network, networks), strict=True))
    assert_imported(run, "jax", states, lambda: (mean_loss, networks[0], data, {}), losses)


def import_one(path):
    import_checkpoints(path.with_name("run"), [path] * 3, numbers=[1, 2, 3])


class Runs:
    def __reduce__(self):
        return exec, ("raise SystemExit('code of a file ran')",)


def an_array_of(shape, dtype, content):
    """Returns Flax' extension of msgpack for an array."""
    return msgpack.ExtType(1, msgpack.packb((shape, dtype, content)))


def with_objects(path):
    np.savez(path, params=np.array([Runs()], object))


MSGPACKS = {
    "cut": (serialization.to_bytes(VARIABLES[0])[:-40], "damaged"),
    "empty": (b"", "empty"),
    "a list": (serialization.to_bytes([np.ones(3)])[:1] + b"\x01", "damaged"),
    "no arrays": (msgpack.packb({"params": {"a": 3}}), "holds no tensors"),
    "a pickle": (pickle.dumps(Runs()), "pickle"),
    "claims": (msgpack.packb({"a": an_array_of((1 << 40,), "float32", b"1234")}), "damaged"),
    "objects": (msgpack.packb({"a": an_array_of((1,), "O", pickle.dumps(Runs()))}), "damaged"),
}


@pytest.mark.parametrize("case", MSGPACKS)
def test_damaged_and_hostile_msgpacks_are_named(case, tmp_path):
    content, match = MSGPACKS[case]
    path = tmp_path / "ep_1.msgpack"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"ep_1\.msgpack.*{match}"):
        import_one(path)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (with_objects, "allow_pickle"),
        (lambda path: np.savez_compressed(path, a=np.zeros(1 << 20)), "compressed: load it"),
        (lambda path: np.savez(path, a=np.ones(3, jax.numpy.bfloat16)), "lose such types as bfloat16"),
        (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(40)), "damaged"),
        (lambda path: None, "does not exist"),
    ],
)
def test_damaged_and_hostile_archives_are_named(write, match, tmp_path):
    path = tmp_path / "ep_1.npz"
    write(path)
    with pytest.raises(CheckpointError, match=rf"(?s)ep_1\.npz.*{match}"):
        import_one(path)


def test_damaged_folders_of_orbax_are_named(tmp_path, monkeypatch):
    (folder := tmp_path / "old").mkdir()
    # Of several arrays that cannot be read Orbax waits for the first, and the others fail in threads after the test.
    save_with_orbax(folder, [{"weight": np.ones(64, np.float32)} for _ in STEPS])
    for part in ("d", "ocdbt.process_0"):
        shutil.rmtree(folder / "200" / part)
    with pytest.raises(CheckpointError, match=r"old/200 is damaged or no checkpoint of Orbax"):
        import_checkpoints(tmp_path / "run", folder, unit="step")
    (folder / "100" / "_METADATA").write_text("{}")
    with pytest.raises(CheckpointError, match=r"old/100 is damaged or no checkpoint of Orbax"):
        import_checkpoints(tmp_path / "run", folder, unit="step")
    monkeypatch.setattr("collectors.weights.jax_file._LARGEST_RATIO", 0)
    with pytest.raises(CheckpointError, match=r"old/300 .*its arrays claim \d+ elements, more than \d+ bytes can hold"):
        read_checkpoint(folder / "300")
    assert not (tmp_path / "run").exists()
