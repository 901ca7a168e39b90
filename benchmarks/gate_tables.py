"""Single comparisons: what is simulated, and the tables and criteria that come of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from gate_cells import Cell
from gate_numbers import WRONG, Section, at_least, at_most, percent, share, table, versus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gate_numbers import Counted

CVS = (0.01, 0.02, 0.03, 0.045, 0.06)
LOSSES = (0.0, 0.05, 0.10, 0.20)
_KINDS = {
    "looks": "two looks: as many jobs are added where the first look is inconclusive",
    "pairs": "interleaved pairs on machines 10 % apart; CV inside a pair",
    "unnamed": "three runs each of two jobs that carry no name, so that no spread is known",
}


def measured_cells() -> list[Cell]:
    """Three to five baseline jobs show their own spread."""
    grid = itertools.product(CVS, (3, 4, 5), (1, 2, 3), LOSSES)
    return [Cell(cv=cv, before=b, after=a, loss=loss) for cv, b, a, loss in grid]


def measured_page(found: Counted) -> Iterator[str]:
    yield "## Noise measured: three to five baseline jobs\n"
    yield from _both_errors(found)
    caught = found[Cell(cv=0.03, before=5, after=3, loss=0.10)]
    text = "a true loss of 10 % at CV 3 %, 5 against 3 jobs, is caught at least 95 times in 100"
    yield at_least(text, 0.95, share(caught, "regressed"), caught.total())
    yield _verdicts(found)


def assumed_cells() -> list[Cell]:
    """One or two baseline jobs: the spread is assumed to be 3 %."""
    grid = itertools.product(CVS, (1, 2), (1, 2, 3), LOSSES)
    return [Cell(cv=cv, before=b, after=a, loss=loss) for cv, b, a, loss in grid]


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
            rows.append([f"{case.cv:.1%}", versus(case), *cells, passed])
    head = ["CV", "jobs", *(f"{loss:.0%} lost" for loss in LOSSES), "exit 0 at 0 / 5 / 10 / 20 %"]
    return f"\nRegressed / unchanged / inconclusive; what is missing to 100 is *improved*.\n{table(rows, head)}"


def family_cells() -> list[Cell]:
    """Eight metrics, judged together."""
    grid = itertools.product((0.01, 0.03, 0.06), ((3, 1), (5, 3)), (0.0, 0.10))
    return [Cell(kind="family", cv=cv, before=b, after=a, loss=loss) for cv, (b, a), loss in grid]


def family_page(found: Counted) -> Iterator[str]:
    yield "## Eight metrics together\n"
    yield "A primary and seven others share one error by Holm's method, the primary with four fifths of it; correlation"
    yield "0.5; all lose alike.\n"
    still = {case: counts for case, counts in found.items() if case.loss == 0}
    worst = max(share(counts, "primary", "secondary") for counts in still.values())
    count = next(iter(found.values())).total()
    yield at_most("any metric *regressed* although nothing changed, at most 5 %, every row", WRONG, worst, count)
    rows = []
    for case, counts in still.items():
        lost = found[replace(case, loss=0.10)]
        shares = share(counts, "primary", "secondary"), share(lost, "primary"), share(lost, "primary", "secondary")
        rows.append([f"{case.cv:.0%}", versus(case), *map(percent, shares)])
    yield table(rows, ["CV", "jobs", "any false alarm", "primary caught at -10 %", "any caught at -10 %"])


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
    for kind, text in _KINDS.items():
        some = {case: counts for case, counts in found.items() if case.kind == kind}
        yield f"- {text}:"
        yield from (f"    {line}" for line in _both_errors(some))
    for kind, text in _KINDS.items():
        yield f"\n**{text[0].upper()}{text[1:]}.**"
        yield _verdicts({case: counts for case, counts in found.items() if case.kind == kind})


SECTIONS = {
    "measured": Section(measured_cells, measured_page),
    "assumed": Section(assumed_cells, assumed_page),
    "family": Section(family_cells, family_page),
    "special": Section(special_cells, special_page),
}
