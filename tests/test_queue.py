"""The scripts of the page on queues, run with a stand-in for ``sbatch``."""

import re
import subprocess
import sys

import numpy as np
import pytest
from command_line import command
from documentation import DOCS, blocks, run_page
from waiting import PATIENCE
from warm_python import warm_programs

from landscape import Landscape

SCRIPT = re.compile(r"^```sh title=\"([^\"\n]+)\"\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What SLURM sets for a job, and for each job of an array, one after another.
SBATCH = f"""#!{sys.executable}
import os, re, subprocess, sys, time
script = open(sys.argv[1]).read()
hours, minutes, _ = map(int, re.search(r"--time=(\\d+):(\\d+):(\\d+)", script).groups())
end = int(time.time()) + 60 * (60 * hours + minutes)  # time: a job's end, as SLURM says it
job = {{"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(end)}}
array = re.search(r"--array=(\\d+)-(\\d+)", script)
first, last = map(int, array.groups()) if array else (0, 0)
for task in range(first, last + 1):
    if array:
        job |= {{
            "SLURM_ARRAY_TASK_ID": str(task),
            "SLURM_ARRAY_TASK_MIN": str(first),
            "SLURM_ARRAY_TASK_MAX": str(last),
            "SLURM_ARRAY_TASK_STEP": "1",
            "SLURM_ARRAY_TASK_COUNT": str(last - first + 1),
        }}
    subprocess.run(["bash", sys.argv[1]], env=os.environ | job, check=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)  # a training, and six measurements in processes of their own
@pytest.mark.room("docs", "landscape.cli", "landscape.commands", "landscape.grid.merging")
def test_the_scripts_of_the_page(tmp_path):
    folder, programs = tmp_path / "queue", tmp_path / "programs"
    folder.mkdir()
    programs.mkdir()
    (programs / "sbatch").write_text(SBATCH)
    (programs / "sbatch").chmod(0o755)
    (folder / "my_training.py").write_text(blocks("quick_start.md")[0][2])
    for name, text in SCRIPT.findall((DOCS / "queue.md").read_text()):
        (folder / name).write_text(text)
    with warm_programs() as warm:
        subprocess.run([warm / "python", "my_training.py"], cwd=folder, check=True, timeout=PATIENCE)
        run_page("queue.md", folder, f"{programs}:{warm}")
    merged = Landscape.load(folder / "run/shared_0-20_pca.h5")
    assert merged.complete
    how = ("--function", "my_training:callback_fn", "--plan", "run/tiny_0-20_pca.h5", "--size", "20")
    command("run", "run", *how, "--no-result", "--name", "whole", "--quiet", "--devices", "0", folder=folder)
    whole = Landscape.load(folder / "run/whole_0-20_pca.h5")
    for name, values in whole.metrics.items():
        np.testing.assert_array_equal(merged[name], values)
    for name, values in whole.checkpoints.metrics.items():
        np.testing.assert_array_equal(merged.checkpoints.metrics[name], values)
    assert Landscape.load(folder / "run/landscape_0-20_pca.h5").complete
