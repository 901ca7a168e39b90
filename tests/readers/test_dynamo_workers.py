"""Dynamo's list of workers: exact ids, and an error is no worker without routes."""

from __future__ import annotations

from samples import sample, told

NAME = "dynamo_rl_workers.json"


def test_every_worker_is_listed_by_its_exact_id() -> None:
    assert told(sample(NAME).step_metrics, "target", "name", "value") == [
        ("7587889217543981066", "rl routes", 5.0),
        ("7587889217543981067", "rl routes", 0.0),
    ]


def test_a_worker_that_did_not_answer_is_reported() -> None:
    (warning,) = sample(NAME).findings
    assert (warning.severity, "7587889217543981067" in warning.message) == ("warning", True)
