"""The pytest plugin: flags, fixtures and hooks. It decides nothing and computes nothing.

Every test run of an environment loads this module, so it imports nothing heavy, and without `--rl-trace` it
changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.session import Run

_NEEDS_EQUALS = ("--rl-trace", "--rl-policy", "--rl-baseline")
_FIXTURES = ("rl_trace", "rl_captures", "rl_baseline")
_NO_CAPTURE = (
    "no capture to judge: pass --rl-trace=PATH, set rl_trace in the pytest configuration, "
    'or leave these tests out with -m "not rlserve"'
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags and their ini twins."""
    group = parser.getgroup("rlserve", "gate on captures of RL serving runs")
    flag = group.addoption
    flag(
        "--rl-trace",
        action="append",
        default=[],
        metavar="PATH",
        help="a capture to judge: directory, file or quoted glob; repeat for several runs",
    )
    flag("--rl-baseline", metavar="DIR", help="folder of baseline files (default: baselines)")
    flag("--rl-baseline-update", action="store_true", help="take these runs into the baseline")
    flag("--rl-baseline-update-new", action="store_true", help="add only what the baseline lacks")
    flag(
        "--rl-baseline-reason",
        metavar="TEXT",
        help="why a changed level is accepted; needed unless nothing changed",
    )
    flag(
        "--rl-policy",
        metavar="FILE",
        help="policy file (default: rlserve.toml, else [tool.rlserve] in pyproject.toml)",
    )
    flag(
        "--rl-series",
        metavar="NAME",
        help="series to compare with (default: the policy's, else the capture's)",
    )
    flag(
        "--rl-report",
        action="append",
        default=[],
        metavar="FORMAT:PATH",
        help="write a report: markdown, summary or json; repeat for several",
    )
    flag(
        "--rl-strict",
        action="store_true",
        help="fail where the verdict is inconclusive, incomplete, or lacks a baseline",
    )
    flag(
        "--rl-engine",
        metavar="local|ray[:ADDRESS]",
        default="local",
        help="where traces are read: in processes here (default) or on Ray, at ADDRESS, else RAY_ADDRESS, else here",
    )
    flag(
        "--rl-gate",
        choices=("enforce", "report"),
        default="enforce",
        help="report: regressions and missed limits xfail; broken evidence still errs (default: %(default)s)",
    )
    flag("--rl-selftest", action="store_true", help="show that every check, limit and gated metric can fail")
    flag("--no-rl-suite", action="store_true", help="leave out the built-in tests of the policy")
    parser.addini("rl_trace", "captures to judge, one a line", type="linelist", default=[])
    parser.addini("rl_baseline", "folder of baseline files", type="linelist", default=[])
    parser.addini("rl_policy", "policy file", type="linelist", default=[])
    parser.addini("rl_report", "reports to write, FORMAT:PATH, one a line", type="linelist", default=[])
    parser.addini("rl_strict", "fail where the verdict is inconclusive or incomplete", type="bool", default=False)


