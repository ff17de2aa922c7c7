"""Networks that Accelerate spreads over "cpu" and offloaded parts: the same landscape as if all were in memory."""

import copy
import functools
import hashlib
import sys

import accelerate
import numpy as np
import pytest
import torch
from pages import code_blocks, run_page_block, takes_minutes
from scripts import run_script
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel
from transformers_cases import LENGTH, PADDING, WORDS, pad, sentences
from twin_device import build_twins, load_twins
from worker_cases import ConvNet, classes, images, plane_of, seeded, sentence_loader

from collectors.networks.offloaded_weights import hooks_of
from collectors.networks.readers import describe_network, read_network
from landscape import evaluate, random_plane
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan, Workload

PLAN = MeasurementPlan(12)
POINTS = np.random.default_rng(0).uniform(-1, 1, (6, 2))
DISK = {"transformer.h.1": "disk", "transformer.ln_f": "disk"}
IN_MEMORY = {"transformer.wte": "cpu", "transformer.wpe": "cpu", "transformer.drop": "cpu", "transformer.h.0": "cpu"}
MAPS = {
    "last layers on disk": {**IN_MEMORY, **DISK, "lm_head": "cpu"},
    "tied weights on disk": {**IN_MEMORY, **DISK, "transformer.wte": "disk", "lm_head": "disk"},
    "all on disk": {"": "disk"},
}


