"""The order of accounts, by which they get their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_rlserve.columns import sorted_late
from pytest_rlserve.ledger.accounts import Accounts

if TYPE_CHECKING:
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.ledger.accounts import Rows
    from pytest_rlserve.ledger.events import Events


def in_order(events: Events, rows: Rows) -> Accounts:
    """Return attempts before requests, each by the time of its dispatch; those of one instant by name.

    Few share an instant, and only of those the names are looked at. Of equal names, those that speak of the same stay
    together, as they are.
    """
    found = Accounts(events, rows, np.arange(len(rows["opened"])))

    def late(places: Numbers) -> dict[str, Any]:
        whom = events.whom[rows["opened"][places]]
        return {"name": found.some(places).column("name"), "whom": events.first_told[whom]}

    times = np.nan_to_num(found.reals("dispatched_at"))
    order = sorted_late([events.of_requests[rows["opened"]], times], late)
    return Accounts(events, {what: numbers[order] for what, numbers in rows.items()}, found.numbers)
