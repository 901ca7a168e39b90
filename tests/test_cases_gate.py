"""Faults of other gates, each with its right answer in expected.json: baselines, zeros, updates, many workers.

Cases that give values of metrics instead of captures are run with metrics that read them from a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from plugin.conftest import _plain_environment, capture, report_of, run  # noqa: F401 - fixtures
from plugin.projects import outcomes
from stored_metrics import register_in, store
from test_cases import Case, case  # noqa: F401 - a fixture

from pytest_rlserve.metrics import METRICS
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

UPDATE = "--rl-baseline-update"
REPORT = "--rl-report=json:report.json"
REPEATS = int(os.environ.get("RLSERVE_REPEATS", "1"))
"""How often case 31 is repeated; its own procedure says 20 times."""


@pytest.fixture(autouse=True)
def _metrics_of_one_test() -> Iterator[None]:
    """Forget the metrics that a project registered inside this process."""
    list(METRICS)
    things, homes = dict(METRICS._things), dict(METRICS._homes)
    yield
    METRICS._things, METRICS._homes = things, homes


def printed(result: pytest.RunResult) -> str:
    text = "\n".join([*result.outlines, *result.errlines])
    assert "Traceback" not in text and "INTERNALERROR" not in text
    return text


def told(text: str) -> set[str]:
    """Return the words of the table of what the baseline gives up."""
    return set(text.partition("baseline changes")[2].split())


def verdicts(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the comparisons of a report by metric."""
    return {one["metric"]: one for one in report["comparisons"]}


# -- case 27 --------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(pytester: pytest.Pytester) -> dict[str, Path]:
    """Lay out the two attempt records of case 27 as captures of a job each, with the window that it names."""
    found = {}
    for name in ("baseline", "current"):
        folder = pytester.mkdir(name)
        shutil.copyfile(Case("27").folder / f"{name}_attempts.jsonl", folder / "attempts.jsonl")
        (folder / "rlserve.json").write_text(json.dumps({"series": "s", "job": f"job-{name}"}))
        found[name] = folder
    start, end = Case("27").answer()["config"]["window"]
    (pytester.path / "rlserve.toml").write_text(
        f"[window]\nstart = {start}\nend = {end}\n[metrics.accepted_trajectory_throughput]\nregression = '5%'\n"
    )
    return found


def test_case_27_more_completed_and_less_accepted_is_a_regression(
    run: Run,
    case: Case,
    runs: dict[str, Path],
    report_of: ReadReport,
) -> None:
    exact = case.exact()
    assert run("--rl-trace=baseline", UPDATE).ret == pytest.ExitCode.OK
    result = run("--rl-trace=current", REPORT)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    found = verdicts(report_of())["accepted_trajectory_throughput"]
    assert found["verdict"] == "regressed"
    assert found["baseline"] == pytest.approx(exact["baseline_accepted_per_s"])
    assert found["current"] == pytest.approx(exact["current_accepted_per_s"])
    assert found["delta"] == pytest.approx(exact["change"])
    assert "accepted_trajectory_throughput regressed by 25.0 %" in printed(result)
    for name in ("baseline", "current"):
        share = measure(open_capture(runs[name]), "acceptance_fraction").value
        assert share == pytest.approx(exact["acceptance_rate"][name]["value"])
        completed = (runs[name] / "attempts.jsonl").read_text().count('"event":"completed"')
        assert completed / 20 == exact[f"{name}_completed_per_s"]


def test_case_27_the_other_way_round_is_no_alarm(
    run: Run,
    case: Case,
    runs: dict[str, Path],
    report_of: ReadReport,
) -> None:
    assert run("--rl-trace=current", UPDATE).ret == pytest.ExitCode.OK
    assert run("--rl-trace=baseline", REPORT).ret == pytest.ExitCode.OK
    found = verdicts(report_of())["accepted_trajectory_throughput"]
    assert found["verdict"] == "improved"
    assert found["delta"] == pytest.approx(case.exact("accepted throughput, roles swapped")["change"]["value"])


# -- case 29 --------------------------------------------------------------------------------------------------------

KINDS = {
    "failed_attempts": ("count", "lower"),
    "canceled_attempts": ("count", "lower"),
    "accepted_per_s": ("trajectories/s", "higher"),
    "ttft_p95_ms": ("ms", "lower"),
    "kv_reuse": ("fraction", "higher"),
    "queue_depth_p95": ("count", "lower"),
}
PASS = {"pass": ("unchanged", "improved"), "fail": ("regressed",), "no_baseline": ("no_baseline",)}
PASS["fail_or_inconclusive"] = ("invalid", "regressed", "inconclusive")


def project(folder: Path, *names: str) -> None:
    """Make a project that gates metrics read from files, the first one as its primary."""
    register_in(folder, {name: KINDS[name] for name in names})
    gated = "".join(f"[metrics.{name}]\nregression = '5%'\n" for name in names)
    (folder / "rlserve.toml").write_text(f'series = "s"\nprimary = "accepted_per_s"\nno_baseline = "skip"\n{gated}')


