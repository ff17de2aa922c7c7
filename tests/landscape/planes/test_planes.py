import json

import ml_dtypes
import numpy as np
import pytest
import torch
from least_squares import flat, least_squares
from runs import SmallNetwork, batches, seeded
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from collectors.errors import CheckpointError, LandscapeError
from collectors.networks.readers import describe_network, read_network
from collectors.weights.safetensors_file import CheckpointFile, MemoryState, write_checkpoint
from landscape import evaluate
from landscape.errors import PlaneError
from landscape.planes import custom_plane, line_between, pca_plane, plane_through, random_line, random_plane
from landscape.planes.directions import random_direction
from landscape.planes.from_checkpoints import plane_of_runs, random_plane_of
from landscape.planes.networks import checkpoints_of_run, columns_of
from landscape.planes.pca import principal_directions


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(2, 20, 3)
        self.normalization = nn.BatchNorm2d(20)
        self.head = nn.Linear(60, 30)
        self.tied = nn.Linear(60, 30, bias=False)
        self.tied.weight = self.head.weight
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)


def build(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return Network().to(dtype)


def same(one, two):
    for part in ("directions", "origin", "buffers"):
        np.testing.assert_equal(getattr(one, part), getattr(two, part))


# --- every form a set of weights may have ---


def inside(prefix, state):
    return {f"{prefix}.{name}": value for name, value in state.items()}


def in_parts(state, folder):
    names = list(state)
    places = {name: f"model-{1 + 2 * index // len(names):05d}-of-00002.safetensors" for index, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: state[name] for name in names if places[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def files(folder, state):
    """Writes weights in all forms that files have."""
    state = {name: tensor.clone() for name, tensor in state.items()}
    for name in ("parts", "pretrained"):
        (folder / name).mkdir(parents=True)
    in_parts(state, folder / "parts")
    save_file(state, folder / "pretrained" / "model.safetensors")
    save_file(state, folder / "other.safetensors")
    for name, content in {
        "weights": state,
        "nested": {"epoch": 3, "model_state_dict": state},
        "lightning": {"pytorch-lightning_version": "2.6", "epoch": 1, "state_dict": inside("model", state)},
        "averaged": {"n_averaged": torch.tensor(3), **inside("module", state)},
        "longer names": inside("net.body", state),
    }.items():
        torch.save(content, folder / f"{name}.pt")
    return {path.stem: path for path in folder.iterdir()}


def forms(tmp_path):
    module = build()
    state_dict = module.state_dict()
    arrays = read_network(module)
    write_checkpoint(tmp_path / "own.safetensors", arrays)
    write_checkpoint(tmp_path / "wrapped.safetensors", inside("module", arrays))
    return {
        "network": module,
        "wrapped network": nn.DataParallel(module),
        "state dict": state_dict,
        "wrapped state dict": inside("module", state_dict),
        "arrays": arrays,
        "reader": MemoryState(arrays),
        "path": tmp_path / "own.safetensors",
        "string": str(tmp_path / "own.safetensors"),
        "wrapped file": tmp_path / "wrapped.safetensors",
        **files(tmp_path / "files", state_dict),
        "alias only": {n: t for n, t in state_dict.items() if n != "head.weight"},
    }


def test_every_form_of_weights_gives_the_same_plane(tmp_path):
    expected = random_plane(build(), seed=4)
    for weights in forms(tmp_path).values():
        same(random_plane(weights, network=build(1), seed=4), expected)
    file = CheckpointFile(tmp_path / "own.safetensors")
    same(random_plane(file, network=describe_network(build(1)), seed=4), expected)


def test_every_form_gives_the_same_trajectory(tmp_path):
    others = [build(1), build(2)]
    expected = pca_plane([*others, build()])
    for weights in forms(tmp_path).values():
        plane = pca_plane([*others, weights])
        same(plane, expected)
        np.testing.assert_array_equal(plane.projection.x, expected.projection.x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = seeded(SmallNetwork)


def test_the_names_of_the_network_may_be_the_longer_ones(tmp_path):
    expected = random_line(seeded(SmallNetwork), seed=3)
    written = files(tmp_path, seeded(SmallNetwork).state_dict())
    del written["longer names"]
    for path in written.values():
        outer = random_line(path, network=Outer(), seed=3)
        np.testing.assert_equal(outer.origin, inside("model", expected.origin))


@pytest.mark.slow
def test_an_averaged_network_is_measured_like_the_network_in_it():
    averaged = AveragedModel(seeded(SmallNetwork))
    averaged.update_parameters(seeded(SmallNetwork, 1))
    inputs, targets = map(torch.cat, zip(*batches(), strict=True))

    def losses(origin, network):
        plane = line_between(origin, seeded(SmallNetwork, 5))
        options = {"x": [0.0, 0.5, 1.0], "device_ids": [0], "progress": False}
        return evaluate(plane, lambda: (nn.CrossEntropyLoss(), network, (inputs, targets), {}), **options).loss

    network, other = seeded(SmallNetwork, 2), AveragedModel(seeded(SmallNetwork, 2))
    expected = losses(averaged.module, network)
    for one, another in ((averaged, network), (averaged.module, other), (averaged.state_dict(), network)):
        np.testing.assert_array_equal(losses(one, another), expected)


def test_a_plane_does_not_change_with_the_network_it_was_made_from():
    module = build()
    plane = pca_plane([build(1).state_dict(), build(2).state_dict(), module.state_dict()], network=module)
    before = plane.origin["head.weight"].copy()
    with torch.no_grad():
        module.head.weight.zero_()
    np.testing.assert_array_equal(plane.origin["head.weight"], before)
    np.testing.assert_array_equal(plane.checkpoints[-1].read("head.weight"), before)


def test_weights_of_another_type_are_cast_to_the_networks():
    fine = read_network(build(dtype=torch.float64))
    plane = random_plane(fine, network=build(dtype=torch.bfloat16))
    assert plane.origin["head.weight"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(plane.origin["head.weight"], fine["head.weight"].astype(ml_dtypes.bfloat16))
    assert plane.directions[0]["head.weight"].dtype == np.float32


def test_the_network_must_be_described():
    state = build().state_dict()
    for call in (
        lambda: random_plane(state),
        lambda: random_line(state),
        lambda: pca_plane([state] * 3),
        lambda: plane_through(state, state, state),
        lambda: line_between(state, state),
        lambda: custom_plane(state, [{}]),
    ):
        with pytest.raises(TypeError, match=r"network is missing.*pass network=<the network>"):
            call()
    with pytest.raises(TypeError, match="network must be a network of a supported framework"):
        random_plane(state, network="Network")


def test_weights_of_an_unknown_form_are_refused(tmp_path):
    module = build()
    state = dict(module.state_dict())
    twice = {**state, "module.head.bias": state["head.bias"]}
    turned = {name: tensor.T if name == "tied.weight" else tensor for name, tensor in state.items()}
    del turned["head.weight"]
    for weights, error, text in (
        (3, TypeError, r"origin must be a network, a mapping .* but got int"),
        ({**state, "epoch": 3}, TypeError, r"origin\['epoch'\] must be a tensor or a NumPy array, but got int"),
        ({"model": state}, TypeError, r"origin\['model'\] must be .*give that entry alone, but got"),
        (tmp_path / "absent.safetensors", CheckpointError, r"absent.safetensors cannot be read"),
        (tmp_path / "absent.pt", CheckpointError, r"absent.pt does not exist"),
        (twice, CheckpointError, r"holds both 'head.bias' and 'module.head.bias'"),
        (turned, CheckpointError, r"head.weight: the network has \(30, 60\), found \(60, 30\)"),
    ):
        with pytest.raises(error, match=text):
            random_plane(weights, network=module)
    with pytest.raises(TypeError, match="checkpoints must be a list"):
        pca_plane("run", network=module)


def test_weights_of_another_network_are_refused_with_the_differences():
    module = build()
    arrays = read_network(module)
    wrong = {**arrays, "head.bias": np.zeros(3), "more": np.zeros(2)}
    del wrong["convolution.bias"]
    with pytest.raises(CheckpointError) as caught:
        plane_through(module, arrays, wrong)
    assert str(caught.value).splitlines()[:4] == [
        "c does not fit the network Network:", "  convolution.bias (20,): missing",
        "  head.bias: the network has (30,), found (3,)", "  more (2,): unknown",
    ]  # fmt: skip


def test_networks_that_cannot_move_are_refused():
    frozen = build()
    frozen.requires_grad_(False)
    of_run = checkpoints_of_run([MemoryState(read_network(frozen))] * 3, range(3))
    for call in (
        random_plane,
        random_line,
        lambda network: pca_plane([network] * 3),
        lambda network: line_between(network, network),
        lambda network: plane_of_runs(of_run, describe_network(network)),
    ):
        with pytest.raises(LandscapeError, match=r"network Network has no trainable parameter.*requires_grad=True"):
            call(frozen)
    biases = build()
    for parameter in biases.parameters():
        parameter.requires_grad_(parameter.ndim == 1)
    with pytest.raises(PlaneError, match=r"random direction is zero.*perturb_one_dimensional=True"):
        random_plane(biases)
    for parameter in biases.parameters():
        parameter.data.zero_()
    with pytest.raises(PlaneError, match=r"has values other than zero\. Pass normalization=\"none\" to move weights"):
        random_plane(biases, perturb_one_dimensional=True)
    assert random_plane(biases, perturb_one_dimensional=True, normalization="none").dimension == 2
    rotation = nn.Module()
    rotation.phase = nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))
    with pytest.raises(PlaneError, match=r"complex trainable parameters 'phase'"):
        random_plane(rotation)


@pytest.mark.parametrize(("position", "value"), [(0, torch.nan), (1, torch.inf), (2, torch.nan), (2, torch.inf)])
def test_weights_that_are_not_finite_are_named(position, value):
    modules = [build(seed) for seed in range(3)]
    with torch.no_grad():
        modules[position].head.weight[0, 0] = value
    name = f"checkpoints\\[{position}\\]"
    with pytest.raises(CheckpointError, match=name + " holds NaN or infinite values in 'head.weight'"):
        pca_plane(modules)
    with pytest.raises(CheckpointError, match=f"^{'abc'[position]} holds NaN"):
        plane_through(*modules)
    with pytest.raises(CheckpointError, match="origin holds NaN"):
        random_plane(modules[position])


def test_buffers_and_frozen_parameters_may_be_anything():
    module = build()
    with torch.no_grad():
        module.frozen.weight[0, 0] = torch.nan
        module.normalization.running_var[0] = torch.inf
    plane = random_plane(module)
    assert np.isnan(plane.origin["frozen.weight"][0, 0])
    assert plane.buffers["normalization.running_var"][0] == np.inf


# --- random ---


@pytest.mark.parametrize("normalization", ["filter", "layer", "weight", "none"])
def test_random_planes_hold_the_random_directions(normalization):
    module = build()
    space, state = describe_network(module), MemoryState(read_network(module))
    options = {"seed": 7, "normalization": normalization, "perturb_one_dimensional": True}
    expected = tuple(random_direction(space, state, index=index, **options) for index in range(2))
    plane = random_plane(module, **options)
    np.testing.assert_equal(plane.directions, expected)
    line = random_line(module, **options)
    np.testing.assert_array_equal(line.directions[0]["head.weight"], plane.directions[0]["head.weight"])
    assert (plane.decomposition, plane.normalization, plane.projection) == ("random", normalization, None)


def test_a_large_cosine_warns():
    torch.manual_seed(0)
    tiny = nn.Linear(2, 1)
    for seed in range(3):
        with pytest.warns(UserWarning, match=r"the two random directions have a cosine of -?[01]\.[1-9]"):
            plane = random_plane(tiny, seed=seed)
        assert abs(plane.cosine) > 0.1


def test_random_planes_have_one_direction_or_two():
    reader, space = MemoryState(read_network(build())), describe_network(build())
    with pytest.raises(ValueError, match="dimension must be an int from 1 to 2"):
        random_plane_of(reader, space, seed=0, normalization="none", dimension=3)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"seed": -1}, ValueError, "seed must be an int of at least 0"),
        ({"seed": 1.5}, TypeError, "seed must be an int"),
        ({"normalization": "unit"}, ValueError, "normalization must be one of 'filter', 'layer', 'weight', 'none'"),
        ({"perturb_one_dimensional": 1}, TypeError, "perturb_one_dimensional must be a bool"),
    ],
)
def test_random_planes_name_wrong_arguments(arguments, error, text):
    for function in (random_plane, random_line):
        with pytest.raises(error, match=text):
            function(build(), **arguments)


