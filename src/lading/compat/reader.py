"""The base class of a shard's reader, with the names and promises of MosaicML's `Reader`.

Source: mosaicml-streaming 0.13.0, base/format/base/reader.py and base/array.py. Where the unpacked and the compressed
files of a shard exist and the compressed files are not kept, its code removes the unpacked files, against its own
comment: here these stay.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from types import NoneType
from typing import Any, Self

from lading._core.dataset.shards.shard import items_at
from lading._core.storage.base import store_errors
from lading._core.units import parse_peer_bytes
from lading.errors import BadReference, DataError, NotFound, UsageError

__all__ = ["FileInfo", "Reader", "entry_arguments", "refuse_outside"]

_FILES = (("raw_meta", "zip_meta"), ("raw_data", "zip_data"))
"""Files of a shard in an index: the unpacked and the compressed form, of the offsets and of the data."""


@dataclass
class FileInfo:
    """A file of a shard: its name below the folder, its size, and its hashes by algorithm."""

    basename: str
    bytes: int
    hashes: Mapping[str, str]


class Reader(Sequence[dict[str, Any]], ABC):
    """One shard in a local folder. A subclass defines `get_sample_data` and `decode_sample`.

    Example:
        class Lines(Reader):
            def get_sample_data(self, idx: int) -> bytes:
                return self.lines[idx]

            def decode_sample(self, data: bytes) -> dict[str, Any]:
                return {"text": data.decode()}

    Args:
        dirname: folder of the dataset.
        split: folder of the split in it; None or empty if there is none.
        compression: compression of the files, such as `zstd:3`; None if they are not compressed.
        hashes: names of the hashes that the files have in the index.
        samples: number of samples.
        size_limit: size at which a new shard began, as bytes or text (`"100kb"` is 102,400); None for no limit.

    Attributes:
        dirname, split, compression, hashes, samples, size_limit: the arguments; `split` is empty without a split.
        file_pairs: unpacked and compressed file of each part of the shard. The methods about files use these. A
            subclass adds its own files; `from_json` adds those of the index.

    Raises:
        DataError: the hashes or the size limit have another type.
        UsageError: the size limit is not a size.
    """

    def __init__(
        self,
        dirname: str | os.PathLike[str],
        split: str | None,
        compression: str | None,
        hashes: Sequence[str],
        samples: int,
        size_limit: int | str | None,
    ) -> None:
        if (
            isinstance(hashes, str)
            or not isinstance(hashes, Sequence)
            or not isinstance(size_limit, (int, str, NoneType))
        ):
            raise DataError("not the description of a shard", expected="a list of hashes, a size or none",
                            found=f"{hashes!r}, {size_limit!r}"[:80])  # fmt: skip
        self.dirname, self.split = os.fspath(dirname), split or ""
        self.compression, self.hashes, self.samples = compression, list(hashes), samples
        self.size_limit = None if size_limit is None else parse_peer_bytes(size_limit)
        self.file_pairs: list[tuple[FileInfo, FileInfo | None]] = []

    @classmethod
    def from_json(cls, dirname: str | os.PathLike[str], split: str | None, obj: Mapping[str, Any]) -> Self:
        """Return the reader of a shard by its entry in an `index.json`, with `file_pairs`.

        Example: `Lines.from_json("set", "train", json.load(open("set/train/index.json"))["shards"][0])`

        Raises:
            DataError: an entry of another version, or without a file's name and size.
        """
        reader = cls(dirname, split, *entry_arguments(obj))
        for raw, packed in _FILES:
            if obj.get(raw) is not None:
                reader.file_pairs.append((_file(obj, raw), None if obj.get(packed) is None else _file(obj, packed)))
        return reader

    # Samples

    @abstractmethod
    def get_sample_data(self, idx: int) -> bytes:
        """Return the bytes of a sample in the unpacked shard."""
        raise NotImplementedError

    @abstractmethod
    def decode_sample(self, data: bytes) -> dict[str, Any]:
        """Return the sample of these bytes."""
        raise NotImplementedError

    def get_item(self, idx: int) -> dict[str, Any]:
        """Return one sample."""
        return self.decode_sample(self.get_sample_data(idx))

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: Any) -> Any:
        """Return one sample by its number, or a list of samples by a slice, a list or an array of numbers.

        Raises:
            IndexError: the number is outside the shard.
            UsageError: the index is of another type.
        """
        return items_at(self, index, self.get_item)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.get_item(i) for i in range(self.samples))

    def validate(self, allow_unsafe_types: bool) -> None:
        """Raise UsageError if reading a column runs code and `allow_unsafe_types` is False. By default accepts all."""

    # Sizes

    def get_raw_size(self) -> int:
        """Return the bytes of the unpacked files."""
        return sum(raw.bytes for raw, _ in self.file_pairs)

    def get_zip_size(self) -> int | None:
        """Return the bytes of the compressed files; None if there are none."""
        packed = [file for _, file in self.file_pairs if file is not None]
        return sum(file.bytes for file in packed) if packed else None

    def get_max_size(self) -> int:
        """Return the bytes of all files: the space that unpacking the shard takes."""
        return self.get_raw_size() + (self.get_zip_size() or 0)

    def get_persistent_size(self, keep_zip: bool) -> int:
        """Return the bytes that stay when the shard is unpacked: with its compressed files, or without."""
        return self.get_max_size() if keep_zip else self.get_raw_size()

    # Files

    def evict(self) -> int:
        """Remove all files of the shard; return the bytes freed."""
        return self._remove(packed=False) + self._remove(packed=True)

    def set_up_local(self, listing: AbstractSet[str], safe_keep_zip: bool) -> int:
        """Clean up the shard's files, and return the bytes that remain: 0 if the shard is absent.

        Unpacked files, or compressed files, count only if all of them exist; an incomplete set is removed.

        Args:
            listing: paths of all files in the folder of the split (`LocalCopy.listing`).
            safe_keep_zip: keep compressed files next to unpacked files; unpacked files without them are removed. If
                False, compressed files next to unpacked files are removed.

        Raises:
            DataError: compressed files of a shard without compression (a ValueError).
        """
        raw, packed = self._are_listed(listing, packed=False), self._are_listed(listing, packed=True)
        if packed and not self.compression:
            raise DataError("a shard without compression has compressed files", file=self.paths(packed=True)[0])
        if raw and safe_keep_zip and not packed and self.compression:
            self._remove(packed=False)
            raw = False
        elif raw and packed and not safe_keep_zip:
            self._remove(packed=True)
            packed = False
        return (self.get_raw_size() if raw else 0) + ((self.get_zip_size() or 0) if packed else 0)

    def close(self) -> None:
        """Close open files; they open again when they are needed. By default there are none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path_of(self, file: FileInfo) -> str:
        """Return the path of a file of the shard."""
        return os.path.join(self.dirname, self.split, file.basename)

    def paths(self, *, packed: bool) -> list[str]:
        """Return the paths of the compressed or of the unpacked files."""
        found = [pair[packed] for pair in self.file_pairs]
        return [self.path_of(file) for file in found if file is not None]

    def _are_listed(self, listing: AbstractSet[str], *, packed: bool) -> bool:
        """Return whether all files exist; if only some do, remove them."""
        files = self.paths(packed=packed)
        found = sum(file in listing for file in files)
        if 0 < found < len(files):
            self._remove(packed=packed)
        return 0 < found == len(files)

    def _remove(self, *, packed: bool) -> int:
        self.close()
        freed = 0
        for file in self.paths(packed=packed):
            refuse_outside(os.path.join(self.dirname, self.split), file)
            with suppress(NotFound), store_errors(file):
                size = os.lstat(file).st_size
                os.unlink(file)
                freed += size
        return freed


