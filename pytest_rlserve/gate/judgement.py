"""The verdict on one item, and what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pytest_rlserve.gate.items import Kind

Verdict = Literal["pass", "regressed", "failed", "inconclusive", "no_baseline", "not_comparable", "invalid", "waived"]

WORST_FIRST: tuple[str, ...] = (
    "invalid",
    "regressed",
    "failed",
    "not_comparable",
    "incomplete",
    "no_baseline",
    "inconclusive",
    "pass",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on one item of the policy, and what the report says of it."""

    kind: Kind
    name: str
    verdict: Verdict
    message: str
    records: tuple[dict[str, Any], ...] = ()
    causes: tuple[dict[str, Any], ...] = ()
    """Why the primary metric moved; the report's `why`."""
    caution: str | None = None
    """What deserves a warning whatever the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What the user asked to be done with the baseline."""

    wanted: bool = False
    new_only: bool = False
    reason: str | None = None
