"""Lists of a document with one entry an image keep to their images, whatever a step drops or moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lading
from documents import BROKEN, SQUARE, TALL, WIDE, documents
from in_process import by_tasks
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, LadingError
from lading.testing import CountingStore

NONE = lading.options.InterleavedOptions(per_image_fields=())
NAMES = {id(WIDE): "wide", id(TALL): "tall", id(SQUARE): "square", id(BROKEN): "broken"}

Sample = tuple[str, list[str | bytes | None], dict[str, Any]]


def described(name: str, *items: str | bytes | None, **fields: Any) -> Sample:
    """A document whose `alt` and `size` have an entry an image, and whose `tags` have other lengths."""
    pictures = [item for item in items if isinstance(item, bytes)]
    lists = {"alt": [NAMES[id(p)] for p in pictures], "size": [[len(p)] for p in pictures], "tags": ["x"] * 5}
    return name, [*items], {**lists, **fields}


SOURCE = (
    described("a", "hello", WIDE, TALL, SQUARE),
    described("b", TALL, "between", WIDE),
    described("c", "text alone", alt=None),
    described("d", WIDE),
    described("e", SQUARE, BROKEN, TALL),
    described("f", "text", WIDE, WIDE),
)
LATER = described("late", WIDE, TALL, alt=["one"])


def tar(path: Path, *samples: Sample) -> Path:
    path.write_bytes(documents(*(samples or SOURCE)))
    return path


def lists(ds: Any, name: str = "alt") -> dict[str, Any]:
    found = {document["sample_id"]: document.get(name) for document in ds}
    return {key: json.loads(value) if isinstance(value, str) else value for key, value in found.items()}


def pictures(ds: Any) -> dict[str, Any]:
    """The names of the images that are there."""
    known = {body: NAMES[id(body)] for body in (WIDE, TALL, SQUARE, BROKEN)}
    return {
        document["sample_id"]: [
            known[bytes(i["binary_content"])] for i in document["items"] if i["modality"] == "image"
        ]
        for document in ds.with_decode(False)
    }


def plain() -> Any:
    """The documents as they were."""
    return {name: fields["alt"] for name, _, fields in SOURCE}


def no_wide(document: Any) -> Any:
    pictures = [getattr(item.get("binary_content"), "size", None) for item in document["items"]]
    return {"items": [i for i, size in zip(document["items"], pictures, strict=True) if size != (40, 10)]}


def turned(document: Any) -> Any:
    return {"items": [*reversed(document["items"])]}


STEPS: list[Callable[[Any], Any]] = [
    lambda ds: ds.image_bounds(max_aspect_ratio=3),
    lambda ds: ds.where("binary_content.width != 40 or modality == 'text'"),
    lambda ds: ds.map(no_wide),
    lambda ds: ds.map(turned),
    lambda ds: ds.image_bounds(max_aspect_ratio=3).image_bounds(max_side=30),
    lambda ds: ds.shuffle(1).image_bounds(max_aspect_ratio=3),
    lambda ds: ds.image_bounds(max_aspect_ratio=3).shuffle(1),
    lambda ds: ds.sort("sample_id").map(turned).shuffle(2),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("held", ["tar", "webdataset", "parquet", "mds"])
def test_lists_follow_their_images(tmp_path: Path, step: Callable[[Any], Any], held: str) -> None:
    source = tar(tmp_path / "a.tar")
    if held != "tar":
        lading.open(source).write(tmp_path / "in", format=held)
        source = tmp_path / "in"
    ds = step(lading.open(source))
    expected = pictures(ds)
    assert expected != pictures(lading.open(source))
    assert {key: value or [] for key, value in lists(ds).items()} == expected
    sizes = {"wide": len(WIDE), "tall": len(TALL), "square": len(SQUARE), "broken": len(BROKEN)}
    assert lists(ds, "size") == {key: [[sizes[name]] for name in names] for key, names in expected.items()}
    assert set(map(len, lists(ds, "tags").values())) == {5}
    for to in ("webdataset", "parquet"):
        ds.write(tmp_path / to, format=to, **by_tasks(2))
        again = lading.open(tmp_path / to)
        assert pictures(again) == expected
        assert {key: value or [] for key, value in lists(again).items()} == expected


def test_arrow_lists_stay_arrow_lists(tmp_path: Path) -> None:
    """Some entries are null, and one list is missing."""
    rows = []
    for name, alts in {"a": ["x", None, "z"], "b": ["y"], "c": []}.items():
        rows.append({"sample_id": name, "position": -1, "modality": "metadata", "alt": alts})
        rows += [
            {"sample_id": name, "position": i, "modality": "image", "content_type": "image/png", "binary_content": body}
            for i, body in enumerate([WIDE, TALL, SQUARE][: len(alts)])
        ]
        rows.append({"sample_id": name, "position": 9, "modality": "text", "text_content": "t"})
    for kind in (pa.list_(pa.string()), pa.large_list(pa.string())):
        fields = {"alt": kind, "position": pa.int32(), "binary_content": pa.large_binary()}
        names = ["sample_id", "position", "modality", "content_type", "text_content", "binary_content", "alt"]
        schema = pa.schema([(name, fields.get(name, pa.string())) for name in names])
        with lading.writer(tmp_path / str(kind)[:5], format="parquet", view="interleaved") as writer:
            writer.write_batch(pa.Table.from_pylist(rows, schema))
        ds = lading.open(tmp_path / str(kind)[:5]).image_bounds(max_aspect_ratio=3)
        batches = list(ds.batches())
        assert batches[0].schema.field("alt").type == kind
        assert lists(ds) == {"a": [None, "z"], "b": [], "c": []}


def test_other_names_of_columns(tmp_path: Path) -> None:
    ds = lading.open(tar(tmp_path / "a.tar")).rename({"alt": "names"}).image_bounds(max_aspect_ratio=3)
    expected = pictures(ds)
    assert {key: value or [] for key, value in lists(ds, "names").items()} == expected
    ds = lading.open(tmp_path / "a.tar").rename({"alt": "names"}).shuffle(3).image_bounds(max_aspect_ratio=3)
    ds.write(tmp_path / "out", format="webdataset")
    again = lading.open(tmp_path / "out")
    assert {key: value or [] for key, value in lists(again, "names").items()} == expected


def test_a_later_list_of_another_length_is_an_error(tmp_path: Path) -> None:
    first = [described(f"{n:04d}", "text", WIDE, TALL) for n in range(1000)]
    ds = lading.open(tar(tmp_path / "a.tar", *first, LATER))
    assert lists(ds)["late"] == ["one"]
    for step in (ds.image_bounds(max_aspect_ratio=3), ds.where("modality == 'image'"), ds.map(turned)):
        with pytest.raises(DataError, match=r"per_image_fields=\['size'\]") as caught:
            list(step)
        error = caught.value
        assert (error.sample, error.column, error.found) == ("late", "alt", 1)
        assert str(error.expected).startswith("2 entries")
        assert str(error.file).endswith("a.tar")
        assert "--per-image-fields size." in str(error.advice)
    with pytest.raises(LadingError, match="late"):
        lading.convert(tmp_path / "a.tar", tmp_path / "out", format="webdataset", max_aspect_ratio=3, **by_tasks(2))
    assert lading.convert(tmp_path / "a.tar", tmp_path / "all", format="webdataset", verify=True).verified


def test_what_is_not_a_list_of_images(tmp_path: Path) -> None:
    """One of the first documents has another length, or no list; or the caller says that there are none."""
    for place in (described("z", WIDE, TALL, alt=["one"]), described("z", WIDE, TALL, alt=None)):
        ds = lading.open(tar(tmp_path / "a.tar", *SOURCE, place)).image_bounds(max_aspect_ratio=3)
        assert lists(ds) == {name: alt for name, alt in {**plain(), "z": place[2]["alt"]}.items() if name in lists(ds)}
    source = tar(tmp_path / "b.tar")
    none = lading.open(source, interleaved=NONE).image_bounds(max_aspect_ratio=3)
    assert lists(none) == {name: alt for name, alt in plain().items() if name in lists(none)}
    named = lading.open(source, interleaved=lading.options.InterleavedOptions(per_image_fields=("size",)))
    assert lists(named.image_bounds(max_aspect_ratio=3))["a"] == ["wide", "tall", "square"]


def test_a_function_that_changes_the_list_itself_is_left_alone(tmp_path: Path) -> None:
    def both(document: Any) -> Any:
        return {**no_wide(document), "alt": [f"no {document['sample_id']}"]}

    ds = lading.open(tar(tmp_path / "a.tar", SOURCE[0], SOURCE[1])).map(both)
    assert lists(ds) == {"a": ["no a"], "b": ["no b"]}


def test_new_images_need_entries(tmp_path: Path) -> None:
    def more(document: Any) -> Any:
        return {"items": [*document["items"], {"modality": "image", "binary_content": SQUARE}]}

    with pytest.raises(DataError, match="another length"):
        list(lading.open(tar(tmp_path / "a.tar")).map(more))


def test_batched_functions_over_items(tmp_path: Path) -> None:
    source = tar(tmp_path / "a.tar")

    def rows(batch: pa.RecordBatch) -> pa.Array:
        return pc.not_equal(batch["position"], 0)

    ds = lading.open(source).filter_batches(rows)
    assert {key: value or [] for key, value in lists(ds).items()} == pictures(ds)

    def fewer(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.not_equal(batch["position"], 2))

    with pytest.raises(DataError, match="another length"):
        list(lading.open(source).map_batches(fewer))


@pytest.mark.parametrize("to", ["webdataset", "parquet", "mds"])
def test_copies_stay_as_they_are(tmp_path: Path, to: str) -> None:
    source = tar(tmp_path / "a.tar", *SOURCE, LATER)
    before = lading.digest(source)
    lading.convert(source, tmp_path / "out", format=to)
    lading.convert(tmp_path / "out", tmp_path / "back", format="webdataset")
    assert lading.digest(tmp_path / "out") == lading.digest(tmp_path / "back") == before
    assert lists(lading.open(tmp_path / "back")) == {**plain(), "late": ["one"]}


def test_a_remote_tar_is_read_no_more_than_without_lists() -> None:
    """The documents are read once more neither for the lists nor for the types of their fields."""

    def ranges(**options: Any) -> list[tuple[int, int]]:
        store = CountingStore(MemoryStore({"box://x.tar": documents(*SOURCE)}))
        with lading.open("box://x.tar", stores=Stores({"box://": store}), **options) as ds:
            assert len(list(ds.image_bounds(max_aspect_ratio=3))) > 1
        return sorted(store.ranges["box://x.tar"])

    assert ranges() == ranges(interleaved=NONE)
    assert np.all(np.diff([start for start, _ in ranges()]) >= 0)
