"""What became of KV reuse: its losses to eviction, to routing and to cold prompts, whose changes add up to its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_rlserve import units
from pytest_rlserve.metrics import measuring

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
    found = {}
    for name, key in _LOSSES.items():
        before = [value for values in baseline.values(key).values() for value in values]
        measured = [measuring.measure(capture, key, scope) for capture in captures]
        after = [one.value for one in measured if one.value is not None]
        known = baseline.document["definitions"].get(key, {}).get("digest")
        if not before or len(after) < len(measured) or any(one.definition["digest"] != known for one in measured):
            return {}
        found[name] = math.fsum(after) / len(after) - math.fsum(before) / len(before)
    return found


def sentence(losses: Mapping[str, float]) -> str:
    """Say how far reuse moved and which loss moved most; an empty string where that is next to nothing."""
    if not losses or max(map(abs, losses.values())) < _WORTH_SAYING:
        return ""
    reuse = -math.fsum(losses.values())
    most = max(losses, key=lambda name: abs(losses[name]))
    return f"KV reuse {units.points(reuse)} ({most} loss {units.points(losses[most])})"
