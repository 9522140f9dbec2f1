"""Rows, or batches of them, → record batches of a cache: few at a time, columns at a time.

Rows are taken from the generator in chunks, encoded column by column, perhaps in threads, and cut into batches by
their number and bytes. Cuts fall where the rows and their sizes say, wherever the chunks ended and whoever encoded
them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice, repeat
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading.arrow.layout import Features, schema_of
from lading.encoding import held
from lading.errors import LadingError, SchemaMismatch, Unrepresentable, UsageError, errors_at
from lading.features import (
    Array,
    Audio,
    Bytes,
    ClassLabel,
    Feature,
    Image,
    Sequence,
    Struct,
    Text,
    Value,
    Video,
    encode,
    python_types,
)
from lading.views import is_bytes, is_text

__all__ = ["Rules", "batches_of", "encode_example"]

Row: TypeAlias = Mapping[str, Any]
Values: TypeAlias = list[Any]

_MOST_CHUNK_ROWS = 250
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, Unrepresentable)
_READY: dict[type, frozenset[type]] = {
    **dict.fromkeys((Image, Audio, Bytes), frozenset((bytes, type(None)))),
    ClassLabel: frozenset((int, type(None))),
    Text: frozenset((str, type(None))),
}
"""Types of values that are stored as they are."""
_LISTS = frozenset((list, tuple, type(None)))
_COSTLY = (Image, Audio, Video, Array)
_NARROW = (pa.float16(), pa.float32())


@dataclass(frozen=True, slots=True)
class Rules:
    """How rows become batches.

    Attributes:
        batch_rows, batch_bytes: a batch ends when it has as many of either.
        workers: threads that encode.
        drop_unknown: leave out keys that are no column.
        fill_missing: null for columns that a row does not have.
        assets: folder for the files of videos.
    """

    batch_rows: int
    batch_bytes: int
    workers: int = 1
    drop_unknown: bool = False
    fill_missing: bool = False
    assets: str | None = None


def encode_example(example: Row, features: Features, *, assets: str | None = None) -> dict[str, Any]:
    """One row as a cache stores it: what `lading.features.encode` makes of each value, columns in order.

    Raises:
        SchemaMismatch: a column is missing, or a key is none.
        Unrepresentable and others: as `encode`, with the column.
    """
    _check_keys(example, features)
    encoded = {}
    for name, feature in features.items():
        with errors_at(column=name):
            encoded[name] = encode(feature, example[name], assets=assets)
    return encoded


def _check_keys(row: Row, features: Features) -> None:
    missing = [name for name in features if name not in row]
    if missing:
        raise SchemaMismatch("a row without a column", column=missing[0], expected=list(features),
                             found=list(map(str, row)), advice='Give null for it, or on_missing="null".')  # fmt: skip
    unknown = [str(name) for name in row if name not in features]
    if unknown:
        raise SchemaMismatch("a row with a key that is no column", column=unknown[0], expected=list(features),
                             advice='Name it in the features, or on_unknown="drop".')  # fmt: skip


def batches_of(generator: Iterable[Any], features: Features, rules: Rules) -> Iterator[pa.RecordBatch]:
    """Batches of the cache's schema, out of rows, pairs of a key and a row, or batches and tables.

    Raises:
        SchemaMismatch, Unrepresentable: a row does not fit; with its number, key and column.
        UsageError: the generator gives something else.
    """
    items = iter(generator)
    first = list(islice(items, 1))
    everything = chain(first, items)
    if first and isinstance(first[0], (pa.RecordBatch, pa.Table)):
        yield from _cut_tables(everything, features, rules)
        return
    pending = _Pending(features, rules)
    for chunk in _encoded(everything, features, rules):
        pending.add(chunk)
        yield from pending.full()
    yield from pending.rest()


@dataclass(slots=True)
class _Chunk:
    """Some rows that follow each other.

    Attributes:
        first_row: number of the first.
        keys: of the rows; None where one has none.
        columns: a list of values a column.
        weight: bytes of the encoded values, about.
        held: bytes of what they were encoded from.
    """

    first_row: int
    keys: Values
    columns: list[Values]
    weight: int = 0
    held: int = 0


def _encoded(items: Iterator[Any], features: Features, rules: Rules) -> Iterator[_Chunk]:
    """Chunks in order. With several workers as many more are being encoded as there are threads."""
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
    """How many rows to take at once: few of large ones, and no more than twice as many as last time."""

    def __init__(self, rules: Rules) -> None:
        self.rows = 1
        self._most = min(_MOST_CHUNK_ROWS, rules.batch_rows)
        self._bytes = rules.batch_bytes // max(2 * rules.workers, 1)

    def learn(self, chunk: _Chunk) -> None:
        each = max(chunk.weight, chunk.held) // max(len(chunk.keys), 1) + 1
        self.rows = max(min(self.rows * 2, self._most, self._bytes // each), 1)


class _Taker:
    """Takes rows from the generator and encodes their values.

    A generator may do with its row, its arrays and its files what it likes once it goes on: what can change is encoded
    before that, or copied where threads encode it later.

    Attributes:
        later: whether threads are to encode.
    """

    def __init__(self, items: Iterator[Any], features: Features, rules: Rules) -> None:
        first = list(islice(items, 1))
        items = chain(first, items)
        pairs = bool(first) and type(first[0]) is tuple
        self._items: Iterator[Any] = items if pairs else zip(repeat(None), items, strict=False)
        self._features, self._rules = features, rules
        self._columns = [_Column(name, feature, rules.assets) for name, feature in features.items()]
        self._changing = [(at, column) for at, column in enumerate(self._columns) if column.changing]
        # Twice the first name, so that there are tuples even of one column.
        self._getter = itemgetter(*features, next(iter(features)))
        self._row = 0
        self.later = rules.workers > 1 and any(column.costly for column in self._columns)

    def take(self, count: int) -> _Chunk | None:
        """The next rows, no more than this; None if there are none."""
        wanted, getter, changing = len(self._columns), self._getter, self._changing
        keys: Values = []
        rows: list[Any] = []
        add_key, add = keys.append, rows.append
        # No further than where a batch ends if none ended by its bytes: then nothing is left to be moved.
        for item in islice(self._items, min(count, self._rules.batch_rows - self._row % self._rules.batch_rows)):
            try:
                key, row = item
                values = getter(row) if type(row) is dict and len(row) == wanted else None
            except (KeyError, TypeError, ValueError):
                values = None
            if values is None:
                key, values = self._odd(item, len(rows))
            if changing:
                values = self._fixed(list(values), key, len(rows))
            add_key(key)
            add(values)
        if not rows:
            return None
        chunk = _Chunk(self._row, keys, list(map(list, zip(*rows, strict=True)))[:wanted])
        self._row += len(rows)
        return chunk

    def _odd(self, item: Any, at: int) -> tuple[Any, tuple[Any, ...]]:
        """Key and values of a row that is no dict of exactly the columns. An error, unless it may be mended."""
        key, row = item if isinstance(item, tuple) and len(item) == 2 else (None, item)  # noqa: PLR2004 - a pair
        if isinstance(row, tuple) and len(row) == 2:  # noqa: PLR2004 - a pair among rows without keys
            key, row = row
        place = _place(self._row + at, key)
        if not isinstance(row, Mapping):
            raise UsageError("no row of a cache", **place, found=type(row).__name__,
                             expected="a dict, or a pair of a key and a dict; or batches and tables alone")  # fmt: skip
        kept = dict.fromkeys(self._features) | dict(row) if self._rules.fill_missing else dict(row)
        if self._rules.drop_unknown:
            kept = {name: kept[name] for name in kept if name in self._features}
        with errors_at(**place):
            _check_keys(kept, self._features)
        return key, self._getter(kept)

    def _fixed(self, values: Values, key: Any, at: int) -> Values:
        """The row's values, where they could change encoded, or copied for later."""
        for i, column in self._changing:
            if type(values[i]) not in column.ready:
                values[i] = held(values[i]) if self.later else column.encode(values[i], self._row + at, key)
        return values

    def encode(self, chunk: _Chunk) -> _Chunk:
        """Encode what is not yet, and weigh it. Raises what is wrong with the first bad row of the first bad column."""
        for at, column in enumerate(self._columns):
            if not column.changing or self.later:
                if column.costly:
                    chunk.held += sum(map(_held_bytes, chunk.columns[at]))
                chunk.columns[at] = column.encoded(chunk.columns[at], chunk)
            chunk.weight += column.weight(chunk.columns[at])
        return chunk


