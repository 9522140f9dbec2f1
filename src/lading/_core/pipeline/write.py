"""Rows → finished shards: the last stage, in every process that writes a dataset or a part of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from lading._core.arrow.align import refuse_bare, refuse_duplicate_names
from lading._core.arrow.references import concat
from lading._core.arrow.text_checks import refuse_bad_values
from lading._core.features.items import KEY
from lading._core.features.natural import member_name, paths_left_out
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.columns import WrittenColumns
from lading._core.pipeline.cutting import Cut, ShardCutter
from lading._core.pipeline.fetch import fetched
from lading._core.pipeline.finished import FinishedShards
from lading._core.pipeline.misfits import all_misfits
from lading._core.pipeline.open_shard import BuildFolder, OpenShard, begin_shard
from lading._core.pipeline.pack import KeyNumbers, Packed, equal_keys_apart, pack
from lading._core.pipeline.shard_kind import OnDuplicateId, ShardKind
from lading._core.storage.background import Background
from lading._core.storage.fetch import Fetcher
from lading.errors import DataError, Unrepresentable, errors_at

__all__ = ["PartWriter", "write_rows"]


class PartWriter:
    """Writes rows as shards below a folder; a new shard begins where one reaches its size.

    Args:
        folder: the folder in which shards are built.
        kind: their common properties.
        shards: takes finished shards.
        closing: brings finished shards to disk while the next one is written: a quarter of a GB takes a fast disk
            65 ms, and a slow disk seconds. Its owner waits for it.
        name: gives the path of a new shard, by its number.
        cut: where shards end.
        schema: columns of all rows. Without it, formats with a fixed schema take the columns of the first batch, and
            others any.
        keys: gives keys to rows without one.

    Attributes:
        columns: the columns of the rows.
        num_rows: rows that were taken. Errors that name no file count rows from the first one.
    """

    def __init__(
        self,
        folder: BuildFolder,
        kind: ShardKind,
        shards: FinishedShards,
        *,
        closing: Background,
        name: Callable[[int], str],
        cut: Cut,
        schema: pa.Schema | None = None,
        keys: KeyNumbers | None = None,
    ) -> None:
        self.columns = WrittenColumns(kind, schema)
        self.num_rows = 0
        self._folder, self._kind, self._shards = folder, kind, shards
        self._closing, self._name, self._cutter = closing, name, ShardCutter(cut)
        self._keys = keys or KeyNumbers()
        self._checked: pa.Schema | None = None
        self._open: OpenShard | None = None
        self._takes: tuple[bool, Collection[str]] | None = None
        self._last_id: str | None = None
        self._encoded = self._paths = 0
        self._behind = False

    def conform(self, batch: Batch) -> Batch:
        """Return the batch with the columns of the dataset, and with keys where they are needed.

        Raises:
            DuplicateField: two columns have one name, or two fields of a struct; no format keeps both.
            SchemaMismatch: other columns, or values of another kind, than the dataset has.
            Unrepresentable: invalid UTF-8, or another value that its type does not allow.
        """
        rows = batch.rows
        refuse_bare(rows.num_rows, rows.num_columns)
        if self._checked is None or not rows.schema.equals(self._checked):
            refuse_duplicate_names(rows.schema)
            self._checked = rows.schema
        if not rows.num_rows:
            if rows.num_columns and self.columns.without_rows is None:
                self.columns.without_rows = self.columns.written(rows.schema)
            return batch
        with errors_at(first_row=self.num_rows):
            refuse_bad_values(rows)
            target = self.columns.target(rows.schema)
            if target is not None:
                batch = batch.with_rows(self.columns.align(rows, target))
            if self._kind.takes_members and KEY not in batch.schema.names:
                batch = self._keys.keyed(batch)
        self.num_rows += batch.num_rows
        return batch

    def converted(self, batch: Batch) -> Collection[str]:
        """Return the columns that `in_natural_types` converts, which needs their bytes."""
        return self.columns.converted(batch.schema)

    def as_stored(self, batch: Batch) -> Batch:
        """Return rows that conform, without references, in the types of their features: text, numbers, media.

        In tars, media get names with an extension.

        Raises:
            Unrepresentable: a value that such a type does not hold; names its sample.
        """
        rows = batch.rows
        try:
            stored = batch.with_rows(self.columns.in_natural_types(rows))
            self._paths += sum(paths_left_out(rows.column(name)) for name in self.converted(batch))
        except DataError as error:
            if error.row is not None:
                if KEY in rows.schema.names:
                    error.at(sample=rows.column(KEY)[error.row].as_py())
                error.row += self.num_rows - batch.num_rows
            raise
        return _as_members(stored, self.columns) if self._kind.takes_members else stored

    def left_in_files(self, batch: Batch) -> Collection[str]:
        """Return the columns whose payload shards may take from files; begins a shard if that is not known yet."""
        if self._takes is None:
            writer = (self._open or self._begin()).writer
            self._takes = writer.takes_ranges, writer.encoded_columns
        takes_ranges, encoded = self._takes
        return {*batch.schema.names}.difference(encoded, self.converted(batch)) if takes_ranges else ()

    def write(self, batch: Batch, *, behind: bool = False, duplicate_ids: OnDuplicateId = "error") -> pa.Table | None:
        """Append rows that conform and hold no references; return references of them, None if values are no ranges.

        Args:
            batch: the rows.
            behind: as `write_rows` takes it.
            duplicate_ids: as `write_rows` takes it.

        Raises:
            DataError: an id that comes back, with `duplicate_ids="error"`.
        """
        self._behind = behind
        parts = [batch]
        if self._kind.takes_keys and duplicate_ids == "apart":
            parts = list(equal_keys_apart(batch))
        written: list[pa.Table] = []
        for part in parts if batch.num_rows else ():
            if self._continues_last_sample(part, duplicate_ids):
                self.end_shard()
            packed = pack(part, self._kind, (self._open or self._begin()).writer, self._encoded)
            self._encoded += packed.batch.num_rows
            written += self._write_samples(packed, duplicate_ids)
        if self._open is not None and not behind:
            self._open.settle()
        return concat(written) if written else None

    def _continues_last_sample(self, batch: Batch, duplicate_ids: OnDuplicateId) -> bool:
        """Whether a reader of the open shard would join the first sample of the batch to the shard's last sample."""
        by_key, layout = self._kind.takes_keys, self._kind.row_layout
        if layout.key not in batch.schema.names or not (by_key or layout.has_items):
            return False
        ids, last = batch.rows.column(layout.key), self._last_id
        self._last_id = ids[-1].as_py()
        if by_key and duplicate_ids == "error":  # the format's writer refuses it
            return False
        written = self._open is not None and self._open.num_samples
        return bool(written) and last is not None and bool(ids[0].as_py() == last)

    def _write_samples(self, packed: Packed, duplicate_ids: OnDuplicateId) -> Iterator[pa.Table]:
        done, size_at, bounds, cutter = 0, packed.size_at, packed.bounds, self._cutter
        cutter.begin_rows(packed.named.source_share)
        while done < packed.num_samples:
            shard = self._open or self._begin()
            ends = size_at[bounds[done + 1 :]] - size_at[bounds[done]]
            count = cutter.samples_that_fit(shard, ends, bounds[done + 1 :] - bounds[done])
            if packed.ids is not None and count:
                fitting, count = count, shard.ids.distinct(packed.ids[done : done + count])
                if duplicate_ids == "error" and count < fitting:
                    raise _duplicate_id(packed, done + count)
            if not count:
                self.end_shard()
                continue
            rows = packed.batch.slice(int(bounds[done]), int(bounds[done + count]))
            with self._naming_samples(shard, rows):
                table = shard.write(rows, count, f"{self._folder.final or self._folder.path}/{shard.path}")
            done += count
            cutter.took(shard, done / packed.num_samples)
            if table is not None:
                yield table

    @contextmanager
    def _naming_samples(self, shard: OpenShard, batch: Batch) -> Iterator[None]:
        """Add the key of the row to errors of the shard's writer, which count rows of the shard."""
        try:
            yield
        except DataError as error:
            row = -1 if error.row is None else error.row - shard.num_samples
            if not self._kind.row_layout.has_items and KEY in batch.schema.names and 0 <= row < batch.num_rows:
                error.at(sample=batch.rows.column(KEY)[row].as_py())
            raise

    @contextmanager
    def naming_misfits(self, batch: Batch) -> Iterator[None]:
        """Let an error of a column that the format cannot hold name all such columns of the batch."""
        try:
            yield
        except Unrepresentable as error:
            raise all_misfits(error, self._kind, batch) from None

    @contextmanager
    def final_names(self) -> Iterator[None]:
        """Let errors name shards as they will be called: the folder in which they are built is unknown to users."""
        folder = self._folder
        try:
            yield
        except DataError as error:
            if error.file is not None and error.file.startswith(f"{folder.path}/"):
                name = error.file.removeprefix(folder.path)
                error.file, error.row = (None, None) if folder.final is None else (folder.final + name, error.row)
            raise

    def held_bytes(self) -> int:
        """Return the payload that was given but is not in a file yet: buffers behind it must stay as they are."""
        return 0 if self._open is None else self._open.writer.held_bytes()

    def begin_shard(self) -> None:
        """Begin a shard, though there may be no rows for it."""
        columns = self.columns.schema or pa.schema([])
        rows = pa.record_batch([pa.nulls(0, kind) for kind in columns.types], columns)
        with self.final_names(), self.naming_misfits(Batch(rows, self._kind.view)):
            self._begin()

    def _begin(self) -> OpenShard:
        schema = self.columns.schema or pa.schema([])
        self._open = begin_shard(self._folder, self._kind, self._name(len(self._shards)), schema)
        self._open.writer.ratio = self._cutter.ratio
        return self._open

    def end_shard(self) -> None:
        """Finish the open shard, if there is one, and have it brought to disk."""
        shard, self._open = self._open, None
        if shard is None:
            return
        with self.final_names():
            finished = shard.finish(self._kind, self._closing, behind=self._behind)
        self._cutter.finished(finished.facts.size_bytes + finished.facts.beside_bytes, shard.payload_bytes)
        counts = dict(finished.counts)
        if self._kind.takes_members and KEY not in self.columns.seen:
            counts["rows without a key, named by their numbers"] = shard.num_samples
        if self._paths:
            counts["paths of media, left out"], self._paths = self._paths, 0
        if counts != finished.counts:
            finished = replace(finished, counts=counts)
        self._shards.add(finished)

    def end_part(self, cut: Cut, first_row: int | None = None) -> None:
        """Finish the open shard; what comes next is written as if nothing had come before.

        Args:
            cut: where the next shards end.
            first_row: number of the next row; by default rows are counted on.
        """
        self.end_shard()
        self._keys.next_row = self._keys.next_row if first_row is None else first_row
        self._cutter = ShardCutter(cut)

    def abort(self) -> None:
        """Drop the open shard."""
        shard, self._open = self._open, None
        if shard is not None:
            shard.abort()


