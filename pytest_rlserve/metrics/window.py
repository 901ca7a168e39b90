"""The window of the throughput family: whole trainer steps, less the time in which the update gate was shut."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.capture import Capture, Window
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics.restarts import restarts, undone

if TYPE_CHECKING:
    from pytest_rlserve.columns import Mask, Reals

ENOUGH_COMPLETIONS = 30
"""Fewer completions in a window say nothing about a rate."""


def window(capture: Capture, skip_steps: int = 0, span: tuple[float, float] | None = None) -> Window:
    """Return the window of a capture.

    With step records it runs from the first `step_started` to the last `step_finished`: trainers accept in
    bursts at step ends, so a window that cuts a step would count its work without its result. Without them it
    is the given `span`, else it runs from the first acceptance, which is not counted, to the last. What a restart
    undid is left out of it, and so is the time in which no process ran.

    Ask for it through ``capture.derive(window, …)``.

    Raises:
        NotMeasurable: no whole step is left, nothing was accepted, or too little was completed in it.
    """
    spans = step_spans(capture)
    if spans:
        kept = spans[skip_steps:]
        if not kept:
            raise NotMeasurable(f"skip_steps = {skip_steps} leaves no step: the capture has {len(spans)}")
        start, end = kept[0][0], max(finish for _, finish in kept)
        reason = f"{len(kept)} whole steps" + (f", the first {skip_steps} left out" if skip_steps else "")
    elif span is not None:
        (start, end), reason = span, "as the policy gives it"
    else:
        start, end, reason = _between_acceptances(capture)
    if end <= start:
        raise NotMeasurable("the window has no length")
    excluded = _merged([(one.start, one.end) for one in capture.derive(restarts)], start, end)
    closings = [(a, _opened(capture, a, b)) for a, b in shut_spans(capture)]
    _require_openings(capture, closings)
    _require_closings(capture, start, end)
    shut = _merged(closings, start, end)
    found = Window(
        start=start,
        end=end,
        excluded=tuple(excluded),
        closed=tuple(_without(shut, excluded)),
        reason=reason + _undone(capture, sum(b - a for a, b in excluded)),
    )
    if found.open_seconds <= 0:
        raise NotMeasurable(f"the update gate was shut during the whole window of {found.seconds:.1f} s")
    completed = int(within(found, capture.derive(ledger).attempts.that("completed").reals("ended_at")).sum())
    if completed < ENOUGH_COMPLETIONS:
        raise NotMeasurable(
            f"{completed} attempts were completed in the window of {found.seconds:.1f} s, under {ENOUGH_COMPLETIONS}"
        )
    return found


def window_kind(capture: Capture, span: tuple[float, float] | None = None) -> str:
    """Say which window a capture's records allow, and whether they tell when the update gate was shut."""
    if step_spans(capture):
        kind = "whole trainer steps"
    else:
        kind = "the policy's window" if span else "first to last acceptance"
    return kind if shut_spans(capture) else f"{kind}, no update gate recorded"


def within(window: Window, instants: Reals) -> Mask:
    """Mark the instants that lie in the window: after its start, up to and including its end."""
    found: Mask = (window.start < instants) & (instants <= window.end)
    for start, end in window.excluded:
        found &= ~((start < instants) & (instants <= end))
    return found


def _events(capture: Capture, *names: str) -> list[dict[str, Any]]:
    """Return the events of those names by time; at one instant, in the order of the names."""
    rows = capture.control_events.select(["event", "t", "step", "update"])
    some = rows.filter(pc.is_in(rows["event"], pa.array(names))).to_pylist()
    return sorted(some, key=lambda row: (row["t"], names.index(row["event"])))


def steps(capture: Capture) -> list[tuple[float, float, int]]:
    """Return start, finish and number of every step that has both, by start; of one that came again, the last time."""
    return capture.derive(_steps)


def _steps(capture: Capture) -> list[tuple[float, float, int]]:
    left_out = capture.derive(restarts)
    started: dict[int, float] = {}
    found = []
    for event in _events(capture, "step_finished", "step_started"):
        if event["event"] == "step_started":
            started[event["step"]] = event["t"]
        elif event["step"] in started:
            found.append((started.pop(event["step"]), event["t"], event["step"]))
    return sorted(step for step in found if not any(one.start <= step[0] < one.end for one in left_out))


def step_spans(capture: Capture) -> list[tuple[float, float]]:
    """Return start and finish of every step."""
    return [(start, finish) for start, finish, _ in steps(capture)]


