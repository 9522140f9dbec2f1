"""What work reads from stores: counted for the work, in whichever threads, and for nobody else."""

from __future__ import annotations

from functools import partial
from threading import Barrier

from lading._core.storage.concurrent import concurrent_map
from lading._core.storage.memory import MemoryStore
from lading._core.storage.threads import Threads
from lading._core.storage.traffic import Read, Traffic, ranges_of

_STORE = MemoryStore({"file": bytes(1000)})


def _read(offset: int, length: int) -> int:
    return len(ranges_of(_STORE, "file", [(offset, length), (0, 1)]))


def test_reads_of_the_body_are_counted_once() -> None:
    traffic = Traffic()
    _read(0, 500)
    with traffic.counted():
        _read(0, 100)
        _read(100, 50)
    _read(0, 500)
    assert traffic.taken() == Read(requests=4, read_bytes=152)
    assert traffic.taken() == Read()


def test_an_inner_work_counts_by_itself() -> None:
    outer, inner = Traffic(), Traffic()
    with outer.counted():
        _read(0, 10)
        with inner.counted():
            _read(0, 20)
        _read(0, 30)
    assert (outer.taken(), inner.taken()) == (Read(4, 42), Read(2, 21))


def test_threads_that_do_tasks_of_the_work_count_for_it() -> None:
    works = [Traffic(), Traffic()]
    both = Barrier(2)

    def task(length: int) -> None:
        both.wait()  # the threads read at the same time
        assert [*concurrent_map([partial(_read, 0, length)] * 20, remote=True)] == [2] * 20

    with Threads(2, "test") as threads:
        results = []
        for number, work in enumerate(works, 1):
            with work.counted():
                results.append(threads.submit(partial(task, 10 * number)))
        for result in results:
            result.result()
    assert [work.taken() for work in works] == [Read(40, 20 * 11), Read(40, 20 * 21)]
