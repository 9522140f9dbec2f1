"""Reading from an object store on loopback: requests, bytes and times, beside obstore's own `get` and s3fs.

    python bench/remote.py [--cases 'filter*,whole*'] [--mb 1000] [--reps 3] [--wait-ms 0] [--folder FOLDER]

The store is `s3_server.py`, a process of its own, which ends with this one. Each way runs in a fresh process, and the
ways of a case take turns: compare within a run. Without s3fs its ways are left out; it needs aiobotocore, which does
not go with the peers' packages: `pip install --target FOLDER s3fs`, and `PYTHONPATH=FOLDER`.

Loopback has no latency. `--wait-ms 30` lets the server wait before each answer, as a store in the same region does.

| case | |
|---|---|
| `filter 50-150 KB`, `filter 75-225 KB` | keep 5 % of the samples of tars with a manifest, by a field of their JSON |
| `filter 35-60 KB` | the same of samples that a gap of 64 KB would read whole, in fewer requests |
| `take` | 100 samples at random out of ten tars |
| `open` | 5,000 shards without a manifest |
| `whole` | all samples of tars, with a manifest and without an index; the limit is obstore's `get` of the files |
| `ranges` | 10,000 ranges of 4 KB |
"""

from __future__ import annotations

import argparse
import fnmatch
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import lading

_KEPT = 0.05
_SHARD_BYTES = 100 << 20
_RANGES, _RANGE_BYTES = 10_000, 4 << 10
_FILTERS = {
    "filter 50-150 KB": (50_000, 150_000),
    "filter 75-225 KB": (75_000, 225_000),
    "filter 35-60 KB": (35_000, 60_000),
}
_USUAL = "filter 50-150 KB"
"""The dataset of the other cases."""
_GAPS = {"lading": {}, "gap 16 KB": {"gap_bytes": 16 << 10}, "gap 64 KB": {"gap_bytes": 64 << 10}}

Way = Callable[[str, str], int]
"""Takes the URL of the server and the folder of the case; gives bytes of values."""


# The data


def make_tars(folder: Path, least: int, most: int, mb: int) -> None:
    """Tars with a manifest: an image, and a JSON object that says of one sample in twenty that it is kept."""
    random, size, number = np.random.default_rng(least), 0, 0
    block = random.bytes(2 * most)
    with lading.writer(folder, format="webdataset", shard_size=_SHARD_BYTES) as writer:
        while size < mb * 1_000_000:
            length, start = int(random.integers(least, most)), int(random.integers(0, most))
            fields = {"lang": "de" if random.random() < _KEPT else "en", "score": number / 7}
            writer.write({"__key__": f"{number:08}", "jpg": block[start : start + length], "json": fields})
            size, number = size + length, number + 1


def make_plain(folder: Path, made: Path) -> None:
    """The same tars without a manifest."""
    folder.mkdir()
    for path in made.glob("*.tar"):
        os.link(path, folder / path.name)


def make_many(folder: Path, count: int = 5000) -> None:
    """Small tars of others."""
    folder.mkdir()
    for number in range(count):
        with tarfile.open(folder / f"{number:05}.tar", "w") as tar:
            member = tarfile.TarInfo(f"{number:05}.txt")
            member.size = 100
            tar.addfile(member, io.BytesIO(bytes(100)))


def prepare(folder: Path, cases: list[str], mb: int) -> None:
    for case, (least, most) in _FILTERS.items():
        if case in cases or (case == _USUAL and {"take", "whole", "ranges"} & {*cases}):
            make_tars(folder / case.replace(" ", "-"), least, most, mb)
    if "whole" in cases:
        make_plain(folder / "plain", folder / "filter-50-150-KB")
    if "open" in cases:
        make_many(folder / "many")


# The ways


def options(server: str, **more: object) -> dict[str, object]:
    return {"endpoint": server, "access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1", **more}


def opened(server: str, name: str, **more: object) -> lading.Dataset:
    return lading.open(f"s3://bucket/{name}", storage_options=options(server, **more))


def size_of(dataset: lading.Dataset) -> int:
    return sum(int(np.diff(ends_of(batch["jpg"])).sum()) for batch in dataset.batches())


def ends_of(column) -> np.ndarray:
    values = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]


def filtered(name: str, **more: object) -> Way:
    return lambda server, _: size_of(opened(server, name, **more).where("json.lang == 'de'"))


def taken(server: str, _: str) -> int:
    dataset = opened(server, "filter-50-150-KB")
    rows = np.random.default_rng(1).choice(len(dataset), 100, replace=False).tolist()
    return sum(len(value) for value in dataset.take(rows)["jpg"].to_pylist())


def just_opened(server: str, _: str) -> int:
    return len(opened(server, "many").shards)


def whole(name: str, **more: object) -> Way:
    return lambda server, _: size_of(opened(server, name, **more))


def whole_by_obstore(server: str, folder: str) -> int:
    """Whole files, one after another: the bytes of the tars."""
    store = obstore_of(server)
    return sum(len(memoryview(store.get(f"plain/{name}").bytes())) for name in sorted(os.listdir(f"{folder}/plain")))


def obstore_of(server: str):
    from obstore.store import S3Store

    return S3Store("bucket", **options(server), client_options={"allow_http": True})


def small_ranges(folder: str) -> tuple[str, list[int]]:
    """A file, and where ranges of it begin."""
    path = max(Path(folder, "filter-50-150-KB").glob("*.tar"), key=lambda each: each.stat().st_size)
    most = path.stat().st_size - _RANGE_BYTES
    starts = np.random.default_rng(2).integers(0, most, _RANGES)
    return f"filter-50-150-KB/{path.name}", starts.tolist()


