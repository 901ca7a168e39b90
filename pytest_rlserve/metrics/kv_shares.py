"""What each KV metric is made of, in tokens of the requests that count: for the whole, a worker, or a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_rlserve.metrics.prompt_rows import PromptRows
    from pytest_rlserve.reuse import Numbers

_NOTHING = "no prompt token is known"
_UNEXPLAINED = 0.005
"""Share of reused tokens that requests without a row may have brought; `no_stale_kv` allows as many."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of tokens: the sum of `part` over the sum of `whole`, over the rows that `known` keeps."""

    known: Callable[[PromptRows], PromptRows]
    part: Callable[[PromptRows], Numbers]
    whole: Callable[[PromptRows], Numbers] = lambda rows: rows.tokens
    nothing: str = _NOTHING
    """Why there is no share where the whole is 0."""
    bounded: bool = False
    """Whether it cannot be above the share that this traffic allows to be reused."""
    allowed: Callable[[PromptRows], Numbers] | None = None
    """What the rows allow to be reused, where more than that makes the share one that cannot be."""

    def of(self, rows: PromptRows) -> Value:
        """Return the share, with the number of its requests and what was left out.

        Raises:
            NotMeasurable: too few rows know it, there is nothing to divide by, or more was reused than can be.
        """
        known = self.known(rows)
        self._require_possible(known)
        share = self._taken(known)
        if share is None:
            raise NotMeasurable("; ".join([self.nothing, *known.excluded]))
        strict = self._taken(self.known(rows.with_stale())) if len(rows.stale) else None
        return Value(share, len(known.numbers), "; ".join(known.excluded), strict, self._reachable(known))

    def _require_possible(self, known: PromptRows) -> None:
        if self.allowed is None:
            return
        reused, allowed = int(known.reused.sum()), int(self.allowed(known).sum())
        if reused - allowed > _UNEXPLAINED * reused:
            raise NotMeasurable(
                f"the engine says that {reused:,} tokens were reused, but the rows allow only {allowed:,}: rows are "
                "missing, or their hashes, block sizes or times are wrong"
            )

    def _taken(self, known: PromptRows) -> float | None:
        whole = int(self.whole(known).sum())
        return float(self.part(known).sum() / whole) if whole > 0 else None

    def _reachable(self, known: PromptRows) -> float | None:
        """Return what the traffic of these rows allows."""
        if not self.bounded:
            return None
        try:
            return SHARES["kv_reuse_ceiling"]._taken(known.hashed())
        except NotMeasurable:
            return None


SHARES = {
    "kv_reuse_fraction": Share(lambda rows: rows.engine(), lambda rows: rows.reused, bounded=True),
    "kv_reuse_ceiling": Share(lambda rows: rows.hashed(), lambda rows: rows.fleet),
    "kv_worker_ceiling": Share(lambda rows: rows.placed(), lambda rows: rows.worker, bounded=True),
    "kv_reuse_efficiency": Share(
        lambda rows: rows.engine().hashed(),
        lambda rows: rows.reused,
        lambda rows: rows.fleet,
        "no two prompts of the capture begin with the same whole block: nothing could be reused",
        allowed=lambda rows: rows.fleet,
    ),
    "kv_routing_loss": Share(lambda rows: rows.hashed().placed(), lambda rows: rows.fleet - rows.worker),
    "kv_eviction_loss": Share(
        lambda rows: rows.engine().placed(), lambda rows: rows.worker - rows.reused, allowed=lambda rows: rows.worker
    ),
    "kv_cold_fraction": Share(lambda rows: rows.hashed(), lambda rows: rows.tokens - rows.fleet),
    "kv_predicted_reuse_fraction": Share(lambda rows: rows.predicted(), lambda rows: rows.predictions),
    "kv_prediction_error_fraction": Share(
        lambda rows: rows.engine().predicted(), lambda rows: abs(rows.predictions - rows.reused)
    ),
}
"""By the name of the metric, in the order in which tables show them."""
