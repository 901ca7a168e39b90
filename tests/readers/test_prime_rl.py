"""prime-rl: an episode is an attempt, its traces are sessions, what was shipped is accepted, the rest undecided."""

from __future__ import annotations

import copy
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import jsonl, request_end
from samples import FOLDER, numbers, records, sample, told, written

from pytest_rlserve.checks import run_check
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

ALL = "prime_rl_step_12_train_all.traces.jsonl"
SHIPPED = "prime_rl_step_12_train_effective.traces.jsonl"
METRICS = "prime_rl_metrics.jsonl"
T = 1_790_000_000.0


def episode(number: int) -> str:
    return f"{0xE00000 + number:032x}"


@pytest.fixture
def both(tmp_path: Path) -> Capture:
    """`all` and `effective` of one step, laid out as prime-rl does."""
    for name, kind in ((ALL, "all"), (SHIPPED, "effective")):
        folder = tmp_path / "run" / "rollouts" / "step_12" / "train" / kind
        folder.mkdir(parents=True)
        shutil.copy(FOLDER / name, folder / "traces.jsonl")
    shutil.copy(FOLDER / METRICS, tmp_path / "run" / "metrics.jsonl")
    return open_capture(tmp_path / "run")


def test_seven_episodes_end_as_recorded_and_four_are_accepted(both: Capture) -> None:
    attempts = {a.attempt_id: (a.outcome, a.acceptance) for a in both.derive(ledger).attempts}
    assert attempts == {
        episode(0): ("completed", "accepted"),
        episode(1): ("completed", "accepted"),
        episode(2): ("completed", None),
        episode(3): ("failed", None),
        episode(4): ("completed", "accepted"),
        episode(5): ("completed", "accepted"),
        episode(6): ("completed", None),
    }
    assert both.derive(ledger).findings == ()


def test_what_was_canceled_in_flight_or_filtered_is_not_known(both: Capture) -> None:
    counts = both.derive(ledger).counts("attempt")
    assert counts is not None
    assert (counts.completed, counts.failed, counts.accepted) == (6, 1, 4)
    assert (counts.dispatched, counts.canceled, counts.open, counts.rejected, counts.pending) == (None,) * 5
    reconcile = run_check(both, "attempts_reconcile")
    assert (reconcile.status, "canceled" in (reconcile.why or "")) == ("inconclusive", True)


def test_the_lag_is_the_frameworks_own_number(both: Capture) -> None:
    assert measure(both, "policy_lag.mean").value == 0.75
    assert numbers(both, "off_policy/mean") == [0.75, 0.75, 0.75]
    assert measure(both, "fresh_fraction", Scope(max_lag=0)).value == 0.25


def test_an_episodes_times_are_when_its_agents_began_and_were_done() -> None:
    attempts = sample(ALL).derive(ledger).attempts
    assert [(a.dispatched_at, a.ended_at) for a in attempts[:2]] == [(T + 5, T + 11.5), (T + 5.75, T + 12.85)]


def test_an_unset_time_is_unknown_and_not_the_year_1970(tmp_path: Path) -> None:
    record = copy.deepcopy(records(ALL)[0])
    record["traces"][0]["timing"] = {"start": 0.0, "agent": {"start": 0.0, "end": 0.0}}
    (account,) = written(tmp_path / ALL, record).derive(ledger).attempts
    assert (account.dispatched_at, account.ended_at, account.outcome) == (None, None, "completed")


def test_cached_tokens_are_prompt_tokens_too() -> None:
    first, _, _, failed, *_ = sample(ALL).derive(ledger).attempts
    assert [first.get(name) for name in ("prompt_tokens", "output_tokens", "cached_tokens", "turns")] == [
        490,
        128,
        128,
        2,
    ]
    assert [failed.get(name) for name in ("prompt_tokens", "output_tokens", "turns")] == [None, None, 2]


