"""What became of KV reuse: its losses to eviction, to routing and to cold prompts, whose changes add up to its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_rlserve import units
from pytest_rlserve.gate.sides import change

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.metrics import Scope

_LOSSES = {"eviction": "kv_eviction_loss", "routing": "kv_routing_loss", "cold": "kv_cold_fraction"}
_WORTH_SAYING = 0.01
"""Reuse that moves by less than a point explains nothing."""


def losses_of(baseline: Baseline, captures: Sequence[Capture], scope: Scope) -> dict[str, float]:
    """Return by how much each loss grew, as a share of prompt tokens.

    Empty where a loss is not known on both sides by one definition: over another number of workers, none is.
    """
    grown = {name: change(baseline, captures, key, scope) for name, key in _LOSSES.items()}
    known = {name: by for name, by in grown.items() if by is not None}
    return known if len(known) == len(grown) else {}


def sentence(losses: Mapping[str, float]) -> str:
    """Say how far reuse moved and which loss moved most; an empty string where that is next to nothing."""
    if not losses or max(map(abs, losses.values())) < _WORTH_SAYING:
        return ""
    reuse = -math.fsum(losses.values())
    most = max(losses, key=lambda name: abs(losses[name]))
    return f"KV reuse {units.points(reuse)} ({most} loss {units.points(losses[most])})"
