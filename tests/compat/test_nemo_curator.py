"""The names of NeMo Curator's interleaved readers and writers, sentence by sentence as its documentation has them."""

from __future__ import annotations

import gzip
import io
import json
import runpy
import sys
import tarfile
import warnings
from dataclasses import fields
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.features.items import INTERLEAVED_SCHEMA, RESERVED, lineage_of
from lading.compat import curator_stages
from lading.compat import nemo_curator as compat
from lading.errors import BadReference, MissingExtra, MissingField, SchemaMismatch, Unrepresentable, UsageError
from peers import import_peer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def documents() -> list[str]:
    return sorted(str(path) for path in resources.files("lading._core.data").iterdir() if path.name.endswith(".tar"))


def _rows(*rows: dict[str, Any], more: tuple[str, ...] = ()) -> pa.Table:
    return pa.Table.from_pylist(list(rows), pa.schema([*INTERLEAVED_SCHEMA, *((name, pa.string()) for name in more)]))


def _text(sample: str, position: int, text: str = "t", **more: Any) -> dict[str, Any]:
    kind = "metadata" if position < 0 else "text"
    return {"sample_id": sample, "position": position, "modality": kind,
            "text_content": None if position < 0 else text, **more}  # fmt: skip


def _image(sample: str, position: int, body: bytes | None = b"\x89PNG", **more: Any) -> dict[str, Any]:
    return {"sample_id": sample, "position": position, "modality": "image", "content_type": "image/png",
            "binary_content": body, **more}  # fmt: skip


def _parquet(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])


def _content(dataset: Any) -> list[dict[str, Any]]:
    """Rows without lineage and nulls."""
    table = pa.concat_tables(map(pa.table, dataset.batches()), promote_options="permissive")
    return [{name: value for name, value in row.items() if value is not None and name != "source_ref"}
            for row in table.to_pylist()]  # fmt: skip


# All four combinations


@pytest.mark.parametrize("source", ["webdataset", "parquet"])
@pytest.mark.parametrize("target", ["webdataset", "parquet"])
def test_all_four_combinations_work(documents: list[str], tmp_path: Path, source: str, target: str) -> None:
    read: Any = compat.InterleavedWebdatasetReader(documents, sample_id_field="sample_id")
    expected = _content(read.open())
    if source == "parquet":
        lading.convert(documents, tmp_path / "between", format="parquet")
        read = compat.InterleavedParquetReader(tmp_path / "between")
    writers = {"parquet": compat.InterleavedParquetWriter, "webdataset": compat.InterleavedWebdatasetWriter}
    with writers[target](tmp_path / "out") as writer:
        for batch in read.batches():
            writer.write_batch(batch)
    assert sorted(map(str, _content(lading.open(tmp_path / "out")))) == sorted(map(str, expected))


# Readers


