"""A wrapper of a view answers all that a view is asked: what it forgets falls back to a default without notice."""

from __future__ import annotations

from lading._core.interleaved.base import View
from lading._core.interleaved.mapped import MappedView

_NOT_OF_CHANGED_ROWS = {"column_reader", "sample_getter", "whole_samples"}  # values as the file has them
_SET_WHEN_MADE = {"copies", "has_errors", "holds_items", "has_members"}


def test_the_wrapper_of_views_answers_every_question() -> None:
    asked = {name for name in vars(View) if not name.startswith("_")}
    assert asked - _NOT_OF_CHANGED_ROWS == asked & (vars(MappedView).keys() | _SET_WHEN_MADE)
