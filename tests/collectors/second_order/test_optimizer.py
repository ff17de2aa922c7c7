import copy
import math
import pickle

import numpy as np
import pytest
import torch
from thor_networks import assert_same_bits, batches, differentiate, mixed, train, weights
from torch import nn

from collectors import ConvertNetUtils, thor
from collectors.second_order.optimizer import Thor

LAYERS = {"conv", "first", "words", "last"}


def build(network=None, learning_rate=0.01, damping=0.02, momentum=0.9, frequency=2, **settings):
    network = mixed() if network is None else network
    return network, thor(network, learning_rate, damping, momentum, frequency=frequency, **settings)


def dense_update(layer, rows, gradients, gradient, damping, positions=1, split=10**9):
    """The textbook: dense matrices in float64, by NumPy, of samples' own gradients."""

    def inverse(matrix):
        whole = math.sqrt(positions) * matrix + math.sqrt(damping) * np.eye(len(matrix))
        parts = np.zeros_like(whole)
        for first in range(0, len(matrix), split):
            piece = slice(first, first + split)
            parts[piece, piece] = np.linalg.inv(whole[piece, piece])
        return parts

    rows, gradients = rows.double().numpy(), gradients.double().numpy()
    a, g = rows.T @ rows / len(rows), gradients.T @ gradients / len(gradients)
    return inverse(g) @ gradient.double().flatten(1).numpy() @ inverse(a)


@pytest.mark.parametrize("split", [1, 3, 128])
@pytest.mark.parametrize("steps", [1, 3])
def test_one_linear_layer_moves_as_the_dense_inverse_says(split, steps):
    torch.manual_seed(1)
    layer = nn.Linear(7, 5).double()
    inputs, targets = torch.randn(20, 7, dtype=torch.float64), torch.randn(20, 5, dtype=torch.float64)
    optimizer = thor(layer, 0.1, 0.3, 0.5, frequency=2, split_dim=split)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    moment, bias_moment = np.zeros((5, 7)), np.zeros(5)
    kept = None
    for step in range(steps):
        residuals = inputs @ weight.T + bias - targets
        gradient, bias_gradient = 2 * residuals.T @ inputs / 20, 2 * residuals.mean(0)
        if step % 2 == 0:
            kept = 2 * residuals, inputs
        update = dense_update(layer, kept[1], kept[0], gradient, 0.3, split=split)
        moment, bias_moment = 0.5 * moment + update, 0.5 * bias_moment + bias_gradient.numpy()
        weight, bias = weight - 0.1 * torch.from_numpy(moment), bias - 0.1 * torch.from_numpy(bias_moment)
        optimizer.zero_grad()
        (layer(inputs) - targets).square().sum(1).mean().backward()
        optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(layer.bias.detach(), bias, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"padding": 2, "stride": 2},
        {"padding": "same", "kernel_size": (3, 5)},
        {"padding": 1, "padding_mode": "circular", "dilation": (1, 2), "kernel_size": (3, 2)},
    ],
    ids=["valid", "padded", "same", "circular"],
)
def test_a_convolution_is_a_linear_layer_on_its_patches(settings):
    torch.manual_seed(2)
    layer = nn.Conv2d(2, 3, **{"kernel_size": 3, **settings}).double()
    optimizer = thor(layer, 0.1, 0.05, 0.0, frequency=2)
    inputs = torch.randn(6, 2, 9, 8, dtype=torch.float64)
    before = layer.weight.detach().clone()
    outputs = layer(inputs)
    (gradient,) = torch.autograd.grad(outputs.square().sum() / 6, outputs)
    optimizer.zero_grad()
    layer(inputs).square().sum().div(6).backward()
    # The oracle's patches: one weight at a time, what the layer sees through it.
    probe = copy.deepcopy(layer)
    patches = []
    with torch.no_grad():
        probe.bias.zero_()
        for index in range(before[0].numel()):
            probe.weight.zero_()
            probe.weight[0].view(-1)[index] = 1.0
            patches.append(probe(inputs)[:, 0].flatten())
    rows = torch.stack(patches, 1)
    per_sample = (gradient * 6).flatten(2).transpose(1, 2).flatten(0, 1)
    expected = dense_update(layer, rows, per_sample, layer.weight.grad, 0.05, positions=len(rows) / 6)
    optimizer.step()
    torch.testing.assert_close(
        (before - layer.weight.detach()).flatten(1), torch.from_numpy(0.1 * expected), rtol=1e-9, atol=1e-12
    )


