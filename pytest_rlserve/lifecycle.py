"""A weight update, as the control records tell it: which worker was reached, and in which order.

A worker that restarts under a new id is the same worker to an update: `replaced_worker_id` ties both ids together.
An event without a worker speaks of the whole fleet. What reports an error did not happen.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PHASES = (
    "gate_closed",
    "pause",
    "transfer_started",
    "transfer",
    "transfer_finished",
    "cache_reset",
    "version",
    "verified",
    "ready",
    "resume",
    "gate_opened",
)
"""What an update consists of, in the order in which it should happen."""
_RANKS = {name: rank for rank, name in enumerate(PHASES)}
_ANNOUNCING = ("gate_closed", "transfer_started", "transfer", "transfer_finished")
"""What names the version that is to be loaded."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One control event of an update; its fields stand in the order of the columns that they are read from."""

    name: str
    t: float
    worker: str | None
    replaced: str | None
    run: str | None
    targets: list[str] | None
    update: str | None
    version: str | None
    in_flight: str | None
    status: str | None
    reason: str | None
    source: str
    line: int

    @property
    def good(self) -> bool:
        """Tell whether it happened: an answer may carry an error inside HTTP 200."""
        return self.status in (None, "ok")

    @property
    def order(self) -> tuple[float, int, str]:
        """Sort by time; within one instant, as it should happen."""
        return self.t, _RANKS.get(self.name, len(PHASES)), self.worker or ""


@dataclass(kw_only=True)
class Passage:
    """One worker's way through one update: its own events and the fleet's, by time."""

    worker: str | None
    """The id it has at the end of the update; None for what happens to every worker."""
    earlier: str | None = None
    """The id under which it went into the update, where it restarted under another one."""
    events: list[Event] = field(default_factory=list)

    def times(self, *names: str) -> list[float]:
        """Return when the events of those names happened, in order; failed ones are left out."""
        return sorted(t for name in names for t in self._happened.get(name, ()))

    @cached_property
    def _happened(self) -> Mapping[str, list[float]]:
        found: dict[str, list[float]] = defaultdict(list)
        for event in self.events:
            if event.good:
                found[event.name].append(event.t)
        return found

    @property
    def transferred(self) -> float | None:
        """Return when the last transfer of weights ended; None if none is recorded."""
        return max(self.times("transfer", "transfer_finished") or self.times("transfer_started"), default=None)

    @property
    def valid_resets(self) -> list[float]:
        """Return when the cache was reset and the new weights were there already, so that no old block came back."""
        since = self.transferred
        return [t for t in self.times("cache_reset") if since is None or t >= since]


@dataclass(kw_only=True)
class Update:
    """One weight update of the fleet."""

    name: str
    events: list[Event]
    opening: bool = False
    """True if it only says what was loaded when the run began."""
    passages: dict[str, Passage] = field(default_factory=dict)
    """By every id that the worker had in it."""
    everyone: Passage = field(default_factory=lambda: Passage(worker=None))

    def __str__(self) -> str:
        """Name it as its records do."""
        return f"update {self.name}"

    @property
    def start(self) -> float:
        """Return when its first event happened."""
        return self.events[0].t

    @property
    def end(self) -> float:
        """Return when its last event happened."""
        return self.events[-1].t

    @property
    def ended(self) -> bool:
        """Tell whether its records go beyond the transfer; those of a run that was killed may not."""
        return not self.told.isdisjoint(PHASES[6:])

    @cached_property
    def told(self) -> frozenset[str]:
        """Return the names of all events that its records speak of."""
        return frozenset(event.name for event in self.events)

    @property
    def version(self) -> str | None:
        """Return the version that it brings: what was announced, else what its workers then say."""
        if self.announced is not None:
            return self.announced
        said = [event.version for event in self.events if event.version is not None and event.name == "version"]
        return said[-1] if said else next((e.version for e in reversed(self.events) if e.version is not None), None)

    @cached_property
    def announced(self) -> str | None:
        """Return the version to be loaded, if all of its records that name one before it is there name the same."""
        said = {event.version for event in self.events if event.name in _ANNOUNCING and event.version is not None}
        return said.pop() if len(said) == 1 else None

    @cached_property
    def declared(self) -> Collection[str]:
        """Return the workers that the records name as its targets, each once; none if they name none."""
        return dict.fromkeys(worker for event in self.events for worker in event.targets or ())

    @property
    def in_flight(self) -> str | None:
        """Return whether requests may run through it, as its records say."""
        return next((event.in_flight for event in self.events if event.in_flight), None)

    @property
    def workers(self) -> list[Passage]:
        """Return the passage of each worker that has events of its own, once."""
        return list({id(passage): passage for passage in self.passages.values()}.values())

    def tells(self, name: str) -> bool:
        """Tell whether its records speak of that event at all."""
        return name in self.told

    def reached(self, worker: str) -> bool | None:
        """Tell whether a worker got the new weights: its version says so, else its transfer; None if nothing does.

        A version that is another number than the announced one is not the new one; names are not compared.
        """
        for names in (("version",), ("transfer", "transfer_finished"), ("ready", "resume")):
            if not self.told.isdisjoint(names):
                passage = self.passage(worker)
                return bool(passage.times(*names)) and not (names == ("version",) and self._differs(passage))
        return None

    def _differs(self, passage: Passage) -> bool:
        got = [event.version for event in passage.events if event.name == "version" and event.good][-1]
        wanted = self.announced
        return str(got).isdecimal() and str(wanted).isdecimal() and int(str(got)) != int(str(wanted))

    def passage(self, worker: str) -> Passage:
        """Return the way of that worker; where only the fleet has events, those of the fleet if it is meant."""
        if worker in self.passages:
            return self.passages[worker]
        meant = not self.declared or worker in self.declared
        return Passage(worker=worker, events=self.everyone.events if meant else [])
