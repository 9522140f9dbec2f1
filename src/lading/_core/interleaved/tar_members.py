"""The members of a tar of interleaved samples: names and places, which are JSON, and a lookup table for names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.hashing import NameTable
from lading._core.arrow.references import FileEntry, make_refs, unpack, with_files
from lading._core.formats.base import MemberReader, sparse_member
from lading.errors import DataError, LimitExceeded
from lading.limits import Limits
from lading.options import AUTO, InterleavedOptions

__all__ = ["TELLING_DOCUMENTS", "MemberTable", "document_of", "id_field_of", "refuse_names", "sample_ids"]

TELLING_DOCUMENTS = 16
"""Number of first documents of a tar that decide its id field."""

_WINDOW_BYTES = 4 << 20
_MAX_TEXT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class MemberTable:
    """The members of a tar, in file order.

    Attributes:
        names: string; full names.
        offset: first byte of each.
        length: bytes of each.
        documents: which members are the samples' JSON.
        table: finds members by name.
    """

    names: pa.Array
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    documents: NDArray[np.int64]
    table: NameTable

    @classmethod
    def of(
        cls, reader: MemberReader, index: pa.Table | None, options: InterleavedOptions, limits: Limits
    ) -> MemberTable:
        """Return the members of the tar, or of an earlier index of it (`as_index`); not of an index of samples.

        Raises:
            LimitExceeded: as `refuse_names`.
        """
        if index is None or not {"name", "ref"} <= {*index.column_names}:
            parts = [_NO_MEMBERS, *_places(reader, limits)]
        else:
            refs = unpack(index.column("ref"))
            parts = [(index.column("name").combine_chunks(), refs.offset, refs.length)]
        names = pa.concat_arrays([p[0] for p in parts])
        offset, length = np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])
        return cls.at(names, offset, length, options)

    @classmethod
    def at(
        cls, names: pa.Array, offset: NDArray[np.int64], length: NDArray[np.int64], options: InterleavedOptions
    ) -> MemberTable:
        """Return members of these names and places; those with a JSON extension are documents."""
        lower = pa.compute.utf8_lower(names)
        documents = np.zeros(len(names), np.bool_)
        for ending in options.json_extensions:
            documents |= pa.compute.ends_with(lower, ending.lower()).to_numpy(zero_copy_only=False)
        return cls(names, offset, length, np.flatnonzero(documents), NameTable(names))

    def window(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first of these documents, as many as may be held together."""
        return rows[: max(1, int(np.searchsorted(np.cumsum(self.length[rows]), _WINDOW_BYTES, "right")))]

    def refuse_long(self, rows: NDArray[np.int64], limits: Limits, path: str) -> None:
        """Raise LimitExceeded if one of these documents takes more than `document_bytes`."""
        for row in rows[self.length[rows] > limits.document_bytes].tolist():
            raise limits.exceeded("document_bytes", "a sample's JSON is too long", file=path,
                                  offset=int(self.offset[row]), sample=self.names[row].as_py(),
                                  found=int(self.length[row]))  # fmt: skip

    def as_index(self, files: Sequence[FileEntry]) -> pa.Table:
        """Return `name: string`, `ref`: a row a member, in file order."""
        table = pa.table({"name": self.names, "ref": make_refs(self.offset, self.length)})
        return table.cast(with_files(table.schema, files))


def refuse_names(size: int, limits: Limits, path: str, offset: int | None = None) -> None:
    """Raise LimitExceeded for names of members of more bytes than `tar_keys_bytes`, or than one array holds."""
    message = "the names of the members are too long to be held together"
    if size > limits.tar_keys_bytes:
        raise limits.exceeded("tar_keys_bytes", message, file=path, offset=offset, found=size)
    if size > _MAX_TEXT:
        raise LimitExceeded(message, file=path, offset=offset, expected=f"at most {_MAX_TEXT} bytes", found=size)


def document_of(
    text: bytes | memoryview, offset: int, fields: Sequence[str] | None, id_field: str | None
) -> dict[str, Any]:
    """Return the JSON of a sample.

    Args:
        text: the JSON.
        offset: first byte of it in the tar.
        fields: fields that become columns; None: all of them.
        id_field: field that is the sample's id; None: the member's name is.

    Raises:
        DataError: it is not a valid JSON object, or its id or the name of a column's field is not valid Unicode.
    """
    document = json_text.loads(text, base=offset)
    if not isinstance(document, dict):
        raise DataError("a sample's JSON is an object", offset=offset, found=type(document).__name__)
    names = document if fields is None else ()
    sample_id = None if id_field is None else document.get(id_field)
    for what, value in [*(("name", name) for name in names), ("sample_id", sample_id)]:
        if isinstance(value, str) and not json_text.is_unicode(value):
            raise DataError(f"a {what} that is not valid Unicode", offset=offset, found=ascii(value)[:80])
    return document


def id_field_of(documents: Sequence[dict[str, Any]], options: InterleavedOptions) -> str | None:
    """Return the id field of a tar that begins with these documents; None: the members' names are the ids."""
    if options.sample_id_field != AUTO:
        return options.sample_id_field
    first = documents[:TELLING_DOCUMENTS]
    return "sample_id" if first and all(isinstance(d.get("sample_id"), str) for d in first) else None


def sample_ids(documents: Sequence[dict[str, Any]], names: Sequence[str], id_field: str | None) -> list[str]:
    """Return the id field as text if a document has it, else the stem of the JSON member's name."""
    values = [document.get(id_field) for document in documents] if id_field else [None] * len(names)
    return [
        name.rpartition("/")[2].rpartition(".")[0] if value is None else str(value)
        for value, name in zip(values, names, strict=True)
    ]


def _places(reader: MemberReader, limits: Limits) -> Iterator[tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]]:
    size = 0
    for part in reader.members():
        size += part.name.nbytes
        refuse_names(size, limits, reader.files[0].url, int(part.header_offset[0]))
        if part.sparse.any():
            raise sparse_member(reader.files[0].url, int(part.header_offset[part.sparse.argmax()]))
        yield part.name, part.offset, part.length


_NO_MEMBERS = (pa.nulls(0, pa.string()), np.zeros(0, np.int64), np.zeros(0, np.int64))
