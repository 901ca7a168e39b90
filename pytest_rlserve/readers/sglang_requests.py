"""SGLang's request log, `sglang-request-metrics-YYYYMMDD_HH.log` (SGLang 0.5.23, `--export-metrics-to-file`).

A line is one request as the engine saw it, and becomes a row of `requests`, as a row of Dynamo does: `cached_tokens`
is the engine's own number, the waiting time is the engine's queue, and an aborted request has the backend finish
reason `abort`. The weight versions of a request are those that generated its first and its last token.

Detected by the line's own fields, whatever the file is called. `request_parameters` is JSON inside a string and may
hold the prompt: only `rid` is taken from it, the id that the client chose, which is both request id and join key.
Behind Dynamo this log counts the same requests a second time: give one of the two. Limits: no session, no model, no
worker id, no block hashes; times are the engine's and leave out whatever lies before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.records import Amount, Count, Id, RecordReader, word

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "sglang_requests"


class _Reason(msgspec.Struct):
    type: str


class _Versions(msgspec.Struct):
    version: Id


class _Request(msgspec.Struct):
    id: Id
    request_parameters: str | None = None
    finish_reason: _Reason | None = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    weight_version: Id | None = None
    weight_versions: list[_Versions] = []
    queue_time: Amount | None = None
    request_received_ts: Amount | None = None
    request_finished_ts: Amount | None = None
    first_token_latency: Amount | None = None
    e2e_latency: Amount | None = None
    dp_rank: Count | None = None


class _Parameters(msgspec.Struct):
    rid: Id | None = None


@reader(FORMAT, covers=("requests", "tokens", "policy"))
def recognises(head: Head) -> bool:
    """Recognise what the engine says of a request."""
    return {"id", "request_parameters", "request_received_ts", "e2e_latency"} <= set(head.row or {})


@recognises.read
def read(file: File) -> Content:
    """Read one request a line."""
    rows = RecordReader(file, FORMAT, _Request, "requests")
    for line, request in rows.records():
        rows.add("requests", "request", line, _row(request))
    return rows.done()


def _row(request: _Request) -> dict[str, Any]:
    versions = [text(one.version) for one in request.weight_versions] or [text(request.weight_version)]
    reason = word(request.finish_reason.type) if request.finish_reason else None
    first = request.first_token_latency if request.completion_tokens else None  # nothing came, so nothing came first
    return {
        "request_id": text(request.id),
        "x_request_id": _chosen(request.request_parameters),
        "received_at": request.request_received_ts,
        "ended_at": request.request_finished_ts,
        "input_tokens": request.prompt_tokens,
        "output_tokens": request.completion_tokens,
        "cached_tokens": request.cached_tokens,
        "prefill_wait_time_ms": _ms(request.queue_time),
        "ttft_ms": _ms(first),
        "total_time_ms": _ms(request.e2e_latency),
        "decode_dp_rank": request.dp_rank,
        "finish_reason": reason,
        "backend_finish_reason": reason,
        "policy": versions[0],
        "policy_end": versions[-1],
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _chosen(parameters: str | None) -> str | None:
    """Return the id that the client chose, if it chose one."""
    try:
        return text(msgspec.json.decode(parameters or "{}", type=_Parameters).rid)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
