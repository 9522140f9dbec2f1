"""JSON documents → rows: ordinary documents and odd ones in one window, in order, each row what the format says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading._core.arrow.references import unpack
from lading.errors import DataError
from tars import tar_of


def read(
    folder: Path, documents: dict[str, Any], images: tuple[str, ...] = (), **options: Any
) -> tuple[pa.Table, Counter[str]]:
    """The rows of a tar with these images (payload: the name) and documents, references as they are; the counts."""
    members = [(name, name.encode()) for name in images]
    members += [(f"{key}.json", json.dumps(document).encode()) for key, document in documents.items()]
    (folder / "x.tar").write_bytes(tar_of(*members))
    told = lading.options.InterleavedOptions(**{"unreferenced": "drop", **options})
    with lading.open(folder / "x.tar", view="interleaved", interleaved=told) as dataset:
        parts = [batch.replace_schema_metadata(None) for batch in dataset.batches(lazy=True)]
        return pa.Table.from_batches(parts), dataset.counts


def items(table: pa.Table) -> list[str]:
    """Of each row in one line: sample, position, and the text or the member that the row comes from."""
    names = ("sample_id", "position", "modality", "text_content", "source_ref")
    lines = []
    for sample, position, modality, text, ref in zip(*(table[name].to_pylist() for name in names), strict=True):
        value = repr(text) if modality == "text" else json.loads(ref)["member"]
        lines.append(f"{sample} {position} {value}")
    return lines


def test_odd_documents_stand_among_ordinary_ones(tmp_path: Path) -> None:
    documents = {
        "a": {"texts": ["x", None, "y"], "images": ["a.0.jpg", "far.png", None]},
        "b": {"texts": [1, True, {"k": "v"}, None], "images": [None, 7, "nope.jpg"]},
        "c": {"texts": None, "images": "far.png"},
        "d": {"texts": ["only"], "images": ["far.png", "d.1.jpg", "other", "other", "third"]},
        "e": {"texts": [], "images": []},
        "f": {"texts": [None, "z"], "images": ["a.0.jpg"]},
    }
    table, _ = read(tmp_path, documents, ("a.0.jpg", "far.png", "d.jpg"))
    assert items(table) == [
        "a -1 a.json", "a 0 'x'", "a 0 a.0.jpg", "a 1 far.png", "a 2 'y'",
        "b -1 b.json", "b 0 '1'", "b 1 'True'", "b 1 None", "b 2 \"{'k': 'v'}\"", "b 2 None",
        "c -1 c.json",
        "d -1 d.json", "d 0 'only'", "d 0 far.png", "d 1 None", "d 2 d.jpg", "d 3 d.jpg", "d 4 None",
        "e -1 e.json",
        "f -1 f.json", "f 0 a.0.jpg", "f 1 'z'",
    ]  # fmt: skip
    errors = {i: text for i, text in enumerate(table["materialize_error"].to_pylist()) if text is not None}
    assert errors == {
        8: "no member 7, and the sample has no default image",
        10: "no member 'nope.jpg', and the sample has no default image",
        18: "no member 'third', and the sample's one image 'd.jpg' is that of another entry",
    }
    image_types = ["image/jpeg", "image/png", None, None, "image/png", None, "image/jpeg", "image/jpeg", None]
    is_image = pa.compute.equal(table["modality"], "image")
    assert table["content_type"].filter(is_image).to_pylist() == [*image_types, "image/jpeg"]
    assert table["content_type"].take([0, 1, 8, 11, 12]).to_pylist() == [
        "application/json", "text/plain", None, "application/json", "application/json",
    ]  # fmt: skip


def test_payload_is_that_of_images_only(tmp_path: Path) -> None:
    documents = {"a": {"texts": ["x"], "images": ["p.jpg"]}, "b": {"texts": ["y"], "images": ["no"]}}
    table, _ = read(tmp_path, documents, ("p.jpg",))
    refs = unpack(table["binary_content"])
    assert refs.valid.tolist() == [False, False, True, False, False, False]
    assert (int(refs.offset[2]), int(refs.length[2])) == (512, len("p.jpg"))


def test_pictures_of_a_tiff_are_counted_in_each_document(tmp_path: Path) -> None:
    documents = {
        "a": {"texts": [None] * 4, "images": ["p.TIFF", "q.jpg", "p.TIFF", "q.tif"]},
        "b": {"texts": [None] * 3, "images": ["p.TIFF", "page 2", "page 3"]},
        "c": {"texts": [None], "images": ["q.jpg"]},
    }
    table, _ = read(tmp_path, documents, ("p.TIFF", "q.jpg", "q.tif", "b.tiff"))
    assert items(table) == [
        "a -1 a.json", "a 0 p.TIFF", "a 1 q.jpg", "a 2 p.TIFF", "a 3 q.tif",
        "b -1 b.json", "b 0 p.TIFF", "b 1 b.tiff", "b 2 b.tiff", "c -1 c.json", "c 0 q.jpg",
    ]  # fmt: skip
    frames = [None, 0, None, 1, 0, None, 0, 0, 1, None, None]
    assert [json.loads(ref).get("frame_index") for ref in table["source_ref"].to_pylist()] == frames
    assert unpack(table["binary_content"]).frame.tolist() == [-1 if frame is None else frame for frame in frames]


def test_the_default_image_is_the_one_a_field_names_or_one_called_as_the_sample(tmp_path: Path) -> None:
    documents = {
        "a": {"texts": [None], "images": ["?"], "main": "m.jpg"},
        "b": {"texts": [None], "images": ["?"], "main": "nope"},
        "c": {"texts": [None], "images": ["?"], "main": ["m.jpg"]},
        "d": {"texts": [None], "images": ["d.0.jpg"], "main": "m.jpg"},
    }
    table, _ = read(tmp_path, documents, ("b.gif", "b.png", "m.jpg"), image_member_field="main")
    assert items(table) == [
        "a -1 a.json", "a 0 m.jpg", "b -1 b.json", "b 0 b.png", "c -1 c.json", "c 0 None", "d -1 d.json", "d 0 None",
    ]  # fmt: skip


def test_content_types_that_no_extension_stands_for_are_put_back(tmp_path: Path) -> None:
    kept = {"image 1": "image/x-own", "text 0": "text/x-own", "image 0": None, "text 7": "nowhere"}
    documents = {
        "a": {"texts": ["t", None], "images": ["p.jpg", "p.jpg"]},
        "b": {"texts": ["t", None], "images": ["p.jpg", "p.jpg"], "__lading__": {"content_type": kept}},
        "c": {"texts": ["t"], "images": ["p.jpg"], "__lading__": {"content_type": "image/png"}},
        "d": {"texts": ["t"], "images": ["p.jpg"], "__lading__": ["content_type"]},
    }
    table, _ = read(tmp_path, documents, ("p.jpg",))
    assert table["content_type"].to_pylist() == [
        "application/json", "text/plain", "image/jpeg", "image/jpeg",
        "application/json", "text/x-own", None, "image/x-own",
        *["application/json", "text/plain", "image/jpeg"] * 2,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [1, ["image/png"], "x\ud800", False])
def test_a_content_type_is_a_text(tmp_path: Path, kind: object) -> None:
    documents = {
        "a": {"texts": ["t"], "images": [None]},
        "b": {"texts": ["t"], "images": ["p.jpg"], "__lading__": {"content_type": {"image 0": kind}}},
    }
    with pytest.raises(DataError, match="a content type is a text") as caught:
        read(tmp_path, documents, ("p.jpg",))
    assert (caught.value.column, caught.value.row) == ("content_type", 4)


def test_entries_go_to_the_items_of_their_document(tmp_path: Path) -> None:
    two = {"texts": ["t", None, "u"], "images": [None, "p.jpg", "p.jpg"]}
    documents = {
        "a": {**two, "alt": ["i", "j"], "lang": ["en", "de"], "both": [1, 2, 3, 4], "n": 1},
        "b": {**two, "alt": ["i"], "lang": ["en", "de", "fr"], "both": None},
        "c": {"texts": [None], "images": [None], "alt": [], "lang": None, "both": ["none"], "n": None},
        "d": {**two, "alt": [None, "k"], "n": 4},
    }
    table, counts = read(
        tmp_path, documents, ("p.jpg",), per_image_fields=("alt",), per_text_fields=("lang",), per_item_fields=("both",)
    )
    assert [line.split()[0] + line.split()[1] for line in items(table)] == [
        "a-1", "a0", "a1", "a2", "a2", "b-1", "b0", "b1", "b2", "b2", "c-1", "d-1", "d0", "d1", "d2", "d2",
    ]  # fmt: skip
    none = [None] * 5
    assert table["n"].to_pylist() == [1, None, None, None, None, *none, None, 4, None, None, None, None]
    assert table["alt"].to_pylist() == [None, None, "i", None, "j", None, None, "i", None, None, None, *none[:4], "k"]
    assert table["lang"].to_pylist() == [None, "en", None, "de", None, None, "en", None, "de", None, None, *none]
    both = ["1", "2", "3", "4"]  # as JSON texts, since one entry is a text
    assert table["both"].to_pylist() == [None, *both, *none, None, *none]
    assert counts == {
        "samples whose field 'alt' has another number of entries than items": 1,
        "samples whose field 'lang' has another number of entries than items": 1,
        "samples without the field 'lang'": 1,
        "samples whose field 'both' has another number of entries than items": 2,
        "samples without the field 'both'": 1,
    }


def test_entries_that_are_no_list_are_an_error_where_there_are_items(tmp_path: Path) -> None:
    documents = {
        "a": {"texts": [None], "images": [None], "alt": "none here"},
        "b": {"texts": [None], "images": ["p.jpg"], "alt": "p"},
    }
    with pytest.raises(DataError) as caught:
        read(tmp_path, documents, ("p.jpg",), per_image_fields=("alt",))
    assert (caught.value.column, caught.value.row, caught.value.found) == ("alt", 1, "str")


@pytest.mark.parametrize("value, count", [(5, 1), (True, 1), ("none", 1), ({"k": 1}, 1), (0, 0), (False, 0), ("", 0)])
def test_entries_that_are_no_list_are_counted_where_there_are_no_items(
    tmp_path: Path, value: object, count: int
) -> None:
    document = {"texts": ["t"], "images": [None], "alt": value}
    table, counts = read(tmp_path, {"a": document}, per_image_fields=("alt",))
    assert table["alt"].to_pylist() == [None, None]
    assert counts["samples whose field 'alt' has another number of entries than items"] == count


def test_a_lone_surrogate_is_an_error_of_its_row(tmp_path: Path) -> None:
    documents = {"a": {"texts": ["t"], "images": ["p.jpg"]}, "b": {"texts": [3, "x\ud800"], "images": ["p.jpg"]}}
    with pytest.raises(DataError) as caught:
        read(tmp_path, documents, ("p.jpg",))
    # rows: a −1, a 0 text, a 0 image, b −1, b 0 text, b 0 image, b 1 text
    assert (caught.value.column, caught.value.row, caught.value.found) == ("text_content", 6, r"'x\ud800'")


@pytest.mark.parametrize("role", [{}, {"per_text_fields": ("own",)}])
def test_a_field_with_a_lone_surrogate_is_kept_as_json(role: dict[str, Any], tmp_path: Path) -> None:
    documents = {"a": {"texts": ["t"], "own": ["x"]}, "b": {"texts": ["t"], "own": ["\ud800"]}}
    if not role:
        documents = {key: {**document, "own": document["own"][0]} for key, document in documents.items()}
    table, _ = read(tmp_path, documents, **role)
    assert table["own"].drop_null().to_pylist() == ['"x"', r'"\ud800"']


def test_lone_surrogates_of_what_is_left_out_do_not_matter(tmp_path: Path) -> None:
    whole = {"texts": ["t"], "url": "u"}
    table, _ = read(tmp_path, {"a": whole, "b": {**whole, "\ud800": 1}}, fields=("url",))
    assert table["url"].drop_null().to_pylist() == ["u", "u"]
    for hurt in (1, 16, 20):  # the first 16 say whether ids are taken from the documents
        documents = {f"{n}": {**whole, "sample_id": "\ud800"} if n == hurt else whole for n in range(21)}
        table, counts = read(tmp_path, documents)
        assert table["sample_id"].unique().to_pylist() == [f"{n}" for n in range(21)]
        assert counts == {"samples whose JSON field 'sample_id' was left out, for the member's name": 1}


@pytest.mark.parametrize("hurt, told", [({"\ud800": 1}, "a name"), ({"sample_id": "\ud800"}, "a sample_id")])
def test_a_lone_surrogate_in_a_name_or_id_is_an_error(hurt: dict[str, Any], told: str, tmp_path: Path) -> None:
    documents = {name: {"texts": ["t"], "sample_id": name} for name in "ab"}
    with pytest.raises(DataError, match=f"{told} that is not valid Unicode"):
        read(tmp_path, {**documents, "b": {**documents["b"], **hurt}})


def test_a_token_with_a_lone_surrogate_names_no_member(tmp_path: Path) -> None:
    table, _ = read(tmp_path, {"a": {"texts": ["t", None], "images": ["p\ud800.jpg", "p.jpg"]}}, ("p.jpg",))
    assert items(table) == ["a -1 a.json", "a 0 't'", "a 0 None", "a 1 p.jpg"]
    assert table["materialize_error"][2].as_py() == r"no member 'p\ud800.jpg', and the sample has no default image"


def test_a_sample_without_items_is_its_metadata(tmp_path: Path) -> None:
    table, _ = read(tmp_path, {"a": {"own": "x"}, "b": {"texts": [], "images": [], "own": "y"}})
    assert items(table) == ["a -1 a.json", "b -1 b.json"]
    assert table["own"].to_pylist() == ["x", "y"]
