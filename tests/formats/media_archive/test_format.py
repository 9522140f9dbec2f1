"""Documents with media, written and read: what is kept, what is refused, what is counted."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import lading
from cost import costs_at_most
from lading._core.arrow.references import CODECS, is_ref, unpack
from lading._core.content.documents import BYTES, PLACE, by_number
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.types import Json, with_feature
from lading._core.formats.media_archive.format import FORMAT
from lading._core.storage.base import write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores, resolve
from lading.errors import (
    BadReference,
    CorruptShard,
    DataError,
    LimitExceeded,
    SchemaMismatch,
    Unrepresentable,
    UsageError,
)
from lading.limits import DEFAULT_LIMITS, Limits
from media import frame, medium, pictures
from tars import tar_of

NAME = "media_archive"


def lines(folder: Path, *documents: dict[str, Any] | str, name: str = "d.jsonl") -> Path:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in documents]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(text + "\n" for text in texts))
    return path


def archived(folder: Path, *contents: bytes, name: str = "a.bin.zst", **options: Any) -> list[dict[str, Any]]:
    """Media whose records lie in an archive of this folder."""
    at, media = 0, []
    with (folder / name).open("wb") as out:
        for number, content in enumerate(contents):
            record = frame(content, **options)
            out.write(record)
            media.append(medium(id=str(number), path=name, offset=at, length=len(record)))
            at += len(record)
    return media


def opened(path: Path, view: str | None = None, limits: Limits = DEFAULT_LIMITS, **options: Any) -> lading.Dataset:
    return lading.open(path, format=NAME, view=view, options=options, limits=limits)


def documents(path: Path, **options: Any) -> list[dict[str, Any]]:
    with opened(path, **options) as dataset:
        return list(dataset)


def test_what_a_line_leaves_out_is_empty(tmp_path: Path) -> None:
    path = lines(tmp_path, {"id": "a"}, {"id": "b", "text": None, "media": None, "metadata": None, "more": 1})
    assert documents(path) == [
        {"id": "a", "text": "", "media": [], "metadata": {}, "more": None},
        {"id": "b", "text": "", "media": [], "metadata": {}, "more": 1},
    ]


def test_documents_are_never_taken_for_archives_unasked(tmp_path: Path) -> None:
    path = lines(tmp_path, {"id": "a", "media": archived(tmp_path, b"x")})
    with lading.open(path) as dataset:
        assert dataset.format == "jsonl"


@pytest.mark.parametrize("view", ["samples", "interleaved"])
@pytest.mark.parametrize("magic", [False, True])
def test_frames_with_and_without_magic_number(tmp_path: Path, view: str, magic: bool) -> None:
    contents = [*pictures(3), b""]
    path = lines(tmp_path, {"id": "a", "media": archived(tmp_path, *contents, magic=magic)})
    with opened(path, view) as dataset:
        [sample] = dataset
    found = sample["media"] if view == "samples" else sample["items"]
    assert [one[BYTES if view == "samples" else "binary_content"] for one in found] == contents


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    media = archived(tmp_path, *pictures(2))
    path = lines(tmp_path, *({"id": str(i), "text": "t", "media": [one]} for i, one in enumerate(media)))
    (tmp_path / "a.bin.zst").unlink()
    with opened(path) as dataset:
        assert [row for batch in dataset.batches(columns=["text"]) for row in batch.to_pylist()] == [{"text": "t"}] * 2
        with pytest.raises(BadReference, match=r"a\.bin\.zst"):
            dataset.take([1])


def test_batches_keep_the_limit_by_the_bytes_of_media(tmp_path: Path) -> None:
    contents = [bytes(40_000)] * 20
    path = lines(tmp_path, *({"id": str(i), "media": [one]} for i, one in enumerate(archived(tmp_path, *contents))))
    with opened(path) as dataset:
        sizes = [len(batch) for batch in dataset.batches(max_bytes=100_000)]
    assert sum(sizes) == 20
    assert max(sizes) == 2


def test_references_of_items(tmp_path: Path) -> None:
    contents = pictures(4)
    media = archived(tmp_path, *contents)
    path = lines(tmp_path, {"id": "a", "text": "t", "media": media[:3]}, {"id": "b", "media": media[3:]})
    with opened(path, "interleaved") as dataset:
        [batch] = dataset.batches(lazy=True)
        column = batch.column("binary_content")
        assert is_ref(column.type)
        refs = unpack(column)
        assert refs.valid.tolist() == [False, False, True, True, True, False, True]
        assert {CODECS[codec] for codec in refs.codec[refs.valid]} == {"zstd-magicless"}
        assert refs.offset[refs.valid].tolist() == [one["offset"] for one in media]
        kept = batch.filter(pa.array(batch.column("media_id").is_valid().to_numpy(zero_copy_only=False)))
        assert dataset._rows.materialise(kept.slice(1, 2)).column("binary_content").to_pylist() == contents[1:3]


def test_references_into_several_archives_in_turn(tmp_path: Path) -> None:
    ours = [archived(tmp_path, *(f"{name}{i}".encode() for i in range(3)), name=name) for name in ("a.zst", "b.zst")]
    media = [medium(path="none.zst"), *(one for pair in zip(*ours, strict=True) for one in pair)]
    with opened(lines(tmp_path, {"id": "a", "media": media}), "interleaved") as dataset:
        items = dataset[0]["items"]
    assert [one.get("binary_content") for one in items] == [None, b"a.zst0", b"b.zst0", b"a.zst1", b"b.zst1", b"a.zst2",
                                                        b"b.zst2"]  # fmt: skip


def test_places_of_many_numbers_are_found_in_one_look() -> None:
    """A document may name as many archives as media; to look through all of them for each takes hours."""
    assert [found.tolist() for found in by_number(np.array([2, 0, -1, 2, 0]), 4)] == [[1, 4], [], [0, 3], []]
    many = 100_000
    assert costs_at_most(30, lambda: list(by_number(np.arange(many), many)), lambda: [np.zeros(1) for _ in range(many)])


@pytest.mark.parametrize(
    "changed, error, said, of_item",
    [
        ({"path": "none.zst"}, BadReference, "names no file", "no such file"),
        ({"path": "../a.bin.zst"}, BadReference, "outside the folders", "outside the folders"),
        ({"offset": 1 << 40}, BadReference, "outside the file", "past the end"),
        ({"offset": -1}, BadReference, "outside the file", "outside the file"),
        ({"length": 5}, CorruptShard, "zstd", "zstd"),
        ({"offset": 1}, CorruptShard, "zstd", "zstd"),
    ],
)
def test_records_that_cannot_be_had(
    tmp_path: Path, changed: dict[str, Any], error: type[DataError], said: str, of_item: str
) -> None:
    contents = pictures(2)
    [good, other] = archived(tmp_path, *contents)
    path = lines(tmp_path, {"id": "a", "media": [good]}, {"id": "b", "media": [{**other, **changed}, good]})
    with pytest.raises(error, match=said) as caught, opened(path) as dataset:
        list(dataset)
    assert caught.value.sample == "b"
    with opened(path, "interleaved") as dataset, pytest.raises(error, match=of_item):
        list(dataset)
    with opened(path, "interleaved") as dataset, pytest.warns(UserWarning, match=of_item):
        found = pa.Table.from_batches(dataset.batches(on_error="warn"))
    assert found.column("binary_content").to_pylist() == [None, contents[0], None, None, contents[0]]
    assert of_item in found.column("materialize_error")[3].as_py()
    for view, media, own in (("samples", "media", BYTES), ("interleaved", "items", "binary_content")):
        with opened(path, view, on_error="warn") as dataset:
            with pytest.warns(UserWarning, match="could not be read"):
                read = [[one.get(own) for one in document[media]] for document in dataset]
            assert dataset.counts == {"media that could not be read": 1}
        assert read == [contents[:1], [None, contents[0]]]


def test_one_root_given_as_a_text_is_that_folder_and_not_its_letters(tmp_path: Path) -> None:
    for name in ("docs", "one", "other"):
        (tmp_path / name).mkdir()
    contents = pictures(2)
    media = [
        {**archived(tmp_path / name, content)[0], "path": str(tmp_path / name / "a.bin.zst")}
        for name, content in zip(("one", "other"), contents, strict=True)
    ]
    near, far = (lines(tmp_path / "docs", {"id": "a", "media": [m]}, name=f"{i}.jsonl") for i, m in enumerate(media))
    assert documents(near, roots=str(tmp_path / "one"))[0]["media"][0][BYTES] == contents[0]
    with pytest.raises(BadReference, match="outside the folders"):
        documents(far, roots=str(tmp_path / "one"))


@pytest.mark.parametrize("damage", ["gone", "zeroed"])
@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_archives_of_what_lading_wrote_that_cannot_be_read(tmp_path: Path, view: str, damage: str) -> None:
    contents, out = pictures(3), tmp_path / "out"
    if view == "samples":
        with lading.writer(out, format=NAME, shard_size=1) as writer:
            for key, content in enumerate(contents):
                writer.write({"__key__": f"{key}", "jpg": content})
    else:
        media = archived(tmp_path, *contents)
        path = lines(tmp_path, *({"id": f"{key}", "media": [one]} for key, one in enumerate(media)))
        lading.convert(path, out, format=NAME, source_format=NAME, view=view, shard_size=1)
    archive = sorted(out.glob("*.zst"))[1]
    archive.unlink() if damage == "gone" else archive.write_bytes(bytes(archive.stat().st_size))

    def payload(sample: dict[str, Any]) -> Any:
        return sample.get("jpg") if view == "samples" else sample["items"][0].get("binary_content")

    with (
        lading.open(out).with_decode(False) as dataset,
        pytest.raises(BadReference if damage == "gone" else CorruptShard),
    ):
        list(dataset)
    with lading.open(out, options={"on_error": "warn"}).with_decode(False) as dataset:
        assert dataset.view == view
        with pytest.warns(UserWarning, match="could not be read"):
            assert [payload(sample) for sample in dataset] == [contents[0], None, contents[2]]
        assert dataset.counts == {"media that could not be read": 1}
        with pytest.warns(UserWarning, match="could not be read"):
            assert [payload(dataset[number]) for number in range(3)] == [contents[0], None, contents[2]]
    with pytest.warns(UserWarning, match="could not be read"):
        lading.convert(out, tmp_path / "new", format="parquet", source_options={"on_error": "warn"})
    with lading.open(tmp_path / "new").with_decode(False) as dataset:
        assert [payload(sample) for sample in dataset] == [contents[0], None, contents[2]]


def test_documents_whose_media_are_read_keep_the_limit(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format=NAME) as writer:
        for key in range(20):
            writer.write({"__key__": f"{key}", "bin": bytes(40_000)})
    with lading.open(tmp_path / "out", options={"on_error": "warn"}) as dataset:
        assert [len(batch) for batch in dataset.batches(max_bytes=100_000)] == [2] * 10


def test_a_record_that_unpacks_to_too_much(tmp_path: Path) -> None:
    path = lines(tmp_path, {"id": "a", "media": archived(tmp_path, bytes(100_000))})
    for view in ("samples", "interleaved"):
        with opened(path, view, Limits(range_bytes=99_999)) as dataset, pytest.raises(LimitExceeded):
            list(dataset)
        with opened(path, view, Limits(range_bytes=100_000)) as dataset:
            assert len(list(dataset)) == 1


@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_one_record_that_a_document_names_many_times(tmp_path: Path, view: str) -> None:
    """It is there once, and comes as often as it is named."""
    [once] = archived(tmp_path, bytes(100_000))
    path = lines(tmp_path, {"id": "a", "media": [once] * 3}, {"id": "b", "media": [once]})
    grown = 300_000 - once["length"]
    with opened(path, view, Limits(sample_bytes=grown - 1)) as dataset:
        for read in (lambda: list(dataset.batches()), lambda: dataset[0], lambda: dataset.take([1, 0])):
            with pytest.raises(LimitExceeded, match="--max sample_bytes="):
                read()
        assert dataset[1]
    with opened(path, view, Limits(sample_bytes=grown)) as dataset:
        assert len(list(dataset)) == 2
        assert dataset[0]
        assert dataset.take([0, 1, 0]).num_rows >= 3


@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_records_that_are_as_long_as_they_lie_have_no_limit_together(tmp_path: Path, view: str) -> None:
    contents = pictures(4, 1 << 17)
    (tmp_path / "a.bin").write_bytes(b"".join(contents))
    media = [medium(path="a.bin", offset=at << 17, length=1 << 17) for at in range(4)]
    path = lines(tmp_path, {"id": "a", "media": media})
    with lading.open(
        path, format=NAME, view=view, options={"archives": "none"}, limits=Limits(sample_bytes=0)
    ) as dataset:
        assert len(list(dataset)) == 1


def test_bytes_that_stand_in_the_document(tmp_path: Path) -> None:
    there = medium(media_bytes=base64.b64encode(b"\0inline").decode())
    path = lines(tmp_path, {"id": "a", "media": [there, *archived(tmp_path, b"far")]})
    for view in ("samples", "interleaved"):
        with opened(path, view) as dataset:
            [sample] = dataset
        found = sample["media"] if view == "samples" else sample["items"]
        assert [one[BYTES if view == "samples" else "binary_content"] for one in found] == [b"\0inline", b"far"]


@pytest.mark.parametrize(
    "media, said",
    [
        ("text", "must be a list"),
        (5, "list of media"),
        ({"id": "x"}, "must be a list of objects"),
        (["x"], "must be a list of objects"),
        ([None], "must be a list of objects"),
        ([{"id": 5}], "id is not a text"),
        ([{"offset": "5"}], "offset is not a whole number"),
        ([{"offset": True}], "offset is not a whole number"),
        ([{"length": 1.0}], "length is not a whole number"),
        ([{"offset": 1 << 64}], "offset is not a whole number"),
        ([{"media_bytes": "a"}], "media_bytes is not base64"),
        ([{"media_bytes": "ä"}], "media_bytes is not base64"),
        ([{"id": "x", "other": 1}], "do not have"),
    ],
)
def test_media_that_are_none(tmp_path: Path, media: Any, said: str) -> None:
    path = lines(tmp_path, {"id": "a", "media": []}, {"id": "b", "media": media})
    with pytest.raises(DataError, match=said) as caught:
        documents(path)
    assert caught.value.file == str(path)
    if not isinstance(media, int):
        assert caught.value.row == 1


def test_lone_surrogates_in_a_media(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"id":"a","media":[{"alt":"\\ud800"}]}')
    with pytest.raises(CorruptShard, match="alt is not a text"):
        documents(path)


def test_documents_of_one_id_are_no_items(tmp_path: Path) -> None:
    path = lines(tmp_path, {"id": "a", "text": "1"}, {"id": "a", "text": "2"})
    assert [one["text"] for one in documents(path)] == ["1", "2"]
    with opened(path, "interleaved") as dataset, pytest.raises(DataError, match="one id"):
        list(dataset)


def test_a_document_without_id_is_called_by_its_place(tmp_path: Path) -> None:
    path = lines(tmp_path, {"text": "1"}, {"text": "2", "id": "x"}, {"text": "3"})
    with opened(path, "interleaved") as dataset:
        assert [one["sample_id"] for one in dataset] == ["d.jsonl/0", "x", "d.jsonl/2"]
        assert dataset[2]["sample_id"] == "d.jsonl/2"


def test_a_media_of_an_unknown_type_is_no_item(tmp_path: Path) -> None:
    path = lines(tmp_path, {"id": "a"}, {"id": "b", "media": [{"type": 7, "media_bytes": ""}]})
    assert documents(path)[1]["media"][0]["type"] == 7
    with opened(path, "interleaved") as dataset, pytest.raises(DataError, match="unknown type") as caught:
        list(dataset)
    assert caught.value.row == 1


def test_columns_that_would_be_two(tmp_path: Path) -> None:
    path = lines(tmp_path, {"id": "a", "position": 5})
    with opened(path, "interleaved") as dataset, pytest.raises(SchemaMismatch) as caught:
        list(dataset)
    assert caught.value.column == "position"


# Writing


def table(*rows: dict[str, Any]) -> pa.Table:
    """Documents as a table, their media with bytes."""
    item = pa.struct([("id", pa.string()), ("type", pa.int64()), ("alt", pa.string()), (BYTES, pa.binary())])
    kind = pa.schema([("id", pa.string()), ("text", pa.string()), ("media", pa.list_(item)), ("n", pa.int32())])
    return pa.Table.from_pylist(list(rows), kind)


_ROWS = [
    {"id": f"{i}", "text": "t" * i, "n": None if i == 3 else i,
     "media": [{"id": f"{i}-{j}", "type": j % 4, "alt": None if j else "ä", BYTES: None if (i, j) == (4, 1) else data}
               for j, data in enumerate(pictures(i, 3000))]}
    for i in range(9)
]  # fmt: skip


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": None},
        {"compression": "zstd", "content_size": True, "checksum": True},
        {"documents": "parquet", "compression_level": 9, "workers": 3},
    ],
)
@pytest.mark.parametrize("shard_size", ["256MB", "20KB"])
def test_what_is_written_is_read(tmp_path: Path, options: dict[str, Any], shard_size: str) -> None:
    given = table(*_ROWS)
    with lading.writer(tmp_path / "out", format=NAME, options=options, shard_size=shard_size) as writer:
        writer.write_batch(given.slice(0, 4))
        writer.write_batch(given.slice(4))
    with lading.open(tmp_path / "out") as dataset:
        assert dataset.format == NAME
        with pytest.warns(UserWarning, match="1 media name no path"):
            found = pa.Table.from_batches(dataset.batches()).to_pylist()
    for row, expected in zip(found, _ROWS, strict=True):
        assert {name: row[name] for name in ("id", "text", "n")} == {n: expected[n] for n in ("id", "text", "n")}
        assert [{name: one[name] for name in ("id", "type", "alt", BYTES)} for one in row["media"]] == expected["media"]
    archives = sorted((tmp_path / "out").glob("*.bin.zst"))
    assert len(archives) == len(dataset.shards)
    assert (len(archives) > 1) == (shard_size == "20KB")
    assert len(list((tmp_path / "out").iterdir())) == 2 * len(archives) + 1


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_archive_as_by_hand(tmp_path: Path, workers: int) -> None:
    contents = [*pictures(5), b"", bytes(300_000), *pictures(3, 2_000_000)]
    rows = [{"id": "a", "text": "", "media": [{"id": "m", BYTES: content} for content in contents]}]
    with lading.writer(tmp_path / "out", format=NAME, options={"compression": None, "workers": workers}) as writer:
        writer.write_batch(table(*rows))
    assert (tmp_path / "out/shard-000000.bin.zst").read_bytes() == b"".join(map(frame, contents))
    [document] = map(json.loads, (tmp_path / "out/shard-000000.jsonl").read_text().splitlines())
    sizes = [len(frame(content)) for content in contents]
    assert [one["length"] for one in document["media"]] == sizes
    assert [one["offset"] for one in document["media"]] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert {one["path"] for one in document["media"]} == {"shard-000000.bin.zst"}


def test_json_within_media_stays_json(tmp_path: Path) -> None:
    media = archived(tmp_path, b"x")
    told = {"n": 1 << 70, "f": 1.0, "s": "ä", "deep": [{"x": None}]}
    path = lines(tmp_path, {"id": "a", "media": [{**media[0], "metadata": told}], "metadata": told})
    for options in ({}, {"documents": "parquet"}):
        out = tmp_path / f"out{len(options)}"
        lading.convert(path, out, source_format=NAME, format=NAME, options=options, verify=True)
        [document] = documents(out)
        assert document["media"][0]["metadata"] == document["metadata"] == told


@pytest.mark.parametrize("name", ["text", "media"])
def test_nulls_are_refused(tmp_path: Path, name: str) -> None:
    rows = [*_ROWS[:2], {**_ROWS[2], name: None}]
    with pytest.raises(Unrepresentable, match="empty, and not null") as caught, \
            lading.writer(tmp_path / "out", format=NAME) as writer:  # fmt: skip
        writer.write_batch(table(*rows))
    assert (caught.value.row, caught.value.column) == (2, name)
    assert not (tmp_path / "out").exists()


def write_each(writer: DatasetWriter, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        writer.write_batch(table(row))


def test_a_failing_with_leaves_no_archive(tmp_path: Path) -> None:
    rows = [*_ROWS, {**_ROWS[1], "text": None}]
    with pytest.raises(Unrepresentable), lading.writer(tmp_path / "out", format=NAME, shard_size="20KB") as writer:
        write_each(writer, rows)
    assert list(tmp_path.iterdir()) == []


def test_the_places_of_media_are_no_content(tmp_path: Path) -> None:
    """A digest is of what documents hold: it is the same wherever the archives lie, and differs with their bytes."""
    contents = pictures(6)
    one = lines(tmp_path / "one", {"id": "a", "media": archived(_made(tmp_path / "one"), *contents)})
    again = archived(_made(tmp_path / "two"), b"before", *contents, name="other.zst", checksum=True)[1:]
    other = lines(tmp_path / "two", {"id": "a", "media": [{**m, "id": str(i)} for i, m in enumerate(again)]})
    changed = archived(_made(tmp_path / "three"), *contents[:-1], b"other")
    third = lines(tmp_path / "three", {"id": "a", "media": changed})
    digests = [lading.digest(path, format=NAME).ordered for path in (one, other, third)]
    assert digests[0] == digests[1] != digests[2]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_parquet_documents_with_types_of_their_own(tmp_path: Path) -> None:
    media = archived(tmp_path, *pictures(2))
    rows = [{"id": "a", "text": None, "media": media, "metadata": {"w": 1}}, {"id": "b", "text": "t", "media": None}]
    media[0]["metadata"] = media[1]["metadata"] = {"src": "s"}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    found = documents(tmp_path / "d.parquet")
    assert [one[BYTES] for one in found[0]["media"]] == pictures(2)
    assert found[0]["metadata"] == {"w": 1}
    assert (found[0]["text"], found[1]["media"]) == ("", [])


@pytest.mark.parametrize("name", ["d.parquet", "d.PARQUET", "d"])
def test_documents_of_parquet_whose_first_bytes_are_damaged(tmp_path: Path, name: str) -> None:
    """All of a Parquet file is found from its end; nothing but the first four bytes are lost."""
    path = tmp_path / name
    pq.write_table(pa.table({"id": ["a"], "text": ["t"]}), path)
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    assert documents(path) == [{"id": "a", "text": "t"}]
    result = lading.salvage(path, tmp_path / "out", source_format=NAME)
    assert (result.samples, result.lost_samples) == (1, 0)


def test_compressed_documents(tmp_path: Path) -> None:
    path = lines(tmp_path, {"id": "a", "media": archived(tmp_path, b"x")})
    for name, data in (("d.jsonl.gz", gzip.compress(path.read_bytes())),
                       ("d.jsonl.zst", zstandard.compress(path.read_bytes()))):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        assert documents(tmp_path / name)[0]["media"][0][BYTES] == b"x"


def test_the_archives_of_documents_in_another_store() -> None:
    MemoryStore({})
    with lading.writer("memory://archives/out", format=NAME) as writer:
        writer.write_batch(table(*_ROWS[:4]))
    with lading.open("memory://archives/out") as dataset:
        assert [len(one["media"]) for one in dataset] == [0, 1, 2, 3]
        assert dataset[3]["media"][2][BYTES] == pictures(3, 3000)[2]


@pytest.mark.parametrize("options", [{"archives": "tar"}, {"on_error": "drop"}, {"workers": 0}, {"nothing": 1}])
def test_options_that_are_none(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        opened(lines(tmp_path, {"id": "a"}), **options)
    with pytest.raises(UsageError):
        lading.writer(tmp_path / "out", format=NAME, options={"documents": "csv"}).write_batch(table(*_ROWS))
    with pytest.raises(UsageError, match="two files"):
        FORMAT.create([MemoryStore({}).put_stream("x")], table().schema, FORMAT.write_options({}))


def test_documents_of_parquet_whose_columns_are_few(tmp_path: Path) -> None:
    """What no column held is none of the written documents' content either."""
    rows = table({"id": "a", "media": [{"id": "m", BYTES: b"x"}]}).select(["id", "media"])
    pq.write_table(rows, tmp_path / "d.parquet")
    lading.convert(tmp_path / "d.parquet", tmp_path / "out", source_format=NAME, format=NAME, verify=True)
    with lading.open(tmp_path / "out") as dataset:
        assert dataset.schema.names == ["id", "media"]
        assert set(dataset[0]) == {"id", "media"}


