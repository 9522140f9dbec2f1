"""The loader's engine: what it does with bad data and stores, how loops end, and what is in memory."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.storage.base import Buffer
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import WrappedStore
from lading._core.train.loader import Loader
from lading._core.train.order import Order, Shuffle
from lading._core.train.reading import Chunk, EpochReader
from lading._core.train.share import Share
from lading.errors import CorruptShard, DataError, FunctionError, LadingError, StoreError, UsageError

_COUNT = 240
_BYTES = 3000
_KEYS = [f"{i:05}" for i in range(_COUNT)]
_LARGE_COUNT, _LARGE_BYTES = 120, 20_000
_FORMATS = ("webdataset", "parquet", "mds", "arrow")


class FarStore(WrappedStore):
    """A remote store that can fail, or not answer, from some moment on; it knows what it was asked for."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner, mapped=False)
        self.request_bytes = 1 << 20
        self.answers, self.fails = threading.Event(), False
        self.answers.set()
        self.asked_bytes = 0

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        self.asked_bytes += sum(length for _, length in ranges)
        self.answers.wait()
        if self.fails:
            raise StoreError("the connection broke", file=path)
        return super().get_ranges(path, ranges, version)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    random = np.random.default_rng(0)
    for name in _FORMATS:
        with lading.writer(folder / name, format=name, rows_per_shard=60) as writer:
            for i, key in enumerate(_KEYS):
                writer.write({"__key__": key, "bin": random.bytes(_BYTES), "n": i})
    return folder


@pytest.fixture
def far(folders: Path) -> Iterator[FarStore]:
    """The datasets in a remote store."""
    files = {f"far://{path.relative_to(folders)}": path.read_bytes() for path in folders.rglob("*") if path.is_file()}
    store = FarStore(MemoryStore(files))
    yield store
    store.answers.set()


def _far_loader(store: FarStore, name: str, **options: Any) -> Loader:
    dataset = lading.open(f"far://{name}", stores=Stores({"far://": store}))
    return lading.loader(dataset, **{"batch_size": 8, "decode": False, **options})


def _keys(loop: Any) -> list[str]:
    return [key for batch in loop for key in batch["__key__"]]


def _threads() -> list[str]:
    """Those of loops: a store that earlier tests used keeps threads for its requests."""
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name.startswith("lading-") and not name.startswith("lading-store")]


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "never so"
        time.sleep(0.002)


# Stores


@pytest.mark.parametrize("name", _FORMATS)
def test_a_store_that_does_not_answer_is_an_error_that_names_the_shard(far: FarStore, name: str) -> None:
    loader = _far_loader(far, name, ahead_bytes=8 * _BYTES, timeout=0.2)
    loop = iter(loader)
    next(loop)
    far.answers.clear()
    with pytest.raises(StoreError, match=rf"far://{name}/shard.*: samples were not read in time; expected .* 0.2 s"):
        _keys(loop)
    far.answers.set()
    _wait_until(lambda: not _threads())


@pytest.mark.soak
def test_a_slow_answer_is_no_error(far: FarStore) -> None:
    loader = _far_loader(far, "mds", ahead_bytes=8 * _BYTES)
    far.answers.clear()
    threading.Timer(0.3, far.answers.set).start()
    assert _keys(loader) == _KEYS


@pytest.mark.soak
@pytest.mark.parametrize("name", _FORMATS)
def test_training_goes_on_after_a_store_has_failed(far: FarStore, name: str) -> None:
    options: dict[str, Any] = {"ahead_bytes": 8 * _BYTES, "shuffle": Shuffle("block", 5, 1, 2), "seed": 4}
    whole = _keys(_far_loader(far, name, **options))
    assert sorted(whole) == _KEYS
    loader = _far_loader(far, name, **options)
    loop = iter(loader)
    seen = next(loop)["__key__"]
    far.fails = True
    with pytest.raises(LadingError, match=rf"far://{name}/shard.*connection broke"):
        seen.extend(key for batch in loop for key in batch["__key__"])  # what came before the error stays
    state, far.fails = loader.state_dict(), False
    loader.load_state_dict(state)
    assert seen + _keys(loader) == whole


