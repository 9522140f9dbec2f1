"""Interleaved samples: texts and images in one order, as a table of items.

A row is one item: a text, an image, or the metadata of its sample. Rows of one sample are adjacent, the metadata row
first (position −1). Other columns pass through unchanged.

Source: nemo-curator 1.4.0, stages/interleaved (`INTERLEAVED_SCHEMA`, readers and writers for WebDataset and Parquet).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.references import FILES_KEY
from lading._core.arrow.views import is_text, present
from lading.errors import DataError

__all__ = [
    "INTERLEAVED_SCHEMA",
    "ITEMS_ADVICE",
    "KEY",
    "LINEAGE_KEY",
    "MEANT_NULLS_KEY",
    "METADATA_POSITION",
    "MODALITIES",
    "PAYLOAD",
    "RESERVED",
    "VIEWS",
    "WITHOUT_BYTES",
    "SourceRefs",
    "content_type_of",
    "content_types",
    "duplicate_id_bounds",
    "extension_of",
    "format_source_ref",
    "is_interleaved_schema",
    "lineage_of",
    "parse_source_ref",
    "quote_key",
    "sample_firsts",
    "sample_rows",
    "sample_starts",
    "samples_with",
    "split_rows",
    "without_source",
]

INTERLEAVED_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("modality", pa.string(), nullable=False),
        pa.field("content_type", pa.string()),
        pa.field("text_content", pa.string()),
        pa.field("binary_content", pa.large_binary()),
        pa.field("source_ref", pa.string()),
        pa.field("materialize_error", pa.string()),
    ]
)
"""The reserved columns, in the peer's types."""

ITEMS_ADVICE = (
    "Write the items with --to parquet, --to webdataset or --to media_archive. "
    "Or convert rows as they are, with --view samples."
)
"""Advice if a text format refuses the bytes of items: no option leaves their reserved columns out."""

KEY = "__key__"
"""Column with the keys of samples."""

PAYLOAD = "binary_content"
"""Column with the bytes of an item."""

VIEWS = ("samples", "interleaved")
"""The meaning of a row: a sample, or an item of one."""

RESERVED = tuple(INTERLEAVED_SCHEMA.names)
"""Names of the reserved columns, in order."""

MODALITIES = ("metadata", "text", "image")
"""Modalities that a tar can hold. Readers accept others (`audio`, `video`, `table` …)."""

WITHOUT_BYTES = ("metadata", "text")
"""Modalities of items without bytes; their `source_ref` names the file that they were read from."""

METADATA_POSITION = -1
"""Position of the metadata row of a sample."""

LINEAGE_KEY = b"lading.source_files"
"""Key of a batch's schema metadata: JSON list of the files from which the rows come."""


def lineage_of(schema: pa.Schema) -> list[str]:
    """Return the files from which a batch's rows come, by its schema's metadata; nothing without such metadata."""
    told = (schema.metadata or {}).get(LINEAGE_KEY)
    files: list[str] = orjson.loads(told) if told else []
    return files


MEANT_NULLS_KEY = b"lading.meant_nulls"
"""Key of a batch's schema metadata, with any value: items without bytes and source were written so on purpose."""


def without_source(schema: pa.Schema) -> pa.Schema:
    """Return the schema without metadata about the origin of rows: files table, lineage, the meaning of nulls there."""
    own = (FILES_KEY, LINEAGE_KEY, MEANT_NULLS_KEY)
    kept = {k: v for k, v in (schema.metadata or {}).items() if k not in own}
    return schema.with_metadata(kept or None)


_UNKNOWN_TYPE, _UNKNOWN_EXTENSION = "application/octet-stream", "bin"

