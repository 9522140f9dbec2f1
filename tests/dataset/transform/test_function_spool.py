"""Functions are called once a sample, whatever steps follow; what comes out is what it is without a spool."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lading
from documents import WIDE, documents
from lading._core.dataset.transform.function_spool import FunctionSpool, SampleRows, StepSpool, joined
from lading.errors import StoreError

Change = Callable[..., Any]
COUNT = 60


@pytest.fixture
def folder(tmp_path: Path) -> str:
    with lading.writer(tmp_path / "in", format="parquet", shard_size="1KB") as writer:
        for number in range(COUNT):
            writer.write({"__key__": f"{number:03d}", "n": number * 7 % COUNT, "txt": f"text {number}"})
    return str(tmp_path / "in")


@pytest.fixture
def tar(tmp_path: Path) -> str:
    """Documents of 1 to 5 items."""
    whole = [
        (
            f"d{n:02d}",
            ["words" if (n + i) % 2 else WIDE for i in range(1 + n % 5)],
            {"score": n * 7 % 20},
        )
        for n in range(20)
    ]
    (tmp_path / "in.tar").write_bytes(documents(*whole))
    return str(tmp_path / "in.tar")


class Calls:
    """Functions that count their calls by the key of each sample."""

    def __init__(self) -> None:
        self.by_key: Counter[str] = Counter()

    def see(self, sample: Any) -> int:
        key = sample["__key__"] if "__key__" in sample else sample["sample_id"]
        self.by_key[key] += 1
        return int("".join(filter(str.isdigit, key)))

    def made(self, sample: Any) -> dict[str, Any]:
        number = self.see(sample)
        return {"m": number * 11 % 17, "txt": f"new {number}"} if number % 3 else {"m": number * 11 % 17}

    def late(self, sample: Any) -> dict[str, Any]:
        """Nothing in the first samples: their type is found late."""
        number = self.see(sample)
        return {"m": number % 5, "found": None if number < COUNT // 2 else number / 2}

    def raising(self, sample: Any) -> dict[str, Any]:
        if (number := self.see(sample)) % 7 == 3:
            raise ValueError(number)
        return {"m": number}

    def chosen(self, sample: Any) -> bool:
        return self.see(sample) % 3 > 0

    def chosen_or_raising(self, sample: Any) -> bool:
        if (number := self.see(sample)) % 7 == 3:
            raise ValueError(number)
        return number % 3 > 0

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.by_key.update(batch.column("__key__").to_pylist())
        return batch.append_column("m", pc.multiply(batch.column("n"), -1)).drop_columns(["txt"])

    def chosen_batch(self, batch: pa.RecordBatch) -> pa.Array:
        self.by_key.update(batch.column("__key__").to_pylist())
        return pc.greater(batch.column("n"), 20)


STEPS: dict[str, Callable[[Calls, bool], Callable[[lading.Dataset], lading.Dataset]]] = {
    "map": lambda calls, spool: lambda ds: ds.map(calls.made, spool=spool),
    "map with declared types": lambda calls, spool: (
        lambda ds: ds.map(calls.made, columns={"m": "int32", "txt": "string"}, spool=spool)
    ),
    "map with types found late": lambda calls, spool: lambda ds: ds.map(calls.late, spool=spool),
    "map that raises": lambda calls, spool: lambda ds: ds.map(calls.raising, on_error="drop_sample", spool=spool),
    "filter": lambda calls, spool: lambda ds: ds.filter(calls.chosen, spool=spool).rename({"n": "m"}),
    "filter that raises": lambda calls, spool: (
        lambda ds: ds.filter(calls.chosen_or_raising, on_error="drop_sample", spool=spool).rename({"n": "m"})
    ),
    "map_batches": lambda calls, spool: lambda ds: ds.map_batches(calls.batch, spool=spool),
    "filter_batches": lambda calls, spool: (
        lambda ds: ds.filter_batches(calls.chosen_batch, spool=spool).rename({"n": "m"})
    ),
}

THEN: dict[str, Change] = {
    "nothing": lambda ds: [list(ds)],
    "sort": lambda ds: [list(ds.sort("m"))],
    "batches": lambda ds: [batch.to_pylist() for batch in ds.sort("m").batches()],
    "shuffle": lambda ds: [list(ds.shuffle(seed=1))],
    "sample": lambda ds: [list(ds.sample(0.5))],
    "dedup": lambda ds: [list(ds.dedup(by="m"))],
    "dedup of all": lambda ds: [list(ds.dedup(by="content"))],
    "limit": lambda ds: [list(ds.sort("m").limit(7))],
    "len": lambda ds: [len(ds), list(ds)],
    "len in order": lambda ds: [
        len(ordered := ds.sort("m")),
        list(ordered),
        list(ordered),
        ordered[3],
        list(ordered[:5]),
    ],
    "schema": lambda ds: [str(ds.schema), list(ds.sort("m"))],
    "steps behind": lambda ds: [list(ds.sort("m").drop("m").shuffle(seed=2))],
    "split": lambda ds: [list(part) for part in ds.split({"a": 0.5, "b": 0.5}).values()],
    "take_keys": lambda ds: [list(ds.take_keys(["005", "001", "050"], missing="skip"))],
}


@pytest.mark.parametrize("then", THEN)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.cases(len(THEN))
def test_function_is_called_once_a_sample_whatever_follows(folder: str, step: str, then: str) -> None:
    calls, again = Calls(), Calls()
    found = THEN[then](STEPS[step](calls, True)(lading.open(folder)))
    assert found == THEN[then](STEPS[step](again, False)(lading.open(folder)))
    assert set(calls.by_key.values()) == {1}
    assert set(calls.by_key) <= set(again.by_key)


def test_two_functions_before_two_orders_are_called_once_each(folder: str) -> None:
    one, two, three = Calls(), Calls(), Calls()
    ds = lading.open(folder).map(one.made).filter(two.chosen).sort("m").map(lambda sample: {"k": three.see(sample) % 5})
    found = list(ds.shuffle(seed=3))
    assert [set(calls.by_key.values()) for calls in (one, two, three)] == [{1}, {1}, {1}]
    assert [len(calls.by_key) for calls in (one, two, three)] == [COUNT, COUNT, len(found)]


def test_each_access_of_samples_without_an_order_calls_again(folder: str) -> None:
    """A function may be random, to augment samples: each access and each epoch is another one."""
    calls = Calls()
    ds = lading.open(folder).map(calls.made)
    _ = ds.schema
    for _ in range(3):
        list(ds)
    assert set(calls.by_key.values()) == {3}
    assert [ds[5]["m"], ds[5]["m"]] == [55 % 17] * 2
    assert calls.by_key["005"] == 5


def test_functions_of_another_order_are_called_again(folder: str) -> None:
    calls = Calls()
    ds = lading.open(folder).map(calls.made)
    for epoch in range(3):
        list(ds.shuffle(seed=epoch))
    assert set(calls.by_key.values()) == {3}


def without_second_item(calls: Calls) -> Change:
    def changed(document: Any) -> dict[str, Any]:
        number = calls.see(document)
        items = [item for place, item in enumerate(document["items"]) if place != 1]
        return {"items": [*items, {"modality": "text", "text_content": "new"}], "m": number % 6}

    return changed


@pytest.mark.parametrize("then", ["nothing", "sort", "shuffle", "dedup of all", "len in order", "split"])
@pytest.mark.cases(6)
def test_function_is_called_once_a_document(tar: str, then: str) -> None:
    calls, again = Calls(), Calls()
    found, expected = (
        THEN[then](lading.open(tar).with_decode(False).map(without_second_item(each), spool=each is calls))
        for each in (calls, again)
    )
    assert str(found) == str(expected)
    assert set(calls.by_key.values()) == {1}


def _dropping(calls: Calls) -> Change:
    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.by_key.update(set(batch.column("sample_id").to_pylist()))
        return batch.filter(pc.not_equal(batch.column("position"), 1))

    return changed


def _images(calls: Calls) -> Change:
    def kept(batch: pa.RecordBatch) -> pa.Array:
        calls.by_key.update(set(batch.column("sample_id").to_pylist()))
        return pc.equal(batch.column("modality"), "image")

    return kept


@pytest.mark.parametrize("verb, function", [("map_batches", _dropping), ("filter_batches", _images)])
def test_function_over_batches_of_documents_is_called_once(tar: str, verb: str, function: Change) -> None:
    calls, again = Calls(), Calls()
    found, expected = (
        list(getattr(lading.open(tar).with_decode(False), verb)(function(each), spool=each is calls).sort("score"))
        for each in (calls, again)
    )
    assert str(found) == str(expected)
    assert set(calls.by_key.values()) == {1}


def test_functions_that_change_the_number_of_samples_are_called_again(folder: str) -> None:
    ds = lading.open(folder).map_batches(lambda batch: pa.concat_batches([batch, batch]).sort_by("__key__"))
    assert sum(batch.num_rows for batch in ds.batches()) == 2 * COUNT


# The spool


def _rows(numbers: Sequence[int], text: str = "x") -> SampleRows:
    samples = np.array(numbers, np.int64)
    rows = pa.record_batch({"n": pa.array(samples), "t": [text * 100] * len(samples)})
    return SampleRows(samples, np.ones(len(samples), np.int64), rows)


def test_file_gives_what_memory_gives(tmp_path: Path) -> None:
    held, filed = StepSpool(lambda: str(tmp_path), "a"), StepSpool(lambda: str(tmp_path), "b", lasts=True)
    for numbers in ([5, 1, 3], [10, 12], [2, 11, 40]):
        held.add(_rows(numbers))
        filed.add(_rows(numbers))
    again = StepSpool(lambda: str(tmp_path), "b", lasts=True)
    again.reopen()
    wanted = np.array([40, 0, 3, 2, 12, 41], np.int64)
    for spool in (held, filed, again):
        known, parts = spool.find(wanted)
        whole = joined(parts)
        assert known.tolist() == [True, False, True, True, True, False]
        assert whole is not None
        assert whole.rows.column("n").to_pylist() == [40, 3, 2, 12]


@pytest.mark.parametrize("torn", [1, 30, 200])
def test_torn_end_is_cut_off(tmp_path: Path, torn: int) -> None:
    spool = StepSpool(lambda: str(tmp_path), "a", lasts=True)
    for numbers in ([1, 2], [3, 4]):
        spool.add(_rows(numbers))
    os.truncate(tmp_path / "a", (tmp_path / "a").stat().st_size - torn)
    again = StepSpool(lambda: str(tmp_path), "a", lasts=True)
    again.reopen()
    assert again.find(np.arange(1, 5))[0].tolist() == [True, True, False, False]
    again.add(_rows([3, 4]))
    last = StepSpool(lambda: str(tmp_path), "a", lasts=True)
    last.reopen()
    assert last.find(np.arange(1, 5))[0].all()


def test_memory_is_bounded_and_the_temporary_folder_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    spool = FunctionSpool()
    step = spool.of(0)
    for first in range(0, 3000, 100):
        step.add(_rows(range(first, first + 100), "x" * 100))
    assert [*tmp_path.rglob("function-000")]
    assert step.find(np.arange(0, 3000, 7))[0].all()
    spool.close()
    assert not [*tmp_path.rglob("function-000")]


def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    step = StepSpool(lambda: str(tmp_path / "absent"), "a", lasts=True)
    with pytest.raises(StoreError, match="spool=False"):
        step.add(_rows([1]))


@pytest.mark.parametrize("harm", [os.unlink, lambda path: os.truncate(path, 100)], ids=["removed", "cut"])
@pytest.mark.cases(2)
def test_a_file_that_something_else_harmed_is_an_error(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    step = StepSpool(lambda: str(tmp_path), "a", lasts=True)
    step.add(_rows([1, 2]))
    harm(tmp_path / "a")
    with pytest.raises(StoreError, match="functions are called again") as caught:
        step.find(np.array([1]))
    assert caught.value.file == str(tmp_path / "a")


@pytest.mark.soak
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(tmp_path: Path) -> None:
    spool, held, done = StepSpool(lambda: str(tmp_path), "function"), threading.Event(), threading.Event()

    def hold() -> None:
        with spool._guard():
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(60)  # ends a child that waits
        spool.find(np.array([1, 2]))
        os._exit(0)
    try:
        assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        thread.join()
