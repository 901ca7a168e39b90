"""The report's tables: KV reuse and load by worker and by step, as sums to be divided, and updates by worker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics.breakdown import By, kv_by, load_by
from pytest_rlserve.metrics.passages import ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import Scope
    from pytest_rlserve.metrics.breakdown import KvGroup, LoadGroup, Part
    from pytest_rlserve.metrics.passages import Way

Group = TypeVar("Group")


def breakdowns(capture: Capture, scope: Scope) -> dict[str, dict[str, Any]]:
    """Return the tables of a capture by name; one that cannot be made has no rows and says why."""
    found = {}
    for by in get_args(By):
        found[f"kv_by_{by}"] = _table(partial(kv_by, capture, scope, by), _kv)
        found[f"load_by_{by}"] = _table(partial(load_by, capture, by), _load)
    found["updates"] = _table(partial(ways, capture), _way)
    return found


def _table(groups: Callable[[], Iterable[Group]], row: Callable[[Group], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {"why": None, "rows": [row(group) for group in groups()]}
    except NotMeasurable as error:
        return {"why": str(error), "rows": []}


def _kv(group: KvGroup) -> dict[str, Any]:
    shares = {name: _part(part) for name, part in group.shares.items()}
    return {"key": group.key, "requests": group.requests, "prompt_tokens": group.prompt_tokens, "shares": shares}


def _load(group: LoadGroup) -> dict[str, Any]:
    return {
        "key": group.key,
        "requests": group.requests,
        "completed": group.completed,
        "prompt_tokens": group.prompt_tokens,
        "output_tokens": group.output_tokens,
        "serving_seconds": group.serving_seconds,
        "queue_depth": _part(group.queue_depth),
    }


def _way(way: Way) -> dict[str, Any]:
    return {
        "update": way.update,
        "worker": way.worker,
        "replaced_worker": way.replaced,
        "policy_version": way.version,
        "reached": way.reached,
        "phases": dict(way.phases),
    }


def _part(part: Part | None) -> dict[str, float] | None:
    return None if part is None else {"numerator": part[0], "denominator": part[1]}
