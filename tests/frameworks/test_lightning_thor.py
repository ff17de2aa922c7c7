"""THOR in Lightning, which evaluates the loss in a closure that it gives to the optimizer's step."""

import pytest
import torch
from lightning_cases import CLASSES, PACKAGES, quiet_trainer, run_quietly
from torch.nn import functional
from worker_cases import seeded

from collectors import thor


def with_thor(package):
    lit_model, _ = CLASSES[package]

    class WithThor(lit_model):
        def configure_optimizers(self):
            return thor(self, 0.02, 0.05, 0.9, frequency=3)

    return seeded(WithThor)


def fit(package, epochs, module=None, ckpt_path=None, **options):
    _, data_module = CLASSES[package]
    trainer = quiet_trainer(package, max_epochs=epochs, enable_checkpointing=False, **options)
    module = module or with_thor(package)
    run_quietly(trainer.fit, module, data_module(32, 8), ckpt_path=ckpt_path)
    return trainer, module


@pytest.mark.parametrize("package", PACKAGES)
def test_lightning_trains_and_resumes_as_a_loop_of_ones_own(package, tmp_path):
    _, trained = fit(package, 3)
    own, data = with_thor(package), CLASSES[package][1](32, 8)
    data.setup("fit")
    optimizer = own.configure_optimizers()
    for _ in range(3):
        for inputs, targets in data.train_dataloader():
            optimizer.zero_grad()
            functional.cross_entropy(own(inputs), targets).backward()
            optimizer.step()
    first, _ = fit(package, 1)
    first.save_checkpoint(tmp_path / "first.ckpt")
    _, resumed = fit(package, 3, ckpt_path=tmp_path / "first.ckpt")
    for name, value in own.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[name], value, msg=name)
        torch.testing.assert_close(resumed.state_dict()[name], value, msg=name)
