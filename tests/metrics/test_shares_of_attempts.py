"""Shares of attempts and tokens: each has its own denominator, and an unknown part makes the share unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, opened, request, request_end

from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def ended(name: str, event: str | None, **fields: Any) -> list[Record]:
    first = attempt("dispatched", name, 0, session_id=name, **fields)
    return [first] if event is None else [first, attempt(event, name, 5)]


def accepted(name: str, decision: str = "accepted") -> list[Record]:
    return [*ended(name, "completed"), attempt(decision, name, 6)]


def value(capture: Capture, name: str) -> float | None:
    return measure(capture, name).value


def test_each_share_has_its_own_denominator(folder: Path) -> None:
    events = [*accepted("a"), *accepted("b", "rejected"), *accepted("c", "rejected"), *ended("d", "completed")]
    events += [*ended("e", "canceled"), *ended("f", "canceled"), *ended("g", "failed"), *ended("h", None)]
    events += [attempt("retried", "a", -1)]
    capture = opened(folder, attempts=events)
    shares = ("completion", "acceptance", "retry", "canceled", "failed")
    assert [value(capture, f"{share}_fraction") for share in shares] == [4 / 8, 1 / 4, 1 / 8, 2 / 8, 1 / 8]
    assert measure(capture, "acceptance_fraction").n == 4
    assert measure(capture, "completion_fraction").n == 8


def test_no_decision_at_all_is_unknown_acceptance_and_all_rejected_is_zero(folder: Path) -> None:
    undecided = opened(folder, attempts=ended("a", "completed"))
    assert value(undecided, "acceptance_fraction") is None
    refused = opened(folder.with_name("d"), attempts=accepted("a", "rejected"))
    assert value(refused, "acceptance_fraction") == 0.0


def test_nothing_completed_leaves_nothing_to_accept(folder: Path) -> None:
    measured = measure(opened(folder, attempts=ended("a", "failed")), "acceptance_fraction")
    assert measured.value is None


def test_requests_alone_say_nothing_of_attempts(folder: Path) -> None:
    events = [request("dispatched", "x", 0), request("completed", "x", 1)]
    measured = measure(opened(folder, attempts=events), "completion_fraction")
    assert (measured.value, measured.why) == (None, "needs attempt records; the capture has only single requests")


def row(name: str, tokens: int | None, session: str) -> Record:
    return request_end(name, session=session, output_tokens=tokens)


def test_tokens_are_wasted_on_whatever_was_not_accepted(folder: Path) -> None:
    events = [*accepted("a"), *accepted("b", "rejected"), *ended("c", "canceled"), *ended("d", None)]
    rows = [row("r1", 60, "a"), row("r2", 40, "a"), row("r3", 30, "b"), row("r4", 50, "c"), row("r5", 20, "d")]
    capture = opened(folder, attempts=events, rows=rows)
    assert value(capture, "wasted_token_fraction") == pytest.approx((30 + 50 + 20) / 200)


def test_rows_of_no_attempt_have_no_part_in_the_waste(folder: Path) -> None:
    rows = [row("r1", 60, "a"), row("probe", 1000, "probe")]
    capture = opened(folder, attempts=[*accepted("a"), *ended("b", "failed")], rows=rows)
    assert value(capture, "wasted_token_fraction") == 0.0


def test_a_request_without_a_row_counts_by_what_its_client_received(folder: Path) -> None:
    several = [request(event, "x", 1, of="b", n=4) for event in ("dispatched", "completed")]
    several[1]["output_tokens"] = 300
    one = [request(event, "r1", 1, of="a") for event in ("dispatched", "completed")]
    events = [*accepted("a"), *accepted("b", "rejected"), *one, *several]
    capture = opened(folder, attempts=events, rows=[row("r1", 100, "a")])
    assert value(capture, "wasted_token_fraction") == pytest.approx(300 / 400)


def test_rows_that_do_not_say_their_tokens_make_the_waste_unknown_not_zero(folder: Path) -> None:
    events = [*accepted("a"), *accepted("b", "rejected")]
    rows = [row("r1", 100, "a"), row("r2", None, "b")]
    measured = measure(opened(folder, attempts=events, rows=rows), "wasted_token_fraction")
    assert measured.value is None
    assert measured.why == "output_tokens is there for 1 of 2 requests of attempts"


def test_waste_needs_decisions(folder: Path) -> None:
    capture = opened(folder, attempts=ended("a", "completed"), rows=[row("r1", 100, "a")])
    assert value(capture, "wasted_token_fraction") is None


def test_two_runs_that_use_the_same_ids_keep_their_tokens_apart(folder: Path) -> None:
    events = [
        {**event, "run": run, "session_id": run}
        for run, decision in (("first", "accepted"), ("second", "rejected"))
        for event in accepted("a", decision)
    ]
    rows = [request_end("x", session="first", output_tokens=10), request_end("y", session="second", output_tokens=30)]
    measured = measure(opened(folder, attempts=events, rows=rows), "wasted_token_fraction")
    assert (measured.value, measured.n) == (30 / 40, 2)


def test_an_attempt_that_lacks_rows_of_some_turns_counts_by_its_own_word_once(folder: Path) -> None:
    events = [*accepted("a"), *accepted("b", "rejected")]
    events[1] |= {"turns": 3, "output_tokens": 60}
    rows = [request_end("x", session="a", output_tokens=20), request_end("y", session="b", output_tokens=20)]
    assert measure(opened(folder, attempts=events, rows=rows), "wasted_token_fraction").value == 20 / 80
