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
