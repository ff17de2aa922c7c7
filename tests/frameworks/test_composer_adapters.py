"""Callbacks of both libraries in each other's trainers, in real ones."""

import gc
import json

import pytest
import torch
from cases import Crash, Numbers, Recorder
from monitored_runs import raise_after, stop_after
from torch import nn

import composer_cases as cases  # isort: skip
import composer
from composer.callbacks import EarlyStopper, LRMonitor, NaNMonitor, RuntimeEstimator, SpeedMonitor
from composer.core import Event, State
from composer.loggers import InMemoryLogger
from composer.models import ComposerClassifier

from collectors import CheckpointConfig, History, LambdaCallback, LossMonitor, Model, ModelCheckpoint, TimeMonitor
from collectors.callbacks.callback import EVAL_HOOKS, STEP_EVENTS, TRAIN_HOOKS
from collectors.composer import SummaryCollector
from collectors.composer.from_composer import EVENTS, HOOK_EVENTS, FromComposer
from collectors.composer.in_composer import EVENT_HOOKS, InComposer
from collectors.run_directory import RunDirectory


def linear_model(seed=0):
    """Returns a network without dropout and BatchNorm, whose loss does not depend on microbatches."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(cases.FEATURES, 8), nn.Tanh(), nn.Linear(8, cases.CLASSES))
    return ComposerClassifier(network, num_classes=cases.CLASSES, loss_fn=nn.functional.cross_entropy)


def run_trainer(callbacks, **options):
    made = cases.trainer(callbacks=callbacks, **options)
    try:
        made.fit()
    finally:
        made.close()
    return made


def our_model(metrics=None):
    network = linear_model().module
    return Model(network, nn.functional.cross_entropy, torch.optim.SGD(network.parameters(), lr=0.1), metrics=metrics)


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


@pytest.mark.filterwarnings("ignore:Cannot split tensor of length 4:UserWarning")
def test_the_hooks_and_the_history_are_those_of_our_model():
    (in_model, ours), (in_composer, theirs) = ((Recorder(), History()) for _ in range(2))
    train, evaluate = cases.loader(28), cases.loader(16)
    our_model({"accuracy": accuracy}).fit(3, train, evaluate, callbacks=[in_model, ours])
    made = run_trainer(
        [InComposer(in_composer, theirs)], model=linear_model(), train_dataloader=train, eval_dataloader=evaluate
    )
    assert in_composer.calls == in_model.calls
    for hook, params in in_model.params.items():
        found = in_composer.params[hook]
        assert set(params) - set(found) <= {"eval_results"}, hook
        for key in ("mode", "epoch_num", "batch_num", "initial_step", "parallel_mode", "device_number"):
            assert found.get(key) == params.get(key), (hook, key)
    assert theirs.epoch == ours.epoch == {"epoch": [1, 2, 3]}
    assert theirs.history["net_output"] == pytest.approx(ours.history["net_output"], rel=1e-5)
    assert theirs.history["MulticlassAccuracy"] == pytest.approx(ours.history["accuracy"])
    assert type(made.state.model) is ComposerClassifier


def test_microbatches_are_one_step_with_one_loss():
    whole, parts = History(), History()
    steps = Recorder()
    run_trainer([InComposer(whole)], model=linear_model())
    run_trainer([InComposer(parts, steps)], model=linear_model(), device_train_microbatch_size=3)
    assert parts.history["net_output"] == pytest.approx(whole.history["net_output"], rel=1e-5)
    assert [call[2] for call in steps.calls if call[0] == "on_train_step_end"] == list(range(1, 13))


def test_an_epoch_that_ends_early_and_the_evaluation_after_it():
    recorder, history = Recorder(), History()
    made = run_trainer(
        [InComposer(recorder, history)], model=linear_model(), max_duration="6ba", eval_dataloader=cases.loader(16)
    )
    names = recorder.names
    end = names.index("on_train_end")
    assert names[end - 2 : end + 3] == ["on_train_step_end", "on_train_epoch_end", "on_train_end", "exit", "enter"]
    assert names[end + 3] == "on_eval_begin"
    assert names[-2:] == ["on_eval_end", "exit"]
    assert recorder.params["on_train_begin"]["epoch_num"] == 2
    assert history.epoch == {"epoch": [1, 2]}  # The evaluation after the end begins no new history.
    assert int(made.state.timestamp.batch) == 6


def test_an_evaluation_outside_of_training_is_a_run_of_its_own():
    recorder = Recorder()
    made = cases.trainer(callbacks=[InComposer(recorder, TimeMonitor())], model=linear_model())
    made.eval(cases.loader(16))
    made.close()
    begin, step = ["on_eval_begin", "on_eval_epoch_begin"], ["on_eval_step_begin", "on_eval_step_end"]
    end = ["on_eval_epoch_end", "on_eval_end"]
    assert recorder.names == ["enter", *begin, *step, *step, *end, "exit"]
    assert recorder.params["on_eval_begin"]["mode"] == "eval"
    assert recorder.params["on_eval_begin"]["batch_num"] == 2
    assert "metrics" not in recorder.params["on_eval_epoch_end"]
    assert 0 <= recorder.params["on_eval_end"]["metrics"]["MulticlassAccuracy"] <= 1


@pytest.mark.parametrize("outputs", ["tensor", "mapping"])
def test_an_evaluation_outside_of_training_has_no_loss_to_keep_or_print(outputs, capsys):
    model, history = linear_model(), History()
    made = cases.trainer(callbacks=[InComposer(history, LossMonitor())], model=model, max_duration="1ep")
    made.fit()
    kept = history.history
    capsys.readouterr()
    if outputs == "mapping":
        forward = model.eval_forward
        model.eval_forward = lambda batch, outputs=None: {"logits": forward(batch, outputs)}
        model.update_metric = lambda batch, outputs, metric: metric.update(outputs["logits"], batch[1])
    made.eval(cases.loader(16))
    made.close()
    assert "loss" not in capsys.readouterr().out
    assert history.history is kept


def test_several_evaluators_keep_their_results_apart():
    results = []
    ours = LambdaCallback(on_train_epoch_end=lambda context: results.append(context.original_args().eval_results))
    evaluators = [composer.Evaluator(label=name, dataloader=cases.loader(16)) for name in ("first", "second")]
    run_trainer([InComposer(ours)], model=linear_model(), max_duration="1ep", eval_dataloader=evaluators)
    assert {"first/MulticlassAccuracy", "second/MulticlassAccuracy"} <= set(results[0])


@pytest.mark.parametrize(
    ("hook", "at", "steps"),
    [
        ("on_train_begin", 0, 1),
        ("on_train_epoch_begin", 4, 5),
        ("on_train_step_begin", 2, 2),
        ("on_train_step_end", 2, 2),
        ("on_train_epoch_end", 4, 4),
        ("on_eval_end", 4, 4),
    ],
)
def test_a_stop_that_we_ask_for_stops_composer(hook, at, steps):
    recorder = Recorder()

    def stop(context):
        params = context.original_args()
        if params.mode == "eval" or params.cur_step_num == at:
            context.request_stop()

    made = run_trainer(
        [InComposer(LambdaCallback(**{hook: stop}), recorder)], model=linear_model(), eval_dataloader=cases.loader(16)
    )
    assert int(made.state.timestamp.batch) == steps
    assert ("on_train_end", (steps + 3) // 4, steps) in recorder.calls
    assert not recorder.errors


def test_an_error_of_ours_is_told_at_once():
    recorder = Recorder()
    made = cases.trainer(callbacks=[InComposer(recorder, raise_after(1, Crash("ours")))])
    with pytest.raises(Crash, match="ours") as caught:
        made.fit()
    assert recorder.errors == [caught.value]
    assert recorder.calls[-1] == "exit Crash"
    calls = list(recorder.calls)
    made.close()
    made.close()
    assert recorder.calls == calls


def test_an_error_of_others_is_told_when_the_trainer_is_closed():
    recorder = Recorder()
    with pytest.raises(Crash) as caught:
        run_trainer([InComposer(recorder), cases.CrashAfter(3)])
    assert recorder.errors == [caught.value]
    assert recorder.calls[-1] == "exit Crash"


def test_an_abandoned_trainer_is_told_of_when_it_is_collected():
    recorder = Recorder()
    made = cases.trainer(callbacks=[InComposer(recorder), cases.CrashAfter(3)])
    with pytest.raises(Crash):
        made.fit()
    assert recorder.errors == []
    del made
    gc.collect()
    (error,) = recorder.errors
    assert isinstance(error, RuntimeError)
    assert "did not reach its end" in str(error)


def test_a_new_fit_ends_a_failed_one():
    recorder = Recorder()
    made = cases.trainer(callbacks=[InComposer(recorder), cases.CrashAfter(3)])
    with pytest.raises(Crash):
        made.fit()
    made.fit()
    made.close()
    assert [call for call in recorder.calls if isinstance(call, str)] == ["enter", "exit RuntimeError", "enter", "exit"]


class OwnRunEvent(InComposer):
    """Overrides run_event, and hands on what it likes."""

    def __init__(self, *callbacks, lost=()):
        super().__init__(*callbacks)
        self.lost = lost

    def run_event(self, event, state, logger):
        if event.value not in self.lost:
            getattr(self, event.value)(state, logger)


def test_run_event_may_be_overridden():
    recorder, plain = Recorder(), Recorder()
    run_trainer([OwnRunEvent(recorder)])
    run_trainer([InComposer(plain)])
    assert recorder.calls == plain.calls
    with pytest.raises(RuntimeError, match="fit_start it did not see"):
        run_trainer([OwnRunEvent(Recorder(), lost=("fit_start",))])


@pytest.mark.parametrize("stop_at", ["1ep", "6ba"])
def test_states_come_back_from_composers_checkpoints(tmp_path, stop_at):
    straight, first, second = History(), History(), History()
    run_trainer([InComposer(straight)], model=linear_model())
    made = cases.trainer(callbacks=[InComposer(first)], model=linear_model(), max_duration=stop_at)
    made.fit()
    path = made.save_checkpoint(str(tmp_path / "checkpoint"))
    made.close()
    recorder = Recorder()
    run_trainer([InComposer(second, recorder)], model=linear_model(), load_path=str(path))
    assert second.epoch["epoch"][-2:] == straight.epoch["epoch"][-2:]
    assert second.history["net_output"][-1] == pytest.approx(straight.history["net_output"][-1], rel=1e-5)
    assert second.history["net_output"][0] == pytest.approx(straight.history["net_output"][0], rel=1e-5)
    done = 4 if stop_at == "1ep" else 6
    assert [call[2] for call in recorder.calls if call[0] == "on_train_step_end"] == list(range(done + 1, 13))
    assert recorder.calls[2][:2] == ("on_train_epoch_begin", 2)


def test_our_checkpoints_hold_the_weights(tmp_path):
    callback = ModelCheckpoint("run", tmp_path, CheckpointConfig(save_checkpoint_steps=4))
    run_trainer([InComposer(callback)], max_duration="1ep")
    assert [path.suffix for path in tmp_path.glob("run*")] == [".safetensors"]


class CrashInEvaluation(composer.Callback):
    def eval_batch_end(self, state, logger):
        if int(state.timestamp.batch) == 8:
            raise Crash("in an evaluation")


def test_what_an_evaluation_that_fails_leaves_is_of_the_training(tmp_path):
    seen = Numbers()
    saving = ModelCheckpoint("run", tmp_path, CheckpointConfig(100, exception_save=True))
    with pytest.raises(Crash, match="in an evaluation"):
        run_trainer(
            [InComposer(seen, saving), CrashInEvaluation()], model=linear_model(), eval_dataloader=cases.loader(16)
        )
    assert seen.at_exception == [("train", 2, 8, 4)]
    assert [path.name for path in tmp_path.iterdir()] == ["run-2_4_breakpoint.safetensors"]


def test_files_later_than_composers_checkpoint_stay_after_a_resume(tmp_path):
    def ours():
        return InComposer(ModelCheckpoint("run", tmp_path / "ours", CheckpointConfig(2, keep_checkpoint_max=9)))

    keep = cases.SaveAfterFirstEpoch(tmp_path / "checkpoint")
    keep.trainer = cases.trainer(callbacks=[ours(), keep], model=linear_model(), max_duration="2ep")
    keep.trainer.fit()
    keep.trainer.close()
    first = {file: file.read_bytes() for file in (tmp_path / "ours").iterdir()}
    run_trainer([ours()], model=linear_model(), load_path=str(tmp_path / "checkpoint"))
    assert {file: file.read_bytes() for file in first} == first
    assert {file.stem for file in {*(tmp_path / "ours").iterdir()} - {*first}} == {
        "run_1-2_2", "run_1-2_4", "run_1-3_2", "run_1-3_4",
    }  # fmt: skip


def test_what_in_composer_refuses():
    with pytest.raises(ValueError, match="callbacks must be given"):
        InComposer()
    with pytest.raises(TypeError, match=r"one is a composer\.Callback, which the trainer takes as it is"):
        InComposer(LRMonitor())
    with pytest.raises(TypeError, match=r"callbacks\[0\] must be a Callback"):
        InComposer(History)
    with pytest.raises(ValueError, match="give all callbacks to one"):
        run_trainer([InComposer(History()), InComposer(History())])


BEGINNINGS = {"fit_start", "eval_start", "init", "before_load", "after_load"}


def test_events_that_are_run_by_hand(tmp_path):
    """As on the page of Composer's Callback: ``trainer.engine.run_event(Event.EPOCH_START)`` without a training."""
    told, recorder = [], Recorder()

    class MyCallback(composer.Callback):
        def run_event(self, event, state, logger):
            told.append((event, int(state.timestamp.epoch)))

    landscape = {"intervals": [[0, 1, 2]], "unit": "epoch"}
    collector = SummaryCollector(tmp_path, collect_landscape=landscape, keep_default_action=False)
    made = cases.trainer(callbacks=[MyCallback(), collector, InComposer(recorder)], max_duration="2ep")
    events = [event for event in Event if event.value not in BEGINNINGS]
    told.clear()
    for event in events:
        made.engine.run_event(event)
        assert (told[-1], recorder.calls) == ((event, 0), [])
    assert len(told) == len(events)
    made.fit()
    calls = len(recorder.calls)
    for event in events:
        made.engine.run_event(event)
        assert len(recorder.calls) == calls, event
    made.close()
    assert len(recorder.calls) == calls
    assert RunDirectory(tmp_path).present((0, 1, 2)) == [0, 1, 2]