class Tied(nn.Module):
    """A small language model, whose head is its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8, padding_idx=0)
        self.middle = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8, bias=False))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.middle(self.embedding(tokens))).transpose(1, 2)


def make_gpt2():
    ends = {"bos_token_id": PADDING, "eos_token_id": PADDING, "pad_token_id": PADDING}
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=8, n_layer=2, n_head=2, **ends))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    seeded(make_gpt2).save_pretrained(folder / "saved")
    return folder


def load(saved, device_map, dtype=torch.float32):
    return GPT2LMHeadModel.from_pretrained(
        saved / "saved", device_map=device_map, offload_folder=saved / "offload", dtype=dtype
    )


def loader():
    return DataLoader(sentences(48), 12, collate_fn=pad)


def measure(built, plane, **setup):
    evaluator = make_evaluator((*built, {}), MeasurementSetup(plan=PLAN, **setup))
    try:
        evaluator.load(*plane)
        return evaluator.measure(POINTS)["loss"], evaluator.description
    finally:
        evaluator.close()


def contents(folder):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("restore_network", [True, False])
@pytest.mark.parametrize("name", MAPS)
def test_the_surface_is_that_of_the_network_in_memory(saved, name, restore_network):
    whole = load(saved, {"": "cpu"})
    plane = plane_of(whole)
    expected, described = measure((None, whole, loader()), plane)
    spread = load(saved, MAPS[name])
    assert any(parameter.is_meta for parameter in spread.parameters())
    files = contents(saved)
    losses, description = measure((None, spread, loader()), plane, restore_network=restore_network)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert description.space == described.space
    assert len(set(losses.round(4))) == len(POINTS)
    assert contents(saved) == files


@pytest.mark.parametrize("name", MAPS)
def test_it_is_described_and_read_as_in_memory_also_after_a_forward_pass_and_ends_as_it_was(saved, name):
    whole, spread = load(saved, {"": "cpu"}), load(saved, MAPS[name])
    batch = pad(sentences(5))
    for _ in range(2):
        assert describe_network(spread) == describe_network(whole)
        expected = read_network(whole)
        for tensor, values in read_network(spread).items():
            np.testing.assert_array_equal(values, expected[tensor])
        with torch.no_grad():
            before = spread.eval()(**batch).logits  # breaks the ties between offloaded weights
        np.testing.assert_array_equal(before, whole.eval()(**batch).logits.detach())
    maps = {name: layer._hf_hook.weights_map for name, layer in spread.named_modules() if hasattr(layer, "_hf_hook")}
    objects = {name: id(tensor) for name, tensor in spread.named_parameters(remove_duplicate=False)}
    measure((None, spread, loader()), plane_of(whole))
    assert all(spread.get_submodule(name)._hf_hook.weights_map is held for name, held in maps.items())
    assert {name: id(tensor) for name, tensor in spread.named_parameters(remove_duplicate=False)} == objects
    with torch.no_grad():
        assert torch.equal(spread(**batch).logits, before)


class Everywhere(dict):
    """What Accelerate remembers of a tied weight whose memory it has freed: here, every address was that one."""

    def __init__(self, weight, device):
        super().__init__()
        self._weights = {device: weight}

    def __contains__(self, address):
        return True

    def __missing__(self, address):
        return self._weights


@pytest.mark.parametrize("restore_network", [True, False])
def test_weights_that_lie_where_a_tied_one_was(saved, restore_network):
    whole = load(saved, {"": "cpu"})
    plane = plane_of(whole)
    expected, _ = measure((None, whole, loader()), plane)
    spread = load(saved, MAPS["last layers on disk"])
    hooks = [hook for _, _, hook in hooks_of(spread)]
    for hook in hooks:
        hook.tied_params_map = Everywhere(spread.transformer.wte.weight, hook.execution_device)
    before = [hook.tied_params_map for hook in hooks]
    losses, _ = measure((None, spread, loader()), plane, restore_network=restore_network)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    if restore_network:
        assert all(hook.tied_params_map is was for hook, was in zip(hooks, before, strict=True))


def test_a_network_in_bfloat16_moves_in_float32(saved):
    whole = load(saved, {"": "cpu"}, torch.bfloat16)
    plane = plane_of(whole)
    expected, _ = measure((None, whole, loader()), plane)
    losses, _ = measure((None, load(saved, MAPS["tied weights on disk"], torch.bfloat16), loader()), plane)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def callback_fn(folder, device_map):
    return None, load(folder, device_map), loader(), {}


@pytest.mark.slow
# Said by JAX where another test of this process has imported it, when Ray starts its processes.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.parametrize("device_ids", [[0], [0, 1]])
def test_a_whole_landscape_in_this_process_and_by_two_workers_of_ray(saved, device_ids, tmp_path):
    plane = random_plane(load(saved, {"": "cpu"}), seed=3)
    options = {"size": 5, "progress": False, "plan": PLAN}
    surfaces = [
        evaluate(
            plane,
            functools.partial(callback_fn, saved, device_map),
            output=tmp_path / f"{number}.h5",
            device_ids=devices,
            **options,
        )
        for number, (device_map, devices) in enumerate([({"": "cpu"}, [0]), (MAPS["tied weights on disk"], device_ids)])
    ]
    np.testing.assert_allclose(surfaces[1].loss, surfaces[0].loss, rtol=1e-6)


@pytest.mark.parametrize("restore_network", [True, False])
def test_weights_offloaded_to_the_host_by_hand(restore_network):
    loss, network, data = nn.CrossEntropyLoss(ignore_index=-100), seeded(Tied), sentence_loader()
    plane = plane_of(network)
    expected, described = measure((loss, network, data), plane)
    state = copy.deepcopy(network.state_dict())
    offloaded = accelerate.cpu_offload(copy.deepcopy(network), execution_device="cpu", state_dict=state)
    values = {name: tensor.clone() for name, tensor in state.items()}
    losses, description = measure((loss, offloaded, data), plane, restore_network=restore_network)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert description.space == described.space
    if restore_network:
        assert all(torch.equal(state[name], value) for name, value in values.items())


def test_ties_of_a_network_that_nobody_but_accelerate_knows(tmp_path):
    loss, network, data = nn.CrossEntropyLoss(ignore_index=-100), seeded(Tied), sentence_loader()
    plane = plane_of(network)
    expected, described = measure((loss, network, data), plane)
    parts = {"embedding": "disk", "middle.0": "cpu", "middle.1": "cpu", "middle.2": "disk", "head": "disk"}
    offloaded = accelerate.dispatch_model(copy.deepcopy(network), parts, offload_dir=tmp_path)
    with torch.no_grad():
        offloaded(data.dataset[0][0][None])
    losses, description = measure((loss, offloaded, data), plane)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert description.space == described.space


def convolutions(tmp_path, offload_buffers):
    parts = {"features": "disk", "dropout": "cpu", "head": "cpu"}
    network = seeded(ConvNet)
    return accelerate.dispatch_model(network, parts, offload_dir=tmp_path, offload_buffers=offload_buffers)


@pytest.mark.parametrize("offload_buffers", [False, True])
@pytest.mark.parametrize("buffers", ["fixed", "recalibrate"])
def test_buffers_of_offloaded_layers(tmp_path, offload_buffers, buffers):
    data = TensorDataset(images(), classes(40, 5))
    options = MeasurementOptions(buffers=buffers)
    network = seeded(ConvNet)
    plane = plane_of(network)
    plane[2]["features.1.running_mean"] += 1  # the origin's, not those that the network came with
    spread = convolutions(tmp_path, offload_buffers)
    if offload_buffers and buffers == "recalibrate":
        with pytest.raises(ValueError, match=r"statistics are offloaded; load the network without offload_buffers"):
            measure((nn.CrossEntropyLoss(), spread, data), plane, options=options)
        return
    expected, _ = measure((nn.CrossEntropyLoss(), network, data), plane, options=options)
    losses, _ = measure((nn.CrossEntropyLoss(), spread, data), plane, options=options)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def test_it_is_not_compiled(saved):
    spread = load(saved, MAPS["last layers on disk"])
    setup = MeasurementSetup(workload=Workload(True, 100))
    with pytest.warns(UserWarning, match="runs eagerly: it is spread over devices, or hooks of Accelerate run it"):
        evaluator = make_evaluator((None, spread, loader(), {}), setup)
    evaluator.close()
    assert not evaluator.description.plan.compile


def test_hooks_that_replace_weights_are_refused(saved):
    network = load(saved, {"": "cpu"})
    accelerate.big_modeling.attach_layerwise_casting_hooks(network, torch.bfloat16, torch.float32)
    with pytest.raises(CallbackFunctionError, match=r"replaces its weights while it computes .* hooks of|Remove the"):
        make_evaluator((None, network, loader(), {}), MeasurementSetup(plan=PLAN))


def test_weights_without_values(saved):
    network = load(saved, MAPS["all on disk"])
    for layer in network.modules():
        accelerate.hooks.remove_hook_from_module(layer)
    with torch.device("meta"):
        other = make_gpt2()
    text = r"network's 'transformer.wte.weight' is on the meta device and has no values; load the weights first"
    for bare in (network, other):
        with pytest.raises(TypeError, match=text):
            make_evaluator((None, bare, loader(), {}), MeasurementSetup(plan=PLAN))


FIRST = {"transformer.wte": "twin:0", "transformer.wpe": "twin:0", "transformer.drop": "twin:0", "lm_head": "twin:0"}
ON_TWO = {**FIRST, "transformer.h.0": "twin:0", "transformer.h.1": "twin:1", "transformer.ln_f": "twin:1"}
MAPS_OVER_TWO = (
    ON_TWO,
    {**ON_TWO, "transformer.h.0": "cpu", "transformer.ln_f": "disk"},
    {**ON_TWO, "transformer.wte": "cpu", "lm_head": "cpu", "transformer.h.1": "disk"},
    {**ON_TWO, "transformer.wte": "disk", "lm_head": "disk", "transformer.h.1": "cpu"},
    {"transformer": "cpu", "lm_head": "twin:1"},
)


def check_over_two_devices(library, folder):
    """Runs in a process of its own: see twin_device.py."""
    load_twins(library)
    whole = seeded(make_gpt2)
    plane = plane_of(whole)
    expected, described = measure((None, whole, loader()), plane)
    for number, device_map in enumerate(MAPS_OVER_TWO):
        spread = accelerate.dispatch_model(seeded(make_gpt2), device_map, offload_dir=f"{folder}/{number}")
        setup = {"device": "twin:0", "devices": ("twin:0", "twin:1")}
        losses, description = measure((None, spread, loader()), plane, **setup)
        np.testing.assert_allclose(losses, expected, rtol=1e-6, err_msg=str(device_map))
        assert description.space == described.space
        assert description.device == "twin"
        print(device_map, sorted({str(parameter.device) for parameter in spread.parameters()}))


@pytest.mark.slow
def test_over_two_devices_the_host_and_the_disk(tmp_path):
    script = "import sys; sys.path[:0] = sys.argv[3:]; import test_transformers_device_map as test; "
    script += "test.check_over_two_devices(*sys.argv[1:3])"
    printed = run_script(script, build_twins(tmp_path), tmp_path, *sys.path)
    assert printed.count("twin:1") >= len(MAPS_OVER_TWO)


@takes_minutes
@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_the_page(number, tmp_path):
    run_page_block(code_blocks("several_devices")[number], tmp_path / "page")
    assert (tmp_path / "page" / "landscape.png").is_file() == (number == 0)
