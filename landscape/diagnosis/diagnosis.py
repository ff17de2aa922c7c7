"""What a check found: what is wrong and how to mend it, what was looked at, and the losses that were compared."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..drawing.texts import WHOLE_WORDS
from ..summary_json import as_json

_WIDTH = 120


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or that training did in another way.

    Attributes:
        about: "run", "checkpoint", "network", "samples", "loss" or "callback_fn".
        seen: what was seen, with its numbers.
        expected: what was expected instead, with the interval where it is a number.
        remedy: how to mend it.
    """

    about: str
    seen: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.about}: {self.seen}\nExpected: {self.expected}\nRemedy: {self.remedy}"


@dataclass(frozen=True)
class QuotedFinding(Finding):
    """One whose ``seen`` is what the user's own code raised, in its words."""


@dataclass(frozen=True)
class Fact:
    """Something that is as it may be, in a sentence."""

    about: str  # as of a finding
    text: str

    def __str__(self) -> str:
        return f"{self.about}: {self.text}"


@dataclass(frozen=True)
class ComparedLoss:
    """The loss at a checkpoint, and the batch losses that training logged around it.

    Attributes:
        number: of the checkpoint, its step or epoch.
        measured: the loss over the samples, as training would log it: of a sum, that of as many as in a batch.
        stderr: its standard error; NaN where samples have no losses of their own.
        logged: mean of the batch losses.
        allowed: how far the measured loss may be from that mean before it counts as another one.
        lowest: of the batch losses.
        highest: of them.
        batches: how many of them there are.
    """

    number: int
    measured: float
    stderr: float
    logged: float
    allowed: float
    lowest: float
    highest: float
    batches: int

    @property
    def least_factor(self) -> float:
        """How many times the logged losses the measured one must be to count as higher."""
        return 1 + self.allowed / self.logged if self.logged > 0 else math.inf

    @property
    def is_higher(self) -> bool:
        """Whether noise does not explain how much higher the measured loss is."""
        return self.measured > self.logged + self.allowed

    @property
    def is_lower(self) -> bool:
        """Whether noise does not explain how much lower the measured loss is."""
        return self.measured < self.logged - self.allowed

    @property
    def interval(self) -> str:
        """What would have been no other loss, in words."""
        lowest = self.logged - self.allowed
        # A loss that was never negative is not expected to be.
        return f"between {0 if self.lowest >= 0 > lowest else lowest:.3g} and {self.logged + self.allowed:.3g}"

    def text(self, unit: str) -> str:
        """Returns the comparison in a sentence, where ``unit`` is what the run counts."""
        spread = "" if np.isnan(self.stderr) else f" ± {self.stderr:.2g}"
        return (
            f"{unit} {self.number}: measured {self.measured:.4g}{spread}; {self.interval} would fit the {self.batches} "
            f"batch losses that were logged around it ({self.logged:.4g} on average)"
        )


@dataclass(frozen=True)
class Diagnosis:
    """What a check found; true where nothing is wrong.

    Attributes:
        findings: what is wrong, the first thing to mend first.
        facts: what was looked at, and how it is: samples, weights, buffers, what was logged.
        losses: those of checkpoints that could be compared with what training logged.
    """

    findings: tuple[Finding, ...]
    facts: tuple[Fact, ...]
    losses: tuple[ComparedLoss, ...] = ()

    def __bool__(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Returns all of it in types that JSON has; a number that is not finite is None."""
        return {"ok": bool(self), **as_json(asdict(self))}

    def __str__(self) -> str:
        count = len(self.findings)
        title = f"{count} finding{'s' if count > 1 else ''}" if count else "Nothing was found that is wrong."
        found = [_wrapped(f"{place}. ", str(finding)) for place, finding in enumerate(self.findings, start=1)]
        return "\n\n".join([title, *found, "\n".join(_wrapped("- ", str(fact)) for fact in self.facts)])


def _wrapped(mark: str, text: str) -> str:
    lines = [textwrap.wrap(line, _WIDTH - len(mark), **WHOLE_WORDS) or [""] for line in text.splitlines()]
    return mark + f"\n{' ' * len(mark)}".join(line for part in lines for line in part)
