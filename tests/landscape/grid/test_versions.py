"""Files of earlier versions are read, with the values that they held then; tests/data/versions/write.py wrote them."""

import json

import numpy as np
import pytest
from places import ROOT
from safetensors.numpy import load_file

from landscape import Comparison, Curvature, Landscape, Plane
from landscape.facts import summary_text
from landscape.paths.path import Path as PathOfNetworks

FOLDER = ROOT / "tests/data/versions"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
LOAD = {"landscape": Landscape, "line": Landscape, "run": Landscape, "curvature": Curvature, "comparison": Comparison}


@pytest.mark.parametrize("name", EXPECTED)
def test_values_of_hdf5_files(name):
    loaded = LOAD[name.split("_")[0]].load(FOLDER / name)
    for field, values in EXPECTED[name].items():
        found = loaded.checkpoints.metrics["loss"] if field == "checkpoint_loss" else getattr(loaded, field)
        np.testing.assert_array_equal(np.asarray(found, float), np.asarray(values, float), err_msg=field)
    assert loaded.complete


def test_what_the_optimizer_saw_is_read_where_an_earlier_version_measured_it_and_is_written_again(tmp_path):
    with_shares, without = (Curvature.load(FOLDER / f"curvature_1{end}.h5") for end in ("_thor", ""))
    assert np.isfinite(with_shares.share_seen_by_optimizer).all()
    assert np.isnan(without.share_seen_by_optimizer).all()
    again = Curvature.load(with_shares.save(tmp_path / "again.h5"))
    np.testing.assert_array_equal(again.share_seen_by_optimizer, with_shares.share_seen_by_optimizer)


def test_a_landscape_along_factors_says_whose_curvature_it_is():
    landscape = Landscape.load(FOLDER / "factors/landscape_4_factors.h5")
    plane = Plane.load(FOLDER / "factors/landscape_4_factors_directions.safetensors")
    value = plane.curvature.eigenvalues[0]
    label = f"1st factor eigenvector (optimizer's curvature {value:.4g})"
    assert label in landscape.plot_contour().get_xlabel().replace("\n", " ")
    assert "optimizer's curvature: 1st" in summary_text(landscape)


def test_a_plane():
    tensors, plane = load_file(FOLDER / "plane_1.safetensors"), Plane.load(FOLDER / "plane_1.safetensors")
    for group, state in (("origin", plane.origin), *((f"direction_{i}", d) for i, d in enumerate(plane.directions))):
        for name, array in state.items():
            np.testing.assert_array_equal(array, tensors[f"{group}/{name}"])


def test_a_path():
    tensors, path = load_file(FOLDER / "path_1.safetensors"), PathOfNetworks.load(FOLDER / "path_1.safetensors")
    for end in ("first", "last"):
        for name, array in getattr(path.curve, end).items():
            np.testing.assert_array_equal(array, tensors[f"{end}/{name}"])
    np.testing.assert_array_equal(path.losses, tensors["fitting/losses"])


def test_eigenvectors():
    tensors = load_file(FOLDER / "curvature_1_vectors_0.safetensors")
    curvature = Curvature.load(FOLDER / "curvature_1.h5")
    for index, direction in enumerate(curvature.vectors(int(curvature.number[0]))):
        for name, array in direction.items():
            np.testing.assert_array_equal(array, tensors[f"eigenvector_{index}/{name}"])
