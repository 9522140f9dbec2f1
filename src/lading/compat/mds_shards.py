"""Shards of MDS and of its split formats, with the names and promises of MosaicML's readers.

Source: mosaicml-streaming 0.13.0, base/format (`MDSReader`, `JSONReader`, `XSVReader`, `reader_from_json`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any, ClassVar, Final, Self, overload

import numpy as np
import orjson

from lading._core.content.media_files import open_image
from lading._core.formats.base import ShardFile
from lading._core.formats.format import parse_options
from lading._core.formats.mds.format import EntryFile, MDSEntry, MdsReader, ReadOptions, parse_entry, read_mds_index
from lading._core.storage.local import LocalStore
from lading.compat.reader import FileInfo, Reader, entry_arguments
from lading.compat.remote import Remote
from lading.errors import DataError, NotFound, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "CSVReader",
    "JSONReader",
    "MDSReader",
    "MDSShard",
    "TSVReader",
    "XSVReader",
    "reader_from_json",
    "shards_of_index",
]

_FILES: Final = ("raw_data", "zip_data", "raw_meta", "zip_meta")
_LINES: Final = (*_FILES, "column_names", "column_encodings", "newline")
_ENTRY_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "mds": ("raw_data", "zip_data", "column_names", "column_encodings", "column_sizes"),
    "json": (*_FILES, "columns", "newline"),
    "csv": _LINES,
    "tsv": _LINES,
    "xsv": (*_LINES, "separator"),
}
"""Fields of a shard's entry in an index that its reader takes, by format. Other fields are ignored."""
_DEFAULTS: Final = {"newline": "\n"}
_REFETCHES: Final = 64
"""Times that a shard is fetched for one read while another process evicts it."""


