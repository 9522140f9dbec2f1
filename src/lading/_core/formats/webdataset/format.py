"""WebDataset: tars in which neighbouring members with one key are a sample.

    shard        members (`headers.py`), plain or compressed as a whole (gzip, zstd, bz2, xz, told by content)
    member name  key "." field, split at the first dot after the last slash
    sample       a row: `__key__`, and a column a field; a value is a reference to the member's payload

A tar holds no types. Values that are neither text nor bytes are written as text, JSON or `.npy`
(`_core.formats.webdataset.values`). The dataset's manifest stores their types; a reader of the tar alone sees bytes.

Plain tars give reference columns: only headers are read. A compressed tar can only be read forward, so its batches hold
the values themselves (`large_binary`), while its index refers to the unpacked stream. A batch with a sparse member has
that column as `large_binary`.

A name that is invalid UTF-8 is an error, if it belongs to a sample: Arrow holds UTF-8 only, and every way of escaping
could give the name of another member.

A tar without the blocks of zeros at its end is legal and common. A tar that was cut exactly between two members looks
the same: it gives the remaining samples, and `counts` reports it. An index next to it (`.tar.idx`, wids) distinguishes
the two.

Source: webdataset 1.0.2, tariterators.py and writer.py; `_core.formats.webdataset.headers` for the tar itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.views import is_bytes, is_text
from lading._core.codecs import ENDINGS, sniff_wrap, stream_decoder
from lading._core.content.media_lists import members_schema
from lading._core.features.types import feature_of
from lading._core.formats.base import Recovered, ShardFacts, ShardFile, ShardReader, map_file
from lading._core.formats.dataset_index import DatasetIndex, ListedShard, SplitList
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import Format, FormatInfo, Presets, Written
from lading._core.formats.mapped import selected_rows
from lading._core.formats.webdataset.check import check_shard
from lading._core.formats.webdataset.endings import lacking_endings
from lading._core.formats.webdataset.energon import (
    INFO_NAME,
    SPLIT_NAMES,
    excluded_keys,
    list_energon,
    list_energon_splits,
    write_energon,
)
from lading._core.formats.webdataset.header_walk import Pass
from lading._core.formats.webdataset.headers import BLOCK, is_header
from lading._core.formats.webdataset.index import list_wids, write_wids
from lading._core.formats.webdataset.reader import ReadOptions
from lading._core.formats.webdataset.recover import TarMembers, find_members, recover_samples
from lading._core.formats.webdataset.samples import KEY
from lading._core.formats.webdataset.stored_types import WebdatasetReader, open_reader
from lading._core.formats.webdataset.values import (
    encoder_of,
    restored_schema,
)
from lading._core.formats.webdataset.walk import open_tar
from lading._core.formats.webdataset.writer import WebdatasetWriter, WriteOptions, check_schema
from lading._core.storage.base import FileInfo, Sink, Store
from lading.errors import CorruptShard, LimitExceeded
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["FORMAT", "ReadOptions", "WebdatasetFormat", "WebdatasetReader", "WebdatasetWriter", "WriteOptions"]

_NAMES = 8
"""Columns that a note names."""
_ENDINGS = {wrap: f".tar{ending}" for wrap, ending in ENDINGS.items()}


class WebdatasetIndex(DatasetIndex):
    """The JSON of wids, and the lists of megatron-energon."""

    other_names = (INFO_NAME,)
    split_lists = SPLIT_NAMES

    def shards(self, store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
        """Return the shards of a wids index, or of megatron-energon's list of a folder.

        Raises:
            DataError: a broken index, or one that lists a shard twice.
            BadReference: a url outside the folder of the index.
        """
        if path.endswith(f"/{INFO_NAME}"):
            return list_energon(store, path, limits)
        return list_wids(store, path, head, limits)

    def splits(self, store: Store, path: str, files: Sequence[FileInfo], limits: Limits = DEFAULT_LIMITS) -> SplitList:
        """Return the splits in megatron-energon's list."""
        return list_energon_splits(store, path, files, limits)

    def write(
        self, store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]], options: WriteOptions | None
    ) -> list[str]:
        """Write `index.json` (wids); and megatron-energon's files by the tars' headers, if the options ask for them."""
        written = write_wids(store, folder, shards)
        if options is None or options.energon is None:
            return written
        counts = {path.removeprefix(f"{folder}/"): facts.num_samples for path, facts in shards if facts.num_samples}
        starts = {name: _starts(ShardFile(store, f"{folder}/{name}")) for name in counts}
        return written + write_energon(store, folder, counts, starts, options.energon)

    def count(self, file: ShardFile, options: ReadOptions) -> int:
        """Return the number of samples by WebDataset's rule."""
        return open_reader(file, replace(options, sidecar="ignore")).count_samples()


def _starts(file: ShardFile) -> list[int]:
    """Return where each sample of a tar begins, and where the last one ends."""
    walk = Pass(open_tar(file, mmap=False), lower_case=True, on_duplicate="keep_first")
    starts = [start for rows in walk.rows() for start in rows.start[rows.new].tolist()]
    return [*starts, walk.end]


