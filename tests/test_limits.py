"""Every limit: a file that asks for more is refused by its name, quickly and in little memory, and is read once the
limit is raised. `docs/limits.md` has the table; `python tests/test_limits.py` prints it.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard

import lading
from arrow_files import arrow_bytes
from lading._core.arrow.references import FileEntry, make_refs, with_files
from lading._core.formats.base import ShardFile
from lading._core.jobs.dataset.merge import merge
from lading._core.jobs.salvage.files import TemporaryFiles
from lading._core.jobs.salvage.salvage import salvage
from lading._core.storage.fetch import Fetcher
from lading._core.storage.local import LocalStore
from lading.caches import read_cache_meta
from lading.compat.mosaicml import LocalCopy
from lading.errors import DataError, LimitExceeded, SidecarMismatch, UsageError
from lading.limits import DEFAULT_LIMITS, Limits
from lading.media import WarcReader
from lading.options import help_texts
from media import frame, medium
from odd_server import picture
from range_server import range_server
from tars import tar_of, write_long_named_tars
from watched import forget_peak, peak_mb

_PAGE = Path(lading.__file__).parents[2] / "docs/limits.md"
_MAX_SECONDS, _MAX_MB = 20, 60  # a collection of all the garbage of a test run alone may take 3 s

Read = Callable[[Limits], object]


def opened(path: Path, limits: Limits, **how: Any) -> list[dict[str, Any]]:
    with lading.open(path, limits=limits, **how) as dataset:
        return list(dataset)


def of_file(name: str, data: bytes, folder: Path, **how: Any) -> Read:
    (folder / name).write_bytes(data)
    return partial(opened, folder / name, **how)


def _downloaded(folder: Path) -> Read:
    """A table of the URL of a picture of 5 kB, which a server gives while the table is read."""

    def read(limits: Limits) -> object:
        with range_server({"/1.bmp": picture(40, 40, "BMP")}) as server:
            (folder / "t.csv").write_text(f"url\n{server.url}/1.bmp\n")
            table = lading.open(folder / "t.csv", limits=limits)
            return list(table.media_from("url", fetch=True, fetch_private=True))

    return read


def indexed(path: Path, limits: Limits) -> dict[str, Any]:
    with lading.open(path, limits=limits, view="samples") as dataset:
        return dataset[0]


# Text


def _json_of_fields(folder: Path) -> Read:
    lines = [json.dumps({f"n{first + i}": i for i in range(50)}) for first in range(0, 5000, 50)]
    return of_file("d.jsonl", "".join(f"{line}\n" for line in lines).encode(), folder)


def _long_line(folder: Path) -> Read:
    return of_file("d.jsonl", json.dumps({"a": "x" * 100_000}).encode() + b"\n", folder)


def _much_of_little(folder: Path) -> Read:
    packed = zstandard.ZstdCompressor().compress(b'{"a": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}\n' * 100_000)
    assert len(packed) < 10_000
    return of_file("d.jsonl.zst", packed, folder)


def _damaged_much_of_little(folder: Path) -> Read:
    _much_of_little(folder)
    path = folder / "d.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-4])

    def unpack(limits: Limits) -> object:
        with TemporaryFiles(LocalStore(), str(folder / "out")) as files:
            return files.unpacked(ShardFile(LocalStore(), str(path), limits=limits)).lost

    return unpack


def _large_window(folder: Path) -> Read:
    options = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=options).compressobj()
    text = packed.compress(b'{"a": 1}\n' * 10) + packed.flush()
    return of_file("d.jsonl.zst", text, folder)


def _large_dictionary(folder: Path) -> Read:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 512 << 20}]
    return of_file("d.jsonl.xz", lzma.compress(b'{"a": 1}\n', filters=filters), folder)


# Tables


def _parquet(folder: Path, values: list[bytes], **options: Any) -> Read:
    table = pa.table({"b": pa.array(values, pa.large_binary())})
    pq.write_table(table, folder / "s.parquet", **{"use_dictionary": False, "store_schema": False, **options})
    return partial(opened, folder / "s.parquet")


def _arrow(folder: Path, table: pa.Table, compression: str | None = None) -> Read:
    with pa.ipc.new_file(
        folder / "s.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as to:
        to.write_table(table)

    def read(limits: Limits) -> int:
        with lading.open(folder / "s.arrow", limits=limits) as dataset:
            return sum(batch.num_rows for batch in dataset.batches(max_rows=1 << 30))

    return read


def _wide(folder: Path) -> Read:
    return of_file("d.csv", b",".join(b"c%d" % i for i in range(300)) + b"\n" + b"1" + b"," * 299 + b"\n", folder)


# Tars


def _late_tail(folder: Path) -> Read:
    return of_file("t.tar.gz", gzip.compress(tar_of(("a.x", b"1")) + bytes(80 << 20)), folder)


def _long_name(folder: Path) -> Read:
    return of_file("t.tar", tar_of(("n" * 5000 + ".x", b"1"), form=tarfile.PAX_FORMAT), folder)


def _many_extensions(folder: Path) -> Read:
    data = tar_of(("n" * 200 + ".x", b"1"), form=tarfile.GNU_FORMAT)
    return of_file("t.tar", data[:1024] * 101 + data, folder)


def _holes(folder: Path, *, parts: int) -> Read:
    with (folder / "c.bin").open("wb") as file:
        for part in range(parts):
            file.seek(part << 20)
            file.write(b"x" * 4096)
        file.truncate(parts << 20)
    subprocess.run(["tar", "-S", "--format=gnu", "-cf", "t.tar", "c.bin"], cwd=folder, check=True)
    return partial(opened, folder / "t.tar")


def _sprawl(folder: Path) -> Read:
    (folder / "t.tar").write_bytes(tar_of(*((f"{i}.f{i}", b"1") for i in range(300))))
    return partial(indexed, folder / "t.tar")


def _long_document(folder: Path) -> Read:
    story = {"texts": ["x" * 100_000], "images": [None]}
    return of_file("t.tar", tar_of(("a.json", json.dumps(story).encode())), folder, view="interleaved")


# MDS, media, pictures, what lies beside shards


def _mds(folder: Path, **options: Any) -> Path:
    with lading.writer(folder / "mds", format="mds", options=options) as out:
        out.write({"a": 1, "b": "x" * (2 << 20), "c": 2.5})
    return folder / "mds"


def _mds_of_columns(folder: Path) -> Read:
    shard = next(_mds(folder).glob("*.mds"))
    return partial(opened, shard)


def _packed_mds(folder: Path) -> Read:
    path = _mds(folder, compression="zstd:3")
    return partial(opened, path)


def _record(folder: Path, named: int = 1) -> Read:
    record = frame(bytes(100_000))
    (folder / "a.zst").write_bytes(record)
    media = [medium(id=f"{i}", path="a.zst", offset=0, length=len(record)) for i in range(named)]
    (folder / "d.jsonl").write_text(json.dumps({"id": "a", "media": media}) + "\n")
    return partial(opened, folder / "d.jsonl", format="media_archive")


def _warc(folder: Path) -> Read:
    head = b"WARC/1.1\r\nWARC-Type: resource\r\nX-More: " + b"x" * (2 << 20) + b"\r\nContent-Length: 2\r\n\r\n"
    (folder / "a.warc").write_bytes(head + b"hi\r\n\r\n")
    media = medium(path="a.warc", offset=0)
    return lambda limits: WarcReader(folder, limits=limits).read_media_record(media)


def _tiff(folder: Path) -> Read:
    from PIL import Image

    pages = [Image.fromarray(np.zeros((400, 400, 3), np.uint8)) for _ in range(8)]
    out = io.BytesIO()
    pages[0].save(out, "TIFF", save_all=True, append_images=pages[1:], compression="tiff_lzw")
    (folder / "p.tiff").write_bytes(out.getvalue())
    size = len(out.getvalue())
    refs = make_refs(np.array([0]), np.array([size]), frame=1)
    schema = with_files(pa.schema([("image", refs.type)]), [FileEntry(str(folder / "p.tiff"), "", size, "")])
    batch = pa.record_batch([refs], schema=schema)

    def read(limits: Limits) -> object:
        with Fetcher(limits=limits) as fetcher:
            return fetcher.materialise(batch)

    return read


def _own_files(folder: Path) -> Read:
    with lading.writer(folder / "out", format="parquet") as out:
        out.write({"a": 1})
    return partial(opened, folder / "out")


def _index(folder: Path) -> Read:
    path = _mds(folder)
    for own in sorted((path / "_lading").iterdir()):
        own.unlink()
    (path / "_lading").rmdir()
    return partial(opened, path)


def _index_of_values(folder: Path) -> Read:
    read = _index(folder)
    index = folder / "mds" / "index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "more": [{"": 0}] * 5000}))
    return read


_ZEROS = bytes(8 << 20)
_CASES: dict[str, tuple[Callable[[Path], Read], int | None, int | None]] = {
    "arrow_batch_bytes": (lambda folder: _arrow(folder, pa.table({"b": [_ZEROS]}), "zstd"), 1 << 20, None),
    "bare_rows": (lambda folder: _arrow(folder, pa.table({"n": pa.nulls(3 << 20)})), None, 4 << 20),
    "document_bytes": (_long_document, 10_000, None),
    "fetch_bytes": (_downloaded, 4000, None),
    "fetch_seconds": (_downloaded, 0, None),
    "footer_bytes": (lambda folder: _parquet(folder, [b"x"]), 50, None),
    "image_frames": (_tiff, 4, None),
    "image_strips": (_tiff, 2, None),
    "index_bytes": (_index, 100, None),
    "index_values": (_index_of_values, 10_000, None),
    "json_fields": (_json_of_fields, None, 5000),
    "line_bytes": (_long_line, 10_000, None),
    "manifest_bytes": (_own_files, 100, None),
    "mds_columns": (_mds_of_columns, 2, None),
    "page_bytes": (lambda folder: _parquet(folder, [_ZEROS], compression="zstd"), 1 << 20, None),
    "page_header_bytes": (lambda folder: _parquet(folder, [b"x" * 200, b"y" * 200]), 64, None),
    "range_bytes": (_record, 99_999, 100_000),
    "salvage_bytes": (_damaged_much_of_little, 1 << 20, None),
    "sample_bytes": (partial(_record, named=20), 1_500_000, 2_000_000),
    "shard_bytes": (_packed_mds, 1 << 20, None),
    "stream_bytes": (_much_of_little, 1 << 20, None),
    "table_columns": (_wide, 299, None),
    "tar_cells": (_sprawl, 10_000, None),
    "tar_extension_bytes": (_long_name, 1000, None),
    "tar_extensions": (_many_extensions, None, 102),
    "tar_fields": (_sprawl, 299, None),
    "tar_keys_bytes": (_sprawl, 1000, None),
    "tar_map_blocks": (partial(_holes, parts=60), 1, None),
    "tar_member_bytes": (
        lambda folder: of_file("t.tar.gz", gzip.compress(tar_of(("a.x", _ZEROS[: 3 << 20]))), folder), 1 << 20, None,
    ),
    "tar_name_bytes": (_long_name, None, 6000),
    "tar_sparse_bytes": (partial(_holes, parts=3), 2 << 20, None),
    "tar_tail_bytes": (_late_tail, None, 100 << 20),
    "warc_header_bytes": (_warc, None, 4 << 20),
    "xz_memory_bytes": (_large_dictionary, None, 1 << 30),
    "zstd_window_bytes": (_large_window, None, 1 << 28),
}  # fmt: skip
"""By limit: what makes a file, a limit that it exceeds, and one that it does not; None for the usual one."""
_ALSO = {
    "page_header_bytes": {"page_bytes": 100},
    "tar_extension_bytes": {"tar_name_bytes": 6000},
}
"""Limits that have to be set beside one for it to be reached."""


def test_every_limit_has_a_case() -> None:
    names = [field.name for field in fields(Limits)]
    assert names == sorted(names)
    assert list(_CASES) == names


@pytest.mark.mechanism("files that ask for more than limits")
@pytest.mark.parametrize("name", _CASES)
def test_a_file_that_asks_for_more_is_refused_and_read_when_the_limit_is_raised(tmp_path: Path, name: str) -> None:
    make, small, large = _CASES[name]
    also = replace(DEFAULT_LIMITS, **_ALSO.get(name, {}))
    read = make(tmp_path)
    forget_peak()
    before, began = peak_mb(), time.process_time()
    with pytest.raises(LimitExceeded) as caught:
        read(also if small is None else replace(also, **{name: small}))
    assert time.process_time() - began < _MAX_SECONDS
    assert peak_mb() - before < _MAX_MB
    told = caught.value
    assert f"limits=Limits({name}=…), or --max {name}=…" in str(told)
    assert told.expected is not None
    assert told.found is not None
    assert str(tmp_path) in str(told.file)
    assert read(also if large is None else replace(also, **{name: large}))


@pytest.mark.parametrize("sample_id_field", ["auto", "id", None])
def test_every_reader_of_documents_has_their_limit(tmp_path: Path, sample_id_field: str | None) -> None:
    story = json.dumps({"id": "b", "texts": ["x" * 1000], "images": [None]}).encode()
    data = tar_of(("a.json", b'{"id": "a", "texts": ["x"], "images": [null]}'), ("b.json", story))
    options = lading.options.InterleavedOptions(sample_id_field=sample_id_field)
    said = rf"t\.tar @ 1536 sample 'b\.json': .*at most 1000 bytes, found {len(story)}.*document_bytes="
    (tmp_path / "t.tar").write_bytes(data)
    with pytest.raises(LimitExceeded, match=said):
        opened(tmp_path / "t.tar", Limits(document_bytes=1000), view="interleaved", interleaved=options)
    (tmp_path / "t.tar").write_bytes(data[:3072] + b"x" * 512 + data[3072:])
    saved = lading.salvage(tmp_path / "t.tar", tmp_path / "out", view="interleaved", interleaved=options,
                           limits=Limits(document_bytes=1000))  # fmt: skip
    assert (saved.samples, saved.lost_samples) == (1, 1)
    assert any("document_bytes=" in str(one.get("advice")) for one in saved.lost)


def test_large_json_says_nothing_of_the_view_of_a_tar(tmp_path: Path) -> None:
    objects = b"[" + b"{}," * (1 << 20) + b"0]"
    story = json.dumps({"texts": ["t"], "images": [None]}).encode()
    (tmp_path / "s.tar").write_bytes(tar_of(("a.json", objects)))
    (tmp_path / "i.tar").write_bytes(tar_of(("a.json", objects), ("b.json", story)))
    forget_peak()
    before = peak_mb()
    for name, view in (("s.tar", "samples"), ("i.tar", "interleaved")):
        with lading.open(tmp_path / name) as dataset:
            assert dataset.view == view
    assert peak_mb() - before < _MAX_MB


def test_documents_of_a_tar_have_the_limit_of_its_fields(tmp_path: Path) -> None:
    story = {"texts": ["t"], "images": [None], **{f"n{i}": i for i in range(300)}}
    (tmp_path / "t.tar").write_bytes(tar_of(("a.json", json.dumps(story).encode())))
    with pytest.raises(LimitExceeded, match=r"t\.tar: too many fields; expected at most 299, found 300.*tar_fields="):
        opened(tmp_path / "t.tar", Limits(tar_fields=299))
    assert opened(tmp_path / "t.tar", Limits(tar_fields=300))


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["line_bytes", "stream_bytes"])
def test_csv_has_the_limits_of_text(tmp_path: Path, name: str) -> None:
    text = b"a\n" + b"x" * 100_000 + b"\n" + b"y\n" * 300_000
    read = of_file("d.csv.zst", zstandard.ZstdCompressor().compress(text), tmp_path)
    with pytest.raises(LimitExceeded, match=f"--max {name}="):
        read(Limits(**{name: 10_000}))
    assert read(DEFAULT_LIMITS)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_tables_of_many_columns_are_refused_by_the_footer(tmp_path: Path, kind: str) -> None:
    table = pa.table({f"c{i}": [i] for i in range(300)})
    path = tmp_path / f"s.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        path.write_bytes(arrow_bytes(table))
    with pytest.raises(LimitExceeded, match=r"too many columns; expected at most 299, found 300.*--max table_columns="):
        opened(path, Limits(table_columns=299))
    assert opened(path, Limits(table_columns=300)) == table.to_pylist()


def test_a_csv_of_too_many_columns_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    _wide(tmp_path)
    with pytest.raises(DataError, match=r"too many columns.*--max table_columns="):
        salvage(tmp_path / "d.csv", tmp_path / "out", limits=Limits(table_columns=299))


def test_a_compressed_shard_without_an_index_has_the_same_limit(tmp_path: Path) -> None:
    [shard] = _mds(tmp_path, compression="zstd:3").glob("*.zstd")
    with pytest.raises(LimitExceeded, match=r"zstd.*--max shard_bytes="):
        opened(shard, Limits(shard_bytes=1 << 20))
    assert opened(shard, DEFAULT_LIMITS)


def test_a_shard_that_unpacks_to_more_than_its_index_says_is_no_matter_of_limits(tmp_path: Path) -> None:
    path = _mds(tmp_path, compression="zstd:3")
    [shard] = path.glob("*.zstd")
    index = json.loads((path / "index.json").read_text())
    longer = zstandard.ZstdDecompressor().decompress(shard.read_bytes()) + b"more"
    shard.write_bytes(zstandard.ZstdCompressor().compress(longer))
    index["shards"][0]["zip_data"]["bytes"] = shard.stat().st_size
    (path / "index.json").write_text(json.dumps(index))
    with pytest.raises(SidecarMismatch, match="unpacks to more than the index says"):
        opened(path, DEFAULT_LIMITS)


def test_every_kind_of_index_has_a_limit(tmp_path: Path) -> None:
    limits = Limits(index_bytes=10)
    wids = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": []}
    cache = {"cache_format_version": 1, "format": "arrow", "layout": "arrow-shards"}
    for name, told in (("wids.json", wids), ("_metadata.json", cache), ("state.json", {"_data_files": []})):
        (tmp_path / name).write_text(json.dumps(told))
        with pytest.raises(LimitExceeded, match=rf"{name}: .*--max index_bytes="):
            lading.open(tmp_path / name, limits=limits)
    with pytest.raises(LimitExceeded, match="--max index_bytes="):
        read_cache_meta(tmp_path, limits=limits)


@pytest.mark.parametrize("name", ["_metadata.json", "state.json", "index.json", "_lading/manifest.json"])
def test_small_values_of_an_index_take_no_memory(name: str, tmp_path: Path) -> None:
    """As objects of Python a million empty lists, of 3 MB, take 100."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"shards": [], "_data_files": [], "a": [' + "[]," * 1_000_000 + "0]}")
    limits = Limits(index_values=1_000_000)
    forget_peak()
    before = peak_mb()
    with pytest.raises(LimitExceeded, match=rf"{name}: an index of too many values; .*--max index_values="):
        lading.open(tmp_path, limits=limits)
    if name == "_metadata.json":
        with pytest.raises(LimitExceeded, match="--max index_values="):
            read_cache_meta(tmp_path, limits=limits)
    assert peak_mb() - before < 30


