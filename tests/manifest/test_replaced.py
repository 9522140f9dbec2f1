"""What `overwrite` replaces: a dataset, also a peer's, and never a folder of something else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest

import lading
from lading._core.formats.registry import all_formats
from lading._core.jobs.dataset.export import export
from lading._core.manifest.commit import check_destination
from lading._core.manifest.replaced import refuse_other_files
from lading._core.storage.base import Store, write_file
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading.compat.nemo_curator import InterleavedParquetWriter
from lading.errors import DestinationExists
from tars import tar_of

_PAPERS = ["thesis.tex", "figures/a.png", "notes/b.txt", "c.tar"]


def _fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


def _source(folder: Path) -> Path:
    (folder / "in.tar").write_bytes(tar_of(("a.txt", b"a"), ("b.txt", b"b")))
    return folder / "in.tar"


_WRITERS: dict[str, Callable[[Path, Path], Any]] = {
    "convert": lambda source, out: lading.convert(source, out, format="mds", overwrite=True),
    "dry run": lambda source, out: lading.convert(source, out, format="mds", overwrite=True, dry_run=True),
    "splits": lambda source, out: lading.convert(
        lading.open(source).split({"a": 0.5, "b": 0.5}), out, format="mds", overwrite=True
    ),
    "rank": lambda source, out: lading.convert(source, out, format="mds", overwrite=True, rank=0, world_size=2),
    "write": lambda source, out: lading.open(source).write(out, format="jsonl", overwrite=True),
    "export": lambda source, out: export(source, out, overwrite=True),
    "salvage": lambda source, out: lading.salvage(source, out, overwrite=True),
    "writer": lambda _, out: lading.writer(out, format="jsonl", overwrite=True),
    "curator": lambda _, out: InterleavedParquetWriter(str(out), mode="overwrite"),
}


@pytest.mark.cases(9)
@pytest.mark.parametrize("kind", _WRITERS)
def test_a_folder_of_something_else_is_never_replaced(kind: str, tmp_path: Path) -> None:
    source, papers = _source(tmp_path), _fill(tmp_path / "papers", *_PAPERS)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DestinationExists, match=r"3 other files: thesis\.tex, figures/a\.png, notes/b\.txt") as caught:
        _WRITERS[kind](source, papers)
    assert caught.value.exit_status == 2
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.cases(14)
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("fmt", [fmt.name for fmt in all_formats() if fmt.loose is None and fmt.info.write_options])
def test_what_lading_wrote_is_replaced_with_its_manifest_and_without(fmt: str, own: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    view = "interleaved" if fmt == "media_archive" else "samples"
    table = pa.table({"txt": ["a", "b"]})
    if view == "interleaved":
        table = pa.table({"sample_id": ["a"], "position": pa.array([0], pa.int32()), "modality": ["text"],
                          "text_content": ["t"]})  # fmt: skip
    with lading.writer(out, format=fmt, view=view) as writer:
        writer.write_batch(table)
    if not own:
        for path in (out / "_lading").iterdir():
            path.unlink()
    with lading.writer(out, format="jsonl", overwrite=True) as writer:
        writer.write({"txt": "new"})
    with lading.open(out) as dataset:
        assert [sample["txt"] for sample in dataset] == ["new"]


def test_what_datasets_saved_is_replaced(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": datasets.Dataset.from_dict({"a": [1]})}).save_to_disk(str(tmp_path / "out"))
    refuse_other_files(LocalStore(), str(tmp_path / "out"))
    _fill(tmp_path / "out", "mine.txt")
    with pytest.raises(DestinationExists, match=r"1 other file: mine\.txt"):
        refuse_other_files(LocalStore(), str(tmp_path / "out"))


_LAYOUTS: list[tuple[list[str], str]] = [
    ([], ""),
    (["empty/deeper/"], ""),
    ([".out.lading-0123456789abcdef.tmp"], ""),
    (["0.tar", "0.tar.idx", ".nv-meta/.info.json", ".nv-meta/split.yaml"], ""),  # Energon
    (["train/shard.00000.mds.zstd", "train/index.json"], ""),  # MosaicML
    (["index.json", "shard.00000.json", "shard.00000.json.meta"], ""),
    (["00000.tar", "00000.parquet", "00000_stats.json"], ""),  # img2dataset
    (["year=2023/a.parquet", "_SUCCESS", ".a.parquet.crc"], ""),  # Spark
    (["_lading/manifest.json", "thesis.tex"], ""),
    ([".lading-export.json", "a.jpg"], ""),
    (["train/a.tar", "train/_lading/manifest.json", "_lading/splits.json"], ""),
    (["a.jpg", "b.jpg"], "2 other files: a.jpg, b.jpg"),  # loose files have no mark
    (["a.tar", "b.parquet"], "1 other file: "),
    (["index.json"], "1 other file: index.json"),
    (["a.parquet", "README.md"], "1 other file: README.md"),
    (["a.json"], "1 other file: a.json"),
    (["x/a.tar", "x/_lading/manifest.json", "y/b.tar", "y/_lading/manifest.json"], "2 datasets: x, y"),
    ([f"{n:02d}.txt" for n in range(20)], "20 other files: 00.txt, 01.txt, 02.txt, 03.txt, 04.txt, …"),
]


@pytest.mark.cases(len(_LAYOUTS))
@pytest.mark.parametrize("names, found", _LAYOUTS)
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_names_tell_what_is_a_dataset(kind: str, names: list[str], found: str, tmp_path: Path) -> None:
    store: Store = LocalStore() if kind == "local" else MemoryStore()
    folder = str(tmp_path / "out") if kind == "local" else "box://out"
    for name in names:
        if not name.endswith("/") and (kind == "local" or not name.endswith(".tmp")):
            write_file(store, f"{folder}/{name}", [b"x"])
        elif kind == "local":
            os.makedirs(f"{folder}/{name}")
    if not found:
        check_destination(store, folder, overwrite=True)
        return
    with pytest.raises(DestinationExists) as caught:
        check_destination(store, folder, overwrite=True)
    assert found in str(caught.value.found)


def test_a_link_is_not_followed_and_what_it_names_stays(tmp_path: Path) -> None:
    papers, source = _fill(tmp_path / "papers", *_PAPERS), _source(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "shards").symlink_to(papers)
    with pytest.raises(DestinationExists, match="1 other file: shards"):
        lading.convert(source, out, format="jsonl", overwrite=True)
    (out / "shards").rename(out / "a.tar")  # a link with the name of a shard
    lading.convert(source, out, format="jsonl", overwrite=True)
    assert len([*papers.rglob("*.*")]) == len(_PAPERS)
