"""The canonical tables: what every reader produces and every check and metric reads.

Names of Dynamo's fields are kept letter for letter. Instants end in `_at` and count seconds since the Unix epoch
as a float; every other quantity carries its unit in its name or in the column's metadata. A null means that the
source did not say; it never means zero. `source` and `line` give the place a row was read from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EPOCH: Final = "s since the Unix epoch"
_PLACE: Final = [("source", pa.string(), "path in the capture"), ("line", pa.int64(), "1-based")]
_TEXT, _WHOLE, _REAL, _U64 = pa.string(), pa.int64(), pa.float64(), pa.uint64()


def _table(*columns: tuple[str, Any, str]) -> pa.Schema:
    return pa.schema(
        [pa.field(name, kind, metadata={"unit": unit} if unit else None) for name, kind, unit in (*columns, *_PLACE)]
    )


REQUESTS: Final = _table(
    # One row for each HTTP generation request, as the server saw it: a `request_end` record of Dynamo, or a line of
    # an engine's own log.
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
    ("policy", _TEXT, "policy version that generated first, where the engine says it; Dynamo does not"),
    ("policy_end", _TEXT, "policy version that generated last"),
    ("trace_block_size", _WHOLE, "tokens per block"),
    ("input_length", _WHOLE, "tokens"),
    ("input_sequence_hashes", pa.list_(_U64), "one rolling hash per block of the prompt"),
)
HASHES: Final = "input_sequence_hashes"
SCALARS: Final = REQUESTS.remove(REQUESTS.get_field_index(HASHES))
"""The requests table without its hashes, which are most of it."""
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
    # A framework that decides on groups is read into rows of level `group`, whose values are the whole group's and
    # are never shared out: `published` carries tokens_by_version; `accepted` has a row for each group of a step.
    ("event", _TEXT, "dispatched, completed, canceled, failed, retried, accepted or rejected; published of a group"),
    ("t", _REAL, EPOCH),
    ("level", _TEXT, "attempt, request or group"),
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
    ("session_ids", pa.list_(_TEXT), "sessions of an attempt in which several agents act"),
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
    # `rlserve.control.v1`, one row an event. Worker ids are decimal text, whatever the source wrote. Adapters add
    # `process_started` (a run began or was resumed), `step_trained` (a step's one instant, where its start is not
    # known), and events of names that nobody has explained to us, as they are.
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
STEP_METRICS: Final = _table(
    # What a framework only counts or averages, under the framework's own name and in its own unit.
    ("step", _WHOLE, "trainer step; null where the number belongs to none"),
    ("t", _REAL, EPOCH),
    ("target", _TEXT, "whose number it is: an endpoint, a process, a lane; null for the trainer"),
    ("name", _TEXT, ""),
    ("value", _REAL, "as the source gives it; null where the source says that it has none"),
)
SCRAPES: Final = _table(
    # One row a sample of a Prometheus scrape.
    ("target", _TEXT, "whose scrape it is: frontend, worker0, …; empty where the file's name does not say"),
    ("tag", _TEXT, "when in the run it was taken: start, mid, end, …; empty where the file's name does not say"),
    ("t", _REAL, EPOCH),
    ("name", _TEXT, ""),
    ("labels", _TEXT, "a JSON object with sorted keys; worker ids are decimal"),
    ("value", _REAL, "in the series' own unit; null where the source gives NaN"),
)
TABLES: Final[dict[str, pa.Schema]] = {
    "requests": REQUESTS,
    "payloads": PAYLOADS,
    "tools": TOOLS,
    "attempt_events": ATTEMPT_EVENTS,
    "control_events": CONTROL_EVENTS,
    "step_metrics": STEP_METRICS,
    "scrapes": SCRAPES,
}


class Batches:
    """Collects record batches of one schema, in memory or in an Arrow file that is mapped when it is done."""

    def __init__(self, schema: pa.Schema, file: Path | None = None) -> None:
        """Start empty; with `file`, memory holds one batch at a time."""
        self._schema, self._file = schema, file
        self._kept: list[pa.RecordBatch] = []
        self._writer = None if file is None else pa.ipc.new_file(pa.OSFile(str(file), "wb"), schema)

    def take(self, batch: pa.RecordBatch) -> None:
        """Take one batch."""
        if self._writer is None:
            self._kept.append(batch)
        else:
            self._writer.write_batch(batch)

    def table(self) -> pa.Table:
        """Return everything taken so far; a file is complete then and takes no more."""
        if self._file is None:
            return pa.Table.from_batches(self._kept, schema=self._schema)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        return mapped(self._file)


def mapped(file: Path) -> pa.Table:
    """Open an Arrow file; its columns stay there and are brought to memory when they are touched."""
    return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


class Rows:
    """Collects rows for one table, one by one or as columns, and turns them into an Arrow table."""

    _BATCH = 8192

    def __init__(self, schema: pa.Schema, batches: Batches | None = None) -> None:
        """Start empty; what is complete goes to `batches`."""
        self._schema = schema
        self._columns = [(column.name, column.type) for column in schema]
        self._pending: list[Mapping[str, Any]] = []
        self._small: list[pa.RecordBatch] = []
        self._batches = batches or Batches(schema)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take one row; columns it does not name are null."""
        self._pending.append(row)
        if len(self._pending) >= self._BATCH:
            self._convert()

    def extend(self, columns: Mapping[str, Any], count: int) -> None:
        """Take `count` rows as columns, each a list or an Arrow array; those it does not name are null."""
        self._convert()
        if count:
            # At once, while the values are in the processor's cache.
            arrays = [_array(columns.get(name), kind, count) for name, kind in self._columns]
            self._take(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _convert(self) -> None:
        if self._pending:
            rows, self._pending = self._pending, []
            self._take(pa.RecordBatch.from_pylist(rows, schema=self._schema))

    def _take(self, batch: pa.RecordBatch) -> None:
        self._small.append(batch)
        if sum(one.num_rows for one in self._small) >= self._BATCH:
            self._combine()

    def _combine(self) -> None:
        whole = pa.Table.from_batches(self._small, schema=self._schema).combine_chunks()
        for batch in whole.to_batches():
            self._batches.take(batch)
        self._small = []

    def table(self) -> pa.Table:
        """Return everything taken so far."""
        self._convert()
        self._combine()
        return self._batches.table()


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    return values if isinstance(values, pa.Array) else pa.array(values, kind)
