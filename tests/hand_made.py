"""Captures made by hand: a few rows and events, written into a directory and opened.

Times are seconds after `EPOCH`, so that a test can say 0 and 5 instead of ten digits.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_rlserve.capture import Capture

Record = dict[str, Any]
EPOCH = 1_790_000_000.0


def request_end(
    name: str, received: float = 0, ended: float = 1, *, session: str | None = None, **request: Any
) -> Record:
    """One `request_end` record; its x-request-id is its name unless it is given (None leaves it out)."""
    own = {
        "request_id": name,
        "x_request_id": name,
        "output_tokens": 10,
        "request_received_ms": round((EPOCH + received) * 1000),
        **request,
    }
    record: Record = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": round((EPOCH + ended) * 1000),
        "request": {key: value for key, value in own.items() if value is not None},
    }
    if session is not None:
        record["agent_context"] = {"session_id": session}
    return record


def attempt(event: str, name: str, t: float = 0, **fields: Any) -> Record:
    """One `rlserve.attempt.v1` event."""
    return {"event": event, "t": EPOCH + t, "attempt_id": name, **fields}


def request(event: str, name: str, t: float = 0, *, of: str = "a", **fields: Any) -> Record:
    """One event of a single HTTP request."""
    return attempt(event, of, t, level="request", x_request_id=name, **fields)


def control(event: str, t: float, **fields: Any) -> Record:
    """One `rlserve.control.v1` event."""
    return {"event": event, "t": EPOCH + t, **fields}


def completed(name: str, start: float, end: float, decision: str = "accepted", **fields: Any) -> list[Record]:
    """All events of an attempt that completed and was decided at once; `fields` go to the decision."""
    return [
        attempt("dispatched", name, start),
        attempt("completed", name, end),
        attempt(decision, name, end, **fields),
    ]


def jsonl(records: Iterable[Record]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def write(
    folder: Path,
    *,
    rows: Iterable[Record] = (),
    attempts: Iterable[Record] = (),
    control: Iterable[Record] = (),
    manifest: Record | None = None,
) -> Path:
    """Write a capture into `folder` (made if need be); what is empty gets no file."""
    folder.mkdir(exist_ok=True)
    parts = {"request-trace.jsonl": rows, "attempts.jsonl": attempts, "control.jsonl": control}
    for name, records in parts.items():
        if content := jsonl(records):
            (folder / name).write_bytes(content)
    if manifest is not None:
        (folder / "rlserve.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def opened(folder: Path, **parts: Any) -> Capture:
    """Write a capture and open it."""
    return open_capture(write(folder, **parts))


def members(*parts: bytes) -> bytes:
    """Gzip each part into a member of its own."""
    return b"".join(gzip.compress(part, mtime=0) for part in parts)
