"""Row groups that cannot hold what a filter looks for, by the statistics in the footer.

pyarrow can do this too, but not for columns with nulls, and a damaged statistic ends the process. So its expressions
are asked about ranges that are read here.

Source: parquet-format 2.11.0 `parquet.thrift` (Statistics, TypeDefinedOrder).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lading.arrow.views import plain_type
from lading.errors import UsageError
from lading.formats.parquet.footer import Footer, read_statistics
from lading.formats.parquet.input import Input

__all__ = ["columns_of", "fitting", "possible_groups"]

_NULL_COUNT, _MAX_VALUE, _MIN_VALUE = 3, 5, 6
_FLOATS = {"FLOAT": "<f", "DOUBLE": "<d"}


def columns_of(expression: pc.Expression, names: Sequence[str]) -> list[str] | None:
    """The columns that an expression may name, perhaps some more; None if it tells them by number."""
    # An expression does not tell its columns, but its text has their names.
    text = str(expression)
    return None if "FieldPath(" in text else [name for name in names if name in text]


@contextmanager
def fitting(expression: pc.Expression) -> Iterator[None]:
    """An expression that cannot be evaluated is a UsageError."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        said = str(error).splitlines()[0]
        raise UsageError(f"the filter does not fit the columns: {said}", found=str(expression)) from error


def possible_groups(
    file: Input, footer: Footer, schema: pa.Schema, leaves: Sequence[Sequence[int]], expression: pc.Expression
) -> set[int]:
    """Row groups in which a row may be one that the expression keeps.

    Args:
        file: the open file.
        footer: its footer.
        schema: of the batches that the expression is for.
        leaves: for each field of the schema, the numbers of its Parquet columns.
        expression: the filter.

    Raises:
        UsageError: the expression does not fit the schema.
    """
    schema = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
    names = columns_of(expression, schema.names) or []
    fields = [(schema.field(name), leaves[schema.names.index(name)]) for name in names]
    single = [(field, own[0]) for field, own in fields if len(own) == 1 and not pa.types.is_nested(field.type)]
    with fitting(expression):
        facts = [
            (field, leaf)
            for field, leaf in single
            if footer.columns[leaf].kind not in _FLOATS or not _may_keep_nan(field, schema, expression)
        ]
        known = [_known(facts, footer, statistics) for statistics in read_statistics(file, footer)]
        return _possible(known, schema, expression)


def _possible(known: Sequence[pc.Expression | None], schema: pa.Schema, expression: pc.Expression) -> set[int]:
    """Where a row may be kept, by what is known of the rows of each group."""
    from pyarrow import dataset, fs

    # Fragments of a dataset that is never read: what matters is what is known of their rows.
    parquet, nowhere = dataset.ParquetFileFormat(), fs.LocalFileSystem()
    fragments = [
        parquet.make_fragment(str(group), nowhere, partition_expression=facts) for group, facts in enumerate(known)
    ]
    whole = dataset.FileSystemDataset(fragments, schema, parquet, nowhere)
    return {int(fragment.path) for fragment in whole.get_fragments(filter=expression)}


def _may_keep_nan(field: pa.Field, schema: pa.Schema, expression: pc.Expression) -> bool:
    """Whether a row with NaN in a column may be kept: statistics leave NaN out, which lies between no bounds."""
    try:
        return bool(_possible([pc.field(field.name) == pa.scalar(math.nan, field.type)], schema, expression))
    except pa.ArrowInvalid:  # nothing can be made of NaN: a whole number, say
        return True


def _known(
    fields: Sequence[tuple[pa.Field, int]], footer: Footer, statistics: Sequence[Mapping[int, Any]]
) -> pc.Expression | None:
    """What statistics say of the rows of a row group; None for nothing."""
    known = []
    for field, leaf in fields:
        facts, column = statistics[leaf], pc.field(field.name)
        for number, compared in ((_MIN_VALUE, column.__ge__), (_MAX_VALUE, column.__le__)):
            bound = _bound(facts.get(number), footer.columns[leaf].kind, field.type)
            if bound is not None:
                # Each bound by itself: pyarrow sees through `(a >= 1) | is_null(a)`, not through both bounds at once.
                known.append(compared(bound) if facts.get(_NULL_COUNT) == 0 else compared(bound) | column.is_null())
    return reduce(and_, known) if known else None


def _bound(raw: Any, kind: str, arrow: pa.DataType) -> pa.Scalar | None:
    """A bound as a scalar; None where it says nothing that can be relied on."""
    types = pa.types
    try:
        if not isinstance(raw, bytes):
            return None
        if kind in _FLOATS and types.is_floating(arrow):
            [number] = struct.unpack(_FLOATS[kind], raw)
            return None if math.isnan(number) else pa.scalar(number, arrow)
        if kind in ("INT32", "INT64") and types.is_integer(arrow):
            return pa.scalar(int.from_bytes(raw, "little", signed=types.is_signed_integer(arrow)), arrow)
        if kind == "BYTE_ARRAY" and (types.is_string(arrow) or types.is_large_string(arrow)):
            return pa.scalar(raw.decode(), arrow)
        return pa.scalar(raw, arrow) if kind == "BYTE_ARRAY" and types.is_large_binary(arrow) else None
    except (struct.error, UnicodeDecodeError, OverflowError, pa.ArrowInvalid):
        return None
