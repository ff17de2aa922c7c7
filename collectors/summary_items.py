"""What a SummaryCollector records: its ``collect_specified_data``, merged with the defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .validation import check_bool, check_keys, wrong_type, wrong_value

SWITCHES = (
    "collect_metric",
    "collect_graph",
    "collect_train_lineage",
    "collect_eval_lineage",
    "collect_input_data",
    "collect_dataset_graph",
)
HISTOGRAMS = "histogram_regular"


@dataclass(frozen=True)
class SummaryItems:
    """The items to record.

    Attributes:
        names: those that are on.
        asked: those that the user asked for by name, rather than by leaving them at their defaults.
        pattern: which parameters get histograms; None takes the first five.
    """

    names: frozenset[str]
    asked: frozenset[str]
    pattern: re.Pattern[str] | None = None

    @classmethod
    def merged(cls, specified: Mapping[str, Any], keep_default_action: bool) -> SummaryItems:
        """Returns the items that are given, with or without those that are on by default: all of them."""
        given = {key for key in SWITCHES if specified.get(key)} | {HISTOGRAMS} & set(specified)
        defaults = {*SWITCHES, HISTOGRAMS} - set(specified) if keep_default_action else set()
        pattern = specified.get(HISTOGRAMS)
        return cls(frozenset(given | defaults), frozenset(given), None if pattern is None else re.compile(pattern))


def check_specified(value: object) -> dict[str, Any]:
    """Returns a copy of ``collect_specified_data``; its ``collect_landscape`` is not checked here.

    Raises:
        TypeError: it is no dictionary, or an item has the wrong type.
        ValueError: a key is unknown, or ``histogram_regular`` is no regular expression.
    """
    if value is None:
        return {}
    given = check_keys("collect_specified_data", value, (*SWITCHES, HISTOGRAMS, "collect_landscape"))
    for key in SWITCHES:
        if key in given:
            check_bool(f"collect_specified_data[{key!r}]", given[key])
    pattern = given.get(HISTOGRAMS)
    if pattern is not None:
        name = "collect_specified_data['histogram_regular']"
        if not isinstance(pattern, str):
            raise wrong_type(name, "a regular expression (str) or None", pattern)
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong_value(name, f"a valid regular expression ({error})", pattern) from error
    return given
