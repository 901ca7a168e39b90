"""The order of accounts, by which they get their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.columns import sorted_rows
from pytest_rlserve.ledger.accounts import Accounts

if TYPE_CHECKING:
    from pytest_rlserve.ledger.accounts import Rows
    from pytest_rlserve.ledger.events import Events


def in_order(events: Events, rows: Rows) -> Accounts:
    """Return attempts before requests, each by the time of its dispatch; those of one instant by name.

    Few share an instant, and only of those the names are looked at. Of equal names, those that speak of the same stay
    together, as they are.
    """
    found = Accounts(events, rows, np.arange(len(rows["opened"])))
    of_requests, times = events.of_requests[rows["opened"]], np.nan_to_num(found.reals("dispatched_at"))
    order = np.lexsort((times, of_requests))
    new = np.append(True, (np.diff(of_requests[order]) != 0) | (np.diff(times[order]) != 0))[: len(order)]
    tied = np.flatnonzero(~new | ~np.append(new[1:], True)[: len(order)])
    if len(tied):
        some = found.some(order[tied])
        keys = {
            "instant": np.cumsum(new)[tied],
            "name": some.column("name"),
            "whom": events.first_told[events.whom[rows["opened"][some.numbers]]],
        }
        order[tied] = some.numbers[sorted_rows(keys)]
    return Accounts(events, {what: numbers[order] for what, numbers in rows.items()}, np.arange(len(order)))
