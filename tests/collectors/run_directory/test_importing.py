import os
import pickle
import resource

import numpy as np
import pytest
import torch
from remote_stores import empty_memory
from runs import SmallNetwork, TiedNetwork, assert_holds, names, seeded, snapshot
from safetensors.torch import save_file
from torch import nn

from collectors import import_checkpoints
from collectors.errors import CheckpointError, CheckpointWriteError, RunDirectoryError
from collectors.networks.readers import describe_network
from collectors.run_directory.settings import CreateLandscape, LandscapeSettings
from collectors.weights.foreign_checkpoint import read_state_dict


@pytest.fixture
def states():
    return [snapshot(seeded(SmallNetwork, seed)) for seed in range(3)]


def saved(folder, contents, suffix=".pt", save=torch.save):
    folder.mkdir(exist_ok=True)
    paths = [folder / f"epoch-{index + 1}{suffix}" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        save(content, path)
    return paths


def prefixed(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3, "optimizer": {"lr": 0.1}},
        lambda state: {"model": state},
        lambda state: {"model_state_dict": state, "loss": torch.tensor(0.5)},
        lambda state: {"epoch": torch.tensor(3), "state_dict": state},
        lambda state: {"model": {"state_dict": state}},
        lambda state: {"params": {}, "weights": state},
        lambda state: prefixed(state, "module."),
        lambda state: prefixed(state, "_orig_mod."),
        lambda state: {"state_dict": prefixed(state, "module._orig_mod.")},
        lambda state: {**state, "_extra_state": {"version": 1}, "step": 3},
        lambda state: {name: nn.Parameter(t) if t.is_floating_point() else t for name, t in state.items()},
    ],
)
def test_pytorch_files(tmp_path, states, wrap):
    paths = saved(tmp_path / "old", [wrap(state) for state in states])
    before = [path.read_bytes() for path in paths]
    run = import_checkpoints(tmp_path / "new", paths)
    assert run.settings == LandscapeSettings(((1, 2, 3),), "epoch", 40, 2048, CreateLandscape())
    space = describe_network(SmallNetwork())
    for number in (1, 2, 3):
        assert_holds(run.checkpoint(number, space), states[number - 1])
    assert [path.read_bytes() for path in paths] == before
    assert names(tmp_path) == ["new", "old"]


@pytest.mark.parametrize("suffix", [".safetensors", ".SafeTensors"])
def test_safetensors_files(tmp_path, states, suffix):
    paths = saved(tmp_path / "old", [prefixed(state, "module.") for state in states], suffix, save_file)
    run = import_checkpoints(
        str(tmp_path / "new"), [str(path) for path in paths], numbers=[0, 10, 25], unit="step", network_name="ResNet"
    )
    assert names(tmp_path / "new" / "ckpt_dir") == [
        *(f"ResNet_{number}_step.safetensors" for number in (0, 10, 25)),
        "train_metadata.json",
    ]
    for number, state in zip((0, 10, 25), states, strict=True):
        assert_holds(run.checkpoint(number), state)


def test_other_settings(tmp_path, states):
    paths = saved(tmp_path / "old", states)
    run = import_checkpoints(tmp_path / "new", paths, landscape_size=9, num_samples=7, numbers=np.arange(3))
    assert run.settings == LandscapeSettings(((0, 1, 2),), "epoch", 9, 7)


def test_tied_and_reduced_precision_weights(tmp_path):
    networks = [seeded(TiedNetwork, seed).bfloat16() for seed in range(3)]
    run = import_checkpoints(tmp_path / "new", saved(tmp_path / "old", [net.state_dict() for net in networks]))
    file = run.checkpoint(2, describe_network(networks[1]))
    assert "head.weight" not in file.shapes
    state = {name: tensor for name, tensor in networks[1].state_dict().items() if name != "head.weight"}
    assert_holds(file, state)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"paths": "a.pt"}, ValueError, r"paths must hold at least three files .*, but got 1: .*/a\.pt"),
        ({"paths": 3}, TypeError, "paths must be a list of paths, or the path of a folder, but got int"),
        ({"strip_prefix": 3}, TypeError, "strip_prefix must be a str, but got int"),
        ({"paths": [1, 2, 3]}, TypeError, r"paths\[0\] must be a path \(str or os.PathLike\), but got int"),
        ({"run_directory": 3}, TypeError, "run_directory must be a path"),
        ({"numbers": [1, 2]}, ValueError, "numbers must hold at least three numbers"),
        ({"numbers": [1, 2, 3, 4]}, ValueError, r"numbers must have one entry for each of the 3 files, but got \[1, 2"),
        ({"numbers": [1, 2, 2]}, ValueError, "numbers must be sorted and without repetition, but 2 follows 2"),
        ({"unit": "batch"}, ValueError, r"import_checkpoints\['unit'\] must be one of 'step', 'epoch'"),
        ({"landscape_size": 2}, ValueError, "must be an int from 3 to 256, but got 2"),
        ({"network_name": None}, TypeError, "network_name must be a str, but got NoneType"),
        ({"existing": "resume"}, ValueError, "existing must be one of 'error', 'overwrite', but got 'resume'"),
    ],
)
def test_wrong_arguments(tmp_path, states, arguments, error, match):
    paths = saved(tmp_path / "old", states)
    with pytest.raises(error, match=match):
        import_checkpoints(**{"run_directory": tmp_path / "new", "paths": paths, **arguments})
    assert names(tmp_path) == ["old"]


