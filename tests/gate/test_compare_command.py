"""`rlserve compare` judges what `pytest --rl-trace` would judge, and refuses what it refuses."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from plugin.rollout import write_rollout

from pytest_rlserve.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_run_that_is_given_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy agrees with itself: counted as a second run, it would make every comparison surer than it is."""
    monkeypatch.chdir(tmp_path)
    write_rollout(tmp_path / "run-1", rate=10.0)
    shutil.copytree(tmp_path / "run-1", tmp_path / "copy")
    assert main(["compare", "run-1", "copy"]) == 2
    assert "run-1 and copy hold the same files" in capsys.readouterr().err
    assert main(["compare", "run-1", "run-1"]) == 2


def test_what_is_left_out_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rollout(tmp_path / "run-1", rate=10.0)
    assert main(["compare", "run-1"]) == 1
    short = capsys.readouterr().out
    assert "(-v lists them)" in short
    assert "to record one" not in short
    assert main(["compare", "run-1", "-v"]) == 1
    assert "to record one: pytest --rl-trace=" in (long := capsys.readouterr().out)
    assert "residence_prefill" in long
    main(["compare", "run-1", "--format=json"])
    (tmp_path / "report.json").write_text(capsys.readouterr().out)
    assert main(["report", "report.json", "-v"]) == 0
    assert capsys.readouterr().out == long
