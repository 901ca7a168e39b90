"""Metrics are numbers taken from a capture, each with the definition it was computed by.

A metric is one decorated function in a file of this folder, a file for each family. A function returns a
`Value`, or a numpy array of one value per request (step, update …), whose statistics are asked for by a suffix:
``ttft.p99``. What the capture does not hold raises `NotMeasurable`; it never becomes 0.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_rlserve.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

    MetricFunction = Callable[[Capture, "Scope"], "Value | Values | NDArray[np.float64]"]

Better = Literal["higher", "lower"]
WINDOW = "whole trainer steps, else first to last acceptance"
"""Phase of metrics that are taken over the throughput window; which of the two it was belongs to the definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the policy says about how metrics are taken."""

    skip_steps: int = 0
    """Whole steps left out at the start of the throughput window."""
    span: tuple[float, float] | None = None
    """Start and end of the window for captures without step records, in seconds since the Unix epoch."""
    freshness: Literal["start", "end", "worst", "token_mean"] = "start"
    """Which of an attempt's generating versions its lag is measured from."""
    max_lag: float = 1
    """Largest lag, in policy versions, at which an accepted attempt is fresh."""
    budgets: Mapping[str, float] = field(default_factory=dict)
    """Per-request budgets in seconds, by latency metric; from the policy's limits."""
    after_reset: float = 0.0
    """Seconds that are left out of KV reuse after each reset of a worker's cache."""

    @property
    def fresh(self) -> str:
        """Say what fresh means here."""
        return f"lag of at most {self.max_lag:g} policy versions, measured at {self.freshness}"


@dataclass(frozen=True, slots=True)
class Value:
    """A number and how many things it was made from."""

    value: float
    n: int
    excluded: str = ""
    """What was left out, and why."""
    strict: float | None = None
    """The value where KV reuse across policy versions counts as none; None where there was no such reuse."""
    reachable: float | None = None
    """The best value that this traffic allows; None where that is not known."""
    by: str = ""
    """What it was taken from, where that is not what the definition says: compared only with its like."""


@dataclass(frozen=True, slots=True)
class Values:
    """One number per request, step or update, where something that was left out has to be said."""

    values: NDArray[np.float64]
    excluded: str = ""
    """What was left out, and why."""

    @property
    def n(self) -> int:
        """Return how many there are."""
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A registered metric and its definition."""

    name: str
    unit: str
    better: Better
    needs: frozenset[str]
    """Canonical tables that must hold rows."""
    numerator: str
    denominator: str
    freshness: str
    phase: str
    statistics: tuple[str, ...]
    """Reported statistics, the first being the one meant by the bare name; empty for a single value."""
    fleet: bool
    """Whether it depends on how many workers served, so that other numbers of workers cannot be compared."""
    budgets: tuple[str, ...]
    """Latency metrics whose budgets decide what is counted, so that other budgets cannot be compared."""
    hashes: bool
    """Whether it looks at the block hashes of prompts, which take most of the time to read."""
    doc: str
    func: MetricFunction

    def definition(
        self, scope: Scope, workers: int | None = None, window: str | None = None, by: str = ""
    ) -> dict[str, str]:
        """Return the parts of the definition that two measurements must share to be compared, with their digest.

        Args:
            scope: what the policy says.
            workers: how many workers served; None if that is not known.
            window: which window the capture's records allowed, for metrics taken over one.
            by: what the value was taken from, where that is not what the definition says.
        """
        phase = window if window and self.phase == WINDOW else self.phase
        phase += f", less the first {scope.skip_steps} steps" if scope.skip_steps else ""
        if self.fleet and scope.after_reset:
            phase += f", less {scope.after_reset:g} s after each cache reset"
        if self.fleet and workers:
            phase += f", {workers} workers"
        phase += f", by {by}" if by else ""
        told = ", ".join(f"{name} <= {scope.budgets[name]:g} s" for name in self.budgets if name in scope.budgets)
        parts = {
            "unit": self.unit,
            "better": self.better,
            "numerator": f"{self.numerator}: {told}" if told else self.numerator,
            "denominator": self.denominator,
            "freshness": self.freshness.format(fresh=scope.fresh, kind=scope.freshness),
            "phase": phase,
        }
        whole = json.dumps(parts, sort_keys=True).encode()
        return {**parts, "digest": hashlib.sha256(whole).hexdigest()[:16]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number of one capture: `value` is None with a `why` where it could not be observed."""

    name: str
    capture: str
    unit: str
    better: Better
    n: int
    value: float | None
    why: str | None = None
    excluded: str = ""
    strict: float | None = None
    """The value where KV reuse across policy versions counts as none; None where there was no such reuse."""
    reachable: float | None = None
    """The best value that this traffic allows; None where that is not known."""
    definition: Mapping[str, str] = field(default_factory=dict)

    def judged(self, *, lower: bool | None = None) -> float | None:
        """Return what a verdict goes by: the worse of value and strict value, which is the lower one if `lower`."""
        if self.value is None or self.strict is None:
            return self.value
        worse = min if (self.better == "higher" if lower is None else lower) else max
        return worse(self.value, self.strict)


METRICS: Registry[Metric] = Registry("metric", "pytest_rlserve.metrics")


def metric(
    *,
    unit: str,
    better: Better,
    needs: set[str],
    numerator: str,
    denominator: str,
    freshness: str,
    phase: str,
    statistics: tuple[str, ...] = (),
    fleet: bool = False,
    budgets: tuple[str, ...] = (),
    hashes: bool = False,
) -> Callable[[MetricFunction], MetricFunction]:
    """Register the decorated function as the metric of its name.

    Args:
        unit: base unit, e.g. "s", "trajectories/s", "fraction", "count".
        better: "higher" or "lower": the direction in which a change is an improvement.
        needs: canonical tables that must hold rows, e.g. {"requests", "attempt_events"}.
        numerator: what is counted or summed.
        denominator: what it is divided by; "1" for a plain amount.
        freshness: which policy versions count; "{fresh}" stands for the policy's rule, "{kind}" for the version
            that it measures a lag from.
        phase: the time it is taken over.
        statistics: for a function that returns one value per request: what is reported, main one first.
        fleet: whether the number of workers that served is part of the definition.
        budgets: latency metrics whose budgets are part of the definition.
        hashes: whether it looks at the block hashes of prompts; `rlserve measure --metric` reads them only for one
            that does.
    """

    def register(func: MetricFunction) -> MetricFunction:
        new = Metric(
            name=func.__name__,
            unit=unit,
            better=better,
            needs=frozenset(needs),
            numerator=numerator,
            denominator=denominator,
            freshness=freshness,
            phase=phase,
            statistics=statistics,
            fleet=fleet,
            budgets=budgets,
            hashes=hashes,
            doc=inspect.getdoc(func) or "",
            func=func,
        )
        METRICS.add(func.__name__, new, home=func.__module__)
        return func

    return register
