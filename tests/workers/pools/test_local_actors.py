"""Actors in processes of this machine: what Ray would do for a crew, done without it; also where it is not there."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import numpy as np
import psutil
import pytest
from packaging.requirements import Requirement
from places import ROOT, SUPPORT
from plain_actors import Broken, Plain
from scripts import run_python
from waiting import PATIENCE, Gate, wait_until

from collectors.files import system
from workers.errors import PoolError
from workers.pools import local_pool
from workers.pools.actors import ActorError, ActorTaskError
from workers.pools.local_pool import LocalActors
from workers.pools.local_processes import StoredValue

# The limit of a wait that ends as soon as it was looked once.
AT_ONCE = 0.0


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """How a process ended is waited for as long as a busy machine takes to say it."""
    monkeypatch.setattr(local_pool, "_STATUS_SECONDS", PATIENCE)


SPAWNED = [pytest.param(name, marks=pytest.mark.slow) for name in ("spawned", "spawned, files in a folder")]


@pytest.fixture(scope="module", params=["forked", *SPAWNED])
def actors(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SUPPORT))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setattr(system, "LINUX", not request.param.endswith("folder"))
        found = LocalActors(["numpy"], forked=request.param == "forked")
        yield found
        folder = found.folder
        found.close()
        assert (folder is None) == system.LINUX
        assert folder is None or not Path(folder).exists()


def make(actors, name="Ada"):
    return actors.start(Plain, [name], {"num_cpus": 1})


def ask(actors, actor, method, *arguments):
    return actors.get([actors.call(actor, method, *arguments)])[0]


class TestStoredValues:
    def test_arrays_come_out_as_they_went_in_and_cannot_be_changed(self):
        value = {
            "a": np.arange(12.0).reshape(3, 4),
            "strided": np.arange(20, dtype=np.int16)[::3],
            "columns": np.asfortranarray(np.ones((2, 3), np.float32)),
            "empty": np.zeros((0, 5)),
            "number": np.array(3.5),
        }
        found = StoredValue((value, "and text")).load()
        assert found[1] == "and text"
        for name, array in value.items():
            np.testing.assert_array_equal(found[0][name], array, strict=True)
        with pytest.raises(ValueError, match="read-only"):
            found[0]["a"][0, 0] = 7.0

    def test_actors_map_them_at_addresses_that_vectors_like(self, actors):
        stored = actors.put({"x": np.ones(1000, np.float32), "y": np.ones((7, 3))})
        assert ask(actors, make(actors), "describe", stored) == [((1000,), False, 0), ((7, 3), False, 0)]

    def test_they_stay_until_the_actor_has_read_them(self, actors, tmp_path):
        actor, gate = make(actors), Gate(tmp_path / "gate")
        busy = actors.call(actor, "total", np.ones(1), tmp_path / "gate")
        gate.wait_for_arrivals()
        call = actors.call(actor, "total", actors.put(np.ones(7)))
        gate.open()
        assert actors.get([busy, call]) == [1.0, 7.0]
        assert actors.folder is None or list(Path(actors.folder).iterdir()) == []

    def test_nothing_stays_open(self):
        gc.collect()  # what tests before it left open must not close meanwhile
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            assert StoredValue(np.ones(1000)).load().sum() == 1000
        assert len(list(Path("/proc/self/fd").iterdir())) == before


class TestCalls:
    def test_answers_in_the_order_of_the_calls(self, actors, tmp_path):
        actor, gate = make(actors), Gate(tmp_path / "gate")
        calls = [actors.call(actor, "total", np.ones(number), tmp_path / "gate") for number in (1, 2)]
        gate.wait_for_arrivals()
        assert actors.wait(calls, seconds=AT_ONCE) == ([], calls)
        gate.open()
        assert actors.wait(calls) == (calls[:1], calls[1:])
        assert actors.get(calls) == [1.0, 2.0]
        assert actors.wait(calls) == (calls[:1], calls[1:])

    def test_much_for_a_busy_actor_does_not_hold_up_the_driver(self, actors, tmp_path):
        """The actor reads none of it before the driver opens the gate: one that waited for that would wait in vain."""
        actor, gate = make(actors), Gate(tmp_path / "gate")
        busy = actors.call(actor, "total", np.ones(1), tmp_path / "gate")
        gate.wait_for_arrivals()
        large = np.ones(2**21)
        calls = [actors.call(actor, "total", large) for _ in range(3)]
        assert actors.wait([busy, *calls], seconds=AT_ONCE) == ([], [busy, *calls])
        gate.open()
        assert actors.get([busy, *calls]) == [1.0, *[float(2**21)] * 3]

    def test_what_a_method_raises_is_told(self, actors):
        actor = make(actors)
        with pytest.raises(ActorTaskError, match="KeyError: 'the cupboard is bare'"):
            ask(actors, actor, "fail")
        with pytest.raises(ActorTaskError, match="LocalError: nobody knows this class"):
            ask(actors, actor, "fail_strangely")
        with pytest.raises(ActorTaskError, match="pickle"):
            ask(actors, actor, "unreadable")
        assert ask(actors, actor, "greet") == "Ada"

    def test_an_object_that_cannot_be_made(self, actors):
        with pytest.raises(ActorTaskError, match="NoneType"):
            ask(actors, actors.start(Broken, [], {}), "greet")


class TestProcesses:
    def test_each_draws_numbers_of_its_own(self, actors):
        (first, second), (third, fourth) = actors.get([actors.call(make(actors), "draw") for _ in range(2)])
        assert first != third
        assert second != fourth

    def test_their_environment_is_that_of_rays_workers(self, actors):
        assert ask(actors, make(actors), "environment") == ("0", "1")

    def test_one_that_dies_says_how_and_what_it_said_last(self, actors):
        actor = make(actors)
        call, next_call = actors.call(actor, "end"), actors.call(actor, "greet")
        text = r"its process ended with exit code 3; the workers' last lines:\n  I have had enough\."
        for item in (call, next_call, actors.call(actor, "greet")):
            with pytest.raises(ActorError, match=text):
                actors.get([item])

    def test_one_that_is_killed(self, actors, tmp_path):
        actor, other = make(actors), make(actors, "Bob")
        process, _ = ask(actors, actor, "place")
        waiting = actors.call(actor, "stay", tmp_path / "mark")
        wait_until((tmp_path / "mark").exists, what="the call to begin")
        os.kill(process, signal.SIGKILL)
        with pytest.raises(ActorError, match=r"its process was ended by signal 9 \(SIGKILL\)"):
            actors.get([waiting])
        process, _ = ask(actors, other, "place")
        actors.kill(other)
        with pytest.raises(ActorError, match="was ended by its pool"):
            ask(actors, other, "greet")
        wait_until_gone(process)
        assert ask(actors, make(actors), "greet") == "Ada"

    def test_without_what_forks_them_nothing_can_be_started(self, tmp_path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(SUPPORT))
            actors = LocalActors([], forked=True)
        actor = make(actors)
        process, template = ask(actors, actor, "place")
        os.kill(template, signal.SIGKILL)
        with pytest.raises((PoolError, ActorError), match=r"workers are started was ended by|its process "):
            ask(actors, actor, "stay", tmp_path / "mark")
        with pytest.raises(PoolError, match=r"was ended by signal 9 \(SIGKILL\).*run the same call again to go on"):
            make(actors)
        wait_until_gone(process)
        actors.close()

    @pytest.mark.slow
    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
    @pytest.mark.parametrize("forked", [True, False])
    def test_nothing_is_left_where_the_driver_is_killed_or_interrupted(self, tmp_path, forked, end):
        script = textwrap.dedent("""
            import os, signal, sys
            from pathlib import Path
            from plain_actors import Plain
            from waiting import wait_until
            from workers.pools.local_pool import LocalActors
            actors = LocalActors([], forked=sys.argv[2] == "True")
            actor = actors.start(Plain, ["Ada"], {})
            print(*actors.get([actors.call(actor, "place")])[0], "ray" in sys.modules, flush=True)
            actors.call(actor, "stay", sys.argv[1])
            wait_until(Path(sys.argv[1]).exists, what="the call to begin")
            os.kill(os.getpid(), int(sys.argv[3]))
            wait_until(lambda: False, what="the end")
        """)
        variables = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}"}
        command = [sys.executable, "-c", script, str(tmp_path / "mark"), str(forked), str(int(end))]
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert ended.returncode == -end, ended.stderr
        process, parent, ray = ended.stdout.split()
        wait_until_gone(int(process), int(parent))
        assert ray == "False"


def wait_until_gone(*processes):
    wait_until(lambda: not any(map(is_running, processes)), what=lambda: [*filter(is_running, processes)])


def is_running(process):
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


SCRIPT = """
import sys

