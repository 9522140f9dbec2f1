"""Content digests of samples while they are read: payload is hashed where it lies, and not copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.batches import with_columns
from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.arrow.rebatch import HELD_BATCHES
from lading._core.arrow.references import files_of, has_codec, is_ref, unpack
from lading._core.arrow.types import names_of
from lading._core.arrow.views import holds_bytes, total_bytes
from lading._core.content.canonical import (
    FORM,
    FORMS,
    HASH_BYTES,
    SHORT_BYTES,
    hash_value,
    hashed_forms,
    hasher,
    joined,
    value_form,
)
from lading._core.content.digests import interleaved_digests, sample_digests
from lading._core.dataset.shards.iteration import materialise_parts, shard_batches
from lading._core.dataset.shards.shards import Shards
from lading._core.features.items import KEY
from lading._core.features.row_layout import row_layout
from lading._core.features.types import Feature, feature_of
from lading._core.formats.base import Scan
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.join import join
from lading._core.storage.concurrent import is_remote
from lading._core.storage.range_hasher import HashedValues, RangeHasher
from lading._core.storage.stores import resolve
from lading._core.storage.windows import Work, results_in_windows

__all__ = [
    "DIGEST_BYTES",
    "DIGEST_ROWS",
    "Digested",
    "batch_digests",
    "digests_of",
    "digests_of_batches",
    "shard_content",
]

DIGEST_ROWS, DIGEST_BYTES = 16_384, 128 << 20
"""Rows and payload of a batch whose samples are digested together."""

_TOGETHER_SHARDS = 64
_COPIED_BYTES = 16 << 20
"""Of columns whose forms are made by the column, so much of a batch is copied at most; more is taken as views."""


def batch_digests(batch: pa.RecordBatch, view: str, *, with_key: bool = True) -> NDArray[np.uint8]:
    """Digest of each sample of a batch with its bytes, `(samples, 16)`; perhaps without the sample's key."""
    if row_layout(view).has_items:
        return interleaved_digests(batch, with_id=with_key)
    return sample_digests(batch if with_key or KEY not in batch.schema.names else batch.drop_columns([KEY]))


def shard_content(dataset: Shards, shard: int) -> Iterator[pa.RecordBatch]:
    """All of a shard with its bytes as views, in batches that are good until the next is asked for."""
    for batch in _shard_batches(dataset, shard):
        yield from _parts(dataset, batch)


