"""Questions in SQL to the JSON of tars, beside the loop that people write: tarfile, json, then DuckDB."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable

from harness import Case, Done, Place

_PATTERN = "images/*.tar"
_PEER = "tarfile, json, DuckDB"
_TIMES = 10
"""How often the shards are listed, so that the time is not that of the first call."""
_QUERY = "select json.width, count(*), sum(length(json.caption)) from ds group by 1"


def _done(place: Place, rows: list[tuple]) -> Done:
    [(width, count, size)] = rows
    assert width == 640
    assert size > 0
    return Done(count, _TIMES * place.facts("images")["payload_bytes"])


def _by_tarfile(place: Place) -> Callable[[], Done]:
    import duckdb
    import pyarrow as pa

    def work() -> Done:
        found = []
        for path in place.files(_PATTERN) * _TIMES:
            with tarfile.open(path, "r:") as tar:
                for member in tar:
                    if member.name.endswith(".json"):
                        file = tar.extractfile(member)
                        assert file is not None
                        found.append({"json": json.load(file)})
        ds = pa.Table.from_pylist(found)  # noqa: F841 - the query names it
        return _done(place, duckdb.sql(_QUERY).fetchall())

    return work


def _by_lading(place: Place) -> Callable[[], Done]:
    import lading
    from lading._core.tables.sql import database  # noqa: F401 - imported before the time is taken, as DuckDB is

    def work() -> Done:
        found = lading.sql(_QUERY, ds=lading.open(place.files(_PATTERN) * _TIMES)).to_arrow()
        return _done(place, [tuple(row.values()) for row in found.to_pylist()])

    return work


def _by_stream(place: Place) -> Callable[[], Done]:
    import duckdb

    import lading
    from lading._core.tables.sql import database  # noqa: F401 - as above

    def work() -> Done:
        ds = lading.open(place.files(_PATTERN) * _TIMES).select("json").to_reader()  # noqa: F841 - the query names it
        return _done(place, duckdb.sql(_QUERY).fetchall())

    return work


CASES = (
    Case(
        "sql json tar",
        _PATTERN,
        peer=_PEER,
        limit=_PEER,
        ways={"lading.sql": _by_lading, "lading, DuckDB": _by_stream, _PEER: _by_tarfile},
    ),
)