sys.modules["ray"] = None  # as where it is not installed
import torch
from torch import nn

from collectors.files import system
from landscape import LandscapeError, evaluate, random_plane
from workers.measurement_plan import MeasurementPlan

print("begun")
forked = system.forks_workers() and sys.argv[1] == "forked"
system.forks_workers = lambda: forked


def network():
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def callback_fn():
    return nn.MSELoss(), network(), (torch.ones(8, 2), torch.zeros(8, 1)), {}


def measure(address=None):
    plane, plan = random_plane(network(), seed=0), MeasurementPlan(8, 1)
    return evaluate(plane, callback_fn, size=5, plan=plan, progress=False, device_ids=[0, 1], address=address)


found = measure()
print(found.report.workers, found.loss.shape)
try:
    measure("10.0.0.1:6379")
except LandscapeError as error:
    print(type(error).__name__, error)
"""
NEEDED = (
    r"PoolError Ray cannot be imported \(.*\)\. Clusters need it, and several GPUs, .*: install it with `pip install "
    r"ray` .*Without Ray, leave address and RAY_ADDRESS out, .*several workers on CPU cores need no Ray\."
)


@pytest.mark.slow
@pytest.mark.room("landscape/measure.py")
@pytest.mark.filterwarnings("ignore:device_ids .* go beyond")
@pytest.mark.parametrize("kind", ["forked", "spawned"])
def test_a_script_without_ray_and_without_a_guard(own_ray, tmp_path, kind):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    begun, measured, needed = run_python(script, kind, patience=1.5 * PATIENCE).splitlines()
    assert begun == "begun"
    assert measured == "2 (5, 5)"
    assert re.fullmatch(NEEDED, needed)


def test_ray_is_a_dependency_where_it_has_a_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (ray,) = (item for item in map(Requirement, project["dependencies"]) if item.name == "ray")
    machines = {"linux": ("x86_64", "aarch64"), "darwin": ("arm64", "x86_64"), "win32": ("AMD64", "ARM64")}
    places = [(name, machine) for name, of_system in machines.items() for machine in of_system]
    without = [
        (name, machine)
        for name, machine in places
        if not ray.marker.evaluate({"sys_platform": name, "platform_machine": machine})
    ]
    assert without == [("darwin", "x86_64"), ("win32", "ARM64")]
