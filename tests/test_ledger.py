"""The algebra of attempts: every event lands in one account, and every contradiction is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import EPOCH, Record, attempt, completed, jsonl, opened, request, write

from pytest_rlserve.ledger import Account, Counts, Ledger, ledger
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "capture"


def fold(folder: Path, *events: Record) -> Ledger:
    return opened(folder, attempts=events).derive(ledger)


def texts(found: Ledger) -> list[str]:
    return [finding.message for finding in found.findings]


def only(found: Ledger) -> Account:
    (account,) = (*found.attempts, *found.requests)
    return account


def test_each_attempt_is_counted_once_by_its_outcome_and_its_decision(folder: Path) -> None:
    given_up = [(attempt("dispatched", name, 1), attempt(name[:-1], name, 2)) for name in ("canceled1", "failed1")]
    found = fold(
        folder,
        *completed("a", 0, 5),
        *completed("b", 0, 6, "rejected"),
        attempt("dispatched", "pending", 1),
        attempt("completed", "pending", 7),
        *(event for pair in given_up for event in pair),
        attempt("dispatched", "open", 3),
    )
    expected = {"dispatched": 6, "completed": 3, "canceled": 1, "failed": 1, "open": 1, "retried": 0}
    assert found.counts("attempt") == Counts(**expected, accepted=1, rejected=1, pending=1)
    assert found.findings == ()


def test_without_any_decision_acceptance_is_not_covered_and_not_zero(folder: Path) -> None:
    counts = fold(folder, attempt("dispatched", "a", 0), attempt("completed", "a", 1)).counts("attempt")
    assert counts is not None
    assert (counts.accepted, counts.rejected, counts.pending) == (None, None, None)


def test_a_level_without_events_has_no_counts(folder: Path) -> None:
    found = fold(folder, attempt("dispatched", "a", 0))
    assert found.counts("request") is None


def test_requests_are_counted_apart_from_their_attempts(folder: Path) -> None:
    found = fold(
        folder,
        attempt("dispatched", "a", 0),
        request("dispatched", "x", 1),
        request("failed", "x", 2, http_status=500),
        request("retried", "y", 2.5, retry_of="x"),
        request("dispatched", "y", 3),
        request("completed", "y", 4),
        attempt("completed", "a", 5),
    )
    counts = found.counts("request")
    assert counts is not None
    assert (counts.dispatched, counts.completed, counts.failed, counts.retried) == (2, 1, 1, 1)
    assert [account.retried for account in found.requests] == [False, True]
    assert found.findings == ()


def test_events_are_folded_by_time_wherever_they_stand(folder: Path) -> None:
    events = completed("a", 0, 5)
    assert fold(folder, *reversed(events)).findings == ()


def test_at_one_instant_an_attempt_is_dispatched_before_it_ends_and_ends_before_it_is_decided(folder: Path) -> None:
    events = [attempt(event, "a", 0) for event in ("accepted", "completed", "dispatched", "retried")]
    account = only(fold(folder, *events))
    assert (account.outcome, account.acceptance, account.retried) == ("completed", "accepted", True)


def test_the_fields_of_all_events_are_carried_the_latest_word_last(folder: Path) -> None:
    found = fold(
        folder,
        attempt("dispatched", "a", 0, step=3, sample_id="s", session_id="se", x_request_ids=["x", "y"]),
        attempt("completed", "a", 1, turns=2, x_request_id="z"),
        attempt("accepted", "a", 2, step=4, trained_version=9, tokens_by_version={"7": 5}),
    )
    account = only(found)
    names = ("step", "sample_id", "session_id", "turns", "trained_version", "tokens_by_version", "reason")
    assert [account.get(name) for name in names] == [4, "s", "se", 2, "9", [("7", 5)], None]
    assert account.x_request_ids == ("x", "y", "z")
    assert (account.dispatched_at, account.ended_at, account.decided_at) == (EPOCH, EPOCH + 1, EPOCH + 2)
    assert (account.source, account.line) == ("attempts.jsonl", 1)


@pytest.mark.parametrize("when", [-1, 0, 0.5, 9])
def test_a_retry_counts_whether_it_is_told_before_or_after_its_dispatch(folder: Path, when: float) -> None:
    found = fold(folder, attempt("retried", "a1", when, retry_of="a0"), *completed("a1", 0, 5))
    counts = found.counts("attempt")
    assert counts is not None
    assert (counts.dispatched, counts.completed, counts.retried) == (1, 1, 1)
    assert only(found).get("retry_of") == "a0"
    assert found.findings == ()


def test_a_retry_that_was_never_dispatched_is_told(folder: Path) -> None:
    found = fold(folder, *completed("a0", 0, 5), attempt("retried", "a1", 6, retry_of="a0"))
    assert texts(found) == ["retried attempt 'a1', which was never dispatched or already retried"]
    counts = found.counts("attempt")
    assert counts is not None
    assert (counts.dispatched, counts.retried) == (1, 0)


def test_of_a_request_sent_twice_under_one_id_the_second_is_the_retry(folder: Path) -> None:
    found = fold(
        folder,
        request("dispatched", "x", 0),
        request("failed", "x", 1),
        request("retried", "x", 2),
        request("dispatched", "x", 3),
        request("completed", "x", 4),
    )
    assert [(one.outcome, one.retried) for one in found.requests] == [("failed", False), ("completed", True)]
    assert found.findings == ()


def test_ends_of_requests_that_share_an_id_are_given_out_first_come_first_served(folder: Path) -> None:
    found = fold(
        folder,
        request("dispatched", "x", 0),
        request("dispatched", "x", 1),
        request("canceled", "x", 2),
        request("completed", "x", 3),
    )
    assert [one.outcome for one in found.requests] == ["canceled", "completed"]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([("completed", 0)], "completed attempt 'a', which was never dispatched"),
        ([("accepted", 0)], "accepted attempt 'a', which was never dispatched"),
        ([("completed", 0), ("dispatched", 1), ("completed", 2)], "which was never dispatched"),
        ([("dispatched", 0), ("completed", 1), ("failed", 2)], "attempt 'a' both completed and failed"),
        (
            [("dispatched", 0), ("completed", 1), ("completed", 2)],
            "attempt 'a' completed twice, a conflicting duplicate: t 179",
        ),
        (
            [("dispatched", 0), ("completed", 1), ("completed", 1)],
            "attempt 'a' completed twice, a duplicate (was a file",
        ),
        (
            [("dispatched", 0), ("accepted", 1), ("completed", 2)],
            "accepted although it was still open, not completed",
        ),
        ([("dispatched", 0), ("failed", 1), ("rejected", 2)], "rejected although it was failed, not completed"),
        (
            [("dispatched", 0), ("completed", 1), ("accepted", 2), ("accepted", 3)],
            "attempt 'a' was twice accepted",
        ),
        (
            [("dispatched", 0), ("completed", 1), ("accepted", 2), ("rejected", 3)],
            "attempt 'a' was both accepted and rejected",
        ),
    ],
)
def test_a_contradiction_is_told_with_its_place_and_the_first_word_stands(
    folder: Path, events: list[tuple[str, float]], text: str
) -> None:
    found = fold(folder, *(attempt(event, "a", t) for event, t in events))
    (finding,) = found.findings
    assert text in finding.message
    assert (finding.severity, finding.path, finding.ids) == ("failure", "attempts.jsonl", ("a",))
    assert finding.line is not None
    counts = found.counts("attempt")
    first = next((event for event, _ in events if event in ("completed", "failed")), None)
    if events[0][0] == "dispatched" and first:
        assert counts is not None
        assert getattr(counts, first) == 1


def test_an_end_of_a_request_told_twice_says_whether_it_says_the_same(folder: Path) -> None:
    first = request("completed", "x", 1, output_tokens=5, finish_reason="length")
    again, other = dict(first), first | {"output_tokens": 6}
    assert texts(fold(folder, request("dispatched", "x", 0), first, again, other)) == [
        "request 'x' of attempt 'a' completed twice, a duplicate (was a file copied or appended again?)",
        "request 'x' of attempt 'a' completed twice, a conflicting duplicate: output_tokens 5 and 6",
    ]


def test_an_attempt_id_used_twice_is_two_dispatches_with_two_outcomes_and_a_finding(folder: Path) -> None:
    events = ["dispatched", "failed", "dispatched", "completed", "accepted"]
    found = fold(folder, *(attempt(event, "a", t) for t, event in enumerate(events)))
    counts = found.counts("attempt")
    assert counts is not None
    assert (counts.dispatched, counts.failed, counts.completed, counts.accepted) == (2, 1, 1, 1)
    assert texts(found) == ["attempt_id 'a' was dispatched again under the same id"]


def test_two_files_that_tell_of_the_same_attempt_are_both_named(folder: Path) -> None:
    events = [attempt("dispatched", "a", 0), attempt("completed", "a", 1)]
    write(folder, attempts=events)
    (folder / "attempts_copy.jsonl").write_bytes(jsonl(events))
    (finding,) = open_capture(folder).derive(ledger).findings
    assert "again under the same id; attempts.jsonl tells of it, too: was a file copied?" in finding.message
    assert finding.path == "attempts_copy.jsonl"


def test_a_sample_accepted_twice_is_told_and_both_attempts_are_named(folder: Path) -> None:
    events = [
        event | {"run": "r", "group_id": "g", "sample_id": "s"} for name in "ab" for event in completed(name, 0, 5)
    ]
    (finding,) = fold(folder, *events).findings
    assert "sample 's' has 2 accepted attempts" in finding.message
    assert finding.ids == ("a", "b")


def test_the_same_sample_name_in_another_group_is_another_sample(folder: Path) -> None:
    events = [event | {"group_id": name, "sample_id": "0"} for name in "ab" for event in completed(name, 0, 5)]
    assert fold(folder, *events).findings == ()


def test_the_same_attempt_id_in_another_run_is_another_attempt(folder: Path) -> None:
    found = fold(folder, *(event | {"run": run} for run in "rs" for event in completed("a", 0, 5)))
    assert len(found.attempts) == 2
    assert found.findings == ()


def test_an_event_that_does_not_repeat_the_run_belongs_to_the_one_run_of_its_attempt(folder: Path) -> None:
    first, *others = completed("a", 0, 5)
    found = fold(folder, first | {"run": "r"}, *others)
    assert (only(found).run, only(found).acceptance) == ("r", "accepted")
    assert found.findings == ()


def test_a_request_is_named_by_its_own_id_and_an_attempt_by_its(folder: Path) -> None:
    found = fold(folder, attempt("dispatched", "a", 0, x_request_id="y"), request("dispatched", "x", 1))
    assert (found.attempts[0].name, found.requests[0].name) == ("a", "x")
