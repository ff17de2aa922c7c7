"""Every option of the table: its default, its check in Python and as it is typed, its place in help and signatures."""

import inspect
import re
import typing

import pytest
import torch
import typer
from typer.testing import CliRunner

from landscape import Measure, MeasurementPlan, SummaryLandscape, random_plane
from landscape.cli import app
from landscape.planes import random_line
from landscape.planes.pca import CENTERINGS
from landscape.record.option_kinds import (
    ChangeOptions,
    CheckOptions,
    CompareOptions,
    CurvatureOptions,
    EigenvectorOptions,
    GridOptions,
    MeasureOptions,
    ReportOptions,
    RunCurvatureOptions,
    RunOptions,
    SamplingOptions,
)
from landscape.record.options import OPTIONS, checked, options_of
from landscape.trackers import DrawAtEnd

COMMANDS = typer.main.get_command(app).commands
RUN, CURVATURE = (RunOptions, ["run", "nowhere"]), (RunCurvatureOptions, ["curvature", "nowhere"])
RECIPES, SHARED = ((kind, ["compare", "a=x", "b=y"]) for kind in (CompareOptions, MeasureOptions))
DOORS = [
    (Measure, MeasureOptions),
    (Measure.grid, GridOptions),
    (Measure.barrier, SamplingOptions),
    (Measure.regrid, ChangeOptions),
    (Measure.curvature, CurvatureOptions),
    (Measure.hessian_plane, EigenvectorOptions),
    (Measure.compare, CompareOptions),
    (SummaryLandscape.gen_landscapes_with_multi_process, RunOptions),
    (SummaryLandscape.gen_curvature, RunCurvatureOptions),
    (SummaryLandscape.report, ReportOptions),
    (SummaryLandscape.check, CheckOptions),
    (DrawAtEnd.__init__, RunOptions),
]
DURATION, SHARE = 'a number of seconds above 0, or text such as "90s", "30min"', "a number above 0 and below 1, such as"
MEMORY, STEM = '"auto" (half of what is free), a number of bytes, or text such as "8GB"', "the beginning of a file name"
WHICH = "one or two of top, second, third, fourth, fifth, bottom"
LIMITS = "two numbers (lowest, highest) for all axes, or"
# Whose option, its name, a wrong value, what is expected of it, and what is typed where that is possible.
WRONG = [
    *((of, name, value, "an int of at least 1", f"--{name.replace('_', '-')}={value}")
      for of in (RUN, CURVATURE, SHARED) for name, value in (("devices_per_worker", 0), ("workers_per_device", -1))),
    *((of, "samples", "last", "one of 'first', 'random'", "--sample-choice=last") for of in (RUN, CURVATURE, SHARED)),
    *((of, name, value, f"one of {words}", flag and f"--{flag}={value}") for of, name, value, words, flag in (
        (RUN, "buffers", "moving", "'auto', 'fixed', 'recalibrate', 'interpolate'", "buffers"),
        (SHARED, "buffers", "moving", "'auto', 'fixed', 'recalibrate', 'interpolate'", ""),
        (RUN, "precision", "half", "'float32', 'tf32', 'bfloat16'", "precision"),
        (SHARED, "precision", "half", "'float32', 'tf32', 'bfloat16'", "precision"),
        (RUN, "sampling", "half", "'full', 'adaptive'", "sampling"),
        (RUN, "normalization", "unit", "'filter', 'layer', 'weight', 'none'", "normalization"),
        (RECIPES, "normalization", "unit", "'filter', 'layer', 'weight', 'none'", "normalization"),
        (RUN, "centering", "left", "'none', 'mean'", "centering"),
        (RUN, "directions", "steepest", "'random', 'hessian', 'ggn', 'pca'", "directions"),
        (RUN, "plane_of", "last", "'all', 'first'", "plane-of"),
        (CURVATURE, "matrix", "fisher", "'hessian', 'ggn'", "matrix"),
    )),
    *((of, name, -1, "an int of at least 0", f"--{flag}=-1") for of, name, flag in (
        (RUN, "seed", "seed"), (CURVATURE, "seed", "seed"), (SHARED, "seed", "seed"),
        (CURVATURE, "top", "top"), (CURVATURE, "bottom", "bottom"),
        (CURVATURE, "trace_probes", "trace"), (RECIPES, "trace_lines", "trace-lines"),
    )),
    (CURVATURE, "density_probes", -1, "an int of at least 0", ""),
    (CURVATURE, "density_steps", 0, "an int of at least 1", ""),
    (CURVATURE, "max_products", 0, "an int of at least 1", "--max-products=0"),
    (CURVATURE, "tolerance", float("nan"), "a finite number", "--tolerance=nan"),
    (CURVATURE, "tolerance", 2.0, "a number between 0 and 1", "--tolerance=2"),
    (RUN, "recalibration_batch_size", 1, "an int of at least 2", "--recalibration-batch-size=1"),
    (SHARED, "recalibration_batch_size", 1, "an int of at least 2", "--recalibration-batch-size=1"),
    *((RUN, "tolerance", value, SHARE, typed) for value, typed in (
        (0, "--tolerance=0"), (1, "--tolerance=1"), (2.0, "--tolerance=2"), ("1%", ""), (True, ""))),
    *((RUN, "share", value, 'text such as "2/4", whose first number is from 1 to the second, or "array"', typed)
      for value, typed in (("5/4", "--share=5/4"), ("half", "--share=half"), (2, ""), (0.5, ""), ("0/3", ""), ("1", ""),
        ("a/b", ""), ("-1/3", ""), ("1/3 ", ""), ("", ""))),
    *((of, "budget", value, DURATION, typed) for of in (RUN, CURVATURE, SHARED) for value, typed in (
        ("soon", "--budget=soon"), ("30 parsecs", "--budget=30 parsecs"), (0, "--budget=0"), (-1.0, "--budget=-1"),
        (float("nan"), "--budget=nan"), (True, ""), ([1], ""))),
    *((of, name, value, expected, typed) for of in (RUN, CURVATURE, SHARED) for name, value, expected, typed in (
        ("address", 6379, "the address of a Ray cluster (str) or None", ""),
        ("plan", 3, "a MeasurementPlan, the path of a landscape file, or None", ""),
        ("plan", "", "a path that is not blank", "--plan="),
        ("sample_memory", 0, MEMORY, "--sample-memory=0"), ("sample_memory", "200%", MEMORY, "--sample-memory=200%"),
        *(("sample_memory", wrong, MEMORY, "") for wrong in (True, 1.5, "much", "120%", "8 XB")))),
    *((of, "compile", value, 'True, False or "auto"', "") for of in (RUN, SHARED) for value in ("yes", 1, None)),
    *((of, "name", value, STEM, typed) for of in (RUN, CURVATURE) for value, typed in (
        ("a/b", "--name=a/b"), (".a", "--name=.a"), ("\0", ""), (" ", "--name= "), (3, ""))),
    *((RUN, "which", value, WHICH, typed) for value, typed in (
        ("third,third", ""), (("top", "top"), "--which=top,top"), (["last"], "--which=last"), ([], ""), (3, ""))),
    *((of, "rise", value, expected, typed) for of in (RUN, RECIPES) for value, expected, typed in (
        (0, "a number above 0, in units of the loss", "--rise=0"), ("1", "a finite number", ""))),
    (RECIPES, "directions", 0, "an int of at least 1", "--directions=0"),
    (RECIPES, "directions", 3, "1, of which the interval leaves directions out, or at least 4", "--directions=3"),
    (RECIPES, "points", 1, "an int of at least 3", "--points=1"),
    (RECIPES, "points", 4, "an odd number, so that the network itself is in the middle", "--points=4"),
    (RECIPES, "radius", 0, "a number above 0", "--radius=0"),
    *((RECIPES, "confidence", value, "a number between 0 and 1", f"--confidence={value}") for value in (0.0, 1.0)),
    *((of, "groups", "class", '"target", a function of (inputs, targets), or None', typed)
      for of, typed in ((RUN, "--groups=class"), (SHARED, ""))),
    *((of, "num_samples", 0, "an int of at least 1", "--samples=0") for of in (CURVATURE, SHARED)),
    *((of, "device_ids", "0", "a list of ints or None", "") for of in (CURVATURE, SHARED)),
    (RUN, "limits", (1, 2, 3), LIMITS, "--limits=1,2,3"), (RUN, "limits", 1, LIMITS, ""),
    (RUN, "limits", (1, 0), "coordinates that increase from each lowest to its highest", "--limits=1,0"),
    (RUN, "margin", -0.1, "a finite number of at least 0.0", "--margin=-0.1"),
    (RUN, "margin", "0.1", "a finite number", ""),
    (RUN, "also", "run", "a list of run directories, or a dict from names to them", ""),
    *((of, name, 1, "a bool, but got int: 1", "") for of in (RUN, CURVATURE, SHARED)
      for name, option in options_of(of[0]).items() if isinstance(option.default, bool)),
]  # fmt: skip


