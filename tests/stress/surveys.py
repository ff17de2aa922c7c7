"""Surveys in processes of their own: started, watched through their log of points, and cleared away."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
from waiting import Gate, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARK = "LANDSCAPE_STRESS_TRIAL"
IMPORTS = os.pathsep.join(map(str, (ROOT, HERE, HERE.parent / "support")))
"""Where the processes of a trial find what they import."""
ORIGIN = (0.0, 0.0)


@dataclass(frozen=True)
class Point:
    """A measured point, from the log."""

    when: float
    process: int
    place: tuple[float, float]


@dataclass(frozen=True)
class Write:
    """The beginning of a write of the file, from the log, and how many measured points the file then holds."""

    points: int


class SurveyProcess:
    """A survey of size by size points, in a process with a folder for its log, its outcome and, by default, its file.

    Each worker measures ``points_before_gate`` points before it waits for ``let_go_on``; None for all.
    """

    def __init__(
        self,
        folder,
        name,
        *,
        size,
        seconds,
        devices=2,
        address=None,
        traps=None,
        environment=None,
        points_before_gate=None,
    ):
        self.folder, self.name, self.size, self.seconds, self.devices = folder, name, size, seconds, devices
        self.mark = uuid.uuid4().hex
        self.log, self.output = folder / f"{name}.log", folder / "landscape.h5"
        self._outcome = folder / f"{name}.json"
        self._said = (folder / f"{name}.txt").open("wb")
        self.log.touch()
        self._read, self._entries = 0, []
        self._gate, traps = Gate(folder / f"{name}.gate"), traps or {}
        if points_before_gate is not None:
            traps = {**traps, "gate": str(folder / f"{name}.gate"), "before_gate": points_before_gate}
        settings = folder / f"{name}.settings.json"
        asked = {"size": size, "seconds": seconds, "address": address, "traps": traps}
        asked["device_ids"] = list(range(devices)) if devices else None
        asked |= {"log": str(self.log), "output": str(self.output), "outcome": str(self._outcome)}
        settings.write_text(json.dumps(asked))
        variables = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        variables |= {MARK: self.mark, "PYTHONPATH": IMPORTS, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "survey_process.py"), str(settings)],
            env=variables | (environment or {}),
            stdout=self._said,
            stderr=self._said,
            cwd=folder,
            start_new_session=True,
            # A shell that runs this in the background has its children ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    @property
    def said(self):
        return (self.folder / f"{self.name}.txt").read_text(errors="replace")

    @property
    def outcome(self):
        """The error's text and the warnings; None where the process died before it could say."""
        return json.loads(self._outcome.read_text()) if self._outcome.exists() else None

    def entries(self):
        """Returns what was measured of the grid so far, each measurement once, and writes, in the order of time."""
        with self.log.open() as log:
            log.seek(self._read)
            # At once: a line that is being written would come in two parts, of which the second one looks whole.
            lines = [line for line in log.read().splitlines(keepends=True) if line.endswith("\n")]
        self._read += sum(map(len, lines))
        self._entries += [entry_of(*line.split()) for line in lines]
        return without_checks(self._entries)

    def points(self):
        """Returns what was measured of the grid so far, each measurement once, in the order of time."""
        return [entry for entry in self.entries() if isinstance(entry, Point)]

    def workers(self):
        return [number for number in dict.fromkeys(point.process for point in self.points()) if is_running(number)]

    @property
    def has_ended(self):
        return self.process.poll() is not None

    def wait_for_points(self, count, *, workers=1):
        self.wait_until(lambda: len(self.points()) >= count and len(self.workers()) >= workers, f"{count} points")

    def wait_for_actor(self):
        """Waits until an actor has its process, which may have nothing to measure with yet."""
        self.wait_until(lambda: any("MeasurementActor" in _title(process) for process in self.family()), "an actor")

    def wait_until(self, condition, what):
        """Waits until a condition holds, during the survey."""

        def holds():
            found = condition()
            if not found and self.has_ended:
                raise AssertionError(f"the survey ended before it had {what}: {self.said}")
            return found

        self._wait(holds, what)

    def let_go_on(self):
        self._gate.open()

    def wait(self, points=math.inf):
        """Waits until so many points are measured, or the process has ended."""
        self._wait(lambda: self.has_ended or len(self.points()) >= points, "its end")
        if self.has_ended:
            self._said.close()

    def family(self):
        """Returns all processes that descend from this survey's, orphans included."""
        return marked(self.mark)

    def raylets(self):
        return [process for process in self.family() if process.name() == "raylet"]

    def templates(self):
        """Returns the process from which the survey's workers are forked."""
        forked = [process for process in self.family() if "import serve" in _title(process)]
        return [process for process in forked if process.ppid() == self.process.pid]

    def clear(self):
        end_marked(self.mark)
        self.process.wait()
        self._said.close()

    def _wait(self, condition, what):
        """Waits until a condition holds; however long a survey takes, there is patience while points are measured."""
        wait_until(
            condition,
            what=lambda: f"{what}, with {len(self.points())} points: {self.said}",
            progress=lambda: self.log.stat().st_size,
        )


def entry_of(*words):
    if words[0] == "write":
        return Write(int(words[1]))
    when, process, x, y = words
    return Point(float(when), int(process), (float(x), float(y)))


def without_checks(entries):
    """Returns the entries without those of the check with which a worker begins: origin, far away, origin again."""
    seen, check = Counter(), {}
    kept = []
    for point in entries:
        if isinstance(point, Write):
            kept.append(point)
            continue
        check.setdefault(point.process, 3 if point.place == ORIGIN else 0)
        seen[point.process] += 1
        if seen[point.process] > check[point.process] and point.place != ORIGIN:
            kept.append(point)
    return kept


def is_running(number):
    """Returns whether a process is there and is no zombie."""
    return _asked(lambda: psutil.Process(number).status(), psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE


def repeated(points):
    """Returns how many measurements were of a point that had been measured before."""
    return sum(count - 1 for count in Counter(point.place for point in points).values())


def marked(mark):
    """Returns all living processes that were started with this mark in their environment."""
    return [process for process in psutil.process_iter() if _mark_of(process) == mark]


def end_marked(mark):
    """Kills them, until none is left."""

    def none_is_left():
        processes = marked(mark)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not processes

    wait_until(none_is_left, what="the processes of a survey to end")


def _asked(function, default=None):
    try:
        return function()
    except psutil.Error:
        return default


def _title(process):
    return " ".join(_asked(process.cmdline, ()))


def _mark_of(process):
    return _asked(process.environ, {}).get(MARK) if is_running(process.pid) else None
