"""What metrics leave out, and why: updates, warm-up, requests that did not complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve.reports.tables import Cell, Name, capture_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Row = Mapping[str, Any]


def left_out(report: Row, *, judged: bool = False) -> Iterator[Cell]:
    """Say of each capture what its metrics leave out, once for all metrics that leave out the same.

    Args:
        report: the report.
        judged: keep to the metrics that were compared or limited.
    """
    rows = (*report.get("comparisons", ()), *report.get("limits", ()))
    names = {row["metric"] for row in rows} if judged else None
    for capture in report.get("captures", ()):
        groups: dict[tuple[str, ...], list[str]] = {}
        for metric in capture.get("metrics", ()):
            if metric.get("excluded") and (names is None or metric["name"] in names):
                groups.setdefault(tuple(metric["excluded"]), []).append(metric["name"])
        where = ("in ", Name(capture["name"]), " ") if capture_column(report) else ()
        for what, some in groups.items():
            listed = tuple(part for name in some for part in (", ", Name(name)))[1:]
            yield (*where, "left out of ", *listed, f": {'; '.join(what)}")
