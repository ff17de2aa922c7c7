"""``landscape info`` of a run directory: what is there, and commands that work as they are pasted."""

import json
import shlex
import shutil

import numpy as np
import pytest
from command_line import command, invoke
from examples import train_run
from landscape_examples import build, write_landscape
from remote_stores import empty_memory

from collectors.errors import RunDirectoryError
from collectors.files.remote_path import RemotePath
from collectors.run_directory.importing import import_checkpoints
from landscape import Curvature, Landscape
from landscape.commands.run_facts import RUN_SUMMARY_VERSION
from landscape.curvature.data import CurvatureData
from landscape.grid.landscape_file import landscape_bytes, read_landscape
from landscape.record import whole_file
from landscape.record.checks import PointStatus
from landscape.record.hdf5 import CURVATURE
from landscape.record.record import read_record, record_bytes
from landscape.record.whole_file import read_header, write_image
from landscape.record.writer import lock_landscape

FUNCTION = "examples:batch_norm"
QUICK = ("--function", FUNCTION, "--devices", "0", "--quiet")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("info")
    train_run(folder / "run")
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path


@pytest.fixture(scope="module")
def measured(trained, tmp_path_factory):
    """A run whose two landscapes are measured."""
    folder = tmp_path_factory.mktemp("measured")
    shutil.copytree(trained / "run", folder / "run")
    command("run", "run", *QUICK, "--size", "3", folder=folder)
    return folder


@pytest.fixture
def copied(measured, tmp_path):
    """A copy of it, which a test may change."""
    shutil.copytree(measured, tmp_path / "copy")
    return tmp_path / "copy"


def info(folder, run="run"):
    return command("info", run, folder=folder).stdout


def commands_of(told, *names):
    """Returns the commands that a text advises, as a shell takes them apart: all, or those of some names."""
    advised = [shlex.split(line) for line in told.splitlines() if line.startswith("  landscape ")]
    return [words for words in advised if not names or words[1] in names]


def unfinished(path):
    """Takes back what was measured of one point."""
    data = read_landscape(path)
    data.status[0, 0] = PointStatus.PENDING
    for values in data.metrics.values():
        values[0, 0] = float("nan")
    data.attributes["sampling"] = {**data.attributes["sampling"], "finished": False}
    write_landscape(path, data)


def test_a_fresh_run_has_no_landscape_and_says_how_to_measure_one(folder):
    told = info(folder)
    assert "BatchNormNetwork" in told
    assert "5: epochs 0 to 4" in told
    assert "missing" not in told
    assert "TensorBoard" in told
    assert commands_of(told) == [
        ["landscape", name, "run", "--function", "module:callback_fn"] for name in ("check", "run", "report")
    ]
    assert "module:callback_fn is your function" in told


def test_only_a_training_asked_for_landscapes(trained, tmp_path):
    import_checkpoints(tmp_path / "run", trained / "run" / "ckpt_dir")
    imported = info(tmp_path)
    assert "run (imported checkpoints)\n" in imported
    assert "5: epochs 0 to 4" in imported
    assert "asked for" not in imported
    assert "asked for          landscapes of the path and around the result: epochs 0 to 4; 5 x 5 " in info(trained)


def test_what_is_advised_for_a_measured_run_works(copied):
    advised = commands_of(info(copied))
    assert [words[1:3] for words in advised] == [
        ["plot", "run/landscape_0-4_pca.h5"],
        ["plot", "run/landscape_4_random.h5"],
        ["plot", "run/landscape_0-4_pca.h5"],
        ["curvature", "run"],
        ["report", "run"],
    ]
    assert all(words[3:] == ["--function", FUNCTION] for words in advised[-2:])
    for words in advised[:3]:
        command(*words[1:], "--no-open", folder=copied)
    assert (copied / "run/landscape_0-4_pca.png").exists()


def test_the_missing_result_is_advised_with_the_function_of_the_file(folder):
    command("run", "run", *QUICK, "--size", "3", "--no-result", folder=folder)
    assert commands_of(info(folder), "run") == [["landscape", "run", "run", "--function", FUNCTION, "--no-train"]]


def test_what_is_advised_does_not_measure_what_is_there_in_another_way(folder):
    command("run", "run", *QUICK, "--size", "4", "--samples", "32", "--no-result", folder=folder)
    (words,) = commands_of(info(folder), "run")
    assert words[5:] == ["--no-train"]
    command(*words[1:], "--devices", "0", "--quiet", folder=folder)
    assert (folder / "run/landscape_4_random.h5").exists()


def test_a_report_is_continued_over_its_samples(folder):
    assert [words[5:] for words in commands_of(info(folder), "report")] == [[]]
    typed = ("--size", "3", "--samples", "32", "--sample-choice", "random", "--seed", "3", "--name", "report")
    command("run", "run", *QUICK, *typed, folder=folder)
    (words,) = commands_of(info(folder), "report")
    assert words[5:] == ["--seed", "3", "--sample-choice", "random", "--samples", "32"]


