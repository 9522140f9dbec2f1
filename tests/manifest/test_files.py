"""Lading's own files beside a dataset: what of extents is refused, and what is not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lading._core.arrow.references import FileEntry, make_refs, with_files
from lading._core.formats.base import ShardFacts
from lading._core.manifest.files import ShardTables
from lading._core.pipeline.finished import FinishedShard, FinishedShards, ShardSums
from lading._core.storage.base import write_file
from lading._core.storage.extents import EXTENTS_SCHEMA, NO_ROWS
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard

Extents = list[tuple[int, int, int]]
"""File, first and last row of each."""

HEAD = (0, NO_ROWS, NO_ROWS)


def kept(rows: Extents, view: str | None) -> pa.Table | None:
    """Extents of a shard of ten samples, written and read again."""
    file, first, last = zip(*rows, strict=True)
    columns = [file, [8] * len(rows), first, last, [0] * len(rows), [None] * len(rows)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, EXTENTS_SCHEMA, strict=True)]
    store = MemoryStore()
    shards = FinishedShards(store, "box://out", "_lading")
    table = pa.Table.from_arrays(arrays, schema=EXTENTS_SCHEMA)
    shards.add(FinishedShard("a.tar", ShardFacts(10, 80, 80), None, {}, sums=[ShardSums([], table)]))
    return ShardTables(store, "box://out", shards.close(), view=view).extents(0)


@pytest.mark.parametrize("rows", [
    [HEAD, (0, 0, 4), (0, 5, 9), HEAD],
    [HEAD, (0, 2, 2), (0, 7, 7)],  # of the others, nothing is in the file
    [(0, 0, 9), (1, 0, 3), (1, 3, 3), (1, 3, 9)],  # the second file has several parts of one row
    [HEAD],
])  # fmt: skip
@pytest.mark.parametrize("view", ["samples", "interleaved", None])
def test_extents_that_can_be(rows: Extents, view: str | None) -> None:
    found = kept(rows, view)
    assert found is not None
    assert list(zip(*(found[name].to_pylist() for name in ("file", "first_row", "last_row")), strict=True)) == rows


@pytest.mark.parametrize("rows", [
    [HEAD, (0, 0, 1 << 36), (0, 5, 9)], [(0, 5, 9), (0, 0, 4)], [(0, 0, 9), (1, 0, 1 << 62), (1, 4, 9)],
    [(0, 0, 9), (0, NO_ROWS, 1 << 40)], [(0, 3, 2)], [(0, -2, -2)],
])  # fmt: skip
@pytest.mark.parametrize("view", ["samples", "interleaved", None])
def test_extents_whose_rows_cannot_be_are_refused(rows: Extents, view: str | None) -> None:
    with pytest.raises(CorruptShard, match="row") as caught:
        kept(rows, view)
    assert caught.value.file == "box://out/_lading/extents-000000.arrow"


def test_of_samples_there_are_no_more_rows_than_the_list_says() -> None:
    rows: Extents = [(0, 0, 4), (0, 5, 10)]
    assert kept(rows, "interleaved") is not None  # items, of which a sample has many
    with pytest.raises(CorruptShard, match="a row that the shard does not have"):
        kept(rows, "samples")


def test_a_table_is_read_without_those_of_other_shards() -> None:
    store = MemoryStore()
    shards = FinishedShards(store, "box://out", "_lading")
    tables = [pa.table({"__key__": [f"{i}-{j}" for j in range(100)]}) for i in range(3)]
    for i, table in enumerate(tables):
        shards.add(FinishedShard(f"{i}.tar", ShardFacts(100, 80, 80), table, {}, sums=[ShardSums([], None)]))
    listed = shards.close()
    path = f"box://out/{listed['index_file'][0].as_py()}"
    [whole] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
    place = bytes(whole).index(b"1-0")
    damaged = bytearray(whole)
    damaged[place - 404 : place] = b"\xff" * 404  # the ends of keys
    write_file(store, path, [bytes(damaged)])
    found = ShardTables(store, "box://out", listed)
    assert [found.index(i) for i in (2, 0, 2)] == [tables[2], tables[0], tables[2]]
    with pytest.raises(CorruptShard, match="cannot be read"):
        found.index(1)


@pytest.mark.parametrize("number", [-1, 1])
def test_an_index_that_names_a_file_that_is_not_in_its_table_is_refused(number: int) -> None:
    """-1 would be the last file."""
    store = MemoryStore()
    shards = FinishedShards(store, "box://out", "_lading")
    index = pa.table({"jpg": make_refs([0, 80], [80, 80], file=[0, number])})
    index = index.replace_schema_metadata(with_files(index.schema, [FileEntry("a.tar")]).metadata)
    shards.add(FinishedShard("a.tar", ShardFacts(2, 160, 160), index, {}, sums=[ShardSums([], None)]))
    with pytest.raises(CorruptShard, match=rf"'jpg' names file {number} of 1 file") as caught:
        ShardTables(store, "box://out", shards.close()).index(0)
    assert caught.value.file == "box://out/_lading/index-000000.arrow"
