"""Cases of a test of which a few run with every change, and all in turn."""

import pytest


def marked(cases, mark, after=2):
    """Returns the cases of a test, those after the first ones with a mark; a tuple is a case of several arguments."""
    cases = list(cases)
    return cases[:after] + [_with(case, mark) for case in cases[after:]]


def _with(case, mark):
    if hasattr(case, "marks"):
        return pytest.param(*case.values, marks=[*case.marks, mark])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
