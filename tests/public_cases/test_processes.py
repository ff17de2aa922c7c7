"""Reports of other projects on processes, and on files that they leave."""

from __future__ import annotations

import sys

import pytest
import torch
from scripts import run_python
from torch import nn

from collectors import load_checkpoint, save_checkpoint
from workers.torch.compiled.packages import PackageFolder


def test_the_command_line_starts_without_docstrings():
    """lark-parser/lark#283: a module that reads its own docstrings cannot be imported with python -OO."""
    run_python("-OO", "-c", "from landscape.cli import main; main()", "--help")


SCRIPT = """
import multiprocessing, warnings
import torch
from torch import nn
from landscape import evaluate, random_plane

INPUTS, TARGETS = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
NETWORK = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 32 * 32, 10))
PLANE = random_plane(NETWORK)

def callback_fn():
    return nn.CrossEntropyLoss(), NETWORK, (INPUTS, TARGETS), {}

def survey(results):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = evaluate(PLANE, callback_fn, size=3, device_ids=[0], progress=False, compile=False)
    results.put((found.loss[1, 1], {str(item.message) for item in caught}))

torch.set_num_threads(2)
expected = nn.functional.cross_entropy(NETWORK(INPUTS), TARGETS)
expected.backward()
context = multiprocessing.get_context("fork")
results = context.SimpleQueue()
child = context.Process(target=survey, args=(results,))
child.start()
loss, texts = results.get()
child.join()
assert abs(loss - expected.item()) < 1e-5 * abs(loss), (loss, expected)
assert sum("forked from one in which PyTorch may have computed" in text for text in texts) == 1, texts
print("good")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks by itself")
def test_a_survey_in_a_forked_process_ends():
    """pytorch/pytorch#41197: a process that was forked from one that computed waits for threads that are not there."""
    assert run_python("-W", "ignore", "-c", SCRIPT) == "good\n"


def test_the_name_that_was_given_is_found(tmp_path):
    """numpy/numpy#9929: what was saved under a name was not found under it, because an ending was added."""
    network = nn.Linear(3, 2)
    save_checkpoint(network, tmp_path / "best.ckpt")
    found = load_checkpoint(tmp_path / "best.ckpt").weights
    torch.testing.assert_close(torch.from_numpy(found["weight"]), network.weight.detach(), rtol=0, atol=0)


def test_a_package_whose_facts_cannot_be_read_is_none(tmp_path):
    """r-lib/lintr#794: a damaged file of a cache ended every later run, though nobody needs it."""
    folder = PackageFolder(tmp_path / "packages")
    library = folder.keep("key", b"code")
    library.with_suffix(".json").write_text("[" * 100_000)
    assert folder.find("key") is None
