import copy

import pytest
import torch
from thor_networks import Refreshes, assert_same_bits, batches, mixed
from torch import nn

from collectors import (
    CheckpointConfig,
    ConvertModelUtils,
    FixedLossScaleManager,
    LambdaCallback,
    Model,
    ModelCheckpoint,
    thor,
)
from collectors.model_checkpoint.checkpoint_file import latest_checkpoint
from collectors.second_order.conversion import ModelThor


def build(network=None, frequency=4, loss_fn=None, **settings):
    network = mixed() if network is None else network
    optimizer = thor(network, 0.01, 0.02, 0.9, frequency=frequency)
    return ModelThor(network, nn.CrossEntropyLoss() if loss_fn is None else loss_fn, optimizer, **settings)


def lenet(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def test_the_example_of_mindspores_documentation_with_torch_names():
    net = lenet()
    dataset = [(torch.rand(8, 1, 32, 32), torch.randint(0, 10, (8,))) for _ in range(5)]
    temp = torch.tensor([4e-4, 1e-4, 1e-5, 1e-5])
    opt = thor(net, learning_rate=temp, damping=temp, momentum=0.9, loss_scale=128, frequency=4)
    settings = {"loss_fn": nn.CrossEntropyLoss(), "optimizer": opt, "metrics": {"acc"}, "amp_level": "O2"}
    settings["loss_scale_manager"] = FixedLossScaleManager(128, drop_overflow_update=False)
    settings["keep_batchnorm_fp32"] = False
    model = Model(net, **settings)
    model = ConvertModelUtils.convert_to_thor_model(model=model, network=net, **settings)
    steps = []
    model.train(2, dataset, callbacks=LambdaCallback(on_train_step_end=lambda context: steps.append(1)))
    assert isinstance(model, ModelThor)
    assert len(steps) == 10
    assert opt.param_groups[0]["step"] == 10
    assert opt.param_groups[0]["lr"] == pytest.approx(1e-5)
    assert 0 <= model.eval(dataset)["acc"] <= 1


@pytest.mark.parametrize("kept", [False, True, None])
@pytest.mark.parametrize("level", ["O0", "O2", "O3", "auto"])
def test_every_level_of_mixed_precision_learns(level, kept):
    network = mixed()
    loss = nn.CrossEntropyLoss()
    model = ConvertModelUtils.convert_to_thor_model(
        Model(network, loss, thor(network, 0.02, 0.05, 0.9, frequency=2)),
        network,
        loss,
        optimizer := thor(network, 0.02, 0.05, 0.9, frequency=2),
        amp_level=level,
        loss_scale_manager=FixedLossScaleManager(64, drop_overflow_update=False),
        keep_batchnorm_fp32=kept,
    )
    (batch,) = batches(1)
    before = loss(network(*batch[0]), batch[1]).item()
    model.train(12, [batch])
    assert optimizer.param_groups[0]["step"] == 12
    assert loss(network(*batch[0]), batch[1]).item() < before - 0.2


def test_another_optimizer_leaves_the_model_as_it_is():
    network = lenet()
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), 0.1))
    assert ConvertModelUtils.convert_to_thor_model(model, network, optimizer=model.optimizer) is model


def test_the_converted_model_keeps_what_the_signature_lacks():
    network = mixed()
    optimizer = thor(network, 0.01, 0.02, 0.9, frequency=2)
    model = Model(network, nn.CrossEntropyLoss(), optimizer, gradient_accumulation_steps=2)
    converted = ConvertModelUtils.convert_to_thor_model(model, network, nn.CrossEntropyLoss(), optimizer)
    converted.train(1, batches(4))
    assert optimizer.param_groups[0]["step"] == 2


@pytest.mark.parametrize("frequency", [2, 4, 100])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_frequency_counts_optimizer_steps_over_epochs_and_groups(frequency, accumulation):
    model, seen = build(frequency=frequency, gradient_accumulation_steps=accumulation, metrics={"acc"}), []
    refreshes = Refreshes(model.optimizer, model.network.first.weight)
    evaluated = LambdaCallback(on_train_epoch_end=lambda context: seen.append(list(context.original_args().metrics)))
    callbacks = [LambdaCallback(on_train_step_end=refreshes.look), evaluated]
    model.fit(3, batches(4), batches(1, seed=4), callbacks=callbacks)
    assert seen == [["acc"]] * 3
    assert refreshes.steps == list(range(0, 12 // accumulation, frequency))
    assert model.optimizer.get_frequency() == frequency


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_batches_of_one_optimizer_step_are_one_batch_also_where_the_last_is_small(loss):
    (whole,) = batches(1, size=10)
    parts = [((whole[0][0][part], whole[0][1][part]), whole[1][part]) for part in (slice(0, 8), slice(8, 10))]
    at_once, in_parts = (
        build(loss_fn=nn.CrossEntropyLoss(reduction=loss), frequency=2, gradient_accumulation_steps=steps)
        for steps in (1, 2)
    )
    at_once.train(1, [whole])
    in_parts.train(1, parts)
    torch.testing.assert_close(in_parts.network.state_dict(), at_once.network.state_dict(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("killed_after", [3, 5, 8])
def test_a_killed_training_resumes_and_ends_bit_for_bit_alike(tmp_path, killed_after, accumulation):
    """In pairs, batch 3 has gradients that wait between two refreshes, batch 8 such that the next refresh uses."""
    data = batches(5)
    straight = build(gradient_accumulation_steps=accumulation)
    straight.train(2, data)

    def kill(context):
        if context.original_args().cur_step_num == killed_after:
            raise KeyboardInterrupt

    killed = build(gradient_accumulation_steps=accumulation)
    saving = ModelCheckpoint("run", tmp_path, CheckpointConfig(save_checkpoint_steps=1, training_state=True))
    with pytest.raises(KeyboardInterrupt):
        killed.train(2, data, callbacks=[saving, LambdaCallback(on_train_step_end=kill)])
    resumed = build(mixed(seed=7), gradient_accumulation_steps=accumulation)
    resumed.train(2, data, resume_from=latest_checkpoint(tmp_path, "run"))
    assert_same_bits(resumed.network, straight.network)


def test_what_model_thor_refuses():
    network = mixed()
    with pytest.raises(TypeError, match="optimizer must be a Thor"):
        ModelThor(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), 0.1))
    with pytest.raises(ValueError, match="optimizer must be of the network that is trained"):
        ModelThor(network, nn.CrossEntropyLoss(), thor(copy.deepcopy(network), 0.1, 0.1, 0.9))
    with pytest.raises(TypeError, match="model must be a Model"):
        ConvertModelUtils.convert_to_thor_model(network, network)
