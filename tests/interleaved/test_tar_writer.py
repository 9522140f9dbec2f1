"""Items → members of a MINT-1T style tar: names, order and JSON, byte for byte."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from cost import costs_at_most
from documents import tiff_of
from lading._core.arrow.references import unpack
from lading._core.features.types import Json, with_feature
from lading._core.formats.webdataset.format import FORMAT, WebdatasetWriter
from lading._core.interleaved import tar_writer
from lading._core.interleaved.tar_writer import Roles, TarDocumentsWriter, find_roles
from lading._core.storage.memory import MemoryStore
from lading.errors import DataError, LimitExceeded, Unrepresentable

Row = tuple[str, int, str, str | None, str | bytes | None]
"""Sample, position, modality, content type, text or bytes."""

DOCUMENT: list[Row] = [
    ("doc.1", -1, "metadata", "application/json", None),
    ("doc.1", 0, "text", "text/plain", 'Zwei "ü"\n\\'),
    ("doc.1", 1, "image", "image/jpeg", b"\xff\xd8"),
    ("doc.1", 3, "text", "text/plain", "\x01\x7f"),
]


def items(*rows: Row, **columns: Any) -> pa.RecordBatch:
    sample, position, modality, kind, content = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "sample_id": pa.array(sample, pa.string()),
            "position": pa.array(position, pa.int32()),
            "modality": pa.array(modality, pa.string()),
            "content_type": pa.array(kind, pa.string()),
            "text_content": pa.array([c if isinstance(c, str) else None for c in content], pa.string()),
            "binary_content": pa.array([c if isinstance(c, bytes) else None for c in content], pa.binary_view()),
            **columns,
        }
    )


class Written:
    """What came of writing batches as one tar."""

    def __init__(self, *batches: pa.RecordBatch, roles: Roles | None = None) -> None:
        store = MemoryStore()
        sink = store.put_stream("t.tar")
        tar = FORMAT.create([sink], pa.schema([("__key__", pa.string())]), FORMAT.write_options({}))
        assert isinstance(tar, WebdatasetWriter)
        writer = TarDocumentsWriter(tar, batches[0].schema, roles or Roles())
        self.tables = [writer.write(batch) for batch in batches]
        self.facts, self.counts = writer.close(), dict(writer.counts)
        sink.close()
        [data] = store.get_ranges("t.tar", [(0, self.facts.size_bytes)])
        self.data = bytes(data)
        with tarfile.open(fileobj=io.BytesIO(self.data)) as archive:
            self.members = [(m.name, (archive.extractfile(m) or io.BytesIO()).read()) for m in archive]
        self.documents = [text.decode() for name, text in self.members if name.endswith(".json")]


def test_a_document_as_the_peer_spells_it() -> None:
    written = Written(items(*DOCUMENT))
    text = r'{"sample_id": "doc.1", "texts": ["Zwei \"ü\"\n\\", null, null, "\u0001' + "\x7f" + r'"], '
    assert written.members == [
        ("doc%2E1.1.jpg", b"\xff\xd8"),
        ("doc%2E1.json", (text + '"images": [null, "doc%2E1.1.jpg", null, null]}').encode()),
    ]
    assert written.facts.num_samples == 1
    assert written.counts == {}


def test_the_table_names_what_was_written_and_where() -> None:
    written = Written(items(*DOCUMENT), items(("e", 0, "text", "text/plain", "t")))
    table = pa.concat_tables(written.tables)
    refs = unpack(table.column("ref").combine_chunks())
    found = [written.data[o : o + n] for o, n in zip(refs.offset.tolist(), refs.length.tolist(), strict=True)]
    assert list(zip(table.column("name").to_pylist(), found, strict=True)) == written.members


def test_rows_may_come_in_any_order() -> None:
    other: list[Row] = [
        ("b", 2, "image", "image/png", b"2"),
        ("b", 2, "text", "text/plain", "zwei"),
        ("b", 0, "image", "image/png", b"0"),
        ("b", -1, "metadata", "application/json", None),
    ]
    assert Written(items(*reversed(DOCUMENT), *other)).members == [
        *Written(items(*DOCUMENT)).members,
        ("b.0.png", b"0"),
        ("b.2.png", b"2"),
        ("b.json", b'{"sample_id": "b", "texts": [null, null, "zwei"], "images": ["b.0.png", null, "b.2.png"]}'),
    ]


def test_samples_of_one_row_or_none_but_metadata() -> None:
    rows: list[Row] = [("a", -1, "metadata", "application/json", None), ("b", 1, "text", "text/plain", "")]
    assert Written(items(*rows)).documents == [
        '{"sample_id": "a", "texts": [], "images": []}',
        '{"sample_id": "b", "texts": [null, ""], "images": [null, null]}',
    ]


def test_an_id_that_comes_back_gets_a_number() -> None:
    a, b = (items((name, 0, "image", "image/gif", b"x")) for name in "ab")
    written = Written(a, pa.concat_batches([b, a, b]), a)
    assert [name for name, _ in written.members if name.endswith("gif")] == [
        "a.0.gif", "b.0.gif", "a+2.0.gif", "b+2.0.gif", "a+3.0.gif",
    ]  # fmt: skip
    assert [json.loads(d)["sample_id"] for d in written.documents] == ["a", "b", "a", "b", "a"]
    assert written.counts == {"samples whose id another sample of the shard has": 3}


def test_every_member_has_a_key_also_of_an_empty_id() -> None:
    """Of names that webdataset's `base_plus_ext` makes no key of, it passes over the member without a word."""
    empty, a = (items((name, 0, "image", "image/gif", b"x")) for name in ("", "a"))
    written = Written(empty, a, pa.concat_batches([empty, a]))
    base_plus_ext = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")  # webdataset 1.0.2, tariterators.py
    found = [base_plus_ext.match(name) for name, _ in written.members]
    keys = [match[1] for match in found if match]
    assert len(keys) == len(found) == 8
    assert keys[::2] == keys[1::2]
    assert len({*keys}) == 4
    assert [json.loads(d)["sample_id"] for d in written.documents] == ["", "a", "", "a"]
    assert written.counts == {"samples whose id another sample of the shard has": 2}


