"""What several tests of landscapes begin from."""

import pytest
from examples import batch_norm, train_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of a small network with BatchNorm; tests copy what they damage."""
    folder = tmp_path_factory.mktemp("trained")
    train_run(folder, batch_norm)
    return folder
