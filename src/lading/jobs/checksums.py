"""Files that lading wrote, held against their checksums in the manifest."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

import pyarrow as pa

from lading.dataset import Dataset
from lading.errors import LadingError, SidecarMismatch
from lading.manifest import FOLDER
from lading.store.checksum import file_checksum
from lading.store.open import Stores, resolve

__all__ = ["check_own_files", "check_shard", "check_shard_files"]


def check_own_files(dataset: Dataset, stores: Stores) -> list[LadingError] | None:
    """What is wrong with list of shards, index files and sidecars; None if the manifest has no checksums of them."""
    if dataset.manifest is None or dataset.listing.folder is None or not dataset.manifest.files:
        return None
    folder = dataset.listing.folder
    files = {f"{folder}/{name}": taken for name, taken in dataset.manifest.files.items()}
    return list(_differing(files, folder, stores))


def check_shard(dataset: Dataset, number: int, stores: Stores) -> list[LadingError] | None:
    """What is wrong with the files of a shard; None if the manifest has no checksums of them."""
    kept, folder = dataset.kept_shards, dataset.listing.folder
    return None if kept is None or folder is None else check_shard_files(kept, folder, number, stores)


def check_shard_files(kept: pa.Table, folder: str, number: int, stores: Stores) -> list[LadingError] | None:
    """What is wrong with the files of a shard, as the manifest of a folder lists it; None if it has no checksums."""
    row = kept.slice(number, 1).to_pylist()[0]
    if row.get("xxh3") is None:
        return None
    path = f"{folder}/{row['path']}"
    beside = {posixpath.join(posixpath.dirname(path), told["name"]): told["xxh3"] for told in row["beside_xxh3"] or ()}
    return list(_differing({path: row["xxh3"], **beside}, folder, stores))


def _differing(files: Mapping[str, str], folder: str, stores: Stores) -> Iterator[LadingError]:
    for path, expected in files.items():
        store, name = resolve(path, stores)
        try:
            found = file_checksum(store, store.head(name))
        except LadingError as error:
            yield error.at(file=path)
            continue
        if found != expected:
            yield SidecarMismatch(
                f"the file differs from its checksum in {folder}/{FOLDER}", file=path, expected=f"xxh3 {expected}",
                found=f"xxh3 {found}", advice="The file was changed or damaged since it was written.",
            )  # fmt: skip
