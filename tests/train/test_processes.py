"""Worker processes of a loader: the same batches, and no process, file or memory that outlives its loop."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import lading
from lading._core.train.processes import Failed
from lading.errors import FunctionError, StoreError, UsageError
from lading.train import Metrics
from processes import children, open_files, wait_until_gone

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")

_COUNT = 53
_BROKEN = (3, 4, 20)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "tars"
    with lading.writer(folder, format="webdataset", rows_per_shard=10) as writer:
        for i in range(_COUNT):
            data = io.BytesIO()
            Image.new("RGB", (80, 60), (i, 2 * i, 255 - i)).save(data, "PNG")
            image = b"no image" if i in _BROKEN else data.getvalue()
            writer.write({"__key__": f"{i:05}", "png": image, "json": {"i": i}, "cls": i})
    return folder


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers") / "parquet"
    with lading.writer(folder, format="parquet", rows_per_shard=10) as writer:
        for i in range(_COUNT):
            writer.write({"__key__": f"{i:05}", "number": i})
    return folder


def _plain(value: Any) -> Any:
    """A batch as values that can be compared, with the types of its arrays and whether they can be written to."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.flags.writeable, value.tobytes()
    if isinstance(value, pa.Table):
        return value.schema, value.to_pylist()
    return ("tensor", str(value.dtype), value.tolist()) if type(value).__module__ == "torch" else value


def _counted(metrics: Metrics) -> tuple[int, ...]:
    return metrics.batch, metrics.batches, metrics.samples, metrics.skipped, metrics.payload_bytes


