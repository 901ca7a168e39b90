"""RL Trace Observer: spans become steps, attempts and requests; the process record gives clocks and files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from samples import FOLDER, document, records, sample, told, written

from pytest_rlserve.checks import run_check
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

NAME = "rl_trace_observer.chrome.jsonl"
PROCESS = "rl_trace_process.json"
T = 1_790_000_000.0


def test_a_global_step_is_a_step_from_start_to_finish() -> None:
    capture = sample(NAME)
    assert told(capture.control_events, "event", "t", "step", "run") == [
        ("step_started", T, 3, "session_x-job-1"),
        ("step_finished", T + 42, 3, "session_x-job-1"),
    ]


def test_sessions_are_the_attempts() -> None:
    attempts = sample(NAME).derive(ledger).attempts
    assert [(a.attempt_id, a.get("group_id"), a.outcome) for a in attempts] == [
        ("u0_0_0", "u0", "completed"),
        ("u0_1_0", "u0", "completed"),
        ("u1_0_0", "u1", "completed"),
        ("u1_1_0", "u1", "completed"),
        ("u2_0_0", "u2", "completed"),
    ]
    assert [a.ended_at for a in attempts] == [T + 4.4, T + 7.15, T + 9.9, T + 12.65, T + 15.4]


def test_requests_overlap_and_each_keeps_its_own_end_and_version() -> None:
    requests = sample(NAME).derive(ledger).requests
    assert [(r.name, r.attempt_id, r.dispatched_at, r.ended_at) for r in requests] == [
        ("srv-0000", "traj-00", T + 1, T + 4),
        ("srv-0001", "traj-00", T + 1.5, T + 6.75),
        ("srv-0002", "traj-01", T + 2, T + 9.5),
        ("srv-0003", "traj-01", T + 2.5, T + 12.25),
        ("srv-0004", "traj-02", T + 3, T + 15),
    ]
    assert {r.get("policy") for r in requests} == {"3"}
    assert {r.get("step") for r in requests} == {4}


def test_a_request_that_is_sent_later_and_ends_first_keeps_its_own_end(tmp_path: Path) -> None:
    spans = [record for record in records(NAME) if record["name"] == "rollout_request"][:2]
    spans[1]["dur"] = 1e6
    requests = written(tmp_path / "x.chrome.jsonl", *spans).derive(ledger).requests
    assert [(r.name, r.ended_at) for r in requests] == [("srv-0000", T + 4), ("srv-0001", T + 2.5)]


def test_what_a_span_cannot_tell_stays_unknown() -> None:
    capture = sample(NAME)
    counts = capture.derive(ledger).counts("attempt")
    assert counts is not None
    assert (counts.dispatched, counts.completed, counts.canceled, counts.failed) == (None, 5, None, 0)
    assert run_check(capture, "attempts_reconcile").status == "inconclusive"


def test_other_spans_are_kept_as_seconds() -> None:
    assert told(sample(NAME).step_metrics, "step", "t", "target", "name", "value") == [
        (4, T + 0.2, "host-a_7001/rollout_batches", "rollout_batch (s)", 29.0),
        (None, T + 1, "host-b_8001/replica_0", "vllm_generate (s)", 14.0),
        (3, T + 30, "host-a_7001/trainer", "train_batch (s)", 9.5),
        (None, T + 31, "host-c_9001/rank_0", "actor_update (s)", 8.0),
    ]


def test_the_engines_request_id_joins_its_own_log(tmp_path: Path) -> None:
    shutil.copy(FOLDER / NAME, tmp_path)
    line = records("sglang-request-metrics-20260921_14.log")[0] | {"id": "srv-0003"}
    written(tmp_path / "sglang-request-metrics-20260921_14.log", line)
    owners = open_capture(tmp_path).derive(join).owners
    assert [(owner.name, owner.attempt_id) for owner in owners.values()] == [("srv-0003", "traj-01")]


def test_an_event_of_another_phase_is_counted_only(tmp_path: Path) -> None:
    first, *_ = records(NAME)
    capture = written(tmp_path / "x.chrome.jsonl", first, {**first, "ph": "i"})
    assert capture.sources[0].rows == 2
    assert capture.control_events.num_rows == 2


def test_a_process_record_gives_the_offset_of_its_clocks() -> None:
    assert told(sample(PROCESS).step_metrics, "t", "target", "value") == [(T, "host-a_7002", T - 812)]


def test_a_file_that_the_process_wrote_and_that_is_not_there_is_missed(tmp_path: Path) -> None:
    (warning,) = sample(PROCESS).findings
    assert (warning.severity, warning.check) == ("warning", "shards_are_whole")
    assert "rl-insight-host-a-pid-7002.chrome.jsonl" in warning.message
    shutil.copy(FOLDER / PROCESS, tmp_path)
    shutil.copy(FOLDER / NAME, tmp_path / "rl-insight-host-a-pid-7002.chrome.jsonl")
    assert open_capture(tmp_path).findings == ()


def test_another_version_of_the_process_record_is_refused(tmp_path: Path) -> None:
    (finding,) = written(tmp_path / "p.json", document(PROCESS) | {"schema_version": 2}).findings
    assert (finding.severity, finding.message) == ("error", "schema_version 2 is not supported, only 1")
