"""The commands of docs/cluster.md, run as they are written there; only ports and folders are this test's own."""

import re
import subprocess

import numpy as np
import pytest
from own_processes import free_ports, processes_of
from places import ROOT
from waiting import PATIENCE

from landscape import Landscape, SummaryLandscape

PAGE = ROOT / "docs" / "cluster.md"


def commands(marker):
    """Returns the shell commands that follow a comment of the page."""
    (block,) = re.findall(rf"<!-- {re.escape(marker)} -->\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return block


def with_own_places(text, home):
    """Puts this test's ports and folders into commands; each of them must occur. Returns the client's port, too."""
    head, dashboard, agent, client = free_ports(4)
    own = {
        "ray start --head": f"ray start --head --port={head} --dashboard-port={dashboard} --num-cpus=1 "
        f"--dashboard-agent-listen-port={agent} --ray-client-server-port={client} --temp-dir={home / 'ray'}",
        "http://127.0.0.1:8265": f"http://127.0.0.1:{dashboard}",
        "/shared/run": str(home / "run"),
        "/shared/landscapes": str(home / "landscapes"),
    }
    for written, ours in own.items():
        assert written in text, written
        text = text.replace(written, ours)
    return text, client


def shell(command, project, environment):
    return subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE * 4,  # several commands, each of which imports Ray
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(10 * PATIENCE)  # a cluster, a submitted job, and three more commands of its user
def test_a_submitted_job(project, run, home, environment, monkeypatch):
    script, client = with_own_places(commands("these commands are run by tests/cluster/test_job_submit.py"), home)
    done = shell(script, project, environment)
    assert done.returncode == 0, done.stdout
    assert "succeeded" in done.stdout
    there = Landscape.load(home / "landscapes" / "landscape_0-4_pca.h5")
    token = (home / ".ray" / "auth_token").read_text()
    assert len(token) == 64
    assert token not in done.stdout
    assert any(process.name() == "raylet" for process in processes_of(home))

    stranger = {**environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "f" * 64}
    refused = shell(script.splitlines()[-1], project, stranger)
    assert refused.returncode != 0
    assert re.search("403|401|[Ii]nvalid|Unauthorized|Forbidden", refused.stdout), refused.stdout

    # The same from elsewhere, through Ray's client server.
    command = f"landscape run {run} --function my_training:callback_fn --output {home / 'client'} --quiet"
    joined = shell(f"{command} --address ray://127.0.0.1:{client}", project, {**environment, "RAY_AUTH_MODE": "token"})
    assert joined.returncode == 0, joined.stdout
    np.testing.assert_array_equal(Landscape.load(home / "client" / "landscape_0-4_pca.h5").loss, there.loss)

    monkeypatch.syspath_prepend(str(project))
    from my_training import callback_fn

    (here,) = SummaryLandscape(run).gen_landscapes_with_multi_process(callback_fn, device_ids=[0], progress=False)
    assert there.attributes["identity"] == here.attributes["identity"]
    np.testing.assert_allclose(there.loss, here.loss, rtol=1e-6)