def _between_acceptances(capture: Capture) -> tuple[float, float, str]:
    accepted = capture.derive(ledger).attempts.that("accepted").reals("decided_at")
    told = accepted[~np.isnan(accepted)]
    if len(accepted) and not len(told):
        raise NotMeasurable("no step records, and the source does not record when attempts were accepted")
    decided = sorted(told[~undone(capture, told)].tolist())
    if len(decided) < 2:
        raise NotMeasurable(f"no step records, and {len(decided)} accepted attempts span no time")
    return (
        decided[0],
        decided[-1],
        "from the first acceptance (not counted) to the last, for want of step records",
    )


def shut_spans(capture: Capture) -> list[tuple[float, float]]:
    """Return when each update shut the gate and opened it again, by opening; infinity if it never did."""
    return capture.derive(_gates)[0]


def _gates(capture: Capture) -> tuple[list[tuple[float, float]], list[float]]:
    """Return when the gate was shut and opened again, and each opening of an update that never shut it."""
    spans: list[tuple[float, float]] = []
    shut: dict[object, float] = {}
    early: dict[object, float] = {}
    knew: set[object] = set()
    for event in _events(capture, "gate_opened", "gate_closed"):
        update, instant = event["update"], event["t"]
        if event["event"] == "gate_opened" and update in shut:
            spans.append((shut.pop(update), instant))
        elif event["event"] == "gate_opened":
            early[update] = instant
        elif early.pop(update, None) == instant:
            spans.append((instant, instant))
        else:
            shut.setdefault(update, instant)
        if event["event"] == "gate_closed":
            knew.add(update)
    alone = [instant for update, instant in early.items() if update not in knew]
    return spans + [(instant, math.inf) for instant in shut.values()], alone


def _opened(capture: Capture, shut: float, opened: float) -> float:
    """Return when a gate opened again: a process that took over after a restart had not shut it."""
    later = (one.end for one in capture.derive(restarts) if one.end > shut)
    return min(later, default=opened) if math.isinf(opened) else opened


def _require_openings(capture: Capture, closings: list[tuple[float, float]]) -> None:
    """Refuse a gate that no record opens again although attempts were let in after it: the record was lost.

    Taken at its word, it would shorten the window by all the time that was worked in, and a loss would read as a gain.
    """
    since = min((shut for shut, opened in closings if math.isinf(opened)), default=math.inf)
    let_in = int((capture.derive(ledger).attempts.that("completed").reals("dispatched_at") > since).sum())
    if let_in:
        raise NotMeasurable(
            f"no record opens the update gate again that was shut at {since:.3f}, "
            f"yet {let_in:,} attempts were dispatched after it and completed"
        )


def _require_closings(capture: Capture, start: float, end: float) -> None:
    """Refuse a gate that no record shut before it opened, although attempts had been let in: the record was lost.

    The time that it was shut would count as worked in, and the update would read as a loss.
    """
    early = sorted(capture.derive(_gates)[1])
    dispatched = np.sort(capture.derive(ledger).attempts.reals("dispatched_at"))
    before = np.searchsorted(dispatched, early) - np.searchsorted(dispatched, start)
    for opened, let_in in zip(early, before.tolist(), strict=True):
        if let_in > 0 and opened <= end:
            raise NotMeasurable(
                f"no record shuts the update gate that was opened at {opened:.3f}, "
                f"yet {let_in:,} attempts of the window had been dispatched before it"
            )


def _undone(capture: Capture, seconds: float) -> str:
    """Say what restarts took out of the window."""
    again = sum(len(one.steps) for one in capture.derive(restarts))
    if not seconds:
        return ""
    steps = f", {again} {'step' if again == 1 else 'steps'} that came again" if again else ""
    return f"; a restart left out: {seconds:.1f} s{steps}"


def _merged(spans: list[tuple[float, float]], start: float, end: float) -> list[tuple[float, float]]:
    """Return spans in order, cut to the window and without overlap: gates of several updates may overlap."""
    merged: list[tuple[float, float]] = []
    for one, other in sorted((max(a, start), min(b, end)) for a, b in spans if b > start and a < end):
        if merged and one <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], other)
        else:
            merged.append((one, other))
    return merged


def _without(spans: list[tuple[float, float]], holes: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return what is left of spans without the holes."""
    for start, end in holes:
        cut = [piece for a, b in spans for piece in ((a, min(b, start)), (max(a, end), b))]
        spans = [(a, b) for a, b in cut if a < b]
    return spans
