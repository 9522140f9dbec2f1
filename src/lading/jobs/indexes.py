"""The peers' own indexes of a dataset, held against its shards and its manifest."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lading.codecs import new_hash
from lading.dataset.shards import Shards
from lading.dataset.source import read_head
from lading.errors import DataError, LadingError, NotFound, SidecarMismatch, StoreError, errors_at
from lading.formats.base import ClaimsColumns, ListedElsewhere, ListedFile, ListedShard
from lading.formats.registry import all_formats, get_format
from lading.manifest.values import FOLDER
from lading.storage.base import Store
from lading.storage.stores import Stores, resolve

__all__ = ["Indexes", "check_file"]

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class OtherList:
    """A list that a peer keeps of a folder.

    Attributes:
        samples: by the path of a shard, how many there are in it.
        folders: where the shards lie; the folder itself, too.
    """

    samples: Mapping[str, int | None]
    folders: frozenset[str]


@dataclass(frozen=True, slots=True)
class Indexes:
    """What a dataset's own indexes list.

    Attributes:
        shards: by the path of an index, and of each file of a shard: the shard. Some kB a shard.
        findings: what is wrong with the indexes themselves, and where they disagree with the manifest.
        others: by path, the lists that peers keep and that no folder is opened by (`ListedElsewhere`).
    """

    shards: Mapping[str, Mapping[str, ListedShard]] = field(default_factory=dict)
    findings: list[LadingError] = field(default_factory=list)
    others: Mapping[str, OtherList] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Shards, stores: Stores) -> Indexes:
        """The index by which a dataset was opened; of a folder those that lie in it.

        Raises:
            StoreError: the store failed.
        """
        shards: dict[str, Mapping[str, ListedShard]] = {}
        findings: list[LadingError] = []
        for url, promised in _places(dataset).items():
            store, path = resolve(url, stores)
            try:
                listed = get_format(dataset.format).list_shards(store, path, read_head(store, path), dataset.limits)
            except NotFound:
                findings += [_missing(dataset, path)] if promised else []
                continue
            except LadingError as error:
                findings.append(error.at(file=path))
                continue
            if listed is not None:
                findings += _false_columns(dataset, store, path, listed)
                shards[path] = {file: shard for shard in listed for file in _paths(shard)}
                if dataset.manifest is not None:
                    findings += _disagreements(dataset, path, listed)
                elif dataset.listing.index_file is None:
                    findings += [*_strangers(dataset, path, listed), *_lacking(dataset, path, listed)]
        return cls(shards, findings, _other_lists(dataset, stores, findings))

    def check(self, path: str, stores: Stores) -> set[str]:
        """Hold the files of a shard against sizes and hashes that indexes say; give what there was: sizes, hashes.

        Raises:
            SidecarMismatch: one differs; names the file, and the index.
            NotFound: a file of the shard is missing.
        """
        checked: set[str] = set()
        for index, shards in self.shards.items():
            shard = shards.get(path)
            if shard is not None:
                for file in _files(shard, path):
                    checked |= check_file(file, f"what {index} says", stores)
        return checked

    def wrong_counts(self, path: str, samples: int) -> Iterator[LadingError]:
        """What indexes say wrongly of the number of samples in a shard."""
        for index, shards in self.shards.items():
            told = shards[path].num_samples if path in shards else None
            if told not in (None, samples):
                yield SidecarMismatch(f"the index has another number of samples than {path}", file=index,
                                      expected=samples, found=told)  # fmt: skip

    def others_wrong(self, path: str, samples: int) -> Iterator[LadingError]:
        """What the lists that peers keep say wrongly of a shard of so many samples, as these lists count them."""
        for index, other in self.others.items():
            told = other.samples.get(path)
            if path not in other.samples and samples and posixpath.dirname(path) in other.folders:
                yield _lacks(index, path)
            elif told not in (None, samples):
                yield SidecarMismatch(f"the index has another number of samples than {path}", file=index,
                                      expected=samples, found=told)  # fmt: skip


def _other_lists(dataset: Shards, stores: Stores, findings: list[LadingError]) -> Mapping[str, OtherList]:
    """The lists that peers keep of a folder, by path; what is wrong with them is added to the findings."""
    fmt, folder, found = get_format(dataset.format), dataset.listing.folder, dict[str, OtherList]()
    if folder is None or not isinstance(fmt, ListedElsewhere):
        return found
    for name in fmt.info.other_indexes:
        store, path = resolve(f"{folder}/{name}", stores)
        try:
            listed = fmt.list_other(store, path, dataset.limits)
        except NotFound:
            continue
        except LadingError as error:
            findings.append(error.at(file=path))
            continue
        folders = frozenset([folder, *(posixpath.dirname(shard.path) for shard in listed)])
        found[path] = OtherList({shard.path: shard.num_samples for shard in listed}, folders)
        findings += _strangers(dataset, path, listed)
    return found


def _places(dataset: Shards) -> dict[str, bool]:
    """Where indexes may lie, and whether something says that they do."""
    if dataset.listing.index_file is not None:
        return {dataset.listing.index_file: True}
    if dataset.listing.folder is None:
        return {}
    if dataset.manifest is None:  # the index of such a format as lists its shards itself would have been opened
        others = {name for known in all_formats() for name in known.info.index_names} - {
            *get_format(dataset.format).info.index_names
        }
        return {f"{dataset.listing.folder}/{name}": False for name in sorted(others)}
    usual = dict.fromkeys(get_format(dataset.format).info.index_names, False)
    names = {**usual, **dict.fromkeys(dataset.manifest.sidecars, True)}
    return {f"{dataset.listing.folder}/{name}": promised for name, promised in names.items()}


def _false_columns(dataset: Shards, store: Store, index: str, listed: Sequence[ListedShard]) -> Sequence[LadingError]:
    """Where an index tells other columns than shards have."""
    fmt, shards = get_format(dataset.format), [shard.path for shard in listed]
    try:
        return fmt.false_columns(store, index, shards, dataset.limits) if isinstance(fmt, ClaimsColumns) else ()
    except (DataError, StoreError) as error:
        return [error.at(file=index)]


def _paths(shard: ListedShard) -> list[str]:
    return [shard.path, *(file.path for file in shard.beside)]


def _files(shard: ListedShard, opened: str) -> Iterator[ListedFile]:
    """The files of a shard; `opened` is the one that stands for it."""
    yield ListedFile(shard.path, shard.size_bytes, shard.hashes, needed=shard.path == opened)
    yield from shard.beside


def _missing(dataset: Shards, index: str) -> LadingError:
    return SidecarMismatch("an index is missing that the manifest names", file=index,
                           expected=f"the file, as {dataset.listing.folder}/{FOLDER} has it")  # fmt: skip


def _strangers(dataset: Shards, index: str, listed: list[ListedShard]) -> Iterator[LadingError]:
    """The shards that an index lists and its folder does not hold."""
    there = {*dataset.listing.table["path"].to_pylist()}
    for shard in listed:
        if shard.path not in there:
            yield SidecarMismatch("the index lists a shard that is not there", file=index, found=shard.path)


def _lacking(dataset: Shards, index: str, listed: list[ListedShard]) -> Iterator[LadingError]:
    """The shards of a folder that its index does not list, though they lie where others do that it lists."""
    known = {file for shard in listed for file in _paths(shard)}
    folders = {posixpath.dirname(path) for path in known}
    for path in dataset.listing.table["path"].to_pylist():
        if path not in known and posixpath.dirname(path) in folders:
            yield _lacks(index, path)


def _lacks(index: str, shard: str) -> LadingError:
    return SidecarMismatch("the index lacks a shard that lies among those that it lists", file=index, expected=shard)


def _disagreements(dataset: Shards, index: str, listed: list[ListedShard]) -> Iterator[LadingError]:
    """Where an index lists other shards than the manifest does, other sizes of them, or another order."""
    manifest = f"{dataset.listing.folder}/{FOLDER}"
    place = {path: number for number, shard in enumerate(listed) for path in _paths(shard)}
    ours = dataset.listing.table.to_pydict()
    seen: list[int] = []
    for path, count in zip(ours["path"], ours["num_samples"], strict=True):
        number = place.get(path)
        if number is None:
            yield SidecarMismatch("the index lacks a shard that the manifest lists", file=index,
                                  expected=f"{path}, as {manifest} has it")  # fmt: skip
            continue
        seen.append(number)
        told = listed[number].num_samples
        if None not in (told, count) and told != count:
            yield SidecarMismatch(f"the index has another number of samples than the manifest for {path}", file=index,
                                  expected=f"{count}, as {manifest} has it", found=told)  # fmt: skip
    for number in sorted({*range(len(listed))} - {*seen}):
        yield SidecarMismatch("the index lists a shard that the manifest lacks", file=index,
                              found=f"{listed[number].path}, which {manifest} does not have")  # fmt: skip
    if seen != sorted(seen):
        yield SidecarMismatch("the index has the shards in another order than the manifest", file=index,
                              expected=f"the order of {manifest}")  # fmt: skip


def check_file(file: ListedFile, said: str, stores: Stores) -> set[str]:
    """Hold a file against size and hashes that somebody says; give what there was: sizes, hashes.

    Raises:
        SidecarMismatch: it differs. NotFound: it is missing, and needed.
        DataError: nobody knows the hash.
    """
    store, path = resolve(file.path, stores)
    try:
        size = store.head(path).size_bytes
    except NotFound:
        if file.needed:
            raise
        return set()
    if file.size_bytes not in (None, size):
        raise SidecarMismatch(f"the size differs from {said}", file=path, expected=f"{file.size_bytes} bytes",
                              found=f"{size} bytes")  # fmt: skip
    with errors_at(file=path):
        hashes = {algorithm: new_hash(algorithm) for algorithm in file.hashes}
    for at in range(0, size, _CHUNK_BYTES) if hashes else ():
        [data] = store.get_ranges(path, [(at, min(_CHUNK_BYTES, size - at))])
        for taken in hashes.values():
            taken.update(data)
    for algorithm, taken in hashes.items():
        if taken.hexdigest() != file.hashes[algorithm]:
            raise SidecarMismatch(f"the {algorithm} of the file differs from {said}", file=path,
                                  expected=file.hashes[algorithm], found=taken.hexdigest())  # fmt: skip
    return {word for word, there in (("sizes", file.size_bytes is not None), ("hashes", hashes)) if there}
