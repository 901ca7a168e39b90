"""The canonical tables: what every reader produces and every check and metric reads.

Names of Dynamo's fields are kept letter for letter. Instants end in `_at` and count seconds since the Unix epoch
as a float; every other quantity carries its unit in its name or in the column's metadata. A null means that the
source did not say; it never means zero. `source` and `line` give the place a row was read from.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

EPOCH: Final = "s since the Unix epoch"
_PLACE: Final = [("source", pa.string(), "path in the capture"), ("line", pa.int64(), "1-based")]
_TEXT, _WHOLE, _REAL, _U64 = pa.string(), pa.int64(), pa.float64(), pa.uint64()


def _table(*columns: tuple[str, Any, str]) -> pa.Schema:
    return pa.schema(
        [pa.field(name, kind, metadata={"unit": unit} if unit else None) for name, kind, unit in (*columns, *_PLACE)]
    )


REQUESTS: Final = _table(
    # One row for each `request_end` record of Dynamo: what the server saw of one HTTP generation request.
    ("request_id", _TEXT, "made by the server; the response id without its prefix"),
    ("x_request_id", _TEXT, "sent by the client; not unique"),
    ("session_id", _TEXT, ""),
    ("parent_session_id", _TEXT, ""),
    ("model", _TEXT, ""),
    ("received_at", _REAL, EPOCH),
    ("ended_at", _REAL, EPOCH),
    ("input_tokens", _WHOLE, "tokens"),
    ("output_tokens", _WHOLE, "tokens"),
    ("cached_tokens", _WHOLE, "tokens; the router's prediction under KV routing, else the engine's number"),
    ("prefill_wait_time_ms", _REAL, "ms"),
    ("prefill_time_ms", _REAL, "ms"),
    ("ttft_ms", _REAL, "ms"),
    ("total_time_ms", _REAL, "ms"),
    ("avg_itl_ms", _REAL, "ms"),
    ("kv_hit_rate", _REAL, "predicted share of blocks; present only under KV routing"),
    ("queue_depth", _WHOLE, "requests"),
    ("prefill_worker_id", _U64, ""),
    ("prefill_dp_rank", _WHOLE, ""),
    ("decode_worker_id", _U64, ""),
    ("decode_dp_rank", _WHOLE, ""),
    ("finish_reason", _TEXT, ""),
    ("backend_finish_reason", _TEXT, ""),
    ("trace_block_size", _WHOLE, "tokens per block"),
    ("input_length", _WHOLE, "tokens"),
    ("input_sequence_hashes", pa.list_(_U64), "one rolling hash per block of the prompt"),
)
PAYLOADS: Final = _table(
    # Dynamo's `request_payload` records, reduced to identity and size. Their text is never kept.
    ("request_id", _TEXT, ""),
    ("received_at", _REAL, EPOCH),
    ("size", _WHOLE, "bytes of the record"),
)
TOOLS: Final = _table(
    ("event", _TEXT, "tool_start, tool_end or tool_error"),
    ("session_id", _TEXT, ""),
    ("tool_call_id", _TEXT, ""),
    ("tool_class", _TEXT, ""),
    ("started_at", _REAL, EPOCH),
    ("ended_at", _REAL, EPOCH),
    ("duration_ms", _REAL, "ms"),
    ("status", _TEXT, ""),
)
ATTEMPT_EVENTS: Final = _table(
    # `rlserve.attempt.v1`, one row an event; pytest_rlserve.ledger folds them into attempts and client requests.
    ("event", _TEXT, "dispatched, completed, canceled, failed, retried, accepted or rejected"),
    ("t", _REAL, EPOCH),
    ("level", _TEXT, "attempt or request"),
    ("run", _TEXT, ""),
    ("group_id", _TEXT, ""),
    ("sample_id", _TEXT, ""),
    ("attempt_id", _TEXT, ""),
    ("step", _WHOLE, ""),
    ("target_policy", _TEXT, "policy version asked for"),
    ("policy", _TEXT, "policy version that generated first"),
    ("policy_end", _TEXT, "policy version that generated last"),
    ("trained_version", _TEXT, "policy version that trained on it"),
    ("tokens_by_version", pa.map_(_TEXT, _WHOLE), "tokens per generating version"),
    ("session_id", _TEXT, ""),
    ("x_request_id", _TEXT, ""),
    ("x_request_ids", pa.list_(_TEXT), ""),
    ("response_id", _TEXT, ""),
    ("retry_of", _TEXT, ""),
    ("reason", _TEXT, ""),
    ("purpose", _TEXT, "marks requests that belong to no sample"),
    ("endpoint", _TEXT, ""),
    ("n", _WHOLE, "choices asked for"),
    ("turns", _WHOLE, "requests the attempt says it made"),
    ("reward", _REAL, ""),
    ("http_status", _WHOLE, ""),
    ("finish_reason", _TEXT, ""),
    ("prompt_tokens", _WHOLE, "tokens"),
    ("output_tokens", _WHOLE, "tokens"),
    ("cached_tokens", _WHOLE, "tokens; the engine's own number, from the response's usage"),
    ("ttft_ms", _REAL, "ms"),
    ("latency_ms", _REAL, "ms"),
)
CONTROL_EVENTS: Final = _table(
    # `rlserve.control.v1`, one row an event. Worker ids are decimal text, whatever the source wrote.
    ("event", _TEXT, ""),
    ("t", _REAL, EPOCH),
    ("run", _TEXT, ""),
    ("worker_id", _TEXT, "null means the whole fleet"),
    ("replaced_worker_id", _TEXT, ""),
    ("target_workers", pa.list_(_TEXT), ""),
    ("update", _TEXT, ""),
    ("policy_version", _TEXT, ""),
    ("step", _WHOLE, ""),
    ("in_flight", _TEXT, "drain or keep"),
    ("status", _TEXT, ""),
    ("reason", _TEXT, ""),
    ("bytes", _WHOLE, "bytes"),
)
TABLES: Final[dict[str, pa.Schema]] = {
    "requests": REQUESTS,
    "payloads": PAYLOADS,
    "tools": TOOLS,
    "attempt_events": ATTEMPT_EVENTS,
    "control_events": CONTROL_EVENTS,
}


class Rows:
    """Collects rows for one table and turns them into an Arrow table, a batch of columns at a time."""

    _BATCH = 8192

    def __init__(self, schema: pa.Schema) -> None:
        """Start empty."""
        self._schema = schema
        self._pending: list[dict[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []

    def add(self, row: dict[str, Any]) -> None:
        """Take one row; columns it does not name are null."""
        self._pending.append(row)
        if len(self._pending) >= self._BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._batches.append(pa.RecordBatch.from_pylist(self._pending, schema=self._schema))
            self._pending = []

    def table(self) -> pa.Table:
        """Return everything taken so far."""
        self._flush()
        return pa.Table.from_batches(self._batches, schema=self._schema)
