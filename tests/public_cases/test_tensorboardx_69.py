"""lanpa/tensorboardX#69: it was open whether a writer that was closed takes values."""

import pytest

from collectors import SummaryRecord


def test_it_says_that_it_takes_none(tmp_path):
    record = SummaryRecord(str(tmp_path))
    record.close()
    with pytest.raises(ValueError, match=r"the SummaryRecord of .* is closed; open a new one"):
        record.add_value("scalar", "loss", 0.25)
