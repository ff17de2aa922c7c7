"""The faults: each disturbs a running survey once, at a random moment."""

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import logged_hunger
import numpy as np
import psutil
from checks import (
    DATE,
    GONE_SECONDS,
    check_equals_the_undisturbed,
    check_loss,
    check_nothing_left,
    check_repeats,
    check_said,
    stored_places,
)
from clusters import SmallCluster
from logged_network import axes
from surveys import SurveyProcess, repeated
from waiting import PATIENCE

import landscape

SIZE, SECONDS = 24, 0.01
LONG_SIZE, LONG_SECONDS = 40, 0.02


@dataclass(frozen=True)
class Cost:
    """What a fault cost: points whose values did not get into the file, points that were measured again, and seconds.

    These go from the blow until the first point that the replacement measured, or until the end where none was needed.
    """

    lost: int
    repeated: int
    seconds: float


@contextlib.contextmanager
def started(folder, name="survey", cluster=None, *, among=None, **more):
    """A survey whose file has a fixed date; whatever is left of it at the end is ended.

    After nine tenths of the points of ``among`` workers it waits for ``strike``: however slow this process is, the
    survey is under way when the fault strikes.
    """
    options = {"size": SIZE, "seconds": SECONDS} | more
    if among is not None:
        options["points_before_gate"] = int(0.9 * options["size"] ** 2 / among)
    environment = {"SOURCE_DATE_EPOCH": DATE}
    if cluster is not None:
        options["address"] = cluster.address
        environment |= cluster.environment
    survey = SurveyProcess(folder, name, environment=environment, **options)
    try:
        yield survey
    finally:
        survey.clear()


def wait_for_a_random_moment(survey, generator, workers=2, latest=0.6):
    survey.wait_for_points(int(generator.uniform(0.05, latest) * survey.size**2), workers=workers)


def strike(survey, fault):
    """Causes a fault, after which the survey may go on to its end; returns when it was."""
    fault()
    survey.let_go_on()
    return time.time()  # time: docs/stress.md reports how long recovering takes


def a_node_is_removed(folder, generator):
    with SmallCluster(nodes=3) as cluster, started(folder, devices=3, cluster=cluster, among=3) as survey:
        wait_for_a_random_moment(survey, generator, workers=3)
        blow = strike(survey, cluster.remove_node)
        survey.wait()
        return _after_survival(survey, blow, dead=1)


def a_node_joins_late(folder, generator):
    """It takes work."""
    # One worker on each node, of which the third is the late one's; the others leave it some, as they wait at the gate.
    long = {"devices": None, "seconds": 0.05, "among": 3}
    with SmallCluster(nodes=2, cpus=1) as cluster, started(folder, cluster=cluster, **long) as survey:
        wait_for_a_random_moment(survey, generator, latest=0.15)
        before = cluster.raylets()

        def join():
            cluster.add_node()
            survey.wait_for_points(1, workers=3)
            (raylet,) = cluster.raylets() - before
            assert raylet in {psutil.Process(worker).ppid() for worker in survey.workers()}

        blow = strike(survey, join)
        survey.wait()
        return _after_survival(survey, blow)


def _a_point_fails(folder, generator, *, trap, said, size=SIZE, deaths=0):
    x, y = axes(size)
    place = (float(generator.choice(x)), float(generator.choice(y)))
    with started(folder, size=size, traps={trap: [place]}) as survey:
        survey.wait()
        assert survey.process.returncode == 0, survey.said
        stored = landscape.Landscape.load(survey.output)
        ((label, text),) = stored.errors.items()
        assert label == f"grid/{list(y).index(place[1])},{list(x).index(place[0])}"
        assert re.search(said, text), text
        assert any("1 of" in item and "failed" in item for item in survey.outcome["warnings"]), survey.outcome
        check_nothing_left(survey)
        measured, kept = survey.points(), stored_places(survey)
        assert len(kept) == size**2 - 1
        again = check_repeats(measured, survey.seconds, deaths)
    with started(folder, "following", size=size) as following:
        following.wait()
        assert [point.place for point in following.points()] == [place], "more than the failed point was measured again"
        check_equals_the_undisturbed(following)
        check_nothing_left(following)
    return Cost(again, again, longest_pause(measured))


