"""The steps that make a column of files out of a column that names them: by paths, or by URLs.

Paths become references: nothing is read before somebody asks for it. Files behind URLs are downloaded with the batch
of their rows, once a sample, and are bytes from then on.

A name may come from anybody. A path leads to files below the folder of its table, or below a root that the user names,
and to no others (`_core.storage.roots`); a URL to the public internet (`_core.storage.downloads`).
"""

from __future__ import annotations

import errno
import os
import shlex
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from stat import S_ISREG
from threading import Lock
from typing import IO, TYPE_CHECKING, ClassVar, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.references import FileEntry, RefType, files_of, make_refs, with_files
from lading._core.arrow.views import is_text
from lading._core.content.media_files import MEDIA_OF_ITEMS, open_image
from lading._core.content.media_info import media_info
from lading._core.dataset.steps.base import Applied, AppliedEach, Columns, Known, Step, StepContext, no_such_column
from lading._core.dataset.transform.function_spool import SampleRows, called, joined
from lading._core.dataset.transform.traced_batch import TracedBatch, reported, taken
from lading._core.dataset.writing.outcomes import DROPPED, KEPT
from lading._core.features.natural import EXTENSION_KEY
from lading._core.features.row_layout import RowLayout
from lading._core.features.types import feature_of_extension, plain_storage, tag_by_extension, with_feature
from lading._core.manifest.values import own_version
from lading._core.secret_urls import cleaned, shown, whole
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading._core.storage.object_errors import OF_ONE_PLACE
from lading._core.storage.roots import Roots, absolute_path, folder_of, sibling_path
from lading._core.storage.stores import Stores, resolve
from lading.errors import BadReference, DataError, LimitExceeded, StoreError, UsageError, is_damage, missing_extra
from lading.limits import DEFAULT_LIMITS
from lading.options import OnError

if TYPE_CHECKING:
    from lading._core.storage.downloads import Downloader, Failure

__all__ = ["MediaFiles", "MediaUrls", "media_names"]

_SAME = {"jpeg": "jpg", "jpe": "jpg", "tif": "tiff", "mpeg": "mpg", "oga": "ogg", "m4v": "mp4"}
"""Endings of one format."""
_OBJECT_STORES = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "hf"))
"""Stores whose objects a URL may name: with the reader's own keys, so only where URLs are asked for."""
_MOST_CHARACTERS = 8192
_HEAD_BYTES = 4 << 20
_MOST_FOLDERS = 4096
_PART_BYTES = 8 << 20
_BATCH_BYTES = 64 << 20
"""Downloaded files of a batch, by the sizes of those before."""
_FIRST_ROW_BYTES, _FIRST_ROWS, _MOST_ROWS = 256 << 10, 256, 4096
_whole_file = Lock()
"""Held by the download that has a whole file in memory: 32 of them may be 100 MB each."""
_A_FILE = {"image": "an image", "audio": "an audio file", "video": "a video"}
_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml")
_OF_THE_PATH = frozenset((errno.EACCES, errno.ENOTDIR, errno.ENAMETOOLONG))
_OUTSIDE = "outside the folders that it may name"
_PRIVATE = "an address that is not public"
_NAME_ROOT = "Paths are relative to the folder of their table. If the files are in another folder, name it with --root."
_POLICY = "Or choose what happens to such rows: --on-error drop_sample, or --on-error warn for nulls."


class _Missing(NamedTuple):
    """Why a file cannot be had.

    Attributes:
        reason: a short phrase, the same for all of a kind.
        detail: what more there is to say.
        advice: what to do.
        limit: the limit that was reached.
    """

    reason: str
    detail: str = ""
    advice: str = ""
    limit: str = ""

    @property
    def said(self) -> tuple[str, ...]:
        """Return what a ledger says."""
        return (self.reason,) if self.limit else (self.reason, self.detail)


_WHY = pa.struct({name: pa.string() for name in _Missing._fields})
_A_URL = _Missing("a URL", advice="Download the files that URLs name with --fetch.")


def _error(missing: _Missing, name: str) -> BadReference | LimitExceeded:
    """Return the error of a row that has no file."""
    message = f"no file for a row: {missing.reason}"
    if missing.limit:
        return DEFAULT_LIMITS.exceeded(missing.limit, message, expected=missing.detail, found=name, advice=_POLICY)
    detail = f" ({missing.detail})" if missing.detail else ""
    return BadReference(message + detail, found=name, advice=f"{missing.advice} {_POLICY}".lstrip())


