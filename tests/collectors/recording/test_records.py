"""What a SummaryCollector records (PARITY section 14), read back with TensorBoard's own reader."""

import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from event_reading import accumulated, event_files, scalars, tensors
from monitored_runs import raise_after
from PIL import Image
from places import ROOT
from runs import SmallNetwork, batches, names, seeded
from scripts import run_python
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from collectors import Callback, Model, SummaryCollector
from collectors.callbacks.function_callbacks import LambdaCallback, LearningRateScheduler
from collectors.model_checkpoint.model_checkpoint import ModelCheckpoint
from collectors.recording.plan import SummaryPlan, tensor_steps
from collectors.run_directory import RunDirectory
from collectors.summary.record import SummaryRecord

LANDSCAPE = {"intervals": [range(3)]}
ITEMS = {
    "collect_metric": {"loss/auto", "learning_rate/auto"},
    "collect_graph": {"graph"},
    "collect_train_lineage": {"train_lineage"},
    "collect_eval_lineage": {"eval_lineage"},
    "collect_input_data": {"input_data/auto"},
    "collect_dataset_graph": {"train_dataset"},
    "histogram_regular": {"0.weight/auto", "0.bias/auto", "3.weight/auto", "3.bias/auto"},
}
EVERYTHING = set().union(*ITEMS.values())


def test_every_tag_is_documented():
    page = (ROOT / "docs" / "api" / "collecting.md").read_text("utf-8")
    rows = [line.split("|")[1:] for line in page.splitlines() if line.startswith("| `")]
    documented = {item: set() for item in ITEMS}
    for tag, _, item, *_ in rows:
        documented.setdefault(item.split("`")[-2], set()).update(re.findall("`(.*?)`", tag))
    for item, found in ITEMS.items():
        wanted = {re.sub(r"^\d\.\w+", "<parameter>", tag) for tag in found} - {"graph"}
        assert wanted <= documented[item], item
    assert documented["custom_lineage_data"] == {"custom_lineage_data"}


class Recorder(Callback):
    """Keeps each step's loss and the learning rates that it used."""

    def __init__(self):
        self.losses, self.rates = {}, {}

    def on_train_step_begin(self, run_context):
        params = run_context.original_args()
        self.rates[params.cur_step_num] = [group["lr"] for group in params.optimizer.param_groups]

    def on_train_step_end(self, run_context):
        params = run_context.original_args()
        self.losses[params.cur_step_num] = float(params.net_outputs)


class Pictures(Dataset):
    """Grey pictures of 8 by 8 whose folder is known."""

    def __init__(self, count=10, root=None):
        self.root = root
        generator = torch.Generator().manual_seed(0)
        self.images = torch.rand(count, 1, 8, 8, generator=generator)
        self.labels = torch.arange(count) % 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def convolutional():
    return seeded(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)))


class Around(nn.Module):
    """A network whose outputs are those of another, changed."""

    def __init__(self, change):
        super().__init__()
        self.inner, self.change = convolutional(), change

    def forward(self, images, *others):
        return self.change(self.inner(images), *others)


def model(network=None, lr=0.1, **arguments):
    network = convolutional() if network is None else network
    metrics = {"largest": lambda outputs, targets: outputs.max()}
    return Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), lr=lr), metrics, **arguments)


def pictures(count=10, batch_size=4, root=None, **arguments):
    return DataLoader(Pictures(count, root), batch_size=batch_size, **arguments)


def collector(directory, items=None, **arguments):
    return SummaryCollector(directory, collect_specified_data=items, **arguments)


def only(directory, *items, **arguments):
    return collector(directory, dict.fromkeys(items, True), keep_default_action=False, **arguments)


def tags(directory):
    """Returns the names of all that was recorded."""
    if not directory.is_dir() or not event_files(directory):
        return set()
    found = accumulated(directory).Tags()
    every = {name for kind in ("scalars", "images", "histograms", "tensors") for name in found[kind]}
    # TensorBoard's table of hyperparameters has tags of its own.
    every = {name for name in every if not name.startswith(("_hparams_", "eval_lineage/"))}
    return every | ({"graph"} if found["graph"] else set())


