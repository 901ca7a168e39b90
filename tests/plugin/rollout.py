"""Small captures written by hand: one step of a rollout, of which every figure is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ATTEMPTS = 40
PROMPT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS = 128, 96, 20
BLOCK = 32
"""Tokens; three of the four blocks of a prompt are the same for all."""
FIRST_START = 1_800_000_000.0
WORKER = 7


def write_rollout(
    folder: Path,
    *,
    rate: float = 10.0,
    start: float = FIRST_START,
    downtime: float = 0.5,
    ttft_ms: float = 50.0,
    open_attempts: int = 0,
    lost_rows: int = 0,
    torn: bool = False,
    prompt: int = 0,
    **manifest: Any,
) -> Path:
    """Write a capture with 40 accepted attempts of one request each.

    Args:
        folder: where it goes.
        rate: accepted attempts a second, over the whole step.
        start: seconds since the Unix epoch; two captures that start at different times differ in content.
        downtime: seconds of the one weight update, which follows the step.
        ttft_ms: time to first token of every request.
        open_attempts: attempts dispatched beside the others that never end.
        lost_rows: completed requests without a trace row.
        torn: whether the last line of the trace is cut, as a killed writer leaves it.
        prompt: makes all prompts others.
        **manifest: entries of rlserve.json beside series "s" and job "job-a".
    """
    end = start + ATTEMPTS / rate
    names = [f"a{number:02d}" for number in range(ATTEMPTS)]
    ends = {name: start + (end - start) * (number + 1) / ATTEMPTS for number, name in enumerate(names)}
    attempts = [row for name in names for row in _attempt(name, start, ends[name], end, ttft_ms)]
    attempts += [_event("dispatched", start, f"open{number}") for number in range(open_attempts)]
    control: list[dict[str, Any]] = [
        {"event": "version", "t": start - 1, "worker_id": WORKER, "update": 0, "policy_version": 0},
        {"event": "step_started", "t": start, "step": 0},
        {"event": "step_finished", "t": end, "step": 0},
        *_update(end, end + downtime),
    ]
    served = [_row(name, number, start, ends[name], ttft_ms, prompt) for number, name in enumerate(names)]
    folder.mkdir(parents=True)
    _write(folder / "attempts.jsonl", attempts)
    _write(folder / "control.jsonl", control)
    _write(folder / "request-trace.jsonl", served[lost_rows:])
    if torn:
        trace = folder / "request-trace.jsonl"
        trace.write_bytes(trace.read_bytes()[:-40])
    document = {"schema": "rlserve.capture.v1", "series": "s", "job": "job-a", "captured_at": start, **manifest}
    (folder / "rlserve.json").write_text(json.dumps({k: v for k, v in document.items() if v is not None}))
    return folder


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _update(closed: float, opened: float) -> list[dict[str, Any]]:
    phases = ("pause", "transfer", "cache_reset", "version", "ready", "resume")
    said = {"update": 1, "policy_version": 1}
    return [
        {"event": "gate_closed", "t": closed, "target_workers": [WORKER], **said},
        *({"event": phase, "t": (closed + opened) / 2, "worker_id": WORKER, **said} for phase in phases),
        {"event": "gate_opened", "t": opened, **said},
    ]


def _event(event: str, t: float, name: str, **more: Any) -> dict[str, Any]:
    return {"event": event, "t": t, "attempt_id": name, "sample_id": name, "session_id": f"session-{name}", **more}


def _attempt(name: str, start: float, ended: float, decided: float, ttft_ms: float) -> list[dict[str, Any]]:
    request = {"level": "request", "x_request_id": f"x-{name}"}
    usage = {"prompt_tokens": PROMPT_TOKENS, "cached_tokens": CACHED_TOKENS, "output_tokens": OUTPUT_TOKENS}
    answer = {"response_id": f"chatcmpl-{name}", "http_status": 200, "ttft_ms": ttft_ms, **usage}
    return [
        _event("dispatched", start, name),
        _event("dispatched", start, name, **request),
        _event("completed", ended, name, **request, **answer),
        _event("completed", ended, name, policy=0),
        _event("accepted", decided, name, trained_version=0),
    ]


def _row(name: str, number: int, start: float, ended: float, ttft_ms: float, prompt: int) -> dict[str, Any]:
    milliseconds = round(start * 1000), round(ended * 1000)
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": milliseconds[1],
        "agent_context": {"session_id": f"session-{name}"},
        "request": {
            "request_id": name,
            "x_request_id": f"x-{name}",
            "model": "tiny",
            "input_tokens": PROMPT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
            "request_received_ms": milliseconds[0],
            "ttft_ms": ttft_ms,
            "total_time_ms": milliseconds[1] - milliseconds[0],
            "avg_itl_ms": 5.0,
            "worker": {"prefill_worker_id": WORKER, "decode_worker_id": WORKER},
            "replay": {
                "trace_block_size": BLOCK,
                "input_length": PROMPT_TOKENS,
                "input_sequence_hashes": [hash_ + 1000 * prompt for hash_ in (1, 2, 3, 100 + number)],
            },
            "finish_reason_metadata": {"finish_reason": "stop", "backend_finish_reason": "stop"},
        },
    }
