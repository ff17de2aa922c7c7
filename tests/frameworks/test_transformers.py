"""Transformers: the Trainer's steps and epochs, adapters of peft, a training that fails, two processes."""

import functools
import gc
import re
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
import transformers
from cases import FOLDERS, Crash, assert_same, own_values, weights
from event_reading import scalars
from filter_lengths import assert_as_long_as_the_weights_of_each_output
from pages import code_blocks, run_page_block, takes_minutes
from safetensors.numpy import load_file
from torch.utils.data import DataLoader
from transformers_cases import LENGTH, CrashAfter, build, make_bert, make_gpt2, pad, sentences, trainer
from waiting import PATIENCE, wait_until
from worker_cases import seeded

from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from collectors.transformers import SummaryCollector
from landscape import Landscape, SummaryLandscape
from workers.callback_fn import make_evaluator
from workers.evaluator import MeasurementSetup

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what peft imports
    import peft

STEPS = {"unit": "step", "intervals": [range(0, 13)]}
EPOCHS = {"unit": "epoch", "intervals": [range(0, 4)]}


def make_adapted():
    network = make_gpt2()
    adapters = peft.LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # between peft and Transformers
        return peft.get_peft_model(network, adapters)


def test_the_filters_of_gpt2_are_columns():
    layer = transformers.pytorch_utils.Conv1D(3, 4)

    def outputs_of(weight):
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            return layer(torch.ones(1, 4)).numpy().T

    assert_as_long_as_the_weights_of_each_output(layer, "weight", outputs_of)
    tensors = {tensor.name: tensor for tensor in describe_network(seeded(make_adapted)).tensors}
    axes = {"c_attn.base_layer.weight": (1,), "c_proj.weight": (1,), "lora_A.default.weight": (0,), "wte.weight": (0,)}
    for name, axis in axes.items():
        found = {tensor.filter_axes for full, tensor in tensors.items() if full.endswith(name)}
        assert found == {axis}, name


@pytest.mark.parametrize(("make", "hidden"), [(make_bert, True), (make_gpt2, False)])
def test_the_loss_inside_a_bfloat16_network_is_computed_in_float32(make, hidden):
    _, network, loader, _ = build(make, hidden, LENGTH)
    network.bfloat16()
    seen = []

    def logits_seen(outputs, batch):
        seen.append((type(outputs), outputs.logits.dtype, outputs["logits"].dtype))
        return 0.0

    values, description = own_values((None, network, loader, {"seen": logits_seen}))
    assert not description.notes
    batch = pad(list(loader.dataset), hidden=hidden)
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = network.eval()(**batch).logits
    assert logits.dtype == torch.bfloat16
    if not hidden:
        logits, labels = logits[:, :-1], labels[:, 1:]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), labels.flatten())
    assert values["loss"] == pytest.approx(float(expected), rel=1e-6)
    assert {dtype for _, *dtypes in seen for dtype in dtypes} == {torch.float32}
    assert all(issubclass(kind, transformers.utils.ModelOutput) for kind, *_ in seen)