class _Column:
    """How the values of one column are encoded and weighed.

    Attributes:
        costly: whether threads are worth while.
        changing: whether its values may be objects that change, or files that go.
        ready: types of values that are stored as they are, whatever they hold.
    """

    def __init__(self, name: str, feature: Feature, assets: str | None) -> None:
        self.name, self._feature, self._assets = name, feature, assets
        self.costly = _is_costly(feature)
        self.changing = not isinstance(feature, (Text, ClassLabel, Value)) or "binary" in getattr(feature, "dtype", "")
        self.ready = _READY.get(type(feature), frozenset((type(None),)))
        self._weigh = _weigher(feature)
        self._codes = (
            {name: at for at, name in reversed(list(enumerate(feature.names)))}
            if isinstance(feature, ClassLabel)
            else {}
        )

    def encoded(self, values: Values, chunk: _Chunk) -> Values:
        """The values as they are stored."""
        if isinstance(self._feature, Text) or _is_ready(self._feature, values):
            return values  # to pyarrow only texts are texts
        rows = enumerate(zip(values, chunk.keys, strict=True), chunk.first_row)
        return [self.encode(value, row, key) for row, (value, key) in rows]

    def encode(self, value: Any, row: int, key: Any) -> Any:
        """One value as it is stored. Raises as `lading.features.encode`, with row, key and column."""
        if self._codes and type(value) is str and value in self._codes:
            return self._codes[value]
        try:
            return encode(self._feature, value, assets=self._assets)
        except LadingError as error:
            raise error.at(column=self.name, **_place(row, key)) from None

    def weight(self, values: Values) -> int:
        """Bytes of encoded values, about."""
        if self._weigh is None:
            return 0
        try:
            return sum(map(self._weigh, values))
        except TypeError:  # null, or a value that is told of when the array is made
            return sum(self._weigh(v) for v in values if hasattr(v, "__len__"))

    def weights(self, values: Values) -> list[int]:
        """Of each value."""
        weigh = self._weigh
        return [0] * len(values) if weigh is None else [weigh(v) if hasattr(v, "__len__") else 0 for v in values]

    def array(self, values: Values, kind: pa.DataType, keys: Values, first_row: int) -> pa.Array:
        """The column, its values checked by pyarrow.

        Raises:
            Unrepresentable: a value does not fit; with its place.
        """
        try:
            return _array(self._feature, values, kind)
        except _REFUSED as error:
            for at, value in enumerate(values):
                try:
                    _array(self._feature, [value], kind)
                except _REFUSED as refused:
                    place = _place(first_row + at, keys[at])
                    raise Unrepresentable(f"a value that {kind} cannot hold", column=self.name, **place,
                                          found=f"{value!r:.80} ({refused})") from refused  # fmt: skip
            raise Unrepresentable("these values cannot stand in one batch", column=self.name, found=str(error),
                                  advice="Make batches smaller.", row=first_row) from error  # fmt: skip