@pytest.mark.soak
@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_null_texts_of_any_type_are_empty(tmp_path: Path, kind: pa.DataType) -> None:
    rows = pa.table({"id": ["a", "b"], "text": pa.array(["t", None]).cast(kind),
                     "media": pa.array([[], []], MEDIA_LIST), "metadata": [{"n": 1}, None]})  # fmt: skip
    pq.write_table(rows, tmp_path / "d.parquet")
    found = documents(tmp_path / "d.parquet")
    assert [(one["text"], one["metadata"]) for one in found] == [("t", {"n": 1}), ("", {"n": None})]
    for options in ({}, {"documents": "parquet"}):
        out = tmp_path / f"out{len(options)}"
        lading.convert(tmp_path / "d.parquet", out, source_format=NAME, format=NAME, options=options, verify=True)


MEDIA_LIST = pa.list_(pa.struct([("id", pa.string()), (BYTES, pa.binary())]))


@pytest.mark.parametrize("field", [("n", pa.int64()), ("metadata", pa.timestamp("s")), ("type", pa.string())])
def test_fields_of_media_that_lines_do_not_hold(tmp_path: Path, field: tuple[str, pa.DataType]) -> None:
    media = pa.array([[]], pa.list_(pa.struct([(BYTES, pa.binary()), field])))
    with pytest.raises(Unrepresentable) as caught, lading.writer(tmp_path / "out", format=NAME) as writer:
        writer.write_batch(pa.table({"id": ["a"], "media": media}))
    assert caught.value.column == f"media.{field[0]}"
    with lading.writer(tmp_path / "out", format=NAME, options={"documents": "parquet"}) as writer:
        writer.write_batch(pa.table({"id": ["a"], "media": media}))


