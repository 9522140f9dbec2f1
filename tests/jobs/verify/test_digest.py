"""Digests of datasets: shards that are looked at together are looked at as if each stood alone."""

from __future__ import annotations

import gc
import io
import json
import os
import tarfile
import tracemalloc
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lading
from lading._core.content.digests import DatasetDigest, sample_digests
from lading._core.dataset.query import open_shards
from lading._core.dataset.shards import sample_digests as digesting
from lading._core.features.types import tag_by_extension
from lading._core.jobs.engine.progress import Progress
from lading._core.storage.local import LocalFile
from lading.errors import CorruptShard, LadingError, UsageError


def document(key: str, sample_id: str, text: str) -> dict[str, bytes]:
    told = {"sample_id": sample_id, "texts": [text, None], "images": [None, f"{key}.1.bin"]}
    return {f"{key}.json": json.dumps(told).encode(), f"{key}.1.bin": text.encode() * 5000}


def write_tar(path: Path, *documents: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for members in documents:
            for name, body in members.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(body)
                tar.addfile(entry, io.BytesIO(body))
    return path


def sum_of(paths: list[Path]) -> int:
    return sum(int(lading.digest([path]).unordered, 16) for path in paths) % (1 << 128)


def test_small_shards_have_the_digest_of_one_that_holds_all(tmp_path: Path) -> None:
    documents = [document(f"doc{i:03d}", f"doc{i:03d}", f"text {i} ") for i in range(90)]
    small = [write_tar(tmp_path / f"{i:02d}.tar", *documents[3 * i : 3 * i + 3]) for i in range(30)]
    whole = write_tar(tmp_path / "whole.tar", *documents)
    found = lading.digest(small)
    assert found.count == 90
    assert found == lading.digest([whole])
    assert int(found.unordered, 16) == sum_of(small)
    assert lading.diff(small, [whole]).equal


def test_one_id_in_two_shards_is_two_samples(tmp_path: Path) -> None:
    paths = [
        write_tar(tmp_path / f"{i}.tar", *(document(f"{k}{i}", k.strip("2"), f"{k} of {i}") for k in ("a", "b", "a2")))
        for i in range(3)
    ]
    assert [lading.digest([path]).count for path in paths] == [3, 3, 3]
    found = lading.digest(paths)
    assert found.count == 9
    assert int(found.unordered, 16) == sum_of(paths)


def test_shards_of_other_fields_and_types_are_told_apart(tmp_path: Path) -> None:
    told: list[dict[str, object]] = [{"score": 1}, {"score": "1"}, {}, {"score": 1, "more": [None]}, {"score": 1.0}]
    paths = []
    for i, fields in enumerate(told):
        text = json.dumps({"texts": ["t"], "images": [None], **fields}).encode()
        paths.append(write_tar(tmp_path / f"{i}.tar", {f"k{i}.json": text}))
    found = lading.digest(paths)
    assert found.count == 5
    assert int(found.unordered, 16) == sum_of(paths)


@pytest.mark.soak
@pytest.mark.parametrize("count", [1, 7])
def test_shards_are_counted_as_they_end(tmp_path: Path, count: int) -> None:
    paths = [write_tar(tmp_path / f"{i}.tar", document(f"d{i}", f"d{i}", "text")) for i in range(count)]
    digest_steps: list[Progress] = []
    diff_steps: list[Progress] = []
    lading.digest(paths, on_progress=digest_steps.append)
    lading.diff(paths, paths, on_progress=diff_steps.append)
    for steps in (digest_steps, diff_steps):
        done = [step.shards_done for step in steps]
        assert done == sorted(done)
        assert done[-1] == count == steps[-1].num_shards
        assert steps[-1].samples == count


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Shards of which every document is a batch of its own."""
    monkeypatch.setattr(digesting, "DIGEST_BYTES", 50_000)
    documents = [document(f"d{i:02d}", f"d{i:02d}", f"text {i}") for i in range(12)]
    return [write_tar(tmp_path / f"{i}.tar", *documents[4 * i : 4 * i + 4]) for i in range(3)]


def test_a_batch_a_document(many: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Progress] = []
    found = lading.digest(many, workers=1, on_progress=steps.append)
    assert [step.samples for step in steps if step.samples] == sorted([*range(1, 13), 4, 8, 12])
    monkeypatch.undo()
    documents = [document(f"d{i:02d}", f"d{i:02d}", f"text {i}") for i in range(12)]
    assert found == lading.digest([write_tar(tmp_path / "whole.tar", *documents)])


def pictures(tmp_path: Path, sizes: Sequence[int]) -> tuple[Path, bytes]:
    """A tar of pictures of these sizes, each with a JSON; and the digest of its samples by the definition."""
    values = [(b"%09d" % size + np.random.default_rng(size).bytes(size))[:size] for size in sizes]
    samples = [{f"{i:05d}.json": b'{"n":%d}' % i, f"{i:05d}.jpg": value} for i, value in enumerate(values)]
    fields = {
        "__key__": pa.array([f"{i:05d}" for i in range(len(sizes))]),
        "json": pa.array([b'{"n":%d}' % i for i in range(len(sizes))], pa.binary()),
        "jpg": pa.array(values, pa.binary()),
    }
    schema = pa.schema([pa.field(n, c.type, metadata=tag_by_extension(n) or None) for n, c in fields.items()])
    rows = pa.record_batch([*fields.values()], schema)
    return write_tar(tmp_path / "pictures.tar", *samples), sample_digests(rows).tobytes()


_SIZES = st.sampled_from(
    [0, 1, 64, 65, 16 << 10, (16 << 10) + 1, 100_000, (1 << 20) - 512, 1 << 20, (1 << 20) + 1, 3 << 20]
)


@pytest.mark.soak
@settings(max_examples=30)
@given(sizes=st.lists(_SIZES, min_size=1, max_size=12))
def test_pictures_of_any_size_are_digested_as_the_walk_passes_by(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path, expected = pictures(tmp_path_factory.mktemp("pictures"), sizes)
    total = DatasetDigest()
    total.update(np.frombuffer(expected, np.uint8).reshape(-1, 16))
    assert lading.digest([path], workers=1) == total


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each read of a file, as they are read."""
    read: list[int] = []
    read_into, read_near, read_each = LocalFile.read_into, LocalFile.read, LocalFile.read_each

    def into(self: LocalFile, targets: Sequence[memoryview], offset: int) -> None:
        read.append(sum(map(len, targets)))
        read_into(self, targets, offset)

    def near(self: LocalFile, offset: int, length: int) -> bytes:
        read.append(length)
        return read_near(self, offset, length)

    def each(self: LocalFile, offset: Sequence[int], length: Sequence[int]) -> Iterator[bytes]:
        read.append(sum(length))
        return read_each(self, offset, length)

    monkeypatch.setattr(LocalFile, "read_into", into)
    monkeypatch.setattr(LocalFile, "read", near)
    monkeypatch.setattr(LocalFile, "read_each", each)
    return read


@pytest.mark.parametrize("sizes", [[16 << 10], [100_000], [350_000], [520_000, 700_000], [3_000_000], [900, 1_100_000]])
def test_bytes_of_a_tar_are_read_once(tmp_path: Path, read_bytes: list[int], sizes: list[int]) -> None:
    many = sizes * (9_000_000 // sum(sizes))
    path, _ = pictures(tmp_path, many)
    lading.digest([path], workers=1)
    size = path.stat().st_size
    large = [count for count in read_bytes if count > 2048]  # before, headers are looked at, to know the view
    assert size - 10_240 <= sum(large) <= 1.04 * size
    assert len(large) <= 2 * size / (1 << 20) + 3
    assert sum(read_bytes) - sum(large) <= 2048 * 2 * len(many) + 10_240


def test_few_values_that_are_not_known_are_read_alone(tmp_path: Path, read_bytes: list[int]) -> None:
    """A reader gives up passing by at a header that is not plain; what was hashed before need not be read again."""
    size = [90_000] * 59 + [0]
    path, expected = pictures(tmp_path, size)
    with path.open("r+b") as file:  # the same JSON, its size in another spelling
        at = 58 * (512 * 2 + 512 + 90_112)
        head = bytearray(path.read_bytes()[at : at + 512])
        head[124:136] = b" %o " % 8 + b"\0" * (12 - 4)
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
        file.seek(at)
        file.write(head)
    total = DatasetDigest()
    total.update(np.frombuffer(expected, np.uint8).reshape(-1, 16))
    assert lading.digest([path], workers=1) == total
    assert sum(read_bytes) < 1.3 * path.stat().st_size


def test_a_file_cut_after_it_was_opened(tmp_path: Path) -> None:
    """At the end of a member, so that its headers are in order."""
    path, _ = pictures(tmp_path, [100_000] * 30)
    with open_shards([path]) as dataset:
        assert len(dataset.schema)
        with path.open("r+b") as file:
            file.truncate(10 * (512 * 2 + 512 + 100_352))
        with pytest.raises(LadingError, match="changed"):
            list(digesting.digests_of(dataset, [0]))


def test_nothing_is_read_for_a_damaged_header(tmp_path: Path, read_bytes: list[int]) -> None:
    path, _ = pictures(tmp_path, [100_000] * 400)
    with path.open("r+b") as file:
        file.seek(40 * (512 * 2 + 512 + 100_352) + 124)  # the size of a JSON, which the checksum is then wrong for
        file.write(b"%011o" % 30_000_000)
    with pytest.raises(CorruptShard, match="checksum"):
        lading.digest([path], workers=1)
    assert sum(count for count in read_bytes if count > 2048) < 8_000_000


@pytest.mark.soak
def test_bytes_that_nobody_asked_for_are_not_read(tmp_path: Path, read_bytes: list[int]) -> None:
    path, _ = pictures(tmp_path, [2_000_000] * 50)
    small = pa.schema([("__key__", pa.string()), pa.field("json", pa.binary(), metadata=tag_by_extension("json"))])
    assert lading.digest([path], workers=1, schema=small).count == 50
    assert sum(read_bytes) < 500_000
    read_bytes.clear()
    assert lading.digest([path], workers=1, limit=1).count == 1
    assert sum(read_bytes) < 3_000_000


@pytest.mark.soak
def test_values_of_many_columns_and_shards_take_their_own_memory(tmp_path: Path) -> None:
    """Such as are kept while a walk passes by: 20 MB, not that much for each of 60 columns."""
    paths = [
        write_tar(
            tmp_path / f"{n:02d}.tar",
            {f"s{n}.f{i:03d}.json": b'"%016380d"' % i for i in range(60)},
            {f"t{n}.jpg": b"x" * 900_000},
        )
        for n in range(20)
    ]
    tracemalloc.start()
    try:
        found = lading.digest(paths, workers=1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.count == 40
    assert int(found.unordered, 16) == sum_of(paths)
    assert peak_bytes < 80 << 20


@pytest.mark.soak
def test_no_file_is_open_afterwards_and_few_are_before(tmp_path: Path) -> None:
    paths = [write_tar(tmp_path / f"{n:03d}.tar", {f"{n}.jpg": b"x" * 70_000}) for n in range(100)]
    seen: list[int] = []
    gc.disable()  # nothing waits for the collector of cycles
    try:
        lading.digest(paths, workers=1, on_progress=lambda _: seen.append(open_files(tmp_path)))
        assert open_files(tmp_path) == 0
    finally:
        gc.enable()
    assert 0 < max(seen) <= 8


def open_files(folder: Path) -> int:
    return sum(str(folder) in target_of(name) for name in os.listdir("/proc/self/fd"))


def target_of(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def test_the_first_samples_alone(many: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [lading.digest(many, limit=limit) for limit in (1, 5, 12, 13)]
    assert [each.count for each in found] == [1, 5, 12, 12]
    monkeypatch.undo()
    assert found[-1] == found[-2] == lading.digest(many)
    assert lading.digest(many, limit=0).count == 0
    with pytest.raises(UsageError, match="limit"):
        lading.digest(many, limit=-1)


def test_a_file_that_shrinks_meanwhile_is_an_error_that_names_it(many: list[Path]) -> None:
    def shrink(_: Progress) -> None:
        many[1].write_bytes(many[1].read_bytes()[:-40_000])

    with pytest.raises(LadingError) as raised:
        lading.digest(many, workers=1, on_progress=shrink)
    assert raised.value.file == str(many[1])


@pytest.mark.parametrize("one, other", [
    (pa.array([0.0]), pa.array([-0.0])),
    (pa.array([1]), pa.array([1.0])),
    (pa.array([1]), pa.array([True])),
    (pa.array([[1, 2]]), pa.array([[1.0, 2.0]])),
    (pa.array([Decimal("1.0")]), pa.array([Decimal("1.00")])),
    (pa.array([1], pa.timestamp("ns")), pa.array([2], pa.timestamp("ns"))),
    (pa.array(["a"]), pa.array([None], pa.string())),
])  # fmt: skip
def test_what_differs_is_what_the_digest_says(one: pa.Array, other: pa.Array, tmp_path: Path) -> None:
    """By the values as Python has them some are equal, a NaN beside them is not, and some are none."""
    for name, value in (("a", one), ("b", other)):
        pq.write_table(pa.table({"same": [float("nan")], "n": value}), tmp_path / f"{name}.parquet")
    found = lading.diff(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert [told["fields"] for told in found.differences] == [["n"]]


def test_samples_with_broken_json_are_told_apart(tmp_path: Path) -> None:
    for name, text in (("a", b"{broken"), ("b", b"{broken!")):
        write_tar(tmp_path / f"{name}.tar", {"x.json": text, "x.txt": b"same"})
    found = lading.diff(tmp_path / "a.tar", tmp_path / "b.tar")
    assert [told["fields"] for told in found.differences] == [["json"]]


def test_items_are_told_apart_by_their_columns(tmp_path: Path) -> None:
    for name, text in (("a", "first"), ("b", "second")):
        write_tar(tmp_path / f"{name}.tar", document("x", "x", text))
    found = lading.diff(tmp_path / "a.tar", tmp_path / "b.tar")
    assert [told["fields"] for told in found.differences] == [["binary_content", "text_content"]]


def test_documents_are_compared_by_items(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", document("x", "x", "first"))
    lading.convert(tmp_path / "a.tar", tmp_path / "b", format="parquet", where="modality != 'image'")
    [told] = lading.diff(tmp_path / "a.tar", tmp_path / "b").differences
    assert told["samples"] == (0, 0)
    assert {item["only_in"] for item in told["items"]} == {"A"}
    assert {item["modality"] for item in told["items"]} == {"image"}


def test_any_order_matches_equal_samples_then_keys(tmp_path: Path) -> None:
    keys, values = ["a", "b", "c", "a", "d"], [1, 2, 3, 1, 4]
    pq.write_table(pa.table({"__key__": keys, "n": values}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"__key__": keys[::-1], "n": values[::-1]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"__key__": ["e", "c", "a", "b"], "n": [5, 30, 1, 2]}), tmp_path / "c.parquet")
    same = lading.diff(tmp_path / "a.parquet", tmp_path / "b.parquet", any_order=True)
    assert (same.equal, same.same_samples, same.differing, same.differences) == (True, True, 0, [])
    found = lading.diff(tmp_path / "a.parquet", tmp_path / "c.parquet", any_order=True)
    assert (found.equal, found.differing) == (False, 4)
    assert [(each["samples"], each["keys"], each["fields"]) for each in found.differences] == [
        ((2, 1), ("c", "c"), ["n"]), ((3, None), ("a", None), []), ((4, None), ("d", None), []),
        ((None, 0), (None, "e"), []),
    ]  # fmt: skip
    assert len(lading.diff(tmp_path / "a.parquet", tmp_path / "c.parquet", any_order=True,
                           max_differences=1).differences) == 1  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("keys, shown", [
    (pa.array([b"a", b"\xff" * 40]), ["b'a'", repr(b"\xff" * 40)]),
    (pa.array([0, 253402300800], pa.timestamp("s")), ["1970-01-01 00:00:00", "10000-01-01 00:00:00"]),
    (pa.array([1, 2932897], pa.date32()), ["1970-01-02", "10000-01-01"]),
    (pa.array([1, 2**62], pa.duration("s")), ["0:00:01", str(2**62)]),
    (pa.array([0, 1], pa.timestamp("s", "Mars/Olympus")), ["1970-01-01 00:00:00Z", "1970-01-01 00:00:01Z"]),
    (pa.array([7, 2**63], pa.uint64()), [7, 2**63]),
    (pa.array([None, "b"]), [None, "b"]),
])  # fmt: skip
def test_keys_of_any_type_name_samples(keys: pa.Array, shown: list[Any], tmp_path: Path) -> None:
    """Values that Python cannot have, too: of the year 10,000, of a zone that nobody knows."""
    for name, value in (("a", 1), ("b", 2)):
        pq.write_table(pa.table({"__key__": keys, "x": [value, value]}), tmp_path / f"{name}.parquet")
    one, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    found = lading.diff(one, other)
    assert [told["keys"] for told in found.differences] == [(key, key) for key in shown]
    assert lading.digest(one, limit=1).count == 1
    assert lading.convert(one, tmp_path / "some", format="parquet", limit=1, verify=True).verified
    ledger = tmp_path / "ledger"
    done = lading.convert(one, tmp_path / "none", format="parquet", where="x > 1", ledger=ledger)
    assert [told["__key__"] for told in done.filtered] == shown
    assert [json.loads(line)["__key__"] for line in ledger.read_text().splitlines()] == shown
