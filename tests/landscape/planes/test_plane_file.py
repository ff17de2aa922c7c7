"""A saved plane is read back bit for bit, and what it measured is continued."""

import json

import numpy as np
import pytest
import torch
from digits_networks import PLAN, build, callback_fn, own_loss, train
from examples import bowl, dropout, partly_frozen, train_run
from remote_stores import empty_memory
from safetensors.torch import save_file

from collectors.errors import CheckpointError
from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from collectors.weights.safetensors_file import CheckpointFile, write_checkpoint
from landscape import Plane, SummaryLandscape, evaluate
from landscape.errors import LandscapeWriteError, PlaneError
from landscape.planes import custom_plane, line_between, pca_plane, plane_through, random_plane

AXIS = [-0.5, 0.0, 0.5, 1.0]


def arrays(plane):
    groups = {"origin": plane.origin, "buffers": plane.buffers}
    groups |= {f"direction {axis}": item for axis, item in enumerate(plane.directions)}
    groups |= {f"end {axis}": item for axis, item in enumerate(plane.end_buffers)}
    return {f"{group} {name}": array for group, items in groups.items() for name, array in items.items()}


@pytest.fixture(scope="module")
def networks():
    return [build(), *(train(build(), epochs=epochs, seed=1) for epochs in (1, 2, 3))]


def test_every_kind_comes_back_bit_for_bit(networks, tmp_path):
    planes = {
        "pca": pca_plane({"a": networks}).with_checkpoints(networks={"EMA": networks[2]}),
        "random": random_plane(networks[-1], seed=5),
        "networks": plane_through(*networks[:3]),
        "line": line_between(*networks[:2]),
    }
    for name, plane in planes.items():
        path = plane.save(tmp_path / f"{name}.safetensors")
        found = Plane.load(path)
        before, now = arrays(plane), arrays(found)
        np.testing.assert_equal(now, before)
        assert all(array.dtype == now[key].dtype for key, array in before.items())
        assert json.dumps(found.identity, sort_keys=True) == json.dumps(plane.identity, sort_keys=True)
        for field in ("space", "decomposition", "normalization", "networks", "origin_role", "notes"):
            assert getattr(found, field) == getattr(plane, field), field
        if plane.projection is not None:
            np.testing.assert_equal(vars(found.projection), vars(plane.projection))
        assert b"pickle" not in path.read_bytes()[:100]


@pytest.mark.slow
def test_a_file_is_continued_with_the_loaded_plane(networks, tmp_path):
    options = {"x": AXIS, "y": AXIS, "device_ids": [0], "plan": PLAN, "progress": False}
    plane = pca_plane({"a": networks})
    first = evaluate(plane, callback_fn, output=tmp_path / "a.h5", save_directions=True, **options)
    loaded = Plane.load(tmp_path / "a_directions.safetensors")
    again = evaluate(loaded, callback_fn, output=tmp_path / "a.h5", **options)
    assert again.report.measured == 1  # the origin, to see that it is the same
    np.testing.assert_array_equal(again.loss, first.loss)
    # A new network needs no weights of the old ones.
    grown = evaluate(
        loaded.with_checkpoints(networks={"new": train(build(), epochs=1, seed=7)}), callback_fn,
        output=tmp_path / "a.h5", **options,
    )  # fmt: skip
    assert grown.complete
    np.testing.assert_array_equal(grown.checkpoints.metrics["loss"][:4], first.checkpoints.metrics["loss"])
    assert grown.checkpoints.metrics["loss"][4] == pytest.approx(own_loss(train(build(), epochs=1, seed=7)), rel=1e-5)


def test_members_in_files_are_read_where_they_lay(tmp_path):
    trained = train_run(tmp_path / "run", epochs=3)
    run, space = RunDirectory(tmp_path / "run"), describe_network(trained)
    plane = pca_plane({"sgd": run}, network=trained)
    path = plane.save(tmp_path / "plane.safetensors")
    found = Plane.load(path)
    for number, reader in enumerate(found.checkpoints):
        direct = run.checkpoint(number, space)
        one, other = ({tensor.name: state.read(tensor.name) for tensor in space.tensors} for state in (reader, direct))
        np.testing.assert_equal(one, other)
        assert reader.sha256() == direct.sha256()
    (run.checkpoint_path(1)).unlink()
    moved = Plane.load(path).checkpoints[1]
    with pytest.raises(CheckpointError, match="checkpoint 1 of the saved plane is no longer in"):
        moved.read(space.tensors[0].name)


