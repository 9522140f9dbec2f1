"""What a loop says of itself: the numbers are those of the batches that it was given, and of what the store was asked.

No test depends on how long anything takes: seconds are compared with each other.
"""

from __future__ import annotations

import re
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading._core.units import format_bytes
from lading.errors import UsageError
from lading.train import Loader, Metrics, plan
from object_server import options

_COUNT, _BYTES, _SHARDS, _BATCH = 60, 20_000, 4, 8
_BATCHES = 8
_FORMATS = ("webdataset", "mds", "arrow", "parquet", "mds-zstd", "arrow-zstd")
_BROKEN = (5, 30, 31)


class _Remote(MemoryStore):
    request_bytes = FsspecStore.request_bytes


@pytest.fixture(scope="module")
def written() -> MemoryStore:
    store, random = _Remote({}), np.random.default_rng(0)
    for name in _FORMATS:
        form, _, compression = name.partition("-")
        with lading.writer(
            f"far://{name}", format=form, rows_per_shard=_COUNT // _SHARDS, stores=Stores({"far://": store}),
            options={"compression": compression} if compression else {},
        ) as writer:  # fmt: skip
            for i in range(_COUNT):
                writer.write({"__key__": f"{i:03}", "bin": random.bytes(_BYTES)})
    return store