@pytest.mark.parametrize("encoded", [False, True])
def test_numbers_of_media_have_64_bits_in_lines(tmp_path: Path, encoded: bool) -> None:
    """As many as those who read them take: the largest of int64 is, and no larger one."""

    def documents_of(*numbers: int) -> pa.Table:
        types = pa.array(numbers, pa.uint64())
        given = [pa.array([b"x"] * len(numbers)), types.dictionary_encode() if encoded else types]
        items = pa.StructArray.from_arrays(given, [BYTES, "type"])
        return pa.table({"id": ["a", "b"], "media": pa.ListArray.from_arrays([0, 1, len(numbers)], items)})

    with lading.writer(tmp_path / "out", format=NAME) as writer:
        writer.write_batch(documents_of(0, (1 << 63) - 1))
    assert [one["media"][0]["type"] for one in documents(tmp_path / "out")] == [0, (1 << 63) - 1]
    with pytest.raises(Unrepresentable) as caught, lading.writer(tmp_path / "o", format=NAME) as writer:
        writer.write_batch(documents_of(0, 1, 2, 1 << 63, 5))
    assert (caught.value.column, caught.value.row) == ("media.type", 1)


@pytest.mark.parametrize(
    "field, kind",
    [
        ("offset", pa.date32()),
        ("offset", pa.list_(pa.int64())),
        ("offset", pa.bool_()),
        ("offset", pa.string()),
        ("offset", pa.struct([("a", pa.int64())])),
        ("path", pa.int64()),
        (BYTES, pa.int64()),
        (BYTES, pa.list_(pa.uint8())),
    ],
    ids=str,
)
def test_types_that_fields_of_media_do_not_have(tmp_path: Path, field: str, kind: pa.DataType) -> None:
    item = pa.struct([("id", pa.string()), (field, kind)])
    table = pa.table({"id": ["a"], "media": pa.array([[{"id": "m", field: None}]], pa.list_(item))})
    pq.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(SchemaMismatch) as caught, opened(tmp_path / "d.parquet") as dataset:
        dataset.schema  # noqa: B018 - a pass over the file
    assert caught.value.column == f"media.{field}"
    with pytest.raises(Unrepresentable, match="column 'media'"), lading.writer(tmp_path / "o", format=NAME) as writer:
        writer.write_batch(table)


