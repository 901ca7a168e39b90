"""What the router and the engines say of themselves, from scrapes of their metrics.

In other modes than KV routing, Dynamo registers the router's metrics and leaves them at 0: that is not a measurement.
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
_SCHEDULING = "dynamo_router_overhead_scheduling_ms"
_HIT_RATE = "dynamo_component_router_kv_hit_rate"
_OVERLAP = "dynamo_component_router_kv_{}_cached_prefix_tokens_total"


@metric(
    unit="s",
    better="lower",
    needs={"scrapes"},
    numerator="time that the router spent scheduling requests, its queue included",
    denominator="requests that it scheduled",
    freshness=_ANY,
    phase=_ALL,
)
def router_queue_time(capture: Capture, scope: Scope) -> Value:
    """Mean time a request waited for the router to choose its worker (`dynamo_router_overhead_scheduling_ms`)."""
    spent, count = counted(capture, f"{_SCHEDULING}_sum", f"{_SCHEDULING}_count")
    if count.value <= 0:
        raise NotMeasurable("the router scheduled no request, or does not measure it in this mode")
    return Value(spent.value / 1e3 / count.value, int(count.value), spent.note)


@metric(
    unit="requests",
    better="lower",
    needs={"scrapes"},
    numerator="requests waiting in the router's queue, in each scrape",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("max",),
)
def router_queue_pending(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """Longest router queue in any scrape; only scrapes taken while requests are in flight can show one."""
    return np.array(gauges(capture, "dynamo_frontend_router_queue_pending_requests"))


@metric(
    unit="fraction",
    better="higher",
    needs={"scrapes"},
    numerator="sum of the predicted hit rates of requests, each in blocks of its own prompt",
    denominator="requests that the KV router routed",
    freshness=_ANY,
    phase=_ALL,
)
def router_predicted_hit_fraction(capture: Capture, scope: Scope) -> Value:
    """Mean of the requests' predicted hit rates (`router_kv_hit_rate`): short prompts weigh as much as long ones.

    It is another number than `kv_predicted_reuse_fraction`, which is weighted by tokens, and says nothing of what
    the engine did.
    """
    total, count = counted(capture, f"{_HIT_RATE}_sum", f"{_HIT_RATE}_count")
    if count.value <= 0:
        raise NotMeasurable("the router predicted no hit rate: it does not route by KV")
    return Value(total.value / count.value, int(count.value), total.note)


@metric(
    unit="fraction",
    better="lower",
    needs={"scrapes"},
    numerator="cached prefix tokens of the best eligible worker less those of the selected one",
    denominator="cached prefix tokens of the best eligible worker",
    freshness=_ANY,
    phase=_ALL,
)
def router_overlap_loss_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of the reuse in reach that the KV router gave up for an even load, by its own index."""
    best, selected = counted(capture, _OVERLAP.format("best_eligible"), _OVERLAP.format("selected"))
    if best.value <= 0:
        raise NotMeasurable("the router saw no cached prefix: it does not route by KV, or nothing was shared")
    return Value(1 - selected.value / best.value, int(best.value), best.note)


@metric(
    unit="requests",
    better="lower",
    needs={"scrapes"},
    numerator="requests waiting in an engine, in each scrape of it",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("max",),
)
def engine_queue_depth(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """Longest queue of any engine in any scrape; only scrapes taken while requests are in flight can show one."""
    return np.array(gauges(capture, "vllm:num_requests_waiting", "sglang:num_queue_reqs"))


@metric(
    unit="fraction",
    better="lower",
    needs={"scrapes"},
    numerator="KV memory in use, in each scrape of an engine",
    denominator="KV memory of that engine",
    freshness=_ANY,
    phase=_ALL,
    statistics=("max",),
)
def kv_usage_fraction(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """Fullest KV memory of any engine in any scrape."""
    return np.array(gauges(capture, "vllm:kv_cache_usage_perc", "sglang:token_usage"))


@metric(
    unit="count",
    better="lower",
    needs={"scrapes"},
    numerator="requests that engines put back because KV memory ran out",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
)
def preemptions(capture: Capture, scope: Scope) -> Value:
    """How often an engine preempted a running request; its KV is computed again."""
    found: list[Counted] = []
    for name in ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"):
        try:
            found += counted(capture, name)
        except NotMeasurable:
            continue
    if not found:
        raise NotMeasurable("no scrape of an engine counts preemptions")
    return Value(sum(one.value for one in found), len(found), "; ".join(filter(None, (one.note for one in found))))
