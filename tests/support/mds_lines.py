"""Write datasets of MDS's split formats, as mosaicml-streaming 0.13.0 does (base/format/json and base/format/xsv).

lading reads these formats and does not write them. `tests/interop` reads files that the peer itself wrote.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard

ENCODINGS = {str: "str", int: "int", float: "float"}
_SEPARATORS = {"csv": ",", "tsv": "\t"}
_PACK: dict[str, Callable[[bytes], bytes]] = {
    "br": lambda data: pa.Codec("brotli").compress(data, asbytes=True),
    "bz2": bz2.compress,
    "gz": gzip.compress,
    "zstd": zstandard.compress,
}


def write_lines(
    out: Path,
    rows: Sequence[Mapping[str, Any]],
    kind: str,
    *,
    newline: str = "\n",
    separator: str | None = None,
    compression: str | None = None,
    hashes: Sequence[str] = (),
    size_limit: int | None = None,
) -> list[dict[str, Any]]:
    """Write shards and `index.json`; return the entries of the index. The first row tells the columns."""
    encodings = {name: ENCODINGS[type(value)] for name, value in sorted(rows[0].items())}
    mark = separator or _SEPARATORS.get(kind, "")
    config: dict[str, Any] = {"version": 2, "format": kind, "compression": compression, "hashes": sorted(hashes),
                              "size_limit": size_limit, "newline": newline}  # fmt: skip
    if kind == "json":
        config["columns"] = encodings
    else:
        config |= {"column_names": [*encodings], "column_encodings": [*encodings.values()]}
        config |= {"separator": mark} if kind == "xsv" else {}
    head = "" if kind == "json" else mark.join(encodings) + newline
    lines = [_line(row, encodings, kind, mark, newline).encode() for row in rows]
    out.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, body in enumerate(_shards(lines, size_limit)):
        ends = np.cumsum([0, len(head.encode()), *map(len, body)])[1:]
        numbers = np.array([len(body), *ends], "<u4").tobytes()
        name = f"shard.{number:05}.{kind}"
        entry = {**config, "samples": len(body)}
        entry |= _file(out, name, head.encode() + b"".join(body), "data", compression, hashes)
        meta = numbers + json.dumps(config, sort_keys=True).encode()
        entries.append(entry | _file(out, name + ".meta", meta, "meta", compression, hashes))
    (out / "index.json").write_text(json.dumps({"version": 2, "shards": entries}, sort_keys=True))
    return entries


def _line(row: Mapping[str, Any], encodings: Mapping[str, str], kind: str, mark: str, newline: str) -> str:
    if kind == "json":
        return json.dumps({name: row[name] for name in encodings}) + newline
    return mark.join(str(row[name]) for name in encodings) + newline


def _shards(lines: Sequence[bytes], size_limit: int | None) -> list[list[bytes]]:
    shards: list[list[bytes]] = [[]]
    for line in lines:
        if size_limit and shards[-1] and sum(map(len, shards[-1])) + len(line) > size_limit:
            shards.append([])
        shards[-1].append(line)
    return shards


def _file(
    out: Path, name: str, data: bytes, what: str, compression: str | None, hashes: Sequence[str]
) -> dict[str, Any]:
    def described(name: str, data: bytes) -> dict[str, Any]:
        return {"basename": name, "bytes": len(data), "hashes": {one: hashlib.new(one, data).hexdigest()
                                                                 for one in hashes}}  # fmt: skip

    raw = described(name, data)
    if compression is None:
        (out / name).write_bytes(data)
        return {f"raw_{what}": raw, f"zip_{what}": None}
    packed, name = _PACK[compression](data), f"{name}.{compression}"
    (out / name).write_bytes(packed)
    return {f"raw_{what}": raw, f"zip_{what}": described(name, packed)}
