"""The index of an MDS dataset, and the entry of a shard there or in its own header.

    index.json   {"version": 2, "shards": [entry, …]}
    entry        {"format": "mds", "samples", "raw_data": file, "zip_data": file or null, "compression", "hashes",
                  "column_names", "column_encodings", "column_sizes", "size_limit", "version": 2}; the split formats
                  json, csv, tsv, xsv also have "raw_meta", "zip_meta", "newline" (xsv: "separator"); json has
                  "columns": {name: encoding} instead of the lists of columns
    file         {"basename", "bytes", "hashes": {algorithm: hex}}; the name may have folders in front (merged indexes)

Source: mosaicml-streaming 0.13.0, base/format/*/writer.py and reader.py, base/format/index.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from lading._core.features.mds_values import is_encoding, parse_array
from lading._core.formats.dataset_index import ListedFile, ListedShard
from lading._core.storage.base import Store
from lading._core.storage.index_json import as_text, load_index
from lading.errors import BadReference, DataError, LimitExceeded, Unrepresentable, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "COMPRESSIONS",
    "INDEX_NAME",
    "KINDS",
    "META",
    "NUMBERS",
    "SEPARATORS",
    "Config",
    "EntryFile",
    "MDSColumn",
    "MDSEntry",
    "list_mds",
    "meta_name",
    "parse_config",
    "parse_entry",
    "read_mds_index",
    "tells_columns",
]

COMPRESSIONS = {"br": "brotli", "bz2": "bz2", "gz": "gzip", "snappy": "snappy", "zstd": "zstd"}
"""Compressions of shards, by the ending of their files, with their names in `_core.codecs`."""

INDEX_NAME = "index.json"
"""Name of a dataset's index."""

META = ".meta"
"""Suffix of the file with the offsets of the samples of a split-format shard."""

NUMBERS: dict[str, type[np.generic]] = {
    "int": np.int64, "float16": np.float16, "float32": np.float32, "float64": np.float64,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
}  # fmt: skip
"""Encodings of numbers, little-endian."""

KINDS = ("mds", "json", "csv", "tsv", "xsv")
"""Kinds of shards: MDS, and its split formats."""

SEPARATORS = {"csv": ",", "tsv": "\t"}
"""Separators of the values of a line, by kind; the index has that of xsv."""

