"""Dynamo's list of workers: exact ids, routes by name, and an error is no worker without routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samples import document, sample, told, written

from pytest_rlserve.checks import run_check

if TYPE_CHECKING:
    from pathlib import Path

NAME = "dynamo_rl_workers.json"
FIRST, SECOND = "7587889217543981066", "7587889217543981067"
ROUTES = ("pause_generation", "resume_generation", "flush_cache", "update_weights_from_distributed")


def test_every_worker_is_listed_by_its_exact_id_with_its_routes() -> None:
    assert told(sample(NAME).step_metrics, "target", "name", "value") == [
        (FIRST, "rl routes", 5.0),
        *((FIRST, f"rl route {route}", 1.0) for route in (*ROUTES, "get_weight_version")),
        (SECOND, "rl routes", None),
    ]


def test_a_worker_that_did_not_answer_is_reported() -> None:
    (warning,) = sample(NAME).findings
    assert (warning.severity, SECOND in warning.message) == ("warning", True)


def test_a_list_without_workers_is_read_and_reported(tmp_path: Path) -> None:
    capture = written(tmp_path / NAME, {"protocol_version": 1, "namespace": "dynamo", "workers": []})
    (source,), (warning,) = capture.sources, capture.findings
    assert (source.format, source.rows) == ("dynamo.rl_workers", 0)
    assert (warning.severity, "names no worker" in warning.message) == ("warning", True)


def test_newer_fields_change_nothing_and_addresses_are_not_kept(tmp_path: Path) -> None:
    newer = {"protocol_version": 1, **document(NAME)}
    newer["workers"][0] |= {"world_size": 2, "admin_base_url": "http://10.0.0.5:9183"}
    capture = written(tmp_path / NAME, newer)
    assert capture.step_metrics.drop_columns(["source"]) == sample(NAME).step_metrics.drop_columns(["source"])
    assert "10.0.0.5" not in repr([row for _, table in capture.tables() for row in table.to_pylist()])


def test_the_list_is_no_record_of_an_update_and_the_check_says_so() -> None:
    result = run_check(sample(NAME), "updates_are_ordered")
    assert result.status == "inconclusive"
    assert "Dynamo's list of workers says who can take weight updates, not when one took any" in str(result.why)