def _place(row: int, key: Any) -> dict[str, Any]:
    """Where a value is, for errors."""
    return {"row": row} if key is None else {"row": row, "sample": str(key)}


def _is_ready(feature: Feature, values: Values) -> bool:
    """Whether all values are stored as they are."""
    types = set(map(type, values))
    if isinstance(feature, Sequence):  # of a text, pyarrow would make a list of letters
        inner = feature.feature
        return types <= _LISTS and isinstance(inner, (Value, Text)) and _is_ready(
            inner, list(chain.from_iterable(filter(None, values)))
        )  # fmt: skip
    if isinstance(feature, Value):
        return bool(known := python_types(feature.dtype)) and types <= {*known, type(None)}
    return types <= _READY.get(type(feature), frozenset())


def _array(feature: Feature, values: Values, kind: pa.DataType) -> pa.Array:
    """The values as an array of this type. Raises one of `_REFUSED`."""
    if _needs_arrow(feature):
        # Told the type, pyarrow cuts times and decimals to it without a word; a cast does not.
        return _cast(pa.array(values), kind, feature)
    if kind == pa.large_binary() and None not in values:
        return _joined(values)
    array = pa.array(values, kind)
    if isinstance(array, pa.ChunkedArray):
        raise OverflowError("more than 2 GB of text in one batch")
    inner = array
    while pa.types.is_list(inner.type):
        inner = inner.flatten()
    if inner.type in _NARROW and (made := pc.sum(pc.is_inf(inner)).as_py()) and made > _infinities(values):
        raise OverflowError("too large")
    return array


