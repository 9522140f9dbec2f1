"""Info: what a dataset is, found by streaming through keys and headers, not payload."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import pyarrow as pa

from lading._core.arguments import public
from lading._core.arrow.json_columns import mixed_columns
from lading._core.arrow.references import is_ref
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.iteration import shard_batches
from lading._core.dataset.shards.shards import Shards
from lading._core.features.row_layout import row_layout
from lading._core.features.types import feature_of
from lading._core.formats.base import Scan
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.json_forms import BadShardList, Columns
from lading._core.manifest.values import LOST_COUNT
from lading._core.result_text import ResultText
from lading.options import OpeningOptions

__all__ = ["Info", "info"]

_MAX_ROWS = 65_536
_MAX_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Info(ResultText):
    """What a dataset is.

    Attributes:
        format: format of the shards.
        view: how rows are taken.
        shards: number of files.
        samples: number of samples.
        rows: number of rows (items, for interleaved data).
        size_bytes: bytes of the files.
        columns: the columns: name, Arrow type (`reference` for bytes of files) and kind (`image`, `label`, `int64` …).
        modalities: items by modality (interleaved data).
        manifest: whether lading's manifest lies beside the shards.
        counts: number of oddities in the data, by a short phrase.
        bad_shards: the shards that cannot be read: file and error. Their samples are not counted.
        steps: the steps behind which samples, rows and columns are. Shards and bytes are those of the source.
        schema_is_partial: whether the columns are those of the first shard, and other shards may hold more.
        lost_samples: number of samples that a salvage or repair is known to have lost; None if there was no loss.
            `_lading/lost.jsonl` lists the losses.
    """

    format: str
    view: str
    shards: int
    samples: int
    rows: int
    size_bytes: int
    columns: Columns
    modalities: Mapping[str, int] = field(default_factory=dict)
    manifest: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    bad_shards: BadShardList = ()
    steps: Sequence[str] = ()
    schema_is_partial: bool = False
    lost_samples: int | None = None


@public("lading.info")
def info(
    source: Queryable,
    *,
    on_progress: OnProgress | None = None,
    progress: bool = True,
    **opening: Unpack[OpeningOptions],
) -> Info:
    """Return counts, sizes, columns and modalities of a dataset.

    Example:
        lading.info("mint/*.tar").samples

    Reads headers, footers, the JSON of interleaved tars and the column `modality`, and no payload. A shard that cannot
    be read is listed with its error, and all others are counted.

    Args:
        source: as for `lading.open`, or a dataset. Samples, rows and columns are those after the steps. Shards and
            sizes are those of the source.
        on_progress: called before every shard.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.
        opening: the other arguments of `lading.open`.

    Raises:
        DataError: no shard can be read.
    """
    query = Query.of(source, **opening)
    with (
        query.open_shards() as dataset,
        shown_progress("looking", on_progress, progress=progress) as report,
    ):
        dataset.bad.policy, dataset.bad.warns = "skip", False
        chosen, counts = query.samples_of(dataset), _Counts()
        size_bytes = _bytes_beside(dataset)
        schema = dataset.whole.schema if chosen is None else chosen.whole_schema
        dataset.counts.update(f"column of several types: {each}" for each in dataset.whole.differing)
        for number in range(len(dataset.listing)):
            if report is not None:
                report(Progress(number, len(dataset.listing), counts.samples, 0))
            with dataset.bad.skipping(number, dataset.path(number)):
                shard = dataset.source(number)
                size_bytes += shard.info.size_bytes if shard.info else 0
                if chosen is None:
                    _count_shard(dataset, number, counts)
        for traced in () if chosen is None else chosen.traced_batches(dataset.row_layout.counting):
            counts.add(traced.batch, dataset.view)
        dataset.bad.refuse_all(len(dataset.listing))
        dataset.counts.update(mixed_columns(counts.schemas))
        columns = [(f.name, "reference" if is_ref(f.type) else str(f.type), feature_of(f).kind) for f in schema]
        return Info(
            dataset.format, dataset.view, len(dataset.listing), counts.samples, counts.rows, size_bytes, columns,
            dict(counts.modalities), dataset.manifest is not None, dict(dataset.counts),
            dataset.bad.listed(), [repr(step) for step in query.steps],
            dataset.whole.is_partial,
            None if dataset.manifest is None else dataset.manifest.counts.get(LOST_COUNT),
        )  # fmt: skip


@dataclass(slots=True)
class _Counts:
    """Samples, rows, and items by modality; and the files whose values tell the types of columns, with their schemas.

    Equal schemas in a row are listed once.
    """

    samples: int = 0
    rows: int = 0
    modalities: Counter[str] = field(default_factory=Counter)
    schemas: list[tuple[str, pa.Schema]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch, view: str) -> None:
        """Count the rows of a batch."""
        layout = row_layout(view)
        self.samples += len(layout.firsts(batch))
        self.rows += batch.num_rows
        if "modality" in layout.counting:
            found = pa.compute.value_counts(batch.column("modality")).to_pylist()
            self.modalities.update({entry["values"]: entry["counts"] for entry in found})

    def add_schema(self, file: str, schema: pa.Schema) -> None:
        """Note the columns of a file, unless the file before has the same."""
        if not self.schemas or self.schemas[-1][1] != schema:
            self.schemas.append((file, schema))


def _count_shard(dataset: Shards, number: int, counts: _Counts) -> None:
    wanted = dataset.row_layout.counting
    if not wanted:
        view = dataset.open_shard(number)
        count = view.num_samples()
        dataset.counts.update(view.counts)
        if dataset.fixed_schema and not view.declares_types:  # the pass that counts the rows finds the types
            counts.add_schema(os.path.basename(dataset.path(number)), view.schema())
        counts.samples, counts.rows = counts.samples + count, counts.rows + count
        return
    for batch in shard_batches(dataset, number, Scan(wanted, max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES)):
        counts.add(batch, dataset.view)


def _bytes_beside(dataset: Shards) -> int:
    """Bytes of the files beside the shards' own, as the manifest has them."""
    return 0 if dataset.kept_shards is None else pa.compute.sum(dataset.kept_shards["beside_bytes"]).as_py() or 0
