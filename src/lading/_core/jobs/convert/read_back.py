"""Read a conversion back before anybody sees it, and compare the content digests."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lading._core.content.digests import DatasetDigest, undigested
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.natural import is_media_list, natural_schema
from lading._core.features.types import feature_of
from lading._core.formats.format import AnyFormat
from lading._core.jobs.convert.job import Job
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.verify.digest import dataset_digest
from lading._core.pipeline.columns import written_schema
from lading._core.spelling import names_value
from lading._core.units import count
from lading.errors import DataError, Unrepresentable, UsageError

__all__ = ["compare", "refuse_unverifiable"]


def refuse_unverifiable(target: AnyFormat, spec: JobPlan) -> None:
    """Refuse to verify where a column becomes less: the digests would always differ.

    Raises:
        UsageError: names the column.
        Unrepresentable: values of columns have no digest.
    """
    schema = spec.schemas.schema_written
    if schema is None:
        return
    without = [field for field in schema if undigested(pa.schema([field])) is not None]
    if without:
        names = names_value([field.name for field in without])
        raise Unrepresentable("values of this type have no digest to compare", column=without[0].name,
                              found=without[0].type, advice="Convert without --verify, or leave out such columns with "
                              f"--drop-columns {names}.")  # fmt: skip
    given = written_schema(schema)
    rows = natural_schema(given, typed=target.info.fixed_schema, nested=target.info.stores_structs)
    lists = [field.name for field in given if is_media_list(field.type) and rows.field(field.name) != field]
    if lists:
        raise UsageError("lists of media lose their paths here, and cannot be compared with the source",
                         column=lists[0], advice="Convert without --verify, or to Parquet, Arrow, tars or JSON Lines, "
                         "which keep paths.")  # fmt: skip
    back = target.written(rows, target.write_options(spec.write.options or {}))
    if back.reduced_columns:
        video = feature_of(rows.field(back.reduced_columns[0])).medium == "video"
        what = "videos for datasets are less than the structs" if video else "floats of fewer bits are less than those"
        raise UsageError(f"{what} of the source, and cannot be compared", column=back.reduced_columns[0],
                         advice=("Read the source with --option media=bytes, or leave" if video else "Leave")
                         + " out --verify.")  # fmt: skip


def compare(digest: DatasetDigest, writer: DatasetWriter, job: Job, roots: Sequence[str]) -> None:
    """Read back what was written, with its digest, before anybody sees it."""
    writer.add_digest(digest)
    folder = writer.finish()
    found = dataset_digest(
        folder, stores=writer.built, roots=roots, limits=job.read.limits, workers=job.write.workers,
        on_progress=job.in_phase("reading back"),
    )  # fmt: skip
    if found.ordered != digest.ordered or found.count != digest.count:
        raise DataError(
            "the destination does not hold what the source does", file=folder,
            expected=f"{count(digest.count, 'sample')}, digest {digest.ordered}",
            found=f"{count(found.count, 'sample')}, digest {found.ordered}",
            advice="Compare the two with 'lading diff' and report this as a bug.",
        )  # fmt: skip