@pytest.mark.parametrize(("of", "name", "value", "expected", "typed"), WRONG)
def test_a_wrong_value_is_named_as_it_was_given(of, name, value, expected, typed):
    kind, command = of
    with pytest.raises((TypeError, ValueError), match=f"^{name} must be {re.escape(expected)}"):
        checked(kind, {name: value})
    if typed:
        found = CliRunner().invoke(app, [*command, "--function", "no:thing", typed]).exception
        assert type(found) in (TypeError, ValueError)
        assert str(found).startswith(f"{typed.partition('=')[0]} must be {expected}")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("device_ids", [], "device_ids must be a list with at least one"),
        ("device_ids", [0, 0], "device_ids must be a list in which no device id is repeated"),
        ("device_ids", [True], r"device_ids\[0\] must be an int of at least 0"),
        ("num_samples", -4, "num_samples must be an int of at least 1"),
        ("num_samples", {"test": 0}, r"num_samples\['test'\] must be an int of at least 1"),
        ("limits", (0, float("inf")), r"limits\[1\] must be a finite number"),
        ("also", {"a": 3}, r"also\['a'\] must be the path of a run directory"),
    ],
)
def test_a_wrong_part_is_named(name, value, expected):
    with pytest.raises((TypeError, ValueError), match=f"^{expected}"):
        OPTIONS[name].checked(name, value)