def _joined(values: list[bytes]) -> pa.Array:
    """Bytes as an array. pyarrow copies them bit by bit into memory that it enlarges, at half the speed."""
    ends = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), parts)


def _infinities(values: Any) -> int:
    return sum(_infinities(v) if isinstance(v, (list, tuple)) else v in (math.inf, -math.inf) for v in values)


def _needs_arrow(feature: Feature) -> bool:
    if isinstance(feature, Sequence):
        return _needs_arrow(feature.feature)
    return isinstance(feature, Value) and not python_types(feature.dtype)


def _is_costly(feature: Feature) -> bool:
    if isinstance(feature, Struct):
        return any(_is_costly(inner) for _, inner in feature.fields)
    return isinstance(feature, _COSTLY) or (isinstance(feature, Sequence) and _is_costly(feature.feature))


def _weigher(feature: Feature) -> Callable[[Any], int] | None:
    match feature:
        case ClassLabel():
            return None
        case Value(dtype):
            return len if dtype in ("string", "large_string", "binary", "large_binary") else None
        case Sequence(inner):
            weigh = _weigher(inner)
            return _weigh_numbers if weigh is None else partial(_weigh_list, weigh)
        case Text() | Image() | Audio() | Bytes():
            return len
    return _weigh_any


def _weigh_numbers(value: Any) -> int:
    return 8 * len(value)


def _weigh_list(weigh: Callable[[Any], int], value: Any) -> int:
    return sum(weigh(item) for item in value if item is not None)


def _weigh_any(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_weigh_any, value.values()))
    return sum(map(_weigh_any, value)) if isinstance(value, list) else len(value) if hasattr(value, "__len__") else 8


def _held_bytes(value: Any) -> int:
    """Memory of a value that is to be encoded, about."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    size = getattr(value, "size", None)  # of a Pillow image
    return 4 * size[0] * size[1] if isinstance(size, tuple) else 0


class _Pending:
    """Encoded rows that wait to be a batch."""

    def __init__(self, features: Features, rules: Rules) -> None:
        self._rules = rules
        self._schema = schema_of(features)
        self._columns = [_Column(name, feature, rules.assets) for name, feature in features.items()]
        self._values: list[Values] = [[] for _ in self._columns]
        self._keys: Values = []
        self._first_row = self._weight = 0

    def add(self, chunk: _Chunk) -> None:
        for mine, more in zip(self._values, chunk.columns, strict=True):
            mine.extend(more)
        self._keys += chunk.keys
        self._weight += chunk.weight

    def full(self) -> Iterator[pa.RecordBatch]:
        """Batches for as long as there are enough rows or bytes for one."""
        while self._weight >= self._rules.batch_bytes or len(self._values[0]) >= self._rules.batch_rows:
            yield self._cut(self._end())

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left, if anything is."""
        if self._values[0]:
            yield self._cut(len(self._values[0]))

    def _end(self) -> int:
        """Rows of the next batch: the fewest with enough bytes, or the most that it may have."""
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
            arrays.append(column.array(taken, stored.type, self._keys, self._first_row))
        self._keys = self._keys[rows:]
        self._first_row += rows
        self._weight = sum(c.weight(v) for c, v in zip(self._columns, self._values, strict=True))
        return pa.record_batch(arrays, schema=self._schema)


