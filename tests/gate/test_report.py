"""The report: it fits its schema for every capture, and depends on nothing but what was judged."""

from __future__ import annotations

import json
import random
import shutil
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from plugin.projects import RECORDED

from gate.series import Series, recorded
from pytest_rlserve import schema
from pytest_rlserve.errors import EvidenceError
from pytest_rlserve.gate.items import items
from pytest_rlserve.gate.policy import Policy
from pytest_rlserve.gate.policy_file import load
from pytest_rlserve.gate.report import build
from pytest_rlserve.gate.verdicts import Gate
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_rlserve.capture import Capture

    Measured = Callable[..., Capture]

POLICY = """
series = "s"
[metrics.accepted_trajectory_throughput]
[metrics."ttft.p95"]
[limits]
"ttft.p99" = "<= 20ms"
completion_fraction = ">= 50%"
"""
COMMITTED = sorted(path.name for path in RECORDED.iterdir() if (path / "rlserve.json").is_file())


@cache
def opened(name: str) -> Capture:
    return open_capture(recorded()[name])


def judged(gate: Gate) -> list[dict[str, Any]]:
    """Judge every item of the policy, as the command line does."""
    found = []
    for kind, name in items(gate.policy):
        try:
            one = gate.judge(kind, name)
        except EvidenceError as error:
            records: Any = gate.evidence_records(kind, name)
            found.append({"kind": kind, "name": name, "verdict": "invalid", "message": str(error), "records": records})
        else:
            more = {"records": list(one.records), "causes": list(one.causes)}
            found.append({"kind": kind, "name": name, "verdict": one.verdict, "message": one.message, **more})
    return found


@pytest.fixture
def policed(tmp_path: Path, series: Series) -> Series:
    """A series with a policy of metrics and limits."""
    (tmp_path / "rlserve.toml").write_text(POLICY)
    series.policy = load(tmp_path / "rlserve.toml")
    return series


def report(gate: Gate, **more: Any) -> dict[str, Any]:
    found = build(gate, judged(gate), **more)
    assert schema.problems("rlserve.report.v1", found) == []
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


@pytest.mark.parametrize("name", COMMITTED)
def test_the_report_of_every_capture_fits_its_schema_without_a_baseline(policed: Series, name: str) -> None:
    found = report(policed.gate(opened(name)))
    assert found["verdict"] in ("invalid", "failed", "no_baseline")
    assert [one["name"] for one in found["captures"]] == [name]


@pytest.mark.parametrize("name", COMMITTED)
def test_the_report_of_every_capture_fits_its_schema_with_a_baseline(policed: Series, name: str) -> None:
    policed.take(*(opened(f"baseline_kv_{number}") for number in (1, 2, 3)))
    found = report(policed.gate(opened(name)))
    rows = {one["metric"]: one["verdict"] for one in found["comparisons"]}
    if name == "regressed_half_workers_1":
        assert rows["accepted_trajectory_throughput"] == "regressed"
        assert found["why"][0]["factor"] == "residence"
    if name in ("lossy_1", "payload_1"):
        assert set(rows.values()) <= {"not_comparable"}


def test_a_report_holds_no_path_of_the_machine(policed: Series, tmp_path: Path) -> None:
    text = json.dumps(report(policed.gate(*(opened(name) for name in COMMITTED))))
    for place in (str(tmp_path), str(RECORDED), str(RECORDED.parent)):
        assert place not in text


def test_the_order_in_which_items_were_judged_does_not_matter(policed: Series) -> None:
    policed.take(opened("baseline_kv_1"))
    gate = policed.gate(opened("regressed_half_workers_1"), opened("baseline_kv_2"))
    some = judged(gate)
    whole = build(gate, some)
    for seed in range(5):
        assert build(gate, random.Random(seed).sample(some, len(some))) == whole


def test_the_order_in_which_files_were_written_does_not_matter(policed: Series, tmp_path: Path) -> None:
    found = []
    for turn in (1, -1):
        folder = tmp_path / str(turn) / "capture"
        folder.mkdir(parents=True)
        for path in sorted(recorded()["killed_1"].iterdir())[::turn]:
            shutil.copyfile(path, folder / path.name)
        found.append(report(policed.gate(open_capture(folder))))
    assert found[0] == found[1]


def test_every_metric_is_listed_and_absent_ones_say_why(policed: Series, measured: Measured) -> None:
    (capture,) = report(policed.gate(measured(10.0)))["captures"]
    absent = [one for one in capture["metrics"] if one["value"] is None]
    assert absent and all(one["why"] for one in absent)
    assert all(one["why"] is None for one in capture["metrics"] if one["value"] is not None)
    assert len({one["name"] for one in capture["metrics"]}) == len(capture["metrics"])


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({"rate": 10.0}, "pass"),
        ({"rate": 5.0}, "regressed"),
        ({"rate": 9.7}, "inconclusive"),
        ({"rate": 20.0}, "pass"),
        ({"open_attempts": 3}, "failed"),
        ({"torn": True}, "invalid"),
        ({"identity": {"model": "other"}}, "not_comparable"),
    ],
    ids=str,
)
def test_the_verdict_is_the_worst_of_all(
    series: Series, measured: Measured, figures: dict[str, Any], verdict: str
) -> None:
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c"))))
    found = report(series.gate(measured(**{"job": "d", **figures})))
    assert found["verdict"] == verdict


def test_what_did_not_run_makes_it_incomplete(series: Series, measured: Measured) -> None:
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c"))))
    found = report(series.gate(measured(10.0, job="d")), not_run=["b::x", "a::y"])
    assert (found["verdict"], found["not_run"]) == ("incomplete", ["a::y", "b::x"])


def test_where_nothing_was_judged_nothing_passed(series: Series, measured: Measured) -> None:
    assert build(series.gate(measured(10.0)), [])["verdict"] == "incomplete"


def test_what_was_written_to_the_baseline_is_in_the_report(series: Series, measured: Measured) -> None:
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c"))))
    run = measured(8.0, job="d")
    changes = series.take(run, reason="two workers fewer").changes
    found = report(series.gate(run), baseline_changes=changes)
    (change,) = found["baseline_changes"]
    assert change["metric"] == "accepted_trajectory_throughput"
    assert change["reason"] == "two workers fewer"
    assert change["delta"] == pytest.approx(-0.2, abs=0.001)


@pytest.mark.parametrize(("control", "known"), [(True, 12), (False, 0)])
def test_coverage_says_of_how_many_workers_the_weights_are_known(tmp_path: Path, control: bool, known: int) -> None:
    folder = tmp_path / "c"
    shutil.copytree(RECORDED / "baseline_kv_1", folder)
    if not control:
        (folder / "control.jsonl.gz").unlink()
    report = build(Gate(captures=[open_capture(folder)], policy=Policy(), folder=tmp_path), [], keys=["retry_fraction"])
    (line,) = [one for one in report["captures"][0]["coverage"] if one["of"] == "workers that served"]
    assert line == {
        "question": "which weights did each worker have",
        "of": "workers that served",
        "observed": known,
        "total": 12,
    }
