"""Measure how often the gate is wrong: `python benchmarks/simulate_gate.py [--trials 20000] [--cells measured …]`.

Jobs are drawn, and judged by the functions that ship; nothing of the gate is written a second time here. Prints
Markdown tables, each with the criterion it is held against; `--output docs/error-rates.md` writes them.
"""

from __future__ import annotations

import argparse
from multiprocessing import Pool
from pathlib import Path
from typing import TYPE_CHECKING

from gate_cells import Cell
from gate_merges import SECTIONS as OF_MERGES
from gate_numbers import standard_error
from gate_tables import SECTIONS as OF_COMPARISONS

from pytest_rlserve.metrics import METRICS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from gate_sequences import Story

SECTIONS = {**OF_COMPARISONS, **OF_MERGES}
_SPACING = 1_000_003
_INTRO = """\
# How often the gate is wrong

Written by `python benchmarks/simulate_gate.py --output docs/error-rates.md`: {trials:,} draws a cell,
{sequences:,} sequences of merges a row, seed {seed}. Every draw is judged by the package's own functions. A job
has one run; values are log-normal, and CV is their spread between jobs; the metric is a rate, of which more is
better, and a loss of 5 % is allowed. Shares are in percent. One standard error of a share near 5 % is {fine:.2f}
points for cells and {rough:.1f} for sequences; a criterion is met if it holds within three of them. Exit 0 is
every verdict but *regressed*.
"""


def main() -> None:
    """Run the chosen sections, and print or write their tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20_000, help="draws a cell (default: %(default)s)")
    parser.add_argument("--sequences", type=int, default=500, help="sequences a row (default: %(default)s)")
    parser.add_argument("--cells", nargs="+", choices=SECTIONS, default=[*SECTIONS], help="sections to run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, help="write the page there instead of printing it")
    options = parser.parse_args()
    errors = (100 * standard_error(0.05, count) for count in (options.trials, options.sequences))
    lines = [_INTRO.format(**vars(options), **dict(zip(("fine", "rough"), errors, strict=True)))]
    for name in options.cells:
        section = SECTIONS[name]
        lines += [*section.page(_counted(section.cases(), options)), ""]
    page = "\n".join(lines).rstrip() + "\n"
    if options.output:
        options.output.write_text(page, encoding="utf-8")
    else:
        print(page)


def _counted(cases: Sequence[Cell | Story], options: argparse.Namespace) -> dict[Cell | Story, Counter[str]]:
    """Run all cases in a few processes; a case's seed depends on its place alone."""
    work = [
        (case, options.trials if isinstance(case, Cell) else options.sequences, options.seed + _SPACING * number)
        for number, case in enumerate(cases)
    ]
    list(METRICS)  # loaded once, before processes are made
    with Pool(options.processes) as pool:
        return dict(zip(cases, pool.starmap(_run, work, chunksize=1), strict=True))


def _run(case: Cell | Story, trials: int, seed: int) -> Counter[str]:
    return case.run(trials, seed)


if __name__ == "__main__":
    main()
