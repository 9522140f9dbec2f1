"""Peak memory: 250 MB, twice the batch and a Parquet page, whatever the size of a shard or a row group.

`make soak` runs all of these tests, `make test` the conversions of any format to any, and those of workers.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lading
from soak import SOAK
from tars import tar_of

BATCH_BYTES = 16 << 20
LIMIT_MB = 250 + 2 * BATCH_BYTES / 1e6
COUNT, SIZE = 4000, 100_000

CONVERT = """
import resource, sys, lading
from lading._core.jobs.convert import schedule
schedule._QUICK_BYTES = 0  # workers, if they are asked for, however little there is
lading.convert(sys.argv[1], sys.argv[2], format=sys.argv[3], max_batch_bytes=int(sys.argv[4]), shard_size="100mb",
               workers=int(sys.argv[5]))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6)
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(peak.split()[1]) * 1024 / 1e6)
"""


def rows(first: int, count: int) -> pa.Table:
    values = [i.to_bytes(4, "big") * (SIZE // 4) for i in range(first, first + count)]
    return pa.table(
        {"__key__": [f"{i:06d}" for i in range(first, first + count)], "jpg": pa.array(values, pa.large_binary())}
    )


@cache
def _noise() -> bytes:
    return np.random.default_rng(0).bytes(8 << 20)


@cache
def _words() -> str:
    return " ".join(map(str, np.random.default_rng(0).integers(0, 3000, 500_000)))


def _media(first: int, count: int) -> pa.Table:
    """Bytes of 100 KB that do not become smaller."""
    starts = [i * 7919 % (7 << 20) for i in range(first, first + count)]
    values = [_noise()[start : start + SIZE] for start in starts]
    keys = [f"{i:06d}" for i in range(first, first + count)]
    return pa.table({"__key__": keys, "jpg": pa.array(values, pa.large_binary())})


def _texts(first: int, count: int) -> pa.Table:
    """Texts of 8 KB, which become some smaller, and numbers."""
    starts = [i * 977 % 2_000_000 for i in range(first, first + count)]
    numbers = range(first, first + count)
    columns = {"__key__": [f"{i:07d}" for i in numbers], "txt": [_words()[start : start + 8000] for start in starts]}
    return pa.table({**columns, "n": pa.array(numbers, pa.int64())})


def _documents(first: int, count: int) -> pa.Table:
    """Documents of a text of 3 KB and a picture of 60 KB."""
    starts = [i * 7919 % (1 << 20) for i in range(first, first + count)]
    return pa.table({
        "sample_id": np.repeat(np.arange(first, first + count), 3).astype(str),
        "position": pa.array([-1, 0, 1] * count, pa.int32()),
        "modality": ["metadata", "text", "image"] * count,
        "content_type": ["application/json", "text/plain", "image/jpeg"] * count,
        "text_content": [text for start in starts for text in (None, _words()[start : start + 3000], None)],
        "binary_content": pa.array(
            [data for start in starts for data in (None, None, _noise()[start : start + 60_000])], pa.large_binary()
        ),
    })  # fmt: skip


KINDS = {
    "media": (_media, "samples", 1200, ("webdataset", "parquet", "mds", "arrow", "media_archive")),
    "texts": (_texts, "samples", 15_000, ("webdataset", "parquet", "mds", "arrow", "jsonl", "csv")),
    "documents": (_documents, "interleaved", 1900, ("webdataset", "parquet", "mds", "arrow", "media_archive")),
}
EACH = [(kind, fmt) for kind, (*_, known) in KINDS.items() for fmt in known]
PAIRS = [(kind, source, target) for kind, source in EACH for target in KINDS[kind][3]]
LOOKED = EACH if SOAK else [("documents", "parquet")]
SALVAGED = EACH if SOAK else [("documents", "webdataset"), ("texts", "csv")]
if not SOAK:  # each format read or written
    PAIRS = [("documents", "media_archive", "webdataset"), ("documents", "webdataset", "parquet"),
             ("texts", "mds", "arrow"), ("texts", "jsonl", "csv")]  # fmt: skip
_MORE_MB = 160
"""What a job may take more than a process that has imported lading and its libraries: 45 to 140 now; a shard, 120."""
_HELD_MB = {"mds": 67}
"""A shard that is held (docs/formats/mds.md)."""

JOB = """
import sys, lading, pyarrow.csv, pyarrow.parquet
from lading._core.dataset.shards import sample_digests
from lading._core.jobs.verify import digest
from lading._core.jobs.convert import schedule
from lading._core.jobs.salvage import salvage
from lading._core.jobs.salvage import shard as salvage_shard
from lading._core.jobs.verify import verify