def test_fields_and_max_batch_bytes_mean_the_same_in_both_readers(documents: list[str], tmp_path: Path) -> None:
    lading.convert(documents, tmp_path / "parquet", format="parquet")
    for read, source in (
        (compat.InterleavedParquetReader, [str(tmp_path / "parquet")]),
        (compat.InterleavedWebdatasetReader, documents),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batches = list(read(source, fields=("url", "crawl_date"), max_batch_bytes=10_000).batches())
        assert len(batches) > 2
        for batch in batches:
            assert set(batch.schema.names) == {*RESERVED, "url", "crawl_date"}
            assert batch["crawl_date"].null_count == batch.num_rows
            assert lineage_of(batch.schema)
        assert len({*(str(lineage_of(batch.schema)) for batch in batches)}) == len(batches), "a name each"
        ids = [{*batch["sample_id"].to_pylist()} for batch in batches]
        assert not any(one & other for one, other in pairwise(ids)), "no sample is cut"


def test_schema_aligns_strictly_and_holds_where_both_are_given(tmp_path: Path) -> None:
    pq.write_table(_rows(_text("a", 0, url="u", license="cc"), more=("url", "license")), tmp_path / "a.parquet")
    schema = pa.schema([*INTERLEAVED_SCHEMA, ("url", pa.large_string()), ("score", pa.float32())])
    read = compat.InterleavedParquetReader(tmp_path / "a.parquet", schema=schema, schema_overrides={"url": pa.string()})
    with pytest.warns(UserWarning, match="schema holds"):
        [batch] = read.batches()
    assert batch.schema.names == schema.names
    assert [batch.schema.field(name).type for name in ("url", "score")] == [pa.large_string(), pa.float32()]
    [batch] = compat.InterleavedParquetReader(
        tmp_path / "a.parquet", schema_overrides={"text_content": pa.large_string()}
    ).batches()
    assert batch.schema.field("text_content").type == pa.large_string()
    assert batch.schema.names == [*RESERVED, "url", "license"], "other columns are kept"


def test_extensions_and_fields_of_other_layouts(tmp_path: Path) -> None:
    told = {"T": ["hello", None], "I": [None, "x"], "main": "one.picture", "tags": ["p"]}
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, body in (("one.meta", json.dumps(told).encode()), ("one.picture", b"\x89PNG")):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    [batch] = compat.InterleavedWebdatasetReader(
        str(tmp_path / "a.tar"), json_extensions=[".meta"], image_extensions=[".picture"], texts_field="T",
        images_field="I", image_member_field="main", per_image_fields=("tags",), materialize_on_read=True,
    ).batches()  # fmt: skip
    assert batch["sample_id"].to_pylist() == ["one"] * 3
    assert batch["binary_content"].to_pylist() == [None, None, b"\x89PNG"]
    assert batch["tags"].to_pylist() == [None, None, "p"]


# Writers


def test_keys_are_injective_and_come_back(tmp_path: Path) -> None:
    ids = ["a/b", "a%2Fb", "ü x", "a.b", "..", "plain"]
    with compat.InterleavedWebdatasetWriterStage(tmp_path / "out") as writer:
        writer.write_batch(_rows(*(_text(name, 0) for name in ids)))
    with tarfile.open(next((tmp_path / "out").glob("*.tar"))) as tar:
        names = tar.getnames()
    assert len({*names}) == len(ids)
    assert {"a%2Fb.json", "a%252Fb.json", "plain.json"} <= {*names}
    read = compat.InterleavedWebdatasetReader(str(tmp_path / "out"), sample_id_field="sample_id")
    assert [sample["sample_id"] for sample in read.open()] == ids


@pytest.mark.parametrize("writer", [compat.InterleavedParquetWriter, compat.InterleavedWebdatasetWriterStage])
def test_rows_are_grouped_by_sample_id(tmp_path: Path, writer: Any) -> None:
    torn = [_text("b", 1), _text("a", 0, "first"), _text("b", -1), _image("a", 1), _image("b", 0)]
    with writer(tmp_path / "out") as out:
        out.write_batch(_rows(*torn))
    with lading.open(tmp_path / "out") as dataset:
        found = [(row["sample_id"], row["position"]) for batch in dataset.batches() for row in batch.to_pylist()]
    assert [row for row in found if row != ("a", -1)] == [("b", -1), ("b", 0), ("b", 1), ("a", 0), ("a", 1)]


def test_gaps_are_none_entries_and_are_skipped_on_the_way_back(tmp_path: Path) -> None:
    with compat.InterleavedWebdatasetWriterStage(tmp_path / "out") as writer:
        writer.write_batch(_rows(_text("a", 0), _image("a", 2), _text("a", 4)))
    with tarfile.open(next((tmp_path / "out").glob("*.tar"))) as tar:
        [member] = [member for member in tar if member.name.endswith(".json")]
        told = json.load(tar.extractfile(member) or io.BytesIO())
    assert told["texts"] == ["t", None, None, None, "t"]
    assert [image is not None for image in told["images"]] == [False, False, True, False, False]
    positions = [item["position"] for item in lading.open(tmp_path / "out")[0]["items"]]
    assert positions == [0, 2, 4]


@pytest.mark.parametrize("modality", ["audio", "table"])
def test_any_other_modality_raises_value_error_at_write_time(tmp_path: Path, modality: str) -> None:
    table = _rows({**_text("a", 0), "modality": modality})
    for write in (
        lambda: _write(compat.InterleavedWebdatasetWriterStage, tmp_path / "stage", table),
        lambda: lading.convert(_file(table, tmp_path), tmp_path / "convert", format="webdataset"),
    ):
        with pytest.raises(ValueError, match=modality) as caught:
            write()
        assert isinstance(caught.value, Unrepresentable)
    _write(compat.InterleavedParquetWriter, tmp_path / "parquet", table)
    assert _parquet(tmp_path / "parquet")["modality"].to_pylist() == [modality]


def _write(writer: Any, folder: Path, table: pa.Table, **how: Any) -> None:
    with writer(folder, **how) as out:
        out.write_batch(table)


def _file(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "rows.parquet")
    return folder / "rows.parquet"


def test_writers_inherit_schema_and_schema_overrides(tmp_path: Path) -> None:
    table = _rows(_text("a", 0, url="u", license="cc"), more=("url", "license"))
    _write(compat.InterleavedParquetWriter, tmp_path / "a", table, schema_overrides={"url": pa.large_string()})
    written = _parquet(tmp_path / "a").schema
    assert (written.names, written.field("url").type) == ([*RESERVED, "url", "license"], pa.large_string())
    with pytest.warns(UserWarning, match="schema holds"):
        _write(compat.InterleavedParquetWriter, tmp_path / "b", table, schema=INTERLEAVED_SCHEMA,
               schema_overrides={"url": pa.string()})  # fmt: skip
    assert _parquet(tmp_path / "b").schema.names == list(RESERVED)


# reconcile_schema, align_table, resolve_schema


def test_overflow_of_passthrough_columns_surfaces() -> None:
    table = pa.table({"n": pa.array([1 << 40])})
    with pytest.raises(ValueError, match="fit") as caught:
        compat.align_table(table, pa.schema([("n", pa.int32())]))
    assert isinstance(caught.value, SchemaMismatch)


@pytest.fixture(scope="module")
def peer() -> Any:
    """The peer's module; importing it runs git."""
    return import_peer("nemo_curator.stages.interleaved.utils.schema")


@pytest.mark.interop
@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("sample_id", pa.large_string()), ("position", pa.int64()), ("modality", pa.string())]),
        pa.schema([("url", pa.dictionary(pa.int32(), pa.string())), ("n", pa.int8()), ("s", pa.large_string())]),
        pa.schema([("binary_content", pa.binary()), ("text_content", pa.large_string()), ("content_type", pa.null())]),
    ],
)
def test_reconcile_schema_is_the_peers(schema: pa.Schema, peer: Any) -> None:
    mine, theirs = compat.reconcile_schema(schema), peer.reconcile_schema(schema)
    assert [(f.name, f.type) for f in mine] == [(f.name, f.type) for f in theirs]


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore")
def test_resolve_schema_and_align_table_are_the_peers(peer: Any) -> None:
    overrides = {"url": pa.string(), "text_content": pa.large_string()}
    own = pa.schema([("a", pa.int8())])
    for given in ((None, None), (None, overrides), (own, None), (own, overrides), (None, {})):
        assert compat.resolve_schema(*given) == peer.resolve_schema(*given)
    target = compat.resolve_schema(None, overrides)
    table = pa.table({"position": pa.array([0, 1], pa.int64()), "modality": ["text", "text"],
                      "sample_id": pa.array(["a", "a"], pa.large_string()), "extra": [1, 2]})  # fmt: skip
    mine, theirs = compat.align_table(table, target), peer.align_table(table, target)
    assert (mine.schema, mine.to_pylist()) == (theirs.schema, theirs.to_pylist())


