"""KV reuse where no served row tells it: by what the framework recorded, or by counters of the frontend or engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Value
from pytest_rlserve.metrics.prompt_rows import COVERED, impossible
from pytest_rlserve.metrics.scrapes import counted, series

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import Scope

_CACHED = "dynamo_frontend_cached_tokens"
_PROMPTS = "dynamo_frontend_input_sequence_tokens"
_ENGINES = {
    "vLLM": ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    "SGLang": ("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
}
"""Tokens that came from the cache, and tokens of prompts; vLLM looks a preempted request up again."""


def reuse_without_rows(capture: Capture, scope: Scope) -> Value:
    """Return the reuse that the framework recorded of responses, for a capture without a trace.

    Raises:
        NotMeasurable: too few responses say it, or the policy sets rows aside that are not there.
    """
    completed = capture.derive(ledger).requests.that("completed")
    told = zip(*map(completed.values, ("cached_tokens", "prompt_tokens", "name")), strict=True)
    usage = [(cached, prompt, name) for cached, prompt, name in told if prompt]
    if not usage:
        raise NotMeasurable("needs cached_tokens of responses' usage, or served rows; the capture has neither")
    if scope.after_reset > 0:
        raise NotMeasurable("after_reset needs served rows, which say when and where a request was received")
    known = [(cached, prompt, name) for cached, prompt, name in usage if cached is not None]
    if len(known) < COVERED * len(usage):
        raise NotMeasurable(f"the usage of {len(known):,} of {len(usage):,} completed requests has cached_tokens")
    good = [(cached, prompt) for cached, prompt, _ in known if cached <= prompt]
    wrong = [name for cached, prompt, name in known if cached > prompt]
    if not good:
        raise NotMeasurable(impossible(wrong))
    whole = sum(prompt for _, prompt in good)
    return Value(
        sum(cached for cached, _ in good) / whole, len(good), impossible(wrong) if wrong else "", by="usage alone"
    )


def reuse_by_frontend(capture: Capture, scope: Scope) -> Value:
    """Return the reuse by the frontend's counters, which add up what engines reported of all requests.

    Raises:
        NotMeasurable: no scrape has them, or engines reported too few requests.
    """
    if scope.after_reset > 0:
        raise NotMeasurable("after_reset needs the requests one by one, not the frontend's sums")
    names = (f"{_CACHED}_sum", f"{_CACHED}_count", f"{_PROMPTS}_sum", f"{_PROMPTS}_count")
    cached, told, prompt, requests = counted(capture, *names)
    if told.value < COVERED * requests.value or prompt.value <= 0:
        raise NotMeasurable(
            f"engines reported cached tokens of {told.value:,.0f} of {requests.value:,.0f} requests to the frontend"
        )
    said = f"by the frontend's sums over {requests.value:,.0f} requests, whatever became of them"
    note = "; ".join(filter(None, (said, cached.note)))
    return Value(cached.value / prompt.value, int(told.value), note, by="the frontend's sums")


def reuse_by_engines(capture: Capture, scope: Scope) -> Value:
    """Return the reuse by the engines' own counters.

    Raises:
        NotMeasurable: no scrape has them, or they count what cannot be.
    """
    if scope.after_reset > 0:
        raise NotMeasurable("after_reset needs the requests one by one, not the engines' sums")
    for engine, names in _ENGINES.items():
        try:
            (cached,), (prompt,) = (counted(capture, name) for name in names)
        except NotMeasurable:
            continue
        if not 0 <= cached.value <= prompt.value or not prompt.value:
            raise NotMeasurable(f"{engine} counted {cached.value:,.0f} cached of {prompt.value:,.0f} prompt tokens")
        said = f"by {engine}'s counters, over all requests, whatever became of them"
        engines = len(capture.derive(series)[names[1]])
        note = "; ".join(filter(None, (said, cached.note or prompt.note)))
        return Value(cached.value / prompt.value, engines, note, by=f"{engine}'s counters")
    raise NotMeasurable("no scrape of an engine counts cached tokens")
