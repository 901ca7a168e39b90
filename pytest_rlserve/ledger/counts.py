"""The ledger: all accounts of a capture, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rlserve.ledger.account import DECISIONS, OUTCOMES, Level

if TYPE_CHECKING:
    from pytest_rlserve.capture import Finding
    from pytest_rlserve.columns import Mask
    from pytest_rlserve.ledger.accounts import Accounts

Key = tuple[str, str | None, str, str | None]
"""Level, run, attempt id and, of a request, its x-request-id, else its response id."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """All accounts of a capture, and the contradictions met on the way."""

    all: Accounts
    """Attempts before requests; an account's number is its place here."""
    attempts: Accounts
    requests: Accounts
    findings: tuple[Finding, ...]
    contradictions: tuple[Key, ...]
    """Whom the findings are about, in their order."""
    covers: frozenset[str]
    """What the sources of the events can tell."""

    def counts(self, level: Level) -> Counts | None:
        """Count one level, or return None if no event of that level was recorded."""
        accounts = self.of(level)
        return self.count(accounts, level) if accounts else None

    def of(self, level: Level) -> Accounts:
        """Return the accounts of one level."""
        return self.attempts if level == "attempt" else self.requests

    def count(self, accounts: Accounts, level: Level) -> Counts:
        """Count some of the accounts of one level, such as those of a step."""
        decides = level == "attempt" and bool(self.attempts.decided.any())
        completed = accounts.are("completed")

        def known(some: Mask, *axes: str) -> int | None:
            return int(some.sum()) if self.covers.issuperset(axes) else None

        def decided(some: Mask, *axes: str) -> int | None:
            return known(some & completed, *axes) if decides else None

        return Counts(
            dispatched=len(accounts) if "dispatched" in self.covers else None,
            completed=known(completed, "completed"),
            canceled=known(accounts.are("canceled"), "canceled"),
            failed=known(accounts.are("failed"), "failed"),
            open=known(accounts.are("open"), "dispatched", *OUTCOMES),
            retried=known(accounts.retried, "retried"),
            accepted=decided(accounts.are("accepted"), "accepted"),
            rejected=decided(accounts.are("rejected"), "rejected"),
            pending=decided(~accounts.decided, "completed", *DECISIONS),
        )
