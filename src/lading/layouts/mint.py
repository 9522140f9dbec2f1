"""MINT-1T style tars as interleaved items: reading.

A sample is one JSON member with position-aligned lists `texts` and `images`, and the images that it names, anywhere in
the tar. Grouping goes by those lists and by the last extension: keys may hold dots. Rows come per sample: metadata
(position −1), then by position, text before image.

Source: NeMo Curator 1.4.0, `stages/interleaved/io/readers/webdataset.py`, for tokens, default images and TIFF frames;
where it gives a wrong image or drops a value without a word, this reader sets the row's error or refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading import jsontext
from lading.errors import DataError, errors_at
from lading.fetch import Fetcher
from lading.formats.protocol import ShardSource
from lading.formats.webdataset import WebdatasetReader, sparse_member
from lading.hashing import NameTable
from lading.interleaved import (
    INTERLEAVED_SCHEMA,
    MEANT_NULLS_KEY,
    MODALITIES,
    RESERVED,
    content_type_of,
    format_source_ref,
    is_unicode,
)
from lading.layouts.gather import split_samples
from lading.layouts.mint_values import Kinds, build_column, column_type
from lading.layouts.options import AUTO, ROLES, InterleavedOptions, tell_absent
from lading.ref import FileEntry, RefType, make_refs, unpack, with_files

__all__ = ["EXTRAS_FIELD", "MintView", "field_name", "looks_interleaved"]

EXTRAS_FIELD = "__lading__"
"""JSON field in which lading keeps what the lists cannot hold (a content type that no extension stands for)."""

RENAMED = "json."
"""A JSON field with the name of a reserved column becomes the column of that name behind this prefix."""

_WINDOW_DOCUMENTS = 1024
_WINDOW_BYTES = 4 << 20
_WINDOW_SPAN_BYTES = 16 << 20
_DETECT_STEP, _DETECT_MEMBERS, _DETECT_DOCUMENTS = 64, 1024, 16
_TIFF = (".tif", ".tiff")
_METADATA, _TEXT, _IMAGE = range(len(MODALITIES))


@dataclass(slots=True)
class _Rows:
    """Rows of a window of documents, one list a column; `member` and `frame` are −1 where there is none."""

    document: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    text: list[str | None] = field(default_factory=list)
    member: list[int] = field(default_factory=list)
    content_type: list[str | None] = field(default_factory=list)
    frame: dict[int, int] = field(default_factory=dict)
    error: dict[int, str] = field(default_factory=dict)

    def add(
        self, document: int, position: int, kind: int, text: str | None, member: int, content_type: str | None
    ) -> None:
        """Append one row."""
        self.document.append(document)
        self.position.append(position)
        self.kind.append(kind)
        self.text.append(text)
        self.member.append(member)
        self.content_type.append(content_type)

    def last(self) -> int:
        """Number of the row appended last."""
        return len(self.kind) - 1


class MintView:
    """One tar of interleaved samples, as items.

    The names and places of the tar's members are held: some 60 bytes each. Payload stays where it is: `binary_content`
    is a reference column.

    Args:
        reader: the open tar.
        fetcher: what JSON members are read with.
        source: the tar; its path stands in errors and in `source_ref`, its index spares a walk over it.
        options: names of fields and policies.
    """

    def __init__(
        self, reader: WebdatasetReader, fetcher: Fetcher, source: ShardSource, options: InterleavedOptions
    ) -> None:
        self._reader, self._fetcher, self._options = reader, fetcher, options
        self._path, self._index = source.path, source.index
        self._table: _Members | None = None
        self._kinds: Kinds | None = None
        self._id_field = options.sample_id_field
        self.counts: Counter[str] = Counter()

    # What is in the tar

    def _members(self) -> _Members:
        if self._table is None:
            self._table = _Members.of(self._reader, self._index, self._options)
        return self._table

    def index(self) -> pa.Table:
        """Names and places of all members."""
        return self._members().as_index(self._reader.files)

    def num_samples(self) -> int:
        """Number of JSON members."""
        return len(self._members().documents)

    def close(self) -> None:
        """Close the tar."""
        self._reader.close()

    def schema(self) -> pa.Schema:
        """Reserved columns, then passthrough fields in order of appearance; reads every JSON member once."""
        return self._schema(self._shard_kinds())

    def _target(self, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of rows with these columns; only passthrough fields ask for a look at all documents."""
        reserved = columns is not None and set(columns) <= {*RESERVED}
        return self._schema(Kinds() if reserved else self._shard_kinds())

    def _schema(self, kinds: Kinds) -> pa.Schema:
        fields = [f.with_type(RefType()) if f.name == "binary_content" else f for f in INTERLEAVED_SCHEMA]
        per_item = self._options.roles
        names = kinds.names if self._options.fields is None else self._options.fields
        wanted = [n for n in names if n not in per_item] + [n for n in per_item if n in kinds.names]
        fields += [column_type(_column_name(n), kinds.of(n, per_item=n in per_item)) for n in wanted]
        return with_files(pa.schema(fields), self._reader.files)

    def _shard_kinds(self) -> Kinds:
        if self._kinds is None:
            kinds = Kinds()
            per_item = {*self._options.roles}
            # `sample_id` is no content even where it is not the id: who asks for the stem as the id has said so.
            id_field = self._field_of_ids() or "sample_id"
            own = {self._options.texts_field, self._options.images_field, EXTRAS_FIELD, id_field}
            for _, documents in self._windows():
                for document in documents:
                    kinds.add({name: value for name, value in document.items() if name not in own}, per_item)
            self._kinds = kinds
        return self._kinds

    # Documents

    def _windows(
        self, order: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[NDArray[np.int64], list[dict[str, Any]]]]:
        """Ordinals and contents of JSON members, a window at a time, in file order or in the order asked for.

        A window of a compressed tar spans little of it, so that the images beside its documents are still at hand.
        """
        members = self._members()
        wanted = np.arange(len(members.documents)) if order is None else order
        at = 0
        while at < len(wanted):
            rows = members.documents[wanted[at : at + _WINDOW_DOCUMENTS]]
            sizes = np.cumsum(members.length[rows])
            count = max(1, int(np.searchsorted(sizes, _WINDOW_BYTES, "right")))
            if self._reader.files[0].wrap:
                span = np.maximum.accumulate(members.offset[rows]) - members.offset[rows[0]]
                count = min(count, max(1, int(np.searchsorted(span, _WINDOW_SPAN_BYTES, "right"))))
            yield wanted[at : at + count], self._load(rows[:count])
            at += count

    def _load(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        members = self._members()
        # One by one: to map small values far apart would bring their neighbourhoods, mostly pictures, into memory.
        texts = self._fetcher.values(make_refs(members.offset[rows], members.length[rows]), self._reader.files)
        documents = []
        for row, text in zip(rows.tolist(), texts, strict=True):
            name = members.names[row].as_py()
            with errors_at(file=self._path, sample=name):
                document = jsontext.loads(text or b"", base=int(members.offset[row]))
            if not isinstance(document, dict):
                raise DataError("a sample's JSON is an object", file=self._path, offset=int(members.offset[row]),
                                sample=name, found=type(document).__name__)  # fmt: skip
            documents.append(document)
        return documents

    def settled(self) -> InterleavedOptions:
        """The options with the field of ids found, for the other shards of the dataset to go by."""
        if not len(self._members().documents):
            return self._options
        return replace(self._options, sample_id_field=self._field_of_ids())

    def _field_of_ids(self) -> str | None:
        if self._id_field == AUTO:
            documents = self._load(self._members().documents[:16])
            everywhere = bool(documents) and all(isinstance(d.get("sample_id"), str) for d in documents)
            self._id_field = "sample_id" if everywhere else None
        return self._id_field

    def _sample_id(self, document: dict[str, Any], name: str) -> str:
        id_field = self._field_of_ids()
        value = document.get(id_field) if id_field else None
        if value is None:
            return name.rpartition("/")[2].rpartition(".")[0]
        return value if isinstance(value, str) else str(value)

    # Rows

    def batches(
        self,
        *,
        max_rows: int,
        max_bytes: int,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        views: bool = False,  # noqa: ARG002 - payload stays where it is
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order, samples whole; `binary_content` as references.

        Raises:
            DataError: a JSON member is broken; a member that no JSON names, under `unreferenced="error"`.
        """
        members = self._members()
        used = np.zeros(len(members.names), np.bool_)
        used[members.documents] = True
        target = schema or self._target(columns)
        wanted = dict.fromkeys(self._options.fields or ())
        for ordinals, documents in self._windows():
            if wanted:
                wanted = {name: None for name in wanted if not any(name in document for document in documents)}
            left_out = sum("sample_id" in document for document in documents) if self._field_of_ids() is None else 0
            if left_out:
                self.counts["samples whose JSON field 'sample_id' was left out, for the member's name"] += left_out
            batch = self._batch(ordinals, documents, target, columns, used)
            starts = np.flatnonzero(batch.column("position").to_numpy() == -1)
            yield from split_samples(batch, starts, max_rows, max_bytes)
        self._account(used)
        tell_absent(wanted, self._path, self.counts)
        self.counts.update(self._reader.counts)

    def _account(self, used: NDArray[np.bool_]) -> None:
        unused = np.flatnonzero(~used)
        if not len(unused):
            return
        if self._options.unreferenced == "error":
            members, row = self._members(), int(unused[0])
            raise DataError(
                f"no JSON names this member ({len(unused)} such members in all)", file=self._path,
                offset=int(members.offset[row]), sample=members.names[row].as_py(),
                advice="Leave such members out with --unreferenced drop, or take the tar as it is with --view samples.",
            )  # fmt: skip
        self.counts["members that no JSON names, dropped"] += len(unused)

    def read(self, samples: NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of samples by ordinal, in the order asked for."""
        target = self._target(columns)
        used = np.zeros(len(self._members().names), np.bool_)
        parts = [self._batch(o, d, target, columns, used) for o, d in self._windows(samples)]
        return pa.Table.from_batches(parts, self._chosen(target, columns))

    def _chosen(self, target: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
        """The schema with these columns, and those that tell samples and items apart."""
        always = ("sample_id", "position")
        kept = [f for f in target if columns is None or f.name in columns or f.name in always]
        # A name in `images` without a member is how writers spell a null.
        told = {**(target.metadata or {}), MEANT_NULLS_KEY: b""}
        return with_files(pa.schema(kept, metadata=told), self._reader.files)

    def _batch(
        self,
        ordinals: NDArray[np.int64],
        documents: list[dict[str, Any]],
        target: pa.Schema,
        columns: Sequence[str] | None,
        used: NDArray[np.bool_],
    ) -> pa.RecordBatch:
        members = self._members()
        json_rows = members.documents[ordinals]
        names = [members.names[row].as_py() for row in json_rows.tolist()]
        ids = [self._sample_id(d, name) for d, name in zip(documents, names, strict=True)]
        rows = _Rows()
        found = self._find_tokens(documents)
        for i, document in enumerate(documents):
            self._add_rows(rows, i, document, ids[i], int(json_rows[i]), found)
        member = np.array(rows.member, np.int64)
        images = (np.array(rows.kind) == _IMAGE) & (member >= 0)
        used[member[images]] = True
        made = self._reserved(rows, ids, member, images)
        schema = self._chosen(target, columns)
        arrays = [made[f.name] if f.name in made else self._values(f, rows, documents) for f in schema]
        return pa.record_batch(arrays, schema=schema)

    def _find_tokens(self, documents: list[dict[str, Any]]) -> dict[str, int]:
        """Member row of every image token of a window that names a member (and of default images)."""
        tokens: set[str] = set()
        for document in documents:
            images = document.get(self._options.images_field)
            if isinstance(images, list):
                tokens.update(t for t in images if isinstance(t, str))
            if self._options.image_member_field:
                default = document.get(self._options.image_member_field)
                if isinstance(default, str):
                    tokens.add(default)
        wanted = sorted(t for t in tokens if is_unicode(t))
        found = self._members().table.find(pa.array(wanted, pa.string()))
        return {token: row for token, row in zip(wanted, found.tolist(), strict=True) if row >= 0}

    def _add_rows(
        self, rows: _Rows, number: int, document: dict[str, Any], sample_id: str, json_row: int, found: dict[str, int]
    ) -> None:
        rows.add(number, -1, _METADATA, None, json_row, "application/json")
        texts, images = document.get(self._options.texts_field), document.get(self._options.images_field)
        texts = texts if isinstance(texts, list) else []
        images = images if isinstance(images, list) else []
        resolve = _Images(self, document, sample_id, json_row, found) if images else None
        for position in range(max(len(texts), len(images))):
            text = texts[position] if position < len(texts) else None
            if text is not None:
                rows.add(number, position, _TEXT, text if isinstance(text, str) else str(text), json_row, "text/plain")
            token = images[position] if position < len(images) else None
            if token is not None and resolve is not None:
                resolve.add(rows, number, position, token)
        extras = document.get(EXTRAS_FIELD)
        if isinstance(extras, dict):
            _apply_extras(rows, number, extras)

    def _reserved(
        self, rows: _Rows, ids: list[str], member: NDArray[np.int64], images: NDArray[np.bool_]
    ) -> dict[str, pa.Array]:
        members = self._members()
        at = np.where(member >= 0, member, 0)
        there = member >= 0
        frame = np.full(len(member), -1, np.int32)
        frame[list(rows.frame)] = list(rows.frame.values())
        errors: list[str | None] = [None] * len(member)
        for row, text in rows.error.items():
            errors[row] = text
        names = members.names.take(pa.array(at, mask=~there))
        offset, length = members.offset[at] if len(members.offset) else at, members.length[at]
        return {
            "sample_id": _strings(ids, self._path, "sample_id").take(pa.array(rows.document, pa.int64())),
            "position": pa.array(rows.position, pa.int32()),
            "modality": pa.array(MODALITIES, pa.string()).take(pa.array(rows.kind, pa.int64())),
            "content_type": pa.array(rows.content_type, pa.string()),
            "text_content": _strings(rows.text, self._path, "text_content"),
            "binary_content": make_refs(offset, length, frame=frame, valid=images),
            "source_ref": format_source_ref(self._path, names, offset, length, frame, valid=there),
            "materialize_error": pa.array(errors, pa.string()),
        }

    def _values(self, target: pa.Field, rows: _Rows, documents: list[dict[str, Any]]) -> pa.Array:
        """A passthrough column: on the metadata rows, or spread over the items it belongs to."""
        name = field_name(target.name)
        values: list[Any] = [None] * len(rows.kind)
        role = self._options.roles.get(name)
        if role is None:
            for i, kind in enumerate(rows.kind):
                if kind == _METADATA:
                    values[i] = documents[rows.document[i]].get(name)
        else:
            self._spread_values(name, {MODALITIES.index(m) for m in ROLES[role]}, values, rows, documents)
        return build_column(target, values, self._path)

    def _spread_values(
        self, name: str, spread: set[int], values: list[Any], rows: _Rows, documents: list[dict[str, Any]]
    ) -> None:
        taken = [0] * len(documents)
        for i, kind in enumerate(rows.kind):
            if kind not in spread:
                continue
            number = rows.document[i]
            entries = documents[number].get(name)
            if entries is not None and not isinstance(entries, list):
                raise DataError("a field with one entry an item is a list", file=self._path, column=name, row=number,
                                found=type(entries).__name__)  # fmt: skip
            if entries is not None and taken[number] < len(entries):
                values[i] = entries[taken[number]]
            taken[number] += 1
        for document, count in zip(documents, taken, strict=True):
            if name not in document:
                self.counts[f"samples without the field {name!r}"] += 1
            elif len(document[name] or []) != count:
                self.counts[f"samples whose field {name!r} has another number of entries than items"] += 1


class _Images:
    """The images of one document: which member each token means."""

    def __init__(
        self, view: MintView, document: dict[str, Any], sample_id: str, json_row: int, found: dict[str, int]
    ) -> None:
        self._members = view._members()  # noqa: SLF001 - one module
        self._options = view._options  # noqa: SLF001 - one module
        self._document, self._found = document, found
        self._sample_id = sample_id
        self._stem = self._members.names[json_row].as_py().rpartition(".")[0]
        self._default: int | None = None
        self._frames: dict[int, int] = {}
        self._first_unresolved: object = None

    def add(self, rows: _Rows, number: int, position: int, token: object) -> None:
        """Append the row of one entry of `images`."""
        row = self._found.get(token) if isinstance(token, str) else None
        error = None
        if row is None and not self._is_null_image(token, position):
            row, error = self._fallback(token)
        if row is None:
            rows.add(number, position, _IMAGE, None, -1, None)
            if error is not None:
                rows.error[rows.last()] = error
            return
        name = self._members.names[row].as_py()
        rows.add(number, position, _IMAGE, None, row, content_type_of(name))
        if name.lower().endswith(_TIFF):
            frame = self._frames.get(row, 0)
            rows.frame[rows.last()], self._frames[row] = frame, frame + 1

    def _is_null_image(self, token: object, position: int) -> bool:
        """Whether a writer named an image here that had no bytes: `{key}.{position}.{extension}` without a member."""
        if not isinstance(token, str):
            return False
        stem, _, extension = token.rpartition(".")
        return bool(extension) and stem == f"{self._stem}.{position}"

    def _fallback(self, token: object) -> tuple[int | None, str | None]:
        """The sample's default image: only where no other reading of the token is possible."""
        if self._default is None:
            self._default = self._find_default()
        if self._default < 0:
            return None, f"no member {token!r}, and the sample has no default image"
        name = self._members.names[self._default].as_py()
        if not name.lower().endswith(_TIFF):
            if self._first_unresolved is not None and self._first_unresolved != token:
                return None, f"no member {token!r}, and the sample's one image {name!r} is that of another entry"
            self._first_unresolved = token
        return self._default, None

    def _find_default(self) -> int:
        member_field = self._options.image_member_field
        named = self._document.get(member_field) if member_field else None
        if isinstance(named, str) and named in self._found:
            return self._found[named]
        guesses = [self._sample_id + ending for ending in self._options.image_extensions]
        found = self._members.table.find(pa.array([g for g in guesses if is_unicode(g)], pa.string()))
        return next((row for row in found.tolist() if row >= 0), -1)


@dataclass(frozen=True, slots=True)
class _Members:
    """The members of a tar: names and places, which of them are JSON, and a table to look names up in."""

    names: pa.Array
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    documents: NDArray[np.int64]
    table: NameTable

    @classmethod
    def of(cls, reader: WebdatasetReader, index: pa.Table | None, options: InterleavedOptions) -> _Members:
        """Of the tar, or of an index made of it before (`as_index`)."""
        if index is None:
            parts = [_NO_MEMBERS, *_places(reader)]
        else:
            refs = unpack(index.column("ref"))
            parts = [(index.column("name").combine_chunks(), refs.offset, refs.length)]
        names = pa.concat_arrays([p[0] for p in parts])
        offset, length = np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])
        lower = pa.compute.utf8_lower(names)
        documents = np.zeros(len(names), np.bool_)
        for ending in options.json_extensions:
            documents |= pa.compute.ends_with(lower, ending.lower()).to_numpy(zero_copy_only=False)
        return cls(names, offset, length, np.flatnonzero(documents), NameTable(names))

    def as_index(self, files: Sequence[FileEntry]) -> pa.Table:
        """`name: string`, `ref`: a row a member, in file order."""
        table = pa.table({"name": self.names, "ref": make_refs(self.offset, self.length)})
        return table.cast(with_files(table.schema, files))


def _places(reader: WebdatasetReader) -> Iterator[tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]]:
    for part in reader.members():
        if part.sparse.any():
            raise sparse_member(reader.files[0].url, int(part.header_offset[part.sparse.argmax()]))
        yield part.name, part.offset, part.length


