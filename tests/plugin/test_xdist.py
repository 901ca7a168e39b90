"""With xdist: the same report, captures read once, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, outcomes
from pytest_rlserve import engine

if TYPE_CHECKING:
    from plugin.projects import Run, Write

COUNTING = """
import os
from pathlib import Path

import pytest_rlserve.readers as readers

LOG = Path(__file__).with_name("opened.txt")
_open = readers.open_capture


def counted(path, **more):
    with LOG.open("a") as log:
        log.write(f"{os.getpid()} {Path(path).name}\\n")
    return _open(path, **more)


readers.open_capture = counted


def pytest_unconfigure():
    readers.open_capture = _open
"""
OWN = """
    def test_of_each(rl_trace): assert rl_trace.has("requests")
    def test_of_all(rl_captures): assert len(rl_captures) == 2
    def test_of_the_baseline(rl_baseline): rl_baseline.check("ttft.p50", "itl.p50")
    def test_of_a_limit(rl_trace): assert not "as it should be"
"""


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester, capture: Write, three_runs: Path) -> None:
    capture("runs/one", rate=8.0)
    capture("runs/two", rate=8.1)
    pytester.makepyfile(test_own=OWN)
    (pytester.path / "rlserve.toml").write_text('[limits]\n"ttft.p95" = "<= 1s"\n"itl.p50" = "<= 1ms"')


def test_the_report_does_not_depend_on_the_number_of_workers(run: Run, pytester: pytest.Pytester) -> None:
    reports = []
    for workers in (0, 2, 4):
        path = pytester.path / f"{workers}.json"
        result = run("--rl-trace=runs", f"--rl-report=json:{path.name}", "-n", workers)
        counts = outcomes(result)
        assert counts == {"passed": ALL + 3, "failed": 4, "inconclusive": 1}, counts
        reports.append(path.read_bytes())
    assert reports[0] == reports[1] == reports[2]


def test_the_report_does_not_depend_on_the_hash_seed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = []
    for seed in ("0", "1"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        pytester.runpytest_subprocess("--rl-trace=runs", f"--rl-report=json:{seed}.json")
        reports.append((pytester.path / f"{seed}.json").read_bytes())
    assert reports[0] == reports[1]


@both_ways
def test_the_controller_reads_each_capture_once_and_workers_none(
    run: Run, pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makeconftest(COUNTING)
    run("--rl-trace=runs", *workers)
    opened = (pytester.path / "opened.txt").read_text().splitlines()
    assert opened == [f"{os.getpid()} one", f"{os.getpid()} two"]


@pytest.mark.parametrize("args", [(), ("--rl-series=a/b",), ("--rl-trace=runs/two",)], ids=["run", "bad name", "twice"])
def test_the_folder_shared_with_workers_is_removed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made: list[str] = []
    save = engine.share.save
    monkeypatch.setattr(engine.share, "save", lambda capture, to: made.append(str(to)) or save(capture, to))
    run("--rl-trace=runs", "-n", 2, "-p", "no:cacheprovider", *args)
    assert len(made) == (0 if args else 2)  # wrong use is noticed before anything is laid out
    assert all(Path(folder).is_relative_to(tmp_path) for folder in made)
    assert not list(tmp_path.glob("rlserve-*"))


@pytest.mark.parametrize("dist", ["each"])
def test_any_way_of_sharing_out_tests_will_do(run: Run, pytester: pytest.Pytester, dist: str) -> None:
    flags = ("--tx", "2*popen", "--dist=each") if dist == "each" else ("-n", 2, f"--dist={dist}")
    run("--rl-trace=runs", "--rl-report=json:report.json", "-k", "metrics or limits", *flags)
    assert '"verdict": "regressed"' in (pytester.path / "report.json").read_text()


def test_a_workers_crash_is_no_pass(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import os\ndef pytest_runtest_call(item):\n    if item.name == 'update_downtime': os._exit(3)"
    )
    result = run("--rl-trace=runs", "-k", "update_downtime", "-n", 2, "--rl-report=json:report.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = (pytester.path / "report.json").read_text()
    assert '"verdict": "incomplete"' in text
    assert '"rlserve.toml::metrics::update_downtime"' in text
