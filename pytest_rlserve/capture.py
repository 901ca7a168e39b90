"""A capture in memory: its tables, the files they came from, and what was wrong with them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
from blake3 import blake3

from pytest_rlserve import model, scattered
from pytest_rlserve.chains import CHAINS, chains_of, expand
from pytest_rlserve.scattered import Deferred, Left, Unread, gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_rlserve.columns import Reals

Severity = Literal["error", "failure", "warning", "note"]
"""error: the evidence is broken · failure: a check does not hold · warning and note: worth knowing."""

AXES = (
    "dispatched",
    "completed",
    "canceled",
    "failed",
    "retried",
    "accepted",
    "rejected",
    "policy",
    "tokens",
    "requests",
    "steps",
    "updates",
)
"""What a source may be able to tell. A count on an axis that no source covers is unknown, never 0."""
_SHOWN_IDS = 5
T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact about the evidence, with its place."""

    message: str
    severity: Severity
    check: str
    """Name of the check that answers for it."""
    path: str | None = None
    line: int | None = None
    ids: tuple[str, ...] = ()
    count: int = 1

    def __str__(self) -> str:
        """Return place, message and at most five ids."""
        place = "" if self.path is None else f"{self.path}:{self.line}: " if self.line else f"{self.path}: "
        return f"{place}{self.message}{_listed(self.ids)}"


def _listed(ids: tuple[str, ...]) -> str:
    if not ids:
        return ""
    rest = f" +{len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else ""
    return f": {', '.join(ids[:_SHOWN_IDS])}{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file of a capture, as it was read."""

    path: str
    """Relative to the capture."""
    format: str
    rows: int
    whole: bool
    """False if the file was cut off or its rest could not be read."""
    digest: str
    """BLAKE3 of the file's bytes, in hexadecimal."""
    covers: tuple[str, ...] = ()
    """What this format can tell of attempts and serving, by the names of `AXES`."""
    joins: str = ""
    """What its framework would have to send, so that served rows can be joined with its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of a question the capture can answer: `observed` of `total` `of`."""

    question: str
    of: str
    observed: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time a metric is taken over.

    `excluded` are the spans inside it that do not belong to it: what happens in them is not counted either.
    `closed` are the spans in which the update gate was shut, cut to what belongs to the window. Both are in order
    and without overlap.
    """

    start: float
    end: float
    excluded: tuple[tuple[float, float], ...] = ()
    closed: tuple[tuple[float, float], ...] = ()
    reason: str
    """Why it begins and ends where it does, and what it leaves out."""

    @property
    def seconds(self) -> float:
        """Length on the clock, without what is excluded."""
        return float(self.overlap(np.array([self.start]), np.array([self.end]))[0])

    def overlap(self, starts: Reals, ends: Reals) -> Reals:
        """Return of each span from one instant to another how many seconds belong to the window."""
        starts, ends = np.maximum(starts, self.start), np.minimum(ends, self.end)
        left_out = sum(np.maximum(np.minimum(ends, b) - np.maximum(starts, a), 0.0) for a, b in self.excluded)
        found: Reals = np.maximum(ends - starts, 0.0) - left_out
        return found

    @property
    def open_seconds(self) -> float:
        """Length without the spans in which the update gate was shut."""
        return self.seconds - sum(end - start for start, end in self.closed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What `rlserve.json` says of a capture; everything is optional."""

    series: str | None = None
    kind: str = "rollout"
    job: str | None = None
    pair: str | None = None
    commit: str | None = None
    captured_at: float | None = None
    gpus: int | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    factors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Capture:
    """All that was read from one run. Tables are never changed in place."""

    name: str
    scalars: pa.Table = field(default_factory=model.SCALARS.empty_table)
    """The requests table without its hashes, which many questions do not need."""
    hashes: pa.Table | Deferred | Left | Unread = field(default_factory=CHAINS.empty_table)
    """The block hashes of the requests' prompts, or what reads them; to be asked for as `chains`."""
    payloads: pa.Table = field(default_factory=model.PAYLOADS.empty_table)
    tools: pa.Table = field(default_factory=model.TOOLS.empty_table)
    attempt_events: pa.Table = field(default_factory=model.ATTEMPT_EVENTS.empty_table)
    control_events: pa.Table = field(default_factory=model.CONTROL_EVENTS.empty_table)
    step_metrics: pa.Table = field(default_factory=model.STEP_METRICS.empty_table)
    scrapes: pa.Table = field(default_factory=model.SCRAPES.empty_table)
    manifest: Manifest = field(default_factory=Manifest)
    sources: tuple[Source, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What the readers noticed; each check takes up its own."""
    not_read: tuple[tuple[str, str], ...] = ()
    """Files of the folder that no reader knows, each with the reason."""
    _derived: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def requests(self) -> pa.Table:
        """Return the requests table with its hashes, which are unpacked when they are first asked for."""
        return self.derive(_requests)

    @property
    def chains(self) -> pa.Table | Deferred | Left:
        """Return the hashes of the requests' prompts, packed; row by row beside `scalars`.

        Raises:
            EvidenceError: they were left in the files, and these have changed, or hold hashes that are none.
        """
        return self.hashes.chains if isinstance(self.hashes, Unread) else self.hashes

    @property
    def packed(self) -> pa.Table:
        """Return the chains table, fetched if it is elsewhere; much smaller than the hashes that `requests` unpacks."""
        return gathered(self.chains)

    @property
    def digest(self) -> str:
        """Identify the capture by the content of its files, whatever they are called."""
        whole = blake3("\n".join(sorted(source.digest for source in self.sources)).encode())
        return f"blake3:{whole.hexdigest()}"

    def __repr__(self) -> str:
        """Name the capture and its size, without its content."""
        sizes = {name: (self.scalars if name == "requests" else getattr(self, name)).num_rows for name in model.TABLES}
        rows = ", ".join(f"{rows:,} {name}" for name, rows in sizes.items() if rows)
        return f"<Capture {self.name}: {rows or 'no rows'}>"

    def covers(self, axis: str) -> bool:
        """Tell whether any source of the capture can speak of that axis."""
        return any(axis in source.covers for source in self.sources)

    def has(self, table: str) -> bool:
        """Tell whether that table holds any row."""
        found: pa.Table = self.scalars if table == "requests" else getattr(self, table)
        return bool(found.num_rows)

    def derive(self, func: Callable[Concatenate[Capture, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``func(self, *args)``, computed once for this capture and these arguments."""
        key = (func, *args, *kwargs.items())
        if key not in self._derived:
            self._derived[key] = func(self, *args, **kwargs)
        value: T = self._derived[key]
        return value

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Go through the canonical tables by name."""
        for name in model.TABLES:
            yield name, getattr(self, name)

    def halves(self) -> Iterator[tuple[str, pa.Table]]:
        """Go through the tables as they are kept, the requests in two halves."""
        yield "scalars", self.scalars
        yield from scattered.tables(self.chains)
        yield from ((name, getattr(self, name)) for name in model.TABLES if name != "requests")

    def replace(self, **changes: Any) -> Capture:
        """Return a copy with some fields changed; `requests` stands for both of its halves."""
        if "requests" in changes:
            whole = changes.pop("requests")
            halves = {"scalars": whole.drop_columns([model.HASHES]), "hashes": chains_of(whole[model.HASHES])}
            changes = halves | changes
        return dataclasses.replace(self, **changes, _derived={})


def _requests(capture: Capture) -> pa.Table:
    lists = expand(capture.packed)
    columns = [lists if name == model.HASHES else capture.scalars[name] for name in model.REQUESTS.names]
    return pa.table(columns, schema=model.REQUESTS)
