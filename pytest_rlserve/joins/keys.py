"""The keys that join rows with accounts, strongest first: response id, x-request-id, session."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import given, known

if TYPE_CHECKING:
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.joins import Joined
    from pytest_rlserve.ledger import Accounts

RESPONSE_PREFIXES = ("chatcmpl-", "cmpl-")
NOBODY = -1


def by_response(own: Accounts, request_ids: pa.Array) -> Numbers:
    """Return the owner of each row by response id; of several accounts with one, the last."""
    responses = given(own.column("response_id"))
    backwards = np.flatnonzero(known(responses))[::-1]
    bare = responses.take(pa.array(backwards))
    for prefix in RESPONSE_PREFIXES:
        bare = _without(prefix, bare)
    places = pc.index_in(request_ids, value_set=bare)
    if not len(backwards):
        return _nobody(request_ids)
    return np.where(known(places), own.numbers[backwards][pc.fill_null(places, 0)], NOBODY)


def _without(prefix: str, texts: pa.Array) -> pa.Array:
    """Take a prefix off the texts that begin with it; usually all do, or none."""
    begin = pc.starts_with(texts, prefix)
    if not pc.any(begin).as_py():
        return texts
    bare = pc.utf8_slice_codeunits(texts, len(prefix))
    return bare if pc.all(begin).as_py() else pc.if_else(begin, bare, texts)


def _nobody(rows: pa.Array) -> Numbers:
    return np.full(len(rows), NOBODY, dtype=np.int64)


def by_request_id(
    result: Joined, own: Accounts, names: pa.ChunkedArray, free: list[int]
) -> tuple[list[int], list[int]]:
    """Give rows to who sent their x-request-id, one each to those who sent the same; return these and what is left."""
    found, left, met = list[int](), list[int](), set[str]()
    if not free:
        return found, left
    # A request whose answer had an id of its own is another one than a row with a different id.
    claimed = np.isin(own.numbers, result.owner)
    if (result.owner != NOBODY).any():
        claimed |= known(own.column("response_id"))
    of_request: dict[str, deque[int]] = defaultdict(deque)
    attempts = dict(zip(own.numbers.tolist(), own.attempts.tolist(), strict=True))
    for number, ids, gone in zip(attempts, own.values("x_request_ids"), claimed.tolist(), strict=True):
        if result.level == "attempt" or not gone:
            for one in ids:
                of_request[one].append(number)
    disputed = {name for name, some in of_request.items() if len({attempts[one] for one in some}) > 1}
    for row, name in zip(free, names.take(pa.array(free)).to_pylist(), strict=True):
        owners = of_request.get(name)
        if not owners:
            left.append(row)
        elif name in disputed:
            result.ambiguous.append(row)
            met.add(name)
        else:
            result.owner[row] = owners[0]
            found.append(row)
            if result.level == "request" and len(owners) > 1:
                owners.popleft()
    result.contested.update(number for name in met for number in of_request[name])
    return found, left


def by_session(result: Joined, attempts: Accounts, names: pa.ChunkedArray, free: list[int]) -> list[int]:
    """Give rows to the one attempt that has their session; return these."""
    found, met = list[int](), set[str]()
    if not free:
        return found
    of_session: dict[str, set[int]] = defaultdict(set)
    sessions = zip(attempts.values("session_id"), attempts.values("session_ids"), strict=True)
    for number, (one, several) in zip(attempts.numbers.tolist(), sessions, strict=True):
        for session in (one, *(several or ())):
            if session:
                of_session[session].add(number)
    for row, name in zip(free, names.take(pa.array(free)).to_pylist(), strict=True):
        owners = of_session.get(name, ())
        if len(owners) == 1:
            (result.owner[row],) = owners
            found.append(row)
        elif owners:
            result.ambiguous.append(row)
            met.add(name)
    result.contested.update(number for name in met for number in of_session[name])
    return found
