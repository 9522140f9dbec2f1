"""Group loose files into samples, and samples into shards: slices of the listing of a folder.

A shard is no file here. Its entry (`ListedShard.entry`) holds the names, sizes and versions of its files, so that a
worker reads its slice without another look at the folder.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import orjson

from lading._core.features.items import KEY, split_rows
from lading._core.features.types import feature_of_extension
from lading._core.formats.dataset_index import ListedShard
from lading._core.storage.base import FileInfo
from lading.errors import DuplicateField, StoreError, UsageError

__all__ = ["LABEL", "METADATA_NAMES", "ListingSlice", "holds_media", "list_files"]

METADATA_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Tables of further columns, by `file_name`, as Hugging Face's folders of images and audio have them."""

LABEL = "label"
"""Column of the names of folders."""

_SHARD_ROWS, _SHARD_BYTES = 1024, 64 << 20
_MOST_FIELDS = 1000
_OF_PROGRAMS = ("Thumbs.db", "desktop.ini")
_OF_PEOPLE = re.compile(r"(?i)(?:readme|license|licence|citation|changelog)(?:\.\w+)?")


@dataclass(frozen=True, slots=True)
class ListingSlice:
    """A slice of a folder's listing.

    Attributes:
        root: the folder, with a slash at its end; empty for the current one.
        columns: the fields of all samples of the folder.
        media: name of the one column of media, if each sample of the folder is one such file; else empty.
        labels: names of the folders that files lie in, sorted, if the folder looks like one of labelled media.
        folders: names of all folders that files lie in, sorted.
        metadata: tables of further columns, each with its size and version.
        keys: of the samples.
        sample, field: number of the sample and of the column of each file.
        names: of the files, below the root.
        sizes, versions: of the files.
    """

    root: str
    columns: Sequence[str]
    media: str
    labels: Sequence[str]
    folders: Sequence[str]
    metadata: Sequence[tuple[str, int, str]]
    keys: Sequence[str]
    sample: Sequence[int]
    field: Sequence[int]
    names: Sequence[str]
    sizes: Sequence[int]
    versions: Sequence[str]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the entry of a text that `text` returned."""
        return cls(**orjson.loads(text))

    def text(self) -> str:
        """Return the entry as JSON. Raises StoreError for a name that is invalid UTF-8."""
        try:
            return orjson.dumps(self).decode()
        except (TypeError, UnicodeEncodeError):
            name = next((name for name in self.names if not _is_text(name)), "")
            raise StoreError("the name of a file is invalid UTF-8", file=f"{self.root}{name!a}",
                             advice="Rename it.") from None  # fmt: skip


def _is_text(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode()


def holds_media(files: Sequence[FileInfo]) -> bool:
    """Whether some files are pictures, sound or videos by their names."""
    return any(_media_kind(info.path) for info in files)


def _media_kind(path: str) -> str:
    """Return `image`, `audio`, `video`, or nothing, by the last extension."""
    feature = feature_of_extension(path)
    return "" if feature is None else feature.medium or ""


@dataclass(slots=True)
class _Found:
    """The files of a folder that belong to samples: name below the folder, key, field, size and version."""

    files: list[tuple[str, str, str, FileInfo]]
    metadata: list[FileInfo]
    left_out: Counter[str]


def list_files(root: str, files: Sequence[FileInfo]) -> tuple[list[ListedShard], Mapping[str, int]]:
    """Return the samples of a folder as shards, and counts of the files that belong to none.

    Args:
        root: the folder, with a slash at its end; empty for the current one.
        files: the files below it, sorted by path, without hidden ones.

    Raises:
        DuplicateField: two names of one sample differ in case only, as in `1.jpg` and `1.JPG`.
        UsageError: the files have too many different fields.
    """
    found = _sorted_out(root, files)
    media, labels = _one_medium(found)
    folders = sorted({os.path.basename(os.path.dirname(name)) for name, *_ in found.files} - {""})
    if media:  # each file is a sample: the last dot ends its key
        found.files = [(name, name.rpartition(".")[0], media, info) for name, _, _, info in found.files]
    columns = list(dict.fromkeys(field for _, _, field, _ in found.files))
    if len(columns) > _MOST_FIELDS:
        raise UsageError("the files have too many different fields", file=root, expected=f"at most {_MOST_FIELDS}",
                         found=f"{len(columns)}: {', '.join(columns[:5])} …",
                         advice="What follows the first dot of a name is its field: "
                         "rename files whose names hold other dots.")  # fmt: skip
    numbers: dict[str, int] = {}
    sample = np.array([numbers.setdefault(key, len(numbers)) for _, key, _, _ in found.files], np.int64)
    order = np.argsort(sample, kind="stable")
    _refuse_duplicates(root, found, order.tolist())
    shared = ListingSlice(root, columns, media, labels, folders,
                   [(i.path, i.size_bytes, i.version) for i in found.metadata],
                   (), (), (), (), (), ())  # fmt: skip
    return _cut(shared, found, list(numbers), sample[order], order), found.left_out


def _sorted_out(root: str, files: Sequence[FileInfo]) -> _Found:
    found = _Found([], [], Counter())
    for info in files:
        name = info.path[len(root) :]
        folder, _, base = name.rpartition("/")
        stem, dot, field = base.partition(".")
        if info.size_bytes < 0:
            found.left_out["no regular files, left out"] += 1
        elif base in METADATA_NAMES:
            found.metadata.append(info)
        elif base in _OF_PROGRAMS or (not folder and _OF_PEOPLE.fullmatch(base)):
            found.left_out["files about the folder (README and the like), left out"] += 1
        elif not stem or not dot or not field:
            found.left_out["files without an extension, left out"] += 1
        elif field.lower() == KEY:
            raise DuplicateField("a file's extension is the name of the key's column", file=info.path, column=KEY)
        else:
            found.files.append((name, name[: len(name) - len(field) - 1], field.lower(), info))
    return found


def _one_medium(found: _Found) -> tuple[str, list[str]]:
    """Return the kind of media that every sample is one file of, and the names of folders that label them.

    Only a folder of labels, or one with metadata, has such samples. Labels follow the rule of Hugging Face's datasets
    (packaged_modules/folder_based_builder): there is no metadata, all files lie at one depth, in more than one folder.
    """
    kinds = {_media_kind(field) for field in {field for _, _, field, _ in found.files}}
    kind = kinds.pop() if len(kinds) == 1 else ""
    alone = len({name.rpartition(".")[0] for name, *_ in found.files}) == len(found.files)
    if not kind or not alone:
        return "", []
    if found.metadata:
        return kind, []
    depths = {name.count("/") for name, *_ in found.files}
    labels = sorted({os.path.basename(os.path.dirname(name)) for name, *_ in found.files})
    return (kind, labels) if len(depths) == 1 and depths != {0} and len(labels) > 1 else ("", [])


def _refuse_duplicates(root: str, found: _Found, order: Sequence[int]) -> None:
    last: dict[str, str] = {}
    key_before = None
    for at in order:
        name, key, field, _ = found.files[at]
        if key != key_before:
            last, key_before = {}, key
        if field in last:
            raise DuplicateField("two files are one field of a sample", file=f"{root}{name}", sample=key,
                                 column=field, found=last[field],
                                 advice="The case of an extension does not count: rename one of them.")  # fmt: skip
        last[field] = name


def _cut(
    shared: ListingSlice, found: _Found, keys: Sequence[str], sample: np.ndarray, order: np.ndarray
) -> list[ListedShard]:
    """Return slices of whole samples of a bounded number and size."""
    number = {name: at for at, name in enumerate(shared.columns)}
    sizes = np.array([found.files[at][3].size_bytes for at in order.tolist()], np.int64)
    starts = np.searchsorted(sample, np.arange(len(keys) + 1))
    of_samples = np.add.reduceat(sizes, starts[:-1]) if len(keys) else np.zeros(0, np.int64)
    bounds = split_rows(np.arange(len(keys)), of_samples, max_bytes=_SHARD_BYTES, max_rows=_SHARD_ROWS).tolist()
    shards = []
    for first, stop in pairwise(bounds):
        mine = slice(int(starts[first]), int(starts[stop]))
        files = [found.files[at] for at in order[mine].tolist()]
        entry = ListingSlice(
            shared.root, shared.columns, shared.media, shared.labels, shared.folders, shared.metadata,
            keys[first:stop], (sample[mine] - first).tolist(), [number[field] for _, _, field, _ in files],
            [name for name, *_ in files], sizes[mine].tolist(), [info.version for *_, info in files],
        )  # fmt: skip
        path, size = files[0][3].path, int(of_samples[first:stop].sum())
        shards.append(ListedShard(path, num_samples=stop - first, size_bytes=size, entry=entry.text()))
    return shards
