"""Question 2, first half: what fails the account of attempts, and what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, completed, control, opened, request, request_end

from pytest_rlserve.checks import CheckResult, Evidence, run_check

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def judged(folder: Path, attempts: list[Record], *, evidence: Evidence | None = None, **parts: Any) -> CheckResult:
    return run_check(opened(folder, attempts=attempts, **parts), "attempts_reconcile", evidence)


def still_open(count: int) -> list[Record]:
    return [attempt("dispatched", f"open{number}", number) for number in range(count)]


def test_attempts_that_all_ended_pass_and_are_counted(folder: Path) -> None:
    found = judged(folder, [*completed("a", 0, 5), attempt("dispatched", "b", 1), attempt("failed", "b", 2)])
    assert (found.status, found.observed, found.of) == ("pass", 2, 2)


def test_no_record_of_attempts_is_inconclusive_and_says_what_to_write(folder: Path) -> None:
    found = judged(folder, [], rows=[request_end("r1")])
    assert found.status == "inconclusive"
    assert "AttemptRecorder" in str(found.why)


def test_an_attempt_that_never_ended_is_named_with_its_place(folder: Path) -> None:
    found = judged(folder, [*completed("a", 0, 5), attempt("dispatched", "p6#1", 6)])
    assert (found.status, found.observed, found.of) == ("fail", 1, 2)
    assert "attempts.jsonl:4: p6#1 was dispatched and never ended" in found.message()


@pytest.mark.parametrize(
    ("allowed", "left_open", "status"),
    [(0, 1, "fail"), (2, 2, "pass"), (2, 3, "fail"), (0.5, 4, "pass"), (0.5, 5, "fail"), (1, 1, "pass")],
)
def test_the_policy_may_allow_open_attempts_by_number_or_by_share(
    folder: Path, allowed: float, left_open: int, status: str
) -> None:
    ended = [event for number in range(4) for event in completed(f"a{number}", 0, 5)]
    found = judged(folder, ended + still_open(left_open), evidence=Evidence(open_attempts=allowed))
    assert found.status == status
    (finding,) = found.findings
    assert finding.count == left_open


def test_open_requests_are_judged_like_open_attempts(folder: Path) -> None:
    found = judged(folder, [*completed("a", 0, 5), request("dispatched", "x", 1)])
    assert found.status == "fail"
    assert "x was dispatched and never ended" in found.message()
    assert "under [evidence] open_attempts" in found.message()


def test_contradictions_fail(folder: Path) -> None:
    found = judged(folder, [*completed("a", 0, 5), attempt("failed", "a", 6)])
    assert found.status == "fail"
    assert "both completed and failed" in found.message()


def test_events_of_no_dispatched_attempt_fail_even_alone(folder: Path) -> None:
    found = judged(folder, [attempt("completed", "a", 1)])
    assert found.status == "fail"
    assert "never dispatched" in found.message()


def test_a_request_that_the_client_sent_again_by_itself_fails(folder: Path) -> None:
    rows = [request_end("r1", 0, 9, x_request_id="x"), request_end("r2", 5, 9, x_request_id="x")]
    found = judged(folder, completed("a", 0, 10, x_request_id="x"), rows=rows)
    assert found.status == "fail"
    (finding,) = found.findings
    assert "x_request_id x has two serving rows for one attempt" in finding.message
    assert (finding.ids, finding.count) == (("r1", "r2"), 1)


def hashed(*hashes: int) -> Record:
    return {"input_sequence_hashes": list(hashes)}


@pytest.mark.parametrize(
    ("second", "status"),
    [
        ({"received": 5, "replay": hashed(1, 2, 3)}, "pass"),  # the next turn
        ({"received": 5, "replay": hashed(1, 2)}, "fail"),  # the same prompt again
        ({"received": 3, "replay": hashed(1, 2, 3)}, "fail"),  # while the first was running
        ({"received": 3, "replay": hashed(9), "x_request_id": "y"}, "pass"),  # two that the client told apart
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_turns_of_an_attempt_are_told_from_repeats_wherever_their_rows_stand(
    folder: Path, second: Record, status: str, order: int
) -> None:
    fields = {"x_request_id": "x"} | {name: second[name] for name in second if name != "received"}
    rows = [
        request_end("r1", 0, 4, x_request_id="x", replay=hashed(1, 2)),
        request_end("r2", second["received"], 9, **fields),
    ]
    found = judged(folder, completed("a", 0, 10, x_request_ids=["x", "y"]), rows=rows[::order])
    assert found.status == status


@pytest.mark.parametrize(("turns", "status"), [(3, "pass"), (2, "fail")])
def test_an_attempt_that_says_its_turns_is_held_to_them(folder: Path, turns: int, status: str) -> None:
    rows = [request_end(f"r{number}", number, number + 0.5, session="s") for number in range(3)]
    found = judged(folder, completed("a", 0, 10, session_id="s", turns=turns), rows=rows)
    assert found.status == status


LENGTH = {"finish_reason": "length", "backend_finish_reason": "length"}


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        ({"x_request_id": "second"}, "pass"),  # canceled or failed, and sent anew by the framework
        ({"x_request_id": "third"}, "fail"),  # the client let go of it, and sent it again by itself
        ({"x_request_id": "second", "finish_reason_metadata": LENGTH}, "fail"),  # one answer too many
    ],
)
@pytest.mark.parametrize("turns", [2, None])
def test_what_broke_off_is_no_turn(folder: Path, broken: Record, status: str, turns: int | None) -> None:
    rows = [
        request_end("first", 0, 1, session="s", finish_reason_metadata=LENGTH, replay=hashed(1)),
        request_end("broken", 2, 3, session="s", replay=hashed(1, 2), **broken),
        request_end("third", 4, 5, session="s", finish_reason_metadata=LENGTH, replay=hashed(1, 2)),
    ]
    fields = {"session_id": "s"} | ({"turns": turns} if turns else {})
    found = judged(folder, completed("a", 0, 10, **fields), rows=rows)
    assert found.status == status
    assert [one.message for one in found.findings] == (
        ["attempt a has 3 serving rows for one attempt: the client sent it again by itself"] * (status == "fail")
    )


@pytest.mark.parametrize("told", [True, False])
def test_a_second_attempt_that_nobody_calls_a_retry_is_a_warning(folder: Path, told: bool) -> None:
    events = [attempt("dispatched", "a", 0, sample_id="s"), attempt("failed", "a", 1)]
    events += [attempt("retried", "b", 2, retry_of="a")] * told
    events += [attempt("dispatched", "b", 2, sample_id="s"), attempt("completed", "b", 3)]
    found = judged(folder, events)
    assert found.status == "pass"
    assert [(one.severity, one.ids) for one in found.findings] == ([] if told else [("warning", ("b",))])


@pytest.mark.parametrize(
    ("lost", "warned"),
    [
        ((1, "step_started"), "step 1 accepted 1 attempt"),
        ((2, "step_finished"), "step 2 accepted 1 attempt"),
        ((3, "step_finished"), None),  # it had only begun when the run was stopped
        (None, None),
    ],
)
def test_a_trained_step_that_lost_a_record_is_a_warning(
    folder: Path, lost: tuple[int, str] | None, warned: str | None
) -> None:
    steps = [
        control(event, step + after, step=step)
        for step in (1, 2, 3)
        for event, after in (("step_started", 0), ("step_finished", 0.9))
        if (step, event) != lost
    ]
    events = [event for step in (1, 2) for event in completed(f"a{step}", step + 0.1, step + 0.8, step=step)]
    found = judged(folder, events, control=steps)
    assert found.status == "pass"
    assert [one.severity for one in found.findings] == ["warning"] * bool(warned)
    assert [warned in one.message for one in found.findings if warned] == [True] * bool(warned)
