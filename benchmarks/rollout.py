"""What a framework would record beside a generated trace: attempts, their requests, and weight updates.

All attempts are completed and accepted when their step ends; each update drains, transfers, resets and resumes within
the pause between two steps.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = "generated"
PHASES = (
    "gate_closed", "pause", "transfer_started", "transfer_finished", "cache_reset", "version", "ready", "resume",
    "gate_opened",
)  # fmt: skip
WHOLE_FLEET = ("gate_closed", "gate_opened")
Row = dict[str, Any]


class Framework:
    """Writes `attempts.jsonl`, `control.jsonl` and `rlserve.json` into a capture, a step at a time."""

    def __init__(self, folder: Path) -> None:
        """Begin both files anew."""
        self._attempts, self._control = folder / "attempts.jsonl", folder / "control.jsonl"
        for file in (self._attempts, self._control):
            file.write_text("", encoding="utf-8")
        about = {"schema": "rlserve.capture.v1", "series": RUN, "job": "job-a", "identity": {"model": "synthetic"}}
        (folder / "rlserve.json").write_text(json.dumps(about), encoding="utf-8")

    def step(self, number: int, rows: list[Row]) -> None:
        """Record one step and, from the second on, the update before it."""
        start = min(row["request"]["request_received_ms"] for row in rows) / 1e3 - 0.01
        end = max(row["event_time_unix_ms"] for row in rows) / 1e3 + 0.01
        workers = sorted({row["request"]["worker"]["prefill_worker_id"] for row in rows})
        _append(self._control, "control", _updated(number, workers, start))
        marks = [("step_started", start), ("step_finished", end)]
        _append(self._control, "control", ({"event": name, "t": t, "step": number} for name, t in marks))
        _append(self._attempts, "attempt", _attempts(number, rows, end))


def _append(file: Path, kind: str, events: Iterator[Row]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps({"schema": f"rlserve.{kind}.v1", "run": RUN, **event}) + "\n" for event in events)


def _updated(number: int, workers: list[int], until: float) -> Iterator[Row]:
    for place, phase in enumerate(PHASES if number else ("version", "ready")):
        t = until - 0.1 * (len(PHASES) - place)
        for worker in [None] if phase in WHOLE_FLEET else workers:
            where = {} if worker is None else {"worker_id": worker}
            yield {"event": phase, "t": t, "update": number, "policy_version": number, **where}


def _attempts(step: int, rows: list[Row], end: float) -> Iterator[Row]:
    sessions: dict[str, list[Row]] = {}
    for row in rows:
        sessions.setdefault(row["agent_context"]["session_id"], []).append(row)
    for session, turns in sessions.items():
        who = {
            "group_id": session.rpartition("-")[0], "sample_id": session, "attempt_id": f"{session}-a0", "step": step,
            "session_id": session,
        }  # fmt: skip
        turns.sort(key=lambda row: row["event_time_unix_ms"])
        yield {"event": "dispatched", "t": turns[0]["request"]["request_received_ms"] / 1e3 - 0.001, **who}
        for row in turns:
            yield from _request(row["request"], row["event_time_unix_ms"] / 1e3, who)
        last = turns[-1]["event_time_unix_ms"] / 1e3 + 0.002
        yield {"event": "completed", "t": last, "turns": len(turns), "policy": step, **who}
        yield {"event": "accepted", "t": end, "trained_version": step, **who}


def _request(request: Row, ended: float, who: Row) -> Iterator[Row]:
    asked = {"level": "request", "x_request_id": request["x_request_id"], **who}
    yield {"event": "dispatched", "t": request["request_received_ms"] / 1e3 - 0.0005, "n": 1, **asked}
    yield {
        "event": "completed", "t": ended + 0.0005, "response_id": f"chatcmpl-{request['request_id']}",
        "http_status": 200, "finish_reason": "stop", "prompt_tokens": request["input_tokens"],
        "output_tokens": request["output_tokens"], "cached_tokens": request["cached_tokens"],
        "ttft_ms": request["ttft_ms"] + 0.4, "latency_ms": request["total_time_ms"] + 0.8, **asked,
    }  # fmt: skip
