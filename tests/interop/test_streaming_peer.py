"""mosaicml-streaming reads what lading writes, and writes the same bytes."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading._core.features.types import Array, Encoded, Feature, Json, with_feature
from lading._core.features.types import Image as ImageFeature
from lading.errors import DataError, UsageError
from soak import SOAK

pytestmark = pytest.mark.interop

_PEER = Path(__file__).parents[1] / "support" / "mds_peer.py"
_RANDOM = random.Random(5)


Peer = Callable[[str, Any, Path], Any]
"""Does `read` or `write` with a spec; files that both see lie in a folder."""


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    command = [sys.executable, "-W", "ignore", str(_PEER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ask, answers = process.stdin, process.stdout

        def done(verb: str, spec: Any, scratch: Path) -> Any:
            file = scratch / "spec.pickle"
            file.write_bytes(pickle.dumps(spec))
            ask.write(f"{verb} {file}\n")
            ask.flush()
            answer = answers.readline()
            assert answer == "\n", answer or "the peer died"
            return pickle.loads(file.read_bytes())

        yield done
        ask.close()


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
        ("br:4", ["xxh3_128"], 30_000), ("bz2:1", [], 30_000), ("gz", ["sha1"], 30_000), ("snappy", [], 30_000),
        ("snappy", ["sha256"], 1 << 26),
    ]
]  # fmt: skip


def _compare(mine: Path, theirs: Path) -> None:
    """Files are equal; of gzip, in which the peer writes the time, what comes out of it."""
    names = sorted(path.name for path in theirs.iterdir())
    assert sorted(path.name for path in mine.iterdir() if path.is_file()) == names
    packed = any(name.endswith(".gz") for name in names)
    for name in names:
        one, other = (mine / name).read_bytes(), (theirs / name).read_bytes()
        if name.endswith(".gz"):
            one, other = gzip.decompress(one), gzip.decompress(other)
        elif name == "index.json" and packed:
            one, other = _without_packed_hashes(one), _without_packed_hashes(other)
        assert one == other, f"{mine}: {name}"


def _without_packed_hashes(index: bytes) -> bytes:
    told = json.loads(index)
    for shard in told["shards"]:
        for key in {"zip_data", "zip_meta"} & shard.keys():
            shard[key]["hashes"] = {}
    return json.dumps(told, sort_keys=True).encode()


@pytest.mark.soak
def test_the_same_rows_give_the_same_files(peer: Peer, tmp_path: Path) -> None:
    rows = _rows(150)
    encodings = {name: encoding for name, (encoding, _, _) in _ENCODINGS.items()}
    jobs = [
        {"out": str(tmp_path / f"peer-{i}"), "columns": encodings, "options": options, "rows": rows}
        for i, options in enumerate(_OPTIONS)
    ]
    peer("write", jobs, tmp_path)
    for i, options in enumerate(_OPTIONS):
        mine, theirs = tmp_path / f"mine-{i}", tmp_path / f"peer-{i}"
        _write(_table(rows), mine, options, batch_rows=[1, 7, 64, 1000][i % 4])
        _compare(mine, theirs)
        with lading.open(theirs).with_decode(False) as found, lading.open(mine).with_decode(False) as own:
            assert repr(list(found)) == repr([dict(sorted(sample.items())) for sample in own])  # in the table's order


@pytest.mark.cases(1)
@pytest.mark.parametrize("compression", [None, "zstd", "gz"])
def test_the_peer_reads_what_lading_writes(peer: Peer, tmp_path: Path, compression: str | None) -> None:
    rows = _rows(60)
    _write(_table(rows), tmp_path / "new", {"compression": compression, "size_limit": "100kb"}, batch_rows=13)
    [found] = peer("read", [str(tmp_path / "new")], tmp_path)
    assert len(found) == len(rows)
    for one, other in zip(found, rows, strict=True):
        assert one.keys() == other.keys()
        for name in ("text", "bytes", "json", "int", "uint8", "int32", "float16", "float64"):
            assert one[name] == other[name]
        assert np.array_equal(one["array"], other["array"])
        assert one["picture"].tobytes() == Image.open(io.BytesIO(other["picture"])).tobytes()
        assert str(one["decimal"]) == other["decimal"].decode()


def test_arrays_lists_and_numbers_have_the_bytes_of_the_peer(peer: Peer, tmp_path: Path) -> None:
    arrays = [np.arange(6 * n, dtype="i2").reshape(n, 6) for n in range(1, 81)]
    asked = {"list": "ndarray:float32", "small": "int8", "x": "float32"}
    encodings = {**asked, "npy": "ndarray", "shaped": "ndarray:int16"}
    rows = [
        {"list": np.arange(n, dtype="f4"), "npy": array.T, "shaped": array, "small": n, "x": n / 7}
        for n, array in enumerate(arrays, 1)
    ]
    options = {"size_limit": 4_000}
    peer("write", [{"out": str(tmp_path / "peer"), "columns": encodings, "options": options, "rows": rows}], tmp_path)
    schema = pa.schema([
        ("list", pa.list_(pa.float64())), with_feature(pa.field("npy", pa.large_binary()), Array()),
        with_feature(pa.field("shaped", pa.large_binary()), Array("int16", (None, 6))), ("small", pa.int64()),
        ("x", pa.float64()),
    ])  # fmt: skip
    with lading.writer(tmp_path / "mine", format="mds", schema=schema, options={**options, "columns": asked}) as writer:
        for row in rows:
            writer.write(row)
    _compare(tmp_path / "mine", tmp_path / "peer")
    [found] = peer("read", [str(tmp_path / "mine")], tmp_path)
    assert len(found) == len(rows)
    for one, other in zip(found, rows, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in ("list", "npy", "shaped", "small"))
        assert (one["npy"].dtype, one["list"].dtype, one["x"]) == (np.int16, np.float32, np.float32(other["x"]))


# The split formats

_TEXT = 'aé🎉 \x7f\x00\u2028\ufeff"\\/\b\x1b'
_SPLIT: list[tuple[dict[str, Any], str]] = [
    ({"kind": "json"}, _TEXT + ",\n\t\r"),
    ({"kind": "json", "newline": " \r\n"}, 'plain ASCII, "quoted"\n'),
    ({"kind": "csv"}, _TEXT + "\t\r"),
    ({"kind": "csv", "newline": "\r\n"}, _TEXT + "\t\n"),
    ({"kind": "tsv"}, _TEXT + ",\r"),
    ({"kind": "xsv", "separator": "|", "newline": "é\n"}, _TEXT + ","),
    ({"kind": "xsv", "separator": "::"}, _TEXT + ","),
]
"""Options, and characters of values that the peer takes with them."""


def _split_rows(letters: str, count: int) -> list[dict[str, Any]]:
    """Values whose lines are some 100 bytes long, and shorter than 2,000."""
    odd = [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 1e16, 1e-7, 123456789.0, 1e22]
    return [
        {
            "text": "".join(_RANDOM.choices(letters, k=_RANDOM.choice([0, 1, 5, 60]))),
            "é name": "".join(_RANDOM.choices(letters, k=3)),
            "a": _RANDOM.choice([0, -1, 2**63 - 1, -(2**63), _RANDOM.randint(-(10**6), 10**6)]),
            "zero": _RANDOM.choice([*odd, struct.unpack("d", _RANDOM.randbytes(8))[0], _RANDOM.random()]),
        }
        for _ in range(count)
    ]


_SPLIT_ENCODINGS = {"text": "str", "é name": "str", "a": "int", "zero": "float"}
_PACKINGS = (None, "br:3", "bz2:2", "gz", "snappy", "zstd", "zstd:7")
_LIMITS = (None, 1 << 26, 2000, "3kb", 999)


def _split_jobs(place: Path) -> list[dict[str, Any]]:
    """Every kind with every compression; in `make test` one in four of these; hashes and limits in turn."""
    jobs = []
    for i, (kind, letters) in enumerate(_SPLIT):
        rows = _split_rows(letters, 120)
        own = {name: value for name, value in kind.items() if name != "kind"}
        for j, compression in enumerate(_PACKINGS):
            if not SOAK and (i + j) % 4:
                continue
            hashes = ["sha1", "xxh3_64"] if j % 2 else []
            how = {"compression": compression, "hashes": hashes, "size_limit": _LIMITS[(i + j) % 5]}
            jobs.append({"kind": kind["kind"], "out": str(place / f"peer-{i}-{j}"), "columns": _SPLIT_ENCODINGS,
                         "rows": rows, "options": {**how, **own}})  # fmt: skip
    return jobs


@pytest.mark.soak
def test_lading_reads_the_lines_that_the_peer_writes(peer: Peer, tmp_path: Path) -> None:
    jobs = _split_jobs(tmp_path)
    peer("write", jobs, tmp_path)
    for job in jobs:
        with lading.open(job["out"]) as dataset:
            assert [_sorted(row) for row in dataset] == [_sorted(row) for row in job["rows"]]


@pytest.mark.soak
def test_a_separator_behind_its_own_beginning_is_read_as_the_peer_does(peer: Peer, tmp_path: Path) -> None:
    rows = [{"a": "x", "b": "y"}, {"a": "1,", "b": "2"}]
    job = {"kind": "xsv", "out": str(tmp_path / "peer"), "columns": {"a": "str", "b": "str"}, "rows": rows}
    peer("write", [{**job, "options": {"separator": ",,"}}], tmp_path)
    found = [rows[0], {"a": "1", "b": ",2"}]
    assert peer("read", [str(tmp_path / "peer")], tmp_path) == [found]
    with lading.open(tmp_path / "peer") as dataset:
        assert list(dataset) == found


def _sorted(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


_OF_NOTHING: dict[str, tuple[str, Feature | None, pa.DataType]] = {
    **_ENCODINGS,
    "png": ("png", Encoded("png"), pa.large_binary()),
    "pixels": ("pil", Encoded("pil"), pa.large_binary()),
    "array of int16": ("ndarray:int16", Encoded("ndarray:int16"), pa.large_binary()),
    "pictures": ("list[jpeg]", Encoded("list[jpeg]"), pa.large_binary()),
    "many pixels": ("list[pil]", Encoded("list[pil]"), pa.large_binary()),
    "jpegs": ("jpeg_array", Encoded("jpeg_array"), pa.large_binary()),
    "more jpegs": ("jpegarray", Encoded("jpegarray"), pa.large_binary()),
    "whole": ("str_int", Encoded("str_int"), pa.string()),
    "part": ("str_float", Encoded("str_float"), pa.string()),
}


@pytest.mark.soak
def test_the_peer_reads_nulls_as_marks_beside_values_that_stand_for_nothing(peer: Peer, tmp_path: Path) -> None:
    fields = [(pa.field(name, kind), feature) for name, (_, feature, kind) in _OF_NOTHING.items()]
    schema = pa.schema([field if feature is None else with_feature(field, feature) for field, feature in fields])
    table = pa.table([pa.nulls(2, field.type) for field in schema], schema=schema)
    _write(table, tmp_path / "new", {"nulls": "mask"}, batch_rows=2)
    [found] = peer("read", [str(tmp_path / "new")], tmp_path)
    assert len(found) == 2
    for sample in found:
        assert {name: sample.pop("lading.null:" + name) for name in _OF_NOTHING} == dict.fromkeys(_OF_NOTHING, 1)
        assert (sample["text"], sample["bytes"], sample["json"], sample["int"]) == ("", b"", None, 0)
        assert sample["array"].tolist() == [[0, 0, 0], [0, 0, 0]]
        assert sample["any array"].tolist() == sample["array of int16"].tolist() == [0]
        for name in ("picture", "png", "pixels"):
            assert sample[name].size == (1, 1)
            assert sample[name].convert("L").getpixel((0, 0)) == 0
        assert sample["pictures"] == sample["many pixels"] == []
        assert [picture.size for picture in sample["jpegs"] + sample["more jpegs"]] == [(1, 1), (1, 1)]
        assert (sample["whole"], sample["part"], sample["decimal"]) == (0, 0, 0)


@pytest.mark.soak
def test_marks_that_the_peer_wrote_are_nulls(peer: Peer, tmp_path: Path) -> None:
    columns = {"n": "int", "text": "str", "lading.null:n": "uint8", "lading.null:text": "uint8", "key": "str"}
    rows = [
        {"key": "a", "n": 0, "text": "told", "lading.null:n": np.uint8(1), "lading.null:text": np.uint8(0)},
        {"key": "b", "n": 3, "text": "", "lading.null:n": np.uint8(0), "lading.null:text": np.uint8(1)},
    ]
    peer("write", [{"out": str(tmp_path / "peer"), "columns": columns, "options": {}, "rows": rows}], tmp_path)
    with lading.open(tmp_path / "peer") as dataset:
        assert list(dataset) == [{"key": "a", "n": None, "text": "told"}, {"key": "b", "n": 3, "text": None}]
        assert dataset[0] == {"key": "a", "n": None, "text": "told"}
        table = dataset.take([0, 1])
    own = pa.table([pa.array(["a", "b"]), pa.array([None, 3]), pa.array(["told", None])],
                   schema=pa.schema([pa.field("key", pa.string(), nullable=False), ("n", pa.int64()),
                                     ("text", pa.string())]))  # fmt: skip
    assert table.select(["key", "n", "text"]).to_pydict() == own.to_pydict()
    _write(own, tmp_path / "mine", {"nulls": "mask"}, batch_rows=1)
    for name in ("index.json", "shard.00000.mds"):
        one, other = (tmp_path / "mine" / name).read_bytes(), (tmp_path / "peer" / name).read_bytes()
        assert one == other, name


@pytest.mark.soak
def test_the_peer_slices_the_content_of_interleaved_samples(peer: Peer, tmp_path: Path) -> None:
    source = [str(resources.files("lading._core.data") / f"docs-0000{number}.tar") for number in (0, 1)]
    lading.convert(source, tmp_path / "mds", format="mds", verify=True)
    [found] = peer("read", [str(tmp_path / "mds")], tmp_path)
    with lading.open(source) as dataset:
        assert len(found) == len(dataset) > 10
        for sample, other in zip(found, dataset, strict=True):
            assert sample.keys() == {"sample_id", "items", "content"}
            payloads, at = [], 0
            for item in sample["items"]:
                if "bytes" in item:
                    payloads.append(sample["content"][at : at + item["bytes"]])
                    at += item["bytes"]
            assert at == len(sample["content"])
            items = other["items"]
            assert payloads == [item["binary_content"] for item in items if "binary_content" in item]
            told = [item for item in sample["items"] if item["modality"] != "metadata"]
            assert [item.get("text_content") for item in told] == [item.get("text_content") for item in items]
            assert sample["sample_id"] == other["sample_id"]


@pytest.mark.soak
def test_interleaved_samples_that_the_peer_wrote(peer: Peer, tmp_path: Path) -> None:
    columns = {"sample_id": "str", "items": "json", "content": "bytes"}
    items = [{"position": 0, "modality": "text", "text_content": "t", "score": 0.5},
             {"position": 1, "modality": "image", "bytes": 3}]  # fmt: skip
    rows = [{"sample_id": name, "items": items, "content": name.encode() * 3} for name in "ab"]
    peer("write", [{"out": str(tmp_path / "peer"), "columns": columns, "options": {}, "rows": rows}], tmp_path)
    with lading.open(tmp_path / "peer") as dataset:
        assert dataset.view == "interleaved"
        taken = dataset.take([0, 1], columns=["modality", "text_content", "score", "binary_content"])
    assert taken["binary_content"].to_pylist() == [None, b"aaa", None, b"bbb"]
    with lading.writer(tmp_path / "mine", format="mds", view="interleaved") as writer:
        writer.write_batch(taken)
    for name in ("index.json", "shard.00000.mds"):
        assert (tmp_path / "mine" / name).read_bytes() == (tmp_path / "peer" / name).read_bytes(), name


_FETCHED = [*product(("mds", "json"), (None, "zstd:3", "gz", "snappy"), (True, False))]


@pytest.fixture(scope="module")
def fetched(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, tuple[Path, Any]]:
    """Folders that the peer wrote, and what it found as it fetched each of their shards."""
    place = tmp_path_factory.mktemp("fetched")
    columns = {"text": "str", "n": "int"}
    rows = [{"text": "word " * i, "n": i} for i in range(40)]
    written, specs = [], []
    for number, (kind, compression, keep) in enumerate(_FETCHED):
        remote = str(place / f"{number}")
        options = {"compression": compression, "hashes": ["sha1", "xxh64"], "size_limit": 1500}
        written.append({"kind": kind, "out": remote, "columns": columns, "rows": rows, "options": options})
        specs.append({"remote": remote, "local": f"{remote}-theirs", "keep_zip": keep, "validate_hash": "sha1"})
    peer("write", written, place)
    found = peer("fetch", specs, place)
    return {case: (Path(spec["remote"]), theirs) for case, spec, theirs in zip(_FETCHED, specs, found, strict=True)}


@pytest.mark.soak
@pytest.mark.parametrize("kind, compression, keep", _FETCHED)
def test_a_local_copy_fetches_and_evicts_the_files_that_the_peer_does(
    fetched: dict[Any, tuple[Path, Any]], tmp_path: Path, kind: str, compression: str | None, keep: bool
) -> None:
    remote, theirs = fetched[kind, compression, keep]
    mine = tmp_path / "mine"
    copy = lading.compat.mosaicml.LocalCopy(mine, remote=remote, keep_zip=keep, validate_hash="sha1")
    found = []
    for shard in copy.shards:
        delta, there = copy.prepare_shard(shard), sorted(path.name for path in mine.iterdir())
        sizes = (shard.get_raw_size(), shard.get_zip_size(), shard.get_max_size(), shard.get_persistent_size(keep))
        samples = [{name: sample[name] for name in ("n", "text")} for sample in shard]
        found.append((delta, there, sizes, samples, shard.evict(), sorted(path.name for path in mine.iterdir())))
    assert len(found) > 1
    assert found == [(*rest, [{n: one[n] for n in ("n", "text")} for one in read], freed, left)
                     for *rest, read, freed, left in theirs]  # fmt: skip


def test_columns_that_are_asked_for_are_decoded_by_the_peer(peer: Peer, tmp_path: Path) -> None:
    picture = Image.effect_noise((20, 30), 50).convert("RGB")
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    values: dict[str, Any] = {
        "pil": picture, "jpeg": picture, "png": picture, "list[pil]": [picture, picture], "list[png]": [picture],
        "list[jpeg]": [picture], "jpeg_array": [_picture(1)], "ndarray": array, "ndarray:float32": array,
        "ndarray:float32:3,4": array, "int": 5, "uint8": 200, "int16": -3, "uint64": 2**63, "float16": 0.5,
        "float32": 0.25, "float64": 1e-9, "str": "é", "bytes": b"\x00", "json": {"a": [1]}, "str_int": 10**30,
        "str_float": 0.1, "str_decimal": Decimal("1.50"),
    }  # fmt: skip
    columns = {f"c{number}": encoding for number, encoding in enumerate(values)}
    row = {f"c{number}": value for number, value in enumerate(values.values())}
    with lading.writer(tmp_path / "new", format="mds", options={"columns": columns}) as writer:
        writer.write(row)
    assert lading.verify(tmp_path / "new", deep=True).findings == []
    [[found]] = peer("read", [str(tmp_path / "new")], tmp_path)
    for name, encoding in columns.items():
        value, other = found[name], row[name]
        for one, two in zip(*((each if isinstance(each, list) else [each]) for each in (value, other)), strict=True):
            if isinstance(two, Image.Image):
                assert (one.size, one.mode) == (two.size, two.mode), encoding
                assert "jpeg" in encoding or one.tobytes() == two.tobytes(), encoding
            elif isinstance(two, np.ndarray):
                assert (one.dtype, one.tolist()) == (two.dtype, two.tolist()), encoding
            elif encoding == "jpeg_array":
                assert one.tobytes() == Image.open(io.BytesIO(two)).tobytes()
            else:
                assert one == two, encoding


def test_a_conversion_encodes_pictures_and_arrays_for_the_columns_that_are_asked_for(
    peer: Peer, tmp_path: Path
) -> None:
    picture = _picture(3)
    with lading.writer(tmp_path / "in", format="parquet") as writer:
        writer.write({"jpg": picture, "array": np.arange(6).reshape(2, 3)})
    options = {"columns": {"jpg": "pil", "array": "ndarray"}}
    lading.convert(tmp_path / "in", tmp_path / "new", format="mds", options=options)
    [[found]] = peer("read", [str(tmp_path / "new")], tmp_path)
    assert found["jpg"].tobytes() == Image.open(io.BytesIO(picture)).tobytes()
    assert found["array"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_lists_of_pictures_are_lists_for_the_peer(peer: Peer, tmp_path: Path) -> None:
    first, second = _picture(1), _picture(2)
    media = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    lists = pa.array([[{"bytes": first, "path": "a.jpg"}, {"bytes": second, "path": None}], []], pa.list_(media))
    pq.write_table(pa.table({"images": lists, "n": pa.array([7, 8], pa.int64())}), tmp_path / "in.parquet")
    options = {"columns": {"n": "str_int"}}
    with pytest.raises(UsageError, match="lose their paths"):
        lading.convert(tmp_path / "in.parquet", tmp_path / "new", format="mds", options=options, verify=True)
    done = lading.convert(tmp_path / "in.parquet", tmp_path / "new", format="mds", options=options)
    assert done.counts["paths of media, left out"] == 1
    assert json.loads((tmp_path / "new/index.json").read_bytes())["shards"][0]["column_encodings"] == [
        "list[jpeg]", "str_int",
    ]  # fmt: skip
    [found] = peer("read", [str(tmp_path / "new")], tmp_path)
    assert [image.tobytes() for image in found[0]["images"]] == [
        Image.open(io.BytesIO(data)).tobytes() for data in (first, second)
    ]
    assert [(row["n"], len(row["images"])) for row in found] == [(7, 2), (8, 0)]
    with lading.open(tmp_path / "new") as dataset:
        assert [row["images"] for row in dataset.with_decode(False)] == [[first, second], []]
        assert dataset.with_decode(False)[0] == {"images": [first, second], "n": 7}


@pytest.mark.parametrize("encoding", ["pkl", "jpg", "ndarray:object"])
def test_no_encoding_that_nobody_decodes_is_written(tmp_path: Path, encoding: str) -> None:
    with (
        pytest.raises((DataError, UsageError), match=encoding.partition(":")[0]),
        lading.writer(tmp_path / "new", format="mds", options={"columns": {"v": encoding}}) as writer,
    ):
        writer.write({"v": b"x"})


def test_bytes_that_are_nothing_of_their_encoding_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="column 'v'"),
        lading.writer(tmp_path / "new", format="mds", options={"columns": {"v": "pil"}}) as writer,
    ):
        writer.write({"v": _picture(1)})
