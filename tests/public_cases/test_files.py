"""Reports of other projects on files: what is never written over, what is damaged, and what a file holds."""

from __future__ import annotations

import json
import os
import subprocess

import h5py
import numpy as np
import pytest
import torch
from landscape_examples import build
from runs import collected
from safetensors.numpy import load_file, save_file
from torch import nn

from collectors import load_checkpoint, save_checkpoint
from collectors.errors import FileWriteError, RunDirectoryError
from collectors.run_directory import RunDirectory
from collectors.run_directory.importing import import_checkpoints
from collectors.weights.foreign_checkpoint import read_checkpoint
from landscape import Curvature, Landscape, Plane, evaluate, random_plane
from landscape.errors import LandscapeDamagedError, LandscapeError, PlaneError
from landscape.functions import barrier, measure_curvature
from landscape.interactive.page import save_page
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.torch.compiled.packages import PackageFolder
from workers.torch.evaluator import TorchEvaluator

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
DATA = torch.ones(8, 2), torch.ones(8, 1)


def callback_fn():
    return nn.MSELoss(), nn.Linear(2, 1), DATA, {}


def test_a_landscape_that_may_only_be_read_stays(tmp_path):
    """ysangkok/atomic-write#9: a file that may only be read was replaced, because a rename asks the folder alone."""
    path = Landscape(build()).save(tmp_path / "kept.h5")
    path.chmod(0o444)
    before = path.read_bytes()
    with pytest.raises(LandscapeError, match=r"kept\.h5 is read-only and was left as it is"):
        Landscape(build(seed=1)).save(path, overwrite=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["symlink", "hard link"])
def test_a_landscape_is_not_written_through_another_name_of_a_file(tmp_path, kind):
    """RawTherapee/RawTherapee#6192 and FarGroup/FarManager#715: links to a file were followed or replaced."""
    own, name = tmp_path / "weights.safetensors", tmp_path / "a.h5"
    own.write_bytes(b"mine")
    if kind == "symlink":
        name.symlink_to(own)
    else:
        os.link(own, name)
    with pytest.raises(LandscapeError, match=r"a\.h5"):
        Landscape(build()).save(name, overwrite=True)
    assert own.read_bytes() == b"mine"
    assert own.samefile(name)
    assert name.is_symlink() == (kind == "symlink")


@pytest.mark.parametrize("name", ["b.pt", "second_name.h5"])
def test_the_weights_that_are_measured_stay(tmp_path, name):
    """mapequation/infomap#907: what a run wrote took the place of what it had read."""
    for own in ("a.pt", "b.pt"):
        torch.save(nn.Linear(2, 1).state_dict(), tmp_path / own)
    os.link(tmp_path / "b.pt", tmp_path / "second_name.h5")
    before = (tmp_path / "b.pt").read_bytes()
    with pytest.raises(LandscapeError, match="output must not be one of the inputs"):
        barrier(
            tmp_path / "a.pt", tmp_path / "b.pt", callback_fn, points=3, output=tmp_path / name, overwrite=True,
            device_ids=[0], progress=False,
        )  # fmt: skip
    assert (tmp_path / "b.pt").read_bytes() == before
    assert (tmp_path / "b.pt").samefile(tmp_path / "second_name.h5")


def test_a_named_pipe_stays_one(tmp_path):
    """mawww/kakoune#4098: a named pipe became a regular file when something was written to its name."""
    pipe = tmp_path / "values.csv"
    os.mkfifo(pipe)
    with pytest.raises((FileWriteError, LandscapeError), match=r"values\.csv is no regular file and was left as it is"):
        Landscape(build()).export(pipe, overwrite=True)
    assert pipe.is_fifo()


def test_a_script_of_the_user_beside_a_page_stays(tmp_path):
    """Prayag2/konsave#66: beside the file that was asked for, another one was written over a user's."""
    own = tmp_path / "plotly.min.js"
    own.write_text("// mine\n")
    with pytest.raises((FileWriteError, LandscapeError), match=r"plotly\.min\.js .*and was left as it is"):
        save_page(Landscape(build()), tmp_path / "page.html", size="small")
    assert own.read_text() == "// mine\n"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_file_of_the_user_with_the_name_of_a_checkpoint_stays(tmp_path):
    """PetaVision/OpenPV#301: old checkpoints were removed together with whatever lay there."""
    collected(tmp_path / "run")
    folder = tmp_path / "run" / "ckpt_dir"
    (path,) = folder.glob("*_1_*.safetensors")
    (folder / "train_metadata.json").unlink()
    for other in folder.glob("*.safetensors"):
        other.unlink()
    torch.save({"weight": torch.ones(3)}, path)
    before = path.read_bytes()
    with pytest.raises(RunDirectoryError, match=rf"{path.name} has the name of a checkpoint that this run writes"):
        collected(tmp_path / "run", existing="overwrite")
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["z.png", "z.html"])
def test_a_landscape_is_not_written_as_a_picture(tmp_path, name):
    """resurrecting-open-source-projects/scrot#278: a file had the ending of another format than it was written in."""
    calls = []
    with pytest.raises(ValueError, match=rf"output .*{name}"):
        evaluate(
            random_plane(nn.Linear(2, 1)), lambda: calls.append(1) or callback_fn(), size=3, device_ids=[0],
            progress=False, output=tmp_path / name,
        )  # fmt: skip
    assert not list(tmp_path.iterdir())
    assert not calls