_VERSION = 2
_MAX_SHARD_BYTES = 1 << 32
_MAX_NAME_BYTES = 255
"""Length of a file or folder name that every file system accepts."""
_USUAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of files in the folder of the index; others are checked part by part."""
_VARIABLE = ("bytes", "str", "json", "png", "jpeg")
_OF_TEXT = ("str", "int", "float")


@dataclass(frozen=True, slots=True)
class MDSColumn:
    """A column of a shard.

    Attributes:
        name: name of the column.
        encoding: MDS's name of the encoding of its values.
        size: bytes of each value; None if they vary.
    """

    name: str
    encoding: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Config:
    """Common properties of all samples of a shard.

    Attributes:
        format: `mds`, `json`, `csv`, `tsv` or `xsv`.
        columns: in the order of a sample.
        newline: line end, if samples are lines.
        separator: separator of the values of a line of csv, tsv, xsv.
    """

    format: str
    columns: tuple[MDSColumn, ...]
    newline: str = "\n"
    separator: str = ","


@dataclass(frozen=True, slots=True)
class EntryFile:
    """A file of a shard: its name below the folder of the index, its size, and its hashes by algorithm."""

    name: str
    size_bytes: int
    hashes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MDSEntry:
    """The entry of a shard in an index.

    Attributes:
        config: common properties of its samples.
        samples: number of samples.
        compression: name in `_core.codecs`; empty if its files are not compressed.
        raw: its data, uncompressed.
        packed: its data, compressed; None if not compressed.
        raw_meta: offsets of its lines, for split formats.
        packed_meta: the same, compressed.
    """

    config: Config
    samples: int
    compression: str
    raw: EntryFile
    packed: EntryFile | None
    raw_meta: EntryFile | None
    packed_meta: EntryFile | None


def meta_name(name: str, ending: str) -> str:
    """Return the name of the `.meta` of a split-format shard; both with the ending of their compression."""
    return f"{name.removesuffix(ending)}{META}{ending}"


def list_mds(store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
    """Return the result of `read_mds_index`; a file whose first bytes do not look like an index is not read."""
    return read_mds_index(store, path, limits) if b'"shards"' in head else None


def read_mds_index(store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
    """Return the shards of an `index.json`, in its order; None if the file is not an MDS index.

    Reads no shard. If a shard is compressed, the folder is listed once: an uncompressed file next to the compressed one
    is a decompressed copy, and is read instead.

    Raises:
        DataError: the index is broken, or lists a shard twice.
        LimitExceeded: it is larger than `index_bytes`.
        BadReference: a shard outside the folder of the index.
    """
    try:
        index = load_index(store, path, limits)
    except DataError as error:
        if isinstance(error, LimitExceeded) or posixpath.basename(path) == INDEX_NAME:
            raise
        return None  # another program's file that contains the word
    if (
        not isinstance(index, dict)
        or not isinstance(index.get("shards"), list)
        or type(index.get("version")) is not int
    ):
        return None
    with errors_at(file=path):
        entries = _entries(index)
        folder = path[: path.rfind("/") + 1]
        names = _names(store, folder, entries)
        shards, known = [], set[str]()
        for row, entry in enumerate(entries):
            try:
                shards.append(_listed(entry, folder, names))
            except DataError as error:
                raise error.at(row=row) from None
            if shards[-1].path in known:
                raise DataError("the index lists a shard twice", row=row, found=shards[-1].path)
            known.add(shards[-1].path)
    return shards


def _entries(index: Mapping[str, Any]) -> list[Any]:
    if index.get("version") != _VERSION:
        raise DataError("an index of another version", expected=_VERSION, found=repr(index.get("version"))[:40])
    entries: list[Any] = index["shards"]
    return entries


def _names(store: Store, folder: str, entries: Sequence[Any]) -> dict[str, int]:
    """Return files below the folder and their sizes, if a shard is compressed and may have a decompressed copy."""
    if not any(isinstance(entry, dict) and entry.get("zip_data") for entry in entries):
        return {}
    return {info.path.removeprefix(folder): info.size_bytes for info in store.walk(folder or ".")}


def _listed(entry: Any, folder: str, names: Mapping[str, int]) -> ListedShard:
    """Return a listed shard without its columns, which are parsed when it is opened."""
    if not isinstance(entry, dict):
        raise DataError("a shard of the index must be an object", found=type(entry).__name__)
    raw, packed, meta, samples = _files_and_count(entry)
    if packed is None and meta is None:
        return ListedShard(folder + raw.name, samples, raw.size_bytes, raw.hashes, as_text(entry))
    # An incomplete decompressed copy is ignored.
    unpacked = all(file is None or names.get(file.name) == file.size_bytes for file in (raw, meta))
    chosen = raw if packed is None or unpacked else packed
    text = as_text(entry)
    packed_meta = _file(entry, "zip_meta") if packed and meta else None
    needed = meta if chosen is raw else packed_meta
    beside = tuple(
        ListedFile(folder + file.name, file.size_bytes, file.hashes, needed=file is needed)
        for file in (raw, packed, meta, packed_meta)
        if file is not None and file is not chosen
    )
    return ListedShard(folder + chosen.name, samples, chosen.size_bytes, chosen.hashes, text, beside)


def _files_and_count(entry: Mapping[str, Any]) -> tuple[EntryFile, EntryFile | None, EntryFile | None, int]:
    kind, samples = entry.get("format"), entry.get("samples")
    if kind not in KINDS:
        raise DataError("a shard of an unknown format", expected=", ".join(KINDS), found=repr(kind)[:40])
    if entry.get("version") != _VERSION:
        raise DataError("a shard of another version", expected=_VERSION, found=repr(entry.get("version"))[:40])
    raw, meta = _file(entry, "raw_data"), None if kind == "mds" else _file(entry, "raw_meta")
    packed = None if entry.get("zip_data") is None else _file(entry, "zip_data")
    if (packed is None) != (_compression(entry) == ""):
        raise DataError("a compressed file without a compression, or the reverse", column="compression",
                        expected="zip_data and compression, or neither", found=entry.get("compression"))  # fmt: skip
    if type(samples) is not int or not 0 <= samples <= (meta or raw).size_bytes // 4:
        raise DataError("not the number of samples of a file of this size", column="samples",
                        expected=f"0 to {(meta or raw).size_bytes // 4}", found=repr(samples)[:40])  # fmt: skip
    return raw, packed, meta, samples


def _compression(entry: Mapping[str, Any]) -> str:
    compression = entry.get("compression")
    if compression is None:
        return ""
    family = compression.split(":")[0] if isinstance(compression, str) else None
    if family not in COMPRESSIONS:
        raise DataError("an unknown compression", column="compression", expected=", ".join(COMPRESSIONS),
                        found=repr(compression)[:40])  # fmt: skip
    return COMPRESSIONS[family]


def _file(entry: Mapping[str, Any], key: str) -> EntryFile:
    file = entry.get(key)
    name, size, hashes = (
        (file.get("basename"), file.get("bytes"), file.get("hashes", {})) if isinstance(file, dict) else (None,) * 3
    )
    if not isinstance(name, str) or type(size) is not int or not isinstance(hashes, dict):
        raise DataError("not a file of a shard", column=key, expected="basename, bytes, hashes", found=repr(file)[:80])
    if not 0 <= size < _MAX_SHARD_BYTES:
        raise DataError("not the size of a shard", column=key, expected="less than 4 GiB", found=size)
    if _USUAL_NAME.fullmatch(name) and name != INDEX_NAME:
        return EntryFile(name, size, hashes)
    if name.startswith("/") or "://" in name or ".." in name.split("/") or not name or "\0" in name:
        raise BadReference("the index names a file outside its folder", column=key, found=repr(name)[:80])
    parts = name.encode("utf-8", "surrogatepass").split(b"/")
    if parts[-1] in (b"", b".") or max(map(len, parts)) > _MAX_NAME_BYTES:
        raise BadReference("the index names what cannot be a file", column=key, found=repr(name)[:80])
    plain = posixpath.normpath(name)
    if posixpath.basename(plain) == INDEX_NAME or "_lading" in plain.split("/"):
        raise BadReference("the index names a file that is not a shard", column=key, found=repr(name)[:80])
    return EntryFile(plain, size, hashes)


def parse_entry(text: str, limits: Limits = DEFAULT_LIMITS) -> MDSEntry:
    """Parse an entry of `list_mds`. Raises DataError, naming the column, for invalid columns."""
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DataError("the entry of a shard cannot be read", found=str(error)) from None
    if not isinstance(entry, dict):
        raise DataError("the entry of a shard cannot be read", found=type(entry).__name__)
    raw, packed, meta, samples = _files_and_count(entry)
    packed_meta = _file(entry, "zip_meta") if packed and meta else None
    return MDSEntry(parse_config(entry, limits=limits), samples, _compression(entry), raw, packed, meta, packed_meta)


def tells_columns(header: Mapping[str, Any]) -> bool:
    """Return whether the JSON of a shard has columns: other writers may leave them out."""
    return "column_names" in header or "columns" in header


def parse_config(header: Mapping[str, Any], *, natural: bool = False, limits: Limits = DEFAULT_LIMITS) -> Config:
    """Return the columns in an entry or in a shard's header; with `natural`, sizes are those of the encodings.

    Raises:
        DataError: lists of different lengths, an unknown encoding, a size that differs from the encoding's; names the
            column.
    """
    kind = header.get("format")
    natural = natural and kind == "mds"
    if kind == "json":
        named = header.get("columns")
        names, encodings = ([*named], [*named.values()]) if isinstance(named, dict) else (None, None)
    else:
        names, encodings = header.get("column_names"), header.get("column_encodings")
    varying = [None] * len(names) if isinstance(names, list) else None
    sizes = header.get("column_sizes") if kind == "mds" and not natural else varying
    if not (isinstance(names, list) and isinstance(encodings, list) and isinstance(sizes, list)):
        raise DataError("a shard without columns", expected="names, encodings and sizes", found=repr(header)[:80])
    if not len(names) == len(encodings) == len(sizes) or len(set(map(str, names))) < len(names):
        raise DataError("names, encodings and sizes of columns do not fit together",
                        found=f"{len(set(map(str, names)))} names, {len(encodings)} encodings, {len(sizes)} sizes",
                        )  # fmt: skip
    if len(names) > limits.mds_columns:
        raise limits.exceeded("mds_columns", "too many columns", found=len(names))
    columns = tuple(
        _column(str(kind), name, encoding, _natural_size(str(encoding)) if natural else size)
        for name, encoding, size in zip(names, encodings, sizes, strict=True)
    )
    newline, separator = header.get("newline", "\n"), header.get("separator", SEPARATORS.get(str(kind), ","))
    if not (isinstance(newline, str) and newline and isinstance(separator, str) and separator):
        raise DataError("lines need an end and a separator", found=f"{newline!r}, {separator!r}"[:80])
    return Config(str(kind), columns, newline, separator)


def _column(kind: str, name: Any, encoding: Any, size: Any) -> MDSColumn:
    if not isinstance(name, str) or not isinstance(encoding, str):
        raise DataError("a column's name and encoding are texts", found=repr((name, encoding))[:80])
    known = encoding in _OF_TEXT if kind != "mds" else encoding in (*NUMBERS, *_VARIABLE) or is_encoding(encoding)
    if not known:
        raise DataError("an encoding that MDS does not have", column=name, found=repr(encoding)[:80])
    expected = _natural_size(encoding) if kind == "mds" else None
    if size != expected or isinstance(size, bool):
        raise DataError("a size that is not the encoding's", column=name, expected=expected, found=repr(size)[:40])
    return MDSColumn(name, encoding, expected)


def _natural_size(encoding: str) -> int | None:
    if encoding in NUMBERS:
        return np.dtype(NUMBERS[encoding]).itemsize
    dtype, shape = parse_array(encoding) or (None, None)
    if dtype is None or shape is None:
        return None
    size = np.dtype(dtype).itemsize
    for extent in shape:
        size *= extent
        if size >= _MAX_SHARD_BYTES:
            raise Unrepresentable("an array larger than any shard", expected="less than 4 GiB", found=encoding[:80])
    return size
