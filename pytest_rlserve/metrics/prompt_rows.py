"""The requests that the KV metrics speak of: the same ones for reuse, ceilings and losses."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve import units
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import fleet
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics.served import completed_numbers
from pytest_rlserve.prompts import prompts
from pytest_rlserve.reuse import NOT_REPORTED, cached, ceilings, excess

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import Scope
    from pytest_rlserve.reuse import Mask, Numbers

COVERED = 0.95
"""Share of the requests that must have a number for the metric to speak for them."""
_SHOWN_IDS = 5


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Some rows of a capture and their numbers in tokens; `excluded` says what was left out of them, and why."""

    capture: Capture
    numbers: Numbers
    excluded: tuple[str, ...] = ()
    stale: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of rows that were left out as they reused what an earlier policy version had computed."""

    @property
    def tokens(self) -> Numbers:
        """Prompt tokens."""
        return self.capture.derive(prompts).tokens[self.numbers]

    @property
    def reused(self) -> Numbers:
        """Prompt tokens from the cache, by the engine's number, without those of an earlier policy version."""
        said, stale = self.capture.derive(cached).engine[self.numbers], self.capture.derive(excess).stale[self.numbers]
        return np.where(said >= 0, said - stale, said)

    @property
    def predictions(self) -> Numbers:
        """Prompt tokens from the cache, as the KV router expected."""
        return self.capture.derive(cached).predicted[self.numbers]

    @property
    def best(self) -> Numbers:
        """The engine's numbers, or the predictions if the capture has none of the engine's."""
        return self.capture.derive(cached).best[self.numbers]

    @property
    def fleet(self) -> Numbers:
        """Prompt tokens that one cache for all workers would have held."""
        return self.capture.derive(ceilings).fleet[self.numbers]

    @property
    def worker(self) -> Numbers:
        """Prompt tokens that the worker's cache would have held without end."""
        return self.capture.derive(ceilings).worker[self.numbers]

    def engine(self) -> PromptRows:
        """Keep the rows with an engine's number."""
        if (self.predictions >= 0).any() and not (self.reused >= 0).any():
            raise NotMeasurable(
                "the trace's cached_tokens is the KV router's prediction: record cached_tokens of each response's usage"
            )
        return self._known(self.reused >= 0, "the engine's cached_tokens is", NOT_REPORTED)

    def predicted(self) -> PromptRows:
        """Keep the rows that a KV router has predicted."""
        return self._known(self.predictions >= 0, "a KV router's prediction is", "no KV router predicted anything")

    def hashed(self) -> PromptRows:
        """Keep the rows whose blocks are known."""
        return self._known(self.fleet >= 0, "the prompt's block hashes are")

    def placed(self) -> PromptRows:
        """Keep the rows whose blocks and worker are known."""
        return self._known(self.worker >= 0, "block hashes and the worker's id are")

    def _known(self, known: Mask, what: str, none: str = "") -> PromptRows:
        count, all_of_them = int(known.sum()), len(known)
        if none and not count:
            raise NotMeasurable(none)
        if count < COVERED * all_of_them or not count:
            raise NotMeasurable(f"{what} there for {count:,} of {all_of_them:,} completed requests")
        return dataclasses.replace(self, numbers=self.numbers[known])

    def without(self, some: Mask, why: str) -> PromptRows:
        """Leave some of the rows out, and say why."""
        return dataclasses.replace(self, numbers=self.numbers[~some], excluded=(*self.excluded, why))

    def with_stale(self) -> PromptRows:
        """Take the rows back that were left out as stale; what they reused of an earlier version is not counted."""
        return dataclasses.replace(self, numbers=np.concatenate([self.numbers, self.stale]))


def prompt_rows(capture: Capture, scope: Scope) -> PromptRows:
    """Return the rows that count: completed, possible, of one policy version, not too soon after a cache reset.

    Raises:
        NotMeasurable: none is left.
    """
    rows = _current(_plausible(_finished(capture)))
    if scope.after_reset > 0:
        rows = _settled(rows, scope.after_reset)
    known = rows.tokens >= 0
    if known.sum() < COVERED * len(known):
        raise NotMeasurable(f"input_tokens is there for {int(known.sum()):,} of {len(known):,} completed requests")
    return dataclasses.replace(rows, numbers=rows.numbers[known])


