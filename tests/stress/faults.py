"""The faults: each disturbs a running survey once, at a random moment."""

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


def start(folder, name="survey", cluster=None, *, among=None, **more):
    """Starts a survey whose file has a fixed date.

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
    return SurveyProcess(folder, name, environment=environment, **options)


def wait_for_a_random_moment(survey, generator, workers=2, latest=0.6):
    survey.wait_for_points(int(generator.uniform(0.05, latest) * survey.size**2), workers=workers)


def strike(survey, fault):
    """Causes a fault, after which the survey may go on to its end; returns when it was."""
    fault()
    survey.let_go_on()
    return time.time()  # time: docs/stress.md reports how long recovering takes


def an_actor_is_killed(folder, generator):
    return _workers_are_killed(folder, generator, everyone=False)


def all_actors_are_killed(folder, generator):
    return _workers_are_killed(folder, generator, everyone=True)


def a_node_is_removed(folder, generator):
    with SmallCluster(nodes=3) as cluster:
        survey = start(folder, devices=3, cluster=cluster, among=3)
        try:
            wait_for_a_random_moment(survey, generator, workers=3)
            blow = strike(survey, cluster.remove_node)
            survey.wait()
            return _after_survival(survey, blow, dead=1)
        finally:
            survey.clear()


def a_node_joins_late(folder, generator):
    """It takes work."""
    # One worker on each node, of which the third is the late one's; and so long that the others leave it something.
    with SmallCluster(nodes=2, cpus=1) as cluster:
        survey = start(folder, devices=None, cluster=cluster, size=40, seconds=0.05, among=3)
        try:
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
        finally:
            survey.clear()


def a_point_raises(folder, generator):
    said = r"FloatingPointError: the loss overflows here"
    return _a_point_fails(folder, generator, "raises_at", said, size=SIZE, deaths=0)


def a_point_crashes_its_worker(folder, generator):
    """A segmentation fault, until the culprit is found: three deaths of its chunk, and one of each half of a half."""
    return _a_point_fails(
        folder, generator, "crashes_at", r"The worker died \d+ times while it measured this point", size=12, deaths=12
    )


def _a_point_fails(folder, generator, trap, said, *, size, deaths):
    x, y = axes(size)
    place = (float(generator.choice(x)), float(generator.choice(y)))
    survey, following = start(folder, size=size, traps={trap: [place]}), None
    try:
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
        following = start(folder, "following", size=size)
        following.wait()
        assert [point.place for point in following.points()] == [place], "more than the failed point was measured again"
        check_equals_the_undisturbed(following)
        check_nothing_left(following)
        pauses = np.diff([point.when for point in measured])
        return Cost(again, again, float(pauses.max()))
    finally:
        survey.clear()
        if following is not None:
            following.clear()


def memory_runs_out(folder, generator):
    """Of the address space, for real; all workers go on in smaller batches."""
    survey = start(folder, size=6, traps={"free": int(generator.integers(26, 36))})
    try:
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
        return Cost(again, again, float(np.diff([point.when for point in points]).max()))
    finally:
        survey.clear()


def _workers_are_killed(folder, generator, *, everyone):
    survey = start(folder, among=2)
    try:
        wait_for_a_random_moment(survey, generator)
        victims = survey.workers() if everyone else [int(generator.choice(survey.workers()))]

        def kill():
            for victim in victims:
                os.kill(victim, signal.SIGKILL)

        blow = strike(survey, kill)
        survey.wait()
        return _after_survival(survey, blow, dead=len(victims))
    finally:
        survey.clear()


def an_actor_is_stopped(folder, generator, *, to_the_end=False):
    """Until the others have measured a random number of points, or all of them."""
    survey = start(folder, among=2)
    try:
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
    finally:
        survey.clear()


def the_driver_is_killed(folder, generator):
    return _driver_ends(folder, generator, lambda survey: survey.process.kill(), said="")


def the_driver_of_a_private_ray_is_killed(folder, generator):
    end = {"patience": GONE_SECONDS, "address": "local"}
    return _driver_ends(folder, generator, lambda survey: survey.process.kill(), said="", **end)


def the_driver_is_terminated(folder, generator):
    text = r"Terminated\. What was measured is in .*; the same command continues from there"
    return _driver_ends(folder, generator, lambda survey: survey.process.terminate(), said=text)


def ctrl_c(folder, generator):
    """A terminal sends it to the whole process group."""
    text = r"Interrupted\. What was measured is in .*; the same command continues from there"
    return _driver_ends(folder, generator, lambda survey: os.killpg(survey.process.pid, signal.SIGINT), said=text)


def the_raylet_is_killed(folder, generator):
    def blow(survey):
        (raylet,) = survey.raylets()
        raylet.kill()

    text = r"What was measured is in the file; run the same call again"
    return _driver_ends(folder, generator, blow, said=text, address="local")


def the_template_is_killed(folder, generator):
    """The process from which workers are forked; they end with it."""

    def blow(survey):
        (template,) = survey.templates()
        template.kill()

    text = r"PoolError: the process from which workers are started was ended by signal 9 \(SIGKILL\).*run the same call"
    return _driver_ends(folder, generator, blow, said=text)


def the_raylet_is_killed_early(folder, generator):
    """While its workers or the plane are being set up, or just after that."""

    def moment(survey):
        survey.wait_for_actor()
        time.sleep(generator.uniform(0, 2))  # time: a random moment; whichever it is, the same must come of it

    def blow(survey):
        (raylet,) = survey.raylets()
        raylet.kill()

    text = r"PoolError: Ray's raylet on this machine does not answer any more.*run the same call again to go on"
    return _driver_ends(folder, generator, blow, said=text, moment=moment, address="local")


def _driver_ends(folder, generator, fault, *, said, patience=PATIENCE, moment=None, address=None):
    """Lets the driver end, by an error whose text is said, or killed: then without a text."""
    # Long enough for the file to be written while it is measured.
    long = {"size": LONG_SIZE, "seconds": LONG_SECONDS, "address": address}
    survey, following = start(folder, among=2, **long), None
    try:
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
        following = start(folder, "following", **long)
        following.wait()
        assert following.process.returncode == 0, following.said
        again = following.points()
        assert not stored & {point.place for point in again}, "a stored point was measured again"
        check_repeats(again, following.seconds, 0)
        check_equals_the_undisturbed(following)
        check_nothing_left(following)
        check_nothing_left(survey, patience=patience)
        return Cost(lost, repeated(measured + again), again[0].when - blow)
    finally:
        survey.clear()
        if following is not None:
            following.clear()


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


FAULTS = (
    Fault("SIGKILL of an actor", an_actor_is_killed),
    Fault("SIGKILL of all actors", all_actors_are_killed),
    Fault("SIGKILL of the raylet of a private Ray", the_raylet_is_killed),
    Fault("SIGKILL of that raylet while workers start", the_raylet_is_killed_early),
    Fault("SIGKILL of the process from which workers are forked", the_template_is_killed),
    Fault("SIGKILL of the driver", the_driver_is_killed),
    Fault("SIGKILL of the driver of a private Ray", the_driver_of_a_private_ray_is_killed),
    Fault("SIGTERM of the driver", the_driver_is_terminated),
    Fault("Ctrl-C", ctrl_c),
    Fault("SIGSTOP of an actor", an_actor_is_stopped, long={"to_the_end": True}),
    Fault("removal of a node of three", a_node_is_removed),
    Fault("a node that joins late", a_node_joins_late),
    Fault("a point that raises", a_point_raises),
    Fault("a point that segfaults its worker", a_point_crashes_its_worker),
    Fault("host memory that runs out", memory_runs_out),
)
