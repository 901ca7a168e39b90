"""The helpers for stale reuse and updates, in tests of one's own."""

from __future__ import annotations

import pytest
from oracle import CAPTURES

from pytest_rlserve import Capture, assert_no_stale_kv, assert_updates, open_capture
from pytest_rlserve.gate.perturb import PERTURBATIONS


def recorded(name: str) -> Capture:
    return open_capture(CAPTURES / name)


def test_a_healthy_run_holds() -> None:
    assert_no_stale_kv(recorded("baseline_kv_1"))
    assert_updates(recorded("baseline_kv_1"))


def test_stale_reuse_fails_with_its_worker_and_tokens() -> None:
    damaged = PERTURBATIONS["a worker keeps its blocks over a new version"](recorded("baseline_kv_1"))
    with pytest.raises(AssertionError, match=r"worker \d+ reused [\d,]+ tokens in \d+ requests"):
        assert_no_stale_kv(damaged)


def test_a_worker_that_an_update_missed_fails_on_both_accounts() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_updates(recorded("stale_worker_1"))
    assert "update 2 missed worker 3264423129048537586" in str(failed.value)
    assert "served 68 requests with version 1 instead of 2" in str(failed.value)


def test_what_cannot_be_told_does_not_hold() -> None:
    with pytest.raises(AssertionError, match="cannot be told"):
        assert_updates(recorded("lossy_1"))