def test_embeddings_norms_and_biases_have_their_own_rules():
    network, optimizer = build(mixed(dtype=torch.float64), learning_rate=1.0, momentum=0.0, damping=0.04)
    (batch,) = batches(1, dtype=torch.float64)
    before = weights(network)
    caught = []
    network.words.register_forward_hook(lambda *args: (args[2].register_hook(caught.append), None)[1])
    differentiate(network, optimizer, batch)
    gradients = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    optimizer.step()
    moved = {name: before[name] - value for name, value in network.state_dict().items()}
    for name in ("conv.bias", "first.bias", "last.bias"):
        torch.testing.assert_close(moved[name], gradients[name])
    for name in ("norm.weight", "norm.bias"):
        torch.testing.assert_close(moved[name], gradients[name] / (gradients[name] ** 2 / 16 + 0.2))
    shares = torch.bincount(batch[0][1], minlength=9).double() / 16
    g = (16 * caught[0]).T @ (16 * caught[0]) / 16 + 0.2 * torch.eye(12, dtype=torch.float64)
    torch.testing.assert_close(
        moved["words.weight"], gradients["words.weight"] / (shares + 0.2)[:, None] @ torch.linalg.inv(g)
    )


def test_weight_decay_clipping_and_nesterov_follow_the_preconditioning():
    plain, optimizer = build(learning_rate=1.0, momentum=0.0)
    (batch,) = batches(1)
    before = weights(plain)
    train(plain, optimizer, [batch])
    updates = {name: before[name] - value for name, value in plain.state_dict().items()}
    network, optimizer = build(
        learning_rate=0.5,
        momentum=0.75,
        weight_decay=0.1,
        enable_clip_grad=True,
        use_nesterov=True,
        decay_filter=lambda parameter: parameter.name.endswith("weight") and len(parameter.shape) > 1,
    )
    train(network, optimizer, [batch])
    for name, value in network.state_dict().items():
        update = updates[name] + (0.1 * before[name] if before[name].dim() > 1 else 0)
        update = update / max(1.0, float(update.detach().norm()))
        # Nesterov's first step: g + m v with v = g.
        torch.testing.assert_close(before[name] - value, 0.5 * 1.75 * update, rtol=1e-4, atol=1e-6)


def test_micro_batches_record_the_factors_of_the_whole_batch():
    (batch,) = batches(1, size=12)
    network, optimizer = build(frequency=4)
    differentiate(network, optimizer, batch)
    whole = optimizer.factors()
    assert set(whole) == LAYERS
    parted, optimizer = build(frequency=4)
    for part in (slice(0, 4), slice(4, 8), slice(8, 12)):
        outputs = parted(batch[0][0][part], batch[0][1][part])
        (nn.functional.cross_entropy(outputs, batch[1][part]) / 3).backward()
    torch.testing.assert_close(optimizer.factors(), whole, rtol=1e-4, atol=1e-6)


def test_a_layer_that_is_called_twice_sees_each_sample_twice():
    layer = nn.Linear(4, 4).double()
    network = nn.Sequential(layer, nn.Tanh(), layer)
    optimizer = thor(network, 0.1, 0.1, 0.9, frequency=2)
    network(torch.randn(5, 4, dtype=torch.float64)).square().sum().backward()
    state = optimizer.state[layer.weight]
    assert state["recorded_sums"] == [10.0, 10.0, 5.0, 2.0]


def test_passes_without_gradients_and_checkpointed_ones_do_not_count():
    network, optimizer = build()
    (batch,) = batches(1)
    differentiate(network, optimizer, batch)
    expected = optimizer.factors()
    with torch.no_grad():
        network(*batch[0])
    network(*batch[0])
    copy.deepcopy(network)(*batch[0]).sum().backward()
    torch.testing.assert_close(optimizer.factors(), expected, rtol=0, atol=0)
    optimizer.zero_grad()
    outputs = torch.utils.checkpoint.checkpoint(network, *batch[0], use_reentrant=False)
    nn.functional.cross_entropy(outputs, batch[1]).backward()
    torch.testing.assert_close(optimizer.factors(), expected)


def test_the_network_stays_as_it_is():
    network = mixed()
    keys, modules = list(network.state_dict()), [type(module) for module in network.modules()]
    _, optimizer = build(network)
    thor(network, 0.1, 0.1, 0.9)
    ConvertNetUtils().convert_to_thor_net(network)
    assert list(network.state_dict()) == keys
    assert [type(module) for module in network.modules()] == modules
    assert all(len(layer._forward_hooks) == 1 for layer in optimizer._recorders.layers.values())
    assert list(pickle.loads(pickle.dumps(network)).state_dict()) == keys


def test_a_closure_is_called_once_each_step():
    network, optimizer = build()
    train(network, optimizer, batches(4))
    other, optimizer = build()
    losses = [optimizer.step(lambda batch=batch: differentiate(other, optimizer, batch)) for batch in batches(4)]
    assert_same_bits(other, network)
    assert all(isinstance(loss, float) for loss in losses)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # PyTorch's compiler looks
