"""Faults of KV reuse, weight updates and router metrics, each a small input with its right answer in expected.json.

The rows of these inputs carry `kv_hit_rate`, so their `cached_tokens` are what a KV router predicted; the cases were
written down before anybody knew. Their figures are those of the predicted metrics.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_rlserve.checks import run_check
from pytest_rlserve.gate.limits import Limit, parse_limit
from pytest_rlserve.metrics import Scope
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.metrics.scrapes import counted, gauges
from pytest_rlserve.prompts import prompts
from pytest_rlserve.readers import open_capture
from pytest_rlserve.reuse import cached, excess

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

CASES = Path(__file__).parent / "data" / "cases"
REUSE = "kv_predicted_reuse_fraction"


def case(number: str, check: str, place: int = 0) -> tuple[Capture, dict[str, Any]]:
    """Open a case and return what is expected of the checks of that name."""
    (folder,) = CASES.glob(f"{number}_*")
    answers = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["checks"]
    return open_capture(folder), [one for one in answers if one["check"].startswith(check)][place]


def share(exact: dict[str, Any]) -> float:
    return float(Fraction(exact["fraction"]))


def floor(capture: Capture, value: float, scope: Scope | None = None) -> tuple[str, str]:
    limit: Limit = parse_limit(REUSE, value)
    measured = measure(capture, REUSE, scope)
    return limit.judge(measured), limit.message(measured)


def test_case_05_the_ceiling_is_exact_to_the_last_bit() -> None:
    _, answer = case("05", "reuse ceiling")
    capture = open_capture(next(CASES.glob("05_*")) / "trace.jsonl")
    assert measure(capture, "kv_reuse_ceiling").value == pytest.approx(share(answer["exact"]["ceiling"]))


def test_case_13_reuse_over_two_block_sizes_is_weighted_by_tokens() -> None:
    capture, answer = case("13", "KV reuse")
    assert measure(capture, REUSE).value == pytest.approx(share(answer["exact"]["token_weighted"]))
    assert floor(capture, answer["config"]["floor"])[0] == answer["verdict"]


def test_case_13_a_replay_of_two_block_sizes_is_refused() -> None:
    capture, answer = case("13", "replay")
    result = run_check(capture, "replay_ready")
    assert result.status == answer["verdict"]
    assert "block sizes 16, 64 are mixed" in result.message()


def test_case_21_the_two_definitions_are_two_metrics_and_each_says_what_it_is() -> None:
    capture, weighted = case("21", "KV reuse floor")
    _, mean = case("21", "KV reuse floor", 1)
    by_tokens, by_requests = measure(capture, REUSE), measure(capture, "router_predicted_hit_fraction")
    assert by_tokens.value == pytest.approx(share(weighted["exact"]["token_weighted"]))
    assert by_requests.value == pytest.approx(weighted["exact"]["router_histogram_mean"])
    assert floor(capture, weighted["config"]["floor"])[0] == weighted["verdict"]
    limit = parse_limit("router_predicted_hit_fraction", mean["config"]["floor"])
    assert limit.judge(by_requests).startswith(mean["verdict"])
    assert by_tokens.definition["digest"] != by_requests.definition["digest"]
    assert "prompt tokens" in by_tokens.definition["denominator"]
    assert "requests" in by_requests.definition["denominator"]


def test_case_22_impossible_rows_are_named() -> None:
    capture, answer = case("22", "row plausibility")
    result = run_check(capture, "reuse_is_possible")
    assert result.status == answer["verdict"]
    assert {finding.ids[0] for finding in result.problems} == set(answer["exact"]["bad_rows"])
    for finding in result.problems:
        for fact in answer["exact"]["bad_rows"][finding.ids[0]].split("; "):
            assert fact in finding.message


def test_case_22_a_floor_is_not_met_by_an_impossible_row() -> None:
    capture, answer = case("22", "KV reuse floor")
    verdict, message = floor(capture, answer["config"]["floor"])
    assert measure(capture, REUSE).value == pytest.approx(share(answer["exact"]["without_e2"]))
    assert verdict.startswith(answer["verdict"])
    assert all(word in message for word in answer["must_say"])


def test_case_23_the_warm_up_after_a_reset_is_set_aside_and_shown() -> None:
    capture, answer = case("23", "KV reuse floor")
    exact = answer["exact"]
    assert measure(capture, REUSE).value == pytest.approx(share(exact["overall"]))
    steady = Scope(after_reset=3)
    measured = measure(capture, REUSE, steady)
    assert measured.value == pytest.approx(share(exact["steady"]))
    assert floor(capture, answer["config"]["floor"], steady)[0] == answer["verdict"]
    count = len(exact["warmup_rows"])
    assert f"{count} requests received within 3 s after a reset of their worker's cache" in measured.excluded
    assert (
        f"({exact['cold_tokens']:,} prompt tokens, {exact['warmup'] * 100:.1f} % of them reused)" in measured.excluded
    )


def test_case_24_two_rows_reuse_1152_tokens_of_the_old_policy() -> None:
    capture, answer = case("24", "old-policy")
    exact, found = answer["exact"], capture.derive(excess)
    names = capture.requests["request_id"].to_pylist()
    stale = {names[row]: int(found.stale[row]) for row in np.flatnonzero(found.stale)}
    assert sorted(stale) == exact["rows_reusing_old_policy_cache"]
    assert sum(stale.values()) == exact["tokens_reused_across_versions"] == 1152
    result = run_check(capture, "no_stale_kv")
    assert result.status == answer["verdict"]
    messages = {finding.ids[0]: finding.message for finding in result.problems}
    assert "worker 2 reused 896 tokens" in messages["new2"]
    assert "no cache_reset between the change and the first reuse" in messages["new2"]
    assert "worker 3 reused 256 tokens" in messages["new3"]
    assert "came before the transfer had ended, and blocks were added after it" in messages["new3"]


def test_case_24_the_workers_without_a_valid_reset_are_named() -> None:
    capture, answer = case("24", "old-policy")
    result = run_check(capture, "updates_are_ordered")
    said = result.message()
    assert result.status == "fail"
    assert all(f"worker {worker} " in said for worker in answer["exact"]["workers_without_valid_reset"])
    assert not any(f"worker {worker} " in said for worker in answer["exact"]["clean_workers"])
    assert "cache_reset of worker 3 at 1790000100.400 came before its transfer" in said
    assert "1 request came in between and filled it again" in said


def test_case_24_a_floor_does_not_praise_stale_reuse() -> None:
    capture, answer = case("24", "KV reuse floor")
    exact, best = answer["exact"], capture.derive(cached).best
    found, stale = capture.derive(prompts), capture.derive(excess).stale
    resumed = max(row["t"] for row in capture.control_events.to_pylist() if row["event"] == "resume")
    rows = np.flatnonzero(found.received >= resumed)
    clean = rows[stale[rows] == 0]
    assert best[rows].sum() / found.tokens[rows].sum() == pytest.approx(share(exact["raw_after_resume"]))
    assert best[clean].sum() / found.tokens[clean].sum() == pytest.approx(share(exact["without_stale_rows"]))
    verdict, message = floor(capture, answer["config"]["floor"])
    assert verdict == "failed"  # 42.0 % over all rows would meet it
    assert "is 38.9 %" in message or "38.9 %, must be" in message
    assert "reused 1,152 tokens of an earlier policy version (with them, reuse is 42.0 %)" in message


def test_case_33_a_counter_reset_is_seen_and_numbers_cover_the_time_since() -> None:
    capture, answer = case("33", "deltas")
    exact = answer["exact"]
    requests = "dynamo_component_router_requests_total"
    (decode,), (prefill,) = (counted(capture, requests, worker_type=kind) for kind in ("decode", "prefill"))
    assert decode.value == exact["requests_decode_delta_min"]
    assert decode.resets == (f"{requests}{{worker_type=decode}}",)
    assert (prefill.value, prefill.resets) == (exact["requests_prefill_delta"], ())
    measured = measure(capture, "router_predicted_hit_fraction")
    assert measured.value == pytest.approx(exact["kv_hit_rate_mean_since_reset"])
    assert "counter reset seen" in measured.excluded
    assert "covers only the time since the restart" in measured.excluded


def test_case_33_a_floor_on_the_rate_since_the_restart_is_not_met() -> None:
    capture, answer = case("33", "KV reuse floor")
    measured = measure(capture, "router_predicted_hit_fraction")
    assert measured.value == pytest.approx(answer["exact"]["value_since_reset"])
    limit = parse_limit("router_predicted_hit_fraction", answer["config"]["floor"])
    assert limit.judge(measured) == "failed"
    assert "counter reset seen" in limit.message(measured)


def test_case_33_labels_are_read_as_they_were_meant_and_nan_is_not_used() -> None:
    capture, answer = case("33", "parser")
    rows = {row["name"]: row for row in capture.scrapes.to_pylist()}
    assert json.loads(rows["made_up_gauge"]["labels"]) == answer["exact"]["escaped_label_values"]
    with pytest.raises(Exception, match="no scrape has made_up_gauge"):
        gauges(capture, "made_up_gauge")
    assert json.loads(rows["dynamo_component_router_kv_hit_rate_bucket"]["labels"]) == {"le": "+Inf"}
