"""Series of scraped metrics: what a counter counted during the run, and what a gauge showed.

A counter that falls was reset by a restart: only what it counted since then is known. So is one whose process was
replaced without its falling, which a Dynamo process's worker id and uptime tell; `process_start_time_seconds` does not,
as one page of metrics may hold those of several processes. A series that is not there says nothing; it is never 0. A
counter that an earlier scrape of the same endpoint did not have yet began at 0.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import NotMeasurable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.capture import Capture

_ORDER = {name: rank for rank, names in enumerate((("before", "start", "begin"), ("mid", "during"))) for name in names}
_LATE = {"after", "end", "stop"}
_SHOWN = 5
_UPTIME = "dynamo_component_uptime_seconds"


@dataclass(frozen=True, slots=True)
class Counted:
    """What some counters of one name counted, summed over their labels."""

    value: float
    resets: tuple[str, ...] = ()
    """Series that were reset between scrapes."""
    whole: bool = True
    """False if there is only one scrape: the value counts since the process started."""

    @property
    def note(self) -> str:
        """Say what the value does not cover."""
        if self.resets:
            more = f" +{len(self.resets) - _SHOWN:,} more" if len(self.resets) > _SHOWN else ""
            seen = ", ".join(self.resets[:_SHOWN]) + more
            return f"counter reset seen ({seen}): covers only the time since the restart"
        return "" if self.whole else "one scrape only: counts since the process started"


def _place(tag: str, t: float | None) -> tuple[float, float, str]:
    return _ORDER.get(tag, len(_ORDER) + (tag in _LATE)), t or 0.0, tag


def series(capture: Capture) -> Mapping[str, Any]:
    """Return name → (target, labels) → values in order; ask for it through ``capture.derive(series)``.

    A scrape in which the series is missing stands as None.
    """
    rows = capture.scrapes.to_pylist()
    scrapes: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: _place(row["tag"], row["t"])):
        tags = scrapes.setdefault(row["target"], [])
        if row["tag"] not in tags:
            tags.append(row["tag"])
    found: dict[str, dict[tuple[str, str], list[float | None]]] = {}
    for row in rows:
        tags = scrapes[row["target"]]
        values = found.setdefault(row["name"], {}).setdefault((row["target"], row["labels"]), [None] * len(tags))
        values[tags.index(row["tag"])] = row["value"]
    return found


def restarts(capture: Capture) -> Mapping[str, int]:
    """Return endpoint → the place of the scrape before which its process was last replaced; 0 if it never was."""
    found: dict[str, int] = {}
    for (target, _), values in capture.derive(series).get(_UPTIME, {}).items():
        first = next((place for place, value in enumerate(values) if value is not None), 0)
        found[target] = max(found.get(target, 0), first, _last_reset(values))
    return found


def counted(capture: Capture, *names: str, **labels: str) -> tuple[Counted, ...]:
    """Return what counters counted between the first and the last scrape, one for each name.

    Args:
        capture: the capture.
        names: series that belong together, such as the sum and the count of a histogram: a reset of one is a reset
            of all.
        labels: take only series with these labels.

    Raises:
        NotMeasurable: no scrape has them.
    """
    found = capture.derive(series)
    totals = [0.0] * len(names)
    resets: dict[str, None] = {}
    whole = True
    keys = [key for key in found.get(names[0], {}) if labels.items() <= json.loads(key[1]).items()]
    if not keys or any(name not in found for name in names):
        raise NotMeasurable(f"no scrape has {' and '.join(names)}")
    for key in keys:
        runs = [found[name].get(key, []) for name in names]
        if not all(runs) or any(values[-1] is None for values in runs):
            continue
        whole &= len(runs[0]) > 1
        replaced = capture.derive(restarts).get(key[0], 0)
        since = max(replaced, *map(_last_reset, runs))
        for place, (name, values) in enumerate(zip(names, runs, strict=True)):
            base = 0.0 if since or not len(values) > 1 else values[0] or 0.0
            totals[place] += (values[-1] or 0.0) - base
            if since:
                resets[f"{name}{_shown(key[1])}" + (f" of {key[0]}" if replaced and key[0] else "")] = None
    return tuple(Counted(total, tuple(resets), whole) for total in totals)


def _last_reset(values: list[float | None]) -> int:
    """Return the place of the scrape before which a counter was last reset; 0 if it never was."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    return max((b for (_, x), (b, y) in itertools.pairwise(known) if y < x), default=0)


def _shown(labels: str) -> str:
    inner = ",".join(f"{name}={value}" for name, value in json.loads(labels).items())
    return f"{{{inner}}}" if inner else ""


def gauges(capture: Capture, *names: str) -> list[float]:
    """Return every value that gauges of these names showed, over all endpoints and scrapes.

    Raises:
        NotMeasurable: no scrape has any.
    """
    found = capture.derive(series)
    runs = [values for name in names for values in found.get(name, {}).values()]
    known = [value for values in runs for value in values if value is not None]
    if not known:
        raise NotMeasurable(f"no scrape has {' or '.join(names)}")
    return known
