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
        value = self._judged(measured)
        if value is None:
            return "inconclusive"
        return "pass" if _HOLDS[self.sign](value, self.value) else "failed"

    def _judged(self, measured: Measurement) -> float | None:
        return measured.value if self.sign == "==" else measured.judged(lower=not self.upper)

    def why(self, measured: Measurement) -> str | None:
        """Say what stands against a value, or why there is none; None where it holds."""
        if measured.value is None or self.judge(measured) == "pass":
            return measured.why
        said = []
        value = self._judged(measured)
        if measured.strict is not None and value != measured.value:
            kept = f"it is {units.show(measured.value, self.unit)} with these requests left out"
            said.append(f"reuse across policy versions counts as none ({kept}; see no_stale_kv)")
        if measured.reachable is not None and not self.upper and self.value > measured.reachable:
            most = units.show(measured.reachable, self.unit)
            said.append(f"this traffic cannot meet it: no more than {most} could be reused (kv_reuse_ceiling)")
        return "; ".join(said) or None

    def message(self, measured: Measurement) -> str:
        """Say what was measured and what was allowed."""
        if measured.value is None:
            return f"{self.metric} {self} cannot be judged for {measured.capture}: {measured.why}"
        good = self.judge(measured) == "pass"
        verb = "is" if good else "missed its limit:"
        value = units.show(measured.value if good else self._judged(measured), self.unit)
        why = self.why(measured)
        more = f"; {why}" if why else ""
        more += f"; left out: {measured.excluded}" if measured.excluded and not good else ""
        return f"{self.metric} {verb} {value}, must be {self} (n={measured.n:,}, {measured.capture}){more}"


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
