"""Doctor: datasets with one problem each, and the findings after the printed command was run."""

from __future__ import annotations

import gzip
import io
import os
import random
import shlex
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lading
from golden_cases import Golden
from lading._core.arrow.align import align_table
from lading._core.cli.main import app
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.formats.registry import format_names
from lading._core.jobs.verify.doctor import LayoutFinding, doctor
from lading._core.storage.base import FileInfo, write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import WrappedStore
from lading.errors import DataError, UsageError
from lading.limits import Limits
from lading.testing import CountingStore
from soak import SOAK
from tars import tar_of, write_hollow_tar

_MB = 1 << 20
_SHARDS = (".tar", ".tar.gz", ".parquet", ".arrow", ".mds", ".jsonl.gz")


def only(source: Any, problem: str, **opening: Any) -> LayoutFinding:
    """Return the only finding."""
    [finding] = doctor(source, **opening).findings
    assert finding.problem == problem
    return finding


def run(command: str | None) -> str:
    """Run a printed command, which has to work as it is; gives where it wrote to."""
    assert command is not None
    program, *words = shlex.split(command)
    assert program == "lading"
    done = CliRunner().invoke(app, words, prog_name="lading")
    assert done.exit_code == 0, done.output
    return words[words.index("--to") - 1] if "--to" in words else words[1]


def fixed(finding: LayoutFinding) -> str:
    """Return the dataset that a finding's command makes, which has no problems."""
    place = run(finding.command)
    assert doctor(place).findings == []
    return place


def same(source: Any, place: str, **opening: Any) -> None:
    """Samples are the same."""
    assert lading.digest(source, **opening).ordered == lading.digest(place).ordered


def random_bytes(size: int) -> bytes:
    return random.Random(5).randbytes(size)


# Sizes of shards


@pytest.mark.soak
def test_one_huge_shard(tmp_path: Path) -> None:
    folder = tmp_path / "one big"
    folder.mkdir()
    write_hollow_tar(folder / "all.tar", 17, 64 * _MB)
    finding = only(folder, "one huge shard")
    assert (finding.shard, finding.shards) == (str(folder / "all.tar"), 1)
    assert shlex.split(str(finding.command)) == [
        "lading", "convert", str(folder), f"{folder}-fixed", "--to", "webdataset",
    ]  # fmt: skip
    place = fixed(finding)
    assert len(list(Path(place).glob("*.tar"))) > 3


def test_shards_of_very_unequal_size(tmp_path: Path) -> None:
    for number in range(9):
        write_hollow_tar(tmp_path / f"s{number}.tar", 2, 512)
    write_hollow_tar(tmp_path / "s5.tar", 6, 12 * _MB)
    pattern = str(tmp_path / "s*.tar")
    finding = only(pattern, "shards of very unequal size")
    assert finding.shard == str(tmp_path / "s5.tar")
    same(pattern, fixed(finding))


def test_a_few_shards_that_are_somewhat_unequal_are_well(tmp_path: Path) -> None:
    for number in range(3):
        write_hollow_tar(tmp_path / f"s{number}.tar", 4, 30 * _MB if number == 1 else _MB)
    assert doctor(tmp_path).ok


@pytest.mark.soak
def test_very_many_small_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading._core.jobs.verify.doctor.MANY_SHARDS", 100)
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number:04d}.jsonl.gz").write_bytes(gzip.compress(b'{"n": %d}\n' % number))
    assert doctor(folder).ok
    (folder / "0100.jsonl.gz").write_bytes(gzip.compress(b'{"n": 100}\n'))
    finding = only(folder, "very many small shards")
    assert finding.shards == 101
    place = fixed(finding)
    assert [path.name for path in Path(place).glob("*.jsonl*")] == ["shard-000000.jsonl.gz"]
    same(folder, place)


# Parquet


