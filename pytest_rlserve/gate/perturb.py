"""Damages to a capture in memory, each of a kind that a gate is there to notice.

A perturbation takes a capture and returns a worse one. The capture itself is left as it is.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.gate.perturb_evidence import cut_short, miscount, restart_versions, set_clock_back
from pytest_rlserve.gate.perturb_kv import claim_too_much, keep_stale_blocks
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_rlserve.capture import Capture

    Perturbation = Callable[[Capture], Capture]

_ENDS = ("completed", "canceled", "failed")
_INSTANTS = (
    ("attempt_events", "t"),
    ("control_events", "t"),
    ("requests", "received_at"),
    ("requests", "ended_at"),
    ("tools", "started_at"),
    ("tools", "ended_at"),
)
_DURATIONS = (
    ("requests", "prefill_wait_time_ms"),
    ("requests", "prefill_time_ms"),
    ("requests", "ttft_ms"),
    ("requests", "total_time_ms"),
    ("requests", "avg_itl_ms"),
    ("attempt_events", "ttft_ms"),
    ("attempt_events", "latency_ms"),
    ("tools", "duration_ms"),
)


def _events(capture: Capture, rows: list[dict[str, Any]]) -> Capture:
    table = pa.Table.from_pylist(rows, schema=capture.attempt_events.schema)
    return capture.replace(attempt_events=table)


def drop_ends(capture: Capture) -> Capture:
    """Lose the end of one attempt in twenty."""
    kept, seen = [], 0
    for row in capture.attempt_events.to_pylist():
        if row["event"] in _ENDS and row["level"] == "attempt":
            seen += 1
            if seen % 20 == 1:
                continue
        kept.append(row)
    return _events(capture, kept)


def reject_half(capture: Capture) -> Capture:
    """Let the trainer reject every other attempt that it had accepted."""
    rows, seen = capture.attempt_events.to_pylist(), 0
    for row in rows:
        if row["event"] == "accepted":
            seen += 1
            row["event"] = "rejected" if seen % 2 else "accepted"
    return _events(capture, rows)


def fail_half(capture: Capture) -> Capture:
    """Let every other attempt that completed fail instead, before the trainer sees it."""
    rows = capture.attempt_events.to_pylist()
    done = [r["attempt_id"] for r in rows if r["event"] == "completed" and r["level"] == "attempt"]
    lost = set(done[::2])
    kept = []
    for row in rows:
        hit = row["level"] == "attempt" and row["attempt_id"] in lost
        if hit and row["event"] in ("accepted", "rejected"):
            continue
        kept.append({**row, "event": "failed"} if hit and row["event"] == "completed" else row)
    return _events(capture, kept)


def retry_unseen(capture: Capture) -> Capture:
    """Serve one joined request a second time, as a client does that retries by itself."""
    rows = capture.requests
    known = pc.indices_nonzero(pc.is_valid(rows["x_request_id"]))
    if not len(known):
        return capture
    twin = rows.slice(known[0].as_py(), 1).to_pylist()[0]
    twin["request_id"] = f"{twin['request_id']}-again"
    return capture.replace(requests=pa.concat_tables([rows, pa.Table.from_pylist([twin], schema=rows.schema)]))


def repeat_row(capture: Capture) -> Capture:
    """Let one row stand twice, as in a shard that was copied."""
    return capture.replace(requests=pa.concat_tables([capture.requests, capture.requests.slice(0, 1)]))


def lose_rows(capture: Capture) -> Capture:
    """Lose one row in twenty, as a full trace bus does."""
    rows = capture.requests
    return capture.replace(requests=rows.take([n for n in range(rows.num_rows) if n % 20]))


def tear_files(capture: Capture) -> Capture:
    """Add what the readers find in a trace with a segment missing and a row cut off."""
    row = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": 1,
        "request": {"request_id": "torn"},
    }
    whole = json.dumps(row) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "request-trace.000000.jsonl").write_text(whole, encoding="utf-8")
        Path(folder, "request-trace.000002.jsonl").write_text(whole[:-20], encoding="utf-8")
        return capture.replace(findings=(*capture.findings, *open_capture(folder).findings))


def halve_reuse(capture: Capture) -> Capture:
    """Let the engine take half as many prompt tokens from its cache."""
    rows = capture.attempt_events.to_pylist()
    for row in rows:
        if row["cached_tokens"] is not None:
            row["cached_tokens"] //= 2
    changed = _events(capture, rows)
    served = capture.requests.to_pylist()
    for row in served:
        if row["cached_tokens"] is not None:
            row["cached_tokens"] //= 2
    return changed.replace(requests=pa.Table.from_pylist(served, schema=capture.requests.schema))


def slower(factor: float) -> Perturbation:
    """Return a perturbation that stretches all of time: every latency grows, every rate falls."""

    def stretch(capture: Capture) -> Capture:
        instants = [
            *capture.attempt_events["t"].drop_null().to_pylist(),
            *capture.control_events["t"].drop_null().to_pylist(),
            *capture.requests["received_at"].drop_null().to_pylist(),
        ]
        zero = min(instants, default=0.0)
        changed = dict(capture.tables())
        for name, column in _INSTANTS:
            moved = _mapped(changed[name], column, lambda t: pc.add(pc.multiply(pc.subtract(t, zero), factor), zero))
            changed[name] = moved
        for name, column in _DURATIONS:
            changed[name] = _mapped(changed[name], column, lambda ms: pc.multiply(ms, factor))
        return capture.replace(**changed)

    return stretch


def _mapped(table: pa.Table, column: str, change: Callable[[Any], Any]) -> pa.Table:
    place = table.schema.get_field_index(column)
    return table.set_column(place, table.schema.field(column), pc.cast(change(table[column]), pa.float64()))


PERTURBATIONS: dict[str, Perturbation] = {
    "a segment lost and a row torn": tear_files,
    "a row twice": repeat_row,
    "5 % of rows lost": lose_rows,
    "5 % of attempts' ends lost": drop_ends,
    "a request served twice": retry_unseen,
    "half of the accepted rejected": reject_half,
    "half of the completed failed": fail_half,
    "engine reuse halved": halve_reuse,
    "5 % of answers cut short": cut_short,
    "5 % of rows a token too many": miscount,
    "the server's clock 5 s behind": set_clock_back,
    "the version counter starts anew": restart_versions,
    "more cached than prompt tokens": claim_too_much,
    "a worker keeps its blocks over a new version": keep_stale_blocks,
    "everything 10 % slower": slower(1.1),
    "everything 2 times slower": slower(2.0),
    "everything 10 times slower": slower(10.0),
}
