"""Salvage of compressed files: what is behind a damage, and what comes out before it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import lading
from lading._core.codecs import ENDINGS, stream_decoder
from lading._core.formats.base import ShardFile
from lading._core.jobs.salvage.files import TemporaryFiles
from lading._core.jobs.salvage.salvage import salvage
from lading._core.storage.base import write_file
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore
from lading.errors import CorruptShard, DataError
from lading.limits import Limits
from tars import tar_of


def keys(source: Path) -> list[str]:
    with lading.open(source) as dataset:
        return [sample["__key__"] for sample in dataset]


@pytest.mark.soak
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
    assert keys(tmp_path / "out") == [f"{n:02d}" for n in range(9, 14)]


@pytest.mark.soak
@pytest.mark.parametrize("name, beginning", [("a.gz", b"\x1f\x8b\x08\xff"), ("a.bz2", b"BZh9")])
def test_not_all_is_read_where_nothing_but_beginnings_stands(name: str, beginning: bytes, tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    write_file(store, name, [beginning * ((6 << 20) // len(beginning))])
    with TemporaryFiles(LocalStore(), str(tmp_path)) as files:
        unpacked = files.unpacked(ShardFile(store, name))
        assert unpacked.source.store.head(unpacked.source.path).size_bytes == 0
    assert len(unpacked.lost) == 1
    assert unpacked.lost_from == 0
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
    saved = saved_numbers(out)  # the last block before the damage may be lost with it
    assert saved == [*range(len(saved) - 200), *range(200, 400)]
    assert len(saved) >= 300


def test_a_lower_limit_holds_behind_a_damage(tmp_path: Path) -> None:
    blocks = hundreds(4)
    path, out = tmp_path / "a.jsonl.zst", tmp_path / "out"
    path.write_bytes(frame(15, *blocks[:2], ending=b"\xff" * 3) + frame(20, *blocks[2:]))
    salvage(path, out, limits=Limits(zstd_window_bytes=1 << 16))
    saved = saved_numbers(out)
    assert saved == [*range(len(saved))]
    assert 100 <= len(saved) <= 200


def in_small_steps(wrap: str, body: bytes) -> bytes:
    """What comes out of a file up to its damage, fed by the KB."""
    decoder, pieces = stream_decoder(wrap), []
    try:
        for at in range(0, len(body), 1024):
            pieces += decoder.feed(body[at : at + 1024])
    except CorruptShard:
        pass
    return b"".join(pieces)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.7, 0.999, 1.0])
@pytest.mark.parametrize("wrap, pack", [
    ("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor(write_checksum=True).compress), ("xz", lzma.compress),
])  # fmt: skip
def test_all_comes_out_up_to_a_damage_that_small_steps_give(
    wrap: str, pack: Callable[[bytes], bytes], share: float, tmp_path: Path
) -> None:
    values = random.Random(0)
    words = [values.randbytes(6).hex().encode() for _ in range(2000)]
    first, second = (b" ".join(values.choices(words, k=40_000)) for _ in range(2))
    body = bytearray(pack(first))
    at = int(share * (len(body) - 64))
    body[at : at + 64] = values.randbytes(64)
    path = tmp_path / f"a.txt{ENDINGS[wrap]}"
    body += pack(second)
    path.write_bytes(body)
    found = []
    for store in (LocalStore(), CountingStore(LocalStore())):  # the second one gives no maps: it is fed in small steps
        with TemporaryFiles(LocalStore(), str(tmp_path / "out")) as files:
            unpacked = files.unpacked(ShardFile(store, str(path)))
            found.append((Path(unpacked.source.path).read_bytes(), [str(error) for error in unpacked.lost]))
    assert found[0] == found[1]
    assert found[0][0] == in_small_steps(wrap, bytes(body)) + second
    assert found[0][1]


def test_nothing_that_only_told_the_view_lies_around_while_shards_are_looked_at(tmp_path: Path) -> None:
    path, out = tmp_path / "a.tar.gz", tmp_path / "out"
    path.write_bytes(gzip.compress(tar_of(*[(f"{n}.bin", bytes(5000)) for n in range(10)])))
    sizes: list[int] = []
    salvage(path, out, on_progress=lambda _: sizes.append(max(p.stat().st_size for p in tmp_path.rglob("*"))))
    assert sizes[0] < 50_000
    assert len(keys(out)) == 10
