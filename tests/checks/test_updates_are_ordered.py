"""Updates reach every target: transfer, then reset, then resume, behind a closed gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fleets import moved, parts, served, started, update, without
from hand_made import EPOCH, Record, control, opened
from oracle import CAPTURES, read, read_by_time

from pytest_rlserve.checks import CheckResult, Evidence, run_check
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def judged(folder: Path, events: list[Record], *requests: Any, **evidence: Any) -> CheckResult:
    capture = opened(folder, **parts(*requests, control=events))
    return run_check(capture, "updates_are_ordered", Evidence(**evidence))


def said(result: CheckResult) -> str:
    return " | ".join(finding.message for finding in result.problems)


def test_a_good_update_of_two_workers_passes(folder: Path) -> None:
    result = judged(folder, [*started(1, 2), *update(1, 2)])
    assert (result.status, result.observed, result.of) == ("pass", 2, 2)


def loaded(events: list[Record], worker: int, version: object) -> list[Record]:
    """Let one worker report another version than the update brings."""
    return [
        event | {"policy_version": version}
        if (event["event"], event.get("worker_id")) == ("version", worker)
        else event
        for event in events
    ]


def test_versions_that_are_names_are_not_held_against_numbers(folder: Path) -> None:
    assert judged(folder, [*started(1), *loaded(update(1), 1, "weights-1")]).status == "pass"


def test_ends_of_transfers_that_no_source_records_are_not_asked_for(folder: Path) -> None:
    assert judged(folder, [*started(1), *without(update(1), "transfer_finished", 1)]).status == "pass"


@pytest.mark.parametrize("in_flight", ["drain", "keep"])
@pytest.mark.parametrize(("received", "status"), [(10.45, "fail"), (10.55, "pass")])
def test_a_worker_that_serves_before_it_has_restarted_shows_a_wrong_clock(
    folder: Path, in_flight: str, received: float, status: str
) -> None:
    events = [
        event | ({"worker_id": 2, "replaced_worker_id": 1} if event["event"] == "cache_reset" else {})
        for event in update(1)
    ]
    row = served("early", received, 2, [1], took=0.01)
    result = judged(folder, [*started(1), *events], row, in_flight=in_flight)
    assert result.status == status
    if status == "fail":
        assert "worker 2 served 1 request up to 0.050 s before it restarted under this id: a clock" in said(result)


@pytest.mark.parametrize(("last", "hinted"), [(9.0, True), (12.0, False)])
def test_a_missed_worker_that_was_not_seen_again_may_have_another_id(folder: Path, last: float, hinted: bool) -> None:
    rows = served("r1", 5, 2, [1]), served("r2", last, 2, [2])
    result = judged(folder, [*started(1, 2), *without(update(1, 2), "version", 2)], *rows)
    assert ("say replaced_worker_id" in said(result)) is hinted


def test_a_run_that_follows_another_may_name_its_updates_the_same(folder: Path) -> None:
    runs = [*update(1, t=10.0, update="1", run="a"), *update(1, t=20.0, version=2, update="1", run="b")]
    result = judged(folder, [*started(1), *runs])
    assert (result.status, result.observed, result.of) == ("pass", 2, 2)
    assert "update 1 of run b" in said(judged(folder.with_name("d"), [*started(1), *without(runs, "cache_reset", 1)]))


def test_two_sources_may_tell_of_one_update_under_runs_of_their_own(folder: Path) -> None:
    told = [event | {"run": "trainer" if event["event"].startswith("gate") else "fleet"} for event in update(1)]
    result = judged(folder, [*started(1), *told])
    assert (result.status, result.observed, result.of) == ("pass", 1, 1)


@pytest.mark.parametrize("step", ["pause", "ready", "transfer_started"])
def test_steps_that_a_source_does_not_record_are_not_asked_for(folder: Path, step: str) -> None:
    assert judged(folder, [*started(1), *without(update(1), step, 1)]).status == "pass"


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (without(update(1, 2), "cache_reset", 2), "worker 2 has no cache_reset"),
        (
            moved(update(1, 2), "cache_reset", 2, -0.3),
            "cache_reset of worker 2 at 1790000010.200 came before its transfer",
        ),
        (moved(update(1, 2), "resume", 2, -0.35), "its cache was reset on worker 2 0.050 s after it resumed"),
        (moved(update(1, 2), "version", 2, 0.3), "its new version was recorded on worker 2 0.100 s after it resumed"),
        (moved(update(1, 2), "ready", 2, 0.9), "it was ready on worker 2 0.600 s after the gate opened"),
        (
            moved(update(1, 2), "pause", 2, 0.3),
            "it was paused on worker 2 0.200 s after the transfer of weights began",
        ),
        (without(update(1, 2), "version", 2), "update u1 missed worker 2, which stays on version 0"),
        (
            without(update(1, 2), "transfer_finished", 2),
            "update u1: the transfer to worker 2 began and no record ends it: did all weights arrive?",
        ),
        (loaded(update(1, 2), 2, 0), "update u1 missed worker 2, which loaded version 0 instead of 1"),
    ],
)
def test_a_step_left_out_or_out_of_order_is_named(folder: Path, events: list[Record], words: str) -> None:
    result = judged(folder, [*started(1, 2), *events])
    assert (result.status, result.observed, result.of) == ("fail", 1, 2)
    assert words in said(result)
    assert "worker 1" not in said(result)


def test_an_early_reset_says_how_many_requests_filled_the_cache_again(folder: Path) -> None:
    between = served("between", 10.25, 1, [1])
    result = judged(folder, [*started(1), *moved(update(1), "cache_reset", 1, -0.3)], between)
    assert "1 request came in between and filled it again" in said(result)


@pytest.mark.parametrize("status", ["error", "timeout"])
def test_a_step_that_reports_an_error_inside_http_200_did_not_happen(folder: Path, status: str) -> None:
    events = [
        event | ({"status": status, "reason": "nccl"} if event["event"] == "cache_reset" else {}) for event in update(1)
    ]
    result = judged(folder, [*started(1), *events])
    assert f"cache_reset of worker 1 ended with status {status} (nccl)" in said(result)
    assert "has no cache_reset" in said(result)


def test_requests_run_through_a_reset_only_where_the_policy_or_the_records_say_so(folder: Path) -> None:
    running = served("long", 9.0, 1, [1], took=3.0)
    events = [*started(1), *update(1)]
    result = judged(folder, events, running)
    assert (result.status, result.problems[0].ids) == ("fail", ("long",))
    assert "ran through the cache reset of worker 1" in said(result)
    assert judged(folder.with_name("d"), events, running, in_flight="keep").status == "pass"
    own = [*started(1), *update(1, in_flight="keep")]
    assert judged(folder.with_name("e"), own, running).status == "pass"


def test_a_request_that_ends_before_the_reset_or_begins_after_it_did_not_run_through(folder: Path) -> None:
    requests = served("early", 9.0, 1, [1], took=1.4), served("late", 10.6, 1, [1], took=1.0)
    assert judged(folder, [*started(1), *update(1)], *requests).status == "pass"


def test_a_lost_worker_is_named_and_no_target(folder: Path) -> None:
    row, events = served("r", 9.0, 2, [1])
    failed = [event | ({"event": "failed"} if event["event"] == "completed" else {}) for event in events]
    lost = control("worker_lost", 9.5, worker_id=2)
    result = judged(folder, [*started(1, 2), *update(1), lost], (row, failed))
    assert (result.status, result.of) == ("pass", 1)
    (finding,) = result.findings
    assert (finding.severity, finding.ids, finding.line) == ("warning", ("r",), 12)
    assert "worker 2 was lost; 1 request that it had taken failed" in finding.message


def test_a_worker_that_is_lost_on_the_way_through_an_update_did_not_have_to_be_reached(folder: Path) -> None:
    paused = [event for event in update(2) if event["event"] == "pause"]
    lost = control("worker_lost", 10.2, worker_id=2)
    assert judged(folder, [*started(1, 2), *update(1), *paused]).status == "fail"
    result = judged(folder.with_name("d"), [*started(1, 2), *update(1), *paused, lost])
    assert (result.status, result.of) == ("pass", 1)


def test_a_declared_target_that_was_lost_did_not_have_to_be_reached(folder: Path) -> None:
    events = [*started(1, 2), *update(1, target_workers=[1, 2])]
    assert judged(folder, events).status == "fail"
    lost = control("worker_lost", 10.2, worker_id=2)
    assert judged(folder.with_name("d"), [*events, lost]).of == 1


def test_an_update_that_the_records_cut_off_is_a_warning(folder: Path) -> None:
    cut = [event for event in update(1, t=20, version=2) if event["t"] < EPOCH + 20.45]
    result = judged(folder, [*started(1), *update(1), *cut])
    assert (result.status, result.of) == ("pass", 1)
    assert "update u2 had not ended when the records stop" in result.findings[0].message


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "no source records weight updates"),
        (started(1), "the control records tell of no weight update"),
        ([control("gate_closed", 1, update=1), control("gate_opened", 2, update=1)], "name no worker"),
    ],
)
def test_without_an_update_nothing_can_be_told(folder: Path, events: list[Record], words: str) -> None:
    result = judged(folder, events, served("r", 1.0, 1, [1]))
    assert result.status == "inconclusive"
    assert words in str(result.why)


@pytest.mark.parametrize("name", ["baseline_kv_1", "baseline_kv_2", "baseline_kv_3", "small_cache_1", "payload_1"])
def test_updates_by_restart_pass(name: str) -> None:
    result = run_check(open_capture(CAPTURES / name), "updates_are_ordered")
    assert result.status == "pass", result.message()
    assert result.observed == (4 if name == "payload_1" else 8)


def test_the_worker_that_update_2_of_stale_worker_1_missed_is_named() -> None:
    result = run_check(open_capture(CAPTURES / "stale_worker_1"), "updates_are_ordered")
    assert (result.status, result.observed, result.of) == ("fail", 7, 8)
    assert said(result) == "update 2 missed worker 3264423129048537586, which stays on version 1"


def test_the_lost_worker_of_worker_lost_1_is_named_with_the_requests_that_failed_on_it() -> None:
    folder = CAPTURES / "worker_lost_1"
    (lost,) = [event["worker_id"] for event in read_by_time(folder, "control") if event["event"] == "worker_lost"]
    lines = [line for file in sorted(folder.glob("request-trace*")) for line in read(file)[0]]
    rows = [line["event"]["request"] for line in lines]
    its = {row.get("x_request_id") for row in rows if row.get("worker", {}).get("decode_worker_id") == int(lost)}
    failed = [a for a in read_by_time(folder, "attempts") if (a["event"], a.get("level")) == ("failed", "request")]
    count = sum(event["x_request_id"] in its for event in failed)
    result = run_check(open_capture(folder), "updates_are_ordered")
    assert (result.status, count) == ("pass", 15)
    (finding,) = result.findings
    assert f"worker {lost} was lost; {count} requests" in finding.message
