"""The main flows of the product, from collecting to pictures, and how they run under a simulated system.

A flow is a program, or the arguments of ``landscape``. All run one after another in one process, since most of a flow's
time is the import of PyTorch and of the product; only a program that is to be killed has its own, a fork of that one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from places import ROOT, SUPPORT
from scripts import run_script

SIMULATED = Path(__file__).parent / "simulated"
RAN_TOO_LONG = 1200
TRAINING = '''
import os
import signal
import sys
import time
from pathlib import Path

import h5py
import torch
from sklearn.datasets import load_digits
from torch import nn
from waiting import wait_until

images = torch.from_numpy(load_digits().images).float().flatten(1) / 16
targets = torch.from_numpy(load_digits().target).long()


def make_network():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def callback_fn():
    return nn.CrossEntropyLoss(), make_network(), (images[:512], targets[:512]), {"accuracy": accuracy}


def measured(folder):
    """Returns how many points of a grid its file holds, and how many the grid has."""
    for file in Path(folder).glob("*_pca.h5"):
        with h5py.File(file) as found:
            return int((found["status"][...] == 1).sum()), found["status"].size
    return 0, 0


def callback_fn_that_kills(folder):
    def loss(outputs, targets):
        time.sleep(0.03)  # time: the file, which is written every five seconds, must hold a part of the grid
        if 0 < measured(folder)[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return nn.functional.cross_entropy(outputs, targets)
    return loss, make_network(), (images[:512], targets[:512]), {}


def callback_fn_that_goes_on():
    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
    return loss, make_network(), (images[:512], targets[:512]), {}


def train(folder, epochs=4, kill_after=None, **options):
    from collectors import SummaryCollector
    torch.manual_seed(len(str(folder)))
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    wanted = {"unit": "epoch", "intervals": [range(0, epochs + 1)], "num_samples": 256}
    start = options.pop("start_epoch", 0)
    with SummaryCollector(folder, collect_landscape=wanted, **options).watch(network, start_epoch=start) as run:
        for epoch in range(start, epochs):
            for batch in torch.randperm(len(images)).split(256):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(network(images[batch]), targets[batch])
                loss.backward()
                optimizer.step()
                run.step(loss)
            run.end_epoch()
            if kill_after == epoch:
                wait_until((Path(folder) / "ckpt_dir" / f"Sequential_{epoch + 1}_epoch.safetensors").exists)
                os.kill(os.getpid(), signal.SIGKILL)
'''
REFERENCE = """
import shutil
from pathlib import Path

import my_training
from landscape import SummaryLandscape
from landscape.cli import main

my_training.train("run")
my_training.train("run_b")
SummaryLandscape("run").gen_landscapes_with_multi_process(
    my_training.callback_fn, {"landscape_size": 7}, device_ids=[0], progress=False, output="ref")
for command in (
    ["evaluate", "run@4", "--kind", "random-line", "--size", "9", "-o", "ref/line.h5"],
    ["curvature", "run", "--numbers", "0,4", "--top", "2", "--trace", "4", "--density", "1x8", "-o", "ref"],
):
    sys.argv = ["landscape", *command, "--function", "my_training:callback_fn", "--devices", "0"]
    try:
        main()
    except SystemExit as error:
        assert not error.code, command
next(Path("ref").glob("*_pca.h5")).rename("ref/surface.h5")
next(Path("ref").glob("curvature*.h5")).rename("ref/curvature.h5")
"""
MEASURE = """
import my_training as t
from landscape import SummaryLandscape
if __name__ == "__main__":
    for again in range(TIMES):
        print(SummaryLandscape("run").gen_landscapes_with_multi_process(t.callback_fn, {"landscape_size": 5}, OPTIONS))
"""
MODEL = """
import os
import my_training as t, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from collectors import (
    CheckpointConfig, History, LossMonitor, Model, ModelCheckpoint, SummaryCollector, TimeMonitor, load_checkpoint,
    save_checkpoint,
)
n = t.make_network()
m = Model(n, nn.CrossEntropyLoss(), torch.optim.Adam(n.parameters()), {"acc"})
l = DataLoader(TensorDataset(t.images, t.targets), batch_size=256)
"""


def _measure(options, times=1):
    return MEASURE.replace("OPTIONS", options).replace("TIMES", str(times))


# The first: they import the product.
COLLECTING = {
    "import": "import collectors, workers, landscape\n"
    "from collectors import SummaryCollector, Model, SummaryRecord, ModelCheckpoint\n"
    "from landscape import SummaryLandscape, evaluate\n"
    "from landscape.functions import measure_curvature, connect, compare",
    "collect": "import my_training as t; t.train('new')\n"
    "import os; found = sorted(os.listdir('new/ckpt_dir')); assert len(found) == 6, found",
    "collect twice (refusal)": """
import my_training as t
from collectors.errors import LandscapeError
t.train("new2")
try:
    t.train("new2")
