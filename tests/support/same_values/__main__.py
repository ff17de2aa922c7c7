"""Makes the same calls with two commits and says whether every number that they give is the same, to the last bit.

python tests/support/same_values OLD NEW                    commits, or folders that hold the three packages, such as .
python tests/support/same_values OLD NEW --calls 'run*'     those calls alone
python tests/support/same_values . . --list                 the names of all calls
python tests/support/same_values OLD NEW --python .venv-trainers/bin/python --calls 'JAX*' 'Keras*'

The calls and their networks are those of this folder for both commits. It exits with 1 if anything differs, and if a
call fails. What was removed on purpose stands in retired.py.
"""

import argparse
import contextlib
import fnmatch
import os
import pickle
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

import numpy as np
import retired

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# One thread, so that sums are added up in one order.
_FIXED = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "XLA_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "PYTHONHASHSEED": "0",
    "JAX_PLATFORMS": "cpu",
}
_MOST_SHOWN = 5


def main(arguments):
    """Does what the arguments say; returns the status to exit with."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", help="a commit, or a folder that holds the packages")
    parser.add_argument("new", help="the same; . is the working tree")
    parser.add_argument("--calls", nargs="+", default=[], metavar="PATTERN", help="names of calls, with * for any text")
    parser.add_argument("--python", default=sys.executable, help="of the environment with a framework's packages")
    parser.add_argument("--list", action="store_true", help="print the names of NEW's calls; make none")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="same-values-") as name:
        folder = Path(name).resolve()
        if asked.list:
            return _started(asked.python, root_of(asked.new, folder / "new"), "-", asked.calls, folder).wait()
        old, new = made(asked.old, asked.new, folder, asked.python, asked.calls)
    problems, counted = 0, 0
    for name in dict.fromkeys([*old, *new]):
        skipped, lines = _compared(old[name], new[name])
        if skipped:
            print(f"{name}: skipped, {skipped}")
            continue
        counted += 1
        problems += bool(lines)
        for line in lines[:_MOST_SHOWN]:
            print(f"{name}: {line}")
        if len(lines) > _MOST_SHOWN:
            print(f"{name}: and {len(lines) - _MOST_SHOWN} more arrays")
    arrays = sum(len(found[2]) for found in new.values())
    if not counted:
        print("no call was made")
    elif problems:
        print(f"{problems} of {counted} calls differ or fail")
    else:
        print(f"all equal: {counted} calls, {arrays} arrays")
    return int(problems > 0 or not counted)


def made(old, new, folder, python, patterns):
    """Returns, of both commits, what each call gave: why it was skipped, how it failed, and arrays by name."""
    roots = [root_of(source, folder / name) for source, name in ((old, "old"), (new, "new"))]
    started = []
    for root, name in zip(roots, ("old", "new"), strict=True):
        results, log = folder / f"{name}.pickles", (folder / f"{name}.log").open("w+")
        started.append((_started(python, root, str(results), patterns, folder, log), results, log))
    found = []
    for process, *_ in started:
        process.wait()
    for process, results, log in started:
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"{' '.join(map(str, process.args))} ended with {process.returncode}:\n{log.read()}")
        log.close()
        found.append({name: tuple(rest) for name, *rest in _read(results)})
    return found


def _started(python, root, results, patterns, folder, log=None):
    # The process starts in another folder. A virtual environment is known by its link to the interpreter.
    interpreter = str(Path(python).absolute()) if os.sep in python else python
    command = [interpreter, "-W", "ignore", str(HERE / "run.py"), str(root), results, *patterns]
    environment = {"KERAS_BACKEND": "torch"} | os.environ | _FIXED | {"PYTHONPATH": str(root)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log and subprocess.STDOUT)


def root_of(source, folder):
    """Returns the folder with the packages: ``source`` if it is one, else the files of that commit."""
    if (Path(source) / "landscape" / "__init__.py").is_file():
        return Path(source).resolve()
    folder.mkdir()
    archive = subprocess.run(["git", "archive", source], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise SystemExit(f"{source} must be a commit or a folder with the packages: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def differences(old, new):
    """Yields a line for each array that differs, with its first other values; what ``retired`` names may be missing."""
    for name in dict.fromkeys([*old, *new]):
        if name not in new and any(fnmatch.fnmatchcase(name, pattern) for pattern in retired.ARRAYS):
            continue
        if name not in new or name not in old:
            yield f"{name} is only in {'OLD' if name in old else 'NEW'}"
        elif text := first_difference(old[name], new[name]):
            yield f"{name}{text}"


def first_difference(old, new):
    """Returns where two arrays differ first, and both values; nothing where all bits are equal."""
    texts = old.dtype.kind in "US" and new.dtype.kind == old.dtype.kind
    if old.shape != new.shape or (old.dtype != new.dtype and not texts):
        return f" is {old.dtype} of the shape {old.shape} in OLD and {new.dtype} of the shape {new.shape} in NEW"
    rows = [list(array.ravel()) if texts else _bytes(array) for array in (old, new)]
    unequal = (place for place, (one, other) in enumerate(zip(*rows, strict=True)) if one != other)
    if (first := next(unequal, None)) is None:
        return ""
    values = [array.ravel()[first].item() for array in (old, new)]
    shown = [repr(value) for value in values]
    if texts:
        start = max(next(at for at, pair in enumerate(zip_longest(*values)) if len(set(pair)) > 1) - 20, 0)
        shown = [repr(value[start : start + 60]) for value in values]
    elif shown[0] == shown[1]:  # NaN with other bits
        shown = [f"{text} ({bits.hex()})" for text, bits in zip(shown, (row[first] for row in rows), strict=True)]
    place = list(map(int, np.unravel_index(first, old.shape))) if old.shape else ""
    return f"{place} is {shown[0]} in OLD and {shown[1]} in NEW"


def _bytes(array):
    whole, size = array.tobytes(), array.dtype.itemsize
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _compared(old, new):
    """Returns why a call was skipped, and lines that say what differs or failed."""
    if old[0] or new[0]:
        return old[0] or new[0], []
    failed = [(label, error) for label, error in (("OLD", old[1]), ("NEW", new[1])) if error]
    if failed:
        return "", [f"fails in {label}: {error.strip().splitlines()[-1]}" for label, error in failed]
    return "", list(differences(old[2], new[2]))


def _read(path):
    with path.open("rb") as file, contextlib.suppress(EOFError):
        while True:
            yield pickle.load(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