def facts(directory, tag):
    """Returns the facts of each record of a lineage, in the order of recording."""
    texts = [str(item.reshape(-1)[0], "utf-8") for item in tensors(directory, tag)]
    return [json.loads(text.removeprefix("```json\n").removesuffix("\n```")) for text in texts]


def steps_of(directory, tag):
    found = accumulated(directory)
    kind = next(kind for kind in ("scalars", "images", "histograms", "tensors") if tag in found.Tags()[kind])
    return [item.step for item in getattr(found, kind.capitalize())(tag)]


@pytest.mark.parametrize(
    ("specified", "keep", "expected"),
    [
        (None, True, EVERYTHING),
        ({}, True, EVERYTHING),
        (None, False, set()),
        ({}, False, set()),
        *[({key: None if key == "histogram_regular" else True}, False, ITEMS[key]) for key in ITEMS],
        *[({key: False}, True, EVERYTHING - ITEMS[key]) for key in ITEMS if key != "histogram_regular"],
        *[({key: False}, False, set()) for key in ITEMS if key != "histogram_regular"],
        ({"histogram_regular": r"3\."}, True, EVERYTHING - {"0.weight/auto", "0.bias/auto"}),
        ({"histogram_regular": "bias"}, False, set()),
        ({"collect_metric": True, "collect_graph": False}, False, ITEMS["collect_metric"]),
    ],
)
def test_items_and_the_merge_rule(tmp_path, specified, keep, expected):
    given = None if specified is None else dict(specified)
    watching = SummaryCollector(tmp_path / "run", 10, specified, keep)
    trained = model()
    if specified == {"histogram_regular": "bias"}:
        with pytest.warns(UserWarning, match="histogram_regular records no more .* begins with a match of 'bias'"):
            trained.fit(1, pictures(), pictures(), callbacks=watching)
    else:
        trained.fit(1, pictures(), pictures(), callbacks=watching)
    assert tags(tmp_path / "run") == expected
    assert specified == given


def test_landscapes_alone_are_opt_in(tmp_path):
    items = {"collect_landscape": LANDSCAPE}
    model().train(1, pictures(), collector(tmp_path / "a", items, keep_default_action=False))
    assert names(tmp_path / "a") == ["ckpt_dir"]
    model().train(1, pictures(), collector(tmp_path / "b", items))
    assert tags(tmp_path / "b") == EVERYTHING - {"eval_lineage"}
    for name in "ab":
        assert sorted(RunDirectory(tmp_path / name).metadata.files) == [0, 1, 2]
    model().train(1, pictures(), collector(tmp_path / "c"))
    assert "ckpt_dir" not in names(tmp_path / "c")
    assert items == {"collect_landscape": {"intervals": [range(3)]}}


@pytest.mark.parametrize(
    ("freq", "epochs", "expected"),
    [(1, 2, list(range(1, 11))), (5, 2, [1, 5, 10]), (3, 2, [1, 3, 6, 9]), (10, 5, [1, 10, 20]), (100, 1, [1])],
)
def test_the_first_step_and_every_collect_freq_th_once_each(tmp_path, freq, epochs, expected):
    recorder = Recorder()
    model().train(epochs, pictures(10, 2), [recorder, collector(tmp_path, collect_freq=freq)])
    for tag in ("loss/auto", "learning_rate/auto", "input_data/auto", "0.weight/auto"):
        assert steps_of(tmp_path, tag) == expected
    assert scalars(tmp_path, "loss/auto") == [(step, np.float32(recorder.losses[step])) for step in expected]
    assert len(accumulated(tmp_path).Tensors("train_dataset")) == 1


def test_the_first_step_after_a_restart_is_recorded(tmp_path):
    model().train(3, pictures(), only(tmp_path, "collect_metric", collect_freq=6), initial_epoch=1)
    assert steps_of(tmp_path, "loss/auto") == [4, 6]


