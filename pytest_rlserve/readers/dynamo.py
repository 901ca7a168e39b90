"""NVIDIA Dynamo's request trace, `dynamo.request.trace.v1` (rows seen from 1.2 to 1.6.1).

The file sinks wrap each record as ``{"timestamp", "event"}``; other sinks write it bare. The wrapper's timestamp
counts milliseconds since the recorder started and is no time of day, so it is ignored. A `request_end` row has
no outcome: whether a short answer was a completion or a cancellation, only the framework's records can say.
"""

from __future__ import annotations

from array import array
from typing import Annotated, Any, Literal

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.jsonl import Content, File, RowReader

FORMAT = "dynamo.request.trace.v1"

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Millis = Annotated[float, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Unset = msgspec.UnsetType
_UNSET = msgspec.UNSET


class _Worker(msgspec.Struct, gc=False):
    prefill_worker_id: int | Unset = _UNSET
    decode_worker_id: int | Unset = _UNSET
    prefill_dp_rank: Count | Unset = _UNSET
    decode_dp_rank: Count | Unset = _UNSET

    def __post_init__(self) -> None:
        array("Q", [w for w in (self.prefill_worker_id, self.decode_worker_id) if isinstance(w, int)])


class _Replay(msgspec.Struct, gc=False):
    trace_block_size: Count | Unset = _UNSET
    input_length: Count | Unset = _UNSET
    input_sequence_hashes: list[int] | Unset = _UNSET

    def __post_init__(self) -> None:
        if isinstance(self.input_sequence_hashes, list):
            array("Q", self.input_sequence_hashes)


class _Choice(msgspec.Struct, gc=False):
    choice_index: Count | Unset = _UNSET
    finish_reason: str | Unset = _UNSET
    stop_reason: str | int | Unset = _UNSET


class _Finish(msgspec.Struct, gc=False):
    finish_reason: str | Unset = _UNSET
    backend_finish_reason: str | Unset = _UNSET
    choices: list[_Choice] | Unset = _UNSET


class _Request(msgspec.Struct, gc=False):
    request_id: Text
    x_request_id: str | Unset = _UNSET
    model: str | Unset = _UNSET
    input_tokens: Count | Unset = _UNSET
    output_tokens: Count | Unset = _UNSET
    cached_tokens: Count | Unset = _UNSET
    request_received_ms: Count | Unset = _UNSET
    prefill_wait_time_ms: Millis | Unset = _UNSET
    prefill_time_ms: Millis | Unset = _UNSET
    ttft_ms: Millis | Unset = _UNSET
    total_time_ms: Millis | Unset = _UNSET
    avg_itl_ms: Millis | Unset = _UNSET
    kv_transfer_estimated_latency_ms: Millis | Unset = _UNSET
    kv_hit_rate: float | Unset = _UNSET
    queue_depth: Count | Unset = _UNSET
    worker: _Worker | Unset = _UNSET
    replay: _Replay | Unset = _UNSET
    finish_reason_metadata: _Finish | Unset = _UNSET


class _Context(msgspec.Struct, gc=False):
    session_id: Text
    parent_session_id: str | Unset = _UNSET
    session_final: bool | Unset = _UNSET
    input_trigger: str | Unset = _UNSET
    trajectory_id: str | Unset = _UNSET
    agent_headers: dict[str, Any] | Unset = _UNSET


class RequestEnd(msgspec.Struct, gc=False):
    """The quick test for a `request_end` row; any other row goes to the schema."""

    schema: Literal["dynamo.request.trace.v1"]
    event_type: Literal["request_end"]
    event_time_unix_ms: Count
    request: _Request
    event_source: str | Unset = _UNSET
    agent_context: _Context | Unset = _UNSET


def unwrap(row: dict[str, Any]) -> dict[str, Any]:
    """Return the record inside the file sinks' wrapper, or the row itself if it is bare."""
    inner = row.get("event")
    return inner if isinstance(inner, dict) else row


@reader(FORMAT, covers=("requests", "tokens"))
def recognises(head: Head) -> bool:
    """Recognise the schema's name in the first row, or a shard's usual file name."""
    row = unwrap(head.row or {})
    named = str(row.get("schema", ""))
    return named.startswith("dynamo.request.trace.") or (not named and head.name.startswith("request-trace"))


@recognises.read
def read(file: File) -> Content:
    """Read one shard into requests, payloads and tools."""
    rows = RowReader(file, FORMAT, RequestEnd, "requests", "payloads", "tools")
    for line, size, row in rows.rows(unwrap):
        kind = row["event_type"]
        match kind:
            case "request_end":
                rows.add("requests", kind, line, _request(row))
            case "request_payload":
                rows.add("payloads", kind, line, _payload(row, size))
            case _:
                rows.add("tools", kind, line, _tool(row))
    return rows.done()


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


_SAME = [
    "request_id",
    "x_request_id",
    "model",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "prefill_wait_time_ms",
    "prefill_time_ms",
    "ttft_ms",
    "total_time_ms",
    "avg_itl_ms",
    "kv_hit_rate",
    "queue_depth",
]
_PARTS = {
    "worker": ("prefill_worker_id", "prefill_dp_rank", "decode_worker_id", "decode_dp_rank"),
    "replay": ("trace_block_size", "input_length", "input_sequence_hashes"),
    "finish_reason_metadata": ("finish_reason", "backend_finish_reason"),
}


def _request(row: dict[str, Any]) -> dict[str, Any]:
    request, context = row["request"], row.get("agent_context") or {}
    out = {name: request.get(name) for name in _SAME}
    for part, names in _PARTS.items():
        inner = request.get(part) or {}
        for name in names:
            out[name] = inner.get(name)
    out["session_id"] = context.get("session_id")
    out["parent_session_id"] = context.get("parent_session_id")
    out["received_at"] = _seconds(request.get("request_received_ms"))
    out["ended_at"] = _seconds(row["event_time_unix_ms"])
    return out


def _payload(row: dict[str, Any], size: int) -> dict[str, Any]:
    return {
        "request_id": row["payload"]["request_id"],
        "received_at": _seconds(row["event_time_unix_ms"]),
        "size": size,
    }


def _tool(row: dict[str, Any]) -> dict[str, Any]:
    tool, context = row["tool"], row.get("agent_context") or {}
    return {
        "event": row["event_type"],
        "session_id": context.get("session_id"),
        "tool_call_id": tool.get("tool_call_id"),
        "tool_class": tool.get("tool_class"),
        "started_at": _seconds(tool.get("started_at_unix_ms")),
        "ended_at": _seconds(tool.get("ended_at_unix_ms")),
        "duration_ms": tool.get("duration_ms"),
        "status": tool.get("status"),
    }
