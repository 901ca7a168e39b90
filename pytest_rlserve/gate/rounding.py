"""How numbers are rounded before they are stored."""

from __future__ import annotations

import math


def rounded(value: float) -> float:
    """Round to nine significant digits: enough for every comparison, and free of platform noise."""
    return float(f"{value:.9g}") if math.isfinite(value) else value
