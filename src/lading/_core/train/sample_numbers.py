"""A number of every sample of datasets, such as its weight or its size: read in one pass, and kept in the cache folder.

    numbers_of_samples(feed.parts, "json.score")    # float64, NaN where a sample has no value
    table_of_samples(feed.parts, ["jpg.width", "jpg.height"])    # a column for each

The next run of the same data reads 8 bytes a sample from the cache folder. What is kept belongs to the versions of all
files, the options of reading, and the steps. It is not kept where functions or other files decide about values, or
where a store does not tell the versions of its files.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.content.conditions import Computed, parse_value
from lading._core.content.field_paths import FieldPath
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import Query
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.transform.concat import Parts as Concatenated
from lading._core.features.row_layout import row_layout
from lading._core.manifest.index_cache import IndexCache
from lading._core.train.feed import Parts
from lading.errors import LadingError, UsageError

__all__ = ["error_at", "numbers_of_samples", "table_of_samples"]

_COMPUTED: Final = re.compile(r"[(*/+]| - ")
"""What names of columns and fields have not."""

_READ: Final = (
    "format", "view", "options", "interleaved", "fields", "regroup", "lists", "schema", "schema_overrides",
    "hive_partitioning",
)  # fmt: skip
"""Options of reading that change samples or their values."""


def numbers_of_samples(parts: Parts, name: str) -> NDArray[np.float64]:
    """Return a number of every sample, in the order of their numbers: `table_of_samples` with one name.

    Example: `numbers_of_samples(feed.parts, "jpg.width")`
    """
    return table_of_samples(parts, [name])[:, 0]


def table_of_samples(parts: Parts, names: Sequence[str]) -> NDArray[np.float64]:
    """Return the values of columns, or of fields inside them, of every sample, in the order of their numbers.

    Of a document, the value is the first one of its items that is not null. NaN where a sample has no value.

    Example: `table_of_samples(feed.parts, ["jpg.width", "len(txt)"])`

    Args:
        parts: the samples.
        names: `score`, `json.score`, `jpg.width`; or what is computed of them, as conditions write it: `len(txt)`.

    Raises:
        UsageError: no sample has the column or the field, or a value is no number; the error names the sample.
    """
    return np.concatenate([np.zeros((0, len(names))), *(_of_dataset(dataset, names) for _, dataset in parts)])


def error_at(parts: Parts, number: int, error: LadingError) -> LadingError:
    """Return the error with the file, the row and the key of a sample."""
    first, dataset = next(part for part in reversed(parts) if part[0] <= number)
    file, row = dataset.place_of(number - first)
    key = row_layout(dataset.view).key
    if key in dataset.first_schema.names:
        found = dataset.take(np.array([number - first]), [key]).column(key)[0].as_py()
        error = error.at(sample=None if found is None else str(found))
    return error.at(file=file, row=row)


def _of_dataset(dataset: OpenDataset, names: Sequence[str]) -> NDArray[np.float64]:
    cache, path = dataset.shards.indexes.cache, _kept_at(dataset, names)
    known = _known(cache, path, len(dataset))
    if known is not None:
        return known
    with cache.making(path):  # one rank of a machine reads, and the others wait for its file
        known = _known(cache, path, len(dataset))
        if known is not None:
            return known
        with dataset.shards.reporting_to(Counter()):
            found = np.concatenate([np.zeros((0, len(names))), *_read(dataset, names)])
        assert len(found) == len(dataset), "values of each sample"
        cache.write(path, pa.table([*found.T.copy()], [*map(str, range(len(names)))]))
    return found


def _known(cache: IndexCache, path: str | None, count: int) -> NDArray[np.float64] | None:
    """The values of so many samples from the cache, if it has them."""
    found = cache.read(path)
    return None if found is None or len(found) != count else np.stack([each.to_numpy() for each in found.columns], 1)


def _read(dataset: OpenDataset, names: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    computed = {name: parse_value(name) for name in names if _COMPUTED.search(name)}
    of_each = {name: [*map(str, _fields_of(computed[name]))] if name in computed else [name] for name in names}
    fields = list(dict.fromkeys(field for each in of_each.values() for field in each))
    first = 0
    for values in dataset.values(fields):
        of_field, found = dict(zip(fields, values, strict=True)), list[NDArray[np.float64]]()
        for name in names:
            mine = [of_field[field] for field in of_each[name]]
            value = (
                computed[name].of(dict(zip(computed[name].wanted, mine, strict=True))) if name in computed else mine[0]
            )
            found.append(_as_numbers(dataset, value, name, first))
        yield np.stack(found, 1)
        first += len(values[0])


def _fields_of(computed: Computed) -> Iterator[FieldPath]:
    return (wanted.field for wanted in computed.wanted)


def _as_numbers(dataset: OpenDataset, values: pa.Array, name: str, first: int) -> NDArray[np.float64]:
    """The values, those of samples from a number on, as numbers; NaN where there is none."""
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    kind = plain.type
    if pa.types.is_boolean(kind):
        plain = pc.cast(plain, pa.uint8())
    elif not any(is_number(kind) for is_number in _NUMBERS):
        wrong = int(np.argmax(plain.is_valid().to_numpy(zero_copy_only=False)))
        value = plain[wrong].as_py()
        advice = f'Its length is "len({name})".' if isinstance(value, (str, bytes, list)) else None
        error = UsageError("the value is no number", column=name, expected="a number", found=repr(value)[:80],
                           advice=advice)  # fmt: skip
        raise error_at(((0, dataset),), first + wrong, error)
    found: NDArray[np.float64] = pc.fill_null(pc.cast(plain, pa.float64(), safe=False), float("nan")).to_numpy()
    return found


_NUMBERS: Final = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)


# The file of the cache


def _kept_at(dataset: OpenDataset, names: Sequence[str]) -> str | None:
    """The file of the cache for values of all samples; None where something else than shards and steps decides it."""
    told, shards = _told(dataset.query), dataset.fitting
    if told is None or any(_leads_elsewhere(each) for each in shards.sources()):
        return None
    cache = shards.indexes.cache
    of_shards = [cache.path(shards.source(i), shards.index_kind) for i in range(len(shards.listing))]
    if None in of_shards:
        return None
    return cache.path_of(["numbers of samples", repr([*names]), told, *map(str, of_shards)])


def _told(query: Query) -> str | None:
    """What a query does with its shards, as a text; None where functions or other data have a part in it."""
    if any(step.reads_values or step.is_spooled for step in query.steps):
        return None
    source, parts = query.source, list[str | None]()
    if isinstance(source, Concatenated):
        parts = [repr(source.types), *map(_told, source.queries)]
    if None in parts:
        return None
    options = [repr(getattr(query.read, each)) for each in _READ]
    try:
        steps = pickle.dumps(query.steps)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    return repr((options, steps, parts))


def _leads_elsewhere(shards: Shards) -> bool:
    """Whether values may lie in other files than the shards, whose versions nobody looks at."""
    return not shards.holds_its_bytes or shards.files_beside or shards.fmt.loose is not None
