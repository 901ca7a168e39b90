"""What a restart undid: steps that were trained again, and the time in which no process was running.

A run that is killed and resumed trains from its last checkpoint on. The later training of a step counts; the earlier
one was thrown away, and nothing that happened in it is counted, neither its time nor what it accepted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture


@dataclass(frozen=True, slots=True)
class Restart:
    """The span that a restart took out of a run: after `start`, up to and including `end`."""

    start: float
    end: float
    steps: tuple[int, ...]
    """Steps that were begun in it and are trained again later."""

    def __contains__(self, instant: float | None) -> bool:
        """Tell whether an instant lies in the span."""
        return instant is not None and self.start < instant <= self.end


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
    rows = capture.control_events.select(["event", "t", "step", "run"]).to_pylist()
    rows = sorted((row for row in rows if row["t"] is not None), key=lambda row: float(row["t"]))
    begun = [row for row in rows if row["event"] == "step_started"]
    whole = bool(begun)
    lives = _lives(capture)
    kept, found = list[_Step](), list[Restart]()
    since = -math.inf
    for row in begun or [row for row in rows if row["event"] == "step_trained"]:
        again = [step for step in kept if step.number >= row["step"]]
        if again and _told_twice(row, rows):
            continue
        new = bool(kept) and _follows(lives, kept[-1].run, row["run"])
        if again or new:
            start = again[0].begin if again else lives[kept[-1].run or ""][1]
            end = row["t"] if whole else lives[row["run"]][0] if new else again[-1].t
            found.append(Restart(start, end, tuple(step.number for step in again)))
            kept = [step for step in kept if step.number < row["step"]]
            since = end
        kept.append(_Step(row["step"], row["t"] if whole else since, row["t"], row["run"]))
        since = row["t"]
    return tuple(found)


def _told_twice(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> bool:
    """Tell whether two sources speak of one step: after its second beginning it finishes twice in a row."""
    later = [other["event"] for other in rows[rows.index(row) + 1 :] if other["step"] == row["step"]]
    return [event for event in later if event.startswith("step_")][:2] == ["step_finished"] * 2


def _lives(capture: Capture) -> dict[str, tuple[float, float]]:
    """Return when each run was first and last heard of."""
    lives: dict[str, tuple[float, float]] = {}
    for table in (capture.control_events, capture.attempt_events):
        for row in table.select(["run", "t"]).to_pylist():
            run, t = row["run"], row["t"]
            if run is not None and t is not None:
                first, last = lives.get(run, (t, t))
                lives[run] = min(first, t), max(last, t)
    return lives


def _follows(lives: dict[str, tuple[float, float]], earlier: str | None, later: str | None) -> bool:
    """Tell whether one run began when another had ended."""
    if earlier == later or earlier not in lives or later not in lives:
        return False
    return lives[earlier][1] <= lives[later][0]