def test_images_without_bytes_keep_their_name() -> None:
    rows: list[Row] = [
        ("a", 0, "image", None, None),
        ("a", 1, "image", "image/jpeg", None),
        ("a", 2, "image", "image/jpeg", b""),
    ]
    written = Written(items(*rows))
    extras = '"__lading__": {"content_type": {"image 1": "image/jpeg"}}'
    assert written.members[0] == ("a.2.jpg", b"")
    assert written.documents == [
        '{"sample_id": "a", "texts": [null, null, null], "images": ["a.0.bin", "a.1.jpg", "a.2.jpg"], ' + extras + "}"
    ]


def test_content_types_that_a_reader_would_not_find() -> None:
    rows: list[Row] = [
        ("a", -1, "metadata", "text/x", None),
        ("a", 0, "text", None, "t"),
        ("a", 1, "image", 'image/"odd"', b"1"),
        ("a", 2, "image", "image/jpg", b"2"),
        ("a", 3, "image", "image/png", b"3"),
        ("b", 0, "text", "text/plain", "t"),
        ("c", 0, "image", None, b"4"),
    ]
    first, second, third = (json.loads(d).get("__lading__") for d in Written(items(*rows)).documents)
    assert first == {"content_type": {"metadata -1": "text/x", "text 0": None,
                                      "image 1": 'image/"odd"', "image 2": "image/jpg"}}  # fmt: skip
    assert second is None
    assert third == {"content_type": {"image 0": None}}


@pytest.mark.parametrize("kind", ["image/tiff", "image/tif"])
def test_a_tiff_that_is_not_one_frame_is_not_called_tiff(kind: str) -> None:
    one, two = tiff_of("red"), tiff_of("red", "blue")
    bodies = [one, two, b"II*\0\x08\0\0\0", b"", b"no TIFF", None]
    rows: list[Row] = [("a", i, "image", kind, body) for i, body in enumerate(bodies)]
    rows += [("b", 0, "image", "image/png", two), ("c", 0, "image", kind, one)]
    written = Written(items(*rows))
    names = ["a.0.tiff", "a.1.bin", "a.2.bin", "a.3.tiff", "a.4.tiff", "a.json", "b.0.png", "b.json", "c.0.tiff"]
    assert [name for name, _ in written.members] == [*names, "c.json"]
    assert [body for name, body in written.members if not name.endswith("json")] == [*bodies[:-1], two, one]
    told = json.loads(written.documents[0])["__lading__"]["content_type"]
    assert {name: told.get(name) for name in ("image 1", "image 2")} == {"image 1": kind, "image 2": kind}
    # A type that the ending gives back is not told.
    assert ("image 0" in told) == (kind == "image/tif")


