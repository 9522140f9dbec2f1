"""Convert JSON documents of a tar to rows of items, a window of documents at a time.

The entries of all lists `texts` and `images` of a window are concatenated and become rows by column, without Python
code for each row. Unusual entries are then corrected one by one: texts that are not strings, images that name a TIFF or
no member, content types that lading's writer stored next to the lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.views import present
from lading._core.features.items import METADATA_POSITION, MODALITIES, content_type_of, content_types
from lading._core.interleaved.tar_items import IMAGE, METADATA, TEXT
from lading._core.interleaved.tar_members import MemberTable
from lading.errors import DataError
from lading.options import InterleavedOptions

__all__ = ["EXTRAS_FIELD", "DocumentWindow", "WindowRows", "make_rows", "scatter", "spread_lists"]

EXTRAS_FIELD = "__lading__"
"""JSON field in which lading stores data that the lists cannot hold (a content type without an extension)."""

_WITHOUT_IMAGE = ("application/json", "text/plain")  # content types of metadata and texts, by their number
_TIFF = content_type_of(".tiff")


@dataclass(frozen=True, slots=True)
class DocumentWindow:
    """Some JSON documents of a tar.

    Attributes:
        members: members of the tar.
        rows: which members the documents are.
        names: names of these members.
        documents: their contents.
        ids: their `sample_id`.
    """

    members: MemberTable
    rows: NDArray[np.int64]
    names: list[str]
    documents: list[dict[str, Any]]
    ids: list[str]


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows of a window, by document, then position, then text before image.

    Attributes:
        document: number of the document in the window.
        position: −1 for metadata.
        kind: number of the modality in `MODALITIES`.
        text: string; null if the row is not a text.
        content_type: string; null for an image without a member.
        error: string; why an image has no member.
        source: number of the row's source.
        member: member of the tar for each source, −1 for an image without one. The sources are the documents, which
            hold metadata and texts, and after them the images.
        frame: image of a TIFF for each source, −1 for others.
    """

    document: NDArray[np.int64]
    position: NDArray[np.int64]
    kind: NDArray[np.int64]
    text: pa.Array
    content_type: pa.Array
    error: pa.Array
    source: NDArray[np.int64]
    member: NDArray[np.int64]
    frame: NDArray[np.int32]

    def of(self, modalities: Sequence[str]) -> NDArray[np.bool_]:
        """Return which rows are of these modalities."""
        return np.array([name in modalities for name in MODALITIES])[self.kind]


