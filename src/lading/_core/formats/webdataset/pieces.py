"""Samples in several pieces: members of one key that do not stand together."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.formats.webdataset.header_walk import Pass
from lading._core.formats.webdataset.samples import KEY, join_rows
from lading._core.formats.webdataset.walk import TarFile
from lading.errors import DataError

__all__ = ["Pieces", "in_pieces", "pieces_by_headers", "pieces_by_index", "warn_pieces"]

_PROBLEM = "members of a sample do not stand together, so that each piece is a sample that lacks fields"


@dataclass(frozen=True, slots=True)
class Pieces:
    """Keys that return with further fields. A key that returns with an earlier field is another sample.

    Attributes:
        keys: how many.
        example: one of them.
        others: number of keys that return with the same fields: then samples cannot be joined by key alone.
    """

    keys: int
    example: str
    others: int


def pieces_by_headers(tar: TarFile, *, lower_case: bool) -> Pieces | None:
    """Find keys that return with further fields by a walk over the headers. Ask it where a walk found returning keys.

    Raises LimitExceeded if keys exceed `tar_keys_bytes`.
    """
    rows = join_rows(Pass(tar, lower_case=lower_case, on_duplicate="error").held_rows())
    return _pieces(rows.keys, np.cumsum(rows.new) - 1, rows.field.astype(np.int64))


def pieces_by_index(index: pa.Table) -> Pieces | None:
    """Find keys that return with further fields by an index."""
    names = [name for name in index.column_names if name != KEY]
    there = [np.flatnonzero(index[name].is_valid().to_numpy()) for name in names]
    fields = [np.full(len(rows), number) for number, rows in enumerate(there)]
    nothing = np.zeros(0, np.int64)
    keys = index[KEY].combine_chunks()
    return _pieces(keys, np.concatenate([nothing, *there]), np.concatenate([nothing, *fields]))


def _pieces(keys: pa.Array, sample: NDArray[np.int64], field: NDArray[np.int64]) -> Pieces | None:
    """Find them by the keys of samples, and for each member by the numbers of its sample and of its field."""
    encoded = keys.dictionary_encode()
    number = encoded.indices.to_numpy().astype(np.int64)
    again = np.bincount(number, minlength=1) > 1
    mine = again[number[sample]]
    fields = int(field.max(initial=0)) + 1
    cells, counts = np.unique(number[sample[mine]] * fields + field[mine], return_counts=True)
    others = np.unique(cells[counts > 1] // fields)
    split = np.setdiff1d(np.flatnonzero(again), others)
    return Pieces(len(split), encoded.dictionary[int(split[0])].as_py(), len(others)) if len(split) else None


def in_pieces(path: str, pieces: Pieces) -> DataError:
    """Return the error of a tar with samples in several pieces."""
    return DataError(
        _PROBLEM,
        file=path,
        expected="the members of a key next to each other",
        found=f"{pieces.keys:,} keys that return with further fields, such as {pieces.example!r}",
        advice=None if pieces.others else "--regroup joins them.",
    )


def warn_pieces(path: str, pieces: Pieces) -> None:
    """Warn of samples in several pieces: once for the tars of a folder."""
    advice = "" if pieces.others else ". regroup=True (--regroup) joins them"
    warnings.warn(f"{path.rpartition('/')[0] or path}: {_PROBLEM}{advice}", stacklevel=2)
