"""A local copy of an MDS dataset, with the names and promises of MosaicML's readers.

`lading.open` never removes data. A cache folder is different: its shards can be removed, and files that an interruption
left incomplete are cleaned up.

Source: mosaicml-streaming 0.13.0, base/format/base/reader.py; where raw and compressed files of a shard are both there
and the compressed ones not wanted, its code removes the raw ones, against its own comment: here the raw ones stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import NoneType
from typing import Any, Self

import orjson

from lading.errors import BadReference, DataError, NotFound, SourceNotFound, UsageError, errors_at
from lading.formats.base import ShardFile, parse_options
from lading.formats.mds.format import Entry, EntryFile, MdsReader, ReadOptions, parse_entry, read_mds_index
from lading.limits import DEFAULT_LIMITS, Limits
from lading.storage.base import store_errors
from lading.storage.local import LocalStore
from lading.units import parse_bytes

__all__ = ["LocalCopy", "MDSShard"]

_INDEX = "index.json"
_TOLD = ("zip_data", "raw_meta", "zip_meta", "format", "column_names", "column_encodings", "column_sizes", "columns",
         "newline", "separator")  # fmt: skip
"""What an index may say of a shard, beside its file and what `MDSShard` takes by place; more of it is nothing to us."""


class MDSShard(Sequence[dict[str, Any]]):
    """One shard of MDS in a local folder, its files perhaps not there yet.

    Args:
        dirname: folder of the dataset.
        split: folder of the split in it, if any.
        compression: of the files, as in `zstd:3`; None if they are not compressed.
        hashes: names of the hashes that the files have in the index.
        samples: number of samples.
        size_limit: what the shard was limited to, in bytes or as text; None for no limit.
        raw_data: the unpacked file: `{"basename": …, "bytes": …, "hashes": {…}}`, or an object with these attributes.
        zip_data: the compressed file, likewise; None if there is none.
        format: `mds`, `json`, `csv`, `tsv` or `xsv`.
        allow_pickle: read values of `pkl` columns, which runs the code in them.
        limits: limits on what the files may ask for, as `lading.open` takes them.
        more: `column_names`, `column_encodings`, `column_sizes`, and of the split formats `columns`, `raw_meta`,
            `zip_meta`, `newline`, `separator`, as the index has them.

    Raises:
        DataError: the arguments contradict each other, such as a compressed file without a compression.
        BadReference: a name leads out of the folder.
    """

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
        **more: Any,
    ) -> None:
        self.dirname, self.split = os.fspath(dirname), split or ""
        if (
            isinstance(hashes, str)
            or not isinstance(hashes, Sequence)
            or not isinstance(size_limit, (int, str, NoneType))
        ):
            raise DataError("not what an index says of a shard", expected="a list of hashes, a size or none",
                            found=f"{hashes!r}, {size_limit!r}"[:80])  # fmt: skip
        self.compression, self.hashes, self.samples = compression, list(hashes), samples
        self.size_limit = None if size_limit is None else parse_bytes(size_limit)
        files = {"raw_data": raw_data, "zip_data": zip_data} | {k: more.pop(k, None) for k in ("raw_meta", "zip_meta")}
        told = {"version": 2, "format": format, "compression": compression, "samples": samples, **more}
        self._text = _entry_of({**told, **{name: _told_file(file) for name, file in files.items()}})
        self._limits = limits
        self._entry: Entry = parse_entry(self._text, limits)
        self._options = parse_options("mds", ReadOptions, {"allow_pickle": allow_pickle})
        self._reader: MdsReader | None = None

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -self.samples <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        return self.get_item(index % self.samples)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.get_item(i) for i in range(self.samples))

    def get_item(self, idx: int) -> dict[str, Any]:
        """One sample."""
        return self.decode_sample(self.get_sample_data(idx))

    def get_sample_data(self, idx: int) -> bytes:
        """Return the bytes of a sample in the unpacked shard.

        Raises:
            NotFound: the shard is missing, unpacked and compressed.
        """
        return self._opened().get_sample_data(idx)

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        """Return the sample that these bytes hold."""
        return self._opened().decode_sample(data)

    def validate(self, allow_unsafe_types: bool) -> None:
        """Raise UsageError if reading a column would run code and `allow_unsafe_types` is not set."""
        unsafe = [column.name for column in self._entry.config.columns if column.encoding == "pkl"]
        if unsafe and not allow_unsafe_types:
            raise UsageError("values of this column run code when they are read", column=unsafe[0],
                             file=self._place(self._entry.raw))  # fmt: skip

    def get_raw_size(self) -> int:
        """Bytes of the unpacked files."""
        return sum(raw.size_bytes for raw, _ in self._pairs())

    def get_zip_size(self) -> int | None:
        """Bytes of the compressed files; None if there are none."""
        packed = [file for _, file in self._pairs() if file is not None]
        return sum(file.size_bytes for file in packed) if packed else None

    def get_max_size(self) -> int:
        """Bytes of all files: the space that unpacking the shard takes."""
        return self.get_raw_size() + (self.get_zip_size() or 0)

    def get_persistent_size(self, keep_zip: bool) -> int:
        """Bytes that stay when the shard is unpacked: with its compressed files, or without."""
        return self.get_max_size() if keep_zip else self.get_raw_size()

    def evict(self) -> int:
        """Remove all files of the shard; return the bytes freed."""
        return self._remove(packed=False) + self._remove(packed=True)

    def set_up_local(self, listing: AbstractSet[str], safe_keep_zip: bool) -> int:
        """Clean up the shard's files, and return the bytes that remain.

        Unpacked files, or compressed files, count only if all of them are there; an incomplete set is removed.

        Args:
            listing: paths of all files in the folder (`LocalCopy.listing`).
            safe_keep_zip: keep compressed files next to unpacked ones; unpacked files without them are removed. If
                False, compressed files next to unpacked ones are removed.
        """
        raw, packed = self._there(listing, packed=False), self._there(listing, packed=True)
        if raw and safe_keep_zip and not packed and self.compression:
            self._remove(packed=False)
            raw = False
        elif raw and packed and not safe_keep_zip:
            self._remove(packed=True)
            packed = False
        return (self.get_raw_size() if raw else 0) + ((self.get_zip_size() or 0) if packed else 0)

    # Files

    def file_names(self) -> list[str]:
        """Return the names of all files that the shard may have, below the folder."""
        return [file.name for pair in self._pairs() for file in pair if file is not None]

    def _pairs(self) -> list[tuple[EntryFile, EntryFile | None]]:
        """Unpacked and compressed files that belong together."""
        entry = self._entry
        pairs = [(entry.raw, entry.packed)]
        return pairs if entry.raw_meta is None else [(entry.raw_meta, entry.packed_meta), *pairs]

    def _files(self, *, packed: bool) -> list[str]:
        found = [pair[packed] for pair in self._pairs()]
        return [self._place(file) for file in found if file is not None]

    def _place(self, file: EntryFile) -> str:
        return os.path.join(self.dirname, self.split, file.name)

    def _there(self, listing: AbstractSet[str], *, packed: bool) -> bool:
        """Whether all files are there; if only some are, they are removed."""
        files = self._files(packed=packed)
        found = sum(file in listing for file in files)
        if 0 < found < len(files):
            self._remove(packed=packed)
        return 0 < found == len(files)

    def _remove(self, *, packed: bool) -> int:
        self.close()
        freed = 0
        top = os.path.realpath(os.path.join(self.dirname, self.split))
        for file in self._files(packed=packed):
            folder = os.path.realpath(os.path.dirname(file))
            if folder != top and not folder.startswith(top + os.sep):
                raise BadReference("a link leads out of the folder: nothing is removed there", file=file, found=folder)
            with suppress(NotFound), store_errors(file):
                freed += os.lstat(file).st_size
                os.unlink(file)
        return freed

    def _opened(self) -> MdsReader:
        if self._reader is None:
            raw = all(map(os.path.exists, self._files(packed=False)))
            entry = self._entry
            path = self._place(entry.raw if raw or entry.packed is None else entry.packed)
            store = LocalStore()
            source = ShardFile(store, path, store.head(path), entry=self._text, limits=self._limits)
            self._reader = MdsReader(source, self._options)
        return self._reader

    def close(self) -> None:
        """Give up the open file; it is opened again when it is needed."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lading.MDSShard {self._place(self._entry.raw)}, {self.samples} samples>"


