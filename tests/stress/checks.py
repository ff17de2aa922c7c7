"""What must hold after every trial."""

import functools
import os
import re
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from logged_network import PLAN, axes, callback_of, plane
from surveys import Point, Write, repeated
from waiting import PATIENCE, wait_until

import landscape
from landscape.record.checks import PointStatus
from workers.pools.chunks import CHUNK_SECONDS

GONE_SECONDS = 90.0
"""How long the processes of a killed driver may live."""

_IN_FLIGHT = 2  # chunks of each worker


def check_equals_the_undisturbed(survey):
    """The finished file is, byte for byte, the one of a survey in this process that nothing disturbed."""
    content, loss = undisturbed(survey.size)
    assert survey.output.read_bytes() == content, (
        f"{survey.output} differs from an undisturbed one; loss differs at "
        f"{np.argwhere(landscape.Landscape.load(survey.output).loss != loss).tolist()[:5]}"
    )


def check_repeats(points, seconds, dead_workers):
    """Nothing was measured twice but chunks that were being measured, of about a second each.

    One more is allowed, because the last chunk of a worker that lags behind is given to an idle one too. A worker that
    was stopped for a while counts as a dead one.
    """
    again, allowed = repeated(points), (dead_workers + 1) * _points_of_chunk(seconds)
    assert again <= allowed, f"{again} points were measured again; {dead_workers} deaths explain {allowed}"
    return again


def check_loss(survey, stored, *, was_killed):
    """What was measured is in the file, but for chunks under way; returns how many measured points are not.

    After a kill the file is as new as one of the last two that were begun, of which the last may be unfinished, and
    holds what was measured before that one was begun.
    """
    entries = survey.entries()
    known = entries
    if was_killed:
        writes = [position for position, entry in enumerate(entries) if isinstance(entry, Write)][-2:]
        written = [position for position in writes if entries[position].points == len(stored)]
        assert written, f"the file has {len(stored)} points, the last writes {[entries[item] for item in writes]}"
        known = entries[: written[-1]]
    lost = _not_in(known, stored)
    allowed = survey.devices * _IN_FLIGHT * _points_of_chunk(survey.seconds)
    assert len(lost) <= allowed, f"{len(lost)} points are lost; chunks under way explain {allowed}"
    return len(_not_in(entries, stored))


def _not_in(entries, stored):
    return {entry.place for entry in entries if isinstance(entry, Point)} - stored


def _points_of_chunk(seconds):
    """Returns how many points a chunk has at most, each of which takes so many seconds at least."""
    return int(CHUNK_SECONDS / seconds) + 1


def stored_places(survey):
    """Returns the coordinates of the points that are measured in a survey's file; the file must be whole."""
    if not survey.output.exists():
        return set()
    stored = landscape.Landscape.load(survey.output)
    x, y = axes(survey.size)
    return {(float(x[i]), float(y[j])) for j, i in np.argwhere(stored.status == PointStatus.MEASURED)}


def check_nothing_left(survey, *, patience=PATIENCE):
    """No process, temporary file, lock or session directory of a survey is left."""
    wait_until(lambda: not _left(survey), what=lambda: f"the end of {_left(survey)}", patience=patience)


def check_said(survey, pattern):
    """The error's text says what happened and how to go on."""
    assert re.search(pattern, survey.said, re.DOTALL), f"no {pattern!r} in:\n{survey.said}"


@functools.cache
def undisturbed(size):
    """Returns the file of a survey that nothing disturbed, and its losses."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, SOURCE_DATE_EPOCH=DATE):
        x, y = axes(size)
        path = Path(folder) / "landscape.h5"
        found = landscape.evaluate(
            plane(), callback_of(os.devnull, 0.0), x=x, y=y, device_ids=[0], output=path, plan=PLAN, progress=False
        )
        return path.read_bytes(), found.loss


DATE = "1700000000"
"""When all files of the trials were created, by the convention of reproducible builds."""


def _left(survey):
    files = [path.name for path in survey.folder.iterdir() if path.name.startswith(".") or path.suffix == ".tmp"]
    sessions = [path.name for path in Path("/tmp").glob(f"landscape-ray-{survey.process.pid}-*")]
    return [f"{process.pid} {process.name()}" for process in survey.family()] + files + sessions