def _removed(path: Path) -> None:
    path.unlink()


def _replaced(path: Path) -> None:
    other = path.with_name(".other")
    other.write_bytes(b"something else" * 999)
    os.replace(other, path)


def _truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.soak
@pytest.mark.parametrize("change", [_removed, _replaced, _truncated])
@pytest.mark.parametrize("name", _FORMATS)
def test_a_shard_that_changes_in_an_epoch(folders: Path, tmp_path: Path, name: str, change: Any) -> None:
    """It is an error that names the shard, unless the samples are those of the file that was opened."""
    plain = _keys(lading.loader(folders / name, 8, columns=["__key__"]))
    for path in (folders / name).rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(folders)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    loader = lading.loader(lading.open(tmp_path / name, mmap=False), 8, decode=False, ahead_bytes=8 * _BYTES)
    [shard] = [path for path in (tmp_path / name).iterdir() if "00002" in path.name]
    original = lading.open(folders / name).take(range(_COUNT), ["bin"]).column("bin").to_pylist()
    seen: list[str] = []
    try:
        for batch in loader:
            assert batch["bin"] == original[len(seen) : len(seen) + 8]
            if not seen:
                change(shard)
            seen += batch["__key__"]
    except (DataError, StoreError) as error:
        assert "00002" in str(error.file)  # noqa: PT017 - or no error
        assert seen == plain[: len(seen)]
    else:
        assert change is not _truncated
        assert seen == plain


# Functions


def _divides(_: Any) -> Any:
    return 1 // 0


@pytest.mark.parametrize(
    "options",
    [{"transform": _divides}, {"batch_transform": _divides}, {"collate": _divides}, {"decode": {"bin": _divides}}],
    ids=lambda options: next(iter(options)),
)
def test_an_error_of_a_function_names_the_sample_and_keeps_its_cause(folders: Path, options: dict[str, Any]) -> None:
    loader = lading.loader(folders / "mds", 8, shuffle=True, **options)
    number = int(next(iter(lading.loader(folders / "mds", 8, shuffle=True)))["n"][0])
    with pytest.raises(FunctionError, match=r"ZeroDivisionError: integer division") as found:
        _keys(loader)
    [verb] = options
    assert verb in str(found.value)
    assert (Path(str(found.value.file)).name, found.value.row) == (f"shard.{number // 60:05}.mds", number % 60)
    cause = found.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    frame = cause.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    assert frame is not None
    assert frame.tb_frame.f_code is _divides.__code__
    _wait_until(lambda: not _threads())


