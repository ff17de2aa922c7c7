"""What is written over: never an input of the call, and never a file that holds something else."""

import functools
import io
import os
import subprocess

import h5py
import numpy as np
import pytest
import torch
from command_line import invoke
from landscape_examples import build as landscape_data
from marked_cases import marked
from remote_stores import empty_memory
from surfaces import landscape
from two_networks import callback_fn, trained

from collectors import save_checkpoint
from collectors.errors import FileWriteError
from collectors.files.places import check_directory
from collectors.weights.safetensors_file import CheckpointFile, write_checkpoint
from landscape import Landscape, evaluate, figures, line_between, random_plane
from landscape.errors import LandscapeWriteError
from landscape.functions import barrier, compare, connect, measure_curvature
from landscape.interactive.page import save_page
from landscape.record.hdf5 import LANDSCAPE
from landscape.record.whole_file import check_replaceable
from landscape.replacing import check_no_input, check_replaceable_tensors

HOW = {"device_ids": [0], "progress": False}
INPUT = "output must not be one of the inputs"
NO_LANDSCAPE = "is no landscape file and was left as it is"


@pytest.fixture
def weights(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        torch.save(trained(seed, epochs=1).state_dict(), tmp_path / f"{name}.pt")
    before = {name: (tmp_path / name).read_bytes() for name in ("a.pt", "b.pt")}
    yield tmp_path
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("link", [None, "symbolic", "hard"])
def test_an_input_is_never_the_output(weights, link, overwrite):
    a, b = weights / "a.pt", weights / "b.pt"
    output = weights / "link.h5" if link else b
    if link == "symbolic":
        output.symlink_to("b.pt")
    elif link == "hard":
        output.hardlink_to(b)
    for measure, arguments in (
        (barrier, (a, b)),
        (evaluate, (line_between(a, b, network=trained(0, epochs=1)),)),
        (connect, (a, b)),
        (measure_curvature, (b,)),
        (compare, ({"one": [a], "other": [b]},)),
    ):
        with pytest.raises(LandscapeWriteError, match=INPUT):
            measure(*arguments, callback_fn, output=output, overwrite=overwrite, **HOW)


def test_a_file_of_another_kind_is_not_replaced(weights):
    source = weights / "nets.py"
    source.write_text("def callback_fn(): ...\n")
    plane = random_plane(weights / "a.pt", network=trained(0, epochs=1))
    odd = weights / "odd.safetensors"
    odd.write_bytes(bytes(8) + b"{}")
    for output in (source, weights / "a.pt", odd):
        before = output.read_bytes()
        for measure, arguments, text in (
            (evaluate, (plane,), rf"{output.name} {NO_LANDSCAPE}.*Remove it, or give another"),
            (measure_curvature, (trained(0),), "is no curvature file"),
            (compare, ({"x": [trained(0)], "y": [trained(1)]},), "is no comparison file"),
            (connect, (trained(0), trained(1)), "is no path file"),
        ):
            with pytest.raises(LandscapeWriteError, match=text):
                measure(*arguments, callback_fn, output=output, overwrite=True, **HOW)
        with pytest.raises(LandscapeWriteError, match="is no plane file"):
            plane.save(output, overwrite=True)
        assert output.read_bytes() == before


def test_weights_beside_a_landscape_are_no_directions(weights):
    own = weights / "a_directions.safetensors"
    write_checkpoint(own, {"weight": np.ones(3)}, {"format": "pt"})
    plane = random_plane(weights / "a.pt", network=trained(0, epochs=1))
    with pytest.raises(LandscapeWriteError, match=r"a_directions\.safetensors is no plane file"):
        evaluate(plane, callback_fn, output=weights / "a.h5", save_directions=True, **HOW)
    assert CheckpointFile(own).metadata == {"format": "pt"}
    assert not (weights / "a.h5").exists()


class TestHdf5:
    def test_what_may_be_replaced(self, tmp_path):
        path = Landscape(landscape_data()).save(tmp_path / "whole.h5")
        whole = path.read_bytes()
        check_replaceable(tmp_path / "none.h5", LANDSCAPE)
        for content in (whole, b"", whole[:5], whole[: len(whole) // 2], whole[:8] + bytes(2000)):
            path.write_bytes(content)
            check_replaceable(path, LANDSCAPE)
        (tmp_path / "dangling.h5").symlink_to("nowhere.h5")
        check_replaceable(tmp_path / "dangling.h5", LANDSCAPE)

    def test_what_another_program_wrote_stays(self, tmp_path):
        with h5py.File(tmp_path / "keras.h5", "w") as file:
            file["weights"] = np.ones(3)
        with pytest.raises(LandscapeWriteError, match=NO_LANDSCAPE):
            Landscape(landscape_data()).save(tmp_path / "keras.h5", overwrite=True)
        with h5py.File(tmp_path / "keras.h5") as file:
            assert list(file) == ["weights"]

    def test_an_export_replaces_no_file_of_ours(self, tmp_path):
        other = Landscape(landscape_data()).save(tmp_path / "other.h5")
        before = other.read_bytes()
        with pytest.raises(LandscapeWriteError, match=r"other\.h5 is a file of this program"):
            landscape(5, 5).export(other, "li", overwrite=True)
        assert other.read_bytes() == before


class TestTensors:
    def test_what_may_be_replaced(self, tmp_path):
        path = tmp_path / "a.safetensors"
        random_plane(trained(0)).save(path)
        whole = path.read_bytes()
        for content in (whole, b"", whole[:40], whole[:200], whole[:-1]):
            path.write_bytes(content)
            check_replaceable_tensors(path, "plane", "summary-landscape plane")

    def test_mere_weights_replace_no_plane(self, tmp_path):
        path = random_plane(trained(0)).save(tmp_path / "a.safetensors")
        with pytest.raises(LandscapeWriteError, match="is no weights file and"):
            check_replaceable_tensors(path, "weights", None)


@functools.cache
def _picture():
    return landscape(5, 5).plot_contour()


WRITERS = {
    "a.h5": lambda landscape, path: landscape.save(path, overwrite=True),
    "li.h5": lambda landscape, path: landscape.export(path, "li", overwrite=True),
    **dict.fromkeys(
        ("a.csv", "a.npz", "a.nc", "a.glb", "a.gltf", "a.vts"),
        lambda landscape, path: landscape.export(path, overwrite=True),
    ),
    **dict.fromkeys(("a.png", "a.svg", "a.pdf"), lambda landscape, path: figures.save_figure(_picture(), path, dpi=40)),
    "a.gif": lambda landscape, path: landscape.save_animation(path, "heatmap", seconds=0.2, rate=5, dpi=40),
    "a.html": lambda landscape, path: save_page(landscape, path),
    "plotly.min.js": lambda landscape, path: save_page(landscape, path.with_name("page.html"), size="small"),
    "x_caption.txt": lambda landscape, path: invoke(
        "plot", landscape.path, "-o", path.with_name("x.png"), "--caption", "--dpi", "40"
    ),
    "weights.safetensors": lambda landscape, path: save_checkpoint(trained(0), path),
    "plane.safetensors": lambda landscape, path: random_plane(trained(0)).save(path, overwrite=True),
}


@pytest.mark.parametrize("name", marked(WRITERS, pytest.mark.slow, after=8))
class TestEveryWriter:
    @pytest.fixture
    def path(self, name, tmp_path):
        return tmp_path / name

    @pytest.fixture
    def write(self, name, path):
        drawn = Landscape.load(landscape(5, 5).save(path.with_name("source.h5")))
        return lambda: WRITERS[name](drawn, path)

    def test_notes_of_the_user_stay(self, path, write):
        path.write_text("my notes, for the paper\n" * 20)
        with pytest.raises((LandscapeWriteError, FileWriteError), match="and was left as it is"):
            write()
        assert path.read_text().startswith("my notes")
        assert not list(path.parent.glob(".*.tmp"))

    def test_a_pipe_stays(self, path, write):
        os.mkfifo(path)
        with pytest.raises((LandscapeWriteError, FileWriteError), match="is no regular file and was left as it is"):
            write()
        assert path.is_fifo()

    def test_its_file_is_replaced_unless_it_is_read_only(self, path, write):
        write()
        before = path.stat()
        write()
        assert path.stat().st_ino != before.st_ino
        path.write_bytes(b"")
        write()
        assert path.stat().st_size > 0
        path.chmod(0o444)
        before = path.stat()
        with pytest.raises((LandscapeWriteError, FileWriteError), match="is read-only and was left as it is"):
            write()
        assert path.stat().st_ino == before.st_ino


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    path = tmp_path / "plane.safetensors"
    left, of_the_living, of_another = (
        tmp_path / f".{name}.{process}.0123abcd.tmp"
        for name, process in ((path.name, ended.pid), (path.name, os.getpid()), ("other.safetensors", ended.pid))
    )
    for temporary in (left, of_the_living, of_another):
        temporary.write_bytes(b"half a plane")
    random_plane(trained(0)).save(path)
    assert {item.name for item in tmp_path.iterdir()} == {path.name, of_the_living.name, of_another.name}


def test_urls(monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError("write only")

    with empty_memory() as system:
        system.pipe_file("/run/a.h5", b"weights")
        place = check_directory("output", "memory://run/a.h5")
        with pytest.raises(LandscapeWriteError, match=INPUT):
            check_no_input("output", place, ["memory:///run/a.h5"])
        check_no_input("output", place, ["memory://run/b.h5", "a.h5"])
        with pytest.raises(LandscapeWriteError, match=r"memory://.*a\.h5 " + NO_LANDSCAPE):
            check_replaceable(place, LANDSCAPE)
        image = io.BytesIO()
        with h5py.File(image, "w") as file:
            file.attrs["format"] = np.bytes_("another")
        system.pipe_file("/run/a.h5", image.getvalue())
        with pytest.raises(LandscapeWriteError, match=NO_LANDSCAPE):
            check_replaceable(place, LANDSCAPE)
        check_replaceable(check_directory("output", "memory://run/none.h5"), LANDSCAPE)
        monkeypatch.setattr(type(system), "cat_file", forbidden)
        with pytest.raises(LandscapeWriteError, match=r"a\.h5 cannot be read, .*: PermissionError: write only"):
            check_replaceable(place, LANDSCAPE)


def test_networks_in_memory_are_no_files_of_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = barrier(trained(0), trained(1), callback_fn, points=3, output="a", **HOW)
    again = barrier(trained(0), trained(1), callback_fn, points=3, output="a", **HOW)
    assert again.height == found.height


@pytest.mark.parametrize(
    "typed",
    [
        ("evaluate", "a.pt", "-o", "a.pt", "--kind", "hessian"),
        ("connect", "A=a.pt", "B=b.pt", "-o", "b.pt"),
        ("connect", "a.pt", "b.pt", "--kind", "bezier", "-o", "b.pt"),
        ("connect", "a.pt", "b.pt", "--align", "-o", "b.pt"),
        ("compare", "x=a.pt", "y=b.pt", "-o", "b.pt"),
    ],
    ids=lambda typed: typed[0],
)
def test_on_the_command_line(weights, monkeypatch, typed):
    monkeypatch.chdir(weights)
    with pytest.raises(LandscapeWriteError, match=r"^--output must not be one of the inputs, but "):
        invoke(*typed, "--function", "two_networks:callback_fn", "--overwrite")


def test_an_import_leaves_its_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    landscape(5, 5).export("li.h5", "li")
    before = (tmp_path / "li.h5").read_bytes()
    with pytest.raises(LandscapeWriteError, match=r"^--output must not be one of the inputs, but li\.h5 is one\."):
        invoke("convert", "li.h5", "--from", "auto", "-o", "li.h5", "--overwrite")
    with pytest.raises(LandscapeWriteError, match=NO_LANDSCAPE):
        Landscape.import_file("li.h5").save("li.h5", overwrite=True)
    assert (tmp_path / "li.h5").read_bytes() == before


@pytest.mark.parametrize("typed", [("plot", "png", "-o"), ("plot", "html"), ("plot", "html", "-o")], ids=" ".join)
def test_no_picture_of_a_landscape_takes_its_place(tmp_path, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    command, suffix, *given = typed
    name = f"odd.{suffix}"
    landscape(5, 5).save("odd.h5").rename(name)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(LandscapeWriteError, match=r"^--output must not be one of the inputs"):
        invoke(command, name, *(["-o", name] if given else []))
    assert (tmp_path / name).read_bytes() == before


def test_no_film_of_a_landscape_takes_its_place(tmp_path):
    path = landscape(5, 5).save(tmp_path / "odd.h5").rename(tmp_path / "odd.gif")
    with pytest.raises(LandscapeWriteError, match="path must not be one of the inputs"):
        Landscape.load(path).save_animation(path)
    assert len(Landscape.load(path).loss) == 5
