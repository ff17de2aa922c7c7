"""Actors that do very little."""

import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
from waiting import Gate


class Plain:
    def __init__(self, name):
        self.name = name

    def greet(self):
        return self.name

    def total(self, array, gate=None):
        """Waits at the gate of a folder first, where one is named."""
        if gate is not None:
            Gate(gate).pass_through()
        return float(array.sum())

    def stay(self, mark):
        """Never returns; makes a file that says it has begun."""
        Path(mark).touch()
        while True:
            signal.pause()

    def describe(self, value):
        return [(item.shape, item.flags.writeable, item.ctypes.data % 64) for item in value.values()]

    def draw(self):
        return random.random(), float(np.random.random())  # noqa: NPY002 (the global generator is what is tested)

    def unreadable(self):
        return lambda: None

    def fail(self):
        raise KeyError("the cupboard is bare")

    def fail_strangely(self):
        class LocalError(Exception):
            pass

        raise LocalError("nobody knows this class")

    def end(self):
        print("I have had enough.", file=sys.stderr, flush=True)
        os._exit(3)

    def place(self):
        return os.getpid(), os.getppid()

    def environment(self):
        return os.environ["PYTHONHASHSEED"], os.environ["OMP_NUM_THREADS"]


class Broken:
    def __init__(self):
        raise OSError("no such thing")

    def greet(self):
        return "never"
