"""Shards and a local copy of an MDS dataset, with the names and promises of MosaicML Streaming.

`lading.open` never removes data. A cache folder is different: its shards are fetched from a remote, can be removed, and
files that an interruption left incomplete are cleaned up.

Source: mosaicml-streaming 0.13.0, base/format, base/stream.py and base/local.py.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Self

import orjson

from lading.compat.reader import FileInfo, Reader, entry_arguments
from lading.compat.remote import Remote
from lading.dataset.shards.shard import items_at
from lading.errors import DataError, NotFound, SourceNotFound, UsageError, errors_at
from lading.formats.base import ShardFile, parse_options
from lading.formats.mds.format import Entry, EntryFile, MdsReader, ReadOptions, parse_entry, read_mds_index
from lading.limits import DEFAULT_LIMITS, Limits
from lading.manifest.unfinished import refuse_unfinished
from lading.secret_urls import shown
from lading.storage.local import LocalStore
from lading.storage.roots import real_place
from lading.storage.store_options import with_cache
from lading.storage.stores import Stores, resolve

__all__ = ["FileInfo", "LocalCopy", "MDSReader", "MDSShard", "Reader", "reader_from_json"]

_INDEX = "index.json"
_OPEN_SHARDS = 16
"""Shards of a `LocalCopy` whose files stay open."""
_ENTRY_FIELDS = ("raw_data", "zip_data", "raw_meta", "zip_meta", "format", "column_names", "column_encodings",
                 "column_sizes",
                 "columns", "newline", "separator")  # fmt: skip
"""Fields of a shard's entry in an index that `MDSShard` takes by name. Other fields are ignored."""


class MDSShard(Reader):
    """One shard of MDS in a local folder. Its files may be missing until they are fetched.

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
        remote: Remote | None = None,
        **more: Any,
    ) -> None:
        super().__init__(dirname, split, compression, hashes, samples, size_limit)
        files = {"raw_data": raw_data, "zip_data": zip_data} | {k: more.pop(k, None) for k in ("raw_meta", "zip_meta")}
        fields = {"version": 2, "format": format, "compression": compression, "samples": samples, **more}
        self._text = _entry_text({**fields, **{name: _file_fields(file) for name, file in files.items()}})
        self._limits, self._remote = limits, remote
        self._entry: Entry = parse_entry(self._text, limits)
        entry = self._entry
        pairs = [(entry.raw_meta, entry.packed_meta), (entry.raw, entry.packed)]
        self.file_pairs = [
            (_info(raw), None if packed is None else _info(packed)) for raw, packed in pairs if raw is not None
        ]
        self._options = parse_options("mds", ReadOptions, {"allow_pickle": allow_pickle})
        self._reader: MdsReader | None = None

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
        compression, hashes, samples, size_limit = entry_arguments(obj)
        fields = {name: obj[name] for name in _ENTRY_FIELDS if name in obj}
        raw = fields.pop("raw_data", None)
        return cls(dirname, split, compression, hashes, samples, size_limit, raw_data=raw, **fields, **how)

    def get_sample_data(self, idx: int) -> bytes:
        """Return the bytes of a sample in the unpacked shard.

        Raises:
            NotFound: the shard is missing, unpacked and compressed, and there is no remote.
            IndexError: there is no such sample.
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
                             file=self.path_of(self.file_pairs[-1][0]))  # fmt: skip

    def prepare(self) -> int:
        """Fetch and unpack the files that are missing; return the change of bytes in the folder.

        Reading a sample does the same, if there is a remote. Without a remote, compressed files are unpacked, and stay.

        Raises:
            NotFound: a file is missing, here and in the remote.
            SidecarMismatch: a size or a hash differs from the index. The file is not kept.
        """
        remote, folder = self._remote or Remote(limits=self._limits), os.path.join(self.dirname, self.split)
        return sum(remote.prepare(folder, raw, packed, self._entry.compression) for raw, packed in self.file_pairs)

    def _opened(self) -> MdsReader:
        if self._reader is None:
            if self._remote is not None and self._remote.url is not None:
                self.prepare()
            raw = all(map(os.path.exists, self.paths(packed=False)))
            own, packed = self.file_pairs[-1]
            path = self.path_of(own if raw or packed is None else packed)
            store = LocalStore()
            source = ShardFile(store, path, store.head(path), entry=self._text, limits=self._limits)
            self._reader = MdsReader(source, self._options)
        return self._reader

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open file: another process opens it again."""
        return {**self.__dict__, "_reader": None}

    def __repr__(self) -> str:
        return f"<lading.MDSShard {self.path_of(self.file_pairs[-1][0])}, {self.samples} samples>"


MDSReader = MDSShard
"""The peer's name of `MDSShard`."""

reader_from_json = MDSShard.from_json
"""The peer's name of `MDSShard.from_json`."""


class LocalCopy(Sequence[dict[str, Any]]):
    """A folder with `index.json` and some of its shards: a cache whose shards are fetched, and can be evicted.

    Example:
        copy = lading.LocalCopy("cache", "train", remote="s3://bucket/set")
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
        self.shards = self._listed({"allow_pickle": allow_pickle, "limits": limits, "remote": self.remote})
        self._ends = list(accumulate(shard.samples for shard in self.shards))
        self._open: OrderedDict[int, None] = OrderedDict()

    def _listed(self, how: Mapping[str, Any]) -> list[MDSShard]:
        path, limits, store = os.path.join(self.dirname, self.split, _INDEX), self.remote.limits, LocalStore()
        if self.remote.url is not None and not os.path.exists(path):
            self._fetch_index(path)
        try:
            listed = read_mds_index(store, path, limits)
        except NotFound as error:
            raise SourceNotFound("there is no index", file=path,
                                 advice="Give remote=, the folder or URL of the dataset.") from error  # fmt: skip
        if listed is None:
            raise SourceNotFound("the file is not an index of MDS", file=path)
        with errors_at(file=path):
            shards = [MDSShard.from_json(self.dirname, self.split, orjson.loads(one.entry), **how) for one in listed]
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
        self._open[number] = None
        self._open.move_to_end(number)
        if len(self._open) > _OPEN_SHARDS:
            self.shards[self._open.popitem(last=False)[0]].close()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def _info(file: EntryFile) -> FileInfo:
    return FileInfo(file.name, file.size_bytes, file.hashes)