def _require_known_settings(config: pytest.Config) -> None:
    """Refuse a mistyped setting: pytest only warns, and without `rl_trace` the run would go green without a gate."""
    known = ("rl_trace", "rl_baseline", "rl_policy", "rl_report", "rl_strict")
    settings = getattr(config, "_inicfg", None)  # from pytest 9 on, which deprecates the other name
    for key in config.inicfg if settings is None else settings:
        if key.startswith("rl_") and key not in known:
            try:
                config.getini(key)  # another plugin's, perhaps
            except ValueError:
                from pytest_rlserve.errors import nearest

                raise pytest.UsageError(f"rlserve: unknown setting {key!r}{nearest(key, known)}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(args: list[str]) -> None:
    """Refuse two ways of typing a flag that would make the run green without a capture."""
    for arg in args:
        if arg.startswith("-rl-"):
            raise pytest.UsageError(f"{arg}: with one dash pytest reads this as its own flag -r; write -{arg}")
        if arg in _NEEDS_EQUALS:
            raise pytest.UsageError(
                f"{arg} PATH: write {arg}=PATH; after a space pytest takes the path for a folder of tests, "
                "moves its root directory there, and runs what it finds"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Read the flags; without a capture nothing else happens."""
    config.addinivalue_line("markers", "rlserve: set on every test that judges a capture")
    config.addinivalue_line("markers", "rl_trace(path): the capture of this test, relative to its file")
    _require_known_settings(config)
    if not _wanted(config):
        typed = [arg.partition("=")[0] for arg in map(str, config.invocation_params.args) if arg.startswith("--rl-")]
        if typed:
            raise pytest.UsageError(f"rlserve: {', '.join(typed)} without a capture to judge: pass --rl-trace=PATH")
        return
    from pytest_rlserve.asked import asked
    from pytest_rlserve.controller import Controller
    from pytest_rlserve.session import RUN, Run

    run = config.stash[RUN] = Run(config, asked(config))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(run), "rlserve-controller")


def _wanted(config: pytest.Config) -> bool:
    return bool(config.option.rl_trace or config.getini("rl_trace"))


def _run(config: pytest.Config) -> Run | None:
    if not _wanted(config):
        return None
    from pytest_rlserve.session import RUN

    return config.stash.get(RUN, None)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what will be judged, and by which policy."""
    run = _run(config)
    if run is None:
        return None
    names = ", ".join(Path(one).name for one in run.asked.traces[:3]) + (" …" if len(run.asked.traces) > 3 else "")
    policy = run.policy.path.name if run.policy.path else "the default policy"
    named = any(Path(arg.partition("::")[0]).name == run.policy_path.name for arg in config.args)
    left_out = "" if run.asked.suite else f"; {'the rest of ' * named}the built-in suite is left out"
    return f"rlserve: {names}; {policy}{left_out}"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let the policy file's tests join the run, whatever paths were given."""
    report = yield
    if isinstance(collector, pytest.Session) and report.passed and report.result is not None:
        run = _run(collector.config)
        if run is not None and run.asked.suite and not collector.isinitpath(run.policy_path):
            from pytest_rlserve.suite import PolicyFile

            report.result = [*report.result, PolicyFile.from_parent(collector, path=run.policy_path)]
    return report


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the policy file where it is named itself."""
    run = _run(parent.config)
    if run is None or file_path != run.policy_path or not parent.session.isinitpath(file_path):
        return None
    from pytest_rlserve.suite import PolicyFile

    found: pytest.Collector = PolicyFile.from_parent(parent, path=file_path)
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that judge a capture."""
    for item in items:
        if not set(_FIXTURES).isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("rlserve")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `rl_trace` one parameter for each capture; without any, one that errors, for an empty list would skip."""
    if "rl_trace" not in metafunc.fixturenames:
        return
    marker = next(metafunc.definition.iter_markers("rl_trace"), None)
    if marker is not None:
        if len(marker.args) != 1 or marker.kwargs or not isinstance(marker.args[0], str | Path):
            text = f"{metafunc.definition.nodeid}: the marker rl_trace takes one path"
            raise pytest.fail.Exception(text, pytrace=False)
        given = str(marker.args[0])
        path = given if "://" in given else str(metafunc.definition.path.parent / given)
        metafunc.parametrize("rl_trace", [path], indirect=True, scope="session", ids=[Path(path).name])
        return
    run = _run(metafunc.config)
    traces = run.asked.traces if run else ()
    ids = [Path(one).name for one in traces] or ["no-trace"]
    metafunc.parametrize("rl_trace", range(len(ids)) if traces else [None], indirect=True, scope="session", ids=ids)


@pytest.fixture(scope="session")
def rl_trace(request: pytest.FixtureRequest) -> Capture:
    """The capture under test, once for each capture given; the marker `rl_trace(path)` names another."""
    from pytest_rlserve.fixtures import one_capture

    return one_capture(request.config, getattr(request, "param", None), _NO_CAPTURE)


@pytest.fixture(scope="session")
def rl_captures(request: pytest.FixtureRequest) -> tuple[Capture, ...]:
    """All captures under test, in the order given."""
    from pytest_rlserve.fixtures import all_captures

    return all_captures(request.config, _NO_CAPTURE)


@pytest.fixture
def rl_baseline(request: pytest.FixtureRequest) -> Any:
    """The baseline of the captures' series: ``rl_baseline.check("ttft.p95", regression="10%")``."""
    from pytest_rlserve.fixtures import BaselineFixture

    return BaselineFixture(request, _NO_CAPTURE)


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, Any] | None:
    """Give inconclusive tests a status of their own: they neither passed nor failed."""
    if report.skipped and any(key == "rlserve" for key, _ in getattr(report, "user_properties", ())):
        from pytest_rlserve.session import noted

        if isinstance(report, pytest.TestReport) and any(one["verdict"] == "inconclusive" for one in noted(report)):
            return "inconclusive", "?", ("INCONCLUSIVE", {"yellow": True})
    return None
