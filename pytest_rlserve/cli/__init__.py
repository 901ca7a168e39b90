"""The command line: the same core as the plugin, for a shell without pytest.

Exit status: 0 good, 1 bad, 2 wrong use.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pytest_rlserve.cli import baselines, commands, reconciling
from pytest_rlserve.cli.commands import BAD, WRONG
from pytest_rlserve.errors import RlserveError, UsageError
from pytest_rlserve.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130
"""What shells expect of a program that Ctrl-C ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except UsageError as error:
        print(f"rlserve: {error}", file=sys.stderr)
        return WRONG
    except RlserveError as error:
        print(f"rlserve: {error}", file=sys.stderr)
        return BAD
    except KeyboardInterrupt:
        print("rlserve: interrupted, nothing was judged", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return BAD
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rlserve", description="Judge captures of RL serving runs.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"rlserve {__version__}")
    commands_of = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands_of.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    check = command(
        "check", commands.check, "Check whether captures can be trusted and every attempt is accounted for."
    )
    check.add_argument("captures", nargs="+", metavar="CAPTURE")
    check.add_argument("--only", action="append", metavar="CHECK", help="run this check alone; repeat for several")
    _policy_flag(check)
    text = "Print where every attempt, request and row went, whole or part by part."
    reconcile = command("reconcile", reconciling.reconcile, text)
    reconcile.add_argument("captures", nargs="+", metavar="CAPTURE")
    reconcile.add_argument("--by", choices=("step", "group", "run"), help="a line for each trainer step, group or run")
    reconcile.add_argument("--ids", action="store_true", help="name the requests and rows of each residual")
    reconcile.add_argument(
        "--format", choices=("terminal", "markdown"), default="terminal", help="how to print (default: %(default)s)"
    )
    _policy_flag(reconcile)
    measure = command("measure", commands.measure, "Print the metrics of captures.")
    measure.add_argument("captures", nargs="+", metavar="CAPTURE")
    measure.add_argument(
        "--metric", action="append", metavar="NAME", help="print this metric alone; repeat for several"
    )
    measure.add_argument(
        "--by",
        choices=("worker", "step", "update"),
        help="print KV reuse and load of each worker or step, or each worker's way through each update, instead",
    )
    _policy_flag(measure)
    compare = command("compare", commands.compare, "Compare captures with the baseline of their series.")
    compare.add_argument("captures", nargs="+", metavar="CAPTURE")
    compare.add_argument(
        "--baseline",
        default="baselines",
        metavar="DIR",
        help="folder of baseline files (default: %(default)s)",
    )
    compare.add_argument(
        "--series", metavar="NAME", help="series to compare with (default: the policy's, else the capture's)"
    )
    compare.add_argument(
        "--format",
        default="terminal",
        metavar="FORMAT",
        help="terminal, markdown, summary or json (default: %(default)s)",
    )
    _verbose_flag(compare)
    _policy_flag(compare)
    init = command(
        "init", commands.init, "Write a commented starter policy with the values just measured, plus margins."
    )
    init.add_argument("capture", metavar="CAPTURE")
    init.add_argument(
        "--output",
        default="rlserve.toml",
        metavar="FILE",
        help="file to write; '-' prints (default: %(default)s)",
    )
    report = command("report", commands.report, "Render a JSON report in another format.")
    report.add_argument("report", metavar="REPORT.json")
    report.add_argument(
        "--format",
        default="terminal",
        metavar="FORMAT",
        help="terminal, markdown or summary (default: %(default)s)",
    )
    _verbose_flag(report)
    _add_baseline(commands_of)
    return parser


def _verbose_flag(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-v", "--verbose", action="store_true", help="on a terminal, also full messages, passed checks and all metrics"
    )


def _add_baseline(commands_of: Any) -> None:
    """Add `rlserve baseline update` and `rlserve baseline prune`."""
    text = "Change baseline files."
    added = commands_of.add_parser("baseline", help=text, description=text, allow_abbrev=False)
    inner = added.add_subparsers(required=True, metavar="ACTION")
    text = "Take captures into the baseline of their series, if their evidence holds."
    update = inner.add_parser("update", help=text, description=text, allow_abbrev=False)
    update.set_defaults(run=baselines.update)
    update.add_argument("captures", nargs="+", metavar="CAPTURE")
    update.add_argument(
        "--reason", metavar="TEXT", help="why a changed level is accepted; needed unless nothing changed"
    )
    update.add_argument("--new-only", action="store_true", help="add only what the baseline lacks")
    update.add_argument("--series", metavar="NAME", help="series to update (default: the policy's, else the capture's)")
    _folder_flag(update)
    _policy_flag(update)
    text = "Remove measurements of metrics that no longer exist."
    prune = inner.add_parser("prune", help=text, description=text, allow_abbrev=False)
    prune.set_defaults(run=baselines.prune)
    prune.add_argument("series", nargs="+", metavar="SERIES")
    _folder_flag(prune)


def _folder_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline", default="baselines", metavar="DIR", help="folder of baseline files (default: %(default)s)"
    )


def _policy_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="FILE", help="policy file (default: rlserve.toml here, else the defaults)")
