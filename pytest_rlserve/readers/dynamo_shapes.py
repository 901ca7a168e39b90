"""The records of a Dynamo request trace as types, with the fields that the schema knows.

Dynamo leaves out what it does not know, so a null fits no field's type but the few that the schema allows it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pytest_rlserve.readers.typed import ABSENT

Foreign = Annotated[int, msgspec.Meta(ge=1, le=0)]
"""No value at all: what does not belong into a row is left to the schema."""
LARGEST = 2**64 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Unsigned = Annotated[int, msgspec.Meta(ge=0)]
"""Up to `LARGEST`, which msgspec cannot be told; see `exact`."""
Millis = Annotated[float, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Worker(msgspec.Struct, gc=False):
    """Who served a request."""

    prefill_worker_id: Unsigned = ABSENT
    decode_worker_id: Unsigned = ABSENT
    prefill_dp_rank: Count = ABSENT
    decode_dp_rank: Count = ABSENT


class Replay(msgspec.Struct, gc=False):
    """What a replay needs to know of the prompt."""

    trace_block_size: Count = ABSENT
    input_length: Count = ABSENT
    input_sequence_hashes: list[Unsigned] = ABSENT


class Choice(msgspec.Struct, gc=False):
    """How one choice ended."""

    choice_index: Count = ABSENT
    finish_reason: str = ABSENT
    stop_reason: str | int = ABSENT


class Finish(msgspec.Struct, gc=False):
    """How generation ended."""

    finish_reason: str = ABSENT
    backend_finish_reason: str = ABSENT
    choices: list[Choice] = ABSENT
    tool_calls: Any = ABSENT
    """Of any layout, as for the schema."""


class Request(msgspec.Struct, gc=False):
    """What was measured of a request."""

    request_id: Text
    x_request_id: str = ABSENT
    model: str = ABSENT
    input_tokens: Count = ABSENT
    output_tokens: Count = ABSENT
    cached_tokens: Count = ABSENT
    request_received_ms: Count = ABSENT
    prefill_wait_time_ms: Millis = ABSENT
    prefill_time_ms: Millis = ABSENT
    ttft_ms: Millis = ABSENT
    total_time_ms: Millis = ABSENT
    avg_itl_ms: Millis = ABSENT
    kv_transfer_estimated_latency_ms: Millis = ABSENT
    kv_hit_rate: float = ABSENT
    queue_depth: Count = ABSENT
    worker: Worker | None = ABSENT
    replay: Replay = ABSENT
    finish_reason_metadata: Finish = ABSENT


class Context(msgspec.Struct, gc=False):
    """The session that the client named."""

    session_id: Text
    parent_session_id: str = ABSENT
    session_final: bool = ABSENT
    input_trigger: str = ABSENT
    trajectory_id: str = ABSENT
    agent_headers: dict[str, Any] = ABSENT


class Tool(msgspec.Struct, gc=False):
    """A tool call."""

    tool_call_id: Text
    tool_class: str = ABSENT
    started_at_unix_ms: Count = ABSENT
    ended_at_unix_ms: Count = ABSENT
    status: str = ABSENT
    duration_ms: Millis = ABSENT
    output_bytes: Count = ABSENT
    output_tokens: Count = ABSENT
    error_type: str = ABSENT


class Record(msgspec.Struct, gc=False, kw_only=True):
    """Any record; what a payload holds is passed over."""

    schema: Literal["dynamo.request.trace.v1"] = ABSENT
    event_type: Literal["request_end", "request_payload", "tool_start", "tool_end", "tool_error"] = ABSENT
    event_time_unix_ms: Count = ABSENT
    event_source: str = ABSENT
    agent_context: Context = ABSENT
    request: Request = ABSENT
    tool: Tool = ABSENT
    payload: msgspec.Raw = ABSENT


class RequestEnd(Record, gc=False, kw_only=True):
    """The quick test for a decoded `request_end` row."""

    schema: Literal["dynamo.request.trace.v1"]
    event_type: Literal["request_end"]
    event_time_unix_ms: Count
    request: Request
    payload: Foreign = ABSENT  # type: ignore[assignment]

    def exact(self) -> bool:
        """Tell whether its 64-bit integers are in range."""
        worker, replay = self.request.worker or Worker(), self.request.replay or Replay()
        ids = (worker.prefill_worker_id or 0, worker.decode_worker_id or 0)
        return max(*ids, *(replay.input_sequence_hashes or ())) <= LARGEST


class Payload(msgspec.Struct, gc=False):
    """What was sent and answered; only its identity is ever read."""

    request_id: Text


class RequestPayload(Record, gc=False, kw_only=True):
    """The quick test for a decoded `request_payload` row."""

    schema: Literal["dynamo.request.trace.v1"]
    event_type: Literal["request_payload"]
    event_time_unix_ms: Count
    payload: Payload  # type: ignore[assignment]
    request: Foreign = ABSENT  # type: ignore[assignment]


class ToolEvent(Record, gc=False, kw_only=True):
    """The quick test for a decoded row of a tool call."""

    schema: Literal["dynamo.request.trace.v1"]
    event_type: Literal["tool_start", "tool_end", "tool_error"]
    event_time_unix_ms: Count
    tool: Tool
    request: Foreign = ABSENT  # type: ignore[assignment]
    payload: Foreign = ABSENT  # type: ignore[assignment]


class Line(Record, gc=False, kw_only=True):
    """A line of a file: a bare record, or one in the wrapper of Dynamo's file sinks."""

    timestamp: float = ABSENT
    event: Record = ABSENT
