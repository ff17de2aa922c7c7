"""wandb/wandb#204: values that were logged and never committed were lost without a word."""

import pytest

from collectors import SummaryRecord


def test_closing_names_them(tmp_path):
    record = SummaryRecord(str(tmp_path))
    record.add_value("scalar", "loss", 0.25)
    with pytest.warns(UserWarning, match=r"not written, 1 in all: scalar 'loss'.*record\(step\)"):
        record.close()
