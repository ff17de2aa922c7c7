"""What every collector promises, whatever the trainer (contract 1)."""

import functools
import gc
import threading

import numpy as np
import pytest
from cases import Crash, all_cases, assert_same, weights

from collectors import SummaryCollector
from collectors.errors import RunDirectoryError
from collectors.run_directory import RunDirectory

CASES = all_cases("COLLECTOR_CASES")
STEPS = {"unit": "step", "intervals": [[0, 2, 4, 6, 12]]}
EPOCHS = {"unit": "epoch", "intervals": [[0, 1, 2, 3]]}


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


def assert_other(first, second):
    assert any(not np.array_equal(value, second[name]) for name, value in first.items())


def test_steps_and_epochs_are_counted_alike(case, tmp_path):
    case.train(tmp_path / "steps", STEPS)
    case.train(tmp_path / "epochs", EPOCHS)
    steps, epochs = RunDirectory(tmp_path / "steps"), RunDirectory(tmp_path / "epochs")
    assert steps.present(tuple(range(13))) == [0, 2, 4, 6, 12]
    assert epochs.present((0, 1, 2, 3)) == [0, 1, 2, 3]
    assert steps.metadata.step_per_epoch == epochs.metadata.step_per_epoch == 4
    assert steps.settings.unit == "step"
    assert (steps.metadata.final_number, epochs.metadata.final_number) == (12, 3)
    # Epoch 1 is step 4, epoch 3 is step 12, and neither is where training began.
    for step, epoch in ((0, 0), (4, 1), (12, 3)):
        assert_same(weights(tmp_path / "steps", step), weights(tmp_path / "epochs", epoch))
    for one, other in ((0, 2), (2, 4), (4, 6), (6, 12)):
        assert_other(weights(tmp_path / "steps", one), weights(tmp_path / "steps", other))


def test_an_interval_that_ends_early_has_no_final_weights(case, tmp_path):
    case.train(tmp_path, {"unit": "epoch", "intervals": [[0, 1, 2]]})
    metadata = RunDirectory(tmp_path).metadata
    assert (max(metadata.files), metadata.trained_to, metadata.final_number) == (2, 3, None)


def test_the_metadata_knows_the_network(case, tmp_path):
    case.train(tmp_path, EPOCHS)
    metadata = RunDirectory(tmp_path).metadata
    held = weights(tmp_path, 3)
    assert metadata.network["name"]
    assert metadata.network["trainable"]
    assert set(metadata.network["trainable"]) <= set(held)
    assert set(metadata.sha256) == {0, 1, 2, 3}


def test_a_crash_leaves_whole_metadata(case, tmp_path):
    threads = {thread.name for thread in threading.enumerate()}
    with pytest.raises(Crash):
        case.train(tmp_path, STEPS, crash_after=7)
    gc.collect()
    run = RunDirectory(tmp_path)
    assert run.present(tuple(range(13))) == [0, 2, 4, 6]
    assert run.metadata.trained_to is None
    for number in (0, 2, 4, 6):
        weights(tmp_path, number)
    assert not list(tmp_path.glob("**/*.tmp*"))
    left = {thread.name for thread in threading.enumerate()} - threads
    assert "checkpoint-writer" not in left


def test_only_rank_0_writes(case, tmp_path, monkeypatch):
    monkeypatch.setattr("collectors.run_directory.writer.is_first_rank", lambda: False)
    monkeypatch.setattr("collectors.recording.watched_training.is_first_rank", lambda: False)
    case.train(tmp_path / "run", STEPS)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").rglob("*.safetensors"))
    assert not (tmp_path / "run" / "ckpt_dir").exists()


def test_a_second_run_in_the_same_directory_is_an_error(case, tmp_path):
    case.train(tmp_path, EPOCHS)
    before = weights(tmp_path, 3)
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        case.train(tmp_path, EPOCHS)
    assert_same(before, weights(tmp_path, 3))
    case.train(tmp_path, STEPS, existing="overwrite")
    assert RunDirectory(tmp_path).settings.unit == "step"


def test_resuming_goes_on_with_the_numbers(case, tmp_path):
    if not case.can_resume:
        pytest.skip(f"{case.name} has no checkpoints of its own")
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(Crash):
        case.train(tmp_path / "run", STEPS, crash_after=7, checkpoint=checkpoint)
    early = RunDirectory(tmp_path / "run").checkpoint_path(2).stat()
    case.train(tmp_path / "run", STEPS, existing="resume", checkpoint=checkpoint)
    case.train(tmp_path / "undisturbed", STEPS)
    run = RunDirectory(tmp_path / "run")
    # Written before the crash, and not again: training went on from epoch 1.
    assert run.checkpoint_path(2).stat().st_mtime_ns == early.st_mtime_ns
    assert run.present(tuple(range(13))) == [0, 2, 4, 6, 12]
    assert run.metadata.final_number == 12
    assert run.metadata.step_per_epoch == 4
    for number in (0, 2, 4, 6, 12):
        assert_same(weights(tmp_path / "undisturbed", number), weights(tmp_path / "run", number))


def test_what_comes_at_the_end_finds_everything_on_the_disk(case, tmp_path, monkeypatch):
    found = []

    def at_end(folder):
        found.append((folder, RunDirectory(folder).metadata.final_number))

    # The cases make their collectors themselves.
    given = functools.partialmethod(SummaryCollector.__init__, at_end=at_end)
    monkeypatch.setattr(SummaryCollector, "__init__", given)
    with pytest.raises(Crash):
        case.train(tmp_path / "crashed", EPOCHS, crash_after=9)
    assert found == []
    case.train(tmp_path / "whole", EPOCHS)
    assert found == [(str(tmp_path / "whole"), 3)]
