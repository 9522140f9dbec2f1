"""Functions over single documents: they equal a plain change of dicts, whatever is written."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from documents import SQUARE, TALL, WIDE, documents
from lading._core.features.images import image_bytes
from lading.errors import FunctionError, UsageError

DOCUMENTS: list[tuple[str, list[str | bytes | None], dict[str, Any]]] = [
    (f"d{n:02d}", [("words " * n + "end") if (n + i) % 2 else (WIDE, TALL, SQUARE)[n % 3] for i in range(1 + n % 5)],
     {"lang": ["en", "de"][n % 2], "score": n / 4})
    for n in range(20)
]  # fmt: skip

FORMATS = ["webdataset", "parquet", "mds"]


@pytest.fixture(params=FORMATS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "in.tar").write_bytes(documents(*DOCUMENTS))
    if request.param == "webdataset":
        return tmp_path / "in.tar"
    lading.open(tmp_path / "in.tar").write(tmp_path / "in", format=request.param)
    return tmp_path / "in"


def plain() -> list[dict[str, Any]]:
    """The documents as plain dicts: id, fields, and the contents of the items in their order."""
    return [{"sample_id": name, "items": copy.copy(items), **fields} for name, items, fields in DOCUMENTS]


def seen(ds: Any) -> list[dict[str, Any]]:
    """Documents of a dataset as `plain` gives them; positions must be those of the list."""
    found = []
    for document in ds:
        items = document["items"]
        assert [item["position"] for item in items] == [*range(len(items))]
        contents = [item.get("text_content", item.get("binary_content")) for item in items]
        found.append({**document, "items": [c if isinstance(c, str) else image_bytes(c) for c in contents]})
    return found


def upper(document: Any) -> Any:
    for item in document["items"]:
        if item["modality"] == "text":
            item["text_content"] = item["text_content"].upper()
    return document


def plain_upper(document: dict[str, Any]) -> None:
    document["items"] = [item.upper() if isinstance(item, str) else item for item in document["items"]]


def add_fields(document: Any) -> Any:
    return {"pictures": sum(item["modality"] == "image" for item in document["items"]), "lang": document["lang"] * 2}


def plain_fields(document: dict[str, Any]) -> None:
    document["pictures"] = sum(isinstance(item, bytes) for item in document["items"])
    document["lang"] *= 2


def without_images(document: Any) -> Any:
    return {"items": [item for item in document["items"] if item["modality"] == "text"]}


def plain_without_images(document: dict[str, Any]) -> None:
    document["items"] = [item for item in document["items"] if isinstance(item, str)]


def backwards_with_title(document: Any) -> Any:
    title = {"modality": "text", "content_type": "text/plain", "text_content": f"title {document['sample_id']}"}
    document["items"] = [title, *reversed(document["items"])]
    document["sample_id"] = "x" + document["sample_id"]
    return document


def plain_backwards(document: dict[str, Any]) -> None:
    document["items"] = [f"title {document['sample_id']}", *reversed(document["items"])]
    document["sample_id"] = "x" + document["sample_id"]


def other_pictures(document: Any) -> Any:
    for item in document["items"]:
        if item["modality"] == "image" and document["lang"] == "en":
            item["binary_content"] = SQUARE
    return document


def plain_pictures(document: dict[str, Any]) -> None:
    if document["lang"] == "en":
        document["items"] = [SQUARE if isinstance(item, bytes) else item for item in document["items"]]


CHANGES = [
    (upper, plain_upper), (add_fields, plain_fields), (without_images, plain_without_images),
    (backwards_with_title, plain_backwards), (other_pictures, plain_pictures), (lambda _: None, lambda _: None),
]  # fmt: skip


@pytest.mark.parametrize("change, to", [*product(CHANGES, FORMATS)])
def test_changed_documents_equal_a_plain_change(
    source: Path, tmp_path: Path, to: str, change: tuple[Callable[..., Any], Callable[..., None]]
) -> None:
    function, plainly = change
    expected = plain()
    for document in expected:
        plainly(document)
    ds = lading.open(source).map(function)
    assert seen(ds) == expected
    assert seen([ds[i] for i in range(len(ds))]) == expected
    ds.write(tmp_path / "out", format=to)
    assert seen(lading.open(tmp_path / "out")) == expected
    order = np.random.default_rng(1).permutation(len(expected)).tolist()
    assert seen(ds[order]) == [expected[i] for i in order]


def test_functions_get_what_numbers_give(source: Path) -> None:
    ds, given = lading.open(source), []
    for _ in ds.map(lambda document: given.append({**document, "items": [dict(i) for i in document["items"]]})):
        pass
    assert given[-20:] == [ds[i] for i in range(20)]


@pytest.mark.parametrize("to", FORMATS)
def test_filtered_documents_are_whole(source: Path, tmp_path: Path, to: str) -> None:
    ds = lading.open(source).filter(lambda d: d["lang"] == "en" and any("text_content" in i for i in d["items"]))
    expected = [d for d in plain() if d["lang"] == "en" and any(isinstance(i, str) for i in d["items"])]
    assert seen(ds) == expected
    assert len(ds) == len(expected) < 20
    assert seen([ds[-1]]) == expected[-1:]
    done = ds.write(tmp_path / "out", format=to)
    assert seen(lading.open(tmp_path / "out")) == expected
    assert done.counts["left out by the function, filtered"] == 20 - len(expected)


def test_documents_for_which_the_function_raises(source: Path, tmp_path: Path) -> None:
    def risky(document: Any) -> Any:
        return {"share": 1 / (document["score"] % 1)}

    ds = lading.open(source)
    with pytest.raises(FunctionError, match=r"d00.*sample 0 of the dataset"):
        list(ds.map(risky))
    done = ds.map(risky, on_error="drop_sample").write(tmp_path / "out", format="parquet")
    expected = [{**d, "share": 1 / (d["score"] % 1)} for d in plain() if d["score"] % 1]
    assert seen(lading.open(tmp_path / "out")) == expected
    assert done.counts["samples for which the function raised an error, dropped"] == 20 - len(expected)


def test_a_changed_picture_has_no_source_of_the_old_one(source: Path, tmp_path: Path) -> None:
    lading.open(source).map(other_pictures).write(tmp_path / "out", format="parquet")
    table = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
    pictures = [row for row in table.to_pylist() if row["modality"] == "image"]
    english = {name for name, _, fields in DOCUMENTS if fields["lang"] == "en"}
    changed = [row for row in pictures if row["sample_id"] in english]
    assert changed
    assert {row["binary_content"] for row in changed} == {SQUARE}


WRONG = [
    (lambda d: {"items": [*d["items"], "text"]}, "an item of a document is a dict"),
    (lambda d: {"items": "text"}, "a list of dicts"),
    (lambda d: {"items": [*d["items"], {"text_content": "x"}]}, "needs a modality"),
    (lambda d: {"position": 3}, "items have this field"),
    (lambda d: {"sample_id": "one"}, "several documents one id"),
]


@pytest.mark.parametrize("function, message", WRONG)
def test_wrong_changes_are_refused(source: Path, function: Callable[..., Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(lading.open(source).map(function))


def test_images_of_documents_are_opened_as_those_of_samples(source: Path, tmp_path: Path) -> None:
    def images(ds: Any) -> list[Any]:
        return [item["binary_content"] for document in ds for item in document["items"] if item["modality"] == "image"]

    ds, given = lading.open(source), list[Any]()
    opened, stored = images(ds), images(ds.with_decode(False))
    assert {type(image) for image in stored} == {bytes}
    assert [image.size for image in opened] == [Image.open(io.BytesIO(data)).size for data in stored]
    assert [image.size for image in images(ds[[i]][0] for i in range(len(ds)))] == [image.size for image in opened]
    looked = ds.map(lambda document: given.extend(images([document])))
    assert lading.digest(looked).ordered == lading.digest(ds).ordered  # an image that is left alone keeps its bytes
    assert [image.size for image in given] == [image.size for image in opened]

    def small(document: Any) -> Any:
        for item in document["items"]:
            if item["modality"] == "image":
                item["binary_content"] = item["binary_content"].convert("RGB").resize((4, 4))
        return document

    ds.map(small).write(tmp_path / "small", format="parquet")
    assert {image.size for image in images(lading.open(tmp_path / "small"))} == {(4, 4)}


def test_a_broken_image_does_not_take_its_document(source: Path) -> None:
    def broken(document: Any) -> Any:
        for item in document["items"]:
            if item["modality"] == "image":
                item["binary_content"] = b"<html>"
        return document

    found = [item["binary_content"] for item in lading.open(source).map(broken)[0]["items"] if "binary_content" in item]
    assert found[0] == b"<html>"
    assert "the image cannot be opened" in str(found[0].error)


def test_raw_values_are_of_rows_that_are_samples(source: Path) -> None:
    with pytest.raises(UsageError, match=r"raw is for rows that are samples; .* Write with_decode\(False\)"):
        next(lading.open(source).samples(raw=True))
