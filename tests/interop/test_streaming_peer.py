"""mosaicml-streaming reads what lading writes, and writes the same bytes."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import lading
from lading.codecs import unpack_file
from lading.features import Array, Encoded, Feature, Json, with_feature
from lading.features import Image as ImageFeature

pytestmark = pytest.mark.interop

_PEER = Path(__file__).parents[1] / "support" / "mds_peer.py"
_RANDOM = random.Random(5)


def _peer(verb: str, spec: Any, scratch: Path) -> Any:
    file = scratch / "spec.pickle"
    file.write_bytes(pickle.dumps(spec))
    done = subprocess.run([sys.executable, str(_PEER), verb, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return pickle.loads(file.read_bytes())


def _picture(number: int) -> bytes:
    body = io.BytesIO()
    Image.effect_noise((20 + number % 30, 30), 50).save(body, "JPEG")
    return body.getvalue()


_ENCODINGS: dict[str, tuple[str, Feature | None, pa.DataType]] = {
    "text": ("str", None, pa.string()),
    "bytes": ("bytes", None, pa.large_binary()),
    "picture": ("jpeg", ImageFeature(), pa.large_binary()),
    "array": ("ndarray:int16:2,3", Array("int16", (2, 3)), pa.large_binary()),
    "any array": ("ndarray", Encoded("ndarray"), pa.large_binary()),
    "json": ("json", Json(), pa.string()),
    "decimal": ("str_decimal", Encoded("str_decimal"), pa.string()),
    "int": ("int", None, pa.int64()),
    "uint8": ("uint8", None, pa.uint8()),
    "int32": ("int32", None, pa.int32()),
    "float16": ("float16", None, pa.float16()),
    "float64": ("float64", None, pa.float64()),
}


def _rows(count: int) -> list[dict[str, Any]]:
    """Values as the peer takes them; bytes it stores as they are in any column."""
    return [
        {
            "text": "".join(_RANDOM.choices("aé🎉 \n", k=_RANDOM.randint(0, 60))),
            "bytes": _RANDOM.randbytes(_RANDOM.choice([0, 1, 300, 6000])),
            "picture": _picture(i),
            "array": np.full((2, 3), i - 9, np.int16),
            "any array": b"\x08\x04\x02" + bytes([i % 256, 1]),
            "json": {"n": i, "items": [None, 1.5, "é"]},
            "decimal": b"%d.50" % i,
            "int": _RANDOM.randint(-(2**63), 2**63 - 1),
            "uint8": np.uint8(i % 256),
            "int32": np.int32(-i),
            "float16": np.float16(i / 7),
            "float64": np.float64(i / 7),
        }
        for i in range(count)
    ]


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if name == "json":
        return json.dumps(value)
    return value.decode() if name == "decimal" else value


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    fields = [pa.field(name, kind) for name, (_, _, kind) in _ENCODINGS.items()]
    features = [feature for _, feature, _ in _ENCODINGS.values()]
    fields = [f if feature is None else with_feature(f, feature) for f, feature in zip(fields, features, strict=True)]
    columns = [pa.array([_plain(f.name, row[f.name]) for row in rows], f.type) for f in fields]
    return pa.table(columns, schema=pa.schema(fields))


def _write(table: pa.Table, out: Path, options: dict[str, Any], batch_rows: int) -> None:
    with lading.writer(out, format="mds", options=options) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows):
            writer.write_batch(batch)


_OPTIONS: list[dict[str, Any]] = [
    {"compression": compression, "hashes": hashes, "size_limit": limit}
    for compression, hashes, limit in [
        (None, [], 1 << 26), (None, ["sha1", "xxh64"], 30_000), ("zstd", [], 30_000), ("zstd:9", ["md5"], None),
        ("br:4", ["xxh3_128"], 30_000), ("bz2:1", [], 30_000), ("gz", [], 30_000), ("snappy", [], 30_000),
    ]
]  # fmt: skip
_OTHER_PACKERS = {".gz": gzip.decompress, ".snappy": lambda data: unpack_file("snappy", data, 1 << 30)}
"""Of gzip the peer writes the time, of snappy it has another implementation: what comes out is compared."""


def test_the_same_rows_give_the_same_files(tmp_path: Path) -> None:
    rows = _rows(150)
    encodings = {name: encoding for name, (encoding, _, _) in _ENCODINGS.items()}
    jobs = [
        {"out": str(tmp_path / f"peer-{i}"), "columns": encodings, "options": options, "rows": rows}
        for i, options in enumerate(_OPTIONS)
    ]
    _peer("write", jobs, tmp_path)
    for i, options in enumerate(_OPTIONS):
        mine, theirs = tmp_path / f"mine-{i}", tmp_path / f"peer-{i}"
        _write(_table(rows), mine, options, batch_rows=[1, 7, 64, 1000][i % 4])
        names = sorted(path.name for path in theirs.iterdir())
        assert sorted(path.name for path in mine.iterdir() if path.is_file()) == names
        for name in names:
            one, other = (mine / name).read_bytes(), (theirs / name).read_bytes()
            unpack = _OTHER_PACKERS.get(Path(name).suffix)
            if unpack is not None:
                assert unpack(one) == unpack(other)
            elif name != "index.json" or not any((theirs).glob("*.snappy")):
                assert one == other, f"{options}: {name}"
        with lading.open(theirs) as found, lading.open(mine) as own:
            assert repr(list(found)) == repr(list(own))


@pytest.mark.parametrize("compression", [None, "zstd", "gz"])
def test_the_peer_reads_what_lading_writes(tmp_path: Path, compression: str | None) -> None:
    rows = _rows(60)
    _write(_table(rows), tmp_path / "new", {"compression": compression, "size_limit": "100kb"}, batch_rows=13)
    found = _peer("read", str(tmp_path / "new"), tmp_path)
    assert len(found) == len(rows)
    for one, other in zip(found, rows, strict=True):
        assert one.keys() == other.keys()
        for name in ("text", "bytes", "json", "int", "uint8", "int32", "float16", "float64"):
            assert one[name] == other[name]
        assert np.array_equal(one["array"], other["array"])
        assert one["picture"].tobytes() == Image.open(io.BytesIO(other["picture"])).tobytes()
        assert str(one["decimal"]) == other["decimal"].decode()
