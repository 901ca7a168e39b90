"""Accounts told from all events at once are those of a fold that looks at one event after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rlserve import ledger as package
from pytest_rlserve.capture import Capture
from pytest_rlserve.ledger import ledger
from pytest_rlserve.ledger.fold import Fold
from pytest_rlserve.model import ATTEMPT_EVENTS

if TYPE_CHECKING:
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.ledger import Accounts, Ledger
    from pytest_rlserve.ledger.accounts import Rows
    from pytest_rlserve.ledger.events import Events

Record = dict[str, Any]
TOLD = (
    "level", "run", "attempt_id", "name", "line", "dispatched_at", "ended_at", "decided_at", "outcome", "acceptance",
    "retried", "sent_for", "trained_in", "x_request_ids", "response_id",
)  # fmt: skip

lives = st.tuples(
    st.sampled_from([(), ("retried",)]),
    st.sampled_from([("dispatched", *end) for end in ((), ("completed",), ("canceled",), ("failed",))]),
    st.sampled_from([(), ("accepted",), ("rejected",)]),
)
"""What is told of an attempt or a request one event after another; much of it is as it should be."""


@st.composite
def told(draw: st.DrawFn) -> list[Record]:
    """Lives that share a few ids and instants; some have events too many, some too few, and some come in any order."""
    events = []
    for _ in range(draw(st.integers(1, 6))):
        level = draw(st.sampled_from(["attempt", "request"]))
        who = {"level": level, "attempt_id": draw(st.sampled_from("ab")), "run": draw(st.sampled_from([None, "r"]))}
        if level == "request":
            who |= {name: draw(st.sampled_from([None, "x", "y"])) for name in ("x_request_id", "response_id")}
        names = [name for part in draw(lives) for name in part]
        t = draw(st.integers(0, 9))
        for place, name in enumerate(names):
            at = t + place if draw(st.integers(0, 9)) else draw(st.sampled_from([None, 0, 3, 9]))
            events.append({"event": name, "t": at, "step": draw(st.integers(0, 1)), **who})
    lost = draw(st.sets(st.integers(0, len(events) - 1), max_size=2))
    twice = draw(st.lists(st.sampled_from(events), max_size=2))
    return draw(st.permutations([event for n, event in enumerate(events) if n not in lost] + twice))


def recorded(events: list[Record]) -> Capture:
    lines = [{**event, "source": "attempts.jsonl", "line": line} for line, event in enumerate(events, 1)]
    return Capture(name="told", attempt_events=pa.Table.from_pylist(lines, schema=ATTEMPT_EVENTS))


def all_in_doubt(events: Events) -> tuple[Rows, Numbers]:
    names = ("opened", "ended", "decided", "retried", "outcome")
    return dict.fromkeys(names, np.zeros(0, dtype=np.int64)), events.order


def said(found: Ledger) -> list[Any]:
    def of(accounts: Accounts) -> dict[str, list[Any]]:
        return {name: accounts.values(name) for name in TOLD} | {"number": accounts.numbers.tolist()}

    return [*map(of, (found.all, found.attempts, found.requests)), found.findings, found.contradictions]


@settings(deadline=None)
@given(told())
def test_accounts_are_numbered_by_level_dispatch_and_name(events: list[Record]) -> None:
    found = recorded(events).derive(ledger).all
    keys = [(account.level, account.dispatched_at or 0.0, account.name) for account in found]
    assert keys == sorted(keys)
    assert found.numbers.tolist() == list(range(len(found)))


def test_requests_of_one_name_and_instant_stay_together_with_their_run() -> None:
    one = {"event": "dispatched", "t": 0, "level": "request", "attempt_id": "a", "x_request_id": "x"}
    found = recorded([one | {"run": run} for run in ("s", "r", "s", "r")]).derive(ledger).all
    assert found.values("run") == ["s", "s", "r", "r"]
    assert found.values("line") == [1, 3, 2, 4]


@settings(deadline=None)
@given(told())
def test_usual_accounts_are_those_of_a_fold(events: list[Record]) -> None:
    capture = recorded(events)
    with mock.patch.object(package, "usual", all_in_doubt):
        folded = ledger(capture)
    assert said(ledger(capture)) == said(folded)


def test_an_account_is_folded_only_if_something_of_it_is_unusual() -> None:
    usual = [("dispatched", 0), ("completed", 1), ("accepted", 2)]
    unusual = {
        "ended twice": [*usual, ("failed", 3)],
        "ended first": [("completed", 0), ("dispatched", 1)],
        "decided on while open": [("dispatched", 0), ("accepted", 1)],
        "decided on although it failed": [("dispatched", 0), ("failed", 1), ("accepted", 2)],
        "never dispatched": usual[1:],
        "retried afterwards": [*usual, ("retried", 3)],
    }
    lives = {"a": usual, "b": [("retried", 0), ("dispatched", 0), ("canceled", 9)], "c": usual[:1], **unusual}
    events = [
        {"event": event, "t": t, "level": "attempt", "attempt_id": name}
        for name, life in lives.items()
        for event, t in life
    ]
    with mock.patch.object(package, "Fold", wraps=Fold) as fold:
        recorded(events).derive(ledger)
    found, _, rows = fold.call_args.args
    assert {found.values("attempt_id")[row] for row in rows.tolist()} == set(unusual)
