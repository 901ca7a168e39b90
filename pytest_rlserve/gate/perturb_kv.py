"""Damages to a capture that have to do with KV reuse and weight updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pytest_rlserve.fleet import fleet
from pytest_rlserve.prompts import prompts
from pytest_rlserve.reuse import cached

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture


def keep_stale_blocks(capture: Capture) -> Capture:
    """Give the worker that reuses most a new version half-way, and let it keep the blocks of the old one."""
    found, best = capture.derive(prompts), capture.derive(cached).best
    reused: dict[str, int] = {}
    for worker, tokens in zip(found.worker, best.tolist(), strict=True):
        if worker is not None:
            reused[worker] = reused.get(worker, 0) + max(tokens, 0)
    if not reused:
        return capture
    worker = max(sorted(reused), key=lambda one: reused[one])
    served = [row for row, own in enumerate(found.worker) if own == worker]
    instant = float(np.nanmedian(found.received[served]))
    had = capture.derive(fleet).version_at(worker, instant)
    version = str(int(had) + 1) if had is not None and had.isdecimal() else "stale"
    events: list[dict[str, Any]] = [
        {"event": name, "t": instant, "worker_id": worker, "update": "stale", "policy_version": version, "source": ""}
        for name in ("pause", "transfer_started", "transfer_finished", "version", "ready", "resume")
    ]
    added = pa.Table.from_pylist(events, schema=capture.control_events.schema)
    return capture.replace(control_events=pa.concat_tables([capture.control_events, added]))


def claim_too_much(capture: Capture) -> Capture:
    """Let one request in twenty claim more cached than prompt tokens."""
    rows = capture.attempt_events.to_pylist()
    for row in [row for row in rows if row["cached_tokens"] is not None and row["prompt_tokens"] is not None][::20]:
        row["cached_tokens"] = 2 * row["prompt_tokens"] + 1
    served = capture.requests.to_pylist()
    for row in [row for row in served if row["cached_tokens"] is not None and row["input_tokens"] is not None][::20]:
        row["cached_tokens"] = 2 * row["input_tokens"] + 1
    return capture.replace(
        attempt_events=pa.Table.from_pylist(rows, schema=capture.attempt_events.schema),
        requests=pa.Table.from_pylist(served, schema=capture.requests.schema),
    )
