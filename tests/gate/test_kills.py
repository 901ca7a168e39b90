"""Killed in the middle, or overtaken by another: the file is the old one or the new one, whole, and nothing is lost.

`RLSERVE_KILLS` says how many processes are killed (default 40 that only write, a tenth of it whole sessions).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from plugin.rollout import FIRST_START, write_rollout

from pytest_rlserve.errors import BaselineError
from pytest_rlserve.gate import baseline as store
from pytest_rlserve.gate.refresh import refresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from gate.series import Series
    from pytest_rlserve.capture import Capture

    Measured = Callable[..., Capture]

KILLS = int(os.environ.get("RLSERVE_KILLS", "40"))
RATE = "accepted_trajectory_throughput"


def killing(what: str, folder: Path, count: int) -> dict[str, int]:
    command = [sys.executable, Path(__file__).with_name("killing.py"), what, folder, str(count), "1"]
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(what, found)
    return found


@pytest.fixture
def project(tmp_path: Path, series: Series, measured: Measured) -> Path:
    """A project with a baseline of three jobs and two captures that it does not know yet."""
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c"))))
    for number in range(2):
        write_rollout(tmp_path / f"new-{number}", start=FIRST_START + 1e5 + number, job=f"new-{number}")
    (tmp_path / "rlserve.toml").write_text('series = "s"\n')
    return tmp_path


def test_a_killed_writer_leaves_one_whole_file_or_the_other(tmp_path: Path) -> None:
    found = killing("writes", tmp_path, KILLS)
    assert found.get("broken", 0) == 0
    assert found.get("one", 0) + found.get("other", 0) == KILLS


def test_a_killed_session_leaves_the_old_baseline_or_the_new_one(project: Path) -> None:
    kills = max(KILLS // 10, 4)
    found = killing("updates", project, kills)
    assert found.get("broken", 0) == 0
    assert found.get("old", 0) + found.get("new", 0) == kills


def test_of_two_sessions_at_once_none_is_lost_without_a_word(project: Path) -> None:
    found = killing("races", project, max(KILLS // 10, 4))
    assert found["lost silently"] == 0


def test_an_update_that_is_overtaken_while_it_works_says_so_and_takes_nothing_back(
    series: Series, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c"))))
    theirs, mine = measured(10.0, job="theirs"), measured(10.0, job="mine")
    write = store.write

    def overtaken(*args: Any, **more: Any) -> bool:
        monkeypatch.setattr(store, "write", write)
        assert series.take(theirs).written
        return write(*args, **more)

    monkeypatch.setattr(store, "write", overtaken)
    with pytest.raises(BaselineError, match="changed by another run"):
        series.take(mine)
    assert [run["job"] for run in series.document["levels"][0]["runs"]] == ["a", "b", "c", "theirs"]


def test_a_verdict_on_what_the_file_held_before_takes_nothing_in(series: Series, measured: Measured) -> None:
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c"))))
    gate = series.gate(measured(10.0, job="mine"), wanted=True)
    assert gate.comparison(RATE, 0.05).verdict == "unchanged"
    series.take(measured(8.0, job="theirs"), reason="two workers fewer")
    with pytest.raises(BaselineError, match="changed by another run"):
        refresh(gate)
    assert [[run["job"] for run in level["runs"]] for level in series.document["levels"]] == [
        ["a", "b", "c"],
        ["theirs"],
    ]


def test_a_file_made_by_another_meanwhile_is_not_joined_unseen(series: Series, measured: Measured) -> None:
    gate = series.gate(measured(5.0, job="mine"), wanted=True)
    assert gate.comparison(RATE, 0.05).verdict == "no_baseline"
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c"))))
    with pytest.raises(BaselineError, match="changed by another run"):
        refresh(gate)
    assert len(series.levels[0]) == 3
