"""What the commands do. Each takes the parsed arguments and returns the exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rlserve.cli.breakdowns import broken_down
from pytest_rlserve.errors import EvidenceError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.policy import Policy
    from pytest_rlserve.gate.verdicts import Gate
    from pytest_rlserve.metrics import Scope

GOOD, BAD, WRONG = 0, 1, 2


def policy_of(given: str | None) -> Policy:
    """Read the policy that was named, else the one that lies here, else take the defaults."""
    from pytest_rlserve.gate.policy import Policy
    from pytest_rlserve.gate.policy_file import has_policy, load

    if given:
        return load(Path(given))
    if Path("rlserve.toml").exists():
        return load(Path("rlserve.toml"))
    return load(Path("pyproject.toml")) if has_policy(Path("pyproject.toml")) else Policy()


def captures_of(paths: Sequence[str], policy: Policy, *, hashes: bool = True) -> list[Capture]:
    """Read every capture that the paths name, as the policy says, and show on a terminal how far that has come.

    Without `hashes`, the block hashes of prompts stay in the files until something asks for them.
    """
    from pytest_rlserve.engine import progress
    from pytest_rlserve.readers import open_capture
    from pytest_rlserve.readers.discover import captures_in

    with progress.shown(sys.stderr):
        names = [one for path in paths for one in captures_in(path)]
        return [open_capture(one, settings=policy.readers, hashes=hashes) for one in names]


def _distrusted(captures: Sequence[Capture]) -> list[str]:
    """Say of each capture that nothing should be believed of it, if its files are broken, and why."""
    from pytest_rlserve.reports.escape import terminal_safe

    lines = []
    for capture in captures:
        broken = [finding for finding in capture.findings if finding.severity in ("error", "failure")]
        if broken:
            more = f" (and {len(broken) - 1:,} more)" if len(broken) > 1 else ""
            lines.append(f"{capture.name} is not to be trusted, 'rlserve check' says why: {broken[0]}{more}")
    return [terminal_safe(line) for line in lines]


def check(arguments: argparse.Namespace) -> int:
    """Check captures; return 1 if any check fails."""
    from pytest_rlserve.checks import default_checks, run_checks

    policy = policy_of(arguments.policy)
    names = arguments.only or [*default_checks(), *policy.also]
    good = True
    for capture in captures_of(arguments.captures, policy):
        if not arguments.only:
            print(_coverage(capture))
        for result in run_checks(capture, names=names, evidence=policy.evidence):
            good &= result.status in ("pass", "inconclusive")
            print(result.message())
            for finding in result.findings:
                if finding.severity in ("warning", "note"):
                    print(f"  {finding.severity}: {finding}")
    return GOOD if good else BAD


def _coverage(capture: Capture) -> str:
    """Say what was read, what each source can tell, and what was observed for how many of how many."""
    from dataclasses import asdict

    from pytest_rlserve.gate.coverage import coverage
    from pytest_rlserve.gate.report import sources
    from pytest_rlserve.reports.escape import terminal_safe
    from pytest_rlserve.reports.remarks import evidence

    lines = [asdict(line) for line in coverage(capture) if line.total]
    report = {"captures": [{"name": capture.name, "sources": sources(capture), "coverage": lines}]}
    return terminal_safe(capture.name) + "".join(f"\n  {terminal_safe(''.join(cell))}" for cell in evidence(report))


def measure(arguments: argparse.Namespace) -> int:
    """Print metrics of captures; return 1 if one that was named is not observable, or a capture is broken."""
    from pytest_rlserve.metrics import METRICS, measuring

    policy = policy_of(arguments.policy)
    keys = [measuring.canonical(key) for key in arguments.metric or measuring.all_keys()]
    hashes = bool(arguments.by) or any(METRICS[key.partition(".")[0]].hashes for key in keys)
    captures = captures_of(arguments.captures, policy, hashes=hashes)
    if arguments.by:
        status = broken_down(captures, policy.scope, arguments)
    else:
        status = _measured(captures, keys, policy.scope, named=bool(arguments.metric))
    doubts = _distrusted(captures)
    print(*doubts, sep="\n", end="\n" if doubts else "")
    return BAD if doubts else status


def _measured(captures: Sequence[Capture], keys: Sequence[str], scope: Scope, *, named: bool) -> int:
    from tabulate import tabulate

    from pytest_rlserve import units
    from pytest_rlserve.metrics import measuring

    measured = [[measuring.measure(capture, key, scope) for capture in captures] for key in keys]
    rows = [[row[0].name, *(units.show(one.value, one.unit) for one in row)] for row in measured]
    print(tabulate(rows, ["metric", *(capture.name for capture in captures)], disable_numparse=True))
    for one in (one for row in measured for one in row if one.excluded and one.value is not None and named):
        print(f"{one.name} of {one.capture} leaves out: {one.excluded}")
    absent: dict[tuple[str, str | None], list[str]] = {}
    for one in (one for row in measured for one in row if one.value is None):
        absent.setdefault((one.capture, one.why), []).append(one.name)
    for (capture, why), names in absent.items():
        print(f"{', '.join(names)} of {capture} {'is' if len(names) == 1 else 'are'} not observable: {why}")
    return BAD if named and absent else GOOD


def compare(arguments: argparse.Namespace) -> int:
    """Judge captures under the policy and print the report; return 1 unless it passes or is inconclusive."""
    from pytest_rlserve.gate.items import items
    from pytest_rlserve.gate.report import build
    from pytest_rlserve.gate.verdicts import Gate

    policy = policy_of(arguments.policy)
    gate = Gate(
        captures=captures_of(arguments.captures, policy),
        policy=policy,
        folder=Path(arguments.baseline),
        series=arguments.series,
    )
    gate.require_use()
    report = build(gate, [_judged(gate, kind, name) for kind, name in items(gate.policy)])
    print(_rendered(report, arguments).removesuffix("\n"))
    return GOOD if report["verdict"] in ("pass", "inconclusive") else BAD


def _rendered(report: dict[str, Any], arguments: argparse.Namespace) -> str:
    from pytest_rlserve.reports import render
    from pytest_rlserve.reports.terminal import terminal

    if arguments.format == "terminal":
        return terminal(report, verbose=arguments.verbose)
    return render(report, arguments.format)


def _judged(gate: Gate, kind: Any, name: str) -> dict[str, Any]:
    try:
        found = gate.judge(kind, name)
    except EvidenceError as error:
        print(f"rlserve: {kind}::{name}: {error}", file=sys.stderr)
        return {
            "kind": kind,
            "name": name,
            "verdict": "invalid",
            "records": gate.evidence_records(kind, name),
        }
    return {"kind": kind, "name": name, "verdict": found.verdict, "records": found.records, "causes": found.causes}


def init(arguments: argparse.Namespace) -> int:
    """Write a starter policy."""
    from pytest_rlserve.engine import progress
    from pytest_rlserve.gate.starter import starter
    from pytest_rlserve.readers import open_capture

    with progress.shown(sys.stderr):
        capture = open_capture(arguments.capture)
    text = starter(capture)
    if arguments.output == "-":
        print(text, end="")
        return GOOD
    path = Path(arguments.output)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already: name another with --output, or '-' to print") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    print(f"{path} written; now record a baseline: pytest --rl-trace={arguments.capture} --rl-baseline-update")
    return GOOD


def report(arguments: argparse.Namespace) -> int:
    """Render a JSON report."""
    from pytest_rlserve import schema

    try:
        document = json.loads(Path(arguments.report).read_bytes())
    except OSError as error:
        raise UsageError(f"{arguments.report} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{arguments.report} is not JSON: name a file that --rl-report=json:FILE wrote") from None
    if reasons := schema.problems("rlserve.report.v1", document):
        raise UsageError(f"{arguments.report} is no report of rlserve.report.v1: {'; '.join(reasons[:3])}")
    print(_rendered(document, arguments).removesuffix("\n"))
    return GOOD
