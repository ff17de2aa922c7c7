"""Measures a landscape with this project, as a user would: ``python ours.py JSON``; prints one line of JSON.

The JSON names ``work`` (the file of ``prepare_work``), ``axis`` (the grid is square), ``devices`` and ``output`` (the
landscape file). All other options have their defaults.
"""

import json
import sys
from typing import Any

from networks import read_work
from torch import nn

from landscape import evaluate, random_plane


def main(wanted: dict[str, Any]) -> None:
    path = wanted["work"]

    def callback_fn() -> tuple[Any, ...]:
        network, work = read_work(path)
        return nn.CrossEntropyLoss(), network, (work["inputs"], work["targets"]), {}

    landscape = evaluate(
        random_plane(read_work(path)[0], seed=0),
        callback_fn,
        x=wanted["axis"],
        y=wanted["axis"],
        device_ids=wanted["devices"],
        output=wanted["output"],
        overwrite=True,
        progress=False,
    )
    report = landscape.report
    assert report is not None
    print(
        json.dumps(
            {
                "seconds": report.seconds,
                "measured": report.measured,
                "workers": report.workers,
                "plan": report.forecast.plan,
            }
        )
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
