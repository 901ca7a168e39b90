"""The package's numbers against those of a slow count that shares no code with it (oracle.py)."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from oracle import CAPTURES, join, pair, read, read_by_time

from pytest_rlserve import joins
from pytest_rlserve.capture import Capture
from pytest_rlserve.checks import run_check
from pytest_rlserve.ledger import Counts, Level, ledger
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.metrics.window import window
from pytest_rlserve.readers import open_capture

FIGURES: dict[str, Any] = json.loads((CAPTURES / "expected.json").read_text(encoding="utf-8"))
OUTCOMES = ("dispatched", "completed", "canceled", "failed", "open", "retried")
LATENCIES = {
    "ttft": "ttft_ms",
    "request_latency": "total_time_ms",
    "itl": "avg_itl_ms",
    "prefill_wait": "prefill_wait_time_ms",
    "prefill_time": "prefill_time_ms",
}
ENOUGH = {"p50": 1, "p95": 200, "p99": 1000, "mean": 1}
rounded = {"abs": 1e-6, "rel": 1e-6}


@pytest.fixture(scope="module", params=sorted(FIGURES))
def run(request: pytest.FixtureRequest) -> tuple[Capture, dict[str, Any]]:
    return open_capture(CAPTURES / request.param), FIGURES[request.param]


Run = tuple[Capture, dict[str, Any]]


def counted(capture: Capture, level: Level) -> Counts:
    counts = capture.derive(ledger).counts(level)
    assert counts is not None
    return counts


def test_segments_and_kinds_of_rows_are_the_same(run: Run) -> None:
    capture, expected = run
    found = {
        source.path: {"lines": source.rows, "whole": source.whole}
        for source in capture.sources
        if source.path.startswith("request-trace")
    }
    assert found == expected["segments"]
    kinds = expected["kinds"]
    assert capture.requests.num_rows == kinds["request_end"]
    assert capture.payloads.num_rows == kinds.get("request_payload", 0)
    assert capture.tools.num_rows == sum(count for kind, count in kinds.items() if kind.startswith("tool_"))


def test_attempts_and_requests_are_counted_the_same(run: Run) -> None:
    capture, expected = run
    for level in ("attempt", "request"):
        found = dataclasses.asdict(counted(capture, level))
        figures = expected[f"{level}s"]
        names = [*OUTCOMES, *(("accepted", "rejected", "pending") if level == "attempt" else ())]
        assert {name: found[name] for name in names} == {name: figures[name] for name in names}
    assert capture.derive(ledger).findings == ()


def test_shares_of_attempts_are_the_same(run: Run) -> None:
    capture, expected = run
    names = {"completion": "completed", "canceled": "canceled", "failed": "failed", "retry": "retried"}
    for name, figure in (names | {"acceptance": "acceptance"}).items():
        value = measure(capture, f"{name}_fraction").value
        assert value == pytest.approx(expected["attempts"][f"{figure}_fraction"], **rounded)


def test_rows_are_joined_the_same(run: Run) -> None:
    capture, expected = run
    joined = capture.derive(joins.join)
    assert (joined.rows, joined.joined) == (expected["rows"], expected["rows_joined"])
    share = expected["traceable_served"]
    assert (joined.traceable_served, joined.traceable) == (share["numerator"], share["denominator"])
    keys = expected["rows_joined_by"]
    server_ids = {
        f"{prefix}{name}" for name in capture.requests["request_id"].to_pylist() for prefix in ("chatcmpl-", "cmpl-")
    }
    answered = [owner for owner in joined.owners.values() if owner.get("response_id") in server_ids]
    assert len(answered) == keys["response_id"]
    assert len(joined.owners) - len(answered) == keys["x_request_id"] + keys["session"]


def test_each_row_has_the_same_owner(run: Run) -> None:
    capture, _ = run
    folder = CAPTURES / capture.name
    rows = [line.get("event", line) for file in sorted(folder.glob("request-trace*")) for line in read(file)[0]]
    ends = [row for row in rows if row["event_type"] == "request_end"]
    requests = pair([line for line in read_by_time(folder, "attempts") if line.get("level") == "request"])
    join(ends, requests)
    expected = {r.row["request_id"]: (r.sent["x_request_id"], r.sent["t"], r.outcome) for r in requests if r.row}
    names = capture.requests["request_id"].to_pylist()
    found = {
        names[number]: (owner.name, owner.dispatched_at, owner.outcome or "open")
        for number, owner in capture.derive(joins.join).owners.items()
        if owner.level == "request"
    }
    assert {name: found[name] for name in expected} == expected


def test_requests_without_a_row_have_the_same_reasons(run: Run) -> None:
    capture, expected = run
    missing = capture.derive(joins.join).without_row
    names = {why: sorted(account.name for account in accounts) for why, accounts in missing.items()}
    several = {account.name for account in missing.get("n>1", ()) if account.outcome == "completed"}
    figures = expected["without_row"]
    assert sorted(several) == figures["completed_n"]["ids"]
    assert names.get("lost row", []) == figures["completed_lost"]["ids"]
    canceled = [*names.get("early cancel", []), *names.get("late cancel", [])]
    assert sorted(canceled) == figures["canceled"]["ids"]
    statuses = figures["failed_by_other_status"]
    failed_several = len(missing.get("n>1", ())) - len(several)
    other = sum(len(missing.get(why, ())) for why in ("refused", "unreachable", "broken stream")) + failed_several
    assert len(missing.get("unreachable", ())) == statuses.get("None", 0)
    assert len(missing.get("404", ())) == figures["failed_404"]
    assert other == sum(statuses.values())
    assert set(names) <= {
        *("n>1", "404", "lost row", "early cancel", "late cancel", "refused", "unreachable", "broken stream")
    }


def test_the_window_and_its_rates_are_the_same(run: Run) -> None:
    capture, expected = run
    figures = expected["window"]
    names = {"accepted_trajectory_throughput": "gate_open_rate", "accepted_trajectory_wall_throughput": "wall_rate"}
    if expected["attempts"]["completed"] < 30:
        for name in names:
            assert "under 30" in str(measure(capture, name).why)
        return
    found = window(capture)
    assert (found.start, found.end) == (figures["start"], figures["end"])
    assert found.seconds == pytest.approx(figures["wall_seconds"], abs=1e-6)
    assert found.open_seconds == pytest.approx(figures["gate_open_seconds"], abs=1e-6)
    for name, figure in names.items():
        measured = measure(capture, name)
        assert (measured.n, measured.value) == (figures["accepted"], pytest.approx(figures[figure], **rounded))


@pytest.mark.parametrize("metric", LATENCIES)
@pytest.mark.parametrize("statistic", ENOUGH)
def test_latencies_are_the_same_where_there_are_enough_of_them(run: Run, metric: str, statistic: str) -> None:
    capture, expected = run
    figures = expected["latency"][LATENCIES[metric]]
    measured = measure(capture, f"{metric}.{statistic}")
    assert measured.n == figures["n"]
    if figures["n"] < ENOUGH[statistic]:
        assert measured.value is None
        return
    figure = figures[statistic] if statistic == "mean" else figures[statistic]["linear"]
    assert measured.value == pytest.approx(figure / 1000, **rounded)


def test_times_of_trajectories_are_the_same(run: Run) -> None:
    capture, expected = run
    figures = expected["trajectory_latency_seconds"]
    measured = measure(capture, "trajectory_latency.p50")
    assert (measured.n, measured.value) == (figures["n"], pytest.approx(figures["p50"]["linear"], **rounded))
    assert measure(capture, "trajectory_latency.mean").value == pytest.approx(figures["mean"], **rounded)


def test_reuse_is_the_same_over_completed_requests_with_a_row(run: Run) -> None:
    capture, expected = run
    measured = measure(capture, "kv_reuse_fraction")
    figures = expected["engine_reuse_with_row"]
    assert (measured.n, measured.value) == (figures["n"], pytest.approx(figures["fraction"], **rounded))


def test_wasted_tokens_are_the_same_counted_by_row_and_without_one_by_usage(run: Run) -> None:
    capture, expected = run
    folder = CAPTURES / capture.name
    rows = [line.get("event", line) for file in sorted(folder.glob("request-trace*")) for line in read(file)[0]]
    lines = read_by_time(folder, "attempts")
    requests = pair([line for line in lines if line.get("level") == "request"])
    join([row for row in rows if row["event_type"] == "request_end"], requests)
    attempts = {line["attempt_id"] for line in lines if line.get("level") != "request"}
    accepted = {line["attempt_id"] for line in lines if line["event"] == "accepted"}
    made = dict.fromkeys(attempts, 0)
    for request in requests:
        if request.sent["attempt_id"] in made:
            source = request.ended if request.row is None else request.row
            made[request.sent["attempt_id"]] += source.get("output_tokens", 0)
    wasted = 1 - sum(made[name] for name in accepted) / sum(made.values())
    assert measure(capture, "wasted_token_fraction").value == pytest.approx(wasted)
    if not expected["without_row"]["completed_lost"]["count"]:
        figure = expected["output_tokens"]["rows"]["wasted_fraction"]
        assert wasted == pytest.approx(figure, **rounded)


def test_the_checks_say_of_each_capture_what_happened_to_it(run: Run) -> None:
    capture, expected = run
    lost = expected["without_row"]["completed_lost"]["count"]
    cut = not all(segment["whole"] for segment in expected["segments"].values())
    found = {
        name: run_check(capture, name).status for name in ("shards_are_whole", "rows_fit_schema", "requests_are_unique")
    }
    assert found == {
        "shards_are_whole": "error" if cut else "pass",
        "rows_fit_schema": "pass",
        "requests_are_unique": "pass",
    }
    assert run_check(capture, "requests_are_joined").status == ("fail" if lost else "pass")
