"""KV reuse where no served row tells it: by what the framework recorded, or by the frontend's own sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Value
from pytest_rlserve.metrics.prompt_rows import COVERED, impossible
from pytest_rlserve.metrics.scrapes import counted

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import Scope

_CACHED = "dynamo_frontend_cached_tokens"
_PROMPTS = "dynamo_frontend_input_sequence_tokens"


def reuse_without_rows(capture: Capture, scope: Scope) -> Value:
    """Return the reuse that the framework recorded of responses, for a capture without a trace.

    Raises:
        NotMeasurable: too few responses say it, or the policy sets rows aside that are not there.
    """
    usage = [
        (a.get("cached_tokens"), a.get("prompt_tokens"), a.name)
        for a in capture.derive(ledger).requests
        if a.outcome == "completed" and a.get("prompt_tokens")
    ]
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
    return Value(sum(cached for cached, _ in good) / whole, len(good), impossible(wrong) if wrong else "")


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
    return Value(cached.value / prompt.value, int(told.value), "; ".join(filter(None, (said, cached.note))))
