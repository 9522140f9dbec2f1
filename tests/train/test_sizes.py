"""Batches by size through the loader: they are the same whatever the ranks, the workers and the stop."""

from __future__ import annotations

import io
import json
import pickle
from itertools import chain, islice, zip_longest
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import lading
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.train.loader import Loader
from lading.errors import FunctionError, UsageError
from tars import tar_of
from training import ranks

_COUNT = 120


class _Remote(MemoryStore):
    request_bytes = 1 << 20


_TEXTS: dict[str, Any] = {"batch_tokens": 64, "bucket_by": "len(txt)", "shuffle": True, "seed": 3}
_SIZES = [(32, 32), (24, 48), (48, 24)]


def _length(i: int) -> int:
    return 1 + (i * 37) % 50


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sizes")
    for name in ("webdataset", "parquet"):
        with lading.writer(folder / name, format=name, rows_per_shard=50) as writer:
            for i in range(_COUNT):
                writer.write({"__key__": f"{i:05}", "txt": "é" * _length(i), "json": {"tokens": _length(i)}})
    return folder


def _picture(i: int) -> tuple[int, int]:
    """Width and height of a picture."""
    return (20 + 7 * (i % 9), 20 + 5 * (i % 11))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures") / "tars"
    with lading.writer(folder, format="webdataset", rows_per_shard=30) as writer:
        for i in range(60):
            data = io.BytesIO()
            Image.new("RGB", _picture(i), (i, 0, 0)).save(data, "PNG")
            name = "png" if i >= 30 and i % 4 == 0 else "jpg"  # the first shard has no column of this name
            writer.write({"__key__": f"{i:05}", name: data.getvalue(), "txt": f"{i}"})
    return folder


def _keys(batch: dict[str, Any]) -> list[str]:
    """The keys of a batch, without samples that come again."""
    again = batch.get("__padding__", [False] * len(batch["__key__"]))
    return [key for key, padded in zip(batch["__key__"], again, strict=True) if not padded]


def _job(loops: list[Any], steps: int | None = None) -> list[list[str]]:
    """The batches of the next steps of all ranks, in the order of the job."""
    found = [[_keys(batch) for batch in islice(loop, steps)] for loop in loops]
    assert steps is not None or len({*map(len, found)}) == 1
    return [batch for step in zip_longest(*found) for batch in step if batch]


@pytest.mark.parametrize("name", ["webdataset", "parquet"])
def test_batches_have_at_most_so_many_tokens_after_padding(texts: Path, name: str) -> None:
    loader = lading.loader(texts / name, **_TEXTS)
    epochs = [[*loader], [*loader]]
    for batches in epochs:
        assert sorted(chain.from_iterable(map(_keys, batches))) == [f"{i:05}" for i in range(_COUNT)]
        assert all(len(batch["txt"]) * max(map(len, batch["txt"])) <= 64 for batch in batches)
    assert len(epochs[0]) == len(epochs[1]) == len(loader)
    assert [*map(_keys, epochs[0])] != [*map(_keys, epochs[1])]
    by_json = lading.loader(texts / name, **{**_TEXTS, "bucket_by": None, "length": "json.tokens"})
    called = lading.loader(texts / name, **{**_TEXTS, "bucket_by": None, "length": lambda sample: len(sample["txt"])})
    assert [*map(_keys, by_json)] == [*map(_keys, called)] == [*map(_keys, epochs[0])]


@settings(max_examples=12)
@given(data=st.data())
def test_another_job_goes_on_with_the_same_batches(texts: Path, data: st.DataObject) -> None:
    options: dict[str, Any] = data.draw(st.sampled_from([
        _TEXTS, {**_TEXTS, "last": "pad"}, {**_TEXTS, "max_padding": 0.3, "shuffle": "block"},
        {"bucket_by": "json.tokens", "shuffle": False},
    ]))  # fmt: skip
    size = 8 if "batch_tokens" not in options else None
    world, other = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    alone = _job(ranks(texts / "parquet", size, 1, **options))  # type: ignore[arg-type]
    first = ranks(texts / "parquet", size, world, **options)  # type: ignore[arg-type]
    steps = data.draw(st.integers(0, len(first[0])))
    loops = [iter(each) for each in first]
    before = _job(loops, steps)
    [state] = {json.dumps(each.state_dict()) for each in first}
    again = ranks(texts / "parquet", size, other, **options)  # type: ignore[arg-type]
    for loader in again:
        loader.load_state_dict(json.loads(state))
    if again[0].epoch == 0:
        assert before + _job([*again]) == alone
    else:
        assert before == alone


