"""Which row belongs to whom: the strongest key decides, nothing is guessed, and every absence has its reason."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, completed, opened, request, request_end
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rlserve.joins import Joined, join
from pytest_rlserve.joins.repeats import told_twice
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "capture"


def sent(name: str, start: float, end: float | None, outcome: str = "completed", **fields: Any) -> list[Record]:
    """A request's dispatch and end; fields that only the end can know go to the end."""
    of = fields.pop("of", "a")
    late = {key: fields.pop(key) for key in ("response_id", "http_status") if key in fields}
    first = request("dispatched", name, start, of=of, **fields)
    return [first] if end is None else [first, request(outcome, name, end, of=of, **fields, **late)]


def owners(capture: Capture) -> dict[str, str]:
    """Row → who owns it, as attempt or attempt/request."""
    names = capture.requests["request_id"].to_pylist()
    found = capture.derive(join).owners
    return {
        names[number]: owner.attempt_id + (f"/{owner.name}" if owner.level == "request" else "")
        for number, owner in found.items()
    }


def reasons(joined: Joined) -> dict[str, list[str]]:
    return {why: [account.name for account in accounts] for why, accounts in joined.without_row.items()}


@pytest.mark.parametrize("prefix", ["chatcmpl-", "cmpl-", ""])
def test_the_response_id_outranks_the_x_request_id(folder: Path, prefix: str) -> None:
    events = [*sent("x", 0, 1, response_id=f"{prefix}r2"), *sent("y", 2, 3, response_id=f"{prefix}r1")]
    rows = [request_end("r1", x_request_id="x"), request_end("r2", x_request_id="y")]
    assert owners(opened(folder, attempts=events, rows=rows)) == {"r1": "a/y", "r2": "a/x"}


def test_the_x_request_id_joins_what_saw_no_answer(folder: Path) -> None:
    events = [*sent("x", 0, 1, "canceled"), *sent("y", 0, 1, response_id="r2")]
    rows = [request_end("r1", x_request_id="x"), request_end("r2", x_request_id="y")]
    assert owners(opened(folder, attempts=events, rows=rows)) == {"r1": "a/x", "r2": "a/y"}


def test_the_session_joins_a_row_without_other_key_to_the_attempt(folder: Path) -> None:
    events = completed("a", 0, 5)
    events[0]["session_id"] = "s"
    rows = [request_end("r1", x_request_id=None, session="s"), request_end("r2", x_request_id=None, session="other")]
    capture = opened(folder, attempts=events, rows=rows)
    assert owners(capture) == {"r1": "a"}
    assert (capture.derive(join).joined, capture.derive(join).rows) == (1, 2)


def test_an_attempt_owns_the_rows_of_all_its_x_request_ids(folder: Path) -> None:
    events = completed("a", 0, 5)
    events[0]["x_request_ids"] = ["r1", "r2"]
    capture = opened(folder, attempts=events, rows=[request_end("r2", 3, 4), request_end("r1", 1, 2)])
    joined = capture.derive(join)
    (owner,) = capture.derive(ledger).attempts
    assert joined.level == "attempt"
    assert joined.rows_of(owner) == [1, 0]  # in order of arrival


def test_rows_that_share_an_x_request_id_go_to_the_requests_in_the_order_of_sending(folder: Path) -> None:
    events = [*sent("x", 0, 1, "canceled"), *sent("x", 2, 3)]
    late, early = request_end("r2", 2, 3, x_request_id="x"), request_end("r1", 0, 1, x_request_id="x")
    for number, rows in enumerate([[early, late], [late, early]]):
        capture = opened(folder.with_name(f"capture-{number}"), attempts=events, rows=rows)
        found = capture.derive(join).owners
        by_row = dict(zip(capture.requests["request_id"].to_pylist(), (found[0], found[1]), strict=True))
        assert (by_row["r1"].outcome, by_row["r2"].outcome) == ("canceled", "completed")