def _medium_of_name(name: str) -> str | None:
    """Return the medium that the name of a column or of a file says by its last part: `image`, `jpg`, `a/1.wav`."""
    last = name.rpartition(".")[2].lower()
    feature = feature_of_extension(last)
    return last if last in MEDIA_OF_ITEMS else None if feature is None else feature.medium


def _format_of_name(name: str) -> str:
    """Return the image format that a name says; empty if it says none."""
    last = name.rpartition(".")[2].lower()
    is_format = _medium_of_name(last) == "image" and last not in ("image", "img")
    return _SAME.get(last, last) if is_format else ""


def _media_field(name: str, medium: str, extension: str, kind: pa.DataType) -> pa.Field:
    """Return the field of a column of files.

    Args:
        name: of the column; if it ends in an extension (`jpg`), members of tars have this one.
        medium: what the files are.
        extension: of the files, for formats that name media; empty if it is unknown.
        kind: type of the column.
    """
    tagged = tag_by_extension(name)
    if tagged and _medium_of_name(name) == medium and name.rpartition(".")[2].lower() not in ("image", "img"):
        return pa.field(name, kind, metadata=tagged)
    field = with_feature(pa.field(name, kind), MEDIA_OF_ITEMS[medium])
    more = {EXTENSION_KEY: extension.encode()} if extension else {}
    return field.with_metadata({**(field.metadata or {}), **more})


def media_names(column: str, name: str | None, values: pa.Array) -> tuple[str, str, str]:
    """Return the name of a new column of files, their medium, and their most frequent extension.

    Args:
        column: the column that names the files.
        name: as the user gives it.
        values: the first names of files.

    Raises:
        UsageError: nothing says what the files are.
    """
    texts = values.to_pylist() if is_text(plain_storage(values.type)) else []
    endings = [ending for text in texts if _medium_of_name(ending := _ending(text)) is not None]
    media = {_medium_of_name(ending) for ending in endings}
    medium = _medium_of_name(name or "") or (media.pop() if len(media) == 1 else None)
    if medium is None:
        found = "images, audio and video" if media else f"names such as {_shown(texts[0])!r}" if texts else "no names"
        raise UsageError("the names of the files do not say what they are", column=column, found=found,
                         expected="endings of images, of audio or of video alone",
                         advice=f"Name the new column: --media-from {shlex.quote(f'image={column}')}.")  # fmt: skip
    mine = [ending for ending in endings if _medium_of_name(ending) == medium]
    return name or medium, medium, max(dict.fromkeys(mine), key=mine.count, default="")


def _ending(name: str) -> str:
    """Return the ending of a path or a URL; empty if it has none."""
    _, mark, ending = name.partition("?")[0].partition("#")[0].rpartition("/")[2].rpartition(".")
    return ending.lower() if mark else ""


