"""What users call to get a dataset: `lading.open` and `lading.concat`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from lading._core.api.dataset import Dataset
from lading._core.arguments import STEPS, public
from lading._core.arrow.streams import kind_of
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.source.rows import Openable
from lading._core.dataset.transform.concat import concatenated
from lading._core.storage.stores import Stores
from lading.errors import UsageError
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import InterleavedOptions, OnBadShard, OnError

__all__ = ["concat", "open_dataset"]


_OF_OTHERS: Final = {
    **STEPS,
    "path": "Give the files first, as the source.",
    "data_files": "Give the files first, as the source.",
    "data_dir": "Give the folder first, as the source.",
    "name": "Write config=NAME.",
    "streaming": "Leave it out: samples are read when they are asked for.",
    "num_proc": "Leave it out: opening reads nothing. ds.write(…, workers=N) works in N processes.",
    "num_workers": "Leave it out: ds.loader(…, workers=N) and ds.write(…, workers=N) work in N processes.",
    "features": "Give types of columns: ds.cast({'label': lading.features.ClassLabel([…])}).",
    "token": "Write storage_options={'token': …}.",
    "trust_remote_code": "Leave it out: lading runs no code of a dataset.",
    "on_error": 'Write on_materialize_error="warn" for payload that is unavailable, or on_bad_shard="skip".',
    "batch_size": "Give it where batches are made: ds.loader(batch_size), ds.batches(max_rows=…).",
    "handler": 'Write on_bad_shard="skip"; ds.filter(…, on_error="drop_sample") drops samples.',
}
"""Arguments of Hugging Face's `load_dataset` and of webdataset, and of functions that follow."""


