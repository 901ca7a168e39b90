"""Reading a policy: `rlserve.toml`, or `[tool.rlserve]` in pyproject.toml."""

from __future__ import annotations

import datetime
import math
import tomllib
from typing import TYPE_CHECKING, Any, Literal

from pytest_rlserve.checks import CHECKS, Evidence, default_checks
from pytest_rlserve.errors import UsageError
from pytest_rlserve.gate.limits import Limit, parse_limit
from pytest_rlserve.gate.policy import PRIMARY, PRIMARY_OF_REPLAY, Policy, Waiver
from pytest_rlserve.gate.policy_keys import FREE, check_keys, choice, quantity
from pytest_rlserve.gate.policy_metrics import gated_metrics, once, refuse_dots
from pytest_rlserve.metrics import Scope, measuring
from pytest_rlserve.readers import require_settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_KEYS: dict[str, Any] = {
    "series": str,
    "kind": str,
    "primary": str,
    "no_baseline": str,
    "looks": int,
    "freshness": {"kind": str, "max_lag": (int, float)},
    "window": {"skip_steps": int, "start": (int, float), "end": (int, float)},
    "kv": {"after_reset": str},
    "updates": {"in_flight": str},
    "metrics": FREE,
    "limits": FREE,
    "evidence": {
        "open_attempts": (int, float, str),
        "rows_joined": (int, float, str),
        "traceable_served": (int, float, str),
        "completed_served": (int, float, str),
        "also": list,
    },
    "readers": FREE,
    "waivers": list,
}


def load(path: Path) -> Policy:
    """Read a policy file; a pyproject.toml is read at `[tool.rlserve]`.

    Raises:
        UsageError: the file cannot be read, or says something that this version does not know.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: the policy cannot be read: {why}") from None
    pyproject = path.name == "pyproject.toml"
    if pyproject:
        document = document.get("tool", {}).get("rlserve", {})
    try:
        return _policy(document, path, "pyproject" if pyproject else "file")
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def has_policy(pyproject: Path) -> bool:
    """Tell whether a pyproject.toml has a `[tool.rlserve]` table."""
    try:
        return "rlserve" in tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False


def _policy(document: dict[str, Any], path: Path, origin: Literal["file", "pyproject"]) -> Policy:
    check_keys(document, _KEYS, "")
    kind: Literal["rollout", "replay"] = choice(document, "kind", ("rollout", "replay")) or "rollout"
    primary = measuring.canonical(document.get("primary", PRIMARY_OF_REPLAY if kind == "replay" else PRIMARY))
    for name, text in document.get("limits", {}).items():
        if isinstance(text, dict):
            refuse_dots("limits", name, text)
    limits = [parse_limit(key, text) for key, text in document.get("limits", {}).items()]
    once("limits", [limit.metric for limit in limits])
    evidence = document.get("evidence", {})
    also = tuple(evidence.get("also", ()))
    for name in also:
        if not isinstance(name, str) or also.count(name) > 1 or name in default_checks(kind):
            raise UsageError(f"evidence.also: {name!r} is no check that could be added: it runs already, or is no name")
        CHECKS[name]
    return Policy(
        path=path,
        origin=origin,
        series=document.get("series"),
        kind=kind,
        primary=primary,
        no_baseline=choice(document, "no_baseline", ("fail", "skip")),
        scope=_scope(document, limits),
        evidence=Evidence(
            open_attempts=_amount(evidence, "open_attempts", 0, share=False),
            rows_joined=_amount(evidence, "rows_joined", 0.999),
            traceable_served=_amount(evidence, "traceable_served", 0.999),
            completed_served=_amount(evidence, "completed_served", 0.5),
            in_flight=choice(document.get("updates", {}), "in_flight", ("drain", "keep")) or "drain",
        ),
        also=also,
        gated=gated_metrics(document.get("metrics"), primary, kind),
        stated=frozenset(
            measuring.canonical(name) for name, rule in document.get("metrics", {}).items() if "regression" in rule
        ),
        limits={limit.metric: limit for limit in limits},
        readers=_readers(document.get("readers", {})),
        looks=_looks(document),
        waivers=tuple(_waiver(entry) for entry in document.get("waivers", ())),
    )


def _readers(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    for name, told in table.items():
        if not isinstance(told, dict):
            raise UsageError(f"readers.{name} must be a table of what that reader is told")
    require_settings(table)
    return table


def _looks(document: dict[str, Any]) -> int:
    looks: int = document.get("looks", 1)
    if looks not in (1, 2):
        raise UsageError(
            f"looks must be 1 or 2, is {looks}: every look costs certainty, and a third is not planned for"
        )
    return looks


def _amount(table: dict[str, Any], key: str, default: float, *, share: bool = True) -> float:
    """Read a share, or a number where `share` is False, perhaps written as a limit (">= 0.999")."""
    value = table.get(key, default)
    if isinstance(value, str):
        unit = "fraction" if share or "%" in value or "." in value else "count"
        value = quantity(f"evidence.{key}", value.lstrip("<>= "), unit)
    if not math.isfinite(value) or value < 0 or (share and value > 1):
        raise UsageError(f"evidence.{key} must be {'a share from 0 to 1' if share else '0 or more'}, is {value:g}")
    return float(value)


def _scope(document: dict[str, Any], limits: list[Limit]) -> Scope:
    freshness = document.get("freshness", {})
    kind = choice(freshness, "kind", ("start", "end", "worst", "token_mean"))
    window = document.get("window", {})
    skip, start, end = window.get("skip_steps", 0), window.get("start"), window.get("end")
    if skip < 0:
        raise UsageError("window.skip_steps must not be negative")
    if (start is None) != (end is None) or (start is not None and end <= start):
        raise UsageError("window.start and window.end go together, in seconds since the Unix epoch, the end later")
    max_lag = freshness.get("max_lag", 1)
    if not math.isfinite(max_lag):
        raise UsageError("freshness.max_lag must be a number of policy versions")
    return Scope(
        skip_steps=skip,
        span=None if start is None else (float(start), float(end)),
        freshness=kind or "start",
        max_lag=max_lag,
        after_reset=_after_reset(document),
        budgets=_budgets(limits),
    )


def _budgets(limits: Sequence[Limit]) -> dict[str, float]:
    """Return the budget of a request for each latency: of limits on several of its statistics, the widest."""
    budgets: dict[str, float] = {}
    for limit in limits:
        if limit.upper and limit.unit == "s":
            name = limit.metric.partition(".")[0]
            budgets[name] = max(limit.value, budgets.get(name, limit.value))
    return budgets


def _after_reset(document: dict[str, Any]) -> float:
    seconds = quantity("kv.after_reset", document.get("kv", {}).get("after_reset", "0s"), "s")
    if seconds < 0:
        raise UsageError("kv.after_reset must not be negative")
    return seconds


def _waiver(entry: Any) -> Waiver:
    if not isinstance(entry, dict):
        raise UsageError("a waiver must be a table: [[waivers]] with metric, until, owner and reason")
    check_keys(entry, {"metric": str, "until": datetime.date, "owner": str, "reason": str}, "waivers.")
    if isinstance(entry.get("until"), datetime.datetime):
        raise UsageError("a waiver's until is a day, without a time: it holds through that day")
    missing = [key for key in ("metric", "until", "owner", "reason") if not entry.get(key)]
    if missing:
        raise UsageError(f"a waiver needs {', '.join(missing)}: who answers for it, until when, and why")
    return Waiver(**{**entry, "metric": measuring.canonical(entry["metric"])})