@dataclass(frozen=True, slots=True, repr=False)
class _MediaStep(Step, ABC):
    """Add a column of files, which another column names.

    Attributes:
        column: the column with their names.
        name: of the new column.
        medium: what the files are: `image`, `audio` or `video`.
        extension: of the first files.
        on_error: what becomes of a sample whose file cannot be had.
    """

    column: str
    name: str
    medium: str
    extension: str
    on_error: OnError

    def __post_init__(self) -> None:
        """Refuse an unknown policy."""
        if self.on_error not in get_args(OnError):
            raise UsageError("no such policy", expected=", ".join(get_args(OnError)),
                             found=f"on_error={self.on_error!r}")  # fmt: skip

    changes_columns: ClassVar[bool] = True
    keeps_names: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    asks_schema: ClassVar[bool] = True

    @property
    @abstractmethod
    def stored(self) -> pa.DataType:
        """The type of the new column."""

    @property
    def how(self) -> str:
        """How files are had, as the step is shown."""
        return ""

    @property
    def field(self) -> pa.Field:
        """The new column."""
        return _media_field(self.name, self.medium, self.extension, self.stored)

    @property
    def keeps_samples(self) -> bool:
        """Whether samples without a file stay."""
        return self.on_error in ("error", "warn")

    @property
    def adds(self) -> tuple[str, ...]:
        """The new column."""
        return (self.name,)

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return the column with the names of files."""
        return (self.column,)

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:  # noqa: ARG002 - as of all steps
        """Return the wanted columns of the samples, and that with the names of files, unless nobody needs the files."""
        if self.name not in wanted and self.keeps_samples:
            return wanted
        left = wanted if wanted.inverted else wanted.without(self.adds)
        return left.with_(self.column)

    def refuse_for(self, layout: RowLayout) -> None:
        """Raise UsageError for items of documents."""
        if layout.has_items:
            raise UsageError("files are named by a column of samples", expected="a table whose rows are samples",
                             found="rows that are items of documents")  # fmt: skip

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema with the new column. Raises UsageError for a column that is missing, or there already."""
        if self.column not in schema.names:
            raise no_such_column(self.column, schema.names)
        if self.name in schema.names:
            other = shlex.quote(f"my_{self.medium}={self.column}")
            raise UsageError("a column has this name already", found=repr(self.name),
                             advice=f"Give the new column another name: --media-from {other}.")  # fmt: skip
        return pa.schema([*schema, self.field], metadata=schema.metadata)

    def values(self, batch: pa.RecordBatch) -> list[str | None]:
        """Return the names of files; an empty text is none. Raises UsageError for a column of another type."""
        column = batch.column(self.column)
        if not is_text(plain_storage(column.type)) and not pa.types.is_null(column.type):
            raise UsageError("files are named by a column of texts", column=self.column, found=str(column.type))
        return [value or None for value in pc.cast(column, pa.large_string()).to_pylist()]

    def finished(
        self,
        traced: TracedBatch,
        column: pa.Array,
        failed: Mapping[int, _Missing],
        names: Sequence[str | None],
        view: str,
    ) -> TracedBatch:
        """Return the batch with the new column, and what the policy makes of rows that have no file.

        Raises:
            BadReference: under `error`, for the first row that has no file.
        """
        batch = traced.batch
        schema = pa.schema([*batch.schema, self.field], metadata=batch.schema.metadata)
        traced = replace(traced, batch=pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema))
        if not failed:
            return traced
        if self.on_error == "error":
            row = min(failed)
            raise _error(failed[row], _shown(names[row])).at(column=self.column, row=row)
        kinds = defaultdict[str, list[int]](list)
        for row, missing in sorted(failed.items()):
            kinds[missing.reason].append(row)
        for reason, rows in kinds.items():
            details = [": ".join(filter(None, (_shown(names[row]), *failed[row].said))) for row in rows]
            told = (f"{self.column}: {reason}", KEPT if self.on_error == "warn" else DROPPED)
            traced = reported(traced, np.array(rows, np.int64), told, view, details)
        if self.on_error == "warn":
            return traced
        return taken(traced, np.setdiff1d(np.arange(batch.num_rows), list(failed)), view)

    def __repr__(self) -> str:
        policy = "" if self.on_error == "error" else f", on_error={self.on_error!r}"
        return f"media_from({self.column!r}, {self.name!r}{self.how}{policy})"

    def wrong_name(self, name: str) -> str | None:
        """Return what is wrong with a file by its name: another kind of file than its column says."""
        ending, wanted = _ending(name), _format_of_name(self.name)
        medium, found = _medium_of_name(ending), _format_of_name(ending)
        if medium is None:
            return None
        if medium != self.medium:
            return f"{_A_FILE[medium]}, not {_A_FILE[self.medium]}"
        return f"{found}, not {wanted}" if wanted and found and found != wanted else None

    def wrong_content(self, body: IO[bytes], kind: str) -> str | None:
        """Return what is wrong with a file by its first bytes and the content type that its server says."""
        head = body.read(_HEAD_BYTES)
        info, mine = media_info(head), _A_FILE[self.medium]
        if info is not None:
            found, wanted = _SAME.get(info.format, info.format), _format_of_name(self.name)
            other = f"{found}, not {wanted}" if wanted and found != wanted else None
            return other if info.kind == self.medium else f"{_A_FILE[info.kind]}, not {mine}"
        if not head:
            return "an empty file"
        if kind.startswith(_TEXTS) or head.lstrip()[:1] in (b"<", b"{"):
            return f"a page or a text, not {mine}"
        if self.medium != "image":
            return None
        with _whole_file:
            body.seek(0)
            return None if _is_opened(body.read()) else f"not {mine}"


def _is_opened(data: bytes) -> bool:
    """Return whether Pillow opens an image."""
    try:
        open_image(data)
    except DataError:
        return False
    return True


