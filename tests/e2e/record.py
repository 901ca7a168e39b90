"""Record one run of real Dynamo as a capture folder: `python record.py OUT --workers 4`.

Prints the client's own counts as JSON. Runs with the Python that has Dynamo installed; the recorder is loaded by
path, as by a trainer that does not install the package.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import loopback
from dynamo_stack import BLOCK_SIZE, DECODE_SPEEDUP, MODEL, Stack
from rollout_client import Rollouts, Workload

if TYPE_CHECKING:
    from collections import Counter
    from types import ModuleType

_RECORDER = Path(__file__).parents[2] / "pytest_rlserve" / "recorder.py"
_SECONDS = 150  # far above what a run takes; past it something hangs


def load_recorder() -> ModuleType:
    """Load the package's recorder without the package."""
    spec = importlib.util.spec_from_file_location("recorder", _RECORDER)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def manifest(series: str, job: str | None, workers: int, workload: Workload) -> dict[str, object]:
    """What `rlserve.json` says of the run: which captures it compares with, and what is under test."""
    size = f"{workload.steps} steps x {workload.groups} groups x {workload.samples} samples, {workload.turns} turns"
    return {
        "schema": "rlserve.capture.v1",
        "series": series,
        **({"job": job} if job else {}),
        "captured_at": time.time(),
        "identity": {
            "model": MODEL,
            "backend": f"dynamo-mocker 1.6.1 (vllm timing, decode speed-up {DECODE_SPEEDUP:g})",
            "block_size": BLOCK_SIZE,
            "workload": f"seed {workload.seed}, {size}",
        },
        "factors": {"router": "kv", "workers": workers},
    }


async def record(out: Path, workers: int, workload: Workload) -> dict[str, Counter[str]]:
    """Serve and roll out one run into `out`; return the client's counts."""
    recorder = load_recorder()
    with (
        tempfile.TemporaryDirectory(prefix="dynamo-") as folder,
        recorder.AttemptRecorder(out / "attempts.jsonl", run=out.name) as attempts,
        recorder.ControlRecorder(out / "control.jsonl", run=out.name) as control,
        Stack(Path(folder), out, workers) as stack,
    ):
        rollouts = Rollouts(stack, MODEL, workload, attempts, control)
        await asyncio.wait_for(rollouts.run(), _SECONDS)
    return rollouts.counts


def main() -> None:
    """Record as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the capture, which is made")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--series", default="tiny-qwen2-e2e")
    parser.add_argument("--job", help="runs of one job share their luck and count once")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leave through the blocks that stop Dynamo
    loopback.enter()
    arguments.out.mkdir(parents=True)
    workload = Workload()
    counts = asyncio.run(record(arguments.out, arguments.workers, workload))
    described = manifest(arguments.series, arguments.job, arguments.workers, workload)
    (arguments.out / "rlserve.json").write_text(json.dumps(described, indent=1) + "\n")
    print(json.dumps(counts, sort_keys=True))


if __name__ == "__main__":
    main()
