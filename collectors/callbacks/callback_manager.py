"""Several callbacks as one, which enters them, passes every hook on and always leaves them; their saved states."""

from __future__ import annotations

import traceback as traceback_module
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from ..validation import check_bool, check_instance, wrong_type
from .callback import LEGACY_HOOKS, BuiltInCallback, Callback, RunContext, StepListener, add_hooks

Tell = Callable[..., None]
"""Called with the name of an event within a step, and what it brought by name."""


class CallbackManager(Callback):
    """Several callbacks as one.

    Hooks are passed on in the order of the list; the first error stops that and propagates. As a context
    manager it enters all callbacks and leaves those that were entered in reverse order, also when a later
    one fails to enter or another fails to leave; a true value that a callback's exit returns does not
    swallow an error. The run's own error is the one that propagates; what callbacks raise while the run
    is being wound up is added to it as a note. Entering again inside does nothing.

    Args:
        callbacks: one callback, a list or tuple of them, or None.
        strict: whether legacy hooks in ``Model.fit`` are an error rather than a deprecation warning.

    Raises:
        TypeError: ``callbacks`` or one of its items is not a callback.
    """

    def __init__(self, callbacks: Callback | Sequence[Callback] | None = None, *, strict: bool = False) -> None:
        if callbacks is None:
            callbacks = ()
        elif isinstance(callbacks, Callback):
            callbacks = (callbacks,)
        elif not isinstance(callbacks, list | tuple):
            raise wrong_type("callbacks", "a Callback, a list or tuple of them, or None", callbacks)
        for index, callback in enumerate(callbacks):
            check_instance(f"callbacks[{index}]", callback, Callback, "a Callback (an object, not its class)")
        self._strict = check_bool("strict", strict)
        self._given = tuple(callbacks)
        self._active = list(callbacks)
        self._entered: list[Callback] = []
        self._depth = 0

    @property
    def callbacks(self) -> list[Callback]:
        """The callbacks that hooks are passed to, in order."""
        return list(self._active)

    def for_fit_evaluation(self) -> CallbackManager:
        """Returns a manager of the callbacks that take part in the evaluations inside ``Model.fit``.

        Do not enter it: this manager enters and leaves the callbacks.
        """
        kept = [item for item in self._active if not isinstance(item, BuiltInCallback) or item.called_in_fit_evaluation]
        return CallbackManager(kept, strict=self._strict)

    def telling(self, run_context: RunContext) -> Tell:
        """Returns what tells the callbacks of the events within steps; it does nothing where nobody listens."""
        listeners = [callback for callback in self._active if isinstance(callback, StepListener)]
        if not listeners:
            return silent

        def tell(event: str, **values: Any) -> None:
            for listener in listeners:
                listener.inside_step(event, run_context, **values)

        return tell

    def check_legacy_hooks(self, stacklevel: int = 3) -> None:
        """Warns of callbacks that use legacy hooks, inherited ones included, which ``Model.fit`` discourages.

        Args:
            stacklevel: as in ``warnings.warn``, which frame the warning names; 3 is the caller's caller.

        Raises:
            ValueError: there are such callbacks and the manager is strict.
        """
        for callback in self._given:
            hooks = legacy_hooks_of(callback)
            if not hooks:
                continue
            renamed = ", ".join(f"{hook} to on_train_{hook} or on_eval_{hook}" for hook in hooks)
            message = (
                f"callbacks has a {type(callback).__name__} with the legacy hooks {list(hooks)}, which in fit run "
                f"in training and in evaluation alike. Rename {renamed}."
            )
            if self._strict:
                raise ValueError(message)
            warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth > 1:
            return self
        self._active = []
        try:
            for callback in self._given:
                inside: object = callback.__enter__()
                self._entered.append(callback)
                if not isinstance(inside, Callback):
                    warnings.warn(
                        f"{type(callback).__name__}.__enter__ returned {type(inside).__name__} instead of a "
                        "Callback; the callback itself is used. End it with `return self`.",
                        UserWarning,
                        stacklevel=2,
                    )
                    inside = callback
                self._active.append(inside)
        except BaseException as error:
            self._leave(error)
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._depth > 1:
            self._depth -= 1
        else:
            self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        entered, self._entered = self._entered, []
        self._active, self._depth = list(self._given), 0
        run_failed = error is not None
        for callback in reversed(entered):
            try:
                if error is None:
                    callback.__exit__(None, None, None)
                else:
                    callback.__exit__(type(error), error, error.__traceback__)
            except BaseException as raised:
                if error is None:
                    error = raised
                elif raised is not error:
                    _add_note(error, callback, "__exit__", raised)
        if error is not None and not run_failed:
            raise error

    def _pass_on(self, hook: str, run_context: RunContext) -> None:
        for callback in self._active:
            getattr(callback, hook)(run_context)

    def on_exception(self, run_context: RunContext, error: BaseException) -> None:
        """Tells every callback of the error; what one of them raises becomes a note of that error."""
        for callback in self._active:
            try:
                callback.on_exception(run_context, error)
            except Exception as raised:
                if raised is not error:
                    _add_note(error, callback, "on_exception", raised)


