"""MINT-1T style tars as items: what is counted, what is read, and fields that share a name with a column."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from in_process import by_tasks
from lading._core.api.opening import open_dataset
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.interleaved.tar_members import refuse_names
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, LimitExceeded, SchemaMismatch, UsageError
from lading.limits import Limits
from lading.testing import CountingStore
from tars import tar_of


def tar_with(documents: Mapping[str, Mapping[str, Any]], images: Mapping[str, bytes]) -> bytes:
    """A tar with these images, then these documents."""
    return tar_of(*images.items(), *((name, json.dumps(document).encode()) for name, document in documents.items()))


def _far(tar: bytes) -> CountingStore:
    """A remote store with a tar."""
    store = CountingStore(MemoryStore({"far://x.tar": tar}))
    store.request_bytes = 1 << 20
    return store


@pytest.mark.soak
def test_what_is_left_out_is_counted_in_every_shard(tmp_path: Path) -> None:
    count = 70
    (tmp_path / "in").mkdir()
    for i in range(count):
        document = {"sample_id": str(i), "texts": ["t"], "images": [None]}
        (tmp_path / "in" / f"{i:03}.tar").write_bytes(tar_with({"a.json": document, "b.json": document}, {}))
    options = lading.options.InterleavedOptions(sample_id_field=None)
    summary = lading.convert(tmp_path / "in", tmp_path / "out", format="parquet", interleaved=options)
    assert summary.counts == {"samples whose JSON field 'sample_id' was left out, for the member's name": 2 * count}


def test_columns_that_every_sample_has_cost_one_look_at_the_documents() -> None:
    document = {"texts": ["t", None], "images": [None, "a.jpg"], "own": 1}
    store = CountingStore(MemoryStore({"box://x.tar": tar_with({"a.json": document}, {"a.jpg": b"picture"})}))
    with open_dataset("box://x.tar", view="interleaved", stores=Stores({"box://": store}),
                      interleaved=lading.options.InterleavedOptions(sample_id_field=None)) as dataset:  # fmt: skip
        [batch] = dataset.batches(columns=["sample_id", "text_content"], lazy=True)
        assert batch.column("text_content").to_pylist() == [None, "t", None]
    body = json.dumps(document).encode()
    assert [length for _, length in store.ranges["box://x.tar"]].count(len(body)) == 1


def test_a_list_of_entries_may_be_called_as_a_column_is(tmp_path: Path) -> None:
    document = {"sample_id": "s", "texts": [None, "t", None], "images": ["a.jpg", None, "b.jpg"], "position": [7, None]}
    (tmp_path / "x.tar").write_bytes(tar_with({"s.json": document}, {"a.jpg": b"A", "b.jpg": b"B"}))
    options = lading.options.InterleavedOptions(per_image_fields=("position",))
    lading.convert(tmp_path / "x.tar", tmp_path / "p", format="parquet", interleaved=options)
    lading.convert(tmp_path / "p", tmp_path / "t", format="webdataset", verify=True)
    for place in ("p", "t"):
        with lading.open(tmp_path / place) as dataset:
            assert [item.get("json.position") for item in dataset[0]["items"]] == [7, None, None]
    with tarfile.open(tmp_path / "t" / "shard-000000.tar") as archive:
        [name] = (n for n in archive.getnames() if n.endswith(".json"))
        assert json.load(archive.extractfile(name) or io.BytesIO())["position"] == [7, None]


def test_a_field_has_entries_for_one_kind_of_items() -> None:
    with pytest.raises(UsageError, match="'alt' in two options"):
        lading.options.InterleavedOptions(per_image_fields=("alt",), per_text_fields=("alt",))


def test_a_field_that_no_sample_has_is_null_and_named(tmp_path: Path) -> None:
    document = {"sample_id": "s", "texts": ["t"], "images": [None], "own": 1}
    (tmp_path / "x.tar").write_bytes(tar_with({"s.json": document}, {}))
    lading.convert(tmp_path / "x.tar", tmp_path / "p", format="parquet")
    options = lading.options.InterleavedOptions(fields=("own", "nope"))
    for place in (tmp_path / "x.tar", tmp_path / "p"):
        with lading.open(place, interleaved=options) as dataset:
            with pytest.warns(UserWarning, match="no sample has the field 'nope'"):
                rows = [row for batch in dataset.batches() for row in batch.to_pylist()]
            assert [(row["own"], row["nope"]) for row in rows] == [(1, None), (None, None)]
            assert dataset.counts == {"shards without the field 'nope', null there": 1}


def test_a_field_of_ids_that_no_sample_has_is_told(tmp_path: Path) -> None:
    document = {"sample_id": "s", "texts": ["t"], "images": [None]}
    (tmp_path / "x.tar").write_bytes(tar_with({"member.json": document}, {}))
    with lading.open(
        tmp_path / "x.tar", interleaved=lading.options.InterleavedOptions(sample_id_field="nope")
    ) as dataset:
        with pytest.warns(UserWarning, match="no sample has the field 'nope'"):
            rows = [row for batch in dataset.batches() for row in batch.to_pylist()]
        assert {row["sample_id"] for row in rows} == {"member"}
        assert [text for text in dataset.counts if "'nope'" in text] != []
    with lading.open(
        tmp_path / "x.tar", interleaved=lading.options.InterleavedOptions(sample_id_field=None)
    ) as dataset:
        assert {row["sample_id"] for batch in dataset.batches() for row in batch.to_pylist()} == {"member"}


@pytest.mark.parametrize("given", [{"fields": ("a",)}, {"unreferenced": "drop"}, {"sample_id_field": "id"}])
def test_options_of_documents_are_refused_where_there_are_none(given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of(("k.txt", b"x")))
    options = lading.options.InterleavedOptions(**given)
    for view in (None, "samples"):
        with pytest.raises(UsageError, match=f"interleaved documents only; found {next(iter(given))}"):
            lading.open(tmp_path / "x.tar", view=view, interleaved=options)
    with lading.open(tmp_path / "x.tar", interleaved=lading.options.InterleavedOptions()) as dataset:
        assert len(dataset) == 1


@pytest.mark.parametrize("members, samples", [([], 0), ([("a.json", b'{"texts": ["x", "im'), ("a.jpg", b"")], 1)])
def test_where_no_document_can_be_read_there_is_none_that_options_would_not_be_for(
    members: list[tuple[str, bytes]], samples: int, tmp_path: Path
) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of(*members))
    options = lading.options.InterleavedOptions(per_image_fields=("w",))
    summary = lading.convert(tmp_path / "x.tar", tmp_path / "out", format="parquet", interleaved=options)
    assert summary.samples == samples
    copy = lading.convert(tmp_path / "x.tar", tmp_path / "t", format="webdataset", interleaved=options, verify=True)
    assert (copy.samples, copy.verified) == (samples, True)
    with lading.open(tmp_path / "x.tar", interleaved=options) as dataset, pickle.loads(pickle.dumps(dataset)) as again:
        assert (dataset.view, again.view) == ("samples", "samples")


def test_a_shard_whose_documents_are_broken_leaves_it_to_the_next_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(tar_of(("a.json", b'{"texts": ["x", "im')))
    (tmp_path / "1.tar").write_bytes(tar_with({"b.json": {"texts": ["t"], "images": [None]}}, {}))
    with lading.open(tmp_path) as dataset:
        assert dataset.view == "interleaved"


@pytest.mark.parametrize("broken", [0, 3])
def test_broken_documents_among_whole_ones_do_not_hide_what_these_are(broken: int, tmp_path: Path) -> None:
    texts = [json.dumps({"texts": ["t"], "images": [None]}).encode() for _ in range(6)]
    texts[broken] = texts[broken][:-3]
    (tmp_path / "x.tar").write_bytes(tar_of(*((f"{i}.json", text) for i, text in enumerate(texts))))
    with lading.open(tmp_path / "x.tar") as dataset:
        assert dataset.view == "interleaved"
    [finding] = lading.verify(tmp_path / "x.tar", deep=True).findings
    assert finding["sample"] == f"{broken}.json"
    with pytest.raises(DataError, match=f"{broken}.json"):
        lading.convert(tmp_path / "x.tar", tmp_path / "out", format="parquet")
    saved = lading.salvage(tmp_path / "x.tar", tmp_path / "saved")
    assert (saved.view, saved.samples) == ("interleaved", 5)


@pytest.mark.parametrize(
    "sizes, view",
    [([2 << 20] * 3, "interleaved"), ([9 << 20, 7 << 20], "interleaved"), ([9 << 20], "samples")],
)
@pytest.mark.parametrize("broken", [False, True])
def test_of_large_documents_one_tells_what_they_are(broken: bool, sizes: list[int], view: str, tmp_path: Path) -> None:
    large = [(f"{i}.json", json.dumps({"texts": ["t" * size], "images": [None]})) for i, size in enumerate(sizes)]
    members = [("b.json", '{"texts": ["x", "im')] * broken + large
    (tmp_path / "x.tar").write_bytes(tar_of(*((name, text.encode()) for name, text in members)))
    with lading.open(tmp_path / "x.tar") as dataset:
        assert dataset.view == view


@pytest.mark.parametrize("size, members", [(50_000, 96), (300_000, 16), (1_000_000, 16)])
def test_of_a_remote_tar_without_documents_little_is_read_to_open_it(size: int, members: int) -> None:
    """Members up to 4 MiB, in steps of 16; of large ones half a MiB each, at most."""
    store = _far(tar_of(*((f"{i:03}.jpg", bytes(size)) for i in range(2 * members))))
    with lading.open("far://x.tar", stores=Stores({"far://": store})) as dataset:
        assert dataset.view == "samples"
    assert store.bytes_read <= min((members + 1) * (size + 1024), 8 << 20) + (512 << 10)
    assert len(store.ranges["far://x.tar"]) <= 20


@pytest.mark.parametrize("size, images", [(50_000, 80), (1_000_000, 15)])
def test_a_document_behind_its_images_is_seen_in_a_remote_tar(size: int, images: int) -> None:
    document = {"texts": [None], "images": ["0.jpg"]}
    store = _far(tar_with({"d.json": document}, {f"{i}.jpg": bytes(size) for i in range(images)}))
    with lading.open("far://x.tar", stores=Stores({"far://": store})) as dataset:
        assert dataset.view == "interleaved"


def test_what_small_documents_tell_is_not_asked_of_a_large_one(tmp_path: Path) -> None:
    small = json.dumps({"texts": "t"}).encode()
    large = json.dumps({"texts": ["t" * (2 << 20)], "images": [None]}).encode()
    (tmp_path / "x.tar").write_bytes(tar_of(("a.json", large), ("b.json", small)))
    with lading.open(tmp_path / "x.tar") as dataset:
        assert dataset.view == "samples"


@pytest.fixture(params=["webdataset", "parquet"])
def scored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two samples with fields of their own, in either format."""
    documents = {
        f"{i}.json": {"sample_id": str(i), "texts": ["t", None], "images": [None, f"{i}.jpg"], "score": i, "own": "x"}
        for i in (1, 2)
    }
    (tmp_path / "x.tar").write_bytes(tar_with(documents, {"1.jpg": b"one", "2.jpg": b"two"}))
    if request.param == "webdataset":
        return tmp_path / "x.tar"
    lading.convert(tmp_path / "x.tar", tmp_path / "p", format="parquet")
    return tmp_path / "p"