def test_members_behind_urls_and_in_folders_are_read_where_they_lay(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    with empty_memory() as system:
        trained = train_run("memory://bucket/run", partly_frozen, epochs=3)
        state = trained.state_dict()
        places = {name: f"pytorch_model-{index % 2 + 1:05}-of-00002.bin" for index, name in enumerate(state)}
        for file in set(places.values()):
            torch.save({name: state[name] for name in state if places[name] == file}, parts / file)
        (parts / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
        torch.save(state, tmp_path / "ema.pt")
        save_file(state, tmp_path / "swa.safetensors")
        for name in ("ema.pt", "swa.safetensors"):
            system.put_file(str(tmp_path / name), f"/bucket/{name}")
        named = {"ema": "memory://bucket/ema.pt", "swa": "memory://bucket/swa.safetensors", "parts": parts}
        plane = pca_plane({"sgd": RunDirectory("memory://bucket/run")}, network=trained)
        plane = plane.with_checkpoints(networks=named)
        found = Plane.load(plane.save("memory://bucket/plane.safetensors"))
        for before, now in zip(plane.checkpoints, found.checkpoints, strict=True):
            for tensor in plane.space.tensors:
                np.testing.assert_array_equal(now.read(tensor.name), before.read(tensor.name))


def test_members_in_memory_are_not_kept(networks, tmp_path):
    plane = random_plane(networks[0]).with_checkpoints(networks={"EMA": networks[1]})
    found = Plane.load(plane.save(tmp_path / "a.safetensors"))
    with pytest.raises(CheckpointError, match="EMA of the saved plane was in memory"):
        found.checkpoints[0].read_block("0.weight", 0, 2)


def test_evaluate_keeps_the_directions_when_asked(tmp_path):
    directions = [{"weight": np.array([1.0, 0.5, 0.0, 0.0])}, {"weight": np.array([0.0, 0.0, -2.0, 1.0])}]
    plane = custom_plane(bowl()[1], directions)
    axis = np.linspace(0, 1, 3)
    options = {"x": axis, "y": axis, "progress": False, "device_ids": [0]}
    evaluate(plane, bowl, output=tmp_path / "a.h5", **options)
    assert not (tmp_path / "a_directions.safetensors").exists()
    evaluate(plane, bowl, output=tmp_path / "b.h5", save_directions=True, **options)
    file = CheckpointFile(tmp_path / "b_directions.safetensors")
    for axis_number, direction in enumerate(directions):
        np.testing.assert_array_equal(file.read(f"direction_{axis_number}/weight"), direction["weight"])
    with pytest.raises(ValueError, match="save_directions needs output"):
        evaluate(plane, bowl, save_directions=True, **options)


@pytest.mark.slow
def test_a_run_keeps_the_directions_when_asked(tmp_path):
    train_run(tmp_path, dropout)
    landscapes = SummaryLandscape(tmp_path).gen_landscapes_with_multi_process(
        dropout, {"landscape_size": 3}, [0], save_directions=True, progress=False
    )
    for landscape in landscapes:
        file = CheckpointFile(landscape.path.with_name(f"{landscape.path.stem}_directions.safetensors"))
        assert {name.split("/")[1] for name in file.shapes} == {"1.weight", "1.bias", "4.weight", "4.bias"}


class TestErrors:
    def test_a_file_that_is_there(self, networks, tmp_path):
        plane = random_plane(networks[0])
        path = plane.save(tmp_path / "a.safetensors")
        with pytest.raises(LandscapeWriteError, match=r"exists and was left as it is\. Pass overwrite=True"):
            plane.save(path)
        plane.save(path, overwrite=True)
        with pytest.raises(NotADirectoryError, match="nowhere"):
            plane.save(tmp_path / "nowhere" / "a.safetensors")

    def test_what_is_no_plane(self, networks, tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            Plane.load(tmp_path / "none.safetensors")
        whole = CheckpointFile(random_plane(networks[0]).save(tmp_path / "a.safetensors"))
        tensors, facts = {name: whole.read(name) for name in whole.shapes}, whole.metadata
        less = {name: array for name, array in tensors.items() if name != "direction_0/0.weight"}
        old = {"decomposition": "random", "normalization": "filter", "parameters": "[]"}
        for state, metadata, text in (
            ({"weight": np.ones(3)}, {}, r"holds no plane\. Give a file that Plane\.save wrote"),
            ({"direction_0/weight": np.ones(3)}, old, "holds directions without their origin"),
            (tensors, {**facts, "format_version": "9"}, "format_version 9, this program reads 1"),
            (tensors, {**facts, "plane": "{}"}, "holds no whole plane"),
            (tensors, {**facts, "plane": "["}, "holds no whole plane"),
            (less, facts, r"directions\[0\] does not fit"),
        ):
            write_checkpoint(tmp_path / "b.safetensors", state, metadata)
            with pytest.raises(PlaneError, match=text):
                Plane.load(tmp_path / "b.safetensors")