def test_case_29_zero_and_what_is_missing_on_one_side(
    run: Run,
    case: Case,
    capture: Write,
    report_of: ReadReport,
    pytester: pytest.Pytester,
) -> None:
    project(pytester.path, *KINDS)
    values = {
        name: json.loads((case.folder / f"{name}_metrics.json").read_text())["metrics"]
        for name in ("baseline", "current")
    }
    for number in range(3):  # three jobs, so that equal values are known to be equal
        capture(f"before/b{number}", job=f"job-{number}")
        store(pytester.path, f"b{number}", values["baseline"])
    capture("after", job="job-after")
    store(pytester.path, "after", values["current"])
    assert run("--rl-trace=before", UPDATE).ret == pytest.ExitCode.OK
    result = run("--rl-trace=after", REPORT)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    found = verdicts(report_of())
    for name, answer in case.exact().items():
        assert found[name]["verdict"] in PASS[answer["verdict"]], name
        if "relative" in answer:
            assert found[name]["delta"] == answer["relative"] or found[name]["verdict"] == "unchanged"
            assert found[name]["current"] - found[name]["baseline"] == answer["delta"]
        elif "delta" in answer:
            assert found[name]["delta"] == answer["delta"]
        if "current" in answer:
            assert found[name]["current"] is answer["current"]
    text = printed(result)
    assert "ttft_p95_ms is in the baseline but was not measured" in text
    assert re.search(r"NO BASELINE +queue_depth_p95", text)
    assert re.match(r"queue_depth_p95 .*no baseline .*yet", found["queue_depth_p95"]["message"])
    assert "regressed from 0 to 3" in text
    assert not re.search(r"\b(inf|nan) ?%", text)
    assert "ZeroDivisionError" not in text


# -- case 30 --------------------------------------------------------------------------------------------------------

UNREADABLE = ("conflict_markers.json", "half.json", "empty.json", "list.json", "string_number.json")


@pytest.fixture
def laid(pytester: pytest.Pytester, capture: Write) -> Path:
    """Lay out the files of case 30 as baselines of series of their names, and a capture."""
    capture("run-1", series=None)
    folder = pytester.mkdir("baselines")
    for name in UNREADABLE:
        shutil.copyfile(Case("30").folder / name, folder / name)
    return folder


@pytest.mark.parametrize("name", UNREADABLE)
def test_case_30_an_unreadable_baseline_is_no_missing_one_and_stays_as_it_is(
    run: Run,
    case: Case,
    laid: Path,
    name: str,
    report_of: ReadReport,
) -> None:
    assert case.answer("compare without the update flag", on=name)["verdict"] == "invalid_input"
    result = run("--rl-trace=run-1", f"--rl-series={name.removesuffix('.json')}", REPORT)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result)["errors"] == 2  # both gated metrics
    text = printed(result)
    assert f"baseline {name} cannot be read" in text
    assert "no baseline" not in text
    assert report_of()["verdict"] == "invalid"
    digest = hashlib.sha256((laid / name).read_bytes()).hexdigest()
    assert digest == case.document["inputs"][name]["sha256"]


def test_case_30_the_update_flag_replaces_it_and_says_so(run: Run, case: Case, laid: Path) -> None:
    answer = case.answer("with the update flag")
    assert answer["verdict"] == "pass_with_warning"
    result = run("--rl-trace=run-1", "--rl-series=conflict_markers", UPDATE)
    assert result.ret == pytest.ExitCode.OK
    assert answer["must_say"][0] in printed(result)
    assert json.loads((laid / "conflict_markers.json").read_text())["schema"] == "rlserve.baseline.v1"
    assert sorted(path.name for path in laid.iterdir()) == sorted(UNREADABLE)


# -- case 31 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeat", range(REPEATS))
def test_case_31_four_workers_lose_none_of_200_entries(
    run: Run,
    case: Case,
    capture: Write,
    report_of: ReadReport,
    pytester: pytest.Pytester,
    repeat: int,
) -> None:
    values = json.loads((case.folder / "values.json").read_text())
    register_in(pytester.path, dict.fromkeys(values, ("things", "higher")))
    pytester.makepyfile(
        test_values=f"""
        import pytest

        @pytest.mark.parametrize("name", {list(values)!r})
        def test_value(rl_baseline, name):
            rl_baseline.check(name)
        """
    )
    for step, more in enumerate((0.0, 1.0, 1.0)):
        for number in range(3):
            capture(f"step-{step}/s{step}r{number}", job=f"job-{step}-{number}")
            store(pytester.path, f"s{step}r{number}", {name: value + more for name, value in values.items()})
    path = pytester.path / "baselines" / "s.json"
    four = ("-n", "4", "--rl-baseline=baselines")
    for step, reason in enumerate(("", "--rl-baseline-reason=every value is one more")):
        result = run(f"--rl-trace=step-{step}", UPDATE, *filter(None, [reason]), *four)
        assert result.ret == pytest.ExitCode.OK, printed(result)
        assert outcomes(result)["passed"] >= case.exact("after step 1 and 2")["entries"]
    newest = json.loads(path.read_text())["levels"][-1]["runs"]
    for taken in (one for one in newest if one["name"].startswith("s1")):
        stored = {key: one["value"] for key, one in taken["measurements"].items() if key in values}
        assert len(stored) == case.exact("after step 1 and 2")["entries"]
        assert stored == {name: number + 1.5 for number, name in enumerate(values)}
    assert {one["name"] for one in newest} >= {"s1r0", "s1r1", "s1r2"}
    result = run("--rl-trace=step-2", REPORT, *four)
    compared = [one for name, one in verdicts(report_of()).items() if name in values]
    assert len(compared) == case.exact("step 3")["compared"]
    assert result.ret == pytest.ExitCode.OK


