"""Taking a metric of a capture: its value or statistic, or the reason why it cannot be observed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.errors import NotMeasurable, UsageError, nearest, require_capture
from pytest_rlserve.fleet import serving_workers
from pytest_rlserve.joins.clocks import corrected, skew
from pytest_rlserve.metrics import METRICS, WINDOW, Measurement, Metric, Scope, Value, Values
from pytest_rlserve.metrics.window import window_kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

_ENOUGH = {"p50": 1, "mean": 1, "max": 1, "p90": 100, "p95": 200, "p99": 1000}
"""Values a statistic needs: ten beyond the quantile, or the quantile is one request's luck."""
_PER_GPU = "per_gpu"
_MOVED = 0.005
"""By how much of itself, or of 1 for a fraction, a value may hang on the clocks' skew: below it, it is noise anyway."""


def resolve(key: str) -> tuple[Metric, str]:
    """Split ``ttft.p99`` into metric and statistic; the bare name of a distribution means its main statistic.

    Raises:
        UsageError: no such metric or statistic.
    """
    name, _, statistic = key.partition(".")
    found = METRICS[name]
    allowed = (*_ENOUGH,) if found.statistics else (_PER_GPU,) if found.unit.endswith("/s") else ()
    if statistic and statistic not in allowed:
        offers = ", ".join(f"{name}.{one}" for one in allowed) or "no statistic: it is a single value"
        raise UsageError(f"{key!r}: {name} has {offers}{nearest(statistic, allowed)}")
    return found, statistic or (found.statistics[0] if found.statistics else "")


def all_keys() -> list[str]:
    """Return the keys of everything that is reported for a capture, sorted by name."""
    return [key for found in METRICS.values() for key in _reported(found)]


def _reported(found: Metric) -> list[str]:
    """One statistic goes by the metric's own name; several go by their suffixes."""
    return [f"{found.name}.{s}" for s in found.statistics] if len(found.statistics) > 1 else [found.name]


def canonical(key: str) -> str:
    """Return the one key under which a measurement is reported and stored: ``ttft`` is ``ttft.p50``.

    Raises:
        UsageError: no such metric or statistic.
    """
    found, statistic = resolve(key)
    main = found.statistics[:1] == (statistic,) and len(found.statistics) == 1
    return found.name if main or not statistic else f"{found.name}.{statistic}"


def measure(capture: Capture, key: str, scope: Scope | None = None) -> Measurement:
    """Measure one metric of a capture; what cannot be observed comes back as None with the reason.

    Raises:
        UsageError: no such metric or statistic.
    """
    require_capture(capture)
    scope = scope or Scope()
    found, statistic = resolve(key)
    key = canonical(key)
    unit = f"{found.unit}/GPU" if statistic == _PER_GPU else found.unit
    value: float | None = None
    why, n, excluded = None, 0, ""
    strict, reachable, by = None, None, ""
    try:
        taken = _taken(capture, found, scope)
        n, excluded = taken.n, taken.excluded
        value = _number(capture, taken, statistic)
        _require_same_under_one_clock(capture, found, statistic, scope, value)
        if isinstance(taken, Value):
            strict, reachable, by = taken.strict, taken.reachable, taken.by
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
        strict=strict,
        reachable=reachable,
        definition=found.definition(
            scope,
            workers=capture.derive(serving_workers) if found.fleet else None,
            window=window_kind(capture, scope.span) if found.phase == WINDOW else None,
            by=by,
        ),
    )


def _number(capture: Capture, taken: Value | Values, statistic: str) -> float:
    """Return a metric's one value, or a statistic of its several."""
    if isinstance(taken, Values):
        value = _statistic(taken.values, statistic)
    else:
        value = taken.value / (_gpus(capture) if statistic == _PER_GPU else 1)
    if not math.isfinite(value):
        raise NotMeasurable("the result is not a finite number")
    return value


def _require_same_under_one_clock(capture: Capture, found: Metric, statistic: str, scope: Scope, value: float) -> None:
    """Withhold a value that would be another one if server and client told the same time."""
    off = capture.derive(skew)
    for other in capture.derive(corrected):
        try:
            right = _number(other, _taken(other, found, scope), statistic)
        except NotMeasurable:
            right = math.nan
        scale = 1.0 if found.unit == "fraction" else max(abs(value), abs(right))
        if not abs(right - value) <= _MOVED * scale:  # true of NaN too
            raise NotMeasurable(str(off))


def _taken(capture: Capture, found: Metric, scope: Scope) -> Value | Values:
    """Run a metric's function once per capture and scope, however many statistics are asked of it."""
    missing = sorted(table for table in found.needs if not capture.has(table))
    if missing:
        raise NotMeasurable(f"needs {' and '.join(missing).replace('_', ' ')}; the capture has none")
    cache = capture.derive(_measured)
    key = (
        found.name,
        scope.skip_steps,
        scope.span,
        scope.fresh,
        scope.after_reset,
        tuple(sorted(scope.budgets.items())),
    )
    if key not in cache:
        try:
            taken = found.func(capture, scope)
            cache[key] = taken if isinstance(taken, Value | Values) else Values(np.asarray(taken))
        except NotMeasurable as error:
            cache[key] = error
    kept = cache[key]
    if isinstance(kept, NotMeasurable):
        raise kept
    return kept


def _measured(capture: Capture) -> dict[object, Value | Values | NotMeasurable]:
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
