"""KV reuse, token-weighted, by the engine's own number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Scope, Value, metric
from pytest_rlserve.metrics.served import completed_rows

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture


@metric(
    unit="fraction",
    better="higher",
    needs=set(),
    numerator="prompt tokens that the engine took from its KV cache, over completed requests",
    denominator="prompt tokens of those requests",
    freshness="any policy version",
    phase="whole capture",
)
def kv_reuse_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of prompt tokens served from the KV cache, by the engine's number.

    The engine's number is `cached_tokens` of the response's usage, as the framework recorded it. In the trace,
    `cached_tokens` is the engine's number only where no KV router has predicted it (rows without
    `kv_hit_rate`); a prediction is never used.
    """
    usage = [
        (a.get("cached_tokens"), a.get("prompt_tokens"))
        for a in capture.derive(ledger).requests
        if a.outcome == "completed" and a.get("prompt_tokens")
    ]
    known = [(cached, prompt) for cached, prompt in usage if cached is not None]
    if known and len(known) < 0.95 * len(usage):
        raise NotMeasurable(f"the usage of {len(known):,} of {len(usage):,} completed requests has cached_tokens")
    return _share(known) if known else _share(_from_rows(capture))


def _from_rows(capture: Capture) -> list[tuple[int, int]]:
    if not capture.has("requests"):
        raise NotMeasurable("needs cached_tokens of responses' usage, or served rows; the capture has neither")
    rows = completed_rows(capture)
    if pc.any(pc.is_valid(rows["kv_hit_rate"])).as_py():
        raise NotMeasurable(
            "the trace's cached_tokens is the KV router's prediction: record cached_tokens of each response's usage"
        )
    pairs = rows.select(["cached_tokens", "input_tokens"]).to_pylist()
    known = [(p["cached_tokens"], p["input_tokens"]) for p in pairs if None not in p.values()]
    if len(known) < 0.95 * len(pairs):
        raise NotMeasurable(f"cached_tokens is there for {len(known):,} of {len(pairs):,} completed requests")
    return known


def _share(pairs: list[tuple[int, int]]) -> Value:
    impossible = sum(cached > prompt for cached, prompt in pairs)
    if impossible:
        raise NotMeasurable(f"{impossible:,} requests claim more cached than prompt tokens")
    whole = sum(prompt for _, prompt in pairs)
    if not whole:
        raise NotMeasurable("no prompt token is known")
    return Value(sum(cached for cached, _ in pairs) / whole, len(pairs))
