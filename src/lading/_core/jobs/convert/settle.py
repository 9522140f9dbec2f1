"""A conversion as every process does it, settled by a look at all shards of its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lading._core.arrow.views import is_text
from lading._core.dataset.order.chosen import MOST_FIRST_ROWS, ChosenSamples, has_open_types, split_at_list
from lading._core.dataset.shards.iteration import hidden_columns
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.sequence import columns_to_read, has_map
from lading._core.dataset.transform.function_spool import FunctionSpool
from lading._core.dataset.transform.transform import Transform
from lading._core.features.natural import is_number, known_feature
from lading._core.features.stored_values import is_payload
from lading._core.formats.registry import get_format
from lading._core.jobs.convert.converter import Converter, bounded_options
from lading._core.jobs.convert.job import Job
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.schemas import Schemas, plan_schemas
from lading._core.units import parse_bytes

__all__ = ["settled"]


_FIRST_ROWS = 1024
"""Rows at the beginning by which functions show their columns."""


def settled(job: Job, shards: Shards, spool: FunctionSpool | None = None) -> JobPlan:
    """The conversion as every process does it, found by a look at all shards; of a function by its first rows.

    The spool takes what functions make of these rows.
    """
    write, target = job.write, get_format(job.write.format)
    schemas = plan_schemas(
        shards, target, columns=job.columns, policy=write.schema_policy, filtered=job.chooses,
        looked_at=job.looks_at_values,
    )  # fmt: skip
    hidden, written = hidden_columns(shards, None), None
    if schemas.schema is not None and hidden:
        written = pa.schema([f for f in schemas.schema if f.name not in hidden], metadata=schemas.schema.metadata)
    schemas = replace(schemas, columns=job.columns, whole=job.keeps_columns(shards), written=written)
    if shards.has_items:  # values of a table are of the whole document
        joined = [name for step in job.steps for name in step.adds_to_samples]
        schemas = replace(schemas, roles={**schemas.roles, **dict.fromkeys(joined, "sample")})
    every = schemas.schema
    if every is not None:
        Transform(job.steps, shards.view, shards.fetcher).check(every)
    if any(step.changes_columns for step in job.steps):
        schemas = _without_unread(schemas, job.steps, shards.view)
    options = bounded_options(target, write.options or {}, parse_bytes(write.max_batch_bytes))
    target_schema = None if shards.target is None else schemas.schema
    # A worker sees the shards of its task only; references may lead to the folders of all.
    if any(step.calls_function or not (step.keeps_samples or step.over_numbers) for step in job.steps):
        shards.image_lists()  # for all tasks
    read = replace(shards.read_plan(), roots=tuple(shards.roots()), target=target_schema)
    spec = JobPlan(
        shards.format, read, replace(write, options=options, executor=None, address=None), job.steps, schemas,
        index_file=shards.listing.index_file, limits=job.read.limits, stores=job.stores.for_workers,
    )  # fmt: skip
    mapped = _mapped(spec, shards, spool or FunctionSpool()) if has_map(job.steps) else ()
    if not job.maps_batches:
        schemas = replace(schemas, mapped=mapped)
    if every is not None and (mapped or any(step.changes_columns for step in job.steps)):
        steps = Transform(job.steps, shards.view, shards.fetcher, map_schemas=mapped)
        schemas = replace(schemas, mapped=mapped, written=_as_found(steps.check(written or every), every))
    if write.shares and any(step.calls_function for step in job.steps):
        spec.encode()  # a function that workers cannot be sent is refused for little data too
    return replace(spec, schemas=schemas)


def _as_found(schema: pa.Schema, source: pa.Schema) -> pa.Schema:
    """The schema, where what should be numbers in files is text, if the first values of the source are none."""
    texts = {field.name for field in source if is_number(known_feature(field)) and is_text(field.type)}
    fields = [f.with_type(pa.string()) if f.name in texts and is_payload(f.type) else f for f in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _without_unread(schemas: Schemas, steps: Sequence[Step], view: str) -> Schemas:
    """The schemas without the columns of the source that no step needs, and that are not written."""
    needed = None if schemas.schema is None else columns_to_read(steps, None, view, schemas.schema)
    if schemas.schema is None or needed is None or needed == schemas.schema.names:
        return schemas
    kept = pa.schema([each for each in schemas.schema if each.name in needed], metadata=schemas.schema.metadata)
    return replace(schemas, schema=kept, whole=False)


def _mapped(spec: JobPlan, shards: Shards, spool: FunctionSpool) -> tuple[pa.Schema, ...]:
    """The schemas that functions give their rows, found by their first rows; empty if there are no rows."""
    if split_at_list(spec.steps)[0]:
        return ChosenSamples(shards, spec.steps, spool=spool).map_schemas
    with shards.reporting_to(Counter()):
        look, rows = Converter(shards, spec, max_rows=_FIRST_ROWS, spools=spool.of_steps(spec.steps)), 0
        for batch in look.rows(range(len(shards.listing))):
            rows += batch.num_rows
            known = [schema for schema in look.transform.map_schemas if schema is not None]
            settled = not any(has_open_types(schema, shards.schema) for schema in known) or rows >= MOST_FIRST_ROWS
            if settled and len(known) == len(look.transform.map_schemas):
                break
    found = look.transform.map_schemas
    known = [schema for schema in found if schema is not None]
    return tuple(known) if len(known) == len(found) else ()
