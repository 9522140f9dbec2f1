"""Repair: mend the damaged shards of a dataset in its place. Sound shards stay as they are.

On disk, the mended dataset is built in a hidden folder, where sound files have a second name (a hard link). It takes
the place of the old one in one step. On a store, mended shards get new names. When they are there, `repairing.json`
says which lists take the place of the old ones, and which files go: a repair that is run again ends that first.
"""

from __future__ import annotations

import base64
import os
import posixpath
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from lading._core.arguments import public
from lading._core.dataset.query import Query
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.open import Named
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.formats.base import ShardFacts
from lading._core.formats.format import file_names
from lading._core.jobs.convert.converter import bounded_options
from lading._core.jobs.convert.schemas import as_members, plan_schemas
from lading._core.jobs.engine.progress import OnProgress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.engine.reading import Reading, look_at_shards
from lading._core.jobs.salvage.files import TemporaryFiles
from lading._core.jobs.salvage.salvage import Losses, Search, options_alike, write_saved
from lading._core.jobs.salvage.shard import SavedShard
from lading._core.jobs.salvage.sound import begin_sound, open_found, open_found_again
from lading._core.jobs.salvage.source import FoundShards
from lading._core.jobs.verify.checksums import check_own_files, check_shard
from lading._core.jobs.verify.indexes import Indexes
from lading._core.json_forms import ErrorList
from lading._core.manifest import values as mf
from lading._core.manifest.builds import JOB_NAME
from lading._core.manifest.commit import Staging, check_destination, find_destination
from lading._core.manifest.files import ShardTables, changed_manifests, load_manifest, save_manifest
from lading._core.pipeline.cutting import ONE_SHARD
from lading._core.pipeline.finished import FinishedShard, FinishedShards, ShardSums
from lading._core.result_text import ResultText
from lading._core.storage.base import Store, aborting, has_file, native_path, store_errors, write_file
from lading._core.storage.checksum import Checksum, file_checksum, file_checksums, with_checksum
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores, is_local, resolve
from lading._core.storage.temporary import temporary_folder
from lading.errors import DataError, LadingError, NotFound, StoreError, UsageError
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import ReadOptions, WorkerOptions

__all__ = ["RepairResult", "repair"]

_COPY_BYTES = 8 << 20
_MAX_BYTES = 128 << 20
_LOST = f"{mf.FOLDER}/{mf.LOST_NAME}"
_NEW_LOST = f"{_LOST}.new"
_REPAIRING = f"{mf.FOLDER}/{mf.REPAIRING_NAME}"
_MANIFEST = f"{mf.FOLDER}/{mf.MANIFEST_NAME}"
_JOB = f"{mf.FOLDER}/{JOB_NAME}"


@dataclass(frozen=True, slots=True)
class RepairResult(ResultText):
    """What a repair did, or would do.

    Attributes:
        folder: folder of the dataset.
        shards: number of shards before.
        sound: number of shards that stay as they are.
        copied: shards that were taken from the copy.
        salvaged: shards that were written again, with their intact samples.
        dropped: shards of which no sample was left.
        rewritten: damaged lists and indexes, which were written again.
        lost_samples: number of samples that are known to be lost.
        counted: whether `lost_samples` is exact.
        lost: the first 100 entries of the list of what was lost, with the keys of errors.
        lost_entries: number of all entries.
        findings: the first 100 problems that cost no sample, such as a shard that differs in the copy too.
        dry_run: whether nothing was changed.
        seconds: wall-clock time.
    """

    folder: str
    shards: int
    sound: int
    copied: Sequence[str] = ()
    salvaged: Sequence[str] = ()
    dropped: Sequence[str] = ()
    rewritten: Sequence[str] = ()
    lost_samples: int = 0
    counted: bool = True
    lost: ErrorList = field(default_factory=list)
    lost_entries: int = 0
    findings: ErrorList = field(default_factory=list)
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost_entries

    @property
    def changes(self) -> bool:
        """Whether anything was, or would be, changed."""
        return bool(self.copied or self.salvaged or self.dropped or self.rewritten)