def test_an_image_that_is_json_is_not_called_so() -> None:
    rows: list[Row] = [("a", 0, "image", "application/json", b"{}"), ("a", 1, "image", "application/json", None)]
    written = Written(items(*rows))
    assert [name for name, _ in written.members] == ["a.0.bin", "a.json"]
    [document] = map(json.loads, written.documents)
    assert document["images"] == ["a.0.bin", "a.1.bin"]
    assert document["__lading__"]["content_type"] == {"image 0": "application/json", "image 1": "application/json"}


def test_a_null_text_leaves_its_position_to_another() -> None:
    rows: list[Row] = [
        ("a", 0, "text", "text/html", None),
        ("a", 0, "text", "text/xml", None),
        ("a", 0, "text", "text/plain", "t"),
    ]
    written = Written(items(*rows))
    assert written.documents == [
        '{"sample_id": "a", "texts": ["t"], "images": [null], "__lading__": {"content_type": {"text 0": "text/xml"}}}'
    ]
    assert written.counts == {"null texts, written as gaps": 2}


@pytest.mark.parametrize("role", ["text", "item"])
def test_a_null_text_has_no_entry_in_lists_of_values(role: str) -> None:
    rows: list[Row] = [
        ("a", 0, "text", "text/plain", "x"),
        ("a", 1, "text", "text/plain", None),
        ("a", 3, "text", "text/plain", "y"),
        ("b", 0, "text", "text/plain", None),
        ("b", 1, "text", "text/plain", "z"),
    ]
    written = Written(items(*rows, score=[1.0, None, 3.0, None, 5.0]), roles=Roles({"score": role}))
    assert [json.loads(d)["score"] for d in written.documents] == [[1.0, 3.0], [5.0]]
    assert [json.loads(d)["texts"] for d in written.documents] == [["x", None, None, "y"], [None, "z"]]


VALUES: list[tuple[pa.Array, list[str | None]]] = [
    (pa.array(['"\n', None, "é"]), [r'"\"\n"', None, '"é"']),
    (pa.array(["x", "y", "x"]).dictionary_encode(), ['"x"', '"y"', '"x"']),
    (pa.array([1e16, float("nan"), -0.0]), ["1e+16", "NaN", "-0.0"]),
    (pa.array([0.5, float("inf"), None], pa.float32()), ["0.5", "Infinity", None]),
    (pa.array([None, 0.1, 1.5], pa.float16()), [None, "0.0999755859375", "1.5"]),
    (pa.array([2**64 - 1, 0, None], pa.uint64()), ["18446744073709551615", "0", None]),
    (pa.array([-(2**63), 2**53 + 1, 7]), ["-9223372036854775808", "9007199254740993", "7"]),
    (pa.array([True, False, None]), ["true", "false", None]),
    (pa.nulls(3), [None, None, None]),
]


@pytest.mark.parametrize("values, texts", VALUES, ids=lambda v: str(v.type) if isinstance(v, pa.Array) else "")
def test_values_of_samples(values: pa.Array, texts: list[str | None]) -> None:
    rows: list[Row] = [(name, -1, "metadata", "application/json", None) for name in "abc"]
    assert Written(items(*rows, value=values)).documents == [
        f'{{"sample_id": "{name}", "texts": [], "images": []' + (f', "value": {text}}}' if text else "}")
        for name, text in zip("abc", texts, strict=True)
    ]


@pytest.mark.parametrize("values, texts", VALUES, ids=lambda v: str(v.type) if isinstance(v, pa.Array) else "")
def test_values_of_items(values: pa.Array, texts: list[str | None]) -> None:
    rows: list[Row] = [("a", 0, "text", "text/plain", "t"), ("a", 1, "image", "image/png", b""), *DOCUMENT[:2]]
    column = pa.concat_arrays([values[:2], pa.nulls(1, values.type), values[2:]])
    spelled = [text or "null" for text in (texts[0], texts[1], texts[2])]
    [first, second] = Written(items(*rows, value=column), roles=Roles({"value": "item"})).documents
    assert first.endswith(f', "value": [{spelled[0]}, {spelled[1]}]}}' if any(texts[:2]) else '"a.1.png"]}')
    assert second.endswith(f', "value": [{spelled[2]}]}}' if texts[2] else '"images": [null]}')


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_texts_of_items_may_be_of_any_type_of_text(kind: pa.DataType) -> None:
    batch = items(*DOCUMENT)
    other = pa.schema([field.with_type(kind) if field.type == pa.string() else field for field in batch.schema])
    assert Written(batch.cast(other)).documents == Written(batch).documents


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_json_stays_as_it_is_spelled(kind: pa.DataType) -> None:
    field = with_feature(pa.field("more", kind), Json())
    batch = items(*DOCUMENT)
    of_sample = batch.append_column(field, pa.array(['{"a":\n[1,2]}', None, None, None], kind))
    of_texts = batch.append_column(field, pa.array([None, "1e5", None, None], kind))
    assert Written(of_sample).documents[0].endswith(', "more": {"a":\n[1,2]}}')
    assert Written(of_texts).documents[0].endswith(', "more": [1e5, null]}')