def test_an_unfinished_landscape_is_continued_by_what_is_advised(copied):
    path = copied / "run/landscape_0-4_pca.h5"
    whole = Landscape.load(path)
    unfinished(path)
    told = info(copied)
    assert "landscape_0-4_pca.h5: pca, 3 x 3 points, 8 measured, 1 pending; not complete" in told
    (words,) = commands_of(told, "evaluate")
    assert words[2:] == ["run/landscape_0-4_pca.h5", "--size", "3", "--function", FUNCTION]
    # Also where another file, which comes first, was measured with another function.
    data = read_landscape(path)
    data.attributes["function"] = "not_here:other_fn"
    write_landscape(copied / "run/first.h5", data)
    assert words in commands_of(info(copied), "evaluate")
    command(*words[1:], "--devices", "0", folder=copied)
    again = Landscape.load(path)
    assert again.complete
    assert (again.loss == whole.loss).all()


@pytest.mark.slow
def test_an_unfinished_curvature_is_continued_by_what_is_advised(folder):
    typed = ("--top", "1", "--trace", "2", "--numbers", "0,4", "--samples", "32", "--density", "1x3", "--name", "bends")
    typed += ("--keep-vectors", "--matrix", "ggn")
    command("curvature", "run", *QUICK, *typed, folder=folder)
    path = folder / "run/bends_0-4_ggn.h5"
    record = read_record(CurvatureData, path)
    record.status[1] = PointStatus.PENDING
    write_image(path, record_bytes(record), CURVATURE)
    told = info(folder)
    (words,) = commands_of(told, "curvature")
    command(*words[1:], "--devices", "0", folder=folder)
    assert Curvature.load(path).complete
    assert len(list((folder / "run").glob("*.h5"))) == 1
    # What somebody made up is not advised.
    record.attributes |= {
        "max_products": "\x1b[2J",
        "seed": "1; rm -r x",
        "identity": {"density_steps": [1]},
        "function": "\x1b:f",
    }
    write_image(path, record_bytes(record), CURVATURE)
    told = info(folder)
    (words,) = commands_of(told, "curvature")
    known = ("--top", "1", "--matrix", "ggn", "--trace", "2", "--samples", "32", "--numbers", "0,4", "--keep-vectors")
    assert words[2:] == ["run", "--function", "module:callback_fn", *known, "--name", "bends"]
    assert "\x1b" not in told
    path.rename(path.with_name("renamed.h5"))
    assert not commands_of(info(folder), "curvature"), "none writes a file of that name"


def test_no_command_is_advised_that_would_be_refused(copied):
    path = copied / "run/landscape_0-4_pca.h5"
    unfinished(path)
    assert commands_of(info(copied), "evaluate")
    data = read_landscape(path)
    sampling = data.attributes["sampling"]
    data.attributes["sampling"] = {**sampling, "share": "1of2"}
    write_landscape(path, data)
    assert not commands_of(info(copied), "evaluate"), "a share under another name"
    data.attributes["sampling"] = sampling
    data.x = data.x + np.array([0.0, 0.01, 0.0])
    write_landscape(path, data)
    assert not commands_of(info(copied), "evaluate"), "its axes are not even"


def test_the_directions_of_another_landscape_continue_none(folder):
    for name, seed in (("own", "0"), ("other", "1")):
        typed = ("--size", "3", "--seed", seed, "--save-directions", "-o", f"run/{name}.h5")
        command("evaluate", "run@4", *QUICK, *typed, folder=folder)
    unfinished(folder / "run/own.h5")
    assert commands_of(info(folder), "evaluate")
    (folder / "run/other_directions.safetensors").replace(folder / "run/own_directions.safetensors")
    assert not commands_of(info(folder), "evaluate")


def test_what_is_being_measured_can_be_watched(copied):
    path = copied / "run/landscape_0-4_pca.h5"
    unfinished(path)
    with lock_landscape(path):
        told = info(copied)
    assert "being measured now" in told
    assert ["landscape", "plot", "run/landscape_0-4_pca.h5", "--watch"] in commands_of(told)
    assert not commands_of(told, "evaluate")


def test_gaps_and_what_cannot_be_read_are_named(folder):
    for number in (1, 2):
        (folder / f"run/ckpt_dir/BatchNormNetwork_{number}_epoch.safetensors").unlink()
    (folder / "run/broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n and then nothing")
    (folder / "run/weights.h5").write_bytes(b"")
    told = info(folder)
    assert "3: epochs 0, 3, 4" in told
    assert "epochs 1, 2" in told
    assert "broken.h5: " in told
    assert "is damaged" in told
    assert "weights.h5 is empty" in told
    (folder / "run/ckpt_dir/BatchNormNetwork_3_epoch.safetensors").unlink()
    told = info(folder)
    assert commands_of(told) == []
    assert "A plane needs three checkpoints" in told


def test_another_programs_file_is_no_landscape(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "run/model.weights.h5", "w") as file:
        file["layer"] = [1.0]
    assert "weights" not in info(folder)