def test_what_is_built_on_indexes_takes_limits(tmp_path: Path) -> None:
    path = _mds(tmp_path)
    with pytest.raises(LimitExceeded, match="--max index_bytes="):
        LocalCopy(path, limits=Limits(index_bytes=10))
    with pytest.raises(LimitExceeded, match="--max manifest_bytes="):
        merge(tmp_path, limits=Limits(manifest_bytes=10))
    assert merge(tmp_path).parts == 1


def _packed_list(out: Path) -> None:
    """Make the list of shards a bomb, and the manifest agree."""
    listed, told = out / "_lading" / "shards.arrow", out / "_lading" / "manifest.json"
    table = pa.ipc.open_file(listed).read_all()
    many = table.set_column(0, "path", pa.array(["a" * (8 << 20)]))
    listed.write_bytes(arrow_bytes(many, max_rows=None, compression="zstd"))
    changed = json.loads(told.read_bytes())
    changed["files"]["_lading/shards.arrow"] = xxhash.xxh3_64(listed.read_bytes()).hexdigest()
    told.write_text(json.dumps(changed))


@pytest.mark.soak
def test_what_files_below_lading_unpack_to_is_looked_at_before_it_is_unpacked(tmp_path: Path) -> None:
    for name in ("list", "extents"):
        with lading.writer(tmp_path / name, format="jsonl") as out:
            out.write({"a": 1})
    _packed_list(tmp_path / "list")
    assert (tmp_path / "list" / "_lading" / "shards.arrow").stat().st_size < 1 << 20
    with pytest.raises(LimitExceeded, match="--max manifest_bytes=") as caught:
        lading.open(tmp_path / "list", limits=Limits(manifest_bytes=1 << 20))
    assert str(caught.value.file).endswith("shards.arrow")
    extents = tmp_path / "extents" / "_lading" / "extents-000000.arrow"
    table = pa.ipc.open_file(extents).read_all()
    bomb = pa.concat_tables([table] * 200_000).combine_chunks()
    extents.write_bytes(arrow_bytes(bomb, max_rows=None, compression="zstd"))
    [shard] = (tmp_path / "extents").glob("*.jsonl")
    shard.write_bytes(b'{"a": 2}\n')
    found = lading.verify(tmp_path / "extents", deep=True, limits=Limits(manifest_bytes=1 << 20)).findings
    assert [(f["error"], f["file"]) for f in found if "manifest_bytes" in str(f)] == [("LimitExceeded", str(extents))]


