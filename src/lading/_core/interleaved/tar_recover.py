"""Recover the whole documents of a damaged tar of interleaved samples, with the images that they name.

A document is lost if its JSON is damaged, if the name of its member is invalid UTF-8, or if one of its members is next
to damage. In a tar with damage, documents that name an image that is missing are lost too. An image is lost with its
document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.text_checks import is_utf8
from lading._core.formats.base import FoundMembers, Recovered, ShardFile, map_file
from lading._core.formats.format import AnyFormat
from lading._core.interleaved.tar_members import MemberTable, document_of, id_field_of, refuse_names, sample_ids
from lading._core.interleaved.tar_rows import DocumentWindow, make_rows
from lading._core.storage.base import MappedFile
from lading.errors import CorruptShard, DataError, LadingError
from lading.options import AUTO, InterleavedOptions

__all__ = ["recover_documents"]

_WINDOW_DOCUMENTS = 256


def recover_documents(
    fmt: AnyFormat, source: ShardFile, options: InterleavedOptions, error: LadingError | None = None
) -> Recovered | None:
    """Return a tar of the whole documents; None if all documents are whole."""
    mapped, path = map_file(source), source.path
    found = fmt.find_members(source, failed=error is not None)
    lost: list[LadingError] = []
    members, start, unnamed = _members(found, options, source, lost)
    bad_names = len(lost)
    beside = np.zeros(len(start), np.bool_)
    beside[found.beside_gaps(start)] = True
    kept, named = np.zeros(len(start), np.bool_), np.zeros(len(start), np.bool_)
    named[members.documents] = True
    for rows, documents in _windows(mapped, members, options, source, lost):
        if documents:  # the first that are whole say it for all
            options = replace(options, sample_id_field=id_field_of(documents, options))
        for row, mine, missing in _named(members, rows, documents, options, path, lost):
            named[mine] = True
            if found.gaps and (missing or beside[mine].any()):
                lost.append(CorruptShard("a document is next to damage, or lacks images that it names", file=path,
                                         offset=int(start[row]), sample=members.names[row].as_py(),
                                         found=f"missing images: {missing}"))  # fmt: skip
            else:
                kept[mine] = True
    orphans = np.flatnonzero(~named)
    if len(orphans) and not lost:  # otherwise they may be those of lost documents
        lost.append(CorruptShard("no document names these members: their document may be lost", file=path,
                                 offset=int(start[orphans[0]]), sample=members.names[orphans[0]].as_py(),
                                 found=f"members without a document: {len(orphans)}"))  # fmt: skip
    documents_lost = unnamed + len(members.documents) - int(np.count_nonzero(kept[members.documents]))
    if not found.gaps and not documents_lost and not bad_names and (error is None or kept.all()):
        return None
    stop = members.offset + members.length
    return found.laid_out(start[kept], stop[kept], [*found.errors(path), *lost], documents_lost)


def _members(
    found: FoundMembers, options: InterleavedOptions, source: ShardFile, lost: list[LadingError]
) -> tuple[MemberTable, NDArray[np.int64], int]:
    """Return the regular members whose names are UTF-8, where each begins, and the number of other documents.

    Add an error for each name that is invalid UTF-8 to `lost`.

    Raises:
        LimitExceeded: the names are too long to be held together.
    """
    names, size, unnamed = list[str](), 0, 0
    endings = tuple(ending.lower().encode() for ending in options.json_extensions)
    start, offset, length = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for texts, begin, at, size_bytes in found.regular():
        size += sum(map(len, texts))
        refuse_names(size, source.limits, source.path)
        good = np.array([is_utf8(text) for text in texts], np.bool_)
        unnamed += sum(texts[bad].lower().endswith(endings) for bad in np.flatnonzero(~good).tolist())
        lost += [
            CorruptShard("the name of a member is invalid UTF-8", file=source.path, offset=int(begin[bad]),
                         found=repr(texts[bad]))
            for bad in np.flatnonzero(~good).tolist()
        ]  # fmt: skip
        names += [text.decode() for text, is_text in zip(texts, good.tolist(), strict=True) if is_text]
        start.append(begin[good])
        offset.append(at[good])
        length.append(size_bytes[good])
    column = pa.array(names, pa.string())
    members = MemberTable.at(column, np.concatenate(offset), np.concatenate(length), options)
    return members, np.concatenate(start), unnamed


def _windows(
    mapped: MappedFile, members: MemberTable, options: InterleavedOptions, source: ShardFile, lost: list[LadingError]
) -> Iterator[tuple[NDArray[np.int64], list[dict[str, object]]]]:
    """Yield members that are documents with their contents, some at a time; add the errors of the others to `lost`."""
    id_field = "sample_id" if options.sample_id_field == AUTO else options.sample_id_field
    at = 0
    while at < len(members.documents):
        good: list[int] = []
        documents: list[dict[str, object]] = []
        window = members.window(members.documents[at : at + _WINDOW_DOCUMENTS])
        for row in window.tolist():
            offset = int(members.offset[row])
            try:
                members.refuse_long(np.array([row]), source.limits, source.path)
                text = mapped.read(offset, int(members.length[row]))
                documents.append(document_of(text, offset, options.fields, id_field))
            except DataError as error:
                lost.append(error.at(file=source.path, sample=members.names[row].as_py()))
            else:
                good.append(row)
        yield np.array(good, np.int64), documents
        at += len(window)


def _named(
    members: MemberTable,
    rows: NDArray[np.int64],
    documents: list[dict[str, object]],
    options: InterleavedOptions,
    path: str,
    lost: list[LadingError],
) -> Iterator[tuple[int, NDArray[np.int64], int]]:
    """Yield for each document its member, all of its members, and the number of missing images that it names.

    Add the errors of documents that no rows can be made of to `lost`.
    """
    if not documents:
        return
    names = members.names.take(pa.array(rows)).to_pylist()
    ids = sample_ids(documents, names, options.sample_id_field)
    try:
        made = make_rows(DocumentWindow(members, rows, names, documents, ids), options, path)
    except DataError as error:
        if len(rows) > 1:
            for one, document in zip(np.split(rows, len(rows)), documents, strict=True):
                yield from _named(members, one, [document], options, path, lost)
        else:
            error.row = None
            lost.append(error.at(offset=int(members.offset[rows[0]])))
        return
    member = made.member[made.source]
    missing = np.bincount(made.document[member < 0], minlength=len(rows))
    order = np.argsort(made.document, kind="stable")
    bounds = np.searchsorted(made.document[order], np.arange(len(rows) + 1))
    for number, row in enumerate(rows.tolist()):
        mine = member[order[bounds[number] : bounds[number + 1]]]
        yield row, np.unique(mine[mine >= 0]), int(missing[number])
