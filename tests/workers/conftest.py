"""What the tests of the workers share."""

import os

import pytest
from ray_environment import without_ray


@pytest.fixture
def own_ray(monkeypatch):
    """What a script's own Ray would inherit of the others' goes."""
    for name in set(os.environ) - set(without_ray()):
        monkeypatch.delenv(name)


@pytest.fixture(scope="module", autouse=True)
def kept_for_later_runs(tmp_path_factory):
    """What runs keep for later ones (plans, records, packages) is neither taken from the user's nor left there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