@dataclass(frozen=True, slots=True, repr=False)
class MediaFiles(_MediaStep):
    """Add references to the files that a column names by their paths.

    Attributes:
        folders: of the tables.
        roots: further folders, below which names may lead.
    """

    folders: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()

    @property
    def stored(self) -> pa.DataType:
        """References."""
        return RefType()

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        stores = context.fetcher.stores
        finder = _Finder(self, Roots([*self.folders, *self.roots], stores), stores)
        return AppliedEach(partial(self._applied, finder, context.view))

    def _applied(self, finder: _Finder, view: str, traced: TracedBatch) -> TracedBatch:
        batch = traced.batch
        if self.column not in batch.schema.names:
            return traced
        names, folders = self.values(batch), self._folders_of(traced)
        places = [None if name is None else (folder, name) for folder, name in zip(folders, names, strict=True)]
        found = finder.find(list(dict.fromkeys(place for place in places if place is not None)))
        before = files_of(batch.schema)
        new = dict.fromkeys(entry for entry in found.values() if isinstance(entry, FileEntry))
        files = {entry: at for at, entry in enumerate(new, len(before))}
        entries = [None if place is None else found[place] for place in places]
        number = np.array([files[e] if isinstance(e, FileEntry) else -1 for e in entries], np.int32)
        length = np.array([e.size_bytes if isinstance(e, FileEntry) else 0 for e in entries], np.int64)
        column = make_refs(np.zeros(len(entries), np.int64), length, file=number.clip(0), valid=number >= 0)
        failed = {row: entry for row, entry in enumerate(entries) if isinstance(entry, tuple)}
        schema = with_files(batch.schema, [*before, *files])
        batch = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        return self.finished(replace(traced, batch=batch), column, failed, names, view)

    def _folders_of(self, traced: TracedBatch) -> list[str]:
        """Return the folder of the table of each row."""
        count = traced.batch.num_rows
        if len(self.folders) == 1:
            return [*self.folders] * int(count)
        if traced.rows is None:
            raise UsageError("tables are in several folders, and a function made other rows of theirs",
                             advice="Put media_from before the function.")  # fmt: skip
        files = [traced.place(row)[0] or "" for row in traced.rows.tolist()]
        return [str(absolute_path(folder_of(file)) or os.getcwd()) for file in files]


class _Finder:
    """Finds files by their names, within the roots."""

    def __init__(self, step: MediaFiles, roots: Roots, stores: Stores) -> None:
        self._step, self._roots, self._stores = step, roots, stores
        self._holds = lru_cache(_MOST_FOLDERS)(roots.hold)

    def find(self, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], FileEntry | _Missing]:
        """Return the file of each folder and name, or why there is none. Raises StoreError if a store fails."""
        remote = any(is_remote(resolve(folder, self._stores)[0]) for folder in self._step.folders + self._step.roots)
        looks = [partial(self._look, *place) for place in places]
        return dict(zip(places, concurrent_map(looks, remote=remote), strict=True))

    def _look(self, folder: str, name: str) -> FileEntry | _Missing:
        wrong = self._step.wrong_name(name)
        if wrong is not None:
            return _Missing(wrong)
        if "\0" in name or len(name) > _MOST_CHARACTERS:
            return _Missing("not a path")
        if name.lower().startswith("file:"):
            return _A_URL
        for place in self._candidates(folder, name):
            try:
                if not self._is_plain(place):
                    whole(place)  # raises UsageError: only who reads can give the secret of a URL
                    self._roots.check(place)
                store, path = resolve(place, self._stores)
                info = store.head(path)
            except (BadReference, UsageError):
                return _A_URL if "://" in name else _Missing(_OUTSIDE, advice=_NAME_ROOT)
            except StoreError as error:
                if not (is_damage(error) or error.errno in _OF_THE_PATH):
                    raise
            else:
                return FileEntry(place, "", info.size_bytes, info.version)
        return _Missing("not found", advice=_NAME_ROOT)

    def _is_plain(self, place: str) -> bool:
        """Return whether a place is a file of this machine, and no link, in a folder that names may lead to.

        The folder of many files is looked at once.
        """
        folder, _, last = place.rpartition("/")
        if "://" in place or last in ("", ".", "..") or not self._holds(folder):
            return False
        try:
            return S_ISREG(os.lstat(place).st_mode)
        except OSError:
            return False

    def _candidates(self, folder: str, name: str) -> list[str]:
        """Return the places that a name may mean: next to its table, then in each root."""
        name = shown(name)
        if "://" in name or name.startswith("pipe:") or os.path.isabs(name):
            return [name]
        places: list[str] = [folder, *self._step.roots]
        return [sibling_path(place, name) for place in dict.fromkeys(places)]


