"""Salvage of compressed files: what is behind a damage, and what comes out before it."""

from __future__ import annotations

import bz2
import random
from pathlib import Path

import pytest

import lading
from lading.errors import DataError
from lading.formats.protocol import ShardSource
from lading.jobs.salvage import salvage
from lading.jobs.salvage_files import Workshop
from lading.limits import Limits
from lading.store.local import LocalStore
from lading.store.memory import MemoryStore
from lading.store.protocol import write_file
from lading.store.wrap import CountingStore
from tars import tar_of


def keys(source: Path) -> list[str]:
    with lading.open(source) as dataset:
        return [sample["__key__"] for sample in dataset]


def test_a_bz2_stream_is_found_whose_block_reaches_further_than_what_is_searched_at_once(tmp_path: Path) -> None:
    value = random.Random(0).randbytes
    tar = tar_of(*[(f"{n:02d}.bin", value(99_000)) for n in range(14)])
    streams = [bytearray(bz2.compress(part, 5)) for part in (tar[:700_000], tar[700_000:])]
    # Less than a block of the second one lies in the first MB, and more than one block behind the beginning.
    assert (1 << 20) - 500_000 < len(streams[0]) < len(streams[1]) + 100_000
    streams[0][300_000:300_100] = bytes(100)
    (tmp_path / "a.tar.bz2").write_bytes(b"".join(streams))
    result = salvage(tmp_path / "a.tar.bz2", tmp_path / "out")
    assert not result.ok
    assert keys(tmp_path / "out") == [f"{n:02d}" for n in range(8, 14)]


@pytest.mark.parametrize("name, beginning", [("a.gz", b"\x1f\x8b\x08\xff"), ("a.bz2", b"BZh9")])
def test_not_all_is_read_where_nothing_but_beginnings_stands(name: str, beginning: bytes, tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    write_file(store, name, [beginning * ((6 << 20) // len(beginning))])
    with Workshop(LocalStore(), str(tmp_path)) as workshop:
        made, lost = workshop.unwrapped(ShardSource(store, name))
        assert made.store.head(made.path).size_bytes == 0
    assert len(lost) == 1
    assert store.bytes_read < 5 << 20


def frame(window_log: int, *blocks: bytes, ending: bytes = b"") -> bytes:
    """A zstd frame with blocks that hold their bytes as they are; it ends with the last one, or with these bytes."""
    heads = [len(block) << 3 | (block is blocks[-1] and not ending) for block in blocks]
    framed = [head.to_bytes(3, "little") + block for head, block in zip(heads, blocks, strict=True)]
    return b"\x28\xb5\x2f\xfd\0" + bytes([window_log - 10 << 3]) + b"".join(framed) + ending


def hundreds(count: int) -> list[bytes]:
    """Blocks of a hundred lines of JSON each, more than a KB."""
    return [b"".join(b'{"n": %4d}\n' % n for n in range(100 * at, 100 * at + 100)) for at in range(count)]


def saved_numbers(out: Path) -> list[int]:
    with lading.open(out) as dataset:
        return [sample["n"] for sample in dataset]


def test_limits_hold_for_a_damaged_file_and_behind_its_damage(tmp_path: Path) -> None:
    blocks = hundreds(4)
    path, out = tmp_path / "a.jsonl.zst", tmp_path / "out"
    path.write_bytes(frame(28, *blocks[:2], ending=b"\xff" * 3) + frame(28, *blocks[2:]))
    with pytest.raises(DataError, match="zstd_window_bytes"):
        salvage(path, out)
    result = salvage(path, out, limits=Limits(zstd_window_bytes=256 << 20))
    assert not result.ok
    assert saved_numbers(out) == [*range(100), *range(200, 400)]  # the last block before the damage is lost with it


def test_a_lower_limit_holds_behind_a_damage(tmp_path: Path) -> None:
    blocks = hundreds(4)
    path, out = tmp_path / "a.jsonl.zst", tmp_path / "out"
    path.write_bytes(frame(15, *blocks[:2], ending=b"\xff" * 3) + frame(20, *blocks[2:]))
    salvage(path, out, limits=Limits(zstd_window_bytes=1 << 16))
    assert saved_numbers(out) == [*range(100)]