def test_a_request_whose_own_row_was_lost_does_not_get_the_row_of_its_namesake(folder: Path) -> None:
    events = [
        *sent("x", 0, 1, response_id="lost"),
        *sent("x", 2, 3, "canceled"),
        *sent("y", 4, 5, response_id="r9"),
    ]
    rows = [request_end("r2", 2, 3, x_request_id="x"), request_end("r9", 4, 5, x_request_id="y")]
    capture = opened(folder, attempts=events, rows=rows)
    joined = capture.derive(join)
    assert reasons(joined) == {"lost row": ["x"]}
    assert (joined.traceable, joined.traceable_served) == (2, 1)
    assert {owner.outcome for owner in joined.owners.values()} == {"canceled", "completed"}


def test_response_ids_that_a_proxy_rewrote_leave_the_x_request_id_its_say(folder: Path) -> None:
    events = [*sent("x", 0, 1, response_id="proxy-1"), *sent("y", 2, 3, response_id="proxy-2")]
    rows = [request_end("r1", x_request_id="x"), request_end("r2", x_request_id="y")]
    assert owners(opened(folder, attempts=events, rows=rows)) == {"r1": "a/x", "r2": "a/y"}


def test_a_key_that_two_attempts_share_gives_its_row_to_neither(folder: Path) -> None:
    events = [event | {"x_request_id": "x"} for name in "ab" for event in completed(name, 0, 5)]
    capture = opened(folder, attempts=events, rows=[request_end("r1", x_request_id="x")])
    joined = capture.derive(join)
    assert owners(capture) == {}
    assert joined.ambiguous == [0]
    assert reasons(joined) == {"ambiguous key": ["a", "b"]}


def test_a_session_that_two_attempts_share_gives_its_row_to_neither(folder: Path) -> None:
    events = [event | {"session_id": "s"} for name in "ab" for event in completed(name, 0, 5)]
    capture = opened(folder, attempts=events, rows=[request_end("r1", x_request_id=None, session="s")])
    assert owners(capture) == {}
    assert capture.derive(join).ambiguous == [0]


@pytest.mark.parametrize(
    ("fields", "outcome", "reason"),
    [
        ({"n": 4}, "completed", "n>1"),
        ({"endpoint": "/generate"}, "completed", "native /generate"),
        ({"endpoint": "/v1/completions", "n": 1}, "completed", "lost row"),
        ({}, "canceled", "early cancel"),
        ({"http_status": 404}, "failed", "404"),
        ({"http_status": 503}, "failed", "refused"),
        ({"http_status": 200}, "failed", "broken stream"),
        ({"ttft_ms": 80}, "canceled", "late cancel"),
        ({"output_tokens": 3}, "canceled", "late cancel"),
        ({"output_tokens": 0}, "canceled", "early cancel"),
        ({}, "failed", "unreachable"),
        ({}, None, "open at the end"),
        ({"n": 4}, None, "n>1"),
    ],
)
def test_a_request_without_a_row_is_explained(
    folder: Path, fields: dict[str, Any], outcome: str | None, reason: str
) -> None:
    lost = sent("x", 0, 1 if outcome else None, outcome or "", **fields)
    events = [*lost, *sent("y", 0, 1, response_id="r1")]
    joined = opened(folder, attempts=events, rows=[request_end("r1")]).derive(join)
    assert reasons(joined) == {reason: ["x"]}
    expected = (2, 1) if reason == "lost row" else (1, 1)
    assert (joined.traceable, joined.traceable_served) == expected


def test_a_row_without_an_owner_has_its_reason(folder: Path) -> None:
    events = [*completed("a", 0, 5), *completed("b", 0, 5), *completed("c", 0, 5)]
    for event in events:
        event["session_id"] = "mine" if event["attempt_id"] == "c" else "both"
    names = {"own": "mine", "shared": "both", "foreign": "other", "nameless": None}
    rows = [request_end(name, x_request_id=None, session=session) for name, session in names.items()]
    joined = opened(folder, attempts=events, rows=rows).derive(join)
    assert joined.strays == {"ambiguous key": [1], "foreign row": [2], "no session header": [3]}


def test_what_carries_no_key_is_not_called_lost(folder: Path) -> None:
    events = [*completed("bare", 0, 5), *(event | {"session_id": "s"} for event in completed("a", 0, 5))]
    rows = [request_end("r1", x_request_id=None, session="s")]
    joined = opened(folder, attempts=events, rows=rows).derive(join)
    assert reasons(joined) == {"no session header": ["bare"]}
    assert (joined.traceable, joined.traceable_served) == (2, 1)


