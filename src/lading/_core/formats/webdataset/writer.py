"""Write a WebDataset tar. See `_core.formats.webdataset.format`.

Members of a sample are adjacent, sorted by field. Owner, mode and time are fixed, so equal rows give equal bytes. A key
that a reader would see differently (with a dot in its base name, or equal to its neighbour's) is refused, or escaped if
the options say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ByteRanges, in_memory
from lading._core.arrow.references import FileEntry, make_refs, ref_field, with_files
from lading._core.arrow.views import byte_lengths, is_bytes, is_text, places, present
from lading._core.codecs import WRAPS, stream_encoder
from lading._core.content.media_lists import members_schema, naming_lists, refuse_taken_names, with_items
from lading._core.features.natural import list_of_member
from lading._core.features.stored_values import npy_head
from lading._core.formats.base import MemberWriter, Ranges, ShardFacts, single_ranges
from lading._core.formats.webdataset.header_writer import END, make_heads
from lading._core.formats.webdataset.headers import BLOCK
from lading._core.formats.webdataset.keys import escaped
from lading._core.formats.webdataset.samples import KEY, is_sprawl, split_name
from lading._core.formats.webdataset.values import Encoder, encoder_of
from lading._core.storage.base import Sink, extents_of, writes_behind
from lading._core.storage.extents import NO_ROWS
from lading.errors import Unrepresentable, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS

__all__ = ["WebdatasetWriter", "WriteOptions", "check_schema"]

_MOST_MEMBERS = 1 << 14
"""Members whose blocks are joined at once: each takes several KB of memory, however small it is."""
_SMALL_BYTES = 4096
"""Members whose average payload is smaller are joined before they are written: a call costs more than a copy."""

_MAX_MTIME = 8**11 - 1
_ODD_KEY = r"[.\x00\n]|^__|/$|^$"
_ADVICE = "Give the sample another key."
_NO_KEY_ADVICE = "Give the sample a key, or number all samples: --drop-columns __key__."
_ESCAPE_ADVICE = "Write dots, line ends and zero bytes of keys as %2E, %0A and %00: --to-option escape=percent."
_TAKEN = ("__url__", "__local_path__")
"""Fields that webdataset adds to a sample itself."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a tar is written.

    Attributes:
        compression: Compression of the whole file: `gzip` (in members of some 128 KB), `zstd`, `bz2`, `xz`. By default
            none. Only plain tars can be mapped.
        compression_level: Level of the compression. By default that of the codec.
        mtime: Time of all members, in seconds since 1970.
        escape: A key that a reader would see differently is an `error`; or `percent` writes `%25` for `%`, `%2E` for a
            dot, `%00` for NUL and `%0A` for a line end in all keys. The manifest says so, and lading restores the keys;
            other readers see the written names. Copies of tars keep the setting. Documents have their own rule.
        fields: `sorted` writes the members of a sample by name. `given` writes members in column order, with names in
            any case; text and bytes only. A copy of tars uses `given`, and its manifest keeps only the types of the
            source.
        endings: `names`: members are named after columns. `webdataset`: they also get the ending by which webdataset
            decodes them, if they have none: `caption.txt`, `label.cls`, `meta.json`, `emb.npy`. The manifest keeps the
            names of columns, so lading reads the same columns.
        energon: Name of a split, such as `train`: write what megatron-energon needs next to the tars too, with all of
            them as this split. That is `.tar.idx`, and `.info.json`, `split.yaml` and `dataset.yaml` in `.nv-meta`.
            Plain tars only.
    """

    compression: str | None = None
    compression_level: int | None = None
    mtime: int = 0
    escape: Literal["error", "percent"] = "error"
    fields: Literal["sorted", "given"] = "sorted"
    endings: Literal["names", "webdataset"] = "names"
    energon: str | None = None

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if self.compression not in (None, *WRAPS):
            raise UsageError(
                "no such compression", expected=", ".join(WRAPS), found=f"compression={self.compression!r}"
            )
        if not isinstance(self.mtime, int) or not 0 <= self.mtime <= _MAX_MTIME:
            raise UsageError("not a time", expected=f"0 to {_MAX_MTIME} seconds", found=f"mtime={self.mtime!r}")
        if self.escape not in ("error", "percent"):
            raise UsageError("no such policy", expected="error or percent", found=f"escape={self.escape!r}")
        if self.fields not in ("sorted", "given"):
            raise UsageError("no such order", expected="sorted or given", found=f"fields={self.fields!r}")
        if self.endings not in ("names", "webdataset"):
            raise UsageError("no such endings", expected="names or webdataset", found=f"endings={self.endings!r}")
        if self.endings == "webdataset" and self.fields == "given":
            raise UsageError("members that keep their names get no endings",
                             found="endings='webdataset' with fields='given'",
                             advice="Copies and salvages have fields='given'. Convert what was saved.")  # fmt: skip
        if self.energon is not None and (self.compression or not self.energon):
            raise UsageError("megatron-energon reads plain tars, in splits with names",
                             found=f"energon={self.energon!r}, compression={self.compression!r}")  # fmt: skip


class WebdatasetWriter(MemberWriter):
    """Write a tar. Memory: one batch's headers, and its payload if values are small."""

    def __init__(self, sink: Sink, options: WriteOptions) -> None:
        self._sink, self._options, self._extents = sink, options, extents_of(sink)
        packed = options.compression
        self.takes_ranges = packed is None and writes_behind(sink)
        self._encoder = stream_encoder(packed, options.compression_level) if packed else None
        self._file = FileEntry(sink.path, packed or "")
        self._at = self._samples = self._payload = 0
        self._last_key: str | None = None
        self._fields, self._members_made = set[str](), 0

    def write(self, batch: pa.RecordBatch) -> pa.Table:
        """Append samples: each value is a member `{key}.{column}`; a null has no member.

        Text is written as UTF-8, lists of media as in `_core.content.media_lists`, other values as in
        `_core.formats.webdataset.values`.

        Returns:
            `__key__` as written, and references by column, sorted by name.

        Raises:
            Unrepresentable: a key, column or value that would not be read back; nothing of the batch is written.
        """
        return self.write_ranges(batch, {})

    def write_ranges(self, batch: pa.RecordBatch, ranges: Ranges) -> pa.Table:
        """As `write`, with values of some columns copied from files."""
        with naming_lists(batch.schema):
            return self._write(self._with_items(batch), ranges)

    def _write(self, batch: pa.RecordBatch, ranges: Ranges) -> pa.Table:
        given = self._options.fields == "given"
        own = [f.with_type(pa.large_binary()) if f.name in ranges else f for f in batch.schema]
        encoders = check_schema(pa.schema(own), as_given=given)
        names = [name for name in batch.schema.names if name != KEY]
        names = names if given else sorted(names)
        there = np.zeros((len(batch), len(names)), np.bool_)
        length = np.zeros((len(batch), len(names)), np.int64)
        columns = [self._members(encoders[name], batch, name, ranges) for name in names]
        for i, column in enumerate(columns):
            there[:, i], length[:, i] = _sizes(column)
        keys = self._checked_keys(batch.column(KEY), names, there)
        self._refuse_empty(there, keys)
        row, field = np.nonzero(there)
        members = pc.binary_join_element_wise(
            keys.take(pa.array(row)), pa.array(names, pa.string()).take(pa.array(field)), "."
        )
        offset = np.zeros_like(length)
        size = length[row, field]
        if not ranges and _are_small(size):
            values = _joined_values(columns, row, field)
        else:
            where = [column if isinstance(column, ByteRanges) else places(column) for column in columns]
            values = ByteRanges.joined(where)[field * len(batch) + row]
        offset[row, field] = self._append(members, size, values, np.cumsum(there.sum(axis=1)) - 1)
        self._last_key = keys[-1].as_py() if len(keys) else self._last_key
        refs = [make_refs(offset[:, i], length[:, i], valid=there[:, i]) for i in range(len(names))]
        fields = [ref_field(batch.schema.field(name)) for name in names]
        schema = pa.schema([pa.field(KEY, pa.string()), *fields])
        return pa.table([keys, *refs], schema=with_files(schema, [self._file]))

    def add(
        self, members: pa.StringArray, values: ByteRanges, last: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Append members by their full names, in the given order; return offsets and lengths of their payloads.

        For layouts with a grouping of their own: names are not checked as keys and fields, and `last` marks the last
        member of each sample.

        Raises:
            Unrepresentable: a name is empty, holds a NUL, or is longer than 4,096 bytes.
        """
        bad = pc.or_(pc.match_substring(members, "\0"), pc.equal(members, ""))
        if pc.any(bad).as_py():
            name = members.filter(bad)[0].as_py()
            raise Unrepresentable("not a member's name", file=self._sink.path, found=repr(name))
        return self._append(members, values.length, values, last), values.length

    def bytes_written(self) -> int:
        """Return the size of the tar if it ended now; with compression, a part is an estimate."""
        return self._at + len(END) if self._encoder is None else self._encoder.packed_bytes()

    def raw_bytes(self) -> int:
        """Return the size of the tar before compression, if it ended now."""
        return self._at + len(END)

    def held_bytes(self) -> int:
        """Return 0: the sink has every batch."""
        return 0

    def close(self) -> ShardFacts:
        """Write the end of the archive."""
        self._mark(np.array([self._at + len(END)]), np.array([NO_ROWS]))
        self._put(ByteRanges.of([END]))
        if self._encoder is not None:
            self._sink.write([self._encoder.finish()])
        size = self._at if self._encoder is None else self._sink.tell()
        return ShardFacts(self._samples, size, self._payload)

    def _with_items(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with a column a member. Raises LimitExceeded for an index that would be nearly empty."""
        made = with_items(batch)
        if made is not batch:
            refuse_taken_names(batch.schema)
            self._fields.update(made.schema.names)
            self._members_made += sum(len(column) - column.null_count for column in made.columns)
            samples, fields = self._samples + len(made), len(self._fields)
            if is_sprawl(samples, fields, self._members_made, DEFAULT_LIMITS):
                raise DEFAULT_LIMITS.exceeded(
                    "tar_cells", "the lists of this shard are too long, or differ too much, for one index",
                    file=self._sink.path, column=self._longest_list(),
                    found=f"{samples} samples, {fields} fields, {self._members_made} values",
                    advice=f"Write fewer samples a shard: --rows-per-shard {max(1, samples // 10)}.",
                )  # fmt: skip
        return made

    def _longest_list(self) -> str:
        """Return the list with most members of a sample."""
        [(name, _)] = Counter(filter(None, map(list_of_member, self._fields))).most_common(1)
        return name

    def _members(self, encode: Encoder, batch: pa.RecordBatch, name: str, ranges: Ranges) -> pa.Array | ByteRanges:
        """Return the members of a column: the places of their bytes, in memory or in files."""
        values = single_ranges(ranges).get(name)
        if values is not None and npy_head(batch.schema.field(name)) is None:
            return values
        with errors_at(first_row=self._samples, file=self._sink.path, column=name):
            return encode(batch.column(name) if values is None else in_memory(values))

    def _checked_keys(self, column: pa.Array, names: Sequence[str], there: NDArray[np.bool_]) -> pa.StringArray:
        """Return the written keys: escaped if requested, and checked to be read back."""
        keys = column.cast(pa.string())
        if keys.null_count:
            row = int(np.argmin(present(keys)))
            raise self._misfit("a sample needs a key", row, None, found="null", advice=_NO_KEY_ADVICE)
        if self._options.escape == "percent":
            keys = escaped(keys)
        for row in np.flatnonzero(pc.match_substring_regex(keys, _ODD_KEY).to_numpy(zero_copy_only=False)).tolist():
            key = keys[row].as_py()
            for name in (names[i] for i in np.flatnonzero(there[row]).tolist()):
                if "\0" in key or split_name(f"{key}.{name}".encode()) != (key.encode(), name.encode()):
                    advice = _ESCAPE_ADVICE if {*key} & {*".\0\n"} else _ADVICE
                    raise self._misfit("a reader would not see this key", row, key, column=name, advice=advice)
        same = np.flatnonzero(pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)) + 1
        if len(keys) and keys[0].as_py() == self._last_key:
            same = np.append(0, same)
        if len(same):
            row = int(same[0])
            advice = "A reader would take the two as one sample: give them different keys."
            raise self._misfit("two neighbours have one key", row, keys[row].as_py(), advice=advice)
        return keys

    def _refuse_empty(self, there: NDArray[np.bool_], keys: pa.StringArray) -> None:
        empty = np.flatnonzero(~there.any(axis=1))
        if len(empty):
            row = int(empty[0])
            advice = "A tar has samples only where they have members: drop the row, or give it a field."
            raise self._misfit("a sample has no value", row, keys[row].as_py(), advice=advice)

    def _misfit(self, message: str, row: int, key: str | None, **more: str) -> Unrepresentable:
        places = {"file": self._sink.path, "row": self._samples + row, "sample": key}
        return Unrepresentable(message, **places, **more)  # type: ignore[arg-type] # texts but for the row

    def _append(
        self,
        members: pa.StringArray,
        size: NDArray[np.int64],
        values: ByteRanges | pa.LargeBinaryArray,
        last: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Write members, up to the last one of each sample; return the offsets of their payloads."""
        most = DEFAULT_LIMITS.tar_name_bytes  # the sizes that readers accept
        too_long = np.flatnonzero(np.asarray(pc.binary_length(members)) > most)
        if len(too_long):
            name = members[int(too_long[0])].as_py()
            limit = f"at most {most} bytes"
            raise Unrepresentable("a name is too long", file=self._sink.path, expected=limit, found=f"{name[:80]!r}…")
        parts = [slice(first, first + _MOST_MEMBERS) for first in range(0, max(len(size), 1), _MOST_MEMBERS)]
        heads = [make_heads(members[some], size[some], self._options.mtime) for some in parts]
        pad = -size % BLOCK
        blocks = np.concatenate([np.diff(bounds) for _, bounds in heads])
        stop = self._at + np.cumsum(blocks * BLOCK + size + pad)
        self._mark(stop[last], self._samples + np.arange(len(last)))
        self._samples += len(last)
        for some, (headers, bounds) in zip(parts, heads, strict=True):
            offsets, data = pa.py_buffer(bounds * BLOCK), pa.py_buffer(headers)
            head = pa.Array.from_buffers(pa.large_binary(), len(size[some]), [None, offsets, data])
            self._put_members(head, values[some], pad[some])
        self._payload += int(size.sum())
        return stop - size - pad

    def _put_members(
        self, heads: pa.LargeBinaryArray, values: ByteRanges | pa.LargeBinaryArray, pad: NDArray[np.int64]
    ) -> None:
        if isinstance(values, pa.LargeBinaryArray):
            self._put(ByteRanges.of([_body(_join(heads, values, _zeros(pad)))]))
            return
        between = places(_join(_zeros(np.append(0, pad)[:-1]), heads))
        end = ByteRanges.of([bytes(int(pad[-1]) if len(pad) else 0)])
        order = np.arange(2 * len(pad)).reshape(2, -1).T.reshape(-1)
        self._put(ByteRanges.joined([ByteRanges.joined([between, values])[order], end]))

    def _mark(self, ends: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Mark the ends of rows, if they have a place in the file."""
        if self._encoder is None:
            self._extents.mark(ends, rows)

    def _put(self, pieces: ByteRanges) -> None:
        self._at += int(pieces.length.sum())
        if _are_small(pieces.length) and not pieces.in_file.any():
            pieces = ByteRanges.of([b"".join(view for view in pieces.views() if view is not None)])
        if self._encoder is None and writes_behind(self._sink):
            self._sink.write_pieces(pieces)
            return
        buffers = [view for view in pieces.views() if view is not None]
        self._sink.write(buffers if self._encoder is None else [self._encoder.feed(buffer) for buffer in buffers])


def check_schema(schema: pa.Schema, *, as_given: bool = False) -> dict[str, Encoder]:
    """Return how the columns of a schema become members, by name.

    Args:
        schema: schema of the rows.
        as_given: whether they are members of another tar: text and bytes, with names in any case.

    Raises:
        Unrepresentable: rows of this schema cannot be WebDataset samples; names the column.
        UsageError: `__key__` is missing.
    """
    if schema.names.count(KEY) != 1:
        found = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise UsageError("samples need a column of keys", expected=f"{KEY}: string", found=found[:500])
    if not _is_key(schema.field(KEY).type):
        raise Unrepresentable("sample keys must be text", column=KEY, found=schema.field(KEY).type)
    refuse_taken_names(schema)
    with naming_lists(schema):
        return _encoders(members_schema(schema), as_given=as_given)


def _encoders(members: pa.Schema, *, as_given: bool) -> dict[str, Encoder]:
    """Return the encoders of members. Raises Unrepresentable for one that no reader would see so."""
    encoders: dict[str, Encoder] = {}
    seen: dict[str, str] = {}
    for field in members:
        name = field.name
        encoders[name] = encoder_of(field)
        if as_given and not (is_text(field.type) or is_bytes(field.type)):
            raise Unrepresentable("a member holds bytes or text", column=name, found=field.type,
                                  advice="Write other types with --to-option fields=sorted.")  # fmt: skip
        seen_as = name if as_given else name.lower()
        if seen_as in seen:
            raise Unrepresentable("readers see one column: they read names in lower case", column=name,
                                  found=f"{seen[seen_as]!r} and {name!r}")  # fmt: skip
        if "/" in name or "\0" in name or (seen_as in _TAKEN and not as_given):
            raise Unrepresentable("a reader would not see this column", column=name,
                                  expected="a name without slashes, and none of " + ", ".join(_TAKEN))  # fmt: skip
        seen[seen_as] = name
    return encoders


def _is_key(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _are_small(size: NDArray[np.int64]) -> bool:
    return int(size.sum()) < _SMALL_BYTES * len(size)


def _sizes(column: pa.Array | ByteRanges) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which values are present, and the bytes of each."""
    return (column.there, column.length) if isinstance(column, ByteRanges) else (present(column), byte_lengths(column))


def _joined_values(
    columns: Sequence[pa.Array], row: NDArray[np.int64], field: NDArray[np.int64]
) -> pa.LargeBinaryArray:
    """Return values in the order of their members, in memory of their own."""
    whole = pa.concat_arrays([column.cast(pa.large_binary()) for column in columns])
    return whole.take(pa.array(field * len(columns[0]) + row))


def _zeros(lengths: NDArray[np.int64]) -> pa.LargeBinaryArray:
    ends = np.append(0, np.cumsum(lengths))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(bytes(int(ends[-1])))]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def _join(*columns: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return values of several columns joined row by row, in one buffer.

    Arrow takes 0.07 µs for a header, a value and its padding; a Python object for each takes 0.6 µs.
    """
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def _body(column: pa.LargeBinaryArray) -> pa.Buffer:
    _, ends, body = column.buffers()
    return body.slice(0, int(np.frombuffer(ends, np.int64)[len(column)]))
