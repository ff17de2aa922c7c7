"""What every experiment promises, whatever it measures: it goes on, ends in time, and leaves no empty file."""

import itertools

import h5py
import numpy as np
import pytest

from landscape.errors import LandscapeIdentityError, LandscapeLockedError, LandscapeWriteError
from landscape.record.checks import PointStatus
from landscape.record.driver import Experiment, forecast, forecast_text, measure, open_record
from landscape.record.kind import CURVATURE
from landscape.record.lock import lock_landscape
from landscape.record.record import Record, column, read_record, record_format
from landscape.record.run import Run
from workers.errors import CurvatureError
from workers.function_evaluator import FunctionEvaluator
from workers.measurement_options import MeasurementOptions
from workers.pools.in_process import InProcessPool


class Squares(Record, kind=CURVATURE, coordinates=("number",), key=("number",)):
    number: np.ndarray = column("number", dtype=np.int64)
    status: np.ndarray = column("number", dtype=np.uint8)
    square: np.ndarray = column("number")


class OfNumbers(Experiment):
    """Squares numbers; those in ``failing`` fail, and at ``breaking`` everything ends."""

    unit = "number"

    def __init__(self, numbers, failing=(), breaking=None, seed=0):
        self.numbers, self.failing, self.breaking, self.seed = numbers, failing, breaking, seed
        self.measured, self.warned = [], False

    def begin(self, stored, pool):
        attributes = {"identity": {"seed": self.seed}, "notes": []}
        return Squares.empty({"number": self.numbers}, attributes=attributes).continuing(stored)

    def resume(self, record, pool):
        todo = np.isin(record.number, self.numbers) & (record.status != PointStatus.MEASURED)
        record.forget_failed(np.flatnonzero(todo).tolist())
        return todo

    def forecast(self, record, todo, pool, run):
        return forecast_text(f"{len(todo)} numbers", int((~todo).sum()), int(todo.sum()), "square", 0.5, pool.workers)

    def results(self, record, todo, pool, run):
        yield "squares of numbers"
        for number in run.in_time(record.number[todo].tolist()):
            if number == self.breaking:
                raise CurvatureError("no squares any more")
            self.measured.append(number)
            yield number

    def keep(self, record, result):
        row = record.places[(result,)]
        if result in self.failing:
            record.status[row], record.errors[record.place_of(row)] = PointStatus.FAILED, "it failed"
        else:
            record.status[row], record.square[row] = PointStatus.MEASURED, result**2
        return 1

    def warn(self, record, run):
        self.warned = True


@pytest.fixture
def pool():
    with InProcessPool(
        lambda: FunctionEvaluator(lambda arrays: arrays["x"].sum(), {"x": np.ones((2, 2))}), MeasurementOptions()
    ) as opened:
        yield opened


@pytest.fixture
def path(tmp_path):
    return tmp_path / "squares.h5"


def run_of(experiment, path, pool, run=None):
    run = run or Run(progress=False)
    with open_record(record_format(Squares), path, overwrite=run.overwrite) as stored:
        return measure(experiment, stored, pool, run)


def test_what_is_measured_is_not_measured_again_and_what_failed_is(path, pool):
    first = OfNumbers([1, 2, 3], failing=[2])
    record, report = run_of(first, path, pool)
    assert (report.measured, report.resumed, first.warned) == (2, 0, True)
    assert record.errors == {"number/2": "it failed"}
    second = OfNumbers([0, 1, 2])
    record, report = run_of(second, path, pool)
    assert second.measured == [0, 2]
    assert (report.measured, report.resumed, report.workers) == (2, 2, 1)
    assert record.path == path
    stored = read_record(Squares, path)
    np.testing.assert_array_equal(stored.square, [0, 1, 4, 9])
    assert stored.complete
    assert not stored.errors


@pytest.mark.parametrize(
    ("kept", "remedy"), [(True, "The same call continues from here"), (False, "Give output= a path")]
)
def test_the_budget_ends_it_and_the_same_call_goes_on(path, pool, kept, remedy):
    with pytest.warns(
        UserWarning, match=rf"the budget of 1e-06 ms ended the measurement after 0 of 2 numbers. {remedy}"
    ):
        record, _ = run_of(OfNumbers([1, 2]), path if kept else None, pool, Run(budget=1e-9, progress=False))
    assert not record.complete
    if kept:
        assert run_of(OfNumbers([1, 2]), path, pool)[1].measured == 2


def test_another_experiment_is_refused_and_replaced_if_asked_for(path, pool):
    run_of(OfNumbers([1]), path, pool)
    before = path.read_bytes()
    with pytest.raises(LandscapeIdentityError, match="seed: the file has 0, this run 1"):
        run_of(OfNumbers([2], seed=1), path, pool)
    assert path.read_bytes() == before
    record, _ = run_of(OfNumbers([2], seed=1), path, pool, Run(overwrite=True, progress=False))
    assert record.number.tolist() == [2]


@pytest.mark.parametrize(("breaking", "numbers"), [(1, None), (2, [1.0, np.nan])])
def test_an_error_leaves_a_file_only_where_it_says_something(path, pool, breaking, numbers):
    with pytest.raises(CurvatureError, match="no squares any more"):
        run_of(OfNumbers([1, 2], breaking=breaking), path, pool)
    assert path.exists() == (numbers is not None)
    if numbers:
        np.testing.assert_array_equal(read_record(Squares, path).square, numbers)


def test_an_error_leaves_what_was_there(path, pool):
    run_of(OfNumbers([1], failing=[1]), path, pool)
    with pytest.raises(CurvatureError):
        run_of(OfNumbers([1], breaking=1), path, pool)
    assert read_record(Squares, path).number.tolist() == [1]


def test_a_file_has_one_writer_and_is_of_its_kind(path, pool):
    with lock_landscape(path, CURVATURE), pytest.raises(LandscapeLockedError, match="is being written by"):
        run_of(OfNumbers([1]), path, pool)
    with h5py.File(path, "w") as file:
        file.attrs["format"] = "another"
    with pytest.raises(LandscapeWriteError, match=r"squares\.h5"):
        run_of(OfNumbers([1]), path, pool, Run(overwrite=True, progress=False))


def test_a_rehearsal_writes_nothing(path, pool):
    run_of(OfNumbers([1]), path, pool)
    before = path.read_bytes()
    with lock_landscape(path, CURVATURE), open_record(record_format(Squares), path, rehearsal=True) as stored:
        text = forecast(OfNumbers([1, 2, 3]), stored, pool, Run())
    assert text == "3 numbers, 1 of them measured before: 2 squares x 500 ms on 1 worker: about 1 s"
    assert path.read_bytes() == before
    assert (
        forecast_text("1 epoch", 1, 0, "product", 0.0, 2)
        == "1 epoch, 1 of them measured before; nothing is left to measure"
    )


def test_progress_shows_the_experiments_text(pool, capsys):
    run_of(OfNumbers([1, 2]), None, pool, Run())
    shown = capsys.readouterr().err
    assert "curvature: squares of numbers" in shown
    assert "2/2 numbers (100 %)" in shown


def test_tasks_end_with_the_budget():
    assert list(Run().in_time([1, 2])) == [1, 2]
    assert next(Run(budget=1e-9).in_time(itertools.count()), None) is None