def test_where_rows_came_without_a_session_an_attempt_without_a_row_may_own_one_of_them(folder: Path) -> None:
    events = [event | {"session_id": name} for name in "ab" for event in completed(name, 0, 5)]
    rows = [request_end("r1", x_request_id=None, session="a"), request_end("r2", x_request_id=None)]
    joined = opened(folder, attempts=events, rows=rows).derive(join)
    assert reasons(joined) == {"no session header": ["b"]}
    assert joined.strays == {"no session header": [1]}


def test_an_attempt_that_says_how_many_turns_it_took_must_have_as_many_rows(folder: Path) -> None:
    events = [event | {"session_id": "s"} for event in completed("a", 0, 5)]
    events[1]["turns"] = 3
    rows = [request_end(name, x_request_id=None, session="s") for name in ("r1", "r2")]
    joined = opened(folder, attempts=events, rows=rows).derive(join)
    assert reasons(joined) == {"lost turn": ["a"]}
    assert (joined.joined, joined.traceable, joined.traceable_served) == (2, 1, 0)


def test_a_canceled_request_that_has_its_row_is_no_residual(folder: Path) -> None:
    joined = opened(folder, attempts=sent("x", 0, 1, "canceled"), rows=[request_end("x")]).derive(join)
    assert joined.without_row == {}
    assert (joined.joined, joined.traceable) == (1, 0)


@pytest.mark.parametrize(
    ("fields", "row", "possible"),
    [
        ({}, {"x_request_id": None}, False),
        ({"x_request_id": "x"}, {"x_request_id": None}, False),
        ({"session_id": "s"}, {"x_request_id": "x"}, False),
        ({"session_id": "s"}, {"session": "other"}, True),
        ({"x_request_id": "x"}, {"x_request_id": "other"}, True),
        ({"response_id": "chatcmpl-other"}, {"x_request_id": None}, True),
    ],
)
def test_a_join_is_possible_only_where_rows_and_attempts_have_a_kind_of_key_in_common(
    folder: Path, fields: dict[str, str], row: dict[str, Any], possible: bool
) -> None:
    events = [event | fields for event in completed("a", 0, 5)]
    joined = opened(folder, attempts=events, rows=[request_end("r1", **row)]).derive(join)
    assert joined.possible is possible
    assert joined.joined == 0


def test_equal_counts_are_not_a_join(folder: Path) -> None:
    events = [event for name in "abcd" for event in completed(name, 0, 5)]
    rows = [request_end(f"r{number}", x_request_id=None) for number in range(4)]
    joined = opened(folder, attempts=events, rows=rows).derive(join)
    assert (joined.rows, joined.joined, joined.possible) == (4, 0, False)


def test_a_row_without_a_time_of_receipt_still_finds_its_owner(folder: Path) -> None:
    rows = [request_end("r1", x_request_id="x", request_received_ms=None)]
    assert owners(opened(folder, attempts=sent("x", 0, 1), rows=rows)) == {"r1": "a/x"}


def test_probes_without_an_attempt_of_their_own_are_joined_as_requests(folder: Path) -> None:
    events = [attempt("dispatched", "a", 0), *sent("x", 0, 1, of="probe", purpose="probe")]
    assert owners(opened(folder, attempts=events, rows=[request_end("x")])) == {"x": "probe/x"}


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "x", "y"])), min_size=1, max_size=8))
def test_ids_that_stand_twice_are_found_whoever_their_rows_belong_to(
    rows: list[tuple[str, str | None]],
) -> None:
    answers: dict[str, dict[str, Any]] = {
        "p": {"response_id": "chatcmpl-a"},
        "q": {"response_id": "b"},
        "x": {},
        "y": {},
    }
    events = [event for name, answer in answers.items() for event in sent(name, 0, 9, **answer)]
    with tempfile.TemporaryDirectory() as folder:
        served = [request_end(name, t, x_request_id=x) for t, (name, x) in enumerate(rows)]
        found = opened(Path(folder), attempts=events, rows=served).derive(told_twice)
    counts = Counter(name for name, _ in rows)
    assert found == (len(counts), [place for place, (name, _) in enumerate(rows) if counts[name] > 1])
