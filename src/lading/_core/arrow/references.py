"""The reference: the place of the bytes of a value.

A column of references is an Arrow extension array named `lading.ref` over

    struct<file: int32, member: string?, offset: int64, length: int64, codec: int8, frame: int32>

`file` is a row of a *files table*, which travels in the schema's metadata (`with_files`, `files_of`); `member` names a
tar member whose range is not known yet; `offset` and `length` are a half-open range in bytes, counted in the unwrapped
stream if the file has a wrap, and −1 where unknown (length −1 with offset 0: the whole file); `codec` is the
compression of the range itself; `frame` is one image of a multi-frame file, −1 for all of it. A null reference is a
missing value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from lading.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "CODECS",
    "FILES_KEY",
    "FileEntry",
    "RefType",
    "Refs",
    "concat",
    "files_of",
    "has_codec",
    "is_ref",
    "make_refs",
    "ref_field",
    "renumbered",
    "unpack",
    "with_files",
    "with_refs",
    "without_files",
]

FILES_KEY = b"lading.files"
"""Key of a schema's metadata for the files table: a JSON list of `[url, wrap, size_bytes, version]`."""

_EXTENSION_KEYS = (b"ARROW:extension:name", b"ARROW:extension:metadata")

CODECS = ("", "zstd", "zstd-magicless", "gzip", "zip")
"""Compression of a range, by the reference's `codec` number; 0 = none. `zip` is a deflated member with its header."""

