"""What an account is: the fate of one attempt, or of one HTTP request of an attempt, and the counts of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from pytest_rlserve.ledger.accounts import Accounts

Level = Literal["attempt", "request"]
OUTCOMES = ("completed", "canceled", "failed")
DECISIONS = ("accepted", "rejected")


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """What became of one attempt, or of one HTTP request of an attempt: a row of some accounts."""

    _accounts: Accounts
    _place: int

    def get(self, name: str) -> Any:
        """Return one of the fields that its events carry, the latest word last; None if no event said it."""
        return self._accounts.values(name)[self._place]

    def __repr__(self) -> str:
        """Name it, with what became of it."""
        return f"<Account {self.level} {self.name}: {self.outcome or 'open'}>"

    @property
    def number(self) -> int:
        """Return its number in the ledger."""
        return int(self._accounts.numbers[self._place])

    @property
    def level(self) -> Level:
        """Tell whether it is an attempt's or a request's."""
        return cast("Level", self.get("level"))

    @property
    def run(self) -> str | None:
        """Return the run it belongs to."""
        return cast("str | None", self.get("run"))

    @property
    def attempt_id(self) -> str:
        """Return the id of its attempt."""
        return cast("str", self.get("attempt_id"))

    @property
    def x_request_ids(self) -> tuple[str, ...]:
        """Return the x-request-ids it went by."""
        return tuple(self.get("x_request_ids"))

    @property
    def dispatched_at(self) -> float | None:
        """Return when it was dispatched; None where its source never tells."""
        return cast("float | None", self.get("dispatched_at"))

    @property
    def ended_at(self) -> float | None:
        """Return when it ended."""
        return cast("float | None", self.get("ended_at"))

    @property
    def outcome(self) -> Literal["completed", "canceled", "failed"] | None:
        """Return how it ended; None while open."""
        return cast("Literal['completed', 'canceled', 'failed'] | None", self.get("outcome"))

    @property
    def decided_at(self) -> float | None:
        """Return when it was accepted or rejected."""
        return cast("float | None", self.get("decided_at"))

    @property
    def acceptance(self) -> Literal["accepted", "rejected"] | None:
        """Return what the trainer decided; None while pending."""
        return cast("Literal['accepted', 'rejected'] | None", self.get("acceptance"))

    @property
    def retried(self) -> bool:
        """Tell whether it retries an earlier one."""
        return cast("bool", self.get("retried"))

    @property
    def sent_for(self) -> int | None:
        """Return the trainer step it was dispatched for; the one that trains on it may be another."""
        return cast("int | None", self.get("sent_for"))

    @property
    def trained_in(self) -> int | None:
        """Return the trainer step that accepted it."""
        return cast("int | None", self.get("trained_in"))

    @property
    def source(self) -> str:
        """Return the file of the event that opened it."""
        return cast("str", self.get("source"))

    @property
    def line(self) -> int:
        """Return the line of that event."""
        return cast("int", self.get("line"))

    @property
    def attempt(self) -> tuple[str | None, str]:
        """Identify its attempt: run and id, since two runs may use the same ids."""
        return self.run, self.attempt_id

    @property
    def name(self) -> str:
        """Name it as a user would look it up."""
        return cast("str", self.get("name"))