def told_mb(name):
    [line] = [line for line in open("/proc/self/status") if line.startswith(name + ":")]
    return int(line.split()[1]) * 1024 / 1e6

source, out, target = sys.argv[2:]
begun = told_mb("VmRSS")
if sys.argv[1] == "convert":
    lading.convert(source, out, format=target, max_batch_bytes="8MB", shard_size="50mb", workers=1)
elif sys.argv[1] == "salvage":
    salvage_shard._MAX_BYTES = 8 << 20
    salvage.salvage(source, out, max_batch_bytes="8MB", workers=1)
else:
    digest.DIGEST_BYTES = sample_digests.DIGEST_BYTES = verify._MAX_BYTES = 8 << 20
    for _ in lading.open(source).batches(max_bytes="8MB"):
        pass
    lading.digest(source, workers=1)
    lading.verify(source, deep=True, workers=1)
print(told_mb("VmHWM") - begun)
"""


def _taken_mb(job: str, source: Path, out: Path, target: str = "") -> float:
    command = [sys.executable, "-c", JOB, job, str(source), str(out), target]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shutil.rmtree(out, ignore_errors=True)
    return float(done.stdout)


@pytest.fixture(scope="module")
def one_shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Path]]:
    """120 MB of a kind in a format, as one shard where it can be; written when they are first asked for."""
    folder = tmp_path_factory.mktemp("pairs")

    @cache
    def written(kind: str, fmt: str) -> Path:
        made, view, count, _ = KINDS[kind]
        with lading.writer(folder / f"{kind}-{fmt}", format=fmt, view=view, shard_size="100gb") as writer:
            for at in range(0, count, count // 10):
                writer.write_batch(made(at, count // 10))
        return folder / f"{kind}-{fmt}"

    yield written
    shutil.rmtree(folder)


@pytest.mark.mechanism("memory of a conversion")
@pytest.mark.cases(1)
@pytest.mark.parametrize("kind, source, target", PAIRS)
def test_converting_any_format_to_any_keeps_to_the_limit(
    kind: str, source: str, target: str, one_shard: Callable[[str, str], Path], tmp_path: Path
) -> None:
    taken_mb = _taken_mb("convert", one_shard(kind, source), tmp_path / "out", target)
    assert taken_mb <= _MORE_MB + _HELD_MB.get(target, 0)


@pytest.mark.soak
@pytest.mark.parametrize("kind, fmt", LOOKED)
def test_who_only_looks_keeps_to_one_batch(
    kind: str, fmt: str, one_shard: Callable[[str, str], Path], tmp_path: Path
) -> None:
    assert _taken_mb("look", one_shard(kind, fmt), tmp_path / "out") <= _MORE_MB


@pytest.mark.soak
@pytest.mark.parametrize("kind, fmt", SALVAGED)
def test_salvage_keeps_to_the_limit(kind: str, fmt: str, one_shard: Callable[[str, str], Path], tmp_path: Path) -> None:
    assert _taken_mb("salvage", one_shard(kind, fmt), tmp_path / "out") <= _MORE_MB


@pytest.fixture(scope="module")
def one_tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("big") / "tar"
    with lading.writer(folder, shard_size="100gb") as writer:
        for at in range(0, COUNT, 500):
            writer.write_batch(rows(at, 500))
    return folder


@pytest.fixture(scope="module")
def one_row_group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / "one.parquet"
    table = pa.concat_tables([rows(at, 500) for at in range(0, COUNT, 500)])
    pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=COUNT, write_batch_size=8)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    return path


@pytest.fixture(scope="module")
def large_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pyarrow writes by default: it looks at the size of a page once in 1,024 values."""
    path = tmp_path_factory.mktemp("big") / "pages.parquet"
    table = pa.concat_tables([rows(at, 500) for at in range(0, COUNT, 500)])
    pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=COUNT)
    return path