@pytest.mark.cases(3)
@pytest.mark.parametrize("number", [pa.float64(), pa.float32(), pa.decimal128(20, 2), pa.decimal256(40, 1)], ids=str)
@pytest.mark.parametrize("text", [pa.string(), pa.binary(), pa.large_binary()], ids=str)
def test_places_of_other_types(tmp_path: Path, number: pa.DataType, text: pa.DataType) -> None:
    """As pandas writes numbers of which some are missing, and old writers of Parquet texts."""
    (lies,) = archived(tmp_path, b"found")

    def table(offset: float) -> pa.Table:
        offsets, lengths = (pa.array([None, value], pa.float64()).cast(number) for value in (offset, lies["length"]))
        columns = [pa.array([None, lies["path"]], text), offsets, lengths, pa.array([b"own", None])]
        items = pa.StructArray.from_arrays(columns, [*PLACE, BYTES])
        return pa.table({"id": ["a", "b"], "media": pa.ListArray.from_arrays([0, 1, 2], items)})

    pq.write_table(table(0.0), tmp_path / "d.parquet")
    assert [one["media"] for one in documents(tmp_path / "d.parquet")] == [
        [{"path": None, "offset": None, "length": None, BYTES: b"own"}],
        [{"path": lies["path"], "offset": 0, "length": lies["length"], BYTES: b"found"}],
    ]
    pq.write_table(table(1.5), tmp_path / "d.parquet")
    with pytest.raises(CorruptShard) as caught:
        documents(tmp_path / "d.parquet")
    assert (caught.value.column, caught.value.row) == ("media.offset", 1)