def test_every_option_has_a_check_and_a_wrong_value_above():
    for kind, _ in (RUN, CURVATURE, RECIPES, SHARED):
        assert {row[1] for row in WRONG if row[0][0] is kind} == set(options_of(kind))


def test_a_right_value_is_what_the_rest_of_the_program_takes():
    plan = MeasurementPlan()
    for name, values in {
        "address": (None, "local"), "plan": (None, plan), "sample_memory": ("auto", 8, "8GB", "25 %"),
        "compile": (True, False, "auto"), "name": (None, "mine"), "groups": (None, "target", max),
        "limits": (None, (0.0, 1.0), (0.0, 1.0, -1.0, 2.0)), "margin": (None, 0.0), "rise": (2.0,), "share": (None,),
        "which": (("top",), ("top", "bottom")), "also": (None, ["a"], {"a": "b"}),
    }.items():  # fmt: skip
        for value in values:
            assert OPTIONS[name].checked(name, value) == value
    assert OPTIONS["which"].checked("which", "top") == ("top",)
    assert OPTIONS["limits"].checked("limits", [0, 1]) == (0.0, 1.0)


@pytest.mark.parametrize(("door", "kind"), DOORS)
def test_a_door_shows_checks_and_takes_every_option_of_its_kind(door, kind):
    shown, types = inspect.signature(door).parameters, typing.get_type_hints(kind)
    told = " ".join(inspect.getdoc(door).split()) if door is not DrawAtEnd.__init__ else ""
    assert set(options_of(kind)) == set(types)
    for name, option in options_of(kind).items():
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert (shown[name].default, shown[name].annotation) == (option.default, types[name])
        assert option.checked(name, option.default) == option.default
        assert option.text.endswith(".")
        assert not told or f" {name}: {option.text} " in told
    assert "options" not in shown
    assert "**options:" not in told


@pytest.mark.parametrize("name", ["gen_curvature", "report", "check"])
def test_what_a_run_measures_by_default_is_told(name):
    told = " ".join(inspect.getdoc(getattr(SummaryLandscape, name)).split())
    assert "num_samples: samples that a value is averaged over; None means as many as were collected" in told
    assert "None means all of the data set" not in told
    assert "as many as were collected for landscapes, and" not in told
    assert 'instead of "landscape"' not in told


@pytest.mark.parametrize(
    ("door", "name"),
    [
        (Measure, "seed"),
        (SummaryLandscape.gen_landscapes_with_multi_process, "seed"),
        (DrawAtEnd, "seed"),
        (SummaryLandscape.gen_curvature, "top"),
        (SummaryLandscape.check, "seed"),
    ],
)
def test_a_door_refuses_a_wrong_option_before_it_looks_at_anything_else(door, name):
    needed = [item for item in inspect.signature(door).parameters.values() if item.default is item.empty]
    needed = [item for item in needed if item.kind is not item.VAR_KEYWORD]
    with pytest.raises(ValueError, match=f"^{name} must be an int of at least"):
        door(*(list for _ in needed), **{name: -1})


