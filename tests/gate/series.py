"""A series with its baseline file, as the gate sees it run after run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plugin.projects import RECORDED

from pytest_rlserve.gate.judgement import Update
from pytest_rlserve.gate.policy import Policy
from pytest_rlserve.gate.refresh import Refreshed, refresh
from pytest_rlserve.gate.verdicts import Gate

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pytest_rlserve.capture import Capture


@dataclass
class Series:
    """What was taken into the baseline of the series "s", and what it holds."""

    folder: Path
    policy: Policy = field(default_factory=Policy)

    @property
    def path(self) -> Path:
        return self.folder / "s.json"

    def gate(self, *captures: Capture, **update: Any) -> Gate:
        """Return a gate over captures; keywords say what is to be done with the baseline."""
        return Gate(captures=captures, policy=self.policy, folder=self.folder, series="s", update=Update(**update))

    def take(
        self,
        *captures: Capture,
        reason: str | None = None,
        new_only: bool = False,
        only: Collection[str] | None = None,
    ) -> Refreshed:
        """Update the baseline with captures, as `--rl-baseline-update` does."""
        return refresh(self.gate(*captures, wanted=not new_only, new_only=new_only, reason=reason), only=only)

    @property
    def document(self) -> dict[str, Any]:
        """Return what the file holds."""
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    @property
    def levels(self) -> list[list[str]]:
        """Return the names of the runs, level by level."""
        return [[run["name"] for run in level["runs"]] for level in self.document["levels"]]

    def values(self, key: str, level: int = -1) -> list[float | None]:
        """Return a metric's value in each run of a level, None where a run lacks it."""
        runs = self.document["levels"][level]["runs"]
        return [run["measurements"].get(key, {"value": None})["value"] for run in runs]


SHARED = RECORDED.parents[3] / "shared" / "captures"
"""More recorded captures, where they lie beside the checkout."""


def recorded() -> dict[str, Path]:
    """Return every recorded capture at hand by its name, those beside the checkout included."""
    folders = [
        *(SHARED.iterdir() if SHARED.is_dir() else ()),
        *RECORDED.iterdir(),
    ]  # the committed ones last: they win
    return {folder.name: folder for folder in folders if (folder / "rlserve.json").is_file()}
