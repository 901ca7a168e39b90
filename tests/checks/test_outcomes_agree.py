"""What the framework calls completed must have completed in the engine too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, completed, opened, request, request_end
from samples import records, written

from pytest_rlserve.checks import CheckResult, run_check
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path


def row(name: str, backend: str | None, received: float = 0, **fields: Any) -> Record:
    told = None if backend is None else {"finish_reason": "stop", "backend_finish_reason": backend}
    return request_end(name, received, received + 1, session="s", finish_reason_metadata=told, **fields)


def lived(name: str, outcome: str = "completed") -> list[Record]:
    return [request("dispatched", name, 0, of=name), request(outcome, name, 2, of=name)]


def judged(folder: Path, backends: dict[str, str | None], outcome: str = "completed") -> CheckResult:
    events = [event for name in backends for event in lived(name, outcome)]
    capture = opened(folder, attempts=events, rows=[row(name, why) for name, why in backends.items()])
    return run_check(capture, "outcomes_agree")


@pytest.mark.parametrize("reason", ["stop", "eos", "length", "tool_calls"])
def test_ordinary_reasons_pass(tmp_path: Path, reason: str) -> None:
    result = judged(tmp_path, {"x": reason})
    assert (result.status, result.observed, result.of) == ("pass", 1, 1)


@pytest.mark.parametrize(
    ("reason", "shown"), [("cancelled", "cancelled"), ("abort", "abort"), ("error: engine died: 42", "error")]
)
def test_a_stump_that_counts_as_completed_fails_without_the_engines_words(
    tmp_path: Path, reason: str, shown: str
) -> None:
    result = judged(tmp_path, {"x": reason, "y": "stop"})
    assert (result.status, result.observed, result.of) == ("fail", 1, 2)
    (finding,) = result.problems
    assert finding.message == f"x: backend finish reason {shown}, although the framework recorded it completed"
    assert (finding.path, finding.line) == ("request-trace.jsonl", 1)


def test_what_the_framework_canceled_may_be_cut_short(tmp_path: Path) -> None:
    assert judged(tmp_path, {"x": "cancelled"}, "canceled").status == "inconclusive"


def test_what_the_engine_finished_for_nobody_is_worth_a_note(tmp_path: Path) -> None:
    events = [*lived("x"), *lived("y", "canceled")]
    capture = opened(tmp_path / "c", attempts=events, rows=[row("x", "stop"), row("y", "length")])
    result = run_check(capture, "outcomes_agree")
    assert result.status == "pass"
    (note,) = result.findings
    assert (note.severity, note.ids) == ("note", ("y",))


def test_rows_without_a_finish_reason_decide_nothing(tmp_path: Path) -> None:
    result = judged(tmp_path, dict.fromkeys("abc"))
    assert result.status == "inconclusive"
    assert "0 of 3" in (result.why or "")
    assert "X-Dynamo-Session-ID" in (result.why or "")


def test_a_finish_reason_here_and_there_is_too_little(tmp_path: Path) -> None:
    few = {f"x{number}": "stop" if number < 9 else None for number in range(10)}
    assert judged(tmp_path / "few", few).status == "inconclusive"
    most = {f"x{number}": "stop" if number < 19 else None for number in range(20)}
    found = judged(tmp_path / "most", most)
    assert (found.status, found.observed) == ("pass", 19)
    (warning,) = found.findings  # a canceled request's row looks like this, and a killed worker's
    assert (warning.severity, warning.ids, warning.line) == ("warning", ("x19",), 20)


def test_a_contradiction_fails_even_where_most_rows_say_nothing(tmp_path: Path) -> None:
    assert judged(tmp_path, {"a": None, "b": None, "c": "error"}).status == "fail"


def test_of_an_attempt_the_last_row_counts(tmp_path: Path) -> None:
    """A partial rollout is aborted for an update and goes on in a second request."""
    turns = [row("r1", "cancelled", 0, x_request_id="t"), row("r2", "stop", 2, x_request_id="t")]
    events = completed("a", 0, 5)
    events[0]["session_id"] = "s"
    capture = opened(tmp_path / "resumed", attempts=events, rows=turns)
    assert run_check(capture, "outcomes_agree").status == "pass"
    turns[1]["request"]["finish_reason_metadata"]["backend_finish_reason"] = "cancelled"
    capture = opened(tmp_path / "stump", attempts=events, rows=turns)
    result = run_check(capture, "outcomes_agree")
    assert "and the trainer accepted it" in result.message()


def test_many_contradictions_are_named_and_the_rest_is_counted(tmp_path: Path) -> None:
    result = judged(tmp_path, {f"x{number:02d}": "error" for number in range(30)})
    assert sum(finding.count for finding in result.problems) == 30
    assert len(result.problems) == 21
    assert result.observed == 0


def test_an_engines_own_log_tells_as_dynamo_does(tmp_path: Path) -> None:
    line = records("sglang-request-metrics-20260921_14.log")[2]
    written(tmp_path / "sglang.log", line)
    events = [request("dispatched", "rl-002", 0), request("completed", "rl-002", 9), *completed("a", 0, 9)]
    written(tmp_path / "attempts.jsonl", *events)
    result = run_check(open_capture(tmp_path), "outcomes_agree")
    assert "backend finish reason abort" in result.message()


def test_without_rows_or_attempts_nothing_is_said(tmp_path: Path) -> None:
    assert run_check(opened(tmp_path / "a", rows=[row("x", "stop")]), "outcomes_agree").status == "inconclusive"
    only = opened(tmp_path / "b", attempts=[attempt("dispatched", "a"), attempt("completed", "a", 1)])
    assert run_check(only, "outcomes_agree").status == "inconclusive"