_STORAGE = pa.struct(
    [
        ("file", pa.int32()),
        ("member", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("codec", pa.int8()),
        ("frame", pa.int32()),
    ]
)


class RefType(pa.ExtensionType):  # type: ignore[misc] # pyarrow has no type information
    """Arrow type of a reference column."""

    def __init__(self) -> None:
        super().__init__(_STORAGE, "lading.ref")

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> RefType:
        return _TYPE  # Arrow requests it whenever a column or field is inspected

    def __reduce__(self) -> tuple[type[RefType], tuple[()]]:
        """For pickle and cloudpickle, which cannot take the way of Arrow's other types."""
        return RefType, ()


_TYPE = RefType()
# Not registered in pyarrow: it would turn columns with this name in any file into references, which are followed.


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A row of the files table.

    Attributes:
        url: path or URL, as it was opened.
        wrap: compression of the whole file (`""`, `"gzip"`, `"zstd"`, `"bz2"`, `"xz"`); offsets count in its unpacked
            stream.
        size_bytes: size of the file as stored, −1 if unknown.
        version: etag, or modification time in nanoseconds; empty if unknown. A change means another file.
    """

    url: str
    wrap: str = ""
    size_bytes: int = -1
    version: str = ""


@dataclass(frozen=True, slots=True)
class Refs:
    """The parts of a reference column as numpy arrays of one length; values under `valid == False` mean nothing."""

    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    codec: NDArray[np.int8]
    frame: NDArray[np.int32]
    valid: NDArray[np.bool_]
    member: pa.Array


def is_ref(data_type: pa.DataType) -> bool:
    """Return whether columns of this type hold references."""
    return isinstance(data_type, RefType)


def ref_field(field: pa.Field) -> pa.Field:
    """Return a field of references to the values of this field.

    A field of an extension type that pyarrow does not know has the type's name in its metadata. A file would then name
    two types for one column, and readers use the first.
    """
    metadata = {key: value for key, value in (field.metadata or {}).items() if key not in _EXTENSION_KEYS}
    return pa.field(field.name, RefType(), field.nullable, metadata or None)


def with_refs(table: pa.Table) -> pa.Table:
    """Return a table from a file of lading with references where they were written as such.

    Arrow reads such columns as structs, whose fields mark them as references. Never use it for files of other writers.
    """
    for i, field in enumerate(table.schema):
        if (field.metadata or {}).get(_EXTENSION_KEYS[0]) == b"lading.ref" and field.type == _STORAGE:
            chunks = [pa.ExtensionArray.from_storage(_TYPE, chunk) for chunk in table.column(i).chunks]
            table = table.set_column(i, ref_field(field), pa.chunked_array(chunks, _TYPE))
    return table


def has_codec(batch: pa.RecordBatch) -> bool:
    """Return whether some references need unpacking, to an unknown size."""
    return any(bool(unpack(column).codec.any()) for column in batch.columns if is_ref(column.type))


def make_refs(
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    *,
    file: int | NDArray[np.int32] = 0,
    member: pa.Array | None = None,
    codec: int | NDArray[np.int8] = 0,
    frame: int | NDArray[np.int32] = -1,
    valid: NDArray[np.bool_] | None = None,
) -> pa.ExtensionArray:
    """Return a reference column; `valid` is False for missing values."""
    count = len(offset)
    children = [
        _column(file, count, np.int32),
        pa.nulls(count, pa.string()) if member is None else member,
        pa.array(np.ascontiguousarray(offset, np.int64)),
        pa.array(np.ascontiguousarray(length, np.int64)),
        _column(codec, count, np.int8),
        _column(frame, count, np.int32),
    ]
    mask = None if valid is None or bool(valid.all()) else pa.array(~valid)
    storage = pa.StructArray.from_arrays(children, fields=list(_STORAGE), mask=mask)
    return pa.ExtensionArray.from_storage(_TYPE, storage)


def _column(value: int | NDArray[Any], count: int, dtype: type[np.generic]) -> pa.Array:
    return pa.array(np.full(count, value, dtype) if isinstance(value, int) else np.ascontiguousarray(value, dtype))


def unpack(column: pa.Array | pa.ChunkedArray) -> Refs:
    """Return a reference column as numpy arrays; no copy where Arrow allows it."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    storage = column.storage
    valid = np.asarray(storage.is_valid().to_numpy(zero_copy_only=False), np.bool_)

    def part(name: str) -> NDArray[Any]:
        child = storage.field(name)
        # Arrow may have nulls under a null reference, and numpy can hold integers with nulls only as floats.
        numbers: NDArray[Any] = (child.fill_null(0) if child.null_count else child).to_numpy()
        return numbers

    return Refs(
        part("file"), part("offset"), part("length"), part("codec"), part("frame"), valid, storage.field("member")
    )


def files_of(schema: pa.Schema) -> tuple[FileEntry, ...]:
    """Return the files table of a schema; empty if it has none. Raises DataError if it is invalid."""
    text = (schema.metadata or {}).get(FILES_KEY)
    try:
        rows = orjson.loads(text) if text else []
        entries = tuple(FileEntry(*row) for row in rows)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise DataError("the table of files that references name is broken", found=str(error)) from None
    odd = next((row for row in rows if [*map(type, row)] != [str, str, int, str]), None)
    if odd is not None:
        raise DataError("the table of files that references name is broken",
                        expected="[url, wrap, size_bytes, version]", found=repr(odd)[:200])  # fmt: skip
    return entries


def with_files(schema: pa.Schema, files: Sequence[FileEntry]) -> pa.Schema:
    """Return the schema with this files table in its metadata; other metadata stay."""
    rows = [[f.url, f.wrap, f.size_bytes, f.version] for f in files]
    return schema.with_metadata({**(schema.metadata or {}), FILES_KEY: orjson.dumps(rows)})


def without_files(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes]:
    """Return the metadata of a schema without the files table."""
    return {key: value for key, value in (metadata or {}).items() if key != FILES_KEY}


def concat(tables: Sequence[pa.Table | pa.RecordBatch]) -> pa.Table:
    """Return one table of all rows, with all columns and one files table; references are renumbered.

    Columns that some tables lack are null there. Metadata other than the files table come from the first.
    """
    files: dict[FileEntry, int] = {}
    fields: dict[str, pa.Field] = {}
    for table in tables:
        for field in table.schema:
            fields.setdefault(field.name, field)
    parts = []
    for table in tables:
        whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        renumber = np.array([files.setdefault(f, len(files)) for f in files_of(whole.schema)], np.int32)
        own = {
            field.name: renumbered(column, renumber) if is_ref(field.type) and len(renumber) else column
            for field, column in zip(whole.schema, whole.columns, strict=True)
        }
        columns = [own[n] if n in own else pa.nulls(len(whole), f.type) for n, f in fields.items()]
        parts.append(pa.table(columns, schema=pa.schema(list(fields.values()))))
    joined = pa.concat_tables(parts).replace_schema_metadata(tables[0].schema.metadata)
    return joined.replace_schema_metadata(with_files(joined.schema, list(files)).metadata) if files else joined


def renumbered(column: pa.Array | pa.ChunkedArray, renumber: NDArray[np.int32]) -> pa.ExtensionArray:
    """Return a reference column whose file `i` is row `renumber[i]` of another files table."""
    refs = unpack(column)
    file = renumber[np.where(refs.valid, refs.file, 0)]
    return make_refs(
        refs.offset,
        refs.length,
        file=file,
        member=refs.member,
        codec=refs.codec,
        frame=refs.frame,
        valid=refs.valid,
    )