@pytest.mark.parametrize(
    ("method", "given", "name"),
    [
        ("points", {"keep_samples": True}, "keep_samples"),
        ("regrid", {"precision": "tf32"}, "precision"),
        ("regrid", {"overwrite": True}, "overwrite"),
        ("curvature", {"groups": "target"}, "groups"),
        ("hessian_plane", {"budget": 60}, "budget"),
        ("trace", {"dry_run": True}, "dry_run"),
        ("compare", {"extremes": True}, "extremes"),
        ("connect", {"buffers": "recalibrate"}, "buffers"),
    ],
)
def test_what_a_measurement_has_no_use_for_is_refused(method, given, name):
    asked = {"points": (random_plane, [[0, 0]]), "connect": ("a", "b")}.get(method, ("a",))
    more = {"factor": 2} if method == "regrid" else {}
    plane = random_line(torch.nn.Linear(2, 2)) if method == "points" else None
    with pytest.raises(ValueError, match=f"^{name} must be left out for Measure.{method}: "):
        getattr(Measure(list, **given), method)(*((plane, asked[1]) if plane else asked), **more)


def test_an_option_that_is_left_out_has_its_default_and_one_that_is_given_is_read():
    assert checked(MeasureOptions, {}) == {name: OPTIONS[name].default for name in MeasureOptions.__annotations__}
    assert checked(MeasureOptions, {"budget": "1min"})["budget"] == 60.0


def test_the_words_are_those_of_planes():
    """Whose module takes too long to import for a command line."""
    assert OPTIONS["centering"].choices == CENTERINGS


def test_the_run_takes_its_first_arguments_by_position():
    shown = inspect.signature(SummaryLandscape.gen_landscapes_with_multi_process).parameters.values()
    positional = [item.name for item in shown if item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == ["self", "callback_fn", "collect_landscape", "device_ids", "output"]


def test_an_unknown_option_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"^Measure\(\) got an unexpected keyword argument 'sede'"):
        Measure(list, sede=1)
    with pytest.raises(TypeError, match=r"^Measure.grid\(\) got an unexpected keyword argument 'sise'"):
        Measure(list).grid(random_plane, sise=1)
    (tmp_path / "ckpt_dir").mkdir()
    run = SummaryLandscape(tmp_path)
    with pytest.raises(TypeError, match=r"gen_landscapes_with_multi_process\(\) got an unexpected .* argument 'size'"):
        run.gen_landscapes_with_multi_process(list, size=3)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt_dir"]


@pytest.mark.parametrize(
    ("command", "kind", "left_out"),
    [
        ("run", RunOptions, set()),
        ("evaluate", MeasureOptions, set()),
        ("evaluate", GridOptions, set()),
        # Typed as one text, --density 4x40.
        ("curvature", RunCurvatureOptions, {"density_probes", "density_steps"}),
        ("check", CheckOptions, set()),
        ("compare", CompareOptions, set()),
        ("compare", MeasureOptions, {"groups", "extremes", "keep_samples"}),
        ("evaluate", ChangeOptions, set()),
    ],
)
def test_a_command_offers_everything_that_python_has(command, kind, left_out):
    """What is left out has its reason here."""
    spelled = {
        "samples": "--sample-choice", "trace_probes": "--trace", "num_samples": "--samples", "device_ids": "--devices",
    }  # fmt: skip
    wanted = {spelled.get(name, f"--{name.replace('_', '-')}") for name in kind.__annotations__.keys() - left_out}
    if command == "evaluate":
        # Of Python's planes: names are typed as NAME=FILE.
        wanted |= {"--normalization", "--perturb-one-dimensional", "--centering", "--numbers", "--directions"}
    assert wanted <= {flag for parameter in COMMANDS[command].params for flag in parameter.opts}


@pytest.mark.parametrize(
    ("command", "name"), [(command, item.name) for command, found in COMMANDS.items() for item in found.params
                          if "|" in (item.metavar or "")]
)  # fmt: skip
def test_words_are_listed_by_the_help_and_completed(command, name):
    parameter = next(item for item in COMMANDS[command].params if item.name == name)
    words = parameter.metavar.strip("[]").split("|")
    context = typer.Context(COMMANDS[command])
    assert [item.value for item in parameter.shell_complete(context, "")] == words
    kind = {"run": RunOptions, "curvature": RunCurvatureOptions, "compare": CompareOptions}.get(command)
    if kind and name in options_of(kind):
        assert tuple(words) == options_of(kind)[name].choices