class Malicious:
    """A pickle that creates a file when it is loaded carelessly."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("save", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
def test_code_in_a_file_does_not_run(tmp_path, states, nested, save):
    trap = tmp_path / "trap"
    content = {"state_dict": states[1], "config": Malicious(trap)} if nested else Malicious(trap)
    (tmp_path / "old").mkdir()
    save(content, tmp_path / "old" / "evil.pt")
    # The trap is real: loaded without protection it snaps.
    torch.load(tmp_path / "old" / "evil.pt", weights_only=False) if save is torch.save else pickle.loads(
        (tmp_path / "old" / "evil.pt").read_bytes()
    )
    trap.rmdir()
    paths = saved(tmp_path / "old", states)
    files = [paths[0], tmp_path / "old" / "evil.pt", paths[2]]
    if nested and save is torch.save:
        # What lies beside a state dict is passed over.
        assert_holds(import_checkpoints(tmp_path / "new", files, numbers=[1, 2, 3]).checkpoint(2), states[1])
    else:
        with pytest.raises(CheckpointError, match=r"evil.pt (cannot be read as plain|is .*no PyTorch file)") as raised:
            import_checkpoints(tmp_path / "new", files)
        assert "weights_only" not in str(raised.value)
    assert not trap.exists()


def test_a_pickle_of_arrays_is_no_damage(tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"w": np.ones(3)}))
    with pytest.raises(CheckpointError, match=r"\(it is a pickle that torch.save did not write\). If you trust"):
        read_state_dict(tmp_path / "a.pkl")


def cyclic():
    content = {}
    content["state_dict"] = content
    return content


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({}, r"holds no tensors at its top level and none under the keys .*it has \[\]"),
        ({"epoch": 3, "optimizer": {}}, r"holds no tensors .*it has \['epoch', 'optimizer'\]. Save the state"),
        ({"state_dict": {"epoch": 3}}, "holds no tensors"),
        (cyclic(), "holds no tensors"),
        (torch.ones(3), "holds a Tensor, not a dictionary of tensors"),
        ([torch.ones(3)], "holds a list, not a dictionary of tensors"),
        ({"a": torch.eye(3).to_sparse()}, "holds 'a' as a sparse, quantized or empty"),
        ({"a": torch.ones(3, device="meta")}, "holds 'a' as a sparse, quantized or empty"),
        ({"a": torch.ones(1).expand(10**11)}, r"holds 'a' of shape \(100000000000,\), more than the file's \d+ bytes"),
        ({"a": torch.ones(2), "module.a": torch.ones(3)}, "has two tensors called 'a' once wrapper"),
    ],
)  # fmt: skip
def test_files_without_usable_tensors(tmp_path, states, content, match):
    paths = saved(tmp_path / "old", states)
    torch.save(content, paths[1])
    with pytest.raises(CheckpointError, match=match):
        import_checkpoints(tmp_path / "new", paths)
    assert names(tmp_path) == ["old"]


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_missing_and_truncated_files(tmp_path, states, place, suffix):
    paths = saved(tmp_path / "old", states, suffix, torch.save if suffix == ".pt" else save_file)
    whole = paths[place].read_bytes()
    for length in (1, 3, 8, 100, len(whole) // 2, len(whole) - 1):
        paths[place].write_bytes(whole[:length])
        text = rf"epoch-{place + 1}\{suffix} (is damaged|is not a whole|cannot be read)"
        with pytest.raises(CheckpointError, match=text):
            import_checkpoints(tmp_path / "new", paths)
    paths[place].unlink()
    with pytest.raises(CheckpointError, match=rf"epoch-{place + 1}\{suffix} (does not exist|cannot be read)"):
        import_checkpoints(tmp_path / "new", paths)
    assert names(tmp_path) == ["old"]


def test_another_networks_file_lists_names_and_shapes(tmp_path, states):
    paths = saved(tmp_path / "old", [*states[:2], SmallNetwork(width=7).state_dict()])
    with pytest.raises(CheckpointError, match=r"epoch-3.pt holds another network than .*epoch-1.pt") as raised:
        import_checkpoints(tmp_path / "new", paths)
    assert "  0.weight: (5, 3) in epoch-1.pt, (7, 3) here" in str(raised.value).splitlines()
    torch.save(nn.Linear(3, 5).state_dict(), paths[2])
    with pytest.raises(CheckpointError, match="holds another network") as raised:
        import_checkpoints(tmp_path / "new", paths)
    lines = str(raised.value).splitlines()
    assert "  0.weight: (5, 3) in epoch-1.pt, absent here" in lines
    assert "  weight: absent in epoch-1.pt, (5, 3) here" in lines
    assert names(tmp_path) == ["old"]


def test_element_types_that_checkpoints_cannot_hold(tmp_path):
    paths = saved(tmp_path / "old", [{"a": torch.ones(2, dtype=torch.complex128)}] * 3)
    with pytest.raises(TypeError, match="network's 'a' is complex128, which checkpoints cannot hold"):
        import_checkpoints(tmp_path / "new", paths)
    assert names(tmp_path) == ["old"]


@pytest.mark.parametrize("made_before", [False, True])
def test_a_write_that_fails_leaves_nothing_behind(tmp_path, made_before):
    paths = saved(tmp_path / "old", [SmallNetwork(width).state_dict() for width in (3000,) * 3])
    if made_before:
        (tmp_path / "new" / "ckpt_dir").mkdir(parents=True)
        (tmp_path / "new" / "ckpt_dir" / "mine.txt").write_text("foreign")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(CheckpointWriteError, match="File too large"):
            import_checkpoints(tmp_path / "new", paths)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == (["new", "old"] if made_before else ["old"])
    if made_before:
        assert names(tmp_path / "new" / "ckpt_dir") == ["mine.txt"]
    import_checkpoints(tmp_path / "new", paths)


def test_existing_runs(tmp_path, states):
    paths = saved(tmp_path / "old", states)
    import_checkpoints(tmp_path / "new", paths, numbers=[1, 2, 9])
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        import_checkpoints(tmp_path / "new", paths)
    assert "network_9_epoch.safetensors" in names(tmp_path / "new" / "ckpt_dir")
    with pytest.warns(UserWarning, match=r"numbers put epoch-3.pt \(1\) before epoch-2.pt \(2\), the other way round"):
        run = import_checkpoints(tmp_path / "new", paths[::-1], numbers=[1, 2, 3], existing="overwrite")
    assert sorted(run.metadata.files) == [1, 2, 3]
    assert names(tmp_path / "new" / "ckpt_dir") == sorted([*run.metadata.files.values(), "train_metadata.json"])
    assert_holds(run.checkpoint(1), states[2])


@pytest.mark.parametrize("existing", ["error", "overwrite"])
def test_files_of_the_run_that_would_be_replaced_are_refused(tmp_path, states, existing):
    run = import_checkpoints(tmp_path / "run", saved(tmp_path / "old", states))
    paths = [run.checkpoint_path(number) for number in (1, 2, 3)]
    before = [path.read_bytes() for path in paths]
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for directory in (tmp_path / "run", tmp_path / "link"):
        with pytest.raises(ValueError, match="paths must lie outside the run directory that is built"):
            import_checkpoints(directory, paths, existing=existing)
    assert [path.read_bytes() for path in paths] == before


def test_into_a_url(tmp_path, states):
    paths = saved(tmp_path / "old", states)
    here = import_checkpoints(tmp_path / "new", paths)
    with empty_memory():
        there = import_checkpoints("memory://imported/run", paths)
        assert there.metadata == here.metadata
        assert there.checkpoint(3).sha256() == here.checkpoint(3).sha256()
        with pytest.raises(RunDirectoryError, match=r"memory:///imported/run already holds a run"):
            import_checkpoints("memory://imported/run", paths)
