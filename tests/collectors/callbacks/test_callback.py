import copy
import pickle

import pytest
from monitored_runs import OldStyle

from collectors.callbacks.callback import (
    EVAL_HOOKS,
    LEGACY_HOOKS,
    TRAIN_HOOKS,
    BuiltInCallback,
    Callback,
    CallbackParameters,
    RunContext,
    parameters_of,
)
from collectors.callbacks.callback_manager import CallbackManager, legacy_hooks_of


class Diary(Callback):
    """Writes down when it is entered, called and left; raises where it is told to."""

    def __init__(self, name, diary, raises=()):
        self.name, self.diary, self.raises = name, diary, raises

    def note(self, what):
        self.diary.append(f"{self.name}.{what}")
        if what in self.raises:
            raise RuntimeError(f"{self.name}.{what} failed")

    def __enter__(self):
        self.note("enter")
        return self

    def __exit__(self, exception_type, exception, traceback):
        self.note("exit" if exception is None else f"exit:{exception}")
        if "exit" in self.raises:
            raise RuntimeError(f"{self.name}.exit failed")

    def on_train_begin(self, run_context):
        self.note("on_train_begin")

    def on_exception(self, run_context, error):
        self.note("on_exception")


@pytest.fixture
def run_context():
    return RunContext(CallbackParameters(mode="train"))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda params: pickle.loads(pickle.dumps(params))])
def test_parameters_survive_copy_and_pickle(copied):
    params = CallbackParameters(mode="train", losses=[1, 2])
    other = copied(params)
    assert isinstance(other, CallbackParameters)
    assert other == params


@pytest.mark.parametrize("kind", [dict, CallbackParameters])
def test_keys_are_attributes_also_of_a_plain_dictionary(kind):
    original = kind(mode="train", old=1)
    run_context = RunContext(original)
    assert run_context.original_args() is original
    params = parameters_of(run_context)
    assert params.mode == "train"
    params.cur_step_num = 3
    assert params["cur_step_num"] == 3
    del params.old
    assert run_context.original_args() == {"mode": "train", "cur_step_num": 3} == dict(params)
    assert params.get("none", 5) == getattr(params, "none", 5) == 5
    assert not hasattr(params, "none")
    text = r"cb_params has no 'none' at this moment; it has \['cur_step_num', 'mode'\]"
    with pytest.raises(AttributeError, match=text):
        params.none
    with pytest.raises(AttributeError, match=text):
        del params.none
    with pytest.raises(KeyError):
        params["none"]


@pytest.mark.parametrize("wrong", [None, [("mode", "train")], "train", 3])
def test_the_context_needs_a_dict(wrong):
    with pytest.raises(TypeError, match="original_args must be a dict, but got"):
        RunContext(wrong)


def test_a_stop_is_sticky(run_context):
    assert run_context.get_stop_requested() is False
    run_context.request_stop()
    run_context.request_stop()
    assert run_context.get_stop_requested() is True


def test_a_callback_enters_as_itself_and_swallows_nothing():
    callback = Callback()
    with callback as inside:
        assert inside is callback
    with pytest.raises(ValueError, match="kept"):
        with Callback():
            raise ValueError("kept")


def test_the_new_hook_wins_for_its_phase_alone(run_context):
    class Both(OldStyle):
        def on_train_step_end(self, run_context):
            self.calls.append("on_train_step_end")

        def on_eval_step_end(self, run_context):
            self.calls.append("on_eval_step_end")
            super().on_eval_step_end(run_context)

    callback = Both()
    callback.on_train_step_end(run_context)
    callback.on_eval_step_end(run_context)
    callback.on_train_end(run_context)
    assert callback.calls == ["on_train_step_end", "on_eval_step_end", ("train", "step_end"), ("train", "end")]


LISTED = "callbacks must be a Callback, a list or tuple of them, or None, but got"
NAMED = r"callbacks\[1\] must be a Callback \(an object, not its class\), but got"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        *(({"callbacks": wrong}, LISTED) for wrong in (3, "callback", {"a": Callback()}, Callback, iter([]))),
        *(({"callbacks": [Callback(), wrong]}, NAMED) for wrong in (Callback, None, 3)),
        ({"strict": 1}, "strict must be a bool"),
    ],
)
def test_the_manager_takes_callbacks_only(arguments, text):
    with pytest.raises(TypeError, match=text):
        CallbackManager(**arguments)


def test_one_a_list_a_tuple_or_none():
    first, second = Callback(), Callback()
    assert CallbackManager().callbacks == CallbackManager(None).callbacks == []
    assert CallbackManager(first).callbacks == [first]
    assert CallbackManager([first, second]).callbacks == CallbackManager((first, second)).callbacks == [first, second]


