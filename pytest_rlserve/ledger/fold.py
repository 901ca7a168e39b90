"""The fold: each event is entered into the account it speaks of, and what cannot be so is a finding."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pytest_rlserve.capture import AXES, Finding
from pytest_rlserve.ledger.account import OUTCOMES, Account, Ledger, Level
from pytest_rlserve.ledger.events import key_of
from pytest_rlserve.model import ATTEMPT_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_rlserve.ledger.account import Key

_OWN = {"event", "t", "level", "run", "attempt_id", "x_request_id", "x_request_ids", "source", "line"}
_DIFFERENCES = 3
"""Differing values that a message names."""
_CARRIED = [column.name for column in ATTEMPT_EVENTS if column.name not in _OWN]


class Fold:
    """The state of the fold: accounts by key, in the order in which they were dispatched."""

    def __init__(self, covers: dict[str, frozenset[str]]) -> None:
        """Begin with no account; `covers` says of each source, by its path, what it can tell."""
        self._covers = covers
        self._accounts: dict[Key, list[Account]] = {}
        self._findings: list[Finding] = []
        self._contradictions: list[Key] = []
        self._retried: dict[Key, list[dict[str, Any]]] = defaultdict(list)
        """Retries whose dispatch has not been seen; it usually follows, but a framework may tell later."""

    def take(self, event: dict[str, Any]) -> None:
        """Enter one event into the account it speaks of."""
        level, kind, key = event["level"], event["event"], key_of(event)
        accounts = self._accounts.setdefault(key, [])
        if kind == "retried":
            self._retried[key].append(event)
            return
        if kind == "dispatched":
            if accounts and level == "attempt":
                told = accounts[-1].source
                other = f"; {told} tells of it, too: was a file copied?" if told != event["source"] else ""
                again = f"attempt_id {event['attempt_id']!r} was dispatched again under the same id{other}"
                self._contradict(event, again)
            accounts.append(self._opened(event, key))
            return
        account = _waiting(accounts, kind)
        if account is None and not self._told(event, "dispatched"):
            account = self._opened({**event, "t": None}, key)  # its source never tells of dispatches
            accounts.append(account)
        if account is None and accounts:  # as many ends of the request came before as it was sent
            self._contradict(event, _ended_again(accounts[-1], event))
            return
        if account is None:
            self._contradict(event, f"{kind} {_what(event)}, which was never dispatched before")
            return
        self._settle(account, event)

    def _told(self, event: dict[str, Any], axis: str) -> bool:
        """Tell whether the source of an event speaks of that axis; a table without sources speaks of all."""
        covers = self._covers.get(event["source"])
        return covers is None or axis in covers

    def _opened(self, event: dict[str, Any], key: Key) -> Account:
        account = Account(
            level=event["level"],
            run=event["run"],
            attempt_id=event["attempt_id"],
            dispatched_at=event["t"],
            source=event["source"],
            line=event["line"],
        )
        _carry(account, event)
        if self._retried[key]:
            _retry(account, self._retried[key].pop(0))
        return account

    def _settle(self, account: Account, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind in OUTCOMES:
            if account.outcome is not None:
                self._contradict(event, _ended_again(account, event))
                return
            account.outcome, account.ended_at = kind, event["t"]
        else:
            if account.acceptance is not None:
                word = "twice" if account.acceptance == kind else f"both {account.acceptance} and"
                self._contradict(event, f"{_what(event)} was {word} {kind}")
                return
            if account.outcome is None and not self._told(event, "completed"):
                account.outcome = "completed"  # what was decided on had completed, though nobody said when
            if account.outcome != "completed":
                state = account.outcome or "still open"
                self._contradict(event, f"{_what(event)} was {kind} although it was {state}, not completed")
                return
            account.acceptance, account.decided_at = kind, event["t"]
        _carry(account, event)

    def _contradict(self, event: dict[str, Any], message: str) -> None:
        self._contradictions.append(key_of(event))
        self._findings.append(_finding(message, event["source"], event["line"], (event["attempt_id"],)))

    def close(self) -> Ledger:
        """Return the accounts, those of samples accepted twice among the findings."""
        for key, events in self._retried.items():
            for event in events:
                late = [account for account in self._accounts[key] if not account.retried]
                if late:
                    _retry(late[-1], event)
                else:
                    self._contradict(event, f"retried {_what(event)}, which was never dispatched or already retried")
        accounts = [account for group in self._accounts.values() for account in group]
        accounts.sort(key=lambda account: (account.dispatched_at or 0.0, account.name))
        attempts = tuple(account for account in accounts if account.level == "attempt")
        requests = tuple(account for account in accounts if account.level == "request")
        covers = frozenset().union(*self._covers.values()) if self._covers else frozenset(AXES)
        twice = _accepted_twice(attempts)
        return Ledger(
            attempts,
            requests,
            findings=(*self._findings, *map(_twins, twice)),
            contradictions=(*self._contradictions, *(("attempt", a[-1].run, a[-1].attempt_id, None) for a in twice)),
            covers=covers,
        )


def _waiting(accounts: list[Account], kind: str) -> Account | None:
    """Return the account an end or a decision belongs to: the earliest that still waits for it.

    A request id may be sent twice at once, so ends are given out first come, first served.
    """
    if kind in OUTCOMES:
        waiting = (a for a in accounts if a.outcome is None)
    else:
        waiting = (a for a in accounts if a.outcome == "completed" and a.acceptance is None)
    return next(waiting, None) or _last(accounts, level="attempt")


def _last(accounts: list[Account], *, level: Level) -> Account | None:
    return accounts[-1] if accounts and accounts[-1].level == level else None


def _retry(account: Account, event: dict[str, Any]) -> None:
    account.retried = True
    if event["retry_of"] is not None:
        account.fields.setdefault("retry_of", event["retry_of"])


def _carry(account: Account, event: dict[str, Any]) -> None:
    for name in _CARRIED:
        value = event[name]
        if value is not None:
            account.fields[name] = value
    if event["event"] == "accepted":
        account.trained_in = event["step"]
    elif event["event"] != "rejected" and account.sent_for is None:
        account.sent_for = event["step"]
    said = [event["x_request_id"], *(event["x_request_ids"] or ())]
    account.x_request_ids = tuple(dict.fromkeys((*account.x_request_ids, *(one for one in said if one))))


def _what(event: dict[str, Any]) -> str:
    if event["level"] == "request":
        return f"request {event['request']!r} of attempt {event['attempt_id']!r}"
    return f"attempt {event['attempt_id']!r}"


def _ended_again(account: Account, event: dict[str, Any]) -> str:
    """Say that an end came after another one: the same once more, or which of its values differ."""
    if account.outcome != event["event"]:
        return f"{_what(event)} both {account.outcome} and {event['event']}"
    said = {"t": account.ended_at, **account.fields}
    differs = [n for n in ("t", *_CARRIED) if n in said and event[n] is not None and event[n] != said[n]]
    if not differs:
        return f"{_what(event)} {account.outcome} twice, a duplicate (was a file copied or appended again?)"
    values = ", ".join(_both(name, said[name], event[name]) for name in differs[:_DIFFERENCES])
    return f"{_what(event)} {account.outcome} twice, a conflicting duplicate: {values}"


def _both(name: str, one: Any, other: Any) -> str:
    """Name what differs, with its values if they are numbers: what a text says is nobody's to repeat."""
    return f"{name} {one} and {other}" if isinstance(one, int | float) else name


def _accepted_twice(attempts: Iterable[Account]) -> list[list[Account]]:
    """Find samples with more than one accepted attempt: each sample is trained on at most once."""
    accepted: dict[tuple[Any, ...], list[Account]] = {}
    for account in attempts:
        if account.acceptance == "accepted" and account.get("sample_id") is not None:
            key = (account.run, account.get("group_id"), account.get("sample_id"))
            accepted.setdefault(key, []).append(account)
    return [twins for twins in accepted.values() if len(twins) > 1]


def _twins(twins: list[Account]) -> Finding:
    sample, last = twins[0].get("sample_id"), twins[-1]
    text = f"sample {sample!r} has {len(twins)} accepted attempts, at most one may be"
    return _finding(text, last.source, last.line, tuple(twin.attempt_id for twin in twins))


def _finding(message: str, path: str, line: int, ids: tuple[str, ...]) -> Finding:
    return Finding(message=message, severity="failure", check="attempts_reconcile", path=path, line=line, ids=ids)
