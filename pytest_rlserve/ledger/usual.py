"""The usual accounts, told from all events at once: dispatched once, then ended or not, then decided on or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.ledger.events import KIND

if TYPE_CHECKING:
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.ledger.accounts import Rows
    from pytest_rlserve.ledger.events import Events

_NONE = -1
_STAGES = 4
"""What the events of an account do for it, one after another: tell of a retry, dispatch, end, decide."""
_STAGE = np.array([0, 1, 2, 2, 2, 3, 3])
"""The stage of each of `KINDS`."""


def usual(events: Events) -> tuple[Rows, Numbers]:
    """Return the accounts whose events follow each other as they should, and the rows of all other events.

    Those are of attempts and requests with two events of a stage, with one too early, or without a dispatch; they are
    in the order of time. What is returned is what a fold of the same events would make of them.
    """
    whom, kinds = events.whom[events.order], events.kinds[events.order]
    slots = whom * _STAGES + _STAGE[kinds]
    counts = np.bincount(slots, minlength=(int(whom.max(initial=_NONE)) + 1) * _STAGES)
    places = np.full(len(counts), _NONE)
    places[slots] = np.arange(len(slots))
    retried, dispatched, ended, decided = places.reshape(-1, _STAGES).T
    outcome = np.append(kinds, _NONE)[ended]
    fits = (counts.reshape(-1, _STAGES) <= 1).all(axis=1)
    fits &= retried < dispatched
    fits &= (ended == _NONE) | (dispatched < ended)
    fits &= (decided == _NONE) | ((outcome == KIND["completed"]) & (ended < decided))
    rows = np.append(events.order, _NONE)  # the last is that of no event
    found = {"opened": dispatched, "ended": ended, "decided": decided, "retried": retried}
    accounts = {what: rows[some[fits]] for what, some in found.items()}
    return accounts | {"outcome": outcome[fits]}, events.order[~fits[whom]]
