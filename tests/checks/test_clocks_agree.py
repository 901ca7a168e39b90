"""Two clocks: skew is estimated and weighed, steps and wrong units are found, rounding is forgiven."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import EPOCH, Record, attempt, completed, control, jsonl, opened, request, request_end

from pytest_rlserve.capture import Capture
from pytest_rlserve.checks import run_check
from pytest_rlserve.joins.clocks import pairs
from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_rlserve.checks import CheckResult


def lines(
    skew: Callable[[float], float] | float = 0, *, count: int = 20, lag: float = 0.02, prefix: str = "x"
) -> tuple[list[Record], list[Record]]:
    """Requests of 5 s, one every 10 s, as two clocks saw them; the server's is off by `skew` at that time."""
    off = skew if callable(skew) else lambda _: skew
    events, rows = list[Record](), list[Record]()
    for number in range(count):
        name, sent = f"{prefix}{number}", 10.0 * number
        events += [request("dispatched", name, sent), request("completed", name, sent + 5)]
        rows.append(request_end(name, sent + lag + off(sent), sent + 5 - lag + off(sent), session="s"))
    return events, rows


def run(folder: Path, *args: Any, **kwargs: Any) -> Capture:
    events, rows = lines(*args, **kwargs)
    return opened(folder, attempts=events, rows=rows)


def judged(folder: Path, *args: Any, **kwargs: Any) -> CheckResult:
    return run_check(run(folder, *args, **kwargs), "clocks_agree")


def test_clocks_that_agree_pass_and_the_offset_is_bounded(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert (result.status, result.observed, result.of) == ("pass", 20, 20)
    (note,) = result.findings
    assert note.severity == "note"
    assert "between 20.00 ms behind and 20.00 ms ahead of the client's" in note.message


@pytest.mark.parametrize("skew", [-0.001, 0.001])
def test_a_millisecond_is_rounding(tmp_path: Path, skew: float) -> None:
    result = judged(tmp_path, skew, lag=0)
    assert (result.status, {finding.severity for finding in result.findings}) == ("pass", {"note"})


@pytest.mark.parametrize(("skew", "side"), [(-0.05, "behind"), (-0.09, "behind")])
def test_a_small_skew_limits_what_can_be_compared(tmp_path: Path, skew: float, side: str) -> None:
    result = judged(tmp_path, skew, lag=0)
    (warning,) = result.findings
    assert (result.status, warning.severity) == ("pass", "warning")
    assert side in warning.message
    assert "what would change by that is withheld" in warning.message


@pytest.mark.parametrize(("skew", "side", "why"), [(-2, "behind", "before they were sent"), (2, "ahead", "answered")])
def test_a_large_skew_fails_with_its_size_and_its_requests(tmp_path: Path, skew: float, side: str, why: str) -> None:
    result = judged(tmp_path, skew)
    (finding,) = result.problems
    assert (result.status, result.observed, finding.count) == ("fail", 0, 20)
    assert f"the server's clock is 1.98 s to 2.02 s {side}" in finding.message
    assert why in finding.message
    assert "time server" in finding.message


def test_the_true_offset_lies_in_the_estimated_interval(tmp_path: Path) -> None:
    (found,) = pairs(run(tmp_path, -3.25))["attempts.jsonl"].offsets
    assert found.low <= -3.25 <= found.high
    assert found.high - found.low == pytest.approx(0.04, abs=0.002)


def test_a_clock_that_was_set_during_the_run_is_told_with_the_moment(tmp_path: Path) -> None:
    result = judged(tmp_path, lambda sent: 0 if sent < 95 else 3)
    (finding,) = result.problems
    assert "a clock was set during the run" in finding.message
    assert f"from {EPOCH + 100:.3f} on" in finding.message
    assert (result.observed, result.of) == (10, 20)


def test_times_without_any_order_are_called_that(tmp_path: Path) -> None:
    result = judged(tmp_path, lambda sent: 40 if sent % 20 else -40)
    assert "no offset between the clocks explains" in result.problems[0].message


def test_every_client_has_a_clock_of_its_own(tmp_path: Path) -> None:
    (events, rows), (others, more) = lines(), lines(-2, prefix="y")
    (tmp_path / "attempts.other.jsonl").write_bytes(jsonl(others))
    result = run_check(opened(tmp_path, attempts=events, rows=rows + more), "clocks_agree")
    assert [(f.path, f.severity) for f in result.findings] == [
        ("attempts.jsonl", "note"),
        ("attempts.other.jsonl", "failure"),
    ]
    assert (result.observed, result.of) == (20, 40)


def test_a_client_that_gave_up_is_no_witness_of_the_end(tmp_path: Path) -> None:
    events = [request("dispatched", "x", 0), request("canceled", "x", 1)]
    capture = opened(tmp_path / "c", attempts=events, rows=[request_end("x", 0.1, 9, session="s")])
    assert run_check(capture, "clocks_agree").status == "pass"


def test_a_server_may_note_the_end_a_moment_late(tmp_path: Path) -> None:
    events = [request("dispatched", "x", 0), request("completed", "x", 1)]
    capture = opened(tmp_path / "c", attempts=events, rows=[request_end("x", 0.1, 1.08, session="s")])
    assert run_check(capture, "clocks_agree").status == "pass"


def test_an_attempt_brackets_all_its_turns(tmp_path: Path) -> None:
    events = completed("a", 0, 20)
    events[0]["session_id"] = "s"
    turns = [request_end(f"r{n}", 5 * n + 1, 5 * n + 4, session="s", x_request_id=None) for n in range(3)]
    assert run_check(opened(tmp_path / "good", attempts=events, rows=turns), "clocks_agree").status == "pass"
    turns.append(request_end("r3", 30, 31, session="s", x_request_id=None))
    assert run_check(opened(tmp_path / "late", attempts=events, rows=turns), "clocks_agree").status == "fail"


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds"), (1e-3, "clock")]
)
def test_a_time_in_another_unit_is_named(tmp_path: Path, factor: float, unit: str) -> None:
    events = [attempt("dispatched", "a") | {"t": EPOCH * factor}]
    result = run_check(opened(tmp_path / "c", attempts=events), "clocks_agree")
    assert result.status == "fail"
    assert unit in result.problems[0].message
    assert (result.problems[0].path, result.problems[0].line) == ("attempts.jsonl", 1)


