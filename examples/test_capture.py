"""Assertions on one capture, as a user would write them. Run: pytest --rl-trace=examples/baseline_kv examples."""

import pytest

from pytest_rlserve import (
    assert_joined,
    assert_kv_reuse,
    assert_latency,
    assert_limit,
    assert_reconciled,
    assert_valid,
)


def test_every_row_fits_its_schema(rl_trace):
    assert_valid(rl_trace)


def test_every_attempt_is_accounted_for(rl_trace):
    assert_reconciled(rl_trace, open_attempts=0)


def test_every_completed_request_was_traced(rl_trace):
    assert_joined(rl_trace, traceable=0.999)


def test_group_members_share_their_prompt(rl_trace):
    assert_kv_reuse(rl_trace, floor="60%")


@pytest.mark.parametrize(("metric", "budgets"), [("ttft", {"p50": "80ms", "p95": "120ms"}), ("itl", {"p95": "25ms"})])
def test_latency_keeps_to_its_budget(rl_trace, metric, budgets):
    assert_latency(rl_trace, metric, **budgets)


def test_little_work_is_lost_to_failures(rl_trace):
    assert_limit(rl_trace, "failed_fraction", "<= 5%")