@pytest.mark.parametrize("wrapped_first", [True, False])
def test_a_compiled_network_moves_as_it_would_without(wrapped_first):
    torch._dynamo.reset()
    network, optimizer = build()
    train(network, optimizer, batches(4))
    other = mixed()
    compiled = torch.compile(other, backend="aot_eager")
    train(compiled, build(compiled if wrapped_first else other)[1], batches(4))
    torch.testing.assert_close(other.state_dict(), network.state_dict())


@pytest.mark.parametrize("done", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loaded_state_goes_on_bit_for_bit(done, dtype):
    data = [((image.to(dtype), word), target) for (image, word), target in batches(6)]
    network, optimizer = build(mixed(dtype=dtype), frequency=3)
    train(network, optimizer, data[:done])
    saved, state = weights(network), copy.deepcopy(optimizer.state_dict())
    train(network, optimizer, data[done:])
    other, resumed = build(mixed(seed=9, dtype=dtype), frequency=3)
    other.load_state_dict(saved)
    resumed.load_state_dict(state)
    assert_same_bits(train(other, resumed, data[done:]), network)


def test_a_begun_step_goes_on_bit_for_bit():
    data = batches(4)
    network, optimizer = build()
    differentiate(network, optimizer, data[0])
    state, gradients = copy.deepcopy(optimizer.state_dict()), [p.grad.clone() for p in network.parameters()]
    other, resumed = build()
    resumed.load_state_dict(state)
    for parameter, gradient in zip(other.parameters(), gradients, strict=True):
        parameter.grad = gradient
    for each, mine in ((network, optimizer), (other, resumed)):
        nn.functional.cross_entropy(each(*data[1][0]), data[1][1]).backward()
        mine.step()
        train(each, mine, data[2:])
    assert_same_bits(other, network)


def test_learning_rate_and_damping_by_step():
    data = batches(4)
    by_function, optimizer = build(
        learning_rate=lambda step: [0.1, 0.05][min(step, 1)], damping=lambda step: 0.1 + step
    )
    train(by_function, optimizer, data)
    by_sequence, optimizer = build(learning_rate=torch.tensor([0.1, 0.05]), damping=[0.1, 1.1, 2.1, 3.1])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    train(by_sequence, optimizer, data)
    torch.testing.assert_close(by_function.state_dict(), by_sequence.state_dict())
    scheduled, optimizer = build(learning_rate=0.1, damping=[0.1, 1.1, 2.1, 3.1])
    train(scheduled, optimizer, data[:1])
    optimizer.param_groups[0]["lr"] = 0.05
    train(scheduled, optimizer, data[1:])
    torch.testing.assert_close(by_function.state_dict(), scheduled.state_dict())


@pytest.mark.parametrize("way", ["number", "scaler"])
def test_a_scaled_loss_changes_nothing(way):
    data = batches(3)
    network, optimizer = build()
    train(network, optimizer, data)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    scaled, optimizer = build(loss_scale=128.0 if way == "number" else scaler)
    for batch in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(scaled(*batch[0]), batch[1])
        if way == "number":
            (loss * 128).backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    torch.testing.assert_close(scaled.state_dict(), network.state_dict(), rtol=1e-5, atol=1e-6)


def test_a_loss_that_adds_is_a_batch_of_one():
    data = batches(3)
    mean, optimizer = build(momentum=0.0)
    differentiate(mean, optimizer, data[0])
    expected = optimizer.factors()
    adding, optimizer = build(batch_size=1)
    nn.functional.cross_entropy(adding(*data[0][0]), data[0][1], reduction="sum").backward()
    torch.testing.assert_close(optimizer.factors(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("given", [{}, {"batch_size": 6}])
def test_a_model_whose_loss_adds_changes_nothing_for_a_later_one(given):
    data = batches(3)
    fresh, optimizer = build(momentum=0.0, **given)
    differentiate(fresh, optimizer, data[0])
    expected = optimizer.factors()
    network, optimizer = build(momentum=0.0, **given)
    for loss_is_sum in (True, False):
        optimizer.watch_loss(torch.amp.GradScaler(enabled=False), loss_is_sum)
    differentiate(network, optimizer, data[0])
    torch.testing.assert_close(optimizer.factors(), expected)


class Odd(nn.Module):
    """Attention uses its output layer's weight without calling it; a grouped convolution has no factors here."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.grouped = nn.Conv1d(8, 8, 1, groups=2)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = self.attention(x, x, x, need_weights=False)[0]
        return self.last(self.grouped(x.transpose(1, 2)).mean(2))


def test_layers_that_record_nothing_keep_their_gradient_and_are_named_once():
    network = Odd()
    optimizer = thor(network, 0.1, 0.1, 0.0, frequency=2)
    before = network.attention.out_proj.weight.detach().clone()
    network(torch.randn(4, 5, 8)).square().mean().backward()
    with pytest.warns(UserWarning, match=r"plain gradients of \['attention.in_proj_weight', .*out_proj.*'grouped.wei"):
        optimizer.step()
    torch.testing.assert_close(before - 0.1 * network.attention.out_proj.weight.grad, network.attention.out_proj.weight)
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.randn(4, 5, 8)).square().mean().backward()
        optimizer.step()


def test_shared_weights_keep_their_gradient():
    network = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    network[1].weight = network[0].weight
    optimizer = thor(network, 0.1, 0.1, 0.9)
    assert not optimizer._recorders.layers


def test_factors_that_are_not_finite_leave_the_old_ones():
    network, optimizer = build()
    data = batches(4)
    train(network, optimizer, data[:2])
    kept = optimizer.state[network.first.weight]["a_inverse"].clone()
    differentiate(network, optimizer, data[2])
    optimizer.state[network.first.weight]["recorded_a"][0, 0, 0] = torch.nan
    text = r"at step 2 factors cannot be inverted: the not finite A of first.weight. The inverses of an earlier"
    with pytest.warns(UserWarning, match=text):
        optimizer.step()
    assert torch.equal(optimizer.state[network.first.weight]["a_inverse"], kept)
    train(network, optimizer, data[3:])
    differentiate(network, optimizer, data[0])
    optimizer.state[network.first.weight]["recorded_a"][0, 0, 0] = torch.nan
    # Said once: warnings are errors here.
    optimizer.step()


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"frequency": 1}, ValueError, "frequency must be an int of at least 2, but got 1"),
        ({"frequency": 2.0}, TypeError, "frequency must be an int"),
        ({"momentum": -0.1}, ValueError, "momentum must be a finite number of at least 0.0, but got -0.1"),
        ({"damping": 0.0}, ValueError, "damping must be more than 0, but got 0.0"),
        ({"damping": [0.1, -1]}, ValueError, r"damping\[1\] must be a finite number of at least 0.0"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate must be a number, a sequence or one-dimensional tensor"),
        ({"learning_rate": []}, ValueError, "learning_rate must be a sequence with at least one number"),
        ({"learning_rate": torch.ones(2, 2)}, ValueError, "learning_rate must be a number, a sequence"),
        ({"loss_scale": 0}, ValueError, "loss_scale must be a finite number"),
        ({"batch_size": 0}, ValueError, "batch_size must be an int of at least 1"),
        ({"use_nesterov": 1}, TypeError, "use_nesterov must be a bool"),
        ({"decay_filter": True}, TypeError, "decay_filter must be a function"),
        ({"split_indices": [2, 1]}, ValueError, "split_indices must be indices that grow"),
        ({"split_indices": [4]}, ValueError, r"split_indices\[0\] must be an int from 0 to 3"),
        ({"split_dim": 0}, ValueError, "split_dim must be an int of at least 1"),
        ({"factors": "gpu"}, ValueError, "factors must be one of 'samples', 'mindspore_gpu'"),
    ],
)
def test_wrong_arguments(settings, error, text):
    with pytest.raises(error, match=text):
        build(**settings)


def test_what_it_refuses():
    cell = type("Cell", (), {"__module__": "mindspore.nn.cell"})
    for net, text in (
        (3, "net must be a torch.nn.Module, but got int"),
        (cell(), r"a network of MindSpore. MindSpore trains it with .* mindspore.nn.thor"),
    ):
        with pytest.raises(TypeError, match=text):
            thor(net, 0.1, 0.1, 0.9)
    with pytest.raises(ValueError, match="net must have a parameter that requires gradients"):
        thor(nn.Linear(2, 2).requires_grad_(False), 0.1, 0.1, 0.9)
    network, optimizer = build()
    data = batches(2)
    with pytest.raises(RuntimeError, match="step\\(\\) needs gradients, but no parameter has one"):
        optimizer.step()
    with pytest.raises(RuntimeError, match="no factors are recorded"):
        optimizer.factors()
    with pytest.raises(ValueError, match="Thor has the parameters of its network and takes no others"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(RuntimeError, match="no layer has recorded anything, though this step refreshes"):
        optimizer.step()
    with pytest.raises(ValueError, match="factors='samples', but this one has 'mindspore_gpu'"):
        build(factors="mindspore_gpu")[1].load_state_dict(optimizer.state_dict())
    newer = Thor(network, 0.1, 0.1, 0.9)
    differentiate(network, newer, data[0])
    with pytest.raises(RuntimeError, match="the network has a newer Thor"):
        optimizer.step()
    sparse = nn.Sequential(nn.Embedding(4, 3, sparse=True), nn.Linear(3, 2))
    optimizer = thor(sparse, 0.1, 0.1, 0.9)
    sparse(torch.tensor([0, 2])).sum().backward()
    with pytest.raises(RuntimeError, match=r"no sparse gradients, but \['0.weight'\]"):
        optimizer.step()
