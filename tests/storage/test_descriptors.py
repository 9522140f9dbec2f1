"""Many files in use take few descriptors."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.storage.descriptors import allowed_files, close_unused
from lading._core.storage.local import LocalMap, LocalStore
from lading.errors import CorruptShard, ShortRead

_FILES = 72


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def few_files() -> Iterator[None]:
    """A limit that leaves room for 40 more files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 41, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _maps(folder: Path) -> list[LocalMap]:
    for number in range(_FILES):
        (folder / f"{number}.bin").write_bytes(b"%03d" % number * 1000)
    return [LocalStore().map(str(folder / f"{number}.bin")) for number in range(_FILES)]


def test_maps_of_many_files_take_few_descriptors(tmp_path: Path, few_files: None) -> None:
    before = _open_files()
    files = _maps(tmp_path)
    for turn in (files, files[::-1]):
        for file in turn:
            file.check()
            assert file.read(3, 3) == file.buffer.slice(3, 3).to_pybytes()
    assert _open_files() - before <= allowed_files()


def test_a_read_that_has_begun_keeps_its_descriptor(tmp_path: Path, few_files: None) -> None:
    first, *others = _maps(tmp_path)
    values = first.read_each([0, 3, 6], [3, 3, 3])
    assert next(values) == b"000"
    for file in others:
        file.read(0, 3)
    close_unused()
    assert list(values) == [b"000", b"000"]


def test_the_bytes_of_a_replaced_file_are_read_from_its_map(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"before" * 1000)
    file = LocalStore().map(str(path))
    (tmp_path / "b.bin").write_bytes(b"after")
    (tmp_path / "b.bin").rename(path)
    close_unused()
    target = bytearray(6)
    file.check()
    file.read_into([memoryview(target)], 6)
    assert [bytes(target), file.read(5994, 100), *file.read_each([0], [6])] == [b"before"] * 3
    with pytest.raises(ShortRead):
        file.read_into([memoryview(target)], 5999)


def test_a_file_that_is_cut_while_its_descriptor_is_closed_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"before" * 1000)
    file = LocalStore().map(str(path))
    close_unused()
    path.write_bytes(b"before")
    with pytest.raises(CorruptShard, match="6 bytes"):
        file.check()


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "arrow", "parquet", "mds", "media_archive"])
def test_datasets_of_many_shards_are_read_with_few_files(fmt: str, tmp_path: Path, few_files: None) -> None:
    values = [bytes([i]) + np.random.default_rng(i).bytes(9000) for i in range(_FILES)]
    table = pa.table({"__key__": [f"{i:04}" for i in range(_FILES)], "jpg": values})
    many, back = str(tmp_path / "many"), str(tmp_path / "back")
    pq.write_table(table, tmp_path / "one.parquet")
    lading.convert(tmp_path / "one.parquet", many, format=fmt, shard_size=9000)
    dataset = lading.open(many).with_decode(False)
    assert len(dataset.shards) >= _FILES // 2
    order = [i * 7 % _FILES for i in range(_FILES)]
    assert [dataset[i]["jpg"][0] for i in order] == order
    held = [dataset.take([i]) for i in order]
    assert [batch.column("jpg")[0].as_py()[0] for batch in held] == order
    lading.convert(many, back, format="webdataset", shard_size=9000)
    assert lading.digest(back) == lading.digest(many)
