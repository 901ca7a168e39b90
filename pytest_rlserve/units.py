"""Quantities as people write them: parse "800ms", "3%", "2 GiB"; show 0.8 s, 64.5 %, 8.75 trajectories/s.

Inside the package a value is a plain float in its metric's base unit: seconds for durations, bytes for sizes,
a share in [0, 1] for `fraction`. Text is read and written only here.
"""

from __future__ import annotations

import math
import re

from pytest_rlserve.errors import UsageError

_SCALES: dict[str, dict[str, float]] = {
    "s": {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    "bytes": {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "kB": 1e3, "MB": 1e6, "GB": 1e9},
    "fraction": {"%": 0.01, "": 1.0},
}
_QUANTITY = re.compile(r"\s*([+-]?\d[\d_,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(\S*)\s*")
_DECIMALS_BY_MAGNITUDE = ((100.0, 1), (1.0, 2), (0.0, 4))


def parse(text: str | float, unit: str) -> float:
    """Read a quantity in the base unit of `unit`.

    A number without a suffix is taken as already being in `unit`. Durations need their suffix, since "5"
    could be seconds or milliseconds, and a fraction above 1 needs "%".

    Raises:
        UsageError: the text is no quantity of that unit.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise UsageError(f"{text!r} is not a quantity in {unit}")
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise UsageError(f"{text!r} is not a quantity in {unit}: write for example {_example(unit)}")
    number, suffix = float(found[1].replace(",", "").replace("_", "")), found[2]
    scales = _SCALES.get(unit, {})
    if suffix == unit or (not suffix and unit not in ("s", "fraction")):
        value = number
    elif suffix in scales:
        value = number * scales[suffix]
    else:
        raise UsageError(f"{text!r} has no unit that fits {unit}: write for example {_example(unit)}")
    if unit == "fraction" and not suffix and abs(value) > 1:
        raise UsageError(f"{text!r} is more than the whole: write {found[1]}% if a percentage is meant")
    return value


def _example(unit: str) -> str:
    return {"s": "'800ms'", "fraction": "'3%'", "bytes": "'2 GiB'"}.get(unit, f"'12.5 {unit}'")


def _decimals(magnitude: float) -> int:
    return next(n for bound, n in _DECIMALS_BY_MAGNITUDE if magnitude >= bound)


def show(value: float | None, unit: str) -> str:
    """Print a value with its unit, in the scale a reader expects; `None` prints as "n/a", never as 0."""
    if value is None:
        return "n/a"
    if not math.isfinite(value):
        return "not a number"
    value += 0.0  # no minus before a zero
    if unit == "fraction":
        return f"{value * 100:.1f} %"
    if unit == "count":
        return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1e3:.{_decimals(abs(value) * 1e3)}f} ms"
    return f"{value:,.{_decimals(abs(value)) if value else 0}f} {unit}"


def many(count: int, noun: str) -> str:
    """Print a count of things: "1 request", "1,152 tokens"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float, *, signed: bool = True) -> str:
    """Print a relative change: ``+6.2 %``."""
    return f"{_signed(share * 100, signed)} %"


def points(share: float, *, signed: bool = True) -> str:
    """Print a difference of two fractions: ``-2.1 points``."""
    return f"{_signed(share * 100, signed)} points"


def _signed(number: float, signed: bool) -> str:
    text = f"{number:+.1f}" if signed else f"{number:.1f}"
    return text.replace("-0.0", "0.0").replace("+0.0", "0.0")


def change(delta: float, unit: str, *, signed: bool = True) -> str:
    """Print a change in the way its unit is compared: points for fractions, a percentage for the rest."""
    return points(delta, signed=signed) if unit == "fraction" else percent(delta, signed=signed)
