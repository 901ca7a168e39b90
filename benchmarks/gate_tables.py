"""What is simulated, and the tables and criteria that come of it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gate_cells import Cell
from gate_sequences import Story
from tabulate import tabulate

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Counted = Mapping[Any, Counter[str]]

CVS = (0.01, 0.02, 0.03, 0.045, 0.06)
LOSSES = (0.0, 0.05, 0.10, 0.20)
WRONG = 0.05
_JOBS = ((3, 1), (5, 1), (3, 3), (5, 3))
_CALM = (0.01, 0.02, 0.03)
_LATEST = 12
"""Merges of -1 % that add up to -11.4 %; the next one passes -12 %."""


@dataclass(frozen=True, slots=True)
class Section:
    """Cases to count, and the lines that show the counts."""

    cases: Callable[[], Sequence[Cell | Story]]
    page: Callable[[Counted], Iterator[str]]


def standard_error(share: float, count: int) -> float:
    """Return the standard error of a share that was counted."""
    return math.sqrt(share * (1 - share) / count)


def share(counts: Counter[str], *names: str) -> float:
    """Return the share of some outcomes."""
    return sum(counts[name] for name in names) / counts.total()


def percent(value: float) -> str:
    """Write a share, more finely near its ends."""
    return f"{100 * value:.1f}" if value < 0.1 or value > 0.9 else f"{100 * value:.0f}"


def at_most(text: str, limit: float, found: float, count: int) -> str:
    """Hold the worst share against a limit from above."""
    return _criterion(text, found, met=found <= limit + 3 * standard_error(limit, count))


def at_least(text: str, limit: float, found: float, count: int) -> str:
    """Hold the worst share against a limit from below."""
    return _criterion(text, found, met=found >= limit - 3 * standard_error(limit, count))


def _criterion(text: str, found: float, *, met: bool) -> str:
    return f"- {text}: **{'met' if met else 'not met'}**, worst {percent(found)} %"


def table(rows: Iterable[Sequence[str]], head: Sequence[str]) -> str:
    """Write a Markdown table."""
    return "\n" + tabulate(rows, head, tablefmt="github", disable_numparse=True) + "\n"


def _versus(case: Any) -> str:
    return f"{case.before} v {case.after}"


# -- one comparison ---------------------------------------------------------------------------------------------


def measured_cells() -> list[Cell]:
    """Three to five baseline jobs show their own spread."""
    return [
        Cell(cv=c, before=b, after=a, loss=x) for c, b, a, x in itertools.product(CVS, (3, 4, 5), (1, 2, 3), LOSSES)
    ]


def measured_page(found: Counted) -> Iterator[str]:
    yield "## Noise measured: three to five baseline jobs\n"
    yield from _both_errors(found)
    caught = found[Cell(cv=0.03, before=5, after=3, loss=0.10)]
    text = "a true loss of 10 % at CV 3 %, 5 against 3 jobs, caught at least 95 times in 100"
    yield at_least(text, 0.95, share(caught, "regressed"), caught.total())
    yield _verdicts(found)


def assumed_cells() -> list[Cell]:
    """One or two baseline jobs: the spread is assumed to be 3 %."""
    return [Cell(cv=c, before=b, after=a, loss=x) for c, b, a, x in itertools.product(CVS, (1, 2), (1, 2, 3), LOSSES)]


def assumed_page(found: Counted) -> Iterator[str]:
    yield "## Noise assumed: one or two baseline jobs\n"
    yield "The gate assumes a spread of 3 % and says so. Where the true one is larger, it is wrong more often.\n"
    yield from _both_errors({case: counts for case, counts in found.items() if case.cv <= 0.03}, ", CV up to 3 %")
    yield _verdicts(found)


def _both_errors(found: Counted, where: str = "") -> Iterator[str]:
    count = next(iter(found.values())).total()
    alarm = max(share(counts, "regressed") for case, counts in found.items() if case.loss == 0)
    missed = max(share(counts, "unchanged", "improved") for case, counts in found.items() if case.loss == 0.05)
    yield at_most(f"*regressed* although nothing changed, at most 5 % in every cell{where}", WRONG, alarm, count)
    yield at_most(f"*unchanged* although 5 % are lost, at most 5 % in every cell{where}", WRONG, missed, count)


def _verdicts(found: Counted) -> str:
    rows = []
    for case in found:
        if case.loss == 0:
            counted = [found[replace(case, loss=loss)] for loss in LOSSES]
            words = "regressed", "unchanged", "inconclusive"
            cells = [" / ".join(percent(share(counts, word)) for word in words) for counts in counted]
            passed = " / ".join(percent(1 - share(counts, "regressed")) for counts in counted)
            rows.append([f"{case.cv:.1%}", _versus(case), *cells, passed])
    head = ["CV", "jobs", *(f"{loss:.0%} lost" for loss in LOSSES), "exit 0 at 0 / 5 / 10 / 20 %"]
    return f"\nRegressed / unchanged / inconclusive; what is missing to 100 is *improved*.\n{table(rows, head)}"


def family_cells() -> list[Cell]:
    """Eight metrics, judged together."""
    grid = itertools.product((0.01, 0.03, 0.06), ((3, 1), (5, 3)), (0.0, 0.10))
    return [Cell(kind="family", cv=cv, before=b, after=a, loss=loss) for cv, (b, a), loss in grid]


def family_page(found: Counted) -> Iterator[str]:
    yield "## Eight metrics together\n"
    yield "A primary at the full error and seven that share one (Holm); correlation 0.5; all lose alike.\n"
    still = {case: counts for case, counts in found.items() if case.loss == 0}
    worst = max(share(counts, "primary", "secondary") for counts in still.values())
    text = "any metric *regressed* although nothing changed, at most 5 %"
    yield at_most(text, WRONG, worst, next(iter(found.values())).total())
    rows = []
    for case, counts in still.items():
        lost = found[replace(case, loss=0.10)]
        shares = share(counts, "primary", "secondary"), share(lost, "primary"), share(lost, "primary", "secondary")
        rows.append([f"{case.cv:.0%}", _versus(case), *map(percent, shares)])
    yield table(rows, ["CV", "jobs", "any false alarm", "primary caught at -10 %", "any caught at -10 %"])


_KINDS = {
    "looks": "two looks: as many jobs are added where the first look is inconclusive",
    "pairs": "interleaved pairs on machines 10 % apart; CV inside a pair",
    "unnamed": "three runs each of two jobs that carry no name, so that they count as one job",
}


def special_cells() -> list[Cell]:
    """The rules beside the main one."""
    sizes = {"looks": ((5, 1), (5, 2)), "pairs": ((3, 3), (5, 5)), "unnamed": ((3, 3),)}
    return [
        Cell(kind=kind, cv=cv, before=b, after=a, loss=loss)
        for kind, some in sizes.items()
        for cv, (b, a), loss in itertools.product((0.01, 0.03), some, LOSSES)
    ]


def special_page(found: Counted) -> Iterator[str]:
    yield "## Two looks, pairs, and jobs without a name\n"
    for kind in ("looks", "pairs"):
        some = {case: counts for case, counts in found.items() if case.kind == kind}
        yield f"- {_KINDS[kind]}:"
        yield from (f"  {line}" for line in _both_errors(some))
    for kind, text in _KINDS.items():
        yield f"\n**{text[0].upper()}{text[1:]}.**"
        yield _verdicts({case: counts for case, counts in found.items() if case.kind == kind})


# -- sequences of merges ----------------------------------------------------------------------------------------


def drift_stories() -> list[Story]:
    """One percent is lost with every merge."""
    return [
        Story(cv=cv, before=b, after=a, step=-0.01, merges=30, refresh=refresh)
        for cv, (b, a), refresh in itertools.product(_CALM, _JOBS, (False, True))
    ]


def drift_page(found: Counted) -> Iterator[str]:
    yield "## Drift: every merge loses 1 %\n"
    yield 'What is *unchanged* joins the baseline; "refreshed" means that what is *inconclusive* joins it too, by a'
    yield "reason given every time, so that the baseline follows the loss down.\n"
    worst = min(_by(counts, _LATEST) for counts in found.values())
    count = next(iter(found.values())).total()
    yield at_least("caught before -12 % in 95 of 100 sequences, every row", 0.95, worst, count)
    steady = min(_by(counts, _LATEST) for case, counts in found.items() if (case.before, case.after) != (3, 1))
    yield at_least("the same without 3 v 1", 0.95, steady, count)
    rows = [
        [
            f"{case.cv:.0%}",
            _versus(case),
            "refreshed" if case.refresh else "",
            percent(_by(counts, _LATEST)),
            *(f"{_lost(counts, part):.1f}" for part in (0.5, 0.95, 1.0)),
            percent(sum(n for name, n in counts.items() if name.startswith("drifted")) / counts.total()),
        ]
        for case, counts in found.items()
    ]
    head = ["CV", "jobs", "baseline", "before -12 %", "lost: median", "95 of 100", "worst", "by the drift test"]
    yield table(rows, head)


def _by(counts: Counter[str], merge: int) -> float:
    """Return the share that was stopped by that merge."""
    return sum(n for name, n in counts.items() if name != "never" and int(name.split()[1]) <= merge) / counts.total()


def _lost(counts: Counter[str], part: float, step: float = 0.01) -> float:
    """Return what is lost, in percent, when that part of the sequences has been stopped."""
    merges = sorted(int(name.split()[1]) for name in counts.elements() if name != "never")
    rank = max(math.ceil(part * counts.total()), 1)
    return 100 * (1 - (1 - step) ** merges[rank - 1]) if rank <= len(merges) else math.inf


def calm_stories() -> list[Story]:
    """Thirty merges, none of which changes anything."""
    return [Story(cv=cv, before=b, after=a, merges=30) for cv, (b, a) in itertools.product(_CALM, _JOBS)]


def calm_page(found: Counted) -> Iterator[str]:
    yield "## Thirty merges that change nothing\n"
    yield "Each merge may be called *regressed* by chance, so that a long series meets a false alarm some day. The last"
    yield "column is what the drift test adds.\n"
    rows = []
    for case, counts in found.items():
        alarms = [1 - share(counts, "never"), _by(counts, 1), _rate(counts, case.merges)]
        drifted = sum(n for name, n in counts.items() if name.startswith("drifted")) / counts.total()
        rows.append([f"{case.cv:.0%}", _versus(case), *map(percent, (*alarms, drifted))])
    yield table(rows, ["CV", "jobs", "any of 30", "the first", "a merge, on average", "first alarm is drift"])


def _rate(counts: Counter[str], merges: int) -> float:
    """Return alarms by merges made."""
    made = sum(merges if name == "never" else int(name.split()[1]) for name in counts.elements())
    return (counts.total() - counts["never"]) / made


_JUMPS: dict[str, tuple[float, ...]] = {
    "none": (),
    "-10 %": (0.9,),
    "+10 %": (1.1,),
    "+10 %, -10 %": (1.1, 0.9),
    "-10 % three times": (0.9, 0.9, 0.9),
}


def jump_stories() -> list[Story]:
    """A change is accepted; then comes a loss, a drift, or nothing."""
    grid = itertools.product(_CALM, _JUMPS.values())
    then: list[dict[str, Any]] = [{"step": -0.1}, {"step": -0.01, "merges": 30}, {"merges": 10}]
    return [Story(cv=cv, before=5, after=3, jumps=jumps, settle=1, **more) for cv, jumps in grid for more in then]


def jump_page(found: Counted) -> Iterator[str]:
    yield "## After an accepted change\n"
    yield "Five baseline jobs, three with every merge; the jump is accepted with a reason, one merge follows it.\n"
    rows, worst, count = [], 1.0, 1
    for cv, (name, jumps) in itertools.product(_CALM, _JUMPS.items()):
        loss, drift, still = (counts for case, counts in found.items() if (case.cv, case.jumps) == (cv, jumps))
        caught, count = _by(loss, 1), loss.total()
        before = caught if not jumps else before
        worst = min(worst, 1 + caught - before)
        late = _by(drift, _LATEST)
        rows.append([f"{cv:.0%}", name, *map(percent, (caught, late, 1 - share(still, "never"), _rate(still, 10)))])
    text = "the next loss of 10 % is caught as before the change (share, with no jump as 100 %)"
    yield at_least(text, 0.98, worst, count)
    head = ["CV", "accepted", "next -10 % caught", "drift before -12 %", "false alarm in 10", "a merge, on average"]
    yield table(rows, head)


def accept_stories() -> list[Story]:
    """The first alarm of a slow drift is accepted, and the drift goes on."""
    return [
        Story(cv=cv, before=5, after=3, step=-0.004, merges=100, refresh=True, accepted=n)
        for cv in _CALM
        for n in (0, 1)
    ]


def accept_page(found: Counted) -> Iterator[str]:
    yield "## After an accepted drift\n"
    yield "Every merge loses 0.4 %, the baseline is refreshed, and the first alarm is accepted with a reason: the next"
    yield "one should need as much loss again.\n"
    rows = []
    for cv in _CALM:
        first, second = (_lost(counts, 0.5, 0.004) for case, counts in found.items() if case.cv == cv)
        rows.append([f"{cv:.0%}", f"{first:.1f}", f"{second:.1f}"])
    yield table(rows, ["CV", "lost until the first alarm, median", "lost from there to the second, median"])


SECTIONS = {
    "measured": Section(measured_cells, measured_page),
    "assumed": Section(assumed_cells, assumed_page),
    "family": Section(family_cells, family_page),
    "special": Section(special_cells, special_page),
    "drift": Section(drift_stories, drift_page),
    "calm": Section(calm_stories, calm_page),
    "jump": Section(jump_stories, jump_page),
    "accept": Section(accept_stories, accept_page),
}
