"""The type of a JSON column holds all of the values that it was made of."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.features.types import feature_of
from lading._core.tables.json_types import json_field, json_values

_NAMES = st.sampled_from(["a", "b", "c"])
_SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 65), 1 << 65) | st.floats(allow_nan=False) | st.text(max_size=3)
)
_JSON = st.recursive(
    _SCALARS, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(_NAMES, inside, max_size=3), max_leaves=8
)
_ALIKE = st.fixed_dictionaries(
    {"a": st.integers(-9, 9) | st.none(), "b": st.fixed_dictionaries({"c": st.floats(-1, 1)})}
)


def _as_json(value: Any, field: pa.Field) -> Any:
    """What a table shows as JSON again, without names whose value is null: a table has those in each row."""
    if value is None:
        return None
    if feature_of(field).is_json:
        return json.loads(value)
    if pa.types.is_struct(field.type):
        return {child.name: _as_json(value[child.name], child) for child in field.type}
    return [_as_json(each, field.type.value_field) for each in value] if isinstance(value, list) else value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.soak
@given(
    documents=st.lists(_ALIKE, min_size=1, max_size=5) | st.lists(_JSON, min_size=1, max_size=5), indent=st.booleans()
)
def test_a_typed_column_holds_its_json(documents: list[Any], indent: bool) -> None:
    field = json_field("json", documents)
    texts = pa.array([json.dumps(each, indent=2 if indent else None) for each in documents], pa.large_string())
    column = json_values(texts, field, field)
    assert column.type == field.type
    found = [_without_nulls(_as_json(value, field)) for value in column.to_pylist()]
    assert found == [_without_nulls(each) for each in documents]
