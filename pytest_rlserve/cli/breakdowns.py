"""`rlserve measure --by worker|step|update`: KV reuse and load, or the way of each worker through each update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import Scope


def broken_down(captures: Sequence[Capture], scope: Scope, arguments: argparse.Namespace) -> int:
    """Print the tables; return 1 if a capture does not tell its workers, steps or updates apart.

    Raises:
        UsageError: single metrics were asked for as well.
    """
    from tabulate import tabulate

    from pytest_rlserve.gate.breakdowns import breakdowns
    from pytest_rlserve.reports import breakdown
    from pytest_rlserve.reports.escape import terminal_safe

    if arguments.metric:
        raise UsageError("--by prints tables of its own: leave --metric out")
    by = arguments.by
    names = ["updates"] if by == "update" else [f"{name}_by_{by}" for name in ("kv", "load")]
    chosen = [{name: breakdowns(one, scope)[name] for name in names} for one in captures]
    found = [{"name": one.name, "tables": tables} for one, tables in zip(captures, chosen, strict=True)]
    for table in (breakdown.narrow(one.dense()) for one in breakdown.breakdowns({"captures": found})):
        rows = [[terminal_safe("".join(cell)) for cell in row] for row in table.rows]
        sides = ["right" if side == "r" else "left" for side in table.align]
        print(tabulate(rows, table.headers, disable_numparse=True, colalign=sides), end="\n\n")
    absent = [
        f"{name} of {capture.name} is not observable: {table['why']}"
        for capture, tables in zip(captures, chosen, strict=True)
        for name, table in tables.items()
        if table["why"]
    ]
    print("\n".join(absent), end="\n" if absent else "")
    return 1 if absent else 0