def test_the_schema_that_is_asked_for_is_the_schema_that_comes(scored: Path) -> None:
    asked = pa.schema(
        [
            ("score", pa.float32()),
            ("sample_id", pa.large_string()),
            pa.field("position", pa.int64()),
            ("modality", pa.string()),
            ("binary_content", pa.large_binary()),
            ("absent", pa.date32()),
        ]
    )
    with lading.open(scored, schema=asked) as dataset:
        batches = list(dataset.batches())
        assert all(batch.schema.equals(asked) for batch in batches)
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["score"] for row in rows] == [1.0, None, None, 2.0, None, None]
        assert [row["binary_content"] for row in rows] == [None, None, b"one", None, None, b"two"]
        assert dataset.schema.equals(asked)
        assert dataset.take([1]).schema.equals(asked)
        assert dataset.take([1], columns=["score"]).column("score").to_pylist() == [2.0, None, None]
        assert dataset[1]["score"] == 2.0


def test_overrides_change_types_and_leave_other_columns_as_they_are(scored: Path) -> None:
    with lading.open(scored, schema_overrides={"text_content": pa.large_string(), "score": pa.int8()}) as dataset:
        [*batches] = dataset.batches()
    names = [*INTERLEAVED_SCHEMA.names, "score", "own"]
    assert [batch.schema.names for batch in batches] == [names] * len(batches)
    assert batches[0].schema.field("text_content").type == pa.large_string()
    assert batches[0].schema.field("score").type == pa.int8()


