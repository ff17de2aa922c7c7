"""A Keras network, seen as arrays; which of its normalization layers follow the batches of a training, and its own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
from keras.src.backend import get_keras_mask, set_keras_mask
from numpy.typing import NDArray

from collectors.networks.batches import call_network
from collectors.networks.keras_network import named_variables, to_array, torch_modules
from collectors.networks.weight_space import State, WeightSpace

from ..samples.batches import Batch

_BACK_ENDS = ("torch", "jax", "tensorflow")
_CHANGED = ("call", "momentum", "renorm")  # of a normalization layer
NARROW = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


# Outputs, their masks, penalties and statistics, as a back end compiles them.
_Computed: TypeAlias = tuple[Any, list[Any], list[Any], dict[str, Any]]


@dataclass(frozen=True)
class Prediction:
    """What one forward pass gives."""

    inputs: Any  # what the network was called on
    outputs: Any  # in at least float32; a mask that belongs to an array is attached to it, as Keras does
    penalties: list[Any]  # the losses of layers and regularizers
    statistics: dict[str, Any]  # of the batch, by the names of the buffers that hold those of layers that follow it


class KerasNetwork:
    """A Keras network on the PyTorch, JAX or TensorFlow back end (``ArrayNetwork``)."""

    def __init__(
        self,
        network: Any,
        following: Sequence[Any] = (),  # its normalization layers that compute with the statistics of each batch
        precision: str = "float32",  # "bfloat16" lets layers of float32 compute as under the policy "mixed_bfloat16"
    ) -> None:
        self.back_end = str(keras.backend.backend())
        if self.back_end not in _BACK_ENDS:
            raise ValueError(
                f"Keras' back end must be one of {_BACK_ENDS}, but is {self.back_end!r}; set the environment variable "
                "KERAS_BACKEND before keras is imported."
            )
        entries = named_variables(network)
        self.space = WeightSpace("keras", type(network).__name__, tuple(info for info, _ in entries))
        self._network, self._following, self._precision = network, following, precision
        self._rounded = _layers_of_float32(network) if precision == "bfloat16" else []
        self._variables = {info.name: variable for info, variable in entries}
        self._options = {"training": False} if "training" in network.call_signature_parameters else {}
        self._modes: list[tuple[Any, bool]] = []
        if self.back_end == "torch":
            # PyTorch modules inside a Keras model follow the mode that Keras' own evaluation sets.
            self._modes = [(module, module.training) for module in torch_modules(network)]
            network.eval()
        elif self.back_end == "jax":
            self._stateless = compiled(self._stateless_forward, network)
        elif not (network.compiled and network.run_eagerly):
            import tensorflow as tf

            # The weights are read at each call, and the last batch, which is smaller, needs no second graph.
            self._call = tf.function(self._call, autograph=False, reduce_retracing=True)  # type: ignore[method-assign]

    @property
    def device(self) -> str:
        value = next(iter(self._variables.values())).value
        if self.back_end == "torch":
            return str(value.device.type)
        if self.back_end == "tensorflow":
            return str(value.device).rsplit(":", 2)[-2].lower()
        import jax

        return str(jax.default_backend())

    def read(self) -> dict[str, NDArray[Any]]:
        return {name: to_array(variable) for name, variable in self._variables.items()}

    def write(self, state: State) -> None:
        for name, array in state.items():
            value: Any = array
            if self.back_end == "torch":
                from collectors.networks.torch_network import to_tensor

                value = to_tensor(array)
            self._variables[name].assign(value)

    def forward(self, *inputs: Any, **named_inputs: Any) -> Prediction:
        """Returns the outputs without training; several inputs are a list, as Keras takes them."""
        given = _given(inputs, named_inputs)
        if self.back_end == "jax":
            trained = [variable.value for variable in self._network.trainable_variables]
            return _prediction(given, *self._stateless(trained, self.others, given))
        if self.back_end == "tensorflow":
            given = keras.tree.map_structure(keras.ops.convert_to_tensor, given)
        return _prediction(given, *self._call(given))

    @property
    def normalizes_by_batch(self) -> bool:
        return bool(self._following)

    def normalized_by_batch(self, inputs: Any) -> KerasNetwork:
        """Returns the network with the batch's statistics where it has them in a training, as a few samples show."""

        def find(*given: Any, **named: Any) -> list[Any]:
            return following_layers(self._network, _given(given, named))

        before = self.read()  # such as the seeds of what draws
        try:
            return KerasNetwork(self._network, call_network(find, inputs), self._precision)
        finally:
            self.write(before)

    def in_float32(self) -> KerasNetwork:
        """Returns the network as it was built, for derivatives."""
        return self if self._precision == "float32" else KerasNetwork(self._network, self._following)

    def statistics_of(self, batch: Batch) -> dict[str, NDArray[Any]]:
        found = call_network(self.forward, batch.inputs).statistics
        return {name: to_array(statistic) for name, statistic in found.items()}

    def trained(self, names: Sequence[str]) -> list[Any]:
        """Returns the back end's own variables."""
        return [self._variables[name].value for name in names]

    @property
    def others(self) -> list[Any]:
        """The back end's arrays that are not trainable."""
        return [variable.value for variable in self._network.non_trainable_variables]

    def forward_at(
        self, weights: Mapping[str, Any], others: list[Any], *inputs: Any, **named_inputs: Any
    ) -> Prediction:
        """Returns the outputs on the JAX back end with arrays in place of the network's; nothing is compiled."""
        given = _given(inputs, named_inputs)
        names = {id(variable): name for name, variable in self._variables.items()}
        trained = [weights.get(names[id(item)], item.value) for item in self._network.trainable_variables]
        return _prediction(given, *self._stateless_forward(trained, others, given))

    @contextlib.contextmanager
    def settings(self, threads: int) -> Any:
        """Full precision; on the PyTorch back end without gradients and with that many threads."""
        if self.back_end == "torch":
            import torch

            from ..torch.settings import measurement_settings

            with measurement_settings([torch.device(self.device)], threads):
                yield
        elif self.back_end == "tensorflow":
            from tensorflow.config import experimental

            before = experimental.tensor_float_32_execution_enabled()
            experimental.enable_tensor_float_32_execution(False)
            try:
                yield
            finally:
                experimental.enable_tensor_float_32_execution(before)
        else:
            import jax

            with jax.default_matmul_precision("highest"):
                yield

    def close(self) -> None:
        for module, mode in self._modes:
            module.training = mode

    def _call(self, inputs: Any) -> _Computed:
        with batch_statistics(self._following) as statistics, _in_bfloat16(self._rounded):
            outputs = self._network(inputs, **self._options)
        return self._computed(outputs, self._network.losses, statistics)

    def _stateless_forward(self, trained: Any, others: Any, inputs: Any) -> _Computed:
        with batch_statistics(self._following) as statistics, _in_bfloat16(self._rounded):
            outputs, _, penalties = self._network.stateless_call(
                trained, others, inputs, return_losses=True, **self._options
            )
        return self._computed(outputs, penalties, statistics)

    def _computed(self, outputs: Any, penalties: Iterable[Any], statistics: Mapping[int, Any]) -> _Computed:
        named = {name: statistics[id(item)] for name, item in self._variables.items() if id(item) in statistics}
        return _at_least_float32(outputs), masks_of(outputs), list(penalties), named