@dataclass(frozen=True, slots=True, repr=False)
class MediaUrls(_MediaStep):
    """Add the bytes of the files that a column names by their URLs.

    Attributes:
        private: whether addresses that are not public may be asked too.
    """

    private: bool = False

    @property
    def stored(self) -> pa.DataType:
        """Bytes."""
        return pa.large_binary()

    @property
    def is_spooled(self) -> bool:
        """What was downloaded is kept, so that a file is downloaded once."""
        return True

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work. Raises MissingExtra."""
        return _Fetched(self, context)

    @property
    def how(self) -> str:
        """How files are had, as the step is shown."""
        return ", fetch=True, fetch_private=True" if self.private else ", fetch=True"


class _Fetched(Applied):
    """Downloads the files of one batch after another."""

    def __init__(self, step: MediaUrls, context: StepContext) -> None:
        self._step, self._context = step, context
        self._downloader = cache(self._made)
        self._rows_seen, self._bytes_seen = 1, _FIRST_ROW_BYTES

    def most_rows(self) -> int:
        """Return for how many rows the files should fit into memory, by the size of those that came."""
        fitting = _BATCH_BYTES * self._rows_seen // self._bytes_seen
        return max(1, min(fitting, 2 * self._rows_seen + _FIRST_ROWS, _MOST_ROWS))

    def _made(self) -> Downloader:
        try:
            from lading._core.storage.downloads import Downloader
        except ImportError as error:
            advice = "Install it: pip install 'lading[http]'."
            raise missing_extra(error, "files of the web are downloaded with urllib3", "urllib3", advice) from error
        return Downloader(
            self._context.fetcher.limits, private=self._step.private, check=self._step.wrong_content,
            agent=f"lading/{own_version() or 'unknown'}",
        )  # fmt: skip

    def __call__(self, traced: TracedBatch) -> TracedBatch:
        """Return the rows with the files, as the policy says."""
        step, view, spool = self._step, self._context.view, self._context.spool
        if step.column not in traced.batch.schema.names:
            return traced
        names = step.values(traced.batch)
        parts = None
        if spool is not None and traced.samples is not None and len(names):
            parts = called(spool, traced.batch, traced.samples, view, self._rows, whole=False)
        whole_rows = joined(parts) if parts else None
        rows = self._fetched(names) if whole_rows is None else whole_rows.rows
        self._rows_seen += len(rows)
        self._bytes_seen += rows.column("file").nbytes
        failed = {row: _Missing(**why) for row, why in enumerate(rows.column("why").to_pylist()) if why is not None}
        return step.finished(traced, rows.column("file"), failed, names, view)

    def _rows(self, batch: pa.RecordBatch, _: object) -> SampleRows:
        rows = self._fetched(self._step.values(batch))
        return SampleRows(np.arange(len(rows)), np.ones(len(rows), np.int64), rows)

    def _fetched(self, urls: Sequence[str | None]) -> pa.RecordBatch:
        """Return the files of URLs, and why there is none."""
        files, failures = self._downloader().column(urls, self._of_store)
        told = [failures.get(row) for row in range(len(urls))]
        why = [None if each is None else self._why(each)._asdict() for each in told]
        return pa.record_batch({"file": files, "why": pa.array(why, _WHY)})

    def _why(self, failure: Failure) -> _Missing:
        advice = "Allow such addresses with --fetch-private." if failure.reason == _PRIVATE else ""
        return _Missing(failure.reason, failure.detail, advice, failure.limit)

    def _of_store(self, url: str, body: IO[bytes]) -> Failure | None:
        """Write the bytes of an object of a store; return why there are none."""
        from lading._core.storage.downloads import Failure, too_large

        stores, most = self._context.fetcher.stores, self._context.fetcher.limits.fetch_bytes
        if url.partition("://")[0].lower() not in _OBJECT_STORES:
            return Failure("not a URL of the web or of an object store")
        try:
            store, path = resolve(url, stores)
            info = store.head(path)
            if info.size_bytes > most:
                return Failure(*too_large(most))
            for begin in range(0, info.size_bytes, _PART_BYTES):
                length = min(_PART_BYTES, info.size_bytes - begin)
                [data] = store.get_ranges(path, [(begin, length)], info.version)
                body.write(data)
        except UsageError as error:
            return Failure("not a URL", error.problem)
        except StoreError as error:
            if error.message in OF_ONE_PLACE:
                return Failure(error.message, str(error.found or ""))
            if not (is_damage(error) or error.errno in _OF_THE_PATH):
                raise
            return Failure("not found")
        return None


def _shown(name: str | None) -> str:
    """Return a name as errors and ledgers have it."""
    return cleaned(shown(name or ""))[:200]
