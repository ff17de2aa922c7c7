"""pytorch/pytorch#41197: a process that was forked from one that computed waits for threads that are not there."""

import subprocess
import sys

import pytest

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
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "good\n", done.stderr
