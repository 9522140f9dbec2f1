"""JSON against the standard library's."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lading.errors import DataError
from lading.jsontext import canonical, dumps, loads

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


@given(_values, _forms)
def test_canonical_is_pythons_sorted_and_without_spaces(value: Any, form: dict[str, Any]) -> None:
    text = json.dumps(value, **form)
    expected = json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert canonical(json.loads(text)) == expected.encode("utf-8", "backslashreplace").decode()
    assert canonical(loads(text)) == canonical(json.loads(text))


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
