"""Lag: trained version minus generating version, of the declared kind, and never a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, completed, control, opened, request_end

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.freshness import lags
from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def lag(capture: Capture, kind: Any = "start") -> float:
    _, (found,) = lags(capture, Scope(freshness=kind))
    return float(found)


MIXED = {"policy": 4, "policy_end": 7, "trained_version": 9, "tokens_by_version": {"4": 30, "5": 20, "7": 50}}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("start", 5), ("end", 2), ("worst", 5), ("token_mean", 9 - (4 * 30 + 5 * 20 + 7 * 50) / 100)],
)
def test_each_kind_of_lag_is_what_it_says(folder: Path, kind: str, expected: float) -> None:
    assert lag(opened(folder, attempts=completed("a", 0, 5, **MIXED)), kind) == pytest.approx(expected)


def test_the_worst_lag_is_that_of_the_oldest_weights_whenever_they_were_used(folder: Path) -> None:
    fields = {"policy": 5, "policy_end": 7, "trained_version": 9, "tokens_by_version": {"3": 1, "5": 9}}
    assert lag(opened(folder, attempts=completed("a", 0, 5, **fields)), "worst") == 6


def test_version_zero_is_a_version(folder: Path) -> None:
    fields = {"policy": 0, "trained_version": 0, "tokens_by_version": {"0": 10}}
    capture = opened(folder, attempts=completed("a", 0, 5, **fields))
    assert [lag(capture, kind) for kind in ("start", "end", "worst", "token_mean")] == [0, 0, 0, 0]


def test_the_mean_over_tokens_is_not_made_up_where_the_tokens_are_not_recorded(folder: Path) -> None:
    moved = opened(folder, attempts=completed("a", 0, 5, policy=4, policy_end=7, trained_version=9))
    with pytest.raises(NotMeasurable, match="tokens by version of attempt a"):
        lag(moved, "token_mean")
    still = opened(folder.with_name("d"), attempts=completed("a", 0, 5, policy=4, policy_end=4, trained_version=9))
    assert lag(still, "token_mean") == 5


def served_by(worker: int, received: float = 2) -> dict[str, Any]:
    events = completed("a", 0, 5, trained_version=9, target_policy=8)
    events[0] |= {"session_id": "s"}
    rows = [
        request_end("r2", received + 1, session="s", worker={"decode_worker_id": 99}),
        request_end("r1", received, session="s", worker={"decode_worker_id": worker}),
    ]
    return {"attempts": events, "rows": rows}


def test_without_a_version_of_its_own_an_attempt_has_that_of_its_first_worker_when_it_came(folder: Path) -> None:
    versions = [
        control("version", 3, worker_id=7, policy_version=8),
        control("version", 1, worker_id=7, policy_version=6),
        control("version", 0, worker_id=7, policy_version=5),
        control("version", 1.5, worker_id=99, policy_version=7),
    ]
    assert lag(opened(folder, control=versions, **served_by(7))) == 9 - 6
    assert lag(opened(folder.with_name("d"), control=versions, **served_by(99))) == 9 - 7


def test_a_version_told_of_the_whole_fleet_is_every_workers(folder: Path) -> None:
    versions = [control("version", 1, policy_version=6), control("version", 0, worker_id=7, policy_version=5)]
    assert lag(opened(folder, control=versions, **served_by(7))) == 9 - 6


def test_the_version_asked_for_is_never_taken_for_the_one_that_generated(folder: Path) -> None:
    with pytest.raises(NotMeasurable, match="the generating policy version of attempt a is not recorded"):
        lag(opened(folder, **served_by(7)))


def test_the_trained_version_is_that_of_the_step_where_the_acceptance_does_not_say(folder: Path) -> None:
    events = [*completed("a", 0, 5, step=3)[:2], attempt("accepted", "a", 6, step=4, policy=7)]
    steps = [control("step_started", number, step=number, policy_version=number + 5) for number in (3, 4)]
    assert lag(opened(folder, attempts=events, control=steps)) == 9 - 7


@pytest.mark.parametrize(("missing", "which"), [("policy", "generating"), ("trained_version", "trained")])
def test_one_accepted_attempt_without_a_version_makes_the_lag_unknown(folder: Path, missing: str, which: str) -> None:
    fields = {"policy": 7, "trained_version": 8}
    events = completed("a", 0, 5, **fields) + completed("b", 0, 5, **{k: v for k, v in fields.items() if k != missing})
    with pytest.raises(NotMeasurable, match=f"the {which} policy version of attempt b"):
        lags(opened(folder, attempts=events), Scope())


@pytest.mark.parametrize("version", ["step-7", "nan", "inf"])
def test_versions_that_are_no_numbers_have_no_lag(folder: Path, version: str) -> None:
    capture = opened(folder, attempts=completed("a", 0, 5, policy=version, trained_version=8))
    with pytest.raises(NotMeasurable, match="not numbers"):
        lag(capture)


def fleet(folder: Path, *lag_of: int) -> Capture:
    """One accepted attempt for each lag, in a step of ten seconds."""
    events: list[Record] = []
    for number, one in enumerate(lag_of):
        events += completed(f"a{number}", 0, 5, policy=100 - one, trained_version=100)
    steps = [control("step_started", 0, step=0), control("step_finished", 10, step=0)]
    return opened(folder, attempts=events, control=steps)


def test_fresh_is_within_the_largest_lag_and_a_negative_lag_is_not_fresh(folder: Path) -> None:
    capture = fleet(folder, *[0] * 10, *[1] * 10, *[2] * 10, *[-1] * 10)
    for max_lag, fresh in ((0, 10), (1, 20), (2, 30), (1.5, 20)):
        scope = Scope(max_lag=max_lag)
        assert measure(capture, "fresh_fraction", scope).value == pytest.approx(fresh / 40)
        assert measure(capture, "fresh_trajectory_throughput", scope).value == pytest.approx(fresh / 10)


def test_rejected_attempts_have_no_part_in_freshness(folder: Path) -> None:
    events = completed("a", 0, 5, policy=7, trained_version=8) + completed("b", 0, 5, "rejected")
    measured = measure(opened(folder, attempts=events), "fresh_fraction")
    assert (measured.value, measured.n) == (1.0, 1)


def test_without_an_accepted_attempt_nothing_is_fresh_or_stale(folder: Path) -> None:
    measured = measure(opened(folder, attempts=completed("a", 0, 5, "rejected")), "fresh_fraction")
    assert (measured.value, measured.why) == (None, "no attempt was accepted")
