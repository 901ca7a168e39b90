"""An answer of Dynamo's `GET /v1/rl/workers` (lib/rl, 2a6da14c, 2026-08-21): which workers can take weight updates.

The list is one moment's, without a time of its own, and it has no versions: those tells a worker's own route
`get_weight_version`. So it becomes no control event. Of each worker the routes go to `step_metrics`, one number 1 for
each and their count, with the worker's id, as decimal text, as the target. A worker that answered with an error is
reported, as is a list without workers. Addresses are not kept. Detected by `workers` and `request_plane_url` at the
start of the document, or by `protocol_version`, `namespace` and `workers` where no worker is listed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.control import decimal
from pytest_rlserve.readers.records import RecordReader, word

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "dynamo.rl_workers"
_LIST = re.compile(rb'"workers"\s*:\s*\[.*"request_plane_url"\s*:', re.DOTALL)
_EMPTY = re.compile(rb'\s*\{\s*"protocol_version"\s*:.*"namespace"\s*:.*"workers"\s*:\s*\[\s*\]', re.DOTALL)


class _Worker(msgspec.Struct):
    instance_id: int | str
    routes: list[str] = []
    error: str | None = None


class _Workers(msgspec.Struct):
    workers: list[_Worker]


@reader(FORMAT, covers=())
def recognises(head: Head) -> bool:
    """Recognise the list by the fields that every worker in it has, and an empty one by its own."""
    if _EMPTY.match(head.start):
        return True
    return head.start.lstrip().startswith(b"{") and _LIST.search(head.start) is not None


@recognises.read
def read(file: File) -> Content:
    """Read the one document."""
    rows = RecordReader(file, FORMAT, _Workers, "step_metrics")
    listed = rows.document()
    for worker in listed.workers if listed else ():
        name = decimal(worker.instance_id)
        routes = None if worker.error is not None else len(worker.routes)
        rows.add("step_metrics", "worker", 1, {"target": name, "name": "rl routes", "value": routes})
        for route in filter(word, worker.routes):
            rows.put("step_metrics", 1, {"target": name, "name": f"rl route {route}", "value": 1})
        if worker.error is not None:
            rows.note(f"worker {name} answered with an error, so its routes are not known", "warning")
    if listed is not None and not listed.workers:
        rows.note("the list names no worker: none registered Dynamo's routes for weight updates", "warning")
    return rows.done()