def test_the_tables_name_real_events_and_hooks():
    names = {event.value for event in Event}
    assert set(EVENT_HOOKS) <= names
    assert {hook for hooks in EVENT_HOOKS.values() for hook in hooks} == {*TRAIN_HOOKS, *EVAL_HOOKS}
    assert names >= EVENTS
    assert {hook for hook in HOOK_EVENTS if hook.startswith("on_")} <= {*TRAIN_HOOKS, *EVAL_HOOKS}


class EventRecorder(composer.Callback):
    """Notes all events with the training's and the evaluation's time, and its end of life."""

    names = Recorder.names

    def __init__(self):
        self.calls, self.losses = [], []

    def run_event(self, event, state, logger):
        if event.value in EVENTS:
            time, evaluation = state.timestamp, state.eval_timestamp
            self.calls.append(
                (
                    event.value,
                    *(int(part) for part in (time.epoch, time.batch, time.sample, time.batch_in_epoch)),
                    *((int(evaluation.batch), int(evaluation.sample)) if event.is_eval else ()),
                    state.dataloader_label if event.value not in {"init", "before_load", "after_load"} else None,
                    None if state.dataloader_len is None else int(state.dataloader_len),
                )
            )
        if event == Event.BATCH_END:
            self.losses.append(float(state.loss.detach()))

    def close(self, state, logger):
        self.calls.append("close")

    def post_close(self):
        self.calls.append("post_close")


