"""MindSpore: the reference page's example, its own run directories, and equality with MindSpore and PyTorch."""

import itertools
import json
import os
import random
import shutil
from pathlib import Path

import mindspore
import mindspore.dataset as pipelines
import numpy as np
import pytest
import torch
from cases import mean_loss, open_evaluator, own_plane, own_values
from filter_lengths import assert_as_long_as_the_weights_of_each_output
from mindspore import nn, ops
from mindspore.train import Accuracy, Loss, Model
from mindspore_cases import (
    FOUR_STEPS,
    TWO_EPOCHS,
    ConvNet,
    WithOwnLoss,
    arrays,
    build,
    dataset,
    model_of,
    sparse_loss,
    without_dropout,
)  # fmt: skip
from pages import code_blocks, run_page_block, takes_minutes
from scripts import PATIENCE, run_python

from collectors import import_checkpoints
from collectors.errors import CheckpointError
from collectors.mindspore import SummaryCollector
from collectors.networks.mindspore_network import read, unwrap
from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from collectors.weights.safetensors_file import CheckpointFile
from landscape import SummaryLandscape
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError, SamplesError
from workers.evaluator import MeasurementSetup

ONE_PLANE = {"landscape_size": 3, "num_samples": 48, "create_landscape": {"train": True, "result": False}}


def train(callbacks, epochs=1, network=None):
    model_of(network or ConvNet()).train(epochs, dataset(32, 8), callbacks=callbacks, dataset_sink_mode=False)


def collecting(folder, landscape=FOUR_STEPS):
    return SummaryCollector(folder, collect_landscape=landscape, keep_default_action=False)


def rewrite_metadata(folder, files):
    """Changes which files a run's metadata names, by number, and forgets their SHA-256."""
    path = folder / "ckpt_dir" / "train_metadata.json"
    metadata = json.loads(path.read_text())
    metadata["model_params_file_map"] |= {number: str(file) for number, file in files.items()}
    path.write_text(json.dumps({**metadata, "sha256": {}}))


def torch_twin(state):
    """Returns the network of ``ConvNet`` in PyTorch, in eval mode, with the weights of a MindSpore state."""
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )
    names = {
        "0.weight": "convolution.weight", "0.bias": "convolution.bias",
        "1.weight": "normalization.gamma", "1.bias": "normalization.beta",
        "1.running_mean": "normalization.moving_mean", "1.running_var": "normalization.moving_variance",
        "4.weight": "classifier.weight", "4.bias": "classifier.bias",
    }  # fmt: skip
    network.load_state_dict({ours: torch.tensor(state[theirs]) for ours, theirs in names.items()}, strict=False)
    return network.eval()


def torch_loss(state, count=48):
    data = arrays(count)
    with torch.no_grad():
        outputs = torch_twin(state)(torch.tensor(data["image"]))
        return float(torch.nn.functional.cross_entropy(outputs, torch.tensor(data["label"]).long()))


@takes_minutes
@pytest.mark.slow
@pytest.mark.parametrize("name", ["GRAPH_MODE", "PYNATIVE_MODE"])
def test_the_tutorial_of_mindspore(name, tmp_path):
    (code,) = code_blocks("mindspore_tutorial")
    assert "ms.GRAPH_MODE" in code
    run_page_block(code.replace("GRAPH_MODE", name), tmp_path)
    folder = tmp_path / "summary" / "lenet_interval_1"
    assert sorted(path.name for path in folder.glob("*.h5")) == ["landscape_1-5_pca.h5"]
    assert RunDirectory(folder).present(tuple(range(9))) == [1, 2, 3, 4, 5]
    assert all((tmp_path / f"{kind}.png").stat().st_size > 10_000 for kind in ("contour", "surface"))


