"""The examples for Kubernetes and Slurm: their syntax alone, as their first comment says."""

import re
import subprocess

import pytest
import yaml
from places import ROOT

DEPLOY = ROOT / "deploy"


@pytest.mark.parametrize(("name", "line"), [("kuberay.yaml", 0), ("slurm.sh", 1)])
def test_it_says_that_it_has_not_been_run(name, line):
    assert re.match("# .*its syntax is tested, it has not been run", (DEPLOY / name).read_text().splitlines()[line])


def test_the_kuberay_example():
    job, policy = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert job["spec"]["entrypoint"].startswith("landscape run /shared/run --function my_training:callback_fn --output")
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert len(groups) == 2
    for group in groups:
        assert isinstance(group["rayStartParams"], dict)
        (container,) = group["template"]["spec"]["containers"]
        assert {"name", "image", "resources"} <= set(container)
    assert cluster["workerGroupSpecs"][0]["replicas"] >= 1
    assert (policy["apiVersion"], policy["kind"]) == ("networking.k8s.io/v1", "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_the_slurm_example():
    script = DEPLOY / "slurm.sh"
    checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    text = script.read_text()
    assert text.startswith("#!/bin/bash\n")
    directives = re.findall(r"^#SBATCH --([a-z-]+)=", text, re.MULTILINE)
    assert {"nodes", "ntasks-per-node", "gpus-per-node", "time"} <= set(directives)
    # sbatch stops looking for its directives at the first command.
    assert text.rindex("#SBATCH") < text.index("set -euo pipefail")
    assert "RAY_AUTH_MODE=token" in text
    assert not re.search(r"--\S*\$RAY_AUTH_TOKEN", text)


def test_the_options_of_the_examples_exist():
    """What the files pass to our command is understood by it."""
    from typer.main import get_command

    from landscape.cli import app

    run = get_command(app).commands["run"]
    known = {name for parameter in run.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for name in ("kuberay.yaml", "slurm.sh"):
        (command,) = re.findall(r"landscape run ((?:[^\n]|\n +--)*)", (DEPLOY / name).read_text())
        assert set(re.findall(r"--[a-z-]+", command)) <= known