class InsideSteps(composer.Callback):
    """Notes what the state holds within each step, and the gradients before and after the optimizer's step."""

    def __init__(self):
        self.seen, self.gradients = [], []

    def after_forward(self, state, logger):
        self.seen.append(("outputs", state.outputs.detach().clone()))

    def after_loss(self, state, logger):
        assert state.loss.requires_grad
        self.seen.append(("loss", state.loss.detach().clone()))

    def before_backward(self, state, logger):
        self.weight = state.model.module[0].weight.detach().clone()

    def after_train_batch(self, state, logger):
        assert torch.equal(state.model.module[0].weight, self.weight)  # the optimizer has not moved it yet
        self.seen.append(("gradient", state.model.module[0].weight.grad.clone()))
        self.seen.append(("inputs", state.batch[0].clone()))

    def eval_after_forward(self, state, logger):
        self.seen.append(("eval outputs", state.outputs.detach().clone()))

    def batch_end(self, state, logger):
        assert not torch.equal(state.model.module[0].weight, self.weight)


def test_the_events_and_what_the_state_holds_within_a_step_are_those_of_composer():
    (in_composer, theirs), (in_model, ours) = ((EventRecorder(), InsideSteps()) for _ in range(2))
    run_trainer([in_composer, theirs], model=linear_model(), max_duration="2ep", eval_dataloader=cases.loader(16))
    both = [FromComposer(in_model), FromComposer(ours)]
    our_model({"accuracy": accuracy}).fit(2, cases.loader(), cases.loader(16), callbacks=both)

    def told(calls):
        # Before training begins, a Trainer may know its data already.
        return [call for call in calls if call[0] not in {"init", "before_load", "after_load"}]

    assert told(in_model.calls) == told(in_composer.calls)
    assert [call[0] for call in in_model.calls[:4]] == ["init", "before_load", "after_load", "fit_start"]
    assert in_model.losses == pytest.approx(in_composer.losses, rel=1e-5)
    for (ours_name, our_value), (name, value) in zip(ours.seen, theirs.seen, strict=True):
        assert ours_name == name
        torch.testing.assert_close(our_value, value, rtol=1e-4, atol=1e-6, msg=name)


