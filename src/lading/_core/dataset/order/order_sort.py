"""Order rows by keys that may exceed memory: sorted runs in temporary files, merged block by block."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.free_memory import release_freed
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import is_bytes
from lading._core.storage.temporary import temporary_folder, writing
from lading.errors import UsageError

__all__ = ["HELD_KEY_BYTES", "sorted_places"]

HELD_KEY_BYTES = 32 << 20
"""Keys that are sorted in memory at once, which takes as much again; more are sorted in runs and merged."""

_BLOCK_BYTES = 1 << 20
"""Keys of a block; to merge runs, a block of each is in memory."""
_PLACE = "place"


def sorted_places(
    batches: Iterable[Sequence[pa.Array]],
    names: Sequence[str],
    descending: Sequence[bool],
    *,
    max_bytes: int = HELD_KEY_BYTES,
) -> NDArray[np.int64]:
    """Return the places of rows in sorted order.

    The sort is stable. Nulls come last, and NaN before them, in both directions. Texts are compared by code point.

    Peak memory: twice `max_bytes`, and 8 bytes a row. More keys go to temporary files (`$TMPDIR`), which are removed.

    Args:
        batches: the keys, batch by batch: one array a key.
        names: names of the keys, for errors.
        descending: for each key, whether the largest value comes first.
        max_bytes: bytes of keys that are sorted in memory at once.

    Raises:
        UsageError: values of a key have no order, or values of two types have none among them.
        StoreError: the temporary files could not be written.
    """
    with ExitStack() as held:
        keys = _Keys(names, descending)
        runs: list[pa.ipc.RecordBatchFileReader] = []
        for columns in batches:
            keys.add(columns)
            if keys.size >= max_bytes:
                if not runs:
                    folder = held.enter_context(temporary_folder())
                runs.append(held.enter_context(_run(keys.pop_sorted(), os.path.join(folder, f"{len(runs)}.arrow"))))
        if not runs:
            return keys.order()
        if keys.size:
            runs.append(held.enter_context(_run(keys.pop_sorted(), os.path.join(folder, f"{len(runs)}.arrow"))))
        return np.concatenate([*_merged(runs, keys)])


@dataclass
class _Keys:
    """Keys that are held, and the types that hold all keys so far."""

    names: Sequence[str]
    descending: Sequence[bool]
    size: int = 0
    rows: int = 0
    types: list[pa.DataType] = field(default_factory=list)
    held: list[list[pa.Array]] = field(default_factory=list)
    first: int = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Hold a batch of keys."""
        plain = [_plain(name, column) for name, column in zip(self.names, columns, strict=True)]
        own = [column.type for column in plain]
        self.types = [*map(_common_type, self.names, self.types, own)] if self.types else own
        self.held.append(plain)
        self.rows += len(plain[0])
        self.size += sum(column.nbytes for column in plain)

    @property
    def sort_keys(self) -> list[tuple[str, str]]:
        """How pyarrow sorts by these keys."""
        return [(str(i), "descending" if each else "ascending") for i, each in enumerate(self.descending)]

    def order(self) -> NDArray[np.int64]:
        """Return the order of the rows that are held."""
        if not self.rows:
            return np.zeros(0, np.int64)
        table = self._table()
        return np.asarray(pc.sort_indices(table, sort_keys=self.sort_keys).to_numpy(), np.int64)

    def pop_sorted(self) -> pa.Table:
        """Return the rows that are held in their order, with their places; hold none any more."""
        order = pa.array(self.order())
        table = self._table()
        self.held.clear()
        done = table.take(order).append_column(_PLACE, pc.add(order, self.first))
        self.first, self.rows, self.size = self.first + self.rows, 0, 0
        return done

    def _table(self) -> pa.Table:
        columns = [
            pa.chunked_array([batch[i].cast(kind) for batch in self.held], kind) for i, kind in enumerate(self.types)
        ]
        return pa.table(columns, [*map(str, range(len(columns)))])


@contextmanager
def _run(rows: pa.Table, path: str) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Write sorted rows to a file, and open it; not as a map, whose pages would count as memory of the process."""
    with writing(os.path.dirname(path)), pa.ipc.new_file(path, rows.schema) as file:
        file.write_table(rows, max_chunksize=max(len(rows) * _BLOCK_BYTES // max(rows.nbytes, 1), 1))
    del rows
    release_freed()
    with pa.OSFile(path) as file, pa.ipc.open_file(file) as reader:
        yield reader


def _merged(runs: Sequence[pa.ipc.RecordBatchFileReader], keys: _Keys) -> Iterator[NDArray[np.int64]]:
    """Yield the places of the rows of sorted runs in their common order, with one block of each run in memory."""
    schema = pa.schema([*((str(i), kind) for i, kind in enumerate(keys.types)), (_PLACE, pa.int64())])
    held = [schema.empty_table() for _ in runs]
    done = [0] * len(runs)
    sort_keys = [*keys.sort_keys, (_PLACE, "ascending")]
    while True:
        for i, run in enumerate(runs):
            if not len(held[i]) and done[i] < run.num_record_batches:
                held[i] = pa.Table.from_batches([run.get_batch(done[i])]).cast(schema)
                done[i] += 1
        ends = np.cumsum([len(part) for part in held])
        if not ends[-1]:
            return
        rows = pa.concat_tables(held)
        order = np.asarray(pc.sort_indices(rows, sort_keys=sort_keys).to_numpy(), np.int64)
        # Rows behind the last one of a block may come after rows of the next block of its run.
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        lasts = [rank[ends[i] - 1] for i, run in enumerate(runs) if len(held[i]) and done[i] < run.num_record_batches]
        taken = order[: min(lasts, default=len(order) - 1) + 1]
        yield rows.column(_PLACE).to_numpy()[taken]
        counts = np.bincount(np.searchsorted(ends, taken, "right"), minlength=len(runs))
        held = [part.slice(int(count)) for part, count in zip(held, counts, strict=True)]


def _plain(name: str, column: pa.Array) -> pa.Array:
    """Return the values of a key in a type that pyarrow can sort."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if isinstance(kind, pa.JsonType):
        raise UsageError("values of this field have no order", column=name, expected="numbers, or texts, in all "
                         "samples", found="lists, objects, or values of several kinds")  # fmt: skip
    if isinstance(kind, pa.BaseExtensionType) and not is_ref(kind):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if is_ref(kind) or is_bytes(kind) or pa.types.is_nested(kind):
        found = str(kind) if pa.types.is_nested(kind) else "bytes"
        raise UsageError("values of this type have no order", column=name, expected="numbers, texts or times",
                         found=found, advice=f"Sort by a field inside it, such as '{name}.score'.")  # fmt: skip
    return column


def _common_type(name: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds the values of both.

    Raises:
        UsageError: there is none.
    """
    if one == other:
        return one
    try:
        schemas = [pa.schema([(name, kind)]) for kind in (one, other)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        raise UsageError("values of two types have no common order", column=name, expected="one type in all samples",
                         found=f"{one} and {other}") from None  # fmt: skip
