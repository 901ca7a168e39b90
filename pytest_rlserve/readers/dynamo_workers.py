"""An answer of Dynamo's `GET /v1/rl/workers` (2a6da14c, 2026-08-21): which workers can take weight updates.

The list is one moment's, without a time of its own. Of each worker the number of its routes goes to `step_metrics`,
with the worker's id, as decimal text, as the target; a worker that answered with an error is reported. Addresses are
not kept. Detected by `workers` and `request_plane_url` at the start of the document.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.control import decimal
from pytest_rlserve.readers.records import RecordReader

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "dynamo.rl_workers"
_LIST = re.compile(rb'"workers"\s*:\s*\[.*"request_plane_url"\s*:', re.DOTALL)


class _Worker(msgspec.Struct):
    instance_id: int | str
    routes: list[str] = []
    error: str | None = None


class _Workers(msgspec.Struct):
    workers: list[_Worker]


@reader(FORMAT, covers=())
def recognises(head: Head) -> bool:
    """Recognise the list by the fields that every worker in it has."""
    return head.start.lstrip().startswith(b"{") and _LIST.search(head.start) is not None


@recognises.read
def read(file: File) -> Content:
    """Read the one document."""
    rows = RecordReader(file, FORMAT, _Workers, "step_metrics")
    listed = rows.document()
    for worker in listed.workers if listed else ():
        name = decimal(worker.instance_id)
        rows.add("step_metrics", "worker", 1, {"target": name, "name": "rl routes", "value": len(worker.routes)})
        if worker.error is not None:
            rows.note(f"worker {name} answered with an error, so its routes are not known", "warning")
    return rows.done()
