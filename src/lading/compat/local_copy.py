"""A local copy of an MDS dataset: a cache folder whose shards are fetched, and can be evicted.

`lading.open` never removes data. A cache folder is different: its shards are fetched from a remote, can be removed, and
files that an interruption left incomplete are cleaned up.

Source: mosaicml-streaming 0.13.0, base/stream.py and base/local.py.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, Self

from lading._core.dataset.shards.shard import items_at
from lading._core.manifest.unfinished import refuse_unfinished
from lading._core.secret_urls import shown
from lading._core.storage.roots import real_place
from lading._core.storage.store_options import with_cache
from lading._core.storage.stores import Stores, resolve
from lading.compat.mds_shards import MDSShard, shards_of_index
from lading.compat.reader import FileInfo
from lading.compat.remote import Remote
from lading.errors import DataError, NotFound, SourceNotFound
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["LocalCopy"]

_INDEX = "index.json"
_OPEN_SHARDS = 64
"""Shards of a `LocalCopy` whose files stay open."""


class LocalCopy(Sequence[dict[str, Any]]):
    """A folder with `index.json` and some of its shards: a cache whose shards are fetched, and can be evicted.

    Example:
        copy = lading.compat.mosaicml.LocalCopy("cache", "train", remote="s3://bucket/set")
        copy[0]  # fetches the shard of this sample
        copy.shards[0].evict()

    Args:
        dirname: the local folder. Missing folders are created.
        split: subfolder of the split, here and in the remote, if there is one.
        remote: folder or URL of the dataset. Missing shards are downloaded, checked and unpacked when a sample is read.
            Without a remote, nothing is fetched.
        keep_zip: keep compressed files after they were unpacked. They stay in any case if there is no remote, or if the
            remote is the folder itself.
        validate_hash: name of a hash in the index that downloaded files must have, such as `sha1`. By default only
            sizes are compared.
        allow_pickle: as for `MDSShard`.
        stores: store of each URL.
        cache_dir: folder for whole copies of the remote's files, as for `lading.open`. Local copies of one machine
            share it, and an evicted shard comes back from there.
        cache_limit: size of all files in it, such as `50GB`.
        limits: as for `MDSShard`; also on the size of the index.

    Attributes:
        shards: the shards, in the order of the index.

    Raises:
        SourceNotFound: the index is missing.
        UnfinishedDataset: the remote is being written, or its job died.
        DataError: the index is broken.
    """

    def __init__(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
        self,
        dirname: str | os.PathLike[str],
        split: str | None = None,
        *,
        remote: str | os.PathLike[str] | None = None,
        keep_zip: bool = False,
        validate_hash: str | None = None,
        allow_pickle: bool = False,
        stores: Stores | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        stores = Stores.of(stores, with_cache(None, cache_dir, cache_limit))
        self.dirname, self.split = os.fspath(dirname), split or ""
        remote = None if remote is None else shown(os.fspath(remote))
        own = remote is None or real_place(remote, stores or Stores()) == os.path.realpath(self.dirname)
        url = None if remote is None or own else "/".join([remote.rstrip("/"), *filter(None, [split])])
        self.remote = Remote(url, stores, validate_hash, keep_zip or own, limits)
        self.shards = self._listed(allow_pickle=allow_pickle)
        self._ends = list(accumulate(shard.samples for shard in self.shards))
        self._open: OrderedDict[int, None] = OrderedDict()
        self._lock = Lock()

    def _listed(self, *, allow_pickle: bool) -> list[MDSShard]:
        path = os.path.join(self.dirname, self.split, _INDEX)
        if self.remote.url is not None and not os.path.exists(path):
            self._fetch_index(path)
        try:
            shards = shards_of_index(self.dirname, self.split, path, self.remote.limits, remote=self.remote,
                                     allow_pickle=allow_pickle)  # fmt: skip
        except NotFound as error:
            raise SourceNotFound("there is no index", file=path,
                                 advice="Give remote=, the folder or URL of the dataset.") from error  # fmt: skip
        if shards is None:
            raise SourceNotFound("the file is not an index of MDS", file=path)
        known: set[str] = set()
        for row, shard in enumerate(shards):
            for name in (file.basename for pair in shard.file_pairs for file in pair if file is not None):
                if name in known:  # to remove one shard would remove a part of another
                    raise DataError("the index names a file twice", file=path, row=row, found=name)
                known.add(name)
        return shards

    def _fetch_index(self, path: str) -> None:
        url, limits = f"{self.remote.url}/{_INDEX}", self.remote.limits
        store, place = resolve(url, self.remote.stores)
        try:
            size = store.head(place).size_bytes
        except NotFound as error:
            raise SourceNotFound("there is no index", file=url) from error
        refuse_unfinished(store, place.removesuffix(f"/{_INDEX}"))
        if size > limits.index_bytes:
            raise limits.exceeded("index_bytes", "the index is too large", file=url, found=size)
        Remote(self.remote.url, self.remote.stores).download(FileInfo(_INDEX, size, {}), path)

    @property
    def size(self) -> int:
        """Number of samples."""
        return len(self)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        """Return samples as `MDSShard` does, by their numbers in the dataset."""
        return items_at(self, index, self.get_item)

    def get_item(self, sample_id: int) -> dict[str, Any]:
        """Return one sample; its shard is fetched if it is missing."""
        if not 0 <= sample_id < len(self):
            raise IndexError(f"sample {sample_id} of {len(self)}")
        number = bisect_right(self._ends, sample_id)
        with self._lock:
            self._open[number] = None
            self._open.move_to_end(number)
            oldest = self._open.popitem(last=False)[0] if len(self._open) > _OPEN_SHARDS else None
        if oldest is not None:
            self.shards[oldest].close()
        shard = self.shards[number]
        return shard.get_item(sample_id - self._ends[number] + shard.samples)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for shard in self.shards:
            yield from shard
            shard.close()

    def prepare_shard(self, shard: MDSShard) -> int:
        """Fetch and unpack the missing files of a shard; return the change of bytes in the folder."""
        return shard.prepare()

    def listing(self) -> set[str]:
        """Return the paths of all files below the folder, as `set_up_local` takes them."""
        top = os.path.join(self.dirname, self.split)
        return {os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names}

    def close(self) -> None:
        """Close the open files of the shards; they open again when they are needed."""
        for shard in self.shards:
            shard.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
