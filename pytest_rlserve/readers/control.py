"""`rlserve.control.v1`: steps and weight updates, one event a line."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.jsonl import Content, File, RowReader

FORMAT = "rlserve.control.v1"

Event = Literal[
    "gate_closed",
    "pause",
    "transfer",
    "transfer_started",
    "transfer_finished",
    "cache_reset",
    "version",
    "verified",
    "ready",
    "resume",
    "gate_opened",
    "step_started",
    "step_finished",
    "checkpoint_published",
    "checkpoint_restored",
    "worker_lost",
]
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Id = Text | Whole
Unset = msgspec.UnsetType
_UNSET = msgspec.UNSET


class ControlEvent(msgspec.Struct, gc=False):
    """The quick test for one event; whatever it refuses is judged by the schema."""

    event: Event
    t: Annotated[float, msgspec.Meta(ge=0)]
    schema: Literal["rlserve.control.v1"] | Unset = _UNSET
    run: Id | Unset = _UNSET
    worker_id: Text | int | Unset = _UNSET
    replaced_worker_id: Text | int | Unset = _UNSET
    target_workers: list[Text | int] | Unset = _UNSET
    update: Id | Unset = _UNSET
    policy_version: Id | Unset = _UNSET
    step: Whole | Unset = _UNSET
    in_flight: Literal["drain", "keep"] | Unset = _UNSET
    status: Literal["ok", "error", "timeout"] | Unset = _UNSET
    reason: str | Unset = _UNSET
    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | Unset = _UNSET

    def __post_init__(self) -> None:
        """Refuse what the types cannot: worker ids beyond 64 bits, and a step event without its step."""
        targets = self.target_workers if isinstance(self.target_workers, list) else []
        for worker in (self.worker_id, self.replaced_worker_id, *targets):
            if isinstance(worker, int) and not 0 <= worker < 2**64:
                raise ValueError("out of range")
        if self.event.startswith("step_") and self.step is _UNSET:
            raise ValueError("step is missing")


@reader(FORMAT, covers=("steps", "updates", "policy"))
def recognises(head: Head) -> bool:
    """Recognise the schema's name, the usual file name where no row is, or an event of the list."""
    row = head.row or {}
    if head.is_empty("control"):
        return True
    return str(row.get("schema", "")).startswith("rlserve.control.") or (
        "schema" not in row and "attempt_id" not in row and row.get("event") in get_args(Event)
    )


@recognises.read
def read(file: File) -> Content:
    """Read events; worker ids become decimal text."""
    rows = RowReader(file, FORMAT, ControlEvent, "control_events")
    for line, _, row in rows.rows(lambda row: row):
        rows.add("control_events", row["event"], line, _event(row))
    rows.require_rows()
    return rows.done()


def _event(row: dict[str, Any]) -> dict[str, Any]:
    out = dict(row)
    for name in ("run", "update", "policy_version"):
        out[name] = text(row.get(name))
    for name in ("worker_id", "replaced_worker_id"):
        out[name] = None if row.get(name) is None else decimal(row[name])
    if row.get("target_workers") is not None:
        out["target_workers"] = [decimal(worker) for worker in row["target_workers"]]
    return out


_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}|[0-9a-fA-F]{8,16}")


def decimal(worker: str | float) -> str:
    """Write a worker id in decimal: Dynamo's metrics name the same worker in hexadecimal.

    Short words such as "a" or "face" are names that somebody chose, and stay.
    """
    word = text(worker) or ""
    return str(int(word, 16)) if not word.isdecimal() and _HEX.fullmatch(word) else word