def test_the_next_plane_of_this_name_removes_what_a_killed_process_left(tmp_path):
    """duckdb/duckdb#24576: what a killed process was writing stayed on the disk for ever."""
    killed = subprocess.Popen(["true"])
    killed.wait()
    left = tmp_path / f".plane.safetensors.{killed.pid}.0123abcd.tmp"
    left.write_bytes(b"half a plane")
    random_plane(nn.Linear(4, 3)).save(tmp_path / "plane.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["plane.safetensors"]


def test_the_name_that_was_given_is_found(tmp_path):
    """numpy/numpy#9929: what was saved under a name was not found under it, because an ending was added."""
    network = nn.Linear(3, 2)
    save_checkpoint(network, tmp_path / "best.ckpt")
    found = load_checkpoint(tmp_path / "best.ckpt").weights
    torch.testing.assert_close(torch.from_numpy(found["weight"]), network.weight.detach(), rtol=0, atol=0)


def test_a_changed_eigenvalue_is_an_error(tmp_path):
    """gwastro/pycbc#4831: results in HDF5 had no checksums, so that a changed value was as good as another."""
    path = tmp_path / "curvature.h5"
    measure_curvature(nn.Linear(2, 1), callback_fn, top=1, trace_probes=0, output=path, device_ids=[0], progress=False)
    with h5py.File(path, "r+") as file:
        file["eigenvalues"][0, 0] *= 1.001
    with pytest.raises(LandscapeDamagedError, match="damaged"):
        Curvature.load(path)


def test_a_flipped_bit_is_an_error(tmp_path):
    """NCAS-CMS/pyfive#28: HDF5's checksums are optional, and without them a flipped bit is another value."""
    path = tmp_path / "a.h5"
    Landscape(build()).save(path)
    content = bytearray(path.read_bytes())
    place = content.index(np.float64(Landscape.load(path).metrics["accuracy"][1, 2]).tobytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(LandscapeDamagedError, match="damaged"):
        Landscape.load(path)


def test_a_damaged_plane_is_named(tmp_path):
    """glotaran/pyglotaran#817: a file of which a part is wrong ended in whatever Python raised there."""
    path = random_plane(nn.Linear(4, 3)).save(tmp_path / "plane.safetensors")
    content, tensors = path.read_bytes(), load_file(path)
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    without = {name: tensor for name, tensor in tensors.items() if name != "direction_1/bias"}
    for wrong in ((without, metadata), (tensors, {**metadata, "decomposition": "7"})):
        save_file(wrong[0], path, wrong[1])
        with pytest.raises(PlaneError, match=r"plane\.safetensors holds no whole plane"):
            Plane.load(path)


def test_a_package_whose_facts_cannot_be_read_is_none(tmp_path):
    """r-lib/lintr#794: a damaged file of a cache ended every later run, though nobody needs it."""
    folder = PackageFolder(tmp_path / "packages")
    library = folder.keep("key", b"code")
    library.with_suffix(".json").write_text("[" * 100_000)
    assert folder.find("key") is None


def test_compiled_code_is_not_loaded_from_a_folder_of_all_users(tmp_path, monkeypatch):
    """openai/tiktoken#500: what lies in a cache folder that all users can write to was loaded without a question."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shared = tmp_path / "summary-landscape" / "torchinductor"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    setup = MeasurementSetup(MeasurementOptions(), plan=MeasurementPlan(4, compile=True))
    with pytest.warns(UserWarning, match="runs eagerly: the folder of compiled code is not safe"):
        evaluator = TorchEvaluator(*callback_fn(), setup)
    assert not evaluator.description.plan.compile
    assert not [path for path in shared.rglob("*") if path.is_file()]
    evaluator.close()


def test_the_average_is_taken_where_it_is_asked_for(tmp_path):
    """zhuyu-cs/MeanFlow#12: of a file with the network and its average, somebody measured the wrong one."""
    for number in range(3):
        weight = torch.full((2, 3), float(number))
        torch.save({"model": {"w": weight}, "ema": {"w": -weight}}, tmp_path / f"epoch_{number}.pt")
    import_checkpoints(tmp_path / "run", sorted(tmp_path.glob("*.pt")), strip_prefix="ema.")
    run = RunDirectory(tmp_path / "run")
    for number in range(3):
        np.testing.assert_array_equal(run.checkpoint(number).read("w"), np.full((2, 3), -number, np.float32))


def test_weights_of_composer_lie_two_keys_deep(tmp_path):
    """d8ahazard/sd_dreambooth_extension#162: a file whose weights are not where they usually are was not readable."""
    weights = {"w": torch.arange(4.0)}
    torch.save({"state": {"model": weights, "optimizers": {}}, "rng": [{"cpu": torch.zeros(5)}]}, tmp_path / "ep1.pt")
    for prefix in ((), ("state.model.",)):
        np.testing.assert_array_equal(read_checkpoint(tmp_path / "ep1.pt", *prefix).tensors["w"], [0, 1, 2, 3])


def test_other_networks_of_a_file_are_named(tmp_path):
    """rosinality/style-based-gan-pytorch#103: some files hold several networks, and nothing said which one was read."""
    path = tmp_path / "train_step-3.model"
    torch.save({"net": {"w": torch.ones(2)}, "generator": {"w": torch.zeros(2)}, "epoch": 3}, path)
    found = read_checkpoint(path)
    np.testing.assert_array_equal(found.tensors["w"], [1, 1])
    (text,) = found.left_out
    assert "other weights under 'generator', which strip_prefix='generator.' takes" in text
    np.testing.assert_array_equal(read_checkpoint(path, "generator.").tensors["w"], [0, 0])
