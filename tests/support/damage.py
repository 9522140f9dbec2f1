"""Damage files, and find which samples of a dataset are in which bytes, by the rules of each format and its peer."""

from __future__ import annotations

import json
import random
import struct
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIZE = 1024
"""Number of bytes that are damaged at once."""


def damaged(body: bytes, at: int, kind: str) -> bytes:
    """Return a file with some bytes flipped, cut out, zeroed, or inserted."""
    some = body[at : at + SIZE]
    if kind == "inserted":
        return body[:at] + random.Random(at).randbytes(SIZE) + body[at:]
    if kind == "flipped":
        return body[:at] + bytes(byte ^ 0xFF for byte in some) + body[at + SIZE :]
    return body[:at] + (b"" if kind == "cut" else bytes(len(some))) + body[at + SIZE :]


def break_header(path: Path) -> None:
    """Flip bits in the sizes of a tar's header behind the first ones: its checksum is wrong."""
    body = bytearray(path.read_bytes())
    body[body.index(b"ustar", 5000) - 150] ^= 0xFF
    path.write_bytes(body)


@dataclass(frozen=True)
class Extent:
    """Bytes of a file that belong to one sample, by the sample's ordinal in the dataset."""

    file: Path
    start: int
    stop: int
    sample: int

    def touches(self, file: Path, at: int) -> bool:
        """Return whether damage at this place hits it."""
        return self.file == file and self.start < at + SIZE and self.stop > at


def extents(folder: Path, fmt: str) -> list[Extent]:
    """Return the places of the samples of a folder's shards, shard by shard in the order of names."""
    found: list[Extent] = []
    shards = (p for p in folder.iterdir() if p.is_file() and p.suffix not in (".json", ".yaml", ".zst"))
    for path in sorted(shards):
        mine = list(_PLACES[fmt](path))
        first = max((extent.sample for extent in found), default=-1) + 1
        found += [Extent(file, start, stop, first + sample) for file, start, stop, sample in mine]
    return found


Places = Iterator[tuple[Path, int, int, int]]


def _members(path: Path) -> Iterator[tuple[tarfile.TarInfo, int, int]]:
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            yield member, member.offset, member.offset_data + -(-member.size // 512) * 512


def _webdataset(path: Path) -> Places:
    keys: list[str] = []
    for member, start, stop in _members(path):
        key = member.name.partition(".")[0]
        keys += [key] if not keys or keys[-1] != key else []
        yield path, start, stop, len(keys) - 1


def _mint(path: Path) -> Places:
    with tarfile.open(path) as tar:
        texts = [(m.name, tar.extractfile(m)) for m in tar.getmembers() if m.name.endswith(".json")]
        documents = [(name, json.loads(text.read())) for name, text in texts if text is not None]
    owner = {name: number for number, (name, _) in enumerate(documents)}
    owner |= {image: n for n, (_, document) in enumerate(documents) for image in document["images"] if image}
    for member, start, stop in _members(path):
        yield path, start, stop, owner[member.name]


def _mds(path: Path) -> Places:
    """Return samples, each with the first size of the next: a cut there leaves no trace of the border."""
    body = path.read_bytes()
    [count] = struct.unpack_from("<I", body)
    offset = struct.unpack_from(f"<{count + 1}I", body, 4)
    for sample in range(count):
        yield path, offset[sample], offset[sample + 1] + 4, sample


def _lines(path: Path, skipped: int = 0) -> Places:
    at = 0
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True)):
        if number >= skipped:
            yield path, at, at + len(line), number - skipped
        at += len(line)


def _csv(path: Path) -> Places:
    """Return records, with the line end before each: without it, the start of the first value is unknown."""
    for _, start, stop, sample in _lines(path, skipped=1):
        yield path, start - 1, stop, sample


def _parquet(path: Path) -> Places:
    """Return row groups, each with the header of the next page: a cut there leaves no trace of the border."""
    told, first = pq.read_metadata(path), 0
    for group in range(told.num_row_groups):
        columns = [told.row_group(group).column(i) for i in range(told.num_columns)]
        starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
        stop = max(start + c.total_compressed_size for start, c in zip(starts, columns, strict=True))
        for row in range(first, first + told.row_group(group).num_rows):
            yield path, min(starts), stop + 3, row
        first += told.row_group(group).num_rows


def _arrow(path: Path) -> Places:
    """Return messages of the stream, each with the start of the next: without it, the end is unknown."""
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(8 if is_file else 0)
        schema = pa.ipc.read_schema(pa.ipc.read_message(source))
        row = 0
        while True:
            start = source.tell()
            try:
                message = pa.ipc.read_message(source)
            except (EOFError, pa.ArrowInvalid):
                return
            rows = pa.ipc.read_record_batch(message, schema).num_rows
            for each in range(row, row + rows):
                yield path, start, source.tell() + 16, each
            row += rows


def _media(path: Path) -> Places:
    body = path.read_bytes()
    records: dict[Path, dict[int, int]] = {}
    for number, (_, start, stop, _) in enumerate(_lines(path)):
        yield path, start, stop, number
        for media in json.loads(body[start:stop])["media"]:
            if media.get("path"):
                records.setdefault(path.parent / media["path"], {})[media["offset"]] = number
    for archive, offsets in records.items():
        stops = [*sorted(offsets)[1:], archive.stat().st_size]
        for start, stop in zip(sorted(offsets), stops, strict=True):
            yield archive, start, stop, offsets[start]


_PLACES: dict[str, Any] = {
    "webdataset": _webdataset, "mint": _mint, "mds": _mds, "jsonl": _lines, "csv": _csv, "parquet": _parquet,
    "arrow": _arrow, "media_archive": _media,
}  # fmt: skip


def some_rows(fmt: str, count: int = 120) -> pa.Table:
    """Return samples of texts of several sizes, and of bytes if the format has them."""
    sizes = np.random.default_rng(0)
    columns: dict[str, Any] = {"txt": [f"text {n} " * int(sizes.integers(5, 60)) for n in range(count)]}
    if fmt not in ("jsonl", "csv"):
        columns["bin"] = [sizes.bytes(int(sizes.integers(100, 4000))) for _ in range(count)]
    if fmt != "webdataset":
        columns["n"] = list(range(count))
    return pa.table(columns)
