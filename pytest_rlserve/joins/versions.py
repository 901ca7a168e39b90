"""Which policy version generated an attempt, and which one was trained on it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import sorted_rows
from pytest_rlserve.joins import join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Mask
    from pytest_rlserve.ledger import Accounts

_FLEET = ""
"""Stands for every worker, in what control records tell of none in particular."""
_Times = list[tuple[float, str]]
"""Instants and versions, in order."""


@dataclass(frozen=True, eq=False)
class Versions:
    """What the control records of a capture say about policy versions."""

    steps: dict[int, str]
    """Trainer step → the version it trains."""
    loaded: dict[str, _Times]
    """Worker → when it had which version loaded; what is told of the whole fleet is each worker's, too."""

    @cached_property
    def newest(self) -> _Times:
        """Return when any worker loaded which version."""
        return sorted(one for some in self.loaded.values() for one in some)

    @cached_property
    def common(self) -> list[tuple[float, str | None]]:
        """Return when all workers had which version; None from when on they differed."""
        workers = [worker for worker in self.loaded if worker != _FLEET] or [_FLEET]
        has: dict[str, str | None] = dict.fromkeys(workers)
        many: dict[str | None, int] = defaultdict(int, {None: len(workers)})
        found: list[tuple[float, str | None]] = []
        told = sorted((*one, name) for name in workers for one in self.loaded[name])
        for t, version, worker in told:
            many[has[worker]] -= 1
            if not many[has[worker]]:
                del many[has[worker]]
            has[worker] = version
            many[version] += 1
            found.append((t, version if len(many) == 1 else None))
        return found


def loaded_for(capture: Capture, accounts: Accounts, untold: Mask) -> list[str | None]:
    """Return the version that was loaded where each attempt began; never the one it merely asked for.

    That is its worker's when it received the attempt's first request. Without served rows it is the version
    that all workers had when the attempt was dispatched, if they had the same. It is looked up for those who have not
    told their own only, and None for the others.
    """
    found: list[str | None] = [None] * len(accounts)
    if not untold.any():
        return found
    known, first = capture.derive(versions), capture.derive(_first_workers)
    attempts, dispatched = accounts.attempts.tolist(), accounts.values("dispatched_at")
    for place in np.flatnonzero(untold).tolist():
        if attempts[place] in first:
            instant, worker = first[attempts[place]]
            found[place] = _at(known.loaded.get(worker, known.loaded[_FLEET]), instant)
        elif dispatched[place] is not None:
            found[place] = _at(known.common, dispatched[place])
    return found


def trained_on(capture: Capture, accounts: Accounts) -> list[str | None]:
    """Return the version that trained on each accepted attempt.

    That is what its acceptance says, else the version of the step it names, else the newest version that the
    workers had been given when it was accepted.
    """
    known, found = capture.derive(versions), list[str | None]()
    columns = map(accounts.values, ("trained_version", "step", "decided_at"))
    for said, step, decided in zip(*columns, strict=True):
        if said is not None:
            found.append(said)
        elif step in known.steps:
            found.append(known.steps[step])
        else:
            found.append(None if decided is None else _at(known.newest, decided))
    return found


def _at(told: Sequence[tuple[float, str | None]], instant: float) -> str | None:
    """Return what was told last up to an instant."""
    place = bisect_right(told, instant, key=lambda one: one[0])
    return told[place - 1][1] if place else None


def versions(capture: Capture) -> Versions:
    """Collect the versions of a capture; ask for it through ``capture.derive(versions)``."""
    steps: dict[int, str] = {}
    loaded: dict[str, _Times] = {_FLEET: []}
    control = capture.control_events.select(["event", "t", "worker_id", "policy_version", "step", "status"])
    told = pc.is_in(control["event"], pa.array(["step_started", "version"]))
    for event in control.filter(pc.and_(told, pc.is_valid(control["policy_version"]))).to_pylist():
        version, done = event["policy_version"], event["status"] in (None, "ok")
        if event["event"] == "step_started":
            steps[event["step"]] = version
        elif event["event"] == "version" and event["t"] is not None and done:
            loaded.setdefault(event["worker_id"] or _FLEET, []).append((event["t"], version))
    fleet = loaded[_FLEET]
    loaded = {worker: sorted(some if some is fleet else [*some, *fleet]) for worker, some in loaded.items()}
    return Versions(steps, loaded)


def _first_workers(capture: Capture) -> dict[int, tuple[float, str]]:
    """Return for each attempt, by its number, when its first request was received, and by which worker."""
    joined = capture.derive(join)
    rows = capture.scalars.select(["received_at", "decode_worker_id"]).take(pa.array(joined.order, pa.int64()))
    attempts = joined.ledger.all.attempts[joined.owner[joined.order]]
    workers = rows["decode_worker_id"].cast(pa.string())
    told = pa.table({"attempt": attempts, "received": rows["received_at"], "worker": workers}).drop_null()
    told = told.take(pa.array(sorted_rows({name: told[name] for name in told.column_names})))
    owners, first = np.unique(told["attempt"].to_numpy(), return_index=True)
    firsts = told.take(pa.array(first, pa.int64()))
    seen = zip(firsts["received"].to_pylist(), firsts["worker"].to_pylist(), strict=True)
    return dict(zip(owners.tolist(), seen, strict=True))


@lru_cache(maxsize=1024)
def number(version: str | float) -> float | None:
    """Read a version as a number that can be subtracted; None if it is a name, such as "initial"."""
    try:
        value = float(version)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
