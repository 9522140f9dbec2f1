"""Verify: the peers' own indexes, held against files and manifests."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import lading
from golden_cases import Golden
from lading._core.codecs import unpack_file
from lading._core.formats.mds.index import COMPRESSIONS
from lading.errors import Unrepresentable
from lading.limits import Limits
from mds_lines import write_lines
from tars import tar_of

_Change = Callable[[list[dict[str, Any]]], object]


def _mds(out: Path, **options: Any) -> Path:
    with lading.writer(out, format="mds", options={"size_limit": "2kb", **options}) as writer:
        writer.write_batch(pa.table({"n": range(300), "text": ["x" * 10] * 300}))
    return out


def _changed(folder: Path, change: _Change) -> None:
    """Change the list of shards in an index."""
    path = folder / "index.json"
    index = json.loads(path.read_text())
    change(index["shards"])
    path.write_text(json.dumps(index))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_hashes_of_an_index_beside_a_manifest_are_checked(compression: str | None, tmp_path: Path) -> None:
    out = _mds(tmp_path / "out", compression=compression, hashes=["sha1", "xxh64"])
    result = lading.verify(out)
    assert result.ok
    assert {"hashes", "indexes"} <= set(result.checked)
    key = "raw_data" if compression is None else "zip_data"
    told: dict[str, str] = {}

    def another_hash(shards: list[dict[str, Any]]) -> None:
        told.update(file=shards[1][key]["basename"], sha1=shards[1][key]["hashes"]["sha1"])
        shards[1][key]["hashes"]["sha1"] = "0" * 40

    _changed(out, another_hash)
    index, finding = lading.verify(out).findings
    assert index["file"] == str(out / "index.json")
    assert finding["error"] == "SidecarMismatch"
    assert finding["file"] == str(out / told["file"])
    assert str(out / "index.json") in str(finding["message"])
    assert (finding["expected"], finding["found"]) == ("0" * 40, told["sha1"])
    assert told["sha1"] == hashlib.sha1((out / told["file"]).read_bytes()).hexdigest()


def test_a_file_that_was_changed_differs_from_its_hash(tmp_path: Path) -> None:
    out = _mds(tmp_path / "out", hashes=["md5"])
    path = out / "shard.00001.mds"
    path.write_bytes(path.read_bytes()[:-1] + b"y")
    last = lading.verify(out).findings[-1]
    assert (last["file"], last["found"]) == (str(path), hashlib.md5(path.read_bytes()).hexdigest())


@pytest.mark.parametrize("old, new", [
    (b'{"column', b'X"column'),
    (b'"column_names"', b'"column_namez"'),
    (b'"version": 2}', b'"version": 3}'),
    (b'"hashes": [], ', b'"hashez": [], '),
    (b'"compression": null', b'"cumpression": null'),
])  # fmt: skip
@pytest.mark.parametrize("kind, ending, listed", [
    ("mds", ".mds", False), ("csv", ".csv.meta", False), ("mds", ".mds", True),
])  # fmt: skip
def test_a_shard_that_says_of_itself_what_is_not_so_is_a_finding(
    kind: str, ending: str, listed: bool, old: bytes, new: bytes, tmp_path: Path
) -> None:
    """The peer never reads it, and neither does who opens a dataset by its index."""
    if kind == "csv":
        out = tmp_path / "out"
        write_lines(out, [{"n": n, "text": "x" * 10} for n in range(300)], kind, size_limit=2000)
    else:
        out = _mds(tmp_path / "out")
        if not listed:
            shutil.rmtree(out / "_lading")
    assert lading.verify(out, deep=True).ok
    path = out / f"shard.00001{ending}"
    body = path.read_bytes()
    assert body.count(old) == 1
    path.write_bytes(body.replace(old, new))
    found = lading.verify(out).findings
    assert {finding["file"] for finding in found} == {str(path)}
    with lading.open(out) as dataset:
        assert [sample["n"] for sample in dataset] == [*range(300)]


@pytest.mark.parametrize("change, message, said", [
    (lambda shards: shards.pop(1), "lacks a shard of the dataset", "shard.00001.mds, as "),
    (lambda shards: shards[0].update(samples=1), "another number of samples", "as "),
    (lambda shards: shards.append({**shards[0], "raw_data": {**shards[0]["raw_data"], "basename": "more.mds"}}),
     "lists a shard that the dataset lacks", "more.mds, which "),
    (lambda shards: shards.reverse(), "another order", "the order of "),
    (lambda shards: shards[0]["raw_data"].update(bytes=5000), "the size differs", "5000 bytes"),
    (lambda shards: shards[0].update(samples=-1), "not the number of samples", "0 to "),
])  # fmt: skip
def test_an_index_that_disagrees_with_the_manifest_is_a_finding(
    change: _Change, message: str, said: str, tmp_path: Path
) -> None:
    out = _mds(tmp_path / "out")
    _changed(out, change)
    found = lading.verify(out).findings
    [finding] = (one for one in found if message in str(one["message"]))
    assert all("differs from its checksum" in str(one["message"]) for one in found if one is not finding)
    assert said in f"{finding.get('expected')} {finding.get('found')}"
    both = f"{finding['file']} {finding.get('expected')} {finding.get('found')} {finding['message']}"
    assert str(out / "index.json") in both
    if "manifest" in message:
        assert str(out / "_lading") in both


def test_an_index_that_is_missing_is_a_finding(tmp_path: Path) -> None:
    out = _mds(tmp_path / "out")
    (out / "index.json").unlink()
    [finding] = lading.verify(out).findings
    assert (finding["file"], "missing" in str(finding["message"])) == (str(out / "index.json"), True)


def test_parts_of_ranks_have_no_index_and_need_none(tmp_path: Path) -> None:
    for rank in range(2):
        with lading.writer(tmp_path / "out", format="mds", rank=rank) as writer:
            writer.write_batch(pa.table({"n": [rank]}))
    result = lading.verify(tmp_path / "out")
    assert result.ok
    assert "indexes" not in result.checked


def test_an_unpacked_copy_is_the_shard_too(tmp_path: Path) -> None:
    out = _mds(tmp_path / "out", compression="gz", hashes=["sha1"])
    for path in sorted(out.glob("*.gz")):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    assert lading.verify(out).ok
    copy = out / "shard.00000.mds"
    copy.write_bytes(copy.read_bytes()[:-1] + b"?")
    [finding] = lading.verify(out).findings
    assert finding["file"] == str(copy)


@pytest.mark.soak
@pytest.mark.parametrize("compression", ["gz", "zstd", "bz2", "snappy"])
def test_an_unpacked_copy_may_be_larger_than_what_is_held(compression: str, tmp_path: Path) -> None:
    """Snappy is unpacked as a whole or not at all, and what was not unpacked nobody calls sound."""
    out, data = tmp_path / "out", np.random.default_rng(0).bytes(5 << 20)
    with lading.writer(out, format="mds", options={"compression": compression, "size_limit": "8MB"}) as writer:
        writer.write_batch(pa.table({"b": [data]}))
    shutil.rmtree(out / "_lading")
    packed, raw = out / f"shard.00000.mds.{compression}", out / "shard.00000.mds"
    raw.write_bytes(unpack_file(COMPRESSIONS[compression], packed.read_bytes(), 8 << 20))
    little = Limits(shard_bytes=1 << 20)
    held = ["a compressed shard is too large to be held"] if compression == "snappy" else []
    assert [told["message"] for told in lading.verify(out, deep=True, limits=little).findings] == held
    body = raw.read_bytes()
    raw.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    assert not lading.verify(out, deep=True, limits=little).ok


@pytest.mark.parametrize("content", ["same", "other"])
def test_a_packed_copy_that_asks_for_too_large_a_window_is_a_finding(content: str, tmp_path: Path) -> None:
    """As by a flipped bit of its header. Nobody unpacks it, whatever is in it."""
    out = _mds(tmp_path / "out", compression="zstd", hashes=[])
    shutil.rmtree(out / "_lading")
    packed, raw = out / "shard.00000.mds.zstd", out / "shard.00000.mds"
    data = unpack_file("zstd", packed.read_bytes(), 1 << 20)
    raw.write_bytes(data)
    assert lading.verify(out, deep=True).ok
    wide = zstandard.ZstdCompressionParameters(window_log=30, compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=wide).compressobj()  # a size in the header needs no window
    packed.write_bytes(packer.compress(data if content == "same" else b"nothing") + packer.flush())
    _changed(out, lambda shards: shards[0]["zip_data"].update(bytes=packed.stat().st_size))
    [finding] = lading.verify(out, deep=True).findings
    assert (finding["file"], finding["error"]) == (str(packed), "LimitExceeded")
    assert "zstd_window_bytes" in str(finding["advice"])


@pytest.mark.parametrize("case", ["text-json-zstd", "text-xsv-zstd"])
def test_both_files_of_a_pair_are_checked(case: str, golden: Golden, tmp_path: Path) -> None:
    source = next(path for path in (golden("mds") / case).rglob("index.json")).parent
    shutil.copytree(source, tmp_path / "out")
    result = lading.verify(tmp_path / "out")
    assert result.ok
    assert "hashes" in result.checked
    told: list[dict[str, Any]] = []

    def another_hash(shards: list[dict[str, Any]]) -> None:
        meta = shards[0]["zip_meta"]
        told.append({**meta, "hash": meta["hashes"]["sha1"]})
        meta["hashes"]["sha1"] = "f" * 40

    _changed(tmp_path / "out", another_hash)
    [finding] = lading.verify(tmp_path / "out").findings
    assert finding["file"] == str(tmp_path / "out" / told[0]["basename"])
    assert (finding["expected"], finding["found"]) == ("f" * 40, told[0]["hash"])


def test_a_second_file_that_is_missing_is_a_finding(golden: Golden, tmp_path: Path) -> None:
    source = next(path for path in (golden("mds") / "text-csv").rglob("index.json")).parent
    shutil.copytree(source, tmp_path / "out")
    meta = min((tmp_path / "out").glob("*.meta"))
    meta.unlink()
    assert [finding["file"] for finding in lading.verify(tmp_path / "out", view="samples").findings] == [str(meta)]


def test_an_index_of_tars_beside_a_manifest_is_checked(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(tar_of(("a.txt", b"one"), ("b.txt", b"two")))
    out = tmp_path / "out"
    lading.convert(tmp_path / "in.tar", out, format="webdataset", verify=True)
    [tar] = out.glob("*.tar")
    index = json.loads((out / "index.json").read_text())
    changed = str(out / "index.json")
    for md5, count, findings in [
        (hashlib.md5(tar.read_bytes()).hexdigest(), 2, [changed]),
        ("0" * 32, 2, [changed, str(tar)]),
        (None, 3, [changed]),
    ]:
        index["shardlist"][0].update(md5sum=md5, nsamples=count)
        (out / "index.json").write_text(json.dumps(index))
        result = lading.verify(out)
        assert [finding["file"] for finding in result.findings] == findings
        assert ("hashes" in result.checked) == (md5 is not None and len(findings) == 1)


def test_a_list_of_indexes_has_its_hashes_checked(tmp_path: Path) -> None:
    for name in "ab":
        _mds(tmp_path / name, hashes=["sha1"])
    indexes = [tmp_path / name / "index.json" for name in "ab"]
    assert "hashes" in lading.verify(indexes).checked
    _changed(tmp_path / "b", lambda shards: shards[0]["raw_data"]["hashes"].update(sha1="1" * 40))
    [finding] = lading.verify(indexes).findings
    assert (finding["file"], finding["expected"]) == (str(tmp_path / "b" / "shard.00000.mds"), "1" * 40)


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "mds", "jsonl", "csv", "parquet"])
def test_the_shards_behind_a_first_one_that_is_broken_are_looked_at(fmt: str, tmp_path: Path) -> None:
    table = pa.table({"txt": [hashlib.shake_128(bytes([n])).hexdigest(400) for n in range(250)], "n": [*range(250)]})
    with lading.writer(tmp_path / "out", format=fmt, shard_size="20kb") as writer:
        writer.write_batch(table if fmt != "webdataset" else table.select(["txt"]))
    shutil.rmtree(tmp_path / "out" / "_lading")
    paths = sorted(path for path in (tmp_path / "out").iterdir() if path.suffix not in (".json", ".yaml"))
    for path in (paths[0], paths[-1]):
        path.write_bytes(b"\xff" * 600 + path.read_bytes()[600:])
    found = lading.verify(tmp_path / "out", format=fmt)
    assert {finding["file"] for finding in found.findings} == {str(paths[0]), str(paths[-1])}
    assert found.samples > 0


@pytest.mark.parametrize(
    "name, value",
    [("digests", {"ordered": "0" * 32}), ("view", "interleaved"), ("format", "csv"), ("format", "nope"),
     ("created_by", "x"), ("options", {"a": 1}), ("rank", 5), ("options", {"a": 10**30}), ("options", {"a": math.nan}),
     ("options", {"a": "\ud800"})],
)  # fmt: skip
@pytest.mark.parametrize("deep", [False, True])
def test_a_manifest_that_differs_from_its_copy_is_a_finding(
    name: str, value: object, tmp_path: Path, *, deep: bool
) -> None:
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write({"__key__": "a", "txt": "one"})
    path = tmp_path / "out" / "_lading" / "manifest.json"
    told = json.loads(path.read_bytes())
    told[name] = value
    path.write_text(json.dumps(told))
    first, *_ = lading.verify(tmp_path / "out", deep=deep).findings
    assert (first["file"], first["column"]) == (str(path), name)


def test_what_nobody_changed_is_its_copy_in_all_ranks_too(tmp_path: Path) -> None:
    for rank in (0, 1):
        with lading.writer(tmp_path / "out", format="jsonl", rank=rank) as writer:
            writer.write({"n": rank})
    assert lading.verify(tmp_path / "out").ok
    path = tmp_path / "out" / "_lading" / "00001" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"created_by": "lading', b'"created_by": "Lading'))
    [finding] = lading.verify(tmp_path / "out").findings
    assert (finding["file"], finding["column"]) == (str(path), "created_by")


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("rank", [None, 1])
def test_a_manifest_that_is_gone_is_a_finding(rank: int | None, tmp_path: Path, *, deep: bool) -> None:
    for one in (0, 1) if rank else (None,):
        with lading.writer(tmp_path / "out", format="jsonl", rank=one) as writer:
            writer.write({"n": one or 0})
    path = tmp_path / "out" / "_lading" / ("00001" if rank else "") / "manifest.json"
    path.unlink()
    first, *others = lading.verify(tmp_path / "out", deep=deep).findings
    assert (first["error"], first["file"]) == ("SidecarMismatch", str(path))
    assert [Path(str(finding["file"])).suffix for finding in others] == ([".jsonl"] if rank else [])


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_values_without_a_digest_are_read_and_counted(mode: str, tmp_path: Path, *, deep: bool) -> None:
    numbers, texts = pa.array([1, 2, 3]), pa.array(["a", "b", "c"])
    types = pa.array([0, 1, 0], pa.int8())
    made = {
        "sparse": pa.UnionArray.from_sparse(types, [numbers, texts]),
        "dense": pa.UnionArray.from_dense(types, pa.array([0, 0, 1], pa.int32()), [numbers, texts]),
    }
    table = pa.table({"n": [1, 2, 3], "u": made[mode]})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    found = lading.verify(tmp_path / "a.arrow", deep=deep)
    assert (found.ok, found.samples, found.digest) == (True, 3, None)
    assert found.undigested == f"u: {made[mode].type}"
    with pytest.raises(Unrepresentable, match="column 'u': values of this type have no digest to compare") as caught:
        lading.convert(tmp_path / "a.arrow", tmp_path / "out", format="arrow", verify=True)
    assert caught.value.advice == "Convert without --verify, or leave out such columns with --drop-columns u."
    with lading.open(tmp_path / "a.arrow") as dataset:
        dataset.drop("u").write(tmp_path / "out", format="arrow", verify=True)
    with lading.open(tmp_path / "out") as dataset:
        assert list(dataset) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_where_all_values_have_a_digest_nothing_is_said(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    found = lading.verify(tmp_path / "a.parquet")
    assert (found.undigested, found.digest is not None) == (None, True)


@pytest.mark.parametrize("deep", [False, True])
def test_an_index_that_is_no_file_is_told_once(tmp_path: Path, *, deep: bool) -> None:
    out = _mds(tmp_path / "out")
    (out / "index.json").unlink()
    os.mkfifo(out / "index.json")
    assert [finding["file"] for finding in lading.verify(out, deep=deep).findings] == [str(out / "index.json")]


def _three_tars(folder: Path, change: _Change) -> Path:
    """Three tars of a sample each, with an index of wids in which something was changed."""
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.tar").write_bytes(tar_of((f"{name}.txt", b"one")))
    size = (folder / "a.tar").stat().st_size
    shards: list[dict[str, Any]] = [{"url": f"{name}.tar", "nsamples": 1, "filesize": size} for name in ("a", "b", "c")]
    change(shards)
    (folder / "index.json").write_text(json.dumps({"__kind__": "wids-shard-index-v1", "shardlist": shards}))
    return folder


def test_tars_in_a_folder_are_held_against_an_index_that_lies_there(tmp_path: Path) -> None:
    right = lading.verify(_three_tars(tmp_path / "right", lambda _: None))
    assert (right.ok, right.samples, right.checked) == (True, 3, ["indexes", "keys", "sizes"])

    def lie(shards: list[dict[str, Any]]) -> None:
        shards[0]["nsamples"] = 2
        shards[1]["filesize"] = 99
        shards[2]["url"] = "d.tar"

    folder = _three_tars(tmp_path / "lies", lie)
    size = (folder / "b.tar").stat().st_size
    told = lading.verify(folder).findings
    assert [(Path(str(found["file"])).name, found.get("expected"), found.get("found")) for found in told] == [
        ("index.json", None, str(folder / "d.tar")),
        ("index.json", str(folder / "c.tar"), None),
        ("index.json", 1, 2),
        ("b.tar", "99 bytes", f"{size} bytes"),
    ]
    told = lading.verify(folder / "index.json").findings
    assert [Path(str(found["file"])).name for found in told] == ["a.tar", "b.tar", "d.tar"]
    assert str(folder / "index.json") in str(told[1]["message"])


def test_tars_of_other_folders_are_none_of_an_index_s(tmp_path: Path) -> None:
    folder = _three_tars(tmp_path / "set", lambda shards: None)
    (folder / "val").mkdir()
    shutil.copyfile(folder / "a.tar", folder / "val" / "a.tar")
    assert lading.verify(folder).ok
    shutil.copyfile(folder / "a.tar", folder / "a (copy).tar")
    finding, same_key = lading.verify(folder).findings
    assert (finding["file"], finding["expected"]) == (str(folder / "index.json"), str(folder / "a (copy).tar"))
    assert same_key["level"] == "note"


def test_what_says_a_size_is_named(tmp_path: Path) -> None:
    out = _mds(tmp_path / "out")
    shards = sorted(out.glob("*.mds"))
    one, two = shards[0], shards[-1]
    first, last = one.read_bytes(), two.read_bytes()
    assert len(first) != len(last)
    one.write_bytes(last)
    two.write_bytes(first)
    findings = lading.verify(out, quick=True).findings
    assert [found["file"] for found in findings] == [str(one), str(two)]
    assert all(f"{out}/_lading" in str(found["message"]) for found in findings)
    assert not any("index" in str(found.get("advice")) for found in findings)
