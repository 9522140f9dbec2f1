"""The methods of a dataset that give it to other programs: Arrow streams, pandas, polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from lading._core.api.verbs import Verbs
from lading._core.arguments import public
from lading._core.tables.table import JsonAs, MediaAs, Table
from lading.errors import missing_extra

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["TableVerbs"]


@public("ds")
class TableVerbs(Verbs):
    """Methods that give the samples as a table.

    They share two arguments. `media` shows media and other bytes as a struct of `url`, `offset`, `length` and facts
    of their headers such as `width` (`reference`), or as bytes. `json` shows JSON with its types, or as text.
    """

    __slots__ = ("_known_table",)

    def __arrow_c_schema__(self) -> object:
        """The columns and types of `to_reader()`, as Arrow's schema. DuckDB asks for it."""
        return self._as_table().schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow stream, as `to_reader()` gives them: for whatever takes Arrow.

        Example: `pa.table(ds)`, `pl.DataFrame(ds)`, `duckdb.sql("select count(*) from ds")`
        """
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self, *, media: MediaAs = "reference", json: JsonAs = "typed") -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow record batches, which are read when they are asked for.

        All batches have one schema. Text is string, and JSON has the types of the first 1,000 samples. Rows are
        samples; of documents they are items, as of `batches`. Each call begins anew.

        Example: `for batch in ds.select("txt", "json").to_reader(): ...`

        Args:
            media: `reference` gives media and other bytes as structs: the file (`url`), the range of bytes in it
                (`offset`, `length`), and facts of the header, such as `width` and `duration_s`. `offset` is null where
                bytes have no range of their own: in compressed files, and in cells of Parquet. `bytes` gives the bytes.
            json: `typed` gives structs, lists and scalars. `text` gives JSON text.

        Raises:
            SchemaMismatch: while reading: a JSON value does not fit the types of the first 1,000 samples.
        """
        return self._as_table(media, json).reader()

    def to_arrow(self, *, media: MediaAs = "reference", json: JsonAs = "typed") -> pa.Table:
        """Return all rows as a table of pyarrow, in memory.

        Example: `ds.where("json.lang == 'en'").to_arrow()["json"]`

        Args:
            media: as of `to_reader`.
            json: as of `to_reader`.
        """
        return self.to_reader(media=media, json=json).read_all()

    def to_pandas(self, *, media: MediaAs = "reference", json: JsonAs = "typed") -> pd.DataFrame:
        """Return all rows as a frame of pandas, in memory. Its columns have Arrow's types (`pd.ArrowDtype`).

        So integers stay integers where values are missing, and structs have fields: `df["jpg"].struct.field("width")`.

        Example: `ds.to_pandas().head()`

        Args:
            media: as of `to_reader`.
            json: as of `to_reader`.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise missing_extra(error, "frames of pandas are made with pandas", "pandas",
                                "pip install 'lading[pandas]'.") from None  # fmt: skip
        return self.to_arrow(media=media, json=json).to_pandas(types_mapper=pd.ArrowDtype)

    @overload
    def to_polars(self, *, lazy: Literal[True], media: MediaAs = ..., json: JsonAs = ...) -> pl.LazyFrame: ...
    @overload
    def to_polars(self, *, lazy: Literal[False] = ..., media: MediaAs = ..., json: JsonAs = ...) -> pl.DataFrame: ...

    def to_polars(self, *, lazy: bool = False, media: MediaAs = "reference", json: JsonAs = "typed") -> Any:
        """Return the rows as a frame of polars, or as a lazy frame, which reads only what its query needs.

        A lazy frame reads the columns that the query names, then those rows of other columns that its conditions
        keep, and stops after `head(n)`.

        Example: `ds.to_polars(lazy=True).filter(pl.col("cls") == 3).select("jpg").collect()`

        Args:
            lazy: give a `LazyFrame`.
            media: as of `to_reader`.
            json: as of `to_reader`.

        Raises:
            MissingExtra: polars is not installed.
        """
        from lading._core.tables.polars_source import polars_module, scan_with_polars

        if lazy:
            return scan_with_polars(self._as_table(media, json))
        return polars_module().from_arrow(self.to_arrow(media=media, json=json))

    def _as_table(self, media: MediaAs = "reference", json: JsonAs = "typed") -> Table:
        """The table of these samples; the last one is kept, so that the types of JSON are looked for once."""
        known: Table | None = getattr(self, "_known_table", None)
        if known is None or (known.media, known.json) != (media, json):
            known = self._known_table = Table(self._rows, media=media, json=json)
        return known
