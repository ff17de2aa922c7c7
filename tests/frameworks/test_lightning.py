"""Lightning: both packages, accumulated batches, two processes, checkpoints of its own, evaluator_from."""

import copy
import os
import pickle
import re

import cloudpickle
import lightning.pytorch
import numpy as np
import pytest
import pytorch_lightning
import torch
from cases import FOLDERS, assert_same, open_evaluator, own_plane, weights
from event_reading import scalars
from lightning_cases import CLASSES, PACKAGES, quiet_trainer, run_quietly
from measured_planes import measure_plane
from pages import code_blocks, run_page_block, takes_minutes
from scripts import run_python, run_script
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from waiting import PATIENCE
from worker_cases import classes, features, found, seeded

from collectors.lightning import SummaryCollector
from collectors.run_directory import RunDirectory
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError
from workers.evaluator import MeasurementSetup
from workers.lightning import evaluator_from
from workers.measurement_options import MeasurementOptions

LitModel, DataModule = CLASSES["lightning"]
STEPS = {"unit": "step", "intervals": [range(0, 13)]}
EPOCHS = {"unit": "epoch", "intervals": [range(0, 4)]}
BOTH = ("training", "validation")


@pytest.fixture(params=PACKAGES)
def package(request):
    return request.param


def fit(name, collector, *, module=None, data=None, ckpt_path=None, callbacks=(), **options):
    lit_model, data_module = CLASSES[name]
    options = {"max_epochs": 3, "enable_checkpointing": False, **options}
    trainer = quiet_trainer(name, callbacks=[collector, *callbacks], **options)
    run_quietly(trainer.fit, module or seeded(lit_model), data or data_module(32, 8), ckpt_path=ckpt_path)
    return trainer


