"""Salvage: write the sound samples of a damaged dataset to a new one, and list what was lost."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson
import pyarrow as pa

from lading._core.arguments import public
from lading._core.arrow.align import align_table, as_text
from lading._core.arrow.ipc import needs_dictionaries
from lading._core.arrow.rebatch import HELD_BATCHES
from lading._core.arrow.references import has_codec, is_ref
from lading._core.arrow.views import is_text, total_bytes
from lading._core.codecs import unpacked_name
from lading._core.dataset.query import Query
from lading._core.dataset.shards.iteration import materialise_parts, shard_batches
from lading._core.dataset.shards.shards import Shards, options_like
from lading._core.dataset.source.open import Named, counts_hold, of_split
from lading._core.dataset.source.source import Source, listed_once, named_folders
from lading._core.dataset.writing.single_file import check_file, is_file_name
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.findings import Level
from lading._core.formats.format import AnyFormat
from lading._core.formats.registry import format_of_name, get_format
from lading._core.jobs.convert.converter import bounded_options, refuse_unknown
from lading._core.jobs.convert.schemas import as_members, plan_schemas, refuse_inside
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.engine.read_task import OnRead
from lading._core.jobs.engine.reading import Reading, look_at_shards
from lading._core.jobs.salvage.extents import known_layouts
from lading._core.jobs.salvage.files import TemporaryFiles
from lading._core.jobs.salvage.shard import SavedShard, find_view, save_shard, without_sidecar, wrong_sidecar
from lading._core.jobs.salvage.sound import begin_sound, is_as_written, open_found, open_found_again, shard_reading
from lading._core.jobs.salvage.source import FoundShards
from lading._core.jobs.verify.checksums import check_shard
from lading._core.json_forms import ErrorList, LostTails
from lading._core.manifest.commit import check_destination, find_destination
from lading._core.manifest.values import FOLDER, LOST_COUNT, LOST_NAME, REPAIRING_NAME
from lading._core.pipeline.cutting import ONE_SHARD, Cut
from lading._core.result_text import ResultText
from lading._core.storage.base import Store, aborting, has_file
from lading._core.storage.fetch import earlier_errors
from lading._core.storage.stores import Stores, is_local, resolve
from lading._core.units import parse_bytes
from lading.errors import (
    CorruptShard,
    DataError,
    LadingError,
    SidecarMismatch,
    StoreError,
    Unrepresentable,
    UsageError,
    is_damage,
    suppress_damage,
)
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import InterleavedOptions, ReadOptions, WorkerOptions, parse_shard_size

__all__ = ["Losses", "SalvageResult", "Search", "options_alike", "salvage", "write_saved"]

_MAX_ROWS = 16_384
_MOST_SHOWN = 100
_MOST_DIFFERING = 100_000
"""Entries of one shard in the list of what was lost."""
_LOOKED_AT = 16
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SalvageResult(ResultText):
    """What a salvage saved and lost.

    Attributes:
        source_format: format of the source.
        format: format of the destination.
        view: how rows were taken.
        source_shards: number of shards of the source.
        shards: number of shards written.
        samples: number of samples saved.
        lost_samples: number of samples that are known to be lost, by a list of shards or by the shards themselves.
        size_bytes: size of the shards written.
        counted: whether `lost_samples` is exact; otherwise more samples may be lost.
        lost_tails: files whose end is lost, with an unknown number of samples: `file`, and `offset` of the first byte.
            The first 100.
        lost: the first 100 entries of the list of what was lost, each with the keys of an error.
        lost_entries: number of all entries.
        lost_list: the file with all entries, if there are any: `_lading/lost.jsonl` in the destination; next to a
            destination that is one file, its name and `.lost.jsonl`.
        findings: the first 100 problems that cost no sample: a list that cannot be read, a picture without its header.
        all_findings: number of such problems; of the pictures of a shard, 100 are looked for.
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
    counted: bool = True
    lost_tails: LostTails = field(default_factory=list)
    lost: ErrorList = field(default_factory=list)
    lost_entries: int = 0
    lost_list: str | None = None
    findings: ErrorList = field(default_factory=list)
    all_findings: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost_entries


