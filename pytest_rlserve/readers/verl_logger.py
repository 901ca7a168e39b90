"""verl's file logger, `trainer.logger: [file]` (verl 1dda039b, 2026-08-22): what each step counted and averaged.

A line is `{"step", "data": {name: number}}`; every number is kept under verl's own name in the table `step_metrics`.
Nothing here tells of single attempts, and there are no times of day. A resumed run writes the file anew, so the
steps before it are gone. Names that mislead: `response/aborted_ratio` is the share of samples without a single
token, not of aborted requests; `async_training.staleness_threshold` is a share of samples, not a version gap.

Detected by a whole-number `step` beside an object `data`. verl writes NaN as null, which stays unknown, and −1 where
an agent loop has no value, which becomes unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.records import RecordReader, Whole

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "verl_logger"
_MINUS_ONE_IS_UNKNOWN = "timing_s/agent_loop/"


class _Step(msgspec.Struct):
    step: Whole
    data: dict[str, float | None]


@reader(FORMAT, covers=())
def recognises(head: Head) -> bool:
    """Recognise a step with its numbers."""
    row = head.row or {}
    return isinstance(row.get("step"), int) and isinstance(row.get("data"), dict)


@recognises.read
def read(file: File) -> Content:
    """Read the steps' numbers, each into a row of its own."""
    rows = RecordReader(file, FORMAT, _Step, "step_metrics")
    for line, record in rows.records():
        for name, value in record.data.items():
            unknown = value == -1 and name.startswith(_MINUS_ONE_IS_UNKNOWN)
            number = {"step": record.step, "name": name, "value": None if unknown else value}
            rows.put("step_metrics", line, number)
        rows.count("step")
    return rows.done()
