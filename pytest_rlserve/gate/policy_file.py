"""Reading a policy: `rlserve.toml`, or `[tool.rlserve]` in pyproject.toml."""

from __future__ import annotations

import datetime
import math
import tomllib
from typing import TYPE_CHECKING, Any, Literal

from pytest_rlserve import units
from pytest_rlserve.checks import CHECKS, Evidence, default_checks
from pytest_rlserve.errors import UsageError, nearest
from pytest_rlserve.gate.limits import Limit, parse_limit
from pytest_rlserve.gate.policy import DEFAULT_GATED, PRIMARY, PRIMARY_OF_REPLAY, Policy, Waiver
from pytest_rlserve.metrics import Scope, measuring
from pytest_rlserve.readers import require_settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_DEFAULT_BY_UNIT = {"fraction": 0.02}
_DEFAULT_CHANGE = {"p95": 0.10, "p99": 0.15, "p50": 0.10}
_FREE: Any = "free"
"""Marks tables whose keys are metrics or readers, not names of ours."""

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
    "metrics": _FREE,
    "limits": _FREE,
    "evidence": {
        "open_attempts": (int, float, str),
        "rows_joined": (int, float, str),
        "traceable_served": (int, float, str),
        "completed_served": (int, float, str),
        "also": list,
    },
    "readers": _FREE,
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
    _check_keys(document, _KEYS, "")
    kind: Literal["rollout", "replay"] = _choice(document, "kind", ("rollout", "replay")) or "rollout"
    primary = measuring.canonical(document.get("primary", PRIMARY_OF_REPLAY if kind == "replay" else PRIMARY))
    for name, text in document.get("limits", {}).items():
        if isinstance(text, dict):
            _refuse_dots("limits", name, text)
    limits = [parse_limit(key, text) for key, text in document.get("limits", {}).items()]
    _once("limits", [limit.metric for limit in limits])
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
        no_baseline=_choice(document, "no_baseline", ("fail", "skip")),
        scope=_scope(document, limits),
        evidence=Evidence(
            open_attempts=_amount(evidence, "open_attempts", 0, share=False),
            rows_joined=_amount(evidence, "rows_joined", 0.999),
            traceable_served=_amount(evidence, "traceable_served", 0.999),
            completed_served=_amount(evidence, "completed_served", 0.5),
            in_flight=_choice(document.get("updates", {}), "in_flight", ("drain", "keep")) or "drain",
        ),
        also=also,
        gated=_gated(document.get("metrics"), primary, kind),
        stated=frozenset(
            measuring.canonical(name) for name, rule in document.get("metrics", {}).items() if "regression" in rule
        ),
        limits={limit.metric: limit for limit in limits},
        readers=_readers(document.get("readers", {})),
        looks=_looks(document),
        waivers=tuple(_waiver(entry) for entry in document.get("waivers", ())),
    )


def _check_keys(table: dict[str, Any], known: dict[str, Any], where: str) -> None:
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"unknown key {where + key!r}{nearest(key, known)}")
        wanted = known[key]
        if wanted is _FREE or isinstance(wanted, dict):
            if not isinstance(value, dict):
                raise UsageError(f"{where + key} must be a table")
            if wanted is not _FREE:
                _check_keys(value, wanted, f"{where}{key}.")
        elif not isinstance(value, wanted) or isinstance(value, bool):
            kinds = wanted if isinstance(wanted, tuple) else (wanted,)
            raise UsageError(
                f"{where + key} must be {' or '.join(k.__name__ for k in kinds)}, is {type(value).__name__}"
            )


def _refuse_dots(table: str, name: str, inner: dict[str, Any]) -> None:
    """Refuse ``ttft.p95`` without quotes, which TOML takes for a key ``p95`` in a table ``ttft``."""
    dotted = next((f"{name}.{key}" for key in inner if _is_metric(f"{name}.{key}")), None)
    if dotted:
        raise UsageError(f'{table}.{dotted} wants quotes, "{dotted}": without them TOML takes the dot for a table')


def _is_metric(key: str) -> bool:
    try:
        measuring.resolve(key)
    except UsageError:
        return False
    return True


def _quantity(key: str, text: str | float, unit: str) -> float:
    """Read a quantity; what is wrong with it is said with its key."""
    try:
        return units.parse(text, unit)
    except UsageError as error:
        raise UsageError(f"{key}: {error}") from None


def _choice(table: dict[str, Any], key: str, allowed: tuple[str, ...]) -> Any:
    value = table.get(key)
    if value is not None and value not in allowed:
        raise UsageError(f"{key} must be {' or '.join(map(repr, allowed))}, is {value!r}{nearest(str(value), allowed)}")
    return value


def _once(table: str, keys: list[str]) -> None:
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        raise UsageError(f"{table} names {twice} twice, under two spellings")


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
        value = _quantity(f"evidence.{key}", value.lstrip("<>= "), unit)
    if not math.isfinite(value) or value < 0 or (share and value > 1):
        raise UsageError(f"evidence.{key} must be {'a share from 0 to 1' if share else '0 or more'}, is {value:g}")
    return float(value)


def _scope(document: dict[str, Any], limits: list[Limit]) -> Scope:
    freshness = document.get("freshness", {})
    kind = _choice(freshness, "kind", ("start", "end", "worst", "token_mean"))
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
    seconds = _quantity("kv.after_reset", document.get("kv", {}).get("after_reset", "0s"), "s")
    if seconds < 0:
        raise UsageError("kv.after_reset must not be negative")
    return seconds


def _gated(table: dict[str, Any] | None, primary: str, kind: str) -> dict[str, float]:
    if table is None and kind == "replay":
        return {primary: _default_change(primary)}
    if table is None:
        rest = {key: allowed for key, allowed in DEFAULT_GATED.items() if key not in (PRIMARY, primary)}
        return {primary: _default_change(primary), **rest}
    gated = {primary: _default_change(primary)}
    _once("metrics", [measuring.canonical(name) for name in table])
    for name, rule in table.items():
        if not isinstance(rule, dict):
            raise UsageError(f"metrics.{name} must be a table, e.g. [metrics.{name}] with regression = '5%'")
        _refuse_dots("metrics", name, rule)
        _check_keys(rule, {"regression": (str, int, float)}, f"metrics.{name}.")
        key, where = measuring.canonical(name), f"metrics.{name}.regression"
        gated[key] = _quantity(where, rule["regression"], "fraction") if "regression" in rule else _default_change(key)
        if not 0 < gated[key] < 1:
            raise UsageError(f"metrics.{name}.regression must lie between 0 and 1, is {gated[key]:g}")
    return gated


def _default_change(key: str) -> float:
    found, statistic = measuring.resolve(key)
    if key in DEFAULT_GATED:
        return DEFAULT_GATED[key]
    return _DEFAULT_BY_UNIT.get(found.unit, _DEFAULT_CHANGE.get(statistic, 0.05))


def _waiver(entry: Any) -> Waiver:
    if not isinstance(entry, dict):
        raise UsageError("a waiver must be a table: [[waivers]] with metric, until, owner and reason")
    _check_keys(entry, {"metric": str, "until": datetime.date, "owner": str, "reason": str}, "waivers.")
    if isinstance(entry.get("until"), datetime.datetime):
        raise UsageError("a waiver's until is a day, without a time: it holds through that day")
    missing = [key for key in ("metric", "until", "owner", "reason") if not entry.get(key)]
    if missing:
        raise UsageError(f"a waiver needs {', '.join(missing)}: who answers for it, until when, and why")
    return Waiver(**{**entry, "metric": measuring.canonical(entry["metric"])})
