"""What the sources of a capture can answer, and for how many of how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.capture import Coverage
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.joins.versions import versions
from pytest_rlserve.ledger import ledger
from pytest_rlserve.missed import served_by

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture


def coverage(capture: Capture) -> list[Coverage]:
    """Return one line a question; what there is nothing of is 0 of 0."""
    accounts, joined, known = capture.derive(ledger), capture.derive(join), capture.derive(versions)
    attempts, rows = accounts.attempts, capture.scalars
    completed = [account for account in attempts if account.outcome == "completed"]
    decided = sum(account.acceptance is not None for account in completed)
    accepted = [account for account in attempts if account.acceptance == "accepted"]
    answered = [account for account in accounts.requests or attempts if account.outcome == "completed"]
    generated = sum((a.get("policy") or known.loaded_for(a)) is not None for a in accepted)
    used = sum(account.get("cached_tokens") is not None for account in answered)
    served, fleet_of = capture.derive(served_by), capture.derive(fleet)
    weighed = sum(bool(fleet_of.versions(worker)) for worker in served)
    lines = [
        ("how did attempts end", "recorded attempts", sum(a.outcome is not None for a in attempts), len(attempts)),
        ("what did the trainer decide", "completed attempts", decided, len(completed)),
        ("which policy version generated", "accepted attempts", generated, len(accepted)),
        ("which attempt was served", "rows", joined.joined, rows.num_rows),
        ("was every completed request traced", "traceable requests", joined.traceable_served, joined.traceable),
        ("how was latency made up", "rows", rows.num_rows - rows["ttft_ms"].null_count, rows.num_rows),
        ("what did the engine reuse", f"completed {joined.level}s", used, len(answered)),
        ("which weights did each worker have", "workers that served", weighed, len(served)),
    ]
    return [
        Coverage(question=question, of=of, observed=observed, total=total) for question, of, observed, total in lines
    ]