def test_seconds_in_a_field_of_milliseconds_are_found_by_the_rows_own_times(tmp_path: Path) -> None:
    def row(total: float) -> Record:
        return request_end("x", 0, 5, session="s", total_time_ms=total)

    events = [request("dispatched", "x", 0), request("completed", "x", 5)]
    good = opened(tmp_path / "good", attempts=events, rows=[row(5000)])
    assert run_check(good, "clocks_agree").status == "pass"
    result = run_check(opened(tmp_path / "bad", attempts=events, rows=[row(5)]), "clocks_agree")
    assert "total_time_ms is not in milliseconds" in result.message()


def test_without_a_request_known_to_both_sides_nothing_is_said(tmp_path: Path) -> None:
    assert run_check(Capture(name="c"), "clocks_agree").status == "inconclusive"
    lonely = opened(tmp_path / "c", rows=[request_end("x")], attempts=completed("a", 0, 1))
    assert run_check(lonely, "clocks_agree").status == "inconclusive"


# -- what the skew decides is withheld ----------------------------------------------------------------------------


def missed_worker(folder: Path, gate_opened: float, skew: float) -> CheckResult:
    """Worker 2 serves the requests at 0 and 100 s, and is missed by an update that ends at `gate_opened`."""
    events, rows = lines(skew, lag=0)
    for number, row in enumerate(rows):
        row["request"]["worker"] = {"decode_worker_id": 2 if number in (0, 10) else 1}
    phases = ("gate_closed", "transfer", "cache_reset", "version", "resume", "gate_opened")
    times = (gate_opened - 6 + number for number in range(5))
    update = [
        control(phase, t, update=1, policy_version=1, **({} if phase.startswith("gate") else {"worker_id": 1}))
        for phase, t in zip(phases, (*times, gate_opened), strict=True)
    ]
    first = [control("version", -1, worker_id=worker, policy_version=0) for worker in (1, 2)]
    capture = opened(folder, attempts=events, rows=rows, control=[*first, *update])
    return run_check(capture, "workers_are_current")


@pytest.mark.parametrize(("skew", "status"), [(0, "fail"), (-0.05, "inconclusive")])
def test_a_verdict_that_the_skew_decides_is_withheld(tmp_path: Path, skew: float, status: str) -> None:
    result = missed_worker(tmp_path, 99.98, skew)
    assert result.status == status
    if skew:
        assert result.why == "withheld: skew up to 50.00 ms between the clocks of server and client decides it"


def test_a_verdict_that_the_skew_does_not_touch_stands(tmp_path: Path) -> None:
    assert missed_worker(tmp_path, 97, -0.05).status == "fail"


@pytest.mark.parametrize(("finish", "withheld"), [(1994.98, True), (1996, False)])
def test_a_value_that_the_skew_changes_is_withheld_and_others_are_given(
    tmp_path: Path, finish: float, withheld: bool
) -> None:
    events, rows = lines(-0.05, count=200, lag=0)
    decided = [completed(f"a{number}", 1, 2 + number) for number in range(40)]
    events += [event for life in decided for event in life]
    steps = [control("step_started", -1, step=0), control("step_finished", finish, step=0)]
    capture = opened(tmp_path, attempts=events, rows=rows[160:], control=steps)
    shown = measure(capture, "request_throughput")
    assert (shown.value is None) == withheld
    if withheld:
        assert "withheld: skew up to 50.00 ms" in str(shown.why)
    assert measure(capture, "accepted_trajectory_throughput").value == pytest.approx(40 / (finish + 1))


def test_what_is_said_of_the_clocks_themselves_is_never_withheld(tmp_path: Path) -> None:
    assert judged(tmp_path, -2).status == "fail"