def longest_pause(points):
    return float(np.diff([point.when for point in points]).max())


def memory_runs_out(folder, generator):
    """Of the address space, for real; all workers go on in smaller batches."""
    with started(folder, size=6, traps={"free": int(generator.integers(26, 36))}) as survey:
        survey.wait()
        assert survey.process.returncode == 0, survey.said
        said = r"memory ran out in batches of \d+ samples; every worker measures in batches of \d+ from here on"
        assert any(re.search(said, text) for text in survey.outcome["warnings"]), survey.outcome
        stored = landscape.Landscape.load(survey.output)
        assert stored.attributes["measurement_plan"]["batch_size"] < logged_hunger.PLAN.batch_size
        x, y = axes(survey.size)
        callback = logged_hunger.callback_of(os.devnull, 0.0)
        quiet = {"device_ids": [0], "plan": logged_hunger.PLAN, "progress": False}
        whole = landscape.evaluate(logged_hunger.plane(), callback, x=x, y=y, **quiet)
        np.testing.assert_allclose(stored.loss, whole.loss, rtol=1e-6)
        check_nothing_left(survey)
        points = survey.points()
        again = check_repeats(points, survey.seconds, 2)
        return Cost(again, again, longest_pause(points))


def _workers_are_killed(folder, generator, *, everyone):
    with started(folder, among=2) as survey:
        wait_for_a_random_moment(survey, generator)
        victims = survey.workers() if everyone else [int(generator.choice(survey.workers()))]
        blow = strike(survey, lambda: [os.kill(victim, signal.SIGKILL) for victim in victims])
        survey.wait()
        return _after_survival(survey, blow, dead=len(victims))


