"""What engines say of weight updates in their metrics: how long and how often, never when or which version.

vLLM's series are those of its pull request 55781, in its two spellings (`requests` and `operations`); no release that
we know has them. SGLang's gauge is that of 0.5.23.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Scope, Value, metric
from pytest_rlserve.metrics.scrapes import Counted, counted, gauges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

_ANY = "any policy version"
_ALL = "from the first scrape to the last"
_SPELLINGS = ("operation", "request")
_TOTAL = "vllm:rl_weight_update_{}s_total"
_DURATION = "vllm:rl_weight_update_{}_duration_seconds"


@metric(
    unit="s",
    better="lower",
    needs={"scrapes"},
    numerator="time that an engine took to load its last weights, in each scrape of it",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("max",),
)
def weight_load_time(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """Longest load of weights that an engine showed (`sglang:weight_load_duration_seconds`).

    It is a gauge: each scrape shows the last load only, not when it happened or which version it brought.
    """
    return np.array(gauges(capture, "sglang:weight_load_duration_seconds"))


@metric(
    unit="s",
    better="lower",
    needs={"scrapes"},
    numerator="time that vLLM's servers spent in weight operations, failed ones too",
    denominator="finish operations that succeeded",
    freshness=_ANY,
    phase=_ALL,
)
def weight_operation_time(capture: Capture, scope: Scope) -> Value:
    """Mean time that vLLM's weight operations took for each update that finished (`vllm:rl_weight_update_…`).

    All operations of an update are added up: init, start, update, finish, set_version. An update of several
    engines counts once for each of their servers.
    """
    spelling = _spelling(capture)
    finished = _counted(capture, _TOTAL.format(spelling), operation="finish", status="success")
    if finished is None or finished.value <= 0:
        raise NotMeasurable("vLLM's metrics count no weight update that finished between the scrapes")
    spent = counted(capture, f"{_DURATION.format(spelling)}_sum")[0]
    return Value(spent.value / finished.value, int(finished.value), spent.note or finished.note)


@metric(
    unit="count",
    better="lower",
    needs={"scrapes"},
    numerator="weight operations of vLLM's servers that ended with an error or were canceled",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
)
def failed_weight_operations(capture: Capture, scope: Scope) -> Value:
    """How many weight operations of vLLM did not succeed: all that were timed, less those that succeeded."""
    spelling = _spelling(capture)
    timed = counted(capture, f"{_DURATION.format(spelling)}_count")[0]
    if timed.value <= 0:
        raise NotMeasurable("vLLM's metrics count no weight operation between the scrapes")
    good = _counted(capture, _TOTAL.format(spelling), status="success")
    return Value(timed.value - (good.value if good else 0), int(timed.value), timed.note)


def _spelling(capture: Capture) -> str:
    """Return the word by which a server's series go.

    Raises:
        NotMeasurable: no scrape has any.
    """
    for spelling in _SPELLINGS:
        if _counted(capture, f"{_DURATION.format(spelling)}_count") is not None:
            return spelling
    raise NotMeasurable(f"no scrape has {_DURATION.format(_SPELLINGS[0])}")


def _counted(capture: Capture, name: str, **labels: str) -> Counted | None:
    """Return what a counter counted; None where no scrape has it: a label appears with its first event."""
    try:
        return counted(capture, name, **labels)[0]
    except NotMeasurable:
        return None
