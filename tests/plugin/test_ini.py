"""The ini twins of the flags: what they count from, and who wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, error_lines, outcomes

if TYPE_CHECKING:
    from plugin.projects import ReadReport, Run, Write


@both_ways
def test_paths_in_the_ini_file_count_from_the_ini_file(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    baseline: Write,
    monkeypatch: pytest.MonkeyPatch,
    workers: tuple[str, ...],
) -> None:
    capture("runs/one")
    baseline(10.0, 10.1, 9.9, folder="stored")
    (pytester.path / "gate.toml").write_text('[limits]\n"ttft.p50" = "<= 1s"')
    pytester.makeini(
        "[pytest]\nrl_trace = runs/one\nrl_baseline = stored\nrl_policy = gate.toml\nrl_report = json:out/report.json"
    )
    monkeypatch.chdir(pytester.mkdir("deep"))
    result = run("-v", *workers)
    assert outcomes(result) == {"passed": ALL + 1}
    assert (pytester.path / "out" / "report.json").is_file()
    assert not (pytester.path / "deep" / "out").exists()


def test_paths_on_the_command_line_count_from_where_the_user_stands(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture("deep/one")
    pytester.makeini("[pytest]")
    monkeypatch.chdir(pytester.path / "deep")
    run("--rl-trace=one", "--rl-report=json:report.json")
    assert report_of("deep/report.json")["captures"][0]["name"] == "one"


def test_a_flag_stands_in_for_its_ini_twin(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport
) -> None:
    capture("one")
    pytester.makeini("[pytest]\nrl_trace = nowhere\nrl_report = json:other.json")
    run("--rl-trace=one", "--rl-report=json:report.json")
    assert [found["name"] for found in report_of()["captures"]] == ["one"]
    assert not (pytester.path / "other.json").exists()


def test_several_captures_stand_one_a_line(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport
) -> None:
    capture("one")
    capture("two")
    pytester.makeini("[pytest]\nrl_trace =\n  one\n  two")
    run("--rl-report=json:report.json")
    assert [found["name"] for found in report_of()["captures"]] == ["one", "two"]


def test_rl_strict_in_the_ini_file_is_the_flag(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("one")
    pytester.makeini("[pytest]\nrl_strict = true")
    assert run("--rl-trace=one").ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rl_trace = nowhere", "there is no file or directory PROJECT/nowhere"),
        ("rl_policy = nowhere.toml", "there is no policy file PROJECT/nowhere.toml"),
        ("rl_report = json", "--rl-report=json: write FORMAT:PATH, with one of "),
    ],
)
def test_what_is_wrong_in_the_ini_file_is_one_line_and_exit_4(
    run: Run, pytester: pytest.Pytester, capture: Write, line: str, said: str
) -> None:
    capture("one")
    pytester.makeini(f"[pytest]\n{line}")
    flag = () if line.startswith("rl_trace") else ("--rl-trace=one",)
    result = run(*flag)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (printed,) = error_lines(result)
    assert printed.startswith(f"ERROR: rlserve: {said}".replace("PROJECT", str(pytester.path)))


@pytest.mark.parametrize(
    ("typed", "said"),
    [("rl_trce = one", "'rl_trce'; did you mean 'rl_trace'?"), ("rl_series = x", "'rl_series'")],
)
def test_a_setting_that_is_not_there_is_wrong_use(
    run: Run, pytester: pytest.Pytester, capture: Write, typed: str, said: str
) -> None:
    """pytest itself only warns: the gate would be gone and the run green."""
    capture("one")
    pytester.makepyfile("def test_own(): ...")
    pytester.makeini(f"[pytest]\n{typed}")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error_lines(result)[0].startswith(f"ERROR: rlserve: unknown setting {said}")


def test_a_setting_of_another_plugin_is_left_to_it(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(): ...")
    pytester.makeconftest("def pytest_addoption(parser): parser.addini('rl_seed', 'of another plugin')")
    pytester.makeini("[pytest]\nrl_seed = 3")
    assert run().ret == pytest.ExitCode.OK
