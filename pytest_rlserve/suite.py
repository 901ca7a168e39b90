"""The built-in tests: one item for each check, limit and gated metric, collected from the policy file.

Their ids come from the registry and the policy alone, so that they are known before a capture is read, and an
item that did not run is missed. An item judges all captures and names the one that falls short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_rlserve.errors import EvidenceError, FactorsWarning, InconclusiveWarning, RlserveWarning, UsageError
from pytest_rlserve.gate.items import items
from pytest_rlserve.gate.judgement import Judgement
from pytest_rlserve.session import PROPERTY, RUN, note

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from pytest_rlserve.gate.items import Kind

_TITLES = {"checks": "check", "limits": "limit", "metrics": "metric"}


def _hooks_beside(node: pytest.Item | pytest.Collector) -> Any:
    """Let a conftest.py beside the policy act on its tests even where no policy file exists."""
    return node.session.gethookproxy(node.path.parent)


class PolicyFile(pytest.File):
    """The policy file as a test module."""

    ihook = property(_hooks_beside)

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the groups that the policy has anything for."""
        try:
            named = items(self.config.stash[RUN].policy)
        except pytest.UsageError as error:
            raise self.CollectError(str(error)) from None
        for kind in _TITLES:
            names = [name for group, name in named if group == kind]
            if names:
                yield Group.from_parent(self, name=kind, names=names)


class Group(pytest.Collector):
    """The checks, the limits, or the metrics."""

    ihook = property(_hooks_beside)

    def __init__(self, *, names: list[str], **kwargs: Any) -> None:
        """Hold the names of a group's items."""
        super().__init__(**kwargs)
        self.names = names

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item a name."""
        for name in self.names:
            yield JudgedItem.from_parent(self, name=name, kind=self.name)


class JudgedItem(pytest.Item):
    """One check, limit or metric as a test."""

    ihook = property(_hooks_beside)

    def __init__(self, *, kind: Kind, **kwargs: Any) -> None:
        """Hold what is judged."""
        super().__init__(**kwargs)
        self.kind = kind
        self.judgement: Judgement | None = None
        self.add_marker(PROPERTY)

    def setup(self) -> None:
        """Judge; where the evidence or the baseline is broken, this is an error and no failure."""
        gate = self.config.stash[RUN].gate
        try:
            self.judgement = gate.judge(self.kind, self.name)
        except (EvidenceError, UsageError) as error:
            records = tuple(gate.evidence_records(self.kind, self.name))
            broken = Judgement(kind=self.kind, name=self.name, verdict="invalid", message=str(error), records=records)
            note(self, broken)
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        note(self, self.judgement)
        if self.judgement.verdict in ("not_comparable", "invalid"):
            raise pytest.fail.Exception(self.judgement.message, pytrace=False)

    def runtest(self) -> None:
        """Turn the verdict into pytest's outcome."""
        assert self.judgement is not None
        conclude(self, self.judgement)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Return the place and title of the item."""
        return self.path, 0, f"{_TITLES[self.kind]} {self.name}"


def conclude(item: pytest.Item, judgement: Judgement) -> None:
    """End a test as its verdict demands: pass, fail, skip or xfail."""
    if judgement.caution:
        _warn(item, FactorsWarning(judgement.caution), judgement.message)
    match judgement.verdict:
        case "regressed" | "failed" if judgement.kind != "checks" and item.config.stash[RUN].asked.gate == "report":
            pytest.xfail(f"--rl-gate=report: {judgement.message}")
        case "regressed" | "failed":
            raise pytest.fail.Exception(judgement.message, pytrace=False)
        case "waived":
            pytest.xfail(judgement.message)
        case "no_baseline":
            raise pytest.skip.Exception(judgement.message, _use_item_location=True)
        case "inconclusive":
            _warn(item, InconclusiveWarning(judgement.message.splitlines()[0]), judgement.message)
            if item.config.stash[RUN].asked.strict:
                text = f"{judgement.message}\n  (--rl-strict: inconclusive is not a pass)"
                raise pytest.fail.Exception(text, pytrace=False)
            raise pytest.skip.Exception(judgement.message, _use_item_location=True)


def _warn(item: pytest.Item, warning: RlserveWarning, message: str) -> None:
    """Warn; where warnings are errors, fail instead."""
    try:
        item.warn(warning)
    except RlserveWarning:
        said = "" if str(warning) in message else f"\n  {warning}"
        raise pytest.fail.Exception(f"{message}{said}\n  (warnings are errors in this run)", pytrace=False) from None
