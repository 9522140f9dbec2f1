"""Verify with checksums: whatever is changed in a dataset that lading wrote shows."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
import xxhash
import zstandard

import lading
from documents import SAMPLES, documents
from in_process import by_tasks
from lading.errors import LadingError, SidecarMismatch, UsageError
from lading.limits import Limits
from media import medium
from soak import SOAK
from tars import energon_index, tar_of

FORMATS = ["webdataset", "parquet", "mds", "jsonl", "csv", "media_archive", "arrow"]
PLACES = 200 if SOAK else 10


def rows(fmt: str, count: int = 120) -> pa.Table:
    random_bytes = np.random.default_rng(0)
    columns: dict[str, Sequence[object]] = {"txt": [f"text {n} " * 50 for n in range(count)]}
    if fmt not in ("jsonl", "csv"):
        columns["bin"] = [random_bytes.bytes(int(random_bytes.integers(100, 4000))) for _ in range(count)]
    return pa.table(columns)


def written(out: Path, fmt: str, **options: Any) -> Path:
    with lading.writer(out, format=fmt, shard_size="60kb", **options) as writer:
        writer.write_batch(rows(fmt))
    return out


def all_files(out: Path) -> list[Path]:
    return sorted(path for path in out.rglob("*") if path.is_file())


def told_sums(out: Path) -> dict[str, str]:
    """All checksums that lading's files tell, by path."""
    sums: dict[str, str] = {}
    for manifest in out.rglob("manifest.json"):
        sums |= json.loads(manifest.read_bytes())["files"]
    for listed in out.rglob("shards.arrow"):
        for row in pa.ipc.open_file(listed).read_all().to_pylist():
            named = row["beside_xxh3"] or ()
            beside = {str(Path(row["path"]).parent / told["name"]): told["xxh3"] for told in named}
            sums |= {row["path"]: row["xxh3"], **beside}
    return sums


def real_sums(out: Path) -> dict[str, str]:
    return {
        str(path.relative_to(out)): xxhash.xxh3_64(path.read_bytes()).hexdigest()
        for path in all_files(out)
        if path.name not in ("manifest.json", "job.json")
    }


