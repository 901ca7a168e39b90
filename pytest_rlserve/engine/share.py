"""Captures on disk for the workers of one run: Arrow tables to map into memory, and JSON for the rest."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pytest_rlserve.capture import Capture, Finding, Manifest, Source
from pytest_rlserve.model import mapped
from pytest_rlserve.scattered import of_tables

if TYPE_CHECKING:
    from pathlib import Path


def save(capture: Capture, folder: Path) -> None:
    """Write a capture into a folder of its own; tables are uncompressed, so that readers need not copy them."""
    folder.mkdir(parents=True)
    for name, table in capture.halves():
        with (
            pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table)
    rest: dict[str, Any] = {
        "name": capture.name,
        "manifest": dataclasses.asdict(capture.manifest),
        "sources": [dataclasses.asdict(source) for source in capture.sources],
        "findings": [dataclasses.asdict(finding) for finding in capture.findings],
        "not_read": capture.not_read,
    }
    (folder / "capture.json").write_text(json.dumps(rest), encoding="utf-8")


def load(folder: Path) -> Capture:
    """Open what `save` wrote; the tables stay in the files and are mapped when touched."""
    rest = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
    tables = {}
    for path in sorted(folder.glob("*.arrow")):
        tables[path.stem] = mapped(path)
    return Capture(
        name=rest["name"],
        manifest=Manifest(**rest["manifest"]),
        sources=tuple(Source(**{**source, "covers": tuple(source["covers"])}) for source in rest["sources"]),
        findings=tuple(Finding(**{**finding, "ids": tuple(finding["ids"])}) for finding in rest["findings"]),
        not_read=tuple((path, why) for path, why in rest["not_read"]),
        hashes=of_tables(tables),
        **tables,
    )
