"""Landscapes in TensorBoard; those in Weights & Biases and MLflow are tried in tests/frameworks/test_trackers.py."""

import io
import re

import numpy as np
import pytest
from command_line import invoke
from event_reading import accumulated, events
from figure_cases import build, build_line
from matplotlib import image
from torch.utils.tensorboard import SummaryWriter

from collectors import SummaryRecord
from landscape import Landscape
from landscape.figures import figure_pixels
from landscape.trackers import log_to_mlflow, log_to_tensorboard, log_to_wandb


@pytest.fixture
def landscape(tmp_path):
    path = Landscape(build()).save(tmp_path / "landscape_0-3_pca.h5")
    return Landscape.load(path)


def shown(folder, tag):
    """Returns the pixels and steps of an image as TensorBoard reads them."""
    found = accumulated(folder).Images(tag)
    pictures = [image.imread(io.BytesIO(item.encoded_image_string)) for item in found]
    return [np.round(picture[:, :, :3] * 255).astype(np.uint8) for picture in pictures], [item.step for item in found]


@pytest.mark.slow
def test_tensorboard_shows_the_picture(landscape, tmp_path):
    log_to_tensorboard(landscape)
    (picture,), steps = shown(tmp_path, "landscape_0-3_pca")
    assert np.array_equal(picture, figure_pixels(landscape.plot_contour()))
    assert steps == [0]


@pytest.mark.slow
def test_the_picture_has_the_look_and_the_name_that_are_asked_for(landscape, tmp_path):
    log_to_tensorboard(landscape, tmp_path / "events", name="surfaces/end", step=12, theme="dark")
    (picture,), steps = shown(tmp_path / "events", "surfaces/end")
    assert np.array_equal(picture, figure_pixels(landscape.plot_contour(theme="dark")))
    assert steps == [12]


def test_the_writer_of_a_trainers_logger_is_taken(tmp_path):
    landscape = Landscape(build_line(np.linspace(-1, 1, 9) ** 2))
    with SummaryWriter(str(tmp_path)) as writer:
        log_to_tensorboard(landscape, writer, name="line", step=3)
    (picture,), steps = shown(tmp_path, "line")
    assert np.array_equal(picture, figure_pixels(landscape.plot_profile()))
    assert steps == [3]


@pytest.mark.slow
def test_a_landscape_is_recorded_as_picture_and_numbers(landscape, tmp_path):
    values = landscape.summary_values()
    assert (values["image"].dtype, values["image"].shape[:2]) == (np.uint8, (1, 3))
    assert values["image"].std() > 20
    np.testing.assert_array_equal(values["tensor"], landscape.loss)
    with SummaryRecord(tmp_path, raise_exception=True) as record:
        record.add_value("landscape", "result", landscape)
        record.record(1)
    tags = {value.tag: value for event in events(tmp_path) for value in event.summary.value}
    picture = next(value for tag, value in tags.items() if tag.startswith("result/image"))
    encoded = picture.image.encoded_image_string or picture.tensor.string_val[-1]
    assert image.imread(io.BytesIO(encoded)).shape[:2] == values["image"].shape[2:]
    assert any(tag.startswith("result/tensor") for tag in tags)


def test_a_landscape_in_memory_needs_a_place(tmp_path):
    with pytest.raises(ValueError, match="place must be a folder: this landscape lies in no folder of this machine"):
        log_to_tensorboard(Landscape(build()))
    log_to_tensorboard(Landscape(build()), tmp_path)
    assert shown(tmp_path, "landscape")[1] == [0]


@pytest.mark.parametrize("log", [log_to_tensorboard, log_to_wandb, log_to_mlflow])
@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        (("a.h5",), {}, TypeError, "landscape must be a Landscape, but got str"),
        ((Landscape(build()),), {"name": 3}, TypeError, "name must be a str, but got int"),
        ((Landscape(build()),), {"name": "../up"}, ValueError, "name must be a name such as landscape or"),
    ],
)
def test_wrong_arguments(log, arguments, options, error, match):
    with pytest.raises(error, match=re.escape(match)):
        log(*arguments, **options)


def test_a_wrong_place_and_step(landscape):
    with pytest.raises(TypeError, match="place must be a folder or a SummaryWriter, but got int"):
        log_to_tensorboard(landscape, 3)
    with pytest.raises(ValueError, match="step must be an int of at least 0, but got -1"):
        log_to_tensorboard(landscape, step=-1)


@pytest.mark.parametrize(("log", "extra"), [(log_to_wandb, "wandb"), (log_to_mlflow, "mlflow")])
def test_a_missing_package_is_named(log, extra, landscape):
    # The core environment has neither package, and tests/frameworks has both.
    with pytest.raises(ImportError, match=rf"pip install 'summary-landscape\[{extra}\]'"):
        log(landscape)


def test_the_command_shows_a_file_in_tensorboard(landscape, tmp_path):
    said = invoke("convert", landscape.path, "--to", "tensorboard", "--directory", tmp_path / "events")
    assert "logged to tensorboard" in said.output
    assert shown(tmp_path / "events", "landscape_0-3_pca")[1] == [0]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ("--to tensorflow", "--to must be one of 'tensorboard', 'wandb', 'mlflow', but got 'tensorflow'"),
        ("--to tensorboard --run a", "--run is for --to wandb and --to mlflow; leave it out"),
        ("--to mlflow --directory a", "--directory is for --to tensorboard; leave it out"),
    ],
)
def test_options_that_do_not_fit(landscape, arguments, match):
    with pytest.raises(ValueError, match=match):
        invoke("convert", landscape.path, *arguments.split())