def test_a_value_that_does_not_fit_the_type_asked_for_is_an_error(scored: Path) -> None:
    asked = {"own": pa.int32()}
    with lading.open(scored, schema_overrides=asked) as dataset, pytest.raises(SchemaMismatch) as caught:
        list(dataset.batches())
    assert caught.value.column == "own"


def test_both_ways_to_ask_for_a_schema_at_once(scored: Path) -> None:
    asked = pa.schema([("sample_id", pa.string()), ("position", pa.int32()), ("score", pa.int64())])
    with pytest.warns(UserWarning, match="schema holds"):
        dataset = lading.open(scored, schema=asked, schema_overrides={"score": pa.int8()})
    with dataset:
        assert next(dataset.batches()).schema.equals(asked)


def test_shards_whose_fields_differ_in_type_are_taken_together(tmp_path: Path) -> None:
    for i, value in enumerate((1, "00710")):
        document = {"sample_id": f"{i}", "texts": ["t"], "images": [None], "zip": value}
        (tmp_path / f"{i}.tar").write_bytes(tar_with({f"{i}.json": document}, {}))
    with lading.open(tmp_path) as dataset, pytest.raises(SchemaMismatch, match="zip"):
        dataset.take([0, 1])
    with lading.open(tmp_path, schema_overrides={"zip": pa.string()}) as dataset:
        assert dataset.take([1, 0]).column("zip").to_pylist() == ["00710", None, "1", None]