add_hooks(CallbackManager, CallbackManager._pass_on)


class HostedCallbacks:
    """Callbacks, with a run context that they share, inside another library's trainer; the first base of that's own."""

    def __init__(self, callbacks: Sequence[Callback], foreign: type, advice: str) -> None:
        super().__init__()
        if not callbacks:
            raise ValueError(f"callbacks must be given, at least one: {type(self).__name__}(callback, ...).")
        if any(isinstance(callback, foreign) for callback in callbacks):
            raise TypeError(f"callbacks must be callbacks of this library, but one is a {advice}")
        self._manager = CallbackManager(callbacks)
        self._audience = self._manager
        self._context: Any = None
        self._training: dict[str, Any] | None = None  # in an evaluation, the parameters of the training around it

    @property
    def _params(self) -> Any:
        return self._context.original_args()

    def _end_run(self, error: BaseException | None = None) -> None:
        """Leaves the callbacks; those of a run that failed are told of it before."""
        context, self._context = self._context, None
        self._audience = self._manager
        training, self._training = self._training, None
        if error is not None and context is not None:
            context.original_args().update(training or {})
            self._manager.on_exception(context, error)
        self._manager.__exit__(None, error, None)


def silent(event: str, **values: Any) -> None:
    """Tells nobody."""


def legacy_hooks_of(callback: Callback) -> tuple[str, ...]:
    """Returns the legacy hooks that a callback overrides; none for this library's callbacks, which know the phase."""
    if isinstance(callback, BuiltInCallback | CallbackManager):
        return ()
    return tuple(
        hook
        for hook in LEGACY_HOOKS
        if hook in vars(callback)
        or next(owner for owner in type(callback).__mro__ if hook in vars(owner)) is not Callback
    )


def has_state(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))


def callbacks_with_state(callbacks: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for callback in callbacks:
        if has_state(callback):
            yield type(callback).__name__, callback


def states_of(callbacks: Iterable[Any]) -> list[tuple[str, Any]]:
    return [(name, callback.state_dict()) for name, callback in callbacks_with_state(callbacks)]


def restore_callbacks(callbacks: Iterable[Any], saved: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Loads (class name, state, ...) items, the i-th of a class into its i-th callback; returns those left over."""
    present = list(callbacks_with_state(callbacks))
    unused = []
    for item in saved:
        index = next((index for index, (name, _) in enumerate(present) if name == item[0]), None)
        if index is None:
            unused.append(item)
        else:
            present.pop(index)[1].load_state_dict(item[1])
    return unused


def _add_note(error: BaseException, callback: Callback, where: str, raised: BaseException) -> None:
    trace = "".join(traceback_module.format_exception(raised)).rstrip()
    error.add_note(f"While winding up, {type(callback).__name__}.{where} raised as well:\n{trace}")