def test_columns_get_their_role_from_the_first_sample_that_fills_them() -> None:
    rows: list[Row] = [
        ("a", -1, "metadata", "application/json", None),
        ("a", 0, "text", "text/plain", "t"),
        ("a", 1, "image", "image/png", b"1"),
        ("b", 0, "image", "image/png", b"2"),
        ("b", 1, "text", "text/plain", "t"),
    ]
    roles = Roles()
    columns = {
        "late": [None, None, None, "x", None],
        "alt": [None, None, "y", None, None],
        "both": [None, 1, 2, None, 3],
        "title": ["z", None, None, None, None],
    }
    first, second = Written(items(*rows, **columns), roles=roles).documents
    assert first.endswith('"alt": ["y"], "both": [1, 2], "title": "z"}')
    assert second.endswith('"late": ["x"], "both": [null, 3]}')
    assert list(roles.of.items()) == [("alt", "image"), ("both", "item"), ("title", "sample"), ("late", "image")]


@pytest.mark.parametrize(
    "rows, more, found",
    [
        ([("a", -1, "metadata"), ("a", -1, "metadata")], {}, ("one metadata row", 0, "a", "modality")),
        ([("a", 0, "text"), ("b", 1, "image"), ("b", 1, "image")], {}, ("two images", 2, "b", "position")),
        ([("a", 1, "text"), ("a", 0, "text"), ("a", 1, "text")], {}, ("two texts", 2, "a", "position")),
        ([("a", 0, "text"), ("b", 0, "audio")], {}, ("metadata, text and image", 1, "b", "modality")),
        ([("a", 0, "text"), ("b", None, "text")], {}, ("position −1", 1, "b", "position")),
        ([("a", -1, "text")], {}, ("position −1", 0, "a", "position")),
        ([("a", 0, "text"), ("b", -1, "metadata"), ("b", 0, "text")], {"v": ["x", "y", None]},
         ("metadata rows here, and of text rows", None, "b", "v")),
        # Of two faults of one sample that of its rows is told, and of two samples the first.
        ([("a", -1, "metadata"), ("b", 0, "text"), ("b", 0, "text")], {"v": ["x", "y", None]},
         ("two texts", 2, "b", "position")),
        ([("a", 0, "text"), ("b", -1, "metadata"), ("c", 0, "text"), ("c", 0, "text")], {"v": ["x", "y", None, None]},
         ("metadata rows here", None, "b", "v")),
        ([("a", 1, "null text"), ("a", 0, "text")], {"v": ["x", "y"]}, ("null is a gap", 0, "a", "v")),
        ([("a", 0, "text"), ("b", 0, "image"), ("b", 1, "null text")], {"v": ["x", None, "z"]},
         ("null is a gap", 2, "b", "v")),
    ],
)  # fmt: skip
def test_what_the_lists_cannot_hold(rows: list[Any], more: dict[str, Any], found: tuple[Any, ...]) -> None:
    content = {"text": "t", "image": b"i"}
    batch = items(*((*row[:2], row[2].removeprefix("null "), "x/y", content.get(row[2])) for row in rows), **more)
    with pytest.raises(Unrepresentable, match=found[0]) as caught:
        Written(batch)
    assert (caught.value.row, caught.value.sample, caught.value.column) == found[1:]


@pytest.mark.parametrize(
    "name, message",
    [
        ("texts", "field 'texts' of its own"),
        ("images", "field 'images' of its own"),
        ("__lading__", "field '__lading__' of its own"),
        ("json.texts", "field 'texts' of its own"),
        ("json.sample_id", "field 'sample_id' of its own"),
        ("json.other", "would call this column 'other'"),
    ],
)
def test_no_column_takes_the_place_of_another_field(name: str, message: str) -> None:
    batch = items(*DOCUMENT, **{name: ["x", None, None, None]})
    with pytest.raises(Unrepresentable, match=message) as caught:
        Written(batch)
    assert caught.value.column == name
    with pytest.raises(Unrepresentable, match=message):
        Written(items(*DOCUMENT), batch)


