"""The peers' own indexes of a dataset, compared with its shards and its manifest."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from lading._core.codecs import new_hash
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.source import read_head
from lading._core.formats.dataset_index import ListedFile, ListedShard
from lading._core.formats.registry import all_formats, get_format
from lading._core.manifest.values import FOLDER
from lading._core.storage.stores import Stores, resolve
from lading.errors import DataError, LadingError, NotFound, SidecarMismatch, StoreError, errors_at

__all__ = ["Indexes"]

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Index:
    """An index file.

    Attributes:
        listed: the shards that it lists, in its order.
        numbers: by the path of each of their files, the number of the shard.
        folders: the folders of these files; of a list in `other_names` also the folder of the dataset.
    """

    listed: Sequence[ListedShard]
    numbers: Mapping[str, int]
    folders: frozenset[str]

    @classmethod
    def of(cls, listed: Sequence[ListedShard], *folders: str) -> _Index:
        paths = [
            (number, path) for number, one in enumerate(listed) for path in (one.path, *(f.path for f in one.beside))
        ]
        numbers = {path: number for number, path in paths}
        return cls(listed, numbers, frozenset([*folders, *map(posixpath.dirname, numbers)]))

    def shard(self, path: str) -> ListedShard | None:
        """Return the shard that a file is of; None if it is not listed."""
        return self.listed[self.numbers[path]] if path in self.numbers else None


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of a dataset, by their paths. Memory: some kB a shard.

    Attributes:
        own: indexes by which a dataset is opened.
        others: lists that a peer's readers need and by which no dataset is opened (`DatasetIndex.other_names`).
        findings: problems of the indexes themselves, and where they contradict the manifest.
    """

    own: dict[str, _Index] = field(default_factory=dict)
    others: dict[str, _Index] = field(default_factory=dict)
    findings: list[LadingError] = field(default_factory=list)

    @classmethod
    def of(cls, dataset: Shards, stores: Stores) -> Indexes:
        """Read the index by which a dataset was opened; of a folder, the indexes in it.

        Raises:
            StoreError: the store failed.
        """
        found = cls()
        for url, expected in _places(dataset).items():
            found._read(dataset, url, stores, expected=expected)
        folder = dataset.listing.folder
        for name in get_format(dataset.format).index.other_names if folder is not None else ():
            found._read_other(dataset, f"{folder}/{name}", stores)
        return found

    def _read(self, dataset: Shards, url: str, stores: Stores, *, expected: bool) -> None:
        """Read an index; `expected` if the manifest or the user names it."""
        fmt = get_format(dataset.format)
        store, path = resolve(url, stores)
        try:
            listed = fmt.index.shards(store, path, read_head(store, path), dataset.limits)
        except NotFound:
            if expected:
                self.findings.append(SidecarMismatch(
                    "the manifest names an index that is missing", file=path,
                    expected=f"the file, as {dataset.listing.folder}/{FOLDER} has it",
                ))  # fmt: skip
            return
        except LadingError as error:
            self.findings.append(error.at(file=path))
            return
        if listed is None:
            return
        index = self.own[path] = _Index.of(listed)
        try:
            for finding in fmt.index.checks(store, path, [shard.path for shard in listed], dataset.limits):
                self.findings.extend([] if finding.error is None else [finding.error])
        except (DataError, StoreError) as error:
            self.findings.append(error.at(file=path))
        if dataset.manifest is not None or dataset.listing.index_file is None:
            self.findings.extend(_compare(dataset, path, index))

    def _read_other(self, dataset: Shards, url: str, stores: Stores) -> None:
        """Read a list by which no dataset is opened."""
        store, path = resolve(url, stores)
        try:
            listed = get_format(dataset.format).index.shards(store, path, b"", dataset.limits)
        except NotFound:
            return
        except LadingError as error:
            self.findings.append(error.at(file=path))
            return
        index = self.others[path] = _Index.of(listed or (), str(dataset.listing.folder))
        if dataset.listing.split_list is None:  # else others are of other splits, or are excluded
            self.findings.extend(_missing_shards(dataset, path, index))

    def check_files(self, dataset: Shards, number: int, stores: Stores, *, hashes: bool = True) -> set[str]:
        """Compare the files of a shard with the sizes in indexes, and with the `hashes`; return what was compared.

        Raises:
            SidecarMismatch: one differs; names the file, and the index.
            NotFound: a file of the shard is missing.
        """
        path, checked = dataset.path(number), set[str]()
        for place, index in self.own.items():
            shard = index.shard(path)
            if shard is not None:
                own = ListedFile(shard.path, shard.size_bytes, shard.hashes, needed=shard.path == path)
                for file in (own, *shard.beside):
                    checked |= _check_file(file if hashes else replace(file, hashes={}), place, stores)
        listed = dataset.listing.value("hashes", number)
        if listed and hashes and not self.own:  # a list of indexes
            checked |= _check_file(ListedFile(path, None, orjson.loads(listed), needed=True), "its index", stores)
        return checked

    def check_counts(self, dataset: Shards, number: int, samples: int) -> Iterator[LadingError]:
        """Yield wrong numbers of samples in indexes, and lists that lack a shard; opening a dataset reports the others.

        Indexes count rows of the format. Where samples are other things (items of several rows, joined pieces), counts
        are compared if the format counts again.
        """
        path, fmt = dataset.path(number), get_format(dataset.format)
        as_rows = not dataset.has_items and not dataset.format_options.get("regroup")
        opened_by = dataset.manifest is not None or (as_rows and dataset.listing.index_file is not None)
        own = {} if opened_by else self.own
        if not own and not self.others:
            return
        some = dataset.listing.split_list is not None and dataset.source(number).entry  # which leaves samples out
        counted = samples if as_rows and not some else fmt.index.count(dataset.source(number), dataset.read_options)
        if counted is None:
            return
        for place, index in (*own.items(), *self.others.items()):
            shard = index.shard(path)
            if shard is not None and shard.num_samples not in (None, counted):
                yield _miscounts(place, path, counted, shard.num_samples)
            if shard is None and place in self.others and counted and posixpath.dirname(path) in index.folders:
                yield _lacks(place, path)


