"""Find row groups that cannot hold rows of a filter, by the statistics in the footer.

pyarrow can do this too, but not for columns with nulls, and a damaged statistic crashes the process. So its expressions
are evaluated on ranges that are read here.

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

from lading._core.arrow.views import plain_type
from lading._core.formats.parquet.footer import Footer, read_statistics
from lading._core.formats.parquet.input import Input
from lading.errors import UsageError

__all__ = ["columns_of", "fitting", "possible_groups"]

_NULL_COUNT, _MAX_VALUE, _MIN_VALUE = 3, 5, 6
_FLOATS = {"FLOAT": "<f", "DOUBLE": "<d"}


def columns_of(expression: pc.Expression, names: Sequence[str]) -> list[str] | None:
    """Return the columns that an expression may name, perhaps more; None if it refers to them by number."""
    # An expression does not expose its columns, but its text has their names.
    text = str(expression)
    return None if "FieldPath(" in text else [name for name in names if name in text]


@contextmanager
def fitting(expression: pc.Expression) -> Iterator[None]:
    """Convert the error of an expression that cannot be evaluated to UsageError."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        said = str(error).splitlines()[0]
        raise UsageError(f"the filter does not fit the columns: {said}", found=str(expression)) from error


def possible_groups(
    file: Input, footer: Footer, schema: pa.Schema, leaves: Sequence[Sequence[int]], expression: pc.Expression
) -> set[int]:
    """Return row groups in which the expression may keep a row.

    Args:
        file: the open file.
        footer: its footer.
        schema: schema of the batches that are filtered.
        leaves: for each field of the schema, the numbers of its Parquet columns.
        expression: the filter.

    Raises:
        UsageError: the expression does not fit the schema.
    """
    schema = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
    names = [name for name in columns_of(expression, schema.names) or [] if schema.names.count(name) == 1]
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
    """Return where a row may be kept, by the known facts of the rows of each group."""
    from pyarrow import dataset, fs

    # Fragments of a dataset that is never read: only the known facts of their rows matter.
    parquet, nowhere = dataset.ParquetFileFormat(), fs.LocalFileSystem()
    fragments = [
        parquet.make_fragment(str(group), nowhere, partition_expression=facts) for group, facts in enumerate(known)
    ]
    whole = dataset.FileSystemDataset(fragments, schema, parquet, nowhere)
    return {int(fragment.path) for fragment in whole.get_fragments(filter=expression)}


def _may_keep_nan(field: pa.Field, schema: pa.Schema, expression: pc.Expression) -> bool:
    """Return whether a row with NaN in a column may be kept: statistics leave out NaN, which is outside all bounds."""
    try:
        return bool(_possible([pc.field(field.name) == pa.scalar(math.nan, field.type)], schema, expression))
    except pa.ArrowInvalid:  # NaN does not exist in this type, such as integers
        return True


def _known(
    fields: Sequence[tuple[pa.Field, int]], footer: Footer, statistics: Sequence[Mapping[int, Any]]
) -> pc.Expression | None:
    """Return the known facts of the rows of a row group as an expression; None if there are none."""
    known = []
    for field, leaf in fields:
        facts, column = statistics[leaf], pc.field(field.name)
        for number, compared in ((_MIN_VALUE, column.__ge__), (_MAX_VALUE, column.__le__)):
            bound = _bound(facts.get(number), footer.columns[leaf].kind, field.type)
            if bound is not None:
                # Each bound by itself: pyarrow simplifies `(a >= 1) | is_null(a)`, but not both bounds at once.
                known.append(compared(bound) if facts.get(_NULL_COUNT) == 0 else compared(bound) | column.is_null())
    return reduce(and_, known) if known else None


def _bound(raw: Any, kind: str, arrow: pa.DataType) -> pa.Scalar | None:
    """Return a bound as a scalar; None if it is unreliable."""
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
