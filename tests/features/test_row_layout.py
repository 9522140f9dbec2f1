"""The meaning of a row, a sample or an item: what the two values say and do."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from lading._core.features.items import INTERLEAVED_SCHEMA, VIEWS
from lading._core.features.row_layout import ITEMS, SAMPLES, RowLayout, row_layout
from lading._core.features.types import Image, with_feature
from lading._core.formats.registry import get_format

# Three documents: one with a metadata row and two items, one with an item, one with a metadata row alone.
_IDS = ["a", "a", "a", "b", "c"]
_ITEMS = pa.record_batch(
    {
        "sample_id": _IDS,
        "position": pa.array([-1, 0, 1, 0, -1], pa.int32()),
        "modality": ["metadata", "text", "image", "image", "metadata"],
        "text_content": [None, "hello", None, None, None],
        "binary_content": pa.array([None, None, b"1", b"2", None], pa.large_binary()),
        "materialize_error": [None, None, None, "gone", None],
        "license": ["mit", None, None, None, None],
    }
)
_SAMPLES = pa.record_batch({"__key__": ["x", "x", "y"], "n": [1, None, 3]})


def test_each_view_has_one_layout() -> None:
    assert [row_layout(view).view for view in VIEWS] == [*VIEWS]
    assert row_layout("samples") is SAMPLES and row_layout("interleaved") is ITEMS  # noqa: PT018 - one fact


def test_a_layout_is_the_same_value_in_another_process() -> None:
    assert pickle.loads(pickle.dumps(ITEMS)) == ITEMS != SAMPLES


def test_columns_of_a_layout_are_columns_that_its_rows_have() -> None:
    kept = (ITEMS.always_kept, ITEMS.placing, ITEMS.reserved, ITEMS.required)
    for names in (*kept, ITEMS.counting, ITEMS.payload, ITEMS.references, ITEMS.uncounted, ITEMS.words):
        assert names and {*names} <= {*INTERLEAVED_SCHEMA.names}  # noqa: PT018 - of each
    assert ITEMS.key == "sample_id"
    assert (SAMPLES.key, SAMPLES.always_kept) == ("__key__", ("__key__",))


def test_every_document_has_an_id_and_a_sample_may_lack_its_key() -> None:
    assert ITEMS.is_keyed
    assert not SAMPLES.is_keyed


@pytest.mark.parametrize(
    "layout, rows, firsts, keys",
    [(SAMPLES, _SAMPLES, [0, 1, 2], ["x", "x", "y"]), (ITEMS, _ITEMS, [0, 3, 4], ["a", "b", "c"])],
)
def test_samples_of_rows(layout: RowLayout, rows: pa.RecordBatch, firsts: list[int], keys: list[str]) -> None:
    assert layout.firsts(rows).tolist() == firsts
    assert layout.bounds(rows).tolist() == [*firsts, rows.num_rows]
    for given in (rows, pa.Table.from_batches([rows.slice(0, 2), rows.slice(2)])):
        assert layout.keys(given).to_pylist() == keys


def test_keys_of_any_type_of_text() -> None:
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        rows = pa.record_batch({"sample_id": pa.array(_IDS).cast(kind)})
        assert ITEMS.keys(rows).to_pylist() == ["a", "b", "c"]


def test_a_value_of_a_document_is_that_of_its_first_item_that_has_one() -> None:
    columns = [_ITEMS.column("text_content"), _ITEMS.column("binary_content")]
    texts, payload = ITEMS.values(_ITEMS, columns)
    assert texts.to_pylist() == ["hello", None, None]
    assert payload.to_pylist() == [b"1", b"2", None]
    assert SAMPLES.values(_SAMPLES, [_SAMPLES.column("n")])[0].to_pylist() == [1, None, 3]


def test_documents_of_one_id_are_not_in_one_part_and_samples_may_be() -> None:
    again = pa.record_batch({"sample_id": ["a", "a", "b", "a", "c"]})
    assert ITEMS.distinct_bounds(again) == [0, 3, 5]
    assert SAMPLES.distinct_bounds(_SAMPLES) == [0, 3]


def test_a_table_of_documents_is_one_batch_and_one_of_samples_stays_in_its_own() -> None:
    rows = pa.Table.from_batches([_ITEMS.slice(0, 1), _ITEMS.slice(1)])
    assert [batch.num_rows for batch in ITEMS.batches(rows)] == [5]
    assert [batch.num_rows for batch in SAMPLES.batches(rows)] == [1, 4]


def test_a_document_has_its_own_fields_and_its_items() -> None:
    rows = _ITEMS.select(["sample_id", "modality", "text_content", "license"]).to_pylist()
    one, *others = ITEMS.as_samples(rows, ITEMS.firsts(_ITEMS))
    assert one == {
        "sample_id": "a", "license": "mit",
        "items": [{"modality": "text", "text_content": "hello", "license": None},
                  {"modality": "image", "text_content": None, "license": None}],
    }  # fmt: skip
    assert [(each["sample_id"], len(each["items"])) for each in others] == [("b", 1), ("c", 0)]
    assert SAMPLES.as_samples(rows, []) is rows


def test_numbers_of_samples_are_rows_only_of_samples() -> None:
    assert SAMPLES.row_of(3) == 3
    assert ITEMS.row_of(3) is None
    assert SAMPLES.row_of(np.array([2, 5])).tolist() == [2, 5]


def test_images_are_columns_of_samples_and_items_of_documents() -> None:
    schema = pa.schema([with_feature(pa.field("photo", pa.binary()), Image()), pa.field("n", pa.int64())])
    assert SAMPLES.image_columns(schema) == ["photo"]
    assert ITEMS.image_columns(INTERLEAVED_SCHEMA) == ["binary_content"]
    # An item with an error is judged by the policy of errors, not measured.
    assert ITEMS.has_image(_ITEMS, "binary_content").tolist() == [False, False, True, False, False]
    assert SAMPLES.has_image(_SAMPLES, "n").tolist() == [True, False, True]


def test_a_filter_rejects_the_metadata_row_only_where_it_is_alone() -> None:
    assert ITEMS.judged(_ITEMS).tolist() == [False, True, True, True, True]
    assert SAMPLES.judged(_SAMPLES).all()


def test_shards_of_samples_may_lack_columns_and_those_of_items_have_all() -> None:
    assert SAMPLES.columns_asked(_SAMPLES.schema) is None
    assert ITEMS.columns_asked(_ITEMS.schema) == _ITEMS.schema.names


@pytest.mark.parametrize(
    "layout, name, told",
    [
        (SAMPLES, "parquet", (True, False, False)),
        (SAMPLES, "webdataset", (True, False, False)),
        (ITEMS, "parquet", (True, False, True)),
        (ITEMS, "webdataset", (False, True, False)),
    ],
)
def test_how_formats_store_rows(layout: RowLayout, name: str, told: tuple[bool, bool, bool]) -> None:
    info = get_format(name).info
    assert (layout.is_stored_as_rows(info), layout.is_stored_as_members(info), layout.may_refer(info)) == told