def test_the_file_holds_what_pytorch_gives(mode, tmp_path):
    train([collecting(tmp_path)])
    (landscape,) = SummaryLandscape(tmp_path).gen_landscapes_with_multi_process(
        lambda: build(mode, shuffle=True), ONE_PLANE, device_ids=[1], save_directions=True, progress=False
    )
    run = RunDirectory(tmp_path)
    origin = run.checkpoint(4)
    directions = CheckpointFile(next(tmp_path.glob("*_directions.safetensors")))
    for (row, y), (column, x) in itertools.product(enumerate(landscape.y), enumerate(landscape.x)):
        state = {name: origin.read(name) for name in origin.shapes}
        for axis, coordinate in enumerate((x, y)):
            for name, value in state.items():
                if f"direction_{axis}/{name}" in directions.shapes:
                    state[name] = value + np.float32(coordinate) * directions.read(f"direction_{axis}/{name}")
        assert landscape.loss[row, column] == pytest.approx(torch_loss(state), rel=1e-4)
    for index, number in enumerate((1, 2, 3, 4)):
        file = run.checkpoint(number)
        own = torch_loss({name: file.read(name) for name in file.shapes})
        assert landscape.checkpoints.metrics["loss"][index] == pytest.approx(own, rel=1e-4)


def make_class_weights():
    return mindspore.Tensor(np.array([0.1, 1.0, 2.0, 3.0, 0.5], np.float32))


class Doubled(nn.LossBase):
    def construct(self, outputs, targets):
        return self.get_loss(2 * ops.cross_entropy(outputs, targets, reduction="none"))


LOSSES = {
    "cross entropy": lambda: nn.CrossEntropyLoss(),
    "class weights and ignored": lambda: nn.CrossEntropyLoss(make_class_weights(), ignore_index=2),
    "sum": lambda: nn.CrossEntropyLoss(reduction="sum"),
    "own LossBase": Doubled,
    "function": lambda: lambda outputs, targets: ops.cross_entropy(outputs, targets),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_add_up_over_any_batches(name, mode):
    network, loss, data = ConvNet(), LOSSES[name](), arrays(40)
    network.set_train(False)
    whole = float(loss(network(mindspore.Tensor(data["image"])), mindspore.Tensor(data["label"])).asnumpy())
    stream = pipelines.NumpySlicesDataset(data, shuffle=False).batch(12)
    if name in ("class weights and ignored", "sum"):
        stream = pipelines.NumpySlicesDataset(data, shuffle=False).batch(40)
    values, description = own_values((loss, network, stream, None))
    assert values["loss"] == pytest.approx(whole, rel=1e-5)
    assert ("loss_stderr" in values) == (name != "function")
    assert not description.partition_dependent


def test_mse_over_vectors(pynative):
    network = nn.Dense(3, 2)
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(20, 3)).astype(np.float32), generator.normal(size=(20, 2)).astype(np.float32)
    stream = pipelines.NumpySlicesDataset({"x": x, "y": y}, shuffle=False).batch(6)
    values, _ = own_values((nn.MSELoss(), network, stream, {}))
    outputs = network(mindspore.Tensor(x)).asnumpy()
    assert values["loss"] == pytest.approx(np.square(outputs - y).mean(), rel=1e-5)


def test_a_loss_that_looks_at_the_weights_is_not_copied(pynative):
    network = ConvNet()

    class Penalty(nn.LossBase):
        def __init__(self):
            super().__init__()
            self.network = network

        def construct(self, outputs, targets):
            penalty = ops.square(self.network.classifier.weight).sum()
            return self.get_loss(ops.cross_entropy(outputs, targets, reduction="none")) + penalty

    evaluator = open_evaluator((Penalty(), network, dataset(), {}))
    evaluator.load(*own_plane((None, network), evaluator))
    state = read(network)
    doubled = {**state, "classifier.weight": 2 * state["classifier.weight"]}
    value = evaluator.measure_state(doubled, None)["loss"]
    assert value == pytest.approx(torch_loss(doubled) + np.square(doubled["classifier.weight"]).sum(), rel=1e-5)


def random_states():
    """Returns the states of the generators that MindSpore seeds along with its own, the place in them included."""
    kind, key, *place = np.random.get_state()  # noqa: NPY002
    return kind, key.tobytes(), place, random.getstate(), pipelines.config.get_seed()


