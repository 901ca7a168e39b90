"""Shares, criteria and tables: how counts of the simulation are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

if TYPE_CHECKING:
    from collections import Counter

Counted = Mapping[Any, "Counter[str]"]
"""Case → how often each outcome came."""
WRONG = 0.05
"""How often the gate may be wrong."""


@dataclass(frozen=True, slots=True)
class Section:
    """Cases to count, and the lines that show the counts."""

    cases: Callable[[], Sequence[Any]]
    page: Callable[[Counted], Iterator[str]]


def standard_error(share: float, count: int) -> float:
    """Return the standard error of a share that was counted."""
    return math.sqrt(share * (1 - share) / count)


def share(counts: Counter[str], *names: str) -> float:
    """Return the share of some outcomes, by the first word of their names."""
    return sum(number for name, number in counts.items() if name.split(" ")[0] in names) / counts.total()


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


def versus(case: Any) -> str:
    """Write how many jobs stand against how many."""
    return f"{case.before} v {case.after}"