def _finished(capture: Capture) -> PromptRows:
    accounts = capture.derive(ledger)
    reasons = capture.scalars["finish_reason"]
    if accounts.attempts or accounts.requests or reasons.null_count < len(reasons):
        return PromptRows(capture, np.array(completed_numbers(capture), dtype=np.int64))
    rows = np.flatnonzero(capture.derive(prompts).output > 0)
    if not len(rows):
        raise NotMeasurable("no request is known to have produced output")
    unknown = "nothing records how requests ended, so all that produced output count as completed"
    return PromptRows(capture, rows, (unknown,))


def _plausible(rows: PromptRows) -> PromptRows:
    """Leave out rows that claim more cached than prompt tokens; a check fails on them."""
    wrong = (rows.best > rows.tokens) & (rows.tokens >= 0)
    if not wrong.any():
        return rows
    names = rows.capture.scalars["request_id"].take(rows.numbers[wrong]).to_pylist()
    return rows.without(wrong, impossible(names))


def _current(rows: PromptRows) -> PromptRows:
    """Leave out rows that reused what an earlier policy version had computed, and show both numbers."""
    stale = rows.capture.derive(excess).stale[rows.numbers]
    if not stale.any():
        return rows
    raw = units.show(float(np.maximum(rows.best, 0).sum() / max(int(rows.tokens.sum()), 1)), "fraction")
    said = (
        f"{units.many(int((stale > 0).sum()), 'request')} that reused {int(stale.sum()):,} tokens of an earlier policy "
        f"version (with them, reuse is {raw})"
    )
    if (stale > 0).all():
        return dataclasses.replace(rows, excluded=(*rows.excluded, f"of all {said[:-1]}, all counted as not reused)"))
    return dataclasses.replace(rows.without(stale > 0, said), stale=rows.numbers[stale > 0])


def _settled(rows: PromptRows, seconds: float) -> PromptRows:
    """Leave out rows that a worker received too soon after its cache was reset."""
    soon = _soon(rows, rows.numbers, seconds)
    if soon.all():
        raise NotMeasurable(f"after_reset = {seconds:g} s leaves no request: all came sooner after a cache reset")
    rows = dataclasses.replace(rows, stale=rows.stale[~_soon(rows, rows.stale, seconds)])
    if not soon.any():
        return rows
    tokens = int(rows.tokens[soon].sum())
    share = units.show(float(np.maximum(rows.best, 0)[soon].sum() / max(tokens, 1)), "fraction")
    said = (
        f"{units.many(int(soon.sum()), 'request')} received within {seconds:g} s after a reset of their worker's cache "
        f"({tokens:,} prompt tokens, {share} of them reused)"
    )
    return rows.without(soon, said)


def _soon(rows: PromptRows, numbers: Numbers, seconds: float) -> Mask:
    """Tell which of those rows came too soon after their worker's cache was reset."""
    found, known = rows.capture.derive(prompts), rows.capture.derive(fleet)
    served, received = found.served[numbers], found.received[numbers]
    soon = np.zeros(len(received), dtype=bool)
    for code in np.unique(served).tolist():
        resets = np.array([-np.inf, *known.emptied(found.workers[code] if code >= 0 else "")])
        mine = np.flatnonzero(served == code)
        since = received[mine] - resets[np.searchsorted(resets, received[mine], side="right") - 1]
        soon[mine] = since < seconds
    return soon


def impossible(names: list[str]) -> str:
    """Say which requests claim what cannot be."""
    more = f" +{len(names) - _SHOWN_IDS} more" if len(names) > _SHOWN_IDS else ""
    some = units.many(len(names), "request")
    return f"{some} with more cached than prompt tokens: {', '.join(names[:_SHOWN_IDS])}{more}"
