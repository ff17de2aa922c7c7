"""Collecting onto a real S3 server of this machine: a real training, really killed, and resumed elsewhere."""

import re
import subprocess

import pytest
from places import SUPPORT
from remote_stores import python, run_script, s3_server, temporary

pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning:moto")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("home")) as environment:
        yield environment


TRAINING = """
import json, signal, sys, tempfile
import torch
from runs import SmallNetwork, batches, seeded
from collectors import SummaryCollector
from collectors.run_directory import RunDirectory, directory
from collectors.networks.readers import describe_network
from collectors.run_directory import writer as run_writer

STEPS = 40
run_writer.METADATA_INTERVAL_SECONDS = directory.REMOTE_INTERVAL_SECONDS = 0.0

def training(place, existing, network, start=0, before_the_end=lambda: None):
    # Workers are forked while the collector's threads run.
    loader = torch.utils.data.DataLoader(
        batches(STEPS)[start:], batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    collector = SummaryCollector(place, 1, collect_landscape={"intervals": [range(STEPS + 1)]}, existing=existing)
    with collector.watch(network, optimizer=optimizer, start_step=start, steps_per_epoch=STEPS) as run:
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(inputs), targets)
            loss.backward()
            optimizer.step()
            run.step(loss)
            print("step", flush=True)
        before_the_end()
    return RunDirectory(place)

network = seeded(SmallNetwork)
"""
BEGIN = """
import s3fs
s3fs.S3FileSystem().mkdir("bucket")
# It waits for the kill, however late that comes.
training("s3://bucket/run", "error", network, before_the_end=signal.pause)
"""
RESUME = """
from event_reading import scalars
import s3fs
run = RunDirectory("s3://bucket/run")
numbers = sorted(run.metadata.files)
assert numbers == list(range(len(numbers))), numbers
for number in numbers:
    last = run.checkpoint(number, describe_network(network))
network.load_state_dict({name: torch.from_numpy(last.read(name)) for name in last.shapes})
there = training("s3://bucket/run", "resume", network, numbers[-1])
here = training(tempfile.mkdtemp(dir=sys.argv[1]), "error", seeded(SmallNetwork))
assert there.metadata == here.metadata
for number in range(STEPS + 1):
    assert there.checkpoint(number).sha256() == here.checkpoint(number).sha256()
s3fs.S3FileSystem().get("bucket/run/", sys.argv[1] + "/records", recursive=True)
losses = scalars(sys.argv[1] + "/records", "loss/auto")
assert [step for step, _ in losses][-1] == STEPS, losses
print(len(numbers))
"""
# The collector has threads when the loader forks.
WARNINGS = ("error", "ignore:This process:DeprecationWarning")


@pytest.mark.slow
def test_a_training_that_is_killed_and_resumed_on_s3(server, tmp_path):
    killed_after = 17
    process = subprocess.Popen(
        python(TRAINING + BEGIN, warnings=WARNINGS),
        env=server,
        cwd=SUPPORT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(killed_after):
            line = process.stdout.readline()
            assert line == "step\n", process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    assert len(temporary(f"landscape-records-{process.pid}-*")) == 1
    done = run_script(TRAINING + RESUME, server, str(tmp_path), warnings=WARNINGS)
    assert done.returncode == 0, done.stderr
    # Two checkpoints may wait while one is on its way.
    assert killed_after - 3 <= int(done.stdout.split()[-1])
    for kind in ("upload", "records", "copy"):
        assert temporary(f"landscape-{kind}-{process.pid}-*") == []


@pytest.mark.slow
def test_an_s3_server_or_a_bucket_that_is_not_there(server):
    script = """
import os
import s3fs
import torch
from collectors import SummaryCollector
from collectors.errors import RunDirectoryError
for address in (os.environ["AWS_ENDPOINT_URL"], "http://127.0.0.1:1"):
    os.environ["AWS_ENDPOINT_URL"] = address
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        collector = SummaryCollector("s3://nobody/run", collect_landscape={"intervals": [range(3)]})
        collector.watch(torch.nn.Linear(2, 2)).__enter__()
    except RunDirectoryError as error:
        print(error)
"""
    done = run_script(script, server)
    bucket, address = done.stdout.splitlines()
    text = "summary_dir s3://nobody/run cannot be written: "
    assert bucket.startswith(f"{text}FileNotFoundError: The specified bucket does not exist"), done.stderr[-600:]
    assert re.match(f"{text}.*127.0.0.1:1", address)
