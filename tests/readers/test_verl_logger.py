"""verl's file logger: every number of every step, under its own name; no attempt is made of a counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samples import numbers, records, sample, told, written

from pytest_rlserve.checks import run_check

if TYPE_CHECKING:
    from pathlib import Path

NAME = "verl_file_logger.jsonl"


def test_every_number_of_every_step_is_kept() -> None:
    capture = sample(NAME)
    data = [(record["step"], name) for record in records(NAME) for name in record["data"]]
    assert told(capture.step_metrics, "step", "name") == data
    assert numbers(capture, "perf/throughput") == [182.212, 179.494, 176.899]
    assert numbers(capture, "fully_async/count/total_generated_samples") == [128, 256, 384]
    assert numbers(capture, "training/off_policy/evicted_samples") == [0, 0, 2]
    assert capture.step_metrics["t"].null_count == len(data)


def test_counters_are_no_attempts() -> None:
    capture = sample(NAME)
    assert not capture.has("attempt_events")
    assert capture.sources[0].covers == ()
    assert run_check(capture, "attempts_reconcile").status == "inconclusive"


def test_minus_one_of_an_agent_loop_is_unknown_and_elsewhere_a_number(tmp_path: Path) -> None:
    assert numbers(sample(NAME), "timing_s/agent_loop/num_preempted/mean") == [None] * 3
    capture = written(tmp_path / "log.jsonl", {"step": 1, "data": {"critic/score/min": -1, "actor/kl": None}})
    assert told(capture.step_metrics, "name", "value") == [("critic/score/min", -1.0), ("actor/kl", None)]


def test_a_value_that_is_no_number_is_refused(tmp_path: Path) -> None:
    capture = written(tmp_path / "log.jsonl", {"step": 1, "data": {}}, {"step": 2, "data": {"note": "text"}})
    (finding,) = capture.findings
    assert (finding.line, finding.severity) == (2, "error")
    assert "text" not in finding.message