@pytest.mark.parametrize("hook", [*TRAIN_HOOKS, *EVAL_HOOKS, *LEGACY_HOOKS])
def test_every_hook_is_passed_on_in_order(hook, run_context):
    calls = []

    class Listener(Callback):
        def __init__(self, name):
            def listen(context, name=name):
                calls.append((name, context))

            setattr(self, hook, listen)

    getattr(CallbackManager([Listener("a"), Listener("b")]), hook)(run_context)
    assert calls == [("a", run_context), ("b", run_context)]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_failing_enter_leaves_those_that_entered(position):
    diary = []
    names = "abc"
    failing = names[position]
    manager = CallbackManager([Diary(name, diary, ["enter"] if name == failing else ()) for name in names])
    with pytest.raises(RuntimeError, match=rf"^{failing}\.enter failed$"):
        with manager:
            raise AssertionError("the body must not run")
    before = names[:position]
    exits = [f"{name}.exit:{failing}.enter failed" for name in reversed(before)]
    assert diary == [f"{name}.enter" for name in before + failing] + exits


def test_all_exits_run_and_the_first_error_propagates():
    diary = []
    manager = CallbackManager([Diary(name, diary, ["exit"]) for name in "abc"])
    with pytest.raises(RuntimeError, match=r"^c\.exit failed") as caught:
        with manager:
            pass
    assert [entry[0] for entry in diary[3:]] == ["c", "b", "a"]
    notes = "\n".join(caught.value.__notes__)
    assert "Diary.__exit__ raised as well" in notes
    assert "RuntimeError: b.exit failed" in notes
    assert "RuntimeError: a.exit failed" in notes


def test_the_runs_own_error_survives_failing_exits():
    with pytest.raises(KeyError, match="body") as caught:
        with CallbackManager([Diary("a", [], ["exit"]), Diary("b", [])]):
            raise KeyError("body")
    assert len(caught.value.__notes__) == 1
    assert "a.exit failed" in caught.value.__notes__[0]


def test_an_exit_that_raises_the_runs_error_again_adds_no_note():
    class Again(Callback):
        def __exit__(self, exception_type, exception, traceback):
            raise exception

    with pytest.raises(ValueError, match="kept") as caught:
        with CallbackManager(Again()):
            raise ValueError("kept")
    assert not hasattr(caught.value, "__notes__")


def test_entering_again_inside_does_nothing_and_afterwards_all():
    diary = []
    manager = CallbackManager([Diary("a", diary)])
    for _ in range(2):
        with manager:
            with manager:
                diary.append("body")
            diary.append("still inside")
    assert diary == ["a.enter", "body", "still inside", "a.exit"] * 2


def test_enter_may_replace_the_callback(run_context):
    diary = []
    replacement = Diary("replacement", diary)

    class Replaced(Diary):
        def __enter__(self):
            super().__enter__()
            return replacement

    original = Replaced("original", diary)
    manager = CallbackManager([original])
    with manager:
        assert manager.callbacks == [replacement]
        manager.on_train_begin(run_context)
    assert manager.callbacks == [original]
    assert diary == ["original.enter", "replacement.on_train_begin", "original.exit"]


class Forgetful(Diary):
    def __enter__(self):
        super().__enter__()


def test_enter_that_returns_no_callback_warns_and_keeps_it(run_context):
    diary = []
    manager = CallbackManager([Forgetful("a", diary)])
    with pytest.warns(UserWarning, match=r"Forgetful.__enter__ returned NoneType instead of a Callback"):
        manager.__enter__()
    manager.on_train_begin(run_context)
    manager.__exit__(None, None, None)
    assert diary == ["a.enter", "a.on_train_begin", "a.exit"]


def test_that_warning_as_an_error_still_leaves_the_callback():
    diary = []
    with pytest.raises(UserWarning, match="Forgetful"), CallbackManager([Forgetful("a", diary)]):
        pass
    assert [entry.split(":")[0] for entry in diary] == ["a.enter", "a.exit"]


def test_on_exception_reaches_all_and_keeps_the_error(run_context):
    diary = []
    manager = CallbackManager([Diary("a", diary, ["on_exception"]), Diary("b", diary)])
    error = ValueError("the run's")
    manager.on_exception(run_context, error)
    assert diary == ["a.on_exception", "b.on_exception"]
    assert len(error.__notes__) == 1
    assert "a.on_exception failed" in error.__notes__[0]


def nothing(self, run_context):
    pass


def made(name, *bases, **methods):
    return type(name, bases, methods)()


def on_the_object():
    callback = Callback()
    callback.end = lambda run_context: None
    return callback


@pytest.mark.parametrize(
    ("callback", "hooks"),
    [
        (Callback(), ()),
        (made("Modern", Callback, on_train_end=nothing), ()),
        (OldStyle(), LEGACY_HOOKS),
        (made("Inherits", OldStyle), LEGACY_HOOKS),
        (made("History", Callback, epoch_end=nothing), ("epoch_end",)),
        (made("Mixed", type("Mixin", (), {"step_end": nothing}), Callback), ("step_end",)),
        (on_the_object(), ("end",)),
        (made("Ours", BuiltInCallback, step_end=nothing), ()),
        (CallbackManager(OldStyle()), ()),
    ],
)
def test_legacy_hooks_are_found_wherever_they_are_defined(callback, hooks):
    assert legacy_hooks_of(callback) == hooks