except LandscapeError as error:
    assert "already holds a run" in str(error)
else:
    raise AssertionError("not refused")
""",
    "collect, overwrite": "import my_training as t; t.train('new3'); t.train('new3', existing='overwrite')",
    "model + checkpoint": MODEL
    + """
config = CheckpointConfig(save_checkpoint_steps=4, keep_checkpoint_max=2)
m.train(2, l, callbacks=[ModelCheckpoint("a", "ckpts", config), LossMonitor(5), TimeMonitor(), History()])
p = save_checkpoint(n, "digits", {"acc": 1.0}); load_checkpoint(p).load_into(n)
assert len([name for name in os.listdir("ckpts") if name.endswith(".safetensors")]) == 2, os.listdir("ckpts")
""",
    "model, async checkpoint": MODEL
    + 'm.train(2, l, callbacks=[ModelCheckpoint("a", "ckpts2", CheckpointConfig(save_checkpoint_steps=4, '
    "async_save=True))])\nassert os.listdir('ckpts2')",
    "summary record": """
import numpy as np, os
from collectors import SummaryRecord
with SummaryRecord("events") as r:
    for s in range(3):
        r.add_value("scalar", "loss", np.array(1.0 / (s + 1)))
        r.record(s)
assert len(os.listdir("events")) == 1, os.listdir("events")
""",
    "summary collector records": MODEL
    + "m.train(2, l, callbacks=[SummaryCollector('rec', collect_freq=2)])\nassert os.listdir('rec')",
    "summary, folder removed after": """
import numpy as np
from collectors import SummaryRecord
r = SummaryRecord("events2"); r.add_value("scalar", "loss", np.array(1.0)); r.record(0); r.close()
import collectors.files.local_files as f; f.shutil.rmtree("events2")
""",
}
MEASURING = {
    "devices": ["info"],
    "evaluate, device_ids=None": _measure("progress=False, output='out_none'"),
    "evaluate, device_ids=[0]": _measure("device_ids=[0], output='out_0'"),
    "evaluate, overwrite": _measure("device_ids=[0], progress=False, output='out_again', overwrite=True", times=2),
    "evaluate, compile": _measure("device_ids=[0], compile=True, progress=False, output='out_c'"),
    # As small as it can be: all of it runs in `make demo`, and compiling in the flow before.
    "landscape demo (command)": """
import sys
from landscape import demo
from landscape.cli import main
demo.EPOCHS, demo.SIZE = 2, 5
sys.argv = ["landscape", "demo", "--output", "demo_output"]
main()
""",
    "curvature": """
import my_training as t
from landscape.functions import measure_curvature
print(measure_curvature(
    t.make_network(), t.callback_fn, top=2, trace_probes=2, device_ids=[0], progress=False, output="c.h5"))
""",
    "curvature (command)": ["curvature", "run", "--function", "my_training:callback_fn", "--numbers", "0,4", "--top",
                            "2", "--trace", "4", "--density", "1x8", "--devices", "0", "-o", "curv"],
    "compare (command)": ["compare", "a=run", "b=run_b", "--function", "my_training:callback_fn", "--devices", "0",
                          "-o", "cmp"],
    "barrier (command)": ["connect", "run@1", "run@4", "--function", "my_training:callback_fn", "--devices", "0", "-o",
                          "line2.h5", "--points", "7"],
    "connect (command)": ["connect", "run@1", "run@4", "--kind", "bezier", "--function", "my_training:callback_fn",
                          "--devices", "0", "-o", "curve2.h5", "--points", "7"],
    "align (command)": ["connect", "run@4", "run@1", "--align", "--function", "my_training:callback_fn", "-o",
                        "aligned.safetensors"],
    "refine (command)": ["evaluate", "ref/surface.h5", "--factor", "2", "--run", "run", "--function",
                         "my_training:callback_fn", "--devices", "0", "-o", "fine.h5"],
}  # fmt: skip
LOOKING = {
    "info": ["info", "ref/surface.h5"],
    "info --json": ["info", "ref/surface.h5", "--json"],
    "view page": ["plot", "ref/surface.h5", "-o", "page.html", "--no-open"],
    "export": ["convert", "ref/surface.h5", "-o", "out.npz"],
    "convert from checkpoints": """
import my_training as t, torch, sys
for e in range(4):
    torch.save(t.make_network().state_dict(), f"epoch_{e}.pt")