class TestCollector:
    def test_it_is_a_callback_of_both_packages(self, tmp_path):
        collector = SummaryCollector(tmp_path)
        assert isinstance(collector, SummaryCollector)
        assert isinstance(collector, lightning.pytorch.Callback)
        assert isinstance(collector, pytorch_lightning.Callback)

        class Own(SummaryCollector):
            pass

        assert isinstance(Own(tmp_path), Own)
        assert isinstance(Own(tmp_path), pytorch_lightning.Callback)

    def test_a_copy_is_a_callback_again(self, tmp_path):
        collector = SummaryCollector(tmp_path, collect_landscape=STEPS)
        for other in (pickle.loads(pickle.dumps(collector)), copy.deepcopy(collector)):
            assert isinstance(other, lightning.pytorch.Callback)
            assert other.summary_dir == str(tmp_path)

    @pytest.mark.filterwarnings("ignore:training ended at step 4")
    @pytest.mark.parametrize("automatic", [True, False])
    def test_accumulated_batches_are_one_step_whose_loss_is_their_mean(self, package, tmp_path, automatic):
        found = []

        class Counted(CLASSES[package][0]):
            def __init__(self):
                super().__init__()
                self.automatic_optimization = automatic

            def training_step(self, batch, batch_idx):
                loss = functional.cross_entropy(self(batch[0]), batch[1])
                found.append(loss.item())
                if not automatic:
                    self.manual_backward(loss / 3)
                    if batch_idx in (2, 3):
                        self.optimizers().step()
                        self.optimizers().zero_grad()
                return loss

        options = {"accumulate_grad_batches": 3} if automatic else {}
        collector = SummaryCollector(tmp_path, 1, collect_landscape=STEPS)
        trainer = fit(package, collector, module=seeded(Counted), max_epochs=2, **options)
        run = RunDirectory(tmp_path)
        # Four batches make two steps: Lightning does not carry the last one over to the next epoch.
        assert trainer.global_step == 4
        assert run.present(tuple(range(13))) == list(range(5))
        assert run.metadata.step_per_epoch == 2
        groups = [found[:3], found[3:4], found[4:7], found[7:]]
        recorded = dict(scalars(tmp_path, "loss/auto"))
        assert recorded == {step: pytest.approx(np.mean(group), rel=1e-5) for step, group in enumerate(groups, 1)}

    def test_an_epoch_cut_short_is_none(self, package, tmp_path):
        with pytest.warns(UserWarning, match=r"training ended at epoch 1 without saving \[2, 3\]"):
            fit(package, SummaryCollector(tmp_path, collect_landscape=EPOCHS), max_epochs=-1, max_steps=6)
        assert RunDirectory(tmp_path).present((0, 1, 2, 3)) == [0, 1]

    def test_several_optimizers_move_in_one_step(self, package, tmp_path):
        class Adversaries(CLASSES[package][0]):
            def __init__(self):
                super().__init__()
                self.automatic_optimization = False

            def training_step(self, batch, batch_idx):
                for optimizer in self.optimizers():
                    optimizer.zero_grad()
                    self.manual_backward(functional.cross_entropy(self(batch[0]), batch[1]))
                    optimizer.step()

            def configure_optimizers(self):
                return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (self.body[0], self.body[3])]

        trainer = fit(package, SummaryCollector(tmp_path, collect_landscape=STEPS), module=seeded(Adversaries))
        assert trainer.global_step == 24
        run = RunDirectory(tmp_path)
        assert run.present(tuple(range(30))) == list(range(13))
        assert run.metadata.step_per_epoch == 4

    @pytest.mark.parametrize("saving", ["epoch end", "validation end", "inside an epoch"])
    @pytest.mark.parametrize("settings", [STEPS, EPOCHS], ids=["step", "epoch"])
    def test_resuming(self, package, tmp_path, saving, settings):
        own = PACKAGES[package].callbacks.ModelCheckpoint
        choices = {
            "epoch end": {"save_on_train_epoch_end": True, "every_n_epochs": 1},
            "validation end": {"save_on_train_epoch_end": False, "every_n_epochs": 1},
            "inside an epoch": {"every_n_train_steps": 6},
        }[saving]

        def saver():
            return own(tmp_path, "{step}", save_top_k=-1, **choices)

        whole = SummaryCollector(tmp_path / "whole", collect_landscape=settings)
        fit(package, whole, callbacks=[saver()], enable_checkpointing=True)
        path = next(path for path in tmp_path.glob("step=*.ckpt") if path.name in ("step=6.ckpt", "step=8.ckpt"))
        start = 6 if saving == "inside an epoch" else 8
        assert path.name == f"step={start}.ckpt"
        (tmp_path / "run").mkdir()
        fit(package, SummaryCollector(tmp_path / "run", collect_landscape=settings))
        run = RunDirectory(tmp_path / "run")
        before = {number: run.checkpoint_path(number).stat().st_mtime_ns for number in (1, 3)}
        resumed = SummaryCollector(tmp_path / "run", collect_landscape=settings, existing="resume")
        fit(package, resumed, callbacks=[saver()], ckpt_path=path, enable_checkpointing=True)
        run, last = RunDirectory(tmp_path / "run"), max(settings["intervals"][0])
        assert run.present(tuple(range(20))) == list(settings["intervals"][0])
        assert run.metadata.step_per_epoch == 4
        if saving != "inside an epoch":  # where Lightning itself begins with the epoch's first batch again
            # Memory that is aligned otherwise is summed in another order.
            assert_same(weights(tmp_path / "run", last), weights(tmp_path / "whole", last), rtol=1e-4)
        assert run.checkpoint_path(1).stat().st_mtime_ns == before[1]
        assert (run.checkpoint_path(3).stat().st_mtime_ns == before[3]) == (settings is STEPS)

    def test_resuming_what_was_saved_before_the_collector_heard_of_the_step(self, package, tmp_path):
        class Saver(PACKAGES[package].Callback):
            def on_train_batch_end(self, trainer, *arguments):
                if trainer.global_step == 6:
                    trainer.save_checkpoint(tmp_path / "six.ckpt")

        fit(package, Saver(), callbacks=[SummaryCollector(tmp_path / "run", collect_landscape=STEPS)])
        resumed = SummaryCollector(tmp_path / "run", collect_landscape=STEPS, existing="resume")
        trainer = fit(package, resumed, ckpt_path=tmp_path / "six.ckpt")
        assert resumed.state_dict() == {"steps": trainer.global_step}

    def test_learning_rate_and_loss_are_those_of_the_step_and_the_last_checkpoint_the_trained_weights(
        self, package, tmp_path
    ):
        class Scheduled(CLASSES[package][0]):
            def configure_optimizers(self):
                optimizer = super().configure_optimizers()
                rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
                return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}

        module = seeded(Scheduled)
        fit(package, SummaryCollector(tmp_path, collect_freq=1, collect_landscape=EPOCHS), module=module)
        rates = dict(scalars(tmp_path, "learning_rate/auto"))
        assert rates == pytest.approx({step: 0.1 / step for step in range(1, 13)})
        assert list(dict(scalars(tmp_path, "loss/auto"))) == list(range(1, 13))
        state = weights(tmp_path, 3)
        assert state.keys() == module.state_dict().keys()
        for name, tensor in module.state_dict().items():
            np.testing.assert_array_equal(state[name], tensor.numpy(), err_msg=name)


