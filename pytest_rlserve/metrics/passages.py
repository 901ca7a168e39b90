"""Each worker's way through each weight update: which phase it reached, and how long after the update began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import fleet
from pytest_rlserve.lifecycle import PHASES
from pytest_rlserve.missed import targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.capture import Capture

_FIRST = ("gate_closed", "pause", "transfer_started")
"""Phases that begin something: of several records the first counts, of the others the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One worker in one update."""

    update: str
    worker: str
    replaced: str | None
    """The id under which it went into the update, where it restarted under another one."""
    version: str | None
    """The version that it loaded; None if no record says that it did."""
    reached: bool | None
    """Whether it got the new weights; None if no record can say."""
    phases: Mapping[str, float]
    """Seconds after the first record of the update, by phase, in their usual order; failed ones are not there."""


def ways(capture: Capture) -> list[Way]:
    """Return the way of every target worker through every update that ended.

    Raises:
        NotMeasurable: no update is recorded, or no worker is known.
    """
    found = []
    for update in capture.derive(fleet).finished:
        for worker in targets(capture, update):
            passage = update.passage(worker)
            phases = {}
            for name in PHASES:
                if times := passage.times(name):
                    phases[name] = (min if name in _FIRST else max)(times) - update.start
            loaded = [e.version for e in passage.events if e.name == "version" and e.good and e.version is not None]
            found.append(
                Way(
                    update=update.name,
                    worker=passage.worker or worker,
                    replaced=passage.earlier,
                    version=loaded[-1] if loaded else None,
                    reached=update.reached(worker),
                    phases=phases,
                )
            )
    if not found:
        raise NotMeasurable("the control records tell of no weight update that ended, or of no worker in it")
    return found
