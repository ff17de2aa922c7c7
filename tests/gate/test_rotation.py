"""The file that says where a change starts and whose turn it is."""

import pytest
import rotation
from rotation import Rotation


@pytest.fixture(autouse=True)
def no_other_base(monkeypatch):
    monkeypatch.delenv("GATE_BASE", raising=False)


def commit(git, name, text):
    (git.folder / name).write_text(text)
    git("add", "--all")
    git("commit", "--message", name)
    return git("rev-parse", "HEAD")


def test_a_change_raises_the_number_and_notes_the_commit(repository):
    first = repository("rev-parse", "HEAD")
    assert rotation.next_change(repository.folder) == Rotation(0, first)
    Rotation(4, first).write(repository.folder)
    second = commit(repository, "second.py", "second\n")
    beginning = rotation.next_change(repository.folder)
    assert beginning == Rotation(5, second)
    beginning.write(repository.folder)
    assert rotation.read(repository.folder) == beginning


def test_of_two_changes_the_higher_number_wins_and_one_is_added(repository):
    start = repository("rev-parse", "HEAD")
    Rotation(6, start).write(repository.folder)
    commit(repository, "before.py", "\n")
    repository("checkout", "-b", "mine")
    Rotation(7, start).write(repository.folder)
    commit(repository, "mine.py", "\n")
    repository("checkout", "main")
    Rotation(9, start).write(repository.folder)
    landed = commit(repository, "theirs.py", "\n")
    repository("checkout", "mine")
    repository("rebase", "main")
    assert "<<<<<<<" in (repository.folder / rotation.FILE).read_text()
    assert rotation.next_change(repository.folder) == Rotation(10, landed)
    repository("rebase", "--abort")
    repository("merge", "main")
    assert rotation.next_change(repository.folder) == Rotation(10, landed)


@pytest.mark.parametrize("text", ["", "number 3\n", "base 1234567\n", "number three\nbase 1234567\n"])
def test_a_file_without_number_or_commit_is_an_error(tmp_path, text):
    (tmp_path / "tests").mkdir()
    (tmp_path / rotation.FILE).write_text(text)
    with pytest.raises(ValueError, match=r"tests/rotation must have .*write it with: make change"):
        rotation.read(tmp_path)


def test_a_commit_that_is_no_ancestor_compares_with_nothing(repository):
    start = repository("rev-parse", "HEAD")
    repository("checkout", "-b", "aside")
    aside = commit(repository, "aside.py", "\n")
    repository("checkout", "main")
    assert rotation.base(repository.folder, Rotation(0, start)) == start
    assert rotation.base(repository.folder, Rotation(0, aside)) is None
    assert rotation.base(repository.folder, Rotation(0, "1234567")) is None


def test_the_environment_names_another_commit(repository, monkeypatch):
    start = repository("rev-parse", "HEAD")
    monkeypatch.setenv("GATE_BASE", "HEAD")
    assert rotation.base(repository.folder, Rotation(0, start)) == "HEAD"
    monkeypatch.setenv("GATE_BASE", "1234567")
    assert rotation.base(repository.folder, Rotation(0, start)) is None


def test_what_changed_holds_commits_the_working_tree_and_new_files(repository):
    start = repository("rev-parse", "HEAD")
    commit(repository, "committed.py", "1\n")
    (repository.folder / "first.py").rename(repository.folder / "renamed.py")
    repository("add", "--all")
    repository("commit", "--message", "renamed")
    (repository.folder / "committed.py").write_text("2\n")
    (repository.folder / "new name.py").write_text("3\n")
    assert rotation.changed(repository.folder, start) == ["committed.py", "first.py", "new name.py", "renamed.py"]
