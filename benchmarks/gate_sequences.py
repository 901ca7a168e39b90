"""Sequences of merges: each is judged, and taken into the baseline by the package's own update.

Only the baseline's file is replaced, by memory: comparison, drift test and update are those that ship.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from pytest_rlserve.capture import Capture, Manifest
from pytest_rlserve.gate import baseline as store
from pytest_rlserve.gate.family import Family
from pytest_rlserve.gate.policy import Policy
from pytest_rlserve.gate.update import update
from pytest_rlserve.metrics import Scope, Value, metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RATE = "simulated_rate"
ALLOWED = 0.05
POLICY = Policy(primary=RATE, gated={RATE: ALLOWED})
_FILE = Path("simulated.json")
_EMPTY = dict(Capture(name="empty").halves())
"""Tables without rows, made once: a series has thousands of runs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Capture):
    """A capture that is nothing but its rate."""

    rate: float
    number: int

    @property
    def digest(self) -> str:
        """Identify it by its number."""
        return f"blake3:{self.number:064x}"


@metric(
    unit="trajectories/s",
    better="higher",
    needs=set(),
    numerator="trajectories",
    denominator="seconds",
    freshness="any policy version",
    phase="the whole run",
)
def simulated_rate(capture: Capture, scope: Scope) -> Value:
    """The rate that was drawn for a run."""
    assert isinstance(capture, Run)
    return Value(capture.rate, 100)


class Series:
    """One series over time, from its first baseline on."""

    def __init__(self, seed: int, cv: float, jobs: int) -> None:
        """Record a baseline of `jobs` jobs at level 1."""
        self._draws, self._cv = np.random.default_rng(seed), cv
        self._document: Mapping[str, Any] | None = None
        self._runs = 0
        self.merge(1.0, jobs)

    def _measured(self, level: float, jobs: int) -> list[Run]:
        runs = []
        for rate in (level * np.exp(self._draws.normal(0.0, self._cv, jobs))).tolist():
            self._runs += 1
            manifest = Manifest(job=f"job-{self._runs}", captured_at=float(self._runs))
            name = f"run-{self._runs}"
            runs.append(Run(name=name, manifest=manifest, rate=rate, number=self._runs, **_EMPTY))
        return runs

    def _stored(self) -> store.Baseline | None:
        return None if self._document is None else store.Baseline(_FILE, self._document)

    def _write(self, path: Path, document: Mapping[str, Any], **_: object) -> bool:
        changed, self._document = document != self._document, document
        return changed

    def merge(self, level: float, jobs: int, *, accept: Sequence[str] = ()) -> str:
        """Measure `jobs` jobs at a level, judge them, take them in, and return the verdict.

        Only what is unchanged is taken in, and what has a verdict in `accept`, for which a reason is given.
        """
        runs, stored = self._measured(level, jobs), self._stored()
        found = Family(runs, POLICY, stored).compare(RATE, ALLOWED)
        with mock.patch.object(store, "write", self._write):
            update(
                _FILE,
                runs,
                {RATE: found},
                series="simulated",
                scope=POLICY.scope,
                keys=[RATE],
                reason="accepted" if found.verdict in accept else None,
                new_only=False,
                found=stored,
            )
        drifted = found.why is not None and "drift" in found.why
        return "drifted" if found.verdict == "regressed" and drifted else found.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happens to a series: jumps that are accepted, then merges."""

    cv: float
    before: int
    after: int
    jumps: tuple[float, ...] = ()
    """Accepted changes, each a factor."""
    settle: int = 0
    """Unchanged merges after each jump."""
    step: float = 0.0
    """Change of every merge that follows."""
    merges: int = 1
    refresh: bool = False
    """Whether inconclusive merges are taken into the baseline as well, with a reason."""
    accepted: int = 0
    """Alarms that are accepted, each with a reason, before one stops the story."""

    def run(self, trials: int, seed: int) -> Counter[str]:
        """Tell the story many times, and count what stopped it first and at how many merges."""
        return Counter(self._tell(seed + number) for number in range(trials))

    def _tell(self, seed: int) -> str:
        series, level = Series(seed, self.cv, self.before), 1.0
        for jump in self.jumps:
            level *= jump
            series.merge(level, self.after, accept=("regressed", "improved", "inconclusive"))
            for _ in range(self.settle):
                series.merge(level, self.after)
        accept = ("inconclusive",) if self.refresh else ()
        left, since = self.accepted, 0
        for number in range(1, self.merges + 1):
            level *= 1 + self.step
            verdict = series.merge(level, self.after, accept=(*accept, "regressed") if left else accept)
            if verdict in ("regressed", "drifted"):
                if not left:
                    return f"{verdict} {number - since}"
                left, since = left - 1, number
        return "never"
