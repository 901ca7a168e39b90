"""What an account is: the fate of one attempt, or of one HTTP request of an attempt, and the counts of many."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pytest_rlserve.capture import AXES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_rlserve.capture import Finding

Level = Literal["attempt", "request"]
Key = tuple[str, str | None, str, str | None]
"""Level, run, attempt id and, of a request, its x-request-id, else its response id."""
OUTCOMES = ("completed", "canceled", "failed")
DECISIONS = ("accepted", "rejected")


@dataclass(slots=True, kw_only=True)
class Account:
    """What became of one attempt, or of one HTTP request of an attempt."""

    level: Level
    run: str | None
    attempt_id: str
    x_request_ids: tuple[str, ...] = ()
    dispatched_at: float | None = None
    ended_at: float | None = None
    outcome: Literal["completed", "canceled", "failed"] | None = None
    """None while open."""
    decided_at: float | None = None
    acceptance: Literal["accepted", "rejected"] | None = None
    """None while pending."""
    retried: bool = False
    sent_for: int | None = None
    """Trainer step it was dispatched for; the one that trains on it may be another."""
    trained_in: int | None = None
    """Trainer step that accepted it."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The other fields its events carry, the latest word last."""
    source: str = ""
    line: int = 0

    def get(self, name: str) -> Any:
        """Return one of the carried fields, or None if no event said it."""
        return self.fields.get(name)

    @property
    def attempt(self) -> tuple[str | None, str]:
        """Identify its attempt: run and id, since two runs may use the same ids."""
        return self.run, self.attempt_id

    @property
    def name(self) -> str:
        """Name it as a user would look it up."""
        if self.level == "attempt":
            return self.attempt_id
        return self.x_request_ids[0] if self.x_request_ids else self.get("response_id") or self.attempt_id


@dataclass(frozen=True, slots=True)
class Counts:
    """The algebra of one level. A field is None where no source covers it."""

    dispatched: int | None
    completed: int | None
    canceled: int | None
    failed: int | None
    open: int | None
    retried: int | None
    accepted: int | None = None
    rejected: int | None = None
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """All accounts of a capture, and the contradictions met on the way."""

    attempts: tuple[Account, ...]
    requests: tuple[Account, ...]
    findings: tuple[Finding, ...]
    contradictions: tuple[Key, ...] = ()
    """Whom the findings are about, in their order."""
    covers: frozenset[str] = frozenset(AXES)
    """What the sources of the events can tell."""

    def counts(self, level: Level) -> Counts | None:
        """Count one level, or return None if no event of that level was recorded."""
        accounts = self.of(level)
        return self.count(accounts, level) if accounts else None

    def of(self, level: Level) -> tuple[Account, ...]:
        """Return the accounts of one level."""
        return self.attempts if level == "attempt" else self.requests

    def count(self, accounts: Iterable[Account], level: Level) -> Counts:
        """Count some of the accounts of one level, such as those of a step."""
        accounts = list(accounts)
        ended = Counter(account.outcome for account in accounts)
        decided = Counter(account.acceptance for account in accounts if account.outcome == "completed")
        decides = level == "attempt" and any(account.acceptance for account in self.attempts)

        def known(count: int, *axes: str) -> int | None:
            return count if self.covers.issuperset(axes) else None

        return Counts(
            dispatched=known(len(accounts), "dispatched"),
            completed=known(ended["completed"], "completed"),
            canceled=known(ended["canceled"], "canceled"),
            failed=known(ended["failed"], "failed"),
            open=known(ended[None], "dispatched", *OUTCOMES),
            retried=known(sum(account.retried for account in accounts), "retried"),
            accepted=known(decided["accepted"], "accepted") if decides else None,
            rejected=known(decided["rejected"], "rejected") if decides else None,
            pending=known(decided[None], "completed", *DECISIONS) if decides else None,
        )
