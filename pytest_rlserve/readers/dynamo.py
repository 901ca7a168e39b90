"""NVIDIA Dynamo's request trace, `dynamo.request.trace.v1` (rows seen from 1.2 to 1.6.1).

The file sinks wrap each record as ``{"timestamp", "event"}``; other sinks write it bare. The wrapper's timestamp
counts milliseconds since the recorder started and is no time of day, so it is ignored. A `request_end` row has
no outcome: whether a short answer was a completion or a cancellation, only the framework's records can say.
In rows of June 2026 `session_id` names the whole run and `trajectory_id` the rollout; where both are there, the
rollout is the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.blocks import BlockReader
from pytest_rlserve.readers.dynamo_prompts import Prompts
from pytest_rlserve.readers.dynamo_quick import require_whole, understand
from pytest_rlserve.readers.dynamo_shapes import RequestEnd, RequestPayload, ToolEvent
from pytest_rlserve.readers.typed import Doubt

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "dynamo.request.trace.v1"
_SCHEMAS = ("dynamo.request.trace.", "dynamo.agent.trace.")
"""Known by name, so that rows of another version are refused as such and not passed over."""


def unwrap(row: dict[str, Any]) -> dict[str, Any]:
    """Return the record inside the file sinks' wrapper, or the row itself if it is bare."""
    inner = row.get("event")
    return inner if isinstance(inner, dict) else row


@reader(FORMAT, covers=("requests", "tokens"))
def recognises(head: Head) -> bool:
    """Recognise the schema's name in the first row, or a shard's usual file name."""
    row = unwrap(head.row or {})
    named = str(row.get("schema", ""))
    return named.startswith(_SCHEMAS) or (not named and head.name.startswith("request-trace"))


@recognises.read
def read(file: File) -> Content:
    """Read one shard into requests, payloads and tools."""
    shard = Shard(file)
    shard.read()
    return shard.done()


class Shard(BlockReader):
    """Fills the tables of one shard."""

    def __init__(self, file: File) -> None:
        """Prepare to read `file`."""
        super().__init__(file, FORMAT, RequestEnd, "requests", "payloads", "tools")
        self._prompts = Prompts()

    def quickly(self, text: bytes, first: int) -> int:
        """Take a block by its parts."""
        block = understand(text)
        aside = [self.judged(first + place, line) for place, line in block.doubtful]
        if any(isinstance(row, dict) and row["event_type"] != "request_payload" for _, _, row in aside):
            raise Doubt  # a row that belongs between the others
        if self.file.hashes:
            names = zip(block.ends.sessions, block.ends.parents, strict=True)
            prompts = self._prompts.decode(text, block.hashes, names, self.chains.rows)
            self.chains.extend(prompts.back, prompts.shared, prompts.sizes, prompts.values)
        else:
            require_whole(text, block.hashes)
        self.put_judged(aside)
        for table, part, times in (("requests", block.ends, _REQUEST_TIMES), ("tools", block.tools, _TOOL_TIMES)):
            if part.places:
                kinds = part.columns["event_type"]
                instants = {name: _seconds_of(part.columns[ms]) for name, ms in times.items()}
                found = part.columns | instants | {"event": kinds}
                self.put_columns(table, found, kinds, first + np.array(part.places))
        return block.count

    def shape_of(self, row: dict[str, Any]) -> type[RequestEnd | RequestPayload | ToolEvent]:
        """Return the shape of that kind of record."""
        return RequestPayload if "payload" in row else ToolEvent if "tool" in row else RequestEnd

    def unwrap(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the record inside the file sinks' wrapper."""
        return unwrap(row)

    def put_row(self, line: int, size: int, row: dict[str, Any]) -> None:
        """Put a row into the table of its kind."""
        match kind := row["event_type"]:
            case "request_end":
                self.add("requests", kind, line, _request(row))
            case "request_payload":
                self.add("payloads", kind, line, _payload(row, size))
            case _:
                self.add("tools", kind, line, _tool(row))


def _seconds_of(column: list[int | None]) -> list[float | None]:
    return [None if ms is None else ms / 1000 for ms in column]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


_REQUEST_TIMES = {"received_at": "request_received_ms", "ended_at": "event_time_unix_ms"}
_TOOL_TIMES = {"started_at": "started_at_unix_ms", "ended_at": "ended_at_unix_ms"}
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
    out["session_id"] = context.get("trajectory_id") or context.get("session_id")
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
        "session_id": context.get("trajectory_id") or context.get("session_id"),
        "tool_call_id": tool.get("tool_call_id"),
        "tool_class": tool.get("tool_class"),
        "started_at": _seconds(tool.get("started_at_unix_ms")),
        "ended_at": _seconds(tool.get("ended_at_unix_ms")),
        "duration_ms": tool.get("duration_ms"),
        "status": tool.get("status"),
    }
