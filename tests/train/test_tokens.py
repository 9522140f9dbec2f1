"""Documents with images become tokens: texts and images in their order, and each sequence has its images."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from importlib import resources
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import lading
from lading._core.train.packing import Packer
from lading._core.train.rows import PADDING
from lading.errors import DataError, FunctionError, UsageError

_IMAGE, _END, _LENGTH = 256, 257, 4000
_ORIENTATION = 0x0112


def _tokens(text: str) -> list[int]:
    return [*text.encode()]


def _count(height: int, width: int) -> int:
    return (height // 56) * (width // 56 + 1)  # the two sides count differently


def _size(file: bytes) -> tuple[int, int]:
    """Height and width as viewers show a file, by Pillow."""
    width, height = ImageOps.exif_transpose(Image.open(io.BytesIO(file))).size
    return height, width


@pytest.fixture(scope="module")
def documents() -> lading.Dataset:
    folder = str(resources.files("lading._core.data"))
    return lading.open([f"{folder}/docs-00000.tar", f"{folder}/docs-00001.tar"])


def _shortest(height: int, width: int) -> tuple[int, int]:
    """The size of an image whose shorter side has 120 pixels."""
    return (120, int(120 * width / height)) if width > height else (int(120 * height / width), 120)


def _picture(height: int, width: int, orientation: int = 1) -> bytes:
    exif, made = Image.Exif(), io.BytesIO()
    exif[_ORIENTATION] = orientation
    Image.new("RGB", (width, height), (height % 256, width % 256, 7)).save(made, "JPEG", exif=exif)
    return made.getvalue()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples with a picture, which may lie on its side, and a text; some lack one of them."""
    folder = tmp_path_factory.mktemp("pairs")
    draws = np.random.default_rng(3)
    for name in ("parquet", "webdataset"):
        with lading.writer(folder / name, format=name, rows_per_shard=8) as writer:
            for i in range(30):
                height, width = (int(side) for side in draws.integers(60, 400, 2))
                picture = None if i == 7 else _picture(height, width, 1 + i % 8)
                writer.write({"__key__": f"{i:03}", "txt": None if i == 11 else "x" * (i % 9 + 1), "jpg": picture})
    return folder


def _packed(source: Any, *, rank: int = 0, world: int = 1, batch: int = 4, pack: Any = None, **options: Any) -> Packer:
    loader = lading.loader(source, batch, shuffle="global", seed=3, rank=rank, world_size=world, **options)
    given = {"end": _END, "batch_size": 2, "window": 2, "method": "best-fit", "too_long": "cut", **(pack or {})}
    images = {"image_token": _IMAGE, "image_tokens": _count}
    return lading.pack(loader, given.pop("length", _LENGTH), tokenizer=_tokens, **{**images, **given})


def _documents_in(batches: Any, key: str) -> dict[str, tuple[list[int], list[Any]]]:
    """The tokens and images of each document, by its key."""
    found = {}
    for batch in batches:
        for row, (tokens, segments) in enumerate(zip(batch["input_ids"], batch["segment_ids"], strict=True)):
            for number, (name, images) in enumerate(zip(batch[key][row], batch["images"][row], strict=True), 1):
                assert name not in found
                found[name] = tokens[segments == number].tolist(), images
    return found


def _expected(parts: list[str | bytes], length: int, size: Callable[[bytes], tuple[int, int]]) -> Any:
    """The tokens of texts and images, cut as `too_long="cut"` says, and the images among them."""
    ids, images = list[int](), []
    whole = sum(len(_tokens(part)) if isinstance(part, str) else _count(*size(part)) for part in parts) < length
    for part in parts:
        new = _tokens(part) if isinstance(part, str) else [_IMAGE] * _count(*size(part))
        if not whole and len(ids) + len(new) >= length:
            ids += new[: length - 1 - len(ids)] if isinstance(part, str) else []
            break
        ids += new
        images += [part] if isinstance(part, bytes) and new else []
    return [*ids, _END], images


@pytest.mark.parametrize("world", [1, 3])
def test_texts_and_images_of_a_document_keep_their_order(documents: lading.Dataset, world: int) -> None:
    """Each image is as many tokens as its size in the file says, and comes with its sequence."""
    expected = {
        each["sample_id"]: _expected(
            [item.get("text_content") or item["binary_content"] for item in each["items"]], _LENGTH, _size
        )
        for each in documents.with_decode(False)
    }
    packers = [
        _packed(documents, rank=rank, world=world, decode=False, pack={"keep": ["sample_id"]}) for rank in range(world)
    ]
    found = _documents_in((batch for packer in packers for batch in packer if PADDING not in batch
                           or not batch[PADDING].any()), "sample_id")  # fmt: skip
    assert {name: found[name] for name in found} == {name: expected[name] for name in found}
    assert len(found) > len(expected) * 0.8 if world > 1 else found.keys() == expected.keys()
    assert sum(len(images) for _, images in found.values()) > 20


