"""Find the shards of a damaged source that are sound as they are: any process does it, and nothing is kept on disk.

The process that writes searches the other shards (`_core.jobs.salvage.salvage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lading._core.dataset.query import Query
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.open import counts_hold, shards_of
from lading._core.jobs.convert.schemas import take_files_in
from lading._core.jobs.engine.read_task import NO_DIGESTS, Look, OnRead
from lading._core.jobs.salvage.files import TemporaryFiles
from lading._core.jobs.salvage.shard import ShardReading, sound_samples, wrong_sidecar
from lading._core.jobs.salvage.source import FoundShards, find_shards
from lading._core.jobs.verify.checksums import CheckedShard, check_shard
from lading.errors import suppress_damage

__all__ = ["begin_sound", "is_as_written", "open_found", "open_found_again", "shard_reading"]


def open_found(query: Query) -> tuple[FoundShards, Shards]:
    """Return the shards of a damaged source, as they are listed and ready to be read. No shard is opened.

    Raises as `find_shards`.
    """
    found = find_shards(query.source.names, query.stores, query.read)
    dataset = shards_of(found.listing, found.format, found.manifest, found.kept_shards, read=query.read)
    take_files_in(dataset, query.read.options)
    if found.format.info.presets.read_deep:  # as a deep verification does
        dataset.read_with(found.format.info.presets.read_deep)
    return found, dataset


def open_found_again(query: Query, known: Mapping[str, Any]) -> Shards:
    """Return the same shards in another process, as `engine.read_task.open_again` does for a sound source."""
    _, dataset = open_found(query)
    dataset.view = known["view"]
    return dataset


def begin_sound(dataset: Shards) -> Look:
    """Return what another process does with each shard.

    Of a shard that is sound as it is, it tells the number of `samples`, and whether the shard is `as_written`. Of
    others it tells nothing.
    """

    def look(shards: Iterable[int], on_read: OnRead) -> Iterator[dict[str, Any]]:
        with TemporaryFiles() as files:
            for number in shards:
                found: dict[str, Any] = {}
                with suppress_damage():
                    found = _look_at(dataset, number, files)
                on_read(NO_DIGESTS, found.get("samples", 0), 0)
                yield found

    return look


def _look_at(dataset: Shards, number: int, files: TemporaryFiles) -> dict[str, Any]:
    reading, source = shard_reading(dataset), dataset.source(number)
    checked = None if dataset.kept is None else check_shard(dataset.kept, number, dataset.stores, 1)
    samples: int | None = None
    as_written = is_as_written(dataset, number, checked)
    if as_written:
        wrong = wrong_sidecar(reading, source)
        samples = None if wrong is not None else _kept_samples(dataset, number)
    elif checked is None or not checked.errors:
        samples = sound_samples(reading, source, files)
    return {} if samples is None else {"samples": samples, "as_written": as_written}


def is_as_written(dataset: Shards, number: int, checked: CheckedShard | None) -> bool:
    """Return whether a shard has the samples that the manifest lists, because all its bytes match their checksums."""
    if checked is None or checked.errors or not dataset.holds_its_bytes:
        return False
    return _kept_samples(dataset, number) is not None


def _kept_samples(dataset: Shards, number: int) -> int | None:
    """Return how many samples the manifest says that a shard had; None if it does not tell."""
    if dataset.kept_shards is None or not counts_hold(dataset):
        return None
    samples: int | None = dataset.kept_shards["num_samples"][number].as_py()
    return samples


def shard_reading(dataset: Shards) -> ShardReading:
    """Return how the shards of a dataset are read."""
    return ShardReading(
        dataset.fmt, dataset.view, dataset.read_options, dataset.interleaved, dataset.stored_schema,
        dataset.members, dataset.fetcher, dataset.follower, dataset.listing.index_file,
    )  # fmt: skip
