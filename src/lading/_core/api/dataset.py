"""A dataset as users hold it: the methods that choose, change, read and write its samples."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self
from warnings import warn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.api.key_verbs import KeyVerbs
from lading._core.api.layout_verbs import LayoutVerbs
from lading._core.api.order_verbs import OrderVerbs
from lading._core.api.step_verbs import StepVerbs
from lading._core.api.table_verbs import TableVerbs
from lading._core.arguments import Later, arguments_of, public
from lading._core.content.media_files import Opening
from lading._core.dataset.sample_list import SampleList
from lading._core.dataset.shards import iteration
from lading._core.dataset.shards.bad_shards import SkippedShard
from lading._core.dataset.shards.sample_access import SampleAccess
from lading._core.dataset.shards.shard import ShardList
from lading._core.formats.registry import format_of_name
from lading.errors import UsageError
from lading.options import OnError, refuse_two_names

if TYPE_CHECKING:
    from lading._core.dataset.query import Queryable
    from lading._core.jobs.convert.convert import convert
    from lading._core.jobs.convert.summary import ConvertSummary
    from lading._core.jobs.dataset.export import ExportSummary
    from lading._core.jobs.push.push import PushSummary
    from lading._core.jobs.stats.stats import dataset_stats
    from lading._core.jobs.stats.values import Stats
    from lading._core.train.loader import Loader
    from lading._core.train.loader import loader as train_loader
    from lading._core.view.show import ShownDataset
else:
    convert = Later("lading._core.jobs.convert.convert", "convert")
    dataset_stats = Later("lading._core.jobs.stats.stats", "dataset_stats")
    train_loader = Later("lading._core.train.loader", "loader")

__all__ = ["Dataset"]

_MOVED = {
    "as_samples": ("list(ds[[7, 0]])", "as_samples"),
    "layout": ("lading.train.plan(ds)", "layout"),
    "materialise": ("lading.features.materialise(batch)", "materialise"),
    "place_of": ("ds.batches(), whose schema metadata names files as lading.source_files", "place_of"),
    "read": ("ds.query.read", "query.read"),
    "source": ("ds.query.source.names", "query.source.names"),
    "steps": ("ds.query.steps", "query.steps"),
}
"""Attributes of `Dataset` that leave with the next release, what to write, and where they are in an open dataset."""

_OF_OTHERS = {
    "add_column": "ds.join(table) and ds.map(function) add columns.",
    "batch": "ds.batches(max_rows=N) gives Arrow batches, ds.loader(N) batches for training.",
    "batched": "ds.loader(N) gives batches for training.",
    "cast_column": "Write ds.cast({'score': 'float32'}).",
    "column_names": "Write ds.columns.",
    "decode": "Samples come decoded: ds[0]. ds.with_decode(False) gives bytes.",
    "features": "Write ds.schema.",
    "info": "Write print(ds), or lading.info(source).",
    "iter": "ds.batches(max_rows=N) gives Arrow batches.",
    "num_rows": "Write len(ds).",
    "push_to_hub": "Write ds.push('hf://datasets/ORG/NAME').",
    "remove_columns": "Write ds.drop('txt', …).",
    "rename_column": "Write ds.rename({'txt': 'caption'}).",
    "rename_columns": "Write ds.rename({'txt': 'caption'}).",
    "save_to_disk": "Write ds.write('out', format='arrow').",
    "select_columns": "Write ds.select('txt', …).",
    "set_format": "ds.loader(N, collate='torch') gives tensors, ds.to_pandas() and ds.to_polars() give frames.",
    "shard": "ds.loader(N, rank=R, world_size=N) reads a share; ds.write('out', num_shards=N) cuts shards.",
    "skip": "Write ds[N:].",
    "to_csv": "Write ds.write('out.csv').",
    "to_json": "Write ds.write('out.jsonl').",
    "to_parquet": "Write ds.write('out.parquet').",
    "train_test_split": "Write ds.split({'train': 0.9, 'test': 0.1}).",
    "unique": "Write ds.dedup('label')['label'].to_pylist(), or ds.stats() for counts.",
    "with_format": "ds.loader(N, collate='torch') gives tensors, ds.to_pandas() and ds.to_polars() give frames.",
}
"""Attributes of datasets of Hugging Face and webdataset, and what to write."""


@public("ds")
class Dataset(StepVerbs, OrderVerbs, KeyVerbs, LayoutVerbs, TableVerbs):
    """A source, how it is read, and steps. Immutable: every step gives a new dataset, and reads nothing.

    Rows are read when they are iterated, taken by number, written, or looked at. Datasets can be pickled: another
    process opens the source again.

    Example:
        ds = lading.open("docs/*.parquet").where("lang == 'en'").select("text")
        ds.write("english", format="jsonl")
    """

    __slots__ = ()

    def with_decode(self, decode: bool = True, *, upright: bool = True) -> Self:
        """The dataset with media as images, audio and videos (the default), or as the bytes that are stored.

        Text, numbers, JSON and arrays are Python values either way. `batches` and `take` always give bytes.

        Example:
            jpeg_bytes = ds.with_decode(False)[0]["jpg"]
            ds.with_decode(upright=False).map(crop_boxes)  # boxes in stored coordinates

        Args:
            decode: open media. False gives bytes.
            upright: turn images as their EXIF data say, here and for the functions of later steps. False gives pixels
                as they are stored; an image that such a function changes keeps the tag that says how to turn it.
        """
        media: Opening | None = None if not decode else "upright" if upright else "stored"
        return type(self)(self._rows.with_media(media))

    # What it is

    @property
    def format(self) -> str:
        """Name of the shards' format.

        Example: `lading.open("docs.parquet").format == "parquet"`
        """
        return self._rows.shards.format

    @property
    def view(self) -> str:
        """`samples`: a row is a sample. `interleaved`: a row is an item; a sample is the rows of a `sample_id`."""
        return self._rows.view

    @property
    def schema(self) -> pa.Schema:
        """The columns behind the steps. Columns of references are payload that is read when it is asked for.

        The manifest says them; else the footers of all shards of Parquet, Arrow and MDS, up to 1,000. Of other sources
        they are those of the first shard that is not empty; see `schema_is_partial`. If no type holds the values of all
        shards, a column has the type that it has in the first one. Behind a function of `map` the columns are those of
        the first batch that it returns.

        Example: `ds.schema.names`
        """
        return self._rows.schema

    @property
    def schema_is_partial(self) -> bool:
        """Whether `schema` is that of the first shard, and other shards may hold more columns or other types.

        Example: `lading.open("photos/*.tar").schema_is_partial`
        """
        return self._rows.schema_is_partial

    @property
    def columns(self) -> list[str]:
        """Names of the columns of `schema`."""
        return self._rows.columns

    @property
    def shards(self) -> ShardList:
        """The shards of the source, each opened when it is asked for. Steps do not change them; media are bytes.

        Example: `len(ds.shards)`, `ds.shards[0].path`
        """
        return ShardList(self._rows.shards, SampleAccess(self._rows.shards))

    @property
    def counts(self) -> Counter[str]:
        """What `batches` or a loop over samples left out and reported, the last one that began, by a short phrase.

        The phrases are those of `write`, for the steps and for what readers report. Files that are no shards of the
        dataset are counted from the start. Reading by number, `head` and datasets made of this one change nothing.

        Example: `list(english); english.counts["not where lang == 'en', filtered"]`
        """
        return self._rows.counts

    @property
    def skipped_shards(self) -> list[SkippedShard]:
        """The shards that were left out so far, in order; empty unless `on_bad_shard="skip"`.

        Example: `[(bad.file, str(bad.error)) for bad in ds.skipped_shards]`
        """
        return [bad for _, bad in sorted(self._rows.shards.bad.skipped.items())]

    def __repr__(self) -> str:
        return repr(self._rows)

    def _repr_html_(self) -> str:
        return self._rows.html()

    def _ipython_key_completions_(self) -> list[str]:
        return self._rows.column_names

    def close(self) -> None:
        """Give up open shards, maps and streams. They are opened again when something is read."""
        self._rows.shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Rows in order

    def batches(  # noqa: PLR0913 - one argument a decision of the user; all by keyword
        self,
        *,
        max_rows: int = iteration.MAX_ROWS,
        max_bytes: int | str | None = None,
        columns: Sequence[str] | None = None,
        lazy: bool = False,
        views: bool = False,
        on_error: OnError | None = None,
        shards_per_batch: int | None = 1,
        fields: Sequence[str] | None = None,
        max_batch_bytes: int | str | None = None,
        on_materialize_error: OnError | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order, as Arrow record batches; a sample is never cut.

        Payload columns are `large_binary`; with `views` `binary_view` over mapped files, good for use at once (the
        pages behind a batch are given back when the next is asked for); with `lazy` references, and no payload is
        read. Each batch's schema metadata names its files (`lading.source_files`). A column that appears late joins the
        schema then, and stays.

        Example: `for batch in ds.batches(max_rows=256, columns=["jpg", "cls"]): ...`

        Args:
            max_rows: rows a batch, at most (a larger interleaved sample stays whole).
            max_bytes: payload a batch, at most (a larger sample stays whole). By default 256 MB, or as opened.
            columns: columns to give, in this order; None for all.
            lazy: leave references as they are.
            views: give views instead of copies.
            on_error: for a row whose payload is unavailable: `error`, `warn` (null, and a warning), `drop_row`,
                `drop_sample`; dropped rows are counted. By default `error`, or as opened.
            shards_per_batch: consecutive shards that a batch may hold rows of, so that small files make batches as
                large as large ones do; None for as many as the limits allow.
            fields: passthrough columns of documents to give, beside the reserved ones; absent columns are nulls.
            max_batch_bytes: NeMo Curator's name of `max_bytes`.
            on_materialize_error: NeMo Curator's name of `on_error`.
        """
        if lazy and views:
            raise UsageError("references stay, or become views", found="lazy=True, views=True",
                             advice="Choose one of them.")  # fmt: skip
        refuse_two_names(max_bytes=max_bytes, max_batch_bytes=max_batch_bytes)
        refuse_two_names(on_error=on_error, on_materialize_error=on_materialize_error)
        return self._rows.batches(
            max_rows=max_rows, max_bytes=max_batch_bytes if max_bytes is None else max_bytes, columns=columns,
            lazy=lazy, views=views, on_error=on_error or on_materialize_error, shards_per_batch=shards_per_batch,
            fields=fields,
        )  # fmt: skip

    def samples(self, *, raw: bool = False) -> Iterator[dict[str, Any]]:
        """All samples in order, each a dict as `ds[i]` gives it; the same as `iter(ds)`.

        A value is read when its sample's turn comes, so let a sample go before the next where memory and speed matter.

        Example: `for sample in ds.samples(): print(sample["__key__"])`

        Args:
            raw: give every value as its column has it: text, JSON and arrays of a tar as bytes too, which
                `with_decode(False)` still parses. Only for the view `samples`.
        """
        return self._rows.samples(raw=raw)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._rows.samples()

    def head(self, count: int = 5) -> SampleList:
        """The first samples, as `ds[i]` gives them, without an index. Unavailable payload is None, with a warning.

        An image that cannot be opened is a `_core.content.media_files.BrokenFile`: its bytes and the error. The list
        shows itself with thumbnails and players in a notebook.

        Example: `ds.head(2)`
        """
        return self._rows.head(count)

    # Samples by number and by key

    def __len__(self) -> int:
        """Number of samples. Behind `where`, `filter` and `image_bounds` one pass over their columns counts them.

        `list(ds)` asks for the number too; a loop does not.
        """
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        """One sample by its number, a dataset of the samples of a slice or a list, or the values of a column.

        A sample is a dict of Python values: images as Pillow's, audio and videos as bytes that know their header
        (`_core.content.media_files`), text as str, JSON parsed, arrays as numpy, labels and numbers as numbers.
        `with_decode(False)` gives media as bytes. A null is None: every column is in every sample. Only tars whose
        columns no manifest of lading's declares differ: a sample has the members that are there, and a column of bytes
        that is null is absent. In the view `interleaved` it has `sample_id`, the fields of the
        document, and `items`, a list of dicts. The `binary_content` of an item is an image, audio or a video, as its
        `modality` says; else bytes. An image of an item that cannot be opened is a `BrokenFile`: bytes with an `error`.

        `ds[name]` takes a column, or a field inside one such as `json.lang`: its values are read when they are asked
        for, by number, by slice, or in order.

        Example: `ds[0]`, `ds[-1]`, `ds[:100]`, `ds[[5, 1, 3]]`, `ds["txt"][:10]`, `ds["json.lang"].to_pylist()`

        Raises:
            IndexError: the number is outside the dataset.
            UsageError: there is no such column.
            DataError: an image cannot be opened. Pillow reads pixels later: errors in them come with `load()`.
        """
        if isinstance(index, str):
            return self._rows.column(index)
        if isinstance(index, (slice, list, tuple, np.ndarray)):
            return type(self)(self._rows.at(index))
        return self._rows.access.sample(index)

    def take(
        self,
        indices: int | Sequence[int] | NDArray[np.int64],
        columns: Sequence[str] | None = None,
        *,
        views: bool = False,
    ) -> pa.Table:
        """Rows of samples by number, in the order asked for, repeats allowed; payload as `large_binary`.

        Numbers below 0 count from the end. One number takes the first so many samples: `ds.take(3)` is
        `ds.take(range(3))`.

        Columns come in the order asked for; one that the shards of these rows lack, and the schema has, is null. If
        none are asked for, a few rows of a tar with a `.tar.idx` have the fields of these rows alone, unless its schema
        was asked for before: that takes a walk over the tar. Reads nothing but their ranges; of a remote store
        identical ones once, neighbours together. With `views` payload is `binary_view`, over mapped files where it lies
        in such: bytes move when a value is looked at, and nothing holds all of them.

        Example: `ds.take([7, 0, 7], ["jpg"])`

        Raises:
            IndexError: a number is outside the dataset.
            UsageError: a column that neither the schema nor a shard of these rows has.
        """
        return self._rows.take(indices, columns, views=views)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Samples by number, each as `ds[i]` gives it, read at once: PyTorch's `DataLoader` asks for batches so."""
        return self._rows.access.samples(indices)

    def by_key(self, key: str) -> dict[str, Any]:
        """The first sample with this key (`__key__`, or `sample_id` of interleaved data).

        Looks through the keys of one shard after another. Raises KeyError.

        Example: `ds.by_key("000017")`
        """
        return self._rows.access.by_key(key)

    def show(self, port: int | None = None, *, compare: Queryable | None = None, browser: bool = True) -> ShownDataset:
        """Show the samples in the browser: pictures, documents, statistics, marks. It is the page of `lading view`.

        The page is served by a thread of this process, for this machine alone, until it is closed or the process ends.
        Functions of `map` run here. A notebook shows the page in the cell. It needs `pip install 'lading[view]'`.

        Example:
            page = ds.where("json.score > 0.9").show()
            page.close()

        Args:
            port: where to listen; by default 8421, or the next free port.
            compare: a dataset, or what `lading.open` takes: the page shows in which samples both differ, by key.
            browser: open the page in a browser, if there is one.

        Returns:
            The page: `url`, `wait()`, which Ctrl-C ends, and `close()`.

        Raises:
            MissingExtra: starlette or uvicorn is not installed.
            StoreError: the port is taken.
            UsageError: a step names a column that is not there.
        """
        from lading._core.view.show import show

        return show(self._rows, port, compare=compare, browser=browser)

    # Jobs and training: each is imported when a method starts it, so that `lading.open` loads none

    @arguments_of(dataset_stats)
    def stats(self, **options: Any) -> Stats:
        """Compute statistics in one pass: of columns, fields of JSON, lengths of texts, sizes of images.

        Payload of media is not read, but for the headers. Counts, bounds, means and deviations are exact. Quantiles and
        histograms are exact up to 16,384 values a column, and those of an even sample of 16,384 values beyond (about
        0.4 % of the ranks off). Distinct values are exact up to 16,384, and estimated beyond (about 0.8 % off). Counts
        of the most frequent values are exact up to 4,096 distinct values, and lower bounds beyond. The result says
        which are approximate, and is the same with any number of workers.

        Peak memory: that of `batches`, and up to 1 MB for each name.

        Example:
            stats = lading.open("photos/*.tar").stats()
            stats.columns["jpg.width"].median, stats.columns["json.lang"].top

        Args:
            options: `top`, the number of most frequent values. `workers`, the processes that share the shards, at most
                (by default one a core, up to eight, for jobs of more than a few seconds; behind steps one).
                `executor` and `address`, as for `lading.convert`. `on_progress`, called after every batch and shard.
                `progress`, whether a bar may appear after two seconds, in a terminal or a notebook.

        Raises:
            UsageError: workers are asked for, and cannot read these data; `top` is negative.
        """
        return dataset_stats(self, **options)

    @arguments_of(convert)
    def write(self, destination: str | os.PathLike[str], format: str | None = None, **options: Any) -> ConvertSummary:  # noqa: A002 - the word users know
        """Write the dataset; the same as `lading.convert(ds, destination, format=format, …)`.

        Example: `ds.write("out", format="parquet", workers=8)`

        Args:
            destination: folder of the new dataset. A name that ends in `.parquet`, `.tar.gz` or such is one file.
            format: format to write; by default the ending of the destination names it.
            options: the other arguments of `lading.convert`.

        Raises:
            UsageError: no format is given, and the destination has no ending of one.
        """
        return convert(self, destination, format=format or format_of_name(os.fspath(destination)), **options)

    @arguments_of(train_loader)
    def loader(self, batch_size: int | None = None, **options: Any) -> Loader:
        """Batches for training, one epoch after the other; the same as `lading.loader(ds, batch_size, …)`.

        Example: `for batch in ds.loader(64, shuffle=True, collate="torch"): ...`

        Args:
            batch_size: samples a batch, by default 1.
            options: the other arguments of `lading.loader`.
        """
        return train_loader(self, batch_size, **options)

    def export(self, destination: str | os.PathLike[str], *, overwrite: bool = False) -> ExportSummary:
        """Write samples as loose files into a folder, and return what was written.

        Example: `ds.limit(100).export("look")  # look/000001.jpg, look/000001.txt, …`

        A field of bytes is a file `KEY.FIELD` with the stored bytes. Media of a table have the extension of their
        format: `KEY.jpg`, or `KEY.COLUMN.jpg` where there are several such columns. Each item of a list of media is a
        file, such as `KEY.COLUMN.0.jpg`, and `KEY.COLUMN.json` lists these, as in a tar. All other values of a sample
        are one file `KEY.json` (`KEY.columns.json` where the samples have a field `json`). Documents are a JSON file
        each, and their images, as in an interleaved tar. Slashes in keys make folders. Samples without a key have
        their number.

        A hidden file `.lading-export.json` marks the folder, so that a later export may replace it.
        `lading.open(destination, format="files")` reads the files back. The destination appears in one step at the end.
        Peak memory: that of one batch of 256 samples or 64 MB. Documents need the size of their tar beside the
        destination until the end.

        Args:
            destination: the folder.
            overwrite: replace the folder, in one step at the end. It must be of an earlier export, or a dataset.

        Raises:
            DestinationExists: the folder is not empty, or it is to be replaced and holds something else.
            Unrepresentable: a key or a field that is no safe name of a file; two that have one name; a value that JSON
                does not hold.
        """
        from lading._core.jobs.dataset.export import export

        return export(self, destination, overwrite=overwrite)

    def push(self, destination: str, format: str = "parquet", **options: Any) -> PushSummary:  # noqa: A002 - the word users know
        """Write the dataset into a repository on Hugging Face's Hub; the same as `lading.push(ds, destination, …)`.

        Example: `ds.push("hf://datasets/me/photos", private=True)`

        Args:
            destination: `hf://datasets/ORG/NAME`, perhaps with `@BRANCH`, and the name of a config behind it.
            format: format to write.
            options: the other arguments of `lading.push`.
        """
        from lading._core.jobs.push.push import push

        return push(self, destination, format, **options)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _MOVED:
                hint = f". {_OF_OTHERS[name]}" if name in _OF_OTHERS else ""
                raise AttributeError(f"'Dataset' object has no attribute {name!r}{hint}", name=name, obj=self)
            place, inside = _MOVED[name]
            warn(f"Dataset.{name} will leave: write {place}", DeprecationWarning, stacklevel=2)
            return attrgetter(inside)(self._rows)
