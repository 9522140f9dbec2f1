"""The loader: each sample of an epoch once, in one order, for any number of ranks, wherever training stops."""

from __future__ import annotations

import io
import json
import shutil
import time
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lading
from lading._core.train.loader import Loader
from lading.errors import DataError, FunctionError, UsageError
from training import given, keys, ranks

_COUNT = 53
_FORMATS = ("webdataset", "parquet", "mds", "arrow", "jsonl", "csv")
_KEYS = [f"{i:05}" for i in range(_COUNT)]


def _jpeg(i: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (32, 24), (i, 2 * i, 255 - i)).save(data, "JPEG")
    return data.getvalue()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same samples in each format, in several shards."""
    folder = tmp_path_factory.mktemp("texts")
    for name in _FORMATS:
        with lading.writer(folder / name, format=name, rows_per_shard=10) as writer:
            for i, key in enumerate(_KEYS):
                writer.write({"__key__": key, "txt": f"text {i}", "number": i})
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "tars"
    with lading.writer(folder, format="webdataset", rows_per_shard=10) as writer:
        for i, key in enumerate(_KEYS):
            writer.write({"__key__": key, "jpg": _jpeg(i), "json": {"i": i}, "cls": i})
    return folder


def _keys(loaders: list[Loader]) -> list[str]:
    """The keys of what the ranks of one job are given in an epoch, in the order of the job, without padding."""
    return keys(given(loaders))


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", _FORMATS)
@pytest.mark.parametrize("shuffle", [False, True, "global", "block"])
def test_the_order_is_one_for_any_number_ofranks(texts: Path, name: str, shuffle: Any) -> None:
    dataset = lading.open(texts / name)
    alone = _keys(ranks(dataset, 7, 1, shuffle=shuffle, seed=3))
    assert sorted(alone) == _KEYS
    assert (alone == _KEYS) is (shuffle is False)
    for world in (2, 3, 8):
        for batch_size in (1, 4):
            assert _keys(ranks(dataset, batch_size, world, shuffle=shuffle, seed=3)) == alone


def test_epochs_follow_each_other_and_differ(texts: Path) -> None:
    loader = lading.loader(texts / "parquet", 10, shuffle=True, seed=1)
    epochs = [_keys([loader]) for _ in range(3)]
    assert all(sorted(each) == _KEYS for each in epochs)
    assert all(one != other for one, other in pairwise(epochs))
    assert loader.epoch == 3
    loader.set_epoch(1)
    assert _keys([loader]) == epochs[1]


def test_a_loop_that_ends_early_leaves_its_epoch(texts: Path) -> None:
    """So a job whose epochs are some steps long sees all samples, as with a DataLoader."""
    loader = lading.loader(texts / "mds", 10, shuffle=True)
    whole = lading.loader(texts / "mds", 10, shuffle=True)
    epochs = [_keys([whole]) for _ in range(3)]
    for epoch in range(3):
        batches = iter(loader)
        assert next(batches)["__key__"] + next(batches)["__key__"] == epochs[epoch][:20]
        assert loader.epoch == epoch
    iter(loader)  # a loop that was given no batch leaves nothing
    assert loader.epoch == 3
    loader.set_epoch(0)
    assert next(iter(loader))["__key__"] == epochs[0][:10]
    loader.set_epoch(0)
    assert next(iter(loader))["__key__"] == epochs[0][:10]


@pytest.mark.parametrize("last, sizes", [("short", [20, 20, 13]), ("pad", [20, 20, 20]), ("drop", [20, 20])])
def test_the_last_batch(texts: Path, last: Any, sizes: list[int]) -> None:
    loader = lading.loader(texts / "arrow", 20, last=last)
    batches = [*loader]
    assert [len(batch["__key__"]) for batch in batches] == sizes
    assert len(loader) == len(sizes)
    padding = [
        key for b in batches for key, again in zip(b["__key__"], b.get("__padding__", [0] * 20), strict=False) if again
    ]
    assert padding == (_KEYS[:7] if last == "pad" else [])


@pytest.mark.parametrize(
    "change, words",
    [
        ({"seed": 2}, "the seed differs; expected 2, found 1"),
        ({"shuffle": "block"}, "the shuffle differs"),
        ({"source": "csv"}, "the fingerprint of the data and steps differs"),
        ({"source": "less"}, "the (fingerprint|number of samples)"),
    ],
)
def test_a_state_of_another_order_is_refused(texts: Path, change: dict[str, Any], words: str) -> None:
    state = lading.loader(texts / "parquet", 4, shuffle="global", seed=1).state_dict()
    options: dict[str, Any] = {"shuffle": "global", "seed": 1} | {k: v for k, v in change.items() if k != "source"}
    source: Any = lading.open(texts / ("csv" if change.get("source") == "csv" else "parquet"))
    if change.get("source") == "less":
        source = source.where("number < 20")
    with pytest.raises(UsageError, match=words):
        lading.loader(source, 4, **options).load_state_dict(state)


@pytest.mark.parametrize(
    "change, words",
    [({"version": 99}, "another version"), ({"position": -1}, "position"), ({"position": 54}, "position"),
     ({"epoch": "1"}, "epoch"), (None, "no state of a loader")],
)  # fmt: skip
def test_what_is_no_state_is_refused(texts: Path, change: Any, words: str) -> None:
    loader = lading.loader(texts / "parquet", 4)
    with pytest.raises(UsageError, match=words):
        loader.load_state_dict({} if change is None else {**loader.state_dict(), **change})


@pytest.mark.soak
def test_steps_before_the_loader(texts: Path, images: Path) -> None:
    chosen = lading.open(texts / "webdataset").where("number >= 20").map(lambda s: {**s, "twice": 2 * s["number"]})
    batches = [*lading.loader(chosen, 8, shuffle=True, seed=2)]
    numbers = np.concatenate([batch["number"] for batch in batches])
    assert sorted(numbers.tolist()) == [*range(20, _COUNT)]
    assert np.array_equal(np.concatenate([batch["twice"] for batch in batches]), 2 * numbers)
    split = lading.open(images).split({"train": 0.8, "val": 0.2}, seed=1)
    seen = [sorted(_keys([each.loader(4, columns=["__key__", "cls"], shuffle=True)])) for each in split.values()]
    assert sorted(seen[0] + seen[1]) == _KEYS


def test_batches_are_columns(images: Path) -> None:
    batch = next(iter(lading.loader(images, 4)))
    assert batch["__key__"] == _KEYS[:4]
    assert batch["json"] == [{"i": i} for i in range(4)]
    assert batch["cls"].tolist() == [0, 1, 2, 3]
    assert [(each.shape, each.dtype) for each in batch["jpg"]] == [((24, 32, 3), np.uint8)] * 4
    with Image.open(io.BytesIO(_jpeg(3))) as image:
        assert np.array_equal(batch["jpg"][3], np.array(image))
    small = next(iter(lading.loader(images, 4, image_size=(8, 16))))
    assert small["jpg"].shape == (4, 8, 16, 3)


def test_batches_of_torch(images: Path) -> None:
    torch = pytest.importorskip("torch")
    batch = next(iter(lading.loader(images, 4, collate="torch")))
    assert [(each.shape, each.dtype) for each in batch["jpg"]] == [((3, 24, 32), torch.uint8)] * 4
    batch = next(iter(lading.loader(images, 4, collate="torch", image_size=(24, 32))))
    assert (batch["jpg"].shape, batch["jpg"].dtype) == ((4, 3, 24, 32), torch.uint8)
    assert batch["cls"].tolist() == [0, 1, 2, 3]


def test_other_ways_to_decode_and_collate(images: Path) -> None:
    assert next(iter(lading.loader(images, 2, decode=False)))["jpg"] == [_jpeg(0), _jpeg(1)]
    assert next(iter(lading.loader(images, 2, decode={"jpg": None})))["jpg"] == [_jpeg(0), _jpeg(1)]
    assert next(iter(lading.loader(images, 2, decode={"jpg": len})))["jpg"].tolist() == [len(_jpeg(0)), len(_jpeg(1))]
    assert next(iter(lading.loader(images, 2, decode={"jpg": "pil"})))["jpg"][0].size == (32, 24)
    assert next(iter(lading.loader(images, 2, collate="list", columns=["cls"]))) == [{"cls": 0}, {"cls": 1}]
    assert next(iter(lading.loader(images, 2, collate=len))) == 2
    assert next(iter(lading.loader(images, 2, collate="arrow")))["jpg"].to_pylist() == [_jpeg(0), _jpeg(1)]


def test_functions_of_the_user(images: Path) -> None:
    options: dict[str, Any] = {"transform": lambda s: {"x": s["cls"] + 0.5}, "batch_transform": lambda b: b["x"] * 2}
    assert next(iter(lading.loader(images, 3, **options))).tolist() == [1.0, 3.0, 5.0]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    with lading.writer(tmp_path / "damaged", format="webdataset", rows_per_shard=10) as writer:
        for i, key in enumerate(_KEYS):
            writer.write({"__key__": key, "jpg": b"no image" if i in (3, 4, 20) else _jpeg(i), "cls": i})
    return tmp_path / "damaged"


def test_a_broken_image_is_an_error_with_its_place(damaged: Path) -> None:
    with pytest.raises(DataError, match=r"shard-000000\.tar row 3 .*column 'jpg': the image cannot be opened"):
        [*lading.loader(damaged, 8)]


def test_an_error_of_a_sample_says_what_to_type(damaged: Path) -> None:
    with pytest.raises(DataError, match=r'Read the bytes instead: .*\. Or replace .*: on_error="skip"\.$'):
        list(lading.loader(damaged, 10))
    with pytest.raises(FunctionError, match=r'Correct the function\. .* on_error="skip"\.$'):
        list(lading.loader(damaged, 10, columns=["cls"], transform=lambda _: {}["x"]))
    with pytest.raises(FunctionError, match=r"Correct the function\. .* the next 52 are broken too\.$"):
        list(lading.loader(damaged, 10, columns=["cls"], transform=lambda _: {}["x"], on_error="skip"))
    for wrong in (None, (1, 2)):
        with pytest.raises(UsageError, match=r"transform must return a dict; found .* batch_transform.*where"):
            list(lading.loader(damaged, 10, columns=["cls"], transform=lambda _, wrong=wrong: wrong, on_error="skip"))


@pytest.mark.soak
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_broken_image_is_replaced_by_the_next_sound_one(damaged: Path, shuffle: bool) -> None:
    whole = _keys([lading.loader(damaged, 8, shuffle=shuffle, decode=False)])
    loader = lading.loader(damaged, 8, shuffle=shuffle, on_error="skip")
    found = _keys([loader])
    broken = {_KEYS[i] for i in (3, 4, 20)}
    for i, key in enumerate(whole):
        further = (whole + whole)[i:]
        assert found[i] == next(each for each in further if each not in broken), key
    assert loader.counts["skipped samples, replaced"] == 3


def test_what_was_replaced_counts_when_the_loop_has_it(damaged: Path) -> None:
    """Batches are made ahead of the loop: those of a loop that ended are made again, and count once."""
    loader = lading.loader(damaged, 2, on_error="skip", threads=4)
    seen = []
    for batch in loader:
        time.sleep(0.01)  # more batches are made meanwhile
        seen.append((batch["cls"].tolist(), loader.counts.total()))
        if len(seen) == 2:
            break
    assert seen == [([0, 1], 0), ([2, 5], 1)]
    loader.load_state_dict({**loader.state_dict(), "position": 4})
    assert len([*loader]) == 25
    assert loader.counts.total() == 3


def test_an_error_of_a_function_names_the_sample(images: Path) -> None:
    with pytest.raises(FunctionError, match=r"row 0 sample '00000': the function of transform raised .* ZeroDivision"):
        [*lading.loader(images, 8, transform=lambda s: 1 // s["cls"])]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"last": "keep"}, "short, pad or drop"),
        ({"collate": "tf"}, "no such collate"),
        ({"decode": {"jpg": "cv2"}}, "no such way to decode 'jpg'"),
        ({"shuffle": "py1e"}, "no such shuffle"),
        ({"on_error": "ignore"}, "error or skip"),
        ({"rank": 1}, "both rank and world_size"),
        ({"batch_size": 8.0}, "batch_size must be a whole number of at least 1; found 8.0"),
        ({"seed": "a"}, "seed must be a whole number; found 'a'"),
        ({"seed": None}, "seed must be a whole number; found None"),
        ({"threads": 0}, "threads must be a whole number of at least 1; found 0"),
        ({"workers": True}, "workers must be a whole number of at least 0; found True"),
        ({"columns": "jpg"}, r"columns must be a list of names; found 'jpg'. columns=\['jpg'\]"),
        ({"decode": "pil"}, "decode must say what each column becomes; expected a dict .*, found 'pil'"),
        ({"decode": True}, "decode must say what each column becomes"),
        ({"transform": "flip"}, "transform must be a function; found 'flip'"),
        ({"batch_transform": 3}, "batch_transform must be a function; found 3"),
    ],
)
def test_wrong_arguments_are_refused(images: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lading.loader(images, **{"batch_size": 4, **options})


def test_what_a_loader_shows(damaged: Path) -> None:
    loader = lading.loader(damaged, 10, shuffle=True, seed=7, on_error="skip")
    assert repr(loader) == "Loader(53 samples, 6 batches of 10, shuffle global, seed 7, epoch 0)"
    for _ in zip(range(2), loader, strict=False):
        pass
    assert repr(loader).startswith("Loader(53 samples, 6 batches of 10, shuffle global, seed 7, epoch 0 from sample 20")
    list(loader)
    assert "epoch 2, " in repr(loader)
    assert "skipped samples, replaced)" in repr(loader)
    both = lading.mix({"a": (lading.open(damaged), 1), "b": (lading.open(damaged), 1)}, stop="never")
    shown = "Loader(106 samples, batches of 4, rank 1 of 2, shuffle none, seed 0, epoch 0)"
    assert repr(lading.loader(both, 4, rank=1, world_size=2)) == shown
    both = lading.mix({"a": (lading.open(damaged), 3), "b": (lading.open(damaged), 1)})
    assert repr(lading.loader(both, 4)).startswith("Loader(71 samples (a 53, b 18), 18 batches of 4, shuffle")


def test_a_loader_in_a_data_loader_says_what_to_type(texts: Path) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    loader = lading.loader(texts / "parquet", 4)
    for options in ({"batch_size": None}, {"batch_size": 4, "shuffle": True}):
        with pytest.raises(UsageError, match=r"DataLoader\(loader\.to_torch\(\), batch_size=None, num_workers=2\)"):
            next(iter(torch_data.DataLoader(loader, **options)))


def test_a_field_of_later_shards_alone(tmp_path: Path) -> None:
    """A plain tar says nothing about the fields of other tars."""
    for name, fields in (("a", {"txt": "a"}), ("b", {"txt": "b", "cls": 7})):
        with lading.writer(tmp_path / "new", format="webdataset") as writer:
            writer.write({"__key__": name, **fields})
        next((tmp_path / "new").glob("*.tar")).rename(tmp_path / f"{name}.tar")
        shutil.rmtree(tmp_path / "new")
    found = lading.open(tmp_path)
    for options in ({"columns": ["cls"]}, {"decode": {"cls": str}}):
        with pytest.raises(UsageError, match=r"use ds\.select\('cls'\)|in ds\.select\(…\)"):
            list(found.loader(1, **options))
    batches = list(found.select("txt", "cls").loader(1, decode={"cls": str}))
    assert [(batch["txt"], batch["cls"]) for batch in batches] == [(["a"], [None]), (["b"], ["7"])]


def test_numbers_of_numpy_are_numbers(texts: Path) -> None:
    loader = lading.loader(texts / "mds", np.int64(10), shuffle=True, seed=np.int32(7))  # type: ignore[arg-type]
    loader.set_epoch(np.int64(3))  # type: ignore[arg-type] # a framework's
    plain = lading.loader(texts / "mds", 10, shuffle=True, seed=7)
    plain.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert _keys([plain]) == _keys([loader])
    for wrong in (-1, "3", 1.0):
        with pytest.raises(UsageError, match="epoch must be a whole number of at least 0"):
            loader.set_epoch(wrong)  # type: ignore[arg-type]


def test_to_set_the_epoch_that_was_resumed_goes_on_in_it(texts: Path) -> None:
    """Scripts call `set_epoch` before every loop, as samplers of PyTorch need it."""
    loader = lading.loader(texts / "mds", 10, shuffle=True)
    batches = [batch["__key__"] for batch in loader]
    state = {**loader.state_dict(), "epoch": 0, "position": 20}
    for epoch, expected in ((0, batches[2:]), (1, None), (0, batches)):
        loader.load_state_dict(state)
        if epoch != 0 or expected is batches:
            loader.set_epoch(1)
        loader.set_epoch(epoch)
        found = [batch["__key__"] for batch in loader]
        assert found == expected if expected is not None else len(found) == 6


def test_ranks_that_are_known_too_late_are_an_error(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early, given = lading.loader(texts / "mds", 10), lading.loader(texts / "mds", 10, rank=0, world_size=1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for use in (lambda: next(iter(early)), early.to_torch):
        with pytest.raises(UsageError, match=r"before the ranks were known; expected rank 0 of 1, found rank 1 of 2"):
            use()
    assert len([*given]) == 6
    assert len([*lading.loader(texts / "mds", 10)]) == 3


def test_a_loop_that_was_given_all_batches_is_over(texts: Path) -> None:
    """Lightning takes as many batches as the length says, and does not ask for one more."""
    loader = lading.loader(texts / "mds", 10, shuffle=True)
    epochs = [[batch["number"].tolist() for batch in loader] for _ in range(2)]
    loader.set_epoch(0)
    for epoch in epochs:
        loop = iter(loader)
        assert [next(loop)["number"].tolist() for _ in range(len(loader))] == epoch
    assert loader.state_dict()["epoch"] == 2


def test_columns_of_documents_are_their_fields_and_items() -> None:
    documents = lading.open(str(resources.files("lading._core.data") / "docs-00000.tar"))

    def batch(*names: str) -> Any:
        return next(iter(lading.loader(documents, 6, columns=names, decode=False)))

    whole = [*documents.with_decode(False)]
    assert batch("title")["title"] == [each["title"] for each in whole]
    assert batch("items")["items"] == [each["items"] for each in whole]
    some = batch("n_words", "text_content")
    assert {*some} == {"sample_id", "n_words", "items"}
    names = ("position", "modality", "text_content")
    assert some["items"] == [
        [{name: item[name] for name in names if name in item} for item in each["items"]] for each in whole
    ]
    with pytest.raises(UsageError, match=r"no such column; expected sample_id, .*items, found 'nope'"):
        batch("nope")


def test_columns_are_fields_inside_columns_too(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "d", format="webdataset", rows_per_shard=4) as writer:
        for number in range(10):
            writer.write({"__key__": f"{number}", "txt": "x", "json": {"score": number / 4, "lang": "en"}})
    ds = lading.open(tmp_path / "d")
    loader = lading.loader(ds, 5, columns=["txt", "json.score"])
    assert [batch["json.score"].tolist() for batch in loader] == [[n / 4 for n in range(i, i + 5)] for i in (0, 5)]
    assert [*next(iter(loader))] == ["txt", "json.score"]
    state = {**lading.loader(ds, 5).state_dict(), "position": 5}  # the columns are no part of the order
    loader.load_state_dict(state)
    assert [batch["json.score"].tolist() for batch in loader] == [[n / 4 for n in range(5, 10)]]


def test_a_column_that_is_not_there_is_an_error_before_the_first_batch(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "d", format="webdataset") as writer:
        writer.write({"__key__": "0", "txt": "x", "json": {"score": 1}})
    ds = lading.open(tmp_path / "d")
    with pytest.raises(UsageError, match=r"no such column; expected __key__, txt, json, found 'text'"):
        lading.loader(ds, columns=["text"])
    with pytest.raises(UsageError, match=r"no sample has this field; expected json\.score, found 'json\.scores'"):
        lading.loader(ds, columns=["json.scores"])
    mixture = lading.mix({"a": (ds, 1.0)})
    with pytest.raises(UsageError, match=r"no such column.*found 'text'"):
        lading.loader(mixture, columns=["text"])
    with pytest.raises(UsageError, match=r"no such column.*ds\.select\('json\.score'\)"):
        lading.loader(mixture, columns=["json.score"])
