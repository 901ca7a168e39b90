"""Where the work on single files runs. One function of a file's path in, one result out, in the given order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

P = TypeVar("P")
R = TypeVar("R")


def run(work: Callable[[P], R], parts: Iterable[P]) -> list[R]:
    """Apply `work` to every part and return the results in the order of the parts."""
    return [work(part) for part in parts]
