"""One shard of a dataset, by the names that users of MosaicML's readers know.

Source: mosaicml-streaming 0.13.0, base/format/base/reader.py (`Reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from functools import partial
from operator import index as as_int
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lading._core.dataset.shards.sample_access import SampleAccess
from lading._core.dataset.shards.shards import Shards
from lading._core.formats.base import SampleReader
from lading._core.storage.roots import folder_of
from lading._core.storage.stores import is_local, resolve
from lading._core.units import count
from lading.errors import UsageError

__all__ = ["Shard", "ShardList", "items_at"]

_INDEX = "index.json"
"""The index of the datasets that have local copies."""


class ShardList(Sequence["Shard"]):
    """The shards of a dataset: `ds.shards[3]`."""

    def __init__(self, shards: Shards, access: SampleAccess) -> None:
        self._shards, self._access = shards, access

    def __len__(self) -> int:
        return len(self._shards.listing)

    def __repr__(self) -> str:
        return f"<{count(len(self), 'shard')}>"

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = as_int(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"shard {index} of {len(self)}")
        return Shard(self._shards, self._access, index % len(self))


class Shard:
    """One shard of a dataset, made on demand.

    Attributes:
        number: its place among the shards.
        path: its path.
    """

    def __init__(self, shards: Shards, access: SampleAccess, number: int) -> None:
        self._shards, self._access = shards, access
        self.number, self.path = number, shards.path(number)

    def __len__(self) -> int:
        return self._shards.open_shard(self.number).num_samples()

    def __getitem__(self, index: Any) -> Any:
        """One sample by its number, or a list of samples by a slice, a list or an array of numbers.

        Raises:
            IndexError: the number is outside the shard.
            UsageError: the index is of another type.
        """
        return items_at(self, index, partial(self._access.one, self.number))

    def __repr__(self) -> str:
        return f"<lading.Shard {self.number} {self.path}>"

    @property
    def schema(self) -> pa.Schema:
        """Columns of the shard, found without reading payload."""
        return self._shards.open_shard(self.number).schema()

    @property
    def size(self) -> int:
        """Number of samples."""
        return len(self)

    def get_item(self, idx: int) -> dict[str, Any]:
        """One sample, as `shard[idx]`."""
        sample: dict[str, Any] = self[idx]
        return sample

    def get_sample_data(self, idx: int) -> bytes:
        """The bytes of a sample as they stand in the unpacked shard.

        Raises:
            UsageError: shards of this format have no sample in one piece.
        """
        return self._reader().get_sample_data(idx)

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        """The sample that such bytes are. Raises as `get_sample_data`; DataError for other bytes."""
        return self._reader().decode_sample(data)

    def validate(self, allow_unsafe_types: bool) -> None:
        """Raise UsageError if the shard has columns that run code when they are read, unless they are allowed."""
        reader = self._shards.whole_samples(self.number)
        unsafe = reader.unsafe_columns if reader is not None else ()
        if unsafe and not allow_unsafe_types:
            raise UsageError("values of this column run code when they are read", file=self.path, column=unsafe[0],
                             advice="Allow it where you trust the data: allow_unsafe_types=True.")  # fmt: skip

    def get_raw_size(self) -> int:
        """Bytes of the shard's files when they are not compressed (of a compressed tar, as they are)."""
        reader = self._shards.whole_samples(self.number)
        if reader is not None:
            return reader.raw_bytes
        info = self._shards.source(self.number).info
        return 0 if info is None else info.size_bytes

    def get_zip_size(self) -> int | None:
        """Bytes of the shard's compressed files; None if it has none."""
        reader = self._shards.whole_samples(self.number)
        return None if reader is None else reader.zip_bytes

    def get_max_size(self) -> int:
        """Bytes of the shard's files, compressed and unpacked."""
        return self.get_raw_size() + (self.get_zip_size() or 0)

    def get_persistent_size(self, keep_zip: bool) -> int:
        """Bytes that stay when the shard is unpacked: with its compressed files, or without."""
        return self.get_max_size() if keep_zip else self.get_raw_size()

    @property
    def raw_data(self) -> SimpleNamespace:
        """The unpacked file in the index of MDS: `basename`, `bytes`, `hashes`. Raises AttributeError without one."""
        return SimpleNamespace(**self._listed("raw_data"))

    @property
    def zip_data(self) -> SimpleNamespace | None:
        """The compressed file, likewise; None if there is none."""
        file = self._listed("zip_data")
        return None if file is None else SimpleNamespace(**file)

    @property
    def column_names(self) -> list[str]:
        """Columns in the index of MDS. Raises AttributeError without one."""
        return self._listed("column_names")  # type: ignore[no-any-return] # JSON

    @property
    def column_encodings(self) -> list[str]:
        """Encodings of these columns."""
        return self._listed("column_encodings")  # type: ignore[no-any-return] # JSON

    @property
    def column_sizes(self) -> list[int | None]:
        """Bytes of the values of these columns; None where they vary."""
        return self._listed("column_sizes")  # type: ignore[no-any-return] # JSON

    def _listed(self, name: str) -> Any:
        """Return a field of the shard's entry in an index of MDS."""
        entry = self._shards.source(self.number).entry if _INDEX in self._shards.fmt.index.names else None
        fields = orjson.loads(entry) if entry else {}
        if name not in fields:
            raise AttributeError(f"the shard {self.path} has no {name}")
        return fields[name]

    def evict(self) -> int:
        """Refused: opened data belongs to its owner. Raises UsageError, which says how to get a copy to evict from."""
        raise self._in_place(".evict()")

    def set_up_local(self, listing: set[str], safe_keep_zip: bool) -> bool:  # noqa: ARG002 - as users know it
        """Refused, as `evict`. Raises UsageError."""
        raise self._in_place(".set_up_local(listing, safe_keep_zip)")

    def _in_place(self, call: str) -> UsageError:
        """The error that this call would change data read in place, with the call for a local copy."""
        listing = self._shards.listing
        folder = folder_of(listing.index_file) or "." if listing.index_file else listing.own
        advice = "A cache folder of your own, whose shards can be evicted, needs a dataset of MDS: convert it first."
        if _INDEX in self._shards.fmt.index.names and folder is not None:
            local = is_local(resolve(folder, self._shards.stores)[0])
            where = repr(folder) if local else f'"cache", remote={folder!r}'
            copy = f"lading.compat.mosaicml.LocalCopy({where})"
            advice = f"Shards of a cache folder can be evicted: `{copy}.shards[{self.number}]{call}`."
            advice += " A dataset elsewhere is its remote=." if local else ""
        return UsageError("data read in place is never removed", file=self.path, advice=advice)

    def _reader(self) -> SampleReader:
        reader = self._shards.whole_samples(self.number)
        if reader is None:
            raise UsageError("a shard of this format has no sample in one piece", file=self.path,
                             found=self._shards.format, advice="Take the sample itself: shard[i].")  # fmt: skip
        return reader


def items_at(samples: Sized, index: Any, get: Callable[[int], Any]) -> Any:
    """Return `get(number)` for a number, or a list of them for a slice, a list or an array, also nested.

    Raises:
        IndexError: a number is outside the samples.
        UsageError: the index is of another type.
    """
    count = len(samples)
    if isinstance(index, slice):
        return [get(i) for i in range(*index.indices(count))]
    if isinstance(index, (list, tuple)) or (isinstance(index, np.ndarray) and index.ndim):
        return [items_at(samples, one, get) for one in index]
    try:
        number = as_int(index)
    except TypeError:
        raise UsageError("not the number of a sample", expected="a number, a slice, a list or an array of numbers",
                         found=f"{type(index).__name__} {index!r:.80}") from None  # fmt: skip
    if not -count <= number < count:
        raise IndexError(f"sample {number} of {count}")
    return get(number % count)
