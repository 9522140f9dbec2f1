"""`lading.sql`: queries in SQL over datasets, whose result is a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lading._core.api.dataset import Dataset
from lading._core.api.opening import open_dataset
from lading._core.arguments import public, unknown_arguments
from lading._core.dataset.opened import OpenDataset, opened
from lading._core.dataset.query import Query
from lading._core.dataset.source.rows import Spooled
from lading._core.dataset.steps.answer_step import AsSamples
from lading._core.features.items import RESERVED
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.storage.stores import Stores
from lading._core.tables.shown import rows_text
from lading._core.tables.table import JsonAs, MediaAs, Table
from lading.errors import UsageError
from lading.options import ReadOptions

if TYPE_CHECKING:
    from lading._core.tables.sql.database import Result, Showing

__all__ = ["query_dataset", "query_rows", "sql"]

_NAME = "result of SQL"
_ROWS = 1000
"""Of a batch of the result."""
_SHOWN = 20
"""Rows that `print` shows."""
_OWN = ("query", "media", "json", "name=dataset")
"""The arguments of `sql`."""


class _Answer(Dataset):
    """The result of a query. As a table it has the rows of the query; `print` shows the first ones."""

    __slots__ = ("_told",)
    _told: OpenDataset

    @classmethod
    def of(cls, told: Query, as_samples: AsSamples) -> _Answer:
        """Return the samples of rows that a query gave, with payload in place of its places, and JSON as it was."""
        steps = (as_samples,) if as_samples.named(()) else ()
        found = cls(OpenDataset.of(told.replace(steps=steps)))
        found._told = OpenDataset.of(told)
        return found

    def _as_table(self, media: MediaAs = "reference", json: JsonAs = "typed") -> Table:
        told = getattr(self, "_told", None)
        if told is None or media != "reference":
            return super()._as_table(media, json)
        return Table(told, media=media, json=json)

    def __repr__(self) -> str:
        if getattr(self, "_told", None) is None:
            return super().__repr__()
        rows = self._as_table().reader(limit=_SHOWN + 1).read_all()
        lines = rows_text(rows.slice(0, _SHOWN), get_terminal_size().columns).splitlines()
        more = ["…"] if len(rows) > _SHOWN else []
        return "\n".join([*lines, *more] if len(rows) else [*lines, "no rows"])


@public("lading.sql")
def sql(query: str, /, *, media: MediaAs = "reference", json: JsonAs = "typed", **datasets: Any) -> Dataset:
    """Return the result of a query in SQL as a dataset: rows in the order of the query. `print` shows the first ones.

    The query is one SELECT of DuckDB's SQL. It names datasets that are given, and files in quotes. It reads the columns
    and the fields that it names, of the rows that its conditions keep, and stops at its limit: a query over JSON reads
    no picture.

    Example:
        lading.sql("select json.lang, count(*) from 'photos/*.tar' group by 1").to_pandas()
        wide = lading.sql("select __key__, jpg from ds where jpg.width > 512", ds=ds)
        wide.write("wide", format="webdataset")

    Args:
        query: the query. Text is string, JSON has the types of the first 1,000 samples, media are structs of `url`,
            `offset`, `length` and facts of their headers such as `width`. Where the result holds such a struct, a
            sample of it has the picture, and `write` writes the picture.
        media: `bytes` shows media as bytes: for payload that has no range of its own (compressed, in Parquet).
        json: `text` shows JSON as text.
        datasets: what the query names: datasets, or what `lading.open` takes.

    Raises:
        UsageError: the query is no SELECT, or names what is not there.
        SchemaMismatch: a JSON value does not fit the types of the first 1,000 samples.
        MissingExtra: DuckDB is not installed.
    """
    from lading._core.tables.sql.database import Showing

    unknown = [name for name, each in datasets.items() if each is None or isinstance(each, (bool, int, float))]
    if unknown:
        raise unknown_arguments("lading.sql", unknown, _OWN)
    given = {name: each if isinstance(each, Dataset) else open_dataset(each) for name, each in datasets.items()}
    with shown_progress("reading", None, progress=True) as report:
        return query_dataset(query, given, open_dataset, Showing(media, json), report)


@contextmanager
def query_rows(
    query: str,
    given: Mapping[str, Dataset],
    open_named: Callable[[str], Dataset],
    how: Showing,
    on_progress: OnProgress | None,
) -> Iterator[tuple[Result, Mapping[str, OpenDataset]]]:
    """Run a query over datasets; gives its rows, and the datasets by name.

    Args:
        query: the query.
        given: datasets by the name that the query has for them.
        open_named: opens files that the query names.
        how: how columns of media and of JSON are shown.
        on_progress: called after each batch that is read.
    """
    from lading._core.tables.sql.database import query_result

    found = {name: opened(each) for name, each in given.items()}
    rows = 0

    def open_rows(name: str) -> OpenDataset:
        found[name] = opened(open_named(name))
        return found[name]

    def report(count: int) -> None:
        nonlocal rows
        rows += count
        if on_progress is not None:
            shards = [each.fitting for each in found.values()]
            done = sum(len(each.read_samples) for each in shards)
            on_progress(Progress(done, sum(len(each.listing) for each in shards), rows, 0))

    with query_result(query, dict(found), open_rows, how, rows=_ROWS, on_rows=report) as result:
        yield result, found


def query_dataset(
    query: str,
    given: Mapping[str, Dataset],
    open_named: Callable[[str], Dataset],
    how: Showing,
    on_progress: OnProgress | None,
) -> Dataset:
    """Return the result of a query as a dataset, whose rows lie in a temporary file. Arguments as of `query_rows`."""
    with query_rows(query, given, open_named, how, on_progress) as (result, sources):
        places = result.places()
        _refuse_documents_without_bytes(result.schema, places)
        rows = Spooled.of(_NAME, f"{_NAME}.arrow", lambda path: _write(path, result), format="arrow")
        stores = Stores.joined(each.query.read.stores for each in sources.values())
        as_samples = AsSamples(places, result.files(), result.documents())
    return _Answer.of(Query(rows, ReadOptions(stores=stores)), as_samples)


def _refuse_documents_without_bytes(schema: pa.Schema, places: Sequence[pa.Field]) -> None:
    """Raise UsageError for items of documents, which are documents again, with places in place of bytes."""
    if {*RESERVED} <= {*schema.names} and "binary_content" in {field.name for field in places}:
        raise UsageError("documents are made of the bytes of their items", column="binary_content",
                         advice="Take them with --media bytes, or name fewer columns.")  # fmt: skip


def _write(path: str, result: Result) -> None:
    with pa.ipc.new_stream(path, result.schema) as writer:
        for batch in result.batches:
            writer.write_batch(batch)