def watched_tensors(tmp_path, steps, freq=10, tensor_freq=None):
    network = nn.Linear(1, 1)
    watching = only(tmp_path, "collect_metric", collect_freq=freq, collect_tensor_freq=tensor_freq)
    network.register_forward_hook(lambda layer, inputs, output: watching.capture("tensor", "activation", output))
    network.register_forward_hook(lambda layer, inputs, output: watching.capture("scalar", "mean", output.mean()))
    data = [(torch.ones(2, 1), torch.zeros(2, 1))] * 20
    Model(network, nn.MSELoss(), torch.optim.SGD(network.parameters(), lr=0.1)).train(steps // 20, data, watching)
    return network


@pytest.mark.parametrize(
    ("steps", "options", "tensors", "scalars"),
    [
        (600, {}, [1, *range(31, 590, 31)], [1, *range(10, 601, 10)]),
        (20, {}, [1, 10, 20], [1, 10, 20]),
        (40, {"freq": 20, "tensor_freq": 15}, [1, 15, 30], [1, 20, 40]),
    ],
    ids=["the document's example of 600 steps", "its example of 20 steps", "collect_tensor_freq"],
)
def test_tensors_have_steps_of_their_own(tmp_path, steps, options, tensors, scalars):
    network = watched_tensors(tmp_path, steps, **options)
    assert steps_of(tmp_path, "activation") == tensors
    assert steps_of(tmp_path, "loss/auto") == steps_of(tmp_path, "mean") == scalars
    before = tags(tmp_path)
    network(torch.ones(2, 1))
    assert tags(tmp_path) == before


@pytest.mark.parametrize(
    ("every", "total", "expected"),
    [
        (10, 190, list(range(0, 191, 10))),
        (10, 200, list(range(0, 191, 10))),
        (1, 19, list(range(20))),
        (1, 38, list(range(0, 39, 2))),
        (10, 5, [0]),
    ],
)
def test_the_automatic_rule(every, total, expected):
    assert [step for step in range(total + 1) if step in tensor_steps(every, total)] == expected


def test_the_automatic_rule_reaches_the_end_of_short_runs_and_keeps_within_twenty():
    for every in (1, 2, 7):
        for total in range(1, 400):
            found = [step for step in range(total + 1) if step in tensor_steps(every, total)]
            assert 1 <= len(found) <= 20
            if every == 1 and total < 38:
                assert found[-1] == total
    assert SummaryPlan(4, {}, True, None, None, None, None).collects_tensors(400, None)


def test_values_of_evaluations_are_not_captured(tmp_path):
    network = convolutional()
    watching = only(tmp_path, "collect_metric", collect_freq=1)
    shapes = []

    def hook(layer, inputs, output):
        shapes.append(len(output))
        watching.capture("scalar", "size", len(output))

    network[3].register_forward_hook(hook)
    model(network).fit(1, pictures(8, 4), pictures(7, 7), callbacks=watching)
    assert shapes == [4, 4, 7]
    assert scalars(tmp_path, "size") == [(1, 4.0), (2, 4.0)]


def test_the_learning_rate_is_the_one_that_the_step_used(tmp_path):
    network = convolutional()
    groups = [{"params": network[0].parameters(), "lr": 0.5}, {"params": network[3].parameters(), "lr": 0.25}]
    trained = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(groups))
    recorder, halve = Recorder(), LearningRateScheduler(lambda rate, step: rate / 2)
    trained.train(1, pictures(), [recorder, halve, only(tmp_path, "collect_metric", collect_freq=1)])
    assert recorder.rates == {1: [0.5, 0.25], 2: [0.25, 0.125], 3: [0.125, 0.0625]}
    assert scalars(tmp_path, "learning_rate/auto") == [(step, rates[0]) for step, rates in recorder.rates.items()]
    assert scalars(tmp_path, "learning_rate/group_1/auto") == [(s, rates[1]) for s, rates in recorder.rates.items()]


