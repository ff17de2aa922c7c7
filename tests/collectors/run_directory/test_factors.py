"""What earlier versions left behind that saved THOR's factors: read, resumed and replaced, with new code."""

import json
import shutil

import pytest
import torch
from places import ROOT
from torch import nn

from collectors import SummaryCollector, thor
from collectors.run_directory import RunDirectory
from collectors.run_directory.importing import import_checkpoints

FOLDER = ROOT / "tests/data/versions/factors"

pytestmark = pytest.mark.filterwarnings("ignore:training ended at:UserWarning")


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(FOLDER / "run", tmp_path / "run")


def factors_in(run):
    return sorted(path.name for path in (run / "ckpt_dir").glob("*factors*"))


def listed(run):
    return json.loads((run / "ckpt_dir/train_metadata.json").read_text()).get("factors", {})


def go_on(run, start, existing):
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    chosen = {"train": False, "result": True}
    settings = {"intervals": [[0, 2, 4]], "num_samples": 12, "landscape_size": 3, "create_landscape": chosen}
    collector = SummaryCollector(run, collect_landscape=settings, existing=existing, keep_default_action=False)
    with collector.watch(module, start_step=start) as watched:
        for _ in range(start, 4):
            watched.step()


def test_its_checkpoints_are_read_and_imported(run, tmp_path):
    assert factors_in(run) == ["Sequential_2_step_factors.safetensors", "Sequential_4_step_factors.safetensors"]
    for name, source in (("all", run / "ckpt_dir"), ("pattern", run / "ckpt_dir/*.safetensors")):
        import_checkpoints(tmp_path / name, source)
        assert sorted(RunDirectory(tmp_path / name).metadata.files) == [0, 2, 4]
    weights = torch.load(FOLDER / "weights.pt", weights_only=True)
    last = RunDirectory(run).checkpoint(4)
    assert all((last.read(name) == value.numpy()).all() for name, value in weights.items())


def test_a_resume_keeps_those_of_its_checkpoints_and_they_are_replaced_with_their_run(run):
    go_on(run, 2, "resume")
    assert sorted(RunDirectory(run).metadata.files) == [0, 2, 4]
    assert factors_in(run) == ["Sequential_2_step_factors.safetensors"]
    assert list(listed(run)) == ["2"]
    go_on(run, 0, "overwrite")
    assert factors_in(run) == []
    assert listed(run) == {}


def test_an_optimizer_goes_on_without_them():
    saved = torch.load(FOLDER / "thor.pt", weights_only=True)
    assert "a_factor" in saved["state"][0]
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = thor(module, 0.05, 0.1, 0.9, frequency=2)
    optimizer.load_state_dict(saved)
    state = optimizer.state[module[0].weight]
    assert torch.equal(state["a_inverse"], saved["state"][0]["a_inverse"])
    assert not {"a_factor", "g_factor", "positions"} & set(state)