def test_shuffling_does_not_matter(pynative):
    data = arrays(48)
    plain = pipelines.NumpySlicesDataset(data, shuffle=False).batch(16)
    sources = [
        pipelines.NumpySlicesDataset(data).shuffle(10).batch(16),
        pipelines.NumpySlicesDataset(data, sampler=pipelines.RandomSampler()).batch(16),
        pipelines.NumpySlicesDataset(data, sampler=pipelines.SubsetRandomSampler(list(range(48)))).batch(16),
        pipelines.GeneratorDataset(list(zip(*data.values(), strict=True)), ["x", "y"], shuffle=True).batch(16),
    ]
    # MindSpore draws NumPy's random numbers to make a network; measuring it must not.
    network = ConvNet()
    before = random_states()
    digests = {
        own_values((sparse_loss(), network, item, {}), num_samples=30)[1].samples_sha256 for item in (plain, *sources)
    }
    assert len(digests) == 1
    assert random_states() == before


@pytest.mark.parametrize(
    ("sampler", "chosen_from"),
    [
        (lambda: pipelines.RandomSampler(num_samples=10), range(48)),
        (lambda: pipelines.RandomSampler(replacement=True), range(48)),
        (lambda: pipelines.WeightedRandomSampler([0.0] * 40 + [1.0] * 8, num_samples=6), range(40, 48)),
    ],
    ids=["some", "replaced", "weighted"],
)
def test_random_draws_are_told_and_all_samples_are_measured(pynative, sampler, chosen_from):
    data, network = arrays(48), ConvNet()
    chosen = {name: column[list(chosen_from)] for name, column in data.items()}
    fixed = pipelines.NumpySlicesDataset(chosen, shuffle=False).batch(16)
    _, expected = own_values((sparse_loss(), network, fixed, {}))
    drawn = pipelines.NumpySlicesDataset(data, sampler=sampler()).batch(16)
    with pytest.warns(UserWarning, match=r"draws (\d+ )?samples at random, .* all samples that it chooses from are"):
        _, found = own_values((sparse_loss(), network, drawn, {}))
    assert found.samples_sha256 == expected.samples_sha256
    assert found.num_samples == len(chosen_from)
    assert any("samples at random" in note for note in found.notes)


def test_a_random_order_of_a_subset_does_not_matter(pynative):
    data, network = arrays(48), ConvNet()
    samplers = (pipelines.SubsetSampler([2, 30]), pipelines.SubsetRandomSampler([30, 2, 17], num_samples=2))
    digests = {
        own_values(
            (sparse_loss(), network, pipelines.NumpySlicesDataset(data, sampler=sampler).batch(16), {})
        )[1].samples_sha256
        for sampler in samplers
    }  # fmt: skip
    assert len(digests) == 1


def test_samples_that_change_are_an_error(pynative):
    generator = np.random.default_rng(0)

    def noisy(image):
        return image + generator.normal(size=image.shape).astype(np.float32)

    stream = pipelines.NumpySlicesDataset(arrays(48)).map(noisy, input_columns="image").batch(16)
    with pytest.raises(SamplesError, match="must give the same samples each time"):
        own_values((sparse_loss(), ConvNet(), stream, {}))


class BrokenMetric(Accuracy):
    def update(self, *inputs):
        raise ArithmeticError("broken")


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({0: Model(nn.Dense(2, 2))}, CallbackFunctionError, "has no loss_fn, .* of inputs and targets, but: .* Pass"),
        ({0: None, 3: {"accuracy"}}, CallbackFunctionError, r"metrics must be empty .*, but got \['accuracy'\]"),
        ({0: nn.MSELoss}, CallbackFunctionError, "but is the class MSELoss"),
        ({0: 3}, CallbackFunctionError, "a mindspore.train.Model with a loss_fn or a loss function"),
        ({2: pipelines.NumpySlicesDataset(arrays(8))}, SamplesError, "gave single samples; end it with .batch"),
        (
            {2: pipelines.NumpySlicesDataset({"x": np.ones((4, 3))}).batch(2)},
            SamplesError,
            "must have an input column and a target column, but has",
        ),
        ({3: {"accuracy", "nonsense"}}, CallbackFunctionError, "MindSpore says"),
        ({3: {"accuracy": Accuracy}}, CallbackFunctionError, "MindSpore says|must be a mindspore.train.Metric"),
        ({3: {"best": lambda outputs: 1.0}}, CallbackFunctionError, "^metric 'best' raised TypeError"),
        ({3: {"best": BrokenMetric()}}, CallbackFunctionError, "^metric 'best' raised ArithmeticError: broken"),
        ({3: {"loss": Accuracy()}}, CallbackFunctionError, "the landscape file uses itself, but got 'loss'"),
    ],
)
def test_what_callback_fn_must_not_return(change, error, match, pynative):
    built = [sparse_loss(), ConvNet(), dataset(), {}]
    for index, item in change.items():
        built[index] = item
    with pytest.raises(error, match=match):
        make_evaluator(tuple(built), MeasurementSetup())


