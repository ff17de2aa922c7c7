"""After a measurement standard error says how to look at it, unless progress is off; standard output is as it was."""

import shlex
import shutil
import sys

import pytest
import torch
from command_line import command
from examples import BatchNormNetwork, train_run

from landscape import Landscape
from landscape.commands.next_steps import show_where_to_look

MEASURED = ("--function", "examples:batch_norm", "--devices", "0", "--samples", "32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("where to look")
    train_run(folder / "run")
    for name in "ab":
        torch.manual_seed(ord(name))
        torch.save(BatchNormNetwork().state_dict(), folder / f"{name}.pt")
    return folder


def advised(told):
    lines = [line.removeprefix("Look at it: ") for line in told.stderr.splitlines() if line.startswith("Look at it: ")]
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["run", "run", "--size", "3", "-o", "out"], ["out/landscape_0-4_pca.h5", "out/landscape_4_random.h5"]),
        (["evaluate", "a.pt", "--size", "3", "-o", "around.h5"], ["around.h5"]),
        (["connect", "a.pt", "b.pt", "--points", "3", "-o", "line.h5"], ["line.h5"]),
    ],
    ids=["run", "evaluate", "connect"],
)
def test_landscapes(folder, arguments, files):
    told = command(*arguments, *MEASURED, folder=folder)
    assert advised(told) == [["landscape", "plot", str(folder / file)] for file in files]
    assert "Look at it" not in told.stdout
    quiet = command(*arguments, *MEASURED, "--quiet", folder=folder)
    assert quiet.stderr == ""
    assert quiet.stdout == told.stdout
    for words in advised(told):
        command(*words[1:], "--no-open", folder=folder)


def test_a_program_that_no_folder_of_path_has_is_called_as_it_was(folder, monkeypatch, capsys):
    command("evaluate", "a.pt", "--size", "3", "-o", "outside.h5", *MEASURED, folder=folder)
    monkeypatch.setattr(sys, "argv", ["/somewhere/.venv/bin/landscape"])
    for found, program in ((None, "/somewhere/.venv/bin/landscape"), ("/usr/bin/landscape", "landscape")):
        monkeypatch.setattr(shutil, "which", lambda name, found=found: found)
        show_where_to_look([Landscape.load(folder / "outside.h5")])
        words = shlex.split(capsys.readouterr().err)
        assert words == ["Look", "at", "it:", program, "plot", str(folder / "outside.h5")]


def test_a_dry_run_and_what_lies_in_no_file_have_nothing_to_look_at(folder):
    told = command("run", "run", *MEASURED, "--size", "3", "-o", "dry", "--dry-run", "--plot", folder=folder)
    assert advised(told) == []
    assert ".png" not in told.stdout
    assert not list((folder / "dry").glob("*.png"))
    told = command("connect", "a.pt", "b.pt", "--points", "3", *MEASURED, folder=folder)
    assert advised(told) == []


@pytest.mark.slow
def test_what_is_no_landscape_is_drawn(folder):
    recipes = ("x=a.pt", "y=b.pt", "--directions", "4", "--points", "3", "-o", "compare.h5")
    for arguments, file in (
        (["curvature", "run", "--top", "1", "--numbers", "4", "--trace", "0"], "run/curvature_4.h5"),
        (["compare", *recipes], "compare.h5"),
    ):
        told = command(*arguments, *MEASURED, folder=folder)
        assert advised(told) == [["landscape", "plot", str(folder / file)]]
        picture = str(folder / file).replace(".h5", ".png")
        assert command(*advised(told)[0][1:], folder=folder).stdout == f"{picture}\n"


@pytest.mark.filterwarnings("ignore:a grid of 4 x 4 points shares")
def test_what_is_refined_is_named_whole_where_it_was_typed_from_its_folder(folder):
    command("run", "run", *MEASURED, "--size", "3", "-o", "run", "--no-result", folder=folder)
    grown = folder / "run/landscape_0-4_pca.h5"
    beside = command("evaluate", "run/landscape_0-4_pca.h5", "--size", "4", *MEASURED[:4], folder=folder)
    for typed in (["--factor", "2"], ["--margin", "0.5"]):
        told = command("evaluate", "run/landscape_0-4_pca.h5", *typed, *MEASURED[:4], folder=folder)
        assert told.stdout.splitlines()[0] == str(grown)
        assert f"landscape plot --watch {shlex.quote(str(grown))}" in told.stderr
        assert advised(told) == [["landscape", "plot", str(grown)]]
    assert advised(beside) == [["landscape", "plot", str(grown.with_name("landscape_0-4_pca_4x4.h5"))]]


@pytest.mark.slow
def test_pictures_beside_what_a_run_measured(folder):
    told = command("run", "run", *MEASURED, "--size", "3", "-o", "drawn", "--plot", "--quiet", folder=folder)
    pictures = [folder / "drawn/landscape_0-4_pca.png", folder / "drawn/landscape_4_random.png"]
    assert told.stdout.splitlines()[-2:] == [str(picture) for picture in pictures]
    for picture in pictures:
        plain = picture.with_name("plain.png")
        command("plot", picture.with_suffix(".h5"), "-o", plain, folder=folder)
        assert picture.read_bytes() == plain.read_bytes()


def test_a_file_that_only_has_the_name_of_the_picture_stays(folder):
    (folder / "own").mkdir()
    (folder / "own/landscape_0-4_pca.png").write_text("mine")
    typed = ("--size", "3", "-o", "own", "--plot", "--no-result")
    told = command("run", "run", *MEASURED, *typed, folder=folder, check=False)
    assert told.returncode == 1
    assert "landscape_0-4_pca.png" in told.stderr
    assert (folder / "own/landscape_0-4_pca.png").read_text() == "mine"
    assert str(folder / "own/landscape_0-4_pca.h5") in told.stdout