@public("lading.open", _OF_OTHERS)
def open_dataset(  # noqa: PLR0913 - one argument a decision of the user; all but one by keyword
    source: Openable,
    *,
    format: str | None = None,  # noqa: A002 - the word users know
    split: str | None = None,
    config: str | None = None,
    view: str | None = None,
    options: Mapping[str, Any] | None = None,
    interleaved: InterleavedOptions | None = None,
    fields: Sequence[str] | None = None,
    regroup: bool = False,
    lists: Sequence[str] = (),
    max_batch_bytes: int | str | None = None,
    on_materialize_error: OnError | None = None,
    roots: Sequence[str | os.PathLike[str]] = (),
    schema: pa.Schema | None = None,
    schema_overrides: Mapping[str, pa.DataType] | pa.Schema | None = None,
    hive_partitioning: bool = True,
    stores: Stores | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_limit: int | str | None = None,
    on_bad_shard: OnBadShard = "error",
    mmap: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> Dataset:
    """Open a dataset of any format. Rows are read when they are asked for.

    Example:
        ds = lading.open("s3://bucket/train/*.tar")
        ds = lading.open(data_frame)

    Args:
        source: a file, folder, glob, brace pattern, `::`-joined list, a list of these, or a dataset's own index file.
            `-` is standard input. Or rows: a `pyarrow.Table` or `RecordBatchReader`, a data frame of pandas or polars,
            or anything else with `__arrow_c_stream__`; a `datasets.Dataset`; a list or generator of dicts (as
            `lading.writer` takes them), or of tables; a dict of columns; a binary file object. Rows and standard input
            are written to a temporary file now, in batches. The file lives as long as the dataset.
        format: format of the source. By default the name and first bytes of the first file decide.
        split: the split to read: the folder of this name, or the files whose names tell it, as Hugging Face's datasets
            finds them. By default all of the source, which must be one split.
        config: the config (subset) to read of a repository of Hugging Face's hub, as its `README.md` lists them. By
            default the only one, or the one that is marked as the default.
        view: `samples` or `interleaved`. By default the first readable samples decide.
        options: options of the format (`lading formats` lists them).
        interleaved: names of fields and policies for interleaved data. Refused where the data are not interleaved.
        fields: passthrough columns of documents to keep, beside the reserved ones; absent columns are nulls. Fields
            that conditions, orders, splits and joins need are read too, and dropped behind these steps.
        regroup: join the rows of a `sample_id`, or the members of a key in tars, wherever they are in the shard.
        lists: columns of lists whose items are members of tars: `["image"]` for `image.0.jpg`, `image.1.png` … and, if
            it is there, `image.json`. Tars with a manifest of lading's need no such names.
        max_batch_bytes: payload of a batch, for `batches` without a limit of its own.
        on_materialize_error: for a row whose payload is unavailable, for `batches` and `write` without a policy of
            their own: `error`, `warn`, `drop_row` or `drop_sample`.
        roots: folders that references may point into, besides the folders of the source.
        schema: columns that all rows get: missing columns are nulls, others are dropped, values are cast and checked.
        schema_overrides: types of some columns, such as `{"score": pa.float32()}`; all other columns stay as they are.
            Of interleaved data, a column that is missing becomes one of nulls.
        hive_partitioning: take folders such as `year=2023` for columns of the rows in them (Parquet, Arrow, CSV, JSON
            Lines). `where` opens only the files of partitions that may fit.
        stores: which store serves which URL. By default the scheme of a URL decides.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix.
        cache_dir: folder for whole copies of remote shards. A shard is downloaded when its first sample is read, by one
            process of the machine, and read from there until the store has another version of it. By default only
            the ranges that are needed are read.
        cache_limit: size of all copies, such as `200GB`: those used least recently are deleted. By default any.
        on_bad_shard: for a shard that is damaged, missing or unreadable: `error`, or `skip`. `skip` leaves the whole
            shard out, with a warning; `Dataset.skipped_shards` lists such shards. Shards with more than 64 MB in memory
            are read twice then: no row is given before the whole shard was read.
        mmap: map local files. False reads them with `pread`, for files that somebody may truncate meanwhile.
        limits: limits on what files may ask for: sizes, counts, unpacked sizes.

    Raises:
        SourceNotFound: the source does not exist, or nothing matches the pattern.
        UnknownFormat: no format matches the first file.
        DataError: the first shards are unreadable.
    """
    if Query.held_by(source) is not None:
        raise UsageError("a dataset is open already", advice="Use it as it is.")
    query = Query.of(
        source, format=format, split=split, config=config, view=view, options=options, interleaved=interleaved,
        fields=fields, regroup=regroup, lists=lists, max_batch_bytes=max_batch_bytes,
        on_materialize_error=on_materialize_error, roots=roots, schema=schema, schema_overrides=schema_overrides,
        hive_partitioning=hive_partitioning, stores=stores, storage_options=storage_options, cache_dir=cache_dir,
        cache_limit=cache_limit, on_bad_shard=on_bad_shard, mmap=mmap, limits=limits,
    )  # fmt: skip
    return Dataset(OpenDataset.of(query))


@public("lading.concat")
def concat(datasets: Sequence[Queryable], *, types: Mapping[str, pa.DataType] | pa.Schema | None = None) -> Dataset:
    """Return one dataset of several, one after another. They may have different formats, options and steps.

    Columns have the type that holds all values. A column that a dataset lacks is null in its rows. Samples without a
    key get one (`0001-000000017`: the dataset and the sample in it) if other datasets have keys. Keys may repeat.
    Documents of any formats are concatenated with documents.

    Example:
        lading.concat([lading.open("tars/*.tar"), lading.open("more.parquet")]).write("all", format="webdataset")

    Args:
        datasets: the datasets, or what `lading.open` takes.
        types: types of some columns, for columns that no type holds otherwise.

    Raises:
        UsageError: no dataset, no list, or samples together with documents.
        SchemaMismatch: no type holds the values of a column in all datasets (when the columns are asked for).
    """
    if not isinstance(datasets, list | tuple):
        raise UsageError("concat takes a list of datasets", found=kind_of(datasets), advice="Write [one, another].")
    return Dataset(OpenDataset.of(concatenated(datasets, types)))