def _shared_names(pid: int) -> set[str]:
    """What a process has of the memory that names make public, and of locks there."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {path for path in (*open_files(pid), *(line.split()[-1] for line in lines)) if path.startswith("/dev/shm")}


@pytest.mark.soak
@pytest.mark.parametrize(
    "workers, collate, options",
    [
        (1, "torch", {}),
        (2, "numpy", {"transform": lambda s: {"pixels": s["png"], "twice": 2 * s["cls"], "by": np.eye(2)}}),
        (3, "list", {"batch_transform": lambda batch: batch[::-1], "rank": 1, "world_size": 2}),
        (2, "arrow", {}),
    ],
)
def test_batches_are_those_without_workers(images: Path, workers: int, collate: Any, options: dict[str, Any]) -> None:
    """Two epochs, of which the first is resumed with another number of workers; with broken samples in them."""
    if collate == "torch":
        pytest.importorskip("torch")
    options = {"shuffle": "global", "seed": 3, "on_error": "skip", "collate": collate, **options}
    alone, loader = lading.loader(images, 4, **options), lading.loader(images, 4, workers=workers, **options)
    assert children(os.getpid()) == []
    names, seen = _shared_names(os.getpid()), []
    for _ in range(2):
        expected = [_plain(batch) for batch in alone]
        found = [_plain(batch) for batch in loader]
        assert found == expected
        assert loader.counts == alone.counts
        assert _counted(loader.metrics) == _counted(alone.metrics)
        seen.append(children(os.getpid()))
    assert seen[0] == seen[1], "they wait for the next epoch"
    assert len(seen[0]) == workers
    assert [_shared_names(pid) for pid in (os.getpid(), *seen[0])] == [names, *[set()] * workers]
    assert (alone.counts.total() > 0) is (collate != "arrow")
    assert [_plain(batch) for batch in loader] == [_plain(batch) for batch in alone]

    loader.set_epoch(1)
    steps = iter(loader)
    assert [_plain(next(steps)) for _ in range(5)] == expected[:5]
    alone.load_state_dict(loader.state_dict())
    assert [_plain(batch) for batch in alone] == expected[5:]
    del steps, loader
    gc.collect()
    wait_until_gone(seen[0])


@pytest.mark.mechanism("errors of a loader's workers")
def test_an_error_is_that_without_workers(numbers: Path) -> None:
    class OwnError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        warnings.warn("look here", UserWarning, stacklevel=1)
        if sample["number"] == 23:
            raise OwnError(1, 2) from KeyError("deep")
        return sample

    texts, seen = [], []
    for workers in (0, 2):
        batches = iter(lading.loader(numbers, 5, transform=transform, workers=workers))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            seen.append([next(batches)["number"].tolist() for _ in range(4)])
            with pytest.raises(FunctionError) as caught:
                next(batches)
        texts.append(str(caught.value))
        assert {str(each.message) for each in warned} == {"look here"}
    assert seen == 2 * [[[*range(i, i + 5)] for i in range(0, 20, 5)]]
    assert texts[0] == texts[1]
    assert "row 3 sample '00023': the function of transform raised an error" in texts[0]
    assert repr(caught.value.__cause__) == "RuntimeError('OwnError: 1 and 2')"
    assert repr(caught.value.__cause__.__cause__) == "KeyError('deep')"
    [note] = caught.value.__notes__
    assert note.startswith("In worker 0 of 2 (process ")
    assert "raise OwnError(1, 2) from KeyError" in note
    wait_until_gone(children(os.getpid()))


def test_errors_cross_with_all_that_they_came_from() -> None:
    error = StoreError("outer", file="a.tar")
    error.__cause__ = ZeroDivisionError("inner")
    found = Failed.of(error).raised("worker 1")
    assert isinstance(found, StoreError)
    assert found.file == "a.tar"
    assert isinstance(found.__cause__, ZeroDivisionError)


@pytest.mark.mechanism("a worker of a loader that is killed")
def test_a_worker_that_is_killed_is_an_error(numbers: Path) -> None:
    loader = lading.loader(numbers, 4, workers=2)
    loop = iter(loader)
    next(loop)
    running = sorted(children(os.getpid()))
    assert len(running) == 2
    os.kill(running[1], signal.SIGKILL)
    words = rf"worker 1 of 2 \(process {running[1]}\) died; expected batch (\d+) of the loop.*signal 9 \(SIGKILL\)"
    with pytest.raises(StoreError, match=words) as caught:
        list(loop)
    found = re.search(words, str(caught.value))
    assert found is not None
    first = 4 * int(found[1])
    assert (Path(str(caught.value.file)).name, caught.value.row) == (f"shard-{first // 10:06}.parquet", first % 10)
    wait_until_gone(running)
    assert len([*loader]) == len(loader), "the next loop has new workers"


@pytest.mark.soak
def test_a_worker_that_stands_still_is_an_error(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading._core.train.processes._GRACE_S", 0.0)
    before = children(os.getpid())
    loop = iter(lading.loader(numbers, 4, workers=1, timeout=2))
    next(loop)
    [running] = {*children(os.getpid())} - {*before}
    os.kill(running, signal.SIGSTOP)
    with pytest.raises(StoreError, match=r"row \d+: worker 0 of 1 \(process \d+\) does not answer; .*within 2 s"):
        list(loop)
    wait_until_gone([running])


@pytest.mark.soak
@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_that_hangs_is_an_error_that_shows_it(numbers: Path, workers: int) -> None:
    before = children(os.getpid())

    def stuck(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["number"] == 10:
            threading.Event().wait()
        return sample

    loop = iter(lading.loader(numbers, 4, transform=stuck, workers=workers, threads=1, timeout=3))
    assert [next(loop)["number"].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(
        FunctionError, match=r"row 8: the batch that begins with this sample was not made in time"
    ) as caught:
        next(loop)
    assert "in stuck" in caught.value.__notes__[0]
    wait_until_gone([*{*children(os.getpid())} - {*before}])


@pytest.mark.mechanism("the end of a loader's workers")
def test_workers_end_with_a_loop_that_ends_early(numbers: Path) -> None:
    before = children(os.getpid())  # a loader of an earlier test may not be collected yet
    loader = lading.loader(numbers, 4, workers=1)
    for _ in loader:
        running = [*{*children(os.getpid())} - {*before}]
        assert len(running) == 1
        break
    wait_until_gone(running)
    assert loader.epoch == 0


@pytest.mark.soak
def test_what_cannot_be_pickled_is_refused(numbers: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"cannot be sent this value.*found transform=.*workers=0"):
        next(iter(lading.loader(numbers, 4, workers=1, transform=lambda s: {**s, "locked": lock.locked()})))
    with pytest.raises(UsageError, match=r"cannot send this batch.*generator.*workers=0"):
        next(iter(lading.loader(numbers, 4, workers=1, batch_transform=lambda batch: (name for name in batch))))
    with pytest.raises(UsageError, match="workers must be a whole number of at least 0"):
        lading.loader(numbers, 4, workers=-1)


@pytest.mark.soak
def test_a_python_without_a_program_is_advised_to_use_threads(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(UsageError, match=r"sys\.executable is empty.*workers=0"):
        next(iter(lading.loader(numbers, 4, workers=1)))


_SCRIPT = """
import os, sys, time
import lading

def say(*words):  # in one piece: workers write to the same pipe
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def transform(sample):
    if sample["number"] == 20:
        say("slow", os.getpid())
        time.sleep(1000)
    return sample

for batch in lading.loader(sys.argv[1], 4, workers=2, transform=transform):
    say("batch", batch["number"].tolist())
"""


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_program(numbers: Path, number: signal.Signals, tmp_path: Path) -> None:
    """A script without `if __name__ == "__main__"`, ended while a worker is in the middle of a function."""
    (tmp_path / "script.py").write_text(_SCRIPT)
    (tmp_path / "tmp").mkdir()
    script = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(numbers)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, start_new_session=True,
    )  # fmt: skip
    with script:
        assert script.stdout is not None
        assert script.stderr is not None
        lines: list[str] = []
        while sum(map(len, lines)) == 0 or not any("slow" in line for line in lines) or len(lines) < 6:
            lines.append(script.stdout.readline())
            assert lines[-1], script.stderr.read()
        running = children(script.pid)
        assert len(running) == 2
        os.killpg(script.pid, number)
        wait_until_gone(running)
        assert script.wait() == -number
        told = script.stderr.read()
    assert told.count("Traceback") == (number == signal.SIGINT)
    assert [line for line in lines if "batch" in line] == [f"batch {[*range(i, i + 4)]}\n" for i in range(0, 20, 4)]
    assert list((tmp_path / "tmp").iterdir()) == []
