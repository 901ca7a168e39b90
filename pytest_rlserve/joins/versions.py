"""Which policy version generated an attempt, and which one was trained on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rlserve.joins import join

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.ledger import Account

_FLEET = ""
"""Stands for every worker, in what control records tell of none in particular."""


@dataclass(frozen=True, slots=True)
class Versions:
    """What the records of a capture say about policy versions, apart from the attempts' own words."""

    steps: dict[int, str]
    """Trainer step → the version it trains."""
    loaded: dict[str, list[tuple[float, str]]]
    """Worker → when it had which version loaded, in the order of the records."""
    received: dict[tuple[str | None, str], tuple[float, str]]
    """Attempt → when its first request was received, and by which worker."""

    def loaded_for(self, account: Account) -> str | None:
        """Return the version that was loaded where the attempt began; never the one it merely asked for.

        That is its worker's when it received the attempt's first request. Without served rows it is the version
        that all workers had when the attempt was dispatched, if they had the same.
        """
        if account.attempt in self.received:
            instant, worker = self.received[account.attempt]
            return self._at(instant, worker)
        if account.dispatched_at is None:
            return None
        workers = [worker for worker in self.loaded if worker != _FLEET] or [_FLEET]
        known = {self._at(account.dispatched_at, worker) for worker in workers}
        return known.pop() if len(known) == 1 else None

    def trained_on(self, account: Account) -> str | None:
        """Return the version that trained on an accepted attempt.

        That is what its acceptance says, else the version of the step it names, else the newest version that the
        workers had been given when it was accepted.
        """
        said: str | None = account.get("trained_version")
        if said is not None:
            return said
        step = account.get("step")
        if step in self.steps:
            return self.steps[step]
        return None if account.decided_at is None else self._at(account.decided_at, *self.loaded)

    def _at(self, instant: float, *workers: str) -> str | None:
        """Return what was loaded last before `instant` into any of these workers, or into the whole fleet."""
        told = [entry for worker in {*workers, _FLEET} for entry in self.loaded.get(worker, ())]
        return max((entry for entry in told if entry[0] <= instant), default=(0.0, None))[1]


def versions(capture: Capture) -> Versions:
    """Collect the versions of a capture; ask for it through ``capture.derive(versions)``."""
    steps: dict[int, str] = {}
    loaded: dict[str, list[tuple[float, str]]] = {}
    columns = ["event", "t", "worker_id", "policy_version", "step", "status"]
    for event in capture.control_events.select(columns).to_pylist():
        version, done = event["policy_version"], event["status"] in (None, "ok")
        if version is None:
            continue
        if event["event"] == "step_started":
            steps[event["step"]] = version
        elif event["event"] == "version" and event["t"] is not None and done:
            loaded.setdefault(event["worker_id"] or _FLEET, []).append((event["t"], version))
    return Versions(steps, loaded, _first_workers(capture))


def _first_workers(capture: Capture) -> dict[tuple[str | None, str], tuple[float, str]]:
    rows = capture.scalars.select(["received_at", "decode_worker_id"]).to_pylist()
    first: dict[tuple[str | None, str], tuple[float, str]] = {}
    for number, owner in capture.derive(join).owners.items():
        row = rows[number]
        if row["received_at"] is not None and row["decode_worker_id"] is not None:
            seen = row["received_at"], str(row["decode_worker_id"])
            first[owner.attempt] = min(seen, first.get(owner.attempt, seen))
    return first


def number(version: str | float) -> float | None:
    """Read a version as a number that can be subtracted; None if it is a name, such as "initial"."""
    try:
        value = float(version)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
