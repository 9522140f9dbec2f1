"""Group members of a tar into samples by WebDataset's rule: keys and fields of many names at once, and batches.

    name = key "." field, split at the first dot after the last slash: ^((?:.*/|)[^.]+)[.]([^/]*)$
    skipped: members that are not regular files, do not match, are top-level __…__ or below a folder __…__/

Neighbouring members with one key are a sample. A field name is in lower case.

Source: webdataset 1.0.2, tariterators.py (`base_plus_ext`, `tar_file_iterator`, `group_by_keys`).
"""

from __future__ import annotations

import graphlib
import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.text_checks import is_utf8
from lading._core.features.items import KEY
from lading._core.features.types import tag_by_extension
from lading._core.formats.webdataset.headers import HARD_LINK, REGULAR, Headers, Sparse
from lading.errors import CorruptShard, DuplicateField, LimitExceeded
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "KEY",
    "MAX_CELLS",
    "ColumnMaker",
    "MemberRows",
    "Splitter",
    "bounds_of",
    "cut",
    "is_sprawl",
    "join_rows",
    "regroup",
    "same_sample",
    "split_name",
    "split_names",
    "texts",
    "to_batch",
]

ColumnMaker: TypeAlias = Callable[
    [NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], Mapping[int, Sparse]], pa.Array
]
"""Makes a column of values from the places of their payloads: offset, length, valid, and the sparse ones by row."""

MAX_CELLS = 1 << 22
"""Maximum cells of a table, filled or not, that is built at once."""

_CELLS_OF_A_MEMBER = 64
_MAX_ORDERED = 1000
_MAX_TEXT = (1 << 31) - 1
"""Maximum bytes of texts in an array with 32-bit offsets."""
_NAME = re.compile(rb"((?:.*/|)[^.]+)[.]([^/]*)$")
_META = re.compile(rb"__[^/]*__($|/)")
_DOT, _SLASH, _UNDERSCORE, _NEWLINE = b"./_\n"
_NO_KEY, _IS_META = -1, -2
_HIGH_BIT = 0x80


@dataclass(frozen=True, slots=True)
class MemberRows:
    """Members that belong to samples, in file order; all except `keys` have one value a member.

    Attributes:
        new: whether the member begins a sample.
        field: number of its field.
        start: start of the member in the tar, extension records included.
        offset: start of its payload.
        length: bytes of payload.
        sparse: by row, members that are sparse files.
        keys: one for each sample that begins here.
    """

    new: NDArray[np.bool_]
    field: NDArray[np.int32]
    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    sparse: Mapping[int, Sparse]
    keys: pa.StringArray

    def __len__(self) -> int:
        return len(self.new)

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory in use."""
        arrays = (self.new, self.field, self.start, self.offset, self.length)
        return sum(array.nbytes for array in arrays) + int(self.keys.nbytes)

    def sizes(self) -> NDArray[np.float64]:
        """Return the bytes of the values, holes filled, as floats: sums of declared sizes may exceed 64 bits."""
        sizes = self.length.astype(np.float64)
        for row, place in self.sparse.items():
            sizes[row] = place.size_bytes
        return sizes

    def samples(self, first: int, last: int) -> MemberRows:
        """Return whole samples, by ordinal; members before the start of the first one belong to no sample here."""
        bounds = np.append(np.flatnonzero(self.new), len(self))
        a, b = int(bounds[first]), int(bounds[last])
        sparse = {row - a: s for row, s in self.sparse.items() if a <= row < b}
        return MemberRows(
            self.new[a:b],
            self.field[a:b],
            self.start[a:b],
            self.offset[a:b],
            self.length[a:b],
            sparse,
            self.keys[first:last],
        )


_NO_ROWS = MemberRows(
    np.zeros(0, np.bool_),
    np.zeros(0, np.int32),
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    {},
    pa.nulls(0, pa.string()),
)


def join_rows(parts: Sequence[MemberRows]) -> MemberRows:
    """Return the members of several windows, concatenated. Raises LimitExceeded if one array cannot hold their keys."""
    if len(parts) < 2:  # noqa: PLR2004 - nothing to join
        return parts[0] if parts else _NO_ROWS
    size = sum(p.keys.nbytes for p in parts)
    if size > _MAX_TEXT:
        message = "the keys of the samples are too long to be held together"
        raise LimitExceeded(message, expected=f"at most {_MAX_TEXT} bytes", found=size)
    base = np.cumsum([0, *(len(part) for part in parts)])
    return MemberRows(
        np.concatenate([p.new for p in parts]),
        np.concatenate([p.field for p in parts]),
        np.concatenate([p.start for p in parts]),
        np.concatenate([p.offset for p in parts]),
        np.concatenate([p.length for p in parts]),
        {int(at) + row: s for at, p in zip(base[:-1], parts, strict=True) for row, s in p.sparse.items()},
        pa.concat_arrays([p.keys for p in parts]),
    )


def regroup(rows: MemberRows) -> MemberRows:
    """Return the same members grouped by key wherever they are; samples in order of first appearance."""
    encoded = rows.keys.dictionary_encode()
    sample = encoded.indices.to_numpy()[np.cumsum(rows.new) - 1]
    order = np.argsort(sample, kind="stable")
    sample = sample[order]
    new = np.ones(len(sample), np.bool_)
    new[1:] = sample[1:] != sample[:-1]
    sparse = {i: rows.sparse[m] for i, m in enumerate(order.tolist()) if m in rows.sparse} if rows.sparse else {}
    return MemberRows(
        new, rows.field[order], rows.start[order], rows.offset[order], rows.length[order], sparse, encoded.dictionary
    )


def is_sprawl(samples: int, fields: int, members: int, limits: Limits) -> bool:
    """Return whether a table of samples would be nearly empty: their fields differ too much (`tar_cells`)."""
    return samples * fields > limits.tar_cells + _CELLS_OF_A_MEMBER * members


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Return key and field of one name, in its case; None if it belongs to no sample."""
    match = _NAME.match(name)
    return None if match is None or _META.match(name) else (match[1], match[2])