_NO_MEMBERS = (pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _column_name(name: str) -> str:
    return RENAMED + name if name in RESERVED or name.startswith(RENAMED) else name


def field_name(column: str) -> str:
    """The JSON field that a passthrough column holds."""
    return column.removeprefix(RENAMED)


def _strings(values: list[str | None] | list[str], path: str, column: str) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        bad = next(i for i, v in enumerate(values) if v is not None and not is_unicode(v))
        raise DataError("a text holds a lone surrogate, which is no Unicode", file=path, column=column, row=bad,
                        found=ascii(values[bad])[:80]) from error  # fmt: skip


def _apply_extras(rows: _Rows, number: int, extras: dict[str, Any]) -> None:
    """Put back what lading's writer kept beside the lists: content types by position."""
    kinds = extras.get("content_type")
    if not isinstance(kinds, dict):
        return
    for i in range(len(rows.document) - 1, -1, -1):
        if rows.document[i] != number:
            break
        key = f"{MODALITIES[rows.kind[i]]} {rows.position[i]}"
        if key in kinds:
            rows.content_type[i] = kinds[key]


def looks_interleaved(reader: WebdatasetReader, fetcher: Fetcher, options: InterleavedOptions) -> bool | None:
    """Whether a tar's first samples are interleaved ones: each JSON has `texts` and `images`, lists of one length.

    Looks at 16 JSON members at most, among the tar's first thousand members. None if the tar is empty.
    """
    offset: list[int] = []
    length: list[int] = []
    seen = 0
    for part in reader.members(max_members=_DETECT_STEP):
        lower = pa.compute.utf8_lower(part.name)
        rows = np.flatnonzero(pa.compute.ends_with(lower, ".json").to_numpy(zero_copy_only=False))
        if part.sparse[rows].any():
            return False
        offset += part.offset[rows].tolist()
        length += part.length[rows].tolist()
        seen += len(part.name)
        if len(offset) >= _DETECT_DOCUMENTS or seen >= _DETECT_MEMBERS:
            break
    if not offset:
        return False if seen else None
    first = slice(_DETECT_DOCUMENTS)
    for text in fetcher.values(make_refs(np.array(offset[first]), np.array(length[first])), reader.files):
        try:
            document = jsontext.loads(text or b"")
        except DataError:
            return False
        if not isinstance(document, dict) or not _is_interleaved(document, options):
            return False
    return True


def _is_interleaved(document: dict[str, Any], options: InterleavedOptions) -> bool:
    texts, images = document.get(options.texts_field), document.get(options.images_field)
    if not (isinstance(texts, list) and isinstance(images, list) and len(texts) == len(images)):
        return False
    return all(v is None or isinstance(v, str) for v in (*texts, *images))
