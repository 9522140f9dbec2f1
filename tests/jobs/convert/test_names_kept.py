"""Conversions of what others name in their way: one id in several shards, members in upper case, nothing at all."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from in_process import by_tasks
from lading._core.features.types import Value
from lading._core.jobs.engine.progress import Progress
from lading._core.jobs.salvage.salvage import salvage
from lading._core.pipeline.shard_kind import OnDuplicateId
from lading.errors import CorruptShard, DataError, DatasetReplaced, SchemaMismatch, Unrepresentable, UsageError
from tars import tar_of

FORMATS = ("webdataset", "parquet", "arrow", "mds", "media_archive")


def items(*ids: str) -> pa.Table:
    """A text and a picture of each sample."""
    twice = [each for name in ids for each in (name, name)]
    return pa.table({
        "sample_id": twice,
        "position": pa.array([0, 1] * len(ids), pa.int32()),
        "modality": ["text", "image"] * len(ids),
        "content_type": ["text/plain", "image/png"] * len(ids),
        "text_content": [text for i, name in enumerate(ids) for text in (f"{i} of {name}", None)],
        "binary_content": pa.array([body for name in ids for body in (None, name.encode() * 3)], pa.large_binary()),
    })  # fmt: skip


@pytest.fixture
def twins(tmp_path: Path) -> list[Path]:
    """Parquet files of items, of which ids come back: not in a file, but in the next ones, at both of their ends."""
    ids = [("a", "b", "c"), ("c", "a", "d"), ("d", "e"), ("a",), ("a", "f")]
    paths = [tmp_path / f"in-{number}.parquet" for number in range(len(ids))]
    for path, each in zip(paths, ids, strict=True):
        with lading.writer(tmp_path / path.stem, format="parquet", view="interleaved") as writer:
            writer.write_batch(items(*each))
        (tmp_path / path.stem / "shard-000000.parquet").rename(path)
    return paths


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("workers", [2, 1])
def test_samples_of_one_id_in_several_shards_stay_apart(
    fmt: str, workers: int, twins: list[Path], tmp_path: Path
) -> None:
    given = lading.digest(twins)
    assert given.count == 11
    lading.convert(twins, tmp_path / "out", format=fmt, **by_tasks(workers), verify=True)
    assert lading.digest(tmp_path / "out") == given
    assert lading.verify(tmp_path / "out").ok
    lading.convert(tmp_path / "out", tmp_path / "back", format="arrow")
    assert lading.digest(tmp_path / "back") == given
    salvage(tmp_path / "back", tmp_path / "saved")
    assert lading.digest(tmp_path / "saved") == given


@pytest.mark.soak
@pytest.mark.parametrize("verb", [lading.convert, salvage])
def test_tars_that_meet_in_one_key_keep_their_samples(verb: Callable[..., object], tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number, keys in enumerate(["0", "0", "10", "0"]):  # by the tar format samples never span shards
        members = [(f"{key}.{field}", f"{number} {key} {field}".encode()) for key in keys for field in ("bin", "txt")]
        (source / f"{number}.tar").write_bytes(tar_of(*members))
    verb(source, tmp_path / "out", format="webdataset")
    with lading.open(tmp_path / "out") as dataset:
        assert [sample["txt"] for sample in dataset] == ["0 0 txt", "1 0 txt", "2 1 txt", "2 0 txt", "3 0 txt"]
    verb(source, tmp_path / "rows", format="parquet")
    lading.convert(tmp_path / "rows", tmp_path / "back", format="webdataset")
    assert lading.digest(tmp_path / "back") == lading.digest(tmp_path / "out")


def test_who_writes_neighbours_of_one_key_may_have_them_in_other_tars(tmp_path: Path) -> None:
    def write(keys: pa.Array, duplicate_ids: OnDuplicateId) -> None:
        with lading.writer(tmp_path / duplicate_ids, format="webdataset") as writer:
            for part in (keys[:3], keys[3:]):
                writer.write_batch(pa.table({"__key__": part, "n": part}), duplicate_ids=duplicate_ids)

    keys = pa.array(["a", "b", "b", "b", "c"]).dictionary_encode()
    with pytest.raises(Unrepresentable, match="one key"):
        write(keys, "error")
    write(keys, "apart")
    with lading.open(tmp_path / "apart") as dataset:
        assert [sample["n"] for sample in dataset] == ["a", "b", "b", "b", "c"]
        assert len(dataset.shards) == 3


@pytest.mark.parametrize("duplicate_ids", ["error", "apart"])
def test_members_that_are_given_without_keys_are_refused(duplicate_ids: OnDuplicateId, tmp_path: Path) -> None:
    writer = lading.writer(tmp_path / "out", format="webdataset", options={"fields": "given"})
    with pytest.raises(UsageError, match="expected __key__"):
        writer.write_batch(pa.table({"txt": ["a"]}), duplicate_ids=duplicate_ids)


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
@pytest.mark.parametrize("calls", [[("a", "b", "a")], [("a", "b"), ("c", "a")]], ids=str)
def test_who_writes_rows_of_a_sample_apart_is_told(calls: list[tuple[str, ...]], fmt: str, tmp_path: Path) -> None:
    def write() -> None:
        with lading.writer(tmp_path / "out", format=fmt, view="interleaved") as writer:
            for ids in calls:
                writer.write_batch(items(*ids))

    with pytest.raises(DataError, match=r"'a'.*Sort the rows"):
        write()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_who_means_them_to_be_samples_may_have_them_so(fmt: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "apart", format=fmt, view="interleaved") as writer:
        writer.write_batch(items("a", "b", "a"), duplicate_ids="apart")
        writer.write_batch(items("c", "b", "b"), duplicate_ids="apart")
    with lading.open(tmp_path / "apart") as dataset:
        assert [sample["sample_id"] for sample in dataset] == ["a", "b", "a", "c", "b"]


def upper_case(path: Path) -> Path:
    """Members that a reader calls `jpg`, `json` and `txt`; one sample has `TXT`, another `txt`."""
    with tarfile.open(path, "w") as tar:
        for name in ("a.JPG", "a.Json", "b.txt", "c.TXT"):
            entry = tarfile.TarInfo(name)
            entry.size = 2
            tar.addfile(entry, io.BytesIO(b"{}"))
    return path


@pytest.mark.soak
@pytest.mark.parametrize("lower_case", [True, False])
def test_names_of_copied_members_are_told_as_they_are_read(lower_case: bool, tmp_path: Path) -> None:
    source, options = upper_case(tmp_path / "in.tar"), {"lower_case": lower_case}
    given = lading.digest(source, options=options)
    assert given.count == 3
    lading.convert(source, tmp_path / "copied", format="webdataset", verify=True)
    names = ["jpg", "json", "txt"] if lower_case else ["JPG", "Json", "txt", "TXT"]
    with lading.open(tmp_path / "copied", options=options).with_decode(False) as dataset:
        assert dataset.schema.names == ["__key__", *names]
        assert [sorted(sample) for sample in dataset] == [sorted(dataset[i]) for i in range(3)]
        assert dataset.take([2, 0]).schema.names == ["__key__", *names]
    assert lading.digest(tmp_path / "copied", options=options) == given
    assert not lading.verify(tmp_path / "copied", deep=True).findings
    for fmt in ("parquet", "arrow"):
        lading.convert(tmp_path / "copied", tmp_path / fmt, format=fmt, source_options=options, verify=True)
        assert lading.digest(tmp_path / fmt) == given
    salvage(tmp_path / "copied", tmp_path / "saved")
    assert lading.digest(tmp_path / "saved", options=options) == given


@pytest.mark.parametrize("fmt", FORMATS)
def test_no_samples_taken_as_items_are_items(fmt: str, tmp_path: Path) -> None:
    lading.caches.write_cache([], {"x": Value("int64")}, tmp_path / "in")
    lading.convert(tmp_path / "in", tmp_path / "out", format=fmt, view="interleaved")
    with lading.open(tmp_path / "out") as dataset:
        assert (dataset.view, len(dataset)) == ("interleaved", 0)
        assert "sample_id" in dataset.schema.names
    assert lading.digest(tmp_path / "out").count == 0
    assert lading.verify(tmp_path / "out").ok


@pytest.mark.soak
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_text_that_others_keep_as_bytes_is_text(fmt: str, kind: pa.DataType, tmp_path: Path) -> None:
    """Spark writes text so, as do others that do not mark it."""
    table = items("a", "b", "c")
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(kind))
    write(table, tmp_path / f"in.{fmt}")
    write(items("a", "b", "c"), tmp_path / "plain.parquet")
    given = lading.digest(tmp_path / "plain.parquet")
    how = {"view": "interleaved"}
    assert lading.digest(tmp_path / f"in.{fmt}", **how) == given
    assert not lading.verify(tmp_path / f"in.{fmt}", deep=False, **how).findings
    with lading.open(tmp_path / f"in.{fmt}", **how) as dataset:
        assert [sample["sample_id"] for sample in dataset] == [dataset[i]["sample_id"] for i in range(3)]
        assert dataset.take([2, 0]).column("sample_id").to_pylist() == ["c", "c", "a", "a"]
    for target in FORMATS:
        lading.convert(tmp_path / f"in.{fmt}", tmp_path / target, format=target, **how)
        assert lading.digest(tmp_path / target) == given


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_an_id_that_is_no_text_is_an_error(fmt: str, tmp_path: Path) -> None:
    bad = items("a").set_column(0, "sample_id", pa.array([b"\xff", b"\xff"]))
    write(bad, tmp_path / f"in.{fmt}")
    with pytest.raises(SchemaMismatch, match=rf"in\.{fmt} column 'sample_id': sample ids must be text"):
        lading.digest(tmp_path / f"in.{fmt}", view="interleaved")


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def _put(path: Path, name: str) -> None:
    """Two samples with a field of this name."""
    table = pa.table({"a": [b"1", b"2"], name: [b"x", b"y"]})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f'{{"a": "{i}", "{name}": "x"}}\n' for i in range(2)))
    else:
        with tarfile.open(path, "w") as tar:
            for key, row in enumerate(table.to_pylist()):
                for field, value in row.items():
                    member = tarfile.TarInfo(f"{key}.{field}")
                    member.size = len(value)
                    tar.addfile(member, io.BytesIO(value))


@pytest.mark.parametrize("job, looked_at", [(lading.convert, 1), (salvage, 71)])
@pytest.mark.parametrize(
    "kind, target", [("parquet", "arrow"), ("arrow", "parquet"), ("tar", "parquet"), ("jsonl", "parquet")]
)
def test_a_column_that_nobody_knew_of_is_not_left_out(
    tmp_path: Path, kind: str, target: str, job: Callable[..., object], looked_at: int
) -> None:
    """A shard is exchanged, by one of the same size, between the look at all shards and its reading."""
    (tmp_path / "in").mkdir()
    for number in range(70):  # more than stay open
        _put(tmp_path / "in" / f"{number:03}.{kind}", "b")
    new = tmp_path / f"new.{kind}"
    _put(new, "c")
    told = count(1)

    def exchange(done: Progress) -> None:
        if not done.phase and next(told) == looked_at:  # salvage tells of its look, too
            new.replace(tmp_path / "in" / f"001.{kind}")

    told_of = "column 'c'.*expected.*a, b|the file was replaced"
    with pytest.raises((SchemaMismatch, CorruptShard, DatasetReplaced), match=rf"001\.{kind}.*({told_of})"):
        job(tmp_path / "in", tmp_path / "out", format=target, on_progress=exchange)


def test_a_field_that_was_not_written_is_not_left_out(tmp_path: Path) -> None:
    """Somebody puts another field, of the same size, into a file that has a manifest."""
    with lading.writer(tmp_path / "out", format="jsonl") as writer:
        writer.write_batch(pa.table({"a": ["one", "two,three,four"]}))
    [file] = (tmp_path / "out").glob("*.jsonl")
    file.write_text(file.read_text().replace('"two,three,four"', '"two","b":"four"'))
    with lading.open(tmp_path / "out") as dataset:
        with pytest.raises(SchemaMismatch, match="column 'b': a line has a field"):
            list(dataset.batches())
        assert [batch.to_pydict() for batch in dataset.batches(columns=["a"])] == [{"a": ["one", "two"]}]
