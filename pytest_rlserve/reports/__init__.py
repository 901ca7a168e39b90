"""Reports: the report dictionary (format ``rlserve.report.v1``) in, text out.

A renderer is a pure function of the report: it reads no file, no clock and no environment, so that a report
kept from last month can be rendered again today. One file holds one format and registers it with `@report`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_rlserve.errors import UsageError
from pytest_rlserve.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Renderer = Callable[..., str | bytes]

R = TypeVar("R", bound="Renderer")


@dataclass(frozen=True, slots=True)
class Report:
    """A format by its name: `write(report)` returns text, or bytes where `binary`."""

    name: str
    write: Renderer
    binary: bool = False


REPORTS: Registry[Report] = Registry("report", "pytest_rlserve.reports")


def report(name: str, *, binary: bool = False) -> Callable[[R], R]:
    """Register a function of the report dictionary under `name`; it returns text, or bytes where `binary`."""

    def register(write: R) -> R:
        REPORTS.add(name, Report(name, write, binary), home=write.__module__)
        return write

    return register


def render(report: Mapping[str, Any], fmt: str) -> str:
    """Return the report in the text format `fmt`.

    Raises:
        UsageError: no report has that name, or it is no text.
    """
    text = REPORTS[fmt].write(report)
    if isinstance(text, bytes):
        raise UsageError(f"report {fmt!r} is not text: write it to a file with --rl-report={fmt}:PATH")
    return text


def encode(report: Mapping[str, Any], fmt: str) -> bytes:
    """Return the bytes of a file that holds the report in format `fmt`; text is UTF-8.

    Raises:
        UsageError: no report has that name.
    """
    content = REPORTS[fmt].write(report)
    return content if isinstance(content, bytes) else content.encode("utf-8")
