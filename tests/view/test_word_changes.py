"""What differs between texts: both texts can be put together again from the parts, and few words differ."""

from __future__ import annotations

import difflib

from hypothesis import given
from hypothesis import strategies as st

from lading._core.view.word_changes import FieldChange, field_changes, word_changes

_TEXTS = st.lists(st.sampled_from(["a", "b", "cat", " ", "\n", ".", "é"]), max_size=40).map("".join)


def _text(parts: list[tuple[str, str]], side: str) -> str:
    return "".join(text for whose, text in parts if whose in ("same", side))


@given(_TEXTS, _TEXTS)
def test_both_texts_are_in_the_parts(one: str, other: str) -> None:
    parts = word_changes(one, other)
    assert (_text(parts, "a"), _text(parts, "b")) == (one, other)
    assert all(parts[i][0] != parts[i + 1][0] for i in range(len(parts) - 1))


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.lists(st.sampled_from("abcd"), max_size=30))
def test_no_shorter_way_is_known(one: list[str], other: list[str]) -> None:
    parts = word_changes(".".join(one), ".".join(other))
    changed = sum(len(text) for side, text in parts if side != "same")
    peer = difflib.SequenceMatcher(None, ".".join(one), ".".join(other), autojunk=False)
    theirs = sum(max(0, i2 - i1) + max(0, j2 - j1) for tag, i1, i2, j1, j2 in peer.get_opcodes() if tag != "equal")
    assert changed <= theirs


def test_changed_words_are_named() -> None:
    assert word_changes("the quick fox jumps", "the slow fox jumps over") == [
        ("same", "the "), ("a", "quick"), ("b", "slow"), ("same", " fox jumps"), ("b", " over"),
    ]  # fmt: skip


def test_texts_that_differ_everywhere_are_two_parts() -> None:
    one, other = (" ".join(f"{name}{i}" for i in range(20_000)) for name in "xy")
    parts = word_changes(f"same {one}", f"same {other}")
    assert [side for side, _ in parts] == ["same", "a", "b"]


def test_fields_of_json_that_differ_are_named() -> None:
    one = '{"a": 1, "b": {"c": [1, 2, {"d": "x"}]}, "only": null, "n": 12345678901234567890}'
    other = '{"b": {"c": [1, 3, {"d": "y"}, 4]}, "a": 1, "n": 12345678901234567891, "new": {"k": [1.0, true]}}'
    assert field_changes(one, other) == [
        FieldChange("b.c[1]", "2", "3"), FieldChange("b.c[2].d", '"x"', '"y"'), FieldChange("b.c[3]", None, "4"),
        FieldChange("only", "null", None), FieldChange("n", "12345678901234567890", "12345678901234567891"),
        FieldChange("new", None, '{"k": [1.0, true]}'),
    ]  # fmt: skip
    assert field_changes('{"a": 1}', '{"a": 1.0}') == [FieldChange("a", "1", "1.0")]
    assert field_changes('{"a": ["1"]}', '{"a": [1]}') == [FieldChange("a[0]", '"1"', "1")]
    assert field_changes('"1"', "1") == [FieldChange("", '"1"', "1")]


def test_what_is_no_json_has_no_fields() -> None:
    assert field_changes("{", "{}") is None
    assert field_changes("[" * 100_000, "[]") is None
