"""Tars that lading wrote of rows: read with the columns that these had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading._core.arrow.references import is_ref
from lading._core.formats.webdataset import stored_types
from lading._core.manifest.files import load_manifest, save_manifest
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading.errors import DataError, SchemaMismatch, Unrepresentable
from tars import tar_of

ROWS = pa.table(
    {
        "Zahl": pa.array([1, None, 3], pa.int16()),
        "jpg": pa.array([b"x" * 9000, b"y", None], pa.binary()),
        "txt": pa.array(["ä", "", None], pa.string()),
        "seg.x": pa.array([[1], None, []], pa.list_(pa.int8())),
        "none": pa.nulls(3),
    }
)


@pytest.fixture(params=[None, "zstd"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    out = f"{tmp_path}/out"
    with lading.writer(out, options={"compression": request.param}) as writer:
        writer.write_batch(ROWS)
    return out


def test_the_schema_is_what_every_way_gives(place: str) -> None:
    expected = ROWS.schema.set(1, pa.field("jpg", pa.large_binary()))
    with lading.open(place).with_decode(False) as ds:
        assert ds.schema.remove_metadata() == expected
        tables = [pa.Table.from_batches(ds.batches(max_rows=2)), ds.take([0, 1, 2]), ds.take([])]
        assert [table.schema.remove_metadata() for table in tables] == [expected] * 3
        assert tables[0].to_pylist() == tables[1].to_pylist() == ROWS.to_pylist()
        samples = ROWS.to_pylist()
        assert [ds[i] for i in (-1, 0, 1)] == [samples[-1], *samples[:2]]
        assert list(ds) == list(ds.samples(raw=True)) == ds.head() == samples
        assert ds.take([2, 0], columns=["txt", "Zahl"]).to_pydict() == {"Zahl": [3, 1], "txt": [None, "ä"]}


def test_payload_stays_where_it_is(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        writer.write_batch(ROWS)
    with lading.open(tmp_path / "out") as ds:
        [batch] = ds.batches(lazy=True)
        assert [field.name for field in batch.schema if is_ref(field.type)] == ["jpg"]
        assert batch.column("txt").to_pylist() == ["ä", "", None]


def test_members_of_samples_are_fetched_together() -> None:
    """20 columns of numbers of 50 rows are 1 MB of tar: read once for headers and once for values, not 20 times."""
    store = CountingStore(MemoryStore())
    stores = Stores({"memory://x": store})
    rows = pa.table({f"c{i:02d}": list(range(50)) for i in range(20)})
    with lading.writer("memory://x/out", stores=stores) as writer:
        writer.write_batch(rows)
    size = 50 * 20 * 1024
    with lading.open("memory://x/out", stores=stores, mmap=False) as ds:
        store.reset()
        assert pa.Table.from_batches(ds.batches()).equals(rows)
        assert store.bytes_read < 3 * size
        assert store.requests["get_ranges"] < 20


def test_many_rows_at_once_are_read_in_parts(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_types, "_COLUMN_BYTES", 10)
    with lading.open(place) as ds:
        assert ds.take([2, 1, 0, 1]).to_pylist() == ROWS.take([2, 1, 0, 1]).to_pylist()
        assert [len(batch) for batch in ds.batches()] == [1, 2]


def test_keys_that_were_made_are_no_column_but_can_be_asked_for(place: str) -> None:
    with lading.open(place).with_decode(False) as ds:
        assert ds.by_key("000000001") == ds[1]
        [keys] = ds.batches(columns=["__key__"])
        assert keys.to_pydict() == {"__key__": ["000000000", "000000001", "000000002"]}
    ending = next(Path(place).glob("*.tar*")).name.partition(".")[2]
    with lading.open(f"{place}/*.{ending}").with_decode(False) as plain:
        assert plain[0] == {"__key__": "000000000", "zahl": b"1", "jpg": b"x" * 9000, "seg.x": b"[1]", "txt": "ä"}


def test_keys_that_were_given_are_a_column_where_it_was(tmp_path: Path) -> None:
    rows = ROWS.append_column("__key__", pa.array(["a", "b/c", "d"]).dictionary_encode())
    with lading.writer(tmp_path / "out") as writer:
        writer.write_batch(rows)
    with lading.open(tmp_path / "out") as ds:
        assert ds.take([0, 1, 2]).to_pylist() == rows.to_pylist()
        assert ds.schema.field(5) == pa.field("__key__", pa.string())


def test_an_error_names_file_sample_and_column(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        writer.write_batch(ROWS)
    [tar] = (tmp_path / "out").glob("*.tar")
    data = tar.read_bytes()
    at = data.index(b"000000002.Zahl")
    tar.write_bytes(data[: at + 512] + b"x" + data[at + 513 :])
    with lading.open(tmp_path / "out").with_decode(False) as ds:
        for read in (lambda: ds[2], lambda: list(ds.batches()), lambda: ds.take([2])):
            with pytest.raises(DataError, match=r"shard-000000.tar sample '000000002' column 'Zahl'.*int16.*b'x'"):
                read()
        assert ds[1] == {**dict.fromkeys(ds.columns), "jpg": b"y", "txt": ""}


def test_a_manifest_with_a_type_that_no_member_holds(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        writer.write_batch(ROWS)
    store = LocalStore()
    manifest, shards = load_manifest(store, str(tmp_path / "out")) or pytest.fail("there is one")
    odd = replace(manifest, schema=pa.schema([("Zahl", pa.map_(pa.string(), pa.int8()))]))
    save_manifest(store, str(tmp_path / "out"), odd, shards)
    with pytest.raises(Unrepresentable, match="Zahl"):
        lading.open(tmp_path / "out")


def test_samples_as_dicts(tmp_path: Path) -> None:
    samples: list[dict[str, Any]] = [
        {"cls": 3, "score": 0.1, "ok": True, "json": {"a": [1.0]}, "jpg": b"1"},
        {"cls": -1, "score": float("inf"), "ok": False, "json": {"b": None}},
    ]
    with lading.writer(tmp_path / "out") as writer:
        for sample in samples:
            writer.write(sample)
    with lading.open(tmp_path / "out").with_decode(False) as ds:
        assert list(ds) == [samples[0], {**samples[1], "jpg": None}]
    manifest = json.loads((tmp_path / "out/_lading/manifest.json").read_text())
    assert manifest["options"] == {"members": "typed"}


def test_writers_of_many_ranks_make_different_keys(tmp_path: Path) -> None:
    for rank in range(2):
        with lading.writer(tmp_path / "out", rank=rank) as writer:
            for number in range(2):
                writer.write({"cls": rank * 10 + number})
    with lading.open(tmp_path / "out") as ds:
        assert [row["cls"] for row in ds] == [0, 1, 10, 11]
        [one, two] = ds.batches(columns=["__key__"])
    assert one.column(0).to_pylist() == ["00000-000000000", "00000-000000001"]
    assert two.column(0).to_pylist() == ["00001-000000000", "00001-000000001"]


def test_ranks_with_keys_and_without_are_no_dataset(tmp_path: Path) -> None:
    for rank, sample in enumerate(({"cls": 1}, {"cls": 2, "__key__": "a"})):
        with lading.writer(tmp_path / "out", rank=rank) as writer:
            writer.write(sample)
    with pytest.raises(SchemaMismatch, match="__key__"):
        lading.open(tmp_path / "out")


def test_rows_that_come_later_may_have_wider_types(tmp_path: Path) -> None:
    parts = [
        pa.table({"n": pa.array([1], pa.int8()), "t": ["ä"], "b": ["é"]}),
        pa.table({"n": pa.array([300], pa.int64()), "t": pa.array(["x"], pa.large_string()), "b": [b"\xff"]}),
        pa.table({"late": [1.5], "n": pa.nulls(1)}),
    ]
    with lading.writer(tmp_path / "out") as writer:
        for part in parts:
            writer.write_batch(part)
    with lading.open(tmp_path / "out") as ds:
        kinds = [pa.int64(), pa.large_string(), pa.large_binary(), pa.float64()]
        assert [ds.schema.types, ds.take([0]).schema.types] == [kinds] * 2
        expected = [{"n": 1, "t": "ä", "b": "é".encode()}, {"n": 300, "t": "x", "b": b"\xff"}, {"late": 1.5}]
        assert list(ds) == [{**dict.fromkeys(ds.columns), **each} for each in expected]


def test_a_column_that_may_not_be_null_may_be_missing_in_other_rows(tmp_path: Path) -> None:
    field = pa.field("n", pa.int8(), nullable=False)
    text = pa.field("t", pa.string())
    parts = [
        pa.table([[1], ["a"]], pa.schema([field, text])),
        pa.table({"t": ["b"]}),
        pa.table([[3], ["c"]], pa.schema([field.with_name("late"), text])),
    ]
    for name, some in (("one", parts[:1]), ("all", parts)):
        with lading.writer(tmp_path / name) as writer:
            for part in some:
                writer.write_batch(part)
    with lading.open(tmp_path / "one") as ds:
        assert ds.schema.field("n") == ds.take([0]).schema.field("n") == field
    with lading.open(tmp_path / "all") as ds:
        expected = [{"n": 1, "t": "a"}, {"t": "b"}, {"t": "c", "late": 3}]
        assert list(ds) == [{**dict.fromkeys(ds.columns), **each} for each in expected]


def test_it_is_said_that_keys_were_made(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        writer.write({"n": 1})
    assert writer.counts == {"rows without a key, named by their numbers": 1}


@pytest.mark.parametrize(
    "one, two",
    [
        ({"x": [1]}, {"x": [1.5]}),
        ({"x": [1]}, {"x": ["1"]}),
        ({"x": [1], "__key__": ["a"]}, {"x": [1]}),
        ({"x": [1]}, {"x": [1], "__key__": ["a"]}),
    ],
)
def test_rows_that_do_not_go_together(one: dict[str, Any], two: dict[str, Any], tmp_path: Path) -> None:
    writer = lading.writer(tmp_path / "out")
    writer.write_batch(pa.table(one))
    with pytest.raises(SchemaMismatch):
        writer.write_batch(pa.table(two))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "names, named",
    [(["A", "a"], ["'A'", "'a'"]), (["a/b"], ["a/b"]), (["__url__"], ["__url__"]), (["__KEY__"], ["__KEY__"]),
     (["__Local_Path__"], ["__Local_Path__"]), (["a\0"], ["a\\x00"])],
)  # fmt: skip
def test_names_that_a_reader_would_not_see(names: list[str], named: list[str], tmp_path: Path) -> None:
    rows = pa.table([pa.array([1])] * len(names), names=names)
    with pytest.raises(Unrepresentable) as caught, lading.writer(tmp_path / "out") as writer:
        writer.write_batch(rows)
    assert all(name in str(caught.value) for name in named)
    assert not (tmp_path / "out").exists()


def test_a_dataset_without_rows_keeps_its_types(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", schema=ROWS.schema):
        pass
    with lading.open(tmp_path / "out") as ds:
        assert ds.schema.names == ROWS.schema.names
        assert len(ds) == 0


@pytest.mark.soak
def test_members_of_a_copy_stand_for_what_they_stood_for(place: str, tmp_path: Path) -> None:
    lading.convert(place, tmp_path / "copy", format="webdataset", verify=True)
    assert lading.diff(place, tmp_path / "copy").equal
    with lading.open(place).with_decode(False) as one, lading.open(tmp_path / "copy").with_decode(False) as two:
        assert one.schema.equals(two.schema, check_metadata=True)
        assert list(one) == list(two)


def test_tars_by_others_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(tar_of(("a.JPG", b"1"), ("a.cls", b"7"), ("b.cls", b"x")))
    lading.convert(tmp_path / "in.tar", tmp_path / "copy", format="webdataset", verify=True)
    manifest = json.loads((tmp_path / "copy/_lading/manifest.json").read_text())
    assert manifest["options"] == {}
    with lading.open(tmp_path / "copy") as ds:
        assert [batch.to_pylist() for batch in ds.batches()] == [
            [{"__key__": "a", "jpg": b"1", "cls": b"7"}, {"__key__": "b", "jpg": None, "cls": b"x"}]
        ]
