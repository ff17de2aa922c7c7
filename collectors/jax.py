"""Collecting landscapes from JAX: flax.linen, flax.nnx and plain functions, in a hand-written loop.

Arrays of JAX never change, so what is watched is a function that returns the present parameters::

    from collectors.jax import SummaryCollector

    collector = SummaryCollector("run", collect_landscape={"intervals": [range(0, 21)], "unit": "epoch"})
    with collector.watch(lambda: params) as run:
        for epoch in range(20):
            for batch in batches:
                params, optimizer_state, loss = train_step(params, optimizer_state, batch)
                run.step(loss)
            run.end_epoch()

The function returns a pytree of arrays, a dict of Flax's collections ({"params": ..., "batch_stats": ...}), an
nnx.Module or a ``JaxNetwork``; an nnx.Module may be given without a function, because it changes in place.
"""

from importlib.util import find_spec

if find_spec("jax") is None:
    raise ImportError("collectors.jax needs JAX; install it with pip install 'summary-landscape[jax]'.", name="jax")

from .networks.jax_network import JaxNetwork
from .recording.summary_collector import SummaryCollector

__all__ = ["JaxNetwork", "SummaryCollector"]
