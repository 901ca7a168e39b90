"""`rlserve.attempt.v1`: the framework's own record of its attempts, one event a line."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pytest_rlserve.model import ATTEMPT_EVENTS
from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.jsonl import Content, File, RowReader

FORMAT = "rlserve.attempt.v1"

Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Millis = Annotated[float, msgspec.Meta(ge=0)]
Event = Literal["dispatched", "completed", "canceled", "failed", "retried", "accepted", "rejected"]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Id = Text | Whole
Unset = msgspec.UnsetType
_UNSET = msgspec.UNSET


class AttemptEvent(msgspec.Struct, gc=False):
    """The quick test for one event; null, where the schema allows it, is left to the schema."""

    event: Event
    t: Annotated[float, msgspec.Meta(ge=0)]
    attempt_id: Id
    schema: Literal["rlserve.attempt.v1"] | Unset = _UNSET
    level: Literal["attempt", "request"] | Unset = _UNSET
    run: Id | Unset = _UNSET
    group_id: Id | Unset = _UNSET
    sample_id: Id | Unset = _UNSET
    step: Whole | Unset = _UNSET
    target_policy: Id | Unset = _UNSET
    policy: Id | Unset = _UNSET
    policy_end: Id | Unset = _UNSET
    trained_version: Id | Unset = _UNSET
    tokens_by_version: dict[str, Count] | Unset = _UNSET
    session_id: str | Unset = _UNSET
    parent_session_id: str | Unset = _UNSET
    x_request_id: str | Unset = _UNSET
    x_request_ids: list[str] | Unset = _UNSET
    response_id: str | Unset = _UNSET
    retry_of: Id | Unset = _UNSET
    reason: str | Unset = _UNSET
    purpose: str | Unset = _UNSET
    endpoint: str | Unset = _UNSET
    finish_reason: str | Unset = _UNSET
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | Unset = _UNSET
    turn: Count | Unset = _UNSET
    turns: Count | Unset = _UNSET
    reward: float | Unset = _UNSET
    http_status: Annotated[int, msgspec.Meta(ge=100, le=599)] | Unset = _UNSET
    prompt_tokens: Count | Unset = _UNSET
    output_tokens: Count | Unset = _UNSET
    cached_tokens: Count | Unset = _UNSET
    ttft_ms: Millis | Unset = _UNSET
    latency_ms: Millis | Unset = _UNSET


_TEXT = [field.name for field in ATTEMPT_EVENTS if field.type == "string" and field.name != "source"]
_NOT_OURS = ("session_ids", "source", "line")
"""Columns that no field of this format fills."""
_OTHER = [field.name for field in ATTEMPT_EVENTS if field.name not in (*_TEXT, *_NOT_OURS)]


@reader(
    FORMAT,
    covers=("dispatched", "completed", "canceled", "failed", "retried", "accepted", "rejected", "policy", "tokens"),
)
def recognises(head: Head) -> bool:
    """Recognise the schema's name, the usual file name where no row is, or an event that names an attempt."""
    row = head.row or {}
    if head.is_empty("attempts"):
        return True
    return str(row.get("schema", "")).startswith("rlserve.attempt.") or (
        "schema" not in row and isinstance(row.get("event"), str) and "attempt_id" in row
    )


@recognises.read
def read(file: File) -> Content:
    """Read events; ids may be numbers in the file and are text from here on."""
    rows = RowReader(file, FORMAT, AttemptEvent, "attempt_events")
    for line, _, row in rows.rows(lambda row: row):
        rows.add("attempt_events", row["event"], line, _event(row))
    rows.require_rows()
    return rows.done()


def text(value: str | float | None) -> str | None:
    """Write an id as text. JSON knows one kind of number, so 7.0 is the id 7."""
    return None if value is None else str(int(value)) if isinstance(value, float) else str(value)


def _event(row: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {name: text(row.get(name)) for name in _TEXT}
    out |= {name: row.get(name) for name in _OTHER}
    out["level"] = out["level"] or "attempt"
    if out["x_request_ids"] is not None:
        out["x_request_ids"] = [str(one) for one in row["x_request_ids"]]
    if out["tokens_by_version"] is not None:
        out["tokens_by_version"] = list(row["tokens_by_version"].items())
    return out
