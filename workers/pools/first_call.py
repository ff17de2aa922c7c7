"""callback_fn called before a pool opens, because a plane must know the network: here, or in a process that ends."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from collectors.errors import LandscapeError
from collectors.networks.readers import framework_of, without_average
from collectors.networks.weight_space import WeightSpace
from collectors.validation import check_device_ids, check_instance

from ..callback_fn import call_callback, space_of
from ..errors import CallbackFunctionError, PoolError
from ..evaluator import Evaluator
from ..measurement_options import MeasurementOptions
from ..samples.random_state import random_state, random_state_kept, set_random_state
from .actors import ActorError, ActorTaskError
from .crew_worker import ActorRecipe, CrewWorker, pickled_function, raise_failures
from .devices import WorkerLayout, WorkerPlace, local_processes_suffice
from .open_pool import where_it_runs
from .ray_session import check_ray

# A callback_fn that calls Ray would start another Ray there; a worker calls it where Ray is.
_WITHOUT_DEVICES = {
    "CUDA_VISIBLE_DEVICES": "",
    "ASCEND_RT_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "RAY_ENABLE_AUTO_CONNECT": "0",
}


class FirstCall:
    """Is callback_fn itself, but the first call in this process gets what it returned while it was described.

    Where workers with these options would reserve GPUs or nodes, another process describes it, which ends.
    """

    def __init__(self, function: Callable[[], Any], options: Mapping[str, Any] | None = None) -> None:
        # As in ``functools.partial``.
        self.func = check_instance("callback_fn", function, Callable, "a function without arguments")  # type: ignore[arg-type]
        # So the data set of a survey in this process is built once. A worker in another process gets the function.
        self._results: list[tuple[Any, Any]] = []  # with the random state that it left, in which samples are read
        self.space = self._described(options)
        # By it a pool of processes sees which frameworks they need.
        self.__code__ = getattr(function, "__code__", None)

    def _described(self, options: Mapping[str, Any] | None) -> WeightSpace:
        if isinstance(self.func, FirstCall):
            return self.func.space
        if options is not None and _reserves_devices(options):
            with contextlib.suppress(LandscapeError):  # what is wrong shows here too, unless only a GPU is missing
                return describe_without_gpus(self.func)
        return space_of(self.result())

    def result(self) -> Any:
        """Returns what callback_fn gave; it leaves the process's random numbers as they were."""
        if not self._results:
            with random_state_kept():
                self._results.append((call_callback(self.func), random_state()))
        return self._results[0][0]

    def network(self) -> object:
        """Returns the network; it must be asked for before the call."""
        result = self.result()
        if isinstance(result, Evaluator):
            raise CallbackFunctionError(
                "callback_fn returns an Evaluator, which does not show its network's weights; name a checkpoint file."
            )
        return result[1]

    def example(self, count: int = 32) -> Any:
        """Returns the first samples' inputs, as a PyTorch network takes them; to be asked for before the call."""
        network = self.network()
        if framework_of(network) != "torch":
            raise CallbackFunctionError(
                f"callback_fn returns a {type(network).__name__}, which is no PyTorch network; others are not aligned."
            )
        from ..torch.user_data import example_inputs

        model, _, dataset, _ = self.result()
        return example_inputs(model, without_average(network), dataset, count)  # type: ignore[arg-type]

    def __call__(self) -> Any:
        if not self._results:
            return self.func()
        result, state = self._results.pop()
        set_random_state(state)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        # What is sent elsewhere is built there, and no longer needed here.
        self._results.clear()
        return _same, (self.func,)


def _same(function: Callable[[], Any]) -> Callable[[], Any]:
    return function


def space_before_devices(callback_fn: Callable[[], Any], options: Mapping[str, Any]) -> WeightSpace | None:
    """Returns the network's description, of a process that has ended; None where a pool's options reserve nothing.

    GPUs and the nodes of a cluster would wait for whatever is computed between the description and the first task.
    """
    return describe_without_gpus(callback_fn) if _reserves_devices(options) else None


def _reserves_devices(options: Mapping[str, Any]) -> bool:
    """Returns whether a pool of these options reserves GPUs or nodes; raises what would end it hours later."""
    layout = WorkerLayout(options.get("devices_per_worker", 1), options.get("workers_per_device", 1))
    asked = check_device_ids("device_ids", options.get("device_ids"))
    where, _, _ = where_it_runs(asked, layout, options.get("address"))
    if where != "cluster" and (where == "in process" or local_processes_suffice()):
        return False
    check_ray(options.get("address"))
    if asked is not None:
        layout.check_devices(asked)
    return True


def describe_without_gpus(callback_fn: Callable[[], Any]) -> WeightSpace:
    """Returns the description of callback_fn's network, of one call in a process that sees no GPU and has ended."""
    import cloudpickle

    from .local_pool import LocalActor, LocalActors

    pickled = pickled_function(cloudpickle.dumps, callback_fn)
    with contextlib.closing(LocalActors((), forked=False, environment=_WITHOUT_DEVICES)) as actors:
        recipe = ActorRecipe(actors, actors.put(pickled), (), MeasurementOptions(), actor=LocalActor)
        worker = CrewWorker(recipe, WorkerPlace(()))
        try:
            raise_failures(actors.get([worker.create(), worker.prepare()]))
            (space,) = raise_failures(actors.get([worker.call("space")]))
        except ActorTaskError as error:
            raise CallbackFunctionError(f"what callback_fn returns cannot be described: {error}") from error
        except ActorError as error:
            raise PoolError(f"the process in which callback_fn was called on a CPU died: {error}") from error
        return cast("WeightSpace", space)


@contextlib.contextmanager
def other_random_numbers(seed: int) -> Iterator[None]:
    """Gives callback_fn other random numbers, as another worker would; afterwards the generators are as before."""
    with random_state_kept():
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        if "torch" in sys.modules:
            sys.modules["torch"].default_generator.manual_seed(seed)
        yield
