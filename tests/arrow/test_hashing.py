"""Names looked up by the batch."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.arrow.hashing import NameTable, hash_strings

NAMES = st.lists(st.text(max_size=20), max_size=60)


@pytest.mark.soak
@given(NAMES, NAMES)
def test_find_is_the_first_place_of_a_name(names: list[str], wanted: list[str]) -> None:
    found = NameTable(pa.array(names, pa.string())).find(pa.array(wanted, pa.string()))
    assert found.tolist() == [names.index(w) if w in names else -1 for w in wanted]


def test_null_is_not_found() -> None:
    assert NameTable(pa.array(["", "a"])).find(pa.array([None, "a"], pa.string())).tolist() == [-1, 1]


def test_names_of_one_hash_are_told_apart() -> None:
    # Thue-Morse strings collide under every polynomial modulo a power of two (Pachocki and Radoszewski).
    word = "a"
    for _ in range(11):
        word += word.translate(str.maketrans("ab", "ba"))
    other = word.translate(str.maketrans("ab", "ba"))
    column = pa.array([word, other])
    assert len(set(hash_strings(column).tolist())) == 1, "the premise of this test"
    assert NameTable(column).find(pa.array([other, word, "x"])).tolist() == [1, 0, -1]


def test_slices_and_large_strings_hash_alike() -> None:
    column = pa.array(["x", "hello", "", None, "é" * 300])
    whole = hash_strings(column)
    assert hash_strings(column.slice(1, 3)).tolist() == whole[1:4].tolist()
    assert hash_strings(column.cast(pa.large_string())).tolist() == whole.tolist()


@pytest.mark.soak
def test_blocks_do_not_show() -> None:
    names = pa.array([f"name-{i}" + "x" * (i % 900) for i in range(4000)])
    one_by_one = np.concatenate([hash_strings(names.slice(i, 1)) for i in range(len(names))])
    assert (hash_strings(names) == one_by_one).all()
