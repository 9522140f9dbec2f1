"""The methods of a dataset that go by keys of samples: join, split, dedup."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lading.dataset.join_table import JoinTable
from lading.dataset.key_steps import How, Join, SplitByGroup
from lading.errors import UsageError
from lading.features.items import KEY
from lading.formats.registry import get_format

if TYPE_CHECKING:
    from lading.dataset.dataset import Dataset
    from lading.dataset.source import Source
    from lading.dataset.steps import Step

__all__ = ["KeyVerbs"]

_WHOLE = 1e-6
"""Fractions may miss 1 by so much, for those that are computed."""


class KeyVerbs(ABC):
    """Every method gives new datasets."""

    __slots__ = ()

    @abstractmethod
    def _with(self, step: Step) -> Self:
        """The dataset with one more step."""

    @abstractmethod
    def _open_other(self, source: Source, view: str) -> Dataset:
        """Another source as a dataset."""

    @abstractmethod
    def _field(self, name: str) -> str:
        """The field that a user names: `key` is the key of samples, where no column is called so."""

    def join(
        self,
        table: Source | pa.Table | Any,
        on: str | Mapping[str, str] = "key",
        how: How = "left",
        columns: Sequence[str] | None = None,
    ) -> Self:
        """Add the columns of a table, such as scores or captions, to the samples with the same key.

        The table is loaded now, once in each process: memory for its key, the columns, and 16 bytes a row. Samples
        without a row are counted in the report of `write`, and in `ds.counts`. In a document, the values stand on its
        metadata row.

        Example: `ds.join("scores.parquet", on={"json.id": "id"}).where("score > 0.5")`

        Args:
            table: a Parquet, CSV, JSON Lines or Arrow file, or whatever else `lading.open` takes; a dataset; a
                `pyarrow.Table`; a data frame of pandas or polars. Numbers of a CSV file become numbers.
            on: field that holds the key in the samples and in the table, or `{field of the samples: column}`. `key`
                is the key of samples: `__key__`, or `sample_id` of documents. Texts are compared with texts, whole
                numbers with whole numbers.
            how: `left` keeps samples without a row, with nulls; `inner` leaves them out.
            columns: columns of the table to add; None for all but its key.

        Raises:
            UsageError: a column is missing, is on both sides already, or its types differ; the table has no row; a key
                is in several rows.
        """
        if isinstance(on, str):
            field, key = self._field(on), None if on in ("key", KEY) else on
        elif isinstance(on, Mapping) and len(on) == 1:
            [(asked, key)] = on.items()
            field = self._field(asked)
        else:
            raise UsageError("a join goes by one field", expected="a name, or {field of the samples: column}",
                             found=f"on={on!r}"[:80])  # fmt: skip
        if isinstance(columns, str):
            raise UsageError("columns are a list of names", found=repr(columns), advice=f"Give [{columns!r}].")
        found = self._table(table, key, None if columns is None else tuple(columns))
        step = Join(found, field, how)
        found.check()
        return self._with(step)

    def _table(self, table: Any, key: str | None, columns: tuple[str, ...] | None) -> JoinTable:
        if isinstance(table, KeyVerbs):
            return JoinTable(table, str(getattr(table, "source", "the dataset")), key, columns)
        if isinstance(table, pa.Table):
            return JoinTable(table, "the table", key, columns)
        if hasattr(table, "__arrow_c_stream__"):
            return JoinTable(pa.table(table), "the table", key, columns)
        if isinstance(table, (str, os.PathLike, list, tuple)):
            other = self._open_other(table, "samples")
            name = str(
                table if isinstance(table, str) else os.fspath(table) if isinstance(table, os.PathLike) else table[0]
            )
            return JoinTable(other, os.path.basename(name.rstrip("/")) or name, key, columns,
                             untyped=get_format(other.format).info.untyped)  # fmt: skip
        raise UsageError("not a table", expected="a file, a dataset, a pyarrow.Table or a data frame",
                         found=type(table).__name__)  # fmt: skip

    def split(self, parts: Mapping[str, float | None], *, seed: int = 0, by: str | Sequence[str]) -> dict[str, Self]:
        """Divide the samples into datasets, by name; together they hold all samples, and each sample once."""
        names = (by,) if isinstance(by, str) else tuple(by)
        shares = tuple((name, float(share or 0)) for name, share in _shares(parts).items())
        fields = tuple(self._field(name) for name in names)
        return {name: self._with(SplitByGroup(shares, name, fields, seed)) for name, _ in shares}


def _shares(parts: Mapping[str, float | None]) -> Mapping[str, float | None]:
    total = math.fsum(share or 0 for share in parts.values())
    if abs(total - 1) > _WHOLE:
        raise UsageError("the fractions of a split must add up to 1", found=f"{dict(parts)} adds up to {total:g}")
    return parts
