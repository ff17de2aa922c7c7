"""Checkpoints as people find them, imported: numbered by names or from inside, in any form that tools write."""

import io
import os
import pickle
import re
import resource

import numpy as np
import pytest
import torch
from marked_cases import marked
from remote_stores import empty_memory
from runs import SmallNetwork, TiedNetwork, assert_holds, names, seeded, snapshot
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from collectors import CheckpointConfig, Model, ModelCheckpoint, import_checkpoints, save_checkpoint
from collectors.errors import CheckpointError, CheckpointWriteError, RunDirectoryError
from collectors.networks.readers import describe_network
from collectors.networks.torch_network import to_array, to_tensor
from collectors.run_directory import RunDirectory
from collectors.run_directory.settings import CreateLandscape, LandscapeSettings
from collectors.weights.aligned import align, as_reader
from collectors.weights.safetensors_file import MemoryState


@pytest.fixture
def states():
    return [snapshot(seeded(SmallNetwork, seed)) for seed in range(4)]


@pytest.fixture
def upload():
    """Copies a folder to a place in memory."""
    with empty_memory() as system:
        yield lambda folder, place: system.put(f"{folder}/", place, recursive=True)


def prefixed(prefix, state):
    return {prefix + name: tensor for name, tensor in state.items()}


def write(folder, contents, save=torch.save):
    """Writes each content under its name; returns the paths in the order in which a shell gives them."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save(content, folder / name)
    return sorted(folder / name for name in contents)


def saved(folder, contents, suffix=".pt", save=torch.save):
    return write(folder, {f"epoch-{index + 1}{suffix}": content for index, content in enumerate(contents)}, save)


def imported(tmp_path, paths, **options):
    said = []
    run = import_checkpoints(tmp_path / "run", paths, report=said.append, **options)
    return run, said[0]


def check_refused(folder, paths, match, error=CheckpointError, **options):
    """Nothing is built in a folder; returns what the error says."""
    before = names(folder)
    with pytest.raises(error, match=match) as caught:
        import_checkpoints(folder / "run", paths, **options)
    assert names(folder) == before
    return str(caught.value)


def test_encrypted_checkpoints_are_named_as_such(tmp_path):
    paths = [save_checkpoint(SmallNetwork(), tmp_path / f"epoch-{n}", enc_key=bytes(16)) for n in range(3)]
    match = r"epoch-0\.safetensors is encrypted \(AES-GCM\)\. .*load_checkpoint\(path, dec_key\)"
    check_refused(tmp_path, paths, match)


def assert_run(run, unit, states):
    assert run.settings.unit == unit
    assert sorted(run.metadata.files) == sorted(states)
    for number, state in states.items():
        assert_holds(run.checkpoint(number), state)


class TestNumbers:
    def test_a_shells_order_is_not_the_order_of_training(self, tmp_path, states):
        paths = write(tmp_path / "old", {"ep_1.pt": states[0], "ep_2.pt": states[1], "ep_10.pt": states[2]})
        assert [path.stem for path in paths] == ["ep_1", "ep_10", "ep_2"]
        run, said = imported(tmp_path, paths)
        assert_run(run, "epoch", {1: states[0], 2: states[1], 10: states[2]})
        assert said.splitlines() == [
            "   epoch  from  checkpoint",
            "       1  name  ep_1.pt",
            "       2  name  ep_2.pt",
            "      10  name  ep_10.pt",
        ]

    @pytest.mark.parametrize("form", ["folder", "relative", "pattern", "folder in a list", "pattern in a list"])
    def test_a_folder_and_a_pattern(self, tmp_path, states, form, monkeypatch):
        monkeypatch.chdir(tmp_path)
        folder = tmp_path / "old"
        write(folder, {f"step_{number}.pt": states[number] for number in range(3)})
        (folder / "notes.txt").write_text("not a checkpoint")
        (folder / ".hidden.pt").write_text("not a checkpoint")
        (folder / "logs").mkdir()
        path = "old/" if form == "relative" else folder if form.startswith("folder") else str(folder / "step_*.pt")
        run, _ = imported(tmp_path, [path] if form.endswith("list") else path)
        assert_run(run, "step", dict(enumerate(states[:3])))

    @pytest.mark.parametrize("key", ["epoch", "global_step", "iter_num"])
    def test_numbers_inside_the_files(self, tmp_path, states, key):
        contents = {
            name: {"state_dict": states[index], key: 7 * (index + 1), "optimizer": {"param_groups": []}}
            for index, name in enumerate(("start.pt", "middle.pt", "end.pt"))
        }
        run, said = imported(tmp_path, write(tmp_path / "old", contents))
        assert_run(run, "epoch" if key == "epoch" else "step", {7: states[0], 14: states[1], 21: states[2]})
        assert f"{'epoch' if key == 'epoch' else 'step'} inside  middle.pt" in said

    def test_numbers_in_the_metadata_of_safetensors(self, tmp_path, states):
        (tmp_path / "old").mkdir()
        for index, name in enumerate(("z", "y", "x")):
            save_file(
                states[index], tmp_path / "old" / f"{name}.safetensors", {"format": "pt", "epoch": f"{index + 3}"}
            )
        run, _ = imported(tmp_path, tmp_path / "old")
        assert_run(run, "epoch", {3: states[0], 4: states[1], 5: states[2]})

    def test_numbers_that_are_given_belong_to_the_files_as_they_are_given(self, tmp_path, states):
        paths = write(tmp_path / "old", {f"{name}.pt": state for name, state in zip("abc", states, strict=False)})
        run, said = imported(tmp_path, paths[::-1], numbers=[30, 20, 10], unit="step")
        assert_run(run, "step", {10: states[0], 20: states[1], 30: states[2]})
        assert "      10  given  a.pt" in said.splitlines()

    @pytest.mark.parametrize(
        "numbers", [{"final": 30, "step_10": 10, "step_20": 20}, {"ep0_it10": 10, "ep1_it20": 20, "ep2_it30": 30}]
    )
    def test_given_numbers_count_what_they_count_in_the_names(self, tmp_path, states, numbers):
        paths = write(tmp_path / "old", {f"{name}.pt": state for name, state in zip(numbers, states, strict=False)})
        run, _ = imported(tmp_path, paths, numbers=[*numbers.values()])
        assert_run(run, "step", dict(zip(numbers.values(), states, strict=False)))

    def test_numbers_against_those_of_the_names(self, tmp_path, states):
        paths = write(tmp_path / "old", {"ep_1.pt": states[0], "ep_2.pt": states[1], "ep_10.pt": states[2]})
        with pytest.warns(UserWarning, match=r"numbers put ep_10.pt \(2\) before ep_2.pt \(10\), the other way round"):
            run, _ = imported(tmp_path, paths, numbers=[1, 2, 10])
        assert_run(run, "epoch", {1: states[0], 2: states[2], 10: states[1]})
        import_checkpoints(tmp_path / "again", tmp_path / "old", numbers=[0, 1, 9])

    def test_copies_of_a_numbered_checkpoint_are_left_out(self, tmp_path, states):
        contents = {
            "epoch=0-step=5.ckpt": {"state_dict": states[0], "epoch": 0},
            "epoch=1-step=10.ckpt": {"state_dict": states[1], "epoch": 1},
            "epoch=2-step=15.ckpt": {"state_dict": states[2], "epoch": 2},
            "epoch=2-step=15-v1.ckpt": {"state_dict": states[2], "epoch": 2},
            "last.ckpt": {"state_dict": states[2], "epoch": 2},
        }
        write(tmp_path / "old", contents)
        run, said = imported(tmp_path, tmp_path / "old")
        assert_run(run, "epoch", dict(enumerate(states[:3])))
        assert said.count("Left out: ") == 2
        assert "last.ckpt has the same weights as epoch=2-step=15" in said

    def test_unclear_numbers_are_an_error_that_says_what_to_do(self, tmp_path, states):
        paths = write(tmp_path / "old", {f"{name}.pt": state for name, state in zip("abc", states, strict=False)})
        told = check_refused(tmp_path, paths, "must say which epoch or step each .* no one number differs", ValueError)
        assert "\n  a.pt\n" in told
        assert "Pass numbers= with one number for each of them in this order (such as 1,2,3)" in told
        paths = write(
            tmp_path / "best", {"ep_1.pt": states[0], "ep_2.pt": states[1], "ep_3.pt": states[2], "best.pt": states[3]}
        )
        match = "the numbers are missing or repeated, and the weights differ"
        assert "-  best.pt" in check_refused(tmp_path, tmp_path / "best", match, ValueError)
        match = r'The names count epochs; pass unit="epoch"\.$'
        check_refused(tmp_path, paths[1:], match, ValueError, unit="step")

        # Two trainings are not one.
        contents = {f"seed{seed}/ep_{epoch}.pt": states[2 * seed + epoch] for seed in (0, 1) for epoch in (0, 1)}
        paths = write(tmp_path / "seeds", contents)
        assert "seed1/ep_0.pt" in check_refused(tmp_path, paths, "or name only those of one training", ValueError)

    @pytest.mark.parametrize("suffix", [".t7", ".net", ".weights", ".pkl", ".model", ".pth.tar"])
    @pytest.mark.parametrize("new", [True, False], ids=["archive", "before 1.6"])
    def test_endings_that_other_programs_use_too(self, tmp_path, states, suffix, new, upload):
        def save(content, path):
            torch.save(content, path, _use_new_zipfile_serialization=new)

        write(tmp_path / "old", {f"ep_{number}{suffix}": states[number] for number in range(3)}, save)
        # Of Lua's Torch, of Darknet, and a log.
        (tmp_path / "old" / "lua.t7").write_bytes(b"\3\0\0\0\1\0\0\0")
        (tmp_path / "old" / "yolo.weights").write_bytes(b"\0\0\0\0\2\0\0\0" + bytes(100))
        (tmp_path / "old" / "history.pkl").write_bytes(pickle.dumps([1, 2]))
        run, _ = imported(tmp_path, tmp_path / "old")
        assert_run(run, "epoch", dict(enumerate(states[:3])))
        upload(tmp_path / "old", "/there")
        assert import_checkpoints(tmp_path / "again", "memory://there").metadata == run.metadata

    @pytest.mark.parametrize("name", marked(["lr=[0-1]", "lr[1]", "lr=0.1", "a*b"], pytest.mark.slow, after=1))
    @pytest.mark.parametrize("pattern", [False, True])
    def test_folders_whose_names_look_like_patterns(self, tmp_path, states, name, pattern, upload):
        # What the names would match.
        for other in ("lr1", "ab", "lr=0"):
            write(tmp_path / other, {f"ep_{number}.pt": states[3] for number in range(3)})
        write(tmp_path / name, {f"ep_{number}.pt": states[number] for number in range(3)})
        inside = "/ep_[0-9].pt" if pattern else ""
        run = import_checkpoints(tmp_path / name / "run", f"{tmp_path / name}{inside}")
        assert_run(run, "epoch", dict(enumerate(states[:3])))
        upload(tmp_path, "/bucket")
        run = import_checkpoints(f"memory://bucket/{name}/run", f"memory://bucket/{name}{inside}", existing="overwrite")
        assert_run(run, "epoch", dict(enumerate(states[:3])))

    def test_places_without_checkpoints(self, tmp_path, states):
        (tmp_path / "empty").mkdir()
        empty, two = tmp_path / "empty", tmp_path / "two"
        check_refused(tmp_path, empty, "empty is a folder without checkpoints: no file there ends")
        check_refused(tmp_path, str(empty / "ep_*.pt"), r"nothing matches .*ep_\*\.pt; check the pattern")
        write(two, {"1.pt": states[0], "2.pt": states[1]})
        match = r"at least three files .*, but got 2: .*/two/1\.pt, .*/two/2\.pt"
        check_refused(tmp_path, two, match, ValueError)
        check_refused(tmp_path, [tmp_path / "gone.pt", *two.iterdir()], r"gone\.pt does not exist")

    def test_behind_urls(self, tmp_path, states, upload):
        write(tmp_path / "old", {f"ep_{number}.pt": states[number] for number in range(3)})
        upload(tmp_path / "old", "/there")
        whole, _ = imported(tmp_path, "memory://there")
        assert_run(whole, "epoch", dict(enumerate(states[:3])))
        for paths in ("memory://there/ep_*.pt", [f"memory://there/ep_{number}.pt" for number in (2, 0, 1)]):
            run = import_checkpoints(tmp_path / "again", paths, existing="overwrite")
            assert run.metadata == whole.metadata
        gone = ["memory://there/gone.pt"] * 3
        check_refused(tmp_path, gone, r"checkpoint memory:///there/gone.pt does not exist\.", existing="overwrite")


class TestNames:
    def test_a_prefix_is_removed_and_the_rest_left_out(self, tmp_path, states):
        contents = {
            f"{number}.pt": {
                "state_dict": {**prefixed("encoder.net.", states[number]), "criterion.weight": torch.ones(2)}
            }
            for number in range(3)
        }
        paths = write(tmp_path / "old", contents)
        run, said = imported(tmp_path, paths, strip_prefix="encoder.net.")
        assert_run(run, "epoch", dict(enumerate(states[:3])))
        assert "'encoder.net.' is removed from the tensors' names, as asked for." in said.splitlines()
        assert "Left out, without 'encoder.net.' before their names: 'criterion.weight'." in said.splitlines()
        import_checkpoints(tmp_path / "run", paths, strip_prefix="encoder.net", existing="overwrite")
        match = r"no tensor whose name begins with 'model\.'; its names begin with 'encoder\.', 'criterion\.'\. Choose "
        check_refused(tmp_path, paths, f"{match}another strip_prefix", strip_prefix="model", existing="overwrite")

    def test_wrappers_are_said(self, tmp_path, states):
        contents = {f"{number}.pt": prefixed("module._orig_mod.", states[number]) for number in range(3)}
        run, said = imported(tmp_path, write(tmp_path / "old", contents))
        assert_run(run, "epoch", dict(enumerate(states[:3])))
        assert said.splitlines()[-1] == "'module._orig_mod.' is removed from the tensors' names: a wrapper added it."
        inside = "_checkpoint_wrapped_module."
        contents = {
            f"{number}.pt": {name.replace(".", f".{inside}", 1): value for name, value in states[number].items()}
            for number in range(3)
        }
        run, said = imported(tmp_path, write(tmp_path / "inside", contents), existing="overwrite")
        assert_run(run, "epoch", dict(enumerate(states[:3])))
        assert said.splitlines()[-1] == f"'{inside}' is removed from the tensors' names: a wrapper added it."

    def test_an_averaged_model(self, tmp_path, states):
        averaged = AveragedModel(seeded(SmallNetwork))
        contents, expected = {}, {}
        for number in range(3):
            averaged.update_parameters(seeded(SmallNetwork, number))
            contents[f"swa_{number}.pt"] = snapshot(averaged)
            expected[number] = snapshot(averaged.module)
        run, said = imported(tmp_path, write(tmp_path / "old", contents))
        assert_run(run, "epoch", expected)
        assert "'n_averaged' is left out: the weights are those of an AveragedModel." in said
        # A network may have such a buffer of its own.
        contents = {f"{number}.pt": {**states[number], "n_averaged": torch.tensor(number)} for number in range(3)}
        run = import_checkpoints(tmp_path / "own", write(tmp_path / "more", contents))
        assert "n_averaged" in run.checkpoint(1).shapes

    def test_names_with_a_prefix_fit_the_network_without_one_and_the_other_way_round(self, tmp_path, states):
        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = SmallNetwork()

        inner, outer = describe_network(SmallNetwork()), describe_network(Outer())
        longer = {f"{number}.pt": prefixed("model.", states[number]) for number in range(3)}
        plain = {f"{number}.pt": states[number] for number in range(3)}
        for files, folder in ((longer, "longer"), (plain, "plain")):
            import_checkpoints(tmp_path / f"run {folder}", write(tmp_path / folder, files))
            for space, prefix in ((inner, ""), (outer, "model.")):
                held = RunDirectory(tmp_path / f"run {folder}").checkpoint(2, space)
                assert_holds(held, prefixed(prefix, states[2]))
        with pytest.raises(CheckpointError, match=r"does not fit the network Linear:[\s\S]*model.0.weight .* unknown"):
            RunDirectory(tmp_path / "run longer").checkpoint(2, describe_network(torch.nn.Linear(3, 5)))

    def test_a_loss_and_metrics_beside_a_network_are_left_out_where_it_is_measured(self, tmp_path, states):
        extras = {"criterion.weight": torch.ones(3), "train_acc.total": torch.tensor(7)}
        contents = {
            f"epoch={number}.ckpt": {
                "state_dict": {**prefixed("model.", states[number]), **extras},
                "pytorch-lightning_version": "2.5",
                "epoch": number,
            }
            for number in range(3)
        }
        paths = write(tmp_path / "old", contents)
        run, said = imported(tmp_path, paths)
        assert said.endswith(
            "'criterion.weight', 'train_acc.total' lie beside 'model.': they are left out where the network under "
            "'model.' is measured alone, and now by strip_prefix='model.'."
        )
        space = describe_network(SmallNetwork())
        with pytest.warns(UserWarning, match="left out, beside .* SmallNetwork: 'criterion.weight', 'train_acc.total'"):
            assert_holds(run.checkpoint(2, space), states[2])
        with pytest.warns(UserWarning, match="left out, beside"):
            assert_holds(align(as_reader("weights", paths[1]), space), states[1])
        # What belongs to the network that is measured stays.
        whole = torch.nn.ModuleDict({"model": SmallNetwork(), "criterion": torch.nn.Linear(1, 1)})
        with pytest.raises(CheckpointError, match=r"criterion.bias .* missing"):
            run.checkpoint(2, describe_network(whole))

    def test_layers_that_a_network_lacks_are_no_extras(self, tmp_path, states):
        contents = {f"{number}.pt": {**states[number], "9.weight": torch.ones(2)} for number in range(3)}
        run, _ = imported(tmp_path, write(tmp_path / "old", contents))
        with pytest.raises(CheckpointError, match=r"9.weight .* unknown"):
            run.checkpoint(1, describe_network(SmallNetwork()))

    def test_a_network_and_its_average_are_not_guessed_between(self, tmp_path, states):
        both = {**prefixed("model.", states[0]), **prefixed("ema.", states[0])}
        with pytest.raises(CheckpointError, match=r"several times, under 'ema.', 'model.'. Choose one"):
            align(as_reader("weights", both), describe_network(SmallNetwork()))

    @pytest.mark.parametrize(
        "extra", [{"amax": 1}, torch.ones(7), io.BytesIO(b"scales"), None], ids=["dict", "tensor", "bytes", "None"]
    )
    def test_extra_states_are_left_out(self, tmp_path, states, extra):
        whole = [{**state, "0._extra_state": extra} for state in states]
        sentence = r"left out: '0\._extra_state', which layers keep beside their weights"
        paths = write(tmp_path / "old", {f"{number}.pt": {"model": whole[number]} for number in range(3)})
        run, said = imported(tmp_path, paths)
        assert re.search(sentence.capitalize(), said)
        assert_run(run, "epoch", dict(enumerate(states[:3])))
        for given in (paths[2], whole[2]):
            with pytest.warns(UserWarning, match=f"holds more than .*; {sentence}"):
                assert_holds(as_reader("origin", given), states[2])

    def test_extra_states_in_safetensors(self, tmp_path, states):
        save_file({**states[0], "0._extra_state": torch.ones(7)}, tmp_path / "1.safetensors")
        with pytest.warns(UserWarning, match=r"left out: '0._extra_state'"):
            assert_holds(as_reader("origin", tmp_path / "1.safetensors"), states[0])
        # As earlier versions imported them.
        earlier = {**states[0], "0._extra_state": states[0]["0.bias"]}
        held = MemoryState({name: to_array(value) for name, value in earlier.items()})
        with pytest.warns(UserWarning, match=r"left out, beside .*: '0._extra_state'"):
            assert_holds(align(held, describe_network(SmallNetwork())), states[0])

    @pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
    @pytest.mark.parametrize("prefix", ["", "model."])
    @pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
    def test_the_names_of_normalized_weights_of_either_kind_fit_the_other(self, kind, prefix):
        makers = (getattr(module, kind) for module in (torch.nn.utils, torch.nn.utils.parametrizations))
        older, newer = (seeded(lambda make=make: torch.nn.Sequential(make(torch.nn.Linear(2, 3)))) for make in makers)
        inputs = torch.arange(8.0).reshape(4, 2)
        for source, target in ((older, newer), (newer, older)):
            state = {f"{prefix}{name}": value for name, value in source.state_dict().items()}
            held = align(as_reader("weights", state), describe_network(target))
            target.load_state_dict({name: to_tensor(held.read(name)) for name in held.shapes})
            torch.testing.assert_close(target.eval()(inputs), source.eval()(inputs))


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
        lambda state: prefixed("module.", state),
        lambda state: prefixed("_orig_mod.", state),
        lambda state: {"state_dict": prefixed("module._orig_mod.", state)},
        lambda state: {**state, "_extra_state": {"version": 1}, "step": 3},
        lambda state: {name: nn.Parameter(t) if t.is_floating_point() else t for name, t in state.items()},
    ],
)
def test_pytorch_files(tmp_path, states, wrap):
    paths = saved(tmp_path / "old", [wrap(state) for state in states[:3]])
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
    paths = saved(tmp_path / "old", [prefixed("module.", state) for state in states[:3]], suffix, save_file)
    chosen = {"unit": "step", "network_name": "ResNet", "landscape_size": 9, "num_samples": 7}
    run = import_checkpoints(str(tmp_path / "new"), [*map(str, paths)], numbers=np.array([0, 10, 25]), **chosen)
    assert run.settings == LandscapeSettings(((0, 10, 25),), "step", 9, 7)
    assert names(tmp_path / "new" / "ckpt_dir") == [
        *(f"ResNet_{number}_step.safetensors" for number in (0, 10, 25)),
        "train_metadata.json",
    ]
    for number, state in zip((0, 10, 25), states[:3], strict=True):
        assert_holds(run.checkpoint(number), state)


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
    paths = saved(tmp_path / "old", states[:3])
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
    paths = saved(tmp_path / "old", states[:3])
    files = [paths[0], tmp_path / "old" / "evil.pt", paths[2]]
    if nested and save is torch.save:
        # What lies beside a state dict is passed over.
        assert_holds(import_checkpoints(tmp_path / "new", files, numbers=[1, 2, 3]).checkpoint(2), states[1])
    else:
        told = check_refused(tmp_path, files, "evil.pt (cannot be read as plain|is .*no PyTorch file)")
        assert "weights_only" not in told
    assert not trap.exists()


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
        ({"state": {}, "param_groups": []}, r"epoch-2.pt is an optimizer's state \(it has 'param_groups'\), without"),
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
    paths = saved(tmp_path / "old", states[:3])
    torch.save(content, paths[1])
    check_refused(tmp_path, paths, match)


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_missing_and_truncated_files(tmp_path, states, place, suffix):
    paths = saved(tmp_path / "old", states[:3], suffix, torch.save if suffix == ".pt" else save_file)
    whole = paths[place].read_bytes()
    for length in (1, 3, 8, 100, len(whole) // 2, len(whole) - 1):
        paths[place].write_bytes(whole[:length])
        check_refused(tmp_path, paths, rf"epoch-{place + 1}\{suffix} (is damaged|is not a whole|cannot be read)")
    paths[place].unlink()
    check_refused(tmp_path, paths, rf"epoch-{place + 1}\{suffix} (does not exist|cannot be read)")


def test_another_networks_file_lists_names_and_shapes(tmp_path, states):
    paths = saved(tmp_path / "old", [*states[:2], SmallNetwork(width=7).state_dict()])
    told = check_refused(tmp_path, paths, "epoch-3.pt holds another network than .*epoch-1.pt")
    assert "  0.weight: (5, 3) in epoch-1.pt, (7, 3) here" in told.splitlines()
    torch.save(nn.Linear(3, 5).state_dict(), paths[2])
    lines = check_refused(tmp_path, paths, "holds another network").splitlines()
    assert "  0.weight: (5, 3) in epoch-1.pt, absent here" in lines
    assert "  weight: absent in epoch-1.pt, (5, 3) here" in lines


def test_element_types_that_checkpoints_cannot_hold(tmp_path):
    paths = saved(tmp_path / "old", [{"a": torch.ones(2, dtype=torch.complex128)}] * 3)
    check_refused(tmp_path, paths, "network's 'a' is complex128, which checkpoints cannot hold", TypeError)


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
    paths = saved(tmp_path / "old", states[:3])
    import_checkpoints(tmp_path / "run", paths, numbers=[1, 2, 9])
    check_refused(tmp_path, paths, "already holds a run", RunDirectoryError)
    assert "network_9_epoch.safetensors" in names(tmp_path / "run" / "ckpt_dir")
    with pytest.warns(UserWarning, match=r"numbers put epoch-3.pt \(1\) before epoch-2.pt \(2\), the other way round"):
        run = import_checkpoints(tmp_path / "run", paths[::-1], numbers=[1, 2, 3], existing="overwrite")
    assert sorted(run.metadata.files) == [1, 2, 3]
    assert names(tmp_path / "run" / "ckpt_dir") == sorted([*run.metadata.files.values(), "train_metadata.json"])
    assert_holds(run.checkpoint(1), states[2])


@pytest.mark.parametrize("existing", ["error", "overwrite"])
def test_files_of_the_run_that_would_be_replaced_are_refused(tmp_path, states, existing):
    run = import_checkpoints(tmp_path / "run", saved(tmp_path / "old", states[:3]))
    paths = [run.checkpoint_path(number) for number in (1, 2, 3)]
    before = [path.read_bytes() for path in paths]
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for directory in (tmp_path / "run", tmp_path / "link"):
        with pytest.raises(ValueError, match="paths must lie outside the run directory that is built"):
            import_checkpoints(directory, paths, existing=existing)
    assert [path.read_bytes() for path in paths] == before


@pytest.mark.parametrize("place", ["", "/*.safetensors"])
def test_files_of_the_run_behind_the_url_that_would_be_replaced_are_refused(tmp_path, states, place):
    url = "memory://imported/run"
    with empty_memory() as memory:
        import_checkpoints(url, saved(tmp_path / "old", states[:3]))
        before = {path: memory.cat_file(path) for path in memory.find("/imported")}
        for existing in ("error", "overwrite"):
            with pytest.raises(ValueError, match=r"paths must lie outside .*, but memory:///imported/run/ckpt_dir/"):
                import_checkpoints(url, f"{url}/ckpt_dir{place}", existing=existing)
        assert {path: memory.cat_file(path) for path in memory.find("/imported")} == before


def test_into_a_url(tmp_path, states):
    paths = saved(tmp_path / "old", states[:3])
    here = import_checkpoints(tmp_path / "new", paths)
    with empty_memory():
        there = import_checkpoints("memory://imported/run", paths)
        assert there.metadata == here.metadata
        assert there.checkpoint(3).sha256() == here.checkpoint(3).sha256()
        with pytest.raises(RunDirectoryError, match=r"memory:///imported/run already holds a run"):
            import_checkpoints("memory://imported/run", paths)


@pytest.mark.parametrize("config", [{}, {"training_state": False, "append_info": ["epoch_num", "step_num"]}])
@pytest.mark.parametrize(
    ("pattern", "unit", "numbers"),
    [
        ("CKP-1_*", "step", [2, 4, 6]),
        ("CKP-2_*", "step", [8, 10, 12]),
        ("CKP-*", "step", [2, 4, 6, 8, 10, 12, 14, 16, 18]),
        ("CKP-*_6.*", "epoch", [1, 2, 3]),
    ],
)
def test_the_files_of_a_model_checkpoint(tmp_path, config, pattern, unit, numbers):
    network = torch.nn.Linear(2, 2)
    model = Model(network, torch.nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), lr=0.1))
    data = [(torch.ones(1, 2), torch.zeros(1, dtype=torch.long))] * 6
    config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=20, **config)
    model.train(3, data, callbacks=[ModelCheckpoint("CKP", tmp_path, config)])
    for given in (None, unit):
        target = tmp_path / f"run of {given}"
        found = import_checkpoints(target, str(tmp_path / pattern), unit=given).metadata
        assert (found.settings.unit, sorted(found.files)) == (unit, numbers)
