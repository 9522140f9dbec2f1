"""Interleaved samples as rows of id, items and content: what is written, read, and refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from documents import SAMPLES, SQUARE, TALL, WIDE, documents
from golden_cases import Golden
from in_process import by_tasks
from lading._core.api.dataset import Dataset
from lading._core.arrow.references import files_of, is_ref, unpack
from lading._core.features.types import Json, feature_of, with_feature
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.mds.format import FORMAT
from lading._core.interleaved.packed import PACKED_SCHEMA, PackedView
from lading._core.storage.stores import Stores, resolve
from lading.errors import DataError, SchemaMismatch, Unrepresentable, UsageError
from lading.options import InterleavedOptions

_COLUMNS = ["sample_id", "position", "modality", "text_content", "binary_content"]
_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("modality", pa.string(), nullable=False),
        ("text_content", pa.string()),
        ("binary_content", pa.large_binary()),
    ]
)
_ROWS: list[tuple[Any, ...]] = [
    ("a", -1, "metadata", None, None),
    ("a", 0, "text", 'Zwei "ü"\n', None),
    ("a", 1, "image", None, b"12345"),
    ("a", 2, "audio", None, b""),
    ("a", 3, "image", None, b"6" * 5000),
    ("b", 0, "text", "", None),
    ("c", 0, "image", None, b"789"),
]


def _items(rows: list[tuple[Any, ...]] = _ROWS, **more: pa.Array | tuple[pa.Field, list[Any]]) -> pa.Table:
    table = pa.table([pa.array(column, f.type) for column, f in zip(zip(*rows, strict=True), _SCHEMA, strict=True)],
                     schema=_SCHEMA)  # fmt: skip
    for name, given in more.items():
        field, values = given if isinstance(given, tuple) else (pa.field(name, given.type), given)
        table = table.append_column(field, values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return table


def _write(out: Path, items: pa.Table, view: str = "interleaved", **options: Any) -> Path:
    with lading.writer(out, format="mds", view=view, options=options) as writer:
        writer.write_batch(items)
    return out


def _packed(out: Path, *samples: tuple[str, Any, bytes]) -> Path:
    """A dataset of such rows that nobody keeps the types of; items as a value or as text."""
    ids, items, content = zip(*samples, strict=True)
    texts = [value if isinstance(value, str) else json.dumps(value) for value in items]
    _write(out, pa.table([list(ids), texts, list(content)], schema=PACKED_SCHEMA), "samples")
    shutil.rmtree(out / "_lading")
    return out


def test_a_row_a_sample(tmp_path: Path) -> None:
    out = _write(tmp_path / "out", _items(score=pa.array([None, 1, None, None, None, None, 2])))
    with lading.open(out, view="samples") as dataset:
        found = list(dataset)
    assert [sample["sample_id"] for sample in found] == ["a", "b", "c"]
    assert found[0]["items"] == [
        {"position": -1, "modality": "metadata"},
        {"position": 0, "modality": "text", "text_content": 'Zwei "ü"\n', "score": 1},
        {"position": 1, "modality": "image", "bytes": 5},
        {"position": 2, "modality": "audio", "bytes": 0},
        {"position": 3, "modality": "image", "bytes": 5000},
    ]
    assert found[1]["items"] == [{"position": 0, "modality": "text", "text_content": ""}]
    assert [sample["content"] for sample in found] == [b"12345" + b"6" * 5000, b"", b"789"]
    [shard] = json.loads((out / "index.json").read_text())["shards"]
    assert dict(zip(shard["column_names"], shard["column_encodings"], strict=True)) == {
        "content": "bytes", "items": "json", "sample_id": "str",
    }  # fmt: skip


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary(), pa.binary_view()])
def test_items_come_back_with_their_types(compression: str | None, kind: pa.DataType, tmp_path: Path) -> None:
    items = _items(
        small=pa.array([None, 1, None, 2, None, 3, 4], pa.int8()),
        large=pa.array([None, 2**64 - 1, None, None, None, None, 0], pa.uint64()),
        half=pa.array([None, np.float16(0.1), None, np.float16("nan"), None, np.float16("-inf"), None], pa.float16()),
        float=pa.array([None, -0.0, 1e300, None, 0.1, None, None], pa.float32()),
        flag=pa.array([None, True, False, None, None, None, None]),
        note=(pa.field("note", pa.large_string()), [None, "é", None, None, "\x00", None, "🎉"]),
        told=(with_feature(pa.field("told", pa.string()), Json()),
              [None, "null", '{"a": [Infinity, NaN]}', '"text"', "123456789012345678901234567890", "1.0", "1"]),
        none=pa.nulls(7),
    )  # fmt: skip
    given = items.set_column(4, "binary_content", items["binary_content"].combine_chunks().cast(kind))
    out = _write(tmp_path / "out", given, compression=compression)
    with lading.open(out) as dataset:
        assert (dataset.view, len(dataset)) == ("interleaved", 3)
        for found in (pa.Table.from_batches(dataset.batches()), dataset.take([0, 1, 2])):
            assert found.schema.names[: len(items.schema)] == items.schema.names
            for name in items.schema.names:
                assert found.schema.field(name).type == items.schema.field(name).type, name
                assert repr(found[name].to_pylist()) == repr(items[name].to_pylist()), name
        again = dataset.take([2, 0, 2])
        assert again["binary_content"].to_pylist() == [b"789", *items["binary_content"].to_pylist()[:5], b"789"]
        assert dataset[-1]["items"][0]["binary_content"] == b"789"


def test_no_payload_is_moved_before_somebody_asks(tmp_path: Path) -> None:
    out = _write(tmp_path / "out", _items())
    with lading.open(out) as dataset:
        [batch] = dataset.batches(lazy=True)
        content = batch.column("binary_content")
        assert is_ref(content.type)
        refs, body = unpack(content), (out / "shard.00000.mds").read_bytes()
        assert [file.url for file in files_of(batch.schema)] == [str(out / "shard.00000.mds")]
    assert refs.valid.tolist() == [row[4] is not None for row in _ROWS]
    for row, offset, length in zip(_ROWS, refs.offset.tolist(), refs.length.tolist(), strict=True):
        assert body[offset : offset + length] == (row[4] or b"")


def test_types_are_what_the_values_are_where_nobody_kept_them(tmp_path: Path) -> None:
    first = [{"position": 0, "modality": "text", "text_content": "t", "n": 1, "x": 1.5, "mixed": 1, "extra": [None]}]
    second = [{"modality": "image", "position": 0, "bytes": 3, "bytes ": None, "mixed": "a", "n": None, "x": 2.5}]
    out = _packed(tmp_path / "out", ("a", first, b""), ("b", second, b"abc"))
    with lading.open(out) as dataset:
        assert dataset.view == "interleaved"
        own = dataset.schema
        assert [own.field(name).type for name in ("n", "x", "bytes ")] == [pa.int64(), pa.float64(), pa.null()]
        assert all(isinstance(feature_of(own.field(name)), Json) for name in ("mixed", "extra"))
        rows = pa.Table.from_batches(dataset.batches()).to_pylist()
        assert [row["mixed"] for row in rows] == ["1", '"a"']
        assert [row["n"] for row in rows] == [1, None]
        assert dataset[0]["items"][0]["extra"] == [None]
        assert dataset[1]["items"][0]["binary_content"] == b"abc"
    lading.convert(out, tmp_path / "p", format="parquet", verify=True)


def test_shards_may_differ_in_what_the_values_are(tmp_path: Path) -> None:
    for name, value in (("x", 1), ("y", 1.0), ("z", "one")):
        _packed(tmp_path / name, (name, [{"position": 0, "modality": "text", "value": value}], b""))
    shards = [tmp_path / name / "shard.00000.mds" for name in "xyz"]
    with lading.open(shards, format="mds") as dataset:
        taken = dataset.take([0, 1, 2])
        assert taken["value"].to_pylist() == ["1", "1.0", '"one"']
        assert [dataset[i]["items"][0]["value"] for i in range(3)] == [1, 1.0, "one"]
    lading.convert([str(path) for path in shards], tmp_path / "p", format="parquet", verify=True)


def _one(**item: Any) -> list[dict[str, Any]]:
    return [{"position": 0, "modality": "text", **item}]


@pytest.mark.parametrize("items, content, message, column", [
    ("[", b"", "broken JSON", "items"),
    ("{}", b"", "the items of a sample are a list", "items"),
    ("[3]", b"", "an item is an object", "items"),
    ("[]", b"", "a sample without items", "items"),
    ('[{"position": 0, "modality": "text", "a": 1,\n "a"\n: 2}]', b"", "an object names a column twice", "items"),
    (_one(bytes=2), b"123", "do not add up", "content"),
    (_one(), b"1", "do not add up", "content"),
    ([*_one(bytes=2**63 - 1), *_one(bytes=2**63 - 1), *_one(bytes=5)], b"123", "do not add up", "content"),
    (_one(bytes=-1), b"", "not the length of a payload", "items.bytes"),
    (_one(bytes=True), b"1", "not the length of a payload", "items.bytes"),
    (_one(bytes=1.0), b"1", "not the length of a payload", "items.bytes"),
    (_one(bytes=2**64), b"1", "not the length of a payload", "items.bytes"),
    (_one(sample_id="x"), b"", "a column that stands elsewhere", "sample_id"),
    (_one(binary_content="x"), b"", "a column that stands elsewhere", "binary_content"),
    ([{"modality": "text"}], b"", "an item lacks what every item has", "position"),
    ([{"position": 0, "modality": None}], b"", "an item lacks what every item has", "modality"),
    ([{"position": 2**31, "modality": "text"}], b"", "does not fit the type", "position"),
    (_one(text_content=3), b"", "does not fit the type", "text_content"),
    ('[{"position": 0, "modality": "text", "text_content": "\\ud800"}]', b"", "does not fit the type", "text_content"),
    ('[{"position": 0, "modality": "text", "\\ud800": 1}]', b"", "a name that is not valid Unicode", "items"),
])  # fmt: skip
def test_rows_that_are_no_samples_name_file_and_row(
    items: Any, content: bytes, message: str, column: str, tmp_path: Path
) -> None:
    out = _packed(tmp_path / "out", ("first", _one(), b""), ("second", items, content))

    reads: list[Callable[[Dataset], object]] = [lambda dataset: list(dataset.batches()), lambda dataset: dataset[1]]
    for read in reads:
        with lading.open(out) as dataset, pytest.raises(DataError, match=message) as caught:
            read(dataset)
        assert (caught.value.row, caught.value.file) == (1, str(out / "shard.00000.mds"))
        assert caught.value.column == column
    with lading.open(out) as dataset:
        assert dataset.view == "interleaved"
    result = lading.verify(out)
    assert [message in str(finding["message"]) for finding in result.findings] == [True]


def test_neighbours_of_one_id_are_refused(tmp_path: Path) -> None:
    out = _packed(tmp_path / "out", ("a", _one(), b""), ("b", _one(), b""), ("b", _one(), b""))
    with lading.open(out) as dataset, pytest.raises(DataError, match="one id") as caught:
        list(dataset.batches())
    assert (caught.value.row, caught.value.column) == (2, "sample_id")


def test_other_rows_of_these_columns_are_samples(tmp_path: Path) -> None:
    table = pa.table({"sample_id": ["a"], "items": ["[]"], "content": [b"x"]})
    out = _write(tmp_path / "out", table, "samples", columns={"content": "jpeg", "items": "json"})
    (out / "_lading" / "manifest.json").unlink()
    with lading.open(out) as dataset:
        assert dataset.view == "samples"


def test_a_column_that_the_schema_kept_lacks_is_told(tmp_path: Path) -> None:
    out = _packed(tmp_path / "out", ("a", _one(), b""), ("b", _one(more=1), b""))
    store, path = resolve(str(out / "shard.00000.mds"), Stores())
    view = PackedView(FORMAT.open(ShardFile(store, path), FORMAT.read_options({})), path, InterleavedOptions(), _SCHEMA)
    with pytest.raises(SchemaMismatch) as caught:
        list(view.batches(Scan(max_rows=10, max_bytes=1000)))
    assert (caught.value.column, caught.value.row, caught.value.file) == ("more", 1, path)
    view.close()


@pytest.mark.parametrize("column, message", [
    (pa.array([b"x"] * 7), "cannot hold this type exactly"),
    (pa.array([[1]] * 7), "cannot hold this type exactly"),
    (pa.array([1] * 7, pa.timestamp("s")), "cannot hold this type exactly"),
])  # fmt: skip
def test_what_json_does_not_hold_is_refused_before_a_byte_is_written(
    column: pa.Array, message: str, tmp_path: Path
) -> None:
    with pytest.raises(Unrepresentable, match=message) as caught:
        _write(tmp_path / "out", _items(extra=column))
    assert caught.value.column == "extra"
    assert list(tmp_path.iterdir()) == []


def test_encodings_are_those_of_the_layout(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="encodings of their layout"):
        _write(tmp_path / "out", _items(), columns={"content": "str"})


def test_a_column_may_not_be_called_as_the_lengths(tmp_path: Path) -> None:
    with pytest.raises(Unrepresentable, match="is used for") as caught:
        _write(tmp_path / "out", _items(bytes=pa.array(range(7))))
    assert caught.value.column == "bytes"


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "is not valid JSON"),
        ('1, "bytes": 5', "is not valid JSON"),
        ("", "is not valid JSON"),
        ('{"a": 1, "a": 2}', "twice"),
    ],
)
def test_json_that_is_none_is_refused(text: str, message: str, tmp_path: Path) -> None:
    told = (with_feature(pa.field("told", pa.string()), Json()), [None, None, "1", text, None, None, None])
    with pytest.raises(Unrepresentable, match=message) as caught:
        _write(tmp_path / "out", _items(told=told))
    assert (caught.value.column, caught.value.row) == ("told", 3)


def test_json_behind_a_byte_order_mark_is_json(tmp_path: Path) -> None:
    told = (with_feature(pa.field("told", pa.string()), Json()), ["\ufeff[1]", None, "1", None, None, None, "2"])
    with lading.open(_write(tmp_path / "out", _items(told=told))) as dataset:
        assert dataset.take([0, 2])["told"].to_pylist() == ["[1]", None, "1", None, None, "2"]


def test_items_lack_what_items_need(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        _write(tmp_path / "out", _items().drop_columns(["modality"]))
    assert caught.value.column == "modality"
    null = _items().drop_columns(["position"]).append_column("position", pa.array([0, None, *range(5)]))
    with pytest.raises(DataError, match="lacks") as lacking:
        _write(tmp_path / "out", null)
    assert (lacking.value.column, lacking.value.row) == ("position", 1)
    far = _items().drop_columns(["position"]).append_column("position", pa.array([2**31] * 7))
    with pytest.raises(Unrepresentable, match="32 bits"):
        _write(tmp_path / "out", far)


@pytest.mark.soak
def test_large_samples_come_in_parts_and_stay_whole(tmp_path: Path) -> None:
    rows = [(f"s{i // 9}", i % 9, "image", None, bytes([i % 251]) * 1000) for i in range(900)]
    out = _write(tmp_path / "out", _items(rows), size_limit="64kb")
    with lading.open(out) as dataset:
        assert len(dataset.shards) == 17  # 9,000 bytes of payload a sample, and some 500 of JSON: six fit
        seen = 0
        for batch in dataset.batches(max_rows=20, max_bytes="40kb"):
            assert batch.num_rows in (9, 18)
            assert batch.column("binary_content").to_pylist() == [row[4] for row in rows[seen : seen + batch.num_rows]]
            seen += batch.num_rows
        assert seen == 900
    for shard in json.loads((out / "index.json").read_text())["shards"]:
        assert shard["raw_data"]["bytes"] <= 65_536


def test_columns_may_be_chosen(tmp_path: Path) -> None:
    out = _write(tmp_path / "out", _items(score=pa.array(range(7)), other=pa.array(range(7))))
    with lading.open(out) as dataset:
        [batch] = dataset.batches(columns=["score"])
        assert batch.schema.names == ["sample_id", "position", "score"]
        assert dataset.take([2], columns=["text_content", "score"]).to_pylist() == [
            {"sample_id": "c", "position": 0, "text_content": None, "score": 6}
        ]
    with lading.open(out, interleaved=InterleavedOptions(fields=("score", "absent"))) as dataset:
        with pytest.warns(UserWarning, match="absent"):
            [batch] = dataset.batches()
        assert batch.schema.names == [*_COLUMNS, "score", "content_type", "source_ref", "materialize_error", "absent"]
        assert batch.column("absent").null_count == 7


@pytest.mark.soak
@pytest.mark.parametrize("options", [
    {}, {"compression": "zstd"}, {"size_limit": "64kb"}, {"nulls": "mask"},
])  # fmt: skip
def test_payload_goes_from_file_to_file(options: dict[str, Any], tmp_path: Path) -> None:
    def payload(n: int) -> bytes:
        return bytes(97 + (n + i) % 26 for i in range(9_000 + n))

    samples = [(f"s{n}", ["text", *(payload(n * 3 + i) for i in range(n % 4)), None, "end"], {}) for n in range(20)]
    (tmp_path / "in.tar").write_bytes(documents(*samples))
    lading.convert(tmp_path / "in.tar", tmp_path / "mds", format="mds", options=options, verify=True)
    with lading.open(tmp_path / "mds", view="samples") as dataset:
        for sample, (name, items, _) in zip(dataset, samples, strict=True):
            assert (sample["sample_id"], sample["content"]) == (
                name,
                b"".join(i for i in items if isinstance(i, bytes)),
            )
    assert lading.diff(tmp_path / "in.tar", tmp_path / "mds").equal


def test_pictures_are_filtered_by_their_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(documents(*SAMPLES))
    lading.convert(tmp_path / "in.tar", tmp_path / "mds", format="mds", verify=True)
    lading.convert(tmp_path / "mds", tmp_path / "wide", format="mds", min_aspect_ratio=1, verify=True)
    with lading.open(tmp_path / "wide").with_decode(False) as dataset:
        kept = [item["binary_content"] for sample in dataset for item in sample["items"] if "binary_content" in item]
    assert WIDE in kept
    assert SQUARE in kept
    assert TALL not in kept


@pytest.mark.soak
@pytest.mark.parametrize("target, workers", [("webdataset", 2), ("parquet", 1), ("mds", 2)])
def test_conversions_keep_the_digest(target: str, workers: int, tmp_path: Path) -> None:
    for number, sample in enumerate(SAMPLES):
        (tmp_path / f"{number}.tar").write_bytes(documents(sample))
    source = str(tmp_path / "*.tar")
    first = lading.convert(source, tmp_path / "mds", format="mds", shard_size="300b", verify=True, **by_tasks(workers))
    assert first.shards > 1
    again = lading.convert(tmp_path / "mds", tmp_path / "out", format=target, verify=True, **by_tasks(workers))
    assert first.digest == again.digest
    assert lading.diff(source, tmp_path / "out").equal
    (tmp_path / "mds" / "_lading" / "manifest.json").unlink()
    bare = lading.convert(tmp_path / "mds", tmp_path / "bare", format=target, verify=True, **by_tasks(workers))
    assert bare.digest == first.digest


@pytest.mark.soak
def test_tables_of_the_peer_go_there_and_back(golden: Golden, tmp_path: Path) -> None:
    folder = golden("interleaved")
    for number, table in enumerate(sorted(folder.glob("parquet-basic/**/*.parquet"))):
        out = tmp_path / str(number)
        there = lading.convert(table, out / "mds", format="mds", verify=True)
        back = lading.convert(out / "mds", out / "parquet", format="parquet", verify=True)
        assert there.digest == back.digest
        one, other = pq.read_table(table), lading.open(out / "parquet")
        assert pa.Table.from_batches(other.batches()).select(one.schema.names).num_rows == one.num_rows


def test_bytes_elsewhere_cannot_stay_there(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(documents(*SAMPLES))
    with pytest.raises(UsageError, match="only tables of items hold references"):
        lading.convert(tmp_path / "in.tar", tmp_path / "mds", format="mds", lazy=True)