def ranges_by_lading(server: str, folder: str) -> int:
    from lading._core.storage.stores import Stores, resolve

    name, starts = small_ranges(folder)
    store, path = resolve(f"s3://bucket/{name}", Stores.of(None, options(server)))
    return sum(len(data) for data in store.get_ranges(path, [(start, _RANGE_BYTES) for start in starts]))


def ranges_by_s3fs(server: str, folder: str) -> int:
    import s3fs

    name, starts = small_ranges(folder)
    fs = s3fs.S3FileSystem(key="key", secret="secret", endpoint_url=server, client_kwargs={"region_name": "us-east-1"})
    paths = [f"bucket/{name}"] * _RANGES
    return sum(map(len, fs.cat_ranges(paths, starts, [start + _RANGE_BYTES for start in starts])))


_BY_S3FS = {"backend": "fsspec"}
_CASES: dict[str, dict[str, Way]] = {
    **{case: {way: filtered(case.replace(" ", "-"), **gap) for way, gap in _GAPS.items()} for case in _FILTERS},
    "take": {"lading": taken},
    "open": {"lading": just_opened},
    "whole": {
        "obstore": whole_by_obstore,
        "manifest": whole("filter-50-150-KB"),
        "manifest, s3fs": whole("filter-50-150-KB", **_BY_S3FS),
        "no index": whole("plain"),
        "no index, s3fs": whole("plain", **_BY_S3FS),
    },
    "ranges": {"lading": ranges_by_lading, "s3fs": ranges_by_s3fs},
}
_TABLE = ("way", "seconds", "× first way", "gets", "heads", "lists", "MB read", "of the files", "peak MB")


# The measurement


@contextmanager
def server_of(folder: Path, wait_ms: float) -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).with_name("s3_server.py")), str(folder), "--wait-ms", str(wait_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def measure(case: str, way: str, server: str, folder: str) -> dict[str, float]:
    """Do it once in this process, with packages imported and the store connected."""
    work = _CASES[case][way]
    first = opened(server, data_of(case), **(_BY_S3FS if "s3fs" in way else {}))
    first.schema  # noqa: B018 - connects
    urllib.request.urlopen(f"{server}/-/counts").close()
    cpu, begun = cpu_s(), time.perf_counter()
    size = work(server, folder)
    seconds = time.perf_counter() - begun
    counts = json.load(urllib.request.urlopen(f"{server}/-/counts"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "cpu_s": cpu_s() - cpu, "size": size, "peak_mb": peak, **counts}


def data_of(case: str) -> str:
    """The folder with the data of a case."""
    return "many" if case == "open" else (case if case in _FILTERS else _USUAL).replace(" ", "-")


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def in_fresh_process(case: str, way: str, server: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, os.path.abspath(__file__), "--once", case, way, server, "--folder", str(folder)]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "LADING_CACHE": cache}
        run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def run_case(case: str, server: str, bucket: Path, reps: int) -> None:
    ways = [way for way in _CASES[case] if "s3fs" not in way or find_spec("s3fs")]
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(reps):
        for way, found in runs.items():
            found.append(in_fresh_process(case, way, server, bucket))
    files = sum(path.stat().st_size for path in (bucket / data_of(case)).glob("*.tar"))
    print(f"\n**{case}**\n\n| " + " | ".join(_TABLE) + " |\n" + "|---" * len(_TABLE) + "|")
    medians = {way: statistics.median(run["seconds"] for run in found) for way, found in runs.items()}
    for way, found in runs.items():
        first, times = found[0], [run["seconds"] for run in found]
        row = [way, f"{medians[way]:.2f} ({min(times):.2f}–{max(times):.2f})", f"{medians[ways[0]] / medians[way]:.2f}"]
        row += [f"{int(first.get(kind, 0)):,}" for kind in ("get", "head", "list")]
        row += [f"{first['bytes'] / 1e6:.1f}", f"{first['bytes'] / files:.1%}"]
        print(f"| {' | '.join(row)} | {max(run['peak_mb'] for run in found):.0f} |", flush=True)
    for way in ways:
        if f"{way}, s3fs" in medians:
            print(f"\n{way}: {medians[f'{way}, s3fs'] / medians[way]:.2f} × the same through s3fs", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="*", help="patterns of names, by commas")
    parser.add_argument("--mb", type=int, default=1000, help="of each dataset")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--wait-ms", type=float, default=0, help="of the server, before each answer")
    parser.add_argument("--folder", help="where the datasets are made, or were made before; by default removed")
    parser.add_argument("--once", nargs=3, metavar=("CASE", "WAY", "SERVER"), help="one measurement, in this process")
    args = parser.parse_args()
    if args.once:
        print(json.dumps(measure(*args.once, args.folder)))
        return
    cases = [case for case in _CASES if any(fnmatch.fnmatch(case, pattern) for pattern in args.cases.split(","))]
    with tempfile.TemporaryDirectory(prefix="lading-bench-") as made:
        bucket = Path(args.folder or made) / "bucket"
        if not bucket.exists():
            prepare(bucket, [*_CASES] if args.folder else cases, args.mb)
        with server_of(bucket.parent, args.wait_ms) as server:
            for case in cases:
                run_case(case, server, bucket, args.reps)


if __name__ == "__main__":
    main()