# on_materialize_error


def _failing() -> pa.Table:
    return _rows(
        _text("a", 0), _image("a", 1), _text("b", 0), _image("b", 1, None, materialize_error="404"), _text("c", 0),
    )  # fmt: skip


@pytest.mark.cases(3)
@pytest.mark.parametrize("writer", [compat.InterleavedParquetWriter, compat.InterleavedWebdatasetWriterStage])
@pytest.mark.parametrize("policy, left", [("warn", 5), ("drop_row", 4), ("drop_sample", 3)])
def test_the_policy_covers_errors_of_upstream_stages(tmp_path: Path, writer: Any, policy: Any, left: int) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with writer(tmp_path / "out", on_materialize_error=policy) as out:
            out.write_batch(_failing())
    assert any("404" in str(one.message) for one in told) == (policy == "warn")
    with lading.open(tmp_path / "out") as dataset, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [row for batch in dataset.batches(on_materialize_error="warn") for row in batch.to_pylist()]
    assert len([row for row in rows if row["modality"] != "metadata"]) == left


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy, left", [("warn", 5), ("drop_row", 4), ("drop_sample", 3)])
def test_readers_keep_rows_with_errors_for_the_policy_of_the_writer(tmp_path: Path, policy: Any, left: int) -> None:
    pq.write_table(_failing(), tmp_path / "a.parquet")
    batches = list(compat.InterleavedParquetReader(tmp_path / "a.parquet").batches())
    assert pa.concat_tables(map(pa.table, batches)).column("materialize_error").to_pylist().count("404") == 1
    with compat.InterleavedParquetWriter(tmp_path / "out", on_materialize_error=policy) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert _parquet(tmp_path / "out").num_rows == left
    with pytest.raises(RuntimeError, match="404"):
        _write(compat.InterleavedParquetWriter, tmp_path / "none", pa.concat_tables(map(pa.table, batches)))


