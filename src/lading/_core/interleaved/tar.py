"""MINT-1T style tars as interleaved items: reading.

A sample is one JSON member with position-aligned lists `texts` and `images`, and the images that it names, anywhere in
the tar. Those lists and the last extension group members: keys may hold dots. Rows come per sample: metadata (position
−1), then by position, text before image.

Source: NeMo Curator 1.4.0, `stages/interleaved/io/readers/webdataset.py`, for tokens, default images and TIFF frames;
where it gives a wrong image or silently drops a value, this reader sets the row's error or refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.align import reconcile_schema
from lading._core.arrow.json_columns import Kinds, build_column, column_type
from lading._core.arrow.rebatch import split_samples
from lading._core.arrow.references import RefType, make_refs, with_files
from lading._core.features.image_lists import FIRST_DOCUMENTS, ImageLists
from lading._core.features.items import (
    INTERLEAVED_SCHEMA,
    MEANT_NULLS_KEY,
    METADATA_POSITION,
    MODALITIES,
    RESERVED,
    format_source_ref,
)
from lading._core.formats.base import DEFAULT_SCAN, MemberReader, Scan, ShardFile, ShardReader
from lading._core.interleaved.absent_fields import warn_absent_fields, warn_absent_id_field
from lading._core.interleaved.base import documents_at_once
from lading._core.interleaved.tar_members import TELLING_DOCUMENTS, MemberTable, document_of, id_field_of, sample_ids
from lading._core.interleaved.tar_rows import EXTRAS_FIELD, DocumentWindow, WindowRows, make_rows, scatter, spread_lists
from lading._core.storage.concurrent import is_remote
from lading._core.storage.fetch import Fetcher
from lading.errors import DataError, LadingError
from lading.options import AUTO, ROLES, InterleavedOptions

__all__ = ["TarDocuments", "column_name", "field_name", "looks_interleaved"]

RENAMED = "json."
"""Prefix of the column for a JSON field with the name of a reserved column."""

_WINDOW_DOCUMENTS = 1024
_WINDOW_SPAN_BYTES = 16 << 20
_DETECT_STEP, _DETECT_MEMBERS, _DETECT_DOCUMENTS = 64, 1024, 16
_DETECT_FAR_STEP, _DETECT_FAR_BYTES = 16, 4 << 20
"""Members of a remote tar that are looked at together, until so many bytes are walked over: 8 MiB are read, at most."""
_DETECT_BYTES, _DETECT_MOST_BYTES = 1 << 20, 8 << 20
"""Bytes of JSON read to detect the layout of a tar; only one larger JSON is read."""
_DETECT_NESTED = 1 << 19
"""Maximum number of lists and objects in it: they may take 35 times their bytes in memory, other values some 15 times.
"""


class TarDocuments(ShardReader):
    """One tar of interleaved samples, as items.

    The names and places of the tar's members are held: some 60 bytes each. Payload stays in place: `binary_content` is
    a reference column.

    Args:
        reader: the open tar.
        fetcher: reads JSON members.
        source: the tar; its path is in errors and in `source_ref`, its index saves a scan.
        options: names of fields and policies.
        schema: passthrough columns with stored types; other columns have the types of their values.
    """

    has_errors = may_join = copies = False
    has_members = True

    def __init__(
        self,
        reader: MemberReader,
        fetcher: Fetcher,
        source: ShardFile,
        options: InterleavedOptions,
        schema: pa.Schema | None = None,
    ) -> None:
        self._reader, self._fetcher, self._options = reader, fetcher, options
        self._kept = _passthrough(schema or pa.schema([]))
        self._path, self._index, self._limits = source.path, source.index, source.limits
        self._table: MemberTable | None = None
        self._kinds: Kinds | None = None
        self._image_lists: ImageLists | None = None
        self._id_field = options.sample_id_field

    # Contents of the tar

    def _members(self) -> MemberTable:
        if self._table is None:
            self._table = MemberTable.of(self._reader, self._index, self._options, self._limits)
        return self._table

    def index(self) -> pa.Table:
        """Return names and places of all members."""
        return self._members().as_index(self._reader.files)

    def num_samples(self) -> int:
        """Return the number of JSON members."""
        return len(self._members().documents)

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many documents are read to read one (`ShardReader.samples_at_once`)."""
        return documents_at_once(self._reader, self.num_samples())

    def close(self) -> None:
        """Close the tar."""
        self._reader.close()

    def schema(self) -> pa.Schema:
        """Return reserved columns, then passthrough fields as stored, and others in order of appearance.

        Reads every JSON member once.
        """
        return self._schema(self._shard_kinds())

    def _target(self, columns: Sequence[str] | None) -> pa.Schema:
        """Return the schema of rows with these columns; only passthrough fields need a scan of all documents."""
        reserved = columns is not None and set(columns) <= {*RESERVED}
        return self._schema(Kinds() if reserved else self._shard_kinds())

    def _schema(self, kinds: Kinds) -> pa.Schema:
        fields = [f.with_type(RefType()) if f.name == "binary_content" else f for f in INTERLEAVED_SCHEMA]
        per_item, own = self._options.roles, self._own_fields()
        kept = {name: field for name, field in self._kept.items() if name not in own}
        there = dict.fromkeys([*kept, *kinds.names])
        names = there if self._options.fields is None else self._options.fields
        wanted = [n for n in names if n not in per_item] + [n for n in per_item if n in there]
        found = {n: column_type(column_name(n), kinds.of(n, per_item=n in per_item)) for n in wanted}
        return with_files(pa.schema([*fields, *(kept.get(n, field) for n, field in found.items())]), self._reader.files)

    def _own_fields(self) -> set[str | None]:
        """Return fields that are not passthrough columns."""
        # `sample_id` is not content even if it is not the id: a caller that uses the stem as id has decided so.
        id_field = self._field_of_ids() or "sample_id"
        return {self._options.texts_field, self._options.images_field, EXTRAS_FIELD, id_field}

    def _shard_kinds(self) -> Kinds:
        if self._kinds is None:
            self._image_lists = ImageLists()
            self._kinds = self._kinds_of(self._looked_at(documents for _, documents in self._windows()))
        return self._kinds

    def image_lists(self) -> ImageLists:
        """Return the lists with one entry an image, found while the types of all fields are."""
        if self._image_lists is None and not self._kept:
            self._shard_kinds()
        if self._image_lists is None:  # the types are stored
            self._image_lists = ImageLists()
            first = np.arange(min(self.num_samples(), FIRST_DOCUMENTS))
            for _ in self._looked_at(documents for _, documents in self._windows(first)):
                pass
        return self._image_lists

    def _looked_at(self, windows: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
        """Yield the windows, and have the first documents tell which lists have one entry an image."""
        found, passed = self._image_lists or ImageLists(), {*self._options.roles, *self._own_fields()}
        for documents in windows:
            for document in documents[: FIRST_DOCUMENTS - found.documents]:
                names = document.get(self._options.images_field)
                images = sum(name is not None for name in names) if isinstance(names, list) else 0
                lists = {name: value for name, value in document.items() if name not in passed}
                found.add(images, {column_name(n): len(v) for n, v in lists.items() if isinstance(v, list)})
            yield documents

    def _kinds_of(self, windows: Iterable[list[dict[str, Any]]]) -> Kinds:
        """Return the types in the passthrough fields of documents."""
        kinds = Kinds()
        per_item, own = {*self._options.roles}, self._own_fields()
        for documents in windows:
            for document in documents:
                kinds.add({name: value for name, value in document.items() if name not in own}, per_item)
            if len(kinds.names) > self._limits.tar_fields:
                raise self._limits.exceeded("tar_fields", "too many fields", file=self._path, found=len(kinds.names))
        return kinds

    # Documents

    def _windows(
        self, order: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[NDArray[np.int64], list[dict[str, Any]]]]:
        """Yield ordinals and contents of JSON members, a window at a time, in file order or in the given order.

        A window of a compressed tar spans little of it, so that the images next to its documents are still in memory.
        """
        members, id_field = self._members(), self._field_of_ids()
        wanted = np.arange(len(members.documents)) if order is None else order
        at = 0
        while at < len(wanted):
            rows = members.window(members.documents[wanted[at : at + _WINDOW_DOCUMENTS]])
            count = len(rows)
            if self._reader.files[0].wrap:
                span = np.maximum.accumulate(members.offset[rows]) - members.offset[rows[0]]
                count = min(count, max(1, int(np.searchsorted(span, _WINDOW_SPAN_BYTES, "right"))))
            yield wanted[at : at + count], self._load(rows[:count], id_field)
            at += count

    def _load(self, rows: NDArray[np.int64], id_field: str | None) -> list[dict[str, Any]]:
        members = self._members()
        members.refuse_long(rows, self._limits, self._path)
        # One by one: mapping small values far apart would read their neighbourhoods, mostly images, into memory.
        found = self._fetcher.values(make_refs(members.offset[rows], members.length[rows]), self._reader.files)
        texts = [text or b"" for text in found]
        plain = json_text.loads_plain(texts)
        if plain is not None and all(isinstance(document, dict) for document in plain):
            return plain
        documents: list[dict[str, Any]] = []
        for row, text in zip(rows.tolist(), texts, strict=True):
            try:  # not `errors_at`, which costs as much as the parsing
                documents.append(document_of(text, int(members.offset[row]), self._options.fields, id_field))
            except LadingError as error:
                raise error.at(file=self._path, sample=members.names[row].as_py()) from None
        return documents

    def settled(self, options: InterleavedOptions) -> InterleavedOptions:
        """Return the options with the detected id field, for the other shards of the dataset."""
        if options.sample_id_field != AUTO or not len(self._members().documents):
            return options
        return replace(options, sample_id_field=self._field_of_ids())

    def _field_of_ids(self) -> str | None:
        if self._id_field == AUTO:
            members = self._members()
            rows, documents = members.documents[:TELLING_DOCUMENTS], list[dict[str, Any]]()
            while len(rows):  # only the id of each is held
                window = members.window(rows)
                documents += [{"sample_id": document.get("sample_id")} for document in self._load(window, None)]
                rows = rows[len(window) :]
            self._id_field = id_field_of(documents, self._options)
        return self._id_field

    # Rows

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, samples whole; `binary_content` as references.

        Neighbouring documents with one id each begin a batch: in one batch they would be one sample.

        Raises:
            DataError: a JSON member is broken; a member that no JSON names, under `unreferenced="error"`.
        """
        members = self._members()
        used = np.zeros(len(members.names), np.bool_)
        used[members.documents] = True
        drifting = scan.drifting and scan.schema is None
        target = None if drifting else scan.schema or self._target(scan.columns)
        wanted = dict.fromkeys(self._options.fields or ())
        id_field = self._field_of_ids()
        named = id_field is None
        for ordinals, documents in self._windows():
            named = named or any(id_field in document for document in documents)
            if wanted:
                wanted = {name: None for name in wanted if not any(name in document for document in documents)}
            left_out = sum("sample_id" in document for document in documents) if id_field is None else 0
            if left_out:
                self.counts["samples whose JSON field 'sample_id' was left out, for the member's name"] += left_out
            fields = target if target is not None else self._schema(self._kinds_of([documents]))
            batch = self._batch(ordinals, documents, fields, scan.columns, used)
            for part in _apart(batch):
                yield from split_samples(part, _documents_in(part), scan.max_rows, scan.max_bytes)
        self._account(used)
        warn_absent_fields(wanted, self._path, self.counts)
        if not named and len(members.documents):
            warn_absent_id_field(str(id_field), self._path, self.counts)
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

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return the rows of samples by ordinal, in the given order."""
        target = self._target(scan.columns)
        used = np.zeros(len(self._members().names), np.bool_)
        parts = [self._batch(o, d, target, scan.columns, used) for o, d in self._windows(rows)]
        return pa.Table.from_batches(parts, self._chosen(target, scan.columns))

    def _chosen(self, target: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
        """Return the schema with these columns, and those that identify samples and items."""
        always = ("sample_id", "position")
        kept = [f for f in target if columns is None or f.name in columns or f.name in always]
        # A name in `images` without a member is how writers spell a null.
        metadata = {**(target.metadata or {}), MEANT_NULLS_KEY: b""}
        return with_files(pa.schema(kept, metadata=metadata), self._reader.files)

    def _batch(
        self,
        ordinals: NDArray[np.int64],
        documents: list[dict[str, Any]],
        target: pa.Schema,
        columns: Sequence[str] | None,
        used: NDArray[np.bool_],
    ) -> pa.RecordBatch:
        members = self._members()
        at = members.documents[ordinals]
        names = members.names.take(pa.array(at)).to_pylist()
        ids = sample_ids(documents, names, self._field_of_ids())
        id_column = pa.array(ids, pa.string())
        rows = make_rows(DocumentWindow(members, at, names, documents, ids), self._options, self._path)
        used[rows.member[rows.member >= 0]] = True
        kept = self._chosen(target, columns)
        for name in self._options.roles if columns is None else ():
            if column_name(name) not in kept.names:  # none of these documents has the field, which is counted too
                self._lists(name, rows.document[rows.of(ROLES[self._options.roles[name]])], documents)
        made = {"sample_id": id_column.take(pa.array(rows.document)), **self._reserved(rows)}
        arrays = [made[f.name] if f.name in made else self._values(f, rows, documents) for f in kept]
        return pa.record_batch(arrays, schema=kept)

    def _reserved(self, rows: WindowRows) -> dict[str, pa.Array]:
        members = self._members()
        there = rows.member >= 0
        at = np.where(there, rows.member, 0)
        offset, length = members.offset[at], members.length[at]
        frame = rows.frame if (rows.frame >= 0).any() else None
        names = scatter(members.names, rows.member)
        # These texts are long, and rows share them: built once a source.
        texts = format_source_ref(self._path, names, offset, length, frame, valid=there)
        source = rows.source
        return {
            "position": pa.array(rows.position, pa.int32()),
            "modality": pa.array(MODALITIES, pa.string()).take(pa.array(rows.kind)),
            "content_type": rows.content_type,
            "text_content": rows.text,
            "binary_content": make_refs(
                offset[source], length[source], frame=rows.frame[source], valid=there[source] & rows.of(["image"])
            ),
            "source_ref": texts.take(pa.array(source)),
            "materialize_error": rows.error,
        }

    def _values(self, target: pa.Field, rows: WindowRows, documents: list[dict[str, Any]]) -> pa.Array:
        """Return a passthrough column: on the metadata rows, or spread over the items it belongs to."""
        name = field_name(target.name)
        role = self._options.roles.get(name)
        mine = rows.of(("metadata",) if role is None else ROLES[role])
        if role is None:
            values = [document.get(name) for document in documents]
            at = np.where(mine, rows.document, -1)
        else:
            values, at = spread_lists(self._lists(name, rows.document[mine], documents), rows, mine)
        return scatter(build_column(target, values, self._path), at)

    def _lists(self, name: str, items: NDArray[np.int64], documents: list[dict[str, Any]]) -> list[list[Any]]:
        """Return each document's list with one entry an item; `items` are the documents of the items."""
        counts = np.bincount(items, minlength=len(documents)).tolist()
        found = [document.get(name) for document in documents]
        for number, (entries, count) in enumerate(zip(found, counts, strict=True)):
            if count and entries is not None and not isinstance(entries, list):
                raise DataError("a field with one entry an item is a list", file=self._path, column=name, row=number,
                                found=type(entries).__name__)  # fmt: skip
            fits = len(entries) == count if isinstance(entries, list) else not (entries or count)
            if name not in documents[number]:
                self.counts[f"samples without the field {name!r}"] += 1
            elif not fits:
                self.counts[f"samples whose field {name!r} has another number of entries than items"] += 1
        return [entries if isinstance(entries, list) else [] for entries in found]


def _documents_in(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the first row of each document."""
    return np.flatnonzero(batch.column("position").to_numpy() == METADATA_POSITION)


def _apart(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some documents in batches whose neighbouring documents have different ids."""
    starts = _documents_in(batch)
    ids = batch.column("sample_id").take(pa.array(starts))
    repeated = pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    for first, stop in pairwise([0, *starts[1:][repeated].tolist(), batch.num_rows]):
        yield batch.slice(first, stop - first)


def _passthrough(schema: pa.Schema) -> dict[str, pa.Field]:
    """Return the passthrough columns of a schema as rows of documents have them, by field: not all rows have values."""
    fields = [field for field in reconcile_schema(schema) if field.name not in RESERVED]
    return {field_name(f.name): f.with_nullable(True) for f in fields}  # noqa: FBT003 - pyarrow takes it by position


def column_name(name: str) -> str:
    """Return the passthrough column of a JSON field."""
    return RENAMED + name if name in RESERVED or name.startswith(RENAMED) else name


def field_name(column: str) -> str:
    """Return the JSON field of a passthrough column."""
    return column.removeprefix(RENAMED)


def looks_interleaved(
    reader: MemberReader, fetcher: Fetcher, source: ShardFile, options: InterleavedOptions
) -> bool | None:
    """Return whether a tar's first samples are interleaved: each JSON has `texts` and `images`, lists of one length.

    Reads 16 JSON members of up to 1 MiB among the tar's first thousand members, of a remote tar among its first 4 MiB
    or 16 members. If none decides, for example because they are broken, reads the smallest of those of up to 8 MiB.
    None if the tar is empty, or no member decides.
    """
    step, most_bytes = (_DETECT_FAR_STEP, _DETECT_FAR_BYTES) if is_remote(source.store) else (_DETECT_STEP, None)
    offset: list[int] = []
    length: list[int] = []
    seen = small = 0
    for part in reader.members(max_members=step):
        lower = pc.utf8_lower(part.name)
        rows = np.flatnonzero(pc.ends_with(lower, ".json").to_numpy(zero_copy_only=False))
        if part.sparse[rows].any():
            return False
        seen += len(part.name)
        offset += part.offset[rows].tolist()
        length += part.length[rows].tolist()
        small += int(np.count_nonzero(part.length[rows] <= _DETECT_BYTES))
        walked = int(part.header_offset[-1])
        if small >= _DETECT_DOCUMENTS or seen >= _DETECT_MEMBERS or (most_bytes is not None and walked >= most_bytes):
            break
    if not offset:
        return False if seen else None
    size = np.array(length)
    refs = make_refs(np.array(offset), size)
    larger = np.flatnonzero((size > _DETECT_BYTES) & (size <= _DETECT_MOST_BYTES))
    smallest = larger[np.argsort(size[larger], kind="stable")[:1]]
    found: bool | None = None
    for rows in (np.flatnonzero(size <= _DETECT_BYTES)[:_DETECT_DOCUMENTS], smallest):
        for text in fetcher.values(refs.take(pa.array(rows)), reader.files):
            said = _says_interleaved(bytes(text or b""), options)
            if said is False:
                return False
            found = said or found
        if found:
            break
    return found


def _says_interleaved(text: bytes, options: InterleavedOptions) -> bool | None:
    """Return whether a JSON is an interleaved sample; None if it is broken, or takes too much memory."""
    if text.count(b"{") + text.count(b"[") > _DETECT_NESTED:
        return None
    try:
        document = json_text.loads(text)
    except DataError:
        return None
    return isinstance(document, dict) and _is_interleaved(document, options)


def _is_interleaved(document: dict[str, Any], options: InterleavedOptions) -> bool:
    texts, images = document.get(options.texts_field), document.get(options.images_field)
    if not (isinstance(texts, list) and isinstance(images, list) and len(texts) == len(images)):
        return False
    return all(v is None or isinstance(v, str) for v in (*texts, *images))