@pytest.fixture
def far(written: MemoryStore) -> CountingStore:
    return CountingStore(written)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, random = tmp_path_factory.mktemp("metrics") / "tars", np.random.default_rng(0)
    with lading.writer(folder, format="webdataset", rows_per_shard=_COUNT // _SHARDS) as writer:
        for i in range(_COUNT):
            writer.write({"__key__": f"{i:03}", "bin": random.bytes(_BYTES)})
    return folder


def _sound(sample: dict[str, Any]) -> dict[str, Any]:
    if int(sample["__key__"]) in _BROKEN:
        raise ValueError("broken")
    return {**sample, "bin": len(sample["bin"])}


def _integers(metrics: Metrics) -> dict[str, int]:
    return {name: value for name, value in metrics.to_dict().items() if isinstance(value, int)}


# Numbers


def test_the_numbers_are_those_of_the_batches(folder: Path) -> None:
    loader = lading.loader(folder, _BATCH, shuffle=True, transform=_sound, on_error="skip")
    assert _integers(loader.metrics)["samples"] == 0
    begun = time.perf_counter()
    given = sum(len(batch["__key__"]) for batch in loader)
    wall, found = time.perf_counter() - begun, loader.metrics
    assert (found.batches, found.batch, found.of_batches, found.epoch) == (_BATCHES, _BATCHES, _BATCHES, 0)
    assert (found.samples, found.skipped) == (given, len(loader.skipped)) == (_COUNT, len(_BROKEN))
    assert _COUNT * _BYTES <= found.payload_bytes <= _COUNT * (_BYTES + 50)
    assert 0 < found.first_batch_seconds <= found.waited_seconds <= found.seconds <= wall
    assert found.own_seconds >= 0 < found.fetch_seconds
    assert found.decode_seconds > 0
    assert (found.requests, found.read_bytes, found.cache_bytes, found.downloads) == (None,) * 4


def test_the_time_of_the_body_is_the_loops_own(folder: Path) -> None:
    loader, slept = lading.loader(folder, 30), 0.0
    for _ in loader:
        begun = time.perf_counter()
        time.sleep(0.002)
        slept += time.perf_counter() - begun
    assert slept <= loader.metrics.own_seconds <= loader.metrics.seconds


def test_a_loop_that_was_left_has_numbers_up_to_its_last_batch(folder: Path) -> None:
    loader = lading.loader(folder, _BATCH)
    for step, _ in enumerate(loader, 1):
        assert (loader.metrics.batches, loader.metrics.samples) == (step, step * _BATCH)
        if step == 3:
            break
    state = loader.state_dict()
    other = lading.loader(folder, _BATCH)
    other.load_state_dict(state)
    rest = sum(len(batch["__key__"]) for batch in other)
    found = other.metrics
    assert (found.batches, found.batch, found.samples) == (_BATCHES - 3, _BATCHES, rest)
    next(iter(loader))
    assert (loader.metrics.epoch, loader.metrics.batch, loader.metrics.samples) == (1, 1, _BATCH)


def test_padding_counts_as_samples(folder: Path) -> None:
    loaders = [lading.loader(folder, 7, last="pad", rank=rank, world_size=2) for rank in range(2)]
    assert [len([*loader]) for loader in loaders] == [5, 5]
    assert [loader.metrics.samples for loader in loaders] == [35, 35]


def test_a_mixture_without_end_has_no_number_of_batches(folder: Path) -> None:
    loader = lading.loader(lading.mix({"one": (folder, 1)}, stop="never"), _BATCH)
    assert len([*islice(loader, 20)]) == 20
    assert (loader.metrics.batch, loader.metrics.of_batches) == (20, None)
    assert "of_batches" not in loader.metrics.to_dict()
    assert loader.metrics.line.startswith("epoch 0  batch 20  ")


# Remote stores


@pytest.mark.parametrize("name", _FORMATS)
@pytest.mark.parametrize("shuffle", ["block", "global"])
def test_reads_are_what_the_store_was_asked_for(far: CountingStore, name: str, shuffle: Any) -> None:
    dataset = lading.open(f"far://{name}", stores=Stores({"far://": far}))
    loader = lading.loader(dataset, _BATCH, shuffle=shuffle, ahead_bytes=10 * _BYTES)
    for _ in range(2):
        far.reset()
        assert sum(len(batch["__key__"]) for batch in loader) == _COUNT
        shards = {path: ranges for path, ranges in far.ranges.items() if "_lading" not in path}
        found = loader.metrics
        assert found.requests == sum(map(len, shards.values()))
        assert found.read_bytes == sum(length for ranges in shards.values() for _, length in ranges)


def test_loops_inside_of_each_other_count_their_own_reads(far: CountingStore) -> None:
    """The training loop reads ahead while the other one reads."""
    dataset = lading.open("far://webdataset", stores=Stores({"far://": far}))
    train, check = (lading.loader(dataset, _BATCH, shuffle="global", seed=seed) for seed in (0, 1))
    far.reset()
    checked = 0
    for step, _ in enumerate(train):
        if step == 2:
            checked = len([*check])
    assert checked == _BATCHES
    assert train.metrics.samples == check.metrics.samples == _COUNT
    both = [loader.metrics.read_bytes for loader in (train, check)]
    assert sum(both) == far.bytes_read
    assert min(both) >= _COUNT * _BYTES


def test_shards_are_downloaded_in_the_first_epoch(far: CountingStore, tmp_path: Path) -> None:
    dataset = lading.open("far://webdataset", stores=Stores({"far://": far}), cache_dir=tmp_path / "cache")
    loader = lading.loader(dataset, _BATCH, shuffle="block")
    assert len([*loader]) == _BATCHES
    first = loader.metrics
    assert first.downloads == _SHARDS
    assert len([*loader]) == _BATCHES
    later = loader.metrics
    assert (later.requests, later.read_bytes, later.downloads) == (0, 0, 0)
    assert min(first.cache_bytes, later.cache_bytes) >= _COUNT * _BYTES


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="worker processes need Linux here")
def test_workers_send_what_they_read(folder: Path, server: str, tmp_path: Path) -> None:
    """The shards are downloaded once by the workers together, and read once without a cache."""
    at: dict[str, Any] = {"storage_options": options(server)}
    written = lading.open(folder).write("s3://bucket/tars", format="webdataset", shard_size="350KB", **at)
    far: dict[str, Any] = {**at, "shuffle": "global"}
    kept = lading.loader("s3://bucket/tars", _BATCH, workers=2, cache_dir=str(tmp_path / "cache"), **far)
    alone, both = (lading.loader("s3://bucket/tars", _BATCH, workers=workers, **far) for workers in (0, 2))
    first, later, one, two = (_measured(loader) for loader in (kept, kept, alone, both))
    for found in (first, later, two):
        assert found.readers == 2
        assert (found.samples, found.payload_bytes) == (one.samples, one.payload_bytes)
    assert first.downloads == written.shards > 1
    assert (later.requests, later.read_bytes, later.downloads) == (0, 0, 0)
    assert min(later.cache_bytes, one.read_bytes, two.read_bytes) >= _COUNT * _BYTES


