"""How a report is measured."""

from __future__ import annotations

from collections.abc import Mapping

from ..record.options import LossOptions


class ReportOptions(LossOptions, total=False):
    num_samples: int | Mapping[str, int | None] | None
    device_ids: list[int] | None
    name: str | None
