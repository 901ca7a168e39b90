"""`rlserve.attempt.v1`: the framework's own record of its attempts, one event a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pyarrow as pa

from pytest_rlserve.model import ATTEMPT_EVENTS
from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.blocks import BlockReader
from pytest_rlserve.readers.lines import split
from pytest_rlserve.readers.rows import Refusal, decode, keys
from pytest_rlserve.readers.typed import ABSENT, Columns, Doubt, at_once, columns, given

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "rlserve.attempt.v1"

Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Millis = Annotated[float, msgspec.Meta(ge=0)]
Event = Literal["dispatched", "completed", "canceled", "failed", "retried", "accepted", "rejected"]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Id = Text | Whole


class AttemptEvent(msgspec.Struct, gc=False):
    """The quick test for one event; null, where the schema allows it, is left to the schema."""

    event: Event
    t: Annotated[float, msgspec.Meta(ge=0)]
    attempt_id: Id
    schema: Literal["rlserve.attempt.v1"] = ABSENT
    level: Literal["attempt", "request"] = ABSENT
    run: Id = ABSENT
    group_id: Id = ABSENT
    sample_id: Id = ABSENT
    step: Whole = ABSENT
    target_policy: Id = ABSENT
    policy: Id = ABSENT
    policy_end: Id = ABSENT
    trained_version: Id = ABSENT
    tokens_by_version: dict[str, Count] = ABSENT
    session_id: str = ABSENT
    parent_session_id: str = ABSENT
    x_request_id: str = ABSENT
    x_request_ids: list[str] = ABSENT
    response_id: str = ABSENT
    retry_of: Id = ABSENT
    reason: str = ABSENT
    purpose: str = ABSENT
    endpoint: str = ABSENT
    finish_reason: str = ABSENT
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = ABSENT
    turn: Count = ABSENT
    turns: Count = ABSENT
    reward: float = ABSENT
    http_status: Annotated[int, msgspec.Meta(ge=100, le=599)] = ABSENT
    prompt_tokens: Count = ABSENT
    output_tokens: Count = ABSENT
    cached_tokens: Count = ABSENT
    ttft_ms: Millis = ABSENT
    latency_ms: Millis = ABSENT


_EVENTS = msgspec.json.Decoder(AttemptEvent)
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
    events = Events(file, FORMAT, AttemptEvent, "attempt_events")
    events.read()
    events.require_rows()
    return events.done()


class Events(BlockReader):
    """Fills the table of one log."""

    def quickly(self, text: bytes, first: int) -> int:
        """Take a block as columns."""
        found, kinds = understand(text)
        self.put_columns("attempt_events", found, kinds, range(first, first + len(kinds)))
        return len(kinds)

    def put_row(self, line: int, size: int, row: dict[str, Any]) -> None:
        """Put one event into the table."""
        self.add("attempt_events", row["event"], line, _event(row))


def understand(lines: bytes) -> tuple[Columns, list[str]]:
    """Decode a block of whole lines into columns of the table, and the kinds of its events.

    Raises:
        Doubt: a line does not fit, or has a key twice.
    """
    events = at_once(_EVENTS, lines)
    if events is None:
        raise Doubt
    found = columns(AttemptEvent, events)
    shares = found["tokens_by_version"] = [one and list(one.items()) for one in found["tokens_by_version"]]
    kinds = found["event"]
    found = {name: _array(name, column) for name, column in found.items()}
    known = given(found) + sum(len(one) for one in shares if one)
    # To be sure that keys which are not listed stand once, their lines are decoded as the careful path does.
    if known != keys(lines) and any(isinstance(decode(line), Refusal) for line in split(lines)):
        raise Doubt
    return found | {"level": found["level"].fill_null("attempt")}, kinds


def _array(name: str, column: list[Any]) -> Any:
    """Turn a field into a column of the table, if it is one."""
    if name not in ATTEMPT_EVENTS.names:
        return column
    kind = ATTEMPT_EVENTS.field(name).type
    try:
        return pa.array(column, kind)
    except pa.ArrowTypeError:  # a number among ids
        return pa.array(map(text, column), kind)


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
