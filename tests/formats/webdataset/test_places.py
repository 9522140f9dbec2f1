"""Single samples of tars by their places: the same as in iteration, and without a step of Python too many."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.types import Array, Json, with_feature
from lading._core.formats.base import ShardFile
from lading._core.formats.webdataset.format import FORMAT, WebdatasetReader
from lading._core.storage.local import LocalStore
from lading.errors import CorruptShard, DataError, LadingError
from tars import energon_index, tar_of

Members = list[tuple[str, bytes]]

WHOLE: Members = [
    (f"{i:03d}.{field}", data)
    for i in range(9)
    for field, data in (("jpg", bytes([i]) * 9000), ("txt", f"é {i}".encode()), ("json", b'{"a": [%d, null]}' % i),
                        ("cls", b"%d" % i))
]  # fmt: skip
SPARSE: Members = [m for n, m in enumerate(WHOLE) if n % 3]
LATE: Members = [m for m in WHOLE if m[0] > "004" or not m[0].endswith("json")]


def reader_of(path: Path, **options: Any) -> WebdatasetReader:
    return FORMAT.open(ShardFile(LocalStore(), str(path)), FORMAT.read_options(options))


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of Python functions that are called."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count - 1


def _content(sample: dict[str, Any]) -> str:
    """Return a text that tells -0.0 from 0.0, and compares arrays. The order of members is that of a batch."""
    return repr(sorted(sample.items()))


def check_laws(source: object, **opening: Any) -> list[dict[str, Any]]:
    """Return the samples, after a check that they are the same however they are asked for."""
    with lading.open(source, **opening).with_decode(False) as ds:  # type: ignore[arg-type]
        samples = list(ds)
        assert [_content(ds[i]) for i in range(len(ds))] == [_content(sample) for sample in samples]
        order = [*reversed(range(len(samples))), 0]
        for views in (False, True):
            table = ds.take(order, views=views)
            assert table.num_rows == len(order)
            for name in table.column_names:
                found = ds.take(order, [name], views=views)[name].to_pylist()
                assert found == table[name].to_pylist()
        return samples


@pytest.mark.cases(3)
@pytest.mark.parametrize("members", [WHOLE, SPARSE, LATE], ids=["whole", "missing members", "late columns"])
@pytest.mark.parametrize("options", [{}, {"mmap": False}, {"regroup": True}, {"lower_case": False}], ids=str)
def test_samples_by_number_are_those_of_iteration(tmp_path: Path, members: Members, options: dict[str, Any]) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar_of(*members))
    found = check_laws(path, options=options)
    expected: dict[str, dict[str, bytes]] = {}
    for name, data in members:
        key, _, field = name.partition(".")
        expected.setdefault(key, {})[field] = data
    assert [{*sample} for sample in found] == [{"__key__", *fields} for fields in expected.values()]
    for sample, fields in zip(found, expected.values(), strict=True):
        assert sample.get("jpg") == fields.get("jpg")
        assert sample.get("txt") == (fields["txt"].decode() if "txt" in fields else None)
        assert sample.get("cls") == (int(fields["cls"]) if "cls" in fields else None)
    reader = reader_of(path, **options)
    get = reader.sample_getter()
    assert get is not None
    assert all(get(row) is not None for row in range(reader.num_rows()))


def test_shards_that_differ_in_columns(tmp_path: Path) -> None:
    for name, members in (("0", WHOLE), ("1", [m for m in SPARSE if not m[0].endswith("txt")]), ("2", LATE)):
        (tmp_path / f"{name}.tar").write_bytes(tar_of(*members))
    assert len(check_laws(tmp_path)) == 27


def test_members_are_bytes_where_batches_have_them(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar_of(*SPARSE))
    with lading.open(path) as ds:
        rows = pa.Table.from_batches(ds.batches()).to_pylist()
        assert ds.take(range(len(rows))).to_pylist() == rows
        shown = ds.take([4, 1], ["txt", "jpg"], views=True)
    assert shown.column_names == ["txt", "jpg"]
    assert shown.schema.types == [pa.binary_view()] * 2
    assert shown.to_pylist() == [{name: rows[i][name] for name in ("txt", "jpg")} for i in (4, 1)]


def test_views_are_over_the_map_and_outlive_the_dataset(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar_of(*WHOLE))
    before = pa.total_allocated_bytes()
    with lading.open(path) as ds:
        ds.take([0])
        held = pa.total_allocated_bytes()
        shown = ds.take([8, 3], ["jpg"], views=True)
        assert pa.total_allocated_bytes() - held < 9000
        copied = ds.take([8, 3], ["jpg"])
        assert pa.total_allocated_bytes() - held > 2 * 9000
    path.unlink()
    assert shown["jpg"].to_pylist() == copied["jpg"].to_pylist() == [bytes([i]) * 9000 for i in (8, 3)]
    del shown, copied
    assert pa.total_allocated_bytes() <= before + 9000


def test_compressed_tars_and_sparse_members_are_left_to_read(tmp_path: Path) -> None:
    packed = tmp_path / "t.tar.gz"
    packed.write_bytes(gzip.compress(tar_of(*SPARSE)))
    assert len(check_laws(packed)) == 9
    assert reader_of(packed).sample_getter() is None
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as tar:
        sparse = {"major": "1", "minor": "0", "name": "b.bin", "realsize": "8"}
        for name, told in (("a.bin", {}), ("b.bin", {f"GNU.sparse.{key}": value for key, value in sparse.items()})):
            info = tarfile.TarInfo(name)
            info.pax_headers, info.size = told, 512 + 4
            tar.addfile(info, io.BytesIO(b"1\n4\n4\n".ljust(512, b"\0") + b"data"))
    path = tmp_path / "t.tar"
    path.write_bytes(body.getvalue())
    with lading.open(path) as ds:
        assert list(ds)[1] == {"__key__": "b", "bin": b"\0\0\0\0data"}
        with pytest.raises(DataError, match="sparse"):
            ds[0]


@pytest.mark.soak
def test_a_few_samples_by_a_sidecar_do_not_walk_over_the_tar(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    tar = tar_of(*[(f"{i:05d}.txt", b"%d" % i) for i in range(200)])
    path.write_bytes(tar)
    Path(f"{path}.idx").write_bytes(energon_index(tar))
    reader = reader_of(path)
    assert [reader.find_places(row) is None for row in (8, 56, 1, 1)] == [True, True, False, False]
    assert len(check_laws(path)) == 200


@pytest.mark.soak
def test_damage_elsewhere_in_a_tar_with_a_sidecar_leaves_other_samples(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    tar = bytearray(tar_of(*[(f"{i:05d}.txt", b"%d" % i) for i in range(200)]))
    Path(f"{path}.idx").write_bytes(energon_index(bytes(tar)))
    tar[150 * 1024 : 150 * 1024 + 100] = b"\xff" * 100  # none of the entries that are compared when it is opened
    path.write_bytes(tar)
    get = reader_of(path).sample_getter()
    assert get is not None
    assert [get(1) for _ in range(100)] == [None] * 100
    with lading.open(path, view="samples") as ds:
        assert [ds[i % 100]["txt"] for i in range(200)] == [str(i % 100) for i in range(200)]


def error_of(work: Callable[[], object]) -> str:
    with pytest.raises(LadingError) as caught:
        work()
    return str(caught.value)


@pytest.mark.parametrize("broken", [("txt", b"\xff"), ("json", b"{"), ("cls", b"x")], ids=lambda each: each[0])
def test_errors_of_values_name_file_sample_and_column(tmp_path: Path, broken: tuple[str, bytes]) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar_of(*WHOLE, (f"100.{broken[0]}", broken[1])))
    with lading.open(path).with_decode(False) as ds:
        assert ds[8]["txt"] == "é 8"
        found = error_of(lambda: ds[9])
        assert found == error_of(lambda: list(ds))
        assert all(part in found for part in (str(path), "100", broken[0]))


def test_a_tar_cut_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tar_of(*WHOLE))
    with lading.open(path).with_decode(False) as ds:
        assert ds[8]["cls"] == 8
        os.truncate(path, 40_000)
        for number in (1, 8):
            with pytest.raises(CorruptShard, match="changed while it was open"):
                ds[number]
        with pytest.raises(CorruptShard, match="changed while it was open"):
            ds.take([8, 7], views=True)


TYPED = pa.table(
    {
        "text": pa.array(["a", None, "é"]), "big": pa.array(["x" * 20_000, "", None], pa.large_string()),
        "int8": pa.array([-128, 127, None], pa.int8()), "uint64": pa.array([2**64 - 1, 0, 10**18], pa.uint64()),
        "int64": pa.array([-(2**63), 2**63 - 1, 10**18 - 1]), "float": pa.array([0.1, float("inf"), -0.0]),
        "float32": pa.array([0.1, None, 1e30], pa.float32()), "bool": pa.array([True, False, None]),
        "none": pa.nulls(3), "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1.5, "b": "x"}, {"a": None, "b": None}, None]),
        "date": pa.array([0, 20_000, None], pa.date32()),
        "time": pa.array([0, 10**15, None], pa.timestamp("us", "UTC")),
        "bytes": pa.array([b"\0" * 20_000, b"", None], pa.large_binary()),
        "json": pa.array(['{"a": [1]}', "null", None]), "array": pa.array([bytes(12), None, bytes(range(12))]),
    }
)  # fmt: skip


def test_typed_columns_are_those_of_iteration(tmp_path: Path) -> None:
    schema = TYPED.schema
    for name, feature in (("json", Json()), ("array", Array("int16", (2, 3)))):
        at = schema.get_field_index(name)
        schema = schema.set(at, with_feature(schema.field(at), feature))
    rows = TYPED.cast(schema)
    with DatasetWriter(tmp_path / "out", format="webdataset") as writer:
        for batch in rows.to_batches(max_chunksize=2):
            writer.write_batch(batch)
    found = check_laws(tmp_path / "out")
    for name in ("text", "big", "int8", "uint64", "int64", "float", "float32", "bool", "none", "list", "struct", "date",
                 "time", "bytes"):  # fmt: skip
        assert [sample[name] for sample in found] == TYPED[name].to_pylist(), name
    assert [sample["json"] for sample in found] == [{"a": [1]}, None, None]
    assert found[1]["array"] is None
    assert np.array_equal(found[2]["array"], np.frombuffer(bytes(range(12)), "<i2").reshape(2, 3))
    with lading.open(tmp_path / "out").with_decode(False) as ds:
        ds[0]
        assert calls_of(lambda: ds[2]) < 200
        table = ds.take([2, 0], ["int8", "text", "bytes", "list"], views=True)
        assert table.drop_columns("bytes").to_pylist() == rows.select(["int8", "text", "list"]).take([2, 0]).to_pylist()
        assert table.schema.field("bytes").type == pa.binary_view()


def test_a_member_that_does_not_fit_its_column_is_the_error_of_iteration(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "out", format="webdataset") as writer:
        writer.write_batch(pa.record_batch({"a": pa.array([1234, 5678])}))
    [path] = (tmp_path / "out").glob("*.tar")
    path.write_bytes(path.read_bytes().replace(b"5678", b"56x8"))
    with lading.open(tmp_path / "out") as ds:
        assert ds[0] == {"a": 1234}
        found = error_of(lambda: ds[1])
        assert found == error_of(lambda: list(ds)) == error_of(lambda: ds.take([1]))
        assert "56x8" in found


@pytest.mark.parametrize("name", ["webdataset", "mds", "arrow"])
def test_a_sample_takes_few_calls(tmp_path: Path, name: str) -> None:
    """900 before tars were read by the places in their index."""
    rows = pa.table({"img": [b"x" * 1000] * 50, "txt": ["text"] * 50, "n": [*range(50)]})
    with DatasetWriter(tmp_path / "out", format=name) as writer:
        writer.write_batch(rows.combine_chunks().to_batches()[0])
    with lading.open(tmp_path / "out").with_decode(False) as ds:
        ds[3]
        ds.take([3], views=True)
        assert calls_of(lambda: ds[7]) <= 40
        for rows_taken in (50, 500):
            # Texts of a tar are read by a call for each.
            most = 400 + 4 * rows_taken * (name == "webdataset")
            assert calls_of(lambda: ds.take(np.arange(rows_taken) % 50, views=True)) <= most  # noqa: B023