@pytest.mark.parametrize(
    "options, size",
    [
        ({}, None),
        ({"decode": False}, None),
        ({"decode": {"jpg": "pil"}}, None),
        ({"collate": "torch"}, None),
        ({"collate": "list"}, None),
        ({"image_size": (120, 180), "missing": "list"}, lambda height, width: (120, 180)),
        ({"image_size": 120, "fit": "shortest"}, _shortest),
        ({"transform": lambda sample: sample, "missing": "list"}, None),
    ],
)
def test_an_image_has_the_size_that_batches_give_it(pairs: Path, options: Any, size: Any) -> None:
    """Sideways pictures count as viewers show them, on one rank and on several; a picture comes before its text."""
    if options.get("collate") == "torch":
        pytest.importorskip("torch")
    files = {each["__key__"]: each for each in lading.open(pairs / "parquet").with_decode(False)}
    for world in (1, 2):
        found: dict[str, Any] = {}
        for rank in range(world):
            packer = _packed(pairs / "parquet", rank=rank, world=world, pack={"keep": ["__key__"]}, **options)
            batches = [batch for batch in packer if PADDING not in batch or not batch[PADDING].any()]
            found |= _documents_in(batches, "__key__")
        assert "011" not in found
        assert len(found) == len(files) - 1 if world == 1 else len(found) > len(files) // 2
        for name, (ids, images) in found.items():
            parts = [part for part in (files[name]["jpg"], files[name]["txt"]) if part is not None]
            wanted, pictures = _expected(
                parts, _LENGTH, lambda file: _size(file) if size is None else size(*_size(file))
            )
            assert (ids, len(images)) == (wanted, len(pictures))


def _rows(batches: list[dict[str, Any]]) -> list[Any]:
    """The sequences of the batches of all ranks in a step, in the order of the job, without those that come again."""
    marks = [batch.get(PADDING, [False] * len(batch["input_ids"])) for batch in batches]
    rows = [
        [*zip(batch["input_ids"].tolist(), batch["images"], again, strict=True)]
        for batch, again in zip(batches, marks, strict=True)
    ]
    return [each[:2] for row in zip_longest(*rows) for each in row if each is not None and not each[2]]


def test_sequences_with_images_go_on_anywhere_with_other_ranks(documents: lading.Dataset) -> None:
    def ranks(world: int, batch: int) -> list[Packer]:
        short = {"length": 1000}
        return [_packed(documents, rank=r, world=world, batch=batch, decode=False, pack=short) for r in range(world)]

    whole = [row for batch in ranks(1, 4)[0] for row in _rows([batch])]
    for steps, first, second in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        packers = ranks(first, 3)
        loops = [iter(each) for each in packers]
        given = [row for batches in islice(zip(*loops, strict=True), steps) for row in _rows([*batches])]
        [state] = {json.dumps(each.state_dict()) for each in packers}
        again = ranks(second, 5)
        for each in again:
            each.load_state_dict(json.loads(state))
        given += [row for batches in zip(*again, strict=True) for row in _rows([*batches])]
        assert given == whole


def test_documents_samples_and_texts_in_a_mixture(documents: lading.Dataset, pairs: Path, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "texts", format="parquet") as writer:
        for i in range(20):
            writer.write({"__key__": f"t{i}", "txt": "only words"})
    sources = {"docs": documents, "pairs": lading.open(pairs / "webdataset"), "texts": lading.open(tmp_path / "texts")}
    mixture = lading.mix({name: (source, 1) for name, source in sources.items()}, seed=5)
    loader = lading.loader(mixture, 6, decode=False, columns=["items", "txt", "jpg"])
    packed = lading.pack(loader, _LENGTH, tokenizer=_tokens, image_token=_IMAGE, image_tokens=_count, method="best-fit",
                         too_long="skip", window=2)  # fmt: skip
    images = 0
    for batch in packed:
        for tokens, pictures in zip(batch["input_ids"], batch["images"], strict=True):
            mine = [picture for document in pictures for picture in document]
            assert np.count_nonzero(tokens == _IMAGE) == sum(_count(*_size(picture)) for picture in mine)
            images += len(mine)
    assert images > 20