def scatter(values: pa.Array, at: NDArray[np.int64]) -> pa.Array:
    """Return the values at these places; null if the place is negative."""
    return values.take(pa.array(at, mask=at < 0))


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of one list of every document, one list after the other.

    Attributes:
        values: JSON values, nulls too.
        strings: the same as Arrow strings; also null for other values and lone surrogates.
        there: which values are not null.
        document: document number of the non-null values.
        position: list index of the non-null values.
    """

    values: list[Any]
    strings: pa.Array
    there: NDArray[np.int64]
    document: NDArray[np.int64]
    position: NDArray[np.int64]

    @classmethod
    def of(cls, documents: list[dict[str, Any]], field: str) -> _Entries:
        """Return the entries of the lists in a field; a value that is not a list has no entries."""
        lists = [value if isinstance(value, list) else [] for value in [d.get(field) for d in documents]]
        length = np.array([len(entries) for entries in lists], np.int64)
        values = list(chain.from_iterable(lists))
        try:
            strings = pa.array(values, pa.string())
            there = np.flatnonzero(present(strings))
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
            texts = [v if isinstance(v, str) and json_text.is_unicode(v) else None for v in values]
            strings = pa.array(texts, pa.string())
            there = np.flatnonzero([v is not None for v in values])
        document = np.repeat(np.arange(len(lists)), length)[there]
        return cls(values, strings, there, document, there - (np.cumsum(length) - length)[document])


def make_rows(window: DocumentWindow, options: InterleavedOptions, path: str) -> WindowRows:
    """Return the rows of a window: for each document the metadata row, then its texts and images.

    Raises:
        DataError: a text holds a lone surrogate, or a stored content type is not text; names file, column, row and
            sample.
    """
    texts = _Entries.of(window.documents, options.texts_field)
    images = _Entries.of(window.documents, options.images_field)
    found = _find_images(window, images, options)
    count, num_texts = len(window.documents), len(texts.there)
    document = np.concatenate([np.arange(count), texts.document, images.document])
    position = np.concatenate([np.full(count, METADATA_POSITION), texts.position, images.position])
    kind = np.repeat([METADATA, TEXT, IMAGE], [count, num_texts, len(images.there)])
    # Index of each row's value among the documents, the entries of `texts`, or the images that exist.
    value = np.concatenate([np.arange(count), texts.there, np.arange(len(images.there))])
    types = [*found.types, *_WITHOUT_IMAGE]
    type_at = np.concatenate([len(found.types) + kind[: count + num_texts], found.type_at])
    order = np.lexsort([kind, position, document])
    document, position, kind, value = document[order], position[order], kind[order], value[order]
    image = np.where(kind == IMAGE, value, -1)
    content_type = scatter(pa.array(types, pa.string()), type_at[order])
    try:
        content_type = _with_stored_types(content_type, window.documents, position, kind, path)
        text = _texts(texts, np.where(kind == TEXT, value, -1), path)
    except DataError as error:
        error.sample = window.names[document[error.row]]
        raise
    return WindowRows(
        document=document,
        position=position,
        kind=kind,
        content_type=content_type,
        text=text,
        error=scatter(found.error, image),
        source=np.where(image < 0, document, count + image),
        member=np.concatenate([window.rows, found.member]),
        frame=np.concatenate([np.full(count, -1, np.int32), found.frame]),
    )


def _texts(texts: _Entries, at: NDArray[np.int64], path: str) -> pa.Array:
    """Return the texts of the rows; `at` is the entry of each, −1 for none. Other values become their `str()`."""
    if texts.strings.null_count == len(texts.values) - len(texts.there):
        return scatter(texts.strings, at)
    values = [texts.values[i] if i >= 0 else None for i in at.tolist()]
    return _text_column([v if v is None or isinstance(v, str) else str(v) for v in values], path)


def _with_stored_types(
    content_type: pa.Array,
    documents: list[dict[str, Any]],
    position: NDArray[np.int64],
    kind: NDArray[np.int64],
    path: str,
) -> pa.Array:
    """Return content types, with those that lading's writer stored next to the lists, by modality and position."""
    marked = [i for i, document in enumerate(documents) if isinstance(document.get(EXTRAS_FIELD), dict)]
    starts = np.append(np.flatnonzero(kind == METADATA), len(kind)) if marked else ()
    stored: dict[int, Any] = {}
    for i in marked:
        types = documents[i][EXTRAS_FIELD].get("content_type")
        if isinstance(types, dict):
            keys = {row: f"{MODALITIES[kind[row]]} {position[row]}" for row in range(starts[i], starts[i + 1])}
            stored.update((row, types[key]) for row, key in keys.items() if key in types)
    if not stored:
        return content_type
    for row, value in stored.items():
        if value is not None and not (isinstance(value, str) and json_text.is_unicode(value)):
            raise DataError("a content type is a text", file=path, column="content_type", row=row,
                            found=ascii(value)[:80] if isinstance(value, str) else type(value).__name__)  # fmt: skip
    mask = np.zeros(len(kind), np.bool_)
    mask[list(stored)] = True
    return pc.replace_with_mask(content_type, pa.array(mask), pa.array(list(stored.values()), pa.string()))


@dataclass(frozen=True, slots=True)
class _Images:
    """The images of a window; all arrays of one length.

    Attributes:
        member: member of each, −1 if none.
        frame: image of a TIFF, −1 for other members.
        error: string; why there is no member, null if that is intended.
        types: the distinct content types.
        type_at: index of each one's type, −1 without a member.
    """

    member: NDArray[np.int64]
    frame: NDArray[np.int32]
    error: pa.Array
    types: list[str]
    type_at: NDArray[np.int64]


def _find_images(window: DocumentWindow, images: _Entries, options: InterleavedOptions) -> _Images:
    """Resolve the images: all looked up at once, then those that name a TIFF or no member one by one."""
    members = window.members
    member = members.table.find(images.strings.take(pa.array(images.there)))
    types, type_at = content_types(scatter(members.names, member))
    tiff = np.array([*(name == _TIFF for name in types), False])[type_at]
    frame = np.full(len(member), -1, np.int32)
    errors: list[str | None] = [None] * len(member)
    unusual = np.flatnonzero(tiff | (member < 0)).tolist()
    odd = [i for i in unusual if member[i] >= 0 or not _is_null_image(window, images, i)]
    if odd:
        numbers = np.unique(images.document[odd])
        defaults = _defaults(window, numbers, options)
        of = {n: _OddImages(members.names, row) for n, row in zip(numbers.tolist(), defaults.tolist(), strict=True)}
        for i, number in zip(odd, images.document[odd].tolist(), strict=True):
            token = images.values[images.there[i]]
            member[i], frame[i], errors[i] = of[number].find(token, int(member[i]))
        types, type_at = content_types(scatter(members.names, member))
    return _Images(member, frame, pa.array(errors, pa.string()), types, type_at)