def test_an_evaluation_alone_has_composers_events():
    recorder = EventRecorder()
    our_model({"accuracy": accuracy}).eval(cases.loader(16), callbacks=FromComposer(recorder))
    steps = ["eval_batch_start", "eval_before_forward", "eval_after_forward", "eval_batch_end"] * 2
    assert recorder.names[3:] == [
        "eval_standalone_start", "eval_start", *steps, "eval_end", "eval_standalone_end", "close", "post_close",
    ]  # fmt: skip


def test_an_epoch_that_is_stopped_has_no_end():
    recorder = EventRecorder()
    our_model().train(3, cases.loader(), callbacks=[FromComposer(recorder), stop_after(6)])
    names = recorder.names
    assert names.count("epoch_end") == names.count("epoch_checkpoint") == 1
    assert names[-4:] == ["batch_checkpoint", "fit_end", "close", "post_close"]


def test_real_callbacks_of_composer_run():
    memory = InMemoryLogger()
    callbacks = [
        FromComposer(kind, loggers=[memory])
        for kind in (LRMonitor(), SpeedMonitor(window_size=2), RuntimeEstimator(time_unit="seconds"))
    ]
    our_model({"accuracy": accuracy}).fit(3, cases.loader(), cases.loader(16), callbacks=callbacks)
    assert [float(value) for _, value in memory.data["lr-SGD/group0"]] == [0.1] * 12
    assert len(memory.data["loss/train/total"]) == 12 * 3
    assert all(value > 0 for _, value in memory.data["throughput/samples_per_sec"])
    assert all(value >= 0 for _, value in memory.data["time/remaining_estimate"])
    assert {"metrics/eval/accuracy", "metrics/eval/eval_loss"} <= set(memory.data)


