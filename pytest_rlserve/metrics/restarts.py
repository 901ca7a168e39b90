"""What a restart undid: steps that were trained again, and the time in which no process was running.

A run that is killed and resumed trains from its last checkpoint on. The later training of a step counts; the earlier
one was thrown away, and nothing that happened in it is counted, neither its time nor what it accepted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Mask, Reals


@dataclass(frozen=True, slots=True)
class Restart:
    """The span that a restart took out of a run: after `start`, up to and including `end`."""

    start: float
    end: float
    steps: tuple[int, ...]
    """Steps that were begun in it and are trained again later."""


def undone(capture: Capture, instants: Reals) -> Mask:
    """Mark the instants that a restart took out of a run."""
    found = np.zeros(len(instants), dtype=np.bool_)
    for one in capture.derive(restarts):
        found |= (one.start < instants) & (instants <= one.end)
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    number: int
    begin: float
    """When it began: by its own record, or where only its training is told, when the one before was trained."""
    t: float
    run: str | None


def restarts(capture: Capture) -> tuple[Restart, ...]:
    """Return the restarts of a run, in order; ask for them through ``capture.derive(restarts)``.

    A step that begins a second time shows a restart; so does a step of another run, if that began when the one
    before had ended. What is undone begins with the first of the steps that come again, and
    ends where the new process takes up the work.
    """
    control = capture.control_events.select(["event", "t", "step", "run"])
    some = control.filter(pc.and_(pc.is_valid(control["t"]), pc.starts_with(control["event"], "step_")))
    rows = sorted(some.to_pylist(), key=lambda row: float(row["t"]))
    begun = [row for row in rows if row["event"] == "step_started"]
    marks: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        marks[row["step"]].append(row)
    whole = bool(begun)
    lives = _lives(capture)
    kept, found = list[_Step](), list[Restart]()
    since = -math.inf
    for row in begun or [row for row in rows if row["event"] == "step_trained"]:
        place = bisect_left(kept, row["step"], key=lambda step: step.number)  # a step is kept after smaller ones only
        again = kept[place:]
        if again and _told_twice(row, marks[row["step"]]):
            continue
        new = bool(kept) and _follows(lives, kept[-1].run, row["run"])
        if again or new:
            start = again[0].begin if again else lives[kept[-1].run or ""][1]
            end = row["t"] if whole else lives[row["run"]][0] if new else again[-1].t
            found.append(Restart(start, end, tuple(step.number for step in again)))
            del kept[place:]
            since = end
        kept.append(_Step(row["step"], row["t"] if whole else since, row["t"], row["run"]))
        since = row["t"]
    return tuple(found)


def _told_twice(row: dict[str, Any], marks: Sequence[dict[str, Any]]) -> bool:
    """Tell whether two sources speak of one step: after its second beginning it finishes twice in a row."""
    later = marks[marks.index(row) + 1 :][:2]
    return [other["event"] for other in later] == ["step_finished"] * 2


def _lives(capture: Capture) -> dict[str, tuple[float, float]]:
    """Return when each run was first and last heard of."""
    lives: dict[str, tuple[float, float]] = {}
    for table in (capture.control_events, capture.attempt_events):
        told = table.select(["run", "t"]).drop_null().group_by("run").aggregate([("t", "min"), ("t", "max")])
        for run, first, last in zip(*(told[name].to_pylist() for name in ("run", "t_min", "t_max")), strict=True):
            before = lives.get(run, (first, last))
            lives[run] = min(before[0], first), max(before[1], last)
    return lives


def _follows(lives: dict[str, tuple[float, float]], earlier: str | None, later: str | None) -> bool:
    """Tell whether one run began when another had ended."""
    if earlier == later or earlier not in lives or later not in lives:
        return False
    return lives[earlier][1] <= lives[later][0]