def compiled(function: Callable[..., Any], network: Any) -> Callable[..., Any]:
    """Returns the function, compiled by JAX on its back end, unless the user compiled the model to run eagerly."""
    eager = network.compiled and (network.run_eagerly or not network.jit_compile)
    if keras.backend.backend() != "jax" or eager:
        return function
    import jax

    result: Callable[..., Any] = jax.jit(function)
    return result


def _prediction(given: Any, outputs: Any, masks: list[Any], *others: Any) -> Prediction:
    attach_masks(outputs, masks)
    return Prediction(given, outputs, *others)


def _layers_of_float32(network: Any) -> list[Any]:
    layers = [layer for layer in network._flatten_layers(recursive=True) if layer.compute_dtype == "float32"]
    if not layers:
        raise ValueError(
            'precision="bfloat16" changes nothing: no layer of the network computes in float32. Use '
            'precision="float32", which leaves a network as it was built.'
        )
    return layers


@contextlib.contextmanager
def _in_bfloat16(layers: Sequence[Any]) -> Iterator[None]:
    before = [vars(layer)["_dtype_policy"] for layer in layers]
    try:
        for layer in layers:
            vars(layer)["_dtype_policy"] = keras.DTypePolicy("mixed_bfloat16")
        yield
    finally:
        for layer, policy in zip(layers, before, strict=True):
            vars(layer)["_dtype_policy"] = policy


