"""Workers that an update did not reach, and what they served while they were behind it."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.fleet import fleet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture
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


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The requests of one worker, in the order in which it received them; at least one."""

    rows: NDArray[np.int64]
    received: NDArray[np.float64]
    ended: NDArray[np.float64]
    """Minus infinity where the row does not say."""
    latest_end: NDArray[np.float64]
    """The latest end of this request and all that the worker received before it."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rows)

    def between(self, start: float, end: float) -> list[int]:
        """Return the numbers of the rows received from `start` on, before `end`."""
        first, last = np.searchsorted(self.received, (start, end))
        found: list[int] = self.rows[first:last].tolist()
        return found

    def running_at(self, instants: Iterable[float]) -> list[int]:
        """Return the numbers of the rows received before one of these instants and ended after it."""
        running = set[int]()
        for instant in instants:
            first = int(np.searchsorted(self.latest_end, instant, side="right"))  # all before this one had ended
            last = int(np.searchsorted(self.received, instant))
            running.update((first + np.flatnonzero(self.ended[first:last] > instant)).tolist())
        found: list[int] = self.rows[sorted(running)].tolist()
        return found


def served_by(capture: Capture) -> dict[str, Served]:
    """Return for each worker what it served, workers in order; ask through ``capture.derive(served_by)``."""
    rows = capture.scalars.select(["decode_worker_id", "received_at", "ended_at"])
    known = np.flatnonzero(pc.and_(pc.is_valid(rows["decode_worker_id"]), pc.is_valid(rows["received_at"])))
    rows = rows.take(known)
    workers, codes = np.unique(rows["decode_worker_id"].to_numpy(), return_inverse=True)
    received = rows["received_at"].to_numpy()
    ended = pc.fill_null(rows["ended_at"], -math.inf).to_numpy()
    order = np.lexsort((received, codes))
    parts = np.split(order, np.cumsum(np.bincount(codes))[:-1]) if len(workers) else []
    served = {
        str(worker): Served(known[part], received[part], ended[part], np.maximum.accumulate(ended[part]))
        for worker, part in zip(workers.tolist(), parts, strict=True)
    }
    return dict(sorted(served.items()))


def targets(capture: Capture, update: Update) -> list[str]:
    """Return the workers that an update should have reached.

    These are the ones its records declare, else those of which it tells, and every worker that was there before
    the update and served after it. A worker that was lost meanwhile is none.
    """
    known, there = capture.derive(fleet), capture.derive(_presence)
    gone = {worker for worker, event in known.lost.items() if event.t <= update.end}
    if update.declared:
        return [worker for worker in update.declared if worker not in gone or update.reached(worker)]
    told = [passage.worker for passage in update.workers if passage.worker is not None]
    stayed = np.flatnonzero((there.until >= update.end) & (there.since < update.start)).tolist()
    found = dict.fromkeys((*told, *(there.workers[place] for place in stayed)))
    return [worker for worker in found if worker not in gone or update.reached(worker)]


@dataclass(frozen=True, slots=True, eq=False)
class _Presence:
    """The workers that served: since when each was there, by what it received or loaded, and until when it served."""

    workers: list[str]
    since: NDArray[np.float64]
    until: NDArray[np.float64]


def _presence(capture: Capture) -> _Presence:
    known, served = capture.derive(fleet), capture.derive(served_by)
    loaded = (known.versions(worker)[:1] for worker in served)
    firsts = (min([some.received[0], *(t for t, _ in one)]) for some, one in zip(served.values(), loaded, strict=True))
    lasts = (some.received[-1] for some in served.values())
    return _Presence(list(served), np.array(list(firsts)), np.array(list(lasts)))


def missed(capture: Capture) -> tuple[Missed, ...]:
    """Return all workers that updates missed; ask for them through ``capture.derive(missed)``."""
    return tuple(_missed(capture))


def _missed(capture: Capture) -> Iterator[Missed]:
    known, served = capture.derive(fleet), capture.derive(served_by)
    following = [*(later.end for later in known.finished[1:]), math.inf]
    for update, until in zip(known.finished, following, strict=False):
        for worker in targets(capture, update):
            if update.reached(worker) is not False:
                continue
            loads = known.versions(worker)
            place = bisect_right(loads, update.end, key=lambda one: one[0])
            end = min(until, loads[place][0]) if place < len(loads) else until
            rows = tuple(served[worker].between(update.end, end)) if worker in served else ()
            if rows or update.declared:
                yield Missed(update, worker, known.version_at(worker, update.end), rows)