@pytest.fixture(scope="module")
def one_arrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / "one.arrow"
    with pa.ipc.new_file(path, rows(0, 1).schema) as writer:
        for at in range(0, COUNT, 500):
            writer.write_table(rows(at, 500))
    return path


@pytest.fixture(scope="module")
def own_parquet(one_tar: Path) -> Path:
    """Compressed: as pages are unpacked, pyarrow's pool would keep their memory."""
    folder = one_tar.parent / "parquet"
    lading.convert(one_tar, folder, format="parquet", shard_size="1gb")
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "arrow"])
def test_converting_compressed_parquet_keeps_to_the_limit(fmt: str, own_parquet: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONVERT, str(own_parquet), str(tmp_path / "out"), fmt]
    done = subprocess.run([*command, str(BATCH_BYTES), "1"], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[1]) <= LIMIT_MB + 1


@pytest.mark.soak
@pytest.mark.parametrize(
    "source, page_mb, fmt",
    [
        *(("one_tar", 0, fmt) for fmt in ("webdataset", "parquet", "mds", "arrow")),
        *(("one_row_group", 1, fmt) for fmt in ("parquet", "webdataset", "mds", "arrow")),
        *(("large_pages", 1024 * SIZE / 1e6, fmt) for fmt in ("mds", "webdataset", "parquet", "arrow")),
        *(("one_arrow", 0, fmt) for fmt in ("arrow", "webdataset", "parquet", "mds")),
    ],
)
def test_converting_400_mb_keeps_to_the_limit(
    source: str, page_mb: float, fmt: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CONVERT, str(request.getfixturevalue(source)), str(tmp_path / "out"), fmt]
    done = subprocess.run([*command, str(BATCH_BYTES), "1"], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[1]) <= LIMIT_MB + page_mb


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "parquet"])
def test_each_worker_keeps_to_the_limit(fmt: str, one_tar: Path, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.tar").symlink_to(next(one_tar.glob("*.tar")))
    source = str(tmp_path / "*.tar")
    command = [sys.executable, "-c", CONVERT, source, str(tmp_path / "out"), fmt, str(BATCH_BYTES), "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    worker_mb, own_mb = map(float, done.stdout.split())
    assert 0 < worker_mb <= LIMIT_MB
    assert own_mb <= LIMIT_MB


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 documents of one short text and one tiny picture each."""
    folder = tmp_path_factory.mktemp("tiny") / "parquet"
    ids = np.repeat(np.arange(100_000), 3).astype(str)
    rows = {
        "sample_id": ids,
        "position": pa.array([-1, 0, 1] * 100_000, pa.int32()),
        "modality": ["metadata", "text", "image"] * 100_000,
        "content_type": ["application/json", "text/plain", "image/jpeg"] * 100_000,
        "text_content": [None, "hello", None] * 100_000,
        "binary_content": pa.array([None, None, b"a tiny picture"] * 100_000, pa.large_binary()),
        "score": [1, None, None] * 100_000,
    }
    with lading.writer(folder, format="parquet", view="interleaved") as writer:
        writer.write_batch(pa.table(rows))
    return folder


@pytest.mark.soak
def test_many_tiny_documents_keep_to_the_limit(tiny: Path, tmp_path: Path) -> None:
    source = str(tiny)
    for number, fmt in enumerate(("webdataset", "parquet")):
        out = str(tmp_path / str(number))
        command = [sys.executable, "-c", CONVERT, source, out, fmt, str(BATCH_BYTES), "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert float(done.stdout.split()[1]) <= LIMIT_MB
        source = out


@pytest.fixture(scope="module")
def packed_media(one_tar: Path) -> Path:
    """400 MB of values that take 25 bytes each as records of an archive."""
    folder = one_tar.parent / "media"
    lading.convert(one_tar, folder, format="media_archive", shard_size="1gb")
    assert sum(path.stat().st_size for path in folder.glob("*.zst")) < COUNT * 100
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["media_archive", "webdataset", "parquet", "arrow"])
def test_converting_what_unpacks_to_much_keeps_to_the_limit(fmt: str, packed_media: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONVERT, str(packed_media), str(tmp_path / "out"), fmt]
    done = subprocess.run([*command, str(BATCH_BYTES), "1"], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[1]) <= LIMIT_MB


@pytest.mark.soak
def test_a_look_at_what_unpacks_to_much_keeps_to_the_limit(packed_media: Path, tmp_path: Path) -> None:
    assert _taken_mb("look", packed_media, tmp_path / "out") <= _MORE_MB


@pytest.mark.soak
def test_a_digest_of_documents_that_are_mostly_text_keeps_to_the_limit(tmp_path: Path) -> None:
    """400 MB of texts, which are in memory as soon as their documents are read, beside pictures that are not."""
    count, picture, members = 4000 if SOAK else 2000, bytes(30_000), []
    for number in range(count):
        told = {"sample_id": f"d{number}", "texts": [f"{number} " * 20_000, None], "images": [None, f"d{number}.1.bin"]}
        members += [(f"d{number}.json", json.dumps(told).encode()), (f"d{number}.1.bin", picture)]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    done = subprocess.run([sys.executable, "-c", DIGEST, tmp_path], capture_output=True, text=True, check=True)
    digested, peak_mb = map(float, done.stdout.split())
    assert digested == count
    assert peak_mb <= 250 + 2 * (128 << 20) / 1e6


@pytest.mark.soak
def test_a_digest_of_bytes_inside_lists_keeps_to_the_limit(tmp_path: Path) -> None:
    """400 MB of media, each in a struct in the list of its document."""
    chance = np.random.default_rng(3)
    with lading.writer(tmp_path / "archive", format="media_archive", view="interleaved") as writer:
        for number in range(8):
            ids = [f"d{number}.{i}" for i in range(50)]
            rows = {
                "sample_id": ids,
                "position": pa.array([0] * 50, pa.int32()),
                "modality": ["image"] * 50,
                "content_type": ["image/jpeg"] * 50,
                "binary_content": pa.array([chance.bytes(1 << 20) for _ in ids], pa.large_binary()),
            }
            writer.write_batch(pa.table(rows))
    command = [sys.executable, "-c", DIGEST, tmp_path / "archive", "samples"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    digested, peak_mb = map(float, done.stdout.split())
    assert digested == 400
    assert peak_mb <= 250 + 2 * (128 << 20) / 1e6


PICK = """
import sys, lading
def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * 4096 / 1e6
dataset = lading.open(sys.argv[1], format="arrow")
before = resident()
print(len(dataset), resident() - before)
count = len(dataset)
assert all(dataset[i * 7919 % count]["x"] == str(i * 7919 % count).zfill(400) for i in range(6000))
print(resident() - before)
"""


@pytest.mark.soak
def test_rows_picked_of_a_large_mapped_stream_leave_little_of_it_in_memory(tmp_path: Path) -> None:
    path, batch = tmp_path / "large.arrow", 600
    with pa.ipc.new_stream(path, pa.schema([("x", pa.string())])) as writer:
        for at in range(0, 1_200_000, batch):
            texts = pa.array([str(i).zfill(400) for i in range(at, at + batch)])
            writer.write_batch(pa.record_batch([texts], ["x"]))
    done = subprocess.run([sys.executable, "-c", PICK, path], capture_output=True, text=True, check=True)
    count, walked, picked = map(float, done.stdout.split())
    assert count == 1_200_000
    assert walked < 60  # 2,000 batches, of which a map brings 64 KiB each into memory
    assert picked < 150


DIGEST = """
import sys, lading
print(lading.digest(sys.argv[1], view=(*sys.argv[2:], None)[0], workers=1).count)
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(peak.split()[1]) * 1024 / 1e6)
"""


@pytest.mark.soak
@pytest.mark.parametrize("name", ["json", "npy"])
def test_a_digest_of_what_is_taken_by_the_column_keeps_to_the_limit(name: str, tmp_path: Path) -> None:
    """400 MB of arrays, and of JSON, in batches of 128 MiB."""
    if name == "npy":
        out = io.BytesIO()
        np.save(out, np.arange(62_500, dtype=np.float64))
        value, count = out.getvalue(), 800
    else:
        value, count = json.dumps({"text": "word " * 20_000}).encode(), 4000
    (tmp_path / "a.tar").write_bytes(tar_of(*((f"{i:06d}.{name}", value) for i in range(count))))
    done = subprocess.run([sys.executable, "-c", DIGEST, tmp_path], capture_output=True, text=True, check=True)
    digested, peak_mb = map(float, done.stdout.split())
    assert digested == count
    assert peak_mb <= 250 + 2 * (128 << 20) / 1e6


TAKE = """
import sys, lading
with lading.open(sys.argv[1]) as dataset:
    len(dataset)
    before = int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0])
    assert all(dataset[1000 * i + 999]["t"] for i in range(20))
    print((int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0]) - before) * 1024 / 1e6)
