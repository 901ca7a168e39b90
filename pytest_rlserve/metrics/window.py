"""The window of the throughput family: whole trainer steps, less the time in which the update gate was shut."""

from __future__ import annotations

import math
from typing import Any

from pytest_rlserve.capture import Capture, Window
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger

ENOUGH_COMPLETIONS = 30
"""Fewer completions in a window say nothing about a rate."""


def window(capture: Capture, skip_steps: int = 0, span: tuple[float, float] | None = None) -> Window:
    """Return the window of a capture.

    With step records it runs from the first `step_started` to the last `step_finished`: trainers accept in
    bursts at step ends, so a window that cuts a step would count its work without its result. Without them it
    is the given `span`, else it runs from the first acceptance, which is not counted, to the last.

    Raises:
        NotMeasurable: no whole step is left, nothing was accepted, or too little was completed in it.
    """
    steps = step_spans(capture)
    if steps:
        kept = steps[skip_steps:]
        if not kept:
            raise NotMeasurable(f"skip_steps = {skip_steps} leaves no step: the capture has {len(steps)}")
        start, end = kept[0][0], max(finish for _, finish in kept)
        reason = f"{len(kept)} whole steps" + (f", the first {skip_steps} left out" if skip_steps else "")
    elif span is not None:
        (start, end), reason = span, "as the policy gives it"
    else:
        start, end, reason = _between_acceptances(capture)
    if end <= start:
        raise NotMeasurable("the window has no length")
    found = Window(start=start, end=end, closed=tuple(_closed(capture, start, end)), reason=reason)
    if found.open_seconds <= 0:
        raise NotMeasurable(f"the update gate was shut during the whole window of {found.seconds:.1f} s")
    completed = sum(
        account.outcome == "completed" and within(found, account.ended_at)
        for account in capture.derive(ledger).attempts
    )
    if completed < ENOUGH_COMPLETIONS:
        raise NotMeasurable(
            f"{completed} attempts were completed in the window of {found.seconds:.1f} s, under {ENOUGH_COMPLETIONS}"
        )
    return found


def within(window: Window, instant: float | None) -> bool:
    """Tell whether an instant lies in the window: after its start, up to and including its end."""
    return instant is not None and window.start < instant <= window.end


def _events(capture: Capture, *names: str) -> list[dict[str, Any]]:
    """Return the events of those names by time; at one instant, in the order of the names."""
    rows: list[dict[str, Any]] = capture.control_events.select(["event", "t", "step", "update"]).to_pylist()
    return sorted((r for r in rows if r["event"] in names), key=lambda r: (r["t"], names.index(r["event"])))


def step_spans(capture: Capture) -> list[tuple[float, float]]:
    """Return start and finish of every step that has both, by start."""
    started: dict[object, float] = {}
    steps = []
    for event in _events(capture, "step_finished", "step_started"):
        if event["event"] == "step_started":
            started[event["step"]] = event["t"]
        elif event["step"] in started:
            steps.append((started.pop(event["step"]), event["t"]))
    return sorted(steps)


def _between_acceptances(capture: Capture) -> tuple[float, float, str]:
    decided = sorted(
        account.decided_at
        for account in capture.derive(ledger).attempts
        if account.acceptance == "accepted" and account.decided_at is not None
    )
    if len(decided) < 2:
        raise NotMeasurable(f"no step records, and {len(decided)} accepted attempts span no time")
    return (
        decided[0],
        decided[-1],
        "from the first acceptance (not counted) to the last, for want of step records",
    )


def shut_spans(capture: Capture) -> list[tuple[float, float]]:
    """Return when each update shut the gate and opened it again, by opening; infinity if it never did."""
    spans: list[tuple[float, float]] = []
    shut: dict[object, float] = {}
    early: dict[object, float] = {}
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
    return spans + [(instant, math.inf) for instant in shut.values()]


def _closed(capture: Capture, start: float, end: float) -> list[tuple[float, float]]:
    """Return the spans with the gate shut, cut to the window; gates of several updates may overlap."""
    spans = shut_spans(capture)
    merged: list[tuple[float, float]] = []
    for one, other in sorted((max(a, start), min(b, end)) for a, b in spans if b > start and a < end):
        if merged and one <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], other)
        else:
            merged.append((one, other))
    return merged