# --- principal directions ---


@pytest.mark.parametrize("centering", ["none", "mean"])
def test_pca_planes_pass_through_the_last_checkpoint(centering):
    modules = [build(seed, torch.float64) for seed in range(6)]
    plane = pca_plane(modules, centering=centering, numbers=[2, 4, 6, 8, 10, 11])
    states = [MemoryState(read_network(module)) for module in modules]
    principal = principal_directions(states, plane.space, centering=centering)
    np.testing.assert_equal(plane.directions, principal.directions)
    np.testing.assert_array_equal(plane.explained_variance_ratio, principal.explained_variance_ratio)
    np.testing.assert_array_equal(columns_of(plane.networks)["number"], [2, 4, 6, 8, 10, 11])
    assert (plane.projection.x[-1], plane.projection.y[-1], plane.projection.residual[-1]) == (0.0, 0.0, 0.0)
    last = modules[-1].state_dict()
    np.testing.assert_equal(plane.origin, {name: last[name].numpy() for name in plane.origin})
    for index, checkpoint in enumerate(plane.checkpoints):
        foot = plane.point((plane.projection.x[index], plane.projection.y[index]))
        own = {tensor.name: checkpoint.read(tensor.name) for tensor in plane.space.trainable}
        distance = np.linalg.norm(flat(plane.space, foot) - flat(plane.space, own))
        assert distance == pytest.approx(plane.projection.residual[index], rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("centering", ["none", "mean"])
def test_checkpoints_are_read_three_times_and_placed_by_least_squares(centering, dtype):
    class Counted(MemoryState):
        elements = 0

        def read_block(self, name, start, stop):
            self.elements += stop - start
            return super().read_block(name, start, stop)

    # Two runs, and two checkpoints of the same weights as the origin, one of each.
    states = [read_network(build(seed, dtype)) for seed in (0, 1, 2, 3, 4, 2, 2)]
    readers = [Counted(state) for state in states]
    networks = [*checkpoints_of_run(readers[:3], range(3), "one"), *checkpoints_of_run(readers[3:], range(4), "other")]
    space = describe_network(build(0, dtype))
    plane = plane_of_runs(networks, space, centering=centering)
    assert [reader.elements for reader in readers if reader is not readers[2]] == [3 * space.dimension] * 6
    expected, rest, length = least_squares(space, plane.directions, states[2], states)
    found = plane.projection
    np.testing.assert_allclose(np.stack(found.coordinates, axis=1), expected, rtol=1e-13, atol=1e-13 * length.max())
    np.testing.assert_allclose(found.residual, rest, rtol=1e-12, atol=1e-14 * length.max())
    np.testing.assert_allclose(found.norm, length, rtol=1e-13)
    assert (found.x[2], found.y[2], found.residual[2]) == (0.0, 0.0, 0.0)


def test_centerings_are_named():
    with pytest.raises(ValueError, match="centering must be one of 'none', 'mean'"):
        pca_plane([build(seed) for seed in range(3)], centering="last")


# --- through points ---


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_three_points_are_the_corners(dtype):
    modules = [build(seed, dtype) for seed in range(3)]
    plane = plane_through(*modules)
    path = plane.projection
    assert (path.x.tolist(), path.y.tolist()) == ([0, 1, 0], [0, 0, 1])
    for corner, module in zip(((0, 0), (1, 0), (0, 1)), modules, strict=True):
        state, own = plane.point(corner), read_network(module)
        for tensor in plane.space.trainable:
            difference = state[tensor.name].astype(float) - own[tensor.name].astype(float)
            assert np.abs(difference).max() <= 1e-7 * (1e-8 if dtype == torch.float64 else 1)
    assert np.all(path.residual <= 1e-7 * path.norm.max())
    assert plane.decomposition == "points"


def test_two_points_are_the_ends_of_a_line():
    one, two = build(0, torch.float64), build(1, torch.float64)
    line = line_between(one, two)
    assert (line.dimension, line.projection.y) == (1, None)
    assert line.projection.x.tolist() == [0, 1]
    middle = line.point((0.5,))
    expected = (one.head.weight + two.head.weight).detach().numpy() / 2
    np.testing.assert_allclose(middle["head.weight"], expected, atol=1e-15)
    np.testing.assert_array_equal(line.buffers["normalization.running_mean"], np.zeros(20))


def test_points_that_span_nothing_are_refused():
    one, two = build(0, torch.float64), build(1, torch.float64)
    middle = {
        name: (a + b) / 2 for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True)
    }
    for function, weights, text in (
        (line_between, (one, one), r"^'a' and 'b' have the same weights, so there is no way between them"),
        (line_between, ({"SGD": one, "Adam": one},), "'SGD' and 'Adam' have the same weights"),
        (plane_through, (one, two, two), "'b' and 'c' have the same weights"),
        (plane_through, (one, two, one), "'a' and 'c' have the same weights"),
        (plane_through, (one, two, middle), "the two directions are parallel"),
    ):
        with pytest.raises(PlaneError, match=text):
            function(*weights)


