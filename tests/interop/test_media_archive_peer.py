"""datatrove's readers open the documents and archives that lading writes, and lading opens those of its writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from media import pictures
from peers import import_peer

data = import_peer("datatrove.data")
media_readers = import_peer("datatrove.pipeline.media.media_readers.zstd")
media_writers = import_peer("datatrove.pipeline.media.media_writers.zstd")
jsonl_reader = import_peer("datatrove.pipeline.readers.jsonl")
jsonl_writer = import_peer("datatrove.pipeline.writers.jsonl")
parquet_reader = import_peer("datatrove.pipeline.readers.parquet")
parquet_writer = import_peer("datatrove.pipeline.writers.parquet")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

_READERS = {"jsonl": jsonl_reader.JsonlReader, "parquet": parquet_reader.ParquetReader}
_WRITERS = {"jsonl": jsonl_writer.JsonlWriter, "parquet": parquet_writer.ParquetWriter}
_OPTIONS = [{}, {"compression": "zstd"}, {"compression": None, "checksum": True}, {"documents": "parquet"}]


def _documents() -> list[Any]:
    contents = [*pictures(20), b"", bytes(300_000)]
    media = [
        data.Media(id=f"m{i}", type=i % 4, url=f"http://x/{i}?é", alt=None if i % 3 else "ä", media_bytes=content,
                   metadata={"w": i, "s": "é"})
        for i, content in enumerate(contents)
    ]  # fmt: skip
    return [
        data.Document(text=f"text {i}\n", id=f"d/{i}", media=media[3 * i : 3 * i + 3], metadata={"n": i, "f": i / 7})
        for i in range(9)
    ]


def _facts(documents: list[Any]) -> list[Any]:
    """What is in documents of the peer, the places of media aside."""
    return [(doc.id, doc.text, doc.metadata, [_media_facts(one) for one in doc.media]) for doc in documents]


def _media_facts(one: Any) -> tuple[Any, ...]:
    metadata = json.loads(one.metadata) if isinstance(one.metadata, str) else one.metadata
    return one.id, one.type, one.url, one.alt, metadata, one.media_bytes


def _by_the_peer(folder: Path, kind: str) -> Path:
    with media_writers.ZstdWriter(str(folder / "media"), max_file_size=100_000) as media:
        placed = list(media.run(_documents(), rank=3))
    with _WRITERS[kind](str(folder / kind)) as writer:
        for document in placed:
            writer.write(document, rank=3)
    return folder / kind


def _seen_by_the_peer(folder: Path, ending: str) -> list[Any]:
    kind = "parquet" if ending == "parquet" else "jsonl"
    reader = _READERS[kind](str(folder), glob_pattern=f"*.{ending}*")
    found = list(media_readers.ZstdReader(str(folder), preserve_order=True).run(reader.run()))
    for document in found:
        del document.metadata["file_path"]  # the reader's own
    return found


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_lading_reads_what_datatrove_writes(tmp_path: Path, kind: str) -> None:
    folder = _by_the_peer(tmp_path, kind)
    with lading.open(folder, format="media_archive", options={"media": str(tmp_path / "media")}) as dataset:
        found = list(dataset)
    read = [data.Document(text=d["text"], id=d["id"], metadata=d["metadata"],
                          media=[data.Media(**media) for media in d["media"]]) for d in found]  # fmt: skip
    assert _facts(read) == _facts(_documents())


@pytest.mark.parametrize("options", _OPTIONS)
@pytest.mark.parametrize("shard_size", ["256MB", "100KB"])
def test_datatrove_reads_what_lading_writes(tmp_path: Path, options: dict[str, Any], shard_size: str) -> None:
    source, media = _by_the_peer(tmp_path, "jsonl"), {"media": str(tmp_path / "media")}
    lading.convert(source, tmp_path / "out", source_format="media_archive", source_options=media,
                   format="media_archive", options=options, shard_size=shard_size, verify=True)  # fmt: skip
    ending = options.get("documents", "jsonl")
    assert _facts(_seen_by_the_peer(tmp_path / "out", ending)) == _facts(_documents())


def test_datatrove_reads_documents_written_from_a_table(tmp_path: Path) -> None:
    item = pa.struct([("id", pa.string()), ("type", pa.int64()), ("url", pa.string()), ("media_bytes", pa.binary())])
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("media", pa.list_(item)), ("lang", pa.string())])
    media = [{"id": "m", "type": 0, "url": "", "media_bytes": picture} for picture in pictures(3)]
    rows = [{"id": one["id"], "text": "t", "lang": "en", "media": [one]} for one in media]
    with lading.writer(tmp_path / "out", format="media_archive") as writer:
        writer.write_batch(pa.Table.from_pylist(rows, schema))
    found = _seen_by_the_peer(tmp_path / "out", "jsonl")
    assert [document.media[0].media_bytes for document in found] == pictures(3)
    assert {str(document.metadata) for document in found} == {"{'lang': 'en'}"}