def _cut_tables(items: Iterable[Any], features: Features, rules: Rules) -> Iterator[pa.RecordBatch]:
    schema = schema_of(features)
    row = 0
    for item in items:
        if not isinstance(item, (pa.RecordBatch, pa.Table)):
            raise UsageError("rows and batches do not go together", row=row, expected="a batch or a table",
                             found=type(item).__name__)  # fmt: skip
        try:
            given = _fitted(item, features, schema, rules)
        except LadingError as error:
            raise error.at(row=row) from None
        for batch in [given] if isinstance(given, pa.RecordBatch) else given.to_batches():
            each = batch.nbytes // max(len(batch), 1) + 1
            step = max(min(rules.batch_rows, rules.batch_bytes // each), 1)
            for start in range(0, len(batch), step):
                yield batch.slice(start, step)
        row += len(item)


def _fitted(
    given: pa.RecordBatch | pa.Table, features: Features, schema: pa.Schema, rules: Rules
) -> pa.RecordBatch | pa.Table:
    """A batch or table with the columns of the cache, in its types."""
    names = given.schema.names
    if len(set(names)) < len(names):
        raise SchemaMismatch("a column stands twice", found=names)
    row = dict.fromkeys(names)
    if rules.fill_missing:
        row = dict.fromkeys(features) | row
    _check_keys({name: None for name in row if not rules.drop_unknown or name in features}, features)
    columns = []
    for stored in schema:
        name, kind = stored.name, stored.type
        if name not in names:
            columns.append(pa.nulls(len(given), kind))
            continue
        column = given.column(name)
        with errors_at(column=name):
            column = column if column.type == kind else _cast(column, kind, features[name])
            _check_sizes(column, features[name])
        columns.append(column)
    return type(given).from_arrays(columns, schema=schema)


def _cast(column: Any, kind: pa.DataType, feature: Feature) -> Any:
    """A column in the type of the cache, if that loses nothing."""
    if pa.types.is_dictionary(column.type):
        return _cast(column.cast(column.type.value_type), kind, feature)
    try:
        if isinstance(feature, ClassLabel) and _family(column.type) == "text":
            codes = pc.index_in(column, pa.array(feature.names, column.type))
            if codes.null_count > column.null_count:
                [unknown] = column.filter(pc.and_(pc.is_null(codes), pc.is_valid(column))).slice(0, 1).to_pylist()
                encode(feature, unknown)
            return codes.cast(kind)
        if _family(column.type) in ("null", "list of null", _family(kind)):
            return column.cast(kind)
    except pa.ArrowException as error:
        raise Unrepresentable("values that this column cannot hold", expected=str(kind), found=str(error)) from error
    raise Unrepresentable("a column of another type", expected=str(kind), found=str(column.type))


def _family(kind: pa.DataType) -> str:
    """Types among which a cast, if it succeeds, keeps the meaning."""
    if isinstance(kind, (pa.ListType, pa.LargeListType, pa.FixedSizeListType)):
        return f"list of {_family(kind.value_type)}"
    if pa.types.is_struct(kind):
        return "struct of " + ", ".join(f"{child.name}: {_family(child.type)}" for child in kind)
    if pa.types.is_timestamp(kind):
        return "time" if kind.tz is None else "time of a zone"
    return next((name for name, belongs in _FAMILIES.items() if belongs(kind)), str(kind))


_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "number": lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
    "text": is_text,
    "bytes": lambda kind: is_bytes(kind) or pa.types.is_fixed_size_binary(kind),
    "duration": pa.types.is_duration,
    "time of day": pa.types.is_time,
    "decimal": pa.types.is_decimal,
}


def _check_sizes(column: Any, feature: Feature) -> None:
    """Raise Unrepresentable if bytes given for arrays are not as long as their shape says."""
    if not isinstance(feature, Array) or feature.dtype is None or None in (feature.shape or (None,)):
        return
    expected = math.prod(n or 0 for n in feature.shape or ()) * np.dtype(feature.dtype).itemsize
    found = pc.unique(pc.binary_length(column)).drop_null().to_pylist()
    if found not in ([], [expected]):
        raise Unrepresentable(
            "bytes of another length than the arrays of this column have", expected=expected, found=found
        )
