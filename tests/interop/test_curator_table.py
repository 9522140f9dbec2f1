"""The table "NeMo Curator" of `docs/coming-from.md`: each line is run in both libraries, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from doc_tables import Table
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading.compat import nemo_curator
from lading.errors import UsageError
from lading.options import InterleavedOptions
from peers import import_peer

peer = import_peer("nemo_curator.stages.interleaved.io")
peer_readers = import_peer("nemo_curator.stages.interleaved.io.readers")
peer_schema = import_peer("nemo_curator.stages.interleaved.utils.schema")
peer_stages = import_peer("nemo_curator.stages.interleaved.stages")
peer_tasks = import_peer("nemo_curator.tasks")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

TABLE = Table("NeMo Curator")

_TEXTS = ("sample_id", "modality", "text_content", "materialize_error")
_PLACES = ("source_ref", "materialize_error")


@pytest.fixture(scope="module")
def mint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tars of real documents."""
    folder = tmp_path_factory.mktemp("mint")
    for path in resources.files("lading._core.data").iterdir():
        if path.name.endswith(".tar"):
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture(scope="module")
def curated(mint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents as Parquet files of the peer."""
    folder = tmp_path_factory.mktemp("curated")
    _write(peer.InterleavedParquetWriterStage(str(folder)), _tasks(peer.InterleavedWebdatasetReader(str(mint), **_IDS)))
    return folder


_IDS: dict[str, Any] = {"sample_id_field": "sample_id"}


def _tasks(reader: Any) -> list[Any]:
    """The batches of a reader of the peer."""
    listing, stage = reader.decompose()
    made = [stage.process(task) for task in listing.process(None)]
    return [batch for one in made for batch in (one if isinstance(one, list) else [one])]


def _write(stage: Any, tasks: Iterable[Any]) -> None:
    for task in tasks:
        stage.process(task)


def _batch(rows: pa.Table) -> Any:
    return peer_tasks.InterleavedBatch("d", rows, _metadata={"source_files": ["a"]})


def _sorted(tables: Iterable[Any], *, places: bool = False) -> list[dict[str, Any]]:
    """Rows by document and position, without nulls; and without their places, which differ between files."""
    rows = [row for table in tables for row in table.to_pylist()]
    rows.sort(key=lambda row: (row["sample_id"], row["position"], row["modality"] != "text"))
    left_out = () if places else _PLACES
    return [{n: value for n, value in row.items() if value is not None and n not in left_out} for row in rows]


def _theirs(reader: Any) -> list[dict[str, Any]]:
    return _sorted(task.to_pyarrow() for task in _tasks(reader))


def _parquet(folder: Path) -> list[dict[str, Any]]:
    return _sorted(pq.read_table(path) for path in folder.rglob("*.parquet"))


def _tars(folder: Path) -> list[dict[str, Any]]:
    return _theirs(peer.InterleavedWebdatasetReader(str(folder), materialize_on_read=True, **_IDS))


def _raised(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


@TABLE.line('`InterleavedWebdatasetReader("docs")`, `InterleavedParquetReader("curated")`')
def test_readers(mint: Path, curated: Path) -> None:
    for make, folder, how in (
        (peer.InterleavedWebdatasetReader, mint, {"materialize_on_read": True, **_IDS}),
        (peer.InterleavedParquetReader, curated, {}),
    ):
        for view in (None, "interleaved"):
            with lading.open(folder, view=view) as ds:
                assert _sorted(ds.batches()) == _theirs(make(str(folder), **how))


@TABLE.line('`fields=("url",)`')
def test_fields(mint: Path, tmp_path: Path) -> None:
    fields = ("url", "absent")
    theirs = _theirs(peer.InterleavedWebdatasetReader(str(mint), fields=fields, materialize_on_read=True, **_IDS))
    assert _sorted(lading.open(mint, fields=fields).batches()) == theirs
    assert _sorted(lading.open(mint).batches(fields=fields)) == theirs
    lading.convert(mint, tmp_path / "out", format="parquet", fields=fields)
    assert _parquet(tmp_path / "out") == theirs


@TABLE.line(
    "`sample_id_field=`, `texts_field=`, `images_field=`, `image_member_field=`, `per_image_fields=`, "
    "`per_text_fields=`, `json_extensions=`, `image_extensions=`"
)
def test_names_of_fields(mint: Path) -> None:
    names: dict[str, Any] = {
        "sample_id_field": "sample_id", "texts_field": "texts", "images_field": "images", "image_member_field": "main",
        "per_image_fields": ("alt_text",), "per_text_fields": ("absent",), "json_extensions": (".json",),
        "image_extensions": (".png", ".jpg"),
    }  # fmt: skip
    with lading.open(mint, interleaved=InterleavedOptions(**names)) as ds:
        assert _sorted(ds.batches()) == _theirs(
            peer.InterleavedWebdatasetReader(str(mint), materialize_on_read=True, **names)
        )


@TABLE.line("`max_batch_bytes=`")
def test_max_batch_bytes(curated: Path) -> None:
    theirs = [
        task.to_pyarrow() for task in _tasks(peer.InterleavedParquetReader(str(curated), max_batch_bytes=300_000))
    ]
    for mine in (
        list(lading.open(curated, max_batch_bytes=300_000).batches()),
        list(lading.open(curated).batches(max_batch_bytes=300_000)),
    ):
        for tables in (mine, theirs):
            assert len(tables) > 2
            whole = [{*table["sample_id"].to_pylist()} for table in tables]
            assert sum(map(len, whole)) == len(set().union(*whole)), "no document is cut"
        assert _sorted(mine) == _sorted(theirs)


@TABLE.line("`schema=`, `schema_overrides=`")
def test_schemas(curated: Path, tmp_path: Path) -> None:
    schema = pa.schema([*INTERLEAVED_SCHEMA, ("url", pa.large_string()), ("absent", pa.float32())])
    theirs = [task.to_pyarrow() for task in _tasks(peer.InterleavedParquetReader(str(curated), schema=schema))]
    mine = list(lading.open(curated, schema=schema).batches())
    lading.convert(curated, tmp_path / "out", format="parquet", schema=schema)
    for table in [*theirs, *mine]:
        assert [(one.name, one.type) for one in table.schema] == [(one.name, one.type) for one in schema]
    assert _sorted(mine) == _sorted(theirs) == _parquet(tmp_path / "out")
    changed = {"url": pa.large_string()}
    own = next(lading.open(curated, schema_overrides=changed).batches()).schema
    [task, *_] = _tasks(peer.InterleavedParquetReader(str(curated), schema_overrides=changed))
    assert own.field("url").type == task.to_pyarrow().schema.field("url").type
    assert {*own.names} - {*task.to_pyarrow().column_names} == {"title", "n_words", "alt_text", "p_hash", "meta"}


@TABLE.line("`materialize_on_read=False`")
def test_references_instead_of_bytes(mint: Path) -> None:
    theirs = _sorted((t.to_pyarrow() for t in _tasks(peer.InterleavedWebdatasetReader(str(mint), **_IDS))), places=True)
    with lading.open(mint) as ds:
        lazy = list(ds.batches(lazy=True))
        read = [row["binary_content"] for batch in lazy for row in ds._rows.materialise(batch).to_pylist()]
    rows = _sorted((batch.drop_columns(["binary_content"]) for batch in lazy), places=True)
    assert rows == theirs
    assert sum(value is not None for value in read) == sum(row["modality"] == "image" for row in theirs)


@TABLE.line("`materialize_on_write=False`")
def test_written_references(mint: Path, tmp_path: Path) -> None:
    stage = peer.InterleavedParquetWriterStage(str(tmp_path / "theirs"), materialize_on_write=False)
    _write(stage, _tasks(peer.InterleavedWebdatasetReader(str(mint), **_IDS)))
    lading.open(mint).write(tmp_path / "out", format="parquet", lazy=True)
    mine = _sorted((pq.read_table(path) for path in (tmp_path / "out").rglob("*.parquet")), places=True)
    theirs = _sorted((pq.read_table(path) for path in (tmp_path / "theirs").rglob("*.parquet")), places=True)
    assert mine == theirs
    assert not any("binary_content" in row for row in mine)


@TABLE.line('`InterleavedParquetWriterStage("out")`')
def test_parquet_is_written(mint: Path, curated: Path, tmp_path: Path) -> None:
    with lading.open(mint) as ds:
        ds.write(tmp_path / "out", format="parquet")
    assert _parquet(tmp_path / "out") == _parquet(curated)


@TABLE.line('`InterleavedWebdatasetWriterStage("out")`')
def test_tars_are_written(curated: Path, tmp_path: Path) -> None:
    _write(
        peer.InterleavedWebdatasetWriterStage(str(tmp_path / "theirs")),
        _tasks(peer.InterleavedParquetReader(str(curated))),
    )
    with lading.open(curated) as ds:
        ds.write(tmp_path / "out", format="webdataset")
    assert _tars(tmp_path / "out") == _tars(tmp_path / "theirs")


@TABLE.line("rows in any order, grouped by `sample_id` in tars")
def test_rows_in_any_order(curated: Path, tmp_path: Path) -> None:
    rows = pa.concat_tables(pq.read_table(path) for path in sorted(curated.glob("*.parquet")))
    (tmp_path / "torn").mkdir()
    torn = rows.take(pa.array([*range(0, len(rows), 2), *range(1, len(rows), 2)]))
    pq.write_table(torn, tmp_path / "torn" / "a.parquet")
    _write(peer.InterleavedWebdatasetWriterStage(str(tmp_path / "theirs")), [_batch(torn)])
    lading.open(tmp_path / "torn", regroup=True).write(tmp_path / "out", format="webdataset")
    assert _tars(tmp_path / "out") == _tars(tmp_path / "theirs")


def _failing() -> pa.Table:
    rows: list[dict[str, Any]] = [
        {"sample_id": "a", "position": 0, "modality": "text", "text_content": "t"},
        {"sample_id": "a", "position": 1, "modality": "image", "materialize_error": "404"},
        {"sample_id": "b", "position": 0, "modality": "text", "text_content": "t"},
    ]
    return pa.Table.from_pylist(rows, INTERLEAVED_SCHEMA)


@TABLE.line('`on_materialize_error="drop_sample"`')
@pytest.mark.cases(2)
@pytest.mark.parametrize("on_materialize_error", ["drop_sample", "drop_row"])
def test_policies(tmp_path: Path, on_materialize_error: Any) -> None:
    how: dict[str, Any] = {"on_materialize_error": on_materialize_error}
    _write(peer.InterleavedParquetWriterStage(str(tmp_path / "theirs"), **how), [_batch(_failing())])
    theirs = _parquet(tmp_path / "theirs")
    (tmp_path / "set").mkdir()
    pq.write_table(_failing(), tmp_path / "set" / "a.parquet")
    assert _sorted(lading.open(tmp_path / "set", **how).batches()) == theirs
    assert _sorted(lading.open(tmp_path / "set").batches(**how)) == theirs
    lading.open(tmp_path / "set").write(tmp_path / "out", format="parquet", **how)
    assert _parquet(tmp_path / "out") == theirs
    with lading.writer(tmp_path / "new", format="parquet", view="interleaved", **how) as writer:
        writer.write_batch(_failing())
    assert _parquet(tmp_path / "new") == theirs
    with pytest.raises(RuntimeError, match="404"):
        list(lading.open(tmp_path / "set").batches())


@TABLE.line('`RuntimeError` of `on_materialize_error="error"`')
def test_the_error_of_rows_without_bytes(tmp_path: Path) -> None:
    theirs = _raised(lambda: peer.InterleavedParquetWriterStage(str(tmp_path / "a")).process(_batch(_failing())))
    pq.write_table(_failing(), tmp_path / "a.parquet")
    mine = _raised(lambda: lading.open(tmp_path / "a.parquet").write(tmp_path / "out", format="parquet"))
    assert isinstance(mine, lading.errors.BadReference)
    assert isinstance(mine, type(theirs))


@TABLE.line("`ValueError` for another modality in a tar")
def test_the_error_of_another_modality(tmp_path: Path) -> None:
    row = {"sample_id": "a", "position": 0, "modality": "audio", "binary_content": b"x"}
    table = pa.Table.from_pylist([row], INTERLEAVED_SCHEMA)
    theirs = _raised(lambda: peer.InterleavedWebdatasetWriterStage(str(tmp_path / "a")).process(_batch(table)))
    pq.write_table(table, tmp_path / "a.parquet")
    mine = _raised(lambda: lading.open(tmp_path / "a.parquet").write(tmp_path / "out", format="webdataset"))
    assert isinstance(mine, lading.errors.Unrepresentable)
    assert isinstance(mine, type(theirs))


@TABLE.line('`write_kwargs={"use_dictionary": False}` and other options of pyarrow, `file_extension="pq"`')
def test_options_of_writers(curated: Path, tmp_path: Path) -> None:
    given: list[dict[str, Any]] = [{"write_kwargs": {"use_dictionary": False}}, {"file_extension": "pq"}]
    for how in given:
        peer.InterleavedParquetWriterStage(str(tmp_path / "theirs"), **how)
        with pytest.raises(UsageError, match=r"use_dictionary|file_extension"):
            nemo_curator.InterleavedParquetWriterStage(str(tmp_path / "mine"), **how)
    taken = {"compression": "zstd", "compression_level": 5, "row_group_size": 10}
    for library in (peer, nemo_curator):
        out = tmp_path / library.__name__
        stage = library.InterleavedParquetWriterStage(str(out), write_kwargs=taken)
        _write(stage, _tasks(peer.InterleavedParquetReader(str(curated)))[:1])
        group = pq.ParquetFile(next(out.iterdir())).metadata.row_group(0)
        assert (group.num_rows, group.column(0).compression) == (10, "ZSTD")


@TABLE.line('`read_kwargs={"columns": ["url"]}`')
def test_options_of_readers(curated: Path) -> None:
    how: dict[str, Any] = {"read_kwargs": {"columns": ["url"]}}
    peer.InterleavedParquetReader(str(curated), **how)
    with pytest.raises(UsageError, match=r"read_kwargs.*columns"):
        nemo_curator.InterleavedParquetReader(str(curated), **how)
    chosen = [
        {*library.InterleavedParquetReaderStage(fields=("url",)).process(task).to_pyarrow().column_names}
        for library in (peer_readers, nemo_curator)
        for task in [peer_tasks.FileGroupTask(dataset_name="d", data=[str(min(curated.iterdir()))])]
    ]
    assert chosen[0] == chosen[1]


@TABLE.line("texts that writers store as `large_string`, `materialize_error` as `string` or `large_string`")
def test_types_of_texts_in_files(mint: Path, tmp_path: Path) -> None:
    found: dict[Any, set[tuple[str, str]]] = {}
    for library, readers in ((peer, peer_readers), (nemo_curator, nemo_curator)):
        for at_read in (False, True):
            reader = readers.InterleavedWebdatasetReaderStage(materialize_on_read=at_read, **_IDS)
            task = reader.process(peer_tasks.FileGroupTask(dataset_name="d", data=[str(min(mint.iterdir()))]))
            out = tmp_path / f"{library.__name__} {at_read}"
            _write(library.InterleavedParquetWriterStage(str(out)), [task])
            schema = pq.read_schema(next(out.iterdir()))
            found.setdefault(library, set()).update((name, str(schema.field(name).type)) for name in _TEXTS)
    error, rest = "materialize_error", {*_TEXTS} - {"materialize_error"}
    assert found[peer] == {(error, "string"), (error, "large_string"), *((name, "large_string") for name in rest)}
    assert found[nemo_curator] == {(name, "string") for name in _TEXTS}
    lading.open(mint).write(tmp_path / "out", format="parquet")
    schema = pq.read_schema(next((tmp_path / "out").rglob("*.parquet")))
    assert {str(schema.field(name).type) for name in _TEXTS} == {"string"}


@TABLE.line('`mode="overwrite"`')
def test_overwrite(curated: Path, tmp_path: Path) -> None:
    few = _tasks(peer.InterleavedParquetReader(str(curated)))[:1]
    _write(
        peer.InterleavedParquetWriterStage(str(tmp_path / "theirs")),
        _tasks(peer.InterleavedParquetReader(str(curated))),
    )
    _write(peer.InterleavedParquetWriterStage(str(tmp_path / "theirs"), mode="overwrite"), few)
    lading.open(curated).write(tmp_path / "out", format="parquet")
    lading.open(min(curated.iterdir())).write(tmp_path / "out", format="parquet", overwrite=True)
    assert _parquet(tmp_path / "out") == _parquet(tmp_path / "theirs")


@TABLE.line('`mode="ignore"`, which adds files')
def test_files_are_added(mint: Path, curated: Path, tmp_path: Path) -> None:
    for task in _tasks(peer.InterleavedParquetReader(str(curated))):
        _write(peer.InterleavedParquetWriterStage(str(tmp_path / "theirs"), mode="ignore"), [task])
    for number, path in enumerate(sorted(mint.iterdir())):
        with lading.writer(tmp_path / "out", format="parquet", view="interleaved", rank=number) as writer:
            for batch in lading.open(path).batches():
                writer.write_batch(batch)
    lading.merge(tmp_path / "out")
    assert _parquet(tmp_path / "out") == _parquet(tmp_path / "theirs")


@TABLE.line("`InterleavedAspectRatioFilterStage(min_aspect_ratio=0.5)`")
def test_the_filter(curated: Path) -> None:
    stage = peer_stages.InterleavedAspectRatioFilterStage(min_aspect_ratio=0.5, max_aspect_ratio=1.5)
    theirs = [stage.process(task).to_pyarrow() for task in _tasks(peer.InterleavedParquetReader(str(curated)))]
    with lading.open(curated) as ds:
        kept = _sorted(ds.image_bounds(min_aspect_ratio=0.5, max_aspect_ratio=1.5).batches())
        read = _sorted(ds.batches())
    renumbered = [{**row, "position": None} for row in kept]
    assert renumbered == [{**row, "position": None} for row in _sorted(theirs)]
    assert len(kept) < len(read)
    assert all(row in read for row in kept), "positions stay"


@TABLE.line("`source_files` of a batch")
def test_files_of_batches(curated: Path) -> None:
    theirs = [task._metadata["source_files"] for task in _tasks(peer.InterleavedParquetReader(str(curated)))]
    with lading.open(curated) as ds:
        mine = [json.loads(batch.schema.metadata[b"lading.source_files"]) for batch in ds.batches()]
    assert mine == theirs


@TABLE.line("`reconcile_schema`, `align_table`, `resolve_schema`, `INTERLEAVED_SCHEMA`")
def test_functions_of_schemas() -> None:
    assert nemo_curator.INTERLEAVED_SCHEMA == peer_tasks.interleaved.INTERLEAVED_SCHEMA
    odd = pa.schema([("sample_id", pa.large_string()), ("url", pa.dictionary(pa.int32(), pa.string()))])
    overrides = {"url": pa.string(), "n": pa.int8()}
    table = pa.table({"url": ["u"], "position": pa.array([1], pa.int64()), "other": [1]})
    assert nemo_curator.reconcile_schema(odd).equals(peer_schema.reconcile_schema(odd))
    target = nemo_curator.resolve_schema(None, overrides)
    assert target == peer_schema.resolve_schema(None, overrides)
    # Missing columns are nulls, also those that may not be null.
    mine, theirs = (module.align_table(table, target) for module in (nemo_curator, peer_schema))
    assert (mine.schema, mine.to_pylist()) == (theirs.schema, theirs.to_pylist())


def test_each_line_is_run() -> None:
    TABLE.check()