from landscape.cli import main
files = [f"epoch_{number}.pt" for number in range(4)]
sys.argv = ["landscape", "convert", *files, "--from", "checkpoints", "-o", "imported"]
main()
""",
    "help (console)": ["run", "--help"],
    **{
        f"plot {kind}": ["plot", "ref/surface.h5", "--kind", kind, "-o", f"p_{kind}.png"]
        for kind in ("contour", "lines", "heatmap", "surface", "persistence", "merge_tree")
    },
    "plot profile": ["plot", "ref/line.h5", "-o", "p_profile.svg"],
    "plot barriers": ["plot", "ref/line.h5", "--kind", "barriers", "-o", "p_barriers.pdf"],
    "plot difference": ["plot", "ref/surface.h5", "ref/surface.h5", "--kind", "difference", "-o", "p_diff.png"],
    "plot multiples": ["plot", "ref/surface.h5", "ref/surface.h5", "--kind", "multiples", "-o", "p_multi.png"],
    "plot animation gif": ["plot", "ref/surface.h5", "-o", "p.gif", "--seconds", "1"],
    "plot animation mp4": ["plot", "ref/surface.h5", "-o", "p.mp4", "--seconds", "0.2"],
    "plot sharpness": ["plot", "ref/curvature.h5", "--kind", "sharpness", "-o", "p_sharp.png"],
    "plot spectrum": ["plot", "ref/curvature.h5", "--kind", "spectrum", "-o", "p_spec.png"],
    "log to tensorboard": ["convert", "ref/surface.h5", "--to", "tensorboard", "--directory", "tb"],
    "plot with open reader": """
import pathlib, shutil
import h5py
shutil.copytree("ref", "ref2")
f = h5py.File("ref2/surface.h5", "r")
from collectors.files.local_files import write_bytes
write_bytes("ref2/surface.h5", pathlib.Path("ref2/surface.h5").read_bytes())
""",
}
WITH_PROCESSES = {
    "evaluate, device_ids=[0,1]": _measure("device_ids=[0, 1], progress=False, output='out_01'")
    + "    import sys\n    assert 'ray' not in sys.modules\n",
    "evaluate, private Ray": _measure("device_ids=[0, 1], address='local', progress=False, output='out_ray'"),
}
# The last flow imports Ray, which the one before must not have done.
FLOWS = COLLECTING | MEASURING | LOOKING | WITH_PROCESSES
# The first program kills its process, the second one goes on.
KILLED = {
    "collect, resume after kill": (
        "import my_training as t; t.train('new4', kill_after=1)",
        """
import my_training as t, os
before = set(os.listdir("new4/ckpt_dir"))
t.train("new4", existing="resume", start_epoch=2)
after = sorted(os.listdir("new4/ckpt_dir"))
assert "Sequential_2_epoch.safetensors" in before and "Sequential_4_epoch.safetensors" not in before, before
assert [f"Sequential_{n}_epoch.safetensors" in after for n in range(5)] == [True] * 5, after
""",
    ),
    "evaluate, resume after kill": (
        """
import my_training as t
from landscape import SummaryLandscape
SummaryLandscape("run").gen_landscapes_with_multi_process(
    lambda: t.callback_fn_that_kills("out_k"), {"landscape_size": 20}, device_ids=[0], progress=False, output="out_k")
""",
        """
import my_training as t
from landscape import SummaryLandscape
before, points = t.measured("out_k")
assert 0 < before < points == 400, (before, points)
found = SummaryLandscape("run").gen_landscapes_with_multi_process(
    t.callback_fn_that_goes_on, {"landscape_size": 20}, device_ids=[0], progress=False, output="out_k")
assert t.measured("out_k") == (400, 400)
assert found[0].report.resumed >= before, (found[0].report, before)
""",
    ),
}
NAMES = (*FLOWS, *KILLED)


def make_reference(folder):
    """Makes the runs and the files that the flows read, on this system."""
    folder.mkdir()
    (folder / "my_training.py").write_text(TRAINING)
    program = f"import sys; sys.path.insert(0, '')\n{REFERENCE}"
    run_script(program, cwd=folder, env=environment("linux", folder), patience=RAN_TOO_LONG)


def run_flows(system, folder):
    """Returns each flow's exit code and output under "mac" or "win".

    Args:
        system: of these two.
        folder: with what ``make_reference`` made.
    """
    asked, results = folder / "flows.json", folder / "results.jsonl"
    asked.write_text(json.dumps([KILLED, FLOWS]))
    results.write_text("")
    process = subprocess.run(
        [sys.executable, str(SIMULATED / f"{system}.py"), "-c", "from several import main; main()", asked, results],
        cwd=folder, env=environment(system, folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", timeout=RAN_TOO_LONG, check=False,
    )  # fmt: skip
    found = {name: (code, said) for name, code, said in map(json.loads, results.read_text().splitlines())}
    ended = (process.returncode or 1, f"its process ended: {process.stdout}")
    if process.returncode:
        found = {name: result for name, result in found.items() if result[0]}
    return {name: found.get(name, ended) for name in NAMES}


def environment(system, folder):
    """Returns the variables of a process under a system, whose notes and caches go into a folder."""
    found = {name: value for name, value in os.environ.items() if name != "SIM_PLATFORM"}
    found |= {
        "SIM_LOG": str(folder / "refused.log"),
        "MPLBACKEND": "agg",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]),
    }
    if system == "win":
        found |= {"PYTHONIOENCODING": "cp1252", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return found
