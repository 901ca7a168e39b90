"""The inventory of trace shards: PREFIX.NNNNNN.jsonl[.gz], with no gap and of one producer."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from pytest_rlserve.capture import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

_LISTED = 100
_NAME = re.compile(r"(?P<prefix>.*?)(?:\.(?P<index>\d{6,}))?\.(?:jsonl|ndjson)(?P<gz>\.gz)?")


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard's name taken apart; `index` is None for a file that is not numbered."""

    label: str
    prefix: str
    index: int | None


def parse(label: str) -> Shard:
    """Take a file name apart."""
    found = _NAME.fullmatch(label)
    if found is None:
        return Shard(label, label, None)
    return Shard(label, found["prefix"], int(found["index"]) if found["index"] else None)


def inventory(rows: Mapping[str, int], expected: int | None) -> tuple[frozenset[str], list[Finding]]:
    """Return the labels that belong to other producers, and what is wrong with the set.

    The producer is the prefix with the most shards that hold `rows` (the first by name among equals).
    """
    families: dict[str, list[Shard]] = defaultdict(list)
    for label in rows:
        shard = parse(label)
        families[shard.prefix].append(shard)
    if not families:
        return frozenset(), []
    filled = {prefix: sum(rows[shard.label] > 0 for shard in family) for prefix, family in families.items()}
    main = min(families, key=lambda prefix: (-filled[prefix], prefix))
    findings = _gaps(families[main], expected)
    foreign = [shard.label for prefix in sorted(families) if prefix != main for shard in families[prefix]]
    for prefix in sorted(families):
        if prefix != main and not filled[prefix]:
            text = "no row could be read from it, so nothing says what it is"
            findings += [_finding(text, severity="error", path=shard.label) for shard in families[prefix]]
        elif prefix != main:
            text = (
                f"a second prefix is present: {prefix!r} beside {main!r}; its rows were left out, since two "
                f"producers' traces must not be mixed: name the files of one in the manifest, or move the others away"
            )
            first = families[prefix][0].label
            findings.append(_finding(text, path=first, ids=tuple(s.label for s in families[prefix])))
    return frozenset(foreign), findings


def _gaps(shards: list[Shard], expected: int | None) -> list[Finding]:
    findings = []
    seen: dict[int | None, str] = {}
    for shard in shards:
        if shard.index in seen:
            text = f"the same segment is there twice, as {seen[shard.index]} and {shard.label}"
            findings.append(_finding(text, path=shard.label, severity="error"))
        seen[shard.index] = shard.label
    numbers = {index for index in seen if index is not None}
    prefix = shards[0].prefix
    if numbers:
        missing = max(numbers) + 1 - len(numbers)
        # A number may be a date in truth, so the gaps are counted, and only the first of them are listed.
        first = islice((index for index in count() if index not in numbers), min(missing, _LISTED))
        which = tuple(f"{index:06d}" for index in first)
        if missing == 1:
            findings.append(_finding(f"segment {which[0]} of {prefix!r} is missing", ids=which))
        elif missing:
            text = f"{missing:,} segments of {prefix!r} are missing"
            findings.append(_finding(text, ids=which, count=missing))
    if expected is not None and len(seen) != expected:
        verb = "is" if len(seen) == 1 else "are"
        findings.append(_finding(f"the manifest promises {expected} shards, {len(seen)} {verb} there"))
    return findings


def _finding(message: str, *, severity: str = "failure", **more: object) -> Finding:
    return Finding(message=message, severity=severity, check="shards_are_whole", **more)  # type: ignore[arg-type]
