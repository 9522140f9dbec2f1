"""Salvage: write what is intact of a damaged dataset to a new one, and list what was lost."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Self

import orjson
import pyarrow as pa

from lading.arrow.align import align_table, as_text
from lading.arrow.rebatch import HELD_BATCHES
from lading.arrow.references import has_codec, is_ref
from lading.arrow.views import is_text, total_bytes
from lading.dataset.iteration import materialise_parts, shard_batches
from lading.dataset.open import counts_hold, shards_of
from lading.dataset.shards import Shards
from lading.dataset.source import Source
from lading.dataset.writer import DatasetWriter
from lading.errors import CorruptShard, DataError, LadingError, SidecarMismatch, StoreError, Unrepresentable
from lading.features.items import KEY, sample_firsts
from lading.formats.base import AnyFormat, ShardFile
from lading.formats.registry import get_format
from lading.jobs.checksums import check_shard
from lading.jobs.converter import bounded_options, refuse_unknown
from lading.jobs.plan import as_members, make_plan, refuse_inside, take_files_in
from lading.jobs.progress import OnProgress, Progress
from lading.jobs.salvage_extents import known_recovered
from lading.jobs.salvage_files import TemporaryFiles
from lading.jobs.salvage_kind import Kind, without_sidecar, wrong_sidecar
from lading.jobs.salvage_shard import Left, find_left, find_view
from lading.jobs.salvage_source import FoundShards, find_shards
from lading.limits import DEFAULT_LIMITS, Limits
from lading.manifest.commit import check_destination, find_destination
from lading.manifest.files import ShardTables
from lading.options import InterleavedOptions, ReadOptions
from lading.storage.fetch import earlier_errors
from lading.storage.stores import Stores, resolve
from lading.units import parse_bytes

__all__ = ["LOST_NAME", "SalvageResult", "salvage"]

LOST_NAME = "lost.jsonl"
"""The list of what was lost, beside the manifest of what was saved."""

_MAX_ROWS = 16_384
_MOST_TOLD = 100
_MOST_DIFFERING = 100_000
"""Entries of a shard; of more that are damaged, the number is told."""
_LOOKED_AT = 16
_EXAMPLE_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """What a salvage saved, and what not.

    Attributes:
        source_format: of the source.
        format: of the destination.
        view: how rows were taken.
        source_shards: files of the source.
        shards: files written.
        samples: samples saved.
        lost_samples: samples lost, as far as a list of shards or the shards themselves say how many there were.
        size_bytes: bytes of the files written.
        lost: the first entries of the list of what was lost, each as `LadingError.to_dict` gives it.
        lost_entries: how many the list has; all of them stand in `_lading/lost.jsonl` of the destination.
        findings: what else is wrong with the source: lists that cannot be read, shards that are not what they say. The
            first 100.
        all_findings: how many there were; of each shard's pictures without a whole header, 100 are looked for.
        seconds: wall-clock time.
    """

    source_format: str
    format: str
    view: str
    source_shards: int
    shards: int
    samples: int
    lost_samples: int
    size_bytes: int
    lost: Sequence[Mapping[str, Any]] = field(default_factory=list)
    lost_entries: int = 0
    findings: Sequence[Mapping[str, Any]] = field(default_factory=list)
    all_findings: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost_entries


def salvage(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
    source: Source,
    destination: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the word users know
    source_format: str | None = None,
    view: str | None = None,
    shard_size: int | str = "256MB",
    max_batch_bytes: int | str = "128MB",
    overwrite: bool = False,
    source_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    interleaved: InterleavedOptions | None = None,
    roots: Sequence[str | os.PathLike[str]] = (),
    stores: Stores | None = None,
    limits: Limits = DEFAULT_LIMITS,
    on_progress: OnProgress | None = None,
) -> SalvageResult:
    """Write the samples of a damaged dataset that are intact to a new one, and list what was lost.

    The source is read twice: once to find what of each shard can be read, once to write it. Lists of shards that are
    damaged are passed over. The destination appears in one step at the end. Peak memory: 250 MB, and twice
    `max_batch_bytes` or 128 MB, whichever is more.

    Args:
        source: as `lading.open` takes it.
        destination: folder of the new dataset.
        format: format to write; by default that of the source.
        source_format: format of the source, where it is not recognised.
        view: `samples` or `interleaved`; by default the data say it.
        shard_size: about the size of a shard.
        max_batch_bytes: payload held at once.
        overwrite: replace what is at the destination.
        source_options: options of the source's format.
        options: options of the format written; in the format of the source, those that are not told follow its first
            shard that can be read.
        interleaved: names of fields and policies for interleaved data.
        roots: folders that references in tables may point into, beside those of the source.
        stores: which store serves which URL.
        limits: the most that files of the source may ask for, as `lading.open` takes them; what asks for more is lost.
        on_progress: called after every shard that was looked at, and every batch that was written.

    Raises:
        SourceNotFound: there is no shard.
        UnknownFormat: a folder holds files of several formats, and none is named.
        DestinationExists: the destination holds something.
        UsageError: the destination lies inside the source.
        DataError: not one sample is left; rows that the format written cannot hold.
    """
    began = time.perf_counter()
    stores = stores or Stores()
    read = ReadOptions(
        format=source_format, view=view, options=source_options, interleaved=interleaved, roots=roots, stores=stores,
        limits=limits,
    )  # fmt: skip
    found = find_shards(source, stores, source_format, limits)
    store, path = find_destination(destination, stores)
    max_bytes, shard_bytes = parse_bytes(max_batch_bytes), parse_bytes(shard_size)
    with shards_of(found.listing, found.format, found.manifest, read=read) as dataset:
        take_files_in(dataset, source_options)
        if found.format.info.deep_options:  # as a deep verification does
            dataset.read_with(found.format.info.deep_options)
        refuse_inside(dataset, destination, stores)
        check_destination(store, path, overwrite=overwrite)
        with TemporaryFiles(store, path) as workshop, _Lost(workshop) as lost:
            search = _Search(dataset, found, workshop, lost, stores, on_progress)
            if view is None and found.manifest is None:
                search.settle_view()
            target = get_format(format) if format is not None else found.format
            if target.name == found.format.name:
                options = {**_alike(dataset), **(options or {})}
            search.look()
            saved = _saved(dataset, search.left, lost)
            copying = target.name == found.format.name and dataset.view == "samples"
            options, members = as_members(saved, target, options) if copying else (options, None)
            with _advising(found.format, target):
                plan = make_plan(saved, target)
                writer = DatasetWriter(
                    destination, format=target.name, view=dataset.view, schema=plan.schema, shard_size=shard_bytes,
                    overwrite=overwrite, options=bounded_options(target, options or {}, max_bytes), roles=plan.roles,
                    members=members, stores=stores,
                )  # fmt: skip
                with writer:
                    _write(saved, plan.schema, writer, max_bytes, on_progress)
                    if lost.count:
                        writer.add_file(LOST_NAME, lost.pieces())
                summary = writer.close()
            return SalvageResult(
                found.format.name, target.name, dataset.view, len(found.listing), summary.num_shards,
                summary.num_samples, lost.samples, summary.size_bytes, lost.first, lost.count,
                search.findings, search.all_findings, time.perf_counter() - began,
            )  # fmt: skip


@contextmanager
def _advising(source: AnyFormat, target: AnyFormat) -> Iterator[None]:
    """Of what another format cannot hold, give advice that can be taken: a salvage leaves no column out."""
    try:
        yield
    except Unrepresentable as error:
        if target.name != source.name and "--columns" in (error.advice or ""):
            error.advice = f"Salvage it as {source.name}, and convert what was saved."
        raise


class _Lost:
    """The list of what was lost: counted, the first entries at hand, all of them in a file until it has its place.

    Attributes:
        count: entries.
        first: the first of them.
        samples: samples lost, as far as that is known.
    """

    def __init__(self, workshop: TemporaryFiles) -> None:
        self.count = self.samples = 0
        self.first: list[dict[str, object]] = []
        self._file = workshop.list_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, errors: Iterable[LadingError], samples: int) -> None:
        """Append what a shard lost."""
        self.samples += samples
        for error in errors:
            entry = error.to_dict()
            self._file.write(orjson.dumps(entry) + b"\n")
            self.count += 1
            if len(self.first) < _MOST_TOLD:
                self.first.append(entry)

    def pieces(self) -> Iterator[bytes]:
        """All entries, a line each."""
        self._file.seek(0)
        while piece := self._file.read(_PIECE_BYTES):
            yield piece


class _Search:
    """Looks at every shard of a source, and notes what is left of each.

    Attributes:
        left: what is left, by the number of the shard.
        findings: what is wrong beside: the first of it, each as `LadingError.to_dict` gives it.
        all_findings: how many there were.
    """

    def __init__(
        self,
        dataset: Shards,
        found: FoundShards,
        workshop: TemporaryFiles,
        lost: _Lost,
        stores: Stores,
        on_progress: OnProgress | None,
    ) -> None:
        self._dataset, self._found, self._workshop, self._lost = dataset, found, workshop, lost
        self._stores, self._on_progress = stores, on_progress
        self._kept: ShardTables | None = None
        if found.kept_shards is not None and dataset.listing.own is not None:
            store, folder = resolve(dataset.listing.own, stores)
            written = found.manifest.view if found.manifest is not None else None
            self._kept = ShardTables(store, folder, found.kept_shards, dataset.limits, view=written)
        self.left: list[Left] = []
        self.findings: list[dict[str, object]] = []
        self.all_findings = 0
        self._tell(found.findings)
        self._common = cache(self._find_common)

    def settle_view(self) -> None:
        """Find out how rows are taken, as the first shards say that say anything."""
        kind = self._kind()
        for number in range(min(len(self._dataset.listing), _LOOKED_AT)):
            with suppress(DataError, StoreError):
                view = find_view(kind, self._dataset.source(number), self._workshop)
                if view is not None:
                    self._dataset.view = view
                    return

    def look(self) -> None:
        """Look at all shards."""
        samples = 0
        total = len(self._dataset.listing)
        for number in range(total):
            left = self._look_at(number)
            left = self._or_twin(number, left) if left.lost else left
            told = self._told(number)
            lost = left.lost_samples if told is None else max(told - left.samples, 0)
            self._lost.add([*_with_count(left, lost, self._dataset.path(number)), *left.missing], lost)
            if told is not None and left.samples > told:
                self._tell([SidecarMismatch("a shard has more samples than its list says",
                                            file=self._dataset.path(number), expected=told,
                                            found=left.samples)])  # fmt: skip
            # What was told is not held: a shard may have lost millions of rows.
            self.left.append(replace(left, lost=(), findings=(), missing=()))
            samples += left.samples
            if self._on_progress is not None:
                self._on_progress(Progress(number + 1, total, samples, 0))

    def _tell(self, errors: Sequence[LadingError]) -> None:
        """Note what is wrong beside: millions of shards may each say something."""
        self.all_findings += len(errors)
        self.findings += [error.to_dict() for error in errors[: max(_MOST_TOLD - len(self.findings), 0)]]

    def _look_at(self, number: int) -> Left:
        dataset = self._dataset
        try:
            source = dataset.source(number)
            checked = None if self._kept is None else check_shard(self._kept, number, self._stores, _MOST_DIFFERING)
        except (DataError, StoreError) as error:
            return Left(None, lost=[error.at(file=dataset.path(number))])
        self._check_size(number, source)
        told = self._told(number)
        differing = checked.errors if checked is not None else ()
        if checked is not None and not differing and told is not None and dataset.holds_its_bytes:
            return self._as_written(source, told)
        known = known_recovered(self._found.format, source, checked.files, differing) if checked and differing else None
        left = find_left(self._kind(number), source, self._workshop, known)
        self._tell(left.findings)
        told_as_lost = {id(error) for error in known.lost} if known is not None else set()  # they may be many
        self._tell([error for error in differing if id(error) not in told_as_lost])
        if differing and left.samples and not left.by_sums:
            what = "bytes were changed; samples with other bytes than were written may be among those that are kept"
            return replace(left, lost=[CorruptShard(what, file=dataset.path(number)), *left.lost])
        return left

    def _or_twin(self, number: int, left: Left) -> Left:
        """What is left of the other form of a damaged shard, if there is one and it holds more, or all."""
        dataset, fmt = self._dataset, self._found.format
        store, path = resolve(dataset.path(number), self._stores)
        entry = dataset.listing.table["entry"][number].as_py() or ""
        source = ShardFile(store, path, entry=entry, limits=dataset.limits, stores=self._stores)
        twin = None
        with suppress(DataError, StoreError):
            twin = fmt.compressed_copy(source)
        other = left if twin is None else find_left(self._kind(number), replace(source, path=twin), self._workshop)
        if not other.samples or other.samples < left.samples + bool(other.lost):
            return left
        self._tell([*left.lost[:1], *other.findings])
        return other

    def _told(self, number: int) -> int | None:
        """How many samples a list says that a shard had."""
        told: int | None = self._found.told["num_samples"][number].as_py() if counts_hold(self._dataset) else None
        return told

    def _check_size(self, number: int, source: ShardFile) -> None:
        """Note a shard that has another size than the index says by which it was found."""
        told, lists = self._found.told["size_bytes"][number].as_py(), self._dataset.listing.index_file
        if lists is not None and source.info is not None and told not in (None, source.info.size_bytes):
            self._tell([SidecarMismatch(f"the size differs from what {lists} says", file=source.path,
                                        expected=f"{told} bytes",
                                        found=f"{source.info.size_bytes} bytes")])  # fmt: skip

    def _as_written(self, source: ShardFile, samples: int) -> Left:
        """All of a shard that is what was written, byte for byte; what lies beside it may be another's."""
        wrong = wrong_sidecar(self._kind(), source)
        if wrong is None:
            return Left(source, samples)
        self._tell([wrong])
        return Left(without_sidecar(self._kind(), source), samples)

    def _kind(self, number: int | None = None) -> Kind:
        dataset = self._dataset
        return Kind(
            self._found.format, dataset.view, dataset.format_options, dataset.interleaved,
            dataset.stored_schema, dataset.members, dataset.fetcher, dataset.follower,
            dataset.listing.index_file, partial(self._example, number),
        )  # fmt: skip

    def _example(self, apart_from: int | None) -> pa.Schema | None:
        """The fields that every sample has, as most of the first shards say that can be read; None if none can."""
        numbers = range(min(len(self._dataset.listing), _LOOKED_AT))
        found = [schema for number in numbers if number != apart_from and (schema := self._common(number)) is not None]
        counts = Counter(name for schema in found for name in schema.names)
        fields = {field.name: field for schema in found for field in schema if 2 * counts[field.name] > len(found)}
        return pa.schema(fields.values()) if found else None

    def _find_common(self, number: int) -> pa.Schema | None:
        """The fields that all of a shard's first samples have; None if it has no samples, or cannot be read."""
        with suppress(DataError, StoreError):
            view = self._dataset.open_shard(number)
            view.schema()  # raises where its headers are damaged further behind
            for batch in view.batches(max_rows=_MAX_ROWS, max_bytes=_EXAMPLE_BYTES):
                return pa.schema([field for field, column in zip(batch.schema, batch.columns, strict=True)
                                  if field.name != KEY and not column.null_count])  # fmt: skip
        return None


