"""JAX: names, what is watched, and one jitted function of the coordinates."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import jax_cases
import numpy as np
import optax
import pytest
from cases import mean_loss, open_evaluator, own_plane, own_values
from filter_lengths import assert_as_long_as_the_weights_of_each_output
from flax import linen, nnx
from flax.training.train_state import TrainState
from pages import code_blocks, run_page_block, takes_minutes
from scripts import run_script
from waiting import PATIENCE

from collectors.jax import JaxNetwork
from collectors.networks.readers import describe_network, read_network
from collectors.recording.summary_collector import SummaryCollector
from collectors.run_directory import RunDirectory
from workers.errors import CallbackFunctionError
from workers.jax.functions import POINTS_AT_ONCE
from workers.measurement_plan import MeasurementPlan
from workers.measuring.tuning import choose_batch_size

EPOCHS = {"unit": "epoch", "intervals": [range(4)]}


def names(network):
    return [tensor.name for tensor in describe_network(network).tensors]


def tensors(network):
    return {tensor.name: tensor for tensor in describe_network(network).tensors}


def plain(loss=jax_cases.per_sample, metrics=None, layers=None):
    network = JaxNetwork(jax_cases.predict, layers or jax_cases.new_layers())
    return loss, network, (jax_cases.features(), jax_cases.classes()), metrics


def load_plane(evaluator, network, scale=0.3, **found):
    origin, directions, _ = plane = own_plane((None, network), evaluator, scale=scale)
    evaluator.load(*plane, **found)
    return origin, directions


class Repeated(linen.Module):
    @linen.compact
    def __call__(self, inputs, _):
        return linen.Dense(inputs.shape[-1])(inputs), None


FILTERED = {
    "matrix": (lambda: nnx.Linear(4, 3, rngs=nnx.Rngs(0)), (1, 4)),
    "convolution": (lambda: nnx.Conv(4, 6, (2, 2), feature_group_count=2, rngs=nnx.Rngs(0)), (1, 3, 3, 4)),
    "transposed": (lambda: nnx.ConvTranspose(3, 4, (2, 2), rngs=nnx.Rngs(0)), (1, 3, 3, 3)),
    "swapped": (lambda: nnx.ConvTranspose(3, 4, (2, 2), transpose_kernel=True, rngs=nnx.Rngs(0)), (1, 3, 3, 3)),
    "heads": (lambda: nnx.LinearGeneral(4, (2, 3), rngs=nnx.Rngs(0)), (1, 4)),
    "heads without bias": (lambda: nnx.LinearGeneral(4, (2, 3), use_bias=False, rngs=nnx.Rngs(0)), (1, 4)),
    "joined": (lambda: nnx.LinearGeneral((2, 3), 4, axis=(-2, -1), rngs=nnx.Rngs(0)), (1, 2, 3)),
    "heads of einsum": (lambda: nnx.Einsum("...d,dhe->...he", (4, 2, 3), (2, 3), rngs=nnx.Rngs(0)), (1, 4)),
}


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Line:
    slope: jax.Array
    offset: jax.Array


class TestNames:
    def test_any_pytree_is_named_by_path(self):
        tree = {
            "body": [(jnp.ones((2, 3)), jnp.ones(3))],
            "line": Line(jnp.ones(1), jnp.ones(1)),
            "steps": jnp.arange(2),
        }
        found = tensors(JaxNetwork(lambda tree, inputs: inputs, tree))
        assert list(found) == ["body.0.0", "body.0.1", "line.slope", "line.offset", "steps"]
        assert found["body.0.0"].trainable
        assert found["body.0.0"].filter_axes == (1,)
        assert found["steps"].role == "buffer"

    def test_one_array_alone_has_a_name(self):
        assert names(JaxNetwork(lambda weights, inputs: inputs @ weights, jnp.ones(2))) == ["parameters"]

    def test_what_is_no_array_stays_what_it_is(self):
        tree = {"weight": jnp.ones(2), "rate": 0.5, "activation": jnp.tanh, "key": jax.random.key(0), "none": None}
        network = JaxNetwork(lambda tree, inputs: tree["activation"](inputs @ tree["weight"]) * tree["rate"], tree)
        assert names(network) == ["weight"]
        values, _ = own_values((lambda o, t: (o - t) ** 2, network, (np.ones((6, 2)), np.zeros(6)), {}))
        assert values["loss"] == pytest.approx((0.5 * np.tanh(2)) ** 2, rel=1e-5)

    def test_collections_of_flax(self):
        variables = jax_cases.linen_variables()
        apply = jax_cases.LinenConvolutions().apply
        together = JaxNetwork(apply, variables)
        apart = JaxNetwork(apply, variables["params"], buffers={"batch_stats": variables["batch_stats"]})
        assert describe_network(together) == describe_network(apart)
        assert describe_network(together).network == "LinenConvolutions"
        found = tensors(together)
        assert found["Conv_0.kernel"].filter_axes == (3,)
        assert found["Dense_0.kernel"].filter_axes == (1,)
        assert found["batch_stats.BatchNorm_0.mean"].role == "buffer"
        # Only the parameters: the same names.
        alone = names(JaxNetwork(apply, variables["params"]))
        assert alone == [tensor.name for tensor in describe_network(together).parameters]

    def test_embeddings_have_rows(self):
        assert tensors(nnx.Embed(5, 3, rngs=nnx.Rngs(0)))["embedding"].filter_axes == (0,)

    @pytest.mark.parametrize("name", FILTERED)
    def test_a_direction_is_as_long_as_the_weights_of_each_output(self, name):
        make, shape = FILTERED[name]
        layer = make()

        def outputs_of(kernel):
            changed = nnx.clone(layer)
            changed.kernel[...] = jnp.asarray(kernel)
            if getattr(changed, "bias", None) is not None:
                changed.bias[...] = jnp.zeros_like(changed.bias[...])
            outputs = np.asarray(changed(jnp.ones(shape)))
            axes = 2 if name.startswith("heads") else 1  # the outputs of attention: heads and their entries
            return outputs.reshape(-1, int(np.prod(outputs.shape[-axes:]))).T

        assert_as_long_as_the_weights_of_each_output(layer, "kernel", outputs_of)

    @pytest.mark.parametrize("use_bias", [True, False])
    def test_attention_of_linen_has_an_output_for_each_head_and_entry(self, use_bias):
        attention = linen.MultiHeadDotProductAttention(num_heads=2, qkv_features=6, use_bias=use_bias)
        found = tensors(JaxNetwork(attention.apply, attention.init(jax.random.key(0), jnp.ones((1, 3, 4)))))
        assert {name: info.filter_axes for name, info in found.items() if info.filter_axes} == {
            "query.kernel": (1, 2),
            "key.kernel": (1, 2),
            "value.kernel": (1, 2),
            "out.kernel": (2,),
        }
        assert ("query.bias" in found) == use_bias

    def test_layers_that_a_scan_put_into_one_array_have_filters_of_their_own(self):
        stack = linen.scan(
            Repeated, variable_axes={"params": 0}, split_rngs={"params": True}, length=3, in_axes=linen.broadcast
        )()
        found = tensors(JaxNetwork(stack.apply, stack.init(jax.random.key(0), jnp.ones((2, 4)), None)))
        assert (found["Dense_0.kernel"].shape, found["Dense_0.kernel"].filter_axes) == ((3, 4, 4), (0, 2))
        assert found["Dense_0.bias"].filter_axes == ()

    def test_modules_count_shared_arrays_once(self):
        class Shared(nnx.Module):
            def __init__(self, rngs):
                self.first = nnx.Linear(3, 3, rngs=rngs)
                self.second = self.first
                self.third = nnx.Linear(3, 3, rngs=rngs)
                self.fourth = nnx.Linear(3, 3, use_bias=False, rngs=rngs)
                self.fourth.kernel = self.third.kernel
                self.dropout = nnx.Dropout(0.5, rngs=rngs)
                self.constant = nnx.data(jnp.ones(2))
                self.seen = nnx.Intermediate(jnp.ones(2))

        found = tensors(Shared(nnx.Rngs(0)))
        assert set(found) == {"constant", "first.bias", "first.kernel", "fourth.kernel", "third.bias"}
        assert found["fourth.kernel"].aliases == ("third.kernel",)
        assert found["first.kernel"].aliases == ("second.kernel",)
        assert found["first.bias"].aliases == ("second.bias",)
        assert found["constant"].role == "buffer"

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    def test_narrow_types_are_kept(self, dtype):
        network = JaxNetwork(lambda tree, inputs: inputs, {"weight": jnp.full((2, 2), 1 / 3, dtype)})
        assert tensors(network)["weight"].dtype == dtype
        value = read_network(network)["weight"]
        assert value.dtype.name == dtype
        np.testing.assert_array_equal(value, np.asarray(network.parameters["weight"]))

    def test_numpy_arrays_count_as_jax_would_compute_them(self):
        network = JaxNetwork(lambda tree, inputs: inputs, {"weight": np.ones((2, 2))})
        assert tensors(network)["weight"].dtype == read_network(network)["weight"].dtype.name == "float32"

    def test_equal_names_are_an_error(self):
        with pytest.raises(ValueError, match=r"both called 'a\.b'"):
            describe_network(JaxNetwork(lambda tree, inputs: inputs, {"a": {"b": jnp.ones(1)}, "a.b": jnp.ones(1)}))

    def test_wrong_networks_are_named(self):
        with pytest.raises(TypeError, match="apply must be a function"):
            JaxNetwork(3, {})
        with pytest.raises(TypeError, match="at least one array"):
            describe_network(JaxNetwork(lambda tree, inputs: inputs, {}))
        with pytest.raises(ValueError, match="both hold collections"):
            JaxNetwork(print, {"params": {}}, buffers={"batch_stats": {}})
        with pytest.raises(TypeError, match="buffers must be a dict"):
            JaxNetwork(print, {}, buffers=[1])
        with pytest.raises(TypeError, match="name must be a str"):
            JaxNetwork(print, {}, name=3)


class TestWatch:
    def test_checkpoints_have_the_names_that_the_network_has_later(self, tmp_path):
        variables = jax_cases.linen_variables()
        with SummaryCollector(tmp_path, collect_landscape=EPOCHS).watch(lambda: variables) as run:
            run.step(jnp.asarray(0.5))
            run.end_epoch()
            variables = jax.tree.map(lambda leaf: leaf + 1, variables)
            run.end_epoch()
            run.end_epoch()
        network = JaxNetwork(jax_cases.LinenConvolutions().apply, variables)
        directory = RunDirectory(tmp_path)
        describe_network(network).check_state("checkpoint", directory.checkpoint(1).shapes)
        early, late = (directory.checkpoint(number).read("Dense_0.bias") for number in (1, 2))
        np.testing.assert_allclose(late, early + 1)
        assert directory.metadata.framework == "jax"

    def test_a_function_may_give_a_network_with_a_name(self, tmp_path):
        network = JaxNetwork(jax_cases.predict, jax_cases.new_layers(), name="Perceptron")
        with SummaryCollector(tmp_path, collect_landscape=EPOCHS).watch(functools.partial(lambda x: x, network)) as run:
            for _ in range(3):
                run.end_epoch()
        assert RunDirectory(tmp_path).metadata.network["name"] == "Perceptron"

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (lambda layers: layers[0].update(weight=jnp.ones((5, 9))), "the same names, shapes and element types each"),
            (
                lambda layers: jax.tree.map(lambda leaf: leaf.delete(), layers),
                r"'0\.bias' is gone: its memory was donated",
            ),
        ],
        ids=["others", "donated"],
    )
    def test_parameters_that_change_in_the_middle_are_an_error(self, change, match, tmp_path):
        layers = jax_cases.new_layers()

        def train():
            with SummaryCollector(tmp_path, collect_landscape=EPOCHS).watch(lambda: layers) as run:
                change(layers)
                run.end_epoch()

        with pytest.raises(ValueError, match=match):
            train()

    def test_a_train_state_is_more_than_parameters(self, tmp_path):
        state = TrainState.create(apply_fn=print, params=jax_cases.new_layers(), tx=optax.sgd(0.1))
        collector = SummaryCollector(tmp_path, collect_landscape=EPOCHS)
        with pytest.raises(TypeError, match=r"give its parameters \(state\.params"):
            collector.watch(lambda: state).__enter__()

    def test_a_module_in_parts_has_the_modules_names(self):
        module = jax_cases.NnxPerceptron(nnx.Rngs(0))
        graph, parameters, rest = nnx.split(module, nnx.Param, ...)
        together = JaxNetwork(lambda state, inputs: inputs, nnx.merge_state(parameters, rest))
        assert names(together) == names(module) == names(nnx.merge(graph, parameters, rest))
        assert "layers.0.kernel" in names(module)
        assert not any("rngs" in name for name in names(module))


class TestEvaluator:
    def test_the_same_network_in_pytorch(self):
        torch = pytest.importorskip("torch")
        built = _, ours, (inputs, targets), _ = plain()
        sizes = [layer["weight"].shape for layer in ours.parameters]
        theirs = torch.nn.Sequential(torch.nn.Linear(*sizes[0]), torch.nn.Tanh(), torch.nn.Linear(*sizes[1]))
        places = {"0": "0", "1": "2"}

        def to_torch(state):
            return {
                name.replace(name[0], places[name[0]], 1): np.array(value.T if name.endswith("weight") else value)
                for name, value in state.items()
            }

        theirs.load_state_dict({name: torch.tensor(value) for name, value in to_torch(read_network(ours)).items()})
        jax_evaluator = open_evaluator(built)
        data = torch.utils.data.TensorDataset(torch.tensor(inputs), torch.tensor(targets))
        torch_evaluator = open_evaluator((torch.nn.CrossEntropyLoss(), theirs, data, {}))
        origin, directions = load_plane(jax_evaluator, ours)
        torch_evaluator.load(to_torch(origin), [to_torch(direction) for direction in directions], {})
        points = np.random.default_rng(1).uniform(-2, 2, (20, 2))
        one, other = jax_evaluator.measure(points), torch_evaluator.measure(points)
        np.testing.assert_allclose(one["loss"], other["loss"], rtol=1e-5)
        np.testing.assert_allclose(one["loss_stderr"], other["loss_stderr"], rtol=1e-4)

    def test_many_points_are_measured_together_and_give_the_same(self):
        built = jax_cases.build_plain()
        evaluator = open_evaluator(built)
        load_plane(evaluator, built[1])
        points = np.random.default_rng(1).uniform(-1, 1, (2 * POINTS_AT_ONCE + 3, 2))
        together = evaluator.measure(points)
        assert evaluator._points_at_once == {"": POINTS_AT_ONCE}
        assert evaluator._functions._points._cache_size() == 2  # one for each shape of a batch: 16 and 8
        alone = [evaluator.measure(point[None]) for point in points]
        for name, values in together.items():
            np.testing.assert_allclose(values, [row[name][0] for row in alone], rtol=1e-5, atol=1e-7)

    def test_convolutions_are_measured_one_by_one(self):
        built = jax_cases.build_linen()
        evaluator = open_evaluator(built, num_samples=16)
        load_plane(evaluator, built[1])
        evaluator.measure(np.zeros((POINTS_AT_ONCE, 2)))
        assert evaluator._points_at_once == {"": 1}
        assert evaluator._functions._point._cache_size() == 1

    def test_a_mean_that_splits_into_samples_has_a_standard_error(self):
        (one, _), (other, _) = (own_values(plain(loss)) for loss in (jax_cases.per_sample, jax_cases.mean_loss))
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)
        assert one["loss_stderr"] == pytest.approx(other["loss_stderr"], rel=1e-5)

    def test_elements_within_samples_count_alike(self):
        generator = np.random.default_rng(0)
        inputs, targets = generator.standard_normal((10, 4, 3)), generator.standard_normal((10, 4, 2))
        network = JaxNetwork(lambda tree, x: x @ tree["weight"], {"weight": jnp.ones((3, 2))})
        measured, _ = own_values((lambda o, t: (o - t) ** 2, network, (inputs, targets), {}), MeasurementPlan(4))
        errors = (np.float32(inputs) @ np.ones((3, 2)) - targets) ** 2
        assert measured["loss"] == pytest.approx(errors.mean(), rel=1e-5)
        assert measured["loss_stderr"] == pytest.approx(errors.mean((1, 2)).std(ddof=1) / np.sqrt(10), rel=1e-4)

    def test_a_loss_that_belongs_to_its_batches_keeps_them(self):
        with pytest.warns(UserWarning, match="loss depends on how samples are batched"):
            evaluator = open_evaluator(plain(lambda outputs, targets: jax_cases.per_sample(outputs, targets).max()))
        assert evaluator.description.partition_dependent
        assert evaluator.description.plan.batch_size is None
        assert evaluator.description.metrics == ("loss",)

    def test_a_head_of_zeros_decides_nothing(self):
        """There all samples have the same loss, and every way to add it up looks right."""
        weights = jnp.asarray([0.2, 1.0, 3.0])

        def weighted(outputs, targets):
            return (jax_cases.per_sample(outputs, targets) * weights[targets]).sum() / weights[targets].sum()

        inputs, targets = jax_cases.features(), jax_cases.classes()
        batches = [(inputs[start : start + 9], targets[start : start + 9]) for start in range(0, 40, 9)]
        trained = jax_cases.new_layers()
        zeroed = [*trained[:-1], jax.tree.map(jnp.zeros_like, trained[-1])]
        evaluator = open_evaluator((weighted, JaxNetwork(jax_cases.predict, zeroed), batches, {}))
        assert not evaluator.description.partition_dependent
        with pytest.warns(UserWarning, match="loss depends on how samples are batched, so the data set's own batches"):
            load_plane(evaluator, JaxNetwork(jax_cases.predict, trained), far_points=[(1.0, 1.0)])
        assert evaluator.description.partition_dependent
        assert evaluator.description.plan.batch_size is None
        assert evaluator.description.metrics == ("loss",)
        expected = np.average([weighted(jax_cases.predict(trained, x), y) for x, y in batches], weights=[9] * 4 + [4])
        assert evaluator.measure(np.zeros((1, 2)))["loss"][0] == pytest.approx(expected, rel=1e-5)
        load_plane(evaluator, JaxNetwork(jax_cases.predict, trained), scale=0.2)
        np.testing.assert_allclose(evaluator.measure(np.zeros((9, 2)))["loss"], expected, rtol=1e-5)

    def test_a_loss_of_parameters_and_a_batch(self):
        def loss_of(layers, inputs, targets):
            penalty = sum((layer["weight"] ** 2).sum() for layer in layers)
            return jax_cases.mean_loss(jax_cases.predict(layers, inputs), targets) + 0.01 * penalty

        layers, inputs, targets = jax_cases.new_layers(), jax_cases.features(), jax_cases.classes()
        network = JaxNetwork(loss_of, layers)
        values, _ = own_values((lambda outputs, targets: outputs, network, ((inputs, targets), targets), {}))
        assert values["loss"] == pytest.approx(float(loss_of(layers, inputs, targets)), rel=1e-6)

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    @pytest.mark.parametrize("by_samples", [True, False])
    def test_losses_come_from_float32_outputs(self, dtype, by_samples):
        generator = np.random.default_rng(0)
        weight = jnp.asarray(generator.standard_normal((5, 3)), dtype)
        inputs, targets = generator.standard_normal((64, 5)).astype(np.float32), generator.integers(0, 3, 64)
        network = JaxNetwork(lambda tree, x: x.astype(dtype) @ tree["weight"], {"weight": weight})
        per_sample = optax.softmax_cross_entropy_with_integer_labels
        loss = per_sample if by_samples else lambda outputs, wanted: per_sample(outputs, wanted).mean()
        seen = []
        metrics = {"again": lambda outputs, wanted: seen.append(outputs.dtype) or per_sample(outputs, wanted)}
        values, description = own_values((loss, network, (inputs, targets), metrics))
        # XLA leaves the rounding of a product out where nothing asks for it, or does not: either is at least float32.
        exact = np.asarray(jnp.asarray(inputs).astype(dtype), np.float64) @ np.asarray(weight, np.float64)
        rounded = np.asarray(jnp.asarray(exact, jnp.float32).astype(dtype), np.float64)
        assert min(abs(values["loss"] / mean_loss(x, targets) - 1) for x in (exact, rounded)) < 1e-5
        assert values["again"] == pytest.approx(values["loss"], rel=1e-6)
        assert set(map(str, seen)) == {"float32"}
        assert not description.notes

    def test_a_loss_that_rounds_gets_a_note(self):
        network = JaxNetwork(lambda tree, x: x @ tree["weight"], {"weight": jnp.ones((5, 1))})
        data = (np.random.default_rng(0).standard_normal((32, 5)).astype(np.float32), np.zeros((32, 1), np.float32))
        with pytest.warns(UserWarning, match=r"the loss comes out in bfloat16, which keeps about two digits"):
            evaluator = open_evaluator(
                (lambda outputs, targets: ((outputs - targets) ** 2).mean(1).astype(jnp.bfloat16), network, data, {})
            )
        assert any("comes out in bfloat16" in note for note in evaluator.description.notes)

    def test_bfloat16_points_are_computed_in_float32(self):
        weight = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3)), jnp.bfloat16)
        network = JaxNetwork(lambda tree, x: x.astype(jnp.bfloat16) @ tree["weight"], {"weight": weight})
        data = jax_cases.features(), jax_cases.classes()
        evaluator = open_evaluator((lambda o, t: jax_cases.per_sample(o.astype(jnp.float32), t), network, data, {}))
        step = np.full((5, 3), 1e-3, np.float32)
        evaluator.load({"weight": np.asarray(weight)}, [{"weight": step}, {"weight": step}], {})
        moved = (np.asarray(weight).astype(np.float32) + 1.5 * step).astype(weight.dtype)
        point = evaluator.measure(np.array([[1.0, 0.5]]))["loss"][0]
        assert point == pytest.approx(evaluator.measure_state({"weight": moved}, None)["loss"], rel=1e-6)

    def test_nan_is_a_value_even_where_a_user_debugs_them(self):
        built = jax_cases.build_plain()
        with jax.debug_nans(True):
            evaluator = open_evaluator(built)
            load_plane(evaluator, built[1], scale=1e38)
            assert not np.isfinite(evaluator.measure(np.full((1, 2), 10.0))["loss"][0])

    def test_a_module_needs_no_more_than_a_function_to_call_it(self):
        class Noisy(nnx.Module):
            def __init__(self, rngs):
                self.head = nnx.Linear(5, 3, rngs=rngs)

            def __call__(self, inputs, *, train):
                assert not train
                return self.head(inputs)

        network = JaxNetwork(lambda module, x: module(x, train=False), Noisy(nnx.Rngs(0)))
        evaluator = open_evaluator((jax_cases.per_sample, network, (jax_cases.features(), jax_cases.classes()), {}))
        assert evaluator.description.space.network == "Noisy"
        assert [info.name for info in evaluator.description.space.trainable] == ["head.bias", "head.kernel"]

    def test_a_tuned_plan(self):
        assert open_evaluator(jax_cases.build_plain(), batch_size=None).description.plan == MeasurementPlan(40)

    def test_a_batch_that_is_too_large_is_left_out(self):
        tried = []

        def run(size):
            tried.append(size)
            if size > 500:
                raise MemoryError
            return size

        assert choose_batch_size(run, 50_000) == 256
        assert set(tried) == {1024, 256, 4096}

    def test_an_absent_device_is_said(self):
        with pytest.warns(UserWarning, match="JAX cannot use the device 'cuda:7', so the CPU measures"):
            evaluator = open_evaluator(jax_cases.build_plain(), device="cuda:7")
        assert evaluator.description.device == "cpu"
        assert "cuda:7" in evaluator.description.notes[0]

    def test_wrong_losses_and_metrics_are_named(self):
        for built, match in (
            (plain(None), "a loss function of .outputs, targets. written with jax.numpy"),
            (plain(lambda o, t: o.mean(0)), r"the loss must be a single number .* shape \(3,\)"),
            (plain(lambda o, t: float(o.mean())), "the loss cannot be compiled by jax.jit"),
            (plain(metrics={"best": lambda o, t: np.asarray(o).max()}), "metric 'best' cannot be compiled"),
            (plain(metrics={"best": lambda o: o.max()}), "^metric 'best' raised TypeError: .* 1 positional argument"),
            (plain(metrics=[]), "the fourth item .* must be a dict of metrics .* but is a list"),
            (plain(metrics={"best": 3}), r"metric 'best' must be a function of \(outputs, targets\)"),
            (plain(lambda o, t: o @ t), "cannot be compiled and evaluated on its data set"),
        ):
            with pytest.raises(CallbackFunctionError, match=match):
                open_evaluator(built)


@takes_minutes
def test_the_pages_code(tmp_path):
    (block,) = code_blocks("jax")
    run_page_block(block, tmp_path / "page")
    folder = tmp_path / "page"
    assert (folder / "landscape.png").stat().st_size > 10_000
    assert RunDirectory(folder / "run").present(tuple(range(6))) == list(range(6))


def test_double_precision_where_it_is_switched_on():
    code = """
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
from collectors.jax import JaxNetwork
from collectors.networks.readers import read_network
from workers.evaluator import MeasurementSetup; from workers.callback_fn import make_evaluator
generator = np.random.default_rng(0)
weight, step = generator.standard_normal((2, 5, 1))
inputs, targets = generator.standard_normal((40, 5)), generator.standard_normal((40, 1))
network = JaxNetwork(lambda tree, x: x @ tree["weight"], {"weight": weight})
assert read_network(network)["weight"].dtype == np.float64
evaluator = make_evaluator((lambda o, t: (o - t) ** 2, network, (inputs, targets), {}), MeasurementSetup())
evaluator.load({"weight": weight}, [{"weight": step}], {})
expected = ((inputs @ (weight + 0.3 * step) - targets) ** 2).mean()
np.testing.assert_allclose(evaluator.measure(np.array([[0.3]]))["loss"][0], expected, rtol=1e-13)
"""
    run_script(code, patience=2 * PATIENCE)