def test_a_salvage_passes_over_a_list_that_unpacks_to_too_much(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "source", format="jsonl") as out:
        out.write({"a": 1})
    _packed_list(tmp_path / "source")
    own = tmp_path / "source" / "_lading"
    (own / "manifest.json").write_text("{")  # or the list would not be looked at
    result = salvage(tmp_path / "source", tmp_path / "out", limits=Limits(manifest_bytes=1 << 20))
    assert [found["file"] for found in result.findings] == [str(own / "manifest.json"), str(own / "shards.arrow")]
    assert "--max manifest_bytes=" in str(result.findings[1])
    assert opened(tmp_path / "out", DEFAULT_LIMITS) == [{"a": 1}]


@pytest.mark.mechanism("limits of workers")
def test_workers_hold_to_the_limits_of_the_conversion(tmp_path: Path) -> None:
    """The names are longer than is usual: a worker that did not know would refuse them."""
    limits = Limits(tar_name_bytes=10_000)
    source = write_long_named_tars(tmp_path)
    done = lading.convert(
        source, tmp_path / "out", format="parquet", workers=2, shard_size=1, verify=True, limits=limits
    )
    assert (done.samples, done.verified) == (2, True)
    with pytest.raises(LimitExceeded, match="--max tar_name_bytes="):
        lading.convert(source, tmp_path / "more", format="parquet")
    assert lading.verify(source, limits=limits).samples == 2


