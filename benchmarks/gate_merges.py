"""Sequences of merges: what is simulated, and the tables and criteria that come of it."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from gate_numbers import Section, at_least, percent, share, table, versus
from gate_sequences import Story

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from gate_numbers import Counted

_JOBS = ((3, 1), (5, 1), (3, 3), (5, 3))
_CVS = (0.01, 0.02, 0.03)
_LATEST = 12
"""Merges of -1 % that add up to -11.4 %; the next one passes -12 %."""
_SLOW = 0.004


def _merge(name: str) -> int:
    """Return at which merge a story ended ("regressed 7")."""
    return int(name.split(" ")[1])


def _by(counts: Counter[str], merge: int) -> float:
    """Return the share that was stopped by that merge."""
    return sum(n for name, n in counts.items() if name != "never" and _merge(name) <= merge) / counts.total()


def _lost(counts: Counter[str], part: float, step: float = 0.01) -> float:
    """Return what is lost, in percent, when that part of the sequences has been stopped."""
    merges = sorted(_merge(name) for name in counts.elements() if name != "never")
    rank = max(math.ceil(part * counts.total()), 1)
    return 100 * (1 - (1 - step) ** merges[rank - 1]) if rank <= len(merges) else math.inf


def _rate(counts: Counter[str], merges: int) -> float:
    """Return alarms by merges made."""
    made = sum(merges if name == "never" else _merge(name) for name in counts.elements())
    return (counts.total() - counts["never"]) / made


def drift_stories() -> list[Story]:
    """One percent is lost with every merge."""
    return [
        Story(cv=cv, before=b, after=a, step=-0.01, merges=30, refresh=refresh)
        for cv, (b, a), refresh in itertools.product(_CVS, _JOBS, (False, True))
    ]


def drift_page(found: Counted) -> Iterator[str]:
    yield "## Drift: every merge loses 1 %\n"
    yield "What is *unchanged* joins the baseline. *Refreshed*: what is *inconclusive* joins it too, with a reason"
    yield "given every time, so that the baseline follows the loss down.\n"
    count = next(iter(found.values())).total()
    thin = {case: counts for case, counts in found.items() if (case.before, case.after, case.refresh) == (3, 1, False)}
    steady = min(_by(counts, _LATEST) for case, counts in found.items() if case not in thin)
    worst = min(_by(counts, _LATEST) for counts in thin.values())
    yield at_least(
        "caught before -12 % in 95 of 100 sequences, but for 3 v 1 that is never refreshed", 0.95, steady, count
    )
    yield at_least(
        "the same for 3 v 1 that is never refreshed, so that two degrees of freedom are all", 0.95, worst, count
    )
    rows = []
    for case, counts in found.items():
        lost = [f"{_lost(counts, part):.1f}" for part in (0.5, 0.95, 1.0)]
        shares = percent(_by(counts, _LATEST)), *lost, percent(share(counts, "drifted"))
        rows.append([f"{case.cv:.0%}", versus(case), "refreshed" if case.refresh else "", *shares])
    head = ["CV", "jobs", "baseline", "before -12 %", "lost: median", "95 of 100", "worst", "by the drift test"]
    yield table(rows, head)


def calm_stories() -> list[Story]:
    """Thirty merges, none of which changes anything."""
    grid = itertools.product(_CVS, ((3, 1), (5, 3)), (False, True))
    return [Story(cv=cv, before=b, after=a, merges=30, refresh=refresh) for cv, (b, a), refresh in grid]


def calm_page(found: Counted) -> Iterator[str]:
    yield "## Thirty merges that change nothing\n"
    yield "Each merge may be called *regressed* by chance, so that a long series meets a false alarm some day. The"
    yield "last column is what the drift test adds.\n"
    rows = []
    for case, counts in found.items():
        alarms = 1 - share(counts, "never"), _by(counts, 1), _rate(counts, case.merges), share(counts, "drifted")
        rows.append([f"{case.cv:.0%}", versus(case), "refreshed" if case.refresh else "", *map(percent, alarms)])
    yield table(
        rows, ["CV", "jobs", "baseline", "any of 30", "the first", "a merge, on average", "first alarm is drift"]
    )


_JUMPS: dict[str, tuple[float, ...]] = {
    "none": (),
    "-10 %": (0.9,),
    "+10 %": (1.1,),
    "+10 %, -10 %": (1.1, 0.9),
    "-10 % three times": (0.9, 0.9, 0.9),
}


def jump_stories() -> list[Story]:
    """A change is accepted; then comes a loss, a drift, or nothing."""
    grid = itertools.product(_CVS, _JUMPS.values())
    then: list[dict[str, Any]] = [{"step": -0.1}, {"step": -0.01, "merges": 30}, {"merges": 10}]
    return [Story(cv=cv, before=5, after=3, jumps=jumps, settle=1, **more) for cv, jumps in grid for more in then]


def jump_page(found: Counted) -> Iterator[str]:
    yield "## After an accepted change\n"
    yield "Five baseline jobs, three with every merge; the change is accepted with a reason, one merge follows it.\n"
    rows, worst, count = [], 1.0, 1
    for cv in _CVS:
        before = 0.0
        for name, jumps in _JUMPS.items():
            loss, drift, still = (counts for case, counts in found.items() if (case.cv, case.jumps) == (cv, jumps))
            caught, count = _by(loss, 1), loss.total()
            before = before or caught
            worst = min(worst, 1 - before + caught)
            shares = caught, _by(drift, _LATEST), 1 - share(still, "never"), _rate(still, 10)
            rows.append([f"{cv:.0%}", name, *map(percent, shares)])
    yield at_least("the next loss of 10 % is caught as often as before, but for 2 points", 0.98, worst, count)
    head = ["CV", "accepted", "next -10 % caught", "drift before -12 %", "false alarm in 10", "a merge, on average"]
    yield table(rows, head)


def accept_stories() -> list[Story]:
    """The first alarm of a slow drift is accepted, and the drift goes on."""
    story = {"before": 5, "after": 3, "step": -_SLOW, "merges": 100, "refresh": True}
    return [Story(cv=cv, accepted=accepted, **story) for cv in _CVS for accepted in (0, 1)]


def accept_page(found: Counted) -> Iterator[str]:
    yield "## After an accepted drift\n"
    yield "Every merge loses 0.4 %, the baseline is refreshed, and the first alarm is accepted with a reason: the"
    yield "next one needs about as much loss again.\n"
    rows = []
    for cv in _CVS:
        first, second = (_lost(counts, 0.5, _SLOW) for case, counts in found.items() if case.cv == cv)
        rows.append([f"{cv:.0%}", f"{first:.1f}", f"{second:.1f}"])
    yield table(rows, ["CV", "lost until the first alarm, median", "lost from there to the second, median"])


SECTIONS = {
    "drift": Section(drift_stories, drift_page),
    "calm": Section(calm_stories, calm_page),
    "jump": Section(jump_stories, jump_page),
    "accept": Section(accept_stories, accept_page),
}
