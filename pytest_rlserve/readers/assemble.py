"""One Capture from the files that were found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pytest_rlserve import engine, model
from pytest_rlserve.capture import Capture, Finding, Source
from pytest_rlserve.chains import CHAINS, chains_of
from pytest_rlserve.readers import READERS, shards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.readers import Reader
    from pytest_rlserve.readers.discover import Found
    from pytest_rlserve.readers.jsonl import Content, File

_TRACE = "dynamo.request.trace.v1"


def assemble(found: Found, settings: Mapping[str, Mapping[str, Any]]) -> Capture:
    """Read every file and put the tables together; rows of a second producer's shards are left out."""
    told = [(replace(file, settings=settings.get(reader.name, {})), reader) for file, reader in found.files]
    contents = engine.run(_read, told)
    traces = {content.label: content.rows for content in contents if content.format == _TRACE}
    foreign, findings = shards.inventory(traces, found.shards)
    kept = [content for content in contents if content.label not in foreign]
    findings += [finding for content in contents for finding in content.findings]
    findings += _nothing_to_judge(kept)
    left_out = ((label, "another producer's shard" if traces[label] else "no row") for label in sorted(foreign))
    return Capture(
        name=found.name,
        manifest=found.manifest,
        sources=tuple(
            Source(
                path=c.label,
                format=c.format,
                rows=c.rows,
                whole=c.whole,
                digest=c.digest,
                covers=READERS[c.format].covers if c.covers is None else c.covers,
            )
            for c in kept
        ),
        findings=tuple(findings),
        not_read=(*found.not_read, *left_out),
        scalars=_joined("requests", kept, model.SCALARS),
        chains=_joined("chains", kept, CHAINS),
        **{name: _joined(name, kept, schema) for name, schema in model.TABLES.items() if name != "requests"},
    )


def _read(part: tuple[File, Reader]) -> Content:
    file, reader = part
    assert reader.reads is not None, f"reader {reader.name} has no @read function"
    content = reader.reads(file)
    whole = content.tables.get("requests")
    if whole is not None and model.HASHES in whole.column_names:
        content.tables |= {"requests": whole.drop_columns([model.HASHES]), "chains": chains_of(whole[model.HASHES])}
    return content


def _joined(name: str, contents: list[Content], schema: pa.Schema) -> pa.Table:
    tables = [content.tables[name] for content in contents if name in content.tables]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _nothing_to_judge(contents: list[Content]) -> list[Finding]:
    """Zero requests pass every budget, so a trace without any is an error."""
    traces = [content for content in contents if content.format == _TRACE]
    if not traces or any(content.kinds.get("request_end") for content in traces):
        return []
    seen = Counter[str]()
    for content in traces:
        seen.update(content.kinds)
    others = ", ".join(f"{count:,} {kind} rows" for kind, count in sorted(seen.items())) or "no rows at all"
    text = f"no request_end rows ({others} seen)"
    return [Finding(message=text, severity="error", check="rows_fit_schema", path=traces[0].label)]
