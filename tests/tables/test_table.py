"""Datasets as tables: values equal those of `ds[i]`, and nothing is read that nobody asks for."""

from __future__ import annotations

import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from counted_files import CountedFiles
from golden_cases import Golden, case_names, load_spec
from lading._core.tables.table import RowTest, Table
from lading.errors import DataError, MissingExtra, SchemaMismatch, StoreError, Unrepresentable, UsageError
from tars import tar_of

_COUNT = 12


def _picture(width: int, height: int = 6) -> bytes:
    data = io.BytesIO()
    Image.effect_noise((width, height), 90).save(data, "png")
    return data.getvalue()


def _about(i: int) -> dict[str, Any]:
    return {"lang": ("en", "de", "fr")[i % 3], "n": i, "score": i / 7, "meta": {"tags": ["a"] * (i % 3), "ok": i > 5}}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two tars of pictures, JSON, text and labels."""
    for shard in range(2):
        members = [
            member
            for i in range(shard * _COUNT, shard * _COUNT + _COUNT)
            for member in (
                (f"{i:03}.png", _picture(8 + i)),
                (f"{i:03}.json", json.dumps(_about(i)).encode()),
                (f"{i:03}.txt", f"picture {i}".encode()),
                (f"{i:03}.cls", str(i % 4).encode()),
            )
        ]
        (tmp_path / f"photos-{shard}.tar").write_bytes(tar_of(*members))
    return tmp_path


def _table(source: str | Path) -> Table:
    opened = lading.open(source).query.opened
    assert opened is not None
    return Table(opened)


def _jsons(folder: Path, *texts: str) -> lading.Dataset:
    path = folder / "json.tar"
    path.write_bytes(tar_of(*((f"{i:05}.json", text.encode()) for i, text in enumerate(texts))))
    return lading.open(path)


def test_a_table_has_the_values_of_samples(photos: Path) -> None:
    table = lading.open(photos).to_arrow(media="bytes")
    samples = [*lading.open(photos).with_decode(False)]
    assert table.to_pylist() == samples
    assert table.schema.field("json").type == pa.struct(
        {"lang": pa.string(), "n": pa.int64(), "score": pa.float64(),
         "meta": pa.struct({"tags": pa.list_(pa.string()), "ok": pa.bool_()})}
    )  # fmt: skip


def test_references_are_the_places_of_the_bytes_and_facts_of_headers(photos: Path) -> None:
    for row, sample in zip(lading.open(photos).to_arrow().to_pylist(), lading.open(photos), strict=True):
        place = row["png"]
        with open(place["url"], "rb") as file:
            file.seek(place["offset"])
            picture = Image.open(io.BytesIO(file.read(place["length"])))
        assert picture.tobytes() == sample["png"].tobytes()
        assert (place["format"], place["width"], place["height"]) == ("png", *sample["png"].size)


def test_every_program_reads_the_same_rows(photos: Path) -> None:
    ds = lading.open(photos)
    expected = [(i % 4, _about(i)["lang"], 8 + i) for i in range(2 * _COUNT)]
    query = "select cls, json.lang, png.width from ds order by json.n"
    assert duckdb.sql(query).fetchall() == expected
    assert pa.table(ds).equals(ds.to_arrow())
    for frame in (pl.DataFrame(ds), ds.to_polars(), ds.to_polars(lazy=True).collect()):
        lang, width = frame["json"].struct.field("lang"), frame["png"].struct.field("width")
        assert [*zip(frame["cls"], lang, width, strict=True)] == expected
    frame = ds.to_pandas()
    fields = frame["json"].struct.field("lang"), frame["png"].struct.field("width")
    assert [*zip(frame["cls"], *fields, strict=True)] == expected
    assert frame["cls"].dtype == pd.ArrowDtype(pa.int64())


def test_a_stream_begins_anew_and_is_lazy(photos: Path) -> None:
    ds = lading.open(photos).where("json.n >= 20")
    assert ds.to_arrow().equals(ds.to_arrow())
    reader = ds.to_reader()
    (photos / "photos-0.tar").unlink()  # rows are read when they are asked for
    with pytest.raises(StoreError, match="photos-0"):
        reader.read_all()


def test_a_struct_has_the_named_fields_alone(photos: Path) -> None:
    table = _table(photos)
    columns = ["png.width", "json.meta.tags", "json.lang", "txt"]
    schema = table.schema_of(columns)
    assert [str(field.type) for field in schema] == [
        "struct<width: int64>", "struct<lang: string, meta: struct<tags: list<item: string>>>", "string",
    ]  # fmt: skip
    rows = table.reader(columns, limit=2).read_all().to_pylist()
    assert rows[1] == {"png": {"width": 9}, "json": {"lang": "de", "meta": {"tags": ["a"]}}, "txt": "picture 1"}
    for wrong, answer in (("json.lagn", "Did you mean lang"), ("jsn.lang", "Did you mean json"), ("png.w", "width")):
        with pytest.raises(UsageError, match=answer):
            table.schema_of([wrong])


def test_a_test_keeps_rows_before_other_columns_are_read(photos: Path) -> None:
    keep = RowTest.of((pc.field("json", "lang") == "de") & (pc.field("png", "width") > 20), ["json.lang", "png.width"])
    table = _table(photos)
    assert table.reader(["txt"], keep).read_all()["txt"].to_pylist() == [f"picture {i}" for i in (13, 16, 19, 22)]
    assert table.reader(["txt", "json"], keep, 2).read_all()["json"].to_pylist() == [_about(13), _about(16)]
    assert table.reader([], keep).read_all().num_rows == 4


def test_a_count_of_remote_tars_reads_no_picture(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADING_CACHE", str(photos / "cache"))
    big = [(f"{i}.{name}", data) for i in range(4) for name, data in
           (("jpg", bytes(3_000_000)), ("json", json.dumps(_about(i)).encode()))]  # fmt: skip
    (photos / "big").mkdir()
    (photos / "big/a.tar").write_bytes(tar_of(*big))
    lading.convert(photos / "big", photos / "indexed", format="webdataset")
    CountedFiles.begin()
    keep = RowTest.of(pc.field("json", "lang") == "en", ["json.lang"])
    assert _table(f"counted://{photos}/indexed").reader([], keep).read_all().num_rows == 2
    assert CountedFiles.read_bytes < 100_000


def test_selected_columns_need_no_look_at_all_shards(photos: Path) -> None:
    (photos / "photos-1.tar").write_bytes(b"no tar" * 1000)
    ds = lading.open(sorted(photos.glob("*.tar"))).limit(2)
    assert ds.select("txt").to_arrow()["txt"].to_pylist() == ["picture 0", "picture 1"]
    with pytest.raises(DataError, match="photos-1"):
        ds.to_arrow()


def test_polars_reads_the_columns_and_rows_of_its_query_alone(photos: Path) -> None:
    (photos / "photos-1.tar").write_bytes(tar_of(("900.json", b'{"lang": "en"}'), ("900.txt", b"\xff no text")))
    frame = lading.open(photos).to_polars(lazy=True)
    is_english = pl.col("json").struct.field("lang") == "en"
    assert frame.filter(is_english).select(pl.len()).collect().item() == 5
    assert frame.select("txt").head(3).collect()["txt"].to_list() == ["picture 0", "picture 1", "picture 2"]
    assert frame.filter(is_english & pl.col("cls").is_not_null()).select("txt").collect().height == 4
    assert [frame.filter(pl.lit(each)).select(pl.len()).collect().item() for each in (True, False)] == [13, 0]
    with pytest.raises(Unrepresentable, match=r"photos-1.*sample '900'.*invalid UTF-8"):
        frame.select("txt").collect()


@pytest.mark.parametrize(
    "texts, kind, values",
    [
        (['{"a": 1}', '{"a": 2.5}'], "struct<a: double>", [{"a": 1.0}, {"a": 2.5}]),
        (['{"a": 1}', "{}", "null"], "struct<a: int64>", [{"a": 1}, {"a": None}, None]),
        (['{"a": 1}', '{"a": "x"}'], "struct<a: string>", [{"a": "1"}, {"a": '"x"'}]),
        (['{"a": 9007199254740993}', '{"a": 0.5}'], "struct<a: string>", [{"a": "9007199254740993"}, {"a": "0.5"}]),
        (['{"a": 18446744073709551616}'], "struct<a: string>", [{"a": "18446744073709551616"}]),
        (['{"a": [1, [2]]}'], "struct<a: list<item: string>>", [{"a": ["1", "[2]"]}]),
        (['{"a": []}', '{"a": null}'], "struct<a: list<item: string>>", [{"a": []}, {"a": None}]),
        (['{"a": "2024-01-01"}'], "struct<a: string>", [{"a": "2024-01-01"}]),
        (['{"a": 1, "a": 2}'], "struct<a: int64>", [{"a": 2}]),
        (['{"a": NaN}', '{"a": -Infinity}'], "struct<a: double>", [{"a": float("nan")}, {"a": -np.inf}]),
        (['"\\ud800"', '"x"'], "string", ['"\\ud800"', '"x"']),
        (["[1, 2]", "[]"], "list<item: int64>", [[1, 2], []]),
        (['{"a": {}}'], "struct<a: string>", [{"a": "{}"}]),
        (['{\n "a": "ü"\n}', ' {"a": ""}\r\n'], "struct<a: string>", [{"a": "ü"}, {"a": ""}]),
    ],
)
def test_json_has_the_type_that_holds_its_values(tmp_path: Path, texts: list[str], kind: str, values: Any) -> None:
    column = _jsons(tmp_path, *texts).to_arrow()["json"]
    assert str(column.type) == kind
    np.testing.assert_equal(column.to_pylist(), values)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "late, column, found",
    [
        ('{"a": {"b": "x"}}', "json.a.b", "'x'"),
        ('{"a": {"b": 1.0}}', "json.a.b", "1.0"),
        ('{"a": {"b": 9223372036854775808}}', "json.a.b", "9223372036854775808"),
        ('{"a": {"b": 1, "c": true}}', "json.a.c", "True"),
        ('{"a": [1]}', "json.a", r"\[1\]"),
        ("[]", "json", r"\[\]"),
    ],
)
def test_a_later_misfit_is_an_error_with_its_place(tmp_path: Path, late: str, column: str, found: str) -> None:
    ds = _jsons(tmp_path, *['{"a": {"b": 1}}'] * 1000, late)
    with pytest.raises(SchemaMismatch, match=rf"sample '01000'.*column '{column}'.*found {found}.*json='text'"):
        ds.to_arrow()
    assert ds.to_arrow(json="text")["json"][1000].as_py() == late


@pytest.mark.cases(2)
@pytest.mark.parametrize("text", ['{"a": 1', '{"a": 1} {"a": 2}', '{"a": 1},', "\u00a0{}", '{"a": 01}', '{"a": "\n"}'])
@pytest.mark.parametrize("before", [2, 1001])  # within the samples that give the types, and behind them
def test_broken_json_is_an_error_that_names_the_sample(tmp_path: Path, text: str, before: int) -> None:
    with pytest.raises(DataError, match=rf"json\.tar sample '{before:05}' column 'json'.*json=\"text\""):
        _jsons(tmp_path, *['{"a": 1}'] * before, text).to_arrow()


def test_shards_may_have_other_columns_and_types(tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    (tmp_path / "tars/0.tar").write_bytes(tar_of(("0.txt", b"a")))
    (tmp_path / "tars/1.tar").write_bytes(tar_of(("1.txt", b"b"), ("1.cls", b"7")))
    assert lading.open(tmp_path / "tars").to_arrow().to_pylist() == [
        {"__key__": "0", "txt": "a", "cls": None}, {"__key__": "1", "txt": "b", "cls": 7},
    ]  # fmt: skip
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines/0.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "lines/1.jsonl").write_text('{"a": 2.5, "b": "x"}\n')
    rows = lading.open(tmp_path / "lines").to_arrow().to_pylist()
    assert rows == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}]


@pytest.mark.filterwarnings("ignore:a bad shard is skipped")
def test_bad_shards_are_left_out_where_that_is_asked_for(photos: Path) -> None:
    whole = (photos / "photos-1.tar").read_bytes()
    (photos / "photos-1.tar").write_bytes(whole[: whole.index(b"014.json") + 100])  # in a header
    with pytest.raises(DataError, match="photos-1"):
        lading.open(photos).to_arrow()
    ds = lading.open(photos, on_bad_shard="skip")
    assert ds.to_arrow()["txt"].to_pylist() == [f"picture {i}" for i in range(_COUNT)]
    assert [bad.file for bad in ds.skipped_shards] == [str(photos / "photos-1.tar")]


def test_bytes_without_a_range_of_their_own_have_no_offset(tmp_path: Path, photos: Path) -> None:
    picture = _picture(20)
    cells = pa.table({"image": [{"bytes": picture, "path": "a.png"}]})
    pq.write_table(cells, tmp_path / "a.parquet")
    [row] = lading.open(tmp_path / "a.parquet").to_arrow().to_pylist()
    place = row["image"]
    assert (place["url"], place["offset"], place["length"], place["width"]) == (None, None, len(picture), 20)
    assert lading.open(tmp_path / "a.parquet").to_arrow(media="bytes")["image"].to_pylist() == [picture]


def test_wrong_arguments_name_those_that_are_known(photos: Path) -> None:
    with pytest.raises(UsageError, match="'reference' or 'bytes'"):
        lading.open(photos).to_arrow(media="lazy")  # type: ignore[arg-type] # refused
    with pytest.raises(UsageError, match="'typed' or 'text'"):
        lading.open(photos).to_arrow(json="str")  # type: ignore[arg-type] # refused


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_library_says_how_it_is_installed(photos: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type] # as Python marks a module that is not there
    with pytest.raises(MissingExtra, match=rf"{name}, which is not installed.*pip install 'lading\[{name}\]'"):
        getattr(lading.open(photos), f"to_{name}")()


def test_rows_of_documents_are_their_items(golden: Golden) -> None:
    folder = golden("interleaved") / "tar-basic"
    ds = lading.open(next(folder.glob("*.tar")))
    expected = pa.Table.from_batches(ds.batches())
    table = ds.to_arrow(media="bytes")
    for name in ("sample_id", "position", "modality", "text_content", "binary_content"):
        assert table[name].to_pylist() == expected[name].to_pylist()


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*members of a sample do not stand together")
@pytest.mark.parametrize("family", ["arrow", "arrow-files", "interleaved", "manifests", "mds", "wds"])
def test_every_program_reads_every_format(golden: Golden, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    for case in case_names(family):
        monkeypatch.chdir(golden(family) / case)
        spec = load_spec(golden(family) / case)
        asked = [spec, *spec.get("views", [])]
        files = next((each["open"]["files"] for each in asked if "files" in each.get("open", {})), ["."])
        try:
            ds = lading.open("data" if family == "manifests" else files)
            samples = None if ds.view == "interleaved" else [*ds.with_decode(False)]
        except lading.errors.LadingError:
            continue  # several splits or formats
        if not ds.columns or case == "source-refs":  # whose references are broken
            continue
        table = ds.to_arrow(media="bytes", json="text")
        if samples is None:
            expected = pa.Table.from_batches(ds.batches())
            for name in ("sample_id", "position", "modality", "text_content", "binary_content"):
                assert table[name].to_pylist() == expected[name].to_pylist(), case
        else:
            for row, sample in zip(table.to_pylist(), samples, strict=True):
                for name, value in sample.items():
                    assert _same(row[name], value), (case, name)
        assert len(ds.to_pandas()) == len(ds.to_polars()) == len(ds.to_polars(lazy=True).collect()) == len(table), case
        assert len(duckdb.sql("select * from ds").fetchall()) == len(table), case
        read += 1
    assert read > 1


def _same(found: Any, value: Any) -> bool:
    if isinstance(found, bytes) and not isinstance(value, bytes):
        return True  # arrays and such, which a table shows as they are stored
    if isinstance(value, Decimal):
        return Decimal(found).compare_total(value) == 0  # NaN, too
    if isinstance(found, str) and isinstance(value, float):
        return repr(float(found)) == repr(value)
    if isinstance(found, str) and found != value:
        return bool(json.loads(found) == value)  # JSON, and long integers
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return bool(found == value or (found != found and value != value))  # noqa: PLR0124 - NaN