def test_metrics_by_name_and_as_functions(pynative):
    def share_of_zero(outputs, targets):
        return (outputs.argmax(1) == 0).float().mean()

    expected = model_of(ConvNet(), metrics={"accuracy"}).eval(dataset(shuffle=True))["accuracy"]
    values, _ = own_values((sparse_loss(), ConvNet(), dataset(shuffle=True), {"loss", "accuracy"}))
    assert set(values) == {"loss", "loss_stderr", "accuracy"}
    assert values["accuracy"] == pytest.approx(expected)
    values, _ = own_values((sparse_loss(), ConvNet(), dataset(), {"zeros": share_of_zero, "any": Loss()}))
    assert set(values) == {"loss", "loss_stderr", "zeros"}


class Tied(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Dense(4, 7, has_bias=False)
        self.head.weight = self.embedding.embedding_table
        self.transposed = nn.Conv2dTranspose(3, 5, 2)
        self.named = mindspore.Parameter(mindspore.Tensor(np.ones((2, 3)), mindspore.bfloat16), name="a.name")
        self.register_buffer("table", mindspore.Tensor(np.arange(4, dtype=np.int32)))
        self.normalization = nn.BatchNorm1d(4)


def test_names_ties_and_roles(mode):
    network = Tied()
    network.transposed.weight.requires_grad = False
    by_name = {tensor.name: tensor for tensor in describe_network(network).tensors}
    assert by_name["embedding.embedding_table"].aliases == ("head.weight",)
    assert "head.weight" not in by_name
    assert by_name["named"].aliases == ("a.name",)
    assert by_name["named"].dtype == read(network)["named"].dtype.name == "bfloat16"
    assert (by_name["transposed.weight"].filter_axes, by_name["transposed.weight"].trainable) == ((1,), False)
    assert by_name["transposed.weight"].role == "parameter"
    assert by_name["embedding.embedding_table"].filter_axes == (0,)
    buffers = {name for name, tensor in by_name.items() if tensor.role == "buffer"}
    assert buffers == {"table", "normalization.moving_mean", "normalization.moving_variance"}


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Dense(4, 3, has_bias=False), (1, 4)),
        (lambda: nn.Conv2d(4, 6, 2, group=2), (1, 4, 3, 3)),
        (lambda: nn.Conv2dTranspose(3, 4, 2), (1, 3, 3, 3)),
        (lambda: nn.Conv2dTranspose(4, 6, 2, group=2), (1, 4, 3, 3)),
    ],
    ids=["dense", "convolution", "transposed", "grouped transposed"],
)
def test_a_direction_is_as_long_as_the_weights_of_each_output(pynative, make, shape):
    layer = make()

    def outputs_of(weight):
        layer.weight.set_data(mindspore.Tensor(weight))
        outputs = layer(mindspore.Tensor(np.ones(shape, np.float32))).asnumpy()
        return np.moveaxis(outputs, 1, 0).reshape(outputs.shape[1], -1)

    assert_as_long_as_the_weights_of_each_output(layer, "weight", outputs_of)


def test_losses_and_metrics_come_from_float32_outputs(pynative):
    network = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 5)).to_float(mindspore.float16)
    seen = []

    def again(outputs, targets):
        seen.append(outputs.dtype)
        return ops.cross_entropy(outputs, targets)

    values, description = own_values((sparse_loss(), network, dataset(), {"again": again}))
    data = arrays(48)
    logits = network(mindspore.Tensor(data["image"])).asnumpy()
    assert logits.dtype == np.float16
    expected = mean_loss(logits.astype(np.float64), data["label"])
    assert set(seen) == {mindspore.float32}
    assert values["loss"] == pytest.approx(expected, rel=1e-6)
    assert values["again"] == pytest.approx(expected, rel=1e-6)
    assert not description.notes