@pytest.mark.parametrize(
    "kind, of_bytes, number",
    [
        (pa.string_view(), pa.binary_view(), pa.int8()),
        (pa.large_string(), pa.binary(1), pa.uint64()),
        (
            pa.dictionary(pa.int8(), pa.string()),
            pa.dictionary(pa.int8(), pa.binary()),
            pa.dictionary(pa.int8(), pa.int32()),
        ),
        (pa.null(), pa.string(), pa.null()),
    ],
    ids=str,
)
def test_types_that_fields_of_media_may_have(
    tmp_path: Path, kind: pa.DataType, of_bytes: pa.DataType, number: pa.DataType
) -> None:
    fields = [pa.nulls(1, kind), pa.array([b"x"]).cast(of_bytes), pa.nulls(1, number)]
    items = pa.StructArray.from_arrays(fields, ["path", BYTES, "length"])
    with lading.writer(tmp_path / "out", format=NAME) as writer:
        writer.write_batch(pa.table({"id": ["a"], "media": pa.ListArray.from_arrays([0, 1], items)}))
    assert [one["media"][0][BYTES] for one in documents(tmp_path / "out")] == [b"x"]


def test_items_of_texts_alone(tmp_path: Path) -> None:
    rows = pa.table({"sample_id": ["a", "a"], "position": pa.array([0, 1], pa.int32()), "modality": ["text", "text"],
                     "text_content": ["one", "two"]})  # fmt: skip
    with lading.writer(tmp_path / "out", format=NAME, view="interleaved") as writer:
        writer.write_batch(rows)
    with lading.open(tmp_path / "out") as dataset:
        assert [item["text_content"] for item in dataset[0]["items"]] == ["one", "two"]


