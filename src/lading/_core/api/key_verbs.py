"""The methods of a dataset that go by keys of samples: join, split, dedup."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from lading._core.api.verbs import Verbs
from lading._core.arguments import public
from lading._core.arrow.streams import is_table, stream_of
from lading._core.dataset.opened import opened
from lading._core.dataset.query import HoldsQuery, Query
from lading._core.dataset.steps.key_steps import Dedup, How, Join, Keep, Split, SplitByGroup
from lading._core.dataset.steps.order_steps import refuse_no_seed
from lading._core.dataset.transform.join_table import JoinTable
from lading._core.features.items import KEY
from lading._core.formats.registry import get_format
from lading.errors import UsageError

if TYPE_CHECKING:
    from lading._core.dataset.source.rows import Openable

__all__ = ["KeyVerbs", "checked_shares"]

_ROUNDED = 1e-6
"""Fractions may miss 1 by so much, for those that are computed."""


@public("ds")
class KeyVerbs(Verbs):
    """Every method gives new datasets."""

    __slots__ = ()

    def join(
        self,
        table: Openable | HoldsQuery,
        on: str | Mapping[str, str] = "key",
        how: How = "left",
        columns: Sequence[str] | None = None,
    ) -> Self:
        """Add the columns of a table, such as scores or captions, to the samples with the same key.

        The table is loaded now, once in each process: memory for its key, the columns, and 16 bytes a row. Keys of
        samples are read up to the first that has a row, but not behind `map`. Samples without a row are counted in the
        report of `write`, and in `ds.counts`. In a document, the values stand on its metadata row.

        Example: `ds.join("scores.parquet", on={"json.id": "id"}).where("score > 0.5")`

        Args:
            table: a Parquet, CSV, JSON Lines or Arrow file, a data frame, dicts, or whatever else `lading.open` takes;
                or a dataset. Numbers of a CSV file become numbers.
            on: field that holds the key in the samples and in the table, or `{field of the samples: column}`. `key`
                is the key of samples: `__key__`, or `sample_id` of documents. Texts are compared with texts, whole
                numbers with whole numbers.
            how: `left` keeps samples without a row, with nulls; `inner` leaves them out.
            columns: columns of the table to add; None for all but its key.

        Raises:
            UsageError: a column is missing, is on both sides already, or its types differ; no sample has the field
                `on`, or a row in the table; the table has no row; a key is in several rows.
        """
        if isinstance(on, str):
            field, key = self._rows.field(on), None if on in ("key", KEY) else on
        elif isinstance(on, Mapping) and len(on) == 1:
            [(asked, key)] = on.items()
            field = self._rows.field(asked)
        else:
            raise UsageError("a join goes by one field", expected="a name, or {field of the samples: column}",
                             found=f"on={on!r}"[:80])  # fmt: skip
        if isinstance(columns, str):
            raise UsageError("columns are a list of names", found=repr(columns), advice=f"Give [{columns!r}].")
        found = self._table(table, key, None if columns is None else tuple(columns))
        step = Join(found, field, how)
        found.check()
        self._rows.refuse_absent((field,))
        self._rows.refuse_unmatched(step)
        return self._with(step)

    def _table(self, table: Any, key: str | None, columns: tuple[str, ...] | None) -> JoinTable:
        held = Query.held_by(table)
        if held is not None:
            return JoinTable(opened(held), str(held.source), key, columns)
        if is_table(table):
            rows = table if isinstance(table, pa.Table) else stream_of(table).read_all()
            return JoinTable(rows, "the table", key, columns)
        other = self._rows.other(table, "samples")
        names = other.query.source.names
        name = os.fspath(names if isinstance(names, str | os.PathLike) else names[0])
        return JoinTable(other, os.path.basename(name.rstrip("/")) or name, key, columns,
                         untyped=get_format(other.shards.format).info.types == "text")  # fmt: skip

    def split(
        self, parts: Mapping[str, float | None], *, seed: int = 0, by: str | Sequence[str] | None = None
    ) -> dict[str, Self]:
        """Divide the samples into datasets, by name. Together they hold all samples, each of them once, in order.

        Without `by`, samples are chosen at random, and the sizes are exact. With `by`, samples with the same values of
        these fields are all in one dataset, so that no group is on both sides. A hash of the values decides: sizes are
        approximate, only the first samples are read beforehand, and a group stays where it is when samples are added.
        A sample without a value in any of the fields is a group by itself (in data without keys, all of these are one
        group).

        Example: `ds.split({"train": 0.98, "val": 0.02}, by="json.url")["val"].write("val", format="parquet")`

        Args:
            parts: of each dataset the fraction of the samples; without `by` also their number (`{"val": 1000}`). None
                for one of them is the rest.
            seed: another seed gives another split.
            by: the field that tells the groups, or several.

        Raises:
            UsageError: fractions do not add up to 1, or one of them leaves nothing; no sample has the field `by`.
        """
        shares = checked_shares(parts)
        refuse_no_seed(seed)
        if by is None:
            divided = self._rows.divided({name: Split(shares, name, seed) for name, _ in shares})
            return {name: type(self)(rows) for name, rows in divided.items()}
        names = tuple(self._rows.field(name) for name in _named(by))
        fractions = _fractions(shares)
        self._rows.refuse_absent(names)
        return {name: self._with(SplitByGroup(fractions, name, names, seed)) for name, _ in shares}

    def dedup(self, by: str | Sequence[str] = "key", keep: Keep = "first") -> Self:
        """Keep one of the samples that are equal, by a hash of 128 bits; the order stays.

        The values, or the payload for `content`, are read once before the first sample is given. Memory is bounded:
        more than some million hashes go to temporary files.

        Example: `ds.dedup(by="content")`, `ds.dedup(by=["json.url", "txt"])`

        Args:
            by: `key`; `content`, which is all of a sample but its key, media as stored bytes; or fields. A sample that
                lacks one of the fields equals no other, and is kept.
            keep: the `first` or the `last` of equal samples.
        """
        if by == "content":
            return self._with(Dedup(None, keep))
        return self._with(Dedup(tuple(self._rows.field(name) for name in _named(by)), keep))


def _named(by: str | Sequence[str]) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) or not isinstance(by, Iterable) else tuple(by)
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError("a field is named by a text", expected="by='url', or by=['json.url', 'txt']",
                         found=f"by={by!r}"[:80])  # fmt: skip
    return names


def checked_shares(parts: Mapping[str, float | None]) -> tuple[tuple[str, float | int | None], ...]:
    """Return the shares of splits by name.

    Raises:
        UsageError: fractions that do not add up to 1, a share of nothing, or no share at all.
    """
    if not isinstance(parts, Mapping) or not parts:
        raise UsageError("a split names its parts", expected="{'train': 0.98, 'val': 0.02}", found=repr(parts)[:80])
    for name, share in parts.items():
        _refuse_no_share(name, share)
    fractions = [float(share) for share in parts.values() if share is not None and not _is_count(share)]
    rest = sum(share is None for share in parts.values())
    total = math.fsum(fractions)
    open_ended = rest or any(_is_count(share) for share in parts.values())
    too_much = total > 1 + _ROUNDED or (rest and total > 1 - _ROUNDED)
    if too_much or rest > 1 or (not open_ended and total < 1 - _ROUNDED):
        shown = ", ".join(f"{name}={share}" for name, share in parts.items())
        raise UsageError("the fractions of a split must add up to 1", found=f"{shown}: {total:g}",
                         advice="One may be the rest: --split-into train=rest,val=0.1.")  # fmt: skip
    return tuple((n, None if s is None else int(s) if _is_count(s) else float(s)) for n, s in parts.items())


def _refuse_no_share(name: object, share: object) -> None:
    real = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
    if not isinstance(name, str) or not name or not (share is None or real):
        raise UsageError("a split is a name with a fraction, a number of samples, or None for the rest",
                         found=f"{name!r}: {share!r}"[:80])  # fmt: skip
    if share is not None and not 0 < float(share) < math.inf:  # type: ignore[arg-type] # a number, as seen above
        raise UsageError(f"the split {name!r} would be empty", expected="more than 0", found=f"{name}={share}")


def _is_count(share: object) -> bool:
    return isinstance(share, (int, np.integer))


def _fractions(shares: tuple[tuple[str, float | int | None], ...]) -> tuple[tuple[str, float], ...]:
    for name, share in shares:
        if isinstance(share, int):
            raise UsageError("a split by groups has approximate sizes", expected="fractions", found=f"{name}={share}")
    rest = 1 - math.fsum(share for _, share in shares if share is not None)
    return tuple((name, rest if share is None else share) for name, share in shares)