TYPED = {
    "id": pa.array([2**64 - 1, 5], pa.uint64()),
    "small": pa.array([-3, None], pa.int8()),
    "ratio": pa.array([0.1, None], pa.float32()),
    "name": pa.array(["x", "y"], pa.large_string()),
    "kind": pa.array(["u", "v"]).dictionary_encode(),
    "none": pa.nulls(2, pa.int32()),
}


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """Two shards of a sample each, whose values alone would give them other types."""
    with lading.writer(tmp_path / "typed", view="interleaved", shard_size=1) as writer:
        for i in range(2):
            values = {
                name: pa.concat_arrays([column[i : i + 1], pa.nulls(1, column.type)]) for name, column in TYPED.items()
            }
            writer.write_batch(item_rows(f"s{i}", **values, score=pa.array([None, 2**63 if i else 1], pa.uint64())))
    return tmp_path / "typed"


def item_rows(sample: str, **columns: pa.Array) -> pa.Table:
    """A metadata row and a text."""
    own = {"sample_id": [sample] * 2, "position": pa.array([-1, 0], pa.int32()), "modality": ["metadata", "text"]}
    return pa.table({**own, "text_content": [None, "t"], **columns})


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_columns_have_the_types_that_they_were_written_with(workers: int, typed: Path, tmp_path: Path) -> None:
    lading.convert(typed, tmp_path / "again", format="webdataset", shard_size=1, **by_tasks(workers), verify=True)
    lading.convert(typed, tmp_path / "table", format="parquet", **by_tasks(workers), verify=True)
    want = {name: column.type for name, column in TYPED.items()} | {"score": pa.uint64(), "kind": pa.string()}
    for place in (typed, tmp_path / "again", tmp_path / "table"):
        with lading.open(place) as dataset:
            rows = pa.concat_tables([pa.Table.from_batches([batch]) for batch in dataset.batches()])
            picked = dataset.take([1])
        assert {name: rows.schema.field(name).type for name in rows.schema.names[8:]} == want
        assert rows.column("id").to_pylist() == [2**64 - 1, None, 5, None]
        assert rows.column("score").to_pylist() == [None, 1, None, 2**63]
        assert picked.column("id").to_pylist() == [5, None]


def test_fields_that_are_taken_for_other_items_have_the_types_of_their_values(typed: Path) -> None:
    with lading.open(typed, interleaved=lading.options.InterleavedOptions()) as dataset:
        batches = list(dataset.batches())
    assert [batch.column("score").to_pylist() for batch in batches] == [["[1]", None], ["[9223372036854775808]", None]]
    assert [batch.schema.field("small").type for batch in batches] == [pa.int8()] * 2


