"""The methods of a dataset that give a new dataset with one more step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.api.verbs import Verbs
from lading._core.arguments import public
from lading._core.dataset.steps.cast_step import Cast
from lading._core.dataset.steps.column_steps import Drop, Rename
from lading._core.dataset.steps.filter_steps import Filter, ImageBounds, Where
from lading._core.dataset.steps.functions import OnFunctionError
from lading._core.dataset.steps.map_step import Map
from lading._core.dataset.steps.order_steps import Limit
from lading.errors import UsageError
from lading.options import Drop as DropPolicy
from lading.options import OnError

__all__ = ["BatchFunction", "SampleFunction", "StepVerbs"]

SampleFunction: TypeAlias = Callable[[MutableMapping[str, Any]], Any]
"""A function over one sample: a dict of decoded values."""

BatchFunction: TypeAlias = Callable[[pa.RecordBatch], Any]
"""A function over a record batch."""


@public("ds")
class StepVerbs(Verbs):
    """Every method gives a new dataset, and reads nothing."""

    __slots__ = ()

    def select(self, *columns: str) -> Self:
        """Keep these columns, in this order.

        The key of samples (`__key__`) and the reserved columns of items stay too, in front; `drop` leaves them out. A
        field inside a column becomes a column of its own, such as `json.lang`, `meta.tags[0]`, `jpg.width`. A sample
        without the field has a null there. The first samples decide the type of JSON fields: `select` reads them.

        Example: `ds.select("jpg", "json.lang")`
        """
        return type(self)(self._rows.selected(columns))

    def drop(self, *columns: str) -> Self:
        """Leave these columns out.

        Example: `ds.drop("thumbnail")`
        """
        return self._with(Drop(columns))

    def rename(self, names: Mapping[str, str]) -> Self:
        """Give columns new names.

        Example: `ds.rename({"txt": "caption"})`
        """
        return self._with(Rename.of(names))

    def cast(self, columns: Mapping[str, Any]) -> Self:
        """Give columns other types.

        A value that the type cannot hold exactly is an error that names the sample; floats are rounded to a narrower
        type of floats. Labels may be given by name: a column of text becomes numbers.

        Example: `ds.cast({"score": "float32", "label": lading.features.ClassLabel(["cat", "dog"]), "txt": "binary"})`

        Args:
            columns: type of each column: a name such as `"float32"`, an Arrow type, or a feature of `_core.features`.
        """
        return self._with(Cast.of(columns))

    def flatten(self, *columns: str) -> Self:
        """Make columns of the fields of JSON objects and structs: `json` becomes `json.lang`, `json.score`, ….

        The types are those that all samples need, so all JSON of these columns is read for it. Lists of one type stay
        lists, and objects are flattened too (`json.author.name`), if they have 100 names or fewer. Fields with values
        of several types are JSON text. A field that a sample lacks is null.

        Example: `ds.flatten("json").write("table", format="parquet")`

        Args:
            columns: columns to flatten; all structs if none is given.

        Raises:
            UsageError: a column holds neither objects nor structs.
        """
        return type(self)(self._rows.flattened(columns))

    def media_from(
        self,
        column: str,
        name: str | None = None,
        *,
        fetch: bool = False,
        fetch_private: bool = False,
        on_error: OnError = "error",
    ) -> Self:
        """Add the files that a column names: a table of paths, or of URLs, becomes a dataset of images.

        A path is relative to the folder of its table, else to one of the `roots` of `lading.open`. Other files are
        refused. The files become references: their bytes are read when somebody asks for them. The column with their
        names stays.

        With `fetch`, the column holds URLs of the web (http, https) or of object stores. Files are downloaded when
        their samples are read, many at once, each once in a run. Addresses that are not public are refused, redirects
        to them too. `lading.limits` has the limits of size and time (`fetch_bytes`, `fetch_seconds`). The package
        urllib3 downloads files (`lading[http]`).

        Files of another kind than the column's are refused: a page of HTML is no image, and a PNG file is no `jpg`.

        Example:
            photos = lading.open("photos.csv").media_from("path")
            photos[0]["image"]
            lading.open("urls.csv").media_from("url", fetch=True, on_error="drop_sample").write("photos.parquet")

        Args:
            column: the column that names files.
            name: of the new column. By default `image`, `audio` or `video`, as the endings of the first names say. With
                an ending as its name, such as `jpg`, a tar has members `.jpg`.
            fetch: download files by their URLs.
            fetch_private: with `fetch`, also ask addresses that are not public.
            on_error: for a sample whose file is missing, refused or another one: `error`, `warn` (a null), or
                `drop_sample` (also `drop_row`). Each is counted by its reason, and listed in the ledger of `write`.

        Raises:
            UsageError: no such column, a name that is taken, or nothing says what the files are.
            BadReference: when samples are read: a file could not be had, under `on_error="error"`.
        """
        return type(self)(
            self._rows.with_media_from(column, name, fetch=fetch, fetch_private=fetch_private, on_error=on_error)
        )

    def where(
        self, condition: str | pc.Expression, *, drop: DropPolicy = "row", on_error: OnFunctionError = "error"
    ) -> Self:
        """Keep the rows for which a condition holds. A column that only metadata rows fill counts for all items.

        Example: `ds.where("lang == 'en' and score > 0.5")`

        Args:
            condition: a text, or a pyarrow expression.
            drop: of documents: drop the items that fail (`row`), or the documents that have such items (`sample`).
            on_error: for a sample whose values cannot be read, such as broken JSON: `error`, or `drop_sample`.
        """
        return self._with(Where(condition, drop, on_error))

    def image_bounds(
        self,
        *,
        min_side: int | None = None,
        max_side: int | None = None,
        min_aspect_ratio: float | None = None,
        max_aspect_ratio: float | None = None,
        drop: DropPolicy = "row",
    ) -> Self:
        """Keep the rows whose images are within bounds. Only the first bytes of images are read.

        Example: `ds.image_bounds(min_side=256, max_aspect_ratio=3)`

        Args:
            min_side: least pixels of an image's shorter side.
            max_side: most pixels of its longer side.
            min_aspect_ratio: least width / height.
            max_aspect_ratio: most width / height.
            drop: as of `where`.
        """
        if min_side is max_side is min_aspect_ratio is max_aspect_ratio is None:
            raise UsageError("no bound is given", expected="min_side, max_side, min_aspect_ratio or max_aspect_ratio")
        return self._with(ImageBounds(min_side, max_side, min_aspect_ratio, max_aspect_ratio, drop))

    def filter(self, function: SampleFunction, *, on_error: OnFunctionError = "error", spool: bool = True) -> Self:
        """Keep the samples for which a function says true.

        The function gets each sample as a dict of decoded values, as `ds[i]` gives it. A field that the function does
        not look at is neither read nor decoded. `filter_batches` is for functions over Arrow batches, and `where` for
        conditions as text: both are faster.

        Example: `ds.filter(lambda sample: sample["jpg"].width >= 256)`

        Args:
            function: returns true or false for a sample.
            on_error: for a sample for which the function raises: `error`, or `drop_sample` (counted, and listed in the
                ledger of `write`).
            spool: call the function once a sample, also where the samples are read several times: before steps that
                need all samples, such as `sort`. The answers wait in memory and temporary files. False calls it again.

        Raises:
            FunctionError: when samples are read: the function raised; names the sample and the function's line.
        """
        return self._with(Filter(function, on_error=on_error, opening=self._rows.opening, spool=spool))

    def map(
        self,
        function: SampleFunction,
        columns: Mapping[str, Any] | None = None,
        *,
        on_error: OnFunctionError = "error",
        spool: bool = True,
    ) -> Self:
        """Change samples by a function, which returns a dict of new and changed fields, merged into the sample.

        The function gets each sample as a dict of decoded values, as `ds[i]` gives it: images as Pillow's, JSON parsed,
        arrays as numpy. A field that the function does not look at is neither read nor decoded. A field that it leaves
        as it is keeps its stored bytes. A changed image is encoded in the format of its field's ending, else as its
        file was; JPEG gets quality 95. Images come upright (`with_decode(upright=False)` for stored pixels). Other
        values are taken as `lading.writer` takes them: unless `columns` gives another type, lists of bytes or images
        become lists of bytes, and other lists and dicts JSON.

        Of interleaved data the function gets a document, with `items`, a list of dicts. It may change items, or return
        another list of them, which are numbered by their places. New items need a `modality`. The `binary_content` of
        images is an image, and the `content_type` of a changed image follows.

        The first samples decide the types of new columns. A later value of another type is an error that names it.

        Example:
            ds.map(lambda sample: {"length": len(sample["txt"])})
            ds.map(make_thumbnail, columns={"thumbnail": lading.features.Image()})

        Args:
            function: returns new and changed fields, or the sample itself with changes; None changes nothing.
            columns: types of the columns that the function adds or changes: a name such as `"int64"`, an Arrow type, or
                a feature of `_core.features`. No other columns may be added then.
            on_error: as of `filter`.
            spool: as of `filter`. The columns that the function makes wait; payload that it leaves alone does not.

        Raises:
            FunctionError: when samples are read: the function raised; names the sample and the function's line.
        """
        given = None if columns is None else tuple(columns.items())
        return self._with(Map(function, given, on_error, opening=self._rows.opening, spool=spool))

    def filter_batches(self, function: BatchFunction, *, drop: DropPolicy = "row", spool: bool = True) -> Self:
        """Keep the rows for which a function over Arrow batches says true.

        Example: `ds.filter_batches(lambda batch: pc.greater(batch["score"], 0.5))`

        Args:
            function: called with each record batch; returns a truth value for every row. Payload comes as references
                (`lading.features.materialise` reads it), or as `large_binary`.
            drop: as of `where`.
            spool: as of `filter`.
        """
        return self._with(Filter(function, drop, batched=True, spool=spool))

    def map_batches(self, function: BatchFunction, *, spool: bool = True) -> Self:
        """Replace each batch of rows by the batch that a function returns for it.

        The columns of the first batch with rows are those of all. A function that returns more or fewer samples than
        it gets can be iterated and written; samples by number (`ds[i]`, `len`, `take`) are an error then. The first
        use of numbers behind a function therefore calls it for all rows once.

        Example: `ds.map_batches(lambda batch: batch.append_column("n", pc.utf8_length(batch["text"])))`

        Args:
            function: called with each record batch, payload as of `filter_batches`.
            spool: as of `map`. A function that gives another number of samples is called again in any case.
        """
        return self._with(Map(function, batched=True, spool=spool))

    def limit(self, count: int) -> Self:
        """Keep the first samples, at most so many.

        Example: `ds.limit(1000)`
        """
        return self._with(Limit(count))
