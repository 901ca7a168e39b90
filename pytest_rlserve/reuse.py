"""What each request took from a KV cache, what it could have taken, and what it should not have found there.

Every array has one element a row of the requests table, in tokens; −1 where it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.prompts import available_blocks, by_version, by_worker, continued_tokens, prompts

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.prompts import Prompts, Visits

    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]


NOT_REPORTED = (
    "no response says how many of its prompt tokens were cached, and no row does: reuse is not observable. Engines "
    "behind Dynamo may have to be told to report it; TensorRT-LLM reports it only where it publishes KV events"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """Prompt tokens that came from the cache."""

    engine: Numbers
    """By the engine: from the response's usage, else from rows that no KV router has predicted."""
    predicted: Numbers
    """By the KV router, before the request was sent: what its index believes the worker to hold."""

    @property
    def best(self) -> Numbers:
        """Return the engine's numbers, or the predicted ones if there is none of the engine's."""
        return self.engine if (self.engine >= 0).any() else self.predicted


def cached(capture: Capture) -> Cached:
    """Return the cached tokens of each row; ask for it through ``capture.derive(cached)``."""
    said = np.asarray(pc.fill_null(capture.scalars["cached_tokens"], -1), dtype=np.int64)
    rates = np.asarray(pc.is_valid(capture.scalars["kv_hit_rate"]))
    engine = _from_usage(capture)
    if rates.any():
        return Cached(engine=engine, predicted=np.where(rates, said, -1))
    if not (engine >= 0).any():
        engine = said
    return Cached(engine=engine, predicted=np.full(len(said), -1, dtype=np.int64))


def _from_usage(capture: Capture) -> Numbers:
    """Return the response's own number where one row stands for one request."""
    joined = capture.derive(join)
    numbers = np.full(capture.scalars.num_rows, -1, dtype=np.int64)
    for row, owner in joined.owners.items():
        said = owner.get("cached_tokens")
        if owner.level == "request" and said is not None and len(joined.rows_of(owner)) == 1:
            numbers[row] = said
    return numbers


@dataclass(frozen=True, slots=True)
class Reach:
    """What each row could find in its cache."""

    available: Numbers
    """Leading blocks; −1 where it is not known which cache it met."""
    certain: Numbers
    """Tokens, with the output of earlier turns where that is there for certain."""
    possible: Numbers
    """Tokens, with that output where the prompt may repeat it."""


def _reach(found: Prompts, visits: Visits) -> Reach:
    available = available_blocks(found, visits)
    return Reach(available, *continued_tokens(found, visits, available))


def _in_workers(capture: Capture, cuts: Callable[[str], list[float]]) -> Reach:
    """Return what each row could find in its worker's cache, cut at those instants; the same cuts are judged once."""
    found, done = capture.derive(prompts), capture.derive(_reaches)
    key = tuple((worker, tuple(cuts(worker))) for worker in sorted({one for one in found.worker if one is not None}))
    if key not in done:
        done[key] = _reach(found, by_worker(found, cuts))
    return done[key]


def _reaches(capture: Capture) -> dict[Hashable, Reach]:
    """Return where the answers of one capture are kept."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Prompt tokens that could have come from a cache."""

    fleet: Numbers
    """With one endless cache for all workers of a policy version."""
    worker: Numbers
    """With an endless cache in each worker, emptied when it was."""


def ceilings(capture: Capture) -> Ceilings:
    """Return the ceilings of each row; ask for them through ``capture.derive(ceilings)``."""
    found, known = capture.derive(prompts), capture.derive(fleet)
    reused = capture.derive(cached).best

    def tokens(reach: Reach) -> Numbers:
        sure = np.maximum(reach.certain, np.minimum(reused, reach.possible))
        return np.where(reach.available < 0, -1, sure)

    def cuts(worker: str) -> list[float]:
        return sorted({*known.emptied(worker), *known.changes(worker)})

    return Ceilings(fleet=tokens(_reach(found, by_version(found, capture))), worker=tokens(_in_workers(capture, cuts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """Reuse beyond the blocks that were available since the worker's version last changed."""

    judged: Mask
    """Rows whose worker, blocks and cached tokens are known."""
    stale: Numbers
    """Tokens of blocks that an earlier version computed and no valid reset cleared."""
    unexplained: Numbers
    """Tokens that no request of the capture accounts for."""
    predicted: bool
    """True if only the router's prediction is known."""


def excess(capture: Capture) -> Excess:
    """Return the excess of each row; ask for it through ``capture.derive(excess)``.

    Whole blocks count: an engine that caches token by token may find the beginning of one more.
    """
    found, known, numbers = capture.derive(prompts), capture.derive(fleet), capture.derive(cached)
    said = numbers.best
    served = np.array([cache is not None for cache in found.cache], dtype=bool)
    judged = found.hashed & served & (said >= 0) & (said <= found.tokens)
    current = _in_workers(capture, known.changes).possible
    lasting = _in_workers(capture, lambda worker: known.emptied(worker, valid=True)).possible
    beyond = judged & (said - current >= found.block)
    # A router's index may outlive a cache, so a prediction counts only where the records tell of cache resets.
    told = said is numbers.engine or any(update.tells("cache_reset") for update in known.updates)
    stale = np.where(beyond & told, np.maximum(np.minimum(said, lasting) - current, 0), 0)
    rest = np.where(beyond, said - np.maximum(current, np.minimum(said, lasting)), 0)
    rest[(rest < found.block) | _began_before(capture, found)] = 0
    return Excess(judged=judged, stale=stale, unexplained=rest, predicted=said is numbers.predicted)


def _began_before(capture: Capture, found: Prompts) -> Mask:
    """Tell which rows may have met blocks from before the capture: nothing says when their cache was empty."""
    known = capture.derive(fleet)
    first: dict[str, float] = {}
    for worker, received in zip(found.worker, found.received.tolist(), strict=True):
        if worker is not None:
            first[worker] = min(received, first.get(worker, received))
    until = dict.fromkeys(first, -np.inf)
    for worker, since in first.items():
        starts = [*known.emptied(worker), *(t for t, _ in known.versions(worker))]
        if not any(t <= since for t in starts):
            until[worker] = min((t for t in starts if t in known.changes(worker)), default=np.inf)
    limits = np.array([until.get(worker or "", -np.inf) for worker in found.worker], dtype=np.float64)
    return np.asarray(found.received < limits)
