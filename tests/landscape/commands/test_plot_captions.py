"""``landscape plot --caption``: the file beside the picture, and the text in it, are about that picture."""

import numpy as np
import pytest
from command_line import invoke
from data_sets import with_test_set
from figure_cases import build, build_line
from PIL import Image

from landscape.grid.landscape_file import write_landscape


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    plane = with_test_set(build(rows=6, columns=7, points=0, num_samples=256, samples="first"))
    plane.metrics["loss_stderr@test"] = np.full((6, 7), 0.1)
    write_landscape(folder / "plane.h5", plane)
    for name, loss in (("straight", [1.0, 3.0, 1.0]), ("curved", [1.0, 100.0, 1.0])):
        way = build_line(loss)
        way.x[:] = [0.0, 0.5, 1.0]
        write_landscape(folder / f"{name}.h5", way)
    return folder


def captions(folder, target, files, *options):
    """Returns the captions of a picture, each with its alternative text, and the text that is in the picture."""
    paths = [folder / f"{name}.h5" for name in files.split()]
    invoke("plot", *paths, "-o", target, "--dpi", "40", "--caption", *options)
    text = target.with_name(f"{target.stem}_caption.txt").read_text(encoding="utf-8")
    with Image.open(target) as picture:
        return text.split("\nCaption: "), picture.info["Description"]


def test_a_difference_has_one(folder, tmp_path):
    options = ["--kind", "difference", "--metric", "loss@test", "--metric", "loss"]
    (text,), stored = captions(folder, tmp_path / "a.png", "plane", *options)
    assert text.startswith("Caption: Loss on test minus loss on train of LeNet")
    assert "loss on test: each point is measured on 64 samples" in text
    assert stored.startswith("Filled contours of the loss on test minus loss on train of LeNet. The difference ranges")
    assert stored in text


def test_barriers_have_one_on_the_scale_of_the_picture(folder, tmp_path):
    (text,), stored = captions(folder, tmp_path / "a.png", "straight curved", "--kind", "barriers")
    assert "straight: barrier 2 at 0.5 of the way. curved: barrier 99 at 0.5 of the way." in text
    assert "log scale" not in text
    assert stored.startswith("2 curves of loss between two networks. straight: The loss ranges from 1 to 3.")


@pytest.mark.slow
def test_multiples_have_one_each(folder, tmp_path):
    found, stored = captions(folder, tmp_path / "a.png", "plane", "--metric", "loss", "--metric", "loss@test")
    assert len(found) == 2
    assert ["64 samples" in text for text in found] == [False, True]
    assert all(f"Picture {number} of 2: Filled contours of loss on" in stored for number in (1, 2))


def test_uncertainty_is_that_of_the_metric(folder, tmp_path):
    options = ["--kind", "uncertainty", "--metric", "loss@test"]
    (text,), stored = captions(folder, tmp_path / "a.png", "plane", *options)
    assert text.startswith("Caption: Standard error of loss on test over samples of LeNet")
    assert "Flat: standard error of loss on test over samples is 0.1 at all 42 finite points." in stored


def test_a_barrier_that_minima_must_have_is_said(folder, tmp_path):
    options = ["--kind", "merge_tree", "--persistence", "0.5"]
    (text,), stored = captions(folder, tmp_path / "a.png", "plane", *options)
    assert "A minimum counts where its barrier is higher than 0.5." in text
    assert stored.startswith("A merge tree of the minima of loss on train of LeNet.")