TWO_PROCESSES = """
import sys
sys.path[:0] = {folders!r}
import warnings
warnings.simplefilter("ignore")
from leaving import leave
from lightning_cases import CLASSES, PACKAGES, quiet_trainer
from worker_cases import seeded
from collectors.lightning import SummaryCollector
import torch
from importlib import import_module
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

options = {{"process_group_backend": "gloo"}}

def made(name, kind):
    model, strategies = CLASSES[name][0], PACKAGES[name].strategies

    class FSDPOnHost(strategies.FSDPStrategy):
        # Lightning's own wants a GPU; what our collector sees is the same.
        def _setup_model(self, module):
            return FullyShardedDataParallel(module, device_id=torch.device("cpu"), use_orig_params=True)

    class Divided(model):
        def configure_model(self):
            fully_shard(self.body[0], mesh=self.device_mesh["data_parallel"])
            fully_shard(self.body, mesh=self.device_mesh["data_parallel"])

    if kind == "fsdp":
        return FSDPOnHost(**options), model
    if kind == "model_parallel":
        return strategies.ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1, **options), Divided
    return kind, model

if __name__ == "__main__":
    for name, strategy in {trainings!r}:
        connector = import_module(PACKAGES[name].__name__ + ".trainer.connectors.accelerator_connector")
        connector._AcceleratorConnector._check_strategy_and_fallback = lambda self: None
        plugin, model = made(name, strategy)
        collector = SummaryCollector(
            sys.argv[1] + "/" + name + "-" + strategy,
            collect_landscape={{"unit": "step", "intervals": [range(0, 7)]}},
        )
        trainer = quiet_trainer(name, max_epochs=3, callbacks=[collector], enable_checkpointing=False,
                                strategy=plugin, devices=2, num_sanity_val_steps=0)
        trainer.fit(seeded(model), CLASSES[name][1](32, 8))
        # One write, so that the other process cannot come between.
        sys.stdout.write(f"{{name}}-{{strategy}} rank {{trainer.global_rank}} steps {{trainer.global_step}}\\n")
    leave()
"""
TRAININGS = (("pytorch_lightning", "ddp"), *(("lightning", name) for name in ("ddp", "fsdp", "model_parallel")))


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """A folder with the runs of trainings that the same two processes did one after the other."""
    folder = tmp_path_factory.mktemp("two_processes")
    script = folder / "train.py"
    script.write_text(TWO_PROCESSES.format(folders=FOLDERS, trainings=TRAININGS))
    environment = {**os.environ, "PL_TORCH_DISTRIBUTED_BACKEND": "gloo"}
    printed = run_python(script, folder, cwd=folder, env=environment, patience=2 * PATIENCE)
    for training in map("-".join, TRAININGS):
        ranks = sorted(re.findall(rf"^{training} rank (\d) steps (\d+)", printed, re.MULTILINE))
        assert ranks == [("0", "6"), ("1", "6")]
    return folder


imports_twice = pytest.mark.timeout(4 * PATIENCE)


def run_of(folder):
    run = RunDirectory(folder)
    assert run.present(tuple(range(20))) == list(range(7))
    assert run.metadata.step_per_epoch == 2
    return run


@imports_twice
@pytest.mark.parametrize("package", PACKAGES)
def test_two_processes(two_processes, package):
    folder = two_processes / f"{package}-ddp"
    run_of(folder)
    assert all(not name.startswith("module.") for name in weights(folder, 6))


@imports_twice
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fsdp", "model_parallel"])
def test_two_processes_that_divide_the_parameters(two_processes, strategy):
    # Both packages are one code: here the other one.
    plain, divided = (two_processes / f"lightning-{name}" for name in ("ddp", strategy))
    assert run_of(divided).metadata.network["trainable"] == run_of(plain).metadata.network["trainable"]
    for number in range(7):
        assert_same(weights(divided, number), weights(plain, number), atol=1e-6)