def _given(inputs: tuple[Any, ...], named_inputs: dict[str, Any]) -> Any:
    return named_inputs or (inputs[0] if len(inputs) == 1 else list(inputs))


def _at_least_float32(outputs: Any) -> Any:
    """Returns the outputs without masks, those of fewer digits than float32 as float32, for losses and metrics."""

    def cast(array: Any) -> Any:
        narrow = keras.backend.standardize_dtype(array.dtype) in NARROW
        return keras.ops.cast(array, "float32") if narrow else array

    return keras.tree.map_structure(cast, outputs)


def masks_of(outputs: Any) -> list[Any]:
    return [get_keras_mask(array) for array in keras.tree.flatten(outputs)]


def attach_masks(outputs: Any, masks: Sequence[Any]) -> None:
    for array, mask in zip(keras.tree.flatten(outputs), masks, strict=True):
        if mask is not None:
            set_keras_mask(array, mask)


def following_layers(network: Any, inputs: Any) -> list[Any]:
    """Returns the layers whose statistics follow the batches of a training, in which the network is called once."""
    # While Keras trains, layers that are frozen or called with ``training=False`` keep theirs.
    found = []
    layers = [
        layer
        for layer in network._flatten_layers(recursive=True)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]

    def asking(layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
            found.extend([layer] if training and layer not in found else [])
            return call(inputs, training=False, mask=mask)

        return asked

    if layers:
        takes_training = "training" in network.call_signature_parameters
        with _computing(layers, asking):
            network(inputs, **({"training": True} if takes_training else {}))
    return found


@contextlib.contextmanager
def batch_statistics(layers: Sequence[Any]) -> Iterator[dict[int, Any]]:
    """Lets layers compute with the batch's statistics; gives them, by the identity of the variables that hold them."""
    found: dict[int, Any] = {}

    def averaging(layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        numbers = itertools.count(1)

        def averaged(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:  # noqa: ARG001
            number, variables = next(numbers), (layer.moving_mean, layer.moving_variance)
            for variable in variables if number == 1 else ():
                variable.assign(keras.ops.zeros(variable.shape, variable.dtype))  # what is not finite would stay so
            # A layer that is used several times in a pass has their mean; batch renormalization corrects by the past.
            vars(layer).update(momentum=1 - 1 / number, renorm=False)
            outputs = call(inputs, training=True, mask=mask)
            found.update((id(variable), keras.ops.convert_to_tensor(variable)) for variable in variables)
            return outputs

        return averaged

    with _computing(layers, averaging):
        yield found


@contextlib.contextmanager
def _computing(layers: Sequence[Any], change: Callable[..., Callable[..., Any]]) -> Iterator[None]:
    """Changes what layers compute, in their own attributes, which are put back at the end."""
    before = [{name: vars(layer)[name] for name in _CHANGED if name in vars(layer)} for layer in layers]
    try:
        for layer in layers:
            vars(layer)["call"] = change(layer, layer.call)
        yield
    finally:
        for layer, attributes in zip(layers, before, strict=True):
            for name in _CHANGED:
                vars(layer).pop(name, None)
            vars(layer).update(attributes)