def test_long_documents_are_refused_cut_or_left_out(tmp_path: Path) -> None:
    """Of six words and an image of four tokens nine fit: the end is one more."""
    with lading.writer(tmp_path / "d", format="parquet") as writer:
        for i, text in enumerate(("abcdef", "ab", "")):
            writer.write({"__key__": str(i), "txt": text, "jpg": _picture(120, 60)})

    def packed(too_long: Any, length: int = 10, **more: Any) -> Packer:
        return lading.pack(lading.loader(tmp_path / "d", 2, decode=False), length, tokenizer=_tokens, end=_END,
                           method="best-fit", too_long=too_long, image_token=_IMAGE, image_tokens=_count,
                           **more)  # fmt: skip

    with pytest.raises(DataError, match=r'expected at most 10 tokens, found 11.*too_long="cut" keeps its beginning'):
        [*packed("error")]
    for too_long, first in (("cut", [[_IMAGE] * 4 + [*b"abcde", _END]]), ("skip", [])):
        packer = packed(too_long, keep=["__key__"])
        found = _documents_in(packer, "__key__")
        assert [ids for name, (ids, _) in found.items() if name == "0"] == first
        assert found["1"][0] == [_IMAGE] * 4 + [*b"ab", _END]
        assert found["2"][0] == [_IMAGE] * 4 + [_END]
        words = "cut" if first else "left out"
        assert packer.counts == {f"documents longer than a sequence, {words}": 1}
    nothing = packed("cut", 4)
    assert [*nothing] == []
    assert nothing.counts == {"documents longer than a sequence, left out": 3}


def test_what_stands_for_no_image_is_counted(documents: lading.Dataset, pairs: Path) -> None:
    none = _packed(pairs / "parquet", decode=False, pack={"image_tokens": lambda height, width: 0})
    assert {len(images) for batch in none for row in batch["images"] for images in row} == {0}
    assert none.counts == {"images of no token, left out": 28, "samples without txt, left out": 1}
    stripped = documents.map(lambda each: {**each, "items": [{**i, "binary_content": None} for i in each["items"]]})
    lacking = _packed(stripped, decode=False)
    assert not any(images for batch in lacking for row in batch["images"] for images in row)
    assert lacking.counts["images without bytes, left out"] > 20


@pytest.mark.parametrize(
    "pack, error, words",
    [
        ({"image_token": None}, UsageError, "image_token and image_tokens go together"),
        ({"image_tokens": 4}, UsageError, "image_token and image_tokens go together"),
        ({"method": "split", "window": None, "too_long": "error"}, UsageError, "images become tokens of whole"),
        ({"too_long": "drop"}, UsageError, "error, cut or skip"),
        ({"image_tokens": lambda height, width: height / 28}, FunctionError, "gave no whole number"),
        ({"image_tokens": lambda height: height}, FunctionError, "image_tokens raised an error"),
        ({"image_tokens": lambda height, width: -1}, FunctionError, "below 0"),
        ({"image_token": ord("x")}, DataError, "a text has the token that stands for images"),
    ],
)
def test_wrong_image_tokens_are_refused(pairs: Path, pack: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        [*_packed(pairs / "parquet", decode=False, pack=pack)]


def test_images_that_are_not_there_are_refused(pairs: Path, tmp_path: Path) -> None:
    def renamed(sample: dict[str, Any]) -> dict[str, Any]:
        return {"picture": sample["jpg"], "txt": sample["txt"] or ""}

    with pytest.raises(UsageError, match=r"no column of images to pack.*found picture, txt"):
        [*_packed(pairs / "parquet", decode=False, transform=renamed)]
    with pytest.raises(UsageError, match="images become tokens beside texts, which take a tokenizer"):
        lading.pack(lading.loader(pairs / "parquet"), 16, method="best-fit", image_token=1, image_tokens=_count)
    with pytest.raises(UsageError, match=r"documents do not stay whole.*Leave too_long out"):
        lading.pack(lading.loader(pairs / "parquet"), 16, tokenizer=_tokens, too_long="cut")
    with lading.writer(tmp_path / "d", format="parquet") as writer:
        writer.write({"txt": "a", "jpg": b"no image"})
    with pytest.raises(DataError, match="the header of the image does not say its size"):
        [*_packed(tmp_path / "d", decode=False)]


def test_a_state_with_other_image_tokens_is_refused(pairs: Path) -> None:
    state = _packed(pairs / "parquet").state_dict()
    with pytest.raises(UsageError, match="image_token differs"):
        _packed(pairs / "parquet", pack={"image_token": 300}).load_state_dict(state)
    with pytest.raises(UsageError, match="too_long"):
        _packed(pairs / "parquet", pack={"too_long": "skip"}).load_state_dict(state)
