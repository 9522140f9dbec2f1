"""Readers, writers and schema functions of interleaved documents, with the names of NeMo Curator.

They are stages of the peer's pipelines, next to the peer's own: names, order and defaults of arguments are the peer's.

    pipeline = Pipeline("curate", stages=[
        InterleavedWebdatasetReader("mint", max_batch_bytes="256MB"),
        InterleavedAspectRatioFilterStage(max_aspect_ratio=3.0),  # the peer's
        InterleavedParquetWriter("curated"),
    ])
    pipeline.run(RayDataExecutor())

Without a pipeline, readers have `open` and `batches`, and writers `write_batch`.

Source: nemo-curator 1.4.0, stages/interleaved/io.
"""

from __future__ import annotations

from lading._core.arrow.align import reconcile_schema
from lading._core.features.items import INTERLEAVED_SCHEMA, RESERVED
from lading.compat.curator_readers import (
    InterleavedParquetReader,
    InterleavedParquetReaderStage,
    InterleavedWebdatasetReader,
    InterleavedWebdatasetReaderStage,
)
from lading.compat.curator_schema import align_table, resolve_schema
from lading.compat.curator_stages import FileGroupTask, InterleavedBatch
from lading.compat.curator_writers import InterleavedParquetWriterStage, InterleavedWebdatasetWriterStage

__all__ = [
    "INTERLEAVED_SCHEMA",
    "RESERVED_COLUMNS",
    "FileGroupTask",
    "InterleavedBatch",
    "InterleavedParquetReader",
    "InterleavedParquetReaderStage",
    "InterleavedParquetWriter",
    "InterleavedParquetWriterStage",
    "InterleavedWebdatasetReader",
    "InterleavedWebdatasetReaderStage",
    "InterleavedWebdatasetWriter",
    "InterleavedWebdatasetWriterStage",
    "align_table",
    "reconcile_schema",
    "resolve_schema",
]

RESERVED_COLUMNS = frozenset(RESERVED)
"""Names of the reserved columns."""

InterleavedParquetWriter = InterleavedParquetWriterStage
"""The name in the peer's documentation."""

InterleavedWebdatasetWriter = InterleavedWebdatasetWriterStage
"""The name without `Stage`."""