def _measured(loader: Loader) -> Metrics:
    assert len([*loader]) == _BATCHES
    return loader.metrics


@pytest.mark.parametrize("name", ["webdataset", "parquet"])
@pytest.mark.parametrize("shuffle", ["block", "global"])
def test_a_plan_is_shown_beside_what_was_measured(far: CountingStore, name: str, shuffle: Any) -> None:
    """Opening shards is measured alone: so an epoch is taken in which they are open."""
    dataset = lading.open(f"far://{name}", stores=Stores({"far://": far}))
    planned, loader = plan(dataset, _BATCH, shuffle=shuffle), lading.loader(dataset, _BATCH, shuffle=shuffle)
    with pytest.raises(UsageError, match="no batch"):
        planned.beside(loader.metrics)
    for _ in range(1 + (name == "webdataset")):  # readers of Parquet keep the row groups
        assert len([*loader]) == _BATCHES
    found = loader.metrics
    assert found.read_bytes == pytest.approx(planned.read_bytes, rel=0.1)
    _, *rows = (re.split(r"\s{2,}", line.strip()) for line in planned.beside(found).splitlines())
    assert rows == [
        ["samples", "60 an epoch", "60"],
        ["bytes of samples", format_bytes(planned.rank_bytes), format_bytes(found.payload_bytes)],
        ["bytes read", format_bytes(planned.read_bytes), format_bytes(found.read_bytes)],
        ["requests", f"{planned.requests:,}", f"{found.requests:,}"],
    ]


def test_a_plan_is_shown_beside_metrics_alone(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"found Loader.*Write plan\.beside\(loader\.metrics\)"):
        plan(folder, 15).beside(lading.loader(folder, 15))  # type: ignore[arg-type]


def test_a_plan_is_cut_to_the_part_of_an_epoch_that_was_measured(folder: Path) -> None:
    loader = lading.loader(folder, 15)
    assert len([*islice(loader, 2)]) == 2
    shown = plan(folder, 15).beside(loader.metrics)
    half = format_bytes(round(plan(folder, 15).rank_bytes / 2))
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["samples", "bytes"], "local reads are not counted"
    assert half in shown


# Reports


@pytest.mark.parametrize("every", [1, 3, 8, 100, None])
@pytest.mark.parametrize("skipped", [0, 2])
def test_reports_are_of_the_batches_since_the_last_one(folder: Path, every: int | None, skipped: int) -> None:
    """Together they are the whole loop; a resumed loop reports at the same batches."""
    told: list[Metrics] = []
    loader = lading.loader(folder, _BATCH, log_every=every, on_metrics=told.append)
    if skipped:
        first = lading.loader(folder, _BATCH)
        assert len([*islice(first, skipped)]) == skipped
        loader.load_state_dict(first.state_dict())
    assert len([*loader]) == _BATCHES - skipped
    whole = loader.metrics
    step = every or _BATCHES
    assert [each.batch for each in told] == sorted({*range(step, _BATCHES, step), _BATCHES} - {*range(skipped + 1)})
    for name in ("batches", "samples", "payload_bytes"):
        assert sum(getattr(each, name) for each in told) == getattr(whole, name), name
    for name in ("waited_seconds", "fetch_seconds", "decode_seconds", "first_batch_seconds"):
        assert sum(getattr(each, name) for each in told) == pytest.approx(getattr(whole, name)), name
    for each in told:
        assert all(type(value) in (int, float) for value in each.to_dict().values())


def test_a_loop_that_is_left_reports_no_more(folder: Path) -> None:
    told: list[Metrics] = []
    loader = lading.loader(folder, _BATCH, log_every=2, on_metrics=told.append)
    assert len([*islice(loader, 5)]) == 5
    assert [each.batch for each in told] == [2, 4]


def test_an_error_of_the_function_ends_the_loop_at_the_next_batch(folder: Path) -> None:
    def broken(_: Metrics) -> None:
        raise RuntimeError("no network")

    loader = lading.loader(folder, _BATCH, log_every=2, on_metrics=broken)
    with pytest.raises(RuntimeError, match="no network"):
        list(loader)
    assert loader.batches_done == 2