def _with_count(left: Left, lost: int, path: str) -> list[LadingError]:
    """What a shard lost; a line more where only its list knows that samples are missing."""
    if left.lost or not lost:
        return list(left.lost)
    return [CorruptShard("samples are missing that the list of shards tells of", file=path, found=f"{lost} of them")]


def _alike(dataset: Shards) -> Mapping[str, Any]:
    """Options of writing under which what is saved can be held as the source held it; none if nothing of it says."""
    for number in range(min(len(dataset.listing), _LOOKED_AT)):
        with suppress(DataError, StoreError):
            return dataset.alike(number)
    return {}


def _saved(dataset: Shards, left: Sequence[Left], lost: _Lost) -> Shards:
    """The dataset with what is left of its shards in their place.

    Raises:
        DataError: nothing is left.
    """
    numbers = [number for number, each in enumerate(left) if each.source is not None and each.samples]
    if not numbers:
        first = lost.first[0] if lost.first else {"message": "no samples"}
        column, advice = (None if first.get(name) is None else str(first[name]) for name in ("column", "advice"))
        raise DataError("not one sample is left", file=dataset.listing.folder or dataset.path(0), column=column,
                        expected="a sample that can be read", found=first["message"], advice=advice)  # fmt: skip
    sources = {new: left[number].source for new, number in enumerate(numbers)}
    dataset.listing = replace(dataset.listing, table=dataset.listing.table.take(pa.array(numbers)))
    dataset.replacements = {new: source for new, source in sources.items() if source is not None}
    dataset.forget_shards()
    return dataset