class WebdatasetFormat(Format[ReadOptions, WriteOptions]):
    """WebDataset tars, with wids JSON as the index of a dataset and `.tar.idx` as that of a shard."""

    info = FormatInfo(
        name="webdataset",
        extensions=(".tar", *_ENDINGS.values(), ".tgz"),
        read_options=ReadOptions,
        write_options=WriteOptions,
        presets=Presets(
            read_to_copy={"lower_case": False},
            write_copies={"fields": "given"},
            write_changed={"endings": "webdataset"},
            write_alone={"endings": "webdataset"},
            ignore_sidecar={"sidecar": "ignore"},
        ),
        # Of webdataset, energon, wids, img2dataset:
        leftovers=r".*\.idx|\.nv-meta/.*|index\.json|\d+(?:\.parquet|_stats\.json)",
        interleaved="members",
        fixed_schema=False,
        may_end_early=True,
    )
    index = WebdatasetIndex()

    def matches(self, path: str, head: bytes) -> bool:
        """Whether the first header or the name is that of a tar. By its name, a damaged file is reported as damaged."""
        if is_header(head[:BLOCK]) or path.lower().endswith(self.info.extensions):
            return True
        return bool(sniff_wrap(head)) and _begins_with_header(head)

    def open(self, file: ShardFile, options: ReadOptions) -> ShardReader:
        """Open a tar; read its first bytes, or its headers if samples of it are excluded.

        Raises:
            NotFound, StoreError: no such file, or no regular file.
        """
        reader, excluded = open_reader(file, options), excluded_keys(file.entry)
        if not excluded:
            return reader
        keys = pc.cast(reader.index().column(KEY), pa.string())
        kept = pc.invert(pc.is_in(keys, pa.array(excluded, pa.string())))
        return selected_rows(reader, np.flatnonzero(kept.to_numpy()))

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> WebdatasetWriter:
        """Begin a tar.

        Raises:
            UsageError: a schema without `__key__`.
            Unrepresentable: a column whose values are not held exactly, or whose name a reader would see differently.
        """
        [sink] = sinks
        check_schema(schema, as_given=options.fields == "given")
        return WebdatasetWriter(sink, options)

    def recover(
        self, file: ShardFile, options: ReadOptions, *, schema: pa.Schema | None = None, failed: bool = True
    ) -> Recovered | None:
        """Return the whole samples as a tar; see `_core.formats.webdataset.recover`. Raises LimitExceeded."""
        return recover_samples(
            map_file(file), file.path, lower_case=options.lower_case, unique=options.on_duplicate == "error",
            failed=failed, joined=options.on_concatenated == "read",
        )  # fmt: skip

    def checks(self, file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
        """Yield problems of the `.tar.idx` and of the end of the archive, and layout findings; see `check_shard`."""
        return check_shard(file, options, level)

    def written(self, schema: pa.Schema, options: WriteOptions) -> Written:
        """Return that keys are escaped, which nothing in a tar says, and that members keep no types."""
        read_options = {"escape": "percent"} if options.escape == "percent" else {}
        lost = [field.name for field in schema if not _keeps_type(field)]
        lacking = {} if options.fields == "given" else lacking_endings(schema)
        named = lacking if options.endings == "webdataset" else {}
        told = f"without endings=webdataset (--to-option), webdataset gives bytes for {_listed([*lacking])}"
        note = told if lacking and not named else ""
        return Written(
            read_options, needs_schema=options.fields == "sorted", lost_types=lost, extensions=named, note=note
        )

    def schema_as_read(self, schema: pa.Schema, options: ReadOptions, *, restored: bool) -> pa.Schema:
        """Return the columns without dictionaries, bytes as large_binary; or in lower case: copied tars keep names."""
        if restored:
            for field in members_schema(schema):
                encoder_of(field)
            return restored_schema(schema)
        if not options.lower_case:
            return schema
        named = {field.name.lower(): field for field in reversed(schema)}
        names = dict.fromkeys(field.name.lower() for field in schema)
        return pa.schema([named[name].with_name(name) for name in names], metadata=schema.metadata)

    def endings(self, options: WriteOptions) -> tuple[str]:
        """Return `.tar`, and the ending of the compression."""
        return (_ENDINGS.get(options.compression or "", ".tar"),)

    def find_members(self, file: ShardFile, *, failed: bool) -> TarMembers:
        """Find the members of a damaged tar, by their headers."""
        return find_members(map_file(file), file.path, failed=failed)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _keeps_type(field: pa.Field) -> bool:
    """Whether it is a column of text, bytes or JSON."""
    return bool(is_text(field.type) or is_bytes(field.type) or feature_of(field).is_json)


def _begins_with_header(head: bytes) -> bool:
    """Whether what the first bytes of a compressed file unpack to begins with a header."""
    found = b""
    try:
        for piece in stream_decoder(sniff_wrap(head)).feed(head):
            found += piece
            if len(found) >= BLOCK:
                break
    except (CorruptShard, LimitExceeded):
        return False
    return is_header(found[:BLOCK])


FORMAT = WebdatasetFormat()
"""The format that the registry loads."""
