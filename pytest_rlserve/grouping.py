"""Control events put together to weight updates: by the names that they give, else by the order of time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_rlserve.lifecycle import PHASES, Event, Passage, Update

if TYPE_CHECKING:
    from collections.abc import Iterable

_SETTING_OUT = PHASES[:6]
_ARRIVED = PHASES[-2:]


def updates_of(events: Iterable[Event]) -> list[Update]:
    """Put the events of a run, in order, together to its updates."""
    found = sorted((_update(name, some) for name, some in _grouped(events).items()), key=lambda one: one.start)
    seen: set[str] = set()
    for update in found:
        sets_out = not update.told.isdisjoint(_SETTING_OUT)
        update.opening = "version" in update.told and not sets_out and seen.isdisjoint(update.passages)
        seen |= update.passages.keys()
    return found


def _grouped(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Group events into updates: by the update they name, else by time.

    Without a name a new update begins where a worker that had come through the last one sets out again, and where the
    first sets out after what was loaded at first. A run that follows another may give its updates the same names.
    """
    named: dict[str, list[Event]] = {}
    unnamed: list[list[Event]] = []
    arrived: set[str | None] = set()
    set_out = False
    for event in events:
        if event.update is not None:
            named.setdefault(event.update, []).append(event)
            continue
        again = event.name in _SETTING_OUT and (arrived if event.worker is None else arrived & {event.worker, None})
        first = event.name in _SETTING_OUT[:-1] and len(unnamed) == 1 and not set_out
        set_out |= event.name in _SETTING_OUT
        if not unnamed or again or first:
            unnamed.append([])
            arrived = set()
        unnamed[-1].append(event)
        if event.name in _ARRIVED:
            arrived.add(event.worker)
    named = {label: some for name, events in named.items() for label, some in _by_run(name, events).items()}
    for some in unnamed:
        versions = sorted({e.version for e in some if e.name == "version" and e.version is not None})
        label = f"to version {' and '.join(versions)}" if versions else f"at {some[0].t:.3f}"
        named[f"{label} again" if label in named else label] = some
    return named


def _by_run(name: str, events: list[Event]) -> dict[str, list[Event]]:
    """Part what two runs call by one name, where one run had ended its update before the other began."""
    parts, label = dict[str, list[Event]](), name
    told, ended = defaultdict[str, set[str | None]](set), set[str]()
    for event in events:
        follows = event.name in _SETTING_OUT and event.run is not None and told[label].isdisjoint({event.run, None})
        if follows and label in ended:
            label = f"{name} of run {event.run}"
        parts.setdefault(label, []).append(event)
        told[label].add(event.run)
        if event.name in _ARRIVED:
            ended.add(label)
    return parts


def _update(name: str, events: list[Event]) -> Update:
    update = Update(name=name, events=events)
    came = {event.worker: event.replaced for event in events if event.worker is not None and event.replaced}
    went = {old: new for new, old in came.items()}
    update.everyone.events = [event for event in events if event.worker is None]
    for event in events:
        if event.worker is not None:
            new = went.get(event.worker, event.worker)
            passage = update.passages.setdefault(new, Passage(worker=new, earlier=came.get(new)))
            update.passages[passage.earlier or new] = passage
            passage.events.append(event)
    for passage in update.workers:
        passage.events = sorted([*passage.events, *update.everyone.events], key=lambda event: event.order)
    return update