@pytest.mark.parametrize("name, field", [("json.position", "position"), ("json.json.texts", "json.texts"), ("", "")])
def test_a_column_that_was_renamed_has_its_field_back(name: str, field: str) -> None:
    [document] = Written(items(*DOCUMENT, **{name: ["x", None, None, None]})).documents
    assert list(json.loads(document).items())[3:] == [(field, "x")]


@pytest.mark.parametrize("position", [1_000_000, 2**31 - 1, 2**63 - 1])
def test_positions_without_end(position: int) -> None:
    batch = items(("a", 0, "text", "text/plain", "t"), ("b", 0, "text", "text/plain", "t"))
    far = batch.set_column(1, "position", pa.array([0, position], pa.int64()))
    with pytest.raises(LimitExceeded, match=f"{position:,}") as caught:
        Written(far)
    assert (caught.value.row, caught.value.sample) == (1, "b")


def test_positions_that_no_signed_number_holds() -> None:
    batch = items(("a", 0, "text", "text/plain", "t"))
    with pytest.raises(DataError, match="18446744073709551615"):
        Written(batch.set_column(1, "position", pa.array([2**64 - 1], pa.uint64())))


@pytest.mark.parametrize("name", ["content_type", "text_content"])
def test_columns_of_text_hold_text(name: str) -> None:
    batch = items(("a", 0, "text", None, None))
    at = batch.schema.names.index(name)
    Written(batch.set_column(at, name, pa.nulls(1)))
    Written(batch.set_column(at, name, pa.array(["t"], pa.string_view())))
    with pytest.raises(Unrepresentable, match=f"text.*{name}|{name}.*text"):
        Written(batch.set_column(at, name, pa.array([b"t"])))


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()])
def test_texts_may_be_of_any_type_of_text(kind: pa.DataType, tmp_path: Path) -> None:
    batch = items(*DOCUMENT, more=pa.array(["a", None, None, None]))
    fields = [field.with_type(kind) if pa.types.is_string(field.type) else field for field in batch.schema]
    for name, rows in (("plain", batch), ("other", batch.cast(pa.schema(fields)))):
        with lading.writer(tmp_path / name, format="webdataset", view="interleaved") as writer:
            writer.write_batch(rows)
    plain, other = ((tmp_path / name / "shard-000000.tar").read_bytes() for name in ("plain", "other"))
    assert other == plain


def test_other_columns_may_be_missing() -> None:
    batch = items(("a", 0, "text", None, None), ("a", 1, "image", None, None))
    lists = '"texts": [null, null], "images": [null, "a.1.bin"]'
    extras = '"__lading__": {"content_type": {"text 0": null}}'
    three = batch.select(["sample_id", "position", "modality"])
    for given in (three, three.append_column("binary_content", pa.nulls(2))):
        assert Written(given).members == [("a.json", f'{{"sample_id": "a", {lists}, {extras}}}'.encode())]


def test_large_batches_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    rows: list[Row] = []
    for i in range(60):
        sample: list[Row] = [(f"s{i % 50}", -1, "metadata", "application/json", None)]
        sample += [(f"s{i % 50}", p, "text", "text/html", "x" * 50) for p in range(0, int(generator.integers(9)), 2)]
        sample += [(f"s{i % 50}", p, "image", "image/png", b"%d" % i) for p in range(1, int(generator.integers(9)), 2)]
        rows += [sample[j] for j in generator.permutation(len(sample))]
    batch = items(*rows, n=pa.array([i if row[2] == "image" else None for i, row in enumerate(rows)]))
    whole = Written(batch)
    for size in (1, 2000):
        monkeypatch.setattr(tar_writer, "_PART_BYTES", size)
        parts = Written(batch)
        assert (parts.data, parts.counts, parts.tables) == (whole.data, whole.counts, whole.tables)


@pytest.mark.soak
def test_a_sample_costs_by_its_fields_and_not_by_their_square() -> None:
    def write(fields: int) -> None:
        names = [f"f{number}" for number in range(fields)]
        batch = items(("a", -1, "metadata", None, None), **{name: [1] for name in names})
        roles = Roles(find_roles([batch], names))
        assert roles.options(names) == {"per_sample_fields": names}
        [document] = Written(batch, roles=roles).documents
        assert len(json.loads(document)) == fields + 4  # id, texts, images; and the type, which was not told

    assert costs_at_most(2, lambda: write(2000), lambda: [write(200) for _ in range(10)])
