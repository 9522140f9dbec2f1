"""What is no damage of the data: a full disk, a limit, a store that fails. And how much salvage unpacks."""

from __future__ import annotations

import errno
import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard

import lading
from faults import file_size_limit
from lading._core.jobs.salvage.salvage import salvage
from lading._core.storage.base import Buffer, store_errors, write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import WrappedStore
from lading.errors import NotFound, ShortRead, StoreError
from lading.limits import Limits
from tars import tar_of


def packed_tar(first: int, count: int = 50) -> bytes:
    draw = random.Random(first)
    return gzip.compress(tar_of(*[(f"{n:03d}.bin", draw.randbytes(1000) * 20) for n in range(first, first + count)]))


def test_a_disk_that_takes_no_more_is_no_damage_of_a_shard(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (source / "0.tar.gz").write_bytes(packed_tar(0))
    (source / "1.tar.gz").write_bytes(packed_tar(50)[:-500])
    with file_size_limit(500_000), pytest.raises(StoreError, match="a temporary file cannot be written") as caught:
        salvage(source, out)
    assert (caught.value.errno, caught.value.exit_status) == (errno.EFBIG, 3)
    assert caught.value.file == str(tmp_path)
    assert "ulimit -f" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    result = salvage(source, out)
    assert (result.samples > 90, result.ok) == (True, False)


class _Failing(WrappedStore):
    """A store of which one file cannot be read, for a reason."""

    def __init__(self, store: MemoryStore, bad: str, why: Exception) -> None:
        super().__init__(store, mapped=False)
        self._bad, self._why = bad, why

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        if path.endswith(self._bad):
            with store_errors(path):
                raise self._why
        return super().get_ranges(path, ranges, version)


@pytest.mark.cases(8)
@pytest.mark.parametrize("bad", ["1.tar.gz", "_lading/manifest.json"])
@pytest.mark.parametrize("why, damage", [
    (StoreError("the server does not answer"), False),
    (OSError(errno.EMFILE, "too many open files"), False),
    (OSError(errno.EIO, "input/output error"), False),
    (PermissionError(errno.EACCES, "permission denied"), False),
    (NotFound("no such file"), True),
    (ShortRead("the file became shorter"), True),
    (OSError(errno.EISDIR, "is a directory"), True),
])  # fmt: skip
def test_a_store_that_fails_is_no_damage_and_a_file_that_is_gone_is(
    why: Exception, damage: bool, bad: str, tmp_path: Path
) -> None:
    store = MemoryStore()
    with lading.writer("box://in", format="webdataset", shard_size=60_000, options={"compression": "gzip"},
                       stores=Stores({"box://": store})) as writer:  # fmt: skip
        for number in range(9):
            writer.write({"__key__": str(number), "bin": random.Random(number).randbytes(20_000)})
    stores = Stores({"box://": _Failing(store, bad, why)})
    if not damage:
        with pytest.raises(StoreError) as caught:
            salvage("box://in", tmp_path / "out", stores=stores)
        assert caught.value.exit_status == 3
        assert list(tmp_path.iterdir()) == []
        return
    result = salvage("box://in", tmp_path / "out", stores=stores)
    if bad.endswith("json"):
        assert (result.samples, result.ok, result.all_findings > 0) == (9, True, True)
    else:
        assert 0 < result.samples < 9 == result.samples + result.lost_samples


def test_verify_does_not_call_a_failing_store_bad_data(tmp_path: Path) -> None:
    store = MemoryStore()
    write_file(store, "box://in/a.tar", [tar_of(("a.txt", b"a"))])
    write_file(store, "box://in/b.tar", [tar_of(("b.txt", b"b"))])
    for why, is_finding in [(StoreError("no answer"), False), (OSError(errno.EIO, "input/output error"), True)]:
        stores = Stores({"box://": _Failing(store, "b.tar", why)})
        if is_finding:
            assert not lading.verify("box://in", stores=stores).ok
        else:
            with pytest.raises(StoreError, match="no answer"):
                lading.verify("box://in", stores=stores)


def test_what_unpacks_to_much_more_than_its_size_is_listed_and_not_on_the_disk(tmp_path: Path) -> None:
    source, most = tmp_path / "source", 0
    source.mkdir()
    line = b'{"n": 1, "t": "%s"}\n' % (b"x" * 200)
    frame = zstandard.ZstdCompressor().compress(line * 15_000)
    for number in range(3):
        (source / f"{number}.jsonl.zst").write_bytes(frame[:-4])
    (source / "3.jsonl").write_bytes(line)
    limits = Limits(salvage_bytes=4 << 20)  # enough for one

    def look(_: object) -> None:
        nonlocal most
        most = max(most, sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))

    result = salvage(source, tmp_path / "out", limits=limits, on_progress=look)
    refused = [entry for entry in result.lost if entry["error"] == "LimitExceeded"]
    assert [Path(str(entry["file"])).name for entry in refused] == ["1.jsonl.zst", "2.jsonl.zst"]
    assert all("--max salvage_bytes=" in str(entry["advice"]) for entry in refused)
    assert 10_000 < result.samples < 15_001
    assert most < 20 << 20
    more = salvage(source, tmp_path / "more", limits=Limits(salvage_bytes=20 << 20))
    assert more.samples == 3 * (result.samples - 1) + 1


def test_what_is_lost_of_a_compressed_shard_begins_where_unpacking_stopped(tmp_path: Path) -> None:
    body = packed_tar(0)
    half = len(body) // 2
    path = tmp_path / "a.tar.gz"
    path.write_bytes(body[:half])
    result = salvage(path, tmp_path / "out")
    assert 15 < result.samples < 35
    [tail] = result.lost_tails
    assert half - 2000 < int(str(tail["offset"])) <= half


def test_a_failing_disk_has_advice(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="ddrescue"), store_errors(str(tmp_path)):
        raise OSError(errno.EIO, "input/output error")
