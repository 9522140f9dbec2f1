"""Small batches of several shards are joined, within the limits."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lading._core.features.items import LINEAGE_KEY
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.join import join


def one_a_shard(asked: list[int]) -> Iterator[Batch]:
    for number in range(6):
        asked.append(number)
        keys = pa.array([f"{number}-{row}" for row in range(2)])
        rows = pa.record_batch({"__key__": keys, "bin": pa.array([b"x" * 10] * 2, pa.large_binary())})
        yield Batch(rows.replace_schema_metadata({LINEAGE_KEY: f'["{number}"]'}), "samples")


def keys_of(batch: Batch) -> list[str]:
    keys: list[str] = batch.rows.column("__key__").to_pylist()
    return keys


def test_batches_that_are_not_accepted_are_given_before_the_next_is_asked_for() -> None:
    asked = list[int]()

    def accepted(batch: Batch) -> bool:
        return keys_of(batch)[0] not in ("2-0", "3-0")

    given = [(keys_of(batch), asked[-1]) for batch in join(one_a_shard(asked), 1 << 20, 1 << 30, None, accepted)]
    # Those before are given when it is known that nothing joins them; 2 and 3 may be gone when the next comes.
    assert given == [
        (["0-0", "0-1", "1-0", "1-1"], 2), (["2-0", "2-1"], 2), (["3-0", "3-1"], 3), (["4-0", "4-1", "5-0", "5-1"], 5),
    ]  # fmt: skip


def test_joined_batches_name_all_their_files_and_keep_the_limits() -> None:
    joined = list(join(one_a_shard([]), 1 << 20, 1 << 30, 4))
    assert [list(batch.files) for batch in joined] == [["0", "1", "2", "3"], ["4", "5"]]
    assert [batch.num_rows for batch in join(one_a_shard([]), 5, 1 << 30, None)] == [4, 4, 4]
    assert [batch.num_rows for batch in join(one_a_shard([]), 1 << 20, 60, None)] == [4, 4, 4]


def test_joined_batches_know_starts_and_sizes() -> None:
    for batch in join(one_a_shard([]), 1 << 20, 1 << 30, 4):
        fresh = Batch(batch.rows, batch.view)
        assert batch.starts.tolist() == fresh.starts.tolist()
        assert batch.size_bytes == fresh.size_bytes
