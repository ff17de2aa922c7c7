"""Reads damaged and hostile files of one kind, in a process of its own: ``fuzz_child.py KIND CASES SEED FOLDER``.

The last line of its output is JSON: how many cases, what came of them, and what was found. Half of the cases are
drawn by hypothesis from what the format means, the others have a few bytes changed.
"""

import json
import sys
from pathlib import Path

import numpy as np
from fuzz_guard import Guard
from fuzz_kinds import KINDS
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

_PIECES = (b"\xff" * 8, b"\0" * 8, b"9" * 400, b'"', b"-", b"null", b"../", b"\\u0000", b"1e999", b"[" * 2000, b"/etc/")


def changed_bytes(whole, random):
    """Returns a file with a few bytes changed, inserted, taken out, repeated, or cut off."""
    content = bytearray(whole)
    for _ in range(random.integers(1, 6)):
        place = int(random.integers(0, max(1, len(content))))
        stop = place + int(random.integers(1, 20))
        how = random.choice(
            ["byte", "bit", "number", "insert", "delete", "copy", "cut"], p=[0.3, 0.2, 0.2] + [0.075] * 4
        )
        if how == "byte":
            content[place : place + 1] = random.bytes(1)
        elif how == "bit" and content:
            content[place % len(content)] ^= 1 << int(random.integers(8))
        elif how == "number":
            width = int(random.choice([1, 2, 4, 8]))
            value = int(random.choice([0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**64 - 1]))
            content[place : place + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
        elif how == "insert":
            content[place:place] = _PIECES[int(random.integers(len(_PIECES)))]
        elif how == "delete":
            del content[place:stop]
        elif how == "copy":
            content[place:place] = content[place:stop]
        else:
            del content[place:]
    return bytes(content)


def drawn(change, cases, number):
    """Lets hypothesis draw cases; those found are kept by the guard, so that none ends the search."""

    @seed(number)
    @settings(max_examples=cases, phases=[Phase.generate], database=None, deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(data=st.data())
    def search(data):
        change(data.draw)

    search()


def main():
    kind, cases, number, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    play = KINDS[kind](folder)
    play.read()  # loads what is loaded lazily, so that a case that imports or runs anything stands out
    guard = Guard(play.inside, play.secret, play.expected)
    random = np.random.default_rng(number)

    def case():
        with guard.case(play.path):
            play.read()

    def structured(draw):
        play.path.write_bytes(play.whole)
        play.change(draw)
        case()

    drawn(structured, cases // 2, number)
    while guard.cases < cases:
        play.path.write_bytes(play.mended(changed_bytes(play.whole, random), random))
        case()
    print(json.dumps({
        "cases": guard.cases, "outcomes": guard.outcomes, "findings": list(guard.findings.values()),
        "memory": guard.memory,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