class MDSShard(Reader):
    """One shard of MDS in a local folder. Its files may be missing until they are fetched.

    Samples have the peer's values: images of Pillow, numbers of numpy where the encoding has a width, arrays.

    Threads may read a shard while another one evicts it: a read fetches the shard again, or waits.

    Args:
        dirname: folder of the dataset.
        split: folder of the split in it, if any.
        compression: of the files, as in `zstd:3`; None if they are not compressed.
        hashes: names of the hashes that the files have in the index.
        samples: number of samples.
        size_limit: limit of the shard's size, in bytes or as text; None for no limit.
        raw_data: the unpacked file: `{"basename": …, "bytes": …, "hashes": {…}}`, or a `FileInfo`.
        zip_data: the compressed file, likewise; None if there is none.
        format: `mds`, `json`, `csv`, `tsv` or `xsv`.
        allow_pickle: read values of `pkl` columns, which runs the code in them.
        limits: limits on the files, as `lading.open` takes them.
        remote: where missing files are fetched from; None: they are not fetched.
        more: `column_names`, `column_encodings`, `column_sizes`, and of the split formats `columns`, `raw_meta`,
            `zip_meta`, `newline`, `separator`, as the index has them.

    Attributes:
        file_pairs: unpacked and compressed file of each part, as in `Reader`.
        raw_data, zip_data: the unpacked and the compressed file of the samples.
        raw_meta, zip_meta: the same of the offsets; None for MDS, which has them in the file of the samples.
        column_names, column_encodings, column_sizes: of each column; the size is None where it varies.
        columns: encodings by name.
        newline, separator: of the lines of a split format; None for MDS, and no separator for JSON.

    Raises:
        DataError: the arguments contradict each other, such as a compressed file without a compression.
        BadReference: a name leads out of the folder.
    """

    _kind: ClassVar[str] = ""
    """The format of all shards of a class; empty: of any."""

    def __init__(  # noqa: PLR0913 - the first six are the peer's, in its order
        self,
        dirname: str | os.PathLike[str],
        split: str | None,
        compression: str | None,
        hashes: Sequence[str],
        samples: int,
        size_limit: int | str | None,
        *,
        raw_data: object,
        zip_data: object = None,
        format: str = "mds",  # noqa: A002 - the word of the index
        allow_pickle: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        remote: Remote | None = None,
        **more: Any,
    ) -> None:
        super().__init__(dirname, split, compression, hashes, samples, size_limit)
        files = {"raw_data": raw_data, "zip_data": zip_data} | {k: more.pop(k, None) for k in ("raw_meta", "zip_meta")}
        fields = {"version": 2, "format": format, "compression": compression, "samples": samples, **more}
        self._text = _entry_text({**fields, **{name: _file_fields(file) for name, file in files.items()}})
        self._limits, self._remote = limits, remote
        self._entry: MDSEntry = parse_entry(self._text, limits)
        self._describe(self._entry)
        self._options = parse_options("mds", ReadOptions, {"allow_pickle": allow_pickle})
        self._decoders = {} if self.raw_meta else _decoders(self._entry.config.columns)
        self._reader: MdsReader | None = None
        self._lock = RLock()

    def _describe(self, entry: MDSEntry) -> None:
        self.raw_data, self.zip_data = _info(entry.raw), _info(entry.packed)
        self.raw_meta, self.zip_meta = _info(entry.raw_meta), _info(entry.packed_meta)
        pairs = [(self.raw_meta, self.zip_meta), (self.raw_data, self.zip_data)]
        self.file_pairs = [(raw, packed) for raw, packed in pairs if raw is not None]
        config = entry.config
        self.column_names = [column.name for column in config.columns]
        self.column_encodings = [column.encoding for column in config.columns]
        self.column_sizes = [column.size for column in config.columns]
        self.columns = dict(zip(self.column_names, self.column_encodings, strict=True))
        self.newline = None if self.raw_meta is None else config.newline
        self.separator = None if self.raw_meta is None or config.format == "json" else config.separator

    @classmethod
    def from_json(cls, dirname: str | os.PathLike[str], split: str | None, obj: Mapping[str, Any], **how: Any) -> Self:
        """Return the shard of an entry of `index.json`.

        Example: `MDSShard.from_json("set", "train", json.load(open("set/train/index.json"))["shards"][0])`

        Args:
            dirname: folder of the dataset.
            split: folder of the split in it, if any.
            obj: the entry.
            how: `allow_pickle`, `limits`, `remote`.

        Raises:
            DataError: the entry is of another version, or broken.
        """
        names = ("compression", "hashes", "samples", "size_limit")
        first = dict(zip(names, entry_arguments(obj), strict=True))
        kind = str(obj.get("format"))
        if cls._kind not in ("", kind):
            raise DataError("an entry of another format", column="format", expected=cls._kind, found=kind[:40])
        fields = {name: obj.get(name, _DEFAULTS.get(name)) for name in _ENTRY_FIELDS.get(kind, ())}
        of_kind = {} if cls._kind else {"format": kind, "raw_data": None}
        return cls(dirname=dirname, split=split, **{**first, **of_kind, **fields, **how})

    def get_item(self, idx: int) -> dict[str, Any]:
        """Return one sample. Raises as `get_sample_data`."""
        with self._lock:
            reader = self._opened()
            data = reader.get_sample_data(idx)
        return self._decoded(reader, data)

    def get_sample_data(self, idx: int) -> bytes:
        """Return the bytes of a sample in the unpacked shard.

        Raises:
            NotFound: the shard is missing, unpacked and compressed, and there is no remote.
            IndexError: there is no such sample.
        """
        with self._lock:
            return self._opened().get_sample_data(idx)

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        """Return the sample that these bytes hold: images of Pillow, scalars of numpy, arrays, as the peer does."""
        with self._lock:
            reader = self._opened()
        return self._decoded(reader, data)

    def _decoded(self, reader: MdsReader, data: bytes) -> dict[str, Any]:
        sample = reader.decode_sample(data)
        for name, decoded in self._decoders.items():
            if sample.get(name) is not None:
                with errors_at(file=self.path_of(self.raw_data), column=name):
                    sample[name] = decoded(sample[name])
        return sample

    def validate(self, allow_unsafe_types: bool) -> None:
        """Raise UsageError if reading a column would run code and `allow_unsafe_types` is not set."""
        unsafe = [column.name for column in self._entry.config.columns if column.encoding == "pkl"]
        if unsafe and not allow_unsafe_types:
            raise UsageError("values of this column run code when they are read", column=unsafe[0],
                             file=self.path_of(self.raw_data))  # fmt: skip

    def prepare(self) -> int:
        """Fetch and unpack the files that are missing; return the change of bytes in the folder.

        Reading a sample does the same, if there is a remote. Without a remote, compressed files are unpacked, and stay.

        Raises:
            NotFound: a file is missing, here and in the remote.
            SidecarMismatch: a size or a hash differs from the index. The file is not kept.
        """
        remote, folder = self._remote or Remote(limits=self._limits), os.path.join(self.dirname, self.split)
        with self._lock:
            return sum(remote.prepare(folder, raw, packed, self._entry.compression) for raw, packed in self.file_pairs)

    def evict(self) -> int:
        """Remove all files of the shard; return the bytes freed. Reads of other threads wait, and fetch it again."""
        with self._lock:
            return super().evict()

    def _remove(self, *, packed: bool) -> int:
        with self._lock:
            return super()._remove(packed=packed)

    def _opened(self) -> MdsReader:
        """Return the open shard. The caller holds the lock."""
        tries = 1 if self._remote is None or self._remote.url is None else _REFETCHES
        while self._reader is None:
            tries -= 1
            try:
                self._reader = self._open()
            except NotFound as error:  # evicted by another process since it was fetched, or nowhere
                if not tries or error.file not in self.paths(packed=False) + self.paths(packed=True):
                    raise
        return self._reader

    def _open(self) -> MdsReader:
        if self._remote is not None and self._remote.url is not None:
            self.prepare()
        raw = all(map(os.path.exists, self.paths(packed=False)))
        path = self.path_of(self.raw_data if raw or self.zip_data is None else self.zip_data)
        store = LocalStore()
        source = ShardFile(store, path, store.head(path), entry=self._text, limits=self._limits)
        return MdsReader(source, self._options)

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open file: another process opens it again."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_reader", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _reader=None, _lock=RLock())

    def __repr__(self) -> str:
        return f"<lading.compat.mosaicml.MDSShard {self.path_of(self.raw_data)}, {self.samples} samples>"