def _is_null_image(window: DocumentWindow, images: _Entries, i: int) -> bool:
    """Return whether a writer named an image without bytes: `{key}.{position}.{extension}` without a member."""
    token = images.values[images.there[i]]
    if not isinstance(token, str):
        return False
    key = window.names[images.document[i]].rpartition(".")[0]
    stem, _, extension = token.rpartition(".")
    return bool(extension) and stem == f"{key}.{images.position[i]}"


def _defaults(window: DocumentWindow, numbers: NDArray[np.int64], options: InterleavedOptions) -> NDArray[np.int64]:
    """Return the default images of documents: the member in a field, else one named as the sample; −1 if none."""
    field = options.image_member_field
    named = [window.documents[number].get(field) if field else None for number in numbers.tolist()]
    found = _find_names(window.members, named)
    for ending in options.image_extensions:
        without = np.flatnonzero(found < 0)
        found[without] = _find_names(window.members, [window.ids[i] + ending for i in numbers[without].tolist()])
    return found


def _find_names(members: MemberTable, names: Sequence[object]) -> NDArray[np.int64]:
    texts = [name if isinstance(name, str) and json_text.is_unicode(name) else None for name in names]
    return members.table.find(pa.array(texts, pa.string()))


class _OddImages:
    """The images of one document that name a TIFF or no member, in order; `default` is its default image or −1."""

    def __init__(self, names: pa.Array, default: int) -> None:
        self._names, self._default = names, default
        self._frames: Counter[int] = Counter()
        self._first_unresolved: object = None

    def find(self, token: object, found: int) -> tuple[int, int, str | None]:
        """Return member, frame and error of the next image; `found` is the member named by its token, or −1."""
        row, error = (found, None) if found >= 0 else self._fallback(token)
        if row < 0 or not self._is_tiff(row):
            return row, -1, error
        frame = self._frames[row]
        self._frames[row] += 1
        return row, frame, None

    def _is_tiff(self, row: int) -> bool:
        return content_type_of(self._names[row].as_py()) == _TIFF

    def _fallback(self, token: object) -> tuple[int, str | None]:
        """Return the sample's default image: only if no other reading of the token is possible."""
        if self._default < 0:
            return -1, f"no member {token!r}, and the sample has no default image"
        if not self._is_tiff(self._default):
            if self._first_unresolved is not None and self._first_unresolved != token:
                name = self._names[self._default].as_py()
                return -1, f"no member {token!r}, and the sample's one image {name!r} is that of another entry"
            self._first_unresolved = token
        return self._default, None


def spread_lists(
    lists: list[list[Any]], rows: WindowRows, mine: NDArray[np.bool_]
) -> tuple[list[Any], NDArray[np.int64]]:
    """Return entries of one list a document, for its rows in `mine`: the values, and the index of each row's value.

    A row without an entry has −1; an entry without a row is left out.
    """
    document = rows.document[mine]
    count = np.bincount(document, minlength=len(lists))
    taken = [entries[:most] for entries, most in zip(lists, count.tolist(), strict=True)]
    length = np.array([len(entries) for entries in taken], np.int64)
    nth = np.arange(len(document)) - (np.cumsum(count) - count)[document]
    at = np.full(len(rows.kind), -1, np.int64)
    at[mine] = np.where(nth < length[document], (np.cumsum(length) - length)[document] + nth, -1)
    return list(chain.from_iterable(taken)), at


def _text_column(values: Sequence[str | None], path: str) -> pa.Array:
    """Return the text column.

    Raises:
        DataError: a text holds a lone surrogate; names file, column and row.
    """
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError as error:
        bad = next(i for i, v in enumerate(values) if v is not None and not json_text.is_unicode(v))
        raise DataError(
            "a text holds a lone surrogate, which is not valid Unicode",
            file=path,
            column="text_content",
            row=bad,
            found=ascii(values[bad])[:80],
        ) from error
