"""Tries a play with faults, each trial in a forked process: ``faulty_child.py PLAY FOLDER EVERY FAULTS``.

Runs under the shim of ``faulty_files.c``. The last line of the output is JSON: how many trials, what came of them, and
what was found: a process that does not end, an untyped error, and whatever the play's own check says.
"""

import ctypes
import faulthandler
import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

from faulty_files import FAULTS
from faulty_plays import PLAYS
from waiting import PATIENCE

from collectors.errors import LandscapeError

shim = ctypes.CDLL(None)
shim.faulty_call.restype = ctypes.c_char_p


def forked(work, log):
    """Returns what a function returns in a forked process; ``{"ended": ...}`` if it does not return."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with log.open("w") as errors:
            os.dup2(errors.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            faulthandler.enable(errors)
            try:
                answer = work()
            except BaseException:
                answer = {"ended": traceback.format_exc()[-1500:]}
            os.write(writing, json.dumps(answer).encode())
            errors.flush()
            os._exit(0)
    os.close(writing)
    received, hung = b"", False
    while True:
        ready, _, _ = select.select([reading], [], [], PATIENCE)
        if not ready:
            hung = True
            os.kill(child, signal.SIGABRT)  # faulthandler writes where its threads are
            break
        piece = os.read(reading, 65536)
        received += piece
        if not piece:
            break
    os.close(reading)
    os.waitpid(child, 0)
    if hung:
        return {"ended": f"hung: {log.read_text(errors='replace')[-1500:]}"}
    return dict(json.loads(received)) if received else {"killed": True}


def act(play, place, number, fault):
    """Acts out the play with a fault; returns the error, or none, and which call was struck."""
    error = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        shim.faulty_arm(os.fsencode(place), number, fault)
        try:
            play.act(place)
        except BaseException as caught:
            error = caught
        count, struck, call = shim.faulty_count(), shim.faulty_struck(), os.fsdecode(shim.faulty_call())
        shim.faulty_arm(b"", 0, 0)
    report = {
        "warned": [str(item.message) for item in warned],
        "count": count,
        "struck": bool(struck),
        "call": call.replace(str(place), ""),
    }
    if error is not None:
        report["error"] = f"{type(error).__name__}: {error}"
        report["typed"] = isinstance(error, (LandscapeError, *play.also))
        report["trace"] = "".join(traceback.format_exception(error))[-1500:]
    return report


def acted_and_checked(play, place, number, fault):
    """Acts, and looks at what is there; a user may try again in the same process as well."""
    report = act(play, place, number, fault)
    return {**report, "found": play.check(place, report)}


def problem(report):
    """Returns what is wrong after a trial, or None."""
    if "ended" in report:
        return str(report["ended"])
    if "error" in report:
        if not report["typed"]:
            return f"untyped {report['error']}\n{report['trace']}"
        if ".tmp" in report["error"] or " object at 0x" in report["error"]:
            return f"the text names what nobody knows: {report['error']}"
    return report["found"]


def trials(play, folder, every, first, faults):
    """Tries a play; every so many-th call fails, of a few calls two or three, so that each fault strikes."""
    place, log = folder / "trial", folder / "log"

    def trial(number, fault):
        shutil.rmtree(place, ignore_errors=True)
        play.prepare(place)
        report = forked(lambda: acted_and_checked(play, place, number, fault), log)
        if "killed" in report:
            report = forked(lambda: {**report, "found": play.check(place, report)}, log)
        return report, problem(report)

    play.begin(lambda work: forked(lambda: {"done": work()}, log))
    gc.freeze()  # or the collector of each forked process would look at all objects, and copy their pages
    outcomes = Counter()
    findings = []
    for name in faults:
        fault = FAULTS.index(name) + 1
        # How many calls the fault can strike: none of this number exists.
        report, wrong = trial(10**9, fault)
        if wrong or "error" in report:
            findings.append(f"undisturbed: {wrong or report['trace']}")
            continue
        step = min(every, max(report["count"] // 2, 1))
        for number in range(1 + (fault + first) % step, report["count"] + 1, step):
            report, wrong = trial(number, fault)
            outcomes["killed" if "killed" in report else "error" if "error" in report else "ok"] += 1
            if wrong:
                findings.append(f"{name} at {number} ({report.get('call', '')}): {wrong}")
    shutil.rmtree(place, ignore_errors=True)
    return {"trials": sum(outcomes.values()), "outcomes": outcomes, "findings": findings}


def main():
    names, folder, faults = sys.argv[1].split(","), Path(sys.argv[2]), sys.argv[5].split(",")
    every, first = map(int, sys.argv[3:5])
    # What a killed trial leaves there must not stay.
    tempfile.tempdir = str(folder)
    found = {}
    for name in names:
        (folder / name).mkdir()
        found[name] = trials(PLAYS[name](folder / name), folder / name, every, first, faults)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