def test_a_failure_is_named_by_its_type_alone(tmp_path: Path) -> None:
    reasons = {a.attempt_id: a.get("reason") for a in sample(ALL).derive(ledger).attempts}
    assert reasons[episode(3)] == "ProviderError"
    assert set(reasons.values()) == {"ProviderError", None}
    late = records(ALL)[3] | {"is_timeout": True}
    assert [a.get("reason") for a in written(tmp_path / ALL, late).derive(ledger).attempts] == ["timeout"]


def test_a_try_that_was_repeated_inside_an_episode_is_no_failure(tmp_path: Path) -> None:
    record = records(ALL)[0] | {"errors": [{"type": "ProviderError"}]}
    (account,) = written(tmp_path / ALL, record).derive(ledger).attempts
    assert (account.outcome, account.get("reason")) == ("completed", None)


def test_the_trace_id_is_the_session_that_dynamo_records(tmp_path: Path) -> None:
    rows = [request_end(f"r{n}", 5 + n, 6 + n, session=f"{0xABC000 + n % 2:032x}") for n in range(4)]
    (tmp_path / "request-trace.jsonl").write_bytes(jsonl(rows))
    written(tmp_path / ALL, *records(ALL)[:2])
    owners = open_capture(tmp_path).derive(join).owners
    assert [owners[n].attempt_id for n in range(4)] == [episode(0), episode(1), episode(0), episode(1)]


def test_every_agent_of_an_episode_brings_its_session(tmp_path: Path) -> None:
    record = copy.deepcopy(records(ALL)[0])
    record["traces"].append(copy.deepcopy(records(ALL)[1]["traces"][0]))
    rows = [request_end(f"r{n}", 5, 6, session=f"{0xABC000 + n:032x}") for n in range(2)]
    (tmp_path / "request-trace.jsonl").write_bytes(jsonl(rows))
    written(tmp_path / ALL, record)
    capture = open_capture(tmp_path)
    assert {owner.attempt_id for owner in capture.derive(join).owners.values()} == {episode(0)}
    assert capture.derive(join).joined == 2


def test_an_evaluation_is_marked_and_never_accepted(tmp_path: Path) -> None:
    record: dict[str, Any] = copy.deepcopy(records(SHIPPED)[0])
    record["run"]["work"]["type"] = "eval"
    assert not written(tmp_path / "step_12" / "eval" / "effective" / "traces.jsonl", record).has("attempt_events")
    (account,) = written(tmp_path / "step_12" / "eval" / "all" / "traces.jsonl", record).derive(ledger).attempts
    assert account.get("purpose") == "eval"


def test_frozen_work_has_no_version() -> None:
    last = sample(ALL).derive(ledger).attempts[-1]
    assert (last.attempt_id, last.get("policy"), last.get("policy_end")) == (episode(6), None, None)


def test_the_metrics_file_gives_numbers_and_the_ends_of_steps() -> None:
    capture = sample(METRICS)
    assert capture.step_metrics.num_rows == sum(len(record) - 2 for record in records(METRICS))
    assert numbers(capture, "dispatcher/cancelled/train") == [0, 2, 0]
    assert told(capture.control_events, "event", "step", "t", "policy_version") == [
        ("step_finished", 11, T + 440, "10"),
        ("step_finished", 12, T + 480, "11"),
        ("step_finished", 13, T + 520, "12"),
    ]


def test_acceptances_without_a_time_give_no_throughput_and_not_zero(tmp_path: Path) -> None:
    first = records(ALL)[0]
    episodes = [{**first, "id": f"e{number}"} for number in range(40)]
    written(tmp_path / "step_12" / "train" / "all" / "traces.jsonl", *episodes)
    written(tmp_path / "step_12" / "train" / "effective" / "traces.jsonl", *episodes)
    steps = [{"event": event, "t": T + t, "step": 12} for event, t in (("step_started", 0), ("step_finished", 30))]
    written(tmp_path / "control.jsonl", *steps)
    for name in ("accepted_trajectory_throughput", "fresh_trajectory_throughput"):
        measured = measure(open_capture(tmp_path), name)
        assert measured.value is None
        assert "when attempts were accepted" in (measured.why or "")
