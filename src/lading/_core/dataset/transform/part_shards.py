"""The shards of several datasets, one dataset after another: each is opened as its dataset opens it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import union_schema
from lading._core.arrow.json_columns import union_json_schemas
from lading._core.arrow.references import is_ref
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.order.numbers import Numbers
from lading._core.dataset.shards.shards import ReadPlan, Shards
from lading._core.dataset.shards.whole_schema import WholeSchema
from lading._core.dataset.source.source import LISTING_SCHEMA, Listing, read_head
from lading._core.dataset.steps.base import Step
from lading._core.dataset.transform.part_columns import columns_of_parts
from lading._core.dataset.transform.part_views import PartColumns, PartSchema, StepsView
from lading._core.features.items import without_source
from lading._core.formats.base import Scan, ShardFile, ShardReader
from lading._core.formats.format import Format, FormatInfo
from lading._core.formats.mapped import Mapped
from lading._core.formats.registry import find_format, get_format, register
from lading._core.storage.fetch import Fetcher
from lading._core.storage.stores import Stores
from lading.limits import Limits

__all__ = ["FORMAT", "Part", "PartShards", "listing_of", "planned_shards"]

_KEY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _PlannedPart:
    """A part as another process opens it again.

    Attributes:
        format: of its shards.
        listing: its shards.
        read: how they are read.
        steps: its steps.
        limits: limits on what its files may ask for.
        map_schemas: of its functions, the schemas of their rows.
        columns: the columns that its rows get.
        ends: number of samples in each shard and all before it, if rows get keys.
    """

    format: str
    listing: Listing
    read: ReadPlan
    steps: tuple[Step, ...]
    limits: Limits
    map_schemas: tuple[pa.Schema, ...]
    columns: PartSchema
    ends: NDArray[np.int64] | None


class Part:
    """One of the datasets of a concatenation: its open shards, and the samples behind its steps.

    Args:
        shards: its shards.
        steps: its steps.
        map_schemas: of its functions, the schemas of their rows, if they are known.

    Attributes:
        shards: see above.
        steps: see above.
        chosen: the samples behind the steps; None if the rows are those of the shards.
        is_whole: whether only all of its shards together give its samples, since steps count or order them.
        numbers: numbers of samples behind the steps, by shard, as they are found.
    """

    def __init__(self, shards: Shards, steps: tuple[Step, ...], map_schemas: Sequence[pa.Schema] = ()) -> None:
        self.shards = shards
        self.steps = tuple(step for step in steps if step.cut is None)
        has_steps = bool(self.steps) or shards.target is not None
        self.chosen = ChosenSamples(shards, self.steps, map_schemas) if has_steps else None
        self.is_whole = any(step.over_numbers or (step.makes_columns and not step.keeps_samples) for step in self.steps)
        self.numbers: dict[int | None, Numbers] = {}

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of all shards behind the steps, payload as bytes."""
        shards, whole = self.shards, self.shards.schema
        if shards.manifest is None and shards.target is None and len(shards.listing) > 1:
            found = [(shards.path(n), without_source(view.schema()), view.declares_types)
                     for n, view in shards.readable(range(len(shards.listing)))]  # fmt: skip
            if all(declares for _, _, declares in found):
                whole = union_schema((path, schema) for path, schema, _ in found)[0]
            else:
                whole = union_json_schemas(schema for _, schema, _ in found)
        whole = without_source(whole if self.chosen is None else self.chosen.schema_from(whole))
        fields = [field.with_type(pa.large_binary()) if is_ref(field.type) else field for field in whole]
        return pa.schema(fields, metadata=whole.metadata)

    def first_rows(self, columns: Sequence[str], count: int) -> pa.RecordBatch | None:
        """The first rows with bytes in the place of references; None if there are none."""
        shards = self.shards
        if self.chosen is not None:
            batches = (traced.batch for traced in self.chosen.traced_batches(columns, max_rows=count))
        else:
            opened = (view for _, view in shards.readable(range(len(shards.listing))))
            batches = (
                batch for view in opened if {*columns} <= {*view.schema().names}
                for batch in view.batches(Scan(columns, max_rows=count, max_bytes=_KEY_BYTES))
            )  # fmt: skip
        first = next((batch for batch in batches if batch.num_rows), None)
        return None if first is None else shards.fetcher.materialise(first.slice(0, count), earlier=False)

    def rows(self) -> list[dict[str, Any]]:
        """The shards as rows of a listing, without the places that `PartShards` gives them."""
        table = self.shards.listing.table
        found: list[dict[str, Any]] = table.select(["path", "num_samples", "size_bytes"]).to_pylist()
        if self.chosen is not None:  # who knows how many are left
            found = [{**row, "num_samples": None} for row in found]
        if not self.is_whole:
            return found
        sizes = [row["size_bytes"] for row in found]
        total = None if None in sizes else sum(sizes)
        return [{"path": row["path"], "size_bytes": total} for row in found[:1]]

    def view(self, number: int, source: ShardFile) -> ShardReader:
        """Open a shard, or with number -1 all of them."""
        if self.chosen is None:
            entry = self.shards.listing.value("entry", number) or ""
            return self.shards.view_of(replace(source, entry=entry))
        return StepsView(self.chosen, self.shards, None if number < 0 else number, self.numbers)


