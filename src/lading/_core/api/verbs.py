"""What all methods of a dataset stand on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import HoldsQuery, Query
from lading._core.dataset.steps.base import Step

__all__ = ["Verbs"]


class Verbs(HoldsQuery):
    """A dataset in the hands of a user: an open dataset, whose samples its methods choose, change and read."""

    __slots__ = ("_rows",)

    def __init__(self, rows: OpenDataset) -> None:
        """Made by `lading.open`."""
        self._rows = rows

    @property
    def query(self) -> Query:
        """The dataset as a value: its source, how that is read, and the steps.

        Example: `ds.limit(3).query.steps == (Limit(3),)`
        """
        return self._rows.query

    def _with(self, *steps: Step) -> Self:
        """The dataset with more steps."""
        return type(self)(self._rows.with_steps(*steps))

    def __reduce__(self) -> tuple[Callable[[OpenDataset], Self], tuple[OpenDataset]]:
        return type(self), (self._rows,)
