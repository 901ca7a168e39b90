"""KV reuse, token-weighted: what came from the cache, what this traffic allowed, and where the rest was lost.

All of them speak of the same requests. 1 = reuse + eviction loss + routing loss + cold share. See docs/kv-reuse.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Scope, Value, metric
from pytest_rlserve.metrics.kv_shares import SHARES
from pytest_rlserve.metrics.prompt_rows import prompt_rows
from pytest_rlserve.metrics.reuse_elsewhere import reuse_by_engines, reuse_by_frontend, reuse_without_rows

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

_TOKENS = "prompt tokens of those requests"
_OF = "over completed requests with a served row"
_ENGINE = "prompt tokens that the engine took from its KV cache"
_FLEET = "prompt tokens in leading blocks that an earlier request of the same policy version had, on any worker"
_WORKER = "prompt tokens in leading blocks that an earlier request had on the same worker since its cache was emptied"
_ANY = "any policy version"
_ALL = "whole capture"


@metric(
    unit="fraction",
    better="higher",
    needs=set(),
    numerator=f"{_ENGINE}, {_OF}",
    denominator=_TOKENS,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_reuse_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens served from the KV cache, by the engine's number.

    The engine's number is `cached_tokens` of the response's usage, as the framework recorded it. In the trace,
    `cached_tokens` is the engine's number only where no KV router has predicted it (rows without
    `kv_hit_rate`); a prediction is never used. Where neither is there, the frontend's own sums count, from scrapes,
    and else those of vLLM or SGLang. Requests that reused blocks of an earlier policy version are left out, and the
    number with them is shown beside it.
    """
    try:
        if not capture.has("requests"):
            return reuse_without_rows(capture, scope)
        return SHARES["kv_reuse_fraction"].of(prompt_rows(capture, scope))
    except NotMeasurable as error:
        if not capture.has("scrapes"):
            raise
        for elsewhere in (reuse_by_frontend, reuse_by_engines):
            try:
                return elsewhere(capture, scope)
            except NotMeasurable:
                continue
        raise error


@metric(
    unit="fraction",
    better="higher",
    needs={"requests"},
    numerator=f"prompt tokens that the KV router predicted to be cached, {_OF}",
    denominator=_TOKENS,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_predicted_reuse_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens that the KV router expected to find cached when it chose the worker.

    That is what its index believed, not what the engine did; it is never compared with the engine's number. It is
    weighted by tokens: the mean of `kv_hit_rate` over requests is another number.
    """
    return SHARES["kv_predicted_reuse_fraction"].of(prompt_rows(capture, scope))


@metric(
    unit="fraction",
    better="lower",
    needs={"requests"},
    numerator=f"prompt tokens by which the KV router's prediction missed the engine's number, {_OF}",
    denominator=_TOKENS,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_prediction_error_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens that the KV router predicted wrongly, too many and too few alike."""
    return SHARES["kv_prediction_error_fraction"].of(prompt_rows(capture, scope))


@metric(
    unit="fraction",
    better="higher",
    needs={"requests"},
    numerator=f"{_FLEET}, {_OF}",
    denominator=_TOKENS,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_reuse_ceiling(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens that one endless cache for all workers would have held: what this traffic allows.

    Whole blocks count that another request had which came before the row's first token. A prefix shorter than a
    block cannot be reused, so a floor above the ceiling cannot be met. The output of an earlier turn of the
    session counts where the prefix covers that turn's whole input, and else as far as it was reused.
    """
    return SHARES["kv_reuse_ceiling"].of(prompt_rows(capture, scope))


@metric(
    unit="fraction",
    better="higher",
    needs={"requests"},
    numerator=f"{_WORKER}, {_OF}",
    denominator=_TOKENS,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_worker_ceiling(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens that an endless cache in each worker would have held, with routing as it was."""
    return SHARES["kv_worker_ceiling"].of(prompt_rows(capture, scope))


@metric(
    unit="fraction",
    better="higher",
    needs={"requests"},
    numerator=f"{_ENGINE}, {_OF}",
    denominator=_FLEET,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_reuse_efficiency(capture: Capture, scope: Scope) -> Value:
    """Reuse as a share of what this traffic allowed."""
    return SHARES["kv_reuse_efficiency"].of(prompt_rows(capture, scope))


@metric(
    unit="fraction",
    better="lower",
    needs={"requests"},
    numerator=f"kv_reuse_ceiling less kv_worker_ceiling, in prompt tokens, {_OF}",
    denominator=_TOKENS,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_routing_loss(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens that some worker had cached, but not the one that the request was sent to."""
    return SHARES["kv_routing_loss"].of(prompt_rows(capture, scope))


@metric(
    unit="fraction",
    better="lower",
    needs={"requests"},
    numerator=f"kv_worker_ceiling less reuse, in prompt tokens, {_OF}",
    denominator=_TOKENS,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_eviction_loss(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens that the worker had computed and no longer, or not yet, held."""
    return SHARES["kv_eviction_loss"].of(prompt_rows(capture, scope))


@metric(
    unit="fraction",
    better="lower",
    needs={"requests"},
    numerator=f"prompt tokens beyond kv_reuse_ceiling, {_OF}",
    denominator=_TOKENS,
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
    hashes=True,
)
def kv_cold_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens that nobody had sent before under that policy version, and no serving could reuse."""
    return SHARES["kv_cold_fraction"].of(prompt_rows(capture, scope))