def test_items_whose_media_stand_in_the_document(tmp_path: Path) -> None:
    """Somebody has put the bytes of an archive into the documents, or taken the place of one away."""
    [archive] = archived(tmp_path, b"one")
    told = [{"position": n, "modality": "image", "bytes": 3} for n in range(2)]
    inline = medium(media_bytes=base64.b64encode(b"two").decode())
    document = {"id": "a", "media": [archive, inline], "lading_items": told}
    with opened(lines(tmp_path, document), "interleaved") as dataset:
        assert [item["binary_content"] for item in dataset[0]["items"]] == [b"one", b"two"]
    path = lines(tmp_path, {**document, "media": [archive, {**archive, "path": None}]})
    with opened(path, "interleaved") as dataset:
        with pytest.warns(UserWarning, match="1 media name no path"):
            found = pa.Table.from_batches(dataset.batches())
        assert dataset.counts == {"media without path or offset, without bytes": 1}
    assert found.column("binary_content").to_pylist() == [b"one", None]


@pytest.mark.parametrize("version", [1, 2])
def test_items_without_a_record_are_counted(tmp_path: Path, version: int) -> None:
    record = frame(b"one")
    (tmp_path / "a.bin.zst").write_bytes(record if version > 1 else (3).to_bytes(4, "big") + record)
    one = medium(path="a.bin.zst", offset=0, length=len(record) if version > 1 else None)
    path = lines(tmp_path, {"id": "a", "media": [one, {**one, "offset": None}]})
    with opened(path, "interleaved") as dataset:
        with pytest.warns(UserWarning, match="1 media name no path"):
            found = pa.Table.from_batches(dataset.batches())
        assert dataset.counts == {"media without path or offset, without bytes": 1}
    assert found.column("binary_content").to_pylist() == [None, b"one", None]