def test_input_images(tmp_path):
    images = torch.zeros(3, 1, 8, 8)
    images[1] = 1.0
    data = [((images, torch.ones(1)), torch.tensor([0, 1, 0]))]
    model(Around(torch.mul)).train(1, data, only(tmp_path, "collect_input_data"))
    (found,) = accumulated(tmp_path).Images("input_data/auto")
    pixels = np.asarray(Image.open(io.BytesIO(found.encoded_image_string)))
    assert pixels.shape[2] == 3
    assert np.array_equal(pixels[:8, :24, 0], np.repeat([[0, 255, 0]], 8, 0).repeat(8, 1))
    # At most 64 are recorded.
    model().train(1, pictures(70, 70), only(tmp_path / "many", "collect_input_data"))
    (found,) = accumulated(tmp_path / "many").Images("input_data/auto")
    assert (found.width, found.height) == (64, 64)


def test_inputs_that_are_no_images_are_left_out_and_named_where_asked_for(tmp_path):
    model(seeded(SmallNetwork)).train(1, batches(), collector(tmp_path / "silent", collect_freq=1))
    with pytest.warns(UserWarning, match=r"collect_input_data records nothing: batches must begin with images") as told:
        model(seeded(SmallNetwork)).train(1, batches(), only(tmp_path, "collect_input_data", collect_freq=1))
    assert len(told) == 1
    assert "input_data/auto" not in tags(tmp_path / "silent") | tags(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight"]),
        ("", ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]),
        (r".*bias$", ["0.bias", "1.bias", "3.bias"]),
        (r"[01]\.w", ["0.weight", "1.weight"]),
    ],
)
def test_histograms(tmp_path, pattern, expected):
    network = seeded(SmallNetwork)
    watching = collector(tmp_path, {"histogram_regular": pattern}, keep_default_action=False, collect_freq=4)
    model(network).train(1, batches(), watching)
    assert tags(tmp_path) == {f"{name}/auto" for name in expected}
    for name in expected:
        first, last = (item.histogram_value for item in accumulated(tmp_path).Histograms(f"{name}/auto"))
        values = network.state_dict()[name].double()
        assert first.num == last.num == values.numel()
        assert last.sum == pytest.approx(float(values.sum()), rel=1e-6, abs=1e-6)


def test_histograms_are_of_the_parameters_that_the_optimizer_moves(tmp_path):
    network = convolutional()
    optimizer = torch.optim.SGD(network[3].parameters(), lr=0.1)
    Model(network, nn.CrossEntropyLoss(), optimizer).train(1, pictures(), collector(tmp_path))
    assert {tag for tag in tags(tmp_path) if tag.startswith(("0.", "3."))} == {"3.weight/auto", "3.bias/auto"}


def test_the_graph_shows_the_network_and_hooks_see_no_symbols_of_it(tmp_path):
    seen, network = [], nn.Sequential(nn.Flatten(), nn.Linear(64, 4), Around(torch.tanh), nn.Linear(4, 2))
    network[2].inner = nn.Linear(4, 4)
    recording = only(tmp_path, "collect_graph", collect_freq=1)
    network[2].register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].mean().item()))
    network[2].register_forward_hook(lambda layer, inputs, outputs: recording.capture("scalar", "mean", outputs.mean()))
    model(network).train(1, pictures(8), recording)
    assert [type(value) for value in seen] == [float, float]
    assert len(scalars(tmp_path, "mean")) == 2
    nodes = {node.name: node for node in accumulated(tmp_path).Graph().node}
    assert [nodes[f"Sequential/{layer}"].op for layer in (0, 1, 3)] == ["Flatten", "Linear", "Linear"]
    assert list(nodes["Sequential/3"].input)


