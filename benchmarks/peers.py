"""The same trace, read by others into the same columns: what `compare_readers.py` measures against.

Each function reads all shards of a folder, hashes as exact 64-bit integers included where it keeps rows, and returns
how many requests it saw. Where a library has a schema, it is given one. The packages are in the extra `peers`.
"""

from __future__ import annotations

import gzip
import json
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TEXT = ("request_id", "x_request_id", "model")
WHOLE = ("input_tokens", "output_tokens", "cached_tokens", "request_received_ms", "queue_depth")
REAL = ("prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms", "avg_itl_ms", "kv_hit_rate")
WORKER = ("prefill_worker_id", "decode_worker_id")
REPLAY = ("trace_block_size", "input_length")


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("request-trace.*"))


def igzip_drain(folder: Path) -> int:
    """Decompress and keep nothing: the limit."""
    from isal import igzip

    for path in shards(folder):
        with igzip.open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    return 0


def rlserve_lazy(folder: Path) -> int:
    """Read what no question about KV reuse needs: every row judged but for its hashes, which stay in the files."""
    from pytest_rlserve import open_capture

    return open_capture(folder, hashes=False).scalars.num_rows


def rlserve(folder: Path) -> int:
    """Read as the gate does: every row judged, hashes kept packed."""
    from pytest_rlserve import open_capture

    return open_capture(folder).scalars.num_rows


def rlserve_hashes(folder: Path) -> int:
    """The same, and every row's whole list of hashes."""
    from pytest_rlserve import open_capture

    return open_capture(folder).requests.num_rows


def _with_loads(folder: Path, loads: Any) -> int:
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in (*TEXT, *WHOLE, *REAL, *WORKER, *REPLAY, "session_id")}
    hashes, offsets = array("Q"), [0]
    for path in shards(folder):
        with gzip.open(path, "rb") as lines:
            for line in lines:
                row = loads(line)["event"]
                request = row["request"]
                for name in (*TEXT, *WHOLE, *REAL):
                    columns[name].append(request.get(name))
                for part, names in (("worker", WORKER), ("replay", REPLAY)):
                    for name in names:
                        columns[name].append(request[part].get(name))
                columns["session_id"].append(row["agent_context"]["session_id"])
                hashes.extend(request["replay"]["input_sequence_hashes"])
                offsets.append(len(hashes))
    kinds = dict.fromkeys(WORKER, pa.uint64())
    table = {name: pa.array(values, kinds.get(name)) for name, values in columns.items()}
    flat = pa.Array.from_buffers(pa.uint64(), len(hashes), [None, pa.py_buffer(hashes)])
    table["hashes"] = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
    return pa.table(table).num_rows


def json_stdlib(folder: Path) -> int:
    return _with_loads(folder, json.loads)


def orjson(folder: Path) -> int:
    import orjson as module

    return _with_loads(folder, module.loads)


def pyarrow_json(folder: Path) -> int:
    import pyarrow as pa
    import pyarrow.json as reader

    u, s, f = pa.uint64(), pa.string(), pa.float64()
    worker = pa.struct([(name, u) for name in WORKER])
    replay = pa.struct([*((name, u) for name in REPLAY), ("input_sequence_hashes", pa.list_(u))])
    fields = [*((n, s) for n in TEXT), *((n, u) for n in WHOLE), *((n, f) for n in REAL)]
    request = pa.struct([*fields, ("worker", worker), ("replay", replay)])
    event = pa.struct([("agent_context", pa.struct([("session_id", s)])), ("request", request)])
    parse = reader.ParseOptions(explicit_schema=pa.schema([("event", event)]), unexpected_field_behavior="ignore")
    read = reader.ReadOptions(use_threads=False, block_size=4 << 20)
    tables = [reader.read_json(path, read_options=read, parse_options=parse) for path in shards(folder)]
    return pa.concat_tables(tables).num_rows


def polars(folder: Path) -> int:
    import polars as pl

    u, s, f = pl.UInt64, pl.String, pl.Float64
    fields = dict.fromkeys(TEXT, s) | dict.fromkeys(WHOLE, u) | dict.fromkeys(REAL, f)
    replay = pl.Struct({**dict.fromkeys(REPLAY, u), "input_sequence_hashes": pl.List(u)})
    request = pl.Struct({**fields, "worker": pl.Struct(dict.fromkeys(WORKER, u)), "replay": replay})
    event = pl.Struct({"agent_context": pl.Struct({"session_id": s}), "request": request})
    return pl.scan_ndjson(shards(folder), schema={"event": event}).collect(engine="streaming").height


def duckdb(folder: Path) -> int:
    import duckdb as module

    def struct(fields: dict[str, str]) -> str:
        return f"STRUCT({', '.join(f'{name} {kind}' for name, kind in fields.items())})"

    u, s, f = "UBIGINT", "VARCHAR", "DOUBLE"
    fields = dict.fromkeys(TEXT, s) | dict.fromkeys(WHOLE, u) | dict.fromkeys(REAL, f)
    replay = struct(dict.fromkeys(REPLAY, u) | {"input_sequence_hashes": "UBIGINT[]"})
    request = struct(fields | {"worker": struct(dict.fromkeys(WORKER, u)), "replay": replay})
    event = struct({"agent_context": struct({"session_id": s}), "request": request})
    link = module.connect()
    link.execute("set threads = 1")
    query = f"select * from read_json(?, format='newline_delimited', columns={{event: '{event}'}})"
    return link.execute(query, [[str(path) for path in shards(folder)]]).to_arrow_table().num_rows


READERS = {
    one.__name__: one
    for one in (igzip_drain, rlserve_lazy, rlserve, rlserve_hashes, json_stdlib, orjson, pyarrow_json, polars, duckdb)
}
