"""Latency is of completed requests; the share served in time is of all that were sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, completed, opened, request, request_end

from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def sent(name: str, outcome: str | None, **fields: Any) -> list[Record]:
    first = request("dispatched", name, 0)
    return [first] if outcome is None else [first, request(outcome, name, 1, **fields)]


def row(name: str, milliseconds: float | None, **fields: Any) -> Record:
    return request_end(name, ttft_ms=milliseconds, total_time_ms=milliseconds, **fields)


def mixed(folder: Path) -> Capture:
    """Six completed requests of 700 to 900 ms, four that failed or were canceled at once."""
    events: list[Record] = []
    rows = [row(f"r{number}", 700 + 40 * number) for number in range(6)]
    for number in range(6):
        events += sent(f"r{number}", "completed")
    for number, outcome in enumerate(["failed", "failed", "canceled", "canceled"]):
        events += sent(f"bad{number}", outcome)
        rows.append(row(f"bad{number}", 0.5))
    return opened(folder, attempts=events, rows=rows)


def test_requests_that_failed_or_were_canceled_do_not_improve_the_latency(folder: Path) -> None:
    measured = measure(mixed(folder), "request_latency.p50")
    assert (measured.value, measured.n, measured.unit) == (pytest.approx(0.8), 6, "s")


def test_the_share_in_time_counts_every_request_that_was_sent(folder: Path) -> None:
    capture = mixed(folder)
    for budget, good in ((1.0, 6), (0.8, 3), (0.5, 0)):
        measured = measure(capture, "served_within_budget_fraction", Scope(budgets={"ttft": budget}))
        assert (measured.value, measured.n) == (pytest.approx(good / 10), 10)


def test_every_budget_must_be_kept(folder: Path) -> None:
    rows = [request_end("r1", ttft_ms=100, total_time_ms=900), request_end("r2", ttft_ms=300, total_time_ms=400)]
    capture = opened(folder, attempts=[*sent("r1", "completed"), *sent("r2", "completed")], rows=rows)
    scope = Scope(budgets={"ttft": 0.2, "request_latency": 0.5})
    assert measure(capture, "served_within_budget_fraction", scope).value == 0.0


def test_when_every_request_times_out_none_was_served_in_time_and_that_is_known(folder: Path) -> None:
    events = [event for number in range(3) for event in sent(f"r{number}", "canceled")]
    capture = opened(folder, attempts=events, rows=[row("r0", 5), row("r1", 5)])
    measured = measure(capture, "served_within_budget_fraction", Scope(budgets={"ttft": 1.0}))
    assert (measured.value, measured.n) == (0.0, 3)
    assert measure(capture, "ttft.p50").value is None


def test_when_nothing_can_be_joined_the_share_in_time_is_unknown_not_zero(folder: Path) -> None:
    capture = opened(folder, attempts=sent("x", "completed"), rows=[row("r1", 5, x_request_id=None)])
    assert measure(capture, "served_within_budget_fraction", Scope(budgets={"ttft": 1.0})).value is None


def test_an_unknown_time_keeps_no_budget_but_a_single_token_has_no_time_between_tokens(folder: Path) -> None:
    rows = [request_end("r1", ttft_ms=5), request_end("r2", output_tokens=1)]
    capture = opened(folder, attempts=[*sent("r1", "completed"), *sent("r2", "completed")], rows=rows)
    share = "served_within_budget_fraction"
    assert measure(capture, share, Scope(budgets={"ttft": 1.0})).value == 0.5
    assert measure(capture, share, Scope(budgets={"itl": 1.0})).value == 1.0


def test_without_a_budget_there_is_no_share_in_time(folder: Path) -> None:
    measured = measure(mixed(folder), "served_within_budget_fraction", Scope(budgets={"kv_reuse_fraction": 0.5}))
    assert measured.value is None
    assert "no latency budget" in str(measured.why)


@pytest.mark.parametrize(("known", "observed"), [(20, True), (19, True), (18, False), (0, False)])
def test_a_field_speaks_for_all_only_where_95_percent_of_completed_requests_have_it(
    folder: Path, known: int, observed: bool
) -> None:
    events = [event for number in range(20) for event in sent(f"r{number}", "completed")]
    rows = [row(f"r{number}", 100 if number < known else None) for number in range(20)]
    measured = measure(opened(folder, attempts=events, rows=rows), "ttft.p50")
    assert (measured.value is not None) is observed
    assert measured.why == (None if observed else f"ttft_ms is there for {known} of 20 completed requests")


@pytest.mark.parametrize(
    ("metric", "column"),
    [
        ("ttft", "ttft_ms"),
        ("request_latency", "total_time_ms"),
        ("prefill_wait", "prefill_wait_time_ms"),
        ("prefill_time", "prefill_time_ms"),
        ("itl", "avg_itl_ms"),
    ],
)
def test_each_latency_is_its_own_column_in_seconds(folder: Path, metric: str, column: str) -> None:
    capture = opened(folder, attempts=sent("r1", "completed"), rows=[request_end("r1", **{column: 250})])
    assert measure(capture, f"{metric}.p50").value == 0.25


def test_time_between_tokens_is_of_answers_with_two_tokens_or_more(folder: Path) -> None:
    events = [event for name in ("r1", "r2", "r3") for event in sent(name, "completed")]
    rows = [
        request_end("r1", avg_itl_ms=20, output_tokens=2),
        request_end("r2", output_tokens=1),
        request_end("r3", output_tokens=None),
    ]
    measured = measure(opened(folder, attempts=events, rows=rows), "itl.p50")
    assert (measured.value, measured.n) == (0.02, 1)


def test_without_attempt_records_the_finish_metadata_say_what_completed(folder: Path) -> None:
    ended = [
        {"finish_reason": "stop", "backend_finish_reason": "eos"},
        {"finish_reason": "length"},
        {"finish_reason": "stop", "backend_finish_reason": "cancelled"},
        {"finish_reason": "stop", "backend_finish_reason": "error: out of memory"},
        None,
    ]
    times = (100, 300, 1, 1, 1)
    rows = [
        row(f"r{number}", time, finish_reason_metadata=finish)
        for number, (time, finish) in enumerate(zip(times, ended, strict=True))
    ]
    measured = measure(opened(folder, rows=rows), "ttft.p50")
    assert (measured.value, measured.n) == (pytest.approx(0.2), 2)


def test_rows_alone_that_do_not_say_how_they_ended_are_no_completed_requests(folder: Path) -> None:
    measured = measure(opened(folder, rows=[row("r1", 5)]), "ttft.p50")
    assert measured.value is None
    assert "does not say how its request ended" in str(measured.why)


def test_a_trajectorys_time_is_on_the_frameworks_clock_and_of_completed_attempts(folder: Path) -> None:
    events = [*completed("a", 1, 4), *completed("b", 0, 5, "rejected"), attempt("dispatched", "c", 0)]
    measured = measure(opened(folder, attempts=[*events, attempt("failed", "c", 9)]), "trajectory_latency.p50")
    assert (measured.value, measured.n) == (pytest.approx(4.0), 2)


def test_the_serving_share_is_of_the_time_of_completed_attempts(folder: Path) -> None:
    events = [event | {"session_id": name} for name in "ab" for event in completed(name, 0, 10)]
    lost = [attempt("dispatched", "c", 0, session_id="c"), attempt("failed", "c", 50)]
    rows = [request_end(f"r{name}", session=name, total_time_ms=4000) for name in "aabc"]
    for number, one in enumerate(rows):
        one["request"]["request_id"] += str(number)
    measured = measure(opened(folder, attempts=[*events, *lost], rows=rows), "serving_share")
    assert measured.value == pytest.approx(12 / 20)


def test_tool_time_is_of_calls_that_finished(folder: Path) -> None:
    head = {"schema": "dynamo.request.trace.v1", "event_time_unix_ms": 1}
    calls = [("tool_start", {}), ("tool_end", {"duration_ms": 200}), ("tool_error", {"duration_ms": 400})]
    tools = [head | {"event_type": kind, "tool": {"tool_call_id": "c", **more}} for kind, more in calls]
    measured = measure(opened(folder, rows=[request_end("r1"), *tools]), "tool_time.p50")
    assert (measured.value, measured.n) == (pytest.approx(0.3), 2)


def test_goodput_is_what_kept_the_budgets_per_second_of_the_replay(folder: Path) -> None:
    finish = {"finish_reason": "stop"}
    rows = [
        request_end(f"r{number}", number, number + 2, ttft_ms=ttft, finish_reason_metadata=finish)
        for number, ttft in enumerate([100, 100, 900])
    ]
    capture = opened(folder, rows=rows, manifest={"kind": "replay"})
    measured = measure(capture, "request_goodput", Scope(budgets={"ttft": 0.5}))
    assert (measured.value, measured.n) == (pytest.approx(2 / 4), 2)
