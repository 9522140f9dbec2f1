"""webdataset reads what lading writes, and lading what webdataset writes: the same samples, byte for byte."""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import lading
from lading.errors import SchemaMismatch, UsageError
from peers import import_peer

webdataset = import_peer("webdataset")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

TENSOR = pa.fixed_shape_tensor(pa.int16(), (2,))

SAMPLES: list[dict[str, Any]] = [
    {"__key__": "plain", "cls": b"7", "jpg": b"\xff\xd8\xff jpeg", "json": b'{"a": 1.0}'},
    {"__key__": "folder.with.dots/inner/key", "seg.png": b"", "txt": "größer 🛳\n".encode()},
    {"__key__": "日本語/" + "long-" * 50, "bin": bytes(range(256)) * 40},
    {"__key__": "ascii/" + "long-" * 50, "bin": b"x"},
    {"__key__": "prefix/" * 20 + "key", "txt": b"fits the prefix field"},
    {"__key__": "a b%2Fc", "txt": b"y" * 512, "x" * 120: b"1"},
]


def _read_by_webdataset(folder: Path) -> Iterator[dict[str, Any]]:
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    for sample in webdataset.DataPipeline(webdataset.SimpleShardList(shards), webdataset.tarfile_to_samples()):
        yield {name: value for name, value in sample.items() if name == "__key__" or not name.startswith("__")}


