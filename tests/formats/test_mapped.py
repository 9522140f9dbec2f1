"""A wrapper of a reader answers all that a reader is asked: what it forgets falls back to a default without notice."""

from __future__ import annotations

from lading._core.formats.base import ShardReader
from lading._core.formats.mapped import Mapped

_NOT_OF_CHANGED_ROWS = {
    "slices_columns", "column_slices", "sample_getter", "whole_samples",  # values as the file has them
    "member_reader", "document_reader",  # other ways to read the file
    "units",  # places of cuts count the rows of the whole file
}  # fmt: skip
_SET_WHEN_MADE = {"declares_types", "kept_bytes", "may_join", "has_errors", "holds_items", "has_members"}


def test_the_wrapper_of_readers_answers_every_question() -> None:
    asked = {name for name in vars(ShardReader) if not name.startswith("_")}
    assert asked - _NOT_OF_CHANGED_ROWS == asked & (vars(Mapped).keys() | _SET_WHEN_MADE)