def test_a_function_that_changes_the_number_of_samples_is_refused(folders: Path) -> None:
    halved = lading.open(folders / "mds").map_batches(lambda batch: batch.slice(0, len(batch) // 2))
    with pytest.raises(LadingError, match="number of samples") as found:
        lading.loader(halved, 8)
    assert "Write the dataset first" in str(found.value)


# Few samples


@pytest.mark.parametrize("shuffle", [False, "global", "block"])
def test_no_samples_are_refused(folders: Path, shuffle: Any) -> None:
    for dataset in (lading.open(folders / "mds").limit(0), lading.open(folders / "parquet").where("n < 0")):
        with pytest.raises(UsageError, match="no samples to train on"):
            lading.loader(dataset, 8, shuffle=shuffle)


def test_no_batches_are_refused(folders: Path) -> None:
    three = lading.open(folders / "mds").limit(3)
    with pytest.raises(UsageError, match="at least 16 samples, a step of all ranks, found 3"):
        lading.loader(three, 4, last="drop", rank=1, world_size=4)


@pytest.mark.parametrize("last", ["short", "pad"])
def test_more_ranks_than_samples(folders: Path, last: Any) -> None:
    """Each rank has the same number of batches; what comes again is marked."""
    three = lading.open(folders / "mds").limit(3)
    ranks = [[*lading.loader(three, 2, last=last, rank=rank, world_size=8)] for rank in range(8)]
    assert {len(batches) for batches in ranks} == {1}
    first = [
        key for [batch] in ranks for key, again in zip(batch["__key__"], batch["__padding__"], strict=True) if not again
    ]
    assert first == _KEYS[:3]


# Loops


def _breaks(loader: Loader) -> None:
    for _ in loader:
        break


def _raises(loader: Loader) -> None:
    with suppress(ZeroDivisionError):
        for _ in loader:
            _divides(None)


def _drops(loader: Loader) -> None:
    loop = iter(loader)
    next(loop)
    cycle = [loop]
    cycle.append(cycle)  # type: ignore[arg-type]
    del loop, cycle
    gc.collect()


def _finishes(loader: Loader) -> None:
    for _ in range(3):
        _keys(loader)


@pytest.mark.cases(1)
@pytest.mark.parametrize("leave", [_breaks, _raises, _drops, _finishes])
@pytest.mark.parametrize("decode", [False, None])
def test_threads_end_with_the_loop(far: FarStore, leave: Callable[[Loader], None], decode: Any) -> None:
    loader = _far_loader(far, "webdataset", ahead_bytes=32 * _BYTES, decode=decode)
    leave(loader)
    _wait_until(lambda: not _threads())
    asked = far.asked_bytes
    assert leave is _finishes or asked < _COUNT * _BYTES / 2
    assert next(iter(loader))["__key__"] == _KEYS[:8]


def test_one_loop_runs_at_a_time(folders: Path) -> None:
    loader = lading.loader(folders / "mds", 8)
    early, late = iter(loader), iter(loader)
    assert next(late)["__key__"] == _KEYS[:8]
    with pytest.raises(UsageError, match="this loop over the loader has ended: another one began"):
        next(early)
    assert _keys(late) == _KEYS[8:]
    assert (loader.epoch, loader.state_dict()["position"]) == (1, 0)


@pytest.mark.parametrize("begun", [0, 1])
def test_a_loop_ends_where_the_state_is_set(folders: Path, begun: int) -> None:
    loader = lading.loader(folders / "mds", 8, shuffle=True)
    state = loader.state_dict()
    for call in (lambda: loader.set_epoch(5), lambda: loader.load_state_dict(state)):
        loop = iter(loader)
        for _ in range(begun):
            next(loop)
        call()
        before = loader.state_dict()
        with pytest.raises(UsageError, match="set_epoch or load_state_dict was called"):
            next(loop)
        assert loader.state_dict() == before
    last = iter(loader)
    for _ in range(len(loader)):
        next(last)
    loader.set_epoch(9)
    assert next(last, None) is None
    assert loader.epoch == 9


def test_a_loop_that_gave_nothing_leaves_the_position(folders: Path) -> None:
    """As those make that only look whether a loader can be iterated."""
    loader = lading.loader(folders / "mds", 8)
    loader.load_state_dict({**loader.state_dict(), "position": 80})
    iter(loader)
    assert _keys(loader) == _KEYS[80:]


def test_a_copy_of_a_loader_goes_on_where_it_stands(folders: Path) -> None:
    loader = lading.loader(folders / "mds", 8, shuffle=True, seed=5)
    loop = iter(loader)
    next(loop)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    assert _keys(copy) == _keys(loop)


def test_a_function_that_cannot_be_pickled_is_named(folders: Path) -> None:
    loader = lading.loader(folders / "mds", 8, transform=lambda sample: sample)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(loader)


# Memory


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Samples that are larger than a gap that is read with what is before and behind it."""
    folder, random = tmp_path_factory.mktemp("large"), np.random.default_rng(0)
    with lading.writer(folder / "mds", format="mds", rows_per_shard=40) as writer:
        for i in range(_LARGE_COUNT):
            writer.write({"__key__": f"{i:05}", "bin": random.bytes(_LARGE_BYTES + i)})
    return {f"far://{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.soak
@pytest.mark.parametrize("shuffle", [False, "global", Shuffle("block", 5, 2, 2), Shuffle("block", 20, 4, 4)])
@pytest.mark.parametrize("samples, batch_size", [(24, 3), (8, 1), (60, 8), (0, 4)])
def test_what_is_read_ahead_is_bounded(large: dict[str, bytes], shuffle: Any, samples: int, batch_size: int) -> None:
    """In bytes that the store was asked for, and that no batch has had yet."""
    store, ahead_bytes = FarStore(MemoryStore(large)), samples * _LARGE_BYTES + 1
    store.request_bytes = 4 << 10
    loader = _far_loader(store, "mds", batch_size=batch_size, shuffle=shuffle, ahead_bytes=ahead_bytes)
    asked, most, used = -1, 0, 0
    for batch in loader:
        while asked != store.asked_bytes:
            asked = store.asked_bytes
            time.sleep(0.002)
        used += sum(map(len, batch["bin"]))
        most = max(most, asked - used)
    assert used == sum(range(_LARGE_BYTES, _LARGE_BYTES + _LARGE_COUNT))
    headers = 64 << 10
    assert most <= max(ahead_bytes, batch_size * _LARGE_BYTES) + headers


def test_gaps_between_remote_samples_are_not_kept(far: FarStore) -> None:
    table = next(iter(_far_loader(far, "mds", shuffle="global", collate="arrow")))
    assert table.get_total_buffer_size() < 2 * 8 * (_BYTES + 200)


_EPOCHS = """
import gc, os, sys
from pathlib import Path
import lading

def resident_mb():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

large = lading.concat([lading.open(sys.argv[1])] * 20)
loader = lading.loader(large, 16, shuffle="block", decode={"bin": bytearray})
grown = []
for _ in range(10):
    assert sum(len(batch["__key__"]) for batch in loader) == int(sys.argv[2])
    grown.append(resident_mb())
print(min(grown[-3:]) - max(grown[:3]))  # between epochs, memory that was freed is given back or not
"""


@pytest.mark.soak
def test_memory_does_not_grow_from_epoch_to_epoch(folders: Path) -> None:
    """In a process of its own: other tests leave memory behind that is used again, or not."""
    asked = [sys.executable, "-c", _EPOCHS, str(folders / "parquet"), str(20 * _COUNT)]
    assert float(subprocess.run(asked, check=True, capture_output=True, text=True).stdout) < 50


@pytest.mark.parametrize(
    "shuffle", [Shuffle("global"), Shuffle("block", 1000), Shuffle("block", 250), Shuffle("block", 300)]
)
def test_a_billion_samples(shuffle: Shuffle) -> None:
    ends = np.arange(1, 1_000_001, dtype=np.int64) * 1000
    tracemalloc.start()
    began = time.process_time()
    order = Order(ends, shuffle, 7, 0)
    share = Share(order.num_samples, 64, "short", 3, 8)
    numbers = order.at(np.concatenate(share.positions(0, 2)))
    cpu_s = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len({*numbers.tolist()}) == 128
    assert (numbers.min() >= 0, numbers.max() < 1_000_000_000) == (True, True)
    assert cpu_s < 2
    assert peak < 100 << 20


def test_a_changed_file_of_a_loader_with_maps_is_noticed(folders: Path, tmp_path: Path) -> None:
    """The size is looked at before each read: what was read before the file became shorter must not be touched."""
    path = tmp_path / "one.tar"
    path.write_bytes(next((folders / "webdataset").glob("*00002.tar")).read_bytes())
    loader = lading.loader(path, 8, decode=False, ahead_bytes=1)
    loop = iter(loader)
    next(loop)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptShard, match="the file changed while it was open"):
        _keys(loop)


def test_tiny_samples_are_not_planned_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes would allow millions of samples, for which the first batch must not wait."""
    with lading.writer(tmp_path / "tiny", format="arrow") as writer:
        writer.write_batch(pa.record_batch({"number": np.arange(3_000_000)}))
    planned, chunks = list[int](), EpochReader.chunks

    def counted(*args: Any) -> Iterator[Chunk]:
        for chunk in chunks(*args):
            planned.append(sum(map(len, chunk.steps)))
            yield chunk

    monkeypatch.setattr(EpochReader, "chunks", counted)
    batches = iter(lading.loader(tmp_path / "tiny", 8, shuffle=True))
    next(batches)
    assert 8 <= sum(planned) <= 8 * 2**9
    batches.close()