@public("lading.salvage")
def salvage(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
    source: Source,
    destination: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the word users know
    source_format: str | None = None,
    split: str | None = None,
    config: str | None = None,
    view: str | None = None,
    shard_size: int | str | None = None,
    max_batch_bytes: int | str = "128MB",
    overwrite: bool = False,
    source_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    interleaved: InterleavedOptions | None = None,
    regroup: bool = False,
    roots: Sequence[str | os.PathLike[str]] = (),
    hive_partitioning: bool = True,
    stores: Stores | None = None,
    storage_options: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    on_progress: OnProgress | None = None,
    progress: bool = True,
) -> SalvageResult:
    """Write the sound samples of a damaged dataset to a new one, and list what was lost.

    The source is read twice: once to find the sound samples, once to write them. Workers, or an executor, share the
    first reading. This process writes, and searches the damaged shards. The result does not depend on the workers.

    Damaged lists of shards are ignored. The destination appears in one step at the end. Peak memory of each process:
    250 MB, plus twice `max_batch_bytes` or 128 MB, whichever is more.

    Example:
        result = lading.salvage("broken", "saved")
        print(result.samples, result.lost_samples, result.lost)

    Args:
        source: as `lading.open` takes it.
        destination: folder of the new dataset. A name that ends in `.parquet`, `.tar.gz` or such is one file, without
            a manifest.
        format: format to write; by default that of the source, or that of the name of a file. Parquet for a format that
            lading only reads.
        source_format: format of the source, if it is not recognised.
        split: split to save, as for `lading.open`.
        config: config to save, as for `lading.open`.
        view: `samples` or `interleaved`; by default the data tell.
        shard_size: size of a shard on disk. By default, each shard of the source becomes one.
        max_batch_bytes: most payload in memory at once.
        overwrite: replace the destination.
        source_options: options of the source's format.
        options: options of the format written. In the format of the source, the others are as in its first sound shard.
        interleaved: names of fields and policies for interleaved data.
        regroup: join the rows or members of a sample wherever they are in the shard, as for `lading.open`.
        roots: further folders that references in tables may point into.
        hive_partitioning: as `lading.open` takes it.
        stores: which store serves which URL.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix.
        limits: most resources that files of the source may ask for; a unit that asks for more is lost.
        workers: as `lading.digest` takes it.
        executor: the same.
        address: the same.
        on_progress: called after each shard that was searched, and after each batch that was written.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.

    Raises:
        SourceNotFound: there is no shard.
        UnknownFormat: a folder holds files of several formats, and `source_format` is not given.
        DestinationExists: the destination is not empty.
        UsageError: the destination is inside the source, or one file and `shard_size` is given; `shard_size` is less
            than one byte; workers are asked for, and cannot read these data.
        DataError: no sample is left; the format written cannot hold the rows.
        StoreError: a disk, a limit of the machine or a store failed. That is never a loss: nothing is written.
    """
    began = time.perf_counter()
    max_bytes = parse_bytes(max_batch_bytes)
    shard_bytes = None if shard_size is None else parse_shard_size(shard_size)
    sharing = WorkerOptions(workers=workers, executor=executor, address=address)
    stores = Stores.of(stores, storage_options) or Stores()
    read = ReadOptions(
        format=source_format, config=config, view=view, options=source_options, interleaved=interleaved,
        regroup=regroup, roots=roots, hive_partitioning=hive_partitioning, stores=stores, limits=limits,
    )  # fmt: skip
    source, read = of_split(listed_once(source), replace(read, split=split))
    _refuse_in_repair(source, stores)
    query = Query(Named.of(source), read)
    found, dataset = open_found(query)
    reading = Reading(begin_sound, query, sharing=sharing, open=open_found_again)
    with dataset:
        store, path = find_destination(destination, stores)
        refuse_inside(dataset, destination, stores)
        name, is_file = os.fspath(destination), is_file_name(destination)
        if is_file and shard_bytes is not None:
            raise UsageError("one file holds all rows", file=name, found=f"shard_size={shard_size}",
                             advice=f"Name a folder: {name}/ is one, by the slash at its end.")  # fmt: skip
        (check_file if is_file else check_destination)(store, path, overwrite=overwrite)
        with (
            TemporaryFiles(store, path) as files,
            Losses(files) as lost,
            shown_progress("salvaging", on_progress, progress=progress) as report,
        ):
            search = Search(dataset, found, files, lost, stores, report)
            if view is None and found.manifest is None:
                search.settle_view()
            by_name = format_of_name(name) if is_file else found.format.name
            target = get_format(format or by_name)
            if format is None and target.loose is None and target.info.write_options is None:  # lading only reads it
                target = get_format("parquet")
            if target is found.format:
                alike = options_alike(dataset)
                options = {**(_without_wrap(target, alike) if is_file else alike), **(options or {})}
            search.look(reading)
            saved = _saved(dataset, search.saved, lost)
            copying = target is found.format and dataset.row_layout.types_by_format
            options, members = as_members(saved, target, options) if copying else (options, None)
            with _advising(found.format, target):
                plan = plan_schemas(saved, target)
                writer = DatasetWriter(
                    name if is_file else f"{name}/", format=target.name, view=dataset.view, schema=plan.schema,
                    cut=ONE_SHARD if shard_bytes is None else Cut(shard_bytes),
                    overwrite=overwrite, options=bounded_options(target, options or {}, max_bytes), roles=plan.roles,
                    members=members, on_error=None, stores=stores,
                )  # fmt: skip
                with writer:
                    divided = shard_bytes is None and not is_file
                    write_saved(saved, plan.schema, writer, max_bytes, report, divided=divided)
                    if lost.count and not is_file:
                        writer.counts[LOST_COUNT] += lost.samples
                        writer.add_file(LOST_NAME, lost.pieces())
                    writer.finish()
                    if is_file:
                        search.note([Unrepresentable(text, file=name) for text in writer.counts])
                        _list_beside(store, path, lost)
                summary = writer.close()
            return SalvageResult(
                found.format.name, target.name, dataset.view, len(found.listing), summary.num_shards,
                summary.num_samples, lost.samples, summary.size_bytes, lost.counted, lost.tails, lost.first, lost.count,
                _list_name(name, is_file=is_file) if lost.count else None,
                search.findings, search.all_findings, time.perf_counter() - began,
            )  # fmt: skip