class MDSReader(MDSShard):
    """One shard of MDS, with the peer's arguments in the peer's order; see `MDSShard`.

    Example: `MDSReader("set", "train", ["jpeg"], ["image"], [None], None, [], raw_data, 100, None, None)`
    """

    _kind = "mds"

    def __init__(  # noqa: PLR0913, PLR0917 - the peer's
        self,
        dirname: str | os.PathLike[str],
        split: str | None,
        column_encodings: Sequence[str],
        column_names: Sequence[str],
        column_sizes: Sequence[int | None],
        compression: str | None,
        hashes: Sequence[str],
        raw_data: object,
        samples: int,
        size_limit: int | str | None,
        zip_data: object = None,
        **how: Any,
    ) -> None:
        super().__init__(dirname, split, compression, hashes, samples, size_limit, raw_data=raw_data,
                         zip_data=zip_data, column_encodings=column_encodings, column_names=column_names,
                         column_sizes=column_sizes, **how)  # fmt: skip


class JSONReader(MDSShard):
    """One shard of JSON lines, with the peer's arguments in the peer's order; see `MDSShard`."""

    _kind = "json"

    def __init__(  # noqa: PLR0913, PLR0917 - the peer's
        self,
        dirname: str | os.PathLike[str],
        split: str | None,
        columns: Mapping[str, str],
        compression: str | None,
        hashes: Sequence[str],
        newline: str,
        raw_data: object,
        raw_meta: object,
        samples: int,
        size_limit: int | str | None,
        zip_data: object = None,
        zip_meta: object = None,
        **how: Any,
    ) -> None:
        super().__init__(dirname, split, compression, hashes, samples, size_limit, raw_data=raw_data,
                         raw_meta=raw_meta, zip_data=zip_data, zip_meta=zip_meta, format="json", columns=columns,
                         newline=newline, **how)  # fmt: skip


class XSVReader(MDSShard):
    """One shard of lines with any separator, with the peer's arguments in the peer's order; see `MDSShard`."""

    _kind = "xsv"

    def __init__(  # noqa: PLR0913, PLR0917 - the peer's
        self,
        dirname: str | os.PathLike[str],
        split: str | None,
        column_encodings: Sequence[str],
        column_names: Sequence[str],
        compression: str | None,
        hashes: Sequence[str],
        newline: str,
        raw_data: object,
        raw_meta: object,
        samples: int,
        separator: str,
        size_limit: int | str | None,
        zip_data: object = None,
        zip_meta: object = None,
        **how: Any,
    ) -> None:
        super().__init__(dirname, split, compression, hashes, samples, size_limit, raw_data=raw_data,
                         raw_meta=raw_meta, zip_data=zip_data, zip_meta=zip_meta, format=self._kind,
                         column_encodings=column_encodings, column_names=column_names, newline=newline,
                         separator=separator, **how)  # fmt: skip