# Python's `mimetypes` reads tables of the machine, so results would differ between machines. The first extension of a
# type is the one that is written.
_TYPES = {
    "image/jpeg": ("jpg", "jpeg", "jpe", "jfif"),
    "image/png": ("png",),
    "image/tiff": ("tiff", "tif"),
    "image/webp": ("webp",),
    "image/gif": ("gif",),
    "image/bmp": ("bmp",),
    "image/avif": ("avif",),
    "image/heic": ("heic",),
    "image/heif": ("heif",),
    "image/jp2": ("jp2",),
    "image/jxl": ("jxl",),
    "image/svg+xml": ("svg",),
    "image/vnd.microsoft.icon": ("ico",),
    "image/x-portable-pixmap": ("ppm",),
    "image/x-portable-graymap": ("pgm",),
    "image/x-portable-bitmap": ("pbm",),
    "audio/x-wav": ("wav",),
    "audio/mpeg": ("mp3",),
    "audio/flac": ("flac",),
    "audio/ogg": ("ogg", "oga"),
    "audio/opus": ("opus",),
    "audio/mp4": ("m4a",),
    "audio/aac": ("aac",),
    "video/mp4": ("mp4", "m4v"),
    "video/webm": ("webm",),
    "video/x-matroska": ("mkv",),
    "video/quicktime": ("mov",),
    "video/x-msvideo": ("avi",),
    "video/mpeg": ("mpeg", "mpg"),
    "text/plain": ("txt",),
    "text/html": ("html", "htm"),
    "text/markdown": ("md",),
    "text/csv": ("csv",),
    "text/xml": ("xml",),
    "application/json": ("json",),
    "application/pdf": ("pdf",),
}
_ALIASES = {
    "image/jpg": "jpg",
    "image/x-ms-bmp": "bmp",
    "audio/wav": "wav",
    "audio/x-flac": "flac",
    "image/tif": "tiff",
}
_BY_EXTENSION = {extension: kind for kind, extensions in _TYPES.items() for extension in extensions}
_LONGEST_EXTENSION = max(map(len, _BY_EXTENSION))
_BY_TYPE = {**{kind: extensions[0] for kind, extensions in _TYPES.items()}, **_ALIASES}


def content_type_of(name: str) -> str:
    """Return the MIME type of a member by its last extension, in any case; `application/octet-stream` if unknown."""
    base = name.rpartition("/")[2]
    return _BY_EXTENSION.get(base.rpartition(".")[2].lower(), _UNKNOWN_TYPE) if "." in base else _UNKNOWN_TYPE


def content_types(names: pa.Array) -> tuple[list[str], NDArray[np.int64]]:
    """Return the types of many names (string): the distinct types, and the index of each name's; −1 where null.

    A name's type depends only on its last few characters, of which there are few different ones.
    """
    ends = pc.utf8_slice_codeunits(names, -len(".") - _LONGEST_EXTENSION).dictionary_encode()
    types = [content_type_of(end) for end in ends.dictionary.to_pylist()]
    return types, ends.indices.fill_null(-1).to_numpy().astype(np.int64)


def extension_of(content_type: str | None) -> str:
    """Return the extension (without dot) for a MIME type, ignoring parameters; `bin` if it is unknown or None."""
    return _BY_TYPE.get((content_type or "").partition(";")[0].strip().lower(), _UNKNOWN_EXTENSION)


def is_interleaved_schema(schema: pa.Schema) -> bool:
    """Return whether rows are items: `sample_id` and `modality` hold strings and `position` integers."""
    if not {"sample_id", "position", "modality"} <= set(schema.names):
        return False
    ids, position, modality = (_values(schema.field(name).type) for name in ("sample_id", "position", "modality"))
    return is_text(ids) and is_text(modality) and bool(pa.types.is_integer(position))


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _as_text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array of large strings, which every kernel supports."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column.cast(pa.large_string())


