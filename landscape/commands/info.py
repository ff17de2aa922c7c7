"""The command ``info``: what a file or a run directory holds, or what this machine would compute on."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from ..record.options import OPTIONS
from ..record.whole_file import kind_of, path_of
from .arguments import check_left_out
from .curvature import curvature
from .next_steps import steps_of, steps_text
from .options import WORKER_OPTIONS, with_options
from .page import facts_of, print_facts
from .run_facts import read_contents, run_json, run_text


@with_options("device_ids", *WORKER_OPTIONS, "as_json", called={"summary_dir": "PATH"})
def info(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="A landscape, curvature or comparison file, a run directory, or the URL of either, such as "
            "s3://bucket/run. Without it: what a run with these options would compute on; nothing is started.",
        ),
    ] = None,
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Says what a file or a run directory holds and what to type next; without a PATH, what this machine has.

    landscape info run
    landscape info run/landscape_result.h5 --json
    landscape info --devices 0,1
    """
    if file is None:
        from workers.pools.open_pool import report_devices

        report = report_devices(options.pop("device_ids"), **options)
        print_facts(report.to_json, lambda: str(report), as_json=as_json)
        return
    unusual = {name: value for name, value in options.items() if value != OPTIONS[name].default}
    check_left_out("with PATH; it belongs to `landscape info` without one", unusual)
    is_directory = False
    with contextlib.suppress(OSError):  # reading it says what is wrong
        is_directory = path_of(file).is_dir()
    if not is_directory:
        load, text_of, values_of = facts_of(kind_of(file))
        found = load(file)
        print_facts(lambda: values_of(found), lambda: text_of(found), as_json=as_json)
        return
    contents = read_contents(file)
    steps = steps_of(contents, vars(curvature)["spelling"])
    print_facts(
        lambda: run_json(contents, steps),
        lambda: "\n\n".join(text for text in (run_text(contents), steps_text(contents, steps)) if text),
        as_json=as_json,
    )
