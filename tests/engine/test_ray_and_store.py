"""One capture, from a disk, from an S3 server, here, on Ray and for the workers of xdist: one report."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from objectstore.conftest import BUCKET, reached, server

from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import on_ray, open_capture

from .conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from objectstore.conftest import Server

    Reach = Callable[[int], None]

__all__ = ["reached", "server"]
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own warnings are not ours to judge
    pytest.mark.skipif(find_spec("moto") is None, reason="moto is not installed"),
]
EXAMPLE = ROOT / "examples" / "baseline_kv"
SCRAPES = ROOT / "tests" / "data" / "scrapes" / "regressed_round_robin_1"


def run(trace: object, report: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rl-trace={trace}"]
    where = [f"--rl-report=json:{report}", "--rl-policy=pyproject.toml", "examples", *more]
    return subprocess.run(
        [*command, *where], cwd=ROOT, env=os.environ, capture_output=True, encoding="utf-8", check=False
    )


def test_the_report_is_the_same_from_everywhere(server: Server, reached: Reach, two_nodes: Any, tmp_path: Path) -> None:
    # Attempts as text, control in gzip, scrapes of a router and its workers, and what nobody reads.
    folder = tmp_path / "baseline_kv"
    shutil.copytree(EXAMPLE, folder)
    packed = folder / "attempts.jsonl.gz"
    (folder / "attempts.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    for scrape in SCRAPES.iterdir():
        shutil.copy(scrape, folder)
    (folder / "notes.txt").write_text("of the run\n", encoding="utf-8")
    uri = server.upload(folder, "everywhere/baseline_kv")
    reached(server.port)
    ray = f"--rl-engine=ray:{two_nodes.address}"
    reports = []
    for trace, *more in (
        (folder,),
        (folder, "-n", "2"),
        (folder, ray),
        (uri,),
        (uri, "-n", "2"),
        (uri, ray),
        (uri, ray, "-n", "2"),
    ):
        report = tmp_path / f"{len(reports)}.json"
        done = run(trace, report, *map(str, more))
        assert done.returncode == 0, (trace, more, done.stdout + done.stderr)
        reports.append(report.read_bytes())
    assert b'"notes.txt"' in reports[0]
    assert b'"attempts.jsonl"' in reports[0]
    assert len(set(reports)) == 1, [reports.index(one) for one in reports]


@pytest.mark.parametrize("packed", [True, False])
def test_one_large_object_is_read_by_many(
    server: Server, reached: Reach, two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    shards = [file.read_bytes() for file in sorted(EXAMPLE.glob("request-trace*"))]
    name = f"request-trace.jsonl{'.gz' * packed}"
    body = b"".join(shards if packed else map(gzip.decompress, shards))
    (tmp_path / name).write_bytes(body)
    server.client().put_object(Bucket=BUCKET, Key=f"large{packed}/{tmp_path.name}/{name}", Body=body)
    reached(server.port)
    planned: list[int] = []
    plan = on_ray.planned_pieces
    monkeypatch.setattr(
        on_ray, "planned_pieces", lambda *given: [planned.append(len(some)) or some for some in plan(*given)]
    )
    engine = f"ray:{two_nodes.address}"
    found, here = open_capture(f"s3://{BUCKET}/large{packed}/{tmp_path.name}", engine=engine), open_capture(tmp_path)
    assert planned[0] > 4
    assert (found.sources, found.findings) == (here.sources, here.findings)
    assert found.requests.equals(here.requests)


def test_nodes_that_may_not_read_say_so(
    server: Server, reached: Reach, two_nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = server.upload(EXAMPLE, "locked/baseline_kv")
    reached(server.port)
    monkeypatch.setattr(on_ray, "settings", lambda: {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    with pytest.raises(UsageError, match=r"^node .* of Ray: s3://.*the store cannot be reached") as error:
        open_capture(uri, engine=f"ray:{two_nodes.address}")
    assert "\n" not in str(error.value)
