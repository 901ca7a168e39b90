"""`rlserve reconcile`: where every attempt, request and row went, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pytest_rlserve.cli.commands import BAD, GOOD, captures_of, policy_of
from pytest_rlserve.reports.escape import code, terminal_safe

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_rlserve.joins.reconciliation import Part, Reconciled

_CHECKS = ("attempts_reconcile", "requests_are_joined")
_ENDS = ("dispatched", "completed", "canceled", "failed", "open")
_COUNTS = {
    "attempt": (*_ENDS, "accepted", "rejected", "pending", "retried"),
    "request": (*_ENDS, "retried"),
}
_FEW = 5


def reconcile(arguments: argparse.Namespace) -> int:
    """Print what every attempt, request and row came to; return 1 where something is left without an explanation."""
    from pytest_rlserve.checks import run_checks
    from pytest_rlserve.joins.reconciliation import reconcile as lines_of
    from pytest_rlserve.ledger import Level

    policy = policy_of(arguments.policy)
    captures = captures_of(arguments.captures, policy)
    found = [(capture.name, line) for capture in captures for line in lines_of(capture, arguments.by)]
    for level in get_args(Level):
        if some := [(name, line) for name, line in found if line.level == level]:
            print(_table(level, some, arguments.by, arguments.format), end="\n\n")
    if arguments.ids:
        print(*_named(found, arguments.by), sep="\n", end="\n\n")
    results = [r for c in captures for r in run_checks(c, names=_CHECKS, evidence=policy.evidence)]
    told = [result.message() for result in results if result.status != "pass"]
    print(*(told or [f"{len(captures):,} of {len(captures):,} captures reconcile"]), sep="\n")
    return GOOD if all(result.status in ("pass", "inconclusive") for result in results) else BAD


def _table(level: str, some: Sequence[tuple[str, Reconciled]], by: Part | None, style: str) -> str:
    from tabulate import tabulate

    from pytest_rlserve.joins.residuals import OUTSIDE, RESIDUALS, STRAYS

    lines = [line for _, line in some]
    kinds = (("residuals", RESIDUALS), ("strays", STRAYS), ("outside", OUTSIDE))
    left_over = [
        (kind, name) for kind, names in kinds for name in names if any(name in getattr(x, kind) for x in lines)
    ]
    joins = any(line.rows is not None for line in lines)
    trains = any(line.trained is not None for line in lines)
    headers = [f"{level}s of", *([by] if by else []), *_COUNTS[level], *["trained"] * trains]
    headers += [*["rows", "with row"] * joins, *(_header(kind, name) for kind, name in left_over), "unexplained"]
    safe = code if style == "markdown" else terminal_safe
    rows = []
    for name, line in some:
        counts = [getattr(line.counts, count) for count in _COUNTS[level]] + [line.trained] * trains
        counts += [line.rows, line.served] * joins
        left = [len(getattr(line, kind).get(residual, ())) for kind, residual in left_over]
        part = [safe(line.part or "of none")] if by else []
        figures = [_figure(count) for count in (*counts, *left, len(line.unexplained))]
        rows.append([safe(name), *part, *figures])
    if style == "markdown":
        return tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=_align(by, headers))
    wrapped = [headers[0], *(header.replace(" ", "\n") for header in headers[1:])]
    return tabulate(rows, wrapped, tablefmt="simple", disable_numparse=True, colalign=_align(by, headers))


def _header(kind: str, name: str) -> str:
    """Tell a stray row from a request with the residual of the same name."""
    from pytest_rlserve.joins.residuals import OF_ROWS, RESIDUALS

    return f"{OF_ROWS}{name}" if kind == "strays" and name in RESIDUALS else name


def _align(by: Part | None, headers: Sequence[str]) -> list[str]:
    named = 2 if by else 1
    return ["left"] * named + ["right"] * (len(headers) - named)


def _figure(count: int | None) -> str:
    return "n/a" if count is None else f"{count:,}"


def _named(found: Sequence[tuple[str, Reconciled]], by: Part | None) -> Iterator[str]:
    """Name what each residual is about."""
    for name, line in found:
        place = f"{name}, {by} {line.part}" if by and line.part else name
        unexplained = {"unexplained": line.unexplained} if line.unexplained else {}
        strays = {_header("strays", why): ids for why, ids in line.strays.items()}
        told: dict[str, Any] = {**line.residuals, **strays, **line.outside, **unexplained}
        for why, ids in told.items():
            more = f" +{len(ids) - _FEW:,} more" if len(ids) > _FEW else ""
            yield terminal_safe(f"{place}: {why} ({len(ids):,}): {', '.join(ids[:_FEW])}{more}")
