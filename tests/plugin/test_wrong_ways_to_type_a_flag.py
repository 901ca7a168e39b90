"""Ways of typing a flag that pytest would take for something else, and then run green without a capture."""

from __future__ import annotations

import pytest

from plugin.projects import Run, error_lines

WITH_A_SPACE = (
    "ERROR: {0} PATH: write {0}=PATH; after a space pytest takes the path for a folder of tests, "
    "moves its root directory there, and runs what it finds"
)
ONE_DASH = "ERROR: {0}: with one dash pytest reads this as its own flag -r; write -{0}"
WRONG = [
    (("--rl-trace", "run-1"), WITH_A_SPACE.format("--rl-trace")),
    (("--rl-policy", "rlserve.toml"), WITH_A_SPACE.format("--rl-policy")),
    (("--rl-baseline", "baselines"), WITH_A_SPACE.format("--rl-baseline")),
    (("-rl-trace=run-1",), ONE_DASH.format("-rl-trace=run-1")),
    (("-rl-strict",), ONE_DASH.format("-rl-strict")),
]
named = pytest.mark.parametrize(("args", "said"), WRONG, ids=[" ".join(args) for args, _ in WRONG])


@named
@pytest.mark.parametrize("others", [(), ("-n", "2"), ("-q", "tests")], ids=["alone", "xdist", "among others"])
def test_it_is_refused_on_the_command_line(
    run: Run, pytester: pytest.Pytester, args: tuple[str, ...], said: str, others: tuple[str, ...]
) -> None:
    pytester.makepyfile("def test_green(): pass")
    pytester.mkdir("run-1")
    pytester.mkdir("tests")
    result = run(*others, *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error_lines(result) == [said]


@named
def test_it_is_refused_in_addopts(run: Run, pytester: pytest.Pytester, args: tuple[str, ...], said: str) -> None:
    pytester.makepyfile("def test_green(): pass")
    pytester.makeini(f"[pytest]\naddopts = {' '.join(args)}")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error_lines(result) == [said]


def test_it_is_refused_in_the_environment(run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile("def test_green(): pass")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-rl-trace=run-1")
    assert run().ret == pytest.ExitCode.USAGE_ERROR


def test_a_conftest_inside_a_capture_is_never_run(run: Run, pytester: pytest.Pytester) -> None:
    pytester.mkdir("run-1").joinpath("conftest.py").write_text("raise SystemExit('code of a capture was run')")
    result = run("--rl-trace", "run-1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "code of a capture" not in str(result.errlines)