# --- custom ---


def own_directions(module, count=2, seed=0):
    generator = np.random.default_rng(seed)
    return [
        {n: generator.standard_normal(p.shape) for n, p in module.named_parameters() if p.requires_grad}
        for _ in range(count)
    ]


def test_custom_directions_are_kept_as_they_are():
    module = build(dtype=torch.float64)
    given = own_directions(module)
    plane = custom_plane(module, given)
    np.testing.assert_equal(plane.directions, tuple(given))
    assert not any(
        ours[name] is theirs[name] for ours, theirs in zip(plane.directions, given, strict=True) for name in theirs
    )
    assert (plane.decomposition, plane.normalization) == ("custom", "none")
    line = custom_plane(module, given[:1])
    assert line.dimension == 1
    np.testing.assert_array_equal(line.axes(3)[0], [-1, 0, 1])


def test_custom_directions_may_be_tensors_under_wrapped_and_tied_names():
    module = build()
    given = own_directions(module, 1)[0]
    renamed = {f"module.{name}": torch.from_numpy(values) for name, values in given.items()}
    renamed["tied.weight"] = renamed.pop("module.head.weight")
    one, two = custom_plane(module, [given]), custom_plane(module, [renamed])
    same(one, two)
    assert one.identity == two.identity


def test_custom_directions_can_be_normalized_biases_included():
    module = build()
    plane = custom_plane(module, own_directions(module), normalization="filter")
    norms = np.linalg.norm(plane.directions[0]["head.weight"].astype(float), axis=1)
    np.testing.assert_allclose(norms, module.head.weight.detach().norm(dim=1).numpy(), rtol=1e-5)
    assert plane.directions[0]["head.bias"].any()


