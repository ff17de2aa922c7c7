"""What the functions that take paths apart as texts make of Windows' paths."""

from pathlib import PureWindowsPath
from types import SimpleNamespace

import pytest

from collectors import validation
from collectors.files import places, system
from collectors.files.places import check_can_be_directory, check_can_be_file, check_directory, has_lost_slashes, is_url
from collectors.model_checkpoint.run import check_prefix
from collectors.run_directory.numbering import _parts, numbers_of_names
from collectors.validation import check_path
from landscape.commands.arguments import TypedCheckpoint
from landscape.planes.further_runs import as_also
from landscape.planes.networks import find_networks, name_of_folder, runs_of
from landscape.record.option import check_stem
from landscape.trackers import _stem

CHECKPOINT = r"C:\runs\adam\ckpt_dir\Net_3_epoch.safetensors"
PATHS = [rf"C:\Users\me2\runs\epoch_{number}.pt" for number in range(3)]
LONG = "C:\\Users\\somebody\\" + "\\".join(["a folder of a project"] * 12) + "\\run"


class WindowsPath(PureWindowsPath):
    def expanduser(self):
        return self

    def absolute(self):
        return self


@pytest.fixture(autouse=True)
def windows(monkeypatch):
    monkeypatch.setattr(system, "WINDOWS", True)


@pytest.mark.parametrize("label", [CHECKPOINT, CHECKPOINT.replace("\\", "/")])
def test_the_name_of_a_checkpoints_run(label):
    assert name_of_folder(SimpleNamespace(label=label)) == "adam"


def test_the_names_of_two_run_folders():
    readers = [
        SimpleNamespace(label=rf"C:\runs\{run}\ckpt_dir\Net_{epoch}_epoch.safetensors")
        for run in ("adam", "sgd")
        for epoch in (1, 2)
    ]
    runs = runs_of(find_networks(readers))
    weights = {name: [network.weights for network in networks] for name, networks in runs.items()}
    assert weights == {"adam": readers[:2], "sgd": readers[2:]}


def test_the_parts_of_a_checkpoints_path():
    assert _parts(PATHS[0]) == ["C:", "Users", "me2", "runs", "epoch_0.pt"]


def test_the_numbers_of_names():
    found = numbers_of_names([_parts(path) for path in PATHS], None)
    assert (found.found, found.unit, found.source) == ((0, 1, 2), "epoch", "name")
    assert found == numbers_of_names([path.replace("\\", "/").split("/") for path in PATHS], None)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (r"C:\runs\adam", {"adam": r"C:\runs\adam"}),
        (r"adam=C:\runs\adam", {"adam": r"C:\runs\adam"}),
        (r"C:\runs\lr=0.1", {"lr=0.1": r"C:\runs\lr=0.1"}),
        (CHECKPOINT, {"Net_3_epoch": CHECKPOINT}),
        ("s3://bucket/adam", {"adam": "s3://bucket/adam"}),
    ],
)
def test_also(item, expected):
    assert as_also([item]) == expected


def test_a_typed_checkpoint():
    assert TypedCheckpoint.read(r"C:\runs\lr=0.1\a.pt") == TypedCheckpoint("", r"C:\runs\lr=0.1\a.pt")
    assert TypedCheckpoint.read(r"adam=C:\runs\a.pt") == TypedCheckpoint("adam", r"C:\runs\a.pt")


def test_a_drive_is_no_url():
    assert not is_url(r"C:\x")
    assert not is_url("C://x")
    assert not has_lost_slashes("c:/x")
    assert is_url("s3://x")
    assert has_lost_slashes("s3:/x")
    assert has_lost_slashes(PureWindowsPath("s3://x/y"))


@pytest.mark.parametrize(
    ("url", "on_windows", "elsewhere"),
    [
        ("file:///C:/my%20runs/a", "C:/my runs/a", "/C:/my runs/a"),
        ("file://C:/runs/a", "C:/runs/a", "C:/runs/a"),
        ("FILE://localhost/c:/runs/a", "c:/runs/a", "/c:/runs/a"),
        ("file:///runs/a", "/runs/a", "/runs/a"),
        ("file://server/my%20share/a", "//server/my share/a", "server/my share/a"),
        ("file:////server/share/a", "//server/share/a", "//server/share/a"),
        ("file://./runs/a", "./runs/a", "./runs/a"),
        ("file:///C:/lr%3D1%23b%25?c#d", "C:/lr=1#b%?c#d", "/C:/lr=1#b%?c#d"),
        ("local:///runs/L%C3%A4ufe", "/runs/Läufe", "/runs/Läufe"),
    ],
)
def test_a_file_url(monkeypatch, url, on_windows, elsewhere):
    """With a drive, a host, percent escapes, or characters that other URLs end their path with."""
    monkeypatch.setattr(places, "check_path", lambda name, text: text)
    assert check_directory("run", url) == on_windows
    monkeypatch.setattr(system, "WINDOWS", False)
    assert check_directory("run", url) == elsewhere


def test_a_part_is_what_stands_between_backslashes(monkeypatch):
    monkeypatch.setattr(validation, "Path", WindowsPath)
    assert len(LONG) > 255
    assert check_path("run", LONG) == WindowsPath(LONG)
    with pytest.raises(ValueError, match="whose parts have at most 255 each"):
        check_path("run", rf"C:\{'a' * 256}\run")


@pytest.mark.parametrize("check", [check_can_be_file, check_can_be_directory])
@pytest.mark.parametrize("name", ["epoch 3: end.h5", "con.h5", "end "])
def test_a_path_that_windows_takes_for_something_else(tmp_path, check, name):
    with pytest.raises(ValueError, match=r"output must be a path without the part .* which Windows takes for no file"):
        check("output", tmp_path / name)


def test_names_of_files(monkeypatch):
    with pytest.raises(ValueError, match=r"prefix must be a part of a file name: .* none that Windows refuses"):
        check_prefix("epoch: ")
    with pytest.raises(ValueError, match=r"name must be the beginning of a file name, .* none that Windows refuses"):
        check_stem("name", "a:b")
    assert [_stem(title) for title in ("runs/epoch 3: end", "con", "runs/end")] == ["epoch_3__end_", "con_", "end"]
    monkeypatch.setattr(system, "WINDOWS", False)
    assert _stem("runs/epoch 3: end") == "epoch 3: end"
    assert check_prefix("epoch: ") == "epoch: "
    assert check_stem("name", "a:b") == "a:b"
