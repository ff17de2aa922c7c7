"""The curvature file and what a user holds of it: whole, bounded, read-only."""

import copy
import pickle

import h5py
import numpy as np
import pytest
from curvature_cases import curvature_record
from scipy.integrate import trapezoid

from landscape import Curvature
from landscape.curvature.facts import curvature_json, curvature_text
from landscape.errors import LandscapeFormatError, LandscapeNotFoundError
from landscape.record.record import record_bytes


def build():
    """Curvature of which the last set of weights failed."""
    data = curvature_record((2, 4), status=(1, 1, 3))
    del data.attributes["learning_rate"]
    data.residuals[:-1] /= 10
    data.density_nodes[0, 1, 3] = np.nan
    data.density_weights[:-1] /= data.density_weights[:-1].sum(axis=2, keepdims=True)
    return data


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "curvature_0-5.h5"
    target.write_bytes(record_bytes(build()))
    return target


@pytest.fixture
def found(path):
    return Curvature.load(path)


def test_other_formats(path, tmp_path):
    with h5py.File(path, "r+") as file:
        file.attrs.modify("format_version", 3)
    with pytest.raises(LandscapeFormatError, match=r"has format_version 3, this program reads 1 and 2. Install"):
        Curvature.load(path)
    with pytest.raises(LandscapeNotFoundError, match=r"there is no curvature file .*Measure the curvature first"):
        Curvature.load(tmp_path / "absent.h5")


def test_it_is_read_only_and_can_be_copied_and_pickled(found, path):
    with pytest.raises(AttributeError, match="read-only"):
        found.loss = found.trace
    with pytest.raises(ValueError, match="read-only"):
        found.loss[0] = 1
    with pytest.raises(TypeError):
        found.attributes["top"] = 1
    for twin in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert record_bytes(twin) == path.read_bytes()
    assert repr(found).startswith("Curvature(Hessian at 3 epochs (0 to 5); largest eigenvalue ")
    assert "2 of 3 measured" in repr(found)


def test_rows_and_numbers(found):
    assert found.row() == 1  # the last one that is measured
    assert found.row(0) == 0
    with pytest.raises(ValueError, match=r"number must be one of \[0, 2, 5\], but got 3"):
        found.row(3)
    with pytest.raises(TypeError, match="number must be"):
        found.row("last")


def test_the_density_is_one_of_all_eigenvalues(found):
    for width in (None, 0.05):
        places, density = found.density(2, width)
        assert trapezoid(density, places) == pytest.approx(1, abs=1e-3)
        mean = np.mean(np.nansum(found.density_nodes[1] * found.density_weights[1], axis=1))
        assert trapezoid(density * places, places) == pytest.approx(mean, abs=1e-3)
    with pytest.raises(ValueError, match=r"no density of the eigenvalues was measured here; .*density_probes=4"):
        found.density(5)
    with pytest.raises(ValueError, match="width must be a number above 0"):
        found.density(2, width=0.0)


def test_what_it_holds_in_words(found):
    text = curvature_text(found)
    largest, second, lowest = (
        f"{value:.4g} ± {error:.0e}".replace("e-0", "e-")
        for value, error in zip(found.eigenvalues[1], found.residuals[1], strict=True)
    )
    for part in (
        f"eigenvalues {largest}, {second}; lowest {lowest}",
        "Hessian of the mean loss, 1210 trainable weights", "2 measured, 1 failed", "the 2 largest and the 1 lowest",
        "epoch 2 ", "2 probes of 4 products", "80 in all, about as long as 408 losses", "64 (first)",
        "a note", "epoch 5: CurvatureError: the löss is \\x00 nan",
    ):  # fmt: skip
        assert part in text
    facts = curvature_json(found)
    assert facts["kind"] == "curvature"
    assert facts["status"] == ["measured", "measured", "failed"]
    assert facts["eigenvalues"][2] == [None, None, None]
    assert facts["density"] == {"probes": 2, "steps": 4}


def test_the_caption_of_a_sharpness(path):
    caption = Curvature.load(path).caption()
    assert caption.text == (
        "Sharpness of the Hessian of the mean loss of Net, with 1,210 trainable weights, at 3 checkpoints (epochs 0 to "
        "5). The 2 largest and the 1 lowest, searched to a tolerance of 0.001 (of itself, or of a thousandth of the "
        "largest). The trace has its 95 % interval. Not measured: "
        "epoch 5. Measured on 64 samples (the first ones of the data set)."
    )
    data = build()
    data.eigenvalues[:2, 0], data.eigenvalues[:2, 2], data.trace[:2] = [3.0, 36.5], [-1.0, -2.0], np.nan
    data.converged[1, 2] = 0
    data.attributes["learning_rate"] = 0.05
    caption = Curvature(data).caption()
    assert "a thousandth of the largest); 1 did not get so exact and is hollow." in caption.text
    assert "The dashed line is 2 / learning rate, gradient descent's limit (Cohen et al. 2021)." in caption.text
    assert caption.alt == (
        "Curves over checkpoints. The largest eigenvalue goes from 3 at epoch 0 to 36.5 at epoch 2. "
        "The lowest eigenvalue goes from -1 at epoch 0 to -2 at epoch 2."
    )


def test_a_loss_that_adds_samples_up_is_no_mean():
    data = build()
    data.attributes["reduction"] = "sum"
    assert "Hessian of the summed loss, 1210 trainable weights" in curvature_text(data)
    for kind in ("sharpness", "spectrum"):
        assert "the Hessian of the summed loss of Net, with" in Curvature(data).caption(kind).text


def test_the_caption_of_a_trace_alone():
    data = curvature_record(top=0, bottom=0, status=(1,))
    del data.attributes["learning_rate"]
    data.trace[:], data.trace_low[:] = 12.5, np.nan
    caption = Curvature(data).caption()
    assert "1,210 trainable weights, at epoch 0. Measured on 64 samples" in caption.text
    assert caption.alt == "Curves over checkpoints. The trace is 12.5 at epoch 0."


def test_the_caption_of_a_spectrum():
    data = build()
    data.eigenvalues[1], data.residuals[1] = [36.5, 2.0, -1.25], [0.004, 0.1, 0.02]
    caption = Curvature(data).caption("spectrum")
    data.converged[:2] = [[0, 0, 0], [1, 1, 0]]
    assert "of the largest); 1 did not get so exact. Measured on" in Curvature(data).caption("spectrum").text
    data.converged[1] = 1
    assert "of the largest). Measured on" in Curvature(data).caption("spectrum").text
    density = "at epoch 2. Density: stochastic Lanczos quadrature, 2 probes of 4 products. Ticks (bars are"
    assert density in caption.text
    assert caption.alt == (
        "A density over eigenvalues. The largest eigenvalue is 36.5 ± 0.004. The lowest eigenvalue is -1.25 ± 0.02."
    )
    with pytest.raises(ValueError, match=r"number must be that of a checkpoint whose curvature is measured \(0, 2\)"):
        Curvature(data).caption("spectrum", 5)
    with pytest.raises(ValueError, match="kind must be one of 'sharpness', 'spectrum', but got 'density'"):
        Curvature(data).caption("density")


def test_an_interval_says_how_sure_it_is():
    data = build()
    data.trace[:2], data.trace_low[:2], data.trace_high[:2] = [20.66, 7], [19, np.nan], [22.5, np.nan]
    text = curvature_text(data)
    assert "trace 20.66 (95 % interval 19 to 22.5)" in text
    assert "trace 7 (of one probe, without an interval)" in text