class Regularized(nn.Cell):
    """Computes its loss from its own layers, without a loss of MindSpore's among them."""

    def __init__(self):
        super().__init__()
        self.body = ConvNet()

    def construct(self, images, labels):
        outputs = self.body(images)
        return ops.cross_entropy(outputs, labels) + ops.square(outputs).mean()


def test_a_network_that_computes_its_loss(mode):
    network, state = Regularized(), read(ConvNet())
    network.set_train(True)
    with torch.no_grad():
        outputs = torch_twin(state)(torch.tensor(arrays(48)["image"]))
    expected = torch_loss(state) + float(outputs.square().mean())
    for model, metrics in ((Model(network), None), (None, {"Loss": Loss()})):
        values, description = own_values((model, network, dataset(), metrics))
        assert values == {"loss": pytest.approx(expected, rel=1e-5)}
        assert not description.partition_dependent
    assert network.body.training


def test_wrappers_leave_no_trace(pynative):
    network = ConvNet()
    plain = describe_network(network)
    optimizer = nn.Adam(network.trainable_params())
    wrapped = Model(network, sparse_loss(), optimizer).train_network
    assert unwrap(wrapped) is network
    assert describe_network(wrapped) == plain
    mixed = Model(network, sparse_loss(), optimizer, amp_level="O2", loss_scale_manager=None).train_network
    assert [tensor.name for tensor in describe_network(mixed).tensors] == [tensor.name for tensor in plain.tensors]
    own = WithOwnLoss(ConvNet())
    assert [tensor.name for tensor in describe_network(own).tensors] == [tensor.name for tensor in plain.tensors]
    assert describe_network(own).network == "ConvNet"


def test_a_run_of_mindspores_own_collector(mode, tmp_path):
    written, moved = tmp_path / "written", tmp_path / "moved"
    own = mindspore.SummaryCollector(
        str(written), collect_specified_data={"collect_landscape": dict(FOUR_STEPS)}, keep_default_action=False
    )
    # MindSpore's own refuses another callback of that name, so there are two equal trainings.
    train([own], network=without_dropout())
    train([collecting(tmp_path / "ours")], network=without_dropout())
    shutil.move(written, moved)
    metadata = json.loads((moved / "ckpt_dir" / "train_metadata.json").read_text())
    assert all(path.startswith(str(written)) for path in metadata["model_params_file_map"].values())
    results = [
        SummaryLandscape(folder).gen_landscapes_with_multi_process(
            lambda: build(mode), ONE_PLANE, device_ids=[0], output=tmp_path / name, progress=False
        )[0]
        for folder, name in ((moved, "a"), (tmp_path / "ours", "b"))
    ]
    np.testing.assert_array_equal(results[0].loss, results[1].loss)
    assert not [
        path for path in moved.rglob("*") if path.suffix not in (".ckpt", ".json", "") and "events" not in path.name
    ]


def test_checkpoints_with_optimizer_and_wrapped_names(pynative, tmp_path):
    network = ConvNet()
    trainer = Model(network, sparse_loss(), nn.Adam(network.trainable_params()))
    trainer.train(1, dataset(32, 8), dataset_sink_mode=False)
    for number in (1, 2, 3):
        mindspore.save_checkpoint(trainer.train_network, str(tmp_path / f"whole_{number}.ckpt"))
    assert "moment1.classifier.weight" in mindspore.load_checkpoint(str(tmp_path / "whole_1.ckpt"))
    run = import_checkpoints(tmp_path / "run", [tmp_path / f"whole_{number}.ckpt" for number in (1, 2, 3)])
    space = describe_network(network)
    assert run.checkpoint(3, space).shapes.keys() == {tensor.name for tensor in space.tensors}
    # As MindSpore's own collector leaves it behind: straight from a .ckpt, whatever else it holds.
    shutil.copytree(tmp_path / "run", tmp_path / "own")
    folder = tmp_path / "own" / "ckpt_dir"
    mindspore.save_checkpoint(WithOwnLoss(network), str(folder / "wrapped.ckpt"))
    assert "network.classifier.weight" in mindspore.load_checkpoint(str(folder / "wrapped.ckpt"))
    rewrite_metadata(tmp_path / "own", {"2": tmp_path / "whole_2.ckpt", "3": "/gone/wrapped.ckpt"})
    shutil.copy(tmp_path / "whole_2.ckpt", folder)
    own = RunDirectory(tmp_path / "own")
    for number in (2, 3):
        file = own.checkpoint(number, describe_network(ConvNet()))
        for name, value in read(network).items():
            np.testing.assert_array_equal(file.read(name), value)