def _without_wrap(fmt: AnyFormat, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options of writing without compression of the whole file, which the name of the file says."""
    if not unpacked_name("x" + fmt.endings(fmt.write_options(options))[0])[1]:
        return options
    return {name: value for name, value in options.items() if name not in ("compression", "compression_level")}


def _list_name(destination: str, *, is_file: bool) -> str:
    return f"{destination}.{LOST_NAME}" if is_file else f"{destination.rstrip('/')}/{FOLDER}/{LOST_NAME}"


def _list_beside(store: Store, path: str, lost: Losses) -> None:
    """Write the list of what was lost next to a destination that is one file, or remove that of an earlier salvage."""
    name = _list_name(path, is_file=True)
    if not lost.count:
        if has_file(store, name):
            store.delete(name)
        return
    with aborting(store.put_stream(name)) as sink:
        for piece in lost.pieces():
            sink.write([piece])
        sink.close()


def _refuse_in_repair(source: Source, stores: Stores) -> None:
    """Refuse a dataset on a store whose repair was killed: damaged and mended shards are both there.

    Raises:
        UsageError: names the folder.
    """
    for folder in named_folders(source, stores):
        store, path = resolve(folder, stores)
        if not is_local(store) and has_file(store, f"{path}/{FOLDER}/{REPAIRING_NAME}"):
            raise UsageError("a repair of the dataset was killed, and must be ended first", file=folder,
                             advice=f"Run: lading repair {shlex.quote(folder)}")  # fmt: skip


@contextmanager
def _advising(source: AnyFormat, target: AnyFormat) -> Iterator[None]:
    """Give advice that can be followed if the target cannot hold a column: a salvage keeps all columns."""
    try:
        yield
    except Unrepresentable as error:
        if target.name != source.name and "--drop-columns" in (error.advice or ""):
            kept = source.name if source.info.write_options is not None else "parquet"
            error.advice = f"Salvage it with --to {kept}, and convert what was saved."
        raise


class Losses:
    """The list of what was lost. The first entries are in memory, all of them in a temporary file.

    Attributes:
        count: number of entries.
        first: the first entries.
        samples: number of samples that are known to be lost.
        counted: whether that is all.
        tails: file and offset of the first ends of files that are lost.
    """

    def __init__(self, files: TemporaryFiles) -> None:
        self.count = self.samples = 0
        self.counted = True
        self.first: list[dict[str, object]] = []
        self.tails: list[dict[str, object]] = []
        self._files, self._file = files, files.list_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add_uncounted(self, file: str, lost_from: int | None) -> None:
        """Note that a file lost an unknown number of samples, perhaps from one offset on."""
        self.counted = False
        if lost_from is not None and len(self.tails) < _MOST_SHOWN:
            self.tails.append({"file": file, "offset": lost_from})

    def add(self, errors: Iterable[LadingError], samples: int) -> None:
        """Append the losses of a shard."""
        self.samples += samples
        entries = [error.to_dict() for error in errors]
        with self._files.writing():
            self._file.write(b"".join(orjson.dumps(entry) + b"\n" for entry in entries))
        self.count += len(entries)
        self.first += entries[: _MOST_SHOWN - len(self.first)]

    def pieces(self) -> Iterator[bytes]:
        """Yield all entries as JSON Lines."""
        with self._files.writing():
            self._file.seek(0)  # and write what is buffered
        while piece := self._file.read(_PIECE_BYTES):
            yield piece


class Search:
    """Searches every shard of a source, and notes which samples of it can be saved.

    Attributes:
        saved: by the number of the shard, what can be saved.
        findings: the first problems that cost no sample, each as `LadingError.to_dict` gives it.
        all_findings: number of such problems.
    """

    def __init__(
        self,
        dataset: Shards,
        found: FoundShards,
        files: TemporaryFiles,
        lost: Losses,
        stores: Stores,
        on_progress: OnProgress | None,
    ) -> None:
        self._dataset, self._found, self._files, self._lost = dataset, found, files, lost
        self._stores, self._on_progress = stores, on_progress
        self.saved: list[SavedShard] = []
        self.findings: list[dict[str, object]] = []
        self.all_findings = 0
        self.note(found.findings)

    def settle_view(self) -> None:
        """Find out how rows are taken: as the first shard says that says anything."""
        for number in range(min(len(self._dataset.listing), _LOOKED_AT)):
            with suppress_damage():
                view = find_view(shard_reading(self._dataset), self._dataset.source(number), self._files)
                if view is not None:
                    self._dataset.view = view
                    return

    def look(self, reading: Reading) -> None:
        """Search all shards, but those that another process finds sound as they are.

        Args:
            reading: how other processes look at shards.
        """
        samples = 0
        total = len(self._dataset.listing)
        found = look_at_shards(
            self._dataset, _left_to_search, reading, range(total), on_digests=lambda _: None, on_progress=None,
            listing=replace(self._dataset.listing, table=self._found.told),
        )  # fmt: skip
        with closing(found) as results:
            for number, told in enumerate(results):
                saved = self.save(number, told)
                self.saved.append(saved)
                samples += saved.samples
                if self._on_progress is not None:
                    self._on_progress(Progress(number + 1, total, samples, 0))

    def save(self, number: int, told: Mapping[str, Any]) -> SavedShard:
        """Search a shard, unless another process found it sound; list its losses. They are not in the result.

        Errors are not kept in memory: a shard may have lost millions of rows.
        """
        saved = self._sound(number, told) or self._look_at(number)
        saved = self._or_compressed_copy(number, saved) if saved.lost else saved
        self.note(saved.findings)
        self._account(number, saved)
        return replace(saved, lost=(), findings=(), missing=())

    def _sound(self, number: int, told: Mapping[str, Any]) -> SavedShard | None:
        """Return a shard that another process found sound; None for others, and if it cannot be opened now."""
        if not told:
            return None
        with suppress_damage():
            source = self._dataset.source(number)
            self._check_size(number, source)
            if not told["as_written"]:
                source = without_sidecar(shard_reading(self._dataset), source)
            return SavedShard(source, told["samples"])
        return None

    def _account(self, number: int, saved: SavedShard) -> None:
        """Add the losses of a shard to the list. A list of shards tells how many samples are lost."""
        path, listed = self._dataset.path(number), self._listed_samples(number)
        if listed is None and saved.lost and not saved.counted and not self._dataset.has_items:
            listed = self._samples_in_sidecar(number)
        lost = saved.lost_samples if listed is None else max(listed - saved.samples, 0)
        errors = [*saved.lost]
        if lost and not errors:
            errors = [
                CorruptShard("samples are missing that the list of shards has", file=path, found=f"{lost} of them")
            ]
        self._lost.add([*errors, *saved.missing], lost)
        if listed is None and errors and not (saved.counted and (saved.samples or saved.lost_samples)):
            self._lost.add_uncounted(path, saved.lost_from)
        if listed is not None and saved.samples > listed:
            self.note([SidecarMismatch("a shard has more samples than its list says", file=path, expected=listed,
                                        found=saved.samples)])  # fmt: skip

    def note(self, errors: Sequence[LadingError]) -> None:
        """Note problems that cost no sample: millions of shards may each have some."""
        self.all_findings += len(errors)
        self.findings += [error.to_dict() for error in errors[: max(_MOST_SHOWN - len(self.findings), 0)]]

    def _look_at(self, number: int) -> SavedShard:
        dataset, reading = self._dataset, shard_reading(self._dataset)
        try:
            source = dataset.source(number)
            checked = None if dataset.kept is None else check_shard(dataset.kept, number, self._stores, _MOST_DIFFERING)
        except (DataError, StoreError) as error:
            if not is_damage(error):
                raise
            return SavedShard(None, lost=[error.at(file=dataset.path(number))])
        self._check_size(number, source)
        listed = self._listed_samples(number)
        differing = checked.errors if checked is not None else ()
        for each in differing:
            if not is_damage(each):
                raise each
        if checked is None or not differing:
            if listed is not None and is_as_written(dataset, number, checked):
                return self._as_written(source, listed)
            return save_shard(reading, source, self._files)
        schema = dataset.stored_schema
        independent = schema is not None and not any(map(needs_dictionaries, schema.types))
        known = known_layouts(source, checked.files, differing, independent=independent)
        saved = save_shard(reading, source, self._files, known)
        listed_as_lost = {id(error) for layout in known[:1] for error in layout.lost} if saved.by_checksums else set()
        self.note([error for error in differing if id(error) not in listed_as_lost])
        if saved.samples and not saved.by_checksums:
            what = "bytes were changed; samples with other bytes than were written may be among those that are saved"
            return replace(saved, lost=[CorruptShard(what, file=dataset.path(number)), *saved.lost])
        return saved

    def _or_compressed_copy(self, number: int, saved: SavedShard) -> SavedShard:
        """Return what the other form of a damaged shard holds, compressed or not, if that is more."""
        dataset, fmt = self._dataset, self._found.format
        store, path = resolve(dataset.path(number), self._stores)
        entry = dataset.listing.table["entry"][number].as_py() or ""
        partition = dataset.listing.table["partition"][number].as_py() or ""
        source = ShardFile(store, path, entry=entry, partition=partition, limits=dataset.limits, stores=self._stores)
        copy = None
        with suppress_damage():
            found = fmt.checks(source, dataset.read_options, Level.BESIDE)
            copy = next((one.copy for one in found if one.copy), None)
        if copy is None:
            return saved
        other = save_shard(shard_reading(dataset), replace(source, path=copy), self._files)
        if not other.samples or other.samples < saved.samples + bool(other.lost):
            return saved
        return replace(other, findings=[*saved.lost[:1], *other.findings])

    def _listed_samples(self, number: int) -> int | None:
        """Return how many samples a list says that a shard had; None if no list tells."""
        listed: int | None = self._found.told["num_samples"][number].as_py() if counts_hold(self._dataset) else None
        return listed

    def _samples_in_sidecar(self, number: int) -> int | None:
        """Return how many samples the sidecar of a damaged shard lists; None if nothing tells."""
        dataset = self._dataset
        with suppress_damage():
            found = dataset.fmt.checks(dataset.source(number), dataset.read_options, Level.BESIDE)
            return next((one.listed_samples for one in found if one.listed_samples is not None), None)
        return None

    def _check_size(self, number: int, source: ShardFile) -> None:
        """Note a shard that has another size than the index says by which it was found."""
        listed, index = self._found.told["size_bytes"][number].as_py(), self._dataset.listing.index_file
        if index is not None and source.info is not None and listed not in (None, source.info.size_bytes):
            self.note([SidecarMismatch(f"the size differs from what {index} says", file=source.path,
                                        expected=f"{listed} bytes",
                                        found=f"{source.info.size_bytes} bytes")])  # fmt: skip

    def _as_written(self, source: ShardFile, samples: int) -> SavedShard:
        """Return all of a shard that is what was written, byte for byte, without a wrong index file beside it."""
        reading = shard_reading(self._dataset)
        wrong = wrong_sidecar(reading, source)
        if wrong is None:
            return SavedShard(source, samples)
        return SavedShard(without_sidecar(reading, source), samples, findings=[wrong])


def _left_to_search(shards: Iterable[int], _: OnRead) -> Iterator[dict[str, Any]]:
    """Tell nothing of shards that no other process looks at."""
    return ({} for _ in shards)


def options_alike(dataset: Shards) -> Mapping[str, Any]:
    """Return options of writing under which a copy is like the first sound shard of the source."""
    for number in range(min(len(dataset.listing), _LOOKED_AT)):
        with suppress_damage():
            return options_like(dataset, number)
    return {}


def _saved(dataset: Shards, saved: Sequence[SavedShard], lost: Losses) -> Shards:
    """Return the dataset with the sound samples of its shards in their place.

    Raises:
        DataError: there are none.
    """
    sources = {number: each.source for number, each in enumerate(saved) if each.source is not None and each.samples}
    if not sources:
        first = lost.first[0] if lost.first else {"message": "no samples"}
        column, advice = (None if first.get(name) is None else str(first[name]) for name in ("column", "advice"))
        raise DataError("no sample could be saved", file=dataset.listing.folder or dataset.path(0), column=column,
                        expected="a sample that can be read", found=first["message"], advice=advice)  # fmt: skip
    dataset.listing = replace(dataset.listing, table=dataset.listing.table.take(pa.array([*sources])))
    dataset.replacements = dict(enumerate(sources.values()))
    dataset.forget_shards()
    return dataset


def write_saved(
    dataset: Shards,
    schema: pa.Schema | None,
    writer: DatasetWriter,
    max_bytes: int,
    on_progress: OnProgress | None,
    *,
    divided: bool = True,
) -> None:
    """Write all rows that can be saved; those of a shard into a shard of their own, if they are to be `divided`."""
    texts = {f.name for f in schema or () if is_text(f.type)}
    samples = payload = 0
    total = len(dataset.listing)
    for number in range(total):
        if divided and number:
            writer.end_part(ONE_SHARD)
        scan = Scan(schema=schema, max_rows=_MAX_ROWS, max_bytes=max_bytes, views=True, drifting=True)
        for batch in shard_batches(dataset, number, scan):
            if schema is not None:
                refuse_unknown(batch.schema, schema, dataset.path(number))
            fitted = batch if schema is None else align_table(batch, schema)
            if dataset.replacements[number].stands_for:
                fitted = _without_source(fitted)
            firsts = dataset.row_layout.firsts(fitted)
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
    """Return items without `source_ref`, which would name a temporary file."""
    names = batch.schema.names
    if "source_ref" not in names or "binary_content" not in names:
        return batch
    at = names.index("source_ref")
    return batch.set_column(at, batch.schema.field(at), pa.nulls(batch.num_rows, batch.schema.field(at).type))