class TestCollector:
    def test_accumulated_batches_are_one_step(self, tmp_path):
        collector = SummaryCollector(tmp_path / "run", collect_landscape={"unit": "step", "intervals": [range(0, 7)]})
        training = trainer(seeded(make_gpt2), tmp_path, [collector], gradient_accumulation_steps=3)
        training.train()
        run = RunDirectory(tmp_path / "run")
        assert training.state.global_step == 6
        assert run.present(tuple(range(13))) == list(range(7))
        assert run.metadata.step_per_epoch == 2

    def test_an_epoch_cut_short_is_none(self, tmp_path):
        collector = SummaryCollector(tmp_path / "run", collect_landscape=EPOCHS)
        with pytest.warns(UserWarning, match=r"training ended at epoch 1 without saving \[2, 3\]"):
            trainer(seeded(make_gpt2), tmp_path, [collector], max_steps=6).train()
        assert RunDirectory(tmp_path / "run").present((0, 1, 2, 3)) == [0, 1]

    def test_a_pass_over_data_of_unknown_length_cut_short_is_none(self, tmp_path):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(sentences(32))

        collector = SummaryCollector(tmp_path / "run", collect_landscape=EPOCHS)
        training = trainer(seeded(make_gpt2), tmp_path, [collector], max_steps=3)
        training.train_dataset = Stream()
        with pytest.warns(UserWarning, match=r"training ended at epoch 0 without saving \[1, 2, 3\]"):
            training.train()
        assert RunDirectory(tmp_path / "run").present((0, 1, 2, 3)) == [0]

    @pytest.mark.parametrize("settings", [STEPS, EPOCHS], ids=["step", "epoch"])
    @pytest.mark.parametrize("start", [4, 6])
    def test_resuming_inside_an_epoch_and_at_its_end(self, tmp_path, settings, start):
        saves = {"save_strategy": "steps", "save_steps": start}
        whole = SummaryCollector(tmp_path / "whole", collect_landscape=settings)
        trainer(seeded(make_gpt2), tmp_path, [whole], **saves).train()
        first = SummaryCollector(tmp_path / "run", collect_landscape=settings)
        with pytest.raises(Crash), first:
            trainer(seeded(make_gpt2), tmp_path / "other", [first, CrashAfter(start + 1)]).train()
        before = RunDirectory(tmp_path / "run").checkpoint_path(1).stat().st_mtime_ns
        resumed = SummaryCollector(tmp_path / "run", collect_landscape=settings, existing="resume")
        training = trainer(seeded(make_gpt2), tmp_path, [resumed], **saves)
        training.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{start}"))
        run = RunDirectory(tmp_path / "run")
        assert run.present(tuple(range(20))) == list(settings["intervals"][0])
        assert run.metadata.step_per_epoch == 4
        # At an epoch's end its checkpoint is written again, inside an epoch it must not be.
        assert (run.checkpoint_path(1).stat().st_mtime_ns == before) == (settings is STEPS or start == 6)
        for number in settings["intervals"][0]:
            found, expected = (weights(tmp_path / name, number) for name in ("run", "whole"))
            assert_same(found, expected, rtol=1e-4, atol=1e-6)

    def test_a_failed_training_is_whole_after_a_second(self, tmp_path):
        collector = SummaryCollector(tmp_path / "run", collect_landscape=STEPS)
        training = trainer(seeded(make_gpt2), tmp_path, [collector, CrashAfter(7)])
        with pytest.raises(Crash):
            training.train()

        # Nobody has told the collector; its thread writes all the same.
        def written():
            return RunDirectory(tmp_path / "run").present(tuple(range(13)))

        wait_until(lambda: written() == list(range(8)), what=lambda: f"all checkpoints; there: {written()}")
        del collector, training
        gc.collect()
        assert "checkpoint-writer" not in {thread.name for thread in threading.enumerate()}

    def test_a_second_training_ends_the_failed_one(self, tmp_path):
        collector = SummaryCollector(tmp_path / "run", collect_landscape=STEPS, existing="overwrite")
        training = trainer(seeded(make_gpt2), tmp_path, [collector, crash := CrashAfter(7)])
        with pytest.raises(Crash):
            training.train()
        crash.steps = None
        training.train()
        assert RunDirectory(tmp_path / "run").present(tuple(range(13))) == list(range(13))
        assert "checkpoint-writer" not in {thread.name for thread in threading.enumerate()}

    def test_the_learning_rate_is_that_of_the_step_and_the_last_checkpoint_the_trained_network(self, tmp_path):
        network = seeded(make_bert)
        collector = SummaryCollector(tmp_path / "run", collect_freq=1, collect_landscape=EPOCHS)
        trainer(network, tmp_path, [collector], hidden=True).train()
        state = weights(tmp_path / "run", 3)
        for name, parameter in network.named_parameters():
            np.testing.assert_array_equal(state[name], parameter.detach().numpy(), err_msg=name)
        # Tied, so it is there once.
        assert "cls.predictions.decoder.weight" not in state
        rates = dict(scalars(tmp_path / "run", "learning_rate/auto"))
        assert rates == pytest.approx({step: 0.01 * (13 - step) / 12 for step in range(1, 13)})


SCRIPT = """
import sys
sys.path[:0] = {folders!r}
import warnings
warnings.simplefilter("ignore")
from transformers_cases import LENGTH, CrashAfter, make_gpt2, trainer
from worker_cases import seeded
from collectors.transformers import SummaryCollector
from accelerate import DistributedType, state
from leaving import leave

def begin(self, *arguments, **options):
    # accelerate takes FSDP for accelerators only; PyTorch itself divides parameters on CPUs as well.
    start(self, *arguments, **options)
    self.distributed_type = DistributedType.MULTI_GPU

if __name__ == "__main__":
    for name in {names!r}:
        options = {{}}
        if name == "divided":
            for item in (state.AcceleratorState, state.GradientState, state.PartialState):
                item._reset_state()  # what it remembers of the training before
            start, state.PartialState.__init__ = state.PartialState.__init__, begin
            wrapped = {{"fsdp_version": 2, "transformer_layer_cls_to_wrap": ["GPT2Block"]}}
            options = {{"fsdp": True, "fsdp_config": wrapped}}
        folder = sys.argv[1] + "/" + name
        collector = SummaryCollector(folder, collect_landscape={{"unit": "step", "intervals": [range(0, 13)]}})
        callbacks = [collector, CrashAfter({crash!r})]
        training = trainer(seeded(make_gpt2), folder + "_output", callbacks, **options)
        training.train()
        # One write, so that the other process cannot come between.
        sys.stdout.write(f"{{name}} rank {{training.args.process_index}} steps {{training.state.global_step}}\\n")
    leave()
"""


def run_script(tmp_path, crash, *launcher, names=("run",)):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folders=FOLDERS, crash=crash, names=names))
    return subprocess.run(
        [sys.executable, *launcher, str(script), str(tmp_path)], cwd=tmp_path, capture_output=True,
        text=True, timeout=3 * PATIENCE, check=False,
    )  # fmt: skip


LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
# On a busy machine, the imports alone of a launcher and two processes take a minute.
imports_three_times = pytest.mark.timeout(8 * PATIENCE)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """A folder with what two processes recorded: each parameter whole, then divided among them."""
    folder, names = tmp_path_factory.mktemp("two_processes"), ("run", "divided")
    result = run_script(folder, None, *LAUNCHER, names=names)
    assert result.returncode == 0, result.stdout + result.stderr
    for name in names:
        assert sorted(re.findall(rf"{name} rank (\d) steps (\d+)", result.stdout)) == [("0", "6"), ("1", "6")]
    return folder


@imports_three_times
def test_two_processes(two_processes):
    run = RunDirectory(two_processes / "run")
    assert run.present(tuple(range(20))) == list(range(7))
    assert run.metadata.step_per_epoch == 2
    assert all(not name.startswith("module.") for name in weights(two_processes / "run", 6))


@imports_three_times
@pytest.mark.slow
def test_two_processes_that_divide_the_parameters(two_processes):
    plain, divided = (RunDirectory(two_processes / name) for name in ("run", "divided"))
    assert divided.metadata.network == plain.metadata.network
    assert divided.present(tuple(range(20))) == list(range(7))
    for number in range(7):
        assert_same(weights(two_processes / "divided", number), weights(two_processes / "run", number), atol=1e-6)


def test_a_script_that_dies_loses_nothing(tmp_path):
    result = run_script(tmp_path, 7)
    assert result.returncode == 1
    assert "Crash" in result.stderr
    run = RunDirectory(tmp_path / "run")
    assert run.present(tuple(range(20))) == list(range(8))
    weights(tmp_path / "run", 7)


class TestEvaluator:
    def test_metrics_see_outputs_and_batch(self):
        def accuracy(outputs, batch):
            guesses, labels = outputs.logits[:, :-1].argmax(-1), batch["labels"][:, 1:]
            return (guesses == labels)[labels != -100].float().mean()

        _, network, loader, _ = build(make_gpt2, False, 10)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a mean of labels that belongs to its batches
            evaluator = make_evaluator((None, network, loader, {"accuracy": accuracy}), MeasurementSetup())
        assert evaluator.description.metrics == ("loss", "accuracy")
        evaluator.close()

    def test_the_plane_spans_the_adapters_alone(self, tmp_path):
        network = seeded(make_adapted)
        wanted = {"landscape_size": 5, "num_samples": 16, "create_landscape": {"train": True, "result": False}}
        collector = SummaryCollector(tmp_path / "run", collect_landscape={**EPOCHS, **wanted})
        trainer(network, tmp_path, [collector]).train()
        adapters = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
        assert adapters
        assert all("lora_" in name for name in adapters)
        base = [name for name in weights(tmp_path / "run", 0) if "lora_" not in name]
        assert base
        for number in range(4):
            (file,) = (tmp_path / "run" / "ckpt_dir").glob(f"*_{number}_epoch.safetensors")
            assert all("lora_" in name for name in load_file(file))
        for name in base:
            np.testing.assert_array_equal(weights(tmp_path / "run", 3)[name], weights(tmp_path / "run", 0)[name])

        def callback_fn():
            loader = DataLoader(sentences(16), 8, collate_fn=functools.partial(pad))
            return None, seeded(make_adapted), loader, {}

        evaluator = make_evaluator(callback_fn(), MeasurementSetup())
        space = evaluator.description.space
        evaluator.close()
        assert {info.name for info in space.trainable} == adapters
        trainable, _ = network.get_nb_trainable_parameters()
        assert sum(info.size for info in space.trainable) == trainable == 2 * (8 + 24)
        (result,) = SummaryLandscape(str(tmp_path / "run")).gen_landscapes_with_multi_process(callback_fn)
        assert np.isfinite(result.loss).all()
        # The last checkpoint lies in the plane, and is measured as itself.
        network.eval()
        with torch.no_grad():
            expected = network(**pad(sentences(16))).loss.item()
        assert result.checkpoints.metrics["loss"][-1] == pytest.approx(expected, rel=1e-5)


@takes_minutes
def test_the_page(tmp_path):
    (code,) = code_blocks("transformers")
    run_page_block(code, tmp_path / "page")
    assert sorted(path.name for path in (tmp_path / "page" / "run").glob("*.h5")) == ["landscape_0-5_pca.h5"]


@takes_minutes
@pytest.mark.slow
def test_the_page_of_language_models(tmp_path):
    folder = tmp_path / "page"
    (code,) = code_blocks("language_models")
    printed = run_page_block(code, folder)
    assert "This is about these two networks, not about the recipes" in printed
    worst, adapters = (Landscape.load(folder / name) for name in ("worst.h5", "adapters.h5"))
    # At a trained network, a parabola rises by 1 to where its line ends.
    assert worst.loss[0] > worst.loss[10] < worst.loss[-1]
    # The frozen weights are the plane's, not those that callback_fn made.
    assert adapters.loss[4, 4] < 3 < np.log(128)
    assert {path.name for path in folder.glob("*.png")} == {"average.png", "worst.png", "adapters.png"}
