"""Weight updates by hand: the control events of a few workers, to be damaged one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hand_made import Record, control, request, request_end

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = 16
GOOD = (
    ("pause", 0.0),
    ("transfer_started", 0.1),
    ("transfer_finished", 0.4),
    ("cache_reset", 0.5),
    ("version", 0.6),
    ("ready", 0.7),
    ("resume", 0.8),
)
"""One worker's way through an update, in seconds after the gate closed; it opens after one second."""


def started(*workers: object, version: object = 0, t: float = -1.0) -> list[Record]:
    """What was loaded when the run began."""
    return [control("version", t, worker_id=w, policy_version=version, update="start") for w in workers]


def update(
    *workers: object, t: float = 10.0, version: object = 1, steps: Iterable[tuple[str, float]] = GOOD, **more: Any
) -> list[Record]:
    """An update of those workers that closes the gate at `t`; `more` goes to all of its events."""
    name = {"update": f"u{version}"} | more
    events = [control("gate_closed", t, **name)]
    for worker in workers:
        events += [control(step, t + after, worker_id=worker, policy_version=version, **name) for step, after in steps]
    return [*events, control("gate_opened", t + 1, **name)]


def without(events: Iterable[Record], step: str, worker: object) -> list[Record]:
    return [event for event in events if (event["event"], event.get("worker_id")) != (step, worker)]


def moved(events: Iterable[Record], step: str, worker: object, by: float) -> list[Record]:
    """Let one worker's step happen later, or earlier."""
    return [
        event | {"t": event["t"] + by} if (event["event"], event.get("worker_id")) == (step, worker) else event
        for event in events
    ]


def served(
    name: str, t: float, worker: object, prompt: list[int], *, cached: int | None = 0, took: float = 0.2, **more: Any
) -> tuple[Record, list[Record]]:
    """A row of a prompt of whole blocks, and the client's record of it with the engine's cached blocks."""
    tokens = len(prompt) * BLOCK
    row = request_end(
        name,
        t,
        t + took,
        input_tokens=tokens,
        ttft_ms=took * 500,
        total_time_ms=took * 1000,
        worker={"decode_worker_id": worker},
        replay={"trace_block_size": BLOCK, "input_length": tokens, "input_sequence_hashes": prompt},
        **more,
    )
    usage = {} if cached is None else {"cached_tokens": cached * BLOCK, "prompt_tokens": tokens}
    return row, [request("dispatched", name, t), request("completed", name, t + took, **usage)]


def parts(*requests: tuple[Record, list[Record]], control: Iterable[Record] = ()) -> dict[str, Any]:
    """Rows, attempts and control of a capture, as `hand_made.opened` takes them."""
    return {
        "rows": [row for row, _ in requests],
        "attempts": [event for _, events in requests for event in events],
        "control": list(control),
    }
