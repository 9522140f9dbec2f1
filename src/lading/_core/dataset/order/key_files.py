"""Keys or numbers of samples that stand in a file, as `take_keys` takes them."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import SourceNotFound, UsageError

__all__ = ["listed_in"]

_NUMBER = "number"
_NAMES = ("__key__", "sample_id", "key", _NUMBER)
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def listed_in(path: str | os.PathLike[str]) -> list[str] | NDArray[np.int64]:
    """Return the keys in a file, or the numbers of samples.

    A Parquet, CSV or TSV file lists them in a column: `__key__`, `sample_id`, `key`, `number`, or its only one. Any
    other file has one a line, perhaps behind a first line with one of these names. They are numbers if the name is
    `number`, or if a Parquet column has whole numbers; else texts.

    Raises:
        SourceNotFound: there is no such file.
        UsageError: the file lists nothing, there is no such column, a value is missing, or a number is no whole number.
    """
    file = os.fspath(path)
    if not os.path.isfile(file):
        advice = f"For the first samples: --limit {file}." if file.isdecimal() else None
        raise SourceNotFound("no such file of keys", file=file, advice=advice)
    listed = _listed(file)
    if not len(listed):
        raise UsageError("the file lists no sample", file=file, expected="one key or number at least", found="none")
    return listed


def _listed(file: str) -> list[str] | NDArray[np.int64]:
    ending = os.path.splitext(file)[1].lower()
    try:
        if ending in (".parquet", ".csv", ".tsv"):
            return _of_column(file, ending)
        with open(file, encoding="utf-8-sig") as lines:
            values = [line for line in lines.read().splitlines() if line]
        if any("\0" in value for value in values):
            raise UsageError("not a file of keys", file=file, expected="one key a line, or a Parquet or CSV file",
                             found="zero bytes")  # fmt: skip
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UsageError("not a file of keys", file=file, expected="one key a line, or a Parquet or CSV file",
                         found=str(error)[:200]) from None  # fmt: skip
    name = values[0] if values and values[0] in _NAMES else None
    return _meant(file, name, values if name is None else values[1:])


def _of_column(file: str, ending: str) -> list[str] | NDArray[np.int64]:
    if ending == ".parquet":
        import pyarrow.parquet as pq

        names = pq.read_schema(file).names
        name = _column(file, names)
        column = pq.read_table(file, columns=[name]).column(0)
    else:
        from pyarrow import csv

        # As texts: '007' is another key than '7'.
        parsing = csv.ParseOptions(delimiter=_SEPARATORS[ending])
        with csv.open_csv(file, parse_options=parsing) as head:
            names = head.schema.names
        name = _column(file, names)
        texts = csv.ConvertOptions(include_columns=[name], column_types={name: pa.string()}, null_values=[])
        column = csv.read_csv(file, parse_options=parsing, convert_options=texts).column(0)
    if column.null_count:
        raise UsageError("a key is missing", file=file, column=name, found=f"{column.null_count:,} nulls")
    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(), np.int64)
    return _meant(file, name, column.cast(pa.large_string()).to_pylist())


def _column(file: str, names: list[str]) -> str:
    found = next((name for name in _NAMES if name in names), names[0] if len(names) == 1 else None)
    if found is None:
        raise UsageError("no column of keys", file=file, expected=" or ".join(_NAMES), found=", ".join(names),
                         advice="Rename the column of keys, or write a file with that column alone.")  # fmt: skip
    return found


def _meant(file: str, name: str | None, values: list[str]) -> list[str] | NDArray[np.int64]:
    if name != _NUMBER:
        return values
    wrong = next((text for text in values if not (text.isascii() and text.isdigit())), None)
    if wrong is not None:
        raise UsageError("not a number of a sample", file=file, expected="a whole number, 0 or more", found=repr(wrong))
    return np.array(values, np.int64)
