"""Metrics are numbers taken from a capture, each with the definition it was computed by.

A metric is one decorated function in a file of this folder, a file for each family. A function returns a
`Value`, or a numpy array of one value per request (step, update …), whose statistics are asked for by a suffix:
``ttft.p99``. What the capture does not hold raises `NotMeasurable`; it never becomes 0.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from pytest_rlserve.errors import NotMeasurable, UsageError, nearest
from pytest_rlserve.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

    MetricFunction = Callable[[Capture, "Scope"], "Value | NDArray[np.float64]"]

Better = Literal["higher", "lower"]
_ENOUGH = {"p50": 1, "mean": 1, "max": 1, "p90": 100, "p95": 200, "p99": 1000}
"""Values a statistic needs: ten beyond the quantile, or it is one request's luck (DESIGN of the gate, §8)."""
PER_GPU = "per_gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the policy says about how metrics are taken."""

    skip_steps: int = 0
    """Whole steps left out at the start of the throughput window."""
    freshness: Literal["start", "end", "worst", "token_mean"] = "start"
    """Which of an attempt's generating versions its lag is measured from."""
    max_lag: float = 1
    """Largest lag, in policy versions, at which an accepted attempt is fresh."""
    budgets: Mapping[str, float] = field(default_factory=dict)
    """Per-request budgets in seconds, by latency metric; from the policy's limits."""

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
    doc: str
    func: MetricFunction

    def definition(self, scope: Scope) -> dict[str, str]:
        """Return the parts of the definition that two measurements must share to be compared, with their digest."""
        parts = {
            "unit": self.unit,
            "better": self.better,
            "numerator": self.numerator,
            "denominator": self.denominator,
            "freshness": self.freshness.format(fresh=scope.fresh),
            "phase": self.phase + (f", less the first {scope.skip_steps} steps" if scope.skip_steps else ""),
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
    definition: Mapping[str, str] = field(default_factory=dict)


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
) -> Callable[[MetricFunction], MetricFunction]:
    """Register the decorated function as the metric of its name.

    Args:
        unit: base unit, e.g. "s", "trajectories/s", "fraction", "count".
        better: "higher" or "lower": the direction in which a change is an improvement.
        needs: canonical tables that must hold rows, e.g. {"requests", "attempt_events"}.
        numerator: what is counted or summed.
        denominator: what it is divided by; "1" for a plain amount.
        freshness: which policy versions count; "{fresh}" stands for the policy's rule.
        phase: the time it is taken over.
        statistics: for a function that returns one value per request: what is reported, main one first.
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
            doc=inspect.getdoc(func) or "",
            func=func,
        )
        METRICS.add(func.__name__, new, home=func.__module__)
        return func

    return register


def resolve(key: str) -> tuple[Metric, str]:
    """Split ``ttft.p99`` into metric and statistic; the bare name of a distribution means its main statistic.

    Raises:
        UsageError: no such metric or statistic.
    """
    name, _, statistic = key.partition(".")
    found = METRICS[name]
    allowed = (*_ENOUGH,) if found.statistics else (PER_GPU,) if found.unit.endswith("/s") else ()
    if statistic and statistic not in allowed:
        offers = ", ".join(f"{name}.{one}" for one in allowed) or "no statistic: it is a single value"
        raise UsageError(f"{key!r}: {name} has {offers}{nearest(statistic, allowed)}")
    return found, statistic or (found.statistics[0] if found.statistics else "")


def keys() -> list[str]:
    """Return the keys of everything that is reported for a capture, sorted by name."""
    return [
        key
        for found in METRICS.values()
        for key in ([f"{found.name}.{s}" for s in found.statistics] if found.statistics else [found.name])
    ]


def measure(capture: Capture, key: str, scope: Scope | None = None) -> Measurement:
    """Measure one metric of a capture; what cannot be observed comes back as None with the reason.

    Raises:
        UsageError: no such metric or statistic.
    """
    scope = scope or Scope()
    found, statistic = resolve(key)
    unit = f"{found.unit}/GPU" if statistic == PER_GPU else found.unit
    value: float | None = None
    why, n, excluded = None, 0, ""
    try:
        taken = _taken(capture, found, scope)
        if isinstance(taken, Value):
            value, n, excluded = taken.value, taken.n, taken.excluded
            if statistic == PER_GPU:
                value /= _gpus(capture)
        else:
            n = len(taken)
            value = _statistic(taken, statistic)
        if not math.isfinite(value):
            value, why = None, "the result is not a finite number"
    except NotMeasurable as error:
        value, why = None, str(error)
    return Measurement(
        name=key,
        capture=capture.name,
        unit=unit,
        better=found.better,
        n=n,
        value=value,
        why=why,
        excluded=excluded,
        definition=found.definition(scope),
    )


def _taken(capture: Capture, found: Metric, scope: Scope) -> Value | NDArray[np.float64]:
    """Run a metric's function once per capture and scope, however many statistics are asked of it."""
    missing = sorted(table for table in found.needs if not capture.has(table))
    if missing:
        raise NotMeasurable(f"needs {' and '.join(missing).replace('_', ' ')}; the capture has none")
    cache = capture.derive(_measured)
    key = (found.name, scope.skip_steps, scope.fresh, tuple(sorted(scope.budgets.items())))
    if key not in cache:
        try:
            cache[key] = found.func(capture, scope)
        except NotMeasurable as error:
            cache[key] = error
    taken = cache[key]
    if isinstance(taken, NotMeasurable):
        raise taken
    return taken


def _measured(capture: Capture) -> dict[object, Value | NDArray[np.float64] | NotMeasurable]:
    return {}


def _statistic(values: NDArray[np.float64], statistic: str) -> float:
    enough = _ENOUGH[statistic]
    if len(values) < enough:
        raise NotMeasurable(f"{statistic} needs {enough:,} values, there are {len(values):,}")
    if statistic == "mean":
        return float(values.mean())
    if statistic == "max":
        return float(values.max())
    return float(np.quantile(values, float(statistic[1:]) / 100))


def _gpus(capture: Capture) -> int:
    if not capture.manifest.gpus:
        raise NotMeasurable("the manifest does not say how many GPUs there were (gpus)")
    return capture.manifest.gpus