def test_as_json(measured):
    found = json.loads(command("info", "run", "--json", folder=measured).stdout)
    assert found["summary_version"] == RUN_SUMMARY_VERSION
    assert found["kind"] == "run"
    assert found["network"]["name"] == "BatchNormNetwork"
    assert (found["unit"], found["checkpoints"], found["missing"]) == ("epoch", [0, 1, 2, 3, 4], [])
    assert found["asked_for"]["landscape_size"] == 5
    assert found["frozen_parameters"] is None
    assert found["logged_values"]
    first, second = found["files"]
    assert first["file"] == "run/landscape_0-4_pca.h5"
    assert (first["kind"], first["complete"], first["shape"], first["being_measured"]) == (
        "landscape",
        True,
        [3, 3],
        False,
    )
    assert first["points"] == {"pending": 0, "measured": 9, "interpolated": 0, "failed": 0}
    assert (second["decomposition"], second["problem"], second["function"]) == ("random", None, FUNCTION)
    assert found["next"][0] == {
        "purpose": "look at a landscape in the browser",
        "command": "landscape plot run/landscape_0-4_pca.h5",
    }


def test_a_function_that_is_not_here_is_named(copied):
    path = copied / "run/landscape_0-4_pca.h5"
    data = read_landscape(path)
    data.attributes["function"] = "not_here.at_all:callback_fn"
    write_landscape(path, data)
    assert info(copied).endswith("runs in the folder where the module not_here.at_all lies.\n")
    (copied / "not_here").mkdir()
    assert "runs in the folder" not in info(copied)


def test_a_name_with_blanks_is_quoted(copied):
    (copied / "run").rename(copied / "my run")
    assert "  landscape plot 'my run/landscape_0-4_pca.h5'\n" in info(copied, "my run")


@pytest.mark.parametrize("said", ["os:abort; rm", "a b:c", 3, None])
def test_what_is_no_function_is_not_advised(folder, said):
    data = build()
    data.attributes["function"] = said
    write_landscape(folder / "run/said.h5", data)
    assert commands_of(info(folder), "run") == [["landscape", "run", "run", "--function", "module:callback_fn"]]


def test_a_run_behind_a_url(measured):
    with empty_memory() as store:
        store.put(str(measured / "run"), "/runs/one", recursive=True)
        told = invoke("info", "memory://runs/one").stdout
        assert "5: epochs 0 to 4" in told
        assert "pca, 3 x 3 points, 9 measured; complete" in told
        assert "  landscape plot memory://runs/one/landscape_0-4_pca.h5\n" in told
        assert "  landscape plot memory://runs/one/landscape_0-4_pca.h5 -o landscape_0-4_pca.png\n" in told
        store.pipe_file("/runs/one/empty.h5", b"")
        assert "empty.h5 is empty" in invoke("info", "memory://runs/one").stdout
        assert "pca, 3 x 3 points" in invoke("info", "memory://runs/one/landscape_0-4_pca.h5").stdout


def test_shares_behind_a_url_are_joined_in_this_folder(copied, monkeypatch):
    monkeypatch.chdir(copied)
    data = read_landscape(copied / "run/landscape_0-4_pca.h5")
    with empty_memory() as store:
        store.put(str(copied / "run"), "/runs/one", recursive=True)
        for share in ("1of2", "2of2"):
            data.attributes["sampling"] = {"mode": "full", "finished": False, "share": share}
            store.pipe_file(f"/runs/one/part_{share}.h5", landscape_bytes(data))
        (words,) = commands_of(invoke("info", "memory://runs/one").stdout, "merge")
        invoke(*words[1:])
    assert Landscape.load("part.h5").complete


def test_what_is_advised_for_a_file_url_works(copied):
    words, *_ = commands_of(info(copied, (copied / "run").as_uri()), "plot")
    command(*words[1:], "--no-open", folder=copied)
    assert (copied / "run/landscape_0-4_pca.html").exists()


def test_what_is_behind_a_url_is_read_once_or_in_parts(measured, monkeypatch):
    with empty_memory() as store:
        store.put(str(measured / "run"), "/runs/one", recursive=True)
        place, reads, read_bytes = RemotePath(store, "/runs/one/landscape_0-4_pca.h5"), [], RemotePath.read_bytes
        monkeypatch.setattr(RemotePath, "read_bytes", lambda *asked: reads.append(asked) or read_bytes(*asked))
        whole = read_header(place)
        assert len(reads) == 1
        monkeypatch.setattr(whole_file, "_READ_AT_ONCE", 8)
        assert read_header(place) == whole
        assert len(reads) > 2


def test_a_directory_that_is_no_run_has_the_usual_error(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunDirectoryError, match=r"empty holds no collected run: .* does not exist\. Train with"):
        invoke("info", tmp_path / "empty")
    with pytest.raises(RunDirectoryError, match="Give the folder above it"):
        invoke("info", folder / "run/ckpt_dir")
