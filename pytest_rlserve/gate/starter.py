"""A first policy for a capture: the values just measured, with margins, and a word on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve import units
from pytest_rlserve.gate.policy import DEFAULT_GATED, PRIMARY
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

_MARGIN = 1.25
"""Budgets are set a quarter above what was measured: a limit guards against collapse, the baseline against drift."""
_BUDGETS = ("ttft.p95", "itl.p95", "request_latency.p95")
_FLOORS = ("kv_reuse_fraction", "completion_fraction")


def starter(capture: Capture) -> str:
    """Return the text of a commented rlserve.toml that passes for this capture."""
    lines = [
        "# What the gate asks of every capture. Written by `rlserve init`; edit it to your needs.",
        f'series = "{_series(capture)}"  # names the baseline file: baselines/<series>.json',
        f'primary = "{PRIMARY}"',
        "",
        "[window]",
        "skip_steps = 0  # whole trainer steps left out at the start",
        "",
        "# Metrics compared with the baseline, each with the change that is allowed.",
    ]
    for key, allowed in DEFAULT_GATED.items():
        if measuring.measure(capture, key).value is not None:
            lines += [f"[metrics.{key}]", f'regression = "{allowed * 100:g}%"', ""]
    lines += [
        "# Absolute limits, whatever the baseline says. A capture that cannot show a value is inconclusive.",
        "[limits]",
    ]
    for key in _BUDGETS:
        if (value := measuring.measure(capture, key).value) is not None:
            lines.append(f'"{key}" = "<= {_milliseconds(value * _MARGIN)}ms"  # measured {units.show(value, "s")}')
    for key in _FLOORS:
        if (value := measuring.measure(capture, key).judged()) is not None:
            lines.append(f'"{key}" = ">= {value / _MARGIN:.2f}"  # measured {units.show(value, "fraction")}')
    lines += [
        "",
        "[evidence]",
        "open_attempts = 0  # asynchronous runs end with attempts in flight: give their number, or a fraction",
        "rows_joined = 0.999",
        "traceable_served = 0.999",
    ]
    return "\n".join(lines) + "\n"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.3g}"


def _series(capture: Capture) -> str:
    import re

    named = capture.manifest.series or capture.name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", named).strip("-.") or "default"