def test_columns_that_lines_cannot_hold_are_written_as_the_error_says(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a"], "text": ["t"], "media": pa.array([[]], MEDIA_LIST), "npy": [b"\x93"]})
    with (
        pytest.raises(Unrepresentable, match="cannot hold bytes") as caught,
        DatasetWriter(tmp_path / "out", format=NAME) as writer,
    ):
        writer.write_batch(rows)
    assert "--to-option documents=parquet" in str(caught.value.advice)
    with DatasetWriter(tmp_path / "out", format=NAME, options={"documents": "parquet"}) as writer:
        writer.write_batch(rows)
    with lading.open(tmp_path / "out") as dataset:
        assert dataset[0]["npy"] == b"\x93"


@pytest.mark.parametrize("name, value", [("text", True), ("text", 3), ("id", 3), ("id", False)])
def test_values_that_are_no_texts_are_items_of_texts(tmp_path: Path, name: str, value: Any) -> None:
    plain = lines(tmp_path, {"id": "i", "text": "t", name: value})
    mixed = lines(tmp_path, {"id": "i", "text": "t", name: value}, {"id": "j", "text": "u"}, name="m.jsonl")
    with opened(plain, "interleaved") as dataset, opened(mixed, "interleaved") as other:
        for sample in (dataset[0], other[0]):
            told = sample["sample_id"] if name == "id" else sample["items"][0]["text_content"]
            assert told == json.dumps(value)
        assert (other[1]["sample_id"], other[1]["items"][0]["text_content"]) == ("j", "u")


@pytest.mark.parametrize(
    "column, values",
    [
        ("text", pa.array([["t"]])),
        ("text", pa.array([b"\xff"])),
        ("id", pa.array([{"a": 1}])),
        ("media.type", pa.array([[{"path": "a", "type": "image"}]])),
    ],
)
def test_columns_of_parquet_that_are_no_items(tmp_path: Path, column: str, values: pa.Array) -> None:
    columns = {"id": ["a"], "text": ["t"], "media": pa.array([[]], MEDIA_LIST), column.partition(".")[0]: values}
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    with opened(tmp_path / "d.parquet", "interleaved") as dataset, pytest.raises(SchemaMismatch) as caught:
        list(dataset)
    assert (caught.value.column, caught.value.file) == (column, str(tmp_path / "d.parquet"))


def test_a_damaged_record_is_named_with_its_archive(tmp_path: Path) -> None:
    [one, _] = archived(tmp_path, b"one", b"two")
    path = lines(tmp_path, {"id": "a", "media": [{**one, "length": one["length"] + 1}]})
    with opened(path, "interleaved") as dataset, pytest.raises(CorruptShard) as caught:
        list(dataset.batches())
    assert (caught.value.file, caught.value.offset) == (str(tmp_path / "a.bin.zst"), 0)


@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_files_of_parquet_whose_types_differ(tmp_path: Path, view: str) -> None:
    """Their types are their own: they become the smallest that hold both, as in any Parquet."""
    one = pa.struct([("id", pa.string()), (BYTES, pa.binary()), ("type", pa.int8())])
    other = pa.struct([(BYTES, pa.large_binary()), ("type", pa.int64()), ("alt", pa.string())])
    (tmp_path / "d").mkdir()
    for name, text, item in (("a", pa.string(), pa.list_(one)), ("b", pa.large_string(), pa.large_list(other))):
        media = pa.array([[{BYTES: name.encode(), "type": 0}]], item)
        rows = pa.table({"id": [name], "text": pa.array(["t"], text), "media": media})
        pq.write_table(rows, tmp_path / f"d/{name}.parquet")
    lading.convert(tmp_path / "d", tmp_path / "out", source_format=NAME, format="parquet", view=view, verify=True)
    with lading.open(tmp_path / "out") as dataset:
        found = list(dataset)
    media = [sample["media"] if view == "samples" else sample["items"][1:] for sample in found]
    name = BYTES if view == "samples" else "binary_content"
    assert [one[name] for [one] in media] == [b"a", b"b"]


def test_a_file_of_parquet_without_media(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "text": ["t"]}), tmp_path / "d.parquet")
    with opened(tmp_path / "d.parquet", "interleaved") as dataset:
        [item] = dataset[0]["items"]
        assert (item["modality"], item["text_content"]) == ("text", "t")


def test_documents_without_media_are_no_items_that_were_packed(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    document = {"id": "a", "text": "t", "lading_items": '[{"position": 0, "modality": "text"}]'}
    pq.write_table(pa.Table.from_pylist([document]), path)
    assert documents(path) == [document]
    with opened(path, "interleaved") as dataset:
        [item] = dataset[0]["items"]
        assert (item["modality"], item["text_content"]) == ("text", "t")
    assert lading.verify(path, format=NAME, deep=True).findings == []


def test_items_of_lines_whose_columns_differ_in_type(tmp_path: Path) -> None:
    """A column that holds a number in one file and a text in another is JSON in both."""
    for number, value in enumerate((1, "s", [1], None)):
        lines(tmp_path / "d", {"id": f"{number}", "x": value}, name=f"{number}.jsonl")
    lading.convert(
        tmp_path / "d", tmp_path / "out", source_format=NAME, format="parquet", view="interleaved", verify=True
    )
    with lading.open(tmp_path / "out") as dataset:
        assert [sample.get("x") for sample in dataset] == [1, "s", [1], None]


def test_items_without_an_id(tmp_path: Path) -> None:
    path = lines(tmp_path, {"id": None, "media": [], "lading_items": [{"position": 0, "modality": "text"}]})
    with opened(path, "interleaved") as dataset:
        for take in (lambda: dataset[0], lambda: list(dataset.batches())):
            with pytest.raises(DataError, match="has an id") as caught:
                take()
            assert caught.value.file == str(path)


@pytest.mark.parametrize("file", ["jsonl", "parquet"])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1)])
@pytest.mark.parametrize("encoded", [False, True])
def test_bytes_in_a_dictionary_are_media_too(tmp_path: Path, kind: pa.DataType, file: str, encoded: bool) -> None:
    values = [b"x", b"\xff", None, b"x"]
    with lading.writer(tmp_path / "out", format=NAME, options={"documents": file}) as writer:
        column = pa.array(values, kind)
        writer.write_batch(pa.table({"k": [*"abcd"], "d": column.dictionary_encode() if encoded else column}))
    with lading.open(tmp_path / "out") as dataset:
        found = pa.Table.from_batches(dataset.batches())
        assert dataset.schema.field("d").type == found.schema.field("d").type == pa.large_binary()
        assert found.column("d").to_pylist() == values
        assert (len(dataset.take([])), dataset.take([]).schema) == (0, dataset.take([1]).schema)
        assert dataset.take([3, 1]).column("d").to_pylist() == [b"x", b"\xff"]


@pytest.mark.parametrize("file", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "values, column",
    [
        (["x", "y"], "media"),
        ([1, 2], "media"),
        ([[1], [2]], "media"),
        ([{"a": 1}, None], "media"),
        ([[], [{"path": "p", BYTES: b"x"}]], "media.path"),
        ([[], [{"path": None, "offset": 3, BYTES: b"x"}]], "media.offset"),
        ([[], [{"length": 4, BYTES: None}]], "media.length"),
    ],
)
def test_a_column_that_holds_no_media_is_refused(tmp_path: Path, values: list[Any], column: str, file: str) -> None:
    table = pa.table({"k": ["a", "b"], "media": values})
    with (
        pytest.raises(Unrepresentable) as caught,
        lading.writer(tmp_path / "out", format=NAME, options={"documents": file}) as writer,
    ):
        writer.write_batch(table)
    assert caught.value.column == column
    assert caught.value.row == (None if column == "media" else 1)
    assert caught.value.advice is not None


