"""Events that cannot be entered into any account: what is wrong with each, for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve.capture import Finding
from pytest_rlserve.columns import codes, groups, known
from pytest_rlserve.model import ATTEMPT_EVENTS

if TYPE_CHECKING:
    from pytest_rlserve.ledger.accounts import Accounts
    from pytest_rlserve.ledger.counts import Key
    from pytest_rlserve.ledger.events import Events

_OWN = {"event", "t", "level", "run", "attempt_id", "x_request_id", "x_request_ids", "source", "line"}
_CARRIED = [column.name for column in ATTEMPT_EVENTS if column.name not in _OWN]
_DIFFERENCES = 3
"""Differing values that a message names."""


class Contradictions:
    """What contradicts an earlier word, in the order in which it was met; the first word stands."""

    def __init__(self, events: Events) -> None:
        """Begin with none; events go by their rows."""
        self._events = events
        self.findings: list[Finding] = []
        self.keys: list[Key] = []
        """Whom the findings are about."""

    def tell(self, row: int, message: str) -> None:
        """Add what is wrong with an event."""
        level, run, attempt, request = (self._says(row, name) for name in ("level", "run", "attempt_id", "request"))
        self._add((level, run, attempt, request), message, self._says(row, "source"), self._says(row, "line"), attempt)

    def tell_twins(self, attempts: Accounts) -> None:
        """Add the samples with more than one accepted attempt: each sample is trained on at most once."""
        accepted = attempts.some(attempts.are("accepted") & known(attempts.column("sample_id")))
        samples = codes(*map(accepted.column, ("run", "group_id", "sample_id")))
        for places in groups(samples, least=2):
            twins = [accepted[place] for place in places]
            sample, last = twins[0].get("sample_id"), twins[-1]
            text = f"sample {sample!r} has {len(twins)} accepted attempts, at most one may be"
            key = ("attempt", last.run, last.attempt_id, None)
            self._add(key, text, last.source, last.line, *(twin.attempt_id for twin in twins))

    def what(self, row: int) -> str:
        """Name whom an event speaks of."""
        attempt = f"attempt {self._says(row, 'attempt_id')!r}"
        if self._says(row, "level") == "attempt":
            return attempt
        return f"request {self._says(row, 'request')!r} of {attempt}"

    def ended_again(self, row: int, outcome: str, ended: int, earlier: list[int]) -> str:
        """Say that an end came after another one: the same once more, or which of its values differ.

        Args:
            row: the event.
            outcome: how its account had ended.
            ended: the event by which it had, −1 if that was never told.
            earlier: the events of its account, the latest first.
        """
        kind = self._says(row, "event")
        if outcome != kind:
            return f"{self.what(row)} both {outcome} and {kind}"
        said = {"t": None if ended < 0 else self._says(ended, "t")}
        for name in _CARRIED:
            said[name] = next((word for one in earlier if (word := self._says(one, name)) is not None), None)
        said = {name: word for name, word in said.items() if word is not None or name == "t"}
        now = {name: word for name in said if (word := self._says(row, name)) is not None}
        differs = [_both(name, said[name], word) for name, word in now.items() if word != said[name]]
        if not differs:
            return f"{self.what(row)} {outcome} twice, a duplicate (was a file copied or appended again?)"
        return f"{self.what(row)} {outcome} twice, a conflicting duplicate: {', '.join(differs[:_DIFFERENCES])}"

    def _says(self, row: int, name: str) -> Any:
        return self._events.values(name)[row]

    def _add(self, key: Key, message: str, path: str, line: int, *ids: str) -> None:
        self.keys.append(key)
        self.findings.append(
            Finding(message=message, severity="failure", check="attempts_reconcile", path=path, line=line, ids=ids)
        )


def _both(name: str, one: Any, other: Any) -> str:
    """Name what differs, with its values if they are numbers: what a text says is nobody's to repeat."""
    return f"{name} {one} and {other}" if isinstance(one, int | float) else name
