"""Files that lading wrote, compared with their checksums in the manifest."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.dataset.shards.shards import Shards
from lading._core.features.items import KEY
from lading._core.jobs.salvage.damage import FileExtents, file_extents
from lading._core.manifest.files import ShardTables
from lading._core.manifest.values import FOLDER
from lading._core.storage.checksum import file_checksum
from lading._core.storage.extents import NO_ROWS
from lading._core.storage.stores import Stores, resolve
from lading._core.units import count
from lading.errors import DataError, LadingError, SidecarMismatch, StoreError

__all__ = ["CheckedShard", "check_own_files", "check_shard"]


def check_own_files(dataset: Shards, stores: Stores) -> list[LadingError] | None:
    """Return damage of the list of shards, index files and sidecars; None if the manifest has no checksums of them."""
    folder = dataset.listing.own
    if dataset.manifest is None or folder is None or not dataset.manifest.files:
        return None
    files = {f"{folder}/{name}": checksum for name, checksum in dataset.manifest.files.items()}
    return list(_differing(files, folder, stores))


@dataclass(frozen=True, slots=True)
class CheckedShard:
    """A shard whose files were compared with their checksums.

    Attributes:
        errors: damage of its files, one error for each damaged sample.
        more: number of further damaged samples.
        files: its files with extents in the manifest, if any file differs; empty if the extents cannot be read.
    """

    errors: Sequence[LadingError]
    more: int = 0
    files: Sequence[FileExtents] = ()


def check_shard(
    kept: ShardTables, number: int, stores: Stores, most: int, *, end_as_one: bool = False
) -> CheckedShard | None:
    """Compare the files of a shard with their checksums; return None if there are none.

    Args:
        kept: the manifest's tables of shards.
        number: number of the shard.
        stores: which store serves which URL.
        most: maximum of errors for samples; damaged files without one add one each. A missing file is one error.
        end_as_one: give one error for all samples behind the end of a file that was cut off.
    """
    row = kept.shards.slice(number, 1).to_pylist()[0]
    if row["xxh3"] is None:
        return None
    path = kept.path(number)
    beside = {posixpath.join(posixpath.dirname(path), file["name"]): file["xxh3"] for file in row["beside_xxh3"] or ()}
    files = {error.file: error for error in _differing({path: row["xxh3"], **beside}, kept.folder, stores)}
    if not files:
        return CheckedShard([])
    try:
        extents = list(file_extents(kept, number, stores))
    except LadingError as error:
        return CheckedShard([*files.values(), error])
    keys = _keys(kept, number, np.concatenate([np.zeros(0, np.int64), *map(_rows_alone, extents)])[:most])
    found: list[LadingError] = []
    more = 0
    for file in extents:
        if file.info is None:
            continue
        ends = file.begin[file.lost] + file.extents["size_bytes"].to_numpy()[file.lost]
        is_gone = (ends > file.info.size_bytes) & end_as_one
        lost, gone = file.lost[~is_gone], file.lost[is_gone]
        damaged = [_damaged(file, one, keys) for one in lost[: most - len(found)].tolist()]
        damaged += [_cut_off(file, gone, keys)] if len(gone) else []
        found += damaged
        more += len(lost) + bool(len(gone)) - len(damaged)
        if damaged:
            files.pop(file.path, None)
    return CheckedShard([*found, *files.values()], more, extents)


def _damaged(file: FileExtents, one: int, keys: Mapping[int, str]) -> LadingError:
    """Return the error of a damaged extent; `keys` are those of rows with an extent of their own."""
    extent = file.extents.slice(one, 1).to_pylist()[0]
    first, last = extent["first_row"], extent["last_row"]
    what = "bytes outside of rows differ" if first == NO_ROWS else "a row differs"
    if last > first:
        what = f"one or more of the rows {first} to {last} differ"
    begin, size = int(file.begin[one]), file.info.size_bytes if file.info is not None else 0
    return SidecarMismatch(
        f"{what} from the checksum", file=file.path, offset=begin, row=None if first == NO_ROWS else first,
        sample=keys.get(first) if first == last else None,
        expected=f"{extent['size_bytes']} bytes with xxh3 {extent['xxh3']:016x}",
        found=f"xxh3 {file.sums[one]:016x}" if begin + extent["size_bytes"] <= size else f"a file of {size} bytes",
        advice="The file was changed or damaged after it was written.",
    )  # fmt: skip


def _cut_off(file: FileExtents, gone: NDArray[np.int64], keys: Mapping[int, str]) -> LadingError:
    """Return the one error of all extents behind the end of a file."""
    assert file.info is not None, "it is there"
    extents = file.extents.take(pa.array(gone))
    with_rows = extents.filter(pa.array(extents["first_row"].to_numpy() != NO_ROWS))
    first, last = with_rows["first_row"].to_numpy(), with_rows["last_row"].to_numpy()
    row = int(first.min()) if len(first) else None
    lacks = f"the end of the file is missing, with {count(int((last - first + 1).sum()), 'row')}"
    end = int((file.begin[gone] + extents["size_bytes"].to_numpy()).max())
    return SidecarMismatch(
        lacks if len(first) else "the end of the file is missing", file=file.path, offset=file.info.size_bytes,
        row=row, sample=None if row is None else keys.get(row), expected=f"{end} bytes",
        found=f"{file.info.size_bytes} bytes", advice="The file was changed or damaged after it was written.",
    )  # fmt: skip


def _rows_alone(file: FileExtents) -> NDArray[np.int64]:
    """Return the damaged rows that have an extent of their own."""
    first, last = (file.extents[name].to_numpy()[file.lost] for name in ("first_row", "last_row"))
    rows: NDArray[np.int64] = first[(first == last) & (first != NO_ROWS)]
    return rows


def _keys(kept: ShardTables, number: int, rows: NDArray[np.int64]) -> dict[int, str]:
    """Return the keys of samples by row, where the index of the shard has keys."""
    index = None
    if len(rows):
        with suppress(DataError, StoreError):  # the comparison of the index file reports it
            index = kept.index(number)
    if index is None or KEY not in index.schema.names:
        return {}
    rows = rows[rows < len(index)]
    return dict(zip(rows.tolist(), index[KEY].take(pa.array(rows)).to_pylist(), strict=True))


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
                found=f"xxh3 {found}", advice="The file was changed or damaged after it was written.",
            )  # fmt: skip
