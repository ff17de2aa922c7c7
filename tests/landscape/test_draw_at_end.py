"""DrawAtEnd: a training that ends with its picture."""

import re
from pathlib import Path

import pytest
import torch
from matplotlib import image
from torch import nn

from collectors import Model, SummaryCollector
from collectors.run_directory import RunDirectory
from landscape import DrawAtEnd, Landscape

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


def train(run, at_end, crash=None, **options):
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
            if crash is not None:
                raise crash
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
def test_our_model_ends_with_its_pictures(tmp_path):
    network = new_network()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples()), 8)
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.Adam(network.parameters(), 0.05))
    at_end = DrawAtEnd(callback_fn, {"landscape_size": 4}, output=tmp_path / "pictures", progress=False)
    collector = SummaryCollector(tmp_path / "run", collect_landscape=EPOCHS, keep_default_action=False, at_end=at_end)
    model.train(3, data, callbacks=[collector])
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {stem + ending for stem in STEMS for ending in (".h5", ".png")}
    assert Landscape.load(tmp_path / "pictures" / f"{STEMS[0]}.h5").loss.shape == (4, 4)


def test_named_arrays_end_with_it_too(tmp_path):
    called = []
    with SummaryCollector(tmp_path / "run", collect_landscape=EPOCHS, at_end=called.append) as collector:
        for number in range(4):
            collector.snapshot(number, {"weight": torch.randn(3).numpy()})
            assert called == []
    assert called == [str(tmp_path / "run")]
    assert RunDirectory(tmp_path / "run").present((0, 1, 2, 3)) == [0, 1, 2, 3]


def test_a_training_that_fails_is_not_drawn(tmp_path):
    with pytest.raises(ArithmeticError):
        train(tmp_path / "run", DrawAtEnd(callback_fn, progress=False), crash=ArithmeticError("the loss"))
    assert RunDirectory(tmp_path / "run").present((0, 1)) == [0, 1]
    assert not list((tmp_path / "run").glob("*.h5"))


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