def test_custom_directions_that_do_not_fit_are_refused():
    module = build()
    first, second = own_directions(module)
    wrong = {**second, "head.bias": np.zeros(3), "frozen.weight": np.zeros((3, 3))}
    del wrong["convolution.weight"]
    text = r"directions\[1\] does not fit the trainable parameters .*: head.bias has the shape \(3,\), the parameter "
    text += r"\(30,\); frozen.weight is no trainable parameter; convolution.weight is missing"
    with pytest.raises(ValueError, match=text):
        custom_plane(module, [first, wrong])
    for given, error, text in (
        (first, TypeError, "directions must be a list of one or two directions"),
        ([np.zeros(3)], TypeError, r"directions\[0\] must be a mapping"),
        ([], ValueError, "directions must be a list of one direction"),
        ([first, first], PlaneError, "parallel"),
        ([first, {name: -2 * values for name, values in first.items()}], PlaneError, r"parallel \(cosine -1.0"),
        ([first, {name: 0 * values for name, values in first.items()}], PlaneError, "direction 1 has the norm 0.0"),
        ([{name: values * np.nan for name, values in first.items()}], PlaneError, "direction 0 has the norm nan"),
        ([{name: values * 1j for name, values in first.items()}], TypeError, "complex"),
    ):
        with pytest.raises(error, match=text):
            custom_plane(module, given)
    with pytest.raises(ValueError, match="normalization must be one of"):
        custom_plane(module, [first], normalization="unit")


# --- identity ---


def test_the_identity_says_what_a_plane_was_made_from():
    modules = [build(seed) for seed in range(4)]
    given = own_directions(modules[0])
    planes = [
        random_plane(modules[0]),
        random_plane(modules[0], seed=1),
        random_plane(modules[1]),
        random_plane(modules[0], normalization="layer"),
        random_plane(modules[0], perturb_one_dimensional=True),
        random_line(modules[0]),
        pca_plane(modules),
        pca_plane(modules, centering="mean"),
        pca_plane(modules[1:]),
        plane_through(*modules[:3]),
        plane_through(*modules[1:]),
        line_between(*modules[:2]),
        custom_plane(modules[0], given),
        custom_plane(modules[0], given[::-1]),
        custom_plane(modules[1], given),
        custom_plane(modules[0], given, normalization="layer"),
    ]
    texts = [json.dumps(plane.identity, sort_keys=True) for plane in planes]
    assert len(set(texts)) == len(texts)
    assert all(plane.identity["decomposition"] == plane.decomposition for plane in planes)
    again = [build(seed) for seed in range(4)]
    assert pca_plane(again).identity == planes[6].identity
    assert random_plane(again[0]).identity == planes[0].identity
