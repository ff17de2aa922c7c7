"""Files and folders behind URLs whose names file systems take for patterns."""

import pytest
from remote_stores import empty_memory

from collectors.files.remote_path import RemotePath


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?"])
def test_a_folder_is_removed_and_not_what_its_name_matches(name):
    with empty_memory() as system:
        for folder in ("run1", name, f"{name}/deep[2]"):
            system.pipe_file(f"/{folder}/a", b"x")
        RemotePath(system, f"/{name}").remove_folder()
        assert system.find("/") == ["/run1/a"]
        assert not system.exists(f"/{name}/deep[2]")


def test_folders_that_are_there_are_no_patterns():
    with empty_memory() as system:
        for folder in ("run1", "run[1]", "run[1]/deep"):
            system.pipe_file(f"/{folder}/ep_1", b"x")
        found = {
            pattern: [str(place) for place in RemotePath(system, pattern).glob()]
            for pattern in ("/run[1]/ep_*", "/run*/ep_1", "/run[1]/*/ep_1", "/run[2]/ep_1")
        }
        assert found == {
            "/run[1]/ep_*": ["memory:///run[1]/ep_1"],
            "/run*/ep_1": ["memory:///run1/ep_1", "memory:///run[1]/ep_1"],
            "/run[1]/*/ep_1": ["memory:///run[1]/deep/ep_1"],
            "/run[2]/ep_1": [],
        }