@public("lading.repair")
def repair(  # noqa: PLR0913 - one argument a decision of the user; all but one by keyword
    folder: str | os.PathLike[str],
    *,
    from_copy: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    workers: int | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    stores: Stores | None = None,
    storage_options: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    on_progress: OnProgress | None = None,
    progress: bool = True,
) -> RepairResult:
    """Mend a dataset in its place: sound shards stay, damaged ones are taken from a copy, or salvaged.

    A salvaged shard keeps its intact samples. What is lost is listed in `_lading/lost.jsonl`, behind earlier losses.
    Manifest and indexes follow. A process that is killed leaves the old dataset; the repair can be run again.

    Example: `lading.repair("out", from_copy="/backup/out")`

    Args:
        folder: folder of a dataset that lading wrote.
        from_copy: folder of a copy of it. A shard there is used if it has the same name below the folder, and the
            checksum that the manifest lists.
        dry_run: find out what would be done, and change nothing.
        workers: processes that share the reading, as `lading.digest` takes it.
        executor: the same.
        address: the same.
        stores: which store serves which URL.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix.
        limits: limits on what files may ask for.
        on_progress: called after each shard that was looked at.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.

    Raises:
        SourceNotFound: there is no shard.
        UsageError: the folder has no manifest of lading's, or is the current directory.
        DataError: the list of shards cannot be read, or no sample is left.
        StoreError: a disk or store failed. The dataset is as before.
    """
    began = time.perf_counter()
    stores = Stores.of(stores, storage_options) or Stores()
    store, path = find_destination(folder, stores)
    name = os.fspath(folder).rstrip("/") or "/"
    read = ReadOptions(stores=stores, limits=limits)
    _end_earlier(store, path, name, dry_run=dry_run)
    query = Query(Named.of(name), read)
    found, dataset = open_found(query)
    with dataset, ExitStack() as stack:
        tables = _listed(found, dataset, name)
        if not dry_run:
            check_destination(store, path, overwrite=True)
        files = stack.enter_context(TemporaryFiles(store, path))
        lost = stack.enter_context(Losses(files))
        report = stack.enter_context(shown_progress("repairing", on_progress, progress=progress))
        sharing = WorkerOptions(workers=workers, executor=executor, address=address)
        reading = Reading(begin_sound, query, sharing=sharing, open=open_found_again)
        damaged = _damaged(dataset, found, reading, report)
        wrong = _wrong_files(found, dataset, store, path, stores)
        job = _Repair(found, dataset, tables, store, path, stores)
        copied = {} if from_copy is None else job.find_copies(damaged, os.fspath(from_copy))
        search = Search(dataset, found, files, lost, stores, None)
        saved = {number: search.save(number, {}) for number in damaged if number not in copied}
        changed = {number: one for number, one in saved.items() if not job.is_as_it_was(number, one)}
        kept = {number: one for number, one in changed.items() if one.source is not None and one.samples}
        dropped = sorted({*changed} - {*kept})
        paths = tables.shards["path"].to_pylist()
        if len(dropped) == len(paths):
            raise DataError("no sample could be saved", file=name, expected="a sample that can be read",
                            found=str(lost.first[0]["message"]) if lost.first else None,
                            advice="Take the shards from a copy: --from COPY.")  # fmt: skip
        result = RepairResult(
            name, len(paths), len(paths) - len(copied) - len(changed), [paths[n] for n in copied],
            [paths[n] for n in kept], [paths[n] for n in dropped], wrong, lost.samples, lost.counted, lost.first,
            lost.count, [*search.findings, *(error.to_dict() for error in job.findings)], dry_run,
        )  # fmt: skip
        if result.changes and not dry_run:
            job.commit(copied, kept, dropped, lost)
        return replace(result, seconds=time.perf_counter() - began)


def _end_earlier(store: Store, path: str, name: str, *, dry_run: bool) -> None:
    """End a repair of a store that was killed while it changed lists and deleted files."""
    place = f"{path}/{_REPAIRING}"
    if is_local(store) or not has_file(store, place):
        return
    if dry_run:
        raise UsageError("a repair that was killed must be ended first", file=name, advice="Leave out --dry-run.")
    [data] = store.get_ranges(place, [(0, store.head(place).size_bytes)])
    _switch(store, path, orjson.loads(data))


