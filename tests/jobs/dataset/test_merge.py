"""Parts become one dataset, and nothing of them is touched."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from golden_cases import Golden
from lading.errors import DataError, DestinationExists, SchemaMismatch, SourceNotFound, UsageError
from mds_lines import write_lines
from tars import tar_of

EXPECTED = [f"{n:04}" for n in range(60)]


def _write(folder: Path, first: int, **options: Any) -> None:
    keys = EXPECTED[first : first + 20]
    with lading.writer(folder, **options) as writer:
        writer.write_batch(pa.table({"__key__": keys, "txt": ["text"] * len(keys)}))


def _keys(source: Path) -> list[str]:
    with lading.open(source) as dataset:
        return [sample["__key__"] for sample in dataset]


def _state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "mds", "parquet"])
def test_parts_of_ranks(fmt: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for rank in (2, 0, 1):
        _write(folder, 20 * rank, format=fmt, rank=rank)
    before = _state(folder)
    assert "index.json" not in before
    found = lading.merge(folder)
    assert (found.parts, found.shards, found.samples) == (3, 3, 60)
    after = _state(folder)
    assert {name for name in after if name not in before} >= set(found.written)
    assert {name: body for name, body in after.items() if name in before} == before
    assert _keys(folder) == EXPECTED
    assert lading.verify(folder).ok
    assert ("index.json" in after) == (fmt != "parquet")
    with pytest.raises(DestinationExists, match="overwrite"):
        lading.merge(folder)
    assert lading.merge(folder, overwrite=True).samples == 60


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "mds", "parquet"])
def test_datasets_in_folders_of_their_own(fmt: str, tmp_path: Path) -> None:
    for number, name in enumerate(("a/same", "b/same", "c")):
        _write(tmp_path / name, 20 * number, format=fmt)
    found = lading.merge(tmp_path)
    assert (found.parts, found.samples) == (3, 60)
    assert _keys(tmp_path) == EXPECTED
    with lading.open(tmp_path) as dataset:
        assert dataset[59]["__key__"] == "0059"
        assert dataset.take([0, 59]).column("__key__").to_pylist() == ["0000", "0059"]
    if fmt == "mds":  # by the index alone, as the peer reads it
        shutil.rmtree(tmp_path / "_lading")
        assert _keys(tmp_path) == EXPECTED


def test_mds_of_the_peer_gives_its_own_merged_index(golden: Golden, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden("mds") / "merged-index", tmp_path / "set"))
    theirs = json.loads((folder / "index.json").read_text())
    with pytest.raises(DestinationExists):
        lading.merge(folder)
    (folder / "index.json").unlink()
    found = lading.merge(folder)
    assert json.loads((folder / "index.json").read_text()) == theirs
    assert (found.parts, found.shards) == (2, len(theirs["shards"]))
    assert found.samples == sum(shard["samples"] for shard in theirs["shards"])


def test_compressed_and_split_shards_keep_all_their_files(golden: Golden, tmp_path: Path) -> None:
    for case in ("comp-zstd3", "text-json-zstd"):
        shutil.copytree(golden("mds") / case, tmp_path / "deep" / case)
    lading.merge(tmp_path)
    with (
        lading.open(tmp_path) as merged,
        lading.open(golden("mds") / "comp-zstd3") as one,
        lading.open(golden("mds") / "text-json-zstd") as other,
    ):
        columns = dict.fromkeys(one.columns)
        expected = repr([columns | sample for sample in (*one, *other)])
        assert repr(list(merged)) == repr([merged[at] for at in range(len(merged))]) == expected


def test_what_is_no_part_of_a_dataset(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SourceNotFound, match=r"no parts.*found no file, or no such folder"):
            lading.merge(folder)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.json").write_text("[]")
    with pytest.raises(DataError, match=r"a/index\.json"):
        lading.merge(tmp_path)
    assert not (tmp_path / "index.json").exists()


def test_parts_that_differ(tmp_path: Path) -> None:
    _write(tmp_path / "a", 0, format="webdataset")
    _write(tmp_path / "b", 20, format="parquet")
    with pytest.raises(SchemaMismatch, match=r"'webdataset' \(a\) and 'parquet' \(b\)") as caught:
        lading.merge(tmp_path)
    assert caught.value.file == str(tmp_path)
    assert not (tmp_path / "_lading").exists()
    with pytest.raises(SchemaMismatch, match=rf"'webdataset' \({tmp_path}/a\) and 'parquet' \({tmp_path}/b\)"):
        lading.open([tmp_path / "a", tmp_path / "b"])


def test_all_that_the_folder_holds_is_merged_or_named(tmp_path: Path) -> None:
    """Whoever opens the folder afterwards goes by what was merged: other shards would be there no longer."""
    table = pa.table({"__key__": ["k"], "txt": ["text"]})
    sets = {"parquet": tmp_path / "p", "tar": tmp_path / "t", "ranks": tmp_path / "r", "mixed": tmp_path / "m"}
    for name in ("parquet", "mixed"):
        _write(sets[name] / "a", 0, format="parquet")
    _write(sets["tar"] / "a", 0, format="webdataset")
    _write(sets["ranks"], 0, format="parquet", rank=0)
    _write(sets["ranks"] / "b", 20, format="parquet")
    _write(sets["mixed"] / "b", 20, format="mds")
    shutil.rmtree(sets["mixed"] / "b" / "_lading")
    for name, shard in (("parquet", "b/0.parquet"), ("tar", "b/0.tar")):
        (sets[name] / "b").mkdir()
        if name == "parquet":
            pq.write_table(table, sets[name] / shard)
        else:
            (sets[name] / shard).write_bytes(tar_of(("k.txt", b"text")))
    for folder, other in zip(sets.values(), ("b/0.parquet", "b/0.tar", "b/shard", "a/shard"), strict=True):
        before = _state(folder)
        with pytest.raises(UsageError, match=f"of no part; found {other}"):
            lading.merge(folder)
        assert _state(folder) == before


@pytest.mark.parametrize("fmt, kind", [("webdataset", "folders"), ("mds", "folders"), ("mds", "indexes")])
@pytest.mark.parametrize("name", ["metadata.csv", "a/metadata.csv", "a/more/labels.jsonl"])
def test_files_of_other_formats_with_the_parts_are_left_alone(fmt: str, kind: str, name: str, tmp_path: Path) -> None:
    """A part opens with them beside it, and what is merged does so too."""
    for number, part in enumerate("ab"):
        _write(tmp_path / part, 20 * number, format=fmt)
        if kind == "indexes":
            shutil.rmtree(tmp_path / part / "_lading")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}\n")
    for again in (False, True):
        assert lading.merge(tmp_path, overwrite=again).samples == 40
        assert _keys(tmp_path) == EXPECTED[:40]
    assert (tmp_path / name).read_text() == "{}\n"


@pytest.mark.parametrize("options", [{"kind": "csv"}, {"kind": "json"}, {"kind": "csv", "compression": "zstd"}])
def test_lines_of_mds_that_no_index_lists_are_named(options: dict[str, Any], tmp_path: Path) -> None:
    """Their `.meta` tells them from tables, which are left alone."""
    for number, part in enumerate("ab"):
        write_lines(tmp_path / part, [{"n": number}], **options)
    (tmp_path / "a" / "metadata.csv").write_text("a\n1\n")
    more = [shutil.copy(path, str(path).replace("00000", "00007")) for path in (tmp_path / "a").glob("shard.*")]
    shard = min(map(Path, more), key=lambda path: len(path.name))
    with pytest.raises(UsageError, match=f"holds 1 shard of no part; found a/{re.escape(shard.name)}"):
        lading.merge(tmp_path)
    for path in more:
        os.unlink(path)
    assert lading.merge(tmp_path).samples == 2


def test_a_table_beside_the_shards_of_ranks_is_left_alone(tmp_path: Path) -> None:
    for rank in (0, 1):
        _write(tmp_path, 20 * rank, format="webdataset", rank=rank)
    (tmp_path / "metadata.csv").write_text("a\n1\n")
    assert lading.merge(tmp_path).samples == 40
    assert _keys(tmp_path) == EXPECTED[:40]


@pytest.mark.parametrize("other", ["csv/0.csv", "data-0.arrow"])
def test_datasets_of_other_formats_beside_the_parts_are_named(other: str, tmp_path: Path) -> None:
    """One in a folder of its own, and one that the folder itself opens as, by its index."""
    _write(tmp_path / "a", 0, format="webdataset")
    (tmp_path / other).parent.mkdir(exist_ok=True)
    (tmp_path / other).write_bytes(b"")
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data-0.arrow"}]}')
    with pytest.raises(UsageError, match=f"of no part; found {other}"):
        lading.merge(tmp_path)


def test_what_is_hidden_is_no_part(tmp_path: Path) -> None:
    for number, name in enumerate(("a", ".b", "_lading_x/c")):
        _write(tmp_path / name, 20 * number, format="mds")
    found = lading.merge(tmp_path)
    assert (found.parts, found.samples) == (1, 20)
    assert _keys(tmp_path) == EXPECTED[:20]


def test_unpacked_copies_beside_packed_shards_are_parts_of_these(tmp_path: Path) -> None:
    """As streaming leaves them where it reads a folder in place."""
    for number, name in enumerate("ab"):
        _write(tmp_path / name, 20 * number, format="mds", options={"compression": "gz"})
        [shard] = (tmp_path / name).glob("*.mds.gz")
        shard.with_suffix("").write_bytes(gzip.decompress(shard.read_bytes()))
    assert lading.merge(tmp_path).samples == 40
    shutil.rmtree(tmp_path / "_lading")
    for name in "ab":
        shutil.rmtree(tmp_path / name / "_lading")
    assert lading.merge(tmp_path, overwrite=True).samples == 40
    assert _keys(tmp_path) == EXPECTED[:40]


@pytest.mark.parametrize("layout", ["cache", "huggingface"])
@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.parametrize("relative", [False, True])
def test_indexes_of_arrow_name_shards_below_the_folder(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ranks: bool, relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("out") if relative else tmp_path / "out"
    options = {"layout": "huggingface"} if layout == "huggingface" else {}
    for number, name in enumerate("ab"):
        told = {"rank": number} if ranks else {}
        _write(folder if ranks else folder / name, 20 * number, format="arrow", options=options, **told)
    assert lading.merge(folder).samples == 40
    assert lading.verify(folder).ok
    index = json.loads((folder / ("state.json" if options else "_metadata.json")).read_bytes())
    named = [file["filename"] for file in index["_data_files"]] if options else index["shard_filenames"]
    assert [(tmp_path / "out" / name).is_file() and not Path(name).is_absolute() for name in named] == [True, True]
    (tmp_path / "out").rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved" / "_lading")  # by the index alone, as the peers read it
    assert _keys(tmp_path / "moved") == EXPECTED[:40]


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "mds"])
def test_what_was_merged_below_counts_once(fmt: str, tmp_path: Path) -> None:
    for number, name in enumerate(("a/p0", "a/p1", "b")):
        _write(tmp_path / name, 20 * number, format=fmt)
    lading.merge(tmp_path / "a")
    found = lading.merge(tmp_path)
    assert (found.parts, found.samples) == (2, 60)
    assert _keys(tmp_path) == EXPECTED
    assert lading.merge(tmp_path, overwrite=True).samples == 60
    for own in tmp_path.rglob("_lading"):
        shutil.rmtree(own)
    if fmt == "mds":
        assert lading.merge(tmp_path, overwrite=True).samples == 60
        assert _keys(tmp_path) == EXPECTED
