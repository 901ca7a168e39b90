"""Clearing a baseline of measurements whose metric no longer exists."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from pytest_rlserve.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping


def pruned(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a baseline document without the measurements of unknown metrics, and their keys.

    A run keeps its place even if nothing of it is left: it was trusted, and the count of jobs rests on it.
    """
    gone = sorted(key for key in document["definitions"] if key.partition(".")[0] not in METRICS)
    found = copy.deepcopy(dict(document))
    for key in gone:
        del found["definitions"][key]
        found["carried"].pop(key, None)
        for level in found["levels"]:
            level["moved"].pop(key, None)
            for run in level["runs"]:
                run["measurements"].pop(key, None)
    return found, gone
