"""Own hashes that occur again anywhere in a capture: here, or on the machines on which they are.

Each part deals its hashes out by their first bits, and whoever gets a share of all parts says which of its hashes occur
again, by their places only. On Ray these are tasks, and no hash comes to the process that asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pytest_rlserve import blocks
from pytest_rlserve.engine import cluster
from pytest_rlserve.joins.repeats import duplicates, served_again
from pytest_rlserve.links import relinked
from pytest_rlserve.repack import repacked
from pytest_rlserve.scattered import Deferred, Elsewhere, Left, ends, links, packing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.links import Links

    Numbers = NDArray[np.int64]
    Share = tuple[NDArray[np.uint64], Numbers]


def linked(capture: Capture) -> tuple[Links, tuple[int, int] | None]:
    """Return how rows begin like others, whoever saw it, and two rows that show that hashes are no use for it.

    Ask through ``capture.derive(linked)``; see `relinked`.
    """
    if isinstance(capture.chains, Left):
        return capture.chains.links, capture.chains.differ
    chains = repacked(capture.chains) if isinstance(capture.chains, pa.Table) else capture.chains
    return relinked(links(chains), *recurring(chains))


def recurring(chains: Any) -> tuple[Numbers, Numbers]:
    """Return the places of own hashes that stand at an earlier place too, and the first such place of each."""
    parts = chains.parts if isinstance(chains, Deferred) else [chains]
    sizes = [int(links(part).own[-1]) for part in parts]
    starts = np.cumsum([0, *sizes])[:-1].tolist()
    shares = blocks.shares_of(sum(sizes))
    if any(isinstance(part, Elsewhere) for part in parts):
        there = [part.there if isinstance(part, Elsewhere) else part for part in parts]
        found = list(cluster.shuffled(_dealt, list(zip(there, starts, strict=True)), _again, shares))
    else:
        dealt = [_dealt(part, start, shares) for part, start in zip(parts, starts, strict=True)]
        found = list(map(_again, *dealt)) if dealt else []  # lets a share go before it makes the next one
    nothing = np.zeros(0, dtype=np.int64)
    later, first = (np.concatenate([nothing, *(pair[side] for pair in found)]) for side in (0, 1))
    return later, first


def _dealt(chains: pa.Table, start: int, shares: int) -> Iterator[Share]:
    """Yield the own hashes of a part in shares, with their places among those of all parts, which begin at `start`."""
    lists = [np.asarray(own.flatten()) for own in chains["own"].chunks] or [np.zeros(0, dtype=np.uint64)]
    starts = start + np.cumsum([0, *map(len, lists)])
    dealers = [blocks.dealt(hashes, shares) for hashes in lists]
    for _ in range(shares):
        some = zip(map(next, dealers), starts, strict=False)
        yield _together([(hashes, places + before) for (hashes, places), before in some])


def _again(*parts: Share) -> tuple[Numbers, Numbers]:
    """Return the places of those hashes of a share that stand at an earlier place too, and the first such places."""
    hashes, places = _together(parts)
    later, first = blocks.repeated(hashes)
    return places[later], places[first]


def _together(shares: Sequence[Share]) -> Share:
    if len(shares) == 1:
        return shares[0]
    return np.concatenate([hashes for hashes, _ in shares]), np.concatenate([places for _, places in shares])


def left_there(capture: Capture) -> Capture:
    """Return the capture without its hashes if they are elsewhere, with all that checks and metrics ask of them.

    Another process cannot fetch what this one had read elsewhere.
    """
    chains = capture.chains
    if not isinstance(chains, Deferred):
        return capture
    capture.derive(duplicates)
    capture.derive(served_again)
    known = Left(packing(chains), ends(chains), *capture.derive(linked), chains.told)
    return capture.replace(hashes=known)
