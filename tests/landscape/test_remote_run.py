"""Landscapes of runs that lie elsewhere: in memory, and on a real S3 server of this machine."""

import re

import numpy as np
import pytest
from examples import batch_norm
from remote_stores import empty_memory, run_script, s3_server

from collectors.errors import RunDirectoryError
from collectors.files import places as run_files
from landscape import Landscape, MeasurementPlan, SummaryLandscape
from landscape.errors import LandscapeWriteError

PLAN = MeasurementPlan(batch_size=32)
# botocore closes the connections to the server when the process ends, and the server's own thread is a daemon.
pytestmark = [
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning:botocore"),
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning:moto"),
]


@pytest.fixture
def remote(trained):
    with empty_memory() as system:
        system.put(str(trained / "ckpt_dir"), "/bucket/run/ckpt_dir", recursive=True)
        yield system


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("home")) as environment:
        yield environment


def generate(run, **more):
    return SummaryLandscape(run).gen_landscapes_with_multi_process(
        batch_norm, device_ids=[0], progress=False, plan=PLAN, **more
    )


@pytest.fixture(scope="module")
def here(trained, tmp_path_factory):
    """The landscapes of the run as it lies on this machine."""
    return generate(trained, output=tmp_path_factory.mktemp("here"))


def everything(landscape):
    path = landscape.checkpoints
    return [dict(landscape.metrics), path.metrics if path else None, landscape.attributes["identity"]]


@pytest.mark.slow
@pytest.mark.parametrize("room", [True, False])
def test_the_same_landscapes_as_from_the_disk(here, remote, tmp_path, room, monkeypatch):
    if not room:
        monkeypatch.setattr(run_files, "_COPIES_AT_MOST", 0)
    before = dict(remote.store)
    there = generate("memory://bucket/run", output=tmp_path / "there")
    for ours, theirs in zip(there, here, strict=True):
        assert ours.path == tmp_path / "there" / theirs.path.name
        np.testing.assert_equal(everything(ours), everything(theirs))
    assert remote.store == before
    assert SummaryLandscape("memory://bucket/run").clean_ckpt() is None
    assert not remote.exists("/bucket/run/ckpt_dir")


@pytest.mark.slow
def test_landscape_files_lie_in_the_run_or_where_output_says(here, remote):
    for output, folder in ((None, "/bucket/run"), ("memory://bucket/out", "/bucket/out")):
        there = generate("memory://bucket/run", output=output)
        for ours, theirs in zip(there, here, strict=True):
            assert str(ours.path) == f"memory://{folder}/{theirs.path.name}"
            np.testing.assert_equal(everything(Landscape.load(str(ours.path))), everything(theirs))


def test_a_run_that_may_only_be_read(remote, monkeypatch):
    def refused(*_, **__):
        raise PermissionError("read only")

    monkeypatch.setattr(type(remote), "pipe_file", refused)
    match = r"output memory:///bucket/run cannot be written: .*Or keep the files on this machine: output=\"landscapes\""
    with pytest.raises(LandscapeWriteError, match=match):
        generate("memory://bucket/run")


def test_no_such_run(remote):
    with pytest.raises(RunDirectoryError, match=r"summary_dir memory:///bucket/other does not exist"):
        SummaryLandscape("memory://bucket/other")


@pytest.mark.slow
def test_an_s3_server_from_the_command_line(trained, here, server, tmp_path):
    """In a process of its own: s3fs keeps a thread for its connections."""
    script = f"""
import s3fs
system = s3fs.S3FileSystem()
system.mkdir("bucket")
system.put({str(trained / "ckpt_dir")!r}, "bucket/run/ckpt_dir", recursive=True)
from landscape.cli import main
import sys
for typed in (
    ["run", "s3://bucket/run", "--function", "examples:batch_norm", "--devices", "0", "--quiet",
     "-o", "s3://bucket/out"],
    ["plot", "s3://bucket/out/landscape_0-4_pca.h5", "-o", {str(tmp_path / "picture.png")!r}],
):
    sys.argv[1:] = typed
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
system.get("bucket/out", {str(tmp_path / "out")!r}, recursive=True)
"""
    done = run_script(script, server, warnings=("error", "ignore::DeprecationWarning:botocore"))
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["landscape_0-4_pca.h5", "landscape_4_random.h5"]
    there = [Landscape.load(tmp_path / "out" / landscape.path.name) for landscape in here]
    for ours, theirs in zip(there, here, strict=True):
        assert ours.attributes["identity"] == theirs.attributes["identity"]
        np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-6)


@pytest.mark.slow
def test_workers_read_checkpoints_from_an_s3_server_by_themselves(trained, server, tmp_path):
    script = f"""
import numpy as np
import s3fs
from collectors.weights.aligned import NetworkState
from examples import batch_norm
from landscape import MeasurementPlan, SummaryLandscape
system = s3fs.S3FileSystem()
system.mkdir("several")
system.put({str(trained / "ckpt_dir")!r}, "several/run/ckpt_dir", recursive=True)
read, count = NetworkState.__call__, []
NetworkState.__call__ = lambda self: count.append(self) or read(self)
def measure(run, devices):
    count.clear()
    found = SummaryLandscape(run).gen_landscapes_with_multi_process(
        batch_norm, device_ids=devices, progress=False, plan=MeasurementPlan(32), output={str(tmp_path)!r},
        overwrite=True)
    return [landscape.checkpoints.metrics if landscape.checkpoints else None for landscape in found], len(count)
(there, by_driver), (here, in_process) = measure("s3://several/run", [0, 1]), measure({str(trained)!r}, [0])
assert (by_driver, in_process > 5) == (0, True), (by_driver, in_process)
np.testing.assert_equal(there, here)
"""
    done = run_script(script, server)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "summary_dir s3://bucket/run cannot be read: .*127.0.0.1:1"),
        ({}, "summary_dir s3://nobody/run does not exist"),
    ],
)
def test_an_s3_server_that_is_not_there(server, tmp_path, changed, message):
    url = "s3://bucket/run" if changed else "s3://nobody/run"
    script = f"from landscape import SummaryLandscape; SummaryLandscape({url!r})"
    done = run_script(script, {**server, **changed})
    assert done.returncode == 1
    assert re.search(message, done.stderr.splitlines()[-1]), done.stderr[-600:]
