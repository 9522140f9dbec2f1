"""Salvage: what is passed over, what is told, and where it is written."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import random
import shutil
import struct
import tarfile
import time
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import lading
from arrow_files import arrow_bytes
from cost import costs_at_most
from damage import damaged, some_rows
from lading._core.jobs.engine.progress import Progress
from lading._core.jobs.salvage.salvage import SalvageResult, salvage
from lading.errors import (
    CorruptShard,
    DataError,
    DestinationExists,
    LadingError,
    SourceNotFound,
    StoreError,
    UnknownFormat,
    Unrepresentable,
    UsageError,
)
from lading.limits import DEFAULT_LIMITS
from soak import SOAK
from tars import tar_of


def samples(source: Path) -> list[str]:
    """In any order of their fields: MDS has one of its own, where no manifest tells another."""
    with lading.open(source).with_decode(False) as dataset:
        return [repr(dict(sorted(sample.items()))) for sample in dataset]


def written(out: Path, fmt: str, checksums: str = "samples", **options: object) -> Path:
    with lading.writer(out, format=fmt, shard_size="60kb", options=options, checksums=checksums) as writer:
        writer.write_batch(some_rows(fmt))
    return out


def pairs(*keys: str) -> list[tuple[str, bytes]]:
    """Members of samples of a text and some bytes, more than a kilobyte each; the same in every run."""
    values = random.Random(0)
    return [
        member
        for key in keys
        for member in ((f"{key}.txt", values.randbytes(300).hex().encode()), (f"{key}.bin", values.randbytes(3000)))
    ]


def keys(source: Path) -> list[str]:
    with lading.open(source).with_decode(False) as dataset:
        return [sample["__key__"] for sample in dataset]


def test_a_shard_whose_name_is_no_utf8_is_told(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b\udcff.tar").write_bytes(tar_of(*pairs("a")))
    with pytest.raises(StoreError, match=r"b\\udcff.tar.*invalid UTF-8"):
        salvage(tmp_path / "in", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "mds", "jsonl", "csv", "arrow", "media_archive"])
def test_what_is_whole_is_written_as_it_is(fmt: str, tmp_path: Path) -> None:
    source = written(tmp_path / "source", fmt)
    result = salvage(source, tmp_path / "out")
    assert (result.ok, result.lost, result.findings, result.samples) == (True, [], [], 120)
    assert (result.format, result.source_format) == (fmt, fmt)
    assert samples(tmp_path / "out") == samples(source)
    assert not (tmp_path / "out" / "_lading" / "lost.jsonl").exists()
    assert lading.verify(tmp_path / "out", deep=True).ok


def test_progress_goes_to_the_end_twice(tmp_path: Path) -> None:
    """Every shard is looked at, and then written."""
    seen: list[Progress] = []
    with lading.writer(tmp_path / "source", format="webdataset", shard_size=2000) as writer:
        for key in "abcde":
            writer.write({"__key__": key, "txt": key * 999})
    result = salvage(tmp_path / "source", tmp_path / "out", on_progress=seen.append)
    total = result.source_shards
    assert total > 1
    assert [p.shards_done for p in seen[:total]] == [*range(1, total + 1)]
    assert {p.num_shards for p in seen} == {total}
    assert [p.shards_done for p in seen[total:]] == sorted(p.shards_done for p in seen[total:])
    assert (seen[-1].shards_done, seen[-1].samples) == (total, result.samples)


def test_another_format_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(*pairs("a", "b")))
    result = salvage(tmp_path / "a.tar", tmp_path / "out", format="parquet")
    assert (result.format, result.samples) == ("parquet", 2)
    assert pq.read_table(min((tmp_path / "out").glob("*.parquet"))).column("__key__").to_pylist() == ["a", "b"]


def test_of_a_format_that_lading_only_reads_parquet_is_written(tmp_path: Path) -> None:
    records = b"".join(
        b"WARC/1.0\r\nWARC-Type: resource\r\nWARC-Record-ID: <urn:x:%d>\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        b"Content-Length: 2\r\n\r\n%d%d\r\n\r\n" % (i, i, i)
        for i in range(3)
    )
    (tmp_path / "a.warc").write_bytes(records[:-5])
    result = salvage(tmp_path / "a.warc", tmp_path / "out")
    assert (result.source_format, result.format, result.samples) == ("warc", "parquet", 2)


@pytest.mark.soak
def test_a_shard_that_is_not_there_is_lost_and_the_others_are_saved(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "webdataset")
    shards = sorted(source.glob("*.tar"))
    with lading.open(source) as dataset:
        missing = len(dataset.shards[1])
    shards[1].unlink()
    result = salvage(source, tmp_path / "out")
    assert (result.samples, result.lost_samples) == (120 - missing, missing)
    assert [entry["file"] for entry in result.lost] == [str(shards[1])]


def starts_of(tar: Path) -> list[int]:
    """Where samples begin, and the padded end of the last one, as Python's own tarfile has it."""
    with tarfile.open(tar) as members:
        found = [(m.name.split(".")[0], m.offset, m.offset_data + -(-m.size // 512) * 512) for m in members]
    first = [at for number, (key, at, _) in enumerate(found) if not number or key != found[number - 1][0]]
    return [*first, found[-1][2]]


def with_index(tar: Path, *samples: str) -> list[int]:
    """A tar of these samples with a right `.tar.idx` beside it; gives what stands in that."""
    tar.write_bytes(tar_of(*pairs(*samples)))
    entries = starts_of(tar)
    Path(f"{tar}.idx").write_bytes(packed(*entries))
    return entries


def packed(*entries: int) -> bytes:
    """Entries as a `.tar.idx` has them."""
    return struct.pack(f"<{len(entries)}Q", *entries)


@pytest.mark.parametrize("wrong", ["zeros", "moved", "removed", "empty", "of another", "pipe"])
@pytest.mark.parametrize("shards", ["one", "two"])
def test_a_wrong_index_of_samples_is_told_and_passed_over(wrong: str, shards: str, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    entries = with_index(folder / "b.tar", "d", "e", "f")
    if shards == "two":
        with_index(folder / "a.tar", "a", "b")
    idx = folder / "b.tar.idx"
    bodies = {
        "zeros": bytes(16),
        "moved": packed(entries[0], entries[1] + 512, *entries[2:]),
        "removed": packed(entries[0], *entries[2:]),
        "empty": b"",
        "of another": packed(0, 1024, 4096),
    }
    idx.unlink()
    idx.write_bytes(bodies[wrong]) if wrong in bodies else os.mkfifo(idx)
    result = salvage(folder, tmp_path / "out")
    assert (result.ok, result.lost_samples, keys(tmp_path / "out")[-3:]) == (True, 0, ["d", "e", "f"])
    assert result.samples == (5 if shards == "two" else 3)
    assert [finding["file"] for finding in result.findings] == [str(idx)]


@pytest.mark.parametrize("body", [packed(0, 512, 99_999), None])
def test_a_wrong_index_of_samples_beside_a_shard_with_its_checksum_is_passed_over(
    body: bytes | None, tmp_path: Path
) -> None:
    source = written(tmp_path / "source", "webdataset")
    idx = Path(f"{sorted(source.glob('*.tar'))[1]}.idx")
    expected = samples(source)
    os.mkfifo(idx) if body is None else idx.write_bytes(body)
    result = salvage(source, tmp_path / "out")
    assert (result.ok, result.samples) == (True, 120)
    assert samples(tmp_path / "out") == expected
    assert [finding["file"] for finding in result.findings] == [str(idx)]


def test_an_index_of_samples_tells_of_those_that_were_cut_off(tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    entries = with_index(tar, "a", "b", "c", "d")
    tar.write_bytes(tar.read_bytes()[: entries[2]])
    result = salvage(tar, tmp_path / "out")
    assert (result.ok, result.samples, result.lost_samples) == (False, 2, 2)
    assert [entry["file"] for entry in result.lost] == [str(tar)]
    assert result.findings == []


def test_a_right_index_of_samples_is_not_blamed_for_a_damaged_tar(tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    entries = with_index(tar, "a", "b", "c", "d")
    tar.write_bytes(tar.read_bytes()[: entries[2] - 700])
    result = salvage(tar, tmp_path / "out")
    assert (result.ok, keys(tmp_path / "out"), result.findings) == (False, ["a"], [])


def test_an_index_that_lies_about_the_columns_of_a_compressed_shard_is_told_too(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "mds", compression="zstd")
    expected = samples(source)
    shutil.rmtree(source / "_lading")
    index = json.loads((source / "index.json").read_bytes())
    index["shards"][0]["column_names"] = ["a"] * len(index["shards"][0]["column_names"])
    (source / "index.json").write_text(json.dumps(index))
    result = salvage(source, tmp_path / "out")
    assert (result.ok, samples(tmp_path / "out")) == (True, expected)
    assert [finding["file"] for finding in result.findings] == [str(source / "index.json")]


@pytest.mark.parametrize("other", ["captions.jsonl", "b.arrow"])
def test_a_folder_of_several_formats_is_refused_unless_one_is_named(other: str, tmp_path: Path) -> None:
    source = written(tmp_path / "source", "parquet")
    shutil.rmtree(source / "_lading")
    (source / other).write_bytes(b'{"a": 1}\n')
    with pytest.raises(UnknownFormat, match="several formats"):
        salvage(source, tmp_path / "out")
    assert salvage(source, tmp_path / "out", source_format="parquet").samples == 120


def test_bytes_that_rows_lead_to_and_that_cannot_be_had_are_lost(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "whole").write_bytes(b"bytes")
    (folder / "t.tar.kept").write_bytes(tar_of(("a.jpg", b"a")))
    places = [
        {"path": "whole"}, {"path": "../x"}, {"path": "pipe"},
        {"path": "whole", "member": "m", "byte_offset": 2, "byte_size": 4}, {"path": "t.tar.kept", "member": "b.jpg"},
    ]  # fmt: skip
    rows = [
        {"sample_id": f"d{number}", "position": 0, "modality": "image", "source_ref": json.dumps(place)}
        for number, place in enumerate(places)
    ]
    nulls = {"binary_content": pa.nulls(5, pa.large_binary()), "text_content": pa.nulls(5, pa.string())}
    table = pa.Table.from_pylist(rows)
    for name, column in nulls.items():
        table = table.append_column(name, column)
    pq.write_table(table, folder / "a.parquet", row_group_size=2)
    result = salvage(folder, tmp_path / "out")
    assert (result.ok, result.samples, result.lost_samples) == (False, 5, 0)
    listed = [json.loads(line) for line in (tmp_path / "out" / "_lading" / "lost.jsonl").read_bytes().splitlines()]
    path = str(folder / "a.parquet")
    assert [(entry["file"], entry["row"], entry["sample"]) for entry in listed] == [
        (path, row, f"d{row}") for row in (1, 2, 3, 4)
    ]
    found = lading.verify(folder, deep=True).findings
    assert [entry["message"] for entry in listed] == [finding["message"] for finding in found]
    assert salvage(tmp_path / "out", tmp_path / "again").ok


def test_a_size_that_an_index_says_wrongly_is_a_finding(tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    tar.write_bytes(tar_of(*pairs("a")))
    index = {"__kind__": "wids-shard-index-v1", "shardlist": [{"url": "a.tar", "nsamples": 1, "filesize": 5}]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    result = salvage(tmp_path / "index.json", tmp_path / "out")
    assert (result.ok, result.samples) == (True, 1)
    assert [(finding["file"], finding["expected"]) for finding in result.findings] == [(str(tar), "5 bytes")]


def test_a_name_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(*pairs("a")))
    result = salvage([tmp_path / "a.tar", tmp_path / "b.tar"], tmp_path / "out")
    assert result.samples == 1
    assert [finding["file"] for finding in result.findings] == [str(tmp_path / "b.tar")]


def test_a_manifest_without_its_list_still_tells_the_types(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "csv")
    expected = samples(source)
    listed = source / "_lading" / "shards.arrow"
    listed.write_bytes(damaged(listed.read_bytes(), 100, "flipped"))
    result = salvage(source, tmp_path / "out")
    assert [finding["file"] for finding in result.findings] == [str(listed)]
    assert samples(tmp_path / "out") == expected


@pytest.mark.soak
@pytest.mark.parametrize(
    "name, value", [("format", "nope"), ("format", "csv"), ("view", "interleaved"), ("rank", "a"), ("version", -5)]
)
@pytest.mark.parametrize("fmt", ["webdataset", "parquet"])
def test_of_a_manifest_that_lies_the_copy_is_taken(name: str, value: object, fmt: str, tmp_path: Path) -> None:
    source = written(tmp_path / "source", fmt)
    expected = samples(source)
    path = source / "_lading" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), name: value}))
    result = salvage(source, tmp_path / "out")
    assert (result.ok, result.format, result.view) == (True, fmt, "samples")
    assert [finding["file"] for finding in result.findings] == [str(path)]
    assert samples(tmp_path / "out") == expected


def emptied(path: Path) -> None:
    """A link into nowhere, as git-annex and DVC leave where contents were not fetched."""
    path.unlink()
    path.symlink_to("nowhere")


@pytest.mark.soak
@pytest.mark.parametrize("harm", [Path.unlink, emptied])
@pytest.mark.parametrize("fmt", ["webdataset", "parquet"])
def test_of_a_manifest_that_is_gone_the_copy_is_taken(fmt: str, harm: Callable[[Path], object], tmp_path: Path) -> None:
    """By what it says of checksums a damage is found that the format does not see."""
    source = written(tmp_path / "source", fmt)
    expected = samples(source)
    path = source / "_lading" / "manifest.json"
    harm(path)
    assert [finding["file"] for finding in lading.verify(source, deep=True).findings] == [str(path)]
    shard = min(source.glob("*.tar" if fmt == "webdataset" else "*.parquet"))
    body = shard.read_bytes()
    at = len(body) // 3
    shard.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
    result = salvage(source, tmp_path / "out")
    assert [finding["file"] for finding in result.findings] == [str(path)]
    assert [entry["file"] for entry in result.lost] == [str(shard)]
    kept = samples(tmp_path / "out")
    assert 0 < result.lost_samples == 120 - len(kept)
    assert set(kept) < set(expected)


@pytest.mark.parametrize("harm", [Path.unlink, emptied, lambda path: path.write_bytes(path.read_bytes()[:500])])
def test_of_one_manifest_among_many_that_is_damaged_the_copy_is_taken(
    harm: Callable[[Path], object], tmp_path: Path
) -> None:
    """What the others say of checksums holds on."""
    source = tmp_path / "source"
    for rank in range(3):
        rows = pa.table({"__key__": [f"{rank}-{n}" for n in range(20)], "txt": [f"hello {n} " * 50 for n in range(20)]})
        with lading.writer(source, format="webdataset", rank=rank) as writer:
            writer.write_batch(rows)
    first, *_, last = sorted(source.glob("*.tar"))
    first.write_bytes(first.read_bytes().replace(b"hello 7 hello 7", b"hello 7 hallo 7", 1))
    harm(source / "_lading" / "00001" / "manifest.json")
    last.write_bytes(last.read_bytes().replace(b"hello 7 hello 7", b"hello 7 hallo 7", 1))
    result = salvage(source, tmp_path / "out")
    assert [(entry["file"], entry["sample"]) for entry in result.lost] == [(str(first), "0-7"), (str(last), "2-7")]
    assert [str(finding["file"]).removeprefix(str(source)) for finding in result.findings] == [
        "/_lading/00001/manifest.json"
    ]
    assert (result.samples, result.lost_samples) == (58, 2)


def test_a_list_of_shards_that_is_damaged_and_has_no_manifest_is_passed_over(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "parquet")
    expected = samples(source)
    (source / "_lading" / "manifest.json").unlink()
    (source / "_lading" / "shards.arrow").write_bytes(b"gone")
    result = salvage(source, tmp_path / "out")
    assert len(result.findings) == 2
    assert samples(tmp_path / "out") == expected


@pytest.mark.parametrize("harm", [Path.unlink, emptied])
def test_of_a_manifest_that_is_gone_with_its_list_the_files_are_read(
    harm: Callable[[Path], object], tmp_path: Path
) -> None:
    source = written(tmp_path / "source", "parquet")
    expected = samples(source)
    emptied(source / "_lading" / "manifest.json")
    harm(source / "_lading" / "shards.arrow")
    result = salvage(source, tmp_path / "out")
    assert str(source / "_lading" / "manifest.json") in [finding["file"] for finding in result.findings]
    assert samples(tmp_path / "out") == expected


def test_without_a_copy_of_a_manifest_of_an_unknown_format_the_files_say_theirs(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "parquet")
    path = source / "_lading" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "format": "nope"}))
    (source / "_lading" / "shards.arrow").write_bytes(b"gone")
    result = salvage(source, tmp_path / "out")
    assert (result.samples, result.format) == (120, "parquet")
    assert str(path) in {finding["file"] for finding in result.findings}


