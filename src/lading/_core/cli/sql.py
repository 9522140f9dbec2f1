"""`lading sql`: queries over datasets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import typer

from lading._core.cli.convert import converted
from lading._core.cli.options import READING, WRITING, Debug, Json, OptionGroup, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading.errors import UsageError
from lading.options import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lading._core.api.dataset import Dataset

__all__ = ["sql"]

_PANEL = "Options"


@dataclass(frozen=True, slots=True)
class _Showing:
    """How a query sees columns.

    Attributes:
        media: Show media as a struct of url, offset, length and facts such as width (reference), or as bytes.
        json_as: Show JSON by the types of the first 1,000 samples (typed), or as text.
    """

    media: str = field(
        default="reference", metadata=cli("--media", "HOW", panel=_PANEL, choices=("reference", "bytes"))
    )
    json_as: str = field(default="typed", metadata=cli("--json-as", "HOW", panel=_PANEL, choices=("typed", "text")))


_WRITING = replace(
    WRITING,
    only=(
        "format", "options", "shard_size", "num_shards", "rows_per_shard", "checksums", "overwrite", "verify",
        "workers", "max_batch_bytes",
    ),
    optional=True,
)  # fmt: skip


@takes(OptionGroup("showing", (_Showing,)), _WRITING, READING)
def sql(
    *,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", show_default=False, help="One SELECT. Files stand in quotes.")
    ],
    destination: Annotated[
        str | None,
        typer.Argument(
            metavar="DST", show_default=False, help="Write the result: a folder, or one file such as out.parquet."
        ),
    ] = None,
    number: Annotated[int, typer.Option("-n", "--number", min=0, metavar="N", help="Rows to print.")] = 20,
    as_json: Json = False,
    debug: Debug = False,
    showing: Values,
    writing: Values,
    reading: Values,
) -> None:
    """Ask datasets in SQL; print the rows, or write them as a dataset.

    Examples:
      lading sql "select json.lang, count(*) from 'photos/*.tar' group by 1"
      lading sql "select __key__, jpg from 'photos' where jpg.width > 64" large --to webdataset

    The query reads the columns and fields that it names, of the rows that its
    conditions keep. A picture is a struct of url, offset, length and facts
    such as width; written, it is the picture again.
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.api.opening import open_dataset
        from lading._core.api.sql import query_dataset, query_rows
        from lading._core.formats.registry import format_of_name
        from lading._core.tables.shown import as_json as row_json
        from lading._core.tables.shown import rows_table
        from lading._core.tables.sql.database import Showing

        write, asked = writing(), reading()
        how = Showing(showing()["media"], showing()["json_as"])

        def open_named(name: str) -> Dataset:
            return open_dataset(name, **asked)

        with watching(out, "reading") as report:
            if destination is not None:
                write["format"] = write.get("format") or format_of_name(destination)
                out.done = f"{destination} is written."
                done = query_dataset(query, {}, open_named, how, report).write(destination, on_progress=report, **write)
                shown = converted(["QUERY"], destination, done, lazy=False)
                out.show({"destination": destination, **asdict(done)}, shown)
                return
            if write.get("format") is not None:
                raise UsageError("a result is written to a place", found=f"--to {write['format']}",
                                 advice="Name it behind the query: lading sql QUERY DST --to FORMAT.")  # fmt: skip
            with query_rows(query, {}, open_named, how, report) as (result, _):
                if as_json:
                    for batch in result.batches:
                        for row in batch.to_pylist():
                            out.show(row_json(row), (), indent=None)
                    return
                rows, more = _first(result.batches, result.schema, number)
        out.print([rows_table(rows, out.out.width)] if len(rows) else ["no rows"])
        if more:
            out.note(f"the first {number:,} rows: -n N shows more, --json all")


def _first(batches: Iterator[pa.RecordBatch], schema: pa.Schema, number: int) -> tuple[pa.Table, bool]:
    """Return the first rows, and whether there are more."""
    import pyarrow as pa

    found, count = [], 0
    for batch in batches:
        found.append(batch)
        count += batch.num_rows
        if count > number:
            break
    return pa.Table.from_batches(found, schema).slice(0, number), count > number