def write_parquet(path: Path, batch: pa.RecordBatch, times: int, **options: Any) -> None:
    """A batch many times over, as one row group, by pyarrow."""
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_batches([batch] * times), path, row_group_size=1 << 30, **options)


@pytest.mark.soak
def test_large_row_groups(tmp_path: Path) -> None:
    batch = pa.record_batch({"text": pa.array(["x" * 4096] * 2048, pa.large_string())})
    path = tmp_path / "in" / "a.parquet"
    write_parquet(path, batch, 70, use_dictionary=False)
    assert pq.read_metadata(path).row_group(0).total_byte_size > 512 * _MB
    finding = only(path, "large row group")
    assert finding.measured.startswith("row group 0: 562 MB uncompressed")
    fixed(finding)


@pytest.mark.soak
def test_strings_near_the_limit_of_32_bits_behind_a_dictionary(tmp_path: Path) -> None:
    batch = pa.record_batch({"text": pa.array(["x" * 65536] * 1024)})
    path = tmp_path / "in" / "a.parquet"
    write_parquet(path, batch, 18)
    assert path.stat().st_size < 200_000
    findings = doctor(path).findings
    assert [f.problem for f in findings] == ["large row group", "32-bit strings near their limit"]
    assert findings[1].measured == "row group 0, column 'text': 1.1 GB, the type holds 2.0 GB"
    assert findings[0].command == findings[1].command
    if SOAK:  # 1 GB
        fixed(findings[1])


@pytest.mark.soak
@pytest.mark.parametrize("kind", [pa.large_string(), pa.struct([("text", pa.large_string())])])
def test_strings_of_64_bits_have_no_limit(kind: pa.DataType, tmp_path: Path) -> None:
    value = "x" * 65536
    values = [{"text": value} if pa.types.is_struct(kind) else value] * 1024
    batch = pa.record_batch({"text": pa.array(values, kind)})
    write_parquet(tmp_path / "in" / "a.parquet", batch, 18)
    only(tmp_path / "in", "large row group")


def test_small_row_groups(tmp_path: Path) -> None:
    table = pa.table({"n": range(1700), "text": [f"row {n}" for n in range(1700)]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=107)
    assert doctor(path).ok
    pq.write_table(table, path, row_group_size=100)
    finding = only(path, "small row groups")
    assert finding.measured.startswith("17 row groups")
    same(path, fixed(finding))


@pytest.mark.soak
def test_large_pages(tmp_path: Path) -> None:
    pictures = pa.array([random_bytes(_MB)] * 100, pa.large_binary())
    path = tmp_path / "in" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"jpg": pictures}), path, use_dictionary=False)
    finding = only(path, "large pages")
    assert finding.measured == "row group 0, column 'jpg': 100 MB a page, at most 64.0 MB"
    fixed(finding)


