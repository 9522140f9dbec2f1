"""Rows → record batches of a cache: few rows at a time, column by column.

Rows are taken from the generator in chunks, encoded column by column, perhaps in threads, and cut into batches by their
number and bytes. The cuts depend only on rows and sizes, not on chunks and threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, chain, islice, repeat
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.arguments import public
from lading._core.arrow.rows import column_array
from lading._core.caches.columns import CacheColumn, Stored, Values, place_of
from lading._core.caches.layout import Features, schema_of
from lading._core.caches.tables import Rules, check_keys, cut_tables
from lading._core.features.images import held
from lading._core.features.types import encode
from lading.errors import Unrepresentable, UsageError, errors_at

__all__ = ["batches_of", "encode_example"]

_MOST_CHUNK_ROWS = 250
_MAY_CHANGE = frozenset((np.ndarray, np.ma.MaskedArray, bytearray, memoryview))


@public("lading.caches.encode_example")
def encode_example(example: Mapping[str, Any], features: Features, *, assets: str | None = None) -> dict[str, Any]:
    """Return one row as a cache stores it: each value encoded by `_core.features.encode`, columns in order.

    A number that is too large for its type is found later, when a batch is made.

    Raises:
        SchemaMismatch: a column is missing, or a key is not a column.
        UsageError: `example` or `features` is not a dict.
        Unrepresentable: a value does not fit; names the column.
    """
    if not isinstance(example, Mapping) or not isinstance(features, Mapping):
        raise UsageError("a row and its features", expected="two dicts",
                         found=f"{type(example).__name__} and {type(features).__name__}")  # fmt: skip
    check_keys(example, features)
    encoded = {}
    for name, feature in features.items():
        with errors_at(column=name):
            encoded[name] = encode(feature, example[name], assets=assets)
    return encoded


def batches_of(
    generator: Iterable[Any], features: Features, rules: Rules, *, settle: Callable[[], None]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield rows of the cache's schema, and how many make a batch.

    The rows are pairs of a key and a row, or batches and tables. Before the generator continues, `settle` is called if
    its values were passed on: their memory may be reused by the generator.

    Raises:
        SchemaMismatch, Unrepresentable: a row does not fit; with its number, key and column.
        UsageError: the generator gives something else.
    """
    try:
        items = iter(generator)
    except TypeError as error:
        advice = "Call it, and give what it returns." if callable(generator) else None
        raise UsageError("nothing to take rows from", expected="an iterable", found=str(error), advice=advice) from None
    first = list(islice(items, 1))
    everything = chain(first, items)
    if first and isinstance(first[0], (pa.RecordBatch, pa.Table)):
        yield from cut_tables(everything, features, rules, settle)
        return
    pending = _Pending(features, rules)
    for chunk in _encoded(everything, features, rules):
        pending.add(chunk)
        yield from ((batch, len(batch)) for batch in pending.full())
    yield from ((batch, len(batch)) for batch in pending.rest())


@dataclass(slots=True)
class _Chunk:
    """Some consecutive rows.

    Attributes:
        first_row: number of the first.
        keys: keys of the rows; None for a row without key.
        columns: a list of values a column.
        weight: approximate bytes of the encoded values.
        held: bytes of the values before encoding.
    """

    first_row: int
    keys: Values
    columns: list[Values]
    weight: int = 0
    held: int = 0


