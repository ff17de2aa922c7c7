"""What test_jax_sharded.py checks in a process with four devices, each function on its own."""

import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import optax
from cases import own_plane
from flax import linen, nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax_cases import CLASSES, LinenConvolutions, NnxPerceptron, accuracy, classes, features, images, mean_loss

from collectors.jax import JaxNetwork
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan

PLAN = MeasurementPlan(16)
POINTS = np.random.default_rng(0).uniform(-1, 1, (11, 2))
PER_SAMPLE = optax.softmax_cross_entropy_with_integer_labels


def mesh(count=2):
    return Mesh(np.array(jax.devices()[:count]), ("model",))


def divided(tree, mesh, axis=-1):
    """Returns the tree with every array divided along an axis, as far as it can be; the rest on one device."""

    def put(leaf):
        if leaf.ndim == 0 or leaf.shape[axis] % mesh.size:
            return leaf
        spec = [None] * leaf.ndim
        spec[axis] = "model"
        return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(*spec)))

    return jax.tree.map(put, tree)


def linen_network():
    model = LinenConvolutions()
    return JaxNetwork(model.apply, model.init(jax.random.key(0), images(2))), (images(), classes())


def wide_network(width=64, dtype=jnp.float32):
    class Wide(linen.Module):
        @linen.compact
        def __call__(self, inputs):
            hidden = jnp.tanh(linen.Dense(width, param_dtype=dtype, dtype=dtype)(inputs))
            hidden = jnp.tanh(linen.Dense(width, param_dtype=dtype, dtype=dtype)(hidden))
            return linen.Dense(CLASSES, param_dtype=dtype, dtype=dtype)(hidden)

    model = Wide()
    return JaxNetwork(model.apply, model.init(jax.random.key(0), features(2))), (features(), classes())


def measured(network, data, loss=PER_SAMPLE, *, shift=0, **setup):
    """Returns values at a plane through the network, whose axes end with shifted buffers, where its arrays are, and
    what the evaluator says of itself.
    """
    setup.setdefault("plan", PLAN)
    evaluator = make_evaluator((loss, network, data, {"accuracy": accuracy}), MeasurementSetup(**setup))
    plane = own_plane((None, network), evaluator)
    ends = [{name: value + shift for name, value in plane[2].items()} for _ in range(2 if shift else 0)]
    evaluator.load(*plane, ends, far_points=[(1.0, 1.0)])
    values = evaluator.measure(POINTS)
    values |= {f"single {name}": value for name, value in evaluator.measure_state(plane[0], plane[2]).items()}
    places = {
        name: array.sharding for part in (evaluator._plane.origin, *evaluator._plane.directions)
        for name, array in part.items()
    }  # fmt: skip
    description = evaluator.description
    evaluator.close()
    return values, places, description


def assert_equal(found, expected, rtol=1e-5):
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=rtol, atol=1e-7, err_msg=name)


def equal_to_the_network_on_one_device():
    bfloat16 = functools.partial(wide_network, dtype=jnp.bfloat16)
    for make, loss, counts in (
        (wide_network, PER_SAMPLE, (2, 4)),
        (linen_network, mean_loss, (2,)),
        (bfloat16, PER_SAMPLE, (2,)),
    ):
        network, data = make()
        expected, _, described = measured(network, data, loss)
        for count in counts:
            spread = JaxNetwork(network.apply, divided(network.parameters, mesh(count)))
            found, places, description = measured(spread, data, loss)
            assert_equal(found, expected, rtol=1e-6)
            assert any("model" in str(place.spec) for place in places.values())
            assert all(len(place.device_set) == count for place in places.values())
            assert description.space == described.space
            assert description.samples_sha256 == described.samples_sha256
            assert description.device == "cpu"


def on_a_mesh_with_explicit_axes():
    """There the network itself says where its results are."""
    network, data = wide_network()
    explicit = jax.make_mesh((2,), ("model",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:2])
    everywhere = NamedSharding(explicit, PartitionSpec())
    weights = {"first": jnp.ones((5, 8)) / 4 + jnp.arange(8) / 9, "last": jnp.ones((8, CLASSES)) * jnp.arange(3)}

    def predict(gather, layers, inputs):
        return gather(jnp.tanh(inputs @ layers["first"])) @ layers["last"]

    network = JaxNetwork(functools.partial(predict, lambda hidden: hidden), weights)
    expected, _, _ = measured(network, data)
    gather = functools.partial(jax.sharding.reshard, out_shardings=everywhere)
    spread = JaxNetwork(
        functools.partial(predict, gather), {**weights, **divided({"first": weights["first"]}, explicit)}
    )
    found, places, _ = measured(spread, data)
    assert_equal(found, expected)
    assert places["first"].mesh == explicit


def modules_of_nnx():
    network = NnxPerceptron(nnx.Rngs(0))
    expected, _, _ = measured(network, (features(), classes()))
    graph, state = nnx.split(network)
    found, places, _ = measured(nnx.merge(graph, divided(state, mesh())), (features(), classes()), plan=None)
    assert_equal(found, expected)
    assert any("model" in str(place.spec) for place in places.values())


def interpolated_buffers():
    network, data = linen_network()
    options = MeasurementOptions(buffers="interpolate")
    expected, _, _ = measured(network, data, shift=1, options=options)
    fixed, _, _ = measured(network, data)
    spread = JaxNetwork(network.apply, divided(network.parameters, mesh()))
    found, _, _ = measured(spread, data, shift=1, options=options)
    assert_equal(found, expected)
    assert abs(fixed["loss"] - expected["loss"]).max() > 1e-3


def each_device_holds_its_share():
    network, data = wide_network(width=256)
    devices = jax.devices()[:2]
    spread = JaxNetwork(network.apply, divided(network.parameters, mesh()))
    evaluator = make_evaluator((PER_SAMPLE, spread, data, {}), MeasurementSetup(plan=PLAN))
    plane = own_plane((None, network), evaluator)

    def held():
        gc.collect()
        # An array that is looked at shard by shard keeps those views.
        arrays = {id(array): array for array in jax.live_arrays()}.values()
        sizes = dict.fromkeys(devices, 0)
        for array in arrays:
            for device in array.sharding.device_set & set(devices):
                sizes[device] += int(np.prod(array.sharding.shard_shape(array.shape))) * array.dtype.itemsize
        return sizes

    before = held()
    evaluator.load(*plane)
    after = held()
    whole = 3 * sum(4 * array.size for array in plane[0].values())
    for device in devices:
        assert 0.5 * whole <= after[device] - before[device] <= 0.53 * whole, (after[device] - before[device], whole)


def refusal(network, data, **setup):
    try:
        measured(network, data, **setup)
    except CallbackFunctionError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def errors():
    network, data = wide_network()
    spread = JaxNetwork(network.apply, divided(network.parameters, mesh()))
    text = refusal(spread, data, devices=("cpu:0",))
    assert "is divided among cpu:0, cpu:1, but this worker has cpu:0 only" in text, text
    measured(spread, data, devices=("cpu:0", "cpu:1"))
    measured(spread, data, devices=("cpu",))
    leaves, structure = jax.tree.flatten(spread.parameters)
    leaves[0] = jax.device_put(leaves[0], NamedSharding(mesh(4), PartitionSpec("model")))
    text = refusal(JaxNetwork(network.apply, jax.tree.unflatten(structure, leaves)), data)
    assert "must have all its divided arrays on one jax.sharding.Mesh" in text, text
