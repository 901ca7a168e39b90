"""Absolute limits: latency budgets and floors, whatever the baseline says."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_rlserve import units
from pytest_rlserve.errors import UsageError
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from pytest_rlserve.metrics import Measurement

_FORM = re.compile(r"\s*(<=|>=|==|<|>)\s*(.+?)\s*")
_HOLDS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt}

LimitStatus = Literal["pass", "failed", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound on one metric, e.g. ``ttft.p99 <= 1.5s``."""

    metric: str
    """Canonical key."""
    sign: str
    value: float
    """In the metric's base unit."""
    unit: str

    def __str__(self) -> str:
        """Write the limit as the policy does."""
        return f"{self.sign} {units.show(self.value, self.unit)}"

    @property
    def upper(self) -> bool:
        """Tell whether it bounds from above."""
        return self.sign in ("<=", "<")

    def judge(self, measured: Measurement) -> LimitStatus:
        """Hold a measurement against the limit; what could not be observed neither passes nor fails."""
        if measured.value is None:
            return "inconclusive"
        return "pass" if _HOLDS[self.sign](measured.value, self.value) else "failed"

    def message(self, measured: Measurement) -> str:
        """Say what was measured and what was allowed."""
        if measured.value is None:
            return f"{self.metric} {self} cannot be judged for {measured.capture}: {measured.why}"
        good = self.judge(measured) == "pass"
        verb = "is" if good else "missed its limit:"
        value = units.show(measured.value, self.unit)
        left_out = f"; left out: {measured.excluded}" if measured.excluded and not good else ""
        return f"{self.metric} {verb} {value}, must be {self} (n={measured.n:,}, {measured.capture}){left_out}"


def parse_limit(key: str, text: str | float) -> Limit:
    """Read a limit such as ``"<= 1.5s"`` for a metric's key.

    A bare quantity is bounded in the metric's own direction: above for latency, below for throughput.

    Raises:
        UsageError: no such metric, or no such form.
    """
    found, _ = measuring.resolve(key)
    parts = _FORM.fullmatch(str(text))
    sign, quantity = (parts[1], parts[2]) if parts else ("<=" if found.better == "lower" else ">=", text)
    try:
        value = units.parse(quantity, found.unit)
    except UsageError as error:
        raise UsageError(f"limit of {key}: {error}; a limit looks like '<= 1.5s' or '>= 80%'") from None
    return Limit(metric=measuring.canonical(key), sign=sign, value=value, unit=found.unit)