def test_json_that_is_no_media_is_refused(tmp_path: Path) -> None:
    field = with_feature(pa.field("media", pa.string()), Json())
    table = pa.table([pa.array(["[]", '"x"'])], schema=pa.schema([field]))
    with pytest.raises(Unrepresentable, match="row 1 column 'media'"), lading.writer(tmp_path / "o", format=NAME) as w:
        w.write_batch(table)
    assert not (tmp_path / "o").exists()


@pytest.mark.soak
def test_places_go_round_with_their_documents(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "0", format=NAME) as writer:
        writer.write_batch(table(*_ROWS[:4]))
    for number, fmt in enumerate(("parquet", NAME, "arrow", NAME)):
        lading.convert(tmp_path / f"{number}", tmp_path / f"{number + 1}", format=fmt, verify=True)


def test_archives_may_lie_below_roots_that_are_named(tmp_path: Path) -> None:
    """As in a Hugging Face Hub's cache, where each file is a link to a blob."""
    (tmp_path / "a.tar").write_bytes(tar_of(("a.jpg", b"\xff\xd8\xff" + bytes(50))))
    lading.convert(tmp_path / "a.tar", tmp_path / "plain", format="media_archive")
    (tmp_path / "blobs").mkdir()
    shutil.copytree(tmp_path / "plain", tmp_path / "linked")
    for number, path in enumerate(sorted((tmp_path / "linked").glob("shard-*"))):
        path.rename(tmp_path / "blobs" / str(number))
        path.symlink_to(tmp_path / "blobs" / str(number))
    with pytest.raises(BadReference, match="roots="):
        lading.digest(tmp_path / "linked")
    roots = [tmp_path / "blobs"]
    assert lading.digest(tmp_path / "linked", roots=roots) == lading.digest(tmp_path / "plain")
    assert lading.convert(tmp_path / "linked", tmp_path / "out", format="mds", roots=roots, verify=True).samples == 1


@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_an_error_of_documents_read_by_row_names_the_row_of_the_file(tmp_path: Path, view: str) -> None:
    rows = [{"id": str(number), "text": ""} for number in range(6)]
    lines(tmp_path / "in", *rows[:5], {**rows[5], "media": [{"path": 3}]})
    with lading.open(tmp_path / "in" / "d.jsonl", format=NAME, view=view) as dataset:
        for read in (lambda: dataset[5], lambda: dataset.take([4, 5]), lambda: dataset.take([5, 0, 5]),
                     lambda: list(dataset.batches(max_rows=2))):  # fmt: skip
            with pytest.raises(CorruptShard, match=r"row 5 column 'media\.path'"):
                read()


def test_roots_may_be_of_another_kind_of_store_than_the_documents(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    media = archived(tmp_path / "media", b"one", b"two")
    far = f"memory://{tmp_path.name}-far"
    store, _ = resolve(far)
    for name in ("a.bin.zst", "other/a.bin.zst"):
        write_file(store, f"{far}/media/{name}", [(tmp_path / "media" / "a.bin.zst").read_bytes()])
    for folder, root in ((str(tmp_path), f"{far}/media"), (far, str(tmp_path / "media"))):
        told = [{**one, "path": f"{root}/a.bin.zst"} for one in media]
        document = json.dumps({"id": "d", "text": "", "media": told}).encode()
        write_file(resolve(folder)[0], f"{folder}/d.jsonl", [document])
        with lading.open(f"{folder}/d.jsonl", format=NAME, options={"roots": [root]}) as dataset:
            assert [one[BYTES] for one in dataset[0]["media"]] == [b"one", b"two"]
        for roots in ([], [f"{root}/other"]):
            with (
                lading.open(f"{folder}/d.jsonl", format=NAME, options={"roots": roots}) as dataset,
                pytest.raises(BadReference, match="leads outside the folders"),
            ):
                dataset[0]


@pytest.mark.parametrize("folder", ["", "near://a"])
def test_roots_may_be_of_stores_that_the_caller_gives(tmp_path: Path, folder: str) -> None:
    (lies,) = archived(tmp_path, b"found")
    far, near = MemoryStore(), MemoryStore()
    write_file(far, "far://b/a.bin.zst", [(tmp_path / lies["path"]).read_bytes()])
    document = json.dumps({"id": "d", "media": [{**lies, "path": "far://b/a.bin.zst"}]})
    folder = folder or str(tmp_path)
    stores = Stores({"far://": far, "near://": near})
    write_file(resolve(folder, stores)[0], f"{folder}/d.jsonl", [document.encode()])
    with lading.open(f"{folder}/d.jsonl", format=NAME, stores=stores, options={"roots": ["far://b"]}) as dataset:
        assert [one[BYTES] for one in dataset[0]["media"]] == [b"found"]


@pytest.mark.soak
@pytest.mark.parametrize("texts", [[{"a": 1}, None], [3, "x", None], [None, {"a": 1}, {"a": 2}]], ids=str)
def test_a_missing_text_among_texts_that_are_json_is_an_empty_text(tmp_path: Path, texts: list[Any]) -> None:
    rows = [{"id": str(i)} if text is None else {"id": str(i), "text": text} for i, text in enumerate(texts)]
    lines(tmp_path / "in", *rows)
    with lading.open(tmp_path / "in", format=NAME) as dataset:
        assert [one["text"] for one in dataset] == ["" if text is None else text for text in texts]
    options = {"source_format": NAME, "columns": ["id", "text"], "verify": True}
    for target in ("mds", "parquet", "webdataset", "jsonl"):
        lading.convert(tmp_path / "in", tmp_path / target, format=target, **options)
        with lading.open(tmp_path / target) as dataset:
            assert [one["text"] for one in dataset] == ["" if text is None else text for text in texts], target
