"""Info: what a dataset is, found by streaming through keys and headers, not payload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lading.dataset.iteration import shard_batches
from lading.dataset.open import open_shards
from lading.dataset.shards import Shards
from lading.dataset.source import Source
from lading.features.items import sample_firsts
from lading.features.types import feature_of
from lading.jobs.progress import OnProgress, Progress

__all__ = ["Info", "info"]

_MAX_ROWS = 65_536
_MAX_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Info:
    """What a dataset is.

    Attributes:
        format: of its shards.
        view: how rows are taken.
        shards: number of files.
        samples: number of samples.
        rows: number of rows (items, for interleaved data).
        size_bytes: bytes of the files.
        columns: name, Arrow type and feature of each column.
        modalities: items by modality (interleaved data).
        manifest: whether lading's manifest lies beside the shards.
        counts: what was noticed, by a short phrase.
    """

    format: str
    view: str
    shards: int
    samples: int
    rows: int
    size_bytes: int
    columns: list[tuple[str, str, str]]
    modalities: Mapping[str, int] = field(default_factory=dict)
    manifest: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)


def info(source: Source, *, on_progress: OnProgress | None = None, **opening: Any) -> Info:
    """Look through a dataset: counts, sizes, columns, modalities.

    Reads headers, footers, the JSON of interleaved tars and the column `modality`; no payload.

    Args:
        source: as `lading.open` takes it.
        on_progress: called before every shard.
        opening: the other arguments of `lading.open`.
    """
    with open_shards(source, **opening) as dataset:
        modalities: Counter[str] = Counter()
        samples = rows = 0
        size_bytes = _bytes_beside(dataset)
        schema = dataset.schema
        wanted = ["sample_id", "modality"] if dataset.view == "interleaved" else None
        for number in range(len(dataset.listing)):
            if on_progress is not None:
                on_progress(Progress(number, len(dataset.listing), samples, 0))
            shard = dataset.source(number)
            size_bytes += shard.info.size_bytes if shard.info else 0
            if wanted is None:
                count = dataset.open_shard(number).num_samples()
                samples, rows = samples + count, rows + count
                continue
            for batch in shard_batches(dataset, number, _MAX_ROWS, _MAX_BYTES, wanted):
                samples += len(sample_firsts(batch, dataset.view))
                rows += batch.num_rows
                found = pa.compute.value_counts(batch.column("modality")).to_pylist()
                modalities.update({entry["values"]: entry["counts"] for entry in found})
        columns = [(f.name, str(f.type), type(feature_of(f)).__name__) for f in schema]
        return Info(
            dataset.format, dataset.view, len(dataset.listing), samples, rows, size_bytes, columns, dict(modalities),
            dataset.manifest is not None, dict(dataset.counts),
        )  # fmt: skip


def _bytes_beside(dataset: Shards) -> int:
    """Bytes of the files beside the shards' own, as the manifest has them."""
    return 0 if dataset.kept_shards is None else pa.compute.sum(dataset.kept_shards["beside_bytes"]).as_py() or 0