@pytest.mark.soak
@pytest.mark.parametrize("fmt", FORMATS)
def test_every_file_has_its_checksum(fmt: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out", fmt)
    assert told_sums(out) == real_sums(out)
    result = lading.verify(out, deep=True)
    assert (result.ok, result.samples, "checksums" in result.checked) == (True, 120, True)


def changed(body: bytes, at: int, kind: str) -> bytes:
    some = body[at : at + 1024]
    if kind == "flipped":
        return body[:at] + bytes(byte ^ 0xFF for byte in some) + body[at + 1024 :]
    return body[:at] if kind == "cut" else body[:at] + bytes(len(some)) + body[at + 1024 :]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["flipped", "cut", "zeroed"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_damage_at_any_place_of_any_file_is_found(fmt: str, kind: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out", fmt)
    files = all_files(out)
    places = random.Random(f"{fmt} {kind}")
    missed = []
    for _ in range(PLACES):
        path = places.choice(files)
        body = path.read_bytes()
        at = places.randrange(len(body))
        damaged = changed(body, at, kind)
        path.write_bytes(damaged)
        try:
            found = [finding["file"] for finding in lading.verify(out, deep=True).findings]
        except LadingError as error:  # of the manifest itself: there is nothing to look for then
            found = [error.file]
        if damaged.rstrip(b"\n") != body.rstrip(b"\n") and not found:  # JSON without its last newline is the same
            missed.append((path.name, at))
        path.write_bytes(body)
    assert missed == []
    assert lading.verify(out, deep=True).ok


@pytest.mark.parametrize("checksums", ["samples", "files"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_one_flipped_bit_is_named_with_file_and_sums(fmt: str, checksums: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out", fmt, checksums=checksums)
    name, expected = max(told_sums(out).items())
    path = out / name
    body = path.read_bytes()
    at = len(body) // 2
    damaged = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    path.write_bytes(damaged)
    first = lading.verify(out, deep=True).findings[0]
    assert (first["error"], first["file"]) == ("SidecarMismatch", str(path))
    if checksums == "files":
        assert first["expected"] == f"xxh3 {expected}"
        assert first["found"] == f"xxh3 {xxhash.xxh3_64(damaged).hexdigest()}"
        return
    begin = first["offset"]
    size = int(first["expected"].split()[0])
    assert begin <= at < begin + size
    assert first["expected"] == f"{size} bytes with xxh3 {xxhash.xxh3_64(body[begin : begin + size]).hexdigest()}"
    assert first["found"] == f"xxh3 {xxhash.xxh3_64(damaged[begin : begin + size]).hexdigest()}"


def test_a_damaged_sample_is_named_by_its_key(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "webdataset")
    path = min(out.glob("*.tar"))
    body = path.read_bytes()
    with lading.open(path) as shard:
        keys = [sample["__key__"] for sample in shard.samples()]
        payload = shard[7]["bin"]
    at = body.index(payload)
    path.write_bytes(body[:at] + bytes([payload[0] ^ 1]) + body[at + 1 :])
    [found] = lading.verify(out, deep=True).findings
    assert (found["row"], found["sample"], found["file"]) == (7, keys[7], str(path))


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "mds", "jsonl"])
def test_behind_bytes_that_were_cut_out_samples_are_whole(fmt: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out", fmt)
    path = out / min(name for name in told_sums(out) if name.startswith("shard") and not name.endswith(".json"))
    body = path.read_bytes()
    at = len(body) // 2
    path.write_bytes(body[:at] + body[at + 100 :])
    damaged = [found for found in lading.verify(out, deep=True).findings if "checksum" in found["message"]]
    assert 1 <= len(damaged) <= 2
    assert lading.verify(out).digest is None  # a shard of another size is not read
    assert all(found["offset"] <= at + 100 for found in damaged)


def test_without_checksums_there_is_nothing_to_hold_against(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "webdataset", checksums="none")
    assert told_sums(out).pop(min(out.glob("*.tar")).name) is None
    result = lading.verify(out, deep=True)
    assert result.ok
    assert result.digest is not None  # so all were read
    with pytest.raises(UsageError, match="checksums"):
        lading.writer(tmp_path / "other", checksums="all")


def test_of_a_damaged_shard_the_sample_is_named_where_the_format_notices(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "jsonl")
    path = out / min(name for name in told_sums(out) if name.endswith(".jsonl"))
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:3], b"x" * len(lines[3]), *lines[4:]]))
    findings = lading.verify(out, deep=True).findings
    assert [finding["file"] for finding in findings] == [str(path)] * 2
    assert findings[1]["offset"] == sum(len(line) + 1 for line in lines[:3])


@pytest.mark.parametrize("change", [b"", None])
def test_a_file_beside_a_shard_that_was_changed_or_is_gone_is_a_finding(change: bytes | None, tmp_path: Path) -> None:
    out = written(tmp_path / "out", "media_archive")
    path = min(out.glob("*.bin.zst"))
    if change is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"more")
    assert str(path) in [finding["file"] for finding in lading.verify(out, deep=True).findings]


def test_a_list_of_files_for_datasets_that_was_changed_is_a_finding(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="parquet") as writer:
        writer.write({"a": 1})
    assert lading.verify(tmp_path / "out", deep=True).findings == []
    listed = tmp_path / "out" / ".huggingface.yaml"
    listed.write_bytes(listed.read_bytes().replace(b"train", b"trian"))
    [finding] = lading.verify(tmp_path / "out", deep=True).findings
    assert str(finding["file"]).endswith(".huggingface.yaml")


def test_a_list_of_shards_that_was_changed_is_refused(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "webdataset")
    path = out / "_lading" / "shards.arrow"
    body = path.read_bytes()
    path.write_bytes(body.replace(b"shard-000001", b"shard-000000") if b"shard-000001" in body else body[:-1] + b"?")
    with pytest.raises(SidecarMismatch, match="list of shards differs") as caught:
        lading.open(out)
    assert caught.value.file == str(path)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "mds", "media_archive"])
