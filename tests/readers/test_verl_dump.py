"""verl's dumps: samples that were trained on, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hand_made import jsonl, request_end
from samples import records, sample, told, written

from pytest_rlserve.checks import run_check
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import Counts, ledger
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

NAME = "verl_rollout_dump_step3.jsonl"
LEGACY = {"input": "q", "output": "a", "gts": "", "score": 1, "step": 7}


def test_every_dumped_sample_is_an_accepted_attempt_of_its_prompt() -> None:
    events = sample(NAME).attempt_events
    assert told(events, "event", "attempt_id", "group_id", "step", "reward", "t") == [
        ("accepted", "u0_0_0", "u0", 3, 0.0, None),
        ("accepted", "u0_1_0", "u0", 3, 1.0, None),
        ("accepted", "u1_0_0", "u1", 3, 0.0, None),
        ("accepted", "u1_1_0", "u1", 3, 1.0, None),
        ("accepted", "u2_0_0", "u2", 3, 0.0, None),
        ("accepted", "u2_1_0", "u2", 3, 1.0, None),
    ]


def test_only_the_accepted_are_counted_the_rest_is_unknown() -> None:
    capture = sample(NAME)
    assert capture.sources[0].covers == ("accepted",)
    assert capture.derive(ledger).counts("attempt") == Counts(*[None] * 6, accepted=6, rejected=None, pending=None)
    assert capture.derive(ledger).findings == ()


def test_the_legacy_request_id_joins_every_turn_of_the_trajectory(tmp_path: Path) -> None:
    rows = [request_end(f"r{turn}", turn, turn + 1, session="s", x_request_id="t-1") for turn in range(3)]
    (tmp_path / "request-trace.jsonl").write_bytes(jsonl(rows))
    written(tmp_path / "7.jsonl", LEGACY | {"request_id": "t-1"})
    capture = open_capture(tmp_path)
    assert {owner.attempt_id for owner in capture.derive(join).owners.values()} == {"t-1"}
    assert run_check(capture, "requests_are_joined").status == "pass"


def test_a_sample_without_an_id_is_named_by_its_place(tmp_path: Path) -> None:
    capture = written(tmp_path / "7.jsonl", LEGACY, LEGACY)
    assert told(capture.attempt_events, "attempt_id", "group_id") == [("7.jsonl:1", None), ("7.jsonl:2", None)]
    assert capture.derive(ledger).findings == ()


def test_a_dump_beside_rl_insights_sessions_makes_one_account_of_both(tmp_path: Path) -> None:
    span: dict[str, Any] = {"uid": "u0", "session": "1", "traj": "0", "status": "success", "global_steps": 3}
    times = {"start_time_ns": 1_790_000_001_000_000_000, "end_time_ns": 1_790_000_002_000_000_000}
    written(tmp_path / "events.jsonl", {"kind": "trace", "name": "agent_session", "attributes": span, **times})
    written(tmp_path / "3.jsonl", records(NAME)[1])
    (account,) = open_capture(tmp_path).derive(ledger).attempts
    assert (account.outcome, account.acceptance) == ("completed", "accepted")
    assert (account.dispatched_at, account.ended_at) == (1_790_000_001.0, 1_790_000_002.0)
