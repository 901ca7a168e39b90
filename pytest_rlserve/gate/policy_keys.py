"""The keys of a policy: unknown ones, wrong types and wrong values are refused by name, with what would be right."""

from __future__ import annotations

from typing import Any

from pytest_rlserve import units
from pytest_rlserve.errors import UsageError, nearest

FREE: Any = "free"
"""Marks tables whose keys are metrics or readers, not names of ours."""


def check_keys(table: dict[str, Any], known: dict[str, Any], where: str) -> None:
    """Refuse keys of a table that are not known, and values of a wrong type; `where` is what the keys stand under."""
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"unknown key {where + key!r}{nearest(key, known)}")
        wanted = known[key]
        if wanted is FREE or isinstance(wanted, dict):
            if not isinstance(value, dict):
                raise UsageError(f"{where + key} must be a table")
            if wanted is not FREE:
                check_keys(value, wanted, f"{where}{key}.")
        elif not isinstance(value, wanted) or isinstance(value, bool):
            kinds = wanted if isinstance(wanted, tuple) else (wanted,)
            raise UsageError(
                f"{where + key} must be {' or '.join(k.__name__ for k in kinds)}, is {type(value).__name__}"
            )


def quantity(key: str, text: str | float, unit: str) -> float:
    """Read a quantity; what is wrong with it is said with its key."""
    try:
        return units.parse(text, unit)
    except UsageError as error:
        raise UsageError(f"{key}: {error}") from None


def choice(table: dict[str, Any], key: str, allowed: tuple[str, ...]) -> Any:
    """Return one of a few allowed values, or None where the key is not there."""
    value = table.get(key)
    if value is not None and value not in allowed:
        raise UsageError(f"{key} must be {' or '.join(map(repr, allowed))}, is {value!r}{nearest(str(value), allowed)}")
    return value
