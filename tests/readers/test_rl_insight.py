"""RL-Insight's client events: sessions are attempts, metrics are numbers, a busy replica is no request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from samples import sample, told, written

from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from pathlib import Path

NAME = "rl_insight_client_events.jsonl"
S = 1_000_000_000


def session(status: str, **fields: Any) -> dict[str, Any]:
    said = {"uid": "u0", "session": 0, "traj": 0, "status": status, "global_steps": 3, **fields}
    times = {"start_time_ns": 1_790_000_001 * S, "end_time_ns": 1_790_000_003 * S}
    return {"kind": "trace", "name": "agent_session", "attributes": said, **times}


def test_a_busy_replica_is_seconds_and_no_request() -> None:
    capture = sample(NAME)
    assert told(capture.step_metrics, "t", "target", "name", "value") == [
        (1_790_000_001.0, "host-b_8001/replica_0", "vllm_generate (s)", 14.0),
        (None, "replica=0", "rollout_queue_size", 12.0),
    ]
    assert not capture.has("attempt_events")
    assert not capture.has("requests")


@pytest.mark.parametrize(
    ("status", "outcome"), [("success", "completed"), ("failed", "failed"), ("aborted", "canceled")]
)
def test_a_session_is_an_attempt_with_the_outcome_its_status_names(tmp_path: Path, status: str, outcome: str) -> None:
    capture = written(tmp_path / "e.jsonl", session(status))
    (account,) = capture.derive(ledger).attempts
    assert (account.attempt_id, account.get("group_id"), account.outcome) == ("u0_0_0", "u0", outcome)
    assert (account.dispatched_at, account.ended_at) == (1_790_000_001.0, 1_790_000_003.0)
    assert (account.get("step"), account.get("policy")) == (3, None)


def test_a_status_that_nobody_explained_gives_no_outcome_and_a_warning(tmp_path: Path) -> None:
    capture = written(tmp_path / "e.jsonl", session("paused"))
    assert [account.outcome for account in capture.derive(ledger).attempts] == [None]
    (warning,) = capture.findings
    assert (warning.severity, warning.line) == ("warning", 1)
    assert "paused" in warning.message


def test_dispatched_and_open_stay_unknown_since_running_sessions_leave_nothing(tmp_path: Path) -> None:
    counts = written(tmp_path / "e.jsonl", session("success")).derive(ledger).counts("attempt")
    assert counts is not None
    assert (counts.dispatched, counts.completed, counts.open) == (None, 1, None)


def test_an_unknown_kind_is_counted_and_said(tmp_path: Path) -> None:
    capture = written(tmp_path / "e.jsonl", session("success"), {"kind": "log", "name": "x"})
    assert capture.sources[0].rows == 2
    assert [finding.severity for finding in capture.findings] == ["warning"]