def _parts(dataset: Shards, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows with their bytes as views, each part good until the next is asked for."""
    # Of what is packed both must be held, and the pages that it lies in.
    most_bytes = DIGEST_BYTES // HELD_BATCHES if has_codec(batch) else DIGEST_BYTES
    # An error that an earlier job wrote down is no content, and no failure of this reading.
    for part in materialise_parts(dataset, batch, most_bytes, views=True, earlier=False):
        yield part
        del part  # before as much is unpacked again
        dataset.release()


@dataclass(frozen=True, slots=True)
class Digested:
    """Consecutive samples, and their digests.

    Attributes:
        digests: of each sample, `(samples, 16)`.
        keys: of each sample, `__key__` or `sample_id` (`names_of`); None if nobody asked for them.
        size_bytes: bytes of the rows.
        shards: how many shards have been given whole, with these samples.
    """

    digests: NDArray[np.uint8]
    keys: list[str | int | None] | None
    size_bytes: int
    shards: int


def digests_of(
    dataset: Shards,
    shards: Iterable[int],
    *,
    keyed: bool = False,
    limit: int | None = None,
    with_key: bool = True,
) -> Iterator[Digested]:
    """Digests of all samples of some shards, in order; small shards may come together.

    Args:
        dataset: the shards.
        shards: their numbers.
        keyed: give the keys of the samples too.
        limit: the caller takes no more samples; for those behind, nothing is read.
        with_key: whether the key of a sample is part of its digest.
    """
    begun = 0
    range_hasher = _hasher_of(dataset)
    # Of other schemas and types, and behind a limit, not all values are looked at.
    shown = range_hasher if limit is None and dataset.target is None and dataset.types is None else None
    most_rows = DIGEST_ROWS if limit is None else min(max(limit, 1), DIGEST_ROWS)

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal begun
        for shard in shards:
            begun += 1
            yield from _shard_batches(dataset, shard, most_rows, shown)

    # A batch takes 300 calls of Arrow and numpy, 3 ms: of tars of 100 documents and 25 MB, a fifth of the time.
    given = (Batch(rows, dataset.view) for rows in batches())
    joined_up = join(given, most_rows, DIGEST_BYTES, _TOGETHER_SHARDS, lambda one: _may_wait(dataset, one.rows))
    # The shard begun last is looked into already, or was seen to the end.
    return _digested(dataset, joined_up, range_hasher, keyed=keyed, with_key=with_key, shards_given=lambda: begun - 1)


def digests_of_batches(
    dataset: Shards, batches: Iterable[pa.RecordBatch], *, keyed: bool = False, with_key: bool = True
) -> Iterator[Digested]:
    """Digests of the samples of batches with references, such as those behind steps; arguments as of `digests_of`."""
    given = (Batch(batch, dataset.view) for batch in batches)
    return _digested(dataset, given, _hasher_of(dataset), keyed=keyed, with_key=with_key, shards_given=lambda: 0)


def _hasher_of(dataset: Shards) -> RangeHasher:
    return RangeHasher(hash_value, hasher, HASH_BYTES, short_bytes=SHORT_BYTES, keep_text=not dataset.has_items)


def _digested(
    dataset: Shards,
    batches: Iterator[Batch],
    range_hasher: RangeHasher,
    *,
    keyed: bool,
    with_key: bool,
    shards_given: Callable[[], int],
) -> Iterator[Digested]:
    for batch in batches:
        found, given = [], shards_given()
        for part in _parts(dataset, _with_forms(dataset, batch.rows, range_hasher)):
            found.append(batch_digests(part, dataset.view, with_key=with_key))
            del part  # before as much is unpacked again
        keys = _keys(batch.rows, dataset.view) if keyed else None
        digested = Digested(np.concatenate(found), keys, batch.size_bytes, given)
        del batch, found
        yield digested


def _keys(batch: pa.RecordBatch, view: str) -> list[str | int | None]:
    layout = row_layout(view)
    if layout.key not in batch.schema.names:
        return [None] * batch.num_rows
    return names_of(layout.keys(batch))


def _may_wait(dataset: Shards, batch: pa.RecordBatch) -> bool:
    """Whether a batch may wait for another: its payload is in files of this machine.

    Payload of a remote shard is in memory since the walk over its headers, and would be read again.
    """
    kinds, files = batch.schema.types, files_of(batch.schema)
    if any(holds_bytes(kind) for kind in kinds) or has_codec(batch) or any(file.wrap for file in files):
        return False
    if any(is_remote(resolve(file.url, dataset.stores)[0]) for file in files):
        return False
    # To put batches together copies them but for what is referred to.
    held = batch.select([i for i, kind in enumerate(kinds) if not is_ref(kind)])
    return total_bytes(held) <= DIGEST_BYTES // _TOGETHER_SHARDS


def _shard_batches(
    dataset: Shards, shard: int, max_rows: int = DIGEST_ROWS, range_hasher: RangeHasher | None = None
) -> Iterator[pa.RecordBatch]:
    # Types may differ from batch to batch: to settle them, all JSON would be read once before.
    scan = Scan(max_rows=max_rows, max_bytes=DIGEST_BYTES, views=True, drifting=True)
    return shard_batches(dataset, shard, scan, range_hasher=range_hasher)


def _with_forms(dataset: Shards, batch: pa.RecordBatch, range_hasher: RangeHasher) -> pa.RecordBatch:
    """The batch with forms in the place of references, or bytes where forms are made by the column."""
    features = {field.name: feature_of(field) for field in batch.schema if is_ref(field.type)}
    refs = {
        name: unpack(batch.column(name))
        for name, feature in features.items()
        if value_form(feature, long=False) or total_bytes(batch.select([name])) <= _COPIED_BYTES
    }
    texts = {name for name in refs if features[name].is_json}
    seen = range_hasher.look_up(refs, files_of(batch.schema), texts)
    left = dataset.fetcher.pieces_to_read(batch, {name: ~values.known for name, values in seen.items()})
    pieces = {name: _either(seen[name].kept, rest) for name, rest in left.items()}
    forms = {
        name: value_form(features[name], long=bool((mine.length[mine.there] > SHORT_BYTES).all()))
        for name, mine in pieces.items()
    }
    works: dict[str, Work] = {name: form[1] if form else bytes for name, form in forms.items()}
    made = {
        name: _behind(features[name], forms[name], values, seen[name])
        for name, values in results_in_windows(pieces, works).items()
    }
    return with_columns(batch, {batch.schema.get_field_index(name): column for name, column in made.items()})


def _either(one: ByteRanges, other: ByteRanges) -> ByteRanges:
    """The pieces of both, of which each row has one at most."""
    both = ByteRanges.joined([one, other])
    rows = np.arange(len(one))
    return both[np.where(one.there, rows, len(one) + rows)]


def _behind(feature: Feature, form: tuple[bytes, object] | None, values: pa.Array, seen: HashedValues) -> pa.Array:
    """Forms behind what stands before each of them, called so, with those of hashes; bytes as they are."""
    if form is None:
        return values
    forms = joined(pa.scalar(form[0], FORM), values) if form[0] else values
    if len(seen.hashes):
        forms = pc.replace_with_mask(forms, pa.array(seen.hashed), hashed_forms(feature, seen.hashes))
    return pa.ExtensionArray.from_storage(FORMS, forms)
