"""Values of columns, and of fields inside them, as plain Arrow arrays.

    field_values(batch, ["json.lang", "txt", "meta.tags[0]", "jpg.width"], fetcher)

| column | its value | fields inside it |
|---|---|---|
| JSON (`json`, JSON text or bytes in a table) | the JSON value | names and numbers: `json.lang`, `json.tags[0]` |
| struct, map, list | as stored | fields, keys, numbers: `meta.lang`, `meta.tags[-1]` |
| text (`txt`) | text | as JSON, if the text is JSON |
| number as text (`cls`) | number | |
| label of a ClassLabel | number; next to a text its name | |
| image, audio, video (`jpg`, `wav`, `mp4`) | as stored | of the header: `jpg.width`, `wav.duration_s` |
| `items` of documents | number of items | number of items of a modality: `items.image` |

A field that a sample lacks is null. Of media, only the first bytes are read. Of other columns of references, the values
are read: neighbours together, 32 MB at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.references import files_of, is_ref, unpack
from lading._core.arrow.views import (
    LIST_TYPES,
    byte_lengths,
    is_bytes,
    is_text,
    is_view,
)
from lading._core.content.field_paths import FieldPath, Part, Wanted, parse_field
from lading._core.content.nested import close_to, empty_batch, field_named, no_such_field, plain, plain_type, value_at
from lading._core.dataset.values.json_values import FieldColumn, json_at, typed_json
from lading._core.dataset.values.media_headers import media_facts
from lading._core.features.items import METADATA_POSITION, lineage_of, sample_starts
from lading._core.features.types import Audio, Feature, Image, Video, feature_of, feature_of_extension
from lading._core.storage.fetch import Fetcher, value_bounds
from lading.errors import DataError, LadingError, UsageError, errors_at

__all__ = [
    "BROKEN_VALUE",
    "ITEMS",
    "MEDIA_FACTS",
    "FieldColumn",
    "advice_about",
    "columns_of",
    "counts_items",
    "field_type",
    "field_values",
    "lacks_child",
    "meant_fields",
    "read_fields",
    "refuse_absent",
]

BROKEN_VALUE = "Correct it, or leave such samples out by a condition on the column and --on-error drop_sample."
"""Advice about a value that is not what its column holds."""

MEDIA_FACTS: dict[str, pa.DataType] = {
    "width": pa.int64(),
    "height": pa.int64(),
    "frames": pa.int64(),
    "duration_s": pa.float64(),
    "sample_rate": pa.int64(),
    "channels": pa.int64(),
    "fps": pa.float64(),
    "format": pa.string(),
    "codec": pa.string(),
    "kind": pa.string(),
    "stored_width": pa.int64(),
    "stored_height": pa.int64(),
    "orientation": pa.int64(),
    "aspect_ratio": pa.float64(),
}
"""Fields of media columns, and their types; `_core.content.media_info.MediaInfo` describes them."""

ITEMS = "items"
"""`items.image` is the number of images of a document, where no column has this name."""

_USUAL_MODALITIES = ("text", "image", "audio", "video", "table")

_MEDIA_OF_FACTS: dict[str, tuple[type[Feature], ...]] = {
    **dict.fromkeys(("width", "height", "stored_width", "stored_height", "aspect_ratio"), (Image, Video)),
    **dict.fromkeys(("duration_s", "sample_rate", "channels", "codec"), (Audio, Video)),
    "fps": (Video,),
    "orientation": (Image,),
}
"""Media that have a fact, where not all have it."""

_PART_BYTES = 32 << 20
_PARSED_BYTES = 4 << 20


def columns_of(names: Iterable[str], schema: pa.Schema | None = None) -> list[str]:
    """Return the columns that must be read for these names, each once.

    Example:
        columns_of(["json.lang", "json.score", "txt"])  # ["json", "txt"]
    """
    columns = () if schema is None else schema.names
    return list(dict.fromkeys(parse_field(name, columns).column for name in names))


def field_values(batch: pa.RecordBatch, names: Sequence[str], fetcher: Fetcher) -> list[pa.Array]:
    """Return the values of columns and of fields inside them, an array a name, null where a sample has no value.

    JSON values have the type that all of the batch have: bool, int64, float64, string, or a list of one of them. Other
    JSON values, and values of several kinds, are JSON texts of Arrow's type `arrow.json`.

    Example:
        [languages] = field_values(batch, ["json.lang"], fetcher)

    Args:
        batch: the rows; payload as references or as bytes.
        names: `txt`, `json.lang`, `meta.tags[0]`, `meta['any name']`, `jpg.width`.
        fetcher: reads what references name.

    Raises:
        UsageError: a column is missing, or has no such field.
        DataError: JSON or text of a sample is invalid; names the sample.
        BadReference: payload is unavailable.
    """
    wanted = [Wanted(parse_field(name, batch.schema.names)) for name in names]
    return [column.values for column in read_fields(batch, wanted, fetcher)]


def field_type(field: pa.Field, path: Sequence[Part] = ()) -> pa.DataType | None:
    """Return the type of the values of a field in every batch; None if the data decide, as of JSON.

    Raises:
        UsageError: the column has no such field.
    """
    wanted = Wanted(FieldPath(field.name, tuple(path)))
    if _way(field, wanted.field) == "json":
        return None
    with Fetcher() as fetcher:
        return read_fields(empty_batch(pa.schema([field])), [wanted], fetcher)[0].values.type


def lacks_child(field: pa.Field, path: FieldPath) -> bool:
    """Return whether a column has structs without this field, or only nulls; other shards may have the field."""
    if pa.types.is_null(field.type):
        return True
    if _way(field, path) != "nested":
        return False
    kind = field.type
    for part in path.path:
        kind = plain_type(kind)
        if pa.types.is_struct(kind) and isinstance(part, str):
            place = kind.get_field_index(part)
            if place < 0:
                return True
            kind = kind.field(place).type
        elif pa.types.is_map(kind):
            kind = kind.item_type
        elif isinstance(kind, LIST_TYPES):
            kind = kind.value_type
    return False


def counts_items(path: FieldPath, names: Collection[str]) -> bool:
    """Return whether a name means the number of items of a document, or of those of a modality: `items.image`.

    Args:
        path: the name.
        names: the columns that there are.
    """
    of_items = ITEMS not in names and {"sample_id", "position", "modality"} <= {*names}
    return of_items and path.column == ITEMS and len(path.path) < 2  # noqa: PLR2004 - one name of a modality


def _numbers_of_items(batch: pa.RecordBatch, path: FieldPath) -> pa.Array:
    """Return for each row how many items its document has, of one modality if the path names it."""
    starts = sample_starts(batch.column("sample_id"))
    wanted = np.asarray(batch.column("position").to_numpy() != METADATA_POSITION, np.bool_)
    if path.path:
        same = pc.equal(batch.column("modality").cast(pa.string()), str(path.path[0]))
        wanted &= np.asarray(same.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)  # noqa: FBT003 - the value
    counts = np.add.reduceat(wanted.astype(np.int64), starts) if len(starts) else np.zeros(0, np.int64)
    return pa.array(np.repeat(counts, np.diff(np.append(starts, batch.num_rows))))


def refuse_absent(schema: pa.Schema, path: FieldPath) -> None:
    """Raise UsageError if the columns cannot have such a field."""
    path = path.among(schema.names)
    if counts_items(path, schema.names):
        name = str(path.path[0]) if path.path else "text"
        if name not in _USUAL_MODALITIES and close_to(name, _USUAL_MODALITIES):  # others may be in the data
            raise no_such_field(path, "the items of a document are", _USUAL_MODALITIES)
        return
    try:
        field = field_named(schema, path)
    except UsageError as error:
        if path.column not in schema.names:
            error.advice = advice_about(path, schema)
        raise
    _way(field, path)


def advice_about(path: FieldPath, schema: pa.Schema) -> str | None:
    """Return advice about a column that is missing: a similar column, or the fields of other columns that are meant.

    They are facts of the first media column that may have such a fact, and fields of the first column of JSON.
    """
    similar = close_to(path.column, schema.names)
    if similar is not None:
        return similar
    meant = meant_fields(path, schema)
    if not meant:
        return None
    kinds = {field.name: feature_of(field) for field in schema}
    of = dict.fromkeys("JSON" if kinds[each.column].is_json else "media" for each in meant)
    return f"Fields of {' and '.join(of)} are named after their column: {' or '.join(map(str, meant))}."


def meant_fields(path: FieldPath, schema: pa.Schema) -> list[FieldPath]:
    """Return the fields inside columns that a name without a column may mean: facts of media first.

    `jpg.width` of documents, or of samples with `png`, means the width of their images.
    """
    kinds = {field.name: feature_of(field) for field in schema}
    if len(path.path) == 1 and path.path[0] in MEDIA_FACTS and feature_of_extension(path.column) is not None:
        items = [FieldPath("binary_content", path.path)] if "binary_content" in schema.names else []
        return items or meant_fields(FieldPath(str(path.path[0])), schema)[:1]
    media = _MEDIA_OF_FACTS.get(path.column, (Image, Audio, Video)) if path.column in MEDIA_FACTS else ()
    with_fact = next((name for name, kind in kinds.items() if isinstance(kind, media) and not path.path), None)
    with_json = next((name for name, kind in kinds.items() if kind.is_json), None)
    return [FieldPath(name, (path.column, *path.path)) for name in (with_fact, with_json) if name is not None]


def read_fields(batch: pa.RecordBatch, wanted: Sequence[Wanted], fetcher: Fetcher) -> list[FieldColumn]:
    """Return the values of fields as they are used. Arguments and errors are as of `field_values`."""
    found: dict[Wanted, FieldColumn] = {}
    groups: dict[tuple[str, _Way], list[Wanted]] = {}
    asked = {each: Wanted(each.field.among(batch.schema.names), each.use) for each in wanted}
    for each in dict.fromkeys(asked.values()):
        if counts_items(each.field, batch.schema.names):
            found[each] = FieldColumn(_numbers_of_items(batch, each.field))
            continue
        field = field_named(batch.schema, each.field)
        groups.setdefault((field.name, _way(field, each.field)), []).append(each)
    for (name, way), mine in groups.items():
        field = batch.schema.field(name)
        values = _Values(batch.column(name), field, batch, fetcher)
        with_json = way == "json" and any(each.use != "presence" or each.field.path for each in mine)
        read = _READERS[way] if with_json or way != "json" else _stored
        found |= zip(mine, read(values, mine), strict=True)
    return [_with_names(found[asked[each]], batch.schema, asked[each]) for each in wanted]


def _with_names(column: FieldColumn, schema: pa.Schema, wanted: Wanted) -> FieldColumn:
    """Return labels that are used as texts by their names; a number without a name is null."""
    if (
        wanted.use != "text"
        or wanted.field.path
        or wanted.field.column not in schema.names
        or not pa.types.is_integer(column.values.type)
    ):
        return column
    feature = feature_of(field_named(schema, wanted.field))
    if feature.labels is None:
        return column
    numbers = column.values
    named = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, len(feature.labels)))
    return FieldColumn(pa.array(feature.labels, pa.string()).take(pc.if_else(named, numbers, None)))


_Way: TypeAlias = Literal["stored", "nested", "text", "number", "json", "media"]
"""Where the values of a field come from."""


def _way(field: pa.Field, path: FieldPath) -> _Way:
    kind, feature = plain_type(field.type), feature_of(field)
    packed = is_ref(kind) or is_bytes(kind)
    if path.path:
        return _way_inside(kind, feature, path)
    if feature.is_json and (packed or is_text(kind) or pa.types.is_null(kind)):
        return "json"
    if packed and feature.is_text:
        return "text"
    return "number" if packed and feature.is_scalar else "stored"


def _way_inside(kind: pa.DataType, feature: Feature, path: FieldPath) -> _Way:
    first, packed = path.path[0], is_ref(kind) or is_bytes(kind)
    if pa.types.is_null(kind):  # the rows of other shards may have fields
        return "nested"
    if is_text(kind) or (packed and (feature.is_text or feature.is_json)):
        return "json"
    is_media = feature.is_media
    is_child = pa.types.is_struct(kind) and kind.get_field_index(str(first)) >= 0
    has_bytes = packed or (pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0)
    if not is_child and (is_media or (has_bytes and first in MEDIA_FACTS)):
        if len(path.path) > 1 or first not in MEDIA_FACTS:
            raise no_such_field(path, f"a column of {type(feature).__name__.lower()} files has", [*MEDIA_FACTS])
        return "media"
    if not packed and not isinstance(kind, (pa.StructType, pa.MapType, *LIST_TYPES)):
        raise UsageError(f"a column of {kind} has no fields", column=path.column, found=str(path))
    return "json" if packed else "nested"


@dataclass(frozen=True, slots=True)
class _Values:
    """A column, and what is needed to read its values."""

    column: pa.Array
    field: pa.Field
    batch: pa.RecordBatch
    fetcher: Fetcher

    def parts(self, max_bytes: int) -> Iterator[tuple[int, list[bytes | None]]]:
        """Yield the bytes of the values in parts, each with its first row; None where null."""
        column = plain(self.column)
        if is_ref(column.type):
            refs, files = unpack(column), files_of(self.batch.schema)
            size = np.where(refs.valid, refs.length, 0).clip(0)
            whole = self.fetcher.values(column, files)
            for first, stop in value_bounds(size, max_bytes):
                with errors_at(column=self.field.name):
                    yield first, list(islice(whole, stop - first))
            return
        column = column.cast(pa.large_binary()) if is_text(column.type) or is_view(column.type) else column
        for first, stop in value_bounds(byte_lengths(column), max_bytes):
            yield first, column.slice(first, stop - first).to_pylist()

    def error(self, error: LadingError, row: int) -> LadingError:
        """Return the error with the place of a row."""
        names, files = self.batch.schema.names, lineage_of(self.batch.schema)
        key = next((name for name in ("__key__", "sample_id") if name in names), None)
        error.offset = None  # of the value, not of the file
        error.advice = error.advice or BROKEN_VALUE
        return error.at(
            file=files[0] if len(files) == 1 else None,
            sample=None if key is None else str(self.batch.column(key)[row].as_py()),
            row=row,
            column=self.field.name,
        )


# Values as they are stored


def _stored(values: _Values, wanted: Sequence[Wanted]) -> list[FieldColumn]:
    return [FieldColumn(plain(values.column)) for _ in wanted]


def _nested(values: _Values, wanted: Sequence[Wanted]) -> list[FieldColumn]:
    return [FieldColumn(value_at(values.column, each.field)) for each in wanted]


# Text and numbers that are stored as text


def _text(values: _Values, wanted: Sequence[Wanted]) -> list[FieldColumn]:
    if all(each.use == "presence" for each in wanted):
        return _stored(values, wanted)
    texts = _all_text(values)
    return [FieldColumn(texts) for _ in wanted]


def _all_text(values: _Values) -> pa.Array:
    parts = [pa.array([], pa.large_string())]
    for first, data in values.parts(_PART_BYTES):
        found = pa.array(data, pa.large_binary())
        try:
            parts.append(found.cast(pa.large_string()))
        except pa.ArrowInvalid:
            row = next(i for i, text in enumerate(data) if text is not None and not _is_utf8(text))
            raise values.error(DataError("invalid UTF-8", found=f"{data[row]!r:.60}"), first + row) from None
    return parts[1] if len(parts) == 2 else pa.concat_arrays(parts)  # noqa: PLR2004 - one part, and the empty one


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _number(values: _Values, wanted: Sequence[Wanted]) -> list[FieldColumn]:
    if all(each.use == "presence" for each in wanted):
        return _stored(values, wanted)
    feature = feature_of(values.field)
    kind = feature.to_arrow_type()
    texts = pc.utf8_trim_whitespace(_all_text(values))
    try:
        numbers = texts.cast(kind)
    except pa.ArrowInvalid:
        row = next(i for i, text in enumerate(texts) if not _casts(text, kind))
        raise values.error(DataError("not a number", expected=kind, found=f"{texts[row].as_py()!r:.60}"), row) from None
    return [FieldColumn(numbers) for _ in wanted]


def _casts(text: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


# JSON


def _json(values: _Values, wanted: Sequence[Wanted]) -> list[FieldColumn]:
    paths = list(dict.fromkeys(each.field.path for each in wanted))
    found: dict[tuple[Part, ...], list[Any]] = {path: [] for path in paths}
    for first, texts in values.parts(_PARSED_BYTES):
        documents = _parsed(values, first, texts)
        for path in paths:
            found[path] += json_at(documents, path)
    return [typed_json(found[each.field.path], each.use) for each in wanted]


def _parsed(values: _Values, first: int, texts: list[bytes | None]) -> list[Any]:
    known = [text or b"null" for text in texts]  # an empty text, as CSV has it, is no value
    documents = json_text.loads_plain(known)
    if documents is not None:
        return documents
    documents = []
    for row, text in enumerate(known, first):
        try:
            documents.append(json_text.loads(text))
        except DataError as error:
            is_json = feature_of(values.field).is_json or text.lstrip()[:1] in _STARTS
            raise values.error(error if is_json else _no_json(values.field.name, text), row) from None
    return documents


_STARTS = (b"{", b"[")
"""The first byte of JSON with fields."""


def _no_json(name: str, text: bytes) -> DataError:
    return DataError("this text has no fields, because it is not JSON", found=repr(text.decode(errors="replace")[:60]),
                     advice=f"Of a text, ask for its value or its length: --where 'len({name}) > 20'.")  # fmt: skip


# Facts of media


def _media(values: _Values, wanted: Sequence[Wanted]) -> list[FieldColumn]:
    facts = media_facts(values.column, values.batch.schema, values.fetcher)
    columns = []
    for each in wanted:
        name = str(each.field.path[0])
        found = [None if fact is None else getattr(fact, name) for fact in facts]
        columns.append(FieldColumn(pa.array(found, MEDIA_FACTS[name])))
    return columns


_READERS: dict[_Way, Callable[[_Values, Sequence[Wanted]], list[FieldColumn]]] = {
    "stored": _stored,
    "nested": _nested,
    "text": _text,
    "number": _number,
    "json": _json,
    "media": _media,
}
