"""From events to accounts: one account for each attempt, and one for each HTTP request the framework recorded.

    dispatched = completed + canceled + failed + open
    completed  = accepted + rejected + pending

A retry is counted beside its outcome. Events may be out of order in the files; they are folded by time.
Contradictions are never resolved silently: the first word stands, and the second becomes a finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.ledger.account import DECISIONS, OUTCOMES, Account, Level
from pytest_rlserve.ledger.accounts import Accounts
from pytest_rlserve.ledger.counts import Counts, Ledger
from pytest_rlserve.ledger.events import Events
from pytest_rlserve.ledger.fold import Fold

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

__all__ = ["DECISIONS", "OUTCOMES", "Account", "Accounts", "Counts", "Ledger", "Level", "ledger"]


def ledger(capture: Capture) -> Ledger:
    """Fold the capture's attempt events; ask for it through ``capture.derive(ledger)``."""
    covers = {source.path: frozenset(source.covers) for source in capture.sources}
    return Fold(Events(capture.attempt_events), covers).take_all()
