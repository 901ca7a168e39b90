"""From events to accounts: one account for each attempt, and one for each HTTP request the framework recorded.

    dispatched = completed + canceled + failed + open
    completed  = accepted + rejected + pending

A retry is counted beside its outcome. Events may be out of order in the files; it is their times that count. Accounts
whose events follow each other as they should are told from all events at once, the others event by event.
Contradictions are never resolved silently: the first word stands, and the second becomes a finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.capture import AXES
from pytest_rlserve.columns import mask
from pytest_rlserve.ledger.account import DECISIONS, OUTCOMES, Account, Level
from pytest_rlserve.ledger.accounts import Accounts
from pytest_rlserve.ledger.counts import Counts, Ledger
from pytest_rlserve.ledger.events import Events
from pytest_rlserve.ledger.fold import Fold
from pytest_rlserve.ledger.order import in_order
from pytest_rlserve.ledger.usual import usual

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

__all__ = ["DECISIONS", "OUTCOMES", "Account", "Accounts", "Counts", "Ledger", "Level", "ledger"]


def ledger(capture: Capture) -> Ledger:
    """Enter the capture's attempt events into accounts; ask for it through ``capture.derive(ledger)``."""
    events, covers = Events(capture.attempt_events), {one.path: frozenset(one.covers) for one in capture.sources}
    accounts, others = usual(events)
    fold = Fold(events, covers, others)
    folded = fold.take_all()
    every = in_order(events, {what: np.append(rows, folded[what]) for what, rows in accounts.items()})
    border = int(np.count_nonzero(mask(pc.equal(every.column("level"), "attempt"))))
    attempts, requests = every.some(slice(border)), every.some(slice(border, None))
    fold.wrong.tell_twins(attempts)
    told = frozenset().union(*covers.values()) if covers else frozenset(AXES)
    return Ledger(every, attempts, requests, tuple(fold.wrong.findings), tuple(fold.wrong.keys), told)
