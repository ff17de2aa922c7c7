import inspect

import pytest
from monitored_runs import batches, context, model

from collectors.callbacks.callback import EVAL_HOOKS, LEGACY_HOOKS, TRAIN_HOOKS, BuiltInCallback
from collectors.callbacks.function_callbacks import LambdaCallback

ORDER = ("epoch_begin", "epoch_end", "step_begin", "step_end", "begin", "end")
NEW = (*(f"on_train_{name}" for name in ORDER), *(f"on_eval_{name}" for name in ORDER))


def recorded(names, diary):
    """Returns a function for each name that notes the name and the phase it is called in."""
    return {
        name: lambda run_context, name=name: diary.append((name, run_context.original_args().mode)) for name in names
    }


def test_names_order_and_defaults():
    parameters = inspect.signature(LambdaCallback).parameters
    positional = [name for name, item in parameters.items() if item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    keyword_only = [name for name, item in parameters.items() if item.kind is inspect.Parameter.KEYWORD_ONLY]
    assert positional == list(ORDER)
    assert keyword_only == list(NEW)
    assert {parameter.default for parameter in parameters.values()} == {None}
    assert issubclass(LambdaCallback, BuiltInCallback)
    assert LambdaCallback.called_in_fit_evaluation


@pytest.mark.parametrize("name", [*NEW, *ORDER])
@pytest.mark.parametrize("wrong", [3, "print", 0, False, [print]])
def test_what_cannot_be_called_is_refused_at_once(name, wrong):
    text = rf"^{name} must be a function of one argument \(the run context\) or None, but got {type(wrong).__name__}"
    with pytest.raises(TypeError, match=text):
        LambdaCallback(**{name: wrong})


def test_an_unknown_name_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'on_step_end'"):
        LambdaCallback(on_step_end=print)


@pytest.mark.parametrize("name", NEW)
def test_each_new_name_runs_alone(name):
    calls = []
    callback = LambdaCallback(**{name: calls.append})
    run_context = context()
    for hook in (*TRAIN_HOOKS, *EVAL_HOOKS):
        getattr(callback, hook)(run_context)
    assert calls == [run_context]
    getattr(callback, name)(run_context)
    assert len(calls) == 2


@pytest.mark.parametrize("name", LEGACY_HOOKS)
def test_each_legacy_name_runs_in_both_phases(name):
    calls = []
    callback = LambdaCallback(**{name: calls.append})
    training, evaluation = context(mode="train"), context(mode="eval")
    for train_hook, eval_hook in zip(TRAIN_HOOKS, EVAL_HOOKS, strict=True):
        getattr(callback, train_hook)(training)
        getattr(callback, eval_hook)(evaluation)
    assert calls == [training, evaluation]


def test_legacy_names_in_a_fit_without_a_warning():
    diary = []
    model().fit(1, batches([1.0]), batches([2.0]), callbacks=LambdaCallback(**recorded(ORDER, diary)))
    evaluation = [(name, "eval") for name in LEGACY_HOOKS]
    training = [(name, "train") for name in LEGACY_HOOKS]
    assert diary == [*training[:4], *evaluation, *training[4:]]


def test_the_new_name_wins_in_its_phase():
    diary = []
    callback = LambdaCallback(**recorded(("step_end", "on_train_step_end"), diary))
    model().fit(1, batches([1.0]), batches([2.0]), callbacks=callback)
    assert diary == [("on_train_step_end", "train"), ("step_end", "eval")]


def test_the_documented_six_by_position():
    diary = []
    functions = [lambda run_context, name=name: diary.append(name) for name in ORDER]
    model().train(1, batches([1.0]), LambdaCallback(*functions))
    assert diary == ["begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"]
    with pytest.raises(TypeError, match="positional arguments"):
        LambdaCallback(*functions, print)


def test_two_callbacks_do_not_share_functions():
    calls = []
    LambdaCallback(end=calls.append)
    LambdaCallback().on_train_end(context())
    assert calls == []