@pytest.mark.soak
def test_a_page_of_one_value_is_as_large_as_it_must_be(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    value = bytes(80 * _MB)
    pq.write_table(pa.table({"mp4": pa.array([value, None], pa.large_binary())}), path, use_dictionary=False)
    assert doctor(path).ok


def test_features_of_hugging_face_stay(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with lading.writer(made, format="parquet", options={"huggingface": True}) as writer:
        writer.write_batch(pa.table({"n": range(1700)}))
    source = tmp_path / "in.parquet"
    table = pq.read_table(next(made.glob("*.parquet")))
    pq.write_table(table, source, row_group_size=100)
    place = fixed(only(source, "small row groups"))
    assert b"huggingface" in (pq.read_schema(next(Path(place).glob("*.parquet"))).metadata or {})


# Arrow


class _Hollow(io.RawIOBase):
    """A file in which long spans of zeros are holes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if len(view) > _MB:
            self._file.seek(len(view), os.SEEK_CUR)
        else:
            self._file.write(view)
        return len(view)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def test_large_record_batches_and_strings_near_their_limit(tmp_path: Path) -> None:
    path = tmp_path / "in" / "a.arrow"
    path.parent.mkdir()
    count, size = 5, 210 * _MB
    offsets = pa.array([n * size for n in range(count + 1)], pa.int32()).buffers()[1]
    text = pa.StringArray.from_buffers(count, offsets, pa.py_buffer(bytes(count * size)))
    numbers = pa.array([[n] for n in range(count)])
    batch = pa.record_batch({"ns": numbers, "text": text})
    file = _Hollow(path)
    with pa.ipc.new_file(pa.PythonFile(file, "w"), batch.schema) as writer:
        writer.write_batch(batch)
    file.close()
    del batch, text
    findings = doctor(path).findings
    assert [f.problem for f in findings] == ["one huge shard", "large record batch", "32-bit strings near their limit"]
    assert findings[2].measured == "record batch 0, column 'text': 1.0 GB, the type holds 2.0 GB"
    if SOAK:  # 1 GB
        fixed(findings[0])


# Tars


def test_compressed_tars(tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    for number in range(2):
        body = tar_of(
            *((f"{number}{i}.bin", random_bytes(1000)) for i in range(3)), (f"{number}z.bin", random_bytes(9 * _MB))
        )
        (folder / f"{number}.tar.gz").write_bytes(gzip.compress(body, 1))
    finding = only(folder, "compressed tars")
    assert finding.shards == 2
    place = fixed(finding)
    assert sorted(path.suffix for path in Path(place).glob("shard-*")) == [".tar"]
    same(folder, place)


def test_samples_in_several_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(
        ("a.jpg", b"1"), ("b.jpg", b"2"), ("b.txt", b"3"), ("a.txt", b"4"), ("c.jpg", b"5"), ("a.cls", b"6")
    ))  # fmt: skip
    finding = only(path, "samples in several pieces")
    assert finding.measured == "keys that return with further fields: 1, such as 'a'"
    assert "--option regroup=true" in str(finding.command)
    place = fixed(finding)
    assert [sorted(s) for s in lading.open(place).with_decode(False)] == [
        ["__key__", "cls", "jpg", "txt"], ["__key__", "jpg", "txt"], ["__key__", "jpg"],
    ]  # fmt: skip


def test_pieces_are_found_by_an_index_too(tmp_path: Path) -> None:
    source = tmp_path / "a.tar"
    source.write_bytes(tar_of(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"4")))
    with pytest.warns(UserWarning, match="do not stand together"):
        lading.convert(source, tmp_path / "out", format="webdataset")
    fixed(only(tmp_path / "out", "samples in several pieces"))


def test_samples_that_share_a_key_are_no_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.jpg", b"3")))
    assert doctor(path).ok


def test_pieces_of_keys_that_others_share_have_no_command(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(*((name, b"1") for name in ("a.jpg", "b.jpg", "c.jpg", "a.jpg", "b.txt"))))
    finding = only(path, "samples in several pieces")
    assert finding.command is None
    assert "with the same fields: 1" in finding.measured


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_items_whose_ids_come_back(ending: str, tmp_path: Path) -> None:
    """They are refused when they are read, and a copy with the rows of each sample together mends that."""
    path = tmp_path / f"a.{ending}"

    def write(ids: str) -> None:
        rows = [
            {"sample_id": name, "position": i, "modality": "text", "text_content": "x"} for i, name in enumerate(ids)
        ]
        table = align_table(pa.Table.from_pylist(rows), INTERLEAVED_SCHEMA)
        if ending == "parquet":
            pq.write_table(table, path, row_group_size=3)
        else:
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=3)

    write("aabbcc")
    assert doctor(path).ok
    write("aabacccb")
    finding = only(path, "samples in several pieces")
    assert finding.measured.startswith("ids that return after others: 2, such as that of row ")
    assert doctor(fixed(finding)).ok
    with pytest.raises(DataError, match="not contiguous"), lading.open(path) as dataset:
        list(dataset.batches())


def test_pieces_that_the_peer_wrote(golden: Golden, tmp_path: Path) -> None:
    # What mends it is made beside it, where other tests would meet it.
    path = Path(shutil.copy(golden("wds") / "interleaved-keys" / "g.tar", tmp_path))
    finding = only(path, "samples in several pieces")
    place = fixed(finding)
    with tarfile.open(path) as tar:
        assert len(lading.open(place)) == len({name.split(".")[0] for name in tar.getnames()})


def test_a_tar_that_is_far_away_wants_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_hollow_tar(path, 9, _MB)
    assert doctor(path).ok
    url = f"local://{path}"
    finding = only(url, "remote tar without an index")
    assert finding.command == f"lading index {url}"
    run(finding.command)
    assert doctor(url).ok


# What it costs


@pytest.mark.soak
@pytest.mark.parametrize("format_name", ["parquet", "arrow", "webdataset", "mds"])
def test_no_payload_is_read(format_name: str) -> None:
    store = CountingStore(MemoryStore())
    stores = Stores({"box://": store})
    with lading.writer("box://in", format=format_name, stores=stores, shard_size="7mb") as writer:
        for number in range(24):
            values = pa.array([random_bytes(_MB)], pa.large_binary())
            writer.write_batch(pa.table({"__key__": [f"{number:02d}"], "bin": values}))
    before = store.bytes_read
    found = doctor("box://in", stores=stores)
    assert (found.ok, found.shards) == (True, 4)
    assert store.bytes_read - before < found.size_bytes // 20


# The command


def test_the_command_opens_the_source_as_it_was_opened(tmp_path: Path) -> None:
    folder = tmp_path / "it's $HOME"
    folder.mkdir()
    path = folder / "a.data"
    path.write_bytes(tar_of(("a.JPG", b"1"), ("b.JPG", b"2"), ("a.txt", b"4")))
    options = {"lower_case": False, "on_duplicate": "keep_last"}
    limits = Limits(tar_extensions=70, tar_cells=0)
    finding = only(
        path, "samples in several pieces", format="webdataset", view="samples", options=options, limits=limits
    )
    words = shlex.split(str(finding.command))
    assert words[2:] == [
        str(path), f"{folder}-fixed", "--to", "webdataset", "--from", "webdataset", "--view", "samples",
        "--option", "lower_case=false", "--option", "on_duplicate=keep_last", "--option", "regroup=true",
        "--max", "tar_cells=0", "--max", "tar_extensions=70",
    ]  # fmt: skip
    fixed(finding)


def test_the_destination_is_one_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.tar").write_bytes(tar_of(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"4")))
    monkeypatch.chdir(folder)
    assert fixed(only(".", "samples in several pieces")) == f"{folder}-fixed"
    assert fixed(only("a.tar", "samples in several pieces")) == "fixed"
    assert fixed(only("a.tar", "samples in several pieces")) == "fixed-2"
    assert fixed(only(folder / "a.tar", "samples in several pieces")) == f"{folder}-fixed-2"
    monkeypatch.chdir(tmp_path)
    assert fixed(only("in/a.tar", "samples in several pieces")) == "in-fixed-3"
    for number in (4, 5):
        (tmp_path / f"in-fixed-{number}").write_bytes(b"a file")
    assert fixed(only("in/a.tar", "samples in several pieces")) == "in-fixed-6"


class _OneFolder(WrappedStore):
    """A store that lists no other folder than one."""

    asked = 0

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        if prefix.startswith("box://in/"):
            return super().walk(prefix)
        self.asked += 1
        assert self.asked < 99
        raise UsageError("this store does not list that", file=prefix)


def test_a_store_that_does_not_list_the_destination_is_not_asked_for_ever() -> None:
    store = _OneFolder(MemoryStore())
    write_file(store, "box://in/a.tar", [tar_of(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"4"))])
    finding = only("box://in/a.tar", "samples in several pieces", stores=Stores({"box://": store}))
    assert "box://in-fixed" in shlex.split(str(finding.command))


@pytest.mark.parametrize("name, told", [
    ("a.tsv", ["--to-option", "delimiter=tab"]), ("a.csv.gz", ["--to-option", "compression=gzip"]), ("a.csv", []),
])  # fmt: skip
def test_a_copy_keeps_how_text_is_written(
    name: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading._core.jobs.verify.doctor.MANY_SHARDS", 100)
    folder = tmp_path / "in"
    folder.mkdir()
    body = b"n\n1\n"
    for number in range(101):
        (folder / f"{number}{name}").write_bytes(gzip.compress(body) if name.endswith("gz") else body)
    words = shlex.split(str(only(folder, "very many small shards").command))
    assert words[words.index("--to") + 2 :] == told


@pytest.mark.soak
@pytest.mark.parametrize("format_name, options, files", [
    ("mds", {"compression": "zstd"}, "*.mds.zstd"),
    ("arrow", {"layout": "huggingface"}, "state.json"), ("csv", {"delimiter": "tab"}, "*.tsv"),
    ("jsonl", {"compression": "xz"}, "*.jsonl.xz"), ("parquet", {"huggingface": True}, "*.parquet"),
])  # fmt: skip
def test_a_copy_keeps_how_shards_are_written(
    format_name: str, options: dict[str, str], files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading._core.jobs.verify.doctor.MANY_SHARDS", 100)
    folder = tmp_path / "in"
    with lading.writer(folder, format=format_name, shard_size=1, options=options) as writer:
        for number in range(101):
            writer.write_batch(pa.table({"n": [str(number)]}))
    place = fixed(only(folder, "very many small shards"))
    assert list(Path(place).glob(files))
    same(folder, place)


@pytest.mark.soak
def test_a_table_of_items_is_fixed_as_items(docs: Path, tmp_path: Path) -> None:
    lading.convert(docs, tmp_path / "out", format="parquet")
    path = tmp_path / "in.parquet"
    pq.write_table(pq.read_table(next((tmp_path / "out").glob("*.parquet"))), path, row_group_size=1)
    finding = only(path, "small row groups")
    place = fixed(finding)
    assert lading.open(place).view == "interleaved"
    same(path, place)


# What is well


@pytest.mark.parametrize("format_name", sorted({*format_names()} - {"files", "text", "warc"}))  # read only
def test_what_lading_writes_by_default_is_well(format_name: str, tmp_path: Path, docs: Path) -> None:
    if format_name in {"csv", "jsonl"}:
        with lading.writer(tmp_path / "out", format=format_name) as writer:
            writer.write_batch(pa.table({"text": [f"text {n}" for n in range(10_000)]}))
    else:
        lading.convert(docs, tmp_path / "out", format=format_name)
    found = doctor(tmp_path / "out")
    assert (found.ok, found.format) == (True, format_name)
    assert found.size_bytes > 0


@pytest.mark.soak
@pytest.mark.parametrize("family", ["arrow", "datatrove", "interleaved", "mds", "wds"])
def test_the_small_datasets_of_peers_are_well(family: str, golden: Golden) -> None:
    shards = [p for p in sorted(golden(family).rglob("*")) if p.name.endswith(_SHARDS)]
    assert shards
    unwell = [str(p.relative_to(golden(family))) for p in shards if not doctor(p).ok]
    # A key comes back with other fields; of rows that a writer is given an id does.
    pieces = {"wds": "interleaved-keys/g.tar", "interleaved": "writer-facts/input.arrow"}
    assert unwell == [pieces[family]] if family in pieces else not unwell


def test_the_shipped_documents_are_well(docs: Path) -> None:
    found = doctor(docs)
    assert (found.ok, found.shards, found.all_shards, found.view) == (True, 2, 2, "interleaved")


def test_a_part_of_the_shards_may_do(docs: Path) -> None:
    found = doctor(docs, sample="50%")
    assert (found.shards, found.all_shards) == (1, 2)
