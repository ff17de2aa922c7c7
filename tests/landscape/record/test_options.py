"""Every option of the table: its default, its check in Python and as it is typed, its place in help and signatures."""

import inspect
import re
import typing

import pytest
import typer
from typer.testing import CliRunner

from landscape import SummaryLandscape, compare, evaluate, measure_curvature, random_plane, refine, widen
from landscape.cli import app
from landscape.comparison.options import COMPARISON_OPTIONS, CompareOptions
from landscape.comparison.settings import NORMALIZATIONS
from landscape.curvature.options import CURVATURE_OPTIONS, CurvatureOptions, RunCurvatureOptions
from landscape.draw_at_end import DrawAtEnd
from landscape.planes.axis_curvature import USUAL, WHICH
from landscape.planes.pca import CENTERINGS
from landscape.record.options import OPTIONS, ChangeOptions, RunOptions, SurveyOptions, checked, options_of

COMMANDS = typer.main.get_command(app).commands
RUN, CURVATURE, RECIPES = (
    (RunOptions, OPTIONS, ["run", "nowhere"]),
    (RunCurvatureOptions, CURVATURE_OPTIONS, ["curvature", "nowhere"]),
    (CompareOptions, COMPARISON_OPTIONS, ["compare", "a=x", "b=y"]),
)
DOORS = [
    (evaluate, SurveyOptions, OPTIONS),
    (refine, ChangeOptions, OPTIONS),
    (widen, ChangeOptions, OPTIONS),
    (SummaryLandscape.gen_landscapes_with_multi_process, RunOptions, OPTIONS),
    (DrawAtEnd.__init__, RunOptions, OPTIONS),
    (measure_curvature, CurvatureOptions, CURVATURE_OPTIONS),
    (SummaryLandscape.gen_curvature, RunCurvatureOptions, CURVATURE_OPTIONS),
    (compare, CompareOptions, COMPARISON_OPTIONS),
]
DURATION, SHARE = 'a number of seconds above 0, or text such as "90s", "30min"', "a number above 0 and below 1, such as"
# Whose option, its name, a wrong value, what is expected of it, and what is typed where that is possible.
WRONG = [
    *((of, name, value, "an int of at least 1", f"--{name.replace('_', '-')}={value}")
      for of in (RUN, CURVATURE, RECIPES) for name, value in (("devices_per_worker", 0), ("workers_per_device", -1))),
    *((of, name, value, f"one of {words}", f"--{flag}={value}") for of, name, value, words, flag in (
        (RUN, "samples", "last", "'first', 'random'", "sample-choice"),
        (CURVATURE, "samples", "last", "'first', 'random'", "sample-choice"),
        (RECIPES, "samples", "last", "'first', 'random'", "sample-choice"),
        (RUN, "buffers", "moving", "'auto', 'fixed', 'recalibrate', 'interpolate'", "buffers"),
        (RECIPES, "buffers", "auto", "'fixed', 'recalibrate'", "buffers"),
        (RUN, "precision", "half", "'float32', 'tf32', 'bfloat16'", "precision"),
        (RECIPES, "precision", "half", "'float32', 'tf32', 'bfloat16'", "precision"),
        (RUN, "sampling", "half", "'full', 'adaptive'", "sampling"),
        (RUN, "normalization", "unit", "'filter', 'layer', 'weight', 'none'", "normalization"),
        (RUN, "centering", "left", "'none', 'mean'", "centering"),
        (RUN, "directions", "steepest", "'random', 'hessian', 'ggn', 'pca'", "directions"),
        (RUN, "plane_of", "last", "'all', 'first'", "plane-of"),
        (CURVATURE, "matrix", "fisher", "'hessian', 'ggn'", "matrix"),
    )),
    *((of, name, -1, "an int of at least 0", f"--{flag}=-1") for of, name, flag in (
        (RUN, "seed", "seed"), (CURVATURE, "seed", "seed"), (CURVATURE, "top", "top"), (CURVATURE, "bottom", "bottom"),
        (CURVATURE, "trace_probes", "trace"), (RECIPES, "trace_lines", "trace-lines"),
    )),
    (CURVATURE, "density_probes", -1, "an int of at least 0", ""),
    (CURVATURE, "density_steps", 0, "an int of at least 1", ""),
    (CURVATURE, "max_products", 0, "an int of at least 1", "--max-products=0"),
    (CURVATURE, "tolerance", float("nan"), "a finite number", "--tolerance=nan"),
    (RUN, "recalibration_batch_size", 1, "an int of at least 2", "--recalibration-batch-size=1"),
    (RECIPES, "recalibration_batch_size", 1, "an int of at least 2", "--recalibration-batch-size=1"),
    *((RUN, "tolerance", value, SHARE, typed) for value, typed in (
        (0, "--tolerance=0"), (1, "--tolerance=1"), (2.0, "--tolerance=2"), ("1%", ""), (True, ""))),
    *((of, "budget", value, DURATION, typed) for of in (RUN, CURVATURE, RECIPES) for value, typed in (
        ("soon", "--budget=soon"), ("30 parsecs", "--budget=30 parsecs"), (0, "--budget=0"), (-1.0, "--budget=-1"),
        (float("nan"), "--budget=nan"), (True, ""), ([1], ""))),
    *((of, name, 1, "a bool, but got int: 1", "") for of in (RUN, CURVATURE, RECIPES)
      for name, option in options_of(*of[:2]).items() if isinstance(option.default, bool)),
]  # fmt: skip
UNCHECKED = {  # by the table: whatever each of them reaches knows whether it can be used.
    "address", "groups", "limits", "margin", "plan", "sample_memory", "compile", "which", "rise", "name", "also",
}  # fmt: skip