def test_training_is_the_same_with_and_without_a_collector(tmp_path):
    def run(*callbacks):
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        network = Around(lambda outputs: outputs + torch.rand(2) + np.random.random())  # noqa: NPY002
        recorder = Recorder()
        model(network).fit(2, pictures(shuffle=True), pictures(), callbacks=[recorder, *callbacks])
        return recorder.losses, network.state_dict(), torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002

    with torch.random.fork_rng():
        plain = run()
        watched = run(collector(tmp_path, collect_freq=1, collect_landscape=LANDSCAPE))
    assert plain[0] == watched[0]
    assert all(torch.equal(plain[1][name], watched[1][name]) for name in plain[1])
    assert torch.equal(plain[2], watched[2])
    assert np.array_equal(plain[3], watched[3])
    assert "graph" in tags(tmp_path)
    assert len(RunDirectory(tmp_path).metadata.files) == 3


@pytest.mark.parametrize("first", [True, False], ids=["before the checkpoint callback", "after it"])
def test_train_lineage(tmp_path, first):
    data = tmp_path / "data"
    data.mkdir()
    recorder = Recorder()
    saving = ModelCheckpoint("CKP", tmp_path / "checkpoints")
    watching = only(tmp_path / "run", "collect_train_lineage")
    pair = [watching, saving] if first else [saving, watching]
    model(lr=0.25).train(2, pictures(10, 4, str(data)), [recorder, *pair])
    assert Path(saving.latest_ckpt_file_name).name == "CKP-2_3.safetensors"
    assert facts(tmp_path / "run", "train_lineage") == [
        {
            "network": "Sequential",
            "loss": recorder.losses[6],
            "optimizer": "SGD",
            "learning_rate": 0.25,
            "loss_function": "CrossEntropyLoss",
            "epoch": 2,
            "parallel_mode": "stand_alone",
            "device_num": 1,
            "batch_size": 4,
            "train_dataset_path": str(data),
            "train_dataset_size": 10,
            "model_path": json.dumps({"ckpt": saving.latest_ckpt_file_name}),
            "model_size": Path(saving.latest_ckpt_file_name).stat().st_size,
        }
    ]


def test_what_a_training_does_not_know_is_none(tmp_path):
    data = DataLoader(TensorDataset(Pictures().images, Pictures().labels), batch_size=4)
    halving = LearningRateScheduler(lambda rate, step: rate / 2)
    model().train(1, data, [halving, only(tmp_path, "collect_train_lineage")])
    (found,) = facts(tmp_path, "train_lineage")
    unknown = {"train_dataset_path": None, "model_path": '{"ckpt": null}', "model_size": None, "learning_rate": None}
    assert found == {**found, **unknown}


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(image, label) for image, label in zip(Pictures().images, Pictures().labels, strict=True)])


class Plain:
    """An iterable of batches that overstates nothing: it only knows how many batches it has."""

    def __len__(self):
        return 3

    def __iter__(self):
        return iter(pictures(10, 4))


@pytest.mark.parametrize(
    ("dataset", "size", "batch_size"),
    [
        (pictures(10, 4), 10, 4),
        (pictures(10, 4, drop_last=True), 10, 4),
        (DataLoader(Subset(Pictures(), range(7)), batch_size=3), 7, 3),
        (DataLoader(ConcatDataset([Pictures(3), Pictures(4)]), batch_size=2), 7, 2),
        (list(pictures(10, 4)), 10, 4),
        (DataLoader(Stream(), batch_size=4), 10, 4),
        (Plain(), 10, 4),
        (DataLoader(list(pictures(10, 4)), batch_size=None), 10, 4),
    ],
    ids=["loader", "drop_last", "subset", "concatenated", "list", "stream", "plain", "no automatic batches"],
)
def test_the_true_size_of_a_data_set(tmp_path, dataset, size, batch_size):
    watching = only(tmp_path, "collect_train_lineage")
    model().train(2, dataset, watching)
    (found,) = facts(tmp_path, "train_lineage")
    assert (found["train_dataset_size"], found["batch_size"]) == (size, batch_size)


def test_the_path_of_a_data_set_that_is_a_file_or_wrapped(tmp_path):
    file = tmp_path / "data.bin"
    file.touch()
    data = DataLoader(Subset(Pictures(root=file), range(7)), batch_size=3)
    model().train(1, data, only(tmp_path / "run", "collect_train_lineage"))
    assert facts(tmp_path / "run", "train_lineage")[0]["train_dataset_path"] == str(tmp_path)