@pytest.mark.filterwarnings("ignore")
def test_readers_of_tars_keep_rows_whose_bytes_are_missing(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        body = json.dumps({"texts": ["t", None], "images": [None, "lost.png"]}).encode()
        info = tarfile.TarInfo("a.json")
        info.size = len(body)
        tar.addfile(info, io.BytesIO(body))
    rows = [
        row for batch in compat.InterleavedWebdatasetReader(tmp_path / "a.tar").batches() for row in batch.to_pylist()
    ]
    assert [row["position"] for row in rows if row["materialize_error"]] == [1]


@pytest.mark.parametrize("writer", [compat.InterleavedParquetWriter, compat.InterleavedWebdatasetWriterStage])
def test_the_default_raises_and_publishes_nothing(tmp_path: Path, writer: Any) -> None:
    with pytest.raises(RuntimeError, match=r"sample 'b'.*404.*on_materialize_error='warn'") as caught:
        _write(writer, tmp_path / "out", _failing())
    assert isinstance(caught.value, BadReference)
    assert not list((tmp_path / "out").iterdir())
    with pytest.raises(ValueError, match="on_materialize_error"):
        writer(tmp_path / "out", on_materialize_error="ignore")


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", ["warn", "drop_row", "drop_sample"])
def test_the_policies_keep_the_rows_that_the_peer_keeps(tmp_path: Path, policy: Any) -> None:
    writers, tasks = import_peer("nemo_curator.stages.interleaved.io.writers"), import_peer("nemo_curator.tasks")
    stage = writers.InterleavedParquetWriterStage(path=str(tmp_path / "theirs"), on_materialize_error=policy)
    stage.process(tasks.InterleavedBatch(dataset_name="d", data=_failing()))
    _write(compat.InterleavedParquetWriter, tmp_path / "mine", _failing(), on_materialize_error=policy)
    theirs, mine = _parquet(tmp_path / "theirs"), _parquet(tmp_path / "mine")
    names = [name for name in theirs.column_names if name != "materialize_error"]
    assert mine.select(names).to_pylist() == theirs.select(names).to_pylist()
    # The peer tries again to fetch such rows, and has another text then.
    assert mine["materialize_error"].is_null() == theirs["materialize_error"].is_null()


def test_a_batch_may_mix_stores(tmp_path: Path) -> None:
    (tmp_path / "here.png").write_bytes(b"\x89PNG here")
    with fsspec.open("memory://far/there.png", "wb") as file:
        file.write(b"\x89PNG there")
    refs = [json.dumps({"path": path}) for path in (str(tmp_path / "here.png"), "memory://far/there.png")]
    table = _rows(*(_image("a", i, None, source_ref=ref) for i, ref in enumerate(refs)))
    _write(compat.InterleavedParquetWriter, tmp_path / "out", table, roots=[tmp_path, "memory://far"])
    assert _parquet(tmp_path / "out")["binary_content"].to_pylist() == [b"\x89PNG here", b"\x89PNG there"]
    with pytest.raises(RuntimeError, match="roots="):
        _write(compat.InterleavedParquetWriter, tmp_path / "other", table)


# Arguments of the peer


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_batch_takes_rows_of_any_kind_and_writes_a_file_each(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = _rows(_text("a", 0, url="u"), _image("a", 1), more=("url",))
    kinds = [
        table,
        table.to_batches()[0],
        compat.InterleavedBatch(dataset_name="d", data=table),
        pandas.DataFrame(table.to_pylist()),
        table.replace_schema_metadata({"lading.source_files": '["a.tar"]'}),
        table.replace_schema_metadata({"lading.source_files": '["a.tar"]'}),
    ]
    with compat.InterleavedParquetWriter(tmp_path / "out") as writer:
        tasks = [writer.write_batch(rows) for rows in kinds]
    assert sorted(Path(path).name for task in tasks for path in task.data) == _files(tmp_path / "out")
    assert len(_files(tmp_path / "out")) == len(kinds)
    for task in tasks:
        assert pq.read_table(task.data[0]).to_pylist() == table.to_pylist()
    with pytest.raises(UsageError, match="InterleavedBatch"):
        writer.write_batch([{"sample_id": "a"}])


def test_rows_that_lading_reads_lazily_are_written_with_their_bytes(documents: list[str], tmp_path: Path) -> None:
    with lading.open(documents) as dataset, compat.InterleavedParquetWriter(tmp_path / "out") as writer:
        for batch in dataset.batches(lazy=True):
            writer.write_batch(batch)
        expected = pa.concat_tables(map(pa.table, dataset.batches()), promote_options="permissive")
    found = _parquet(tmp_path / "out")
    assert sorted(map(str, found["binary_content"].to_pylist())) == sorted(
        map(str, expected["binary_content"].to_pylist())
    )


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_modes(tmp_path: Path, kind: str) -> None:
    make = {"parquet": compat.InterleavedParquetWriter, "tar": compat.InterleavedWebdatasetWriter}[kind]
    out, table = tmp_path / "out", _rows(_text("a", 0))
    _write(make, out, table)
    first = _files(out)
    _write(make, out, table, mode="ignore")
    assert len(_files(out)) == len({*first, *_files(out)}) == 2  # the files of before stay
    with pytest.raises(FileExistsError, match="mode="):
        make(out, mode="error")
    with pytest.raises(UsageError, match="files are never appended to"):
        make(out, mode="append")
    make(out, mode="append", append_mode_implemented=True)
    with pytest.raises(UsageError, match="no such mode"):
        make(out, mode="replace")
    assert len(_files(out)) == 2
    _write(make, out, table, mode="overwrite")
    assert len(_files(out)) == 1


def test_arguments_that_lading_does_not_take_are_refused_by_their_names(tmp_path: Path) -> None:
    for refused, message in (
        (lambda: compat.InterleavedParquetReader("x", read_kwargs={"columns": ["a"]}), "read_kwargs.*columns"),
        (
            lambda: compat.InterleavedWebdatasetReader("x", read_kwargs={"a": 1}),
            "read_kwargs.*expected storage_options",
        ),
        (
            lambda: compat.InterleavedParquetReaderStage(read_kwargs={"storage_options": "s"}),
            "of read_kwargs are a dict",
        ),
        (
            lambda: compat.InterleavedParquetWriter(tmp_path, write_kwargs={"partition_cols": ["a"]}),
            "write_kwargs.*part",
        ),
        (lambda: compat.InterleavedWebdatasetWriter(tmp_path, write_kwargs={"compression": "zstd"}), "write_kwargs"),
        (
            lambda: compat.InterleavedParquetWriter(tmp_path, write_kwargs={"compression": "lzma"}),
            "no such compression.*'lzma'",
        ),
        (
            lambda: compat.InterleavedParquetWriter(tmp_path, write_kwargs={"compression_level": 99}),
            "no such level of zstd",
        ),
        (lambda: compat.InterleavedParquetWriter(tmp_path, file_extension="tar"), "file_extension"),
        (lambda: compat.InterleavedWebdatasetReader("x", max_batch_bytes=0), "max_batch_bytes=0"),
        (lambda: compat.InterleavedParquetReader("x", max_batch_bytes="large"), "max_batch_bytes='large'"),
        (
            lambda: compat.InterleavedParquetReaderStage(max_batch_bytes=0).process(compat.FileGroupTask("", ["x"])),
            "max_batch_bytes=0",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            refused()
    with pytest.raises(MissingField, match="sample_id"):
        compat.InterleavedParquetWriter(tmp_path).write_batch(pa.table({"position": [0], "modality": ["text"]}))


def test_write_kwargs_are_those_of_parquet(tmp_path: Path) -> None:
    table = _rows(*(_text(str(i), 0) for i in range(10)))
    how = {"compression": "gzip", "compression_level": 1, "row_group_size": 4}
    _write(compat.InterleavedParquetWriter, tmp_path / "a", table, write_kwargs=how)
    _write(compat.InterleavedParquetWriter, tmp_path / "b", table, write_kwargs={"compression": None})
    found = [pq.ParquetFile(path).metadata for name in "ab" for path in (tmp_path / name).iterdir()]
    assert [found[0].row_group(i).num_rows for i in range(found[0].num_row_groups)] == [4, 4, 2]
    assert [one.row_group(0).column(0).compression for one in found] == ["GZIP", "UNCOMPRESSED"]


def test_storage_options_are_those_of_fsspec(tmp_path: Path) -> None:
    with fsspec.open("memory://set/a.tar", "wb", skip_instance_cache=True) as file:
        file.write(Path(str(resources.files("lading._core.data") / "docs-00000.tar")).read_bytes())
    options = {"storage_options": {"skip_instance_cache": True}}
    [batch] = compat.InterleavedWebdatasetReader("memory://set", read_kwargs=options).batches()
    task = compat.InterleavedBatch(
        dataset_name="d", data=pa.table(batch), _metadata={"source_files": ["memory://set/a.tar"]}
    )
    done = compat.InterleavedParquetWriter("memory://set/out", write_kwargs=options).process(task)
    assert done.data[0].startswith("memory://set/out/")
    with fsspec.open(done.data[0]) as file:
        written = pq.read_table(file)
    assert len(written) == batch.num_rows
    assert written["binary_content"].null_count < batch["binary_content"].null_count == len(batch)


def test_materialize_on_write_false_leaves_bytes_where_they_are(documents: list[str], tmp_path: Path) -> None:
    with compat.InterleavedParquetWriter(tmp_path / "out", materialize_on_write=False) as writer:
        for batch in compat.InterleavedWebdatasetReader(documents).batches():
            writer.write_batch(batch)
    found = _parquet(tmp_path / "out")
    assert found["binary_content"].null_count == len(found)
    with compat.InterleavedParquetReader(tmp_path / "out").open(roots=[Path(documents[0]).parent]) as dataset:
        images = [row for batch in dataset.batches() for row in batch.to_pylist() if row["modality"] == "image"]
    assert images
    assert all(row["binary_content"] for row in images)


def test_images_in_compressed_tars_are_found_by_name(documents: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(Path(documents[0]).read_bytes()))
    [batch] = compat.InterleavedWebdatasetReader(tmp_path).batches()
    assert {json.loads(ref)["byte_offset"] for ref in batch["source_ref"].to_pylist()} == {None}
    with compat.InterleavedParquetWriter(tmp_path / "out") as writer:
        writer.write_batch(batch)
    [plain] = compat.InterleavedWebdatasetReader(documents[0], materialize_on_read=True).batches()
    assert _parquet(tmp_path / "out")["binary_content"].to_pylist() == plain["binary_content"].to_pylist()


def test_file_extensions_choose_files(documents: list[str], tmp_path: Path) -> None:
    for name, path in zip(("a.tar", "b.mint"), documents, strict=True):
        (tmp_path / name).write_bytes(Path(path).read_bytes())

    def read(**how: Any) -> list[str]:
        return [
            name for b in compat.InterleavedWebdatasetReader(tmp_path, **how).batches() for name in lineage_of(b.schema)
        ]

    assert read() == [str(tmp_path / "a.tar")]
    assert read(file_extensions=[".mint"]) == [str(tmp_path / "b.mint")]
    with pytest.raises(FileNotFoundError, match="file_extensions"):
        read(file_extensions=[".other"])


def test_a_broken_peer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nemo_curator.tasks", None)
    with pytest.raises(MissingExtra, match=r"NeMo Curator, which is installed and cannot be imported.*\.tasks"):
        runpy.run_path(str(Path(curator_stages.__file__)))


def test_without_the_peer_tasks_have_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    own = runpy.run_path(str(Path(curator_stages.__file__)), run_name="lading_without_the_peer")
    table = _rows(_text("a", 0), _text("b", 0))
    batch = own["InterleavedBatch"]("d", table, _metadata={"source_files": ["a.tar"]})
    assert (batch.num_items, batch.to_pyarrow(), batch.task_id) == (2, table, "")
    assert own["InterleavedBatch"]("d", batch.to_pandas()).to_pyarrow().num_rows == 2
    assert own["FileGroupTask"]("d", ["a", "b"]).num_items == 2
    peer = import_peer("nemo_curator.tasks")
    for name in ("InterleavedBatch", "FileGroupTask"):
        theirs, mine = (fields(space[name]) for space in (vars(peer), own))
        constants = {"REQUIRED_COLUMNS"}
        assert [f.name for f in mine] == [f.name for f in theirs if f.name not in constants | {"_source_id"}]
