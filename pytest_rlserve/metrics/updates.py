"""What a weight update costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Scope, metric
from pytest_rlserve.metrics.window import shut_spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture


@metric(
    unit="s",
    better="lower",
    needs={"control_events"},
    numerator="time from gate_closed to gate_opened of each update",
    denominator="1",
    freshness="any policy version",
    phase="whole capture",
    statistics=("mean",),
)
def update_downtime(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How long an update kept the gate shut, so that no request could be sent."""
    times = [end - start for start, end in shut_spans(capture) if math.isfinite(end)]
    if not times:
        raise NotMeasurable("no update has both a gate_closed and a gate_opened record")
    return np.array(times)
