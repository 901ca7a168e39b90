"""What a pytest run was asked for: its flags and their ini twins, checked."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_rlserve.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The flags of a run, with paths made absolute."""

    traces: tuple[str, ...]
    baseline: Path
    suite: bool
    policy: Path | None = None
    series: str | None = None
    reports: tuple[str, ...] = ()
    update: bool = False
    update_new: bool = False
    reason: str | None = None
    strict: bool = False
    gate: str = "enforce"
    """`report` lets regressions and missed limits xfail; broken evidence still errs."""
    selftest: bool = False
    engine: str = "local"
    """Where traces are read: `local`, `ray`, or `ray:` and the address of a cluster."""


def _folders(config: pytest.Config) -> tuple[Path, Path]:
    """Return the folders that typed paths and ini values count from."""
    return config.invocation_params.dir, config.inipath.parent if config.inipath else config.rootpath


def _given(config: pytest.Config, name: str) -> list[str]:
    """Return the paths of a flag or its ini twin, absolute; URIs as they are."""
    from pytest_rlserve.readers.store import is_uri

    here, home = _folders(config)
    flag = getattr(config.option, name)
    typed = [flag] if isinstance(flag, str) else flag or []
    if not all(typed):
        raise UsageError(f"--{name.replace('_', '-')}= names no path; is a variable empty?")
    given = [(here, one) for one in typed] or [(home, one) for one in config.getini(name)]
    return [one if is_uri(one) else os.path.normpath(folder / one) for folder, one in given]


def _path(config: pytest.Config, name: str) -> Path | None:
    """Return the one path of a flag or its ini twin, which has to be on this machine."""
    given = next(iter(_given(config, name)), None)
    return None if given is None else Path(given)


def _reports(config: pytest.Config) -> list[str]:
    """Return the reports to write, FORMAT:PATH, relative to here."""
    from pytest_rlserve.reports.files import parse_spec

    here, home = _folders(config)
    typed, given = ([*map(parse_spec, specs)] for specs in (config.option.rl_report, config.getini("rl_report")))
    return [f"{name}:{path}" for name, path in typed or [(n, os.path.relpath(home / p, here)) for n, p in given]]


def asked(config: pytest.Config) -> Asked:
    """Read the flags and their ini twins.

    Raises:
        pytest.UsageError: a flag is wrong, or names what is not there.
    """
    from pytest_rlserve.gate.baseline import path_of
    from pytest_rlserve.readers.discover import captures_in

    option = config.option
    try:
        traces = [one for given in _given(config, "rl_trace") for one in captures_in(given)]
        baseline, policy = (_path(config, name) for name in ("rl_baseline", "rl_policy"))
        reports = _reports(config)
        if policy and not policy.is_file():
            raise UsageError(f"there is no policy file {policy}")
        if option.rl_baseline_reason is not None and not option.rl_baseline_update:
            raise UsageError("--rl-baseline-reason goes with --rl-baseline-update")
        if option.rl_series == "":
            raise UsageError("--rl-series= names no series; is a variable empty?")
        if option.rl_series is not None:
            path_of(Path(), option.rl_series)  # one that cannot name a file is wrong use
        if not re.fullmatch("local|ray(:.+)?", option.rl_engine):
            raise UsageError(f"--rl-engine={option.rl_engine}: write local, ray, or ray:ADDRESS")
        if option.rl_baseline_reason is not None and not option.rl_baseline_reason.strip():
            raise UsageError("--rl-baseline-reason= is empty: say why the level is accepted")
    except UsageError as error:
        raise pytest.UsageError(f"rlserve: {error}") from None
    option.rl_trace = traces  # xdist hands the options to its workers, which may start elsewhere
    return Asked(
        traces=tuple(traces),
        baseline=baseline or config.rootpath / "baselines",
        policy=policy,
        series=option.rl_series,
        reports=tuple(reports),
        update=option.rl_baseline_update,
        update_new=option.rl_baseline_update_new,
        reason=option.rl_baseline_reason,
        strict=option.rl_strict or config.getini("rl_strict"),
        suite=not option.no_rl_suite and not any("::" in arg for arg in config.args),
        gate=option.rl_gate,
        selftest=option.rl_selftest,
        engine=option.rl_engine,
    )
