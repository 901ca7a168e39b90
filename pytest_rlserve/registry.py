"""Readers, checks, metrics and reports, each by its name.

Something joins by one decorator in one file. The file is found in the package's own folder, through the
entry-point group ``pytest_rlserve.<kind>s`` of an installed distribution, or because a conftest.py imports it.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Generic, TypeVar

from pytest_rlserve.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

_MOST_NAMES = 20
"""More than these are not listed in a message."""


class Registry(Generic[T]):
    """Named things of one kind, loaded when first asked for."""

    def __init__(self, kind: str, package: str) -> None:
        """Hold things of `kind` ("metric"), whose own modules lie in `package`."""
        self.kind, self.package = kind, package
        self._things: dict[str, T] = {}
        self._homes: dict[str, str] = {}
        self._loaded = False

    def add(self, name: str, thing: T, *, home: str) -> None:
        """Register `thing`, defined in module `home`.

        The same module may register the same name again, as happens when pytest imports a conftest twice.

        Raises:
            UsageError: another module has taken the name.
        """
        if self._homes.setdefault(name, home) != home:
            raise UsageError(f"two {self.kind}s are named {name!r}: in {self._homes[name]} and in {home}")
        self._things[name] = thing

    def _load(self) -> None:
        if self._loaded:
            return
        folder = importlib.import_module(self.package).__path__
        for module in pkgutil.iter_modules(folder):
            importlib.import_module(f"{self.package}.{module.name}")
        for point in entry_points(group=f"pytest_rlserve.{self.kind}s"):
            point.load()
        self._loaded = True

    def __getitem__(self, name: str) -> T:
        """Return the thing of that name; an unknown name raises `UsageError` with the nearest right one."""
        self._load()
        try:
            return self._things[name]
        except KeyError:
            hint = nearest(name, self._things) or f"; there are {self._some(name)}"
            raise UsageError(f"no {self.kind} is named {name!r}{hint}") from None

    def _some(self, like: str) -> str:
        """Name all things, or where they are too many to be read, a few with such a part in their name."""
        names = list(self)
        if len(names) <= _MOST_NAMES:
            return ", ".join(names)
        few = ([name for name in names if like in name] or names)[:5]
        return f"{', '.join(few)} +{len(names) - len(few):,} more"

    def __contains__(self, name: object) -> bool:
        """Tell whether a thing of that name is known."""
        self._load()
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        """Go through the names in alphabetical order."""
        self._load()
        return iter(sorted(self._things))

    def values(self) -> list[T]:
        """Return all things, sorted by name."""
        return [self._things[name] for name in self]