def an_actor_is_stopped(folder, generator, *, to_the_end=False):
    """Until the others have measured a random number of points, or all of them."""
    with started(folder, among=2) as survey:
        wait_for_a_random_moment(survey, generator)
        victim = int(generator.choice(survey.workers()))
        blow = strike(survey, lambda: os.kill(victim, signal.SIGSTOP))
        more = math.inf if to_the_end else int(generator.integers(1, survey.size**2 // 4))
        survey.wait(len(survey.points()) + more)
        # It may have ended with the survey: the others did its work meanwhile.
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
        survey.wait()
        return _after_survival(survey, blow, dead=1)


def _kill_the_raylet(survey):
    (raylet,) = survey.raylets()
    raylet.kill()


def _kill_the_template(survey):
    """The process from which workers are forked; they end with it."""
    (template,) = survey.templates()
    template.kill()


def the_raylet_is_killed_early(folder, generator):
    """While its workers or the plane are being set up, or just after that."""

    def moment(survey):
        survey.wait_for_actor()
        time.sleep(generator.uniform(0, 2))  # time: a random moment; whichever it is, the same must come of it

    text = r"PoolError: Ray's raylet on this machine does not answer any more.*run the same call again to go on"
    return _driver_ends(folder, generator, fault=_kill_the_raylet, said=text, moment=moment, address="local")


def _driver_ends(folder, generator, *, fault, said="", patience=PATIENCE, moment=None, address=None):
    """Lets the driver end, by an error whose text is said, or killed: then without a text.

    Who goes on starts a Ray of its own only where the killed one left processes, which that start ends.
    """
    # Long enough for the file to be written while it is measured.
    long = {"size": LONG_SIZE, "seconds": LONG_SECONDS, "address": address}
    with started(folder, among=2, **long) as survey:
        if not said:
            survey.wait_until(lambda: stored_places(survey), "a file with points")
        if moment is None:
            wait_for_a_random_moment(survey, generator, latest=0.85)
        else:
            moment(survey)
        before = stored_places(survey)
        blow = strike(survey, lambda: fault(survey))
        survey.wait()
        assert survey.process.returncode != 0 or said, "the fault was not noticed"
        check_said(survey, said)
        stored, measured = stored_places(survey), survey.points()
        assert before <= stored, f"{len(before - stored)} points were in the file and are no more"
        lost = check_loss(survey, stored, was_killed=not said)
        if said:
            check_nothing_left(survey, patience=patience)
        with started(folder, "following", **long | {"address": None if said else address}) as following:
            following.wait()
            assert following.process.returncode == 0, following.said
            again = following.points()
            assert not stored & {point.place for point in again}, "a stored point was measured again"
            check_repeats(again, following.seconds, 0)
            check_equals_the_undisturbed(following)
            check_nothing_left(following)
            check_nothing_left(survey, patience=patience)
            return Cost(lost, repeated(measured + again), again[0].when - blow)


def _after_survival(survey, blow, *, dead=0):
    """Returns the cost of a fault that the survey survived, with so many workers dead or stopped."""
    assert survey.process.returncode == 0, survey.said
    assert survey.outcome["error"] == ""
    points = survey.points()
    again = check_repeats(points, survey.seconds, dead)
    check_equals_the_undisturbed(survey)
    check_nothing_left(survey)
    before = {point.process for point in points if point.when <= blow}
    replaced = [point.when for point in points if point.process not in before]
    recovered = replaced[0] if replaced else max(point.when for point in points)
    return Cost(again, again, recovered - blow)


@dataclass(frozen=True)
class Fault:
    """A fault: ``strike`` runs one trial in a folder, with a generator for its random moment, and returns the cost.

    ``long`` has the arguments of ``strike`` in the long test.
    """

    name: str
    strike: Callable[..., Cost]
    long: Mapping[str, Any] = field(default_factory=dict)


def _kill(survey):
    survey.process.kill()


ENDS = "{} What was measured is in .*; the same command continues from there"
FORKING = r"PoolError: the process from which workers are started was ended by signal 9 \(SIGKILL\).*run the same call"
FAULTS = (
    Fault("SIGKILL of an actor", partial(_workers_are_killed, everyone=False)),
    Fault("SIGKILL of all actors", partial(_workers_are_killed, everyone=True)),
    Fault(
        "SIGKILL of the raylet of a private Ray",
        partial(
            _driver_ends, fault=_kill_the_raylet, address="local",
            said="What was measured is in the file; run the same call again",
        ),
    ),
    Fault("SIGKILL of that raylet while workers start", the_raylet_is_killed_early),
    Fault(
        "SIGKILL of the process from which workers are forked",
        partial(_driver_ends, fault=_kill_the_template, said=FORKING),
    ),
    Fault("SIGKILL of the driver", partial(_driver_ends, fault=_kill)),
    Fault(
        "SIGKILL of the driver of a private Ray",
        partial(_driver_ends, fault=_kill, patience=GONE_SECONDS, address="local"),
    ),
    Fault(
        "SIGTERM of the driver",
        partial(_driver_ends, fault=lambda survey: survey.process.terminate(), said=ENDS.format(r"Terminated\.")),
    ),
    Fault(  # A terminal sends it to the whole process group.
        "Ctrl-C",
        partial(
            _driver_ends, fault=lambda survey: os.killpg(survey.process.pid, signal.SIGINT),
            said=ENDS.format(r"Interrupted\."),
        ),
    ),
    Fault("SIGSTOP of an actor", an_actor_is_stopped, long={"to_the_end": True}),
    Fault("removal of a node of three", a_node_is_removed),
    Fault("a node that joins late", a_node_joins_late),
    Fault(
        "a point that raises",
        partial(_a_point_fails, trap="raises_at", said="FloatingPointError: the loss overflows here"),
    ),
    # Until the culprit is found: three deaths of its chunk, and one of each half of a half.
    Fault(
        "a point that segfaults its worker",
        partial(
            _a_point_fails, trap="crashes_at", said=r"The worker died \d+ times while it measured this point", size=12,
            deaths=12,
        ),
    ),
    Fault("host memory that runs out", memory_runs_out),
)  # fmt: skip