def _as_members(batch: Batch, columns: WrittenColumns) -> Batch:
    """Return rows with columns named as the members that they become."""
    schema = columns.with_extensions(batch.schema)
    names = {field.name: member_name(field) for field in schema}
    if all(name == new for name, new in names.items()):
        return batch
    batch = batch.with_rows(batch.rows.cast(schema))
    ranges = {names[name]: where for name, where in batch.ranges.items()}
    return batch.with_rows(batch.rows.rename_columns([*names.values()]), ranges=ranges)


def write_rows(
    writer: PartWriter, fetcher: Fetcher, batch: Batch, *, behind: bool = False, duplicate_ids: OnDuplicateId = "error"
) -> pa.Table | None:
    """Append rows; return the references of what was written, None if values are no ranges.

    Args:
        writer: takes the rows.
        fetcher: reads references in them.
        batch: the rows; samples are whole within the call.
        behind: whether rows may still be written after the call. Whatever they lie in must stay as it is then, until
            the shards are finished.
        duplicate_ids: what to do with a sample whose id an earlier one of its shard has.

    Raises:
        DataError: rows that the dataset cannot hold; see `PartWriter.conform` and `PartWriter.write`.
    """
    with writer.final_names():
        batch = writer.conform(batch)
        if not batch.num_rows:
            return None
        with writer.naming_misfits(batch):
            in_files = writer.left_in_files(batch) if batch.has_references else ()
        read = fetched(batch, fetcher, in_files)
        batch = writer.as_stored(read)
        with writer.naming_misfits(batch):
            table = writer.write(batch, behind=behind, duplicate_ids=duplicate_ids)
    fetcher.release(writer.held_bytes())
    return table


def _duplicate_id(packed: Packed, sample: int) -> DataError:
    named = packed.named
    found = named.rows.column("sample_id")[int(named.starts[sample])].as_py()
    return DataError("sample ids are not contiguous: an earlier id appears again", column="sample_id",
                     found=repr(found), advice="Sort the rows by sample_id and position.")  # fmt: skip