def test_early_stopping_by_composer():
    recorder = Recorder()
    stopper = EarlyStopper("eval_loss", "eval", patience=1)  # On other samples it gets worse at once.
    our_model({"accuracy": accuracy}).fit(
        20, cases.loader(), cases.loader(16), callbacks=[FromComposer(stopper), recorder]
    )
    assert recorder.calls[-2][:2] == ("on_train_end", 3)


@pytest.mark.parametrize(
    ("event", "act", "epoch", "step"),
    [
        *((event, State.stop_training, 1, 1) for event in ("fit_start", "epoch_start", "batch_start", "batch_end")),
        ("fit_start", lambda state: setattr(state, "max_duration", "6ba"), 2, 6),
    ],
)
def test_a_callback_that_ends_the_duration_stops_our_model(event, act, epoch, step):
    recorder = Recorder()
    stop = type("Stop", (composer.Callback,), {event: lambda self, state, logger: act(state)})
    our_model().train(3, cases.loader(), callbacks=[FromComposer(stop()), recorder])
    assert recorder.calls[-2] == ("on_train_end", epoch, step)


class Stateful(composer.Callback):
    def __init__(self):
        self.samples, self.loaded = [], None

    def batch_end(self, state, logger):
        self.samples.append(int(state.timestamp.sample))

    def state_dict(self):
        return {"seen": len(self.samples)}

    def load_state_dict(self, state):
        self.loaded = state["seen"]


