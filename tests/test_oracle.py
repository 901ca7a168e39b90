"""The headline figures of the committed captures, stated by hand, and the data they are counted from."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from oracle import CAPTURES, expected, pair, read, spread, window

if TYPE_CHECKING:
    from pathlib import Path

DATA = CAPTURES.parent
EXAMPLE = DATA.parent.parent / "examples" / "baseline_kv"
BASELINES = ("baseline_kv_1", "baseline_kv_2", "baseline_kv_3")
Figures = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def figures() -> Figures:
    found: Figures = json.loads((CAPTURES / "expected.json").read_text(encoding="utf-8"))
    return found


def served(figures: Figures, capture: str) -> tuple[int, int]:
    share = figures[capture]["traceable_served"]
    return share["numerator"], share["denominator"]


def test_the_committed_figures_are_what_the_oracle_counts_byte_for_byte() -> None:
    assert (CAPTURES / "expected.json").read_bytes() == expected().encode()


@pytest.mark.parametrize("capture", [*BASELINES, "regressed_half_workers_1"])
def test_a_full_run_dispatches_832_requests_and_all_of_them_end(figures: Figures, capture: str) -> None:
    found = figures[capture]["requests"]
    assert (found["completed"], found["canceled"], found["failed"], found["open"]) == (790, 34, 8, 0)
    assert found["dispatched"] == 832 == 790 + 34 + 8
    assert found["retried"] == 25


def test_the_11_requests_without_a_row_are_6_with_n_2_and_5_with_404(figures: Figures) -> None:
    found = figures["baseline_kv_1"]
    missing = found["without_row"]
    assert found["rows"] == found["rows_joined"] == 821 == 832 - 11
    assert (missing["completed_n"]["count"], missing["failed_404"]) == (6, 5)
    assert missing["completed_lost"]["ids"] == missing["canceled"]["ids"] == []
    assert missing["failed_by_other_status"] == {}


def test_one_request_canceled_at_once_leaves_no_row_in_baseline_kv_2(figures: Figures) -> None:
    assert [figures[capture]["rows"] for capture in BASELINES] == [821, 820, 821]
    assert [figures[capture]["without_row"]["canceled"]["count"] for capture in BASELINES] == [0, 1, 0]


def test_195_attempts_end_and_every_completed_one_is_decided(figures: Figures) -> None:
    found = figures["baseline_kv_1"]["attempts"]
    assert (found["completed"], found["canceled"], found["failed"], found["open"]) == (178, 14, 3, 0)
    assert found["dispatched"] == 195 == 178 + 14 + 3
    assert (found["accepted"], found["rejected"], found["pending"], found["retried"]) == (103, 75, 0, 3)


def test_54_requests_of_baseline_kv_1_belong_to_no_attempt_of_a_sample(figures: Figures) -> None:
    assert figures["baseline_kv_1"]["requests_of_no_attempt"] == {"prefix_prime": 48, "unnamed": 6}


def test_the_response_id_joins_all_rows_but_those_of_requests_that_saw_no_answer(figures: Figures) -> None:
    keys = figures["baseline_kv_1"]["rows_joined_by"]
    assert keys == {"response_id": 784 + 14, "x_request_id": 20 + 3, "session": 0, "none": 0}


def test_the_three_baselines_accept_about_8_8_trajectories_in_a_gate_open_second(figures: Figures) -> None:
    rates = [figures[capture]["window"]["gate_open_rate"] for capture in BASELINES]
    assert rates == pytest.approx([8.75, 8.90, 8.79], abs=0.005)


def test_half_the_workers_accept_30_percent_less_although_they_reuse_more(figures: Figures) -> None:
    baseline, current = figures["baseline_kv_1"], figures["regressed_half_workers_1"]
    ratio = current["window"]["gate_open_rate"] / baseline["window"]["gate_open_rate"]
    assert ratio == pytest.approx(0.70, abs=0.01)
    assert current["engine_reuse"]["fraction"] > baseline["engine_reuse"]["fraction"]


@pytest.mark.parametrize(
    ("capture", "lost", "share"),
    [("baseline_kv_1", 0, (784, 784)), ("killed_2", 38, (329, 367)), ("lossy_1", 14, (1590, 1604))],
)
def test_lost_rows_show_in_traceable_served_and_nowhere_else(
    figures: Figures, capture: str, lost: int, share: tuple[int, int]
) -> None:
    found = figures[capture]
    assert found["without_row"]["completed_lost"]["count"] == lost
    assert served(figures, capture) == share
    assert found["rows_joined"] == found["rows"]
    assert all(segment["whole"] for segment in found["segments"].values())


def test_121_whole_rows_come_out_of_the_cut_segment_of_killed_1(figures: Figures) -> None:
    assert figures["killed_1"]["segments"] == {
        "request-trace.000000.jsonl.gz": {"lines": 300, "whole": True},
        "request-trace.000001.jsonl.gz": {"lines": 121, "whole": False},
    }
    assert served(figures, "killed_1") == (400, 578)


def test_engine_reuse_is_0_645_over_requests_with_a_row_and_0_644_over_all(figures: Figures) -> None:
    found = figures["baseline_kv_1"]
    assert found["engine_reuse_with_row"]["fraction"] == pytest.approx(0.645, abs=0.0005)
    assert found["engine_reuse"]["fraction"] == pytest.approx(0.644, abs=0.0005)
    assert found["row_reuse"]["fraction"] == pytest.approx(0.631, abs=0.0005)


def test_the_server_finished_five_requests_that_the_client_of_payload_1_gave_up(figures: Figures) -> None:
    found = figures["payload_1"]
    assert found["canceled_yet_finished"]["count"] == 5
    assert set(found["kinds"]) == {"request_end", "request_payload", "tool_start", "tool_end", "tool_error"}
    assert served(figures, "payload_1") == (82, 82)


def test_a_cut_member_gives_its_whole_lines_and_says_so(tmp_path: Path) -> None:
    lines = [json.dumps({"i": i, "noise": hashlib.sha256(bytes([i])).hexdigest()}) + "\n" for i in range(40)]
    first, second = (gzip.compress("".join(part).encode(), mtime=0) for part in (lines[:10], lines[10:]))
    path = tmp_path / "request-trace.000000.jsonl.gz"
    path.write_bytes(first + second[: -len(second) // 3])
    found, whole = read(path)
    assert not whole
    assert 10 < len(found) < 40
    assert [line["i"] for line in found] == list(range(len(found)))


def test_a_last_line_without_a_line_end_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "request-trace.jsonl"
    path.write_text('{"i": 0}\n\n{"i": 1}', encoding="utf-8")
    assert read(path) == ([{"i": 0}, {"i": 1}], True)


def test_an_x_request_id_sent_twice_makes_two_requests() -> None:
    events = ("dispatched", "completed", "dispatched", "canceled")
    requests = pair([{"event": event, "attempt_id": "a", "x_request_id": "x"} for event in events])
    assert [request.outcome for request in requests] == ["completed", "canceled"]


def test_a_gate_that_closes_and_never_opens_again_is_closed_to_the_end_of_the_window() -> None:
    control = [
        {"event": event, "t": float(t)}
        for t, event in (
            (0, "gate_closed"),
            (10, "step_started"),
            (13, "gate_opened"),
            (20, "step_finished"),
            (21, "step_started"),
            (24, "gate_closed"),
            (30, "step_finished"),
        )
    ]
    accepted = [{"event": "accepted", "t": t} for t in (9.0, 20.0, 30.0, 31.0)]
    found = window(control, accepted)
    assert (found["wall_seconds"], found["gate_open_seconds"], found["accepted"]) == (20.0, 11.0, 2)


def test_percentiles_by_nearest_rank_and_linear_differ_as_the_textbook_says() -> None:
    found = spread([50.0, 15.0, 20.0, 35.0, 40.0])
    assert found["p50"] == {"nearest": 35.0, "linear": 35.0}
    assert found["p95"] == {"nearest": 50.0, "linear": 48.0}


@pytest.mark.parametrize("case", sorted((DATA / "cases").iterdir()), ids=lambda path: path.name)
def test_the_inputs_of_a_case_are_the_bytes_that_its_answers_were_made_for(case: Path) -> None:
    inputs = json.loads((case / "expected.json").read_text(encoding="utf-8"))["inputs"]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in case.iterdir()}
    assert {name: facts["sha256"] for name, facts in inputs.items()} == {
        name: digest for name, digest in found.items() if name != "expected.json"
    }


def test_the_example_capture_is_baseline_kv_1() -> None:
    capture = CAPTURES / "baseline_kv_1"
    assert {path.name: path.read_bytes() for path in EXAMPLE.iterdir()} == {
        path.name: path.read_bytes() for path in capture.iterdir()
    }