def _raw_samples(source: str) -> Iterator[dict[str, Any]]:
    """Samples as lading streams them, values as bytes."""
    with lading.open(source, view="samples") as dataset:
        for batch in dataset.batches():
            for row in batch.to_pylist():
                yield {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("shard_size", ["256MB", "1KB"])
def test_webdataset_reads_what_lading_writes(tmp_path: Path, shard_size: str) -> None:
    with lading.writer(tmp_path / "new", format="webdataset", shard_size=shard_size) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    assert list(_read_by_webdataset(tmp_path / "new")) == SAMPLES


@pytest.mark.parametrize("pattern", ["%02d.tar", "%02d.tar.gz"])
def test_lading_reads_what_webdataset_writes(tmp_path: Path, pattern: str) -> None:
    with webdataset.ShardWriter(str(tmp_path / pattern), maxcount=2, verbose=0) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    assert list(_raw_samples(str(tmp_path / pattern.replace("%02d", "*")))) == SAMPLES


def test_a_dataset_comes_back_the_same_from_webdataset(tmp_path: Path) -> None:
    """lading → webdataset's reader → its writer → lading: one content digest."""
    with lading.writer(tmp_path / "one", format="webdataset") as writer:
        for sample in SAMPLES:
            writer.write({**sample, "cls": 7} if "cls" in sample else sample)  # bytes would stay bytes: no number
    with webdataset.ShardWriter(str(tmp_path / "%02d.tar"), maxcount=2, verbose=0) as writer:
        for sample in _read_by_webdataset(tmp_path / "one"):
            writer.write(sample)
    assert lading.digest(tmp_path / "one") == lading.digest(str(tmp_path / "*.tar"))


def test_interleaved_documents_keep_their_samples(tmp_path: Path, documents: str) -> None:
    """A key that holds dots is cut by webdataset; the keys that lading writes are not."""
    lading.convert(documents, tmp_path / "new", format="webdataset", view="interleaved")
    with lading.open(documents) as dataset:
        wanted = len(dataset)
    samples = list(_read_by_webdataset(tmp_path / "new"))
    by_key = {sample["__key__"].partition(".")[0] for sample in samples}
    assert sum("json" in sample for sample in samples) == wanted == len(by_key)


def test_webdataset_reads_rows_of_any_type(tmp_path: Path) -> None:
    """Keys are numbers, names in lower case, and values the text that docs/formats/webdataset.md lists."""
    rows = pa.table(
        {
            "Name": ["größer", None],
            "n": pa.array([-7, None], pa.int32()),
            "f": pa.array([0.1, float("nan")], pa.float64()),
            "ok": [True, False],
            "when": pa.array([0, 86_399], pa.timestamp("s", "UTC")),
            "day": pa.array([0, None], pa.date32()),
            "for": pa.array([1500, None], pa.duration("ms")),
            "list": pa.array([[1, None], []], pa.list_(pa.int8())),
            "struct": pa.array([{"a": "x"}, None], pa.struct([("a", pa.string())])),
            "none": pa.nulls(2),
            "emb": pa.ExtensionArray.from_storage(TENSOR, pa.array([[1, 2], None], TENSOR.storage_type)),
            "seg.png": pa.array([b"\xff", b""], pa.binary()),
            "": ["no name", None],
        }
    )
    with lading.writer(tmp_path / "new", format="webdataset") as writer:
        writer.write_batch(rows)
    one, two = _read_by_webdataset(tmp_path / "new")
    array = io.BytesIO()
    np.save(array, np.array([1, 2], np.int16))
    assert one == {
        "__key__": "000000000", "name": "größer".encode(), "n": b"-7", "f": b"0.1", "ok": b"true",
        "when": b"1970-01-01T00:00:00Z", "day": b"1970-01-01", "for": b"1500ms", "list": b"[1, null]",
        "struct": b'{"a": "x"}', "emb": array.getvalue(), "seg.png": b"\xff", "": b"no name",
    }  # fmt: skip
    assert two == {
        "__key__": "000000001", "f": b"nan", "ok": b"false", "when": b"1970-01-01T23:59:59Z", "list": b"[]",
        "seg.png": b"",
    }  # fmt: skip


def test_webdataset_decodes_what_lading_names_as_it_does(tmp_path: Path) -> None:
    """Columns called as its extensions are: whole numbers, JSON, text and arrays come out of its decoder."""
    sample = {"cls": 3, "json": {"a": [1.5]}, "txt": "é", "npy": np.arange(3)}
    with lading.writer(tmp_path / "new", format="webdataset") as writer:
        writer.write(sample)
    [path] = (tmp_path / "new").glob("*.tar")
    [found] = webdataset.WebDataset(str(path), shardshuffle=False).decode()
    assert found["npy"].tolist() == [0, 1, 2]
    assert {name: found[name] for name in ("cls", "json", "txt")} == {"cls": 3, "json": {"a": [1.5]}, "txt": "é"}


def test_lists_of_pictures_are_members_for_webdataset(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    red, blue = ({"bytes": _picture(*how), "path": how[1]} for how in (("JPEG", "red"), ("PNG", "blue")))
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write_batch(pa.table({"txt": ["a", "b", "c"], "images": pa.array([[red, blue], [None], None], kind)}))
    [tar] = (tmp_path / "out").glob("*.tar")
    first, second, third = webdataset.WebDataset(str(tar), shardshuffle=False).decode("pil")
    assert (first["images.0.jpg"].size, first["images.1.png"].getpixel((0, 0))) == ((5, 4), (0, 0, 255))
    assert first["images.json"] == [
        {"bytes": "images.0.jpg", "path": "red"}, {"bytes": "images.1.png", "path": "blue"},
    ]  # fmt: skip
    assert second["images.json"] == [None]
    assert "images.json" not in third


def _picture(kind: str, colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (5, 4), colour).save(file, kind)
    return file.getvalue()


def test_lists_of_pictures_in_both_directions(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    items = {f"image.{number}.png": picture.getvalue() for number in range(11)}
    with webdataset.TarWriter(str(tmp_path / "w.tar")) as writer:
        writer.write({"__key__": "a", "txt": "11", **items})
    rows = lading.open(tmp_path / "w.tar", lists=["image"]).with_decode(False)
    assert [row["image"] for row in rows] == [[*items.values()]]
    lading.convert(tmp_path / "w.tar", tmp_path / "out", format="webdataset", lists=["image"])
    [sample] = webdataset.WebDataset(str(next((tmp_path / "out").glob("*.tar"))), shardshuffle=False).decode("pil")
    assert sample["image.json"] == [*items]
    assert {sample[name].size for name in items} == {(2, 2)}


def test_a_table_of_paths_becomes_samples_of_webdataset(tmp_path: Path) -> None:
    pictures = {f"{n}.jpg": _picture("JPEG", colour) for n, colour in enumerate(("red", "green", "blue"))}
    for name, data in pictures.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "t.csv").write_text("path,txt\n" + "".join(f"{name},photo {name}\n" for name in pictures))
    lading.open(tmp_path / "t.csv").media_from("path", "jpg").write(tmp_path / "out", format="webdataset")
    found = list(webdataset.WebDataset(str(next((tmp_path / "out").glob("*.tar"))), shardshuffle=False))
    assert [(sample["txt"].decode(), sample["jpg"]) for sample in found] == [
        (f"photo {name}", data) for name, data in pictures.items()
    ]  # fmt: skip


_COLUMNS = {
    "text": (pa.string(), None, str), "label": (pa.int64(), "cls", int), "small": (pa.uint8(), "cls", int),
    "ok": (pa.bool_(), "json", bool), "score": (pa.float64(), "json", float), "half": (pa.float32(), "json", float),
    "tags": (pa.list_(pa.string()), "json", list), "meta": (pa.struct({"a": pa.int32()}), "json", dict),
    "array": (TENSOR, "npy", np.ndarray), "day": (pa.date32(), "txt", str), "id": (pa.string(), "txt", str),
    "price": (pa.decimal128(5, 2), "txt", str), "index": (pa.int64(), None, int), "note.txt": (pa.string(), None, str),
    "raw": (pa.binary(), None, bytes), "word": (pa.dictionary(pa.int8(), pa.string()), "txt", str),
}  # fmt: skip
"""Type of each column, the ending that its members get, and the type that webdataset decodes."""
_VALUES: dict[str, list[Any]] = {
    "text": ["a", "ü"], "label": [3, None], "small": [1, 255], "ok": [True, False], "score": [1.0, float("inf")],
    "half": [0.5, -2.0], "tags": [["x"], []], "meta": [{"a": 1}, {"a": None}], "array": [[1, 2], [3, 4]], "day": [1, 2],
    "id": ["t1", "7"], "price": [Decimal("1.50"), Decimal(2)], "index": [1, 2], "note.txt": ["n", "m"],
    "raw": [b"\xff", b"3"], "word": ["x", "x"],
}  # fmt: skip


def test_webdataset_decodes_members_with_its_endings(tmp_path: Path) -> None:
    arrays = [
        pa.ExtensionArray.from_storage(kind, pa.array(_VALUES[name], kind.storage_type)) if kind is TENSOR
        else pa.array(_VALUES[name], kind)
        for name, (kind, _, _) in _COLUMNS.items()
    ]  # fmt: skip
    with lading.writer(tmp_path / "in.arrow") as writer:
        writer.write_batch(pa.table(dict(zip(_COLUMNS, arrays, strict=True))))
    done = lading.convert(tmp_path / "in.arrow", tmp_path / "tars", format="webdataset", verify=True,
                          options={"endings": "webdataset"})  # fmt: skip
    assert (done.notes, done.digest) == ([], lading.digest(tmp_path / "in.arrow").ordered)
    shard = str(tmp_path / "tars" / "shard-000000.tar")
    for row, sample in enumerate(webdataset.WebDataset(shard, shardshuffle=False).decode()):
        for name, (_, ending, kind) in _COLUMNS.items():
            value = sample.get(f"{name}.{ending}" if ending else name)
            if _VALUES[name][row] is None:
                assert value is None
                continue
            assert type(value) is kind, name
            if kind is np.ndarray:
                assert value.tolist() == _VALUES[name][row]
            elif name not in ("day", "price"):
                assert value == _VALUES[name][row]
    with lading.open(tmp_path / "tars") as written, lading.open(tmp_path / "in.arrow") as source:
        assert written.columns == source.columns
        assert repr(list(written)) == repr(list(source))


def test_names_without_an_ending_are_noted(tmp_path: Path) -> None:
    rows = [{"__key__": "a", "caption": "x", "txt": "y", "label": 1, "raw": b"\xff"}]
    with lading.writer(tmp_path / "in.parquet") as writer:
        for row in rows:
            writer.write(row)
    [note] = lading.convert(tmp_path / "in.parquet", tmp_path / "plain", format="webdataset").notes
    assert note == "without endings=webdataset (--to-option), webdataset gives bytes for caption, label"
    assert not lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="mds").notes
    for options, notes in (({}, [note]), ({"endings": "webdataset"}, [])):
        with lading.writer(tmp_path / "written", options=options, overwrite=True) as writer:
            writer.write(rows[0])
        assert writer.summary.notes == notes
    # Tars that have no endings get them, and keep them in copies.
    lading.convert(tmp_path / "plain", tmp_path / "named", format="webdataset", options={"endings": "webdataset"})
    lading.convert(tmp_path / "named", tmp_path / "copy", format="webdataset")
    for folder in ("named", "copy"):
        [sample] = _read_by_webdataset(tmp_path / folder)
        assert sample == {"__key__": "a", "caption.txt": b"x", "txt": b"y", "label.cls": b"1", "raw": b"\xff"}
        assert list(lading.open(tmp_path / folder)) == rows
    lading.open(tmp_path / "named").cast({"label": "string"}).write(tmp_path / "cast", format="webdataset")
    assert next(_read_by_webdataset(tmp_path / "cast")).keys() == {"__key__", "caption", "txt", "label", "raw"}


def test_a_column_has_one_ending(tmp_path: Path) -> None:
    def write(*values: pa.Array) -> None:
        with lading.writer(tmp_path / "out", format="webdataset", options={"endings": "webdataset"}) as writer:
            for row, column in enumerate(values):
                writer.write_batch(pa.table({"__key__": [str(row)], "txt": ["x"], "v": column}))

    with pytest.raises(SchemaMismatch, match=r"column 'v'.*several endings; expected cls, found json.*schema="):
        write(pa.array([1]), pa.array([1.5]))
    write(pa.nulls(1), pa.array([1]))
    assert lading.open(tmp_path / "out")["v"][:] == [None, 1]
    with pytest.raises(UsageError, match="keep their names get no endings"):
        lading.writer(tmp_path / "no", format="webdataset", options={"endings": "webdataset", "fields": "given"})
    with pytest.raises(UsageError, match="no such endings"):
        lading.writer(tmp_path / "no", format="webdataset", options={"endings": "wds"})
