"""The workers of a run: when each had which weights and an empty cache, and which of them are the same worker."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.grouping import updates_of
from pytest_rlserve.lifecycle import PHASES, Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.lifecycle import Passage, Update

_COLUMNS = (
    "event", "t", "worker_id", "replaced_worker_id", "run", "target_workers", "update", "policy_version", "in_flight",
    "status", "reason", "source", "line",
)  # fmt: skip


@dataclass
class Fleet:
    """All updates of a capture, and what follows for each worker."""

    updates: list[Update] = field(default_factory=list)
    lost: dict[str, Event] = field(default_factory=dict)
    """Workers that went away unasked."""
    came_from: dict[str, str] = field(default_factory=dict)
    """Worker id → the id that it replaces."""
    _versions: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    _origins: dict[str, str] = field(default_factory=dict)

    @cached_property
    def finished(self) -> list[Update]:
        """Return the weight updates, without what was loaded at first and without one that the records cut off."""
        some = [update for update in self.updates if not update.opening]
        return some[:-1] if some and not some[-1].ended else some

    def versions(self, worker: str) -> list[tuple[float, str]]:
        """Return when that worker loaded which version, in order; the same version again is no change."""
        if worker not in self._versions:
            events = (event for passage in self._passages(worker) for event in passage.events)
            known = sorted((e.t, e.version) for e in events if e.name == "version" and e.good and e.version is not None)
            self._versions[worker] = [one for n, one in enumerate(known) if not n or one[1] != known[n - 1][1]]
        return self._versions[worker]

    def changes(self, worker: str) -> list[float]:
        """Return when that worker's version changed; that it had one when the run began is no change."""
        opening = {t for update in self.updates if update.opening for t in update.passage(worker).times("version")}
        return [t for t, _ in self.versions(worker) if t not in opening]

    def version_at(self, worker: str, t: float) -> str | None:
        """Return the version that a worker had loaded at an instant; None if no record says."""
        known = self.versions(worker)
        place = bisect_right(known, t, key=lambda one: one[0])
        return known[place - 1][1] if place else None

    def emptied(self, worker: str, *, valid: bool = False) -> list[float]:
        """Return when that worker's cache was emptied; `valid` leaves out what an update did too early."""
        ways = self._passages(worker)
        return sorted(t for way in ways for t in (way.valid_resets if valid else way.times("cache_reset")))

    def _passages(self, worker: str) -> list[Passage]:
        """Return the worker's ways through the updates that loaded a version or emptied a cache."""
        own = self._own.get(worker, [])
        common = [update for update in self._of_all if worker not in update.passages]
        return [update.passage(worker) for update in (*own, *common)]

    @cached_property
    def _own(self) -> Mapping[str, list[Update]]:
        """Return for each worker the updates with events of its own."""
        found: dict[str, list[Update]] = defaultdict(list)
        for update in self.updates:
            for worker in update.passages:
                found[worker].append(update)
        return found

    @cached_property
    def _of_all(self) -> list[Update]:
        """Return the updates in which something is told of the whole fleet that is of consequence for each worker."""
        return [one for one in self.updates if one.everyone.times("version", "cache_reset")]

    def origin(self, worker: str) -> str:
        """Return the first id of the worker that now goes by this one."""
        seen: set[str] = set()
        while worker in self.came_from and worker not in seen:
            seen.add(worker)
            worker = self._origins.get(worker) or self.came_from[worker]
        if worker not in seen:  # else the records go round in a circle
            self._origins.update(dict.fromkeys(seen, worker))
        return worker


def fleet(capture: Capture) -> Fleet:
    """Read the control records of a capture; ask for them through ``capture.derive(fleet)``."""
    control = capture.control_events.select(list(_COLUMNS))
    columns = control.filter(pc.is_valid(control["t"])).to_pydict()
    events = sorted(map(Event, *columns.values()), key=lambda event: event.order)
    return Fleet(
        updates_of(event for event in events if event.name in PHASES),
        {event.worker: event for event in events if event.name == "worker_lost" and event.worker is not None},
        {e.worker: e.replaced for e in events if e.worker and e.replaced and e.replaced != e.worker},
    )


def origins(capture: Capture, workers: pa.ChunkedArray) -> pa.Array:
    """Return the first id of the worker that each row of a column names; null where it names none."""
    known = capture.derive(fleet)
    named = pc.dictionary_encode(workers.combine_chunks())
    firsts = [known.origin(str(worker)) for worker in named.dictionary.to_pylist()]
    return pa.array(firsts, pa.string()).take(named.indices)


def serving_workers(capture: Capture) -> int:
    """Count the workers that served: one that restarted under a new id is still one."""
    columns = [capture.scalars[name].drop_null() for name in ("prefill_worker_id", "decode_worker_id")]
    return len({first for column in columns for first in origins(capture, column).unique().to_pylist()})