def entry_arguments(obj: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return compression, hashes, samples and size limit of an entry in an index. Raises DataError."""
    if not isinstance(obj, Mapping) or obj.get("version") != 2:  # noqa: PLR2004 - the version of MDS
        version = obj.get("version") if isinstance(obj, Mapping) else type(obj).__name__
        raise DataError("an entry of another version", column="version", expected=2, found=repr(version)[:40])
    limit = obj.get("size_limit")
    try:
        size = None if limit is None else parse_peer_bytes(limit)
    except UsageError as error:  # the index says so, not the caller
        raise DataError("not the description of a shard", expected="a size or none",
                        found=repr(limit)[:80]) from error  # fmt: skip
    return obj.get("compression"), obj.get("hashes") or [], obj.get("samples"), size


def _file(obj: Mapping[str, Any], key: str) -> FileInfo:
    file = obj[key]
    name, size, hashes = (
        (file.get("basename"), file.get("bytes"), file.get("hashes")) if isinstance(file, Mapping) else (None,) * 3
    )
    if not isinstance(name, str) or type(size) is not int or size < 0:
        raise DataError("not a file of a shard", column=key, expected="basename, bytes, hashes", found=repr(file)[:80])
    return FileInfo(name, size, dict(hashes or {}))


def refuse_outside(folder: str, file: str) -> None:
    """Raise BadReference if a link leads from a file's name out of the folder."""
    top, place = os.path.realpath(folder), os.path.realpath(os.path.dirname(file))
    if place != top and not place.startswith(top.rstrip(os.sep) + os.sep):
        raise BadReference("a link leads out of the folder: nothing is changed there", file=file, found=place)
