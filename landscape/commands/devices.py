"""``landscape devices``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .arguments import integers, options_named
from .run import OPTIONS


def devices(
    devices: Annotated[str | None, typer.Option(help="Device ids such as 0,1; all when absent.")] = None,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster.")] = None,
    devices_per_worker: Annotated[int, typer.Option(help="GPUs that each worker sees, or slots that it joins.")] = 1,
    workers_per_device: Annotated[int, typer.Option(help="Workers on each GPU, or on each slot's cores.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Says what a run with the same options would compute on; starts nothing."""
    from workers.device_report import report_devices

    with options_named(OPTIONS):
        report = report_devices(
            None if devices is None else integers("--devices", devices),
            address=address,
            devices_per_worker=devices_per_worker,
            workers_per_device=workers_per_device,
        )
    typer.echo(json.dumps(report.to_json(), indent=2) if as_json else str(report))
