"""The gate's own scripts are tested like any other code."""

import subprocess
import sys

import pytest
from places import ROOT

sys.path.insert(0, str(ROOT / ".ci"))


@pytest.fixture
def repository(tmp_path):
    """A git repository with one commit; call it with arguments of git to go on."""
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*arguments):
        command = [
            "git",
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.org",
            "-c",
            "commit.gpgsign=false",
            *arguments,
        ]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout.strip()

    git("init", "--initial-branch", "main")
    (folder / "tests").mkdir()
    (folder / "first.py").write_text("first\n")
    git("add", ".")
    git("commit", "--message", "first")
    git.folder = folder
    return git
