"""Baseline files: baselines/<series>.json, one value a line, so that a review sees what moved.

A file that cannot be read is never taken for "no baseline", and never overwritten unasked. A file is written
beside and renamed over, so that a reader sees the old one or the new one, whole.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rlserve import schema
from pytest_rlserve.errors import BaselineError, UsageError
from pytest_rlserve.gate.atomic import alone_in, replace, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import EllipsisType

    from pytest_rlserve.capture import Capture

FORMAT = "rlserve.baseline.v1"
MOST_RUNS = 20
ANCHOR_JOBS = 3
_SERIES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class Baseline:
    """One baseline file: the trusted runs of a series, level after level."""

    path: Path
    document: Mapping[str, Any]
    """What the file holds, but for its digest."""

    @classmethod
    def read(cls, path: Path | str) -> Baseline | None:
        """Read a baseline file; None if there is none.

        Raises:
            BaselineError: there is one, but it cannot be trusted.
        """
        return read(Path(path))

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Return the runs of the newest level: what current runs are compared with."""
        newest: list[dict[str, Any]] = self.document["levels"][-1]["runs"]
        return newest

    def values(self, key: str) -> dict[str, list[float]]:
        """Return job → values of one metric over the newest level's runs."""
        return values_of(self.runs, key)

    def pairs(
        self, key: str, captures: Sequence[Capture], values: Sequence[float]
    ) -> dict[str, tuple[list[float], list[float]]]:
        """Return pair → values of the baseline's and the current runs, if every capture has its partner here.

        Partners were made in turn on one machine: a run of another job is none, whatever it calls its pair.
        """
        found: dict[str, tuple[list[float], list[float]]] = {}
        for capture, value in zip(captures, values, strict=True):
            pair, job = capture.manifest.pair, capture.manifest.job
            partners = [
                run["measurements"][key]["value"]
                for run in self.runs
                if pair is not None and run.get("pair") == pair and key in run["measurements"]
                if job is None or run["job"] == job or run["job"].startswith("unnamed/")
            ]
            if pair is None or not partners:
                return {}
            found.setdefault(f"{job}/{pair}", (partners, []))[1].append(value)
        return found

    def anchor(self, key: str) -> dict[str, list[float]]:
        """Return job → values of the first jobs of the first level: what drift is measured from."""
        jobs = values_of(anchored(self.document["levels"][0]["runs"]), key)
        return dict(itertools.islice(jobs.items(), ANCHOR_JOBS))

    def beyond_anchor(self, key: str) -> bool:
        """Tell whether the baseline has come further than its anchor."""
        return len(self.document["levels"]) > 1 or len(self.values(key)) > len(self.anchor(key))

    def calm_spread(self, key: str, *, linear: bool, start: float = 0.0) -> tuple[float, float]:
        """Return the variance between jobs of the newest level as its neighbours in time show it.

        Neighbours differ by noise alone, while the whole level may have drifted: the mean squared successive
        difference (J. von Neumann and others, The mean square successive difference, Annals of Mathematical
        Statistics 12, 1941). Its degrees of freedom are worth about two thirds of their number.
        """
        means = [math.fsum(v) / len(v) + start for v in self.values(key).values()]
        y = means if linear else [math.log(mean) for mean in means if mean > 0]
        steps = [(after - before) ** 2 for before, after in itertools.pairwise(y)]
        return (math.fsum(steps) / 2 / len(steps), len(steps) * 2 / 3) if steps else (0.0, 0.0)

    def carried(self, key: str) -> tuple[float, float]:
        """Return variance and degrees of freedom that earlier levels leave for one metric."""
        found = self.document.get("carried", {}).get(key, {"variance": 0.0, "df": 0.0})
        return found["variance"], found["df"]


def anchored(runs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the runs that may be an anchor: not those taken in for a reason although they were not unchanged."""
    return [run for run in runs if not run.get("reason")] or runs


def values_of(runs: Sequence[Mapping[str, Any]], key: str) -> dict[str, list[float]]:
    """Return job → values of one measurement, jobs in the order of their first run."""
    jobs: dict[str, list[float]] = {}
    for run in runs:
        if key in run["measurements"]:
            jobs.setdefault(run["job"], []).append(run["measurements"][key]["value"])
    return jobs


def path_of(folder: Path, series: str) -> Path:
    """Return the file of a series.

    Raises:
        UsageError: the series' name cannot be a file's name.
    """
    if not _SERIES.fullmatch(series):
        raise UsageError(f"series {series!r} cannot name a baseline file: use letters, digits, '.', '_' and '-'")
    return folder / f"{series}.json"


def read(path: Path) -> Baseline | None:
    """Read a baseline file; None if there is none.

    Raises:
        BaselineError: there is one, but it cannot be trusted.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    if data.startswith(_LFS):
        raise _unreadable(path, "it is a Git LFS pointer: run 'git lfs pull'")
    if re.search(rb"^(<{7}|={7}|>{7})", data, re.MULTILINE):
        raise _unreadable(path, "it holds the marks of a merge conflict")
    try:
        document = json.loads(data, object_pairs_hook=_once, parse_constant=_refuse)
    except ValueError as error:
        raise _unreadable(path, f"it is not whole JSON: {error}") from None
    version = document.get("schema") if isinstance(document, dict) else None
    if isinstance(version, str) and version != FORMAT:
        raise _unreadable(path, f"it is written as {version[:40]!r}, and this version reads {FORMAT!r}")
    reasons = schema.problems(FORMAT, document)
    if reasons:
        raise _unreadable(path, "; ".join(reasons[:3]))
    whole = {key: value for key, value in document.items() if key != "digest"}
    if _text(whole) != data.decode():
        raise _unreadable(path, "it was edited or merged by hand: it is not what was written, and its digest tells")
    return Baseline(path, whole)


def _unreadable(path: Path, why: str) -> BaselineError:
    return BaselineError(
        f"baseline {path.name} cannot be read: {why}\n"
        f"  {path}\n"
        f"  restore it from version control, or replace it: pytest --rl-trace=… --rl-baseline-update"
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice")
    return table


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a finite number")


def _sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Add the digest by which a later reader tells that nobody has changed a value or merged two files line by line."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    return {**rest, "digest": hashlib.sha256(_plain(rest).encode()).hexdigest()}


def _text(document: Mapping[str, Any]) -> str:
    return _plain(_sealed(document))


def _plain(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"


def write(path: Path, document: Mapping[str, Any], *, over: Baseline | EllipsisType | None = ...) -> bool:
    """Write a baseline file whole or not at all; return False if it already holds exactly that.

    Args:
        path: the file.
        document: what it is to hold.
        over: the baseline that `document` was made from, None if there was none. If the file holds something else
            by now, another run has written it, and it is left as it is. By default, whatever is there is replaced.

    Raises:
        BaselineError: the file has changed underneath, or cannot be written.
    """
    new = _text(document).encode()
    reasons = schema.problems(FORMAT, _sealed(document))
    assert not reasons, reasons
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(path.parent) as (folder, alone):
            if alone:
                sweep(path)
            there = path.read_bytes() if path.exists() else None
            if there == new:
                return False
            if over is not ... and there != (None if over is None else _text(over.document).encode()):
                raise _changed(path)
            replace(path, new)
            os.fsync(folder)
    except OSError as error:
        raise BaselineError(f"baseline {path} cannot be written: {error.strerror or error}") from None
    return True


def _changed(path: Path) -> BaselineError:
    return BaselineError(
        f"baseline {path.name} was changed by another run while this one was judging, and is left as it is\n"
        f"  {path}\n"
        f"  run again, so that these runs are judged by what it holds now"
    )
