"""What every experiment promises, whatever it measures: it goes on, ends in time, and leaves no empty file."""

from dataclasses import replace

import numpy as np
import pytest
from false_clock import FalseClock

from landscape.record.checks import PointStatus
from landscape.record.driver import Experiment, forecast, forecast_text, measure, open_record
from landscape.record.hdf5 import CURVATURE
from landscape.record.record import Record, column, read_record, record_format
from landscape.record.run import Run, duration_seconds, duration_text, job_seconds
from landscape.record.writer import lock_landscape
from workers.errors import CurvatureError
from workers.function_evaluator import FunctionEvaluator
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
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
    evaluator = FunctionEvaluator(lambda arrays: arrays["x"].sum(), {"x": np.ones((2, 2))})
    with InProcessPool(lambda: evaluator, MeasurementOptions()) as opened:
        yield opened


@pytest.fixture
def path(tmp_path):
    return tmp_path / "squares.h5"


def run_of(experiment, path, pool, run=None):
    run = run or Run(progress=False)
    with open_record(record_format(Squares), path, run) as stored:
        return measure(experiment, stored, pool, run)


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


def test_fewer_threads_are_said_and_written(path):
    evaluator = FunctionEvaluator(lambda arrays: arrays["x"].sum(), {"x": np.ones((2, 2))})

    def use(threads):
        evaluator._description = replace(evaluator.description, plan=MeasurementPlan(threads=threads))

    class Slow(OfNumbers):
        def keep(self, record, result):
            use(1)
            return super().keep(record, result)

    use(2)
    with (
        InProcessPool(lambda: evaluator, MeasurementOptions()) as pool,
        pytest.warns(UserWarning, match=r"times as long as forecast.* One thread measures from here on") as caught,
    ):
        run_of(Slow([1, 2]), path, pool)
    assert len(caught) == 1
    assert read_record(Squares, path).attributes["measurement_plan"]["threads"] == 1


def test_a_rehearsal_writes_nothing(path, pool):
    run_of(OfNumbers([1]), path, pool)
    before = path.read_bytes()
    with lock_landscape(path, CURVATURE), open_record(record_format(Squares), path, Run(rehearsal=True)) as stored:
        text = forecast(OfNumbers([1, 2, 3]), stored, pool, Run())
    assert text == "3 numbers, 1 of them measured before: 2 squares x 500 ms on 1 worker: about 1 s"
    assert path.read_bytes() == before
    text = forecast_text("1 epoch", 1, 0, "product", 0.0, 2)
    assert text == "1 epoch, 1 of them measured before; nothing is left to measure"


def test_progress_shows_the_experiments_text(pool, capsys):
    run_of(OfNumbers([1, 2]), None, pool, Run())
    shown = capsys.readouterr().err
    assert "curvature: squares of numbers" in shown
    assert "2/2 numbers (100 %)" in shown


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "5000"}, 3880.0),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1500"}, 450.0),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "900"}, 1.0),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "UNLIMITED"}, None),
        ({"SLURM_JOB_ID": "7"}, None),
        ({"SLURM_JOB_END_TIME": "5000"}, None),
        ({}, None),
    ],
)
def test_a_batch_job_says_its_end(environment, seconds):
    assert job_seconds(environment, now=1000.0) == seconds


def test_the_end_of_a_job_is_the_budget_unless_one_is_given(pool, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1")
    options = {"budget": None, "progress": False}
    assert Run.checked(options | {"budget": 7200.0}).budget == 7200
    job = Run.checked(options)
    job.began = float("-inf")
    ended = r"the budget of 1 s, which the SLURM job leaves, ended the measurement after 0 of 2 numbers\."
    with pytest.warns(UserWarning, match=rf"{ended} Give output= a path, and a later call can continue"):
        run_of(OfNumbers([1, 2]), None, pool, job)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(90, 90.0), (0.5, 0.5), ("90s", 90.0), ("30min", 1800.0), ("1.5 h", 5400.0), ("2d", 172800.0), ("45", 45.0)],
)
def test_durations(given, seconds):
    assert duration_seconds("budget", given) == seconds


def test_what_is_left_of_a_budget_is_shared(monkeypatch):
    clock = FalseClock(monkeypatch)
    run = Run.checked({"budget": 60, "progress": False})
    clock.go_on(20)
    part = run.part(4)
    assert (part.budget, part.limit, part.left) == (60.0, 10.0, 10.0)
    clock.go_on(11)
    assert part.is_late
    assert not run.is_late
    assert (list(part.in_time([1])), part.stopped) == ([], True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0052, "5.2 ms"),
        (4.21, "4.2 s"),
        (42.4, "42 s"),
        (100, "1.7 min"),
        (180, "3 min"),
        (1800, "30 min"),
        (7200, "2 h"),
        (260000, "3.01 days"),
    ],
)
def test_durations_as_people_say_them(seconds, text):
    assert duration_text(seconds) == text