def _encoded(items: Iterator[Any], features: Features, rules: Rules) -> Iterator[_Chunk]:
    """Yield chunks in order. With several workers, as many more are being encoded as there are threads."""
    size = _ChunkSize(rules)
    taker = _Taker(items, features, rules)
    if not taker.later:
        while chunk := taker.take(size.rows):
            taker.encode(chunk)
            size.learn(chunk)
            yield chunk
        return
    with ThreadPoolExecutor(rules.workers, "lading-encode") as pool:
        made: deque[Future[_Chunk]] = deque()
        try:
            while True:
                taken = taker.take(size.rows)
                if taken:
                    made.append(pool.submit(taker.encode, taken))
                if made and (not taken or len(made) > rules.workers):
                    chunk = made.popleft().result()
                    size.learn(chunk)
                    yield chunk
                if not taken and not made:
                    return
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _ChunkSize:
    """How many rows to take at once: few of large ones, and at most twice as many as last time."""

    def __init__(self, rules: Rules) -> None:
        self.rows = 1
        self._most = min(_MOST_CHUNK_ROWS, rules.batch_rows)
        self._bytes = rules.batch_bytes // max(2 * rules.workers, 1)

    def learn(self, chunk: _Chunk) -> None:
        each = max(chunk.weight, chunk.held) // max(len(chunk.keys), 1) + 1
        self.rows = max(min(self.rows * 2, self._most, self._bytes // each), 1)


class _Taker:
    """Take rows from the generator and encode their values.

    A generator may change its row, its arrays and its files once it continues. Mutable values are therefore encoded
    before that, or copied if threads encode them later.

    Attributes:
        later: whether threads encode.
    """

    def __init__(self, items: Iterator[Any], features: Features, rules: Rules) -> None:
        first = list(islice(items, 1))
        items = chain(first, items)
        pairs = bool(first) and type(first[0]) is tuple
        self._items: Iterator[Any] = items if pairs else zip(repeat(None), items, strict=False)
        self._features, self._rules = features, rules
        self._columns = [CacheColumn(name, feature, rules.assets) for name, feature in features.items()]
        self._changing = [(at, column) for at, column in enumerate(self._columns) if column.changing]
        names = [*features] if len(features) > 1 else [*features] * 2  # so that even one column gives tuples
        self._getter, self._width = itemgetter(*names), len(names)
        self._row = 0
        self.later = rules.workers > 1 and any(column.costly for column in self._columns)

    def take(self, count: int) -> _Chunk | None:
        """Return the next rows, at most this many; None at the end."""
        wanted, getter, changing = len(self._columns), self._getter, self._changing
        keys: Values = []
        # Row after row, not a tuple of each: memory is reused at once, and it takes a third less time.
        flat: Values = []
        add_key = keys.append
        # No further than where a batch ends if none ended by its bytes: then nothing is left to move.
        for item in islice(self._items, min(count, self._rules.batch_rows - self._row % self._rules.batch_rows)):
            try:
                key, row = item
                values = getter(row) if type(row) is dict and len(row) == wanted else None
            except (KeyError, TypeError, ValueError):
                values = None
            if values is None:
                key, values = self._odd(item, len(keys))
            if changing:
                values = self._fixed(list(values), key, len(keys))
            add_key(key)
            flat += values
        if not keys:
            return None
        chunk = _Chunk(self._row, keys, [flat[at :: self._width] for at in range(wanted)])
        self._fix_found(chunk)
        self._row += len(keys)
        return chunk

    def _odd(self, item: Any, at: int) -> tuple[Any, tuple[Any, ...]]:
        """Return key and values of a row that is not a dict of exactly the columns.

        Raises, unless it can be corrected.
        """
        key, row = item if isinstance(item, tuple) and len(item) == 2 else (None, item)  # noqa: PLR2004 - a pair
        if isinstance(row, tuple) and len(row) == 2:  # noqa: PLR2004 - a pair among rows without keys
            key, row = row
        place = place_of(self._row + at, key)
        if not isinstance(row, Mapping):
            raise UsageError("not a row of a cache", **place, found=type(row).__name__,
                             expected="a dict, or a pair of a key and a dict; or batches and tables alone")  # fmt: skip
        kept = dict.fromkeys(self._features) | dict(row) if self._rules.fill_missing else dict(row)
        if self._rules.drop_unknown:
            kept = {name: kept[name] for name in kept if name in self._features}
        with errors_at(**place):
            check_keys(kept, self._features)
        return key, self._getter(kept)

    def _fixed(self, values: Values, key: Any, at: int) -> Values:
        """Return the row's values; mutable ones encoded, or copied for later."""
        for i, column in self._changing:
            if type(values[i]) not in column.ready:
                values[i] = self._kept(column, values[i], self._row + at, key)
        return values

    def _kept(self, column: CacheColumn, value: Any, row: int, key: Any) -> Any:
        if not self.later or column.text:
            return column.encode(value, row, key)
        try:
            return held(value)
        except (TypeError, ValueError, AssertionError):
            return Stored(column.encode(value, row, key))

    def _fix_found(self, chunk: _Chunk) -> None:
        """Find mutable values in columns that had none, such as zero-dimensional arrays among numbers.

        They have not changed yet if the chunk is one row, as the first chunk is. In other chunks, an object shared by
        several rows has changed. Checking each row for such rare values would cost a tenth.
        """
        for at, column in enumerate(self._columns):
            values = chunk.columns[at]
            if column.changing or _MAY_CHANGE.isdisjoint(map(type, values)):
                continue
            column.changing = True
            self._changing.append((at, column))
            seen: set[int] = set()
            for i, value in enumerate(values):
                place = chunk.first_row + i, chunk.keys[i]
                if id(value) in seen:
                    raise Unrepresentable(
                        "an object that stood for an earlier row too, and may have changed since", column=column.name,
                        **place_of(*place), found=type(value).__name__, advice="Give a new one for each row.",
                    )  # fmt: skip
                if type(value) in _MAY_CHANGE:
                    seen.add(id(value))
                values[i] = self._kept(column, value, *place)

    def encode(self, chunk: _Chunk) -> _Chunk:
        """Encode the remaining values, and measure them. Raises for the first bad row of the first bad column."""
        for at, column in enumerate(self._columns):
            if not column.changing or self.later:
                if column.costly:
                    chunk.held += sum(map(_held_bytes, chunk.columns[at]))
                chunk.columns[at] = column.encoded(chunk.columns[at], chunk.keys, chunk.first_row)
            chunk.weight += column.weight(chunk.columns[at])
        return chunk


def _held_bytes(value: Any) -> int:
    """Return the approximate memory of a value that is to be encoded."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    size = getattr(value, "size", None)  # of a Pillow image
    return 4 * size[0] * size[1] if isinstance(size, tuple) else 0


class _Pending:
    """Encoded rows that wait to become a batch."""

    def __init__(self, features: Features, rules: Rules) -> None:
        self._rules = rules
        self._schema = schema_of(features)
        self._columns = [CacheColumn(name, feature, rules.assets) for name, feature in features.items()]
        self._values: list[Values] = [[] for _ in self._columns]
        self._keys: Values = []
        self._first_row = self._weight = 0

    def add(self, chunk: _Chunk) -> None:
        for mine, more in zip(self._values, chunk.columns, strict=True):
            mine.extend(more)
        self._keys += chunk.keys
        self._weight += chunk.weight

    def full(self) -> Iterator[pa.RecordBatch]:
        """Yield batches while there are enough rows or bytes for one."""
        while self._weight >= self._rules.batch_bytes or len(self._values[0]) >= self._rules.batch_rows:
            yield self._cut(self._end())

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, if any."""
        if self._values[0]:
            yield self._cut(len(self._values[0]))

    def _end(self) -> int:
        """Return the rows of the next batch: the fewest with enough bytes, or the maximum."""
        rows = min(len(self._values[0]), self._rules.batch_rows)
        if self._weight < self._rules.batch_bytes:
            return rows
        each = zip(*(c.weights(v[:rows]) for c, v in zip(self._columns, self._values, strict=True)), strict=True)
        ends = (at for at, total in enumerate(accumulate(map(sum, each)), 1) if total >= self._rules.batch_bytes)
        return next(ends, rows)

    def _cut(self, rows: int) -> pa.RecordBatch:
        arrays = []
        for at, (column, stored) in enumerate(zip(self._columns, self._schema, strict=True)):
            taken = self._values[at]
            self._values[at] = taken[rows:]
            del taken[rows:]
            arrays.append(column_array(column.name, taken, stored.type, self._place))
        self._keys = self._keys[rows:]
        self._first_row += rows
        self._weight = sum(c.weight(v) for c, v in zip(self._columns, self._values, strict=True))
        return pa.record_batch(arrays, schema=self._schema)

    def _place(self, at: int) -> dict[str, Any]:
        """Return the place of a waiting row, for errors."""
        return place_of(self._first_row + at, self._keys[at])
