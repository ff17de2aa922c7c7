"""Landscapes along eigenvectors: a run's result, files that go on, other grids, and what pictures say of them."""

import json
import shutil
import sys

import numpy as np
import pytest
from command_line import invoke
from examples import regression, train_run
from landscape_examples import write_landscape
from places import SUPPORT
from saddles import callback_fn, saddle

from landscape import Landscape, MeasurementPlan, Plane, SummaryLandscape, evaluate
from landscape.drawing.texts import axis_label, short_axis_label, title
from landscape.errors import LandscapeIdentityError, LandscapeLockedError, PlaneError
from landscape.exchange import export_landscape
from landscape.facts import summary_text
from landscape.functions import hessian_plane, refine, widen
from landscape.grid.landscape_file import read_landscape
from landscape.interactive.content import landscape_content
from landscape.record.checks import PointStatus
from landscape.record.writer import lock_landscape
from landscape.summary_json import summary_json
from workers.pools.in_process import InProcessPool

PLAN = MeasurementPlan(batch_size=64, threads=1)
HERE = {"device_ids": [0], "progress": False}
HOW = {**HERE, "plan": PLAN}
RESULT = {"create_landscape": {"train": False, "result": True}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eigenvectors") / "run"
    train_run(folder, regression, epochs=3, num_samples=50)
    (folder.parent / "eigenvector_callbacks.py").write_text(
        f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\nfrom examples import regression\n"
        "from saddles import callback_fn\n"
    )
    return folder


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A finished landscape of a saddle, whose vectors are kept; tests copy it."""
    path = tmp_path_factory.mktemp("saddle") / "saddle.h5"
    evaluate(plane_of(), callback_fn, size=5, output=path, **HOW)
    return path


def plane_of(**options):
    return hessian_plane(saddle(), callback_fn, **{"which": ("top", "bottom"), "rise": 0.05, **HERE, **options})


def forget(path, rows):
    data = read_landscape(path)
    data.status[rows], data.metrics["loss"][rows] = PointStatus.PENDING, np.nan
    write_landscape(path, data)
    return data


@pytest.fixture
def path(measured, tmp_path):
    """A copy of the landscape and its vectors."""
    for item in measured.parent.glob(f"{measured.stem}*"):
        shutil.copy(item, tmp_path)
    return tmp_path / measured.name


@pytest.fixture
def kept(path):
    return path.with_name("saddle_directions.safetensors")


@pytest.fixture
def elsewhere():
    """The plane as another machine finds it, with other last digits."""
    plane = plane_of()
    plane.directions[0].update({name: array * (1 + 1e-7) for name, array in plane.directions[0].items()})
    return plane


def measure(plane, path, **options):
    return evaluate(plane, callback_fn, size=5, output=path, **options, **HOW)


def draw(run, output, collect_landscape=None, **options):
    """Draws a run's landscapes."""
    drawn = SummaryLandscape(run).gen_landscapes_with_multi_process
    return drawn(regression, collect_landscape, output=output, **options, **HOW)


def forbid_products(monkeypatch):
    def fail(*_):
        raise AssertionError("the eigenvectors were computed again")

    monkeypatch.setattr(InProcessPool, "run_curvature", fail)


class TestRun:
    def test_the_result_goes_along_eigenvectors_and_lies_beside_the_others(self, run, tmp_path):
        train, result = draw(run, tmp_path, directions="hessian")
        (other,) = draw(run, tmp_path, RESULT, directions="hessian", which=("top", "bottom"))
        (plain,) = draw(run, tmp_path, RESULT)
        names = {item.name for item in tmp_path.glob("*.h5")}
        assert names == {
            "landscape_0-3_pca.h5", "landscape_3_hessian.h5", "landscape_3_hessian_top_bottom.h5",
            "landscape_3_random.h5",
        }  # fmt: skip
        kinds = [item.attributes["decomposition"] for item in (train, result, other, plain)]
        assert kinds == ["pca", "hessian", "hessian", "random"]
        assert train.directions.eigenvalues is None
        assert train.explained_variance_ratio is not None
        assert result.explained_variance_ratio is None
        assert result.checkpoints is None
        assert (result.origin.number, result.origin.role) == (3, "final weights")
        assert result.directions.eigenvalues[0] >= result.directions.eigenvalues[1] > 0
        assert other.directions.eigenvalues[0] == pytest.approx(result.directions.eigenvalues[0], rel=1e-5)
        assert result.directions.eigenvalues[1] > other.directions.eigenvalues[1]
        # The loss at the ends of the axes, if it were a parabola without a slope, would have risen by one.
        np.testing.assert_allclose(result.x[-1] ** 2 * result.directions.eigenvalues[0] / 2, 1)

    def test_the_same_call_again_reads_the_vectors(self, run, tmp_path, monkeypatch):
        (first,) = draw(run, tmp_path, RESULT, directions="ggn")
        data = forget(tmp_path / "landscape_3_ggn.h5", slice(1, None))
        forbid_products(monkeypatch)
        (again,) = draw(run, tmp_path, RESULT, directions="ggn")
        np.testing.assert_array_equal(again.loss, first.loss)
        assert again.report.measured == 1 + data.status[1:].size
        assert Plane.load(tmp_path / "landscape_3_ggn_directions.safetensors").decomposition == "ggn"

    def test_principal_directions_are_the_last_intervals_landscape(self, run, tmp_path):
        (only,) = draw(run, tmp_path, RESULT, directions="pca")
        assert only.path.name == "landscape_0-3_pca.h5"
        (again,) = draw(run, tmp_path, directions="pca")
        assert again.path == only.path

    def test_a_dry_run_says_what_the_vectors_cost_and_leaves_nothing(self, run, tmp_path, capsys, monkeypatch):
        forbid_products(monkeypatch)
        assert draw(run, tmp_path, RESULT, directions="hessian", dry_run=True) == []
        said = capsys.readouterr().out
        assert "landscape_3_hessian.h5: 25 points" in said
        assert "before that its directions, the eigenvectors top and second: about" in said
        assert list(tmp_path.iterdir()) == []


class TestFiles:
    def test_what_is_missing_is_measured_along_the_kept_vectors(self, measured, path, elsewhere):
        forget(path, slice(2))
        before, again = Landscape.load(measured), measure(elsewhere, path)
        np.testing.assert_array_equal(again.loss, before.loss)
        assert again.report.measured < before.status.size

    def test_lost_vectors_are_an_error_and_nothing_is_touched(self, path, kept, elsewhere):
        forget(path, slice(2))
        kept.unlink()
        bits, error = path.read_bytes(), r"along other eigenvectors .* Put that file back, or pass overw"
        with pytest.raises(LandscapeIdentityError, match=error):
            measure(elsewhere, path)
        assert path.read_bytes() == bits
        assert not kept.exists()
        assert measure(elsewhere, path, overwrite=True).complete
        assert kept.exists()

    def test_converged_vectors_are_not_exchanged_for_kept_ones_that_had_not(self, tmp_path):
        path = tmp_path / "few.h5"
        with pytest.warns(UserWarning, match=r"have not converged .* with another output= or overwrite=True"):
            few = plane_of(max_products=4)
        rough, bits = measure(few, path), path.read_bytes()
        with pytest.raises(LandscapeIdentityError, match=r"few_directions.* had not converged.* overwrite=True"):
            measure(plane_of(), path)
        assert path.read_bytes() == bits
        np.testing.assert_array_equal(measure(few, path).loss, rough.loss)
        assert measure(plane_of(), path, overwrite=True).directions.residuals.max() < 1e-3

    def test_vectors_of_the_same_bits_are_kept_again(self, path, kept):
        forget(path, slice(2))
        # One machine and one plan give the same bits.
        plane = Plane.load(kept)
        kept.unlink()
        assert measure(plane, path).complete
        assert kept.exists()

    def test_another_plane_leaves_file_and_vectors_alone(self, path, kept):
        bits = kept.read_bytes()
        with pytest.raises(LandscapeIdentityError, match=r"plane\.which"):
            measure(plane_of(which=("top", "second")), path)
        assert kept.read_bytes() == bits

    def test_a_file_that_is_being_written_is_not_disturbed(self, path):
        plane = plane_of()
        with lock_landscape(path), pytest.raises(LandscapeLockedError):
            measure(plane, path, overwrite=True)

    def test_kept_vectors_are_read_instead_of_computed(self, measured, monkeypatch):
        plane = plane_of()
        forbid_products(monkeypatch)
        again = plane_of(kept_beside=measured, rise=0.2)
        # Tuning may have chosen other batches, whose sums differ in their last bits.
        assert again.curvature.eigenvalues == pytest.approx(plane.curvature.eigenvalues, rel=1e-12)
        assert again.axes(3)[0][-1] == pytest.approx(2 * plane.axes(3)[0][-1])
        with pytest.raises(AssertionError, match="computed again"):
            plane_of(kept_beside=measured, seed=1)


class TestGrids:
    def test_refined_and_widened_in_place_and_beside(self, path, tmp_path, monkeypatch):
        before = Landscape.load(path)
        forbid_products(monkeypatch)
        finer = refine(path, callback_fn, factor=2, **HERE)
        np.testing.assert_array_equal(finer.loss[::2, ::2], before.loss)
        wider = widen(path, callback_fn, margin=0.25, output=tmp_path / "wide.h5", **HERE)
        assert wider.x[-1] >= 1.5 * before.x[-1] - 1e-12
        assert wider.attributes["curvature"] == before.attributes["curvature"]
        # Its vectors went with it, so that it can be refined in turn.
        assert refine(tmp_path / "wide.h5", callback_fn, factor=2, **HERE).complete

    def test_without_its_vectors_a_file_says_where_they_belong(self, path, kept):
        kept.unlink()
        with pytest.raises(PlaneError, match=r"saddle_directions\.safetensors, which .*Put that file back"):
            refine(path, callback_fn, factor=2, **HERE)


class TestSaid:
    def test_axes_heading_facts_page_and_picture_name_matrix_eigenvalue_and_samples(self, measured):
        seen = Landscape.load(measured)
        assert axis_label(seen, 0) == "1st Hessian eigenvector (λ = 2.452 ± 2e-13)"
        assert axis_label(seen, 1).startswith("lowest Hessian eigenvector (λ = -0.0771 ± ")
        assert short_axis_label(seen, 0) == "1st eigenvector (λ = 2.452)"
        assert axis_label(seen, 0, seen.geometry).startswith("distance along the 1st Hessian eigenvector (λ")
        assert title(seen) == "Sequential, Hessian of 200 samples"
        assert "Hessian of 200 samples: 1st (λ = 2.452 ± 2e-13), lowest (λ = -0.0771" in summary_text(seen)
        facts = summary_json(seen)
        assert facts["directions"]["eigenvalues"] == pytest.approx([2.45249511, -0.0771015182])
        assert len(facts["directions"]["residuals"]) == 2
        assert json.dumps(facts)
        page = landscape_content(seen, "saddle")
        assert page["axis_labels"] == [axis_label(seen, 0), axis_label(seen, 1)]
        assert "Hessian eigenvectors; 5 × 5 points" in page["note"]
        assert "Hessian of 200 samples" in page["title"]
        ax = seen.plot_contour()
        assert "Hessian of 200 samples" in ax.get_title()
        assert "1st eigenvector (λ = 2.452)" in ax.get_xlabel().replace("\n", " ")
        assert "λ = -0.0771" in ax.get_ylabel().replace("\n", " ")

    @pytest.mark.parametrize("said", [None, 3, [], {"which": 1}, {"which": ["odd", None]}, {"which": [["top"], {}]}])
    def test_files_may_say_anything(self, measured, said):
        data = read_landscape(measured)
        data.attributes["curvature"] = said
        data.directions.eigenvalues = np.array([np.nan, 1.0])
        data.directions.residuals = None
        label = axis_label(Landscape(data), 1)
        assert label.endswith("Hessian eigenvector (λ = 1)")
        assert axis_label(Landscape(data), 0).endswith("Hessian eigenvector")
        assert "Hessian" in title(Landscape(data))

    def test_other_formats_keep_the_eigenvalues(self, measured, tmp_path):
        xarray = pytest.importorskip("xarray")
        export_landscape(Landscape.load(measured), tmp_path / "saddle.nc")
        with xarray.open_dataset(tmp_path / "saddle.nc", engine="h5netcdf") as found:
            assert "eigenvalues" in json.dumps({name: str(value) for name, value in found.attrs.items()})


class TestTyped:
    @pytest.fixture
    def typed(self, run, monkeypatch):
        monkeypatch.chdir(run.parent)
        monkeypatch.setattr(sys, "path", list(sys.path))
        return lambda *arguments: invoke(*arguments, "--quiet", "--devices", "0")

    def test_run(self, typed, run, tmp_path):
        function = ("--function", "eigenvector_callbacks:regression", "-o", tmp_path, "--no-train")
        typed("run", run, *function, "--directions", "hessian", "--which", "top,bottom", "--rise", 0.5)
        seen = Landscape.load(tmp_path / "landscape_3_hessian_top_bottom.h5")
        np.testing.assert_allclose(seen.x[-1] ** 2 * seen.directions.eigenvalues[0] / 2, 0.5)

    @pytest.mark.filterwarnings("ignore:the loss hardly bends")
    def test_evaluate(self, typed, run, tmp_path, monkeypatch):
        output = tmp_path / "typed.h5"
        command = ("evaluate", run, "--function", "eigenvector_callbacks:regression", "-o", output, "--size", 3)
        typed(*command, "--kind", "ggn", "--which", "top")
        assert Landscape.load(output).y is None
        forbid_products(monkeypatch)
        typed(*command, "--kind", "ggn", "--which", "top")
        with pytest.raises(ValueError, match="--normalization must be left out for --kind hessian"):
            typed(*command, "--kind", "hessian", "--normalization", "filter")
        error = "--which must be left out for --kind random; it belongs to --kind hessian or --kind ggn"
        with pytest.raises(ValueError, match=error):
            typed(*command, "--kind", "random", "--which", "top")


def test_vectors_of_another_landscape_are_not_replaced(path, kept, tmp_path):
    """They cannot be found again with the same bits; it may be that only the landscape was moved away."""
    path.rename(tmp_path / "moved.h5")
    before = kept.read_bytes()
    with pytest.raises(LandscapeIdentityError, match="holds the directions of another landscape, which may not"):
        evaluate(plane_of(seed=1), callback_fn, size=3, output=path, **HOW)
    assert kept.read_bytes() == before
    assert not path.exists()
    evaluate(plane_of(seed=1), callback_fn, size=3, output=path, overwrite=True, **HOW)
    assert kept.read_bytes() != before
