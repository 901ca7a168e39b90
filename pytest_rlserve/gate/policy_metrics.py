"""The metrics of a policy: which are gated, and how much each may change."""

from __future__ import annotations

from typing import Any

from pytest_rlserve.errors import UsageError
from pytest_rlserve.gate.policy import DEFAULT_GATED, PRIMARY
from pytest_rlserve.gate.policy_keys import check_keys, quantity
from pytest_rlserve.metrics import measuring

_DEFAULT_BY_UNIT = {"fraction": 0.02}
_DEFAULT_CHANGE = {"p95": 0.10, "p99": 0.15, "p50": 0.10}


def gated_metrics(table: dict[str, Any] | None, primary: str, kind: str) -> dict[str, float]:
    """Return canonical metric key → allowed change, the primary first; the defaults where there is no table."""
    if table is None and kind == "replay":
        return {primary: _default_change(primary)}
    if table is None:
        rest = {key: allowed for key, allowed in DEFAULT_GATED.items() if key not in (PRIMARY, primary)}
        return {primary: _default_change(primary), **rest}
    gated = {primary: _default_change(primary)}
    once("metrics", [measuring.canonical(name) for name in table])
    for name, rule in table.items():
        if not isinstance(rule, dict):
            raise UsageError(f"metrics.{name} must be a table, e.g. [metrics.{name}] with regression = '5%'")
        refuse_dots("metrics", name, rule)
        check_keys(rule, {"regression": (str, int, float)}, f"metrics.{name}.")
        key, where = measuring.canonical(name), f"metrics.{name}.regression"
        gated[key] = quantity(where, rule["regression"], "fraction") if "regression" in rule else _default_change(key)
        if not 0 < gated[key] < 1:
            raise UsageError(f"metrics.{name}.regression must lie between 0 and 1, is {gated[key]:g}")
    return gated


def _default_change(key: str) -> float:
    found, statistic = measuring.resolve(key)
    if key in DEFAULT_GATED:
        return DEFAULT_GATED[key]
    return _DEFAULT_BY_UNIT.get(found.unit, _DEFAULT_CHANGE.get(statistic, 0.05))


def refuse_dots(table: str, name: str, inner: dict[str, Any]) -> None:
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


def once(table: str, keys: list[str]) -> None:
    """Refuse a table that names one metric twice, as ``ttft`` and ``ttft.p50`` do."""
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        raise UsageError(f"{table} names {twice} twice, under two spellings")