class LocalCopy:
    """A folder with `index.json` and some of its shards: a cache whose shards can be evicted.

    Example:
        lading.LocalCopy("cache/train").shards[0].evict()

    Args:
        dirname: the folder.
        split: subfolder of the split, if there is one.
        allow_pickle: as for `MDSShard`.
        limits: as for `MDSShard`; also on the size of the index.

    Attributes:
        shards: the shards, in the order of the index.

    Raises:
        SourceNotFound: the index is missing.
        DataError: the index is broken.
    """

    def __init__(
        self,
        dirname: str | os.PathLike[str],
        split: str | None = None,
        *,
        allow_pickle: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.dirname, self.split = os.fspath(dirname), split or ""
        path = os.path.join(self.dirname, self.split, _INDEX)
        store = LocalStore()
        try:
            listed = read_mds_index(store, path, limits)
        except NotFound as error:
            raise SourceNotFound("there is no index", file=path) from error
        if listed is None:
            raise SourceNotFound("the file is not an index of MDS", file=path)
        told = {"allow_pickle": allow_pickle, "limits": limits}
        with errors_at(file=path):
            self.shards = [_shard(self.dirname, self.split, orjson.loads(one.entry), told) for one in listed]
        known: set[str] = set()
        for row, shard in enumerate(self.shards):
            for name in shard.file_names():
                if name in known:  # to remove one shard would remove a part of another
                    raise DataError("the index names a file twice", file=path, row=row, found=name)
                known.add(name)

    def __len__(self) -> int:
        return sum(shard.samples for shard in self.shards)

    def listing(self) -> set[str]:
        """Return the paths of all files below the folder, as `set_up_local` takes them."""
        top = os.path.join(self.dirname, self.split)
        return {os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names}


def _entry_of(told: Mapping[str, Any]) -> str:
    """What is told of a shard as an index has it."""
    try:
        return orjson.dumps(told, default=_as_dict, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    except orjson.JSONEncodeError as error:
        raise DataError("not what an index says of a shard", expected="what JSON holds", found=str(error)) from error


def _as_dict(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__}")


def _told_file(file: object) -> Mapping[str, Any] | None:
    if file is None or isinstance(file, Mapping):
        return file
    return {name: getattr(file, name, None) for name in ("basename", "bytes", "hashes")}


def _shard(dirname: str, split: str, entry: Mapping[str, Any], how: Mapping[str, Any]) -> MDSShard:
    first: list[Any] = [entry.get(name) for name in ("compression", "hashes", "samples", "size_limit")]
    compression, hashes, samples, limit = first
    try:
        size = None if limit is None else parse_bytes(limit)
    except UsageError as error:  # nobody called it so: the index has it
        raise DataError("not what an index says of a shard", expected="a size or none",
                        found=repr(limit)[:80]) from error  # fmt: skip
    told = {name: entry[name] for name in _TOLD if name in entry}
    raw = entry.get("raw_data")
    return MDSShard(dirname, split, compression, hashes or [], samples, size, raw_data=raw, **how, **told)
