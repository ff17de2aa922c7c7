"""The optimizer's factors beside the checkpoints: written, resumed, removed with them, and what may go wrong."""

import json

import numpy as np
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from runs import SmallNetwork, batches, names, seeded
from torch.nn import functional

from collectors import CheckpointError, Model, RunDirectory, RunDirectoryError, SummaryCollector, thor
from collectors.files import markers
from collectors.files.remote_path import RemotePath
from collectors.run_directory.importing import import_checkpoints
from collectors.weights.safetensors_file import write_checkpoint

INTERVAL = [0, 2, 3, 5]
FILES = {number: f"SmallNetwork_{number}_step_factors.safetensors" for number in INTERVAL[1:]}
QUIET = {"keep_default_action": False}

pytestmark = pytest.mark.filterwarnings("ignore:training ended at:UserWarning")


def collect(directory, *, steps=5, start=0, existing="error", network=None, optimizer=None, **settings):
    """Trains with THOR; returns what its optimizer kept after each step."""
    network = seeded(SmallNetwork) if network is None else network
    optimizer = thor(network, 0.1, 0.1, 0.9, frequency=2) if optimizer is None else optimizer
    settings = {"intervals": [INTERVAL], "factors": True, **settings}
    collector = SummaryCollector(directory, collect_landscape=settings, existing=existing, **QUIET)
    kept = {}
    with collector.watch(network, optimizer=optimizer, start_step=start) as run:
        for number, (inputs, targets) in enumerate(batches(steps - start), start + 1):
            optimizer.zero_grad()
            functional.cross_entropy(network(inputs), targets).backward()
            optimizer.step()
            run.step()
            kept[number] = optimizer.kept_factors() if settings["factors"] else None
    return kept


def metadata(folder):
    return json.loads((folder / "ckpt_dir/train_metadata.json").read_text())


@pytest.fixture(params=["here", "behind a URL"])
def place(request, tmp_path, monkeypatch):
    """A folder, and the same folder as what a training is given."""
    monkeypatch.setattr(markers, "SETTLING_SECONDS", 0.0)
    folder = tmp_path / "run"
    # The same folder behind the interface of a store.
    given = folder if request.param == "here" else RemotePath(LocalFileSystem(), str(folder))
    monkeypatch.setattr("collectors.recording.summary_collector.check_directory", lambda _, path: path)
    return folder, given


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.weight, ours.shape, ours.positions) == (theirs.weight, theirs.shape, theirs.positions)
        np.testing.assert_array_equal(ours.a, theirs.a)
        np.testing.assert_array_equal(ours.g, theirs.g)


def test_they_lie_beside_their_checkpoints(place):
    folder, given = place
    kept = collect(given)
    checkpoints = [f"SmallNetwork_{number}_step.safetensors" for number in INTERVAL]
    assert names(folder / "ckpt_dir") == sorted([*FILES.values(), *checkpoints, "train_metadata.json"])
    assert {int(number): item["file"] for number, item in metadata(folder)["factors"].items()} == FILES
    run = RunDirectory(folder)
    assert run.settings.factors
    assert run.factors(0) == ()
    for number in FILES:
        assert [layer.weight for layer in run.factors(number)] == ["0.weight", "3.weight"]
        assert_same(run.factors(number), kept[number])


def test_they_are_removed_with_their_checkpoint_and_a_resume_goes_on(place):
    folder, given = place
    first = collect(given)
    collect(given, steps=3, start=2, existing="resume")
    run = RunDirectory(folder)
    assert sorted(run.metadata.factors) == [2, 3]
    assert FILES[5] not in names(folder / "ckpt_dir")
    assert_same(run.factors(2), first[2])
    collect(given, existing="overwrite", factors=False)
    assert not [name for name in names(folder / "ckpt_dir") if "factors" in name]
    assert "factors" not in metadata(folder)
    assert RunDirectory(folder).factors(2) == ()


@pytest.mark.parametrize("lost", [[3, 5], [5]])
def test_a_resume_takes_in_those_that_a_killed_training_did_not_list(place, lost):
    folder, given = place
    first = collect(given)
    content = metadata(folder)
    for key in ("model_params_file_map", "sha256", "factors"):
        content[key] = {number: item for number, item in content[key].items() if int(number) not in lost}
    (folder / "ckpt_dir/train_metadata.json").write_text(json.dumps(content))
    # Killed between the factors of a checkpoint and the checkpoint itself.
    (folder / "ckpt_dir/SmallNetwork_5_step.safetensors").unlink()
    (folder / f"ckpt_dir/.{FILES[5]}.1-0.tmp").write_bytes(b"begun")
    collect(given, steps=4, start=4, existing="resume")
    run = RunDirectory(folder)
    assert sorted(run.metadata.files) == [0, 2, 3]
    assert sorted(run.metadata.factors) == [2, 3]
    assert_same(run.factors(3), first[3])
    assert FILES[5] not in names(folder / "ckpt_dir")


