"""Both front doors show, take and refuse the same options."""

import inspect

import pytest

from landscape import SummaryLandscape, evaluate, random_plane
from landscape.record.options import DEFAULTS, EXPLANATIONS, RunOptions, SurveyOptions

DOORS = [(evaluate, SurveyOptions), (SummaryLandscape.gen_landscapes_with_multi_process, RunOptions)]


@pytest.mark.parametrize(("door", "kind"), DOORS)
def test_the_help_shows_every_option_with_its_default(door, kind):
    shown = inspect.signature(door).parameters
    told = " ".join(inspect.getdoc(door).split())
    assert len(kind.__annotations__) in (24, 34)
    for name in kind.__annotations__:
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[name].default == DEFAULTS[name]
        assert f" {name}: {EXPLANATIONS[name]} " in told
    assert not {"options", "**options:"} & {*shown, *told.split()}


def test_every_option_is_explained_and_has_a_default():
    assert set(EXPLANATIONS) == set(DEFAULTS) == set(RunOptions.__annotations__)
    assert all(text.endswith(".") for text in EXPLANATIONS.values())


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