def test_fit_records_the_lineage_of_each_evaluation(tmp_path):
    seen, watching = [], only(tmp_path, "collect_eval_lineage")
    keep = LambdaCallback(on_train_epoch_end=lambda run: seen.append(dict(run.original_args().eval_results)))
    model().fit(2, pictures(), pictures(5, 2, str(tmp_path)), callbacks=[watching, keep])
    assert set(seen[0]) == {"largest", "eval_loss"}
    expected = [{"metrics": m, "valid_dataset_path": str(tmp_path), "valid_dataset_size": 5} for m in seen]
    assert facts(tmp_path, "eval_lineage") == expected
    assert steps_of(tmp_path, "eval_lineage") == [3, 6]


def test_an_evaluation_alone_has_a_lineage(tmp_path):
    result = model().eval(pictures(5, 2), collector(tmp_path))
    assert facts(tmp_path, "eval_lineage")[0]["metrics"] == result
    assert tags(tmp_path) == {"eval_lineage"}


def test_custom_lineage_is_in_every_run_of_a_reused_collector(tmp_path, monkeypatch):
    monkeypatch.setenv("MINDINSIGHT_HYPER_CONFIG", json.dumps({"custom_lineage_data": {"a": 9, "tuned": 0.5}}))
    given = {"a": 2**40, "b": "text"}
    watching = only(tmp_path, custom_lineage_data=given)
    for _ in range(2):
        model().train(1, pictures(), watching)
    assert facts(tmp_path, "custom_lineage_data") == [{"a": 2**40, "tuned": 0.5, "b": "text"}] * 2
    assert given == {"a": 2**40, "b": "text"}
    assert tags(tmp_path) == {"custom_lineage_data"}


def test_the_data_set_graph(tmp_path):
    def bright(image):
        return image

    source = Pictures(root=str(tmp_path))
    source.transform = bright
    data = DataLoader(Subset(source, range(7)), batch_size=3, shuffle=True)
    model().train(1, data, only(tmp_path / "run", "collect_dataset_graph"))
    (graph,) = facts(tmp_path / "run", "train_dataset")
    assert (graph["op_type"], graph["parameters"]["batch_size"], graph["parameters"]["batches"]) == ("DataLoader", 3, 3)
    assert graph["sampler"]["op_type"] == "RandomSampler"
    (subset,) = graph["children"]
    assert (subset["op_type"], subset["parameters"]) == ("Subset", {"samples": 7})
    (leaf,) = subset["children"]
    assert leaf["parameters"] == {"samples": 10, "path": str(tmp_path)}
    assert leaf["operations"][0]["operation"] == "bright"
    assert leaf["children"] == []


def test_max_file_size_and_export_options(tmp_path):
    watching = only(
        tmp_path, "collect_metric", collect_freq=1, max_file_size=1000, export_options={"tensor_format": "npy"}
    )
    network = convolutional()
    network[3].register_forward_hook(lambda layer, inputs, output: watching.capture("tensor", "logits", output))
    model(network).train(3, pictures(), watching)
    assert len(event_files(tmp_path)) > 3
    assert steps_of(tmp_path, "loss/auto") == list(range(1, 10))
    exported = sorted(path.name for path in tmp_path.glob("export_*/tensor/*.npy"))
    assert exported == [f"logits_{step}.npy" for step in range(1, 10)]


def test_overwriting_removes_what_collectors_recorded_and_nothing_else(tmp_path):
    options = {"tensor_format": "npy"}
    with SummaryRecord(tmp_path, export_options=options) as other:
        other.add_value("tensor", "theirs", np.ones(2))
        other.record(1)
    (tmp_path / "notes.txt").write_text("mine")
    kept = names(tmp_path)
    runs = []
    for existing in ("error", "overwrite"):
        watching = only(tmp_path, "collect_metric", export_options=options, existing=existing)
        network = convolutional()
        network.register_forward_hook(lambda layer, i, output, w=watching: w.capture("tensor", "logits", output))
        model(network).train(1, pictures(), watching)
        runs.append(set(names(tmp_path)) - set(kept))
        assert set(kept) <= set(names(tmp_path))
    assert len(runs[0]) == len(runs[1]) == 2
    assert not runs[0] & runs[1]
    assert steps_of(tmp_path, "loss/auto") == [1]