@pytest.mark.parametrize("checksums", ["samples", "files"])
def test_a_damage_that_no_format_notices_is_told_by_the_checksum(checksums: str, tmp_path: Path) -> None:
    source = written(tmp_path / "source", "webdataset", checksums=checksums)
    path = min(source.glob("*.tar"))
    body = bytearray(path.read_bytes())
    body[600] ^= 1
    path.write_bytes(body)
    result = salvage(source, tmp_path / "out")
    assert [entry["file"] for entry in result.lost] == [str(path)]
    if checksums == "samples":
        assert (result.samples, result.lost_samples, result.ok, result.lost[0]["row"]) == (119, 1, False, 0)
    else:
        assert (result.samples, result.ok) == (120, False)
        assert "differs from its checksum" in str(result.findings[0]["message"])


def test_where_the_extents_are_damaged_too_the_format_itself_says_what_is_left(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "jsonl")
    whole = len(samples(source))
    path = min(source.glob("*.jsonl"))
    body = path.read_bytes()
    path.write_bytes(body[:200] + b"\xff" + body[201:])
    extents = source / "_lading" / "extents-000000.arrow"
    extents.write_bytes(damaged(extents.read_bytes(), 300, "zeroed"))
    result = salvage(source, tmp_path / "out")
    assert result.samples == whole - 1
    assert {str(path), str(extents)} <= {finding["file"] for finding in result.findings}
    assert str(extents) in {finding["file"] for finding in lading.verify(source, deep=True).findings}


def test_a_tar_inside_a_tar_is_a_member(tmp_path: Path) -> None:
    inner = tar_of(*pairs("x", "y"))
    members = [*pairs("a", "b"), ("c.txt", b"c"), ("c.bin", inner), *pairs("d", "e")]
    for name, hurt in (("whole", b""), ("header", b"e.txt\0")):
        body = tar_of(*members)
        if hurt:
            at = body.index(hurt)
            body = body[:at] + b"?" * 100 + body[at + 100 :]
        (tmp_path / "a.tar").write_bytes(body)
        salvage(tmp_path / "a.tar", tmp_path / name)
        assert keys(tmp_path / name) == (["a", "b", "c"] if hurt else ["a", "b", "c", "d", "e"])


@pytest.mark.parametrize("lead", [b"", b"!", b"." * 512])
def test_tars_inside_a_member_that_lost_its_header_are_no_members(lead: bytes, tmp_path: Path) -> None:
    inner = lead + tar_of(*pairs("x", "y")) * 5
    body = tar_of(*pairs("a"), ("b.bin", inner), *pairs("c", "d"))
    at = body.index(b"b.bin\0")
    (tmp_path / "a.tar").write_bytes(body[:at] + b"?" * 512 + body[at + 512 :])
    salvage(tmp_path / "a.tar", tmp_path / "out")
    assert keys(tmp_path / "out") == ["d"]  # the samples next to the damage are lost too


@pytest.mark.soak
def test_members_behind_any_number_of_extension_records_are_found(tmp_path: Path) -> None:
    told = tarfile.TarInfo("a.txt")
    told.pax_headers = {"comment": "one of them"}
    record = told.tobuf(tarfile.PAX_FORMAT)[:1024]
    count = 4 * DEFAULT_LIMITS.tar_extensions
    (tmp_path / "a.tar").write_bytes(record * count + tar_of(*pairs("a", "b")))
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert keys(tmp_path / "out") == ["b"]
    assert [entry["offset"] for entry in result.lost][:1] == [0]
    (tmp_path / "b.tar").write_bytes(record * count)
    with pytest.raises(DataError, match="no sample could be saved"):
        salvage(tmp_path / "b.tar", tmp_path / "none")