def sample_starts(sample_id: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the first row of each sample: of each run of equal ids, in order.

    Raises:
        DataError: an id is null.
    """
    ids = _as_text(sample_id)
    if ids.null_count:
        row = int(np.argmin(present(ids)))
        raise DataError("a row has no sample_id", row=row, column="sample_id", found="null")
    if len(ids) == 0:
        return np.zeros(0, np.int64)
    changes = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.flatnonzero(changes) + 1]).astype(np.int64)


def sample_firsts(rows: pa.RecordBatch | pa.Table, view: str) -> NDArray[np.int64]:
    """Return the first row of each sample, in the view `interleaved` or `samples` (where a row is a sample).

    Raises:
        DataError: an id is null.
    """
    return sample_starts(rows.column("sample_id")) if view == "interleaved" else np.arange(rows.num_rows)


def samples_with(rows: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows belong to a sample of these rows; `starts` as `sample_starts` returns them."""
    return np.repeat(np.logical_or.reduceat(rows, starts), np.diff(np.append(starts, len(rows))))


def duplicate_id_bounds(sample_id: pa.Array, starts: NDArray[np.int64] | None = None) -> list[int]:
    """Return bounds of parts, from 0 to the number of rows, that hold whole samples with distinct ids.

    If the rows between two samples of one id are removed, the two would become one.

    Args:
        sample_id: the id of each row.
        starts: the first row of each sample, where neighbouring samples may have one id; None finds it by the ids.
    """
    starts = sample_starts(sample_id) if starts is None else starts
    ids = _as_text(sample_id).take(pa.array(starts))
    bounds, seen = [0], set[str]()
    if len(ids.unique()) < len(ids):
        for start, name in zip(starts.tolist(), ids.to_pylist(), strict=True):
            if name in seen:
                bounds.append(start)
                seen.clear()
            seen.add(name)
    return [*bounds, len(sample_id)]


def sample_rows(bounds: NDArray[np.int64], samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows of samples, in the given order, with repeats.

    Args:
        bounds: first row of each sample, and the number of rows.
        samples: samples by ordinal.
    """
    counts = bounds[samples + 1] - bounds[samples]
    ends = np.cumsum(counts)
    rows = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(bounds[samples] - (ends - counts), counts)
    return np.asarray(rows, np.int64)


def split_rows(
    starts: NDArray[np.int64], row_bytes: NDArray[np.int64], *, max_bytes: int, max_rows: int | None = None
) -> NDArray[np.int64]:
    """Return bounds of parts, from 0 to the number of rows, that hold whole samples within the limits.

    A part is as long as the limits allow. A single sample above a limit is a part of its own.

    Args:
        starts: first row of each sample, as `sample_starts` returns them.
        row_bytes: bytes of each row.
        max_bytes: maximum bytes of a part.
        max_rows: maximum rows of a part.
    """
    ends = np.append(starts[1:], len(row_bytes))
    size_at = np.concatenate([[0], np.cumsum(row_bytes)])[ends]
    bounds, done, row, size = [0], 0, 0, 0
    while done < len(starts):
        fits = int(np.searchsorted(size_at, size + max_bytes, "right"))
        if max_rows is not None:
            fits = min(fits, int(np.searchsorted(ends, row + max_rows, "right")))
        done = max(done + 1, fits)
        row, size = int(ends[done - 1]), int(size_at[done - 1])
        bounds.append(row)
    return np.array(bounds, np.int64)


_NOT_PLAIN_KEY = r"[^A-Za-z0-9_~-]"


def quote_key(sample_id: pa.Array) -> pa.Array:
    """Return tar keys, one an id and all different: everything but `A–Z a–z 0–9 _ - ~` percent-encoded, dots too.

    The peer keeps dots, and webdataset then ends the key at the first dot.
    """
    return _replaced(sample_id, _NOT_PLAIN_KEY, lambda text: quote(text, safe="").replace(".", "%2E"))


def _replaced(column: pa.Array, pattern: str, change: Any) -> pa.Array:
    """Return the texts with a function applied to those that match a pattern; without a match no Python runs."""
    texts = column.cast(pa.string())
    hits = pc.fill_null(pc.match_substring_regex(texts, pattern), fill_value=False)
    if not pc.any(hits).as_py():
        return texts
    changed = [change(text) for text in texts.filter(hits).to_pylist()]
    return pc.replace_with_mask(texts, hits, pa.array(changed, pa.string()))


def format_source_ref(
    path: str | pa.Array,
    member: pa.Array,
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    frame: NDArray[np.int32] | None = None,
    *,
    valid: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return `source_ref` texts (string, none null), spelled as the peer's `json.dumps` does.

    Args:
        path: file, one for all rows or one a row; null if there is none.
        member: tar member; null if there is none.
        offset: first byte; a negative (unknown) one becomes `null`.
        length: bytes; a negative one becomes `null`.
        frame: image of a multi-frame file; the key is left out if negative or None.
        valid: False for rows without source: all four keys are `null`.
    """
    parts = [f'{{"path": {json.dumps(path)}'] if isinstance(path, str) else ['{"path": ', _json_strings(path)]
    parts += [', "member": ', _json_strings(member), ', "byte_offset": ', _json_numbers(offset)]
    parts += [', "byte_size": ', _json_numbers(length)]
    if frame is not None:
        shown = pc.binary_join_element_wise(', "frame_index": ', pa.array(frame).cast(pa.string()), "")
        parts.append(pc.if_else(pa.array(frame >= 0), shown, ""))
    texts = pc.binary_join_element_wise(*parts, "}", "")
    return texts if valid is None or valid.all() else pc.if_else(pa.array(valid), texts, _NOWHERE)


_NOWHERE = '{"path": null, "member": null, "byte_offset": null, "byte_size": null}'
_NOT_PLAIN_JSON = r'[^ -~]|["\\]'
_PLAIN_JSON = bytes(range(ord(" "), ord("~") + 1)).translate(None, b'"\\')


def _json_strings(texts: pa.Array) -> pa.Array:
    plain = texts.cast(pa.string())
    body = plain.buffers()[2]
    # Names are mostly plain, which is checked faster on all of their bytes at once.
    if body is not None and body.to_pybytes().translate(None, _PLAIN_JSON):
        # An escaped text is stored without its quotes, because all texts get quotes afterwards.
        plain = _replaced(plain, _NOT_PLAIN_JSON, lambda text: json.dumps(text)[1:-1])
    return pc.fill_null(pc.binary_join_element_wise('"', plain, '"', ""), "null")


def _json_numbers(numbers: NDArray[np.int64]) -> pa.Array:
    texts = pa.array(numbers).cast(pa.string())
    unknown = numbers < 0
    return pc.if_else(pa.array(unknown), "null", texts) if unknown.any() else texts


@dataclass(frozen=True, slots=True)
class SourceRefs:
    """A parsed column of `source_ref` texts; all parts have one length.

    Attributes:
        path: string; null if the row names no file.
        member: string; null if the row names no member.
        offset: first byte, −1 if unknown.
        length: bytes, −1 if unknown.
        frame: image of a multi-frame file, −1 if unknown.
        error: string; the error in the text, null if valid.
    """

    path: pa.Array
    member: pa.Array
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    frame: NDArray[np.int32]
    error: pa.Array


_STRING = r'(?:null|"(?P<{}>[^"\\\x00-\x1f]+)")'
_NUMBER = "(?:null|(?P<{}>[0-9]{{1,{}}}))"
_USUAL = (
    rf'^\{{"path": {_STRING.format("path")}, "member": {_STRING.format("member")}, '
    rf'"byte_offset": {_NUMBER.format("offset", 18)}, "byte_size": {_NUMBER.format("length", 18)}'
    rf'(?:, "frame_index": {_NUMBER.format("frame", 9)})?\}}$'
)
_KEYS = ("path", "member", "offset", "length", "frame")
_MOST_DIGITS = 40
_MOST = {"byte_offset": (1 << 63) - 1, "byte_size": (1 << 63) - 1, "frame_index": (1 << 31) - 1}


def parse_source_ref(column: pa.Array | pa.ChunkedArray) -> SourceRefs:
    """Parse `source_ref` texts. Null, the empty text and a null path mean: no source.

    Texts in the peer's spelling are parsed by Arrow, others one by one. Absent keys are null, further keys are ignored,
    integers may be written as text. An invalid text is an error of its row only.
    """
    texts = _as_text(column)
    found = pc.extract_regex(texts, _USUAL)
    odd = np.flatnonzero(pc.fill_null(pc.and_(found.is_null(), pc.not_equal(texts, "")), fill_value=False))
    parts = {key: pc.struct_field(found, key) for key in _KEYS}
    path, member = (pc.if_else(pc.not_equal(parts[k], ""), parts[k], None).cast(pa.string()) for k in _KEYS[:2])
    offset, length, frame = (_numbers(parts[k]) for k in _KEYS[2:])
    error = pa.nulls(len(texts), pa.string())
    if len(odd):
        rows = [_parsed(text) for text in texts.take(pa.array(odd)).to_pylist()]
        paths, members, offset[odd], length[odd], frame[odd], errors = zip(*rows, strict=True)
        mask = pa.array(np.isin(np.arange(len(texts)), odd))
        path, member, error = (
            pc.replace_with_mask(whole, mask, pa.array(some, pa.string()))
            for whole, some in ((path, paths), (member, members), (error, errors))
        )
    return SourceRefs(path, member, offset, length, frame.astype(np.int32), error)


def _numbers(texts: pa.Array) -> NDArray[np.int64]:
    told = pc.if_else(pc.not_equal(texts, ""), texts, None).fill_null("-1")
    return np.array(told.cast(pa.int64()), np.int64)


def _parsed(text: str) -> tuple[str | None, str | None, int, int, int, str | None]:
    try:
        told = _object(text)
        path, member = (_string(told, key) for key in ("path", "member"))
        offset, length, frame = (_whole(told, key) for key in ("byte_offset", "byte_size", "frame_index"))
    except DataError as error:
        return None, None, -1, -1, -1, f"source_ref cannot be read: {error}; found {text[:80]!r}"
    return path, member, offset, length, frame, None


def _object(text: str) -> dict[str, Any]:
    told = json_text.loads(text)
    if not isinstance(told, dict):
        raise DataError("not a JSON object")
    return told


def _string(told: dict[str, Any], key: str) -> str | None:
    value = told.get(key)
    if value is not None and not (isinstance(value, str) and json_text.is_unicode(value)):
        raise DataError(f"{key} is not text", found=repr(value)[:40])
    return value or None


def _whole(told: dict[str, Any], key: str) -> int:
    value = told.get(key)
    if value is None:
        return -1
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS:
        value = int(value)
    if type(value) is not int or not 0 <= value <= _MOST[key]:
        raise DataError(f"{key} is not a whole number from 0 to {_MOST[key]}", found=repr(value)[:40])
    return value
