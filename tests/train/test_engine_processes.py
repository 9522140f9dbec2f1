"""Loaders in several processes: real ranks, a job that is killed and starts again, Ctrl-C, forks."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import lading
from processes import children, wait_until_gone

_COUNT = 240
_KEYS = [f"{i:05}" for i in range(_COUNT)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes") / "tars"
    with lading.writer(folder, format="webdataset", rows_per_shard=50) as writer:
        for i, key in enumerate(_KEYS):
            writer.write({"__key__": key, "txt": f"text {i}"})
    return folder


def _run(script: str, *arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)


# One script starts all ranks by forks, so that torch is imported once.
_RANKS = """
import json, os, sys
import torch.distributed as dist
import lading

source, folder = sys.argv[1:]

def train(rank, world_size, batch_size, steps, state, name):
    dist.init_process_group("gloo", init_method=f"file://{folder}/{name}.rendezvous", rank=rank, world_size=world_size)
    loader = lading.loader(source, batch_size, shuffle=True, seed=3)
    if state is not None:
        loader.load_state_dict(state)
    seen = []
    for batch in loader:
        again = batch.get("__padding__", [False] * len(batch["__key__"]))
        seen.append([key for key, padding in zip(batch["__key__"], again) if not padding])
        steps -= 1
        if not steps:
            break
    states = [None] * world_size
    dist.all_gather_object(states, loader.state_dict())
    assert all(each == states[0] for each in states), states
    with open(f"{folder}/{name}-{rank}.json", "w") as file:
        json.dump({"seen": seen, "state": states[0]}, file)
    dist.barrier()
    dist.destroy_process_group()

def job(world_size, batch_size, steps, state, name):
    pids = []
    for rank in range(world_size):
        pid = os.fork()
        if not pid:
            try:
                train(rank, world_size, batch_size, steps, state, name)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * world_size
    found = [json.load(open(f"{folder}/{name}-{rank}.json")) for rank in range(world_size)]
    return [each["seen"] for each in found], found[0]["state"]

first, state = job(2, 7, 6, None, "two")
second, end = job(3, 5, -1, state, "three")
print(json.dumps([first, second, state, end]))
"""


@pytest.mark.mechanism("torch.distributed")
def test_two_real_processes_then_three(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    process = _run(_RANKS, data, tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    first, second, state, end = json.loads(out)
    assert (state["position"], end["epoch"], end["position"]) == (2 * 7 * 6, 1, 0)
    assert {len(rank) for rank in first} == {6}
    assert len({len(rank) for rank in second}) == 1
    epoch = [batch["__key__"][0] for batch in lading.loader(data, 1, shuffle=True, seed=3)]
    for ranks, expected in ((first, epoch[:84]), (second, epoch[84:])):
        assert sorted(key for rank in ranks for batch in rank for key in batch) == sorted(expected)
    assert sorted(epoch) == _KEYS


# A line is a step that is done, with the state that was saved after it.
_TRAIN = """
import json, sys
import lading

source, log = sys.argv[1:]
loader = lading.loader(source, 3, shuffle="block", seed=9)
lines = open(log).read().split("\\n")[:-1]
if lines:
    loader.load_state_dict(json.loads(lines[-1])["state"])
with open(log, "r+") as file:
    file.truncate(sum(len(line) + 1 for line in lines))
    file.seek(0, 2)
    for batch in loader:
        file.write(json.dumps({"keys": batch["__key__"], "state": loader.state_dict()}) + "\\n")
        file.flush()
        print(len(batch), flush=True)
        sys.stdin.readline()
print("epoch", loader.epoch, flush=True)
"""


@pytest.mark.mechanism("a training job that is killed")
def test_a_killed_job_starts_again_at_once(data: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    for steps in (1, 17):
        with _run(_TRAIN, data, log) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n" * (steps + 5))  # it goes on for a few steps while it is killed
            process.stdin.flush()
            for _ in range(steps):
                assert process.stdout.readline()
            process.kill()
    process = _run(_TRAIN, data, log)
    out, err = process.communicate(timeout=120)
    assert (out.splitlines()[-1:], err) == (["epoch 1"], "")
    seen = [key for line in log.read_text().splitlines() for key in json.loads(line)["keys"]]
    assert seen == [key for batch in lading.loader(data, 7, shuffle="block", seed=9) for key in batch["__key__"]]
    assert sorted(seen) == _KEYS


_READ = """
import os, sys, tempfile, threading
from pathlib import Path
import lading
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import WrappedStore

