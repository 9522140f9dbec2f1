"""Tars whose keys are escaped: lading gives the keys as they were, whoever asks; other readers see the names."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading._core.dataset.query import open_shards
from lading._core.jobs.salvage.salvage import salvage
from lading.errors import Unrepresentable, UsageError

KEYS = ["a.b", "c", "d%2Ee", "100%", "n\nl", "z\0z", "dir.x/f.g", "%25"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    with lading.writer(tmp_path / "rows", format="parquet") as writer:
        writer.write_batch(pa.table({"__key__": KEYS, "n": range(len(KEYS)), "txt": [f"{k} " * 200 for k in KEYS]}))
    return tmp_path / "rows"


def escaped(source: Path, destination: Path, **options: Any) -> Path:
    lading.convert(source, destination, format="webdataset", options={"escape": "percent", **options}, verify=True)
    return destination


@pytest.mark.soak
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}])
def test_keys_come_back_as_they_were(rows: Path, tmp_path: Path, options: dict[str, str]) -> None:
    tars = escaped(rows, tmp_path / "tars", **options)
    with lading.open(tars) as dataset:
        assert [key for batch in dataset.batches(max_rows=3) for key in batch["__key__"].to_pylist()] == KEYS
        assert [dataset[i]["__key__"] for i in range(len(KEYS))] == KEYS
        assert dataset.take([6, 0], columns=["__key__"]).to_pydict() == {"__key__": ["dir.x/f.g", "a.b"]}
        assert dataset.take([6], columns=["n"]).to_pydict() == {"n": [6]}
        assert [dataset.by_key(key)["n"] for key in KEYS] == list(range(len(KEYS)))
        assert dataset.schema.names == ["__key__", "n", "txt"]
    assert lading.verify(tars).ok
    assert lading.digest(tars).ordered == lading.digest(rows).ordered
    lading.convert(tars, tmp_path / "one", format="parquet", where="__key__ == 'd%2Ee'")
    with lading.open(tmp_path / "one") as found:
        assert [row["n"] for batch in found.batches() for row in batch.to_pylist()] == [2]


def test_other_readers_see_the_names(rows: Path, tmp_path: Path) -> None:
    tars = escaped(rows, tmp_path / "tars")
    [shard] = tars.glob("*.tar")
    with tarfile.open(shard) as tar:
        names = tar.getnames()[::2]
    assert names == [
        f"{name}.n" for name in ("a%2Eb", "c", "d%252Ee", "100%25", "n%0Al", "z%00z", "dir%2Ex/f%2Eg", "%2525")
    ]
    shard.rename(tmp_path / "foreign.tar")
    with lading.open(tmp_path / "foreign.tar") as foreign:
        assert foreign[0]["__key__"] == "a%2Eb"
    with lading.open(tmp_path / "foreign.tar", options={"escape": "percent"}) as foreign:
        assert [key for batch in foreign.batches() for key in batch["__key__"].to_pylist()] == KEYS
    with pytest.raises(UsageError, match="escape='dots'"):
        lading.open(tmp_path / "foreign.tar", options={"escape": "dots"})


def test_an_index_is_good_for_both_ways_to_read(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    [shard] = escaped(rows, tmp_path / "tars").glob("*.tar")
    shard.rename(tmp_path / "foreign.tar")
    assert lading.index(tmp_path / "foreign.tar", options={"escape": "percent"}).kept == 1
    for escape, key in (("none", "a%2Eb"), ("percent", "a.b")):
        with lading.open(tmp_path / "foreign.tar", options={"escape": escape}) as foreign:
            assert foreign[0]["__key__"] == key


@pytest.mark.soak
def test_copies_keep_the_keys(rows: Path, tmp_path: Path) -> None:
    tars = escaped(rows, tmp_path / "tars")
    lading.convert(tars, tmp_path / "copy", format="webdataset", verify=True)
    lading.convert(tmp_path / "copy", tmp_path / "back", format="parquet", verify=True)
    salvage(tars, tmp_path / "saved")
    assert {lading.digest(tmp_path / name).ordered for name in ("rows", "tars", "copy", "back", "saved")} == {
        lading.digest(rows).ordered
    }
    with pytest.raises(Unrepresentable, match="'escape': 'percent'"):
        lading.convert(tars, tmp_path / "plain", format="webdataset", options={"escape": "error"})


def test_what_is_left_of_a_damaged_tar_has_its_keys(rows: Path, tmp_path: Path) -> None:
    tars = escaped(rows, tmp_path / "tars")
    [shard] = tars.glob("*.tar")
    data = bytearray(shard.read_bytes())
    at = data.index(b"dir%2Ex/f%2Eg.n")
    data[at : at + 512] = bytes(512)
    shard.write_bytes(data)
    result = salvage(tars, tmp_path / "saved")
    assert (result.samples, result.lost_samples) == (len(KEYS) - 1, 1)
    with lading.open(tmp_path / "saved") as dataset:
        kept = [key for batch in dataset.batches() for key in batch["__key__"].to_pylist()]
    assert kept == [key for key in KEYS if key != "dir.x/f.g"]


def test_documents_are_named_by_a_rule_of_their_own(tmp_path: Path) -> None:
    items = pa.table({"sample_id": ["a%b"], "position": [0], "modality": ["text"], "text_content": ["x"]})
    with lading.writer(tmp_path / "tars", view="interleaved", options={"escape": "percent"}) as writer:
        writer.write_batch(items)
    with open_shards(tmp_path / "tars", view="samples") as shards:
        assert shards.manifest is not None
        assert "reading" not in shards.manifest.options
    with lading.open(tmp_path / "tars", view="samples") as dataset:
        assert dataset[0]["__key__"] == "a%25b"
