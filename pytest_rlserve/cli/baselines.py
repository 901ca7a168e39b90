"""`rlserve baseline`: taking runs into a baseline, and clearing out what no metric stands for any more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rlserve.cli.commands import BAD, GOOD, captures_of, policy_of
from pytest_rlserve.errors import UsageError

if TYPE_CHECKING:
    import argparse


def update(arguments: argparse.Namespace) -> int:
    """Take captures into their baseline; return 1 if it was left as it is."""
    from pytest_rlserve.gate.judgement import Update
    from pytest_rlserve.gate.refresh import refresh
    from pytest_rlserve.gate.verdicts import Gate

    policy = policy_of(arguments.policy)
    gate = Gate(
        captures=captures_of(arguments.captures, policy),
        policy=policy,
        folder=Path(arguments.baseline),
        series=arguments.series,
        update=Update(wanted=not arguments.new_only, new_only=arguments.new_only, reason=arguments.reason),
    )
    gate.require_use()
    done = refresh(gate)
    print(done.summary)
    for change in done.changes:
        print(f"  {change['metric']}: {change['baseline']} -> {change['current']}")
    return BAD if done.refused else GOOD


def prune(arguments: argparse.Namespace) -> int:
    """Remove what no registered metric stands for from baseline files."""
    from pytest_rlserve.gate import baseline as store
    from pytest_rlserve.gate.prune import pruned

    for series in arguments.series:
        path = store.path_of(Path(arguments.baseline), series)
        found = store.read(path)
        if found is None:
            raise UsageError(f"there is no baseline {path}")
        document, removed = pruned(found.document)
        store.write(path, document)
        print(f"{path}: {', '.join(removed) + ' removed' if removed else 'nothing to remove'}")
    return GOOD
