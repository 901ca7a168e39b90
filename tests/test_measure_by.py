"""`rlserve measure`: the tables on the command line, and that they are not to be trusted where a file is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from oracle import CAPTURES

from pytest_rlserve import schema
from pytest_rlserve.cli import main
from pytest_rlserve.gate.policy import Policy
from pytest_rlserve.gate.report import build
from pytest_rlserve.gate.verdicts import Gate
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

BASELINE = CAPTURES / "baseline_kv_1"


def test_every_worker_has_a_row_and_the_last_is_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--by", "worker", str(BASELINE)]) == 0
    reuse, load = capsys.readouterr().out.strip().split("\n\n")
    *workers, whole = reuse.split("\n")[3:]
    assert len(workers) == 4
    assert whole.split()[:8] == ["all", "784", "1,670,095", "64.5", "%", "76.5", "%", "64.9"]
    assert load.split("\n")[-1].split()[:2] == ["all", "821"]


def test_every_worker_of_every_update_has_a_row_and_the_missed_one_is_called_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["measure", "--by", "update", str(CAPTURES / "stale_worker_1")]) == 0
    rows = capsys.readouterr().out.strip().split("\n")[3:]
    assert [row.split()[0] for row in rows] == ["1"] * 4 + ["2"] * 4
    (missed,) = [row for row in rows if "missed" in row]
    assert missed.split()[:3] == ["2", "3264423129048537586", "missed"]


def test_a_capture_that_does_not_tell_its_steps_says_so_and_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--by", "step", str(BASELINE / "attempts.jsonl.gz")]) == 1
    said = capsys.readouterr().out
    assert "load_by_step of attempts is not observable: the capture has no served request" in said


def test_single_metrics_and_tables_are_not_asked_for_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--by", "step", "--metric", "ttft.p50", str(BASELINE)]) == 2
    assert "--by prints tables of its own: leave --metric out" in capsys.readouterr().err


def test_the_report_holds_the_tables_of_each_capture(tmp_path: Path) -> None:
    gate = Gate(captures=[open_capture(BASELINE)], policy=Policy(), folder=tmp_path)
    report = build(gate, [], keys=["kv_reuse_fraction"])
    assert schema.problems("rlserve.report.v1", report) == []
    (capture,) = report["captures"]
    sizes = {"kv_by_worker": 4, "kv_by_step": 3, "load_by_worker": 5, "load_by_step": 3, "updates": 8}
    assert {name: len(table["rows"]) for name, table in capture["tables"].items()} == sizes
    parts = [row["shares"]["kv_reuse_fraction"] for row in capture["tables"]["kv_by_worker"]["rows"]]
    shares = sum(part["numerator"] for part in parts) / sum(part["denominator"] for part in parts)
    assert shares == pytest.approx(capture["metrics"][0]["value"])


@pytest.mark.parametrize("asked", [["--metric=ttft.p50"], ["--metric=kv_reuse_fraction"], [], ["--by=worker"]])
def test_numbers_of_a_broken_capture_come_with_what_is_broken(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", str(CAPTURES / "killed_1"), *asked]) == 1
    last = capsys.readouterr().out.strip().split("\n")[-1]
    assert last.startswith(
        "killed_1 is not to be trusted, 'rlserve check' says why: request-trace.000001.jsonl.gz: is trunc"
    )
