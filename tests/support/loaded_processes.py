"""Processes that begin with PyTorch loaded: each is a fork of a server, which loads it once for all tests of a process.

What belongs to the project is loaded by each of them anew: the product notes when a process that may have computed is
forked.
"""

import contextlib
import multiprocessing
import os
import warnings

from waiting import PATIENCE

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "numpy",
        "h5py",
        "torch",
        "torch._dynamo",
        "torch.distributed.checkpoint",
        "torch.distributed.fsdp",
        "torch.distributed.tensor.parallel",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    ]
)


def in_two_ranks(function, folder, *arguments, patience=PATIENCE):
    """Calls ``function(rank, folder, ...)``, which is pickled by its name, in two processes at the same time.

    Returns their exit codes, None for one that has not ended, and what both printed.
    """
    logs = [folder / f"printed_{rank}.txt" for rank in range(2)]
    with contextlib.ExitStack() as stack:
        processes = []
        for rank, log in enumerate(logs):
            process = PROCESSES.Process(target=_call, args=(log, dict(os.environ), function, rank, folder, *arguments))
            process.start()
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            process.join(patience)
        codes = [process.exitcode for process in processes]
    return codes, "\n".join(log.read_text() for log in logs)


def _call(log, environment, function, *arguments):
    # The server has the environment of the test that needed it first.
    os.environ.clear()
    os.environ.update(environment)
    with log.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    warnings.simplefilter("ignore")
    function(*arguments)
