"""An evaluator of a user's own that has the five methods alone gives every grid (contract 2)."""

import contextlib
import functools

import numpy as np
import pytest

from collectors.networks.weight_space import TensorInfo, WeightSpace
from landscape import evaluate, line_between
from landscape.functions import connect, measure_curvature, refine, widen
from landscape.planes import custom_plane
from workers.errors import CurvatureError, CurveError
from workers.evaluator import Evaluator, EvaluatorDescription, FitsCurves, MakesProducts
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan

SPACE = WeightSpace(
    "none",
    "Bowl",
    (
        TensorInfo("place", (3,), "float64", "parameter", trainable=True),
        TensorInfo("depth", (1,), "float64", "buffer", trainable=False),
    ),
)
BENT = np.array([1.0, 2.0, 5.0])
FIRST = {"place": np.array([0.5, 0.0, -0.5]), "depth": np.array([1.0])}
LAST = {"place": np.array([-1.0, 1.0, 0.5]), "depth": np.array([3.0])}
AXES = [{"place": np.array([1.0, 0.0, 0.0])}, {"place": np.array([0.0, 1.0, 1.0])}]


class Bowl(Evaluator):
    """A squared distance, plus a buffer."""

    def __init__(self, buffers="fixed"):
        options = MeasurementOptions(buffers=buffers)
        self._description = EvaluatorDescription(
            SPACE, ("loss", "depth"), 1, "0" * 64, options, False, MeasurementPlan(), "cpu"
        )

    @property
    def description(self):
        return self._description

    def load(self, origin, directions, buffers, end_buffers=()):
        self.origin, self.directions, self.buffers, self.end_buffers = origin, directions, buffers, end_buffers

    def measure(self, points):
        rows = [self.measure_state(self._place(point), self._buffers(point)) for point in points]
        return {name: np.array([row[name] for row in rows]) for name in self.description.metrics}

    def measure_state(self, parameters, buffers):
        depth = float((self.buffers if buffers is None else buffers)["depth"][0])
        return {"loss": float(BENT @ parameters["place"] ** 2) + depth, "depth": depth}

    def close(self):
        self.origin = None

    def _place(self, point):
        shifts = [share * direction["place"] for share, direction in zip(point, self.directions, strict=True)]
        return {"place": self.origin["place"] + sum(shifts)}

    def _buffers(self, point):
        if not self.end_buffers:
            return self.buffers
        (share,), (end,) = np.clip(point, 0, 1), self.end_buffers
        return {"depth": (1 - share) * self.buffers["depth"] + share * end["depth"]}


def plane():
    return custom_plane(FIRST, AXES, network=SPACE)


def surface(x, y, depth=1.0):
    """What the loss is on the plane, shape (ny, nx)."""
    places = FIRST["place"] + np.multiply.outer(np.ones(len(y)), np.multiply.outer(x, AXES[0]["place"]))
    places = places + np.multiply.outer(np.multiply.outer(y, np.ones(len(x))), AXES[1]["place"])
    return places**2 @ BENT + depth


def test_the_contract_is_five_methods():
    five = {"description", "load", "measure", "measure_state", "close"}
    assert {name for name in vars(Evaluator) if not name.startswith("_")} == five
    assert not isinstance(Bowl(), MakesProducts | FitsCurves)


@pytest.mark.parametrize("device_ids", [[0], pytest.param([0, 1], marks=pytest.mark.slow)])
def test_a_whole_grid_and_what_becomes_of_it(tmp_path, device_ids):
    path, how = tmp_path / "bowl.h5", {"device_ids": device_ids, "progress": False}
    found = evaluate(plane(), Bowl, size=(5, 4), output=path, **how)
    np.testing.assert_allclose(found.loss, surface(found.x, found.y), rtol=1e-12)
    assert (found["depth"] == 1).all()
    finer = refine(path, Bowl, factor=2, plane=plane(), **how)
    assert finer.loss.shape == (7, 9)
    wider = widen(path, Bowl, margin=0.5, plane=plane(), **how)
    for changed in (finer, wider):
        np.testing.assert_allclose(changed.loss, surface(changed.x, changed.y), rtol=1e-12)
    assert wider.x[0] < finer.x[0]
    assert np.isin(found.x, wider.x).all()


def test_adaptive_sampling():
    found = evaluate(plane(), Bowl, size=33, sampling="adaptive", device_ids=[0], progress=False)
    measured = found.status == 1
    assert 0 < measured.sum() < measured.size
    np.testing.assert_allclose(found.loss[measured], surface(found.x, found.y)[measured], rtol=1e-12)


@pytest.mark.parametrize("buffers", ["fixed", "interpolate"])
def test_a_line_and_its_buffers(buffers):
    line = line_between(FIRST, LAST, network=SPACE)
    differs = pytest.warns(UserWarning, match="the loss drawn at b is 5.25, but its own is 7.25")
    with differs if buffers == "fixed" else contextlib.nullcontext():
        callback_fn = functools.partial(Bowl, buffers)
        found = evaluate(line, callback_fn, buffers=buffers, size=9, device_ids=[0], progress=False)
    places = FIRST["place"] + np.multiply.outer(found.x, LAST["place"] - FIRST["place"])
    depths = 1 + 2 * np.clip(found.x, 0, 1) if buffers == "interpolate" else np.ones(len(found.x))
    np.testing.assert_allclose(found["depth"].ravel(), depths, rtol=1e-12)
    np.testing.assert_allclose(found.loss.ravel(), places**2 @ BENT + depths, rtol=1e-12)


def test_what_needs_gradients_is_refused_by_name():
    with pytest.raises(CurvatureError, match=r"Bowl makes no products of the Hessian, .* measures the trace"):
        measure_curvature(FIRST, Bowl, device_ids=[0], progress=False)
    with pytest.raises(CurveError, match=r"Bowl cannot fit a curve, which needs gradients .* \(Measure\.barrier\)"):
        connect(FIRST, LAST, Bowl, device_ids=[0], progress=False)
