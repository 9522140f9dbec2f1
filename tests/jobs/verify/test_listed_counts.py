"""Counts in peers' indexes are in the peers' unit: rows of a format, which are not always samples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from documents import SQUARE
from lading._core.jobs.salvage.salvage import salvage
from tars import tar_of

DOCUMENTS = 3


def _wids(folder: Path, count: int, *members: tuple[str, bytes]) -> Path:
    folder.mkdir()
    (folder / "a.tar").write_bytes(tar_of(*members))
    shards = [{"url": "a.tar", "nsamples": count, "filesize": (folder / "a.tar").stat().st_size}]
    (folder / "index.json").write_text(json.dumps({"__kind__": "wids-shard-index-v1", "shardlist": shards}))
    return folder


def _documents(folder: Path, count: int) -> Path:
    """Images whose keys are not those of their documents: wids takes each for a sample."""
    members = []
    for n in range(DOCUMENTS):
        told = {"texts": ["x", None], "images": [None, f"img{n}.png"]}
        members += [(f"img{n}.png", SQUARE), (f"doc{n}.json", json.dumps(told).encode())]
    return _wids(folder, count, *members)


def _items(folder: Path, fmt: str) -> Path:
    """Rows of items, three a document, which the format's index counts as rows."""
    ids = [f"d{n}" for n in range(DOCUMENTS) for _ in range(3)]
    table = pa.table({
        "sample_id": ids, "position": pa.array([-1, 0, 1] * DOCUMENTS, pa.int32()),
        "modality": ["metadata", "text", "text"] * DOCUMENTS,
        "content_type": ["application/json", None, None] * DOCUMENTS,
        "text_content": [None, "one", "two"] * DOCUMENTS, "binary_content": pa.nulls(len(ids), pa.large_binary()),
    })  # fmt: skip
    with lading.writer(folder, format=fmt, view="samples", options={"nulls": "mask"} if fmt == "mds" else {}) as writer:
        writer.write_batch(table)
    shutil.rmtree(folder / "_lading")
    return folder


@pytest.mark.parametrize("kind", ["wids", "arrow", "mds"])
def test_documents_are_not_held_against_counts_of_rows(kind: str, tmp_path: Path) -> None:
    source = _documents(tmp_path / "in", 2 * DOCUMENTS) if kind == "wids" else _items(tmp_path / "in", kind)
    for place in (source, source / "index.json") if kind == "wids" else (source,):
        with lading.open(place, view="interleaved") as dataset:
            assert len(dataset) == DOCUMENTS
            assert len(list(dataset)) == DOCUMENTS
        found = lading.verify(place, view="interleaved")
        assert (found.findings, found.samples) == ([], DOCUMENTS)
        assert (
            lading.convert(place, tmp_path / "rows", format="parquet", view="interleaved", overwrite=True).samples == 3
        )
        saved = salvage(place, tmp_path / "saved", view="interleaved", overwrite=True)
        assert (saved.lost, saved.lost_samples, saved.samples, saved.findings) == ([], 0, DOCUMENTS, [])


@pytest.mark.parametrize("name", ["", "index.json"])
def test_counts_of_documents_are_held_as_wids_counts_them(name: str, tmp_path: Path) -> None:
    source = _documents(tmp_path / "in", 7)
    told = lading.verify(source / name).findings
    assert [(one["file"], one["expected"], one["found"]) for one in told] == [(str(source / "index.json"), 6, 7)]


@pytest.mark.parametrize("name", ["", "index.json"])
def test_joined_samples_are_not_held_against_counts_of_their_pieces(name: str, tmp_path: Path) -> None:
    pieces = [(f"k{n}.{field}", b"1") for field in ("txt", "cls") for n in range(3)]
    source, options = _wids(tmp_path / "in", 6, *pieces) / name, {"regroup": True}
    assert lading.verify(source, options=options).findings == []
    saved = salvage(source, tmp_path / "out", source_options=options)
    assert (saved.ok, saved.samples, saved.lost_samples) == (True, 3, 0)


def test_a_manifest_s_counts_are_of_its_own_view(tmp_path: Path) -> None:
    source, more = _items(tmp_path / "in", "arrow"), dict[str, Any](view="interleaved")
    lading.convert(source, tmp_path / "kept", format="arrow", view="samples")
    saved = salvage(tmp_path / "kept", tmp_path / "out", **more)
    assert (saved.ok, saved.samples, saved.lost_samples) == (True, DOCUMENTS, 0)