# -- case 34 --------------------------------------------------------------------------------------------------------


@pytest.fixture
def fallen(pytester: pytest.Pytester, capture: Write, run: Run) -> Path:
    """Lay out case 34: a committed baseline of three jobs at 2.0, and a run at 1.2."""
    project(pytester.path, "accepted_per_s")
    (pytester.path / "rlserve.toml").write_text('series = "s"\nprimary = "accepted_per_s"\n[metrics]\n')
    folder = Case("34").folder
    values = {
        name: json.loads((folder / f"{name}_metrics.json").read_text())["metrics"] for name in ("baseline", "current")
    }
    for number in range(3):
        capture(f"before/b{number}", job=f"job-{number}")
        store(pytester.path, f"b{number}", values["baseline"])
    capture("after", job="job-after")
    store(pytester.path, "after", values["current"])
    run("--rl-trace=before", UPDATE)
    return pytester.path / "baselines" / "s.json"


def test_case_34_an_update_flag_left_in_ci_rewrites_nothing_and_fails(
    run: Run,
    case: Case,
    fallen: Path,
    monkeypatch: pytest.MonkeyPatch,
    report_of: ReadReport,
) -> None:
    before = fallen.read_bytes()
    monkeypatch.setenv("CI", "true")
    result = run("--rl-trace=after", UPDATE, REPORT)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert fallen.read_bytes() == before
    text = printed(result)
    assert "baseline s.json left as it is" in text
    assert "2.00 trajectories/s" in text and "1.20 trajectories/s" in text
    assert verdicts(report_of())["accepted_per_s"]["delta"] == pytest.approx(case.exact()["change"])


def test_case_34_an_update_in_ci_with_a_reason_is_loud(
    run: Run,
    fallen: Path,
    monkeypatch: pytest.MonkeyPatch,
    report_of: ReadReport,
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run("--rl-trace=after", UPDATE, "--rl-baseline-reason=by decision", REPORT)
    text = printed(result)
    assert "warning: the baseline is being changed inside CI" in text and "1 run" in text
    (change,) = report_of()["baseline_changes"]
    assert (change["baseline"], change["current"]) == (pytest.approx(2.0), pytest.approx(1.2))
    assert told(text) >= {"accepted_per_s", "2.00", "1.20", "-40.0"}


@pytest.mark.parametrize("value", ["0", "false", ""])
def test_case_34_a_switched_off_variable_updates_nothing(
    run: Run,
    fallen: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
) -> None:
    before = fallen.read_bytes()
    for name in ("UPDATE", "RL_BASELINE_UPDATE", "CI"):
        monkeypatch.setenv(name, value)
    assert run("--rl-trace=after").ret == pytest.ExitCode.TESTS_FAILED
    assert fallen.read_bytes() == before


def test_case_34_no_baseline_in_ci_fails_and_makes_none(
    run: Run,
    fallen: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fallen.unlink()
    monkeypatch.setenv("CI", "true")
    result = run("--rl-trace=after")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "accepted_per_s has no baseline yet" in printed(result)
    assert not fallen.exists()


def test_case_34_on_a_developers_machine_a_reason_is_enough(
    run: Run,
    case: Case,
    fallen: Path,
    report_of: ReadReport,
) -> None:
    result = run("--rl-trace=after", UPDATE, "--rl-baseline-reason=two workers fewer by decision", REPORT)
    assert result.ret == pytest.ExitCode.OK
    newest = json.loads(fallen.read_text())["levels"][-1]
    (taken,) = newest["runs"]
    stored = case.exact("update flag on a developer's machine")["stored_value"]
    assert taken["measurements"]["accepted_per_s"]["value"] == stored
    assert newest["reason"] == "two workers fewer by decision"
    text = printed(result)
    assert "baseline s.json: new level with 1 run" in text
    assert told(text) >= {"accepted_per_s", "2.00", "1.20", "-40.0"}
