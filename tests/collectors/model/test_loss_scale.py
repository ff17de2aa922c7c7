"""Scaled losses, and what computes in which precision."""

import pytest
import torch
from torch import nn

from collectors import CheckpointConfig, FixedLossScaleManager, LambdaCallback, Model, ModelCheckpoint
from collectors.model.loss_scale import DynamicLossScaleManager
from collectors.model_checkpoint.checkpoint_file import latest_checkpoint


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))


def data(steps=4):
    torch.manual_seed(1)
    return [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(steps)]


def model_of(net=None, loss_fn=None, **settings):
    net = net or network()
    return Model(net, loss_fn or nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), 0.1), **settings)


def train(loss_fn=None, batches=None, **settings):
    model = model_of(None, loss_fn, **settings)
    model.train(1, batches or data())
    return model


@pytest.mark.parametrize(
    "manager",
    [
        lambda: FixedLossScaleManager(128),
        lambda: FixedLossScaleManager(128, drop_overflow_update=False),
        lambda: DynamicLossScaleManager(1024, 2, 2),
        lambda: torch.amp.GradScaler("cpu", init_scale=512.0),
    ],
    ids=["fixed", "fixed, not dropping", "dynamic", "GradScaler"],
)
def test_a_scale_that_is_a_power_of_two_leaves_every_bit(manager):
    plain, scaled = train(), train(loss_scale_manager=manager())
    torch.testing.assert_close(scaled.network.state_dict(), plain.network.state_dict(), rtol=0, atol=0)


class Overflowing(nn.Module):
    """A loss whose second batch has infinite gradients."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, outputs, targets):
        self.calls += 1
        loss = nn.functional.cross_entropy(outputs, targets)
        return loss * torch.inf if self.calls == 2 else loss


@pytest.mark.parametrize("drops", [True, False])
def test_a_fixed_scale_stays_and_drops_overflows_if_asked(drops):
    model = train(Overflowing(), loss_scale_manager=FixedLossScaleManager(64, drop_overflow_update=drops))
    assert model._scaler.get_scale() == 64
    assert bool(torch.isfinite(model.network[0].weight).all()) == drops


def test_a_dynamic_scale_grows_and_shrinks():
    manager = DynamicLossScaleManager(64, 4, 2)
    assert (manager.get_loss_scale(), manager.get_drop_overflow_update()) == (64, True)
    assert train(loss_scale_manager=manager)._scaler.get_scale() == 64 * 4 * 4
    assert train(Overflowing(), data(2), loss_scale_manager=manager)._scaler.get_scale() == 16


def test_a_resumed_training_goes_on_with_the_scale_that_it_had(tmp_path):
    saving = ModelCheckpoint("run", tmp_path, CheckpointConfig(save_checkpoint_steps=3, training_state=True))
    settings = {"loss_scale_manager": DynamicLossScaleManager(64, 4, 2)}
    model_of(**settings).train(1, data(3), saving)
    resumed = model_of(**settings)
    scales = []
    watching = LambdaCallback(on_train_step_begin=lambda _: scales.append(resumed._scaler.get_scale()))
    resumed.train(2, data(3), watching, resume_from=latest_checkpoint(tmp_path, "run"))
    # Grown after steps 2, 4 and 6.
    assert scales == [256, 1024, 1024]
    assert resumed._scaler.get_scale() == 4096


@pytest.mark.parametrize(
    ("level", "kept", "expected"),
    [
        ("O0", None, "float32"),
        ("O2", None, "float32"),
        ("O2", False, "bfloat16"),
        ("O3", None, "bfloat16"),
        ("O3", True, "float32"),
        ("auto", None, "float32"),
    ],
)
def test_batch_norm_computes_in_the_precision_that_is_asked_for(level, kept, expected):
    seen = []
    net = network()
    net[1].register_forward_hook(lambda module, inputs, outputs: seen.append(outputs.dtype))
    model = model_of(net, amp_level=level, keep_batchnorm_fp32=kept)
    model.train(1, data(1))
    model.predict(data(1)[0][0])
    assert [str(dtype).removeprefix("torch.") for dtype in seen] == [expected] * 2
    assert not net[1]._forward_pre_hooks


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: train(loss_scale_manager=128), TypeError, "loss_scale_manager must be a FixedLossScaleManager"),
        (lambda: train(keep_batchnorm_fp32=1), TypeError, "keep_batchnorm_fp32 must be a bool"),
        (lambda: FixedLossScaleManager(0), ValueError, r"loss_scale must be a finite number of at least 1.0"),
        (lambda: FixedLossScaleManager(2, 1), TypeError, "drop_overflow_update must be a bool"),
        (lambda: DynamicLossScaleManager(scale_window=0), ValueError, "scale_window must be an int of at least 1"),
        (lambda: DynamicLossScaleManager(scale_factor=1), ValueError, "scale_factor must be a finite number"),
    ],
)
def test_wrong_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()
