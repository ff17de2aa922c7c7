"""The help of every command fits a terminal of 80 columns, and groups what it lists."""

import re

import pytest
import typer
from command_line import command

from landscape.cli import app
from landscape.commands.options import PANELS
from landscape.record.options import OPTIONS

COMMANDS = typer.main.get_command(app).commands


MEASURE = ("run", "report", "evaluate", "curvature", "compare", "connect")


@pytest.fixture
def typed(tmp_path):
    """What a command with arguments says in a terminal of 80 columns."""
    return lambda *arguments: command(*arguments, folder=tmp_path, environment={"COLUMNS": "80"}).stdout


def test_every_command_and_the_exit_codes_are_named(typed):
    text = " ".join(typed("--help").split())
    assert len(COMMANDS) == 12
    for name in COMMANDS:
        assert f"│ {name} " in text
    assert "Exit codes: 0 done; 1 an error" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_no_name_is_cut_off(name, typed):
    text = typed(name, "--help")
    assert f"{name} [OPTIONS]" in " ".join(text.split())
    assert ("--config " in text, "--save-config " in text) == (name in MEASURE, name in MEASURE)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    shown = set(re.findall(r"(?<![\w-])--[\w\[\]-]+", text))
    for parameter in COMMANDS[name].params:
        for flag in parameter.opts if parameter.param_type_name == "option" else ():
            # What is the default anyway is typed as little as "--progress".
            assert flag in shown | {"-o", "--progress"} or flag.replace("--", "--[no-]", 1) in shown
        for flag in parameter.secondary_opts:
            assert flag.replace("--no-", "--[no-]", 1) in shown


def test_words_are_listed_where_the_lines_can_end(typed):
    text = typed("evaluate", "--help")
    assert "[full | adaptive]" in text
    assert "[auto | random |" in text


def test_options_of_run_stand_under_headings(typed):
    text = typed("run", "--help")
    assert re.findall(r"^╭─ (\w+) ─", text, re.MULTILINE) == ["Arguments", "Options", *PANELS]
    panels = dict(zip(PANELS, re.split(r"^╭─ \w+ ─.*$", text, flags=re.MULTILINE)[3:], strict=True))
    for flag, panel in (
        ("--size", "Grid"), ("--interval", "Grid"), ("--samples", "Samples"), ("--which", "Directions"),
        ("--devices", "Workers"), ("--budget", "Workers"), ("--output", "Output"), ("--[no-]plot", "Output"),
    ):  # fmt: skip
        assert f" {flag} " in panels[panel]


def test_every_option_of_the_table_has_a_heading():
    assert {option.panel for option in OPTIONS.values()} == set(PANELS)
