"""The tables of KV reuse and load by worker and by step, with a last row for the whole, and of weight updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve import units
from pytest_rlserve.reports import wording
from pytest_rlserve.reports.tables import Cell, Name, Table, capture_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Row = Mapping[str, Any]

_SHARES = {
    "kv_reuse_fraction": "reuse",
    "kv_reuse_ceiling": "ceiling",
    "kv_worker_ceiling": "worker ceiling",
    "kv_reuse_efficiency": "efficiency",
    "kv_routing_loss": "routing loss",
    "kv_eviction_loss": "eviction loss",
    "kv_cold_fraction": "cold",
}
_LOAD = {"completed": "completed", "prompt_tokens": "input tokens", "output_tokens": "output tokens"}
_HEADERS = {
    "kv": ("requests", "input tokens", *_SHARES.values()),
    "load": ("requests", *_LOAD.values(), "serving", "of the mean", "queue depth"),
}
_TITLES = {"kv": "KV reuse", "load": "load"}
NAMES = (*_TITLES, "updates")
_NO_KEY = {"worker": "no worker known", "step": "between steps"}
_PHASES = {
    "pause": "paused",
    "transfer_started": "transfer begun",
    "transfer": "transfer",
    "transfer_finished": "transfer ended",
    "cache_reset": "cache reset",
    "version": "version set",
    "verified": "verified",
    "ready": "ready",
    "resume": "resumed",
    "gate_opened": "gate opened",
}
_UPDATE_METRICS = ("update_downtime", "transfer_time", "reset_time", "verify_time", "warmup_time")
_UPDATE_CHECKS = ("updates_are_ordered", "workers_are_current")
_LOAD_METRICS = ("worker_load_imbalance", "queue_depth", "router_queue_time", "engine_queue_depth")


def breakdowns(report: Row, names: Iterable[str] = NAMES, *, most: int | None = None) -> list[Table]:
    """Return the tables of those names that have rows; of each capture at most so many rows."""
    found = [_breakdown(report, name, by, most) for name in names if name in _TITLES for by in _NO_KEY]
    found += [updates(report, most=most)] * ("updates" in names)
    return [table for table in found if table.rows]


def updates(report: Row, *, most: int | None = None) -> Table:
    """Return each worker's way through each update, in seconds after the update began."""
    column = capture_column(report)
    headers = ("update (s)", *column, "worker", "before", "version", *_PHASES.values())
    found = Table("update (s)", headers, "l" + "l" * len(column) + "lll" + "r" * len(_PHASES))
    for capture in report.get("captures", ()):
        where = (Name(capture["name"]),) if column else ()
        rows = capture.get("tables", {}).get("updates", {}).get("rows", ())
        for row in rows[:most]:
            got = "missed" if row["reached"] is False else Name(row["policy_version"] or "n/a")
            times = (f"{row['phases'][name]:.3f}" if name in row["phases"] else "" for name in _PHASES)
            found.rows.append(
                (Name(row["update"]), *where, Name(row["worker"]), Name(row["replaced_worker"] or ""), got, *times)
            )
        if most is not None and len(rows) > most:
            found.rows.append((f"+{len(rows) - most:,} more", *where, *[""] * (3 + len(_PHASES))))
    return found


def narrow(table: Table) -> Table:
    """Return the table with its headers in lines of one word each, for figures that are narrower than their names."""
    title, *others = table.headers
    title = title.replace(" by ", "\nby ")
    return Table(title, (title, *(header.replace(" ", "\n") for header in others)), table.align, table.rows)


def asked(report: Row) -> list[str]:
    """Name the tables that tell more of a comparison, limit or check to look at."""
    rows = [
        *(row for row in report.get("comparisons", ()) if row["verdict"] not in (*wording.QUIET, "no_baseline")),
        *wording.select(report.get("limits", ()), "status", quiet=False),
    ]
    names = [row["metric"].partition(".")[0] for row in rows]
    failed = {check["name"] for _, check in wording.checks_of(report) if check["status"] == "fail"}
    told = {
        "kv": "no_stale_kv" in failed or any(name.startswith("kv_") for name in names),
        "load": any(name in _LOAD_METRICS for name in names),
        "updates": not failed.isdisjoint(_UPDATE_CHECKS) or any(name in _UPDATE_METRICS for name in names),
    }
    return [name for name, wanted in told.items() if wanted]


def _breakdown(report: Row, name: str, by: str, most: int | None) -> Table:
    column = capture_column(report)
    headers = (f"{_TITLES[name]} by {by}", *column, *_HEADERS[name])
    found = Table(headers[0], headers, "l" + "l" * len(column) + "r" * len(_HEADERS[name]))
    for capture in report.get("captures", ()):
        where = (Name(capture["name"]),) if column else ()
        rows = capture.get("tables", {}).get(f"{name}_by_{by}", {}).get("rows", ())
        found.rows.extend((key, *where, *cells) for key, cells in _rows(rows, name, by, most))
    return found


def _rows(rows: Sequence[Row], name: str, by: str, most: int | None) -> Iterator[tuple[Cell, Sequence[str]]]:
    """Yield the first cell and the figures of each row, then those of the whole."""
    figures = _kv if name == "kv" else _load
    whole = _sum(rows)
    known = [row for row in rows if row["key"] is not None]
    mean = whole.get("serving_seconds", 0) / max(len(known), 1)
    for row in rows[:most]:
        yield (_NO_KEY[by] if row["key"] is None else Name(row["key"])), figures(row, mean)
    if most is not None and len(rows) > most:
        yield f"+{len(rows) - most:,} more", [""] * len(_HEADERS[name])
    if len(rows) > 1:
        yield "all", figures(whole, 0)


def _kv(row: Row, mean: float) -> list[str]:
    counts = [wording.count(row["requests"]), wording.count(row["prompt_tokens"])]
    return counts + [_share(row["shares"].get(name), "fraction") for name in _SHARES]


def _load(row: Row, mean: float) -> list[str]:
    spent = row.get("serving_seconds")
    times = f"{spent / mean:.2f} x" if spent is not None and mean and row["key"] is not None else ""
    counts = [wording.count(row.get(name)) for name in ("requests", *_LOAD)]
    return [*counts, units.show(spent, "s"), times, _share(row.get("queue_depth"), "count")]


def _share(part: Row | None, unit: str) -> str:
    known = part is not None and part["denominator"]
    return units.show(part["numerator"] / part["denominator"] if part and known else None, unit)


def _sum(rows: Sequence[Row]) -> dict[str, Any]:
    """Add rows up; what no row knows stays unknown."""
    whole: dict[str, Any] = {"key": None}
    for row in rows:
        for name, value in row.items():
            if name == "shares":
                whole[name] = _sum([row["shares"] for row in rows]) | {"key": None}
            elif isinstance(value, dict):
                before = whole.get(name) or dict.fromkeys(value, 0)
                whole[name] = {part: before[part] + value[part] for part in value}
            elif name != "key" and value is not None:
                whole[name] = whole.get(name, 0) + value
    return whole
