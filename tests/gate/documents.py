"""Baseline documents written by hand, one metric each, for tests that need no capture."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rlserve.gate.baseline import Baseline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Jobs = Mapping[str, Sequence[float]]

RATE = "accepted_trajectory_throughput"
SHARE = "completion_fraction"
_UNITS = {RATE: "trajectories/s", SHARE: "fraction"}
FOLDER = Path("baselines")


def digest(number: int) -> str:
    """Return the digest of the capture of that number."""
    return f"blake3:{number:064x}"


def run(number: int, job: str, **values: float) -> dict[str, Any]:
    """Return one run as a baseline stores it, taken `number` seconds after the epoch."""
    return {
        "capture": digest(number),
        "name": f"run-{number}",
        "job": job,
        "commit": None,
        "captured_at": float(number),
        "measurements": {key.replace("__", "."): {"value": value, "n": 40} for key, value in values.items()},
    }


def document(
    *levels: Jobs,
    key: str = RATE,
    moved: Sequence[float | None] = (),
    carried: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Return a baseline of some levels, each given as job → values of one metric.

    Args:
        *levels: the levels, the first being the anchor.
        key: the metric.
        moved: change that was accepted with each level after the first, None for none.
        carried: variance and degrees of freedom left by earlier levels.
    """
    numbers = itertools.count(1)
    written = [[run(next(numbers), job, **{key: v}) for job, vs in level.items() for v in vs] for level in levels]
    steps = [None, *moved]
    return {
        "schema": "rlserve.baseline.v1",
        "series": "s",
        "kind": "rollout",
        "identity": {},
        "factors": {},
        "definitions": {
            key: {
                "unit": _UNITS[key],
                "better": "higher",
                "numerator": "n",
                "denominator": "d",
                "freshness": "any",
                "phase": "all",
                "digest": "0" * 16,
            }
        },
        "levels": [
            {
                "reason": None if number == 0 else "accepted",
                "accepted_at": None if number == 0 else "2027-01-31",
                "moved": {}
                if number >= len(steps) or steps[number] is None
                else {key: {"baseline": 1.0, "current": 1.0 + steps[number], "delta": steps[number]}},
                "runs": runs,
            }
            for number, runs in enumerate(written)
        ],
        "carried": {} if carried is None else {key: {"variance": carried[0], "df": carried[1]}},
    }


def sealed(document: Mapping[str, Any]) -> bytes:
    """Return a document as a file holds it: its digest is that of all the other lines."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    plain = json.dumps(rest, indent=1, sort_keys=True) + "\n"
    whole = {**rest, "digest": hashlib.sha256(plain.encode()).hexdigest()}
    return json.dumps(whole, indent=1, sort_keys=True).encode() + b"\n"


def baseline(*levels: Jobs, **more: Any) -> Baseline:
    """Return such a document as it is read from a file."""
    return Baseline(FOLDER / "s.json", document(*levels, **more))
