import contextlib
import inspect
import json
import warnings

import pytest
import torch
from monitored_runs import WithoutLength, raise_after, stop_after
from runs import SmallNetwork, TiedNetwork, assert_holds, batches, collected, names, raw_bytes, seeded, snapshot, train
from torch import nn
from torch.nn import functional

from collectors import Callback, CheckpointConfig, Model, ModelCheckpoint, SummaryCollector
from collectors.errors import CheckpointWriteError
from collectors.networks.readers import describe_network
from collectors.recording.trainer_collector import TrainerCollector
from collectors.run_directory import RunDirectory
from collectors.run_directory.directory import CheckpointFolder
from collectors.summary.recorded_values import recorded_training


def same(one, other):
    return one.keys() == other.keys() and all(raw_bytes(one[name]) == raw_bytes(other[name]) for name in one)


def model(network=None, **arguments):
    network = seeded(SmallNetwork) if network is None else network
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    return Model(network, nn.CrossEntropyLoss(), optimizer, {"outputs": lambda o, t: o.mean()}, **arguments)


def collecting(directory, *intervals, unit="step", **options):
    return SummaryCollector(directory, collect_landscape={"intervals": list(intervals), "unit": unit}, **options)


class Snapshots(Callback):
    """Keeps the network's state at each step's and each epoch's end."""

    def on_train_begin(self, run_context):
        self.network = run_context.original_args().network
        self.steps = {run_context.original_args().cur_step_num: snapshot(self.network)}
        self.epochs = {run_context.original_args().cur_epoch_num: snapshot(self.network)}

    def on_train_step_end(self, run_context):
        self.steps[run_context.original_args().cur_step_num] = snapshot(self.network)

    def on_train_epoch_end(self, run_context):
        self.epochs[run_context.original_args().cur_epoch_num] = snapshot(self.network)


@pytest.mark.parametrize(
    ("unit", "intervals"), [("step", [[0, 1, 3], [3, 5, 8]]), ("epoch", [[0, 1, 3]])], ids=["steps", "epochs"]
)
def test_a_hand_written_loop(tmp_path, unit, intervals):
    run, steps, epochs = collected(tmp_path / "run", intervals=intervals, unit=unit, epochs=3)
    numbers = sorted({number for interval in intervals for number in interval})
    assert sorted(run.metadata.files) == numbers
    for number in numbers:
        expected = (steps if unit == "step" else epochs)[number]
        assert_holds(run.checkpoint(number, describe_network(SmallNetwork())), expected)
    assert not same(steps[0], steps[1])
    assert run.metadata.step_per_epoch == 4
    assert run.settings.intervals == tuple(map(tuple, intervals))


def test_files_of_a_run(tmp_path):
    run, _, _ = collected(tmp_path / "run", intervals=[range(3)])
    expected = [f"SmallNetwork_{number}_step.safetensors" for number in range(3)]
    assert names(run.path) == ["ckpt_dir"]
    assert names(run.path / "ckpt_dir") == [*expected, "train_metadata.json"]
    content = json.loads((run.path / "ckpt_dir" / "train_metadata.json").read_text())
    assert list(content) == [
        "format_version", "epoch_group", "unit", "num_samples", "landscape_size", "create_landscape",
        "step_per_epoch", "framework", "network", "model_params_file_map", "sha256", "trained_to",
    ]  # fmt: skip
    assert content["epoch_group"] == {"0": [0, 1, 2]}
    assert content["model_params_file_map"] == {str(number): name for number, name in enumerate(expected)}
    assert content["network"]["name"] == "SmallNetwork"
    assert content["network"]["trainable"] == [name for name, _ in SmallNetwork().named_parameters()]
    assert content["network"]["parameters"] == sum(p.numel() for p in SmallNetwork().parameters())
    assert all(len(digest) == 64 for digest in content["sha256"].values())


def layers(dtype=torch.float32):
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).to(dtype)


def mixed():
    network = SmallNetwork()
    network[3].to(torch.float64)
    network.append(nn.Identity())
    network.register_buffer("scale", torch.tensor(3, dtype=torch.uint8))
    return network


def not_finite():
    network = nn.Linear(3, 2)
    values = torch.tensor([[float("nan"), float("inf"), -0.0], [-float("inf"), 1e-42, 3.0]])
    with torch.no_grad():
        network.weight.copy_(values)
    return network


def move(network, factor):
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.mul_(factor)


