"""Finds the top of a Hessian's spectrum with this project: ``python curvature_ours.py JSON``; answers in JSON.

The JSON names ``work`` (the file of ``prepare_work``) and ``devices``. Each line that it then reads is a search, [top,
tolerance], and is answered by a line.
"""

import contextlib
import json
import sys
from typing import Any

from curvature_peers import Clock, answer_searches
from networks import read_work
from torch import nn

from workers.curvature.measuring import CurvatureSettings
from workers.measurement_options import MeasurementOptions
from workers.pool import CurvatureTask, Pool
from workers.pools.open_pool import open_pool


def main(wanted: dict[str, Any]) -> None:
    path, devices = wanted["work"], wanted["devices"]

    def callback_fn() -> tuple[Any, ...]:
        network, work = read_work(path)
        return nn.CrossEntropyLoss(), network, (work["inputs"], work["targets"]), {}

    def weights() -> tuple[dict[str, Any], dict[str, Any]]:
        network, _ = read_work(path)
        parameters = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
        return parameters, {name: tensor.numpy() for name, tensor in network.named_buffers()}

    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(open_pool(callback_fn, MeasurementOptions(), device_ids=devices))
        plan = pool.description.plan

        def search(top: int, tolerance: float) -> dict[str, Any]:
            settings = CurvatureSettings(top=top, trace_probes=0, tolerance=tolerance)
            with contextlib.ExitStack() as own:
                used: Pool = pool
                if len(devices) == 1:
                    # A new one in this process checks its first products, as each of Ray's does at each search.
                    used = own.enter_context(
                        open_pool(callback_fn, MeasurementOptions(), device_ids=devices, plan=plan)
                    )
                clock = Clock()
                found = used.measure_curvature(CurvatureTask("all", weights, settings))
                times = clock.stop()
            if found.values is None:
                raise RuntimeError(found.error)
            return {"products": found.values.products, "values": found.values.eigenvalues.tolist(), **times}

        search(1, 0.5)  # What PyTorch imports at the first product is nobody's search.
        way = f"batches of {plan.batch_size}, derivatives kept within a quarter of free memory"
        answer_searches(search, way, "")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