def _switch(store: Store, path: str, told: Mapping[str, Any]) -> None:
    """Put the new lists in the place of the old ones, the manifest last, and delete files. May be repeated."""
    ledger = f"{path}/{_NEW_LOST}"
    if has_file(store, ledger):
        _copy(store, ledger, store, f"{path}/{_LOST}")
    for name in sorted(told["files"], key=lambda name: name == _MANIFEST):
        write_file(store, f"{path}/{name}", [base64.b64decode(told["files"][name])])
    for name in (*told["old"], _NEW_LOST, _REPAIRING):
        store.delete(f"{path}/{name}")


def _listed(found: FoundShards, dataset: Shards, folder: str) -> ShardTables:
    """Return the manifest's tables of shards.

    Raises:
        UsageError: there is no manifest.
        DataError: the list of shards cannot be read.
    """
    if dataset.kept is None or found.manifest is None:
        if found.manifest is None and not any(mf.FOLDER in (error.file or "") for error in found.findings):
            raise UsageError("only a dataset with a manifest of lading's can be mended in its place", file=folder,
                             advice="Salvage it: 'lading salvage SRC DST'.")  # fmt: skip
        first = found.findings[0] if found.findings else None
        raise DataError(
            "the list of shards cannot be read", file=f"{folder}/{mf.FOLDER}/{mf.SHARDS_NAME}",
            found=None if first is None else first.message,
            advice=f"Put {mf.FOLDER}/{mf.SHARDS_NAME} of a copy there, or salvage: 'lading salvage SRC DST'.",
        )  # fmt: skip
    return dataset.kept


def _damaged(dataset: Shards, found: FoundShards, reading: Reading, on_progress: OnProgress | None) -> list[int]:
    """Return the numbers of shards that are not sound as they are."""
    looked_at = look_at_shards(
        dataset, begin_sound(dataset), reading, range(len(dataset.listing)), on_digests=lambda _: None,
        on_progress=on_progress, listing=replace(dataset.listing, table=found.told),
    )  # fmt: skip
    with closing(looked_at) as results:
        return [number for number, sound in enumerate(results) if not sound]


def _wrong_files(found: FoundShards, dataset: Shards, store: Store, path: str, stores: Stores) -> list[str]:
    """Return the manifests, lists and indexes that are damaged, by paths below the folder."""
    errors = [error for error in found.findings if (error.file or "").startswith(f"{path}/{mf.FOLDER}/")]
    errors += [*changed_manifests(store, path, dataset.limits), *(check_own_files(dataset, stores) or ())]
    errors += Indexes.of(dataset, stores).findings
    named = dict.fromkeys(str(error.file) for error in errors if error.file is not None)
    return [name.removeprefix(f"{path}/") for name in named]


