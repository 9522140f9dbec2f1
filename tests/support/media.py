"""Media, documents and archives for tests."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from lading._core.media.reader import MediaReader, RecordReader
from lading.media import WarcReader

__all__ = ["document", "frame", "golden_documents", "medium", "pictures", "reader_of", "without_bytes"]


def medium(data: bytes | None = None, **fields: Any) -> dict[str, Any]:
    blank = {"id": "m", "type": 0, "url": "", "alt": None, "path": None, "offset": None, "length": None}
    return {**blank, "media_bytes": data, "metadata": {}, **fields}


def document(*contents: bytes | None, name: str = "d") -> dict[str, Any]:
    media = [medium(data, id=f"{name}-{at}") for at, data in enumerate(contents)]
    return {"id": name, "text": "", "metadata": {}, "media": media}


def without_bytes(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**doc, "media": [{**one, "media_bytes": None} for one in doc["media"]]} for doc in documents]


_LOW_BITS = bytes(range(16)) * 16


def pictures(count: int, size: int = 5000) -> list[bytes]:
    """Return contents of which every second one compresses."""
    source = random.Random(count)
    noise = [source.randbytes(size) for _ in range(count)]
    return [data if at % 2 else data.translate(_LOW_BITS) for at, data in enumerate(noise)]


def frame(data: bytes, *, magic: bool = False, size: bool = False, checksum: bool = False, level: int = 3) -> bytes:
    """Return a record as datatrove 0.10.1 writes it, unless options differ."""
    params = zstandard.ZstdCompressionParameters.from_level(
        level,
        format=zstandard.FORMAT_ZSTD1 if magic else zstandard.FORMAT_ZSTD1_MAGICLESS,
        write_content_size=size,
        write_checksum=checksum,
    )
    packing = zstandard.ZstdCompressor(compression_params=params).compressobj(size=len(data))
    return packing.compress(data) + packing.flush()


def golden_documents(folder: Path) -> Iterator[dict[str, Any]]:
    """Return documents of all JSON lines below a folder; fields that the peer omits if empty are present."""
    for path in sorted(folder.iterdir()):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield {"text": "", "media": [], "metadata": {}, **json.loads(line)}


def reader_of(case: Path, opened: dict[str, Any], **options: Any) -> RecordReader:
    """Return the reader of a golden case."""
    kind = WarcReader if opened.get("media_kind") == "warc" else MediaReader
    return kind(case / opened["media_root"], **options)
