"""Ids of the built-in tests: they name the policy file, and can be typed back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import CHECKS, ITEMS, PRIMARY, ids, outcomes

if TYPE_CHECKING:
    from plugin.projects import ReadReport, Run, Write

LISTING = ("--rl-trace=run-1", "--collect-only", "-q")
LEFT_OUT = "rlserve: run-1; {}; the built-in suite is left out"


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester, capture: Write) -> None:
    capture("run-1")
    pytester.makepyfile(test_own="def test_own(): pass")


def suite(file: str) -> list[str]:
    return ["test_own.py::test_own", *(f"{file}::{item}" for item in ITEMS)]


def test_they_name_rlserve_toml(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "rlserve.toml").write_text('[limits]\n"ttft.p95" = "<= 1s"\n[metrics.ttft]\n')
    assert ids(run(*LISTING)) == [
        "test_own.py::test_own",
        *(f"rlserve.toml::checks::{name}" for name in CHECKS),
        "rlserve.toml::limits::ttft.p95",
        f"rlserve.toml::metrics::{PRIMARY}",
        "rlserve.toml::metrics::ttft.p50",
    ]


def test_they_name_pyproject_toml_where_the_policy_stands_there(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.rlserve]\nseries = "s"')
    assert ids(run(*LISTING)) == suite("pyproject.toml")


def test_rlserve_toml_wins_over_pyproject_toml(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.rlserve]\nseries = "s"')
    (pytester.path / "rlserve.toml").write_text("")
    assert ids(run(*LISTING)) == suite("rlserve.toml")


def test_they_name_rlserve_toml_where_there_is_no_policy(run: Run) -> None:
    assert ids(run(*LISTING)) == suite("rlserve.toml")


def test_they_name_the_file_of_the_flag(run: Run, pytester: pytest.Pytester) -> None:
    pytester.mkdir("gates").joinpath("nightly.toml").write_text("")
    assert ids(run(*LISTING, "--rl-policy=gates/nightly.toml")) == suite("gates/nightly.toml")


@pytest.mark.parametrize("typed", ["../outside.toml", "sub/../../outside.toml", "ABSOLUTE"])
def test_they_name_rlserve_toml_where_the_policy_lies_outside_the_project(
    run: Run, pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, typed: str
) -> None:
    outside = pytester.path.parent / "outside.toml"
    outside.write_text("")
    result = run("--rl-trace=run-1", "--collect-only", f"--rl-policy={typed.replace('ABSOLUTE', str(outside))}")
    assert "rlserve: run-1; outside.toml" in result.outlines
    outside.unlink()
    result.stdout.fnmatch_lines(["*<PolicyFile rlserve.toml>"])


@pytest.mark.parametrize(
    ("file", "workers"),
    [("rlserve.toml", ()), ("rlserve.toml", ("-n", "2")), ("pyproject.toml", ())],
    ids=["rlserve.toml", "rlserve.toml-xdist", "pyproject.toml"],
)
def test_one_of_them_can_be_run(
    run: Run, pytester: pytest.Pytester, report_of: ReadReport, file: str, workers: tuple[str, ...]
) -> None:
    (pytester.path / file).write_text('series = "s"' if file == "rlserve.toml" else '[tool.rlserve]\nseries = "s"')
    item = f"{file}::metrics::update_downtime"
    result = run("--rl-trace=run-1", item, "--rl-report=json:report.json", *workers)
    assert outcomes(result) == {"skipped": 1}
    assert [found["metric"] for found in report_of()["comparisons"]] == ["update_downtime"]
    header = LEFT_OUT.format(file).replace("the built-in", "the rest of the built-in")
    assert header in result.outlines


def test_a_group_of_them_can_be_run(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "rlserve.toml").write_text("")
    assert outcomes(run("--rl-trace=run-1", "rlserve.toml::checks")) == {"passed": len(CHECKS)}


def test_the_policy_file_itself_can_be_run(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "rlserve.toml").write_text("")
    assert ids(run(*LISTING, "rlserve.toml")) == suite("rlserve.toml")[1:]


def test_naming_a_test_leaves_the_suite_out_and_the_header_says_so(run: Run) -> None:
    result = run("--rl-trace=run-1", "test_own.py::test_own")
    assert outcomes(result) == {"passed": 1}
    assert LEFT_OUT.format("the default policy") in result.outlines
    result.stdout.fnmatch_lines(["INCOMPLETE:*"])


def test_no_id_names_a_capture_or_a_bracket(run: Run) -> None:
    listed = [line for line in ids(run(*LISTING)) if line.startswith("rlserve")]
    assert not [line for line in listed if "[" in line or "run-1" in line]
