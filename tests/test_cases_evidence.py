"""Faults of evidence and accounting that others met in the wild, each with its right answer in expected.json.

The answers are read from there, not typed again. `must_say` is tested for its facts, not its wording.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from test_cases import CASES, Case, algebra, case, expect, foundations, tokens

from pytest_rlserve.checks import run_check
from pytest_rlserve.gate.limits import parse_limit
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.freshness import lags
from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

__all__ = ["case"]  # the fixture that every test here takes its case from

NUMBERS = ("10", "11", "14", "15", "16", "17", "18", "20", "25", "26", "28")


@pytest.mark.parametrize("folder", sorted(f for n in NUMBERS for f in CASES.glob(f"{n}_*")), ids=lambda f: f.name)
def test_the_inputs_are_the_ones_the_answers_are_about(folder: Path) -> None:
    inputs = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["inputs"]
    assert {p.name for p in folder.iterdir()} == {*inputs, "expected.json"}
    for name, facts in inputs.items():
        content = (folder / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (facts["bytes"], facts["sha256"])


def lag_by_attempt(capture: Capture) -> dict[str, float]:
    accounts, found = lags(capture, Scope())
    return {account.attempt_id: lag for account, lag in zip(accounts, found.tolist(), strict=True)}


# -- 10: four layouts under one schema name ---------------------------------------------------------------------


def test_case_10_rows_of_a_removed_schema_are_refused_and_named(case: Case) -> None:
    name = "agent_trace_v1.jsonl"
    expected = case.answer("schema", name)
    result = expect(expected["verdict"], case.opened(name), "rows_fit_schema")
    assert (result.observed, result.of) == (expected["exact"]["accepted"], expected["exact"]["rows"])
    assert "schema must be 'dynamo.request.trace.v1', is 'dynamo.agent.trace.v1'" in result.message()


def test_case_10_where_the_session_names_the_run_the_trajectory_is_the_rollout(case: Case) -> None:
    expected = case.exact("sessions")
    capture = case.opened("v1_june16_run_level_session.jsonl")
    sessions = capture.requests["session_id"].to_pylist()
    assert foundations(capture) == {"pass"}
    assert (len(sessions), len(set(sessions))) == (expected["rows"], expected["sessions_if_accepted"])


def test_case_10_rows_with_a_trajectory_alone_are_refused_line_by_line(case: Case) -> None:
    name = "v1_june23_trajectory_only.jsonl"
    expected = case.answer("schema", name)
    result = expect(expected["verdict"], case.opened(name), "rows_fit_schema")
    lines = [finding.line for finding in result.problems if finding.line]
    assert lines == expected["exact"]["bad_lines"]
    assert "agent_context.session_id is missing" in result.message()


def test_case_10_fields_that_a_later_version_adds_are_no_fault(case: Case) -> None:
    name = "v1_current_with_extra_fields.jsonl"
    expected = case.exact("schema", name)
    capture = case.opened(name)
    expect("pass", capture, "rows_fit_schema")
    assert capture.requests.num_rows == expected["request_end"]
    assert len(set(capture.requests["session_id"].to_pylist())) == expected["sessions"]


def test_case_10_another_version_and_an_unknown_event_are_refused_by_name(case: Case) -> None:
    assert "dynamo.request.trace.v2" in expect("invalid_input", case.opened("v2.jsonl"), "rows_fit_schema").message()
    result = expect("invalid_input", case.opened("unknown_event.jsonl"), "rows_fit_schema")
    assert [finding.line for finding in result.problems] == case.exact("schema", "unknown_event.jsonl")["bad_lines"]
    assert "request_begin" in result.message()


# -- 11, 14: rows that lack what somebody needs -----------------------------------------------------------------


def test_case_11_rows_with_and_without_a_session_count_alike_and_cannot_be_replayed(case: Case) -> None:
    expected = case.exact("schema")
    capture = case.opened("trace.jsonl")
    sessions = capture.requests["session_id"].to_pylist()
    assert foundations(capture) == {"pass"}
    assert {
        "request_end": len(sessions),
        "with_context": sum(one is not None for one in sessions),
        "without_context": sessions.count(None),
        "sessions": len({*sessions} - {None}),
    } == expected
    result = expect("fail", capture, "replay_ready")
    assert "h3, h4" in result.message()
    assert (result.observed, result.of) == (3, 5)


@pytest.mark.parametrize("name", ["trace.jsonl", "one_in_six.jsonl"])
def test_case_14_a_budget_on_a_field_that_is_not_there_is_not_observable(case: Case, name: str) -> None:
    expected = case.exact("TTFT", name)
    measured = measure(case.opened(name), "ttft.p95")
    assert measured.value is None
    assert f"ttft_ms is there for {expected['observed']} of {expected['rows']} rows" in (measured.why or "")


def test_case_14_absent_cached_tokens_are_not_zero(case: Case) -> None:
    capture = case.opened("trace.jsonl")
    assert capture.requests["cached_tokens"].null_count == case.exact("KV")["rows"]
    assert measure(capture, "kv_reuse_fraction").value is None


def test_case_14_what_is_there_is_counted(case: Case) -> None:
    capture = case.opened("trace.jsonl")
    assert {
        "request_end": capture.requests.num_rows,
        "output_tokens_total": tokens(capture),
    } == case.exact("counts")


# -- 15, 16: rows and attempts that do not meet -----------------------------------------------------------------


def test_case_15_attempts_on_untraced_routes_completed_and_have_no_serving_evidence(case: Case) -> None:
    expected = case.exact()
    capture = case.opened()
    joined = capture.derive(join)
    algebra(capture.derive(ledger).counts("attempt"), expected)
    unseen = [account for some in joined.without_row.values() for account in some]
    assert {
        "dispatched": 10,
        "completed": 10,
        "trace_rows": capture.requests.num_rows,
        "matched_attempts": len(joined.served),
        "attempts_without_row": len(unseen),
        "http_requests_without_row": len({one for account in unseen for one in account.x_request_ids}),
        "coverage": {"fraction": "2/5", "value": len(joined.served) / 10},
    } == expected


def test_case_15_the_six_are_named_with_the_reason_and_called_neither_lost_nor_failed(case: Case) -> None:
    message = expect(case.answer()["verdict"], case.opened(), "requests_are_joined").message()
    assert "6 of 10 completed attempts have no serving row" in message
    assert "n>1 (4)" in message
    assert "native /generate (2)" in message
    assert "lost" not in message
    assert run_check(case.opened(), "attempts_reconcile").status == "pass"


def test_case_16_equal_counts_are_no_join(case: Case) -> None:
    expected = case.exact()
    capture = case.opened()
    counts = capture.derive(ledger).counts("attempt")
    algebra(counts, expected)
    result = run_check(capture, "requests_are_joined")
    assert result.status == case.answer()["verdict"]
    assert (result.observed, result.of) == (expected["joined"], expected["trace_rows"])
    assert "joined 0 of 4 rows, and equal counts are no join" in (result.why or "")
    assert "0 of them carry an x-request-id or a session" in (result.why or "")
    assert "X-Dynamo-Session-ID" in (result.why or "")
    assert capture.derive(join).owners == {}


@pytest.mark.parametrize("name", ["outcomes_agree", "tokens_agree", "clocks_agree"])
def test_case_16_what_compares_both_sides_has_nothing_to_compare(case: Case, name: str) -> None:
    assert run_check(case.opened(), name).status == "inconclusive"


# -- 17, 18, 20: what became of attempts ------------------------------------------------------------------------


def test_case_17_tokens_of_canceled_and_failed_attempts_are_not_useful_output(case: Case) -> None:
    expected = case.exact()
    capture = case.opened()
    rows = capture.requests["output_tokens"].to_pylist()
    of: dict[str, int] = {}
    for number, owner in capture.derive(join).owners.items():
        for word in (owner.outcome, owner.acceptance):
            of[str(word)] = of.get(str(word), 0) + rows[number]
    assert {
        "output_tokens_completed": of["completed"],
        "output_tokens_all_rows": sum(rows),
        "output_tokens_accepted": of["accepted"],
    } == {name: value for name, value in expected.items() if name.startswith("output_tokens")}
    assert measure(capture, "wasted_token_fraction").value == pytest.approx(1 - 201 / 345)


def test_case_18_a_retry_nobody_recorded_wastes_tokens_and_is_no_second_attempt(case: Case) -> None:
    expected = case.exact()
    capture = case.opened()
    algebra(capture.derive(ledger).counts("attempt"), expected)
    joined = capture.derive(join)
    served = {account.attempt_id: joined.rows_of(account) for account in capture.derive(ledger).attempts}
    twice = {name: len(numbers) for name, numbers in served.items() if len(numbers) > 1}
    assert twice == expected["attempts_with_more_than_one_row"]
    assert sum(twice.values()) - len(twice) == expected["extra_rows"]
    assert tokens(capture) == expected["output_tokens_all_rows"]
    output = capture.requests["output_tokens"].to_pylist()
    either = sorted(output[number] for name in twice for number in served[name])
    assert either == [expected["output_tokens_wasted_min"], expected["output_tokens_wasted_max"]]
    assert "x_request_id dx1 has two serving rows" in expect("fail", capture, "attempts_reconcile").message()


def test_case_20_an_abort_that_was_reported_as_success_is_found_by_the_backends_reason(case: Case) -> None:
    expected = case.exact()
    result = expect(case.answer()["verdict"], case.opened(), "outcomes_agree")
    assert (result.observed, result.of) == (expected["consistent"], expected["completed"])
    messages = [finding.message for finding in result.problems]
    assert [message.partition(":")[0] for message in messages] == expected["contradicted"]
    assert "p2#1: backend finish reason cancelled" in messages[0]
    assert "p3#1: backend finish reason error" in messages[1]
    assert sum("the trainer accepted it" in one for one in messages) == expected["accepted_but_contradicted"]
    assert "shut down" not in result.message()  # an engine's own words may hold anything


# -- 25, 26: which policy ---------------------------------------------------------------------------------------


def test_case_25_a_version_that_falls_is_named_with_its_worker(case: Case) -> None:
    (fall,) = case.exact("version order")["decreases"]
    result = expect(case.answer("version order")["verdict"], case.opened(), "versions_advance")
    sentence = f"policy_version went from {fall['from']} to {fall['to']} on worker {fall['worker_id']}"
    assert any(sentence in finding.message for finding in result.problems)


def test_case_25_a_negative_lag_is_a_failure_and_never_fresh(case: Case) -> None:
    expected = case.exact("staleness")
    capture = case.opened()
    # p4 asked for version 56; its worker had 57 loaded, and what was merely asked for never counts: −56, not −55.
    assert lag_by_attempt(capture) == expected["staleness_by_attempt"] | {"p4#1": -56}
    message = expect(case.answer("staleness")["verdict"], capture, "versions_advance").message()
    for name in expected["negative"]:
        assert f"{name}: lag -56" in message
    assert measure(capture, "fresh_fraction", Scope(max_lag=2)).value == pytest.approx(4 / 6)
    assert measure(capture, "policy_lag.max").value == expected["max_if_negatives_are_ignored"]


def test_case_26_waiting_for_the_group_makes_a_sample_older(case: Case) -> None:
    expected = case.exact()
    capture = case.opened()
    assert lag_by_attempt(capture) == expected["at_acceptance"]
    largest = measure(capture, "policy_lag.max")
    assert largest.value == expected["max_at_acceptance"]
    assert "taken when it is trained on" in largest.definition["numerator"]
    fresh = measure(capture, "fresh_fraction", Scope(max_lag=2))
    assert fresh.value == pytest.approx(expected["fresh_accepted"] / 3)
    assert [name for name, lag in lag_by_attempt(capture).items() if lag > 2] == expected["violations"]


def test_case_26_a_limit_on_the_largest_lag_is_missed(case: Case) -> None:
    limit = parse_limit("policy_lag.max", f"<= {case.answer()['config']['max_staleness']} versions")
    measured = measure(case.opened(), "policy_lag.max")
    assert limit.judge(measured) == "failed"
    assert "missed its limit: 4.00 versions" in limit.message(measured)


# -- 28: what failed is no short latency ------------------------------------------------------------------------


def test_case_28_failed_rows_are_left_out_of_latency_and_said(case: Case) -> None:
    expected = case.exact("p50")
    measured = measure(case.opened(), "request_latency.p50")
    assert (measured.value, measured.n) == (expected["completed_median_ms"] / 1e3, expected["n_completed"])
    assert f"did not complete: {expected['n_excluded']} failed" in measured.excluded
    assert measure(case.opened(), "request_latency.mean").value == pytest.approx(expected["completed_mean_ms"] / 1e3)


def test_case_28_the_failures_themselves_are_counted(case: Case) -> None:
    counts = case.opened().derive(ledger).counts("attempt")
    algebra(counts, case.exact("failed"))
    assert measure(case.opened(), "failed_fraction").value == pytest.approx(0.4)