@pytest.mark.parametrize(
    "build",
    [
        lambda: layers(torch.float64),
        lambda: layers(torch.bfloat16),
        lambda: layers(torch.float16),
        mixed,
        TiedNetwork,
        not_finite,
    ],
    ids=["float64", "bfloat16", "float16", "mixed", "tied", "not finite"],
)
def test_networks_of_all_kinds_are_saved_bit_for_bit(tmp_path, build):
    network = seeded(build)
    states, collector = [snapshot(network)], collecting(tmp_path, range(3))
    with collector.watch(network) as run:
        for train in (True, False):
            network.train(train)
            move(network, 3)
            run.step()
            # The mode does not matter, and stays as it was.
            assert network.training is train
            states.append(snapshot(network))
    for number, state in enumerate(states):
        # Tied weights are saved once.
        expected = {name: tensor for name, tensor in state.items() if name != "head.weight"}
        assert_holds(RunDirectory(tmp_path).checkpoint(number, describe_network(network)), expected)


def test_gradients_survive_a_checkpoint(tmp_path):
    network = seeded(SmallNetwork)
    with collecting(tmp_path, range(3)).watch(network) as run:
        for inputs, targets in batches(2):
            functional.cross_entropy(network(inputs), targets).backward()
            before = [p.grad.clone() for p in network.parameters()]
            run.step()
            assert all(torch.equal(p.grad, old) for p, old in zip(network.parameters(), before, strict=True))
            assert all(p.requires_grad for p in network.parameters())


@pytest.mark.parametrize("unit", ["step", "epoch"])
@pytest.mark.parametrize("data", [batches(), WithoutLength(batches())], ids=["list", "stream"])
def test_a_model(tmp_path, data, unit):
    trained, snapshots = model(), Snapshots()
    landscape = {"intervals": [range(9 if unit == "step" else 3)], "unit": unit}
    collector = SummaryCollector(tmp_path, collect_specified_data={"collect_landscape": landscape})
    trained.fit(2, data, batches(2, seed=1), callbacks=[snapshots, collector])
    run = RunDirectory(tmp_path)
    assert sorted(run.metadata.files) == list(*landscape["intervals"])
    assert run.metadata.step_per_epoch == 4
    for number in run.metadata.files:
        assert_holds(run.checkpoint(number), (snapshots.steps if unit == "step" else snapshots.epochs)[number])


def test_nothing_is_written_in_an_evaluation_or_without_collect_landscape(tmp_path):
    model().eval(batches(), collecting(tmp_path / "a", range(9), keep_default_action=False))
    silent = SummaryCollector(tmp_path / "b", keep_default_action=False)
    model().train(1, batches(), silent)
    with silent.watch(SmallNetwork()) as run:
        run.step()
        run.end_epoch()
    assert names(tmp_path) == []


def test_resuming_a_model(tmp_path):
    wanted, first, snapshots = [0, 2, 4, 6, 8, 12], model(), Snapshots()
    with pytest.warns(UserWarning, match=r"training ended at step 8 without saving \[12\]"):
        first.train(2, batches(), [collecting(tmp_path, wanted), snapshots])
    old = snapshots.steps
    second = collecting(tmp_path, wanted, existing="resume")
    first.train(3, batches(), [second, snapshots], initial_epoch=1)
    run = RunDirectory(tmp_path)
    assert sorted(run.metadata.files) == wanted
    assert names(tmp_path / "ckpt_dir") == sorted([*run.metadata.files.values(), "train_metadata.json"])
    for number in (0, 2):
        assert_holds(run.checkpoint(number), old[number])
    for number in (4, 6, 8, 12):
        assert_holds(run.checkpoint(number), snapshots.steps[number])
    assert not same(old[6], snapshots.steps[6])


@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt, SystemExit])
def test_a_model_that_raises_leaves_what_was_reached(tmp_path, error):
    snapshots = Snapshots()
    collector = collecting(tmp_path, range(9))
    with pytest.raises(error, match="in step 6"):
        model().train(2, batches(), [snapshots, collector, raise_after(6, error("in step 6"))])
    run = RunDirectory(tmp_path)
    assert run.present(run.settings.intervals[0]) == list(range(7))
    assert run.missing(run.settings.intervals[0]) == [7, 8]
    for number in range(7):
        assert_holds(run.checkpoint(number), snapshots.steps[number])
    assert run.metadata.trained_to is None


