"""Can this gate fail? Every armed check, limit and gated metric is shown damaged captures until it fires.

A gate that nobody has seen fail may have stopped gating long ago: a limit too wide, a metric without a
baseline, a check that looks at nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rlserve.errors import EvidenceError
from pytest_rlserve.gate.items import items
from pytest_rlserve.gate.judgement import Update
from pytest_rlserve.gate.perturb import PERTURBATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.items import Kind
    from pytest_rlserve.gate.verdicts import Gate

UNDAMAGED = "the captures as they are"
"""Said of an item that fails already, so that no damage shows anything of it."""
_FIRED = ("regressed", "failed", "invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the self-test saw of one item."""

    kind: Kind
    name: str
    fired_on: str | None
    """The mildest damage that it noticed; None if it noticed none."""
    why_not: str | None = None
    """What it said of the last damage, where it noticed none."""

    @property
    def id(self) -> str:
        """Name the item as its test is named."""
        return f"{self.kind}::{self.name}"


def selftest(gate: Gate) -> list[Trial]:
    """Try every item of a gate on damaged copies of its captures."""
    damaged = {UNDAMAGED: _copy(gate, gate.captures)}
    damaged |= {
        name: _copy(gate, [perturb(capture) for capture in gate.captures]) for name, perturb in PERTURBATIONS.items()
    }
    return [_try(damaged, kind, name) for kind, name in items(gate.policy)]


def _copy(gate: Gate, captures: Sequence[Capture]) -> Gate:
    return dataclasses.replace(gate, captures=captures, update=Update(), _results={}, _baseline=[], _family=None)


def _try(damaged: dict[str, Gate], kind: Kind, name: str) -> Trial:
    said = None
    for damage, gate in damaged.items():
        try:
            if kind == "checks":
                found = gate.judge_check(name)
            elif kind == "limits":
                found = gate.judge_limit(name)
            else:
                found = gate.compare(name)
        except EvidenceError as error:
            return Trial(kind=kind, name=name, fired_on=damage) if kind == "checks" else _silent(kind, name, str(error))
        if found.verdict == "waived":
            return Trial(kind=kind, name=name, fired_on=f"{damage}, but is {found.message.splitlines()[0]}")
        if found.verdict in _FIRED:
            return Trial(kind=kind, name=name, fired_on=damage)
        said = f"{found.verdict}: {found.message.splitlines()[0]}" if found.message else found.verdict
    return _silent(kind, name, said)


def _silent(kind: Kind, name: str, said: str | None) -> Trial:
    return Trial(kind=kind, name=name, fired_on=None, why_not=said)
