from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings

from lading._core.features.items import INTERLEAVED_SCHEMA, is_interleaved_schema, sample_starts
from lading.testing import strategies


@given(strategies.keys(dots=False, slashes=False))
def test_keys_hold_nothing_that_was_ruled_out(key: str) -> None:
    assert key
    assert not {".", "/", "\0"} & set(key)
    assert pa.scalar(key).as_py() == key


@given(strategies.keys(dots=False), strategies.keys(slashes=False))
def test_keys_hold_the_one_where_only_the_other_was_ruled_out(without_dots: str, without_slashes: str) -> None:
    assert "." not in without_dots
    assert "/" not in without_slashes


@pytest.mark.soak
@given(strategies.sample_tables(nulls=False))
@settings(max_examples=30)
def test_tables_without_nulls_have_none(table: pa.Table) -> None:
    assert not any(column.null_count for column in table.columns)


@given(strategies.sample_tables())
@settings(max_examples=30)
def test_every_sample_has_a_key_of_its_own_and_a_value(table: pa.Table) -> None:
    assert len(set(table.column("__key__").to_pylist())) == table.num_rows
    assert all(any(v is not None for k, v in row.items() if k != "__key__") for row in table.to_pylist())


@given(strategies.interleaved_tables())
@settings(max_examples=30)
def test_items_are_in_order(table: pa.Table) -> None:
    assert is_interleaved_schema(table.schema)
    assert table.schema == INTERLEAVED_SCHEMA
    assert len(sample_starts(table.column("sample_id"))) >= len(set(table.column("sample_id").to_pylist()))
    rows = table.to_pylist()
    for before, after in pairwise(rows):
        if before["sample_id"] == after["sample_id"]:
            assert before["position"] < after["position"]
    for row in rows:
        assert (row["text_content"] is not None) == (row["modality"] == "text")
        assert (row["binary_content"] is not None) == (row["modality"] == "image")