def _write(
    dataset: Shards,
    schema: pa.Schema | None,
    writer: DatasetWriter,
    max_bytes: int,
    on_progress: OnProgress | None,
) -> None:
    """Write all rows that are left."""
    texts = {f.name for f in schema or () if is_text(f.type)}
    samples = payload = 0
    total = len(dataset.listing)
    for number in range(total):
        for batch in shard_batches(dataset, number, _MAX_ROWS, max_bytes, None, schema, views=True, drifting=True):
            if schema is not None:
                refuse_unknown(batch.schema, schema, dataset.path(number))
            fitted = batch if schema is None else align_table(batch, schema)
            if dataset.replacements[number].stands_for:
                fitted = _without_source(fitted)
            firsts = sample_firsts(fitted, dataset.view)
            references = {f.name for f in fitted.schema if is_ref(f.type)}
            parts: Iterable[pa.RecordBatch] = [fitted]
            if not references or references & texts or earlier_errors(fitted) or has_codec(fitted):
                found = materialise_parts(dataset, fitted, max_bytes // HELD_BATCHES, views=True, earlier=False)
                parts = (as_text(part, schema) for part in found)
            for part in parts:
                writer.write_batch(part, behind=True, duplicate_ids="apart")
                dataset.release(writer.held_bytes())
            samples += len(firsts)
            payload += total_bytes(batch)
            if on_progress is not None:
                on_progress(Progress(number, total, samples, payload))
    if on_progress is not None:
        on_progress(Progress(total, total, samples, payload))


def _without_source(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Items without the place that they came from, where that is a file that goes when the salvage ends."""
    names = batch.schema.names
    if "source_ref" not in names or "binary_content" not in names:
        return batch
    at = names.index("source_ref")
    return batch.set_column(at, batch.schema.field(at), pa.nulls(batch.num_rows, batch.schema.field(at).type))
