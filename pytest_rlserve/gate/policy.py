"""The policy: what is gated, and how strictly."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pytest_rlserve.checks import Evidence
from pytest_rlserve.gate.decision import ALPHA
from pytest_rlserve.metrics import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_rlserve.gate.limits import Limit

PRIMARY = "accepted_trajectory_throughput"
PRIMARY_OF_REPLAY = "request_goodput"
DEFAULT_GATED: Mapping[str, float] = {PRIMARY: 0.05, "update_downtime": 0.20}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A known problem that somebody answers for until a date."""

    metric: str
    until: datetime.date
    owner: str
    reason: str

    def valid(self, today: datetime.date) -> bool:
        """Tell whether it still holds; it holds through its last day."""
        return today <= self.until

    def __str__(self) -> str:
        """Return owner, date and reason."""
        return f"waived by {self.owner} until {self.until}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a policy file says, or the defaults."""

    path: Path | None = None
    origin: Literal["file", "pyproject", "default"] = "default"
    series: str | None = None
    kind: Literal["rollout", "replay"] = "rollout"
    """Kind of the captures it is for; replays have no attempts."""
    primary: str = PRIMARY
    no_baseline: Literal["fail", "skip"] | None = None
    """None: fail in CI, skip elsewhere."""
    scope: Scope = field(default_factory=Scope)
    evidence: Evidence = field(default_factory=Evidence)
    also: tuple[str, ...] = ()
    """Checks that the suite runs beside the default ones."""
    gated: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_GATED))
    """Canonical metric key → allowed change, the primary first."""
    stated: frozenset[str] = frozenset()
    """Metrics whose allowed change the policy itself names; the others have this package's default."""
    limits: Mapping[str, Limit] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()
    readers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What readers have to be told, by their names; for `open_capture`."""
    looks: int = 1
    """Planned looks at one change: with 2, runs may be added once after an inconclusive verdict."""

    @property
    def alpha(self) -> float:
        """Return the one-sided error of each look."""
        return ALPHA / self.looks

    def waiver(self, key: str, today: datetime.date | None = None) -> Waiver | None:
        """Return the waiver that covers a metric today, if there is one."""
        today = today or datetime.datetime.now(tz=datetime.UTC).date()
        return next((w for w in self.waivers if w.metric == key and w.valid(today)), None)

    def expired(self, key: str) -> Waiver | None:
        """Return the last waiver of a metric that holds no longer, if there is one."""
        return max((w for w in self.waivers if w.metric == key), key=lambda w: w.until, default=None)
