"""Actors in processes of this machine: what Ray would do for a crew, done without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import psutil
import pytest
from plain_actors import Broken, Plain
from waiting import PATIENCE, Gate, wait_until

from workers.errors import PoolError
from workers.pools import local_actors
from workers.pools.local_actors import LocalActors
from workers.pools.local_line import ActorError, ActorTaskError
from workers.pools.local_messages import StoredValue

SUPPORT = Path(__file__).parents[2] / "support"
# The limit of a wait that ends as soon as it was looked once.
AT_ONCE = 0.0


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """How a process ended is waited for as long as a busy machine takes to say it."""
    monkeypatch.setattr(local_actors, "_STATUS_SECONDS", PATIENCE)


@pytest.fixture(scope="module")
def actors():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SUPPORT))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        system = LocalActors(["numpy"])
    yield system
    system.close()


def make(system, name="Ada"):
    return system.remote(Plain).options(num_cpus=1).remote(name)


class TestStoredValues:
    def test_arrays_come_out_as_they_went_in_and_cannot_be_changed(self):
        value = {
            "a": np.arange(12.0).reshape(3, 4),
            "strided": np.arange(20, dtype=np.int16)[::3],
            "columns": np.asfortranarray(np.ones((2, 3), np.float32)),
            "empty": np.zeros((0, 5)),
            "number": np.array(3.5),
        }
        found = StoredValue.of((value, "and text")).load()
        assert found[1] == "and text"
        for name, array in value.items():
            np.testing.assert_array_equal(found[0][name], array, strict=True)
        with pytest.raises(ValueError, match="read-only"):
            found[0]["a"][0, 0] = 7.0

    def test_actors_map_them_at_addresses_that_vectors_like(self, actors):
        stored = actors.put({"x": np.ones(1000, np.float32), "y": np.ones((7, 3))})
        assert actors.get(make(actors).describe.remote(stored)) == [((1000,), False, 0), ((7, 3), False, 0)]
        assert actors.get(stored)["y"].shape == (7, 3)

    def test_nothing_stays_open(self):
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            assert StoredValue.of(np.ones(1000)).load().sum() == 1000
        assert len(list(Path("/proc/self/fd").iterdir())) == before


class TestCalls:
    def test_answers_in_the_order_of_the_calls(self, actors, tmp_path):
        actor, gate = make(actors), Gate(tmp_path / "gate")
        calls = [actor.total.remote(np.ones(number), tmp_path / "gate") for number in (1, 2)]
        gate.wait_for_arrivals()
        assert actors.wait(calls, timeout=AT_ONCE) == ([], calls)
        gate.open()
        assert actors.wait(calls, num_returns=1) == (calls[:1], calls[1:])
        assert actors.get(calls) == [1.0, 2.0]
        assert actors.wait(calls, num_returns=1) == (calls[:1], calls[1:])

    def test_much_for_a_busy_actor_does_not_hold_up_the_driver(self, actors, tmp_path):
        """The actor reads none of it before the driver opens the gate: one that waited for that would wait in vain."""
        actor, gate = make(actors), Gate(tmp_path / "gate")
        busy = actor.total.remote(np.ones(1), tmp_path / "gate")
        gate.wait_for_arrivals()
        large = np.ones(2**21)
        calls = [actor.total.remote(large) for _ in range(3)]
        assert actors.wait([busy, *calls], timeout=AT_ONCE) == ([], [busy, *calls])
        gate.open()
        assert actors.get([busy, *calls]) == [1.0, *[float(2**21)] * 3]

    def test_what_a_method_raises_is_the_cause(self, actors):
        actor = make(actors)
        with pytest.raises(ActorTaskError, match="the cupboard is bare") as caught:
            actors.get(actor.fail.remote())
        assert isinstance(caught.value.cause, KeyError)
        with pytest.raises(ActorTaskError, match="LocalError: nobody knows this class") as caught:
            actors.get(actor.fail_strangely.remote())
        assert isinstance(caught.value.cause, RuntimeError)
        with pytest.raises(ActorTaskError, match="pickle"):
            actors.get(actor.unreadable.remote())
        assert actors.get(actor.greet.remote()) == "Ada"

    def test_an_object_that_cannot_be_made(self, actors):
        with pytest.raises(ActorTaskError, match="NoneType"):
            actors.get(actors.remote(Broken).remote().greet.remote())


class TestProcesses:
    def test_each_draws_numbers_of_its_own(self, actors):
        (first, second), (third, fourth) = actors.get([make(actors).draw.remote() for _ in range(2)])
        assert first != third
        assert second != fourth

    def test_their_environment_is_that_of_rays_workers(self, actors):
        assert actors.get(make(actors).environment.remote()) == ("0", "1")

    def test_one_that_dies_says_how_and_what_it_said_last(self, actors):
        actor = make(actors)
        call, next_call = actor.end.remote(), actor.greet.remote()
        text = r"its process ended with exit code 3; the workers' last lines:\n  I have had enough\."
        for item in (call, next_call, actor.greet.remote()):
            with pytest.raises(ActorError, match=text):
                actors.get(item)

    def test_one_that_is_killed(self, actors, tmp_path):
        actor, other = make(actors), make(actors, "Bob")
        process, _ = actors.get(actor.place.remote())
        waiting = actor.stay.remote(tmp_path / "mark")
        wait_until((tmp_path / "mark").exists, what="the call to begin")
        os.kill(process, signal.SIGKILL)
        with pytest.raises(ActorError, match=r"its process was ended by signal 9 \(SIGKILL\)"):
            actors.get(waiting)
        process, _ = actors.get(other.place.remote())
        actors.kill(other)
        with pytest.raises(ActorError, match="was ended by its pool"):
            actors.get(other.greet.remote())
        wait_until_gone(process)
        actors.check_alive()

    def test_without_what_forks_them_nothing_can_be_started(self, tmp_path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(SUPPORT))
            system = LocalActors([])
        actor = make(system)
        process, template = system.get(actor.place.remote())
        os.kill(template, signal.SIGKILL)
        with pytest.raises(ActorError, match=r"workers are started has ended|was ended by|its process ended"):
            system.get(actor.stay.remote(tmp_path / "mark"))
        with pytest.raises(PoolError, match=r"was ended by signal 9 \(SIGKILL\).*run the same call again to go on"):
            make(system)
        wait_until_gone(process)
        system.close()

    def test_nothing_is_left_where_the_driver_is_killed(self, tmp_path):
        script = textwrap.dedent("""
            import os, signal, sys
            from pathlib import Path
            from plain_actors import Plain
            from waiting import wait_until
            from workers.pools.local_actors import LocalActors
            system = LocalActors([])
            actor = system.remote(Plain).remote("Ada")
            print(*system.get(actor.place.remote()), "ray" in sys.modules, flush=True)
            actor.stay.remote(sys.argv[1])
            wait_until(Path(sys.argv[1]).exists, what="the call to begin")
            os.kill(os.getpid(), signal.SIGKILL)
        """)
        root = Path(__file__).parents[3]
        variables = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{SUPPORT}"}
        command = [sys.executable, "-c", script, str(tmp_path / "mark")]
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        process, template, ray = ended.stdout.split()
        wait_until_gone(int(process), int(template))
        assert ray == "False"


def wait_until_gone(*processes):
    wait_until(lambda: not any(map(is_running, processes)), what=lambda: [*filter(is_running, processes)])


def is_running(process):
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