def test_damaged_and_foreign_ckpt_files(pynative, tmp_path):
    train([collecting(tmp_path)])
    folder = tmp_path / "ckpt_dir"
    rewrite_metadata(tmp_path, {"1": "one.ckpt"})
    (folder / "one.ckpt").write_bytes(b"\x0a\xff\xff nonsense")
    with pytest.raises(CheckpointError, match="is damaged or no checkpoint of MindSpore"):
        RunDirectory(tmp_path).checkpoint(1)
    mindspore.save_checkpoint(nn.Dense(2, 2), str(folder / "one.ckpt"))
    with pytest.raises(CheckpointError, match=r"convolution.weight \(4, 1, 3, 3\): missing"):
        RunDirectory(tmp_path).checkpoint(1, describe_network(ConvNet()))


def test_fit_and_early_stops(pynative, tmp_path):
    model = model_of(ConvNet(), metrics={"accuracy"})
    model.fit(2, dataset(32, 8), dataset(16, 8), callbacks=[collecting(tmp_path / "fit", TWO_EPOCHS)])
    assert RunDirectory(tmp_path / "fit").present((0, 1, 2)) == [0, 1, 2]

    class Stop(mindspore.train.Callback):
        def on_train_step_end(self, run_context):
            if run_context.original_args().cur_step_num == 6:
                run_context.request_stop()

    with pytest.warns(UserWarning, match=r"training ended at epoch 1 without saving \[2\]"):
        train([collecting(tmp_path / "stopped", TWO_EPOCHS), Stop()], epochs=2)
    assert RunDirectory(tmp_path / "stopped").present((0, 1, 2)) == [0, 1]


def test_only_one_collector_is_taken(pynative, tmp_path):
    with pytest.raises(ValueError, match="at most one SummaryCollector"):
        train([collecting(tmp_path / name) for name in ("one", "other")])


NPU_SCRIPT = """
import ray
from cluster_devices import wait_until_free
from workers.measurement_options import MeasurementOptions
from workers.pools.ray_pool import RayPool

def callback_fn():
    from mindspore_cases import build
    return build("pynative")

if __name__ == "__main__":
    ray.init("local", num_cpus=2, resources={"NPU": 2}, include_dashboard=False, log_to_driver=False)
    for device_ids, workers in ((None, 2), ((1,), 1)):
        with RayPool(callback_fn, MeasurementOptions(), device_ids=device_ids) as pool:
            assert pool.workers == workers, pool.workers
            wait_until_free(2 - workers, "NPU")
        wait_until_free(2, "NPU")
    print("good")
"""


@pytest.mark.slow
@pytest.mark.timeout(4 * PATIENCE)  # Ray starts, and four times a process that imports MindSpore
def test_ascend_devices_are_asked_of_ray(tmp_path):
    # No Ascend device is here: Ray is told of two that do not exist, and the actors compute on the CPU.
    script, here = tmp_path / "npu.py", Path(__file__).parent
    script.write_text(NPU_SCRIPT)
    environment = {
        **os.environ,
        "RAY_AUTH_TOKEN": "0123456789" * 4,
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parent / "support"), os.environ.get("PYTHONPATH", "")]),
    }
    assert run_python(script, env=environment, patience=4 * PATIENCE).splitlines()[-1] == "good"


@takes_minutes
@pytest.mark.slow
def test_the_page(tmp_path):
    (code,) = code_blocks("mindspore")
    run_page_block(code, tmp_path / "page")
    assert (tmp_path / "page" / "landscape.png").stat().st_size > 10_000
    assert sorted(path.name for path in (tmp_path / "page" / "run").glob("*.h5")) == ["landscape_0-5_pca.h5"]
