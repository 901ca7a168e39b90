"""From events to accounts: one account for each attempt, and one for each HTTP request the framework recorded.

    dispatched = completed + canceled + failed + open
    completed  = accepted + rejected + pending

A retry is counted beside its outcome. Events may be out of order in the files; they are folded by time.
Contradictions are never resolved silently: the first word stands, and the second becomes a finding.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pytest_rlserve.capture import AXES, Finding
from pytest_rlserve.model import ATTEMPT_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_rlserve.capture import Capture

Level = Literal["attempt", "request"]
_Key = tuple[str, str | None, str, str | None]
"""Level, run, attempt id and, of a request, its x-request-id, else its response id."""
_ORDER = {
    event: rank
    for rank, event in enumerate(("retried", "dispatched", "completed", "canceled", "failed", "accepted", "rejected"))
}
OUTCOMES = ("completed", "canceled", "failed")
_DECISIONS = ("accepted", "rejected")
_OWN = {"event", "t", "level", "run", "attempt_id", "x_request_id", "x_request_ids", "source", "line"}
_CARRIED = [column.name for column in ATTEMPT_EVENTS if column.name not in _OWN]


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
    fields: dict[str, Any] = field(default_factory=dict)
    """The other fields its events carry, the latest word last."""
    source: str = ""
    line: int = 0

    def get(self, name: str) -> Any:
        """Return one of the carried fields, or None if no event said it."""
        return self.fields.get(name)

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
    covers: frozenset[str] = frozenset(AXES)
    """What the sources of the events can tell."""

    def counts(self, level: Level) -> Counts | None:
        """Count one level, or return None if no event of that level was recorded."""
        accounts = self.attempts if level == "attempt" else self.requests
        if not accounts:
            return None
        ended = Counter(account.outcome for account in accounts)
        decided = Counter(account.acceptance for account in accounts if account.outcome == "completed")
        decides = level == "attempt" and bool(decided["accepted"] or decided["rejected"])

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
            pending=known(decided[None], "completed", *_DECISIONS) if decides else None,
        )


def ledger(capture: Capture) -> Ledger:
    """Fold the capture's attempt events; ask for it through ``capture.derive(ledger)``.

    What is told of whole groups opens no account.
    """
    events = [event for event in capture.attempt_events.to_pylist() if event["level"] != "group"]
    _complete_runs(events)
    _name_requests(events)
    _sort(events)
    fold = _Fold({source.path: frozenset(source.covers) for source in capture.sources})
    for event in events:
        fold.take(event)
    return fold.close()


def _sort(events: list[dict[str, Any]]) -> None:
    """Sort by time. An event without one takes that of the first event that has to come after it, else it is last."""
    timed: dict[_Key, list[tuple[int, float]]] = defaultdict(list)
    untimed = {_key(event) for event in events if event["t"] is None}
    for event in events:
        if event["t"] is not None and (key := _key(event)) in untimed:
            timed[key].append((_ORDER[event["event"]], event["t"]))

    def instant(event: dict[str, Any]) -> float:
        if event["t"] is not None:
            return float(event["t"])
        rank = _ORDER[event["event"]]
        return min((t for other, t in timed[_key(event)] if other > rank), default=math.inf)

    events.sort(key=lambda e: (instant(e), _ORDER[e["event"]], e["attempt_id"], e["x_request_id"] or ""))


def _name_requests(events: list[dict[str, Any]]) -> None:
    """Name every request: by its x-request-id, else by its response id if already its dispatch is told with that."""
    named = {e["response_id"] for e in events if e["event"] == "dispatched" and not e["x_request_id"]}
    for event in events:
        response = event["response_id"] if event["response_id"] in named else None
        event["request"] = (event["x_request_id"] or response) if event["level"] == "request" else None


def _key(event: dict[str, Any]) -> _Key:
    return event["level"], event["run"], event["attempt_id"], event["request"]


def _complete_runs(events: list[dict[str, Any]]) -> None:
    """Fill in the run where only some events of an attempt name it, as long as they name one."""
    runs: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event["run"] is not None:
            runs[event["attempt_id"]].add(event["run"])
    for event in events:
        if event["run"] is None and len(runs[event["attempt_id"]]) == 1:
            (event["run"],) = runs[event["attempt_id"]]


class _Fold:
    """The state of the fold: accounts by key, in the order in which they were dispatched."""

    def __init__(self, covers: dict[str, frozenset[str]]) -> None:
        self._covers = covers
        self._accounts: dict[_Key, list[Account]] = {}
        self._findings: list[Finding] = []
        self._retried: dict[_Key, list[dict[str, Any]]] = defaultdict(list)
        """Retries whose dispatch has not been seen; it usually follows, but a framework may tell later."""

    def take(self, event: dict[str, Any]) -> None:
        """Enter one event into the account it speaks of."""
        level, kind, key = event["level"], event["event"], _key(event)
        accounts = self._accounts.setdefault(key, [])
        if kind == "retried":
            self._retried[key].append(event)
            return
        if kind == "dispatched":
            if accounts and level == "attempt":
                self._contradict(event, f"attempt_id {event['attempt_id']!r} was dispatched again under the same id")
            accounts.append(self._opened(event, key))
            return
        account = _waiting(accounts, kind)
        if account is None and not self._told(event, "dispatched"):
            account = self._opened({**event, "t": None}, key)  # its source never tells of dispatches
            accounts.append(account)
        if account is None:
            self._contradict(event, f"{kind} {_what(event)}, which was never dispatched or has already ended")
            return
        self._settle(account, event)

    def _told(self, event: dict[str, Any], axis: str) -> bool:
        """Tell whether the source of an event speaks of that axis; a table without sources speaks of all."""
        covers = self._covers.get(event["source"])
        return covers is None or axis in covers

    def _opened(self, event: dict[str, Any], key: _Key) -> Account:
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
                self._contradict(event, f"{_what(event)} both {account.outcome} and {kind}")
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
        return Ledger(attempts, requests, (*self._findings, *_accepted_twice(attempts)), covers)


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
    said = [event["x_request_id"], *(event["x_request_ids"] or ())]
    account.x_request_ids = tuple(dict.fromkeys((*account.x_request_ids, *(one for one in said if one))))


def _what(event: dict[str, Any]) -> str:
    if event["level"] == "request":
        return f"request {event['request']!r} of attempt {event['attempt_id']!r}"
    return f"attempt {event['attempt_id']!r}"


def _accepted_twice(attempts: Iterable[Account]) -> list[Finding]:
    """Find samples with more than one accepted attempt: each sample is trained on at most once."""
    accepted: dict[tuple[Any, ...], list[Account]] = {}
    for account in attempts:
        if account.acceptance == "accepted" and account.get("sample_id") is not None:
            key = (account.run, account.get("group_id"), account.get("sample_id"))
            accepted.setdefault(key, []).append(account)
    return [
        _finding(
            f"sample {key[2]!r} has {len(twins)} accepted attempts, at most one may be",
            twins[-1].source,
            twins[-1].line,
            tuple(twin.attempt_id for twin in twins),
        )
        for key, twins in accepted.items()
        if len(twins) > 1
    ]


def _finding(message: str, path: str, line: int, ids: tuple[str, ...]) -> Finding:
    return Finding(message=message, severity="failure", check="attempts_reconcile", path=path, line=line, ids=ids)