def test_an_evaluation_that_fails_inside_a_training_ends_nothing(tmp_path):
    def fail(run_context):
        raise ArithmeticError("in an evaluation")

    def evaluate(run_context):
        if run_context.original_args().cur_step_num == 1:
            with pytest.raises(ArithmeticError, match="in an evaluation"):
                trained.eval(pictures(), [watching, LambdaCallback(on_eval_step_end=fail)])

    network = convolutional()
    trained = model(network)
    watching = only(tmp_path, "collect_metric", collect_freq=1, collect_landscape={"intervals": [range(4)]})
    network.register_forward_hook(lambda layer, i, output: watching.capture("scalar", "largest", output.max()))
    trained.train(1, pictures(), [watching, LambdaCallback(on_train_step_end=evaluate)])
    assert steps_of(tmp_path, "loss/auto") == steps_of(tmp_path, "largest") == [1, 2, 3]
    assert RunDirectory(tmp_path).present_numbers == [0, 1, 2, 3]


def overwrite_by_training(folder):
    options = {"collect_landscape": LANDSCAPE, "existing": "overwrite", "keep_default_action": False}
    model().train(1, pictures(), SummaryCollector(folder, **options))


def overwrite_by_snapshot(folder):
    with SummaryCollector(folder, collect_landscape=LANDSCAPE, existing="overwrite") as collecting:
        for number in range(3):
            collecting.snapshot(number, {"a": np.ones(2)})


@pytest.mark.parametrize("overwrite", [overwrite_by_training, overwrite_by_snapshot])
def test_a_run_that_records_nothing_keeps_no_record_of_the_run_that_it_replaces(tmp_path, overwrite):
    model().train(1, pictures(), only(tmp_path, "collect_metric", collect_freq=1, collect_landscape=LANDSCAPE))
    assert names(tmp_path) != ["ckpt_dir"]
    overwrite(tmp_path)
    assert names(tmp_path) == ["ckpt_dir"]


def test_a_training_that_raises_leaves_its_records(tmp_path):
    callbacks = [collector(tmp_path, collect_freq=1), raise_after(3, ArithmeticError("in step 3"))]
    with pytest.raises(ArithmeticError, match="in step 3"):
        model().train(2, pictures(), callbacks)
    assert steps_of(tmp_path, "loss/auto") == [1, 2, 3]
    assert "train_lineage" not in tags(tmp_path)


def test_a_directory_that_vanishes_costs_the_records_not_the_training(tmp_path):
    recorder, vandal = Recorder(), LambdaCallback(on_train_begin=lambda _: shutil.rmtree(tmp_path / "run"))
    watching = only(tmp_path / "run", "collect_metric", collect_freq=1)
    with pytest.warns(RuntimeWarning, match="summaries cannot be written to") as told:
        model().train(1, pictures(), [watching, vandal, recorder])
    assert len(told) == 1
    assert sorted(recorder.losses) == [1, 2, 3]


def test_another_rank_records_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    watching = collector(tmp_path / "run", {"collect_metric": True}, collect_landscape=LANDSCAPE)
    model().fit(1, pictures(), pictures(), callbacks=watching)
    model().eval(pictures(), watching)
    assert names(tmp_path) == []


def test_losses_that_are_not_finite_stay(tmp_path):
    with only(tmp_path, "collect_metric", collect_freq=1).watch(nn.Linear(1, 1)) as run:
        for loss in (float("nan"), float("inf"), torch.tensor([1.0, 3.0]), (np.float32(0.5), "more")):
            run.step(loss)
    values = [value for _, value in scalars(tmp_path, "loss/auto")]
    assert np.array_equal(values, [np.nan, np.inf, 2.0, 0.5], equal_nan=True)


