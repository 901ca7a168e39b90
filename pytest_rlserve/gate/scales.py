"""How values of a unit are compared: by ratios, by differences, or exactly; and the noise assumed of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ASSUMED_SD = {"p95": 0.06, "p99": 0.10}
_ASSUMED_SD_OF_RATE = 0.03
_ASSUMED_SD_OF_FRACTION = 0.02


def is_linear(unit: str) -> bool:
    """Tell whether values of that unit are compared by differences, since 0 is a value on it."""
    return unit == "fraction"


def is_exact(unit: str) -> bool:
    """Tell whether any change for the worse counts, however small."""
    return unit == "count"


def head_start(unit: str) -> float:
    """Return what is added to values before their ratios are taken: 1 to queue lengths, for which 0 is a good value.

    A queue of 0.001 requests where there was none is then no loss without bounds, and one of a whole request doubles.
    """
    return 1.0 if unit == "requests" else 0.0


def raised(jobs: Mapping[str, Sequence[float]], unit: str) -> dict[str, list[float]]:
    """Return job → values with the unit's head start."""
    return {job: [value + head_start(unit) for value in values] for job, values in jobs.items()}


def assumed_sd(key: str, unit: str) -> float:
    """Return the spread between jobs that is assumed for a metric until three jobs have shown it."""
    if is_linear(unit):
        return _ASSUMED_SD_OF_FRACTION
    return _ASSUMED_SD.get(key.partition(".")[2], _ASSUMED_SD_OF_RATE)
