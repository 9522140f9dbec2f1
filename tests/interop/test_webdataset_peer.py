"""webdataset reads what lading writes, and lading what webdataset writes: the same samples, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from peers import import_peer

webdataset = import_peer("webdataset")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

SAMPLES: list[dict[str, Any]] = [
    {"__key__": "plain", "cls": b"7", "jpg": b"\xff\xd8\xff jpeg", "json": b'{"a": 1.0}'},
    {"__key__": "folder.with.dots/inner/key", "seg.png": b"", "txt": "größer 🛳\n".encode()},
    {"__key__": "日本語/" + "long-" * 50, "bin": bytes(range(256)) * 40},
    {"__key__": "ascii/" + "long-" * 50, "bin": b"x"},
    {"__key__": "prefix/" * 20 + "key", "txt": b"fits the prefix field"},
    {"__key__": "a b%2Fc", "txt": b"y" * 512, "x" * 120: b"1"},
]


def _read_by_webdataset(folder: Path) -> Iterator[dict[str, Any]]:
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    for sample in webdataset.DataPipeline(webdataset.SimpleShardList(shards), webdataset.tarfile_to_samples()):
        yield {name: value for name, value in sample.items() if name == "__key__" or not name.startswith("__")}


def _raw_samples(source: str) -> Iterator[dict[str, Any]]:
    """Samples as lading streams them, values as bytes."""
    with lading.open(source, view="samples") as dataset:
        for batch in dataset.batches():
            for row in batch.to_pylist():
                yield {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("shard_size", ["256MB", "1KB"])
def test_webdataset_reads_what_lading_writes(tmp_path: Path, shard_size: str) -> None:
    with lading.writer(tmp_path / "new", format="webdataset", shard_size=shard_size) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    assert list(_read_by_webdataset(tmp_path / "new")) == SAMPLES


@pytest.mark.parametrize("pattern", ["%02d.tar", "%02d.tar.gz"])
def test_lading_reads_what_webdataset_writes(tmp_path: Path, pattern: str) -> None:
    with webdataset.ShardWriter(str(tmp_path / pattern), maxcount=2, verbose=0) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    assert list(_raw_samples(str(tmp_path / pattern.replace("%02d", "*")))) == SAMPLES


def test_a_dataset_comes_back_the_same_from_webdataset(tmp_path: Path) -> None:
    """lading → webdataset's reader → its writer → lading: one content digest."""
    with lading.writer(tmp_path / "one", format="webdataset") as writer:
        for sample in SAMPLES:
            writer.write(sample)
    with webdataset.ShardWriter(str(tmp_path / "%02d.tar"), maxcount=2, verbose=0) as writer:
        for sample in _read_by_webdataset(tmp_path / "one"):
            writer.write(sample)
    assert lading.digest(tmp_path / "one") == lading.digest(str(tmp_path / "*.tar"))


def test_interleaved_documents_keep_their_samples(tmp_path: Path, documents: str) -> None:
    """A key that holds dots is cut by webdataset; the keys that lading writes are not."""
    lading.convert(documents, tmp_path / "new", format="webdataset", view="interleaved")
    with lading.open(documents) as dataset:
        wanted = len(dataset)
    samples = list(_read_by_webdataset(tmp_path / "new"))
    by_key = {sample["__key__"].partition(".")[0] for sample in samples}
    assert sum("json" in sample for sample in samples) == wanted == len(by_key)
