"""Taking runs into a baseline: only trusted ones, silently only when nothing changed, and never by accident."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_rlserve.gate import baseline as store
from pytest_rlserve.gate.doubts import cautions
from pytest_rlserve.gate.identity import identity_of, job_names
from pytest_rlserve.gate.levels import append, change_of, complete, first_level, known, open_level, unique
from pytest_rlserve.gate.rounding import rounded
from pytest_rlserve.gate.workload import workload_of
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.errors import BaselineError
    from pytest_rlserve.gate.baseline import Baseline
    from pytest_rlserve.gate.compare import Comparison
    from pytest_rlserve.metrics import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What became of a baseline update."""

    written: bool
    summary: str
    changes: tuple[dict[str, Any], ...] = ()
    """The report's `baseline_changes`: what the new baseline gives up or gains."""


def update(
    path: Path,
    captures: Sequence[Capture],
    comparisons: Mapping[str, Comparison],
    *,
    series: str,
    scope: Scope,
    keys: Iterable[str],
    reason: str | None,
    new_only: bool,
    found: Baseline | None,
    unreadable: BaselineError | None = None,
) -> Update:
    """Add captures to the baseline of a series, and write it.

    Args:
        path: the baseline file.
        captures: runs whose evidence checks have passed.
        comparisons: the verdicts of the gated metrics; they decide whether a reason is needed.
        series: name of the series.
        scope: how metrics are taken.
        keys: the measurements to store.
        reason: why a changed level is accepted.
        new_only: add only what the baseline lacks.
        found: the baseline that the comparisons were made with; None if there was none.
        unreadable: why the file that is there could not be read, if it is to be replaced.

    Raises:
        BaselineError: another run has changed the file meanwhile, or it cannot be written.
    """
    jobs = job_names(captures)
    runs = unique([_run(capture, job, keys, scope) for capture, job in zip(captures, jobs, strict=True)])
    if found is None:
        store.write(path, _fresh(captures, series, runs, keys, scope), over=... if unreadable else None)
        summary = f"baseline {path.name} created with {_runs(len(runs))}"
        if not unreadable:
            return Update(written=True, summary=summary)
        why = f"the old baseline could not be read and was replaced ({str(unreadable).splitlines()[0]})"
        changes = tuple(change_of(key, c, reason or why) for key, c in sorted(comparisons.items()) if c.current)
        return Update(written=True, summary=f"{summary}; {why}", changes=changes)
    document = copy.deepcopy(dict(found.document))
    definitions = _definitions(captures, keys, scope)
    if new_only:
        left_out = _align(document, definitions, runs)
        added = complete(document, runs)
        written = store.write(path, document, over=found)
        return Update(
            written=written, summary=f"baseline {path.name}: {added} new measurements added, none changed{left_out}"
        )
    moved = {key: c for key, c in comparisons.items() if c.verdict in ("regressed", "improved")}
    undecided = [key for key, c in comparisons.items() if c.verdict == "inconclusive" and c.result is not None]
    again = known(document, runs)
    if (moved or undecided) and not reason and not again:
        which = ", ".join(sorted([*moved, *undecided]))
        text = (
            f'baseline {path.name} left as it is: give --rl-baseline-reason="…", since {which} did not stay unchanged'
        )
        return Update(written=False, summary=text)
    accepted = {} if again else {key: c for key, c in comparisons.items() if key in moved or key in undecided}
    changes = tuple(change_of(key, c, reason or "") for key, c in sorted(accepted.items()))
    doubt = "".join(f"; warning: {one}" for one in cautions(found, captures))
    because = f", accepted because: {reason}" if accepted else ""
    left_out = ""
    if not again:
        document["factors"] = dict(captures[0].manifest.factors)
    if moved and not again:
        open_level(document, moved, runs, reason or "")
        _redefine(document, definitions)
        what = f"new level with {_runs(len(runs))}{because}"
    else:
        left_out = _align(document, definitions, runs)
        runs = [{**run, "reason": reason} for run in runs] if because else runs
        what = f"{_runs(append(document, runs))} added{because}"
    written = store.write(path, document, over=found)
    return Update(
        written=written,
        summary=f"baseline {path.name}: {what if written else 'nothing changed'}{left_out}{doubt}",
        changes=changes if written else (),
    )


def _redefine(document: dict[str, Any], definitions: Mapping[str, Any]) -> None:
    """Let a new level define its metrics anew, such as reuse over fewer workers, without the noise of the old ones."""
    stored = document["definitions"]
    for key, one in definitions.items():
        if key in stored and stored[key]["digest"] != one["digest"]:
            document["carried"].pop(key, None)
    stored |= definitions


def _align(document: dict[str, Any], definitions: Mapping[str, Any], runs: list[dict[str, Any]]) -> str:
    """Add the definitions of new metrics; leave out values whose definition is not the baseline's, and say so."""
    stored = document["definitions"]
    changed = [key for key, one in definitions.items() if key in stored and stored[key]["digest"] != one["digest"]]
    stored |= {key: one for key, one in definitions.items() if key not in stored}
    for run in runs:
        for key in changed:
            run["measurements"].pop(key, None)
    return f"; {', '.join(changed)} left out, defined otherwise in the baseline" if changed else ""


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _run(capture: Capture, job: str, keys: Iterable[str], scope: Scope) -> dict[str, Any]:
    measured = [measuring.measure(capture, key, scope) for key in keys]
    manifest = capture.manifest
    return {
        "capture": capture.digest,
        "name": capture.name,
        "job": job,
        **({"pair": manifest.pair} if manifest.pair else {}),
        "commit": manifest.commit,
        "captured_at": manifest.captured_at,
        "measurements": {m.name: {"value": rounded(m.value), "n": m.n} for m in measured if m.value is not None},
    }


def _definitions(captures: Sequence[Capture], keys: Iterable[str], scope: Scope) -> dict[str, Any]:
    """Return the definition of every metric that has a value, as the baseline keeps it."""
    measured = [measuring.measure(capture, key, scope) for key in keys for capture in reversed(captures)]
    return {m.name: dict(m.definition) for m in measured if m.value is not None}


def _fresh(
    captures: Sequence[Capture], series: str, runs: list[dict[str, Any]], keys: Iterable[str], scope: Scope
) -> dict[str, Any]:
    first, workload = captures[0], workload_of(captures)
    return {
        "schema": store.FORMAT,
        "series": series,
        "kind": first.manifest.kind,
        "identity": identity_of(first),
        "factors": dict(first.manifest.factors),
        **({"workload": workload} if workload else {}),
        "definitions": _definitions(captures, keys, scope),
        "levels": [first_level(runs)],
        "carried": {},
    }