"""


@pytest.mark.soak
def test_compressed_texts_that_are_open_do_not_all_keep_what_was_unpacked(tmp_path: Path) -> None:
    lines = b"".join(b'{"t": "%s"}\n' % (b"x" * 20_000) for _ in range(1000))
    for number in range(20):
        (tmp_path / f"{number:02d}.jsonl.gz").write_bytes(gzip.compress(lines, 1))
    done = subprocess.run([sys.executable, "-c", TAKE, tmp_path], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200  # two of them 16 MiB each; all of them 335


OVER_NUMBERS = """
import os, sys, lading
_, step, source, table, out = sys.argv
more = os.path.join(os.path.dirname(source), "more")
ds = lading.open(source)
made = {
    "shuffle": lambda: ds.shuffle(1), "sort": lambda: ds.sort("__key__", descending=True),
    "sort by txt": lambda: lading.open(more).sort("txt", descending=True).limit(1000),
    "dedup": lambda: ds.dedup("txt"), "content": lambda: ds.dedup(), "join": lambda: ds.join(table, on="__key__"),
}[step]()
made.write(out, format="parquet", max_batch_bytes="32mb", workers=1)
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(peak.split()[1]) * 1024 / 1e6)
"""


@pytest.fixture(scope="module")
def many_texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """110 MB of short texts, and a table with a row for each; next to them a folder with the same texts four times."""
    folder, count = tmp_path_factory.mktemp("many"), 1_000_000 if SOAK else 500_000
    keys = pa.array([f"{i:08d}" for i in range(count)])
    texts = pc.binary_join_element_wise(keys, "word " * (22_000_000 // count), " ")
    pq.write_table(pa.table({"__key__": keys, "txt": texts}), folder / "a.parquet", row_group_size=100_000)
    pq.write_table(pa.table({"key": keys, "n": pa.array(range(count))}), folder / "n.parquet")
    (folder / "more").mkdir()
    for name in "0123":
        (folder / "more" / f"{name}.parquet").symlink_to(folder / "a.parquet")
    return folder / "a.parquet", folder / "n.parquet"


@pytest.mark.soak
@pytest.mark.parametrize("step", ["sort by txt", "shuffle", "join", "sort", "dedup", "content"])
def test_steps_over_numbers_keep_to_the_limit(step: str, many_texts: tuple[Path, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-c", OVER_NUMBERS, step, *map(str, many_texts), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) <= 250 + 2 * 32