class PartShards(Shards):
    """The shards of several datasets, read as those of one.

    Args:
        parts: the datasets.
        listing: their shards; the entry of each says its part and its number there.
        plan: how rows are read.
        names: of the parts, for errors.
        types: types that the caller gives to some columns.
        fetcher, stores: as of `Shards`.
        planned: what another process found of the parts; None finds it.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        listing: Listing,
        plan: ReadPlan,
        *,
        names: Sequence[str] = (),
        types: pa.Schema | None = None,
        fetcher: Fetcher,
        stores: Stores,
        planned: Sequence[_PlannedPart] = (),
    ) -> None:
        self._parts, self._names, self._asked_types, self._planned = parts, names, types, planned
        super().__init__(listing, FORMAT, plan, fetcher=fetcher, stores=stores)
        for part in parts:
            self.counts.update(part.shards.counts)
            part.shards.counts.clear()

    @cached_property
    def _columns(self) -> Sequence[PartSchema]:
        """The columns that rows of each part get."""
        if self._planned:
            return [part.columns for part in self._planned]
        schemas, first_rows = [part.schema for part in self._parts], [part.first_rows for part in self._parts]
        return columns_of_parts(self._names, schemas, first_rows, layout=self.row_layout, types=self._asked_types)

    @property
    def schema(self) -> pa.Schema:
        """The columns of all parts. Raises SchemaMismatch if no type holds the values of a column."""
        return self._columns[0].all

    @cached_property
    def whole(self) -> WholeSchema:
        """The columns of all parts."""
        return WholeSchema(self.schema, is_partial=any(part.shards.whole.is_partial for part in self._parts))

    @property
    def knows_schema(self) -> bool:
        """Whether the schema was looked for: it takes a look at all shards."""
        return "_columns" in vars(self)

    @property
    def fixed_schema(self) -> bool:
        """Whether all rows of a shard have the columns that its schema names."""
        return all(part.shards.fixed_schema for part in self._parts)

    @property
    def takes_any_fields(self) -> bool:
        """False: the columns of all parts are found before rows are read."""
        return False

    @property
    def holds_its_bytes(self) -> bool:
        """Whether all bytes of samples lie in the shards themselves."""
        return all(part.shards.holds_its_bytes for part in self._parts)

    @property
    def files_beside(self) -> bool:
        """Whether most bytes may lie in other files than the shards."""
        return any(part.shards.files_beside for part in self._parts)

    def roots(self) -> list[str]:
        """The folders that references of any part may point into."""
        return list(dict.fromkeys(root for part in self._parts for root in part.shards.roots()))

    def close(self) -> None:
        """Give up open shards, maps and streams."""
        super().close()
        for part in self._parts:
            part.shards.close()

    def sources(self) -> Sequence[Shards]:
        """The shards of each part."""
        return [source for part in self._parts for source in part.shards.sources()]

    def read_with(self, options: Mapping[str, Any]) -> None:
        """Read rows with the bytes of separate files; the parts have no other option in common."""
        super().read_with(options)
        for part in self._parts:
            part.shards.read_with(part.shards.fmt.info.presets.read_whole)

    def read_plan(self) -> ReadPlan:
        """How another process reads the shards: with what is found here of all of them."""
        parts = tuple(self._plan(number) for number in range(len(self._parts)))
        return replace(super().read_plan(), format_options={"parts": parts})

    def _plan(self, number: int) -> _PlannedPart:
        part, columns = self._parts[number], self._columns[number]
        schemas = () if part.chosen is None else part.chosen.map_schemas
        shards, ends = part.shards, self._ends_of(number) if columns.prefix else None
        plan = replace(shards.read_plan(), roots=tuple(shards.roots()))
        return _PlannedPart(shards.format, shards.listing, plan, part.steps, shards.limits, schemas, columns, ends)

    def _ends_of(self, number: int) -> NDArray[np.int64] | None:
        return self._planned[number].ends if self._planned else self._parts[number].shards.sample_ends()

    def _place(self, entry: str) -> tuple[int, int]:
        part, _, number = entry.partition(" ")
        return int(part), int(number)

    def _part_of(self, shard: int) -> tuple[Part, int, str]:
        """The part of a shard, its number there, and the entry that says both."""
        entry = self.listing.value("entry", shard)
        part, number = self._place(entry)
        return self._parts[part], number, entry

    def _find(self, shard: int) -> ShardFile:
        part, number, entry = self._part_of(shard)
        return replace(part.shards.source(max(number, 0)), entry=entry)

    def indexed(self, shard: int) -> ShardFile:
        """A shard as formats open it, with its index where its part has it."""
        part, number, entry = self._part_of(shard)
        return replace(part.shards.indexed(max(number, 0)), entry=entry)

    def view_of(self, source: ShardFile) -> ShardReader:
        """Open the file of a shard, with the columns of all parts."""
        place, number = self._place(source.entry)
        part, columns = self._parts[place], self._columns[place]
        view = part.view(number, source)
        if view.declares_types and not view.has_members:
            schema = view.schema()
            if columns.schema(schema, whole=True).equals(schema):
                return view
        ends = self._ends_of(place) if columns.prefix and number > 0 else None
        first = 0 if ends is None else int(ends[number - 1])
        return Mapped(view, PartColumns(columns, view.declares_types, part.shards.fetcher, source.path, first))


@dataclass(frozen=True, slots=True)
class _Options:
    """What other processes need to open the parts.

    Attributes:
        parts: the parts; empty in the first process.
    """

    parts: object = ()


class _PartsFormat(Format[_Options, Any]):
    """Shards of several datasets. Nobody names it: `lading.concat` makes them."""

    info = FormatInfo(name="concat", extensions=(), read_options=_Options)

    def open(self, file: ShardFile, options: _Options) -> ShardReader:  # noqa: ARG002 - they are of the parts
        """Open a shard by itself, without the options and steps of its part."""
        fmt = find_format(file.path, read_head(file.store, file.path, file.info))
        return fmt.open(replace(file, entry=""), fmt.read_options({}))


FORMAT = _PartsFormat()
register(FORMAT, listed=False)


def planned_shards(listing: Listing, format_name: str, plan: ReadPlan, *, fetcher: Fetcher, stores: Stores) -> Shards:
    """Return shards as another process planned to read them."""
    planned: Sequence[_PlannedPart] = plan.format_options.get("parts", ()) if format_name == FORMAT.name else ()
    if not planned:
        return Shards(listing, get_format(format_name), plan, fetcher=fetcher, stores=stores)
    parts = []
    for each in planned:
        own = Fetcher(stores, mmap=fetcher.mmap, limits=each.limits)
        shards = planned_shards(each.listing, each.format, each.read, fetcher=own, stores=stores)
        shards.bad.warns = False
        parts.append(Part(shards, each.steps, each.map_schemas))
    return PartShards(parts, listing, plan, fetcher=fetcher, stores=stores, planned=planned)


def listing_of(parts: Sequence[Part]) -> Listing:
    """The shards of all parts."""
    rows = [
        {**row, "entry": f"{place} {-1 if part.is_whole else number}"}
        for place, part in enumerate(parts)
        for number, row in enumerate(part.rows())
    ]
    return Listing(pa.Table.from_pylist(rows, LISTING_SCHEMA))
