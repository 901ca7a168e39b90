"""Error rates of one comparison: many draws of jobs, each judged by the package's own functions."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.gate.decision import ALPHA, decide, holm, shares
from pytest_rlserve.gate.statistics import estimate, estimate_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALLOWED = 0.05
ASSUMED_SD = 0.03
"""What the gate assumes of a rate until three jobs have shown their spread."""
SECONDARY = 7
CORRELATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is true in one cell: a loss, the spread between jobs, and how many jobs there are."""

    kind: str = "jobs"
    cv: float
    before: int
    after: int
    loss: float = 0.0

    def run(self, trials: int, seed: int) -> Counter[str]:
        """Judge `trials` draws and count the verdicts."""
        draws = np.random.default_rng(seed)
        judge = {"jobs": _jobs, "family": _family, "pairs": _pairs, "looks": _looks, "unnamed": _unnamed}[self.kind]
        return Counter(judge(self, draws) for _ in range(trials))


def _values(draws: np.random.Generator, count: int, cv: float, level: float = 1.0) -> list[float]:
    """Draw log-normal values around a level: `cv` is the sd of their logarithms."""
    values: list[float] = (level * np.exp(draws.normal(0.0, cv, count))).tolist()
    return values


def _named(prefix: str, values: list[float]) -> dict[str, list[float]]:
    return {f"{prefix}{number}": [value] for number, value in enumerate(values)}


def _verdict(old: dict[str, list[float]], new: dict[str, list[float]], alpha: float = ALPHA) -> str:
    found = estimate(old, new, better="higher", assumed_sd=ASSUMED_SD, linear=False)
    return decide(found, better="higher", allowed=ALLOWED, linear=False, alpha=alpha).verdict


def _jobs(cell: Cell, draws: np.random.Generator) -> str:
    """One metric, one run a job."""
    old, new = _values(draws, cell.before, cell.cv), _values(draws, cell.after, cell.cv, 1 - cell.loss)
    return _verdict(_named("before", old), _named("after", new))


def _looks(cell: Cell, draws: np.random.Generator) -> str:
    """Two looks with half the error each: where the first is inconclusive, as many jobs are added and pooled."""
    old = _named("before", _values(draws, cell.before, cell.cv))
    new = _named("after", _values(draws, 2 * cell.after, cell.cv, 1 - cell.loss))
    first = _verdict(old, dict(list(new.items())[: cell.after]), ALPHA / 2)
    return first if first != "inconclusive" else _verdict(old, new, ALPHA / 2)


def _pairs(cell: Cell, draws: np.random.Generator) -> str:
    """Interleaved pairs on machines that differ by 10 %; `cv` is the spread inside a pair."""
    shift = np.exp(draws.normal(0.0, 0.10, cell.before))
    old = np.array(_values(draws, cell.before, cell.cv)) * shift
    new = np.array(_values(draws, cell.before, cell.cv, 1 - cell.loss)) * shift
    pairs = {str(number): ([before], [after]) for number, (before, after) in enumerate(zip(old, new, strict=True))}
    found = estimate_pairs(pairs, better="higher", linear=False)
    assert found is not None
    return decide(found, better="higher", allowed=ALLOWED, linear=False).verdict


def _unnamed(cell: Cell, draws: np.random.Generator) -> str:
    """Runs of one job against runs of another, neither of which has a name; `cv` between jobs, 0.5 % inside one."""
    luck = np.exp(draws.normal(0.0, cell.cv, 2)).tolist()
    old = _values(draws, cell.before, 0.005, luck[0])
    new = _values(draws, cell.after, 0.005, luck[1] * (1 - cell.loss))
    return _verdict({"unnamed/before": old}, {"unnamed/after": new})


def _family(cell: Cell, draws: np.random.Generator) -> str:
    """Eight correlated metrics share one error: tell whether the primary regressed, or only some of the other seven."""
    old, new = (_correlated(draws, count, cell.cv) for count in (cell.before, cell.after))
    found = [
        estimate(
            _named("before", old[:, one].tolist()),
            _named("after", ((1 - cell.loss) * new[:, one]).tolist()),
            better="higher",
            assumed_sd=ASSUMED_SD,
            linear=False,
        )
        for one in range(1 + SECONDARY)
    ]
    p = {str(number): one.p() for number, one in enumerate(found)}
    levels = holm(p, shares(p, "0"))
    regressed = [
        decide(one, better="higher", allowed=ALLOWED, linear=False, level=levels[str(number)]).verdict == "regressed"
        for number, one in enumerate(found)
    ]
    return "primary" if regressed[0] else "secondary" if any(regressed) else "none"


def _correlated(draws: np.random.Generator, jobs: int, cv: float) -> NDArray[np.float64]:
    shared, own = draws.normal(size=(jobs, 1)), draws.normal(size=(jobs, 1 + SECONDARY))
    return np.exp(cv * (math.sqrt(CORRELATION) * shared + math.sqrt(1 - CORRELATION) * own))