def _places(dataset: Shards) -> dict[str, bool]:
    """Return where indexes may lie, and whether the manifest or the user names them."""
    names = get_format(dataset.format).index.names
    if dataset.listing.index_file is not None:
        return {dataset.listing.index_file: True}
    if dataset.listing.folder is None:
        return {}
    if dataset.manifest is None:  # an index that lists the shards of this format would have been opened
        places = dict.fromkeys(sorted({n for f in all_formats() for n in f.index.names} - {*names}), False)
    else:
        places = {**dict.fromkeys(names, False), **dict.fromkeys(dataset.manifest.sidecars, True)}
    return {f"{dataset.listing.folder}/{name}": expected for name, expected in places.items()}


def _compare(dataset: Shards, path: str, index: _Index) -> Iterator[LadingError]:
    """Yield shards, counts and an order in an index that differ from those of the manifest, or of the folder."""
    manifest = f"{dataset.listing.folder}/{FOLDER}" if dataset.manifest is not None else None
    as_listed = "" if manifest is None else f", as {manifest} has it"
    ours = dataset.listing.table
    order = [index.numbers[shard] for shard in ours["path"].to_pylist() if shard in index.numbers]
    yield from _missing_shards(dataset, path, index, "" if manifest is None else f", which is missing in {manifest}")
    for shard, count in zip(ours["path"].to_pylist(), ours["num_samples"].to_pylist(), strict=True):
        listed = index.shard(shard)
        if listed is not None and None not in (listed.num_samples, count) and listed.num_samples != count:
            yield _miscounts(path, shard, f"{count}{as_listed}", listed.num_samples)
        if listed is None and (manifest is not None or posixpath.dirname(shard) in index.folders):
            yield _lacks(path, f"{shard}{as_listed}")
    if manifest is not None and order != sorted(order):
        yield SidecarMismatch("the index has the shards in another order than the manifest", file=path,
                              expected=f"the order of {manifest}")  # fmt: skip


def _missing_shards(dataset: Shards, path: str, index: _Index, why: str = "") -> Iterator[LadingError]:
    """Yield the shards that an index lists, and the dataset does not have."""
    present = {index.numbers.get(shard) for shard in dataset.listing.table["path"].to_pylist()}
    for number, shard in enumerate(index.listed):
        if number not in present:
            yield SidecarMismatch("the index lists a shard that the dataset lacks", file=path,
                                  found=f"{shard.path}{why}")  # fmt: skip


def _lacks(index: str, shard: str) -> LadingError:
    return SidecarMismatch("the index lacks a shard of the dataset", file=index, expected=shard)


def _miscounts(index: str, shard: str, expected: object, found: object) -> LadingError:
    return SidecarMismatch(f"the index has another number of samples for {shard}", file=index, expected=expected,
                           found=found)  # fmt: skip


def _check_file(file: ListedFile, index: str, stores: Stores) -> set[str]:
    """Compare a file with the size and the hashes in an index; return what was compared.

    Raises:
        SidecarMismatch: it differs. NotFound: it is missing, and needed.
        DataError: the hash algorithm is unknown.
    """
    store, path = resolve(file.path, stores)
    try:
        size = store.head(path).size_bytes
    except NotFound:
        if file.needed:
            raise
        return set()
    if file.size_bytes not in (None, size):
        raise SidecarMismatch(f"the size differs from what {index} says", file=path,
                              expected=f"{file.size_bytes} bytes", found=f"{size} bytes")  # fmt: skip
    with errors_at(file=path):
        hashes = {algorithm: new_hash(algorithm) for algorithm in file.hashes}
    for at in range(0, size, _CHUNK_BYTES) if hashes else ():
        [data] = store.get_ranges(path, [(at, min(_CHUNK_BYTES, size - at))])
        for hasher in hashes.values():
            hasher.update(data)
    for algorithm, hasher in hashes.items():
        if hasher.hexdigest() != file.hashes[algorithm]:
            raise SidecarMismatch(f"the {algorithm} of the file differs from what {index} says", file=path,
                                  expected=file.hashes[algorithm], found=hasher.hexdigest())  # fmt: skip
    return {word for word, compared in (("sizes", file.size_bytes is not None), ("hashes", hashes)) if compared}