@pytest.mark.filterwarnings("ignore:training ended at epoch")
@pytest.mark.parametrize(("last_step", "epochs"), [(3, [0]), (4, [0, 1]), (6, [0, 1]), (8, [0, 1, 2])])
def test_an_epoch_that_is_stopped_early_is_none(tmp_path, last_step, epochs):
    collector = collecting(tmp_path, range(3), unit="epoch")
    model().train(2, batches(), [collector, stop_after(last_step)])
    assert sorted(RunDirectory(tmp_path).metadata.files) == epochs
    # After step 6, the weights are no longer those of epoch 1.
    assert RunDirectory(tmp_path).metadata.trained_to == {4: 1, 8: 2}.get(last_step)


@pytest.mark.filterwarnings("ignore:training ended at epoch")
@pytest.mark.parametrize(
    ("interval", "final"), [([0, 1, 3], 3), ([0, 1, 2], None), ([5, 6, 7], None)], ids=["whole", "early", "none saved"]
)
def test_the_final_weights_are_those_that_training_ended_with(tmp_path, interval, final):
    run, _, epochs = collected(tmp_path, intervals=[interval], unit="epoch", epochs=3)
    assert (run.metadata.trained_to, run.metadata.final_number) == (3, final)
    if final is not None:
        assert_holds(run.checkpoint(final), epochs[3])


@pytest.mark.filterwarnings("ignore:training ended at step")
def test_a_resumed_run_has_the_final_weights_of_its_last_training(tmp_path):
    def part(start, steps):
        collector = collecting(tmp_path, range(9), existing="resume", keep_default_action=False)
        with collector.watch(SmallNetwork(), start_step=start) as run:
            before = RunDirectory(tmp_path).metadata.trained_to
            for _ in range(steps):
                run.step()
        return before

    assert part(0, 4) is None
    assert RunDirectory(tmp_path).metadata.final_number == 4
    assert part(4, 2) is None
    assert RunDirectory(tmp_path).metadata.final_number == 6
    assert part(6, 4) is None
    metadata = RunDirectory(tmp_path).metadata
    assert (max(metadata.files), metadata.trained_to, metadata.final_number) == (8, 10, None)


def test_a_training_that_was_resumed_inside_an_epoch_and_ends_there(tmp_path):
    with pytest.warns(UserWarning, match=r"without saving \[2\]"):
        collected(tmp_path, epochs=1, intervals=[[0, 1, 2]], unit="epoch")
    assert RunDirectory(tmp_path).metadata.final_number == 1
    collector = collecting(tmp_path, [0, 1, 2], unit="epoch", existing="resume")
    with pytest.warns(UserWarning, match="training ended at epoch 1"):
        with collector.watch(SmallNetwork(), steps_per_epoch=4, start_epoch=1, start_step=5):
            pass
    assert RunDirectory(tmp_path).metadata.trained_to is None


@pytest.mark.parametrize(("last_step", "known"), [(3, False), (4, True)])
def test_gradients_that_are_used_after_the_last_step_move_the_network_once_more(tmp_path, last_step, known):
    network = seeded(SmallNetwork)
    collector = collecting(tmp_path, range(last_step + 1))
    model(network, gradient_accumulation_steps=2).train(2, batches(), [collector, stop_after(last_step)])
    run, ended_with = RunDirectory(tmp_path), snapshot(network)
    assert run.metadata.trained_to == (last_step if known else None)
    held = run.checkpoint(last_step)
    assert known == all(held.read(name).tobytes() == raw_bytes(ended_with[name]) for name in held.shapes)


@pytest.mark.parametrize("says_its_end", [True, False])
def test_a_trainer_that_does_not_say_its_end_has_failed(tmp_path, says_its_end):
    with TrainerCollector(tmp_path, collect_landscape={"intervals": [[0, 1, 2]]}) as collector:
        collector._open(SmallNetwork())
        collector._run.step()
        collector._run.step()
        if says_its_end:
            collector._leave(None)
    assert RunDirectory(tmp_path).metadata.trained_to == (2 if says_its_end else None)


def test_a_network_that_changes_while_it_trains_is_a_warning(tmp_path):
    network = nn.Sequential(nn.Linear(4, 3))
    with collecting(tmp_path, range(5), unit="epoch").watch(network) as run:
        run.end_epoch()
        # Another element type, and values in another place, do not change what a landscape is drawn through.
        network.bfloat16()
        run.end_epoch()
        network.append(nn.Linear(3, 2))
        with pytest.warns(UserWarning, match=r"at epoch 3 than when collecting began \('1.weight', '1.bias'\)"):
            run.end_epoch()
        run.end_epoch()