def test_lines_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loader = lading.loader(folder, _BATCH, log_every=5, transform=_sound, on_error="skip")
    assert len([*loader]) == _BATCHES
    out, err = capsys.readouterr()
    rates = r"[\d,.]+ samples/s  [\d,.]+ [KMG]?B/s  waited \d+ %"
    assert out == ""
    assert re.fullmatch(
        rf"epoch 0  batch 5 of 8  {rates}  skipped 3\nepoch 0  batch 8 of 8  {rates}  skipped 3  in [\d.]+ m?s\n", err
    )


def test_rank_0_prints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loader = lading.loader(folder, _BATCH, log_every=1, rank=1, world_size=2)
    assert len([*loader]) == 4
    assert capsys.readouterr().err == ""


def test_the_text_says_the_numbers(folder: Path) -> None:
    loader = lading.loader(folder, _BATCH, transform=_sound, on_error="skip")
    assert "no batch yet" in str(loader.metrics)
    assert len([*loader]) == _BATCHES
    found = loader.metrics
    first, *lines = str(found).splitlines()
    assert first == "Metrics  epoch 0  batch 8 of 8"
    shown = {line[:25].strip(): line[26:] for line in lines}
    assert [*shown] == ["samples", "payload", "waited", "fetching", "decoding", "skipped", "advice"]
    assert ": 60 in" in shown["samples"]
    assert format_bytes(found.payload_bytes) in shown["payload"]
    assert shown["skipped"].startswith("3 samples")


def test_the_advice_names_what_the_loop_waits_for() -> None:
    def metrics(
        waited: float, fetch: float, decode: float, first: float = 0.0, readers: int = 1, read: int | None = None
    ) -> Metrics:
        return Metrics(
            epoch=0, batch=9, of_batches=9, batches=9, samples=9, skipped=0, payload_bytes=9, waited_seconds=waited,
            first_batch_seconds=first, own_seconds=10 - waited, fetch_seconds=fetch, decode_seconds=decode,
            readers=readers, threads=4, requests=read, read_bytes=read, cache_bytes=read, downloads=read,
        )  # fmt: skip

    assert "keeps up: the loop takes" in metrics(0.2, 9, 20).advice
    assert "keeps up, but its threads take cores" in metrics(0.2, 9, 39).advice
    assert "decoding is the limit" in metrics(5, 5, 36).advice
    assert "fetching is the limit" in metrics(5, 9, 4).advice
    assert "fewer workers=" in metrics(5, 18, 4, readers=2, read=20).advice
    assert "fewer workers=" not in metrics(5, 18, 4, readers=2, read=10).advice
    assert "fewer workers=" not in metrics(5, 18, 4, readers=2).advice
    assert "first batch" in metrics(5, 1, 4, first=4).advice
    assert "first batch" in metrics(5, 9, 36, first=4).advice  # what was busy then says little about the rest
    assert "while threads were idle" in metrics(5, 1, 4).advice
    assert (metrics(5, 9, 20).fetching, metrics(5, 9, 20).decoding, metrics(5, 9, 20).waited) == (0.9, 0.5, 0.5)


# Refusals


@pytest.mark.parametrize("given", [{"log_every": 0}, {"log_every": 1.5}, {"log_every": True}, {"on_metrics": "wandb"}])
def test_wrong_arguments_are_refused(folder: Path, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(given))):
        lading.loader(folder, **given)


def test_a_function_that_would_never_be_called_is_refused(folder: Path) -> None:
    endless = lading.mix({"one": (folder, 1)}, stop="never")
    with pytest.raises(UsageError, match=r"on_metrics would never be called.*log_every=100"):
        lading.loader(endless, 8, on_metrics=print)
    told: list[Metrics] = []
    loader = lading.loader(endless, 8, on_metrics=told.append, log_every=4)
    assert len([*islice(loader, 9)]) == 9
    assert [each.batch for each in told] == [4, 8]


@pytest.mark.parametrize("given", [{"log_every": 5}, {"on_metrics": print}])
def test_loops_over_something_else_report_nothing(folder: Path, given: dict[str, Any]) -> None:
    loader = lading.loader(folder, **given)
    with pytest.raises(UsageError, match=f"{next(iter(given))}= with to_torch"):
        loader.to_torch()
    with pytest.raises(UsageError, match=r"with lading\.pack"):
        lading.pack(loader, 8, column="bin", tokenizer=list)
