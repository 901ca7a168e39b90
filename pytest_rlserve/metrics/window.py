"""The window of the throughput family: whole trainer steps, less the time in which the update gate was shut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pytest_rlserve.capture import Capture, Window
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from collections.abc import Iterable

ENOUGH_COMPLETIONS = 30
"""Fewer completions in a window say nothing about a rate."""


def window(capture: Capture, skip_steps: int = 0) -> Window:
    """Return the window of a capture.

    With step records it runs from the first `step_started` to the last `step_finished`: trainers accept in
    bursts at step ends, so a window that cuts a step would count its work without its result. Without them it
    runs from the first acceptance, which is not counted, to the last.

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
    else:
        start, end, reason = _between_acceptances(capture)
    if end <= start:
        raise NotMeasurable("the window has no length")
    found = Window(start=start, end=end, closed=tuple(_closed(capture, start, end)), reason=reason)
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


def _events(capture: Capture, *names: str) -> list[dict[str, object]]:
    events = capture.control_events
    chosen = events.filter(pc.is_in(events["event"], value_set=_strings(names)))
    rows: list[dict[str, object]] = chosen.select(["event", "t", "step", "update"]).sort_by("t").to_pylist()
    return rows


def _strings(names: Iterable[str]) -> object:
    import pyarrow as pa

    return pa.array(list(names), pa.string())


def step_spans(capture: Capture) -> list[tuple[float, float]]:
    """Return start and finish of every step that has both, by start."""
    started: dict[object, float] = {}
    steps = []
    for event in _events(capture, "step_started", "step_finished"):
        if event["event"] == "step_started":
            started[event["step"]] = float(str(event["t"]))
        elif event["step"] in started:
            steps.append((started.pop(event["step"]), float(str(event["t"]))))
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


def _closed(capture: Capture, start: float, end: float) -> list[tuple[float, float]]:
    """Return the spans with the gate shut, cut to the window; gates of several updates may overlap."""
    spans: list[tuple[float, float]] = []
    shut: dict[object, float] = {}
    for event in _events(capture, "gate_closed", "gate_opened"):
        instant = float(str(event["t"]))
        if event["event"] == "gate_closed":
            shut.setdefault(event["update"], instant)
        elif event["update"] in shut:
            spans.append((shut.pop(event["update"]), instant))
    spans += [(instant, end) for instant in shut.values()]
    merged: list[tuple[float, float]] = []
    for one, other in sorted((max(a, start), min(b, end)) for a, b in spans if b > start and a < end):
        if merged and one <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], other)
        else:
            merged.append((one, other))
    return merged