class _Repair:
    """Builds the mended dataset.

    Args:
        found: the shards.
        dataset: the same, open.
        tables: the manifest's tables of them.
        store: of the dataset.
        path: of the dataset, in its store.
        stores: which store serves which URL.

    Attributes:
        findings: shards of the copy that cannot be used.
    """

    def __init__(
        self, found: FoundShards, dataset: Shards, tables: ShardTables, store: Store, path: str, stores: Stores
    ) -> None:
        self._found, self._dataset, self._tables, self._store, self._path = found, dataset, tables, store, path
        self._stores, self._rows = stores, tables.shards.to_pylist()
        self._losses = False
        self.findings: list[LadingError] = []

    def _files(self, number: int) -> dict[str, str | None]:
        """Return the files of a shard, by paths below the folder, with their checksums."""
        row = self._rows[number]
        beside = {
            posixpath.join(posixpath.dirname(row["path"]), f["name"]): f["xxh3"] for f in row["beside_xxh3"] or ()
        }
        return {row["path"]: row["xxh3"], **beside}

    def is_as_it_was(self, number: int, saved: SavedShard) -> bool:
        """Return whether a shard that was searched is sound: something else next to it is wrong."""
        source = saved.source
        own = resolve(self._dataset.path(number), self._stores)[1]
        if source is None or source.path != own or source.rows is not None or not saved.samples:
            return False
        checked = check_shard(self._tables, number, self._stores, 1)
        return checked is None or not checked.errors

    def find_copies(self, damaged: Iterable[int], copy: str) -> dict[int, tuple[Store, str]]:
        """Return the shards whose files in the copy have the checksums of the manifest, each with the copy's folder."""
        store, folder = resolve(copy.rstrip("/"), self._stores)
        found = {}
        for number in damaged:
            error = next((error for error in map(_copy_error, *self._asked(store, folder, number)) if error), None)
            if error is None:
                found[number] = (store, folder)
            else:
                self.findings.append(error)
        return found

    def _asked(self, store: Store, folder: str, number: int) -> tuple[list[Store], list[str], list[str | None]]:
        files = self._files(number)
        return [store] * len(files), [f"{folder}/{name}" for name in files], [*files.values()]

    def commit(
        self,
        copied: Mapping[int, tuple[Store, str]],
        kept: Mapping[int, SavedShard],
        dropped: Sequence[int],
        lost: Losses,
    ) -> None:
        """Write the mended dataset, and let it take the place of the old one."""
        self._losses = bool(lost.count)
        with ExitStack() as stack:
            if is_local(self._store):
                staging = Staging.begin(self._store, self._path, shared=False)
                stack.callback(staging.drop)
                self._link({*copied, *kept, *dropped}, staging.folder)
                self._write(copied, kept, dropped, lost, staging.folder, staging.tasks, self._store)
                staging.commit(overwrite=True)
            else:
                lists, path = MemoryStore(), self._path
                scratch = stack.enter_context(temporary_folder())
                new = self._write(copied, kept, dropped, lost, path, scratch, lists)
                files = {info.path.removeprefix(f"{path}/"): info for info in lists.walk(f"{path}/")}
                bodies = {name: bytes(lists.get_ranges(f.path, [(0, f.size_bytes)])[0]) for name, f in files.items()}
                told = {
                    "files": {name: base64.b64encode(body).decode() for name, body in bodies.items()},
                    "old": sorted(self._list_files() - new),
                }
                write_file(self._store, f"{path}/{_REPAIRING}", [orjson.dumps(told)])
                _switch(self._store, path, told)

    def _list_files(self) -> set[str]:
        """Return the files that the manifest names, by paths below the folder, and others that do not stay."""
        assert self._found.manifest is not None
        shards = self._tables.shards
        tables = {name for kind in ("index_file", "extents_file") for name in shards[kind].to_pylist() if name}
        own = [info.path[len(self._path) + 1 :] for info in self._store.walk(f"{self._path}/{mf.FOLDER}")]
        lists = {name for name in own if posixpath.basename(name) in (mf.MANIFEST_NAME, mf.SHARDS_NAME)}
        of_shards = {name for number in range(len(self._rows)) for name in self._files(number)}
        job = {_JOB} if self._losses else set()  # what its job wrote is not there any more: it can be done again
        return {*tables, *lists, *self._found.manifest.files, *self._found.manifest.sidecars, *of_shards, _LOST, *job}

    def _link(self, changed: set[int], folder: str) -> None:
        """Give the files of sound shards, and files that no manifest names, a second name in a folder."""
        sound = {name for number in range(len(self._rows)) if number not in changed for name in self._files(number)}
        left_out = self._list_files() - sound
        for info in self._store.walk(self._path):
            name = info.path[len(self._path) + 1 :]
            if name not in left_out:
                new = native_path(f"{folder}/{name}")
                with store_errors(info.path):
                    os.makedirs(os.path.dirname(new), exist_ok=True)
                    try:
                        os.link(native_path(info.path), new, follow_symlinks=False)
                    except OSError:  # a file system without hard links
                        shutil.copy2(native_path(info.path), new, follow_symlinks=False)

    def _write(
        self,
        copied: Mapping[int, tuple[Store, str]],
        kept: Mapping[int, SavedShard],
        dropped: Sequence[int],
        lost: Losses,
        folder: str,
        scratch: str,
        lists: Store,
    ) -> set[str]:
        """Write mended shards, indexes and the manifest; return the files that the new manifest names.

        Args:
            copied: shards that are taken from a copy.
            kept: salvaged shards.
            dropped: shards that go.
            lost: the losses.
            folder: where the dataset is built, or on a store where it is.
            scratch: a folder of this machine for salvaged shards.
            lists: takes the lists and the manifest, below `folder`.
        """
        old, store = self._found.manifest, self._store
        assert old is not None
        token = "" if is_local(store) else f"-{self._token()}"
        finished = FinishedShards(store, folder, f"{mf.FOLDER}/repair{token}" if token else mf.FOLDER)
        options = options_alike(self._dataset) if kept else {}
        for number, row in enumerate(self._rows):
            if number in dropped:
                continue
            if number in kept:
                place = f"{scratch}/{number}"
                used = self._salvage(number, kept[number], place, options)
                for shard in self._adopted(place, row["path"], folder, token, used):
                    finished.add(shard)
                LocalStore().delete(place)
                continue
            for name, checksum in self._files(number).items() if number in copied else ():
                source, copy = copied[number]
                _copy(source, f"{copy}/{name}", store, f"{folder}/{name}", checksum)
            sums = [checksum for checksum in self._files(number).values() if checksum is not None]
            beside = [file["name"] for file in row["beside_xxh3"] or ()]
            finished.add(
                FinishedShard(row["path"], ShardFacts.of(row), self._index(number), {}, beside,
                              [ShardSums(sums, self._extents(number))])
            )  # fmt: skip
        shards, facts = finished.close(), finished.facts
        sidecars = self._found.format.index.write(lists, folder, facts, None)
        files = {**finished.own_checksums, **file_checksums(lists, folder, sidecars)}
        ledger = self._write_ledger(lost, folder)
        files |= {} if ledger is None else {_LOST: ledger}
        counts = dict(old.counts)
        if lost.count:
            counts[mf.LOST_COUNT] = counts.get(mf.LOST_COUNT, 0) + lost.samples
        total = [fact for _, fact in facts]
        manifest = replace(
            old, num_samples=sum(f.num_samples for f in total), num_shards=len(total), counts=counts, rank=None,
            size_bytes=sum(f.size_bytes + f.beside_bytes for f in total), files=files,
            payload_bytes=sum(f.payload_bytes for f in total), digests={} if lost.count else old.digests,
            sidecars=tuple(name.removeprefix(f"{folder}/") for name in sidecars),
        )  # fmt: skip
        save_manifest(lists, folder, manifest, shards)
        names = {name for row in shards.to_pylist() for name in _names(row)}
        return {*names, *files, _MANIFEST, f"{mf.FOLDER}/{mf.SHARDS_NAME}", ".huggingface.yaml"}

    def _token(self) -> str:
        """Return a part of new names: a repair that is run again, because it was killed, writes the same names."""
        total = Checksum()
        for row in self._rows:
            total.update(f"{row['path']} {row['size_bytes']} {row['xxh3']}\n".encode())
        return total.hexdigest()[:8]

    def _index(self, number: int) -> pa.Table | None:
        """Return the index of a sound shard, made again if its file is damaged."""
        try:
            return self._tables.index(number)
        except (DataError, StoreError):
            dataset = self._dataset
            source = dataset.source(number)
            with closing(dataset.fmt.open(source, source.options_over(dataset.read_options))) as reader:
                return reader.index()

    def _extents(self, number: int) -> pa.Table | None:
        """Return the extents of a sound shard; None if their file is damaged. Checksums of the files remain."""
        try:
            return self._tables.extents(number)
        except (DataError, StoreError):
            return None

    def _salvage(self, number: int, saved: SavedShard, place: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the intact samples of a shard as a dataset of one shard; return the options of writing."""
        dataset, fmt = self._dataset, self._found.format
        one = dataset.with_listing(dataset.listing.table.slice(number, 1), {})
        assert saved.source is not None
        one.replacements = {0: saved.source}
        members = None
        if dataset.row_layout.types_by_format:
            options, members = as_members(one, fmt, options)
        plan, options = plan_schemas(one, fmt), bounded_options(fmt, options, _MAX_BYTES)
        with DatasetWriter(
            f"{place}/", format=fmt.name, view=dataset.view, schema=plan.schema, cut=ONE_SHARD,
            options=options, roles=plan.roles, members=members, on_error=None,
            checksums=self._checksums(), stores=self._stores,
        ) as writer:  # fmt: skip
            write_saved(one, plan.schema, writer, _MAX_BYTES, None)
        return options

    def _checksums(self) -> str:
        """Return which checksums the dataset has."""
        if not self._tables.has_checksums:
            return "none"
        extents = self._tables.shards["extents_file"]
        return "files" if extents.null_count == len(extents) else "samples"

    def _adopted(
        self, place: str, path: str, folder: str, token: str, options: Mapping[str, Any]
    ) -> Iterator[FinishedShard]:
        """Move the shards of a salvaged dataset into the dataset; the first one takes the name of the old shard."""
        fmt, local = self._found.format, LocalStore()
        found = load_manifest(local, place)
        assert found is not None, "it was written just now"
        tables = ShardTables(local, place, found[1])
        written = fmt.write_options(options)
        endings = fmt.endings(written)
        stem = path.removesuffix(endings[0]) if path.endswith(endings[0]) else posixpath.splitext(path)[0]
        for number, row in enumerate(found[1].to_pylist()):
            name = f"{stem}{token}{f'-{number}' if number else ''}{endings[0]}"
            facts = ShardFacts.of(row)
            facts = replace(facts, entry=fmt.index.renamed(facts.entry, posixpath.basename(name))[0])
            ours, theirs = (file_names(one, endings) for one in (name, row["path"]))
            for old, new in zip(theirs, ours, strict=True):
                _move(f"{place}/{old}", self._store, f"{folder}/{new}")
            sums = [row["xxh3"], *(other["xxh3"] for other in row["beside_xxh3"] or ())]
            beside = [posixpath.basename(one) for one in ours[1:]]
            yield FinishedShard(
                name, facts, tables.index(number), {}, beside,
                [ShardSums([] if row["xxh3"] is None else sums, tables.extents(number))],
            )  # fmt: skip

    def _write_ledger(self, lost: Losses, folder: str) -> str | None:
        """Write the earlier and the new losses; return the checksum of the list, None if there are none.

        On a store, the list gets its name later.
        """
        store, old, total = self._store, f"{self._path}/{_LOST}", Checksum()
        new = _LOST if is_local(store) else _NEW_LOST
        earlier = b""
        if has_file(store, old):
            size = store.head(old).size_bytes
            earlier = bytes(store.get_ranges(old, [(0, size)])[0]) if size else b""
        if not earlier and not lost.count:
            return None
        with aborting(store.put_stream(f"{folder}/{new}")) as sink:
            for piece in (earlier, *lost.pieces()):
                sink.write([piece])
                total.update(piece)
            sink.close()
        return total.hexdigest()


def _names(row: Mapping[str, Any]) -> list[str]:
    """Return all files that a row of the list of shards names."""
    beside = [posixpath.join(posixpath.dirname(row["path"]), file["name"]) for file in row["beside_xxh3"] or ()]
    return [row["path"], *beside, *(row[kind] for kind in ("index_file", "extents_file") if row[kind])]


def _copy_error(store: Store, path: str, expected: str | None) -> LadingError | None:
    """Return why a file of a copy cannot be used; None if it has the checksum of the manifest."""
    if expected is None:
        return DataError("the manifest has no checksum of the shard: the file of the copy is not used", file=path)
    try:
        found = file_checksum(store, store.head(path))
    except NotFound as error:
        return error
    if found == expected:
        return None
    return DataError("the file of the copy differs from the checksum in the manifest", file=path,
                     expected=f"xxh3 {expected}", found=f"xxh3 {found}")  # fmt: skip


def _copy(source: Store, path: str, store: Store, target: str, expected: str | None = None) -> None:
    """Copy a file. Raises DataError, and leaves nothing, if it has another checksum than is expected."""
    size = source.head(path).size_bytes
    with aborting(with_checksum(store.put_stream(target))) as sink:
        for at in range(0, size, _COPY_BYTES):
            sink.write(source.get_ranges(path, [(at, min(_COPY_BYTES, size - at))]))
        if expected is not None and sink.checksum() != expected:
            raise DataError("the file of the copy changed while it was read", file=path)
        sink.close()


def _move(path: str, store: Store, target: str) -> None:
    """Move a file of this machine to its place."""
    local = LocalStore()
    if is_local(store):
        local.publish(path, target)
    else:
        _copy(local, path, store, target)