@pytest.mark.soak
def test_worker_processes_make_the_same_batches(texts: Path) -> None:
    expected = [_keys(batch) for batch in lading.loader(texts / "webdataset", **_TEXTS)]
    loader = lading.loader(texts / "webdataset", **_TEXTS, workers=2)
    batches = iter(loader)
    found = [_keys(next(batches)) for _ in range(5)]
    state = loader.state_dict()
    assert found + [_keys(batch) for batch in batches] == expected
    other = lading.loader(texts / "webdataset", **_TEXTS, world_size=1, rank=0)
    other.load_state_dict(state)
    assert [_keys(batch) for batch in other] == expected[5:]


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # of torchdata's
@pytest.mark.parametrize("every", [1, 3])
def test_the_state_of_a_stateful_dataloader(texts: Path, every: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    expected = [_keys(batch) for batch in lading.loader(texts / "parquet", **_TEXTS)]
    options: dict[str, Any] = {"batch_size": None, "num_workers": 2, "snapshot_every_n_steps": every}
    first = stateful(lading.loader(texts / "parquet", **_TEXTS).to_torch(), **options)
    found = [_keys(batch) for batch in islice(first, 7)]
    state = pickle.loads(pickle.dumps(first.state_dict()))
    other = lading.loader(texts / "parquet", **_TEXTS)
    other.load_state_dict(state)
    assert found + [_keys(batch) for batch in other] == expected


@pytest.mark.parametrize("change, words", [
    ({"batch_tokens": 65}, "batch_tokens differs; expected 65, found 64"),
    ({"batch_size": 4}, "batch_size differs; expected 4"),
    ({"max_padding": 0.1}, "max_padding differs"),
    ({"bucket_by": "len(txt) + 1"}, "bucket_by differs"),
    ({"bucket_by": None, "length": "json.tokens"}, "bucket_by differs"),
    ({"batch_tokens": None, "bucket_by": None, "batch_size": 4}, "of neighbours, found batches by size"),
    ({"seed": 4}, "the seed differs"),
])  # fmt: skip
def test_states_of_other_batches_are_refused(texts: Path, change: dict[str, Any], words: str) -> None:
    state = lading.loader(texts / "parquet", **_TEXTS).state_dict()
    with pytest.raises(UsageError, match=words):
        lading.loader(texts / "parquet", **{**_TEXTS, **change}).load_state_dict(state)
    plain = lading.loader(texts / "parquet", 4, shuffle=True, seed=3).state_dict()
    with pytest.raises(UsageError, match="expected batches by size, found batches of neighbours"):
        lading.loader(texts / "parquet", **_TEXTS).load_state_dict(plain)


def test_a_state_of_a_function_that_counts_otherwise_is_refused(texts: Path) -> None:
    def made(more: int) -> Loader:
        def count(sample: dict[str, Any]) -> int:
            return len(sample["txt"]) + more

        return lading.loader(texts / "parquet", batch_tokens=64, length=count, shuffle=True)

    loader = made(0)
    next(iter(loader))
    made(0).load_state_dict(loader.state_dict())
    with pytest.raises(UsageError, match="the sizes of samples differ"):
        made(9).load_state_dict(loader.state_dict())
    ends = np.cumsum([len(batch["txt"]) for batch in made(0)])
    within = next(position for position in range(_COUNT) if position and position not in ends)
    with pytest.raises(UsageError, match="the position of the state"):
        made(0).load_state_dict({**loader.state_dict(), "position": within})


def test_samples_larger_than_a_batch(texts: Path) -> None:
    options: dict[str, Any] = {**_TEXTS, "batch_tokens": 40}
    large = {f"{i:05}" for i in range(_COUNT) if _length(i) > 40}
    with pytest.raises(
        UsageError, match=rf"(?s)sample '{min(large)}'.*larger than a batch.*batch_tokens=40.*too_large"
    ):
        lading.loader(texts / "parquet", **options)
    alone = [_keys(batch) for batch in lading.loader(texts / "parquet", **options, too_large="alone")]
    assert {*chain.from_iterable(each for each in alone if large & {*each})} == large
    assert all(len(each) == 1 for each in alone if large & {*each})
    for ask in (lading.loader, lading.train.plan):
        with pytest.raises(UsageError, match="all samples are larger than a batch"):
            ask(lading.open(texts / "parquet").where("json.tokens > 40"), **options, too_large="skip")
    with pytest.raises(UsageError, match="at least 1 full batches, a step of all ranks, found 0"):
        lading.loader(texts / "parquet", _COUNT, bucket_by="len(txt)", last="drop")
    loader = lading.loader(texts / "parquet", **options, too_large="skip")
    left = sorted(chain.from_iterable(map(_keys, loader)))
    assert left == [f"{i:05}" for i in range(_COUNT) if f"{i:05}" not in large]
    assert loader.counts["samples larger than a batch, left out of each epoch"] == len(large)


def test_samples_that_fill_no_batch_are_counted(texts: Path) -> None:
    options: dict[str, Any] = {**_TEXTS, "batch_tokens": 400, "last": "drop"}
    loaders = ranks(texts / "parquet", None, 2, **options)  # type: ignore[arg-type]
    [left_out] = {each.counts["samples that fill no batch of their size, left out of an epoch"] for each in loaders}
    assert 0 < left_out == _COUNT - sum(len(_keys(batch)) for each in loaders for batch in each)
    assert f"{left_out} samples that fill no batch of their size" in repr(loaders[0])
    made = lading.train.plan(texts / "parquet", **options, world_size=2)
    assert any(f'last="drop" leaves out {left_out} of 120 samples' in said for said in made.advice)
    for source, more in ((options, "a larger max_padding"), ({**_TEXTS, "batch_tokens": 4000}, "smaller batches")):
        assert any(more in said for said in lading.train.plan(texts / "parquet", **source).advice)
    assert lading.loader(texts / "parquet", **_TEXTS).counts == {}


def test_images_of_their_own_sizes_are_bounded_in_pixels(pictures: Path) -> None:
    """The sizes are in columns of two names: each sample has one of them."""
    for batch in lading.loader(pictures, batch_pixels=20_000, decode=False, shuffle=True):
        sides = np.array([_picture(int(key)) for key in batch["__key__"]])
        assert sides.max(axis=0).prod() * len(sides) <= 20_000


def test_images_in_aspect_buckets(pictures: Path) -> None:
    loader = lading.loader(pictures, 4, image_size=_SIZES, columns=["__key__", "jpg", "png"], missing="list",
                           shuffle=True)  # fmt: skip
    seen = []
    for batch in loader:
        sizes = {image.shape[:2] for image in [*batch["jpg"], *batch["png"]] if image is not None}
        assert len(sizes) == 1
        [(height, width)] = sizes
        for key in batch["__key__"]:
            shape = log(_picture(int(key))[0] / _picture(int(key))[1])
            far = [abs(shape - log(w / h)) for h, w in _SIZES]
            assert far[_SIZES.index((height, width))] == min(far)
        seen += batch["__key__"]
    assert sorted(seen) == [f"{i:05}" for i in range(60)]
    whole = lading.loader(pictures, 4, image_size=_SIZES, last="drop", decode={"jpg": None, "png": None})
    assert {len(batch["__key__"]) for batch in whole} == {4}
    for batch in lading.loader(pictures, batch_pixels=3 * 48 * 48, image_size=[(48, 48), (24, 48)], missing="list"):
        [shape] = {image.shape for image in [*batch["jpg"], *batch["png"]] if image is not None}
        assert len(batch["__key__"]) <= {(48, 48, 3): 3, (24, 48, 3): 6}[shape]


def test_aspect_buckets_are_those_of_the_image_that_is_read(tmp_path: Path) -> None:
    """Lists of images have no one size; nor have columns that are not read a say."""

    def image(width: int, height: int) -> Image.Image:
        return Image.new("RGB", (width, height))

    with lading.writer(tmp_path / "a", format="parquet") as writer:
        for i in range(8):
            wide, high = image(40, 20), image(20, 40)
            writer.write({"frames": [wide] * (i % 3), "square": image(30, 30), "photo": wide if i % 2 else high})
    shapes = [
        batch["photo"].shape
        for batch in lading.loader(tmp_path / "a", 4, image_size=[(16, 32), (24, 24), (32, 16)], columns=["photo"])
    ]
    assert sorted(shapes) == [(4, 16, 32, 3), (4, 32, 16, 3)]
    [whole] = lading.loader(tmp_path / "a", 8, image_size=[(16, 32), (24, 24), (32, 16)])
    assert whole["square"].shape == whole["photo"].shape == (8, 24, 24, 3)
    assert [len(each) for each in whole["frames"]] == [i % 3 for i in range(8)]
    with pytest.raises(UsageError, match=r"(?s)expected square, photo, found 'frames'"):
        lading.loader(tmp_path / "a", 8, image_size=[(16, 32), (32, 16)], bucket_by="frames")


def test_a_broken_image_is_replaced_by_one_of_the_same_bucket(tmp_path: Path) -> None:
    def jpeg(wide: bool) -> bytes:
        data = io.BytesIO()
        Image.new("RGB", (64, 32) if wide else (32, 64)).save(data, "JPEG")
        return data.getvalue()

    with lading.writer(tmp_path / "a", format="webdataset") as writer:
        for i in range(12):
            data = jpeg(i % 2 == 0)
            writer.write({"__key__": f"{i:02}", "jpg": data[: len(data) // 2] if i in (3, 4) else data})
    loader = lading.loader(tmp_path / "a", 3, image_size=[(16, 32), (32, 16)], on_error="skip", shuffle=True)
    for batch in loader:
        assert {int(key) % 2 for key in batch["__key__"]} == {int(batch["jpg"].shape[1] > batch["jpg"].shape[2])}
    assert sorted(each.key or "" for each in loader.skipped) == ["03", "04"]


def test_ranks_read_blocks_of_remote_files_once(tmp_path: Path) -> None:
    table = pa.table({"txt": ["x" * (1 + i * 37 % 50) for i in range(8000)], "more": ["y" * 1000] * 8000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100, compression="none")
    store = _Remote({"box://d/a.parquet": (tmp_path / "a.parquet").read_bytes()})
    dataset = lading.open("box://d", stores=Stores({"box://": store}))
    made = lading.train.plan(dataset, batch_tokens=100, bucket_by="len(txt)", world_size=8)
    assert made.shuffle.kind == "block"
    assert made.read_bytes < 1.2 * made.rank_bytes
    across = lading.train.plan(dataset, 40, bucket_by="len(txt)", world_size=8)  # of a fixed number: buckets fill later
    assert across.read_bytes > 1.5 * across.rank_bytes
    assert any("cache_dir" in each for each in across.advice)
    assert made.padding is not None
    assert made.padding < 0.2
    loader = lading.loader(dataset, batch_tokens=100, bucket_by="len(txt)", shuffle=True, columns=["txt"])
    lengths = [[len(text) for text in batch["txt"]] for batch in loader]
    assert sorted(chain.from_iterable(lengths)) == sorted(1 + i * 37 % 50 for i in range(8000))
    assert all(max(each) * len(each) <= 100 for each in lengths)


def test_sequences_are_not_packed_of_batches_by_size(texts: Path) -> None:
    with pytest.raises(UsageError, match="no batches by size"):
        lading.pack(lading.loader(texts / "parquet", **_TEXTS), 64, tokenizer=lambda text: [*text.encode()])


def test_a_sample_without_an_image_is_named(tmp_path: Path, pictures: Path) -> None:
    with lading.writer(tmp_path / "a", format="webdataset") as writer:
        for i, sample in enumerate(lading.open(pictures).with_decode(False)[29:37]):
            writer.write({**sample, "jpg": None, "png": None} if i == 5 else sample)
    condition = "jpg.width is not null or png.width is not null"
    # Of two columns, each sample has one.
    with pytest.raises(UsageError, match=rf"(?s)row 5 sample '00034'.*no size.*{condition}"):
        lading.loader(tmp_path / "a", 2, image_size=_SIZES)
    assert sum(len(batch["__key__"]) for batch in lading.open(tmp_path / "a").where(condition).loader(
        2, image_size=_SIZES, missing="list")) == 7  # fmt: skip


def test_mixtures(texts: Path) -> None:
    both = {"a": (lading.open(texts / "parquet"), 0.75), "b": (lading.open(texts / "webdataset"), 0.25)}
    loader = lading.loader(lading.mix(both, seed=1), batch_tokens=64, bucket_by="len(txt)", shuffle=True)
    assert sum(len(batch["txt"]) for batch in loader) == _COUNT * 4 // 3
    endless = lading.mix(both, stop="never")
    with pytest.raises(UsageError, match="need an epoch that ends"):
        lading.loader(endless, batch_tokens=64, bucket_by="len(txt)")
    loader = lading.loader(endless, batch_tokens=64, bucket_by="len(txt)", epoch_size=50)
    assert [sum(len(batch["txt"]) for batch in loader) for _ in range(2)] == [50, 50]


def test_the_weights_of_a_mixture_change_with_an_epoch(texts: Path) -> None:
    """Batches by size are made of a whole epoch: another schedule within it would give samples twice, or never."""

    def made(schedule: Any = None) -> Loader:
        mixed = lading.mix(
            {name: (texts / name, 1) for name in ("webdataset", "parquet")}, stop="never", schedule=schedule
        )
        return lading.loader(mixed, 4, bucket_by="len(txt)", epoch_size=60, shuffle=True)

    loader = made()
    loader.set_epoch(1)
    loop = iter(loader)
    next(loop)
    state = loader.state_dict()
    assert state["seen"] == {"webdataset": 60, "parquet": 60}
    for begin in (61, 90, 110):
        with pytest.raises(UsageError, match=r"weights before the end of the epoch .*from the next epoch on"):
            made({begin: {"webdataset": 1, "parquet": 9}}).load_state_dict(state)
    other = made({120: {"webdataset": 1, "parquet": 9}})
    other.load_state_dict(state)
    assert [_keys(batch) for batch in other] == [*map(_keys, loop)]
    assert "(webdataset 6, parquet 54)" in repr(other)


def test_documents_by_their_number_of_items(tmp_path: Path) -> None:
    texts = [{"sample_id": f"{i}", "texts": ["text"] * (1 + i % 3), "images": [None] * (1 + i % 3)} for i in range(12)]
    (tmp_path / "d.tar").write_bytes(
        tar_of(*((f"{i}.json", json.dumps(each).encode()) for i, each in enumerate(texts)))
    )
    by_field = lading.loader(tmp_path / "d.tar", 2, bucket_by="items.text", shuffle=True)
    called = lading.loader(tmp_path / "d.tar", batch_tokens=6, length=lambda sample: len(sample["items"]), shuffle=True)
    for batch in by_field:
        assert {len(items) for items in batch["items"]} in ({1}, {2}, {3})
    for batch in called:
        assert max(map(len, batch["items"])) * len(batch["items"]) <= 6
    with pytest.raises(UsageError, match="a document has any number of images"):
        lading.loader(tmp_path / "d.tar", batch_pixels=100)


@pytest.mark.parametrize("options, words", [
    ({"batch_tokens": 64}, "batch_tokens needs the tokens"),
    ({"batch_tokens": 64, "bucket_by": "len(txt)", "length": "json.tokens"}, "found both"),
    ({"batch_tokens": 64, "batch_pixels": 9, "bucket_by": "len(txt)"}, "one bound"),
    ({"batch_tokens": 0, "bucket_by": "len(txt)"}, "batch_tokens must be a whole number"),
    ({"bucket_by": "len(txt)"}, "how large a batch is"),
    ({"batch_size": 4, "length": "json.tokens"}, "length says the tokens that batch_tokens= bounds"),
    ({"batch_size": 4, "bucket_by": "txt"}, r'Its length is "len\(txt\)"'),
    ({"batch_size": 4, "max_padding": 0.1}, "max_padding is for batches by size"),
    ({"batch_size": 4, "bucket_by": "len(txt)", "max_padding": 1.0}, "a number from 0 to below 1"),
    ({"batch_size": 4, "too_large": "skip"}, "too_large is for samples above a bound"),
    ({"batch_size": 4, "bucket_by": "len(txt)", "too_large": "skip"}, "too_large is for samples above a bound"),
    ({"batch_tokens": 64, "bucket_by": "len(txt)", "too_large": "drop"}, "no such way"),
    ({"batch_size": 4, "bucket_by": "len(text)"}, "no such column"),
    ({"batch_size": 4, "bucket_by": "json.token"}, "json.tokens"),
    ({"batch_size": 4, "bucket_by": "len(txt"}, "not a condition"),
    ({"batch_size": 4, "bucket_by": len}, "bucket_by is a text"),
    ({"batch_pixels": 100}, "no column holds images"),
    ({"batch_pixels": 100, "image_size": 32}, "images of one size need no bound"),
    ({"batch_tokens": 64, "image_size": _SIZES}, "tokens say nothing about images of several sizes"),
    ({"batch_size": 4, "image_size": _SIZES, "max_padding": 0.1}, "Leave max_padding out"),
    ({"batch_pixels": 10_000, "image_size": _SIZES, "too_large": "skip"}, "Leave too_large out"),
    ({"batch_tokens": 64, "image_size": _SIZES}, "Write batch_pixels= or batch_size="),
    ({"batch_pixels": 64, "image_size": _SIZES}, "at most batch_pixels=64.*Raise batch_pixels"),
])  # fmt: skip
def test_what_is_no_way_to_make_batches_is_refused(texts: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lading.loader(texts / "parquet", **options)


def test_a_sample_without_a_size_is_named(tmp_path: Path, texts: Path) -> None:
    with lading.writer(tmp_path / "a", format="webdataset") as writer:
        for i in range(5):
            writer.write({"__key__": f"{i}", "txt": f"{i}", "json": {"n": i} if i != 3 else {}})
    with pytest.raises(UsageError, match=r"(?s)row 3 sample '3'.*no size.*json.n is not null"):
        lading.loader(tmp_path / "a", batch_tokens=64, length="json.n")
    some = lading.open(tmp_path / "a").where("json.n is not null")
    assert sum(len(batch["txt"]) for batch in lading.loader(some, batch_tokens=64, length="json.n")) == 4

    def broken(sample: dict[str, Any]) -> int:
        return 1 // (sample["json"]["tokens"] - 1)

    with pytest.raises(FunctionError, match=r"(?s)sample '00000'.*the function of length raised an error"):
        lading.loader(texts / "parquet", batch_tokens=64, length=broken)
    with pytest.raises(UsageError, match=r"(?s)row 1 .*a sample has no size.*found -1"):
        lading.loader(texts / "parquet", batch_tokens=64, length=lambda sample: -int(sample["__key__"]))


def test_a_plan_says_the_batches_and_their_padding(texts: Path) -> None:
    """As they are in the first epoch of the loader."""
    options = {**_TEXTS, "too_large": "skip", "batch_tokens": 40}
    made = lading.train.plan(texts / "parquet", **options, world_size=2)
    batches = [[len(text) for text in batch["txt"]] for batch in lading.loader(texts / "parquet", **options)]
    padded = sum(max(sizes) * len(sizes) for sizes in batches)
    assert made.padding == pytest.approx(1 - sum(map(sum, batches)) / padded)
    assert made.random_padding is not None
    assert made.random_padding > made.padding
    assert made.batches == -(-len(batches) // 2)
    lengths = [_length(i) for i in range(_COUNT) if _length(i) <= 40]
    assert (made.samples, made.left_out) == (len(lengths), _COUNT - len(lengths))
    assert [each.smallest for each in made.buckets] == sorted(each.smallest for each in made.buckets)
    for each in made.buckets:
        [low], [high] = each.smallest, each.largest
        assert each.samples == sum(low <= length <= high for length in lengths)
        assert each.batch_samples == 40 // high
        assert each.batches == each.samples // each.batch_samples