def test_a_training_has_one_collector_and_that_one_training_at_a_time_and_another_afterwards(tmp_path):
    two = [collecting(tmp_path / name, range(9)) for name in "ab"]
    with pytest.raises(ValueError, match="callbacks must hold at most one SummaryCollector"):
        model().train(1, batches(), two)
    assert names(tmp_path) == []
    collector = collecting(tmp_path, range(3), existing="overwrite")
    with collector.watch(SmallNetwork()) as run:
        with pytest.raises(RuntimeError, match="already watches a training"):
            collector.watch(SmallNetwork()).__enter__()
        run.step()
        run.step()
    with collector.watch(SmallNetwork()) as run:
        run.step()
        run.step()
    assert sorted(RunDirectory(tmp_path).metadata.files) == [0, 1, 2]


def test_the_loop_must_be_inside_the_context(tmp_path):
    collector = collecting(tmp_path, range(3))
    run = collector.watch(SmallNetwork())
    for call in (run.step, run.end_epoch):
        with pytest.raises(RuntimeError, match=r"write `with collector.watch\(network\) as run:` around the loop"):
            call()
    with run:
        run.step(0.5)
        run.step(torch.tensor(0.5))
    with pytest.raises(RuntimeError, match="must be inside its context"):
        run.step()


@pytest.mark.parametrize(
    ("network", "arguments", "error", "match"),
    [
        (SmallNetwork(), {"steps_per_epoch": 0}, ValueError, "steps_per_epoch must be an int of at least 1, but got 0"),
        (SmallNetwork(), {"start_epoch": -1}, ValueError, "start_epoch must be an int of at least 0, but got -1"),
        (SmallNetwork(), {"start_epoch": 2}, ValueError, "start_step must be given with start_epoch=2"),
        (SmallNetwork(), {"start_epoch": 2, "start_step": 0}, ValueError, "start_step must be given with start_ep"),
        ({}, {}, TypeError, r"network must be a network of a supported framework .* but got dict"),
        (nn.Linear(1, 1, dtype=torch.complex128), {}, TypeError, "'weight' is complex128, .* cannot hold; convert"),
        (SmallNetwork(), {"optimizer": 3}, TypeError, "optimizer must be an optimizer with .* but got int"),
        (SmallNetwork(), {"epochs": 0}, ValueError, "epochs must be an int of at least 1, but got 0"),
    ],
)
def test_wrong_arguments_of_watch(tmp_path, network, arguments, error, match):
    collector = collecting(tmp_path, range(3))
    with pytest.raises(error, match=match):
        collector.watch(network, **arguments).__enter__()
    assert names(tmp_path) == []


@pytest.mark.parametrize("given", [7, None])
def test_steps_per_epoch_that_are_given_are_kept_and_are_unknown_before_the_first_epoch_ends(tmp_path, given):
    with collecting(tmp_path, range(3)).watch(SmallNetwork(), steps_per_epoch=given) as run:
        for _ in range(2):
            run.step()
        if given:
            run.end_epoch()
    assert RunDirectory(tmp_path).metadata.step_per_epoch == given


def test_steps_per_epoch_are_learnt_from_the_first_whole_epoch(tmp_path):
    with collecting(tmp_path, range(12, 15)).watch(SmallNetwork(), start_epoch=2, start_step=11) as run:
        for steps in (1, 3, 2):
            for _ in range(steps):
                run.step()
            run.end_epoch()
    assert RunDirectory(tmp_path).metadata.step_per_epoch == 3
    assert sorted(RunDirectory(tmp_path).metadata.files) == [12, 13, 14]


@pytest.mark.filterwarnings("ignore:training ended at epoch 2")
def test_steps_before_a_resume_are_those_that_the_run_directory_knows(tmp_path):
    """Records of the second part come after those of the first one, not in their place."""
    for start, more in ((0, {}), (2, {"existing": "resume"})):
        with (
            SummaryCollector(tmp_path, 1, collect_landscape={"intervals": [range(4)], "unit": "epoch"}, **more).watch(
                SmallNetwork(), start_epoch=start
            ) as run,
            contextlib.suppress(KeyboardInterrupt),
        ):
            for epoch in range(start, 4):
                for step in range(4):
                    run.step(torch.tensor(4.0 * epoch + step + 1))
                run.end_epoch()
                if not start and epoch == 1:
                    raise KeyboardInterrupt
    assert recorded_training(tmp_path).losses == {step: float(step) for step in range(1, 17)}


