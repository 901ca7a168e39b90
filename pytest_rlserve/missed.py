"""Workers that an update did not reach, and what they served while they were behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rlserve.fleet import fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.fleet import Fleet
    from pytest_rlserve.lifecycle import Update


@dataclass(frozen=True, slots=True)
class Missed:
    """One worker that one update did not reach."""

    update: Update
    worker: str
    version: str | None
    """What it had loaded instead; None if no record says."""
    rows: tuple[int, ...]
    """Numbers of the requests it received after the update, until a later one ended."""


def served_by(capture: Capture) -> dict[str, list[tuple[float, int]]]:
    """Return for each worker when it received which row, in order; ask through ``capture.derive(served_by)``."""
    served: dict[str, list[tuple[float, int]]] = {}
    rows = capture.scalars.select(["decode_worker_id", "received_at"]).to_pylist()
    for number, row in enumerate(rows):
        if row["decode_worker_id"] is not None and row["received_at"] is not None:
            served.setdefault(str(row["decode_worker_id"]), []).append((row["received_at"], number))
    return {worker: sorted(some) for worker, some in sorted(served.items())}


def targets(capture: Capture, update: Update) -> list[str]:
    """Return the workers that an update should have reached.

    These are the ones its records declare, else those of which it tells, and every worker that was there before
    the update and served after it. A worker that was lost meanwhile is none.
    """
    known, served = capture.derive(fleet), capture.derive(served_by)
    gone = {worker for worker, event in known.lost.items() if event.t <= update.end}
    if update.declared:
        return [worker for worker in update.declared if worker not in gone or update.reached(worker)]
    told = [passage.worker for passage in update.workers if passage.worker is not None]
    stayed = [
        worker
        for worker, some in served.items()
        if some[-1][0] >= update.end and _was_there(known, worker, some[0][0], update.start)
    ]
    found = dict.fromkeys((*told, *stayed))
    return [worker for worker in found if worker not in gone or update.reached(worker)]


def _was_there(known: Fleet, worker: str, first_served: float, start: float) -> bool:
    return first_served < start or any(t < start for t, _ in known.versions(worker))


def missed(capture: Capture) -> tuple[Missed, ...]:
    """Return all workers that updates missed; ask for them through ``capture.derive(missed)``."""
    return tuple(_missed(capture))


def _missed(capture: Capture) -> Iterator[Missed]:
    known, served = capture.derive(fleet), capture.derive(served_by)
    for place, update in enumerate(known.finished):
        following = next((later.end for later in known.finished[place + 1 :]), math.inf)
        for worker in targets(capture, update):
            if update.reached(worker) is not False:
                continue
            loads = [t for t, _ in known.versions(worker) if t > update.end]
            until = min([following, *loads])
            rows = tuple(number for t, number in served.get(worker, ()) if update.end <= t < until)
            if rows or update.declared:
                yield Missed(update, worker, known.version_at(worker, update.end), rows)