class TestEvaluatorFrom:
    def measured(self, callback_fn, **options):
        evaluator = make_evaluator(callback_fn(), MeasurementSetup(MeasurementOptions(**options)))
        state = evaluator.description
        evaluator.close()
        return state

    def loss(self, module, stage=None, data=DataModule):
        own, network, loader, _ = evaluator_from(module, data, stage=stage)()
        network.eval()
        with torch.no_grad():
            return [own.forward(network, batch).loss.item() for batch in loader]

    def test_classes_objects_and_loaders(self, package):
        lit_model, data_module = CLASSES[package]
        loader = DataLoader(TensorDataset(features(), classes()), 16)
        sums = {
            self.measured(evaluator_from(module, data)).samples_sha256
            for module in (lit_model, lit_model(), lambda: lit_model(learning_rate=0.5))
            for data in (data_module, data_module(), lambda: data_module(), loader, lambda: loader)
        }
        assert len(sums) == 1

    @pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
    def test_a_module_that_a_trainer_left_in_another_precision(self, package, precision):
        module, data = seeded(CLASSES[package][0]), CLASSES[package][1](32, 32)
        trainer = quiet_trainer(package, max_epochs=1, enable_checkpointing=False, precision=precision)
        run_quietly(trainer.fit, module, data)
        expected = run_quietly(trainer.validate, module, data, verbose=False)[0]["val_loss"]
        assert self.loss(module, data=data) == [pytest.approx(expected, rel=1e-6)]

    def test_it_can_be_sent_after_a_training(self, package, tmp_path):
        module, data = seeded(CLASSES[package][0]), CLASSES[package][1](32, 8)
        collector = SummaryCollector(tmp_path, collect_landscape=EPOCHS)
        callback_fn = evaluator_from(module, data)
        fit(package, collector, module=module, data=data)
        before = found(module)
        sent = pickle.loads(cloudpickle.dumps(callback_fn))
        description = self.measured(sent)
        assert description.num_samples == 32
        assert self.measured(callback_fn).samples_sha256 == description.samples_sha256
        assert self.measured(evaluator_from(lambda: module, data)).samples_sha256 == description.samples_sha256
        assert found(module) == before
        assert data.trainer is not None
        assert "log" not in vars(module)

    def test_a_data_module_that_a_trainer_has_set_up_is_not_set_up_again(self):
        class Once(DataModule):
            def setup(self, stage):
                assert not hasattr(self, "data")
                super().setup(stage)

        data = Once(32, 8)
        trainer = quiet_trainer("lightning", max_epochs=1, enable_checkpointing=False)
        run_quietly(trainer.fit, LitModel(), data)
        assert self.measured(evaluator_from(LitModel, data)).num_samples == 32

    def test_the_step_that_gives_the_loss(self):
        class Silent(LitModel):
            def validation_step(self, batch, batch_idx):
                self.log("val_loss", 1.0)

        class WithoutValidation(LitModel):
            validation_step = lightning.pytorch.LightningModule.validation_step

        class Named(LitModel):
            def validation_step(self, batch, number):
                assert number == 0
                return super().validation_step(batch, number)

        class Alone(LitModel):
            def validation_step(self, batch):
                return super().validation_step(batch, 0)

        class Two(LitModel):
            def validation_step(self, batch, batch_idx, dataloader_idx):
                assert batch_idx == dataloader_idx == 0
                return super().validation_step(batch, 0)

        expected = self.loss(lambda: seeded(LitModel), "validation")
        for kind in (Silent, WithoutValidation, Named, Alone, Two):
            assert self.loss(lambda kind=kind: seeded(kind)) == pytest.approx(expected, rel=1e-6)
        assert self.loss(lambda: seeded(LitModel), "training") == pytest.approx(expected, rel=1e-6)

    def test_metrics_inside_the_module_start_anew(self):
        torchmetrics = pytest.importorskip("torchmetrics")

        class Counting(LitModel):
            def __init__(self):
                super().__init__()
                self.seen = torchmetrics.SumMetric()

            def validation_step(self, batch, batch_idx):
                self.seen(torch.tensor(float(len(batch[0]))))
                assert self.seen.compute() == len(batch[0])
                self.log("seen", self.seen)
                return super().validation_step(batch, batch_idx)

        assert not self.measured(evaluator_from(Counting, DataModule)).partition_dependent

    def test_hooks_for_batches_are_called(self):
        class Scaled(DataModule):
            def on_after_batch_transfer(self, batch, dataloader_idx):
                return batch[0] * 0.5, batch[1]

        class Halved(DataModule):
            def setup(self, stage):
                self.data = TensorDataset(0.5 * features(), classes())

        one, other = (self.loss(lambda: seeded(LitModel), data=data) for data in (Scaled, Halved))
        assert one == pytest.approx(other, rel=1e-6)

    def test_the_modules_own_loaders(self):
        class WithData(LitModel):
            def train_dataloader(self):
                return DataLoader(TensorDataset(features(30), classes(30)), 10)

        assert self.measured(evaluator_from(WithData, data="training")).num_samples == 30
        with pytest.raises(CallbackFunctionError, match=r"WithData has no val_dataloader.*data='training'"):
            evaluator_from(WithData)()

    @pytest.mark.parametrize("names", [None, ("easy", "hard")])
    def test_several_loaders_of_validation_are_data_sets(self, names):
        class Several(DataModule):
            def val_dataloader(self):
                loaders = [DataLoader(TensorDataset(features(count), classes(count)), 8) for count in (16, 24)]
                return loaders if names is None else dict(zip(names, loaders, strict=True))

            def on_after_batch_transfer(self, batch, dataloader_idx):
                return batch[0] * (1 - dataloader_idx / 2), batch[1]

        class Weighed(LitModel):
            def validation_step(self, batch, batch_idx, dataloader_idx=0):
                found = super().validation_step(batch, batch_idx)
                return {**found, "loss": (1 + dataloader_idx) * found["loss"]}

        metrics = {"half": lambda outputs, batch: (batch[1] < 2).float().mean()}
        callback_fn = evaluator_from(lambda: seeded(Weighed), Several, metrics=metrics)
        measured = open_evaluator(callback_fn(), batch_size=None)
        values = measure_plane(measured, own_plane(callback_fn(), measured), np.zeros((1, 2)))
        first, second = names or ("validation_0", "validation_1")
        assert [item.name for item in measured.description.datasets] == [first, second]
        network = seeded(LitModel).eval()
        with torch.no_grad():
            for name, count, scale in (("loss", 16, 1.0), (f"loss@{second}", 24, 0.5)):
                expected = functional.cross_entropy(network(features(count) * scale), classes(count)).item()
                assert values[name][0] == pytest.approx(expected / scale, rel=1e-5)
        assert values["half"][0] == (classes(16) < 2).float().mean()

    def test_a_module_is_set_up_once(self, tmp_path):
        class Late(LitModel):
            def __init__(self):
                super().__init__()
                self.hooks = []

            def prepare_data(self):
                self.hooks.append("prepare_data")

            def setup(self, stage):
                self.hooks.append(stage)

            def configure_model(self):
                if self.hooks[-1] != "configured":
                    self.further = torch.nn.Linear(2, 2)
                    self.hooks.append("configured")

        _, network, _, _ = evaluator_from(Late, DataModule)()
        assert network.hooks == ["prepare_data", "fit", "configured"]
        assert "further.weight" in dict(network.named_parameters())
        module = Late()
        run_quietly(quiet_trainer("lightning", max_epochs=1, enable_checkpointing=False).fit, module, DataModule(32, 8))
        for callback_fn in (
            evaluator_from(module, DataModule),
            pickle.loads(cloudpickle.dumps(evaluator_from(module))),
        ):
            assert callback_fn.module.hooks == module.hooks
            assert callback_fn._has_trained(callback_fn.module)

    def test_a_module_that_asks_for_a_trainer_while_it_is_set_up(self):
        class Asks(LitModel):
            def setup(self, stage):
                self.further = torch.nn.Linear(2, 2)
                self.steps = self.trainer.estimated_stepping_batches

        with pytest.warns(UserWarning, match="Asks.setup asked for a Trainer, which there is none of"):
            _, network, _, _ = evaluator_from(Asks, DataModule)()
        assert "further.weight" in dict(network.named_parameters())

        class Fails(LitModel):
            def setup(self, stage):
                raise RuntimeError("no data")

        with pytest.raises(RuntimeError, match="no data"):
            evaluator_from(Fails, DataModule)()

    def test_from_datasets(self):
        data = lightning.pytorch.LightningDataModule.from_datasets(
            val_dataset=TensorDataset(features(20), classes(20)), batch_size=8
        )
        assert self.measured(evaluator_from(LitModel, data)).num_samples == 20

    def test_what_cannot_be_measured(self):
        class Nothing(LitModel):
            validation_step = lightning.pytorch.LightningModule.validation_step
            training_step = lightning.pytorch.LightningModule.training_step

        class NoLoss(LitModel):
            def validation_step(self, batch, batch_idx):
                return {"logits": self(batch[0])}

        class ByHand(LitModel):
            validation_step = lightning.pytorch.LightningModule.validation_step

            def __init__(self):
                super().__init__()
                self.automatic_optimization = False

        class Several(DataModule):
            def train_dataloader(self):
                return [super().train_dataloader(), super().train_dataloader()]

        class Empty(DataModule):
            def val_dataloader(self):
                return []

        class Colliding(DataModule):
            def val_dataloader(self):
                return {"training": super().val_dataloader(), "other": super().val_dataloader()}

        for arguments, options, text in (
            ((LitModel, Colliding), {"data": BOTH}, r"Colliding\.val_dataloader.* 'training', .* of train_dataload"),
            ((LitModel, Empty), {}, r"Empty returns none from val_dataloader, so there are no validation samples"),
            ((Nothing, DataModule), {}, "Nothing has no training_step, so it has no loss"),
            ((NoLoss, DataModule), {"stage": "validation"}, r"a dictionary of \['logits'\].*stage='training'"),
            ((ByHand, DataModule), {}, "ByHand optimizes manually"),
            ((LitModel, Several), {"data": "training"}, r"must return one data loader, because Lightning puts the b"),
            ((LitModel, dict), {}, "datamodule must return a LightningDataModule or a DataLoader, not dict"),
            ((dict, DataModule), {}, "lightning_module must return a LightningModule, not dict"),
        ):
            with pytest.raises(CallbackFunctionError, match=text):
                self.measured(evaluator_from(*arguments, **options))

    def test_wrong_arguments(self):
        with pytest.raises(TypeError, match=r"lightning_module must be a LightningModule.* but got Linear"):
            evaluator_from(torch.nn.Linear(2, 2), DataModule)
        with pytest.raises(TypeError, match=r"datamodule must be a LightningDataModule .* but got list"):
            evaluator_from(LitModel, [1])
        with pytest.raises(ValueError, match=r"stage must be one of .* but got 'test'"):
            evaluator_from(LitModel, DataModule, stage="test")
        with pytest.raises(ValueError, match=r"data must be one of .* but got 'test'"):
            evaluator_from(LitModel, DataModule, data="test")
        with pytest.raises(ValueError, match="data must name each data loader once"):
            evaluator_from(LitModel, DataModule, data=("training", "training"))
        with pytest.raises(ValueError, match="data must be one name where datamodule is a DataLoader"):
            evaluator_from(LitModel, DataLoader([1]), data=BOTH)

    def test_training_and_validation_in_one_pass(self):
        found = self.measured(evaluator_from(LitModel, DataModule, data=BOTH))
        assert [item.name for item in found.datasets] == list(BOTH)
        for item in found.datasets:
            alone = self.measured(evaluator_from(LitModel, DataModule, data=item.name))
            assert (alone.num_samples, alone.samples_sha256) == (item.num_samples, item.samples_sha256)
        assert "loss@validation" in found.metrics


@imports_twice
def test_only_the_package_that_is_used_is_imported(tmp_path):
    code = """
import importlib, os, sys
import torch, torchmetrics  # what both packages stand on; the rest is imported by two forks

for name, other in (("lightning.pytorch", "pytorch_lightning"), ("pytorch_lightning", "lightning")):
    if not (fork := os.fork()):
        package = importlib.import_module(name)
        from collectors.lightning import SummaryCollector

        collector = SummaryCollector("run", collect_landscape={"unit": "step", "intervals": [[1, 2, 3]]})
        assert isinstance(collector, package.Callback)
        assert other not in sys.modules
        sys.exit()
    assert os.waitpid(fork, 0)[1] == 0, name
"""
    run_script(code, cwd=tmp_path, patience=2 * PATIENCE)


@takes_minutes
def test_the_page(tmp_path):
    (code,) = code_blocks("lightning")
    run_page_block(code, tmp_path / "page")
    assert sorted(path.name for path in (tmp_path / "page" / "run").glob("*.h5")) == ["landscape_0-5_pca.h5"]
