"""May this capture be compared with that baseline? Same model, same hardware, same workload, same definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pytest_rlserve.gate.workload import workload_differences, workload_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline


def job_names(captures: Sequence[Capture]) -> list[str]:
    """Return the job of each capture, as the unit of comparison.

    Captures given together without a job count as one, and as another one than those of any other session: nobody
    has said that they shared a machine, so their spread is not that of one job.
    """
    nameless = [capture.digest for capture in captures if not capture.manifest.job]
    own = f"unnamed/{min(nameless).removeprefix('blake3:')[:12]}" if nameless else ""
    return [capture.manifest.job or own for capture in captures]


def identity_of(capture: Capture) -> dict[str, Any]:
    """Return what the manifest declares, completed by what the trace itself shows."""
    shown: dict[str, Any] = {}
    for key, column in (("model", "model"), ("block_size", "trace_block_size")):
        values = pc.unique(capture.scalars[column].drop_null()).to_pylist()
        if values:
            shown[key] = values[0] if len(values) == 1 else ", ".join(sorted(map(str, values)))
    return {**shown, **capture.manifest.identity}


def differences(baseline: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """List the keys that differ, with both values; a key that one side lacks differs too."""
    return [
        f"{key}: baseline {baseline.get(key, 'does not say')!r}, current {current.get(key, 'does not say')!r}"
        for key in sorted({*baseline, *current})
        if baseline.get(key) != current.get(key)
    ]


def not_comparable(baseline: Baseline, captures: Sequence[Capture]) -> list[str]:
    """List why captures may not be compared with a baseline; none if they may."""
    stored = baseline.document
    for capture in captures:
        if capture.manifest.kind != stored["kind"]:
            return [f"kind: baseline {stored['kind']!r}, {capture.name} {capture.manifest.kind!r}"]
        if found := differences(stored["identity"], identity_of(capture)):
            return found
    return workload_differences(stored.get("workload"), workload_of(captures))


def mixed_captures(captures: Sequence[Capture]) -> str:
    """Say in what some captures differ so that they are no runs of one series; an empty string if they agree."""
    first = captures[0]
    for capture in captures[1:]:
        kinds = {"kind": first.manifest.kind}, {"kind": capture.manifest.kind}
        found = [*differences(*kinds), *differences(identity_of(first), identity_of(capture))]
        found += workload_differences(workload_of([first]), workload_of([capture]))
        if found:
            text = found[0].replace("baseline", first.name).replace("current", capture.name)
            return text
    return ""
