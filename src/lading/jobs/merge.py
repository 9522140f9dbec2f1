"""Merge: what many writers made in one folder becomes one dataset. No shard is read or moved."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lading import manifest as mf
from lading.errors import DestinationExists, SourceNotFound
from lading.formats.mds import merge_indexes
from lading.formats.protocol import ShardFacts
from lading.formats.registry import get_format
from lading.limits import DEFAULT_LIMITS, Limits
from lading.manifest import Manifest
from lading.manifest_files import load_manifest, save_manifest
from lading.store.checksum import file_checksums
from lading.store.open import Stores, resolve
from lading.store.protocol import Store

__all__ = ["MergeSummary", "merge"]

_INDEX = "index.json"
_MANIFEST = f"{mf.FOLDER}/{mf.MANIFEST_NAME}"
_RANK = re.compile(rf"{mf.FOLDER}/\d+/{re.escape(mf.MANIFEST_NAME)}")


@dataclass(frozen=True, slots=True)
class MergeSummary:
    """What merging did.

    Attributes:
        folder: where it all lies.
        parts: datasets that became one.
        shards: shards in all.
        samples: samples in all.
        written: files that were written, by their paths below the folder.
    """

    folder: str
    parts: int
    shards: int
    samples: int
    written: tuple[str, ...]


def merge(
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    stores: Stores | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> MergeSummary:
    """Make one dataset of what lies in a folder: the parts of many ranks, or datasets in folders below it.

    Parts are taken in the order of their ranks, or of their folders' names. Of datasets that lading wrote a manifest is
    made, and the index of their format; of MDS datasets by others an `index.json`. Shards stay where they are.

    Args:
        folder: the folder, a path or URL.
        overwrite: replace a manifest or index in the folder itself.
        stores: which store serves which URL.
        limits: on the size of manifests and indexes, as `lading.open` takes them.

    Raises:
        SourceNotFound: nothing in the folder is a part of a dataset.
        DestinationExists: the folder has a manifest or index of its own already.
        SchemaMismatch: the parts differ in format, view or options.
        DataError: a part is broken.
    """
    store, path = resolve(os.fspath(folder).rstrip("/"), stores or Stores())
    below = [info.path[len(path) + 1 :] for info in store.walk(path)]
    ranks = sorted(filter(_RANK.fullmatch, below))
    own = {name.removesuffix(f"/{_MANIFEST}") for name in below if name.endswith(f"/{_MANIFEST}")}
    indexed = {name.removesuffix(f"/{_INDEX}") for name in below if name.endswith(f"/{_INDEX}")}
    parts_of_parts = {name for name in own | indexed if _ancestors(name) & (own | indexed)}
    own, indexed = own - parts_of_parts, indexed - parts_of_parts
    _refuse_existing(path, below, overwrite=overwrite)
    if ranks:
        parts = [_part(store, path, "", name.removesuffix(f"/{mf.MANIFEST_NAME}"), limits) for name in ranks]
        return _merge_manifests(store, path, parts)
    if own and indexed <= own:
        return _merge_manifests(store, path, [_part(store, path, f"{name}/", None, limits) for name in sorted(own)])
    if not indexed:
        raise SourceNotFound("the folder holds no parts of a dataset", file=path,
                             expected="ranks, or datasets in folders of their own")  # fmt: skip
    count, samples = merge_indexes(store, path, sorted(indexed), limits)
    return MergeSummary(path, len(indexed), count, samples, (_INDEX,))


def _ancestors(name: str) -> set[str]:
    """The folders above a folder: what was merged there has its shards already."""
    words = name.split("/")
    return {"/".join(words[:count]) for count in range(1, len(words))}


def _refuse_existing(path: str, below: Sequence[str], *, overwrite: bool) -> None:
    found = [name for name in (_MANIFEST, _INDEX) if name in below]
    if found and not overwrite:
        raise DestinationExists("the folder has one of its own already", file=path, found=", ".join(found),
                                advice="Replace it with --overwrite.")  # fmt: skip


def _part(store: Store, path: str, prefix: str, rank_folder: str | None, limits: Limits) -> tuple[Manifest, pa.Table]:
    """A part's manifest, and its shards by their paths below the folder."""
    place = f"{path}/{prefix}".rstrip("/")
    found = load_manifest(store, place, own=rank_folder, limits=limits)
    assert found is not None, "it was listed just now"
    return mf.seen_from(prefix, found)


def _merge_manifests(store: Store, path: str, parts: Sequence[tuple[Manifest, pa.Table]]) -> MergeSummary:
    manifest, shards = mf.merge(parts)
    facts = [(f"{path}/{row['path']}", ShardFacts.of(row)) for row in shards.to_pylist()]
    made = get_format(manifest.format).write_sidecars(store, path, facts)
    files = {**manifest.files, **file_checksums(store, path, made)}
    sidecars = tuple(name.removeprefix(f"{path}/") for name in made)
    save_manifest(store, path, replace(manifest, rank=None, sidecars=sidecars, files=files), shards)
    return MergeSummary(path, len(parts), manifest.num_shards, manifest.num_samples, (*sidecars, _MANIFEST))