def words(watching):
    with watching.watch(nn.Linear(1, 1)) as run:
        for _ in range(3):
            run.step("low")


def test_a_loss_that_is_no_number_ends_the_metric_not_the_training(tmp_path):
    watching = only(tmp_path, "collect_metric", collect_freq=1)
    with pytest.warns(UserWarning, match=r"collect_metric records no more in this run: .*net_outputs must be") as told:
        words(watching)
    assert len(told) == 1


def test_a_hand_written_loop(tmp_path):
    network = convolutional()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    losses = {}
    watching = collector(tmp_path, collect_freq=2, custom_lineage_data={"kind": "loop"})
    with watching.watch(network, optimizer=optimizer) as run:
        for _ in range(2):
            for images, labels in pictures(10, 4):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(network(images), labels)
                loss.backward()
                optimizer.step()
                run.step(loss)
                losses[len(losses) + 1] = loss.item()
            scheduler.step()
            run.end_epoch()
    assert scalars(tmp_path, "loss/auto") == [(step, np.float32(losses[step])) for step in (1, 2, 4, 6)]
    assert scalars(tmp_path, "learning_rate/auto") == [(1, 0.5), (2, 0.5), (4, 0.25), (6, 0.25)]
    (found,) = facts(tmp_path, "train_lineage")
    expected = {"network": "Sequential", "loss": losses[6], "optimizer": "SGD", "learning_rate": None, "epoch": 2}
    assert expected.items() <= found.items()
    assert facts(tmp_path, "custom_lineage_data") == [{"kind": "loop"}]
    assert tags(tmp_path) == EVERYTHING - {"input_data/auto", "train_dataset", "eval_lineage"} | {"custom_lineage_data"}


def test_a_loop_without_optimizer_and_loss(tmp_path):
    network = convolutional()
    network[0].requires_grad_(False)
    with collector(tmp_path).watch(network) as run:
        run.step()
    assert tags(tmp_path) == {"graph", "train_lineage", "3.weight/auto", "3.bias/auto"}


WITHOUT = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
sys.modules["tensorboard"] = None
import torch
from collectors import SummaryCollector
landscape, found = {"intervals": [range(3)]}, []
for number, arguments in enumerate(sys.argv[3:]):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            collector = SummaryCollector(f"{sys.argv[2]}/{number}", **eval(f"dict({arguments})"))
        except ImportError as error:
            found.append(f"ImportError: {error}")
            continue
    with collector.watch(torch.nn.Linear(1, 1)) as run:
        run.step(1.0)
        run.step(2.0)
    found.append([str(warning.message) for warning in told])
print(json.dumps(found))
"""
QUIET = (
    "collect_landscape=landscape",
    "collect_specified_data={'collect_landscape': landscape}, keep_default_action=False",
)
TOLD = (
    "collect_specified_data={'collect_landscape': landscape}",
    "collect_specified_data={'collect_metric': False}, collect_landscape=landscape",
)
NEEDED = (
    "collect_specified_data={'collect_metric': True}, collect_landscape=landscape",
    "custom_lineage_data={'a': 1}, collect_landscape=landscape",
)


@pytest.mark.slow
def test_landscapes_need_no_tensorboard_and_records_that_are_asked_for_do(tmp_path):
    printed = run_python("-W", "error", "-c", WITHOUT, ROOT, tmp_path, *QUIET, *TOLD, *NEEDED)
    *quiet, first, second, needed, also_needed = json.loads(printed)
    assert quiet == [[], []]
    for (text,) in (first, second):
        assert text.count("pip install 'summary-landscape[tensorboard]'") == 1
    for text in (needed, also_needed):
        assert text.startswith("ImportError: SummaryRecord needs TensorBoard")
        assert "pip install 'summary-landscape[tensorboard]'" in text
    assert names(tmp_path) == ["0", "1", "2", "3"]
    for folder in tmp_path.iterdir():
        assert names(folder) == ["ckpt_dir"]
        assert len(names(folder / "ckpt_dir")) == 4
