"""`lading.sql`: what DuckDB gives of the same rows in memory, and what is read for it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset
from PIL import Image

import lading
from counted_files import CountedFiles
from lading._core.api.sql import query_dataset
from lading._core.tables.sql.database import Showing
from lading.errors import BadReference, LadingError, SchemaMismatch, SourceNotFound, UnknownArgument, UsageError

_LANGUAGES = ("en", "de", "fr")


def _picture(number: int) -> bytes:
    body = io.BytesIO()
    Image.new("RGB", (16 * (1 + number % 4), 16), (number, 0, 0)).save(body, "PNG")
    return body.getvalue()


def _write_tar(path: Path, numbers: range, *, padding: int = 0) -> None:
    """Write a tar as people make them; pictures are followed by so many zeros."""
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            about = {"lang": _LANGUAGES[number % 3], "score": number / 8, "tags": ["a"] * (number % 3)}
            members = {"png": _picture(number) + bytes(padding), "json": json.dumps(about).encode()}
            if number % 5:
                members["txt"] = f"text {number}".encode()
            for name, data in members.items():
                info = tarfile.TarInfo(f"{number:04d}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for shard in range(3):
        _write_tar(folder / f"{shard}.tar", range(20 * shard, 20 * shard + 20))
    return folder


_QUERIES = (
    "select json.lang, count(*), sum(png.width), avg(json.score) from ds group by 1 order by 1",
    "select count(*) from ds",
    "select count(*) from ds where json.lang = 'en'",
    "select __key__, txt from ds where txt is null or json.score between 2 and 3",
    "select __key__ from ds where json.lang in ('de', 'fr') and png.width > 32 order by json.score desc limit 3",
    "select * from ds where txt like '%7'",
    "select d from ds d limit 2",
    "select a.__key__, b.json.tags from ds a join ds b using (__key__) where len(b.json.tags) > 1 order by 1",
    "with x as (select json.lang l, png.width w from ds) select l, max(w) from x group by all order by 1",
    "select __key__ from ds where json.lang = 'en' or png.width = 16 limit 5 offset 4",
    "select count(png), count(txt), count(json.tags) from ds where png is not null",
    "select json.lang, json from ds where json.score > 6 and lower(txt) = txt",
    "select (select count(*) from ds where png.height = 16) - (select count(*) from ds where json.lang = 'de')",
)


def test_results_are_those_of_duckdb_over_the_rows_in_memory(photos: Path) -> None:
    dataset = lading.open(photos)
    rows = dataset.to_arrow()
    with duckdb.connect() as connection:
        connection.register("ds", rows)
        for query in _QUERIES:
            expected = connection.sql(query).to_arrow_table()
            found = lading.sql(query, ds=dataset).to_arrow()
            assert found.to_pylist() == expected.to_pylist(), query


def test_files_are_named_in_quotes_and_joined_with_what_open_takes(photos: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"lang": ["en", "de"], "name": ["English", "Deutsch"]}), tmp_path / "names.parquet")
    query = "select name, count(*) n from '{0}' p join {1} t on p.json.lang = t.lang group by 1 order by 1"
    expected = [{"name": "Deutsch", "n": 20}, {"name": "English", "n": 20}]
    by_name = lading.sql(query.format(f"{photos}/*.tar", f"'{tmp_path}/names.parquet'"))
    assert by_name.to_arrow().to_pylist() == expected
    given = lading.sql(query.format(photos, "Names"), names=tmp_path / "names.parquet")
    assert given.to_arrow().to_pylist() == expected


def test_fields_of_stored_structs_are_read_alone(tmp_path: Path) -> None:
    rows = pa.table({"s": [{"a": 1, "b": {"c": "x", "d": 2}}, None, {"a": 3, "b": None}], "n": [1, 2, 3]})
    pq.write_table(rows, tmp_path / "t.parquet")
    for query in (
        "select s.a, n from ds where s.b.c = 'x' or n > 1",
        "select s.b.d, count(*) from ds group by 1 order by 1",
        "select count(*) from ds where s is null",
        "select count(s) from ds where s.a > 1",
    ):
        with duckdb.connect() as connection:
            connection.register("ds", rows)
            expected = connection.sql(query).to_arrow_table()
        assert lading.sql(query, ds=tmp_path / "t.parquet").to_arrow().to_pylist() == expected.to_pylist(), query


def test_a_selected_picture_is_the_picture_again_when_the_result_is_read_or_written(
    photos: Path, tmp_path: Path
) -> None:
    found = lading.sql(
        f"select __key__, png, json.lang as txt from '{photos}' where json.score > 7 order by __key__ desc"
    )
    assert found[0]["png"].size == Image.open(io.BytesIO(_picture(59))).size
    assert found.to_arrow().column("png")[0].as_py()["width"] == 64
    found.write(tmp_path / "out", format="webdataset")
    [tar] = (tmp_path / "out").glob("*.tar")
    with tar.open("rb") as file:
        members = webdataset.tariterators.tar_file_expander([{"url": str(tar), "stream": file}])
        samples = [*webdataset.tariterators.group_by_keys(members)]
    numbers = [59, 58, 57]
    assert [(one["__key__"], one["png"], one["txt"]) for one in samples] == [
        (f"{n:04d}", _picture(n), _LANGUAGES[n % 3].encode()) for n in numbers
    ]


def test_no_byte_of_a_picture_is_read_for_a_count_by_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    _write_tar(tmp_path / "plain.tar", range(20), padding=100_000)
    lading.open(tmp_path / "plain.tar").write(tmp_path / "own", format="webdataset", num_shards=2)
    CountedFiles.begin()
    found = lading.sql(f"select count(*) n from 'counted://{tmp_path}/own' where json.lang = 'en'")
    assert found.to_arrow().to_pylist() == [{"n": 7}]
    index = sum(path.stat().st_size for path in (tmp_path / "own" / "_lading").iterdir())
    documents = 20 * 60
    assert CountedFiles.read_bytes < index + documents + 60 * 512  # the index, JSON, and headers between


def test_json_of_several_kinds_is_written_as_it_was(tmp_path: Path) -> None:
    documents = [{"a": 5, "b": {}}, {"a": "x", "b": {}}, {"a": [1], "b": {}}]
    with webdataset.TarWriter(str(tmp_path / "0.tar")) as tar:
        for number, document in enumerate(documents):
            tar.write({"__key__": f"{number}", "json": document})
    found = lading.sql("select __key__, json from ds where json.a <> 'y'", ds=tmp_path / "0.tar")
    assert found.to_arrow()["json"].to_pylist()[1] == {"a": '"x"', "b": "{}"}
    assert [each["json"] for each in found] == documents
    found.write(tmp_path / "out", format="webdataset")
    [shard] = (tmp_path / "out").glob("*.tar")
    with tarfile.open(shard) as written:
        assert [json.load(written.extractfile(member)) for member in written] == documents  # type: ignore[arg-type] # files


def test_a_limit_ends_the_reading(photos: Path) -> None:
    CountedFiles.begin()
    found = lading.sql(f"select txt from 'counted://{photos}/*.tar' where txt is not null limit 2")
    assert found.to_arrow().to_pylist() == [{"txt": "text 1"}, {"txt": "text 2"}]
    assert CountedFiles.read_bytes < 2.5 * (photos / "0.tar").stat().st_size  # of three


def test_bytes_that_have_no_place_are_selected_as_bytes(tmp_path: Path) -> None:
    pictures = [_picture(number) for number in range(3)]
    with lading.writer(tmp_path / "p", format="parquet") as out:
        for picture in pictures:
            out.write({"png": picture, "n": len(picture)})
    query = "select png from ds"
    places = lading.sql(query, ds=lading.open(tmp_path / "p"))
    assert places.to_arrow().column("png")[1].as_py()["width"] == 32
    assert "width" in repr(places)
    with pytest.raises(BadReference, match=r"no place of their own.*media='bytes'"):
        list(places)
    whole = lading.sql(query, ds=lading.open(tmp_path / "p"), media="bytes")
    assert whole.with_decode(False)["png"].to_pylist() == pictures


def test_json_that_does_not_fit_is_an_error_of_the_sample(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "d", format="webdataset") as out:
        for number in range(1001):
            out.write({"__key__": f"{number:04d}", "json": {"n": number if number < 1000 else "x", "m": 1}})
    dataset = lading.open(tmp_path / "d")
    with pytest.raises(SchemaMismatch, match=r"'1000'.*json\.n.*json='text'"):
        lading.sql("select sum(json.n) from ds", ds=dataset)
    assert lading.sql("select sum(json.m) from ds", ds=dataset).to_arrow().to_pylist() == [{'sum("json".m)': 1001}]
    found = lading.sql("select json from ds where contains(json, 'x')", ds=dataset, json="text")
    assert len(found) == 1


@pytest.mark.cases(99)
@pytest.mark.parametrize(
    "query, error",
    [
        ("select lang from ds", r"no such column in the query.*found lang.*json\.lang"),
        ('select 1 from ds where json.lang = "en"', "single quotes: 'en'"),
        ("select json.long from ds", 'Could not find key "long"'),
        ("select d.txt from ds", "no such table or column in the query.*found d"),
        ("select 1 from dss", "no such table, file or folder.*Did you mean ds"),
        ("select 1 from photos.tar", "Write: from 'photos.tar'"),
        ("select * from read_csv('/etc/passwd')", "reads datasets alone"),
        ("select * from read_text('/etc/passwd')", "reads datasets alone"),
        ("select * from glob('/etc/*')", "reads datasets alone"),
        ("select cast(txt as int) from ds", "Could not convert string"),
        ("select 1 from ds where txt = $text", "no parameters.*found text.*select lang from v"),
        ("copy ds to 'x.csv'", "lading sql QUERY DST writes"),
    ],
)
def test_errors_say_what_to_write(photos: Path, query: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        lading.sql(query, ds=photos)


def test_what_is_no_dataset_is_refused(photos: Path) -> None:
    with pytest.raises(UnknownArgument, match=r"lading\.sql\(\) has no argument limit"):
        lading.sql("select 1 from ds", ds=photos, limit=3)
    with pytest.raises(SourceNotFound):
        lading.sql("select 1 from 'nowhere/*.tar'")
    with pytest.raises(UsageError, match="ignores capitals"):
        lading.sql("select 1 from ds", ds=photos, DS=photos)


def test_names_that_sql_takes_for_one_are_refused() -> None:
    columns = pa.table({"Lang": [1], "lang": [2], "n": [3], "j": [{"a": {"B": 1, "b": 2}, "c": 5}]})
    for query in ("select lang from x", "select * from x", "select j.a.b from x"):
        with pytest.raises(UsageError, match="ignores capitals"):
            lading.sql(query, x=columns)
    assert lading.sql("select n, j.c from x", x=columns)[0] == {"n": 3, "c": 5}


def test_what_duckdb_does_not_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="Decimal"):
        lading.sql("select d from x", x=pa.table({"d": pa.array([1]).cast(pa.decimal256(50, 2))}))


def test_columns_of_one_name_get_different_names() -> None:
    a, b = pa.table({"id": [1], "v": [2]}), pa.table({"id": [1], "v": [3]})
    found = lading.sql("select *, 4 as v_1 from a join b on a.id = b.id", a=a, b=b)
    assert found[0] == {"id": 1, "v": 2, "id_1": 1, "v_2": 3, "v_1": 4}


def test_an_error_of_reading_and_an_interrupt_come_as_they_are(photos: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes((photos / "0.tar").read_bytes()[:600])
    with pytest.raises(LadingError, match=r"broken\.tar"):
        lading.sql(f"select count(txt) from '{broken}'")

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        query_dataset("select txt from ds", {"ds": lading.open(photos)}, lading.open, Showing(), interrupt)


def test_sums_are_whole_numbers_of_64_bits(photos: Path) -> None:
    found = lading.sql("select sum(png.width) s from ds", ds=photos)
    assert found.schema.field("s").type == pa.int64()
    with pytest.raises(UsageError, match=r"more than 64 bits.*s::double"):
        lading.sql("select sum(9223372036854775807) s from ds", ds=photos)


def test_print_shows_the_first_rows(photos: Path) -> None:
    found = lading.sql("select json.lang, count(*) n from ds group by 1 order by 1", ds=photos)
    assert [line.split() for line in repr(found).splitlines()] == [
        ["lang", "n"], ["de", "20"], ["en", "20"], ["fr", "20"],
    ]  # fmt: skip
    many = repr(lading.sql("select __key__ from ds", ds=photos)).splitlines()
    assert (many[1], many[20:], len(many)) == ("0000", ["0019", "…"], 22)
    assert repr(lading.sql("select txt from ds where false", ds=photos)).splitlines() == ["txt", "no rows"]
    assert "where('n > 1')" in repr(found.where("n > 1"))
    assert found.where("n > 1").to_arrow().num_rows == 3
