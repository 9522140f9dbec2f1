"""JSON against the standard library's."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading._core.arrow.json_text import canonical, dumps, dumps_each, loads
from lading.errors import DataError

_texts = st.text(st.characters(exclude_categories=()), max_size=8)
_numbers = st.integers() | st.integers(-(1 << 70), 1 << 70) | st.floats()
_values = st.recursive(
    st.none() | st.booleans() | _numbers | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=12,
)
_forms = st.fixed_dictionaries(
    {"ensure_ascii": st.booleans(), "indent": st.none() | st.just(1), "sort_keys": st.booleans()}
)


@given(_values, _forms)
def test_loads_is_pythons(value: Any, form: dict[str, Any]) -> None:
    text = json.dumps(value, **form)
    assert repr(loads(text)) == repr(json.loads(text))
    assert repr(loads(text.encode("utf-8", "surrogatepass"))) == repr(json.loads(text))


@given(_values)
def test_dumps_is_pythons(value: Any) -> None:
    expected = json.dumps(value, ensure_ascii=False)
    assert dumps(value) == expected.encode("utf-8", "backslashreplace").decode()


_columns = [
    (pa.string(), st.text(max_size=12)),
    (pa.large_string(), st.text('",\\\n \x00nul[]é', max_size=12)),
    (pa.dictionary(pa.int32(), pa.string()), st.text("ab", max_size=1)),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.null(), st.none()),
]


@pytest.mark.parametrize("kind, values", _columns, ids=lambda kind: str(kind) if isinstance(kind, pa.DataType) else "")
@given(data=st.data())
def test_each_of_many_values_is_spelled_alone(kind: pa.DataType, values: Any, data: st.DataObject) -> None:
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=20)), kind)
    found = dumps_each(column)
    found.validate(full=True)
    assert found.type == pa.large_string()
    assert found.to_pylist() == [dumps(value) for value in column.to_pylist()]


@pytest.mark.soak
def test_each_character_is_spelled_as_python_does() -> None:
    column = pa.array([chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000])
    assert dumps_each(column).to_pylist() == [json.dumps(c, ensure_ascii=False) for c in column.to_pylist()]


@given(_values, _forms)
def test_canonical_is_pythons_sorted_and_without_spaces(value: Any, form: dict[str, Any]) -> None:
    text = json.dumps(value, **form)
    expected = json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert canonical(json.loads(text)) == expected.encode("utf-8", "backslashreplace").decode()
    assert canonical(loads(text)) == canonical(json.loads(text))


@pytest.mark.soak
@settings(max_examples=300)
@given(st.binary(max_size=12) | st.text('[]{}",:0123456789.eE+-truefalsn \\/ud', max_size=20).map(str.encode))
def test_any_bytes_give_a_value_or_our_error(data: bytes) -> None:
    try:
        expected = repr(json.loads(data.decode("utf-8", "surrogatepass")))
    except ValueError:
        expected = None
    try:
        found = repr(loads(data))
    except DataError:
        found = None
    assert found == expected