def same_sample(one: bytes, other: bytes) -> bool:
    """Return whether two names have the same key."""
    keys = [both[0] for both in map(split_name, (one, other)) if both is not None]
    return keys[1:] == keys[:1] != []


def split_names(names: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the place of the dot between key and field in each name; −1 without a key, −2 for `__…__`.

    Args:
        names: (n, width), padded with zeros.
    """
    dots, slashes = names == _DOT, names == _SLASH
    width = names.shape[1]
    base: NDArray[np.int64] | int = 0
    if slashes.any():
        base = np.where(slashes.any(axis=1), width - slashes[:, ::-1].argmax(axis=1), 0)
        dots &= np.arange(width) >= base[:, None]
    dot: NDArray[np.int64] = dots.argmax(axis=1)
    dot[~dots[np.arange(len(dots)), dot]] = _NO_KEY
    # The regular expression itself decides its corner cases: a dot first in the base name, line ends.
    odd = dot == base
    lines = names == _NEWLINE
    if lines.any():
        odd |= lines.any(axis=1)
    for row in np.flatnonzero(odd).tolist():
        match = _NAME.match(names[row].tobytes().rstrip(b"\0"))
        dot[row] = match.end(1) if match else _NO_KEY
    for row in np.flatnonzero((names[:, 0] == _UNDERSCORE) & (names[:, 1] == _UNDERSCORE)).tolist():
        if _META.match(names[row].tobytes().rstrip(b"\0")):
            dot[row] = _IS_META
    return dot


class Splitter:
    """Split names of members into keys and numbers of fields, window by window.

    Args:
        lower_case: field names in lower case.
        limits: limits on the number of fields.
        named: False ignores the names of fields, so that members have no field number. Callers that need only the
            places of samples use it, and invalid field names are no errors then.

    Attributes:
        fields: names of all fields so far, in order of first appearance.
        skipped: number of omitted members, by reason.
        hashes: hashes of the samples' keys, 64 bits each, window by window.
    """

    def __init__(self, *, lower_case: bool = True, limits: Limits = DEFAULT_LIMITS, named: bool = True) -> None:
        self.fields: list[str] = []
        self._named = named
        self._limits = limits
        self.skipped: Counter[str] = Counter()
        self.hashes: list[NDArray[np.uint64]] = []
        self._lower_case = lower_case
        self._numbers: dict[str, int] = {}
        self._by_ending: dict[bytes, int] = {}
        self._last_key: bytes | None = None

    def restart(self) -> None:
        """Treat the next member as the first of a sample, whatever came before."""
        self._last_key = None

    def split(self, found: Headers) -> MemberRows:
        """Return the members that belong to samples.

        Raises:
            CorruptShard: a name is invalid UTF-8.
            DuplicateField: a field has the name of the key column.
            LimitExceeded: more different fields than `tar_fields`.
        """
        dot = split_names(found.names)
        regular = REGULAR[found.kind]
        good = regular & (dot >= 0)
        if not good.all():
            self._count_skipped(regular, dot, found.kind == HARD_LINK)
        rows = np.flatnonzero(good)
        names, dot = (found.names, dot) if len(rows) == len(good) else (found.names[rows], dot[rows])
        keys = np.where(np.arange(names.shape[1]) < dot[:, None], names, 0)
        new = self._find_new(keys)
        begins = np.flatnonzero(new)
        self.hashes.append(_hash(keys[begins]))
        return MemberRows(
            new,
            self._field_numbers(found, rows, names, dot),
            found.start[rows],
            found.offset[rows],
            found.length[rows],
            {int(i): found.sparse[row] for i, row in enumerate(rows.tolist()) if row in found.sparse}
            if found.sparse
            else {},
            texts(found, rows[begins], keys[begins], dot[begins]),
        )

    def _count_skipped(self, regular: NDArray[np.bool_], dot: NDArray[np.int64], link: NDArray[np.bool_]) -> None:
        for reason, count in (
            ("not a regular file", np.count_nonzero(~regular & ~link)),
            ("a hard link within a sample, or to no file", np.count_nonzero(link)),
            ("no field in the name", np.count_nonzero(regular & (dot == _NO_KEY))),
            ("named __…__", np.count_nonzero(regular & (dot == _IS_META))),
        ):
            if count:
                self.skipped[reason] += int(count)

    def _find_new(self, keys: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which members have another key than the one before."""
        new = np.ones(len(keys), np.bool_)
        if len(keys):
            lanes = keys.view(np.uint64)
            new[1:] = (lanes[1:] != lanes[:-1]).any(axis=1)
            new[0] = keys[0].tobytes().rstrip(b"\0") != self._last_key
            self._last_key = keys[-1].tobytes().rstrip(b"\0")
        return new

    def _field_numbers(
        self, found: Headers, rows: NDArray[np.int64], names: NDArray[np.uint8], dot: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        if not self._named or not len(rows):
            return np.zeros(len(rows), np.int32)
        endings = _endings(names, dot)
        column = pa.Array.from_buffers(pa.binary(endings.shape[1]), len(rows), [None, pa.py_buffer(endings)])
        encoded = column.dictionary_encode()
        indices, endings_met = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
        first = np.zeros(len(endings_met), np.int64)
        first[indices[::-1]] = rows[::-1]
        for raw, row in zip(endings_met, first.tolist(), strict=True):
            if raw not in self._by_ending:
                self._by_ending[raw] = self._add_field(found, row, raw.rstrip(b"\0"))
        numbers: NDArray[np.int32] = np.array([self._by_ending[raw] for raw in endings_met], np.int32)[indices]
        return numbers

    def _add_field(self, found: Headers, row: int, raw: bytes) -> int:
        """Return the number of a new field, in the spelling of its first member."""
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise _not_utf8(found, row) from None
        name = name.lower() if self._lower_case else name
        if name == KEY:
            sample = found.name(row)[: -len(KEY) - 1].decode(errors="replace")
            raise DuplicateField(
                "a field has the name of the key", offset=int(found.start[row]), sample=sample, column=KEY
            )
        number = self._numbers.setdefault(name, len(self.fields))
        if number == len(self.fields):
            self.fields.append(name)
        if len(self.fields) > self._limits.tar_fields:
            raise self._limits.exceeded(
                "tar_fields",
                "the shard has too many different fields",
                offset=int(found.start[row]),
                advice="Do keys hold dots? What follows the first dot is the field.",
            )
        return number


def _endings(names: NDArray[np.uint8], dot: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the text after the dots, as a matrix padded with zeros."""
    lengths = np.count_nonzero(names, axis=1) - dot - 1
    width = max(int(lengths.max()), 1)
    first = int(dot[0]) + 1
    if bool((dot == dot[0]).all()) and first + width <= names.shape[1]:
        return np.ascontiguousarray(names[:, first : first + width])
    blank = np.zeros((len(names), 1), np.uint8)
    at = np.minimum(dot[:, None] + 1 + np.arange(width), names.shape[1])
    return np.take_along_axis(np.concatenate([names, blank], axis=1), at, axis=1)


def texts(
    found: Headers, rows: NDArray[np.int64], text: NDArray[np.uint8], lengths: NDArray[np.int64]
) -> pa.StringArray:
    """Return prefixes of the rows of a matrix, as strings. Raises CorruptShard, naming the member, for invalid UTF-8.

    Args:
        found: the members.
        rows: which of them the texts belong to.
        text: a text a row, padded with zeros.
        lengths: lengths of the texts.
    """
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    body = text[np.arange(text.shape[1]) < lengths[:, None]]
    column = pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends), pa.py_buffer(body))
    if len(body) and int(body.max()) >= _HIGH_BIT:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            bad = next(i for i, row in enumerate(rows.tolist()) if not is_utf8(text[i, : lengths[i]].tobytes()))
            raise _not_utf8(found, int(rows[bad])) from None
    return column


def _not_utf8(found: Headers, row: int) -> CorruptShard:
    return CorruptShard("the name of a member is not UTF-8", offset=int(found.start[row]), found=repr(found.name(row)),
                        advice="Rename the member, or write the tar again in a UTF-8 locale.")  # fmt: skip


def _hash(keys: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the hashes by which repeated keys are counted; zeros at the end of a key change nothing."""
    lanes = keys.view(np.uint64)
    factors = np.full(lanes.shape[1], 0x9E3779B97F4A7C15, np.uint64)
    np.multiply.accumulate(factors, out=factors)
    mixed: NDArray[np.uint64] = ((lanes ^ (lanes >> np.uint64(32))) * factors).sum(axis=1, dtype=np.uint64)
    return mixed


def cut(
    parts: Iterable[MemberRows],
    fields: Sequence[str],
    *,
    max_rows: int,
    max_bytes: int,
    columns: Sequence[str] | None = None,
) -> Iterator[MemberRows]:
    """Yield the members of windows as batches of whole samples, including the last one.

    Args:
        parts: windows, which may cut samples; the first member of all begins one.
        fields: names of the fields, which may grow while the windows come.
        max_rows: maximum samples of a batch.
        max_bytes: maximum bytes of values, holes filled, of a batch with more than one sample.
        columns: fields whose values count; all of them if None.
    """
    waiting: list[MemberRows] = []
    samples, size = 0, 0.0
    for part in parts:
        waiting.append(part)
        samples += len(part.keys)
        size += float(part.sizes().sum())
        if samples > max_rows or size > max_bytes:
            rows = join_rows(waiting)
            bounds = bounds_of(rows, fields, max_rows, max_bytes, columns, ended=False)
            yield from (rows.samples(a, b) for a, b in pairwise(bounds))
            waiting = [rows.samples(bounds[-1], len(rows.keys))]
            samples, size = len(waiting[0].keys), float(waiting[0].sizes().sum())
    if samples:
        rows = join_rows(waiting)
        bounds = bounds_of(rows, fields, max_rows, max_bytes, columns, ended=True)
        yield from (rows.samples(a, b) for a, b in pairwise(bounds))


def bounds_of(
    rows: MemberRows,
    fields: Sequence[str],
    max_rows: int,
    max_bytes: int,
    columns: Sequence[str] | None,
    *,
    ended: bool,
) -> list[int]:
    """Return ordinals of samples that bound full batches, 0 first; limits as for `cut`.

    Unless `ended` is set, more members may come: the last sample counts as open, and a batch with room waits. `rows`
    holds at least one sample.
    """
    counted = np.array([columns is None or name in columns for name in fields], np.bool_)[rows.field]
    starts = np.flatnonzero(rows.new)
    size_at = np.append(0, np.cumsum(np.add.reduceat(np.where(counted, rows.sizes(), 0), starts)))
    max_rows = max(1, min(max_rows, MAX_CELLS // len(fields)))
    count = len(starts) if ended else len(starts) - 1
    bounds = [0]
    while bounds[-1] < count:
        first = bounds[-1]
        fitting = int(np.searchsorted(size_at, size_at[first] + max_bytes, "right")) - 1
        last = max(min(first + max_rows, fitting), first + 1)
        if not ended and last >= count and last - first < max_rows:
            break  # more may come
        bounds.append(min(last, count))
    return bounds


def _in_order(rows: MemberRows, there: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers of fields in an order that every sample's members follow; else in order of appearance."""
    before, after = rows.field[:-1][~rows.new[1:]], rows.field[1:][~rows.new[1:]]
    if bool((before < after).all()) or len(there) > _MAX_ORDERED:
        return there
    local = np.zeros(int(there.max()) + 1, np.int64)
    local[there] = np.arange(len(there))
    pairs = np.flatnonzero(np.bincount(local[before] * len(there) + local[after]))
    follows = graphlib.TopologicalSorter[int](dict.fromkeys(range(len(there)), ()))
    for first, second in zip(*np.divmod(pairs, len(there)), strict=True):
        follows.add(int(second), int(first))
    try:
        follows.prepare()
    except graphlib.CycleError:
        return there
    waiting: list[int] = []
    order: list[int] = []
    while follows.is_active():
        for ready in follows.get_ready():
            heapq.heappush(waiting, ready)
        order.append(heapq.heappop(waiting))
        follows.done(order[-1])
    return there[order]


def to_batch(
    rows: MemberRows,
    fields: Sequence[str],
    make_column: ColumnMaker,
    *,
    columns: Sequence[str] | None = None,
    on_duplicate: str = "error",
    metadata: Mapping[bytes, bytes] | None = None,
) -> tuple[pa.RecordBatch, int]:
    """Return a batch with a row a sample, and how many duplicate fields were dropped for it.

    Args:
        rows: whole samples.
        fields: names of all fields, by number.
        make_column: function from places to values.
        columns: columns of the result, null where these samples lack the field; None: `__key__` and the fields they
            have.
        on_duplicate: `error`, `keep_first` or `keep_last`.
        metadata: metadata of the schema.

    Raises:
        DuplicateField: a sample has a field twice, under `error`.
    """
    there = _in_order(rows, np.flatnonzero(np.bincount(rows.field, minlength=len(fields))))
    local = np.zeros(len(fields), np.int64)
    local[there] = np.arange(len(there))
    cell = (np.cumsum(rows.new) - 1) * len(there) + local[rows.field]
    member = np.full(len(rows.keys) * len(there), -1)
    # Of equal cells, the last one written stays.
    order = slice(None, None, -1 if on_duplicate == "keep_first" else 1)
    member[cell[order]] = np.arange(len(cell))[order]
    dropped = len(cell) - int(np.count_nonzero(member >= 0))
    if dropped and on_duplicate == "error":
        raise _duplicate(rows, fields, cell)
    places = dict(zip((fields[i] for i in there.tolist()), member.reshape(len(rows.keys), -1).T, strict=True))
    nowhere = np.full(len(rows.keys), -1)
    wanted = [KEY, *places] if columns is None else [n for n in (KEY, *fields) if n in columns]
    wanted += [] if columns is None else [n for n in dict.fromkeys(columns) if n not in wanted]
    arrays = [rows.keys if n == KEY else _column(rows, places.get(n, nowhere), make_column) for n in wanted]
    kinds = [
        pa.field(n, a.type, metadata=None if n == KEY else tag_by_extension(n))
        for n, a in zip(wanted, arrays, strict=True)
    ]
    return pa.record_batch(arrays, schema=pa.schema(kinds, metadata=metadata)), dropped


def _column(rows: MemberRows, member: NDArray[np.int64], make_column: ColumnMaker) -> pa.Array:
    sparse = {i: rows.sparse[m] for i, m in enumerate(member.tolist()) if m in rows.sparse} if rows.sparse else {}
    valid = member >= 0
    if valid.all():
        return make_column(rows.offset[member], rows.length[member], valid, sparse)
    return make_column(np.where(valid, rows.offset[member], 0), np.where(valid, rows.length[member], 0), valid, sparse)


def _duplicate(rows: MemberRows, fields: Sequence[str], cell: NDArray[np.int64]) -> DuplicateField:
    order = np.argsort(cell, kind="stable")
    again = int(order[1:][cell[order][1:] == cell[order][:-1]].min())
    key, name = rows.keys[int(np.cumsum(rows.new)[again]) - 1].as_py(), fields[rows.field[again]]
    return DuplicateField(
        "a sample has a field twice",
        offset=int(rows.start[again]),
        sample=key,
        column=name,
        found=f"a second {key}.{name}",
        advice="Take one of them with --on-duplicate keep_first or --on-duplicate keep_last.",
    )