@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 5}])
def test_the_epoch_of_a_resume_is_saved(tmp_path, options):
    collector = collecting(tmp_path, range(12, 15), unit="epoch", keep_default_action=False)
    with collector.watch(SmallNetwork(), start_epoch=12, **options) as run:
        for _ in range(2):
            run.step()
            run.end_epoch()
    assert sorted(RunDirectory(tmp_path).metadata.files) == [12, 13, 14]


def test_resuming_a_loop_in_epochs(tmp_path):
    network = seeded(SmallNetwork)
    landscape = {"intervals": [[0, 1, 2, 3, 4]], "unit": "epoch"}
    with pytest.raises(KeyboardInterrupt, match="by the user"):
        collected(tmp_path, network, epochs=3, error=KeyboardInterrupt("by the user"), **landscape)
    assert sorted(RunDirectory(tmp_path).metadata.files) == [0, 1, 2, 3]
    again = SummaryCollector(tmp_path, collect_landscape=landscape, existing="resume")
    with again.watch(network, start_epoch=2, start_step=8) as run:
        _, epochs = train(network, run, epochs=2)
    found = RunDirectory(tmp_path)
    assert sorted(found.metadata.files) == [0, 1, 2, 3, 4]
    for number in (2, 3, 4):
        assert_holds(found.checkpoint(number), epochs[number - 2])


def test_a_process_of_another_rank_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    network = SmallNetwork()
    collector = collecting(tmp_path / "run", range(30))
    with warnings.catch_warnings(), collector.watch(network) as run:
        train(network, run)
    assert names(tmp_path) == []
    monkeypatch.setenv("RANK", "0")
    with pytest.warns(UserWarning, match="without saving"), collector.watch(network) as run:
        train(network, run)
    assert RunDirectory(tmp_path / "run").metadata.files


def test_the_documents_order_and_defaults(tmp_path):
    landscape = {"intervals": [range(3)]}
    SummaryCollector(
        str(tmp_path), 10, {"collect_metric": True, "collect_landscape": landscape}, True, {"lr": 0.1}, None, None, None
    )
    SummaryCollector(tmp_path, export_options={"tensor_format": None}, collect_tensor_freq=1, max_file_size=10**9)
    assert SummaryCollector(tmp_path / "a").summary_dir == str(tmp_path / "a")
    assert names(tmp_path) == []
    assert inspect.signature(TrainerCollector) == inspect.signature(SummaryCollector)
    assert inspect.signature(SummaryCollector).parameters["collect_freq"].default == 10


def test_landscapes_are_asked_for_in_either_place(tmp_path):
    landscape = {"intervals": [range(3)]}
    inside = {"collect_landscape": landscape}
    with pytest.raises(ValueError, match="collect_landscape is given twice"):
        SummaryCollector(tmp_path, collect_specified_data=inside, collect_landscape=landscape)
    SummaryCollector(tmp_path, collect_specified_data={"collect_landscape": None}, collect_landscape=landscape)
    assert inside == {"collect_landscape": {"intervals": [range(3)]}}


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"summary_dir": 3}, TypeError, r"summary_dir must be a path \(str or os.PathLike\), but got int"),
        ({"summary_dir": __file__}, NotADirectoryError, "summary_dir must be a directory, but .* is a file"),
        ({"collect_freq": 0}, ValueError, "collect_freq must be an int of at least 1, but got 0"),
        ({"collect_specified_data": 3}, TypeError, "collect_specified_data must be a dict, but got int"),
        ({"collect_specified_data": {"collect_gradient": True}}, ValueError, r"unknown keys \['collect_gradient'\]"),
        ({"collect_specified_data": {"collect_metric": 1}}, TypeError, r"\['collect_metric'\] must be a bool"),
        ({"collect_specified_data": {"histogram_regular": 3}}, TypeError, "must be a regular expression"),
        ({"collect_specified_data": {"histogram_regular": "("}}, ValueError, "must be a valid regular expression"),
        ({"collect_specified_data": {"collect_landscape": {}}}, ValueError, r"lacks the keys \['intervals'\]"),
        ({"collect_specified_data": {"collect_landscape": True}}, TypeError, "collect_landscape must be a dict"),
        ({"keep_default_action": 1}, TypeError, "keep_default_action must be a bool, but got int"),
        ({"custom_lineage_data": [1]}, TypeError, "custom_lineage_data must be a dict or None, but got list"),
        ({"custom_lineage_data": {"a": True}}, TypeError, r"\['a'\] must be an int, a float or a str, but got bool"),
        ({"collect_tensor_freq": 0}, ValueError, "collect_tensor_freq must be an int of at least 1, but got 0"),
        ({"max_file_size": -1}, ValueError, "max_file_size must be an int of at least 1, but got -1"),
        ({"export_options": {"tensor_format": "csv"}}, ValueError, "must be one of 'npy', but got 'csv'"),
        ({"collect_landscape": [1, 2, 3]}, TypeError, "collect_landscape must be a dict, but got list"),
        ({"collect_landscape": {"intervals": [[1, 2]]}}, ValueError, "must hold at least three numbers"),
        ({"existing": "append"}, ValueError, "existing must be one of 'error', .* but got 'append'"),
    ],
)  # fmt: skip
def test_wrong_arguments(tmp_path, arguments, error, match):
    with pytest.raises(error, match=match):
        SummaryCollector(**{"summary_dir": tmp_path / "run", **arguments})
    assert names(tmp_path) == []