class CSVReader(XSVReader):
    """One shard of CSV, with the peer's arguments in the peer's order; see `MDSShard`."""

    _kind = "csv"
    _separator: ClassVar[str] = ","

    def __init__(  # noqa: PLR0913, PLR0917 - the peer's
        self,
        dirname: str | os.PathLike[str],
        split: str | None,
        column_encodings: Sequence[str],
        column_names: Sequence[str],
        compression: str | None,
        hashes: Sequence[str],
        newline: str,
        raw_data: object,
        raw_meta: object,
        samples: int,
        size_limit: int | str | None,
        zip_data: object = None,
        zip_meta: object = None,
        **how: Any,
    ) -> None:
        super().__init__(dirname, split, column_encodings, column_names, compression, hashes, newline, raw_data,
                         raw_meta, samples, self._separator, size_limit, zip_data, zip_meta, **how)  # fmt: skip


class TSVReader(CSVReader):
    """One shard of TSV, as `CSVReader`."""

    _kind = "tsv"
    _separator = "\t"


_READERS: Final[Mapping[str, type[MDSShard]]] = {
    "mds": MDSReader,
    "json": JSONReader,
    "csv": CSVReader,
    "tsv": TSVReader,
    "xsv": XSVReader,
}


def reader_from_json(
    dirname: str | os.PathLike[str], split: str | None, obj: Mapping[str, Any], **how: Any
) -> MDSShard:
    """Return the reader of a shard of any format, as `MDSShard.from_json`."""
    kind = str(obj.get("format")) if isinstance(obj, Mapping) else ""
    return _READERS.get(kind, MDSShard).from_json(dirname, split, obj, **how)


def shards_of_index(
    dirname: str | os.PathLike[str], split: str | None, path: str, limits: Limits, **how: Any
) -> list[MDSShard] | None:
    """Return the readers of all shards in an `index.json`; None if the file is not an index of MDS.

    Raises:
        NotFound: there is no such file.
        DataError: the index is broken.
    """
    listed = read_mds_index(LocalStore(), path, limits)
    if listed is None:
        return None
    with errors_at(file=path):
        entries = [orjson.loads(shard.entry) for shard in listed]
        return [reader_from_json(dirname, split, entry, limits=limits, **how) for entry in entries]


def _decoders(columns: Sequence[Any]) -> dict[str, Callable[[Any], Any]]:
    """Return what makes the peer's values of lading's, by column, where the two differ."""
    found: dict[str, Callable[[Any], Any]] = {}
    for column in columns:
        if column.encoding in ("jpeg", "png"):
            found[column.name] = _image
        elif column.encoding in ("list[jpeg]", "list[png]"):
            found[column.name] = _images
        elif column.size is not None and column.encoding != "int" and ":" not in column.encoding:
            found[column.name] = np.dtype(column.encoding).type
    return found


def _image(data: bytes) -> Any:
    return open_image(data, upright=False)


def _images(values: Sequence[bytes]) -> list[Any]:
    return [*map(_image, values)]


def _entry_text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a shard as the JSON text of an index."""
    try:
        return orjson.dumps(fields, default=_as_dict, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    except orjson.JSONEncodeError as error:
        raise DataError("not an entry of an index", expected="values of JSON", found=str(error)) from error


def _as_dict(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__}")


def _file_fields(file: object) -> Mapping[str, Any] | None:
    if file is None or isinstance(file, Mapping):
        return file
    return {name: getattr(file, name, None) for name in ("basename", "bytes", "hashes")}


@overload
def _info(file: EntryFile) -> FileInfo: ...
@overload
def _info(file: EntryFile | None) -> FileInfo | None: ...
def _info(file: EntryFile | None) -> FileInfo | None:
    return None if file is None else FileInfo(file.name, file.size_bytes, file.hashes)
