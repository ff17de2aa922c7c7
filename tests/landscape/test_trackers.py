"""Landscapes in TensorBoard, and at a training's end; other trackers are in tests/frameworks/test_trackers.py."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import invoke
from event_reading import accumulated, events
from figure_cases import build, build_line
from matplotlib import image
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from collectors import SummaryCollector, SummaryRecord
from collectors.run_directory import RunDirectory
from landscape import DrawAtEnd, Landscape
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
        *(
            ((Landscape(build()),), {"name": name}, ValueError, "name must be a name such as landscape or landscapes/e")
            for name in ("../up", "landscapes/", ".", "é" * 101)
        ),
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
        ("--to mlflow --run a --project b", "--project must be left out with --run, whose experiment is known"),
        ("--to mlflow --directory a", "--directory is for --to tensorboard; leave it out"),
    ],
)
def test_options_that_do_not_fit(landscape, arguments, match):
    with pytest.raises(ValueError, match=match):
        invoke("convert", landscape.path, *arguments.split())


EPOCHS = {"unit": "epoch", "intervals": [[0, 1, 2, 3]], "landscape_size": 3, "num_samples": 32}
STEMS = ["landscape_0-3_pca", "landscape_3_random"]


def samples():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(32, 16, generator=generator), torch.randint(0, 3, (32,), generator=generator)


def new_network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 3))


def callback_fn():
    return nn.CrossEntropyLoss(), new_network(), samples(), {}


def train(run, at_end, **options):
    """Trains three epochs of four steps in a hand-written loop."""
    network = new_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    images, targets = samples()
    collector = SummaryCollector(run, collect_landscape=EPOCHS, keep_default_action=False, at_end=at_end, **options)
    with collector.watch(network) as watched:
        for _ in range(3):
            for part in range(0, 32, 8):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(network(images[part : part + 8]), targets[part : part + 8])
                loss.backward()
                optimizer.step()
                watched.step(loss)
            watched.end_epoch()
    return network


@pytest.mark.slow
def test_a_training_ends_with_its_pictures(tmp_path):
    logged = []
    network = train(tmp_path / "run", DrawAtEnd(callback_fn, log=[logged.append], progress=False))
    assert [item.path.stem for item in logged] == STEMS
    for stem in STEMS:
        landscape = Landscape.load(tmp_path / "run" / f"{stem}.h5")
        assert landscape.complete
        picture = image.imread(tmp_path / "run" / f"{stem}.png")
        assert picture.std() > 0.05
    images, targets = samples()
    with torch.no_grad():
        final = float(nn.functional.cross_entropy(network(images), targets))
    assert logged[0].origin.metrics["loss"] == pytest.approx(final, rel=1e-5)


@pytest.mark.slow
def test_a_line_along_an_eigenvector_has_its_picture(tmp_path):
    logged = []
    wanted = {"landscape_size": 4, "create_landscape": {"train": False, "result": True}}
    how = {"output": tmp_path / "pictures", "directions": "hessian", "which": "top", "progress": False}
    train(tmp_path / "run", DrawAtEnd(callback_fn, wanted, log=[logged.append], **how))
    assert [(item.y, item.path.parent) for item in logged] == [(None, tmp_path / "pictures")]
    assert logged[0].path.with_suffix(".png").is_file()


def test_named_arrays_end_with_it_too(tmp_path):
    called = []
    with SummaryCollector(tmp_path / "run", collect_landscape=EPOCHS, at_end=called.append) as collector:
        for number in range(4):
            collector.snapshot(number, {"weight": torch.randn(3).numpy()})
            assert called == []
    assert called == [str(tmp_path / "run")]
    assert RunDirectory(tmp_path / "run").present((0, 1, 2, 3)) == [0, 1, 2, 3]


def test_a_failure_at_the_end_costs_nothing_of_the_training(tmp_path):
    def broken():
        raise OSError("the data set is gone")

    text = f"everything that it recorded is in {tmp_path / 'run'}, but at_end failed: .*the data set is gone"
    with pytest.warns(UserWarning, match=re.compile(text, re.DOTALL)):
        network = train(tmp_path / "run", DrawAtEnd(broken, progress=False))
    checkpoint = RunDirectory(tmp_path / "run").checkpoint(3)
    assert (checkpoint.read("0.weight") == network[0].weight.detach().numpy()).all()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: DrawAtEnd("train:callback_fn"), "callback_fn must be a function without arguments, but got str"),
        (lambda: DrawAtEnd(callback_fn, log=print), r"log must be a list of functions of a Landscape, such as"),
        (lambda: DrawAtEnd(callback_fn, log=["wandb"]), r"log must be a list of functions of a Landscape, such as"),
        (lambda: DrawAtEnd(callback_fn, sise=3), r"DrawAtEnd\(\) got an unexpected keyword argument 'sise'"),
        (lambda: SummaryCollector("run", at_end="draw"), r"at_end must be a function of the run directory, such as"),
    ],
)
def test_wrong_arguments_are_found_before_the_training(make, match):
    with pytest.raises(TypeError, match=match):
        make()
    assert not Path("run").exists()