@pytest.mark.parametrize("told", [{"line_bytes": -1}, {"line_bytes": True}, {"line_bytes": 1.5}, {"tar_fields": "9"}])
def test_what_is_no_limit(told: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"not a limit.*{next(iter(told))}"):
        Limits.of(told)


def test_limits_by_name() -> None:
    assert Limits.of({}) == DEFAULT_LIMITS
    assert Limits.of({"line_bytes": "1GB", "tar_fields": 9}) == Limits(line_bytes=1 << 30, tar_fields=9)
    with pytest.raises(UsageError, match=r"no such limit; expected arrow_batch_bytes, .*, found 'lines'"):
        Limits.of({"lines": 1})


# The page


def limits_table() -> str:
    """The table that `docs/limits.md` should have."""
    texts = help_texts(Limits)
    assert list(texts) == [field.name for field in fields(Limits)]
    rows = [f"| `{name}` | {_usual(name)} | {text} |" for name, text in texts.items()]
    return "\n".join(["| limit | default | limits |", "|---|---|---|", *rows]) + "\n"


def _usual(name: str) -> str:
    value: int = getattr(DEFAULT_LIMITS, name)
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if name.endswith("_bytes") and value % size == 0:
            return f"{value // size} {unit}"
    return f"{value:,}"


def test_the_page_has_every_limit() -> None:
    assert limits_table() in _PAGE.read_text(), "python tests/test_limits.py prints the table"


if __name__ == "__main__":
    sys.stdout.write(limits_table())