def test_a_link_to_nothing_is_no_file(tmp_path):
    (tmp_path / "run").symlink_to("nowhere")
    with pytest.raises(NotADirectoryError, match="run is a link to what is not there; choose another path"):
        collecting(tmp_path / "run", range(3))


@pytest.mark.parametrize("known", ["by the directory", "not at all"])
def test_a_resume_inside_an_epoch_leaves_the_checkpoint_of_its_beginning(tmp_path, known):
    network, landscape = SmallNetwork(), {"intervals": [range(4)], "unit": "epoch"}
    epochs = 2 if known == "by the directory" else 0
    with (
        contextlib.suppress(KeyboardInterrupt),
        SummaryCollector(tmp_path, collect_landscape=landscape, keep_default_action=False).watch(network) as run,
    ):
        train(network, run, epochs)
        raise KeyboardInterrupt
    before = RunDirectory(tmp_path).checkpoint(epochs).read("0.weight").tobytes()
    torch.nn.init.normal_(network[0].weight)
    again = SummaryCollector(tmp_path, collect_landscape=landscape, existing="resume", keep_default_action=False)
    with (
        contextlib.suppress(KeyboardInterrupt),
        again.watch(network, start_epoch=epochs, start_step=4 * epochs + 2) as run,
    ):
        raise KeyboardInterrupt
    assert RunDirectory(tmp_path).checkpoint(epochs).read("0.weight").tobytes() == before


def test_an_evaluation_inside_a_training_does_not_end_it(tmp_path):
    network, ended = seeded(SmallNetwork), []
    evaluated = model(network)
    collector = SummaryCollector(
        tmp_path, 1, collect_landscape={"intervals": [range(4)], "unit": "epoch"}, at_end=ended.append
    )
    with collector.watch(network) as run:
        for _ in range(3):
            train(network, run, epochs=1)
            evaluated.eval(batches(), [collector])
            assert ended == []
    assert sorted(RunDirectory(tmp_path).metadata.files) == [0, 1, 2, 3]
    assert ended == [str(tmp_path)]


def test_an_evaluation_in_a_callback_of_a_training_does_not_end_it(tmp_path):
    class Evaluate(Callback):
        def on_train_epoch_end(self, run_context):
            trained.eval(batches(), [collector, saving])

    trained = model()
    collector = collecting(tmp_path, range(4), unit="epoch", keep_default_action=False)
    saving = ModelCheckpoint("saved", tmp_path / "saved", CheckpointConfig(4))
    trained.train(3, batches(), [collector, saving, Evaluate()])
    assert sorted(RunDirectory(tmp_path).metadata.files) == [0, 1, 2, 3]
    assert sorted({path.name.rpartition("-")[0] for path in (tmp_path / "saved").glob("*.safetensors")}) == ["saved"]


def test_what_is_called_at_the_end_is_not_where_a_checkpoint_is_missing(tmp_path, monkeypatch):
    ended = []
    collector = collecting(tmp_path, range(9), keep_default_action=False, at_end=ended.append)
    network = SmallNetwork()
    with pytest.raises(CheckpointWriteError, match="No space left"), collector.watch(network) as run:  # noqa: PT012
        full = OSError(28, "No space left on device")
        monkeypatch.setattr(CheckpointFolder, "write_checkpoint", lambda *_: (_ for _ in ()).throw(full))
        run.step()
    assert ended == []