def test_a_value_that_is_not_of_the_type_that_was_kept(typed: Path) -> None:
    [shard, *_] = sorted(typed.glob("*.tar"))
    shard.write_bytes(shard.read_bytes().replace(b'"small": -3', b'"small": ""'))
    with lading.open(typed) as dataset, pytest.raises(SchemaMismatch) as caught:
        list(dataset.batches())
    assert (caught.value.column, caught.value.file) == ("small", str(shard))


@pytest.mark.parametrize(
    "one, two, kind, values",
    [
        (pa.array([-1], pa.int8()), pa.array([200], pa.uint8()), pa.int64(), [-1, 200]),
        (pa.array([1], pa.uint8()), pa.array([2**64 - 1], pa.uint64()), pa.uint64(), [1, 2**64 - 1]),
        (pa.array([-1], pa.int8()), pa.array([2**64 - 1], pa.uint64()), pa.string(), ["-1", "18446744073709551615"]),
        (pa.array([0.5], pa.float32()), pa.array([0.1]), pa.float64(), [0.5, 0.1]),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), pa.string(), ["a", "b"]),
        (pa.nulls(1), pa.array([1], pa.int8()), pa.int8(), [None, 1]),
    ],
)
def test_batches_of_other_types_are_held_by_one(
    one: pa.Array, two: pa.Array, kind: pa.DataType, values: list[Any], tmp_path: Path
) -> None:
    with lading.writer(tmp_path / "out", view="interleaved") as writer:
        for sample, column in (("a", one), ("b", two)):
            writer.write_batch(item_rows(sample, x=pa.concat_arrays([column, pa.nulls(1, column.type)])))
    with lading.open(tmp_path / "out") as dataset:
        [batch] = dataset.batches()
    assert batch.schema.field("x").type == kind
    assert batch.column("x").to_pylist()[::2] == values


def test_a_schema_that_tells_no_items_apart(scored: Path) -> None:
    with pytest.raises(UsageError, match="identifies items"):
        lading.open(scored, schema=pa.schema([("position", pa.int32())]))


def test_a_copy_as_samples_is_taken_as_items_later(tmp_path: Path) -> None:
    """The index that was kept is that of the samples."""
    told = json.dumps({"texts": ["t", None], "images": [None, "a.1.jpg"]}).encode()
    (tmp_path / "x.tar").write_bytes(tar_of(("a.1.jpg", b"jpg"), ("a.json", told)))
    lading.convert(tmp_path / "x.tar", tmp_path / "out", format="webdataset", view="samples")
    with lading.open(tmp_path / "out", view="interleaved") as dataset:
        assert len(dataset) == 1
        assert [item.get("binary_content") for item in dataset[0]["items"]] == [None, b"jpg"]


def test_names_of_members_are_held_as_far_as_a_limit_allows(tmp_path: Path) -> None:
    document = {"sample_id": "s", "texts": ["t"], "images": [None]}
    data = tar_with({"s.json": document}, {"n" * 80 + f"{i}.jpg": b"J" for i in range(100)})
    (tmp_path / "x.tar").write_bytes(data)
    options, limits = lading.options.InterleavedOptions(unreferenced="drop"), Limits(tar_keys_bytes=8000)
    said = r"x\.tar @ 0: the names of the members are too long.*at most 8000 bytes.*tar_keys_bytes="
    with (
        lading.open(tmp_path / "x.tar", interleaved=options, limits=limits) as dataset,
        pytest.raises(LimitExceeded, match=said),
    ):
        len(dataset)
    with lading.open(tmp_path / "x.tar", interleaved=options) as dataset:
        assert len(dataset) == 1
    (tmp_path / "x.tar").write_bytes(data[:1024] + b"x" * 512 + data[1024:])
    with pytest.raises(DataError, match=r"names of the members are too long.*tar_keys_bytes="):
        lading.salvage(tmp_path / "x.tar", tmp_path / "out", view="interleaved", interleaved=options, limits=limits)


def test_names_that_no_array_holds_are_refused() -> None:
    limits = Limits(tar_keys_bytes=1 << 40)
    refuse_names((1 << 31) - 1, limits, "x.tar")
    with pytest.raises(LimitExceeded, match=r"x\.tar: the names of the members .*at most 2147483647 bytes"):
        refuse_names(1 << 31, limits, "x.tar")