@pytest.mark.parametrize(("of", "name", "value", "expected", "typed"), WRONG)
def test_a_wrong_value_is_named_as_it_was_given(of, name, value, expected, typed):
    kind, table, command = of
    with pytest.raises((TypeError, ValueError), match=f"^{name} must be {re.escape(expected)}"):
        checked(kind, {name: value}, table)
    if typed:
        found = CliRunner().invoke(app, [*command, "--function", "no:thing", typed]).exception
        assert type(found) in (TypeError, ValueError)
        assert str(found).startswith(f"{typed.partition('=')[0]} must be {expected}")


def test_every_check_has_a_wrong_value_above():
    for kind, table, _ in (RUN, CURVATURE, RECIPES):
        names = {row[1] for row in WRONG if row[0][0] is kind}
        assert {name for name, option in options_of(kind, table).items() if option.check is not None} == names
        assert set(kind.__annotations__) - names <= UNCHECKED


@pytest.mark.parametrize(("door", "kind", "table"), DOORS)
def test_a_door_shows_checks_and_takes_every_option_of_its_kind(door, kind, table):
    shown, types = inspect.signature(door).parameters, typing.get_type_hints(kind)
    told = " ".join(inspect.getdoc(door).split()) if door is not DrawAtEnd.__init__ else ""
    assert set(options_of(kind, table)) == set(types)
    for name, option in options_of(kind, table).items():
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert (shown[name].default, shown[name].annotation) == (option.default, types[name])
        assert option.checked(name, option.default) == option.default
        assert option.text.endswith(".")
        assert not told or f" {name}: {option.text} " in told
    assert not {"options", "**options:"} & {*shown, *told.split()}


def test_an_option_that_is_left_out_has_its_default_and_one_that_is_given_is_read():
    assert checked(SurveyOptions, {}) == {name: OPTIONS[name].default for name in SurveyOptions.__annotations__}
    assert checked(ChangeOptions, {"budget": "1min"})["budget"] == 60.0


def test_what_draws_at_the_end_of_a_training_refuses_a_wrong_option_before_it():
    with pytest.raises(ValueError, match=r"^seed must be an int of at least 0"):
        DrawAtEnd(list, seed=-1)


def test_the_words_are_those_of_planes():
    """The table lies below them."""
    words = {"normalization": NORMALIZATIONS, "centering": CENTERINGS}
    assert {name: OPTIONS[name].choices for name in words} == words
    assert OPTIONS["which"].default == USUAL
    assert f"of {', '.join(WHICH)}." in OPTIONS["which"].help


def test_the_run_takes_its_first_arguments_by_position():
    shown = inspect.signature(SummaryLandscape.gen_landscapes_with_multi_process).parameters.values()
    positional = [item.name for item in shown if item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == ["self", "callback_fn", "collect_landscape", "device_ids", "output"]


def test_an_unknown_option_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"^evaluate\(\) got an unexpected keyword argument 'sede'"):
        evaluate(random_plane, list, sede=1)
    (tmp_path / "ckpt_dir").mkdir()
    run = SummaryLandscape(tmp_path)
    with pytest.raises(TypeError, match=r"gen_landscapes_with_multi_process\(\) got an unexpected .* argument 'size'"):
        run.gen_landscapes_with_multi_process(list, size=3)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt_dir"]


def flags(command):
    return {flag for parameter in COMMANDS[command].params for flag in parameter.opts}


@pytest.mark.parametrize(
    ("command", "kind", "left_out"),
    [
        ("run", RunOptions, set()),
        ("evaluate", SurveyOptions, set()),
        # Typed as one text, --density 4x40.
        ("curvature", RunCurvatureOptions, {"density_probes", "density_steps"}),
        ("compare", CompareOptions, set()),
        # A function of another module, or the file's own groups.
        ("refine", ChangeOptions, {"groups"}),
        ("widen", ChangeOptions, {"groups"}),
    ],
)
def test_a_command_offers_everything_that_python_has(command, kind, left_out):
    """What is left out has its reason here."""
    spelled = {"samples": "--sample-choice", "trace_probes": "--trace"}
    wanted = {spelled.get(name, f"--{name.replace('_', '-')}") for name in kind.__annotations__.keys() - left_out}
    assert wanted <= flags(command)
    if command == "evaluate":
        # Of Python's planes: names are typed as NAME=FILE.
        assert {"--normalization", "--perturb-one-dimensional", "--centering", "--numbers", "--directions"} <= flags(
            command
        )


@pytest.mark.parametrize(
    ("command", "name"), [(command, item.name) for command, found in COMMANDS.items() for item in found.params
                          if "|" in (item.metavar or "")]
)  # fmt: skip
def test_words_are_listed_by_the_help_and_completed(command, name):
    parameter = next(item for item in COMMANDS[command].params if item.name == name)
    words = parameter.metavar.strip("[]").split("|")
    context = typer.Context(COMMANDS[command])
    assert [item.value for item in parameter.shell_complete(context, "")] == words
    table = {"curvature": CURVATURE_OPTIONS, "compare": COMPARISON_OPTIONS}.get(command, OPTIONS)
    if command in ("run", "curvature", "compare") and name in table and name != "directions":
        assert tuple(words) == table[name].choices
