"""Salvage of media archives in which records moved: each sample that is saved has the bytes that it had."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading._core.jobs.salvage.salvage import salvage
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError
from lading.media import MediaWriter

_ROWS, _BYTES = 60, 300
_FRAMED_BYTES = _BYTES + 5
"""A record of so many bytes that do not pack, as zstd frames it."""


def bytes_of_samples(sizes: str) -> dict[str, bytes]:
    """Values of one size, of one size for the most part, or of any."""
    random = Random(sizes)

    def size(number: int) -> int:
        return _BYTES if sizes == "one" or (sizes == "mostly one" and number % 10) else random.randrange(50, 500)

    return {f"{number:05d}": random.randbytes(size(number)) for number in range(_ROWS)}


def written(out: Path, values: dict[str, bytes]) -> Path:
    """A media archive of these; gives the file that holds them."""
    with lading.writer(out, format="media_archive") as writer:
        writer.write_batch(pa.table({"__key__": [*values], "bin": [*values.values()]}))
    [archive] = out.glob("*.bin.zst")
    return archive


def changed(body: bytes, by_bytes: int) -> bytes:
    """With so many bytes less, or more, from a third of it on."""
    at = len(body) // 3 + 37
    return body[:at] + (body[at - by_bytes :] if by_bytes < 0 else Random(0).randbytes(by_bytes) + body[at:])


def saved(out: Path) -> dict[str, bytes]:
    with lading.open(out) as dataset:
        return {sample["__key__"]: sample["bin"] for sample in dataset}


def saved_bare(out: Path, key: str = "__key__") -> dict[str, bytes]:
    """Where nothing says that the one medium of a document is a field."""
    with lading.open(out, format="media_archive") as dataset:
        return {sample[key]: sample["media"][0]["media_bytes"] for sample in dataset}


def test_records_are_as_long_as_the_cuts_that_are_tried(tmp_path: Path) -> None:
    assert written(tmp_path / "source", bytes_of_samples("one")).stat().st_size == _ROWS * _FRAMED_BYTES


@pytest.mark.soak
@pytest.mark.parametrize("by_bytes", [-_FRAMED_BYTES, -70, 70, _FRAMED_BYTES])
@pytest.mark.parametrize("sizes", ["one", "mostly one", "any"])
def test_what_is_kept_is_what_it_was(sizes: str, by_bytes: int, tmp_path: Path) -> None:
    source, values = tmp_path / "source", bytes_of_samples(sizes)
    archive = written(source, values)
    archive.write_bytes(changed(archive.read_bytes(), by_bytes))
    result = salvage(source, tmp_path / "out")
    kept = saved(tmp_path / "out")
    assert kept.items() <= values.items()
    assert _ROWS // 3 - 3 <= len(kept) == _ROWS - result.lost_samples < _ROWS

    shutil.rmtree(source / "_lading")  # now nothing but where a record lies says whose it is
    if sizes != "any" and abs(by_bytes) == _FRAMED_BYTES:
        with contextlib.suppress(DataError):  # nothing is certain
            salvage(source, tmp_path / "bare", source_format="media_archive")
            assert saved_bare(tmp_path / "bare").items() <= values.items()
        return
    result = salvage(source, tmp_path / "bare", source_format="media_archive")
    kept = saved_bare(tmp_path / "bare")
    assert kept.items() <= values.items()
    assert _ROWS // 3 - 3 <= len(kept) == _ROWS - result.lost_samples < _ROWS


@pytest.mark.parametrize("by_bytes", [-_FRAMED_BYTES, _FRAMED_BYTES])
def test_archives_of_another_store_are_read_there(by_bytes: int, tmp_path: Path) -> None:
    values = bytes_of_samples("one")
    archive = written(tmp_path / "source", values)
    archive.write_bytes(changed(archive.read_bytes(), by_bytes))
    files = {
        f"memory://far/{path.relative_to(tmp_path / 'source')}": path.read_bytes()
        for path in (tmp_path / "source").rglob("*")
        if path.is_file()
    }
    salvage("memory://far", tmp_path / "out", stores=Stores({"memory://far": MemoryStore(files)}))
    kept = saved(tmp_path / "out")
    assert kept.items() <= values.items()
    assert len(kept) >= _ROWS // 3 - 3


def bare(folder: Path, named: list[int], *, bad: int | None = None, cut: tuple[int, int] | None = None) -> Path:
    """An archive of twenty records without a list, and documents that name some of them.

    Args:
        folder: where they go.
        named: numbers of the records that documents name.
        bad: a record whose first byte is changed.
        cut: a record from whose middle bytes are missing, and how many.
    """
    values = list(bytes_of_samples("any" if cut else "one").values())[:20]
    with MediaWriter(folder) as writer:
        documents = list(writer.run(
            {"id": f"{number:05d}", "text": "", "media": [{"id": "m", "type": 0, "media_bytes": value}]}
            for number, value in enumerate(values)
        ))  # fmt: skip
    [archive] = folder.glob("*.bin.zst")
    places = [document["media"][0] for document in documents]
    body = bytearray(archive.read_bytes())
    if bad is not None:
        body[places[bad]["offset"]] = 0xFF  # no frame begins so
    if cut is not None:
        at = places[cut[0]]["offset"] + places[cut[0]]["length"] // 2
        del body[at : at + cut[1]]
    archive.write_bytes(body)
    named_in(folder / "a.jsonl", documents, named)
    return folder


def named_in(file: Path, documents: list[dict[str, Any]], numbers: list[int]) -> None:
    kept = [documents[number] for number in numbers]
    told = [{**one, "media": [{**one["media"][0], "media_bytes": None}]} for one in kept]
    file.write_text("".join(json.dumps(one) + "\n" for one in told))


_SCATTERED = [1, 8, 16]


@pytest.mark.parametrize("named", [list(range(10)), list(range(17)), _SCATTERED, [1, 2, 8, 16]])
def test_records_that_no_document_names_are_no_others(named: list[int], tmp_path: Path) -> None:
    """The archive goes on behind what documents name, in records as long as theirs: nothing came into it."""
    bad = 5 if 5 in named else 8
    source = bare(tmp_path / "source", named, bad=bad)
    result = salvage(f"{source}/a.jsonl", tmp_path / "out", source_format="media_archive")
    values = bytes_of_samples("one")
    assert saved_bare(tmp_path / "out", "id") == {
        f"{number:05d}": values[f"{number:05d}"] for number in named if number != bad
    }
    assert result.lost_samples == 1


def test_a_place_far_behind_the_archive_is_one_that_is_wrong(tmp_path: Path) -> None:
    source = bare(tmp_path / "source", list(range(20)))
    lines = [json.loads(line) for line in (source / "a.jsonl").read_text().splitlines()]
    lines[5]["media"][0]["offset"] += 100 * _FRAMED_BYTES
    (source / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    salvage(f"{source}/a.jsonl", tmp_path / "out", source_format="media_archive")
    values = bytes_of_samples("one")  # the last one lies where the archive ends too early, as it seems
    assert saved_bare(tmp_path / "out", "id") == {f"{n:05d}": values[f"{n:05d}"] for n in range(19) if n != 5}


@pytest.mark.parametrize("last", [19, 20])
def test_records_before_a_cut_are_saved_wherever_the_archive_ends(last: int, tmp_path: Path) -> None:
    source = bare(tmp_path / "source", list(range(last)), cut=(3, 20))
    salvage(f"{source}/a.jsonl", tmp_path / "out", source_format="media_archive")
    values, kept = bytes_of_samples("any"), saved_bare(tmp_path / "out", "id")
    assert kept.items() <= values.items()
    assert {"00000", "00001"} <= {*kept}


def test_web_archives_are_held_against_the_digests_of_their_blocks(tmp_path: Path) -> None:
    records, documents = b"", ""
    for number in range(5):
        block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nbody %d" % number
        digest = base64.b32encode(hashlib.sha1(block).digest())
        record = b"\r\n".join([
            b"WARC/1.0", b"WARC-Type: response", b"WARC-Target-URI: http://x/", b"WARC-Block-Digest: sha1:" + digest,
            b"Content-Type: application/http; msgtype=response", b"Content-Length: %d" % len(block), b"",
            block.replace(b"body 2", b"bodz 2"), b"", b"",
        ])  # fmt: skip
        media = {"id": "m", "type": 1, "path": "a.warc", "offset": len(records), "length": len(record)}
        documents += json.dumps({"id": f"d{number}", "text": "t", "media": [media]}) + "\n"
        records += record
    (tmp_path / "a.warc").write_bytes(records)
    (tmp_path / "a.jsonl").write_text(documents)
    options = {"archives": "warc"}
    [finding] = lading.verify(tmp_path / "a.jsonl", format="media_archive", deep=True, options=options).findings
    assert finding["sample"] == "d2"
    result = lading.salvage(
        tmp_path / "a.jsonl", tmp_path / "out", source_format="media_archive", source_options=options
    )
    assert (result.samples, result.lost_samples) == (4, 1)
    with lading.open(tmp_path / "out", format="media_archive") as dataset:
        assert [document["id"] for document in dataset] == ["d0", "d1", "d3", "d4"]


@pytest.mark.parametrize("documents", ["jsonl", "parquet"])
def test_media_next_to_documents_are_saved_though_nobody_names_the_format(documents: str, tmp_path: Path) -> None:
    """As `lading.open` tells the format of such a folder; as plain lines they would lose their media, unsaid."""
    rows = {"__key__": ["a", "b"], "png": [b"\x89PNG one", b"\x89PNG two"]}
    with lading.writer(tmp_path / "in", format="media_archive", options={"documents": documents}) as writer:
        writer.write_batch(pa.table(rows))
    shutil.rmtree(tmp_path / "in" / "_lading")
    result = salvage(tmp_path / "in", tmp_path / "out")
    assert (result.format, result.samples) == ("media_archive", 2)
    payload = [path.read_bytes() for folder in ("in", "out") for path in (tmp_path / folder).glob("*.bin.zst")]
    assert len(payload) == 2
    assert payload[0] == payload[1]