@pytest.mark.parametrize("left", [-100, -1100, 2600, 4300])
def test_a_tar_that_is_a_member_may_be_cut_itself(left: int, tmp_path: Path) -> None:
    inner = tar_of(*pairs("x", "y"))[:left]
    (tmp_path / "a.tar").write_bytes(tar_of(*pairs("a", "b"), ("c.txt", b"c"), ("c.bin", inner), *pairs("d")))
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert (result.ok, keys(tmp_path / "out")) == (True, ["a", "b", "c", "d"])


@pytest.mark.parametrize("fields", [("cls", "tar"), ("tar", "txt")])
@pytest.mark.parametrize("plain", ["", "k000"])
@pytest.mark.parametrize("inner, left", [(["jpg"], 1536), (["jpg", "png"], 1536), (["jpg", "png"], 3072)])
def test_a_tar_without_an_end_is_a_value_though_it_holds_its_own_sample(
    inner: list[str], left: int, plain: str, fields: tuple[str, str], tmp_path: Path
) -> None:
    names = [f"k{number:03}" for number in range(120)]
    tars = {name: tar_of(*((f"{name}.{field}", b"x" * 700) for field in inner))[:left] for name in names}
    tars |= {plain: b"1"}
    body = tar_of(*((f"{name}.{field}", tars[name] if field == "tar" else b"1") for name in names for field in fields))
    (tmp_path / "a.tar").write_bytes(body)
    result = salvage(tmp_path / "a.tar", tmp_path / "out", view="samples")
    assert (result.ok, result.samples) == (True, 120)
    with lading.open(tmp_path / "out") as dataset:
        assert {sample["__key__"]: sample["tar"] for sample in dataset.samples(raw=True)} == {
            name: tars[name] for name in names
        }


@pytest.mark.parametrize("lead", [b"", b"PK\3\4", b"." * 512])
@pytest.mark.parametrize("size", [1000, 4096, 10_000])
def test_beginnings_of_tars_are_values_as_others(size: int, lead: bytes, tmp_path: Path) -> None:
    values = random.Random(0)
    inner = [tar_of(*((f"i{n}.bin", values.randbytes(values.randrange(500, 3000))) for n in range(20)))
             for _ in range(20)]  # fmt: skip
    members = [(f"k{n:02}.bin", lead + value[:size]) for n, value in enumerate(inner)]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    result = salvage(tmp_path / "a.tar", tmp_path / "out", view="samples")
    # A tar that was cut at the end of its payload, padded, looks like members that a payload swallowed.
    assert result.samples + len(result.lost) >= 20
    with lading.open(tmp_path / "out") as dataset:
        assert {s["__key__"]: s["bin"] for s in dataset}.items() <= {k.split(".")[0]: v for k, v in members}.items()


@pytest.mark.soak
@pytest.mark.parametrize("hurt", [b"", b"c.bin\0"])
def test_values_that_look_like_headers_take_no_long_time(hurt: bytes, tmp_path: Path) -> None:
    heads = b"".join(tarfile.TarInfo(f"i{n}.x").tobuf(tarfile.USTAR_FORMAT) for n in range(2000))
    value = b"!" + heads + b"ustar" * 200_000
    body = tar_of(("a.bin", b"a"), ("b.bin", value), ("c.bin", b"c"), ("d.bin", b"d"))
    if hurt:
        at = body.index(hurt)
        body = body[:at] + b"?" * 100 + body[at + 100 :]
    (tmp_path / "a.tar").write_bytes(body)
    begun = time.process_time()
    salvage(tmp_path / "a.tar", tmp_path / "out", view="samples")
    assert time.process_time() - begun < 2
    assert {"a"} <= {*keys(tmp_path / "out")} <= {*"abcd"}


def test_a_compressed_tar_that_ends_between_members_may_lack_some(tmp_path: Path) -> None:
    body = tar_of(*pairs("a", "b", "c"))
    at = body.index(b"c.bin\0")
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(body[:at]) + gzip.compress(body[at:])[:30])
    result = salvage(tmp_path / "a.tar.gz", tmp_path / "out")
    assert (keys(tmp_path / "out"), result.lost_samples) == (["a", "b"], 1)
    assert "c" in [entry.get("sample") for entry in result.lost]


def test_a_header_that_lost_its_name_is_none(tmp_path: Path) -> None:
    members = []
    for key in "abc":
        story = {"sample_id": key, "texts": ["one", None], "images": [None, f"{key}.1.jpg"]}
        members += [(f"{key}.1.jpg", b"\xff\xd8" + bytes(2000)), (f"{key}.json", json.dumps(story).encode())]
    body = tar_of(*members)
    at = body.index(b"b.1.jpg\0") + 30
    (tmp_path / "a.tar").write_bytes(body[:at] + body[at + 7 :])
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    with lading.open(tmp_path / "out") as dataset:
        assert [(sample["sample_id"], len(sample["items"])) for sample in dataset] == [("c", 2)]
    assert "b.json" in [entry.get("sample") for entry in result.lost]


@pytest.mark.parametrize("before", [0, 64, 200])
def test_a_payload_that_holds_members_up_to_its_end_is_lost_with_them(before: int, tmp_path: Path) -> None:
    # A header ends in zeros as a payload's padding does: what is left is in step, with c.txt as payload.
    body = tar_of(*pairs("a"), ("b.txt", b"b"), ("b.bin", b"b" * 1300), *pairs("c", "d"))
    start, stop = body.index(b"b.bin\0") + 512 - before, body.index(b"c.txt\0") - before
    (tmp_path / "a.tar").write_bytes(body[:start] + body[stop:])
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert keys(tmp_path / "out") == ["a", "d"]
    assert {"b", "c"} <= {entry.get("sample") for entry in result.lost}


def test_a_header_that_a_missing_byte_moved_is_taken_where_the_walk_meets_it_too(tmp_path: Path) -> None:
    # One place on, b.bin's header holds its checksum too: b.txt begins with the same letter.
    body = tar_of(
        ("a.bin", b"a"), ("a.txt", b"a" * 900), ("b.bin", b""), ("b.txt", b"b"), ("c.bin", b"c"), ("c.txt", b"c")
    )
    at = body.index(b"b.bin\0") - 300
    (tmp_path / "a.tar").write_bytes(body[:at] + body[at + 1 :])
    salvage(tmp_path / "a.tar", tmp_path / "out", view="samples")
    assert keys(tmp_path / "out") == ["c"]


def test_a_sample_of_one_field_inside_the_one_before_that_lacks_blocks_is_no_part_of_it(tmp_path: Path) -> None:
    values = [(f"k{number}.bin", bytes([number]) * size) for number, size in enumerate((100, 3000, 10, 700, 0))]
    body = tar_of(*values)
    at = body.index(b"k1.bin\0") + 512
    (tmp_path / "a.tar").write_bytes(body[:at] + body[at + 1024 :])
    result = salvage(tmp_path / "a.tar", tmp_path / "out", view="samples")
    assert keys(tmp_path / "out") == ["k0", "k4"]
    assert not result.counted
    assert [entry.get("sample") for entry in result.lost] == [None, "k1", "k3"]


def test_a_sample_beside_a_damage_that_lacks_a_member_is_lost_with_its_key(tmp_path: Path) -> None:
    body = tar_of(*pairs("a", "b", "c", "d"))
    at = body.index(b"b.bin\0")
    (tmp_path / "a.tar").write_bytes(body[:at] + bytes(512) + body[at + 512 :])
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert keys(tmp_path / "out") == ["a", "d"]
    assert [entry.get("sample") for entry in result.lost] == [None, "b", "c"]


@pytest.mark.parametrize("removed", [1, 511, 513, 1000, 1536])
def test_a_cut_of_any_length_is_stepped_over(removed: int, tmp_path: Path) -> None:
    body = tar_of(*pairs("a", "b", "c", "d"))
    at = body.index(b"b.bin\0") + 700
    (tmp_path / "a.tar").write_bytes(body[:at] + body[at + removed :])
    salvage(tmp_path / "a.tar", tmp_path / "out")
    assert keys(tmp_path / "out") == ["a", "d"]


