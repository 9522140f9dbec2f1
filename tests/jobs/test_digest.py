"""Digests of datasets: shards that are looked at together are looked at as if each stood alone."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lading
from lading.digests import DatasetDigest, sample_digests
from lading.errors import LadingError
from lading.features import tag_by_extension
from lading.jobs import digest as digest_job
from lading.jobs.progress import Progress
from lading.store.local import LocalMap


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
        write_tar(tmp_path / f"{i}.tar", document(f"a{i}", "same", f"first of {i}"), document(f"b{i}", "same", "x"))
        for i in range(3)
    ]
    # In one tar the documents of one id are one sample; what lies in another tar is another sample.
    assert [lading.digest([path]).count for path in paths] == [1, 1, 1]
    found = lading.digest(paths)
    assert found.count == 3
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
    monkeypatch.setattr(digest_job, "_MAX_BYTES", 50_000)
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


@settings(max_examples=30)
@given(sizes=st.lists(_SIZES, min_size=1, max_size=12))
def test_pictures_of_any_size_are_digested_as_the_walk_passes_by(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path, expected = pictures(tmp_path_factory.mktemp("pictures"), sizes)
    total = DatasetDigest()
    total.update(np.frombuffer(expected, np.uint8).reshape(-1, 16))
    assert lading.digest([path], workers=1) == total


def test_bytes_of_a_tar_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = pictures(tmp_path, [100_000] * 50)
    read: list[int] = []
    read_into = LocalMap.read_into

    def counted(self: LocalMap, targets: Sequence[memoryview], offset: int) -> None:
        read.append(sum(map(len, targets)))
        read_into(self, targets, offset)

    monkeypatch.setattr(LocalMap, "read_into", counted)
    lading.digest([path], workers=1)
    size = path.stat().st_size
    assert size <= sum(read) <= 1.1 * size + (1 << 20)  # of a picture that a window cuts, the beginning comes twice
    assert len(read) <= 1.2 * size / (1 << 20) + 1


def test_the_first_samples_alone(many: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [lading.digest(many, limit=limit) for limit in (1, 5, 12, 13)]
    assert [each.count for each in found] == [1, 5, 12, 12]
    monkeypatch.undo()
    assert found[-1] == found[-2] == lading.digest(many)


def test_a_file_that_shrinks_meanwhile_is_an_error_that_names_it(many: list[Path]) -> None:
    def shrink(_: Progress) -> None:
        many[1].write_bytes(many[1].read_bytes()[:-40_000])

    with pytest.raises(LadingError) as raised:
        lading.digest(many, workers=1, on_progress=shrink)
    assert raised.value.file == str(many[1])
