"""Twelve ways in which other gates go green without having judged anything. Here each has a name and is not a pass.

Every test runs pytest in a project with a good capture and a good baseline, of which one thing is then taken away.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from plugin.conftest import baseline, capture, report_of, run, three_runs  # noqa: F401 - fixtures
from plugin.projects import PRIMARY, both_ways, outcomes

from gate.documents import sealed

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

REPORT = "--rl-report=json:report.json"
FAILED, OK, USAGE = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK, pytest.ExitCode.USAGE_ERROR


@pytest.fixture(autouse=True)
def _good_project(request: pytest.FixtureRequest, capture: Write, three_runs: Path) -> None:
    capture("good", rate=10.0)


def printed(result: pytest.RunResult) -> str:
    text = "\n".join([*result.outlines, *result.errlines])
    assert "Traceback" not in text and "INTERNALERROR" not in text
    return text


def compared(report: dict[str, Any]) -> dict[str, str]:
    return {one["metric"]: one["verdict"] for one in report["comparisons"]}


def test_the_project_is_green_as_long_as_nothing_is_taken_away(run: Run, report_of: ReadReport) -> None:
    result = run("--rl-trace=good", REPORT)
    assert result.ret == OK
    assert report_of()["verdict"] == "pass"


# 1


def test_no_trace_is_an_error_of_every_test_that_needs_one(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(rl_trace): pass\ndef test_all(rl_captures): pass")
    result = run()
    assert result.ret == FAILED
    assert outcomes(result) == {"errors": 2}
    assert "no capture to judge: pass --rl-trace=PATH" in printed(result)


def test_a_trace_that_is_not_there_is_wrong_use(run: Run) -> None:
    result = run("--rl-trace=nowhere")
    assert result.ret == USAGE
    assert "nowhere" in printed(result)


# 2


@pytest.mark.parametrize("typed", ["-rl-trace=good", "-rl-strict"])
def test_a_flag_with_one_dash_is_wrong_use(run: Run, pytester: pytest.Pytester, typed: str) -> None:
    pytester.makepyfile("def test_green(): pass")
    result = run(typed)
    assert result.ret == USAGE
    assert f"write -{typed}" in printed(result)


# 3


def emptied(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")


@pytest.mark.parametrize("empty", ["trace", "folder"])
def test_an_empty_trace_is_broken_evidence(
    run: Run,
    pytester: pytest.Pytester,
    report_of: ReadReport,
    empty: str,
) -> None:
    if empty == "trace":
        emptied(pytester.path / "good", "request-trace.jsonl")
        result = run("--rl-trace=good", REPORT)
        assert result.ret == FAILED
        assert report_of()["verdict"] == "invalid"
        assert outcomes(result)["errors"] >= 3
        assert "request-trace.jsonl" in printed(result)
    else:
        pytester.mkdir("empty")
        result = run("--rl-trace=empty")
        assert result.ret in (FAILED, USAGE)
        assert "empty" in printed(result)


# 4


def test_a_truncated_gzip_file_is_broken_evidence(
    run: Run,
    pytester: pytest.Pytester,
    report_of: ReadReport,
) -> None:
    plain = pytester.path / "good" / "request-trace.jsonl"
    packed = gzip.compress(plain.read_bytes())
    plain.unlink()
    plain.with_name("request-trace.000000.jsonl.gz").write_bytes(packed[:-200])
    result = run("--rl-trace=good", REPORT)
    assert result.ret == FAILED
    assert report_of()["verdict"] == "invalid"
    assert "request-trace.000000.jsonl.gz" in printed(result)
    assert not compared(report_of())


# 5


@pytest.mark.parametrize("lost", ["between", "at the end"])
def test_a_missing_shard_is_broken_evidence(
    run: Run,
    pytester: pytest.Pytester,
    report_of: ReadReport,
    lost: str,
) -> None:
    folder = pytester.path / "good"
    lines = (folder / "request-trace.jsonl").read_text().splitlines(keepends=True)
    (folder / "request-trace.jsonl").unlink()
    for number in (0, 2) if lost == "between" else (0, 1):
        (folder / f"request-trace.{number:06}.jsonl").write_text("".join(lines[20 * (number // 2) :][:20]))
    if lost == "at the end":
        (folder / "request-trace.000001.jsonl").unlink()
        manifest = json.loads((folder / "rlserve.json").read_text())
        (folder / "rlserve.json").write_text(json.dumps({**manifest, "shards": 2}))
    result = run("--rl-trace=good", REPORT)
    assert result.ret == FAILED
    assert report_of()["verdict"] == "invalid"
    assert not compared(report_of())
    assert "shards_are_whole" in printed(result)


# 6


@pytest.mark.parametrize("ci", [False, True])
def test_no_baseline_is_named_and_fails_in_ci(
    run: Run,
    three_runs: Path,
    report_of: ReadReport,
    monkeypatch: pytest.MonkeyPatch,
    ci: bool,
) -> None:
    three_runs.unlink()
    if ci:
        monkeypatch.setenv("CI", "true")
    result = run("--rl-trace=good", REPORT, "-rs")
    assert result.ret == (FAILED if ci else OK)
    assert outcomes(result)["failed" if ci else "skipped"] == 2
    assert f"{PRIMARY} has no baseline yet" in printed(result)
    assert report_of()["verdict"] == ("failed" if ci else "no_baseline")
    assert not three_runs.exists()


def test_no_baseline_is_no_pass_where_it_must_be_one(run: Run, three_runs: Path) -> None:
    three_runs.unlink()
    assert run("--rl-trace=good", "--rl-strict").ret == FAILED


# 7


@both_ways
def test_a_stale_identity_is_an_error_with_the_keys(
    run: Run,
    capture: Write,
    report_of: ReadReport,
    workers: tuple[str, ...],
) -> None:
    capture("moved", rate=10.0, identity={"hardware": "8x H200"})
    result = run("--rl-trace=moved", REPORT, *workers)
    assert result.ret == FAILED
    assert outcomes(result)["errors"] == 2
    assert "hardware: baseline 'does not say', current '8x H200'" in printed(result)
    assert report_of()["verdict"] == "not_comparable"


# 8


@pytest.mark.parametrize("ci", [False, True])
def test_a_new_metric_is_named_and_fails_in_ci(
    run: Run, pytester: pytest.Pytester, report_of: ReadReport, monkeypatch: pytest.MonkeyPatch, ci: bool,
    three_runs: Path,
) -> None:  # fmt: skip
    known = json.loads(three_runs.read_text())
    del known["definitions"]["ttft.p50"]
    for one in known["levels"][0]["runs"]:
        del one["measurements"]["ttft.p50"]
    three_runs.write_bytes(sealed(known))
    (pytester.path / "rlserve.toml").write_text(f'series = "s"\n[metrics.{PRIMARY}]\n[metrics.ttft]\n')
    if ci:
        monkeypatch.setenv("CI", "true")
    result = run("--rl-trace=good", REPORT, "-rs")
    assert result.ret == (FAILED if ci else OK)
    assert compared(report_of()) == {PRIMARY: "unchanged", "ttft.p50": "no_baseline"}
    assert report_of()["verdict"] == ("failed" if ci else "no_baseline")
    text = printed(result)
    assert "ttft.p50 " in text and "--rl-baseline-update-new" in text


# 9


def test_a_metric_that_vanished_is_an_error(
    run: Run,
    pytester: pytest.Pytester,
    report_of: ReadReport,
) -> None:
    folder = pytester.path / "good"
    rows = [json.loads(line) for line in (folder / "control.jsonl").read_text().splitlines()]
    kept = [row for row in rows if not row["event"].startswith("gate_")]
    (folder / "control.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    result = run("--rl-trace=good", REPORT)
    assert result.ret == FAILED
    assert outcomes(result)["errors"] >= 1
    assert compared(report_of())["update_downtime"] in ("invalid", "not_comparable")
    assert "update_downtime is in the baseline but was not measured in good" in printed(result)


# 10


@pytest.mark.parametrize("workers", ["0", "1", "3"])
def test_workers_do_not_switch_the_gate_off(
    run: Run,
    capture: Write,
    report_of: ReadReport,
    workers: str,
) -> None:
    capture("slow", rate=8.0)
    result = run("--rl-trace=slow", REPORT, "-n", workers)
    assert result.ret == FAILED
    assert outcomes(result)["failed"] == 1
    assert compared(report_of())[PRIMARY] == "regressed"
    assert report_of()["verdict"] == "regressed"


# 11


@both_ways
@pytest.mark.parametrize("chosen", [("-k", "checks"), ("--deselect", f"rlserve.toml::metrics::{PRIMARY}")])
def test_a_subset_is_incomplete_and_no_pass(
    run: Run,
    capture: Write,
    report_of: ReadReport,
    chosen: tuple[str, ...],
    workers: tuple[str, ...],
) -> None:
    capture("slow", rate=8.0)
    result = run("--rl-trace=slow", REPORT, *chosen, *workers)
    found = report_of()
    assert found["verdict"] == "incomplete"
    assert f"rlserve.toml::metrics::{PRIMARY}" in found["not_run"]
    assert "INCOMPLETE" in printed(result)
    assert run("--rl-trace=slow", *chosen, "--rl-strict", *workers).ret == FAILED


def test_a_run_stopped_at_the_first_failure_is_incomplete_too(
    run: Run,
    capture: Write,
    report_of: ReadReport,
) -> None:
    capture("loose", rate=10.0, open_attempts=3)
    assert run("--rl-trace=loose", REPORT, "-x").ret == FAILED
    assert f"rlserve.toml::metrics::{PRIMARY}" in report_of()["not_run"]


# 12


def test_a_retry_joins_the_first_run_and_does_not_replace_it(
    run: Run,
    capture: Write,
    report_of: ReadReport,
) -> None:
    capture("try/1", rate=7.0, job="ci-1")
    capture("try/2", rate=10.0, job="ci-2")
    result = run("--rl-trace=try", REPORT)
    (rate,) = (one for one in report_of()["comparisons"] if one["metric"] == PRIMARY)
    assert rate["runs"]["current"] == 2
    assert rate["current_range"] == [pytest.approx(7.0, rel=1e-3), pytest.approx(10.0, rel=1e-3)]
    assert rate["current"] == pytest.approx((7.0 * 10.0) ** 0.5, rel=1e-3)
    assert rate["delta"] == pytest.approx((7.0 * 10.0) ** 0.5 / rate["baseline"] - 1, abs=1e-3)
    assert rate["verdict"] in ("regressed", "inconclusive")
    assert result.ret == FAILED or outcomes(result)["inconclusive"] == 1


def test_a_retried_test_has_the_verdict_of_its_first_try(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    report_of: ReadReport,
) -> None:
    """A plugin that runs a failed item again meets the same captures, and the same verdict."""
    capture("slow", rate=8.0)
    pytester.makeconftest(
        """
        import pytest
        from _pytest.runner import runtestprotocol

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(item, nextitem):
            for number in range(3):
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
                last = number == 2 or not any(report.failed for report in reports)
                for report in reports:
                    if report.failed and not last:
                        report.outcome = "rerun"
                    item.ihook.pytest_runtest_logreport(report=report)
                if last:
                    return True
        """
    )
    result = run("--rl-trace=slow", REPORT)
    assert result.ret == FAILED
    assert report_of()["verdict"] == "regressed"


# beyond the twelve


def test_an_update_does_not_swallow_what_a_test_of_ones_own_calls_regressed(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
) -> None:
    pytester.makepyfile("def test_mine(rl_baseline): rl_baseline.check('ttft.p50')")
    capture("late", rate=10.0, ttft_ms=80.0)
    before = three_runs.read_bytes()
    result = run("--rl-trace=late", "--rl-baseline-update")
    assert result.ret == FAILED
    assert "ttft.p50 regressed by 60.0 %" in printed(result)
    assert three_runs.read_bytes() == before


@pytest.mark.parametrize("names", ["az", "za"])
def test_an_update_does_not_swallow_what_the_stricter_of_two_tests_calls_regressed(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
    names: str,
) -> None:
    """Whichever comes last: the next run would be compared with the loss, and be green."""
    strict, lax = names
    pytester.makepyfile(
        f"def test_{strict}(rl_baseline): rl_baseline.check('ttft.p50', regression='10%')\n"
        f"def test_{lax}(rl_baseline): rl_baseline.check('ttft.p50', regression='95%')"
    )
    capture("late", rate=10.0, ttft_ms=80.0)
    before = three_runs.read_bytes()
    result = run("--rl-trace=late", "--rl-baseline-update")
    assert result.ret == FAILED
    assert three_runs.read_bytes() == before


def test_an_update_does_not_swallow_what_a_test_calls_regressed_that_is_stricter_than_the_policy(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
) -> None:
    (pytester.path / "rlserve.toml").write_text('series = "s"\n[metrics."ttft.p50"]\nregression = "90%"\n')
    pytester.makepyfile("def test_mine(rl_baseline): rl_baseline.check('ttft.p50', regression='10%')")
    capture("late", rate=10.0, ttft_ms=80.0)
    before = three_runs.read_bytes()
    assert run("--rl-trace=late", "--rl-baseline-update").ret == FAILED
    assert three_runs.read_bytes() == before