@pytest.mark.parametrize("padding", [0, 255])
@pytest.mark.parametrize("value", [bytes(700), b"\xff" * 700, b""])
@pytest.mark.parametrize("end", [0, 512, 1024, 10240])
def test_a_tar_that_is_whole_stays_whole(end: int, value: bytes, padding: int, tmp_path: Path) -> None:
    # Old programs leave in the padding what they had in memory, and some write no end of archive or a shorter one.
    members = [(name, value) for name, _ in pairs("a", "b")]
    body = bytearray(tar_of(*members))
    step = 512 + -(-len(value) // 512) * 512
    for number in range(len(members)):
        at = number * step + 512 + len(value)
        body[at : (number + 1) * step] = bytes([padding]) * ((number + 1) * step - at)
    (tmp_path / "a.tar").write_bytes(body[: len(members) * step] + bytes(end))
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert (result.ok, result.samples, result.lost) == (True, 2, [])


def test_a_header_that_is_right_by_chance_is_none(tmp_path: Path) -> None:
    # Moved by a byte, the header of `c.txt` loses its `c` and gets the `c` that its payload begins with: its checksum
    # stays right, its size too, and it is read as one of old tars, which have no magic.
    members = [(name, b"c" + value[1:] if name == "c.txt" else value) for name, value in pairs("a", "b", "c", "d")]
    body = tar_of(*members)
    at = body.index(b"b.bin\0") + 700
    (tmp_path / "a.tar").write_bytes(body[:at] + body[at + 1 :])
    with lading.open(tmp_path / "a.tar", view="samples") as dataset, pytest.raises(DataError):
        list(dataset.samples(raw=True))
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert keys(tmp_path / "out") == ["a", "d"]
    assert [entry.get("sample") for entry in result.lost] == [None, "b", "c"]


def _value(values: random.Random, size: int) -> bytes:
    """Bytes of which none, the first 60, the last 40 or all are zeros, or a text."""
    kind = values.randrange(5)
    if kind == 0:
        return bytes(size)
    if kind == 1:
        return values.randbytes(size).hex().encode()[:size]
    before, behind = ((60, 0), (0, 40), (0, 0))[kind - 2]
    return bytes(before) + values.randbytes(size - before - behind) + bytes(behind)


@pytest.mark.cases(1)
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_bytes_lost_from_a_value_or_put_into_it_cost_its_sample_and_the_next(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + (50 if SOAK else 10)):
        values = random.Random(seed)
        members = [
            (f"{key}.{field}", _value(values, values.randrange(100, size)))
            for key in "abcdefg"
            for field, size in (("bin", 2000), ("dat", 3000))
        ]
        body = tar_of(*members)
        name, value = values.choice(members)
        start = body.index(name.encode() + b"\0") + 512
        count = min(values.choice([1, 2, 3, values.randrange(1, 40), values.randrange(1, 512)]), len(value))
        at = start + values.randrange(len(value) - count + 1)
        put = values.randbytes(count) if seed % 2 else b""
        source, out = tmp_path / f"{seed}.tar", tmp_path / f"{seed}"
        source.write_bytes(body[:at] + put + body[at + (0 if put else count) :])
        salvage(source, out)
        with lading.open(out) as dataset:
            found = {f"{sample['__key__']}.{field}": sample[field]
                     for sample in dataset.samples(raw=True) for field in ("bin", "dat")}  # fmt: skip
        expected = {other: kept for other, kept in members if abs(ord(other[0]) - ord(name[0])) > 1}
        # Where what stands there now happens to be the value that was written, the sample is whole.
        assert expected.items() <= found.items() <= dict(members).items(), (seed, name, count)


def test_a_document_whose_json_is_damaged_takes_its_images_along(tmp_path: Path) -> None:
    members = []
    for key in ("a", "b", "c"):
        story = {"texts": ["one", None], "images": [None, f"{key}.1.jpg"]}
        members += [(f"{key}.json", json.dumps(story).encode()), (f"{key}.1.jpg", b"\xff\xd8" + bytes(2000))]
    body = tar_of(*members)
    at = body.index(b'"b.1.jpg"')
    (tmp_path / "a.tar").write_bytes(body[:at] + b"\xff" + body[at + 1 :])
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert result.view == "interleaved"
    with lading.open(tmp_path / "out") as dataset:
        assert [sample["sample_id"] for sample in dataset] == ["a", "c"]
    assert [entry["sample"] for entry in result.lost] == ["b.json"]


def test_a_default_image_is_called_as_the_sample_whatever_its_document_is_called(tmp_path: Path) -> None:
    picture = b"\xff\xd8" + bytes(2000)
    stories = {key: {"sample_id": key, "texts": ["one", None], "images": [None, "odd"]} for key in ("foo", "bar")}
    stories["z"] = {"sample_id": "z", "texts": ["one"], "images": [None]}
    members = [(f"d{n}.json", json.dumps(story).encode()) for n, story in enumerate(stories.values())]
    body = tar_of(members[0], ("foo.jpg", picture), members[1], ("bar.jpg", picture), members[2])
    at = body.index(b"d2.json")
    (tmp_path / "a.tar").write_bytes(body[:at] + b"\xff" * 300 + body[at + 300 :])
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert [entry.get("sample") for entry in result.lost] == [None, "d1.json"]
    with lading.open(tmp_path / "out") as dataset:
        images = {sample["sample_id"]: sample["items"][1]["binary_content"] for sample in dataset}
    assert images == {"foo": picture}


def test_an_image_that_is_lost_far_from_its_document_costs_the_document(tmp_path: Path) -> None:
    documents = [(f"d{n}.json", json.dumps({"sample_id": f"s{n}", "texts": ["one"], "images": [f"p{n}.jpg"]}).encode())
                 for n in range(9)]  # fmt: skip
    body = tar_of(*documents, *((f"p{n}.jpg", b"\xff\xd8" + bytes(2000)) for n in range(9)))
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        at = tar.getmember("p4.jpg").offset
    (tmp_path / "a.tar").write_bytes(body[:at] + b"\xff" * 300 + body[at + 300 :])
    result = salvage(tmp_path / "a.tar", tmp_path / "out", format="parquet")
    assert (result.samples, result.lost_samples) == (6, 3)  # and those whose images are next to the damage
    assert [entry.get("sample") for entry in result.lost] == [None, "d3.json", "d4.json", "d5.json"]
    table = pq.read_table(tmp_path / "out" / "shard-000000.parquet").to_pylist()
    assert all(row["binary_content"] for row in table if row["modality"] == "image")


def test_an_image_that_a_sound_tar_lacks_is_told_and_one_that_was_meant_null_is_not(tmp_path: Path) -> None:
    story = {"sample_id": "a", "texts": [None] * 3, "images": ["gone.jpg", "d.1.jpg", None]}
    (tmp_path / "a.tar").write_bytes(tar_of(("d.json", json.dumps(story).encode())))
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert [(entry["sample"], entry["row"]) for entry in result.lost] == [("a", 1)]
    assert "gone.jpg" in str(result.lost[0]["message"])


@pytest.mark.parametrize(
    "odd",
    [
        {"texts": ["one", "\ud800"]},
        {"\ud800": 1},
        {"sample_id": "\ud800"},
        {"__lading__": {"content_type": {"text 0": 5}}},
    ],
)
def test_a_document_that_no_rows_can_be_made_of_takes_no_other_along(odd: dict[str, Any], tmp_path: Path) -> None:
    """A lone surrogate in its text, in its id or in the name of a field, or a content type that is a number."""
    members = []
    for key in ("a", "b", "c"):
        story = {"sample_id": key, "texts": ["one", None], "images": [None, f"{key}.1.jpg"]}
        story |= odd if key == "b" else {}
        members += [(f"{key}.json", json.dumps(story).encode()), (f"{key}.1.jpg", b"\xff\xd8" + bytes(2000))]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    place = (str(tmp_path / "a.tar"), "b.json")
    with lading.open(tmp_path / "a.tar") as dataset, pytest.raises(DataError) as caught:
        list(dataset.batches())
    assert (caught.value.file, caught.value.sample) == place
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    assert (result.samples, result.lost_samples) == (2, 1)
    assert [(entry["file"], entry["sample"], entry["offset"]) for entry in result.lost] == [(*place, 4096)]
    with lading.open(tmp_path / "out") as dataset:
        assert [(sample["sample_id"], len(sample["items"])) for sample in dataset] == [("a", 2), ("c", 2)]


@pytest.mark.parametrize("ending, packed", [(".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)])
def test_a_compressed_file_is_unpacked_behind_its_damage(ending: str, packed: object, tmp_path: Path) -> None:
    assert callable(packed)
    texts = [random.Random(n).randbytes(40).hex().encode() for n in range(300)]
    lines = [b"".join(b'{"n": %d, "t": "%s"}\n' % (n, texts[n]) for n in range(a, a + 100)) for a in (0, 100, 200)]
    parts = [packed(part) for part in lines]
    middle = parts[1][:2000] + bytes(500) + parts[1][2500:]
    (tmp_path / f"a.jsonl{ending}").write_bytes(parts[0] + middle + parts[2])
    result = salvage(tmp_path / f"a.jsonl{ending}", tmp_path / "out")
    with lading.open(tmp_path / "out") as dataset:
        saved = [sample["n"] for sample in dataset]
    assert {*range(100), *range(200, 300)} <= {*saved}
    assert not result.ok


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_items_of_a_sample_that_reaches_into_what_is_lost_go_along(fmt: str, tmp_path: Path) -> None:
    rows = items()
    path = tmp_path / f"a.{fmt}"
    if fmt == "parquet":
        pq.write_table(rows, path, row_group_size=10, compression="none", use_dictionary=False, write_statistics=False)
    else:
        path.write_bytes(arrow_bytes(rows, pa.ipc.new_stream))
    body = path.read_bytes()
    value = rows.column("text_content")[25].as_py().encode()
    at = body.index(value)
    path.write_bytes(body[:at] + b"\xff" * 100 + body[at + 100 :])
    result = salvage(path, tmp_path / "out")
    with lading.open(tmp_path / "out") as dataset:
        saved = [sample["sample_id"] for sample in dataset]
    assert saved == [f"s{n}" for n in range(20) if not {*range(3 * n, 3 * n + 3)} & {*range(20, 30)}]
    assert result.view == "interleaved"


def items() -> pa.Table:
    """Rows of 20 samples, each of a metadata row and two texts."""
    return pa.table({
        "sample_id": [f"s{n // 3}" for n in range(60)],
        "position": pa.array([n % 3 - 1 for n in range(60)], pa.int32()),
        "modality": [("metadata", "text", "text")[n % 3] for n in range(60)],
        "text_content": [None if n % 3 == 0 else random.Random(n).randbytes(200).hex() for n in range(60)],
        "binary_content": pa.nulls(60, pa.large_binary()),
    })  # fmt: skip


def texts_of(source: Path) -> dict[str, list[str]]:
    with lading.open(source, view="interleaved") as dataset:
        return {sample["sample_id"]: [item["text_content"] for item in sample["items"]] for sample in dataset}


@pytest.mark.parametrize("kind", ["flipped", "cut"])
@pytest.mark.parametrize("fmt, options", [
    ("parquet", {"row_group_bytes": 3000}), ("arrow", {"batch_rows": 10}),
    ("arrow", {"batch_rows": 10, "layout": "huggingface"}),
])  # fmt: skip
def test_no_sample_is_kept_without_the_items_that_checksums_say_are_lost(
    fmt: str, options: dict[str, object], kind: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    with lading.writer(source, format=fmt, view="interleaved", options=options) as writer:
        writer.write_batch(items())
    before = texts_of(source)
    path = min(source.glob(f"*.{fmt}"))
    body = path.read_bytes()
    for at in range(0, len(body), len(body) // (10 if SOAK else 3)):
        path.write_bytes(damaged(body, at, kind))
        result = salvage(source, out, overwrite=True)
        after = texts_of(out)
        assert all(after[key] == before[key] for key in after), at
        assert len(after) >= len(before) - 10, at
        assert result.lost_samples == len(before) - len(after)


@pytest.mark.soak
def test_no_sample_is_kept_without_the_items_of_a_record_batch_that_is_not_found(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(arrow_bytes(items(), pa.ipc.new_stream))
    before = texts_of(path)
    body = path.read_bytes()
    starts = [at for at in range(len(body)) if body[at : at + 4] == b"\xff" * 4 and body[at + 4 : at + 8] != bytes(4)]
    assert len(starts) == 7  # the schema, and six batches
    for batch, at in enumerate(starts[3:], 2):
        path.write_bytes(body[:at] + bytes(8) + body[at + 8 :])
        result = salvage(path, tmp_path / "out", overwrite=True)
        after = texts_of(tmp_path / "out")
        assert all(after[key] == before[key] for key in after), at
        assert len(after) >= len(before) * (batch - 1) // 6 - 2, at  # those before the last batch in doubt
        assert not result.ok


def test_a_sample_that_begins_behind_what_is_lost_is_whole(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with lading.writer(source, format="arrow", view="interleaved", options={"batch_rows": 6}) as writer:
        writer.write_batch(items())
    path = min(source.glob("*.arrow"))
    body = path.read_bytes()
    value = texts_of(source)["s4"][1].encode()
    at = body.index(value)
    path.write_bytes(body[:at] + bytes(len(value)) + body[at + len(value) :])
    salvage(source, tmp_path / "out")
    assert [*texts_of(tmp_path / "out")] == [f"s{n}" for n in range(20) if n not in (3, 4, 5)]


@pytest.mark.soak
def test_what_is_lost_is_not_compared_with_all_else_that_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path / "source", "webdataset")
    path = min(source.glob("*.tar"))
    body = bytearray(path.read_bytes())
    for at in range(600, len(body) - 10_240, 1024):
        body[at] ^= 1
    path.write_bytes(body)
    compared: list[object] = []

    def told(error: LadingError, other: object) -> bool:
        compared.append(other)
        return error is other

    monkeypatch.setattr(LadingError, "__eq__", told)
    monkeypatch.setattr(LadingError, "__hash__", object.__hash__)
    result = salvage(source, tmp_path / "out")
    assert result.lost_entries > 9
    assert result.findings == []
    assert len(compared) == 0


@pytest.mark.parametrize("last", [1 << 31, 1 << 36, 1 << 62])
@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_extents_that_tell_of_more_rows_than_there_can_be(view: str, last: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with lading.writer(source, format="parquet", view=view, options={"row_group_bytes": 3000}) as writer:
        writer.write_batch(items())
    path, file = min(source.glob("*.parquet")), source / "_lading" / "extents-000000.arrow"
    table = pa.ipc.open_file(file.read_bytes()).read_all()
    ends = table["last_row"].to_pylist()
    number = max(n for n, row in enumerate(ends) if row >= 0)
    ends[number] = last
    table = table.set_column(3, table.schema.field(3), pa.array(ends))
    file.write_bytes(arrow_bytes(table, max_rows=None))
    body = bytearray(path.read_bytes())
    body[sum(table["size_bytes"].to_pylist()[: number + 1]) - 100] ^= 0xFF
    path.write_bytes(body)
    result = salvage(source, tmp_path / "out")
    assert result.samples
    assert not result.ok
    told = {finding["file"]: str(finding["message"]) for finding in result.findings}
    assert str(path) in told
    assert ("a row that the shard does not have" in told.get(str(file), "")) == (view == "samples")


@pytest.mark.soak
@pytest.mark.parametrize("ending, packed, least", [
    (".gz", gzip.compress, 650), (".zst", zstandard.ZstdCompressor().compress, 500),
])  # fmt: skip
def test_a_compressed_file_is_unpacked_up_to_its_damage(
    ending: str, packed: object, least: int, tmp_path: Path
) -> None:
    assert callable(packed)
    lines = b"".join(
        b'{"n": %d, "t": "%s"}\n' % (n, 10 * random.Random(n).randbytes(20).hex().encode()) for n in range(1000)
    )
    body = packed(lines)
    path = tmp_path / f"a.jsonl{ending}"
    at = len(body) * 3 // 4
    path.write_bytes(body[:at] + b"\xff" * 1000 + body[at + 1000 :])
    salvage(path, tmp_path / "out")
    with lading.open(tmp_path / "out") as dataset:
        saved = [sample["n"] for sample in dataset]
    assert saved[:least] == [*range(least)]


@pytest.mark.soak
def test_what_a_checksum_says_is_damaged_is_not_kept_where_what_is_beside_it_cannot_be_read(tmp_path: Path) -> None:
    source, out = written(tmp_path / "source", "media_archive"), tmp_path / "out"
    before = {*samples(source)}
    path = min(source.glob("*.bin.zst"))
    body = path.read_bytes()
    for at in range(1000, len(body), len(body) // 10):
        path.write_bytes(body[:at] + random.Random(0).randbytes(1024) + body[at:])
        result = salvage(source, out, overwrite=True)
        saved = {*samples(out)}
        assert saved <= before, at
        assert result.lost_samples == len(before - saved) > 0, at


@pytest.mark.soak
def test_it_is_told_of_a_compressed_shard_that_what_is_kept_may_differ_though_some_is_lost(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "mds", compression="zstd")
    first = json.loads((source / "index.json").read_bytes())["shards"][0]
    path = source / first["zip_data"]["basename"]
    body = path.read_bytes()
    for at in range(100, len(body), len(body) // 20):
        path.write_bytes(damaged(body, at, "zeroed"))
        result = salvage(source, tmp_path / "out", overwrite=True)
        told = [entry for entry in result.lost if "may be among those that are saved" in str(entry["message"])]
        assert [entry["file"] for entry in told] == [str(path)] * (result.lost_samples < first["samples"])


def test_losses_of_a_compressed_file_name_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"n": 1}\n{"n": "\xe9"}\n{"n": 2}\n'))
    result = salvage(path, tmp_path / "out")
    [entry] = result.lost
    assert (result.samples, entry["file"], entry.get("advice")) == (2, str(path), None)
    assert "UTF-8" in entry["message"]


def test_where_nothing_is_left_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(random.Random(0).randbytes(5000))
    with pytest.raises(DataError, match="no sample could be saved"):
        salvage(tmp_path / "a.tar", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


@pytest.mark.parametrize("target", ["csv", "jsonl"])
def test_advice_on_what_another_format_cannot_hold_can_be_taken(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(*pairs("a")))
    with pytest.raises(Unrepresentable) as caught:
        salvage(tmp_path / "a.tar", tmp_path / "out", format=target)
    assert caught.value.advice == "Salvage it with --to webdataset, and convert what was saved."


def test_usual_rules_of_destinations_hold(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(tar_of(*pairs("a")))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_bytes(b"")
    with pytest.raises(DestinationExists):
        salvage(tmp_path / "in", tmp_path / "out")
    with pytest.raises(DestinationExists, match="1 other file: mine"):
        salvage(tmp_path / "in", tmp_path / "out", overwrite=True)
    (tmp_path / "out" / "mine").unlink()
    (tmp_path / "out" / "b.tar").write_bytes(tar_of(*pairs("b")))
    with pytest.raises(UsageError, match="inside the source"):
        salvage(tmp_path / "in", tmp_path / "in" / "out")
    with pytest.raises(UsageError, match="inside the source"):
        salvage(f"file://{tmp_path}/in", tmp_path / "in", overwrite=True)
    for name, what in (("none.tar", "no such file or folder"), ("none*.tar", "no file matches the pattern")):
        with pytest.raises(SourceNotFound, match=what):
            salvage(tmp_path / name, tmp_path / "out", overwrite=True)
    odd = os.fsencode(tmp_path) + b"/a\xff.tar"
    with open(odd, "wb") as file:
        file.write(tar_of(("a.txt", b"a")))
    with pytest.raises(StoreError, match=r"the name of a file is invalid UTF-8\. Rename it"):
        salvage(os.fsdecode(odd), tmp_path / "out", overwrite=True)
    assert salvage(tmp_path / "in", tmp_path / "out", overwrite=True).samples == 1
    assert keys(tmp_path / "out") == ["a"]


@pytest.mark.soak
def test_an_index_that_is_broken_is_made_anew_as_its_error_says(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "webdataset")
    path = source / "_lading" / "index-000000.arrow"
    body = path.read_bytes()
    path.write_bytes(body[:-200] + b"\xff" * 50 + body[-150:])
    with (
        lading.open(source) as dataset,
        pytest.raises(CorruptShard, match=r"'lading salvage .* DST' does without it") as caught,
    ):
        dataset.by_key("any")
    assert caught.value.file == str(path)
    result = salvage(source, tmp_path / "out")
    assert (result.ok, samples(tmp_path / "out")) == (True, samples(source))
    with lading.open(tmp_path / "out") as dataset, pytest.raises(KeyError):
        dataset.by_key("any")


@pytest.mark.soak
def test_what_was_lost_is_held_for_one_shard_at_a_time(tmp_path: Path) -> None:
    for number in range(3):
        rows = [{"sample_id": f"{number}-{n}", "position": 0, "modality": "image",
                 "source_ref": json.dumps({"path": f"gone-{number}-{n}.jpg"})} for n in range(50)]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{number}.parquet")
    held = []

    def count(_: object) -> None:
        # By their types: asked for their class, some objects of torch's warn.
        errors = [one for one in gc.get_objects() if issubclass(type(one), LadingError)]
        held.append(sum(str(one.file).startswith(str(tmp_path)) for one in errors))

    result = salvage(str(tmp_path / "*.parquet"), tmp_path / "out", view="interleaved", on_progress=count)
    assert result.lost_entries == 150
    assert max(held) < 100


def test_the_list_of_what_was_lost_is_whole_and_has_its_checksum(tmp_path: Path) -> None:
    lines = [b'{"n": %d}' % n if n % 2 else b"{broken" for n in range(1000)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    result = salvage(tmp_path / "a.jsonl", tmp_path / "out")
    assert (result.samples, result.lost_samples, result.lost_entries, len(result.lost)) == (500, 500, 500, 100)
    listed = tmp_path / "out" / "_lading" / "lost.jsonl"
    offsets = [json.loads(line)["offset"] for line in listed.read_bytes().splitlines()]
    assert offsets == [1 + sum(len(line) + 1 for line in lines[:n]) for n in range(0, 1000, 2)]  # of the first bad byte
    assert lading.verify(tmp_path / "out", deep=True).ok
    listed.write_bytes(listed.read_bytes() + b"\n")
    assert str(listed) in [finding["file"] for finding in lading.verify(tmp_path / "out", deep=True).findings]


def test_a_record_of_csv_with_lines_in_it_survives_a_quote_that_is_gone(tmp_path: Path) -> None:
    text = 'a,b\n1,"one\ntwo"\n2,"thr"ee\nfour"\n3,"five\nsix"\n4,seven\n'
    (tmp_path / "a.csv").write_text(text)
    salvage(tmp_path / "a.csv", tmp_path / "out")
    with lading.open(tmp_path / "out") as dataset:
        assert [sample["a"] for sample in dataset] == ["1", "3", "4"]


@pytest.mark.parametrize("body", [None, b"", b"<html>not found</html>"])
def test_a_parquet_file_that_is_none_is_listed_once(body: bytes | None, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    pq.write_table(pa.table({"n": range(100)}), folder / "a.parquet")
    pq.write_table(pa.table({"n": range(100)}), folder / "b.parquet")
    bad = folder / "b.parquet"
    bad.write_bytes(bad.read_bytes()[:300] if body is None else body)
    result = salvage(folder, tmp_path / "out")
    assert (result.samples, result.lost_entries) == (100, 1)
    assert [entry["file"] for entry in result.lost] == [str(bad)]


@pytest.mark.parametrize("header, line", [("a,b", 3), ('"a\nx",b', 4)])
def test_lines_of_csv_are_counted_with_the_header(header: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n1,2\n3,4,5\n6,7\n")
    told = salvage(tmp_path / "a.csv", tmp_path / "out").lost
    found = lading.verify(tmp_path / "a.csv").findings
    assert [str(entry["message"]).split(":")[0] for entry in (*told, *found)] == [f"line {line}"] * 2


def test_samples_of_an_mds_shard_are_lost_with_their_places(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "mds")
    shutil.rmtree(source / "_lading")
    expected = samples(source)
    for path in sorted(source.glob("*.mds")):
        body = path.read_bytes()
        path.write_bytes(body[:12] + bytes(8) + body[20:])  # where samples 2 and 3 begin
    result = salvage(source, tmp_path / "out")
    assert all(sample in expected for sample in samples(tmp_path / "out"))
    count = len(list(source.glob("*.mds")))
    assert (result.samples, result.lost_samples) == (120 - 3 * count, 3 * count)
    assert [entry["row"] for entry in result.lost] == [1, 2, 3] * count


@pytest.mark.soak
@pytest.mark.parametrize(
    "name, lie", [("column_encodings", ["str", "str", "str", "str"]), ("column_names", ["a", "a", "a", "a"])]
)
@pytest.mark.parametrize("lies", [slice(1, 2), slice(None)])
def test_an_index_that_lies_about_columns_is_told_and_costs_no_sample(
    name: str, lie: list[str], lies: slice, tmp_path: Path
) -> None:
    source = written(tmp_path / "source", "mds")
    expected = samples(source)
    shutil.rmtree(source / "_lading")
    index = json.loads((source / "index.json").read_bytes())
    told = index["shards"][lies]
    for shard in told:
        shard[name] = lie[: len(shard[name])]
    (source / "index.json").write_text(json.dumps(index))
    result = salvage(source, tmp_path / "out")
    assert (result.ok, result.lost_entries, samples(tmp_path / "out")) == (True, 0, expected)
    assert [finding["file"] for finding in result.findings] == [str(source / "index.json")] * len(told)


def test_a_shard_that_neither_index_nor_its_own_head_reads_is_listed_once(tmp_path: Path) -> None:
    source = written(tmp_path / "source", "mds")
    shutil.rmtree(source / "_lading")
    index = json.loads((source / "index.json").read_bytes())
    first = index["shards"][0]
    first["column_names"] = ["a"] * len(first["column_names"])
    (source / "index.json").write_text(json.dumps(index))
    path = source / first["raw_data"]["basename"]
    path.write_bytes(bytes(path.stat().st_size))
    result = salvage(source, tmp_path / "out")
    assert (result.samples, result.lost_samples) == (120 - first["samples"], first["samples"])
    assert [entry["file"] for entry in result.lost] == [str(path)]


def test_the_schema_of_an_arrow_file_is_taken_from_its_footer(tmp_path: Path) -> None:
    table = some_rows("arrow")
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    body = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(body[:16] + bytes(64) + body[80:])
    result = salvage(tmp_path / "a.arrow", tmp_path / "out")
    assert result.samples == 120
    assert not result.lost  # the footer rules


NUMBERED = pa.table({"n": [*range(200)], "t": [f"text {n} " * 10 for n in range(200)]})


def numbers(source: Path) -> list[int]:
    """The samples of `NUMBERED` that are left, each of which is as it was."""
    with lading.open(source) as dataset:
        found = list(dataset)
    assert [sample["t"] for sample in found] == [f"text {sample['n']} " * 10 for sample in found]
    return [sample["n"] for sample in found]


def bodies_of(body: bytes) -> list[int]:
    """Where the messages of an Arrow file or stream begin that are none of the schema, and where the last one ends."""
    with pa.BufferReader(body) as stream:
        stream.seek(8 if body.startswith(b"ARROW1") else 0)
        starts = []
        while True:
            try:
                pa.ipc.read_message(stream)
            except (EOFError, pa.ArrowInvalid):
                return starts
            starts.append(stream.tell())


@pytest.mark.parametrize("make", [pa.ipc.new_stream, pa.ipc.new_file])
@pytest.mark.parametrize("size", [1, 8, 1024, -1, -8, -500])
def test_a_record_batch_that_bytes_came_into_or_went_from_is_lost(make: object, size: int, tmp_path: Path) -> None:
    path, out = tmp_path / "a.arrow", tmp_path / "out"
    body = arrow_bytes(NUMBERED, make, 50)
    starts = bodies_of(body)
    assert len(starts) == 5
    for batch in (1, 2, 3):  # the last one has the end mark behind it
        at = starts[batch + 1] - 600
        path.write_bytes(body[:at] + b"x" * size + body[at + max(-size, 0) :])
        result = salvage(path, out, overwrite=True)
        assert numbers(out) == [*range(50 * batch)]  # what comes behind is nowhere said to be a message
        assert [entry["offset"] for entry in result.lost] == [starts[batch]]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["flipped", "zeroed"])
def test_a_head_that_is_damaged_in_its_place_costs_no_record_batch_before_it(kind: str, tmp_path: Path) -> None:
    path, out = tmp_path / "a.arrow", tmp_path / "out"
    body = arrow_bytes(NUMBERED, pa.ipc.new_file, 50)
    starts = bodies_of(body)
    for at, lost in ((starts[0], 0), (starts[2], 2), (starts[3], 3)):  # where its footer says
        path.write_bytes(damaged(body, at, kind))
        salvage(path, out, overwrite=True)
        assert numbers(out) == [n for n in range(200) if n // 50 != lost]
    body = arrow_bytes(NUMBERED, pa.ipc.new_stream, 50)
    starts = bodies_of(body)
    path.write_bytes(damaged(body, starts[2], kind))  # where nothing tells
    salvage(path, out, overwrite=True)
    assert numbers(out) == [*range(50)]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["flipped", "zeroed", "cut"])
def test_of_a_stream_with_checksums_no_more_is_lost_than_was_hit(kind: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    with lading.writer(source, format="arrow", options={"layout": "huggingface", "batch_rows": 10}) as writer:
        writer.write_batch(NUMBERED)
    path = min(source.glob("*.arrow"))
    body = path.read_bytes()
    starts = bodies_of(body)
    for at in (starts[3] - 100, starts[5], starts[6] + 100):
        path.write_bytes(damaged(body, at, kind))
        hit = [n for n, (start, stop) in enumerate(pairwise(starts)) if start < at + 1024 and stop > at]
        result = salvage(source, out, overwrite=True)
        assert numbers(out) == [n for n in range(200) if n // 10 not in hit]
        assert result.lost_samples == 10 * len(hit)


def _in_lists(texts: list[str]) -> pa.Array:
    kind = pa.list_(pa.dictionary(pa.int32(), pa.string()))
    return pa.array([[text] for text in texts]).cast(kind)


def _in_runs(texts: list[str]) -> pa.Array:
    ends = pa.array(range(1, len(texts) + 1), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array(texts).dictionary_encode())


@pytest.mark.parametrize("encoded, plain", [(_in_lists, lambda value: value[0]), (_in_runs, str)])
def test_no_rows_are_read_with_another_dictionary_than_theirs(
    encoded: Callable[[list[str]], pa.Array], plain: Callable[[Any], str], tmp_path: Path
) -> None:
    path, out = tmp_path / "a.arrow", tmp_path / "out"
    texts = [f"text {n // 20} {n % 3} " * 20 for n in range(100)]
    parts = [pa.record_batch({"n": [*range(at, at + 20)], "t": encoded(texts[at : at + 20])})
             for at in range(0, 100, 20)]  # fmt: skip
    body = arrow_bytes(pa.Table.from_batches(parts), pa.ipc.new_stream, None)
    starts = bodies_of(body)
    assert len(starts) == 11  # each record batch has a dictionary before it
    for at in starts[4:8:2]:
        path.write_bytes(body[: at + 16] + bytes(64) + body[at + 80 :])
        salvage(path, out, overwrite=True)
        with lading.open(out) as dataset:
            found = list(dataset)
        assert found
        assert all(plain(sample["t"]) == texts[sample["n"]] for sample in found)


def test_a_file_cut_behind_a_record_batch_keeps_it(tmp_path: Path) -> None:
    path, out = tmp_path / "a.arrow", tmp_path / "out"
    body = arrow_bytes(NUMBERED, pa.ipc.new_stream, 50)
    starts = bodies_of(body)
    for end, num_rows in ((starts[2], 100), (starts[2] + 1000, 100), (starts[2] + 100, 50)):  # the last one in a head
        path.write_bytes(body[:end])
        salvage(path, out, overwrite=True)
        assert numbers(out) == [*range(num_rows)]


@pytest.mark.parametrize("size", [1, 100, 5000])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_bytes_that_came_into_parquet_cost_no_row_group_before(compression: str, size: int, tmp_path: Path) -> None:
    path, out = tmp_path / "a.parquet", tmp_path / "out"
    pq.write_table(NUMBERED, path, row_group_size=40, compression=compression)
    told = pq.read_metadata(path)
    body = path.read_bytes()
    for group, where in ((0, 0.5), (2, 0.1), (2, 0.9), (4, 0.5)):
        chunks = [told.row_group(group).column(number) for number in range(2)]
        start = chunks[0].dictionary_page_offset or chunks[0].data_page_offset
        at = start + int(where * sum(chunk.total_compressed_size for chunk in chunks))
        path.write_bytes(body[:at] + b"x" * size + body[at:])
        if group < 2:
            with pytest.raises(DataError, match="no sample could be saved"):
                salvage(path, out, overwrite=True)
            continue
        result = salvage(path, out, overwrite=True)
        kept = numbers(out)
        assert kept == [*range(len(kept))]
        assert 40 <= len(kept) <= 40 * group
        assert result.lost_samples == 200 - len(kept)
        assert len(result.lost) == 5 - len(kept) // 40


@pytest.mark.soak
@pytest.mark.parametrize("size", [1, 100, 5000])
@pytest.mark.parametrize("index", [True, False])
def test_bytes_that_came_into_an_mds_shard_cost_no_sample_before(index: bool, size: int, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    with lading.writer(source, format="mds", checksums="none") as writer:
        writer.write_batch(NUMBERED)
    shutil.rmtree(source / "_lading")
    path = min(source.glob("*.mds"))
    body = path.read_bytes()
    offset = np.frombuffer(body, "<u4", 201, 4)
    if not index:
        (source / "index.json").unlink()
    for sample in (1, 100, 199):
        at = int(offset[sample + 1]) - 20
        path.write_bytes(body[:at] + b"x" * size + body[at:])
        result = salvage(source, out, overwrite=True)
        assert numbers(out) == [*range(sample)]
        assert result.lost_samples == 200 - sample


def test_missing_bytes_of_an_mds_shard_cost_no_sample_before(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    text = chr(90) * 90
    with lading.writer(source, format="mds", checksums="none") as writer:
        writer.write_batch(pa.table({"n": [*range(200)], "t": [text] * 199 + ["end"]}))
    shutil.rmtree(source / "_lading")
    path = min(source.glob("*.mds"))
    body = path.read_bytes()
    at = int(np.frombuffer(body, "<u4", 201, 4)[101]) - 10
    path.write_bytes(body[:at] + body[at + 20 :])
    salvage(source, out)
    with lading.open(out) as dataset:
        found = {sample["n"]: sample["t"] for sample in dataset}
    assert found == {n: text if n < 199 else "end" for n in range(100)}


@pytest.mark.parametrize("change", [-8, 8])
def test_of_mds_samples_of_one_size_none_is_kept_at_a_place_that_is_not_its_own(change: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with lading.writer(source, format="mds", checksums="none") as writer:
        writer.write_batch(NUMBERED.select(["n"]))
    shutil.rmtree(source / "_lading")
    path = min(source.glob("*.mds"))
    body = path.read_bytes()
    at = len(body) - 804
    path.write_bytes(body[:at] + bytes(max(change, 0)) + body[at + max(-change, 0) :])
    with pytest.raises(DataError, match="no sample could be saved"):
        salvage(source, tmp_path / "out")


@pytest.mark.soak
def test_random_damage_to_two_places_of_a_tar_costs_the_samples_next_to_it(tmp_path: Path) -> None:
    members = pairs(*(f"{n:03d}" for n in range(100)))
    body, chance = tar_of(*members), random.Random(7)
    for _ in range(10):
        low, high = sorted(chance.sample(range(len(body) - 2048), 2))
        (tmp_path / "a.tar").write_bytes(damaged(damaged(body, high, "cut"), low, "flipped"))
        salvage(tmp_path / "a.tar", tmp_path / "out", overwrite=True)
        with lading.open(tmp_path / "out") as dataset:
            found = {f"{sample['__key__']}.{name}": sample[name]
                     for sample in dataset.samples(raw=True) for name in ("txt", "bin")}  # fmt: skip
        assert len(found.items() - dict(members).items()) <= 1  # changed bytes inside a value stay
        assert len(found) >= 2 * 96


def test_rows_of_fixed_size_in_a_hole_are_lost(tmp_path: Path) -> None:
    table = pa.table({"n": np.arange(1000), "txt": ["x" * (n % 50) for n in range(1000)]})
    with lading.writer(tmp_path / "source", format="mds") as writer:
        writer.write_batch(table)
    path = min((tmp_path / "source").glob("*.mds"))
    body = path.read_bytes()
    at = len(body) // 2
    path.write_bytes(damaged(body, at, "cut"))
    salvage(tmp_path / "source", tmp_path / "out")
    with lading.open(tmp_path / "out") as dataset:
        assert all(sample["txt"] == "x" * (sample["n"] % 50) for sample in dataset)


FIELDS = {"jpg": random.Random(0).randbytes(5000), "json": b"{}", "txt": b"text"}


def lone(folder: Path) -> list[Path]:
    """Four tars of a sample each."""
    folder.mkdir()
    for n in range(4):
        members = [(f"k{n}.{name}", value) for name, value in FIELDS.items()]
        (folder / f"{n}.tar").write_bytes(tar_of(*members))
    return sorted(folder.glob("*.tar"))


def test_a_sample_that_is_all_that_is_left_of_a_tar_is_no_example_of_itself(tmp_path: Path) -> None:
    first, second, *_ = lone(tmp_path / "in")
    first.write_bytes(first.read_bytes()[: 13 * 512 + 200])  # in the header of its text
    second.write_bytes(second.read_bytes() + b"x" * 2000)
    result = salvage(tmp_path / "in", tmp_path / "out")
    assert (result.samples, result.lost_samples) == (2, 2)
    with lading.open(tmp_path / "out").with_decode(False) as dataset:
        assert [sample["__key__"] for sample in dataset] == ["k2", "k3"]


@pytest.mark.soak
@pytest.mark.parametrize("torn", [False, True])
def test_the_only_sample_of_a_damaged_tar_is_next_to_the_damage(torn: bool, tmp_path: Path) -> None:
    lone(tmp_path / "in")
    lading.convert(tmp_path / "in", tmp_path / "all", format="webdataset", shard_size=1, checksums="none")
    for tar in (tmp_path / "all").glob("*.tar"):
        body = tar.read_bytes()
        tar.write_bytes(body[: 13 * 512 + 200] if torn else body + b"x" * 2000)
    with pytest.raises(DataError, match="no sample could be saved"):  # the last sample is next to the damage
        salvage(tmp_path / "all", tmp_path / "out")


@pytest.mark.parametrize("hurt", ["end", "second", "own"])
def test_a_sample_next_to_damage_is_lost_if_no_other_sample_tells_its_fields(hurt: str, tmp_path: Path) -> None:
    """It is whole where the noise lies over the end of the tar, or the second sample is gone; nothing tells."""
    tar, noise = tmp_path / "a.tar", random.Random(0).randbytes
    body = tar_of(*pairs("a"))
    members = 512 + 1024 + 512 + 3072
    if hurt == "end":
        tar.write_bytes(body[:members] + noise(1024))
    elif hurt == "second":
        tar.write_bytes(body[:members] + tar_of(*pairs("b"))[:100])
    else:
        tar.write_bytes(body[:1800])  # in the payload of a.bin
    with pytest.raises(DataError, match="no sample could be saved"):
        salvage(tar, tmp_path / "out")


def test_a_tar_that_was_cut_between_members_is_no_example(tmp_path: Path) -> None:
    """It can be read to its end, and so is taken for whole; but what it lacks most others have."""
    first, second, *_ = lone(tmp_path / "in")
    first.write_bytes(first.read_bytes()[: 512 + 5120])
    second.write_bytes(second.read_bytes()[: 512 + 5120 + 100])  # in the header of its JSON
    result = salvage(tmp_path / "in", tmp_path / "out")
    assert (keys(tmp_path / "out"), result.lost_samples) == (["k0", "k2", "k3"], 1)


@pytest.mark.soak
@pytest.mark.parametrize("column, groups", [("text_content", {2}), ("text_content", {1, 2}), ("sample_id", {2})])
def test_of_documents_that_are_lost_documents_are_counted(column: str, groups: set[int], tmp_path: Path) -> None:
    """Where their ids cannot be read, those beside these rows."""
    source, rows = tmp_path / "a.parquet", [(f"d{n}", p) for n in range(30) for p in range(-1, 1 + n % 3)]
    ids, positions = zip(*rows, strict=True)
    table = pa.table({
        "sample_id": ids, "position": pa.array(positions, pa.int32()),
        "modality": ["metadata" if p < 0 else "text" for p in positions],
        "content_type": pa.nulls(len(rows), pa.string()),
        "text_content": [f"text {n}" for n in range(len(rows))],
        "binary_content": pa.nulls(len(rows), pa.large_binary()),
    })  # fmt: skip
    pq.write_table(table, source, row_group_size=16)
    body, meta = bytearray(source.read_bytes()), pq.read_metadata(source)
    for group in groups:
        chunk = meta.row_group(group).column(table.column_names.index(column))
        body[chunk.dictionary_page_offset : chunk.dictionary_page_offset + 20] = b"\xff" * 20
    source.write_bytes(body)
    hit = {name for row, name in enumerate(ids) if row // 16 in groups}
    beside = {ids[16 * min(groups) - 1], ids[16 * max(groups) + 16]}
    gone = hit | beside
    result = salvage(source, tmp_path / "out")
    assert (result.samples, len(result.lost)) == (30 - len(gone), len(groups) + 1)
    assert (result.lost_samples, result.counted) == (len(beside), False)


@pytest.mark.soak
@pytest.mark.parametrize("further", [b"\0" * 512, b"x", b"PAR1 and more", b"\x10\0\0\0PAR1\n", bytes(900_000)], ids=len)
def test_bytes_behind_a_parquet_file_cost_no_row(further: bytes, tmp_path: Path) -> None:
    source = written(tmp_path / "in", "parquet")
    expected = samples(source)
    shutil.rmtree(source / "_lading")
    shard = min(source.glob("*.parquet"))
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes() + further)
    result = salvage(source, tmp_path / "out")
    assert [(entry["file"], entry["offset"]) for entry in result.lost] == [(str(shard), size)]
    assert result.lost_samples == 0
    assert samples(tmp_path / "out") == expected


def test_a_parquet_file_inside_a_value_is_not_taken_for_the_file(tmp_path: Path) -> None:
    inner, source = tmp_path / "inner.parquet", tmp_path / "a.parquet"
    pq.write_table(pa.table({"file": pa.array([b"inside"])}), inner)
    pq.write_table(pa.table({"file": pa.array([inner.read_bytes(), b"x" * 3000])}), source, compression="none")
    source.write_bytes(source.read_bytes()[:2000])
    with pytest.raises(DataError, match="no sample could be saved"):
        salvage(source, tmp_path / "out")


@pytest.mark.parametrize("wrong", [{"limits": 1}, {"roots": "/x"}, {"source_options": "x"}, {"interleaved": {}}])
def test_arguments_of_other_types_are_told_before_the_source_is_looked_through(
    wrong: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(UsageError, match=r"wrong type|a list of folders"):
        lading.salvage(tmp_path, tmp_path / "saved", **wrong)
    with pytest.raises(UsageError, match=r"wrong type|a list of folders"):
        lading.salvage(tmp_path / "nothing", tmp_path / "saved", **wrong)


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "mds", "jsonl", "csv"])
def test_rows_that_are_no_items_are_not_searched_for_items(fmt: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "a", format=fmt) as writer:
        writer.write_batch(pa.table({"id": ["1", "2"], "text": ["a", "b"]}))
    shutil.rmtree(tmp_path / "a" / "_lading")
    with pytest.raises(DataError, match="items need this column") as caught:
        salvage(tmp_path / "a", tmp_path / "out", view="interleaved")
    assert caught.value.column == "sample_id"


def test_lines_without_fields_are_no_items(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n{}\n")
    with pytest.raises(DataError, match="items need this column"):
        salvage(tmp_path / "a.jsonl", tmp_path / "out", view="interleaved")
    [finding] = lading.verify(tmp_path / "a.jsonl", view="interleaved", deep=True).findings
    assert "items need this column" in str(finding)


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "rows, gone, lost",
    [
        ([24, 25, 26], [7, 8], 1),  # the sample before may go on in these
        ([25], [8], 1),
        ([26], [8], 1),
        ([24], [7, 8], 2),
        ([26, 27], [8, 9], 2),
        ([23, 24, 25, 26], [7, 8], 1),
        ([24, 25, 26, 27], [7, 8, 9], 2),
        ([0, 1, 2, 59], [0, 19], 1),
    ],
)
def test_items_without_an_id_cost_the_samples_next_to_them(
    fmt: str, rows: list[int], gone: list[int], lost: int, tmp_path: Path
) -> None:
    table = items()
    ids = pa.array([None if n in rows else name for n, name in enumerate(table["sample_id"].to_pylist())])
    result, saved = _salvaged_items(table.set_column(0, "sample_id", ids), fmt, tmp_path)
    assert saved == {f"s{n}": 2 for n in range(20) if n not in gone}
    assert result.lost_samples == lost
    assert "items have no sample_id" in str(result.lost[0])


def _salvaged_items(table: pa.Table, fmt: str, folder: Path) -> tuple[SalvageResult, dict[str, int]]:
    """What salvage tells of a file of items, and how many items the samples have that it saved."""
    folder.mkdir(exist_ok=True)
    path = folder / f"a.{fmt}"
    if fmt == "parquet":
        pq.write_table(table, path)
    else:
        path.write_bytes(arrow_bytes(table, pa.ipc.new_stream))
    result = salvage(path, folder / "out", view="interleaved")
    with lading.open(folder / "out") as dataset:
        return result, {sample["sample_id"]: len(sample["items"]) for sample in dataset}


@pytest.mark.soak
def test_many_items_without_an_id_are_looked_at_together(tmp_path: Path) -> None:
    def salvaged(samples: int) -> None:
        ids = [None if n % 3 == 1 and n > 3 else f"s{n // 3}" for n in range(3 * samples)]
        table = pa.table(
            {"sample_id": ids, "position": np.arange(3 * samples) % 3 - 1, "modality": ["text"] * len(ids)}
        )
        assert _salvaged_items(table, "parquet", tmp_path / f"{next(runs)}")[1] == {"s0": 3}

    runs = count()
    assert costs_at_most(10, lambda: salvaged(3000), lambda: salvaged(30))


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_items_apart_from_those_of_their_sample_cost_no_other(fmt: str, tmp_path: Path) -> None:
    table = items()
    ids = pa.array([{10: "s3", 15: "s4"}.get(n // 3, name) for n, name in enumerate(table["sample_id"].to_pylist())])
    result, saved = _salvaged_items(table.set_column(0, "sample_id", ids), fmt, tmp_path)
    assert saved == {f"s{n}": 2 for n in range(20) if n not in (3, 4, 10, 15)}
    assert result.lost_samples == 2
    assert "not contiguous" in str(result.lost[0])


@pytest.mark.parametrize("ids", [pa.array([b"1", b"\xff"]), pa.array([[1], [2]])])
def test_ids_of_items_that_are_no_text_are_told(ids: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"sample_id": ids, "position": [0, 0], "modality": ["text"] * 2}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="sample ids must be text") as caught:
        salvage(tmp_path / "a.parquet", tmp_path / "out", view="interleaved")
    assert caught.value.column == "sample_id"


@pytest.mark.parametrize("names", [("k{}.jpg", "k{}.json"), ("doc0.{}.1.jpg", "doc0.{}.json")])
def test_a_payload_that_is_gone_takes_the_next_sample_alone_with_it(names: tuple[str, str], tmp_path: Path) -> None:
    """Where it was stands the member behind, which reads as the payload; the keys of documents may hold dots."""
    image, text = names
    members = []
    for number in range(6):
        members.append((text.format(number), json.dumps({"images": [image.format(number)], "texts": [None]}).encode()))
        members.append((image.format(number), bytes([number + 1]) * 700))
    body = tar_of(*members)
    at = body.index(bytes([3]) * 700)
    (tmp_path / "a.tar").write_bytes(body[:at] + body[at + 1024 :] + bytes(1024))
    salvage(tmp_path / "a.tar", tmp_path / "out", view="interleaved")
    with lading.open(tmp_path / "out") as dataset:
        saved = [sample["items"][0]["binary_content"][:1] for sample in dataset.samples()]
    assert saved == [bytes([number + 1]) for number in range(6) if number not in (2, 3)]


@pytest.mark.parametrize("fmt", ["jsonl", "csv"])
def test_what_comes_out_of_the_only_member_of_a_damaged_gzip_file_is_saved(fmt: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    rows = [{"k": f"{n}", "t": random.Random(n).randbytes(100).hex()} for n in range(60)]
    with lading.writer(source, format=fmt, options={"compression": "gzip"}) as writer:
        writer.write_batch(pa.Table.from_pylist(rows))
    [path] = source.glob("*.gz")
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    result = salvage(source, out)
    with lading.open(out) as dataset:
        saved = list(dataset)
    assert len(saved) > 40
    assert saved == rows[: len(saved)]
    assert (result.samples, result.lost_samples) == (len(saved), 60 - len(saved))
    assert "bytes were changed" in str(result.lost[0]["message"])


@pytest.mark.soak
@pytest.mark.parametrize("field", [False, True], ids=["key", "field"])
def test_a_member_name_that_is_invalid_utf8_costs_the_samples_next_to_it(field: bool, tmp_path: Path) -> None:
    body = tar_of(*pairs(*(f"{n:03d}" for n in range(100))))
    name = b"042.bin" if field else b"042.txt"
    bad = b"042.b\xffn" if field else b"\xff42.txt"
    at = body.index(name + b"\0")
    header = bytearray(body[at : at + 512])
    header[: len(bad)], header[148:156] = bad, b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(body[:at] + bytes(header) + body[at + 512 :])
    with pytest.raises(CorruptShard, match="not UTF-8"):
        lading.open(tmp_path / "a.tar")
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    gone = {42, 43} if field else {41, 42}  # the samples next to it
    assert keys(tmp_path / "out") == [f"{n:03d}" for n in range(100) if n not in gone]
    assert (result.lost_samples, len(result.lost)) == (2, 3)


def test_a_document_whose_name_is_invalid_utf8_is_lost_alone(tmp_path: Path) -> None:
    members = []
    for number in range(5):
        story = {"images": [f"d{number}.1.jpg", None], "texts": [None, "text"]}
        members += [(f"d{number}.json", json.dumps(story).encode()), (f"d{number}.1.jpg", bytes([number]) * 700)]
    body = tar_of(*members)
    at = body.index(b"d2.json\0")
    header = bytearray(body[at : at + 512])
    header[0], header[148:156] = 0xFF, b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(body[:at] + bytes(header) + body[at + 512 :])
    result = salvage(tmp_path / "a.tar", tmp_path / "out", view="interleaved")
    assert (result.samples, result.lost_samples) == (4, 1)
    assert "invalid UTF-8" in str(result.lost[0]["message"])


@pytest.mark.parametrize("double", [("b.txt", b"2"), ("b.__key__", b"2")], ids=["twice", "key"])
def test_a_sample_with_a_field_that_cannot_be_is_lost(double: tuple[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(*pairs("a"), *pairs("b"), double, *pairs("c", "d")))
    result = salvage(tmp_path / "a.tar", tmp_path / "out")
    # No field may have the name of the key: that member counts as damage.
    assert keys(tmp_path / "out") == (["a", "d"] if "key" in double[0] else ["a", "c", "d"])
    assert (len(result.lost), result.lost_samples) == ((3, 2) if "key" in double[0] else (1, 1))


@pytest.mark.parametrize("ending, pack", [("", bytes), (".gz", gzip.compress)])
def test_an_end_that_is_lost_is_told_by_its_place(ending: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    body = pack(tar_of(*pairs(*(f"{n:03d}" for n in range(30)))))
    path = tmp_path / f"a.tar{ending}"
    path.write_bytes(body[: len(body) // 3])
    result = salvage(path, tmp_path / "out")
    assert 5 < result.samples <= 10
    assert not result.counted
    [tail] = result.lost_tails
    assert tail["file"] == str(path)
    assert len(body) // 3 - 5000 < int(str(tail["offset"])) <= len(body) // 3


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["mds", "parquet"])
def test_of_formats_that_count_their_samples_all_that_are_lost_are_counted(fmt: str, tmp_path: Path) -> None:
    source = written(tmp_path / "source", fmt, checksums="none")
    shutil.rmtree(source / "_lading")
    path = min(source.glob(f"*.{fmt}"))
    body = path.read_bytes()
    at = len(body) // 2
    path.write_bytes(body[:at] + bytes(64) + body[at + 64 :])
    result = salvage(source, tmp_path / "out")
    assert result.samples + result.lost_samples == 120
    assert result.counted
    assert result.lost_tails == []


def test_each_shard_of_the_source_becomes_one_shard(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.tar").write_bytes(tar_of((f"{name}.txt", b"1"), (f"{name}2.txt", b"2")))
    source = sorted(tmp_path.glob("*.tar"))
    assert salvage(source, tmp_path / "out").shards == 3
    assert salvage(source, tmp_path / "one", shard_size="1MB").shards == 1