class Silent(WrappedStore):
    request_bytes = 1 << 20
    silent = False
    def __init__(self, inner):
        super().__init__(inner, mapped=False)
        self.request_bytes = 1 << 20
    def get_ranges(self, path, ranges, version=""):
        if self.silent:
            os.write(1, b"waiting\\n")
            threading.Event().wait()
        return super().get_ranges(path, ranges, version)

folder = Path(sys.argv[1])
files = {f"far://{p.relative_to(folder)}": p.read_bytes() for p in folder.rglob("*") if p.is_file()}
store = Silent(MemoryStore(files))
loader = lading.loader(lading.open("far://", stores=Stores({"far://": store})), 8, shuffle=sys.argv[2], ahead_bytes=1)
for i, batch in enumerate(loader):
    store.silent = i == 2
"""


@pytest.mark.soak
@pytest.mark.parametrize("shuffle", ["global", "block"])
def test_ctrl_c_ends_at_once_while_a_store_is_silent(tmp_path: Path, shuffle: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with lading.writer(tmp_path / "large", format="webdataset", rows_per_shard=20) as writer:  # not read with headers
        for i in range(100):
            writer.write({"__key__": f"{i:05}", "bin": bytes(200_000)})
    with _run(_READ, tmp_path / "large", shuffle, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert process.returncode == -signal.SIGINT
    assert [*temporary.iterdir()] == []


# In the first batch, no call of the function for ever takes long.
_LEFT = """
import atexit, gc, os, signal, sys, threading, time
import lading

source, how, what = sys.argv[1:]
inside = threading.Event()

def slow(sample):
    if sample["__key__"] < "00004":
        return {"x": 1}
    inside.set()
    if what == "for ever":
        threading.Event().wait()
    while what == "numpy":  # OpenBLAS waits for its threads at the very end
        ones @ ones
    for _ in range(20):
        torch.ones(500, 500) @ torch.ones(500, 500)
    return {"x": 1}

if what == "torch":
    import torch
if what == "numpy":
    import numpy
    ones = numpy.ones((500, 500))
atexit.register(print, "the handler")
loop = iter(lading.loader(source, 4, threads=1, transform=slow))
next(loop)
assert inside.wait(60)
if how == "break":
    del loop
elif how == "close":
    loop.close()
elif how == "error":
    raise ValueError
elif how == "cycle":
    cycle = [loop]
    cycle.append(cycle)
    del cycle, loop
elif how == "twice":
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    threading.Event().wait()
sys.exit(7)
"""


def _left(data: Path, how: str, what: str, wait_s: str) -> tuple[int, str, str]:
    """Status, output and last line of the errors of a program that leaves a loop half way."""
    with _run(_LEFT, data, how, what, env={**os.environ, "LADING_EXIT_WAIT_S": wait_s}) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, (err.splitlines() or [""])[-1]


_CUT_OFF = "lading: slow did not end within 0.2 s, and is cut off; LADING_EXIT_WAIT_S sets the time"


@pytest.mark.mechanism("the end of a process with a loop half way")
def test_the_end_of_the_program_names_a_function_that_does_not_end(data: Path) -> None:
    assert _left(data, "half way", "for ever", "0.2") == (7, "the handler\n", _CUT_OFF)


@pytest.mark.soak
@pytest.mark.parametrize("wait_s", ["0", "30"])
@pytest.mark.parametrize("how", ["half way", "break", "close", "error", "cycle"])
def test_a_loop_of_torch_that_is_left_does_not_abort(data: Path, how: str, wait_s: str) -> None:
    pytest.importorskip("torch")
    status, out, err = _left(data, how, "torch", wait_s)
    assert (status, out) == (1 if how == "error" else 7, "the handler\n"), err
    assert wait_s == "0" or err in ("", "ValueError")


@pytest.mark.soak
def test_a_calculation_of_openblas_does_not_hold_the_end(data: Path) -> None:
    assert _left(data, "half way", "numpy", "0.2") == (7, "the handler\n", _CUT_OFF)


@pytest.mark.soak
def test_a_second_ctrl_c_ends_the_wait_for_a_function(data: Path) -> None:
    assert _left(data, "twice", "for ever", "600") == (-signal.SIGINT, "the handler\n", "KeyboardInterrupt")


_PHASES = """
import os, sys, threading
import lading

