"""Equal hashes among very many: a share of them at a time, so that each share can be looked through anywhere.

Hashes are dealt out by their first bits, and equal ones come to the same share. A share is sorted once, with the
places of its hashes in their last bits: that is much quicker than sorting places by hashes, and the few that only
begin alike are compared afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

_SHARE = 1 << 21
"""Hashes of a share, more or less: some ten megabytes."""
_MOST_SHARES = 256


def shares_of(count: int) -> int:
    """Return in how many shares so many hashes are looked through; a power of two."""
    return min(1 << (count // _SHARE).bit_length(), _MOST_SHARES)


def dealt(hashes: Hashes, shares: int) -> Iterator[tuple[Hashes, Numbers]]:
    """Yield the hashes of each share, and their places among all."""
    if shares == 1:
        yield hashes, np.arange(len(hashes))
        return
    first = hashes.astype("<u8", copy=False).view(np.uint8)[7::8] >> np.uint8(9 - shares.bit_length())
    for share in range(shares):
        places = np.flatnonzero(first == share)
        yield hashes[places], places


def repeated(hashes: Hashes) -> tuple[Numbers, Numbers]:
    """Return the places of all hashes that stand at an earlier place too, and for each the first such place."""
    bits = np.uint64(max(len(hashes).bit_length(), 1))
    keys = hashes >> bits
    keys <<= bits
    keys |= np.arange(len(hashes), dtype=np.uint64)
    keys.sort()
    differ = keys[1:] ^ keys[:-1]
    differ >>= bits
    again = np.flatnonzero(differ == 0) + 1
    del differ
    new = np.flatnonzero(np.diff(again, prepend=-1) != 1)
    groups = np.repeat(np.arange(len(new)), np.diff(np.append(new, len(again))))
    last_bits = (np.uint64(1) << bits) - np.uint64(1)
    later, first = ((keys[places] & last_bits).astype(np.int64) for places in (again, again[new] - 1))
    first = first[groups]
    other = hashes[later] != hashes[first]
    if not other.any():
        return later, first
    again, before = _repeated_exactly(hashes, np.sort(later[other]))
    return np.append(later[~other], again), np.append(first[~other], before)


def _repeated_exactly(hashes: Hashes, places: Numbers) -> tuple[Numbers, Numbers]:
    """Do the same for the hashes at some places, by whole hashes; the places ascend."""
    values = hashes[places]
    order = np.argsort(values, kind="stable")
    new = np.append(True, np.diff(values[order]) != 0)
    first = order[np.flatnonzero(new)][np.cumsum(new) - 1]
    return places[order[~new]], places[first[~new]]
