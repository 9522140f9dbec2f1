"""The same samples, and the same documents, as every format holds them: plain, compressed and remote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lading
from lading._core.features.items import INTERLEAVED_SCHEMA
from tars import tar_of

__all__ = ["COUNT", "DOCUMENTS", "DOCUMENT_SOURCES", "SAMPLES", "SAMPLE_SOURCES", "contents", "write"]

COUNT = 43
_PER_SHARD = 10
_NOISE = np.random.default_rng(7)

SAMPLES: list[dict[str, Any]] = [
    {"__key__": f"{i:05}", "txt": f"text {i}" * (i % 5), "number": i * 3} for i in range(COUNT)
]
"""Samples that every format holds, CSV too."""


@dataclass(frozen=True)
class Form:
    """How a source is written: format, options, and whether it lies in a remote store."""

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    remote: bool = False


_SMALL_GROUPS = {"row_group_bytes": 100}

SAMPLE_SOURCES = {
    "tar": Form("webdataset"),
    "tar.gz": Form("webdataset", {"compression": "gzip"}),
    "tar.zst": Form("webdataset", {"compression": "zstd"}),
    "mds": Form("mds"),
    "mds.zstd": Form("mds", {"compression": "zstd"}),
    "parquet": Form("parquet", _SMALL_GROUPS),
    "arrow": Form("arrow"),
    "arrow, zstd": Form("arrow", {"compression": "zstd", "batch_rows": 3}),
    "jsonl": Form("jsonl"),
    "jsonl.zst": Form("jsonl", {"compression": "zstd"}),
    "csv": Form("csv"),
    "csv.gz": Form("csv", {"compression": "gzip"}),
    "media archive": Form("media_archive"),
    "remote tar": Form("webdataset", remote=True),
    "remote tar.gz": Form("webdataset", {"compression": "gzip"}, remote=True),
    "remote mds.zstd": Form("mds", {"compression": "zstd"}, remote=True),
    "remote parquet": Form("parquet", _SMALL_GROUPS, remote=True),
    "remote jsonl": Form("jsonl", remote=True),
}

DOCUMENT_SOURCES = {
    "tar": Form("webdataset"),
    "tar.gz": Form("webdataset", {"compression": "gzip"}),
    "tar.zst": Form("webdataset", {"compression": "zstd"}),
    "mds": Form("mds"),
    "mds.zstd": Form("mds", {"compression": "zstd"}),
    "parquet": Form("parquet", _SMALL_GROUPS),
    "references": Form("references"),
    "arrow": Form("arrow"),
    "media archive": Form("media_archive"),
    "media archive, parquet": Form("media_archive", {"documents": "parquet"}),
    "remote tar.gz": Form("webdataset", {"compression": "gzip"}, remote=True),
    "remote parquet": Form("parquet", _SMALL_GROUPS, remote=True),
    "remote media archive": Form("media_archive", remote=True),
}

DOCUMENTS: list[tuple[str, list[str | bytes]]] = [
    (f"{i:05}", [f"text {i} {j}" if (i + j) % 3 else _NOISE.bytes(20 + j) for j in range(1 + i % 4)])
    for i in range(COUNT)
]
"""Documents: the id, and texts and images in their order."""


def write(folder: Path, form: Form, documents: bool) -> str:
    """Write the samples, or the documents, below a folder; return their place."""
    name = "-".join(["documents" if documents else "samples", form.format, *map(str, form.options.values())])
    place = f"memory://{folder.name}/{name}" if form.remote else str(folder / name)
    if form.format == "references":
        return _write_references(Path(place))
    view = "interleaved" if documents else "samples"
    with lading.writer(place, format=form.format, view=view, rows_per_shard=_PER_SHARD, options=form.options) as writer:
        if documents:
            writer.write_batch(_items())
        for sample in [] if documents else SAMPLES:
            writer.write(sample)
    return place


def contents(sample: Mapping[str, Any]) -> tuple[str, list[str | bytes]]:
    """Return a document as `DOCUMENTS` has it."""
    items = sorted((item["position"], item) for item in sample["items"] if item["modality"] != "metadata")
    found = [item["text_content"] if item["modality"] == "text" else item["binary_content"] for _, item in items]
    return sample["sample_id"], found


def _items() -> pa.Table:
    rows = []
    for name, parts in DOCUMENTS:
        rows.append({"sample_id": name, "position": -1, "modality": "metadata", "content_type": "application/json"})
        rows += [_item(name, i, part) for i, part in enumerate(parts)]
    return pa.Table.from_pylist(rows, INTERLEAVED_SCHEMA)


def _item(name: str, position: int, part: str | bytes) -> dict[str, Any]:
    place = {"sample_id": name, "position": position}
    if isinstance(part, str):
        return {**place, "modality": "text", "content_type": "text/plain", "text_content": part}
    return {**place, "modality": "image", "content_type": "image/png", "binary_content": part}


def _write_references(folder: Path) -> str:
    """Tables of items whose images lie in a tar."""
    folder.mkdir()
    rows = _items().to_pylist()
    images = [row for row in rows if row["binary_content"] is not None]
    (folder / "images.tar").write_bytes(
        tar_of(*((f"{row['sample_id']}.{row['position']}.png", row["binary_content"]) for row in images))
    )
    for row in images:
        member = f"{row['sample_id']}.{row['position']}.png"
        row["source_ref"] = json.dumps({"path": "images.tar", "member": member, "byte_offset": None, "byte_size": None})
        row["binary_content"] = None
    shards = [*range(0, COUNT, _PER_SHARD)]
    for shard in shards:
        mine = [row for row in rows if shard <= int(row["sample_id"]) < shard + _PER_SHARD]
        pq.write_table(pa.Table.from_pylist(mine, INTERLEAVED_SCHEMA), folder / f"{shard:02}.parquet", row_group_size=7)
    return f"{folder}/*.parquet"
