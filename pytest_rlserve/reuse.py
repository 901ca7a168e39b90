"""What each request took from a KV cache, what it could have taken, and what it should not have found there.

Every array has one element a row of the requests table, in tokens; −1 where it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.columns import mask
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.prefixes import available_blocks, continued_tokens, prefixes
from pytest_rlserve.prompts import by_version, by_worker, prompts

if TYPE_CHECKING:
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
    alone = joined.arrived[joined.edges[:-1]][np.diff(joined.edges) == 1]
    owners = joined.ledger.all.some(joined.owner[alone])
    said = np.asarray(pc.fill_null(owners.column("cached_tokens"), -1), dtype=np.int64)
    told = mask(pc.equal(owners.column("level"), "request")) & (said >= 0)
    numbers[alone[told]] = said[told]
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


def _reach(capture: Capture, visits: Visits) -> Reach:
    """Return what each row could find in the caches that it met; the same visits are judged once."""
    done = capture.derive(_reaches)
    for known, reach in done:
        if visits.same(known):
            return reach
    tree, found = prefixes(capture), capture.derive(prompts)
    available = available_blocks(tree, found, visits)
    done.append((visits, Reach(available, *continued_tokens(tree, found, visits, available))))
    return done[-1][1]


def _reaches(capture: Capture) -> list[tuple[Visits, Reach]]:
    """Return where the answers of one capture are kept."""
    return []


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

    return Ceilings(
        fleet=tokens(_reach(capture, by_version(found, capture))),
        worker=tokens(_reach(capture, by_worker(found, cuts))),
    )


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
    judged = found.hashed & (found.served >= 0) & (said >= 0) & (said <= found.tokens)
    current = _reach(capture, by_worker(found, known.changes)).possible
    lasting = _reach(capture, by_worker(found, lambda worker: known.emptied(worker, valid=True))).possible
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
    limits = np.full(len(found.workers) + 1, -np.inf)
    for code, worker in enumerate(found.workers):
        since = np.fmin.reduce(found.received[found.served == code])
        starts = [*known.emptied(worker), *(t for t, _ in known.versions(worker))]
        if not any(t <= since for t in starts):
            limits[code] = min((t for t in starts if t in known.changes(worker)), default=np.inf)
    return np.asarray(found.received < limits[found.served])