def test_a_resume_with_another_choice_is_refused(tmp_path):
    collect(tmp_path)
    with pytest.raises(RunDirectoryError, match="cannot be resumed: it was collected with"):
        collect(tmp_path, start=2, existing="resume", factors=False)
    assert FILES[5] in names(tmp_path / "ckpt_dir")


def test_with_model_by_epochs(tmp_path):
    network = seeded(SmallNetwork)
    optimizer = thor(network, 0.1, 0.1, 0.9, frequency=3)
    settings = {"intervals": [[0, 1, 2]], "unit": "epoch", "factors": True}
    collector = SummaryCollector(tmp_path, collect_specified_data={"collect_landscape": settings}, **QUIET)
    Model(network, functional.cross_entropy, optimizer).train(2, batches(), callbacks=[collector])
    run = RunDirectory(tmp_path)
    assert sorted(run.metadata.factors) == [1, 2]
    assert_same(run.factors(2), optimizer.kept_factors())


def test_other_optimizers_are_refused_before_the_first_step(tmp_path):
    network = SmallNetwork()
    sgd = torch.optim.SGD(network.parameters(), 0.1)
    text = r"collect_landscape\['factors'\] needs a Thor optimizer, whose factors it saves, but it is SGD\. Train with"
    with pytest.raises(ValueError, match=text):
        collect(tmp_path, network=network, optimizer=sgd)
    collector = SummaryCollector(tmp_path, collect_landscape={"intervals": [INTERVAL], "factors": True}, **QUIET)
    with pytest.raises(ValueError, match=r"but no optimizer is known\. .* pass it on: collector\.watch"):
        collector.watch(network).__enter__()
    collector = SummaryCollector(tmp_path, collect_landscape={"intervals": [INTERVAL], "factors": True}, **QUIET)
    with collector, pytest.raises(ValueError, match="snapshot saves arrays, which have no optimizer"):
        collector.snapshot(0, {"a": np.zeros(3)})
    with pytest.raises(TypeError, match=r"collect_landscape\['factors'\] must be a bool"):
        SummaryCollector(tmp_path, collect_landscape={"intervals": [INTERVAL], "factors": 1})
    assert names(tmp_path) == []


def test_wrapped_as_accelerate_does(tmp_path):
    class Wrapped(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.param_groups = optimizer.param_groups

    network = seeded(SmallNetwork)
    optimizer = thor(network, 0.1, 0.1, 0.9, frequency=2)
    collector = SummaryCollector(tmp_path, collect_landscape={"intervals": [INTERVAL], "factors": True}, **QUIET)
    with collector.watch(network, optimizer=Wrapped(optimizer)):
        pass
    assert optimizer.kept_factors() == []


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda path: path.unlink(), r"factors\.safetensors cannot be read: No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "is not a whole safetensors file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3] + b"abc"), "is not the file that training wrote"),
    ],
)
def test_a_file_that_is_harmed(tmp_path, harm, text):
    collect(tmp_path)
    harm(tmp_path / "ckpt_dir" / FILES[3])
    with pytest.raises(CheckpointError, match=text):
        RunDirectory(tmp_path).factors(3)
    RunDirectory(tmp_path).checkpoint(3)


def test_an_import_of_the_folder_leaves_them_out(tmp_path):
    collect(tmp_path / "run")
    for name, paths in (("all", tmp_path / "run/ckpt_dir"), ("pattern", tmp_path / "run/ckpt_dir/*.safetensors")):
        import_checkpoints(tmp_path / name, paths)
        assert sorted(RunDirectory(tmp_path / name).metadata.files) == INTERVAL


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "holds no factors of an optimizer"),
        ({"format": "summary-landscape factors", "format_version": "2"}, "has format_version 2, this program reads 1"),
        ({"format": "summary-landscape factors", "format_version": "1"}, "is damaged: it holds no whole factors"),
        (
            {
                "format": "summary-landscape factors",
                "format_version": "1",
                "layers": '{"a": {"shape": [2, 3], "positions": NaN}}',
            },
            "positions must be a finite number",
        ),
        (
            {
                "format": "summary-landscape factors",
                "format_version": "1",
                "layers": '{"a": {"shape": [2, 4], "positions": 1}}',
            },
            r"which do not fit a weight of the shape \(2, 4\)",
        ),
    ],
)
def test_files_that_hold_no_factors(tmp_path, facts, text):
    from collectors.weights.factors_file import read_factors
    from collectors.weights.safetensors_file import CheckpointFile

    write_checkpoint(tmp_path / "it.safetensors", {"a/A": np.eye(3)[None], "a/G": np.eye(2)[None]}, facts)
    with pytest.raises(CheckpointError, match=text):
        read_factors(CheckpointFile(tmp_path / "it.safetensors"))