source, where, kind = sys.argv[1:]

def stay(value):
    os.write(1, b"here\\n")
    threading.Event().wait()

def spin(value):
    if where == "batches":
        os.write(1, b"here\\n")
    return value

options = {where: stay} if where != "batches" else {"transform": spin}
loader = lading.loader(source, 8, workers=2 * (kind == "workers"), **options)
if kind == "torch":
    from torch.utils.data import DataLoader
    loader = DataLoader(loader.to_torch(), batch_size=None, num_workers=2, multiprocessing_context="fork")
while True:
    for batch in loader:
        pass
"""


@pytest.mark.mechanism("Ctrl-C in a loop")
@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "kind, where",
    [*product(["threads", "workers", "torch"], ["transform", "batch_transform", "batches"])],
)
def test_ctrl_c_ends_in_any_phase(data: Path, where: str, kind: str) -> None:
    """In the first batch, while a function does not return, and in the middle of epochs; as a terminal sends it."""
    if kind == "torch":
        pytest.importorskip("torch")
    command = [sys.executable, "-c", _PHASES, str(data), where, kind]
    env = {**os.environ, "LADING_EXIT_WAIT_S": "0"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        running = children(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err.splitlines()[-2:], err  # a line may name the function that does not return
    assert len(running) == (0 if kind == "threads" else 2)
    assert len(err.splitlines()) < (60 if kind == "torch" else 30), err
    wait_until_gone(running)


@pytest.mark.mechanism("fork in a loop")
def test_a_forked_process_begins_a_loop_of_its_own(data: Path) -> None:
    """While the threads of the parent read: a lock that one of them holds is never free in the child."""
    loader = lading.loader(data, 4, shuffle=True, transform=lambda sample: sample)
    whole, following = ([key for batch in loader for key in batch["__key__"]] for _ in range(2))
    loader.set_epoch(0)
    loop = iter(loader)
    seen = next(loop)["__key__"]
    for _ in range(8):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            found: Any = "nothing"
            try:
                try:
                    next(loop)
                except lading.LadingError as error:
                    found = str(error)
                mine = [key for batch in loader for key in batch["__key__"]]
                os.write(write, pickle.dumps((found, mine == following, threading.active_count())))
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as answer:
            error, same, _ = pickle.loads(answer.read())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert "this loop began in another process" in error
        assert same
        seen += next(loop)["__key__"]
    assert seen + [key for batch in loop for key in batch["__key__"]] == whole


@pytest.mark.mechanism("torch's workers over a loader")
def test_workers_of_torch(data: Path) -> None:
    """A loader in an iterable dataset, of which each worker is a rank."""
    torch = pytest.importorskip("torch")

    class Batches(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            worker = torch.utils.data.get_worker_info()
            mine = lading.loader(data, 8, shuffle=True, rank=worker.id, world_size=worker.num_workers)
            for batch in mine:
                again = batch["__padding__"]
                yield [key for key, padding in zip(batch["__key__"], again, strict=True) if not padding]

    loop = torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=2, multiprocessing_context="fork")
    before = children(os.getpid())
    assert sorted(key for batch in loop for key in batch) == _KEYS
    wait_until_gone([pid for pid in children(os.getpid()) if pid not in before])


_TRUNCATE = """
import os, sys
import lading

loader = lading.loader(lading.open(sys.argv[1], mmap=False), 4, shuffle="global", ahead_bytes=10_000)
for i, batch in enumerate(loader):
    if i == 2:
        for name in os.listdir(sys.argv[1]):
            if "." in name:
                os.truncate(os.path.join(sys.argv[1], name), 1000)
"""


@pytest.mark.mechanism("files that are cut under a loader")
@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["webdataset", "mds", "arrow", "parquet"])
def test_truncated_files_do_not_end_the_process_without_maps(tmp_path: Path, name: str) -> None:
    with lading.writer(tmp_path / "data", format=name, rows_per_shard=60) as writer:
        for i, key in enumerate(_KEYS):
            writer.write({"__key__": key, "bin": os.urandom(2000), "n": i})
    process = _run(_TRUNCATE, tmp_path / "data")
    _, err = process.communicate(timeout=120)
    assert process.returncode in (0, 1), err
    assert process.returncode == 0 or "lading.errors." in err.splitlines()[-1]
