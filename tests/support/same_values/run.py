"""Makes calls with the packages of one commit, each in an empty folder, and keeps what they give.

python run.py ROOT RESULTS [PATTERN ...]    RESULTS gets one pickle after another: (name, skipped, error, arrays)
python run.py ROOT - [PATTERN ...]          prints the names of the calls, and the packages that they need
"""

import fnmatch
import importlib.util
import os
import pickle
import random
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import retired
import torch


def main(root, results, patterns):
    """Makes the calls of the table that a pattern names, or all."""
    _check_packages(root)
    from calls import CALLS

    chosen = [name for name in CALLS if not patterns or any(fnmatch.fnmatchcase(name, each) for each in patterns)]
    if results == "-":
        for name in chosen:
            needs = CALLS[name][0]
            print(name + (f" (needs {', '.join(needs)})" if needs else ""))
        return
    with Path(results).open("wb") as file:
        for name in chosen:
            needs, function = CALLS[name]
            missing = [package for package in needs if importlib.util.find_spec(package) is None]
            if name in retired.CALLS:
                found = (f"retired: {retired.CALLS[name]}", "", {})
            elif missing:
                found = (f"{' and '.join(missing)} missing", "", {})
            else:
                found = _made(function)
            pickle.dump((name, *found), file)


def _made(function):
    from values import flat, of_files

    with tempfile.TemporaryDirectory(prefix="call-") as folder:
        before = Path.cwd()
        os.chdir(folder)
        _seed()
        try:
            arrays = dict(flat(function(), "returned"))
            return "", "", {**arrays, **dict(of_files(Path(folder)))}
        except Exception:
            return "", traceback.format_exc(), {}
        finally:
            os.chdir(before)


def _seed():
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002, the generator that a training's state holds
    torch.manual_seed(0)


def _check_packages(root):
    for name in ("collectors", "workers", "landscape"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None or not Path(spec.origin).resolve().is_relative_to(root.resolve()):
            raise SystemExit(f"{name} must come from {root}, but would come from {spec and spec.origin}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