def test_what_workers_write_has_its_checksums(fmt: str, workers: int, tmp_path: Path) -> None:
    for number in range(4):
        members = [(f"{number}{n}.bin", np.random.default_rng(n).bytes(20_000)) for n in range(8)]
        (tmp_path / f"{number}.tar").write_bytes(tar_of(*members))
    out = tmp_path / "out"
    lading.convert(f"{tmp_path}/*.tar", out, format=fmt, shard_size="100kb", **by_tasks(workers))
    assert told_sums(out) == real_sums(out)
    assert lading.verify(out, deep=True).ok


@pytest.mark.soak
def test_parts_of_ranks_and_what_they_are_merged_to_have_checksums(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for rank in range(2):
        written(out, "mds", rank=rank)
    assert lading.verify(out, deep=True).ok
    lading.merge(out)
    assert told_sums(out) == real_sums(out)
    assert lading.verify(out, deep=True).ok
    shutil.copytree(out, tmp_path / "all" / "a")
    shutil.copytree(out, tmp_path / "all" / "all")
    lading.merge(tmp_path / "all")
    result = lading.verify(tmp_path / "all", deep=True)
    assert (result.ok, result.samples) == (True, 480)
    index = next((tmp_path / "all" / "a").rglob("index*.json"))
    index.write_bytes(index.read_bytes() + b" ")
    assert str(index) in [finding["file"] for finding in lading.verify(tmp_path / "all", deep=True).findings]
    shard = max((tmp_path / "all" / "a").rglob("*.mds"))  # sums of samples are found in the merged dataset too
    body = shard.read_bytes()
    shard.write_bytes(body[:-5] + b"?" + body[-4:])
    with lading.open(shard.parent / "index.json") as part:
        last = len(part.shards[len(part.shards) - 1]) - 1
    assert (str(shard), last) in [
        (found["file"], found.get("row")) for found in lading.verify(tmp_path / "all", deep=True).findings
    ]


def test_what_others_wrote_is_read_as_without(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.txt", b"one"), ("b.txt", b"two")))
    deep, plain = lading.verify(tmp_path / "a.tar", deep=True), lading.verify(tmp_path / "a.tar")
    assert (deep.digest, deep.samples, deep.checked) == (plain.digest, 2, plain.checked)


def test_references_to_other_files_are_followed(tmp_path: Path) -> None:
    """A table of items may hold no bytes: that it is as it was says nothing of the files that it leads to."""
    story = json.dumps({"texts": ["one", None], "images": [None, "a.1.jpg"]}).encode()
    (tmp_path / "a.tar").write_bytes(tar_of(("a.json", story), ("a.1.jpg", b"\xff\xd8" + bytes(5000))))
    lading.convert(tmp_path / "a.tar", tmp_path / "out", format="parquet", view="interleaved", lazy=True,
                    verify=True)  # fmt: skip
    roots = {"roots": [tmp_path]}
    assert lading.verify(tmp_path / "out", deep=True, **roots).ok
    (tmp_path / "a.tar").write_bytes(b"")
    first = lading.verify(tmp_path / "out", deep=True, **roots).findings[0]
    assert (first["error"], first["row"]) == ("BadReference", 2)
    assert first["file"] == str(next((tmp_path / "out").glob("*.parquet")))
    assert str(tmp_path / "a.tar") in str(first["message"])
    lading.convert(tmp_path / "out", tmp_path / "told", format="parquet", on_error="warn", **roots)
    assert lading.verify(tmp_path / "told", deep=True, **roots).ok


def test_an_image_that_a_tar_lacks_is_a_finding_and_one_that_was_meant_null_is_none(tmp_path: Path) -> None:
    story = {"sample_id": "a", "texts": [None] * 3, "images": ["gone.jpg", "d.1.jpg", None]}
    (tmp_path / "a.tar").write_bytes(tar_of(("d.json", json.dumps(story).encode())))
    [found] = lading.verify(tmp_path / "a.tar", deep=True).findings
    assert (found["error"], found["file"], found["row"], found["sample"]) == (
        "BadReference", str(tmp_path / "a.tar"), 1, "a")  # fmt: skip
    assert "gone.jpg" in str(found["message"])


@pytest.mark.parametrize("place", [{"offset": -5}, {"path": "../../../etc/passwd"}])
def test_a_broken_place_of_a_media_is_a_finding_in_either_view(place: dict[str, Any], tmp_path: Path) -> None:
    record = zstandard.compress(b"hello")
    (tmp_path / "m.bin").write_bytes(record)
    there = {"path": "m.bin", "offset": 0, "length": len(record)}
    media = [medium(**there), medium(**there | place)]
    lines = [json.dumps({"id": str(n), "text": "t", "media": [one]}) + "\n" for n, one in enumerate(media)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    told = {view: lading.verify(tmp_path / "a.jsonl", format="media_archive", view=view, deep=True).findings
            for view in ("samples", "interleaved")}  # fmt: skip
    assert [[one["error"] for one in found] for found in told.values()] == [["BadReference"]] * 2
    [item] = told["interleaved"]
    assert (item["row"], item["sample"]) == (5, "1")  # behind three items of the first document, and two of its own


@pytest.mark.parametrize("part, count", [("100%", 10), ("30%", 3), (0.3, 3), ("0.1%", 1), (1, 10), ("25%", 3)])
def test_a_part_of_the_shards_is_looked_at_and_said(part: float | str, count: int, tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.tar").write_bytes(tar_of((f"{number}.txt", b"one"), (f"{number}b.txt", b"two")))
    result = lading.verify(tmp_path, sample=part)
    assert (result.shards, result.all_shards, result.samples) == (count, 10, 2 * count)
    assert (result.digest is None) == (count < 10)
    assert lading.verify(tmp_path, sample=part).samples == result.samples


@pytest.mark.soak
def test_a_part_leaves_other_shards_alone_and_always_the_same(tmp_path: Path) -> None:
    out = written(tmp_path / "out", "webdataset")
    tars = sorted(out.glob("*.tar"))
    assert len(tars) >= 3
    found = []
    for tar in tars:
        body = tar.read_bytes()
        tar.write_bytes(body[:600] + b"?" + body[601:])
        found.append(not lading.verify(out, deep=True, sample="1%").ok)
        tar.write_bytes(body)
    assert found == [number == len(tars) // 2 for number in range(len(tars))]


@pytest.mark.parametrize("part", [0, 1.5, "0%", "101%", "a few", "-1%", ""])
def test_what_is_no_part_is_refused(part: float | str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a share"):
        lading.verify(tmp_path, sample=part)


@pytest.mark.soak
@pytest.mark.parametrize("body", [struct.pack("<3Q", 0, 512, 99_999), b"", None])
def test_an_index_of_samples_beside_a_shard_with_its_checksum_is_held_against_it(
    body: bytes | None, tmp_path: Path
) -> None:
    out = written(tmp_path / "out", "webdataset")
    idx = Path(f"{sorted(out.glob('*.tar'))[1]}.idx")
    os.mkfifo(idx) if body is None else idx.write_bytes(body)
    for deep, samples in ((False, 120), (True, 106)):  # the shard is read by its sidecar
        found = lading.verify(out, deep=deep)
        assert [finding["file"] for finding in found.findings] == [str(idx)]
        assert found.samples == samples


def test_a_right_index_of_samples_is_something_to_hold_shards_against(tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    tar.write_bytes(tar_of(("a.txt", b"one"), ("b.txt", b"two")))
    assert lading.verify(tar).checked == []
    Path(f"{tar}.idx").write_bytes(struct.pack("<3Q", 0, 1024, 2048))
    assert (lading.verify(tar).ok, lading.verify(tar).checked) == (True, ["sidecars"])
    assert lading.verify(tar, options={"sidecar": "ignore"}).checked == []


def test_an_index_of_samples_beside_a_tar_of_documents_is_held_against_it(docs: Path) -> None:
    for tar in docs.glob("*.tar"):
        Path(f"{tar}.idx").write_bytes(energon_index(tar.read_bytes()))
    found = lading.verify(docs)
    assert (found.ok, found.checked) == (True, ["keys", "sidecars"])
    first, *_, last = sorted(docs.glob("*.idx"))
    was = struct.unpack(f"<{first.stat().st_size // 8}Q", first.read_bytes())
    first.write_bytes(struct.pack(f"<{len(was)}Q", was[0], was[1] + 512, *was[2:]))
    last.write_bytes(last.read_bytes()[:-8])
    wrong = lading.verify(docs)
    one, two = wrong.findings
    assert (one["error"], one["file"], one["offset"]) == ("SidecarMismatch", str(first), 8)
    assert (one["expected"], one["found"]) == (f"a sample at {was[1] + 512}", f"one at {was[1]}")
    assert (two["error"], two["file"]) == ("SidecarMismatch", str(last))
    assert (wrong.samples, wrong.digest) == (found.samples, found.digest)
    assert lading.verify(docs, options={"sidecar": "ignore"}).checked == ["keys"]


@pytest.mark.parametrize("deep", [False, True])
def test_an_index_of_samples_is_held_against_documents_that_lading_wrote(tmp_path: Path, *, deep: bool) -> None:
    (tmp_path / "in.tar").write_bytes(documents(*SAMPLES))
    lading.convert(tmp_path / "in.tar", tmp_path / "out", format="webdataset", view="interleaved")
    [tar] = (tmp_path / "out").glob("*.tar")
    idx = Path(f"{tar}.idx")
    idx.write_bytes(energon_index(tar.read_bytes()))
    pictures = [str(tar)] if deep else []  # one is no picture
    named = lambda: [found["file"] for found in lading.verify(tmp_path / "out", deep=deep).findings]  # noqa: E731
    assert named() == pictures
    idx.write_bytes(idx.read_bytes()[8:])
    assert named() == [*pictures, str(idx)]
    idx.unlink()
    os.mkfifo(idx)
    assert named() == [*pictures, str(idx)]


def test_names_that_make_no_fields_are_none_of_an_index_of_samples(tmp_path: Path) -> None:
    """Keys with dots: by WebDataset's rule, which megatron-energon follows, what is behind the first is the field."""
    tar = tmp_path / "a.tar"
    tar.write_bytes(documents(*((f"page.{number}", ["text"], {}) for number in range(8)), ("x.__key__", ["text"], {})))
    Path(f"{tar}.idx").write_bytes(energon_index(tar.read_bytes()))
    found = lading.verify(tar, limits=Limits(tar_fields=4))
    assert (found.findings, found.samples, found.checked) == ([], 9, ["sidecars"])


def test_a_damaged_tar_of_documents_is_told_once_whatever_lies_beside_it(tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    tar.write_bytes(documents(*SAMPLES))
    Path(f"{tar}.idx").write_bytes(energon_index(tar.read_bytes()))
    body = bytearray(tar.read_bytes())
    at = struct.unpack("<Q", Path(f"{tar}.idx").read_bytes()[16:24])[0]
    body[at : at + 512] = b"?" * 512
    tar.write_bytes(body)
    [finding] = lading.verify(tar, view="interleaved").findings
    assert (finding["file"], finding["offset"]) == (str(tar), at)


@pytest.mark.parametrize("view", ["samples", "interleaved"])
@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_members_behind_a_lone_block_of_zeros(tmp_path: Path, view: str, wrap: Callable[[bytes], bytes]) -> None:
    """A tar of three members whose second has a header of zeros; the others hold what is no member of theirs."""
    story = b'{"texts": ["t"], "images": [null]}'
    data = tar_of(*((f"{key}.json", story) for key in "abc"))
    ends = 3 * 1024
    for body, samples, told in (
        (data[:1024] + bytes(512) + data[1536:], 1, [("CorruptShard", 1024, "one, and a header at 2048")]),
        (data[:ends] + bytes(512) + b"x" * 1000, 3, []),
        (data[:ends] + bytes(1024) + data, 3, [("CorruptShard", ends, f"a header at {ends + 1024}")]),
    ):
        (tmp_path / "t.tar").write_bytes(wrap(body))
        found = lading.verify(tmp_path / "t.tar", deep=True, view=view)
        assert found.samples == samples
        assert [(one["error"], one["offset"], one["found"]) for one in found.findings] == told
        assert lading.verify(tmp_path / "t.tar", view=view).findings == found.findings
