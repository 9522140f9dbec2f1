"""Samples as a list that people can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lading._core.content.preview import Previews, sample_text, table_html

__all__ = ["SampleList"]


class SampleList(list[dict[str, Any]]):
    """A list of samples that shows itself as text, and as a table in a notebook.

    Example:
        ds.head() == [ds[0], ds[1], ds[2], ds[3], ds[4]]

    Args:
        samples: the samples.
        labels: names of the numbers of columns of labels.
    """

    def __init__(
        self, samples: Iterable[dict[str, Any]] = (), labels: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__(samples)
        self._labels = labels or {}

    def __repr__(self) -> str:
        return "[" + ",\n ".join(sample_text(sample, " ") for sample in self) + "]"

    def _repr_html_(self) -> str:
        return table_html(self, Previews(labels=self._labels))