@pytest.mark.parametrize("steps", [4, 6])
def test_states_and_time_come_back_from_our_checkpoints(tmp_path, steps):
    first, second = Stateful(), Stateful()
    keep = ModelCheckpoint("run", tmp_path, CheckpointConfig(save_checkpoint_steps=steps, training_state=True))
    our_model().train(2, cases.loader(), callbacks=[FromComposer(first), keep])
    (path,) = tmp_path.glob(f"run-{(steps + 3) // 4}_{steps - 4 * ((steps - 1) // 4)}.safetensors")
    our_model().train(3, cases.loader(), callbacks=[FromComposer(second)], resume_from=path)
    assert second.loaded == steps
    assert second.samples == [8 * step for step in range(steps + 1, 13)]


class Life(composer.Callback):
    """Says what becomes of it; may fail when it is closed."""

    def __init__(self, fails=False):
        self.calls, self.fails = [], fails

    def close(self, state, logger):
        self.calls.append("close")
        if self.fails:
            raise OSError("no space left")

    def post_close(self):
        self.calls.append("post_close")


def test_close_and_post_close_come_for_sure():
    good, bad = Life(), Life(fails=True)
    with pytest.raises(Crash, match="later"):
        our_model().train(1, cases.loader(), callbacks=[FromComposer(good), raise_after(1, Crash("later"))])
    assert good.calls == ["close", "post_close"]
    with pytest.raises(OSError, match="no space left"):
        our_model().train(1, cases.loader(), callbacks=[FromComposer(bad), FromComposer(good)])
    assert bad.calls == ["close"]
    assert good.calls == ["close", "post_close"] * 2


def test_callbacks_for_events_that_our_model_lacks_get_a_warning():
    class Predictions(composer.Callback):
        def predict_batch_end(self, state, logger):
            raise AssertionError

    with pytest.warns(UserWarning, match=r"Predictions will do nothing in Model, .* \['predict_batch_end'\]"):
        callback = FromComposer(Predictions())
    our_model().train(1, cases.loader(), callbacks=callback)

    class Both(composer.Callback):
        def iteration_end(self, state, logger):
            raise AssertionError

        def batch_end(self, state, logger):
            self.heard = True

    with pytest.warns(UserWarning, match=r"Both will miss the events \['iteration_end'\]"):
        callback = FromComposer(both := Both())
    our_model().train(1, cases.loader(), callbacks=callback)
    assert both.heard


def test_all_events_but_those_of_predictions_and_iterations_come():
    missing = {event.value for event in Event} - EVENTS
    assert {name.split("_")[0] for name in missing} == {"predict", "iteration"}
    assert missing & {"iteration_start"} == set()
    assert set(STEP_EVENTS) <= EVENTS


def test_nan_is_found_by_composers_monitor():
    made = our_model()
    with torch.no_grad():
        made.network[0].weight.fill_(float("nan"))
    with pytest.raises(RuntimeError, match="Train loss contains a NaN"):
        made.train(1, cases.loader(), callbacks=FromComposer(NaNMonitor()))


def test_accumulated_batches_are_stepped_after_the_events():
    seen = []

    class Order(composer.Callback):
        def before_train_batch(self, state, logger):
            self.weight = state.model.module[0].weight.detach().clone()

        def batch_end(self, state, logger):
            seen.append(torch.equal(state.model.module[0].weight, self.weight))

        after_train_batch = batch_end

    network = linear_model().module
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    made = Model(network, nn.functional.cross_entropy, optimizer, gradient_accumulation_steps=3)
    made.train(1, cases.loader(), callbacks=FromComposer(Order()))
    assert seen == [True, True, True, True, True, False, True, False]  # of four batches, the third and the last


def test_what_from_composer_refuses():
    with pytest.raises(TypeError, match=r"callback must be a composer\.Callback"):
        FromComposer(History())
    with pytest.raises(TypeError, match=r"loggers\[0\] must be a composer LoggerDestination"):
        FromComposer(LRMonitor(), loggers=[LRMonitor()])


def test_a_callback_goes_there_and_back():
    inside = History()
    run_trainer([InComposer(FromComposer(EventRecorder()), inside)], model=linear_model())
    assert inside.epoch == {"epoch": [1, 2, 3]}


def test_the_collected_states_are_plain():
    recorder = FromComposer(Stateful())
    saved = []
    keep = LambdaCallback(on_train_end=lambda _: saved.append(json.dumps(recorder.state_dict())))
    our_model().train(1, cases.loader(), callbacks=[recorder, keep])
    assert json.loads(saved[0])["timestamp"]["sample"] == 32
