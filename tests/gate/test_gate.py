"""The stages of the gate and their table."""

import gate
import pytest
from gate import Stage
from places import ROOT
from selection import ENVIRONMENTS, VERSIONS, Selection

MAKEFILE = """\
good:
	@echo '====== 7 passed, 1 skipped in 3.21s ======'
bad:
	@echo 'FAILED tests/test_it.py::test_bad[a b] - ValueError: first'
	@echo '=== 1 failed, 6 passed in 3.21s ==='
	@echo 'FAILED tests/test_it.py::test_bad[a b] - ValueError: again'
	@echo 'ERROR tests/test_it.py::test_worse'; exit 3
alone:
	@echo 'FAILED tests/test_it.py::test_it - OSError: accident'
	@echo 'passed only when alone (for tests/passed_alone.md, with cause and cure):'
	@echo '- `tests/test_it.py::test_it` (2026-11-25): cause: ...; cure: ...'
	@echo 'failed twice:'
	@echo '- tests/test_other.py::test_it'
	@echo '== 1 passed in 1.00s =='
told:
	@echo 'options: $(CHOSEN)'
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    return tmp_path


def test_a_table_names_each_stage_how_it_ended_and_its_seconds(project, capfd):
    results = [gate.run(Stage(target), project) for target in ("good", "bad", "alone")]
    assert [result.status for result in results] == [0, 2, 0]
    rows = gate.table(results).splitlines()
    assert [row.split()[:3] for row in rows[:4]] == [
        ["make", "good", "passed"], ["make", "bad", "FAILED"], ["make", "alone", "passed"], ["all", "FAILED", "0"],
    ]  # fmt: skip
    assert rows[0].endswith("0 s  7 passed, 1 skipped in 3.21s")
    assert rows[-5:] == [
        "passed only when alone (for tests/passed_alone.md, with cause and cure):",
        "- `tests/test_it.py::test_it` (2026-11-25): cause: ...; cure: ...",
        "",
        "make bad: FAILED tests/test_it.py::test_bad[a b] - ValueError: again",
        "make bad: ERROR tests/test_it.py::test_worse",
    ]
    assert "=== make bad" in capfd.readouterr().out


@pytest.mark.parametrize(("tries", "status"), [(1, 2), (2, 0)])
def test_environments_that_a_server_did_not_give_are_made_at_a_second_try(project, tries, status):
    assert next(gate.stages(Selection(), 0, project, everything=False)).tries == 2
    (project / "Makefile").write_text("made:\n\t@test -e tried || { touch tried; exit 1; }\n")
    assert gate.run(Stage("made", tries=tries), project).status == status


def test_variables_reach_make(project, capfd):
    gate.run(Stage("told", ("CHOSEN=--share 1/5",)), project)
    assert "options: --share 1/5" in capfd.readouterr().out


def test_a_change_runs_what_it_can_break_and_a_share_of_the_rest(tmp_path):
    choice = Selection(
        "", {"tests/test_it.py": "workers/it.py"}, ["tests/test_other.py"], {"test-composer": "its turn"}
    )
    stages = list(gate.stages(choice, 7, tmp_path, everything=False))
    assert [stage.targets for stage in stages] == [
        "environment", "types lint demo", "test", "test-slow", "test-composer",
    ]  # fmt: skip
    assert stages[0].more[:-1] == ("--jobs=3", "--keep-going")
    assert stages[0].more[-1] == ".venv-composer/.installed"
    (variable,) = stages[3].more
    assert variable == f"CHOSEN=--chosen-files={tmp_path / 'chosen'} --share=2/5"
    assert (tmp_path / "chosen").read_text() == "tests/test_it.py"


def test_other_versions_run_when_they_are_chosen_and_are_no_part_of_everything(tmp_path):
    choice = Selection(environments={"test-oldest": "its turn", "test-peers": "its turn"})
    for everything in (False, True):
        stages = list(gate.stages(choice, 5, tmp_path, everything))
        on_one_core = "test-deepspeed test-peers" if everything else "test-peers"
        assert [stage.targets for stage in stages][-2:] == ["test-oldest", on_one_core]
        assert stages[0].more[2] == ".venv-oldest/.installed"


def test_the_newest_versions_run_where_they_are_there_and_the_table_says_where_not(tmp_path):
    choice = Selection(environments={"test-newest-if-there": "its turn"})
    stages = list(gate.stages(choice, 3, tmp_path, everything=False))
    assert stages[0].more == ("--jobs=3", "--keep-going")
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    skipped = gate.run(stages[-1], tmp_path)
    assert skipped.status == 0
    assert "SKIPPED: no .venv-newest is there; make test-newest" in gate.table([skipped])
    (tmp_path / ".venv-newest").mkdir()
    (tmp_path / ".venv-newest" / ".installed").touch()
    tried = gate.run(stages[-1], tmp_path)  # without pyproject.toml, of which the environment is made
    assert (tried.status != 0, tried.summary) == (True, "")


def test_everything_has_coverage_all_slow_tests_and_all_environments(tmp_path):
    stages = list(gate.stages(Selection(), 7, tmp_path, everything=True))
    assert [stage.targets for stage in stages][2:] == [
        "test-covered", "test-slow", "test-trainers", "test-keras-on-jax", "test-keras-on-tensorflow", "test-mindspore",
        "test-composer", "test-deepspeed test-peers",
    ]  # fmt: skip
    assert stages[0].more[-2:] == (".venv-tensorflow/.installed", ".venv-trainers/.installed")
    assert not any(stage.more for stage in stages[2:-1])


def test_each_environment_is_made_by_a_rule_of_the_makefile():
    rules = (ROOT / "Makefile").read_text()
    for environment in (*ENVIRONMENTS, *VERSIONS):
        assert not environment.folder or f"\n{environment.folder}/.installed:" in rules
        assert f"\n{environment.target}:" in rules
