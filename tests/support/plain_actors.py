"""Actors that do very little."""

import os
import random
import sys
import time

import numpy as np


class Plain:
    def __init__(self, name):
        self.name = name

    def greet(self):
        return self.name

    def total(self, array):
        time.sleep(0.5)
        return float(array.sum())

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
