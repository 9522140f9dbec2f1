"""Sources of the bytes of a tar (a file, ranges of a store, or a compressed stream), and the walk over its members.

Hard links are turned into the files that they are further names of, as GNU tar makes them for files with one inode.
Only in a tar with links, all headers are read once more, to find these files. Of a sample that has a file and a link to
it, webdataset sees the file alone, and so does a reader of samples here.

A file of this machine is read where its headers are, mapped or not. From other stores, windows are requested that grow
while members are small and shrink to a header where they are large. While the members of a large window are in use, as
many of the next ones are requested as were taken before it, three at most. So a walk that ends early has requested
about twice what it used. A compressed file is read forward once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from posixpath import normpath
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lading._core.arrow.references import FileEntry, files_of
from lading._core.codecs import sniff_wrap
from lading._core.formats.base import ShardFile
from lading._core.formats.webdataset.headers import (
    BLOCK,
    HARD_LINK,
    MAX_REACH,
    REGULAR,
    Cursor,
    Headers,
    Sparse,
    Window,
    is_header,
    lone_end,
    members_behind,
)
from lading._core.formats.webdataset.samples import same_sample
from lading._core.formats.webdataset.scan import scan
from lading._core.storage.base import FileInfo, Mapper, OpenFile
from lading._core.storage.concurrent import is_remote
from lading._core.storage.range_reader import RangeReader
from lading._core.storage.unwrap import unwrapped
from lading.errors import CorruptShard, LimitExceeded, errors_at

__all__ = [
    "CONCATENATED", "LONE_END", "NO_END", "OnConcatenated", "Stream", "TarFile", "Walk", "behind_end", "end_counts",
    "find_behind", "find_open_end", "linked", "open_tar",
]  # fmt: skip

OnConcatenated: TypeAlias = Literal["stop", "read", "error"]

CONCATENATED = "tars with members behind the end of the archive, not read"
"""Name of a count for such tars."""

NO_END = "tars without an end, perhaps cut between two members"
"""Name of a count for such tars."""

LONE_END = "tars that end with a lone block of zeros, with more behind it"
"""Name of a count for such tars."""

_REGULAR_FILE = ord("0")
_READ_BYTES = 1 << 20
_FIRST_WINDOW = 64 << 10
_SMALL_WINDOW = 16 << 10
_LARGE_WINDOW = 4 << 20
_WINDOWS_AHEAD = 3
"""Large windows, at most, that are requested while the members of the one before them are in use."""
_MOST_WAITING = 8
"""Runs of members of a window that are held meanwhile: 16,384 members."""
_LOOK_WINDOW = 512 << 10
"""Largest window of a caller that wants few members."""
_HEAD_BYTES = 16


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """The member that a hard link is a further name of.

    Attributes:
        offset: start of its payload; −1 if there is no earlier member of that name.
        length: bytes of it.
        sparse: its place, if it is a sparse file.
        is_file: whether it is a file.
        later: whether a later member has the name.
        in_sample: whether it belongs to the sample of the link: the sample has these bytes already.
    """

    offset: int = -1
    length: int = 0
    sparse: Sparse | None = None
    is_file: bool = True
    later: bool = False
    in_sample: bool = False


@dataclass(frozen=True, slots=True)
class TarFile:
    """A tar to walk.

    Attributes:
        source: the file.
        entry: the file as references name it, its compression included.
        file: the file, open, if the store can keep it open and it is not compressed.
        on_concatenated: how to treat a header behind the end of an archive: `stop`, `read` or `error`.
        targets: by start of a hard link, the file that it is a name of; filled at the first link (`linked`).
    """

    source: ShardFile
    entry: FileEntry
    file: OpenFile | None
    on_concatenated: OnConcatenated = "stop"
    targets: dict[int, LinkTarget] = field(default_factory=dict, compare=False)

    @property
    def start(self) -> Cursor:
        """Return the cursor of a walk over all members."""
        return Cursor(limits=self.source.limits, on_concatenated=self.on_concatenated)

    @property
    def path(self) -> str:
        """Return its name in errors."""
        return self.source.path

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of an uncompressed file."""
        [data] = self.read_each([(offset, length)])
        return data

    def read_each(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return bytes of each `(offset, length)` of an uncompressed file, requested at once."""
        if self.file is not None:
            return [self.file.read(offset, length) for offset, length in ranges]
        return [bytes(data) for data in self.source.get_ranges(ranges)]


def open_tar(source: ShardFile, *, mmap: bool, on_concatenated: OnConcatenated = "stop") -> TarFile:
    """Read a file's size and first bytes, and keep it open, mapped or not, if it is plain and the store can.

    An index tells whether a remote file is compressed: then its first bytes are not read.

    Raises:
        NotFound, StoreError: it is missing, or is not a regular file.
    """
    source, info = source.pinned()
    file: OpenFile | None = None
    if isinstance(source.store, Mapper):
        file = source.store.map(source.path) if mmap else source.store.open_file(source.path)
        wrap = sniff_wrap(file.read(0, _HEAD_BYTES))
    elif source.index is not None and (known := files_of(source.index.schema)):
        wrap = known[0].wrap
    else:
        [head] = source.get_ranges([(0, min(info.size_bytes, _HEAD_BYTES))])
        wrap = sniff_wrap(bytes(head))
    entry = FileEntry(source.path, wrap, info.size_bytes, info.version)
    return TarFile(source, entry, None if entry.wrap else file, on_concatenated)


def linked(tar: TarFile, found: Headers, *, in_sample: bool) -> Headers:
    """Return members with hard links as the files that they are names of; a name of something else stays a link.

    Args:
        tar: the tar.
        found: members of it.
        in_sample: whether links to members of their own sample are files too.

    Raises:
        CorruptShard: no earlier member has the name that a link leads to.
        LimitExceeded: the names of the tar, which are held for the time of a search, exceed `tar_keys_bytes`.
    """
    if not found.links:
        return found
    if int(found.start[min(found.links)]) not in tar.targets:
        tar.targets.update(_find_targets(tar))
    kind, offset, length, sparse = found.kind.copy(), found.offset.copy(), found.length.copy(), dict(found.sparse)
    for row, name in found.links.items():
        target = tar.targets.get(int(found.start[row]), LinkTarget())
        if target.offset < 0:
            raise CorruptShard(
                "a hard link leads to no earlier member of the tar", file=tar.path, offset=int(found.start[row]),
                sample=found.name(row).decode(errors="replace"), expected=repr(name),
                found="only a later member of that name" if target.later else "no member of that name",
                advice="Pack the files again with tar --hard-dereference.",
            )  # fmt: skip
        if target.is_file and (in_sample or not target.in_sample):
            kind[row], offset[row], length[row] = _REGULAR_FILE, target.offset, target.length
            sparse.update({row: target.sparse} if target.sparse is not None else {})
    return replace(found, kind=kind, offset=offset, length=length, sparse=sparse, links={})


def _find_targets(tar: TarFile) -> dict[int, LinkTarget]:
    """Return the target of each hard link, by the start of the link; the last member of the name before it, as tarfile.

    Stops at damage: the walk that asks reports it in its turn.
    """
    known: dict[bytes, LinkTarget] = {}
    targets: dict[int, LinkTarget] = {}
    missing: dict[int, bytes] = {}
    size, limits = 0, tar.source.limits
    walk = iter(Walk(tar, links="none"))
    while True:
        try:
            found = next(walk, None)
        except (CorruptShard, LimitExceeded):
            found = None
        if found is None:
            return targets | {start: LinkTarget(later=name in known) for start, name in missing.items()}
        size += int(np.count_nonzero(found.names))
        if size > limits.tar_keys_bytes:
            message = "the names of a tar with hard links are too long to be held together"
            raise limits.exceeded("tar_keys_bytes", message, file=tar.path, found=size)
        for row, (kind, start) in enumerate(zip(found.kind.tolist(), found.start.tolist(), strict=True)):
            target = LinkTarget(
                int(found.offset[row]), int(found.length[row]), found.sparse.get(row), bool(REGULAR[kind])
            )
            own = normpath(found.name(row))
            if kind == HARD_LINK:
                name = normpath(found.links[row])
                if name not in known:
                    missing[start] = name
                    continue
                target = known[name]
                targets[start] = replace(target, in_sample=same_sample(own, name))
            known[own] = target


def end_counts(cursor: Cursor) -> dict[str, int]:
    """Return counts about the end of a tar that a walk has reached, by a short phrase."""
    reports = {
        NO_END: not cursor.closed,
        LONE_END: cursor.lone,
        CONCATENATED: bool(cursor.behind),
    }
    return {phrase: 1 for phrase, there in reports.items() if there}


def behind_end(tar: TarFile) -> CorruptShard | None:
    """Return the error that members follow a lone block of zeros, which ends a tar for every reader; None if none do.

    Reads all blocks up to the first header after it.
    """
    walk = Walk(tar)
    for _ in walk:
        pass
    end = walk.cursor.at
    if not walk.cursor.lone:
        return None
    for at, piece in _byte_ranges(tar, end):
        for place in range(0, len(piece), BLOCK):
            if is_header(piece[place : place + BLOCK]):
                return lone_end(end, f"a header at {at + place}").at(file=tar.path)
    return None


def find_behind(tar: TarFile, start: int = 0) -> CorruptShard | None:
    """Return the error that members follow the end of an archive and are not read; None if none do.

    Args:
        tar: the file.
        start: start of a member, or the end of the last one, from which the end is looked for.
    """
    walk = Walk(tar, start, links="none")
    for _ in walk:
        pass
    return members_behind(walk.cursor.at, walk.cursor.behind).at(file=tar.path) if walk.cursor.behind else None


def find_open_end(tar: TarFile) -> CorruptShard | None:
    """Return the error that no block of zeros ends a tar; None if one does."""
    walk = Walk(tar, links="none")
    for _ in walk:
        pass
    if walk.cursor.closed:
        return None
    command = f"head -c 1024 /dev/zero >> {shlex.quote(tar.path)}"
    add = None if tar.entry.wrap else f"If the tar is complete, add its end: {command}"
    return CorruptShard(
        "the tar has no end: it may have been cut between two members", file=tar.path, offset=walk.cursor.at,
        expected="two blocks of zeros", found="the end of the file", advice=add,
    )  # fmt: skip


def _byte_ranges(tar: TarFile, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of a tar, unpacked, from a block on, and the start of each piece."""
    stream = Stream(tar) if tar.entry.wrap else None
    while True:
        if stream is not None:
            piece = bytes(stream.window(at, at + _READ_BYTES).data[:_READ_BYTES])
        else:
            piece = tar.read(at, max(min(_READ_BYTES, tar.entry.size_bytes - at), 0))
        if not piece:
            return
        yield at, piece
        at += len(piece)


class Walk:
    """The members of a tar, or of a part of it, in file order.

    Args:
        tar: the file.
        start: start of the first member.
        stop: end of the walk; None for the end of the archive.
        reach: number of headers to read first, for callers that want few.
        links: hard links that are turned into files: `all`, `other` (not those to members of their own sample), `none`.

    Attributes:
        cursor: position of the walk; after the last members, whether the archive was closed as it should be.
    """

    def __init__(
        self,
        tar: TarFile,
        start: int = 0,
        stop: int | None = None,
        *,
        reach: int = MAX_REACH,
        links: Literal["all", "other", "none"] = "all",
    ) -> None:
        self._tar, self._links = tar, links
        self._stop, self._few = stop, reach < MAX_REACH
        self.cursor = replace(tar.start, at=start, reach=min(reach, MAX_REACH))

    def __iter__(self) -> Iterator[Headers]:
        """Yield runs of members; never an empty one. Peak memory: 50 MB.

        Raises:
            CorruptShard, LimitExceeded: the tar is invalid; the error names the file and the offset.
        """
        with errors_at(file=self._tar.path):
            if self._tar.entry.wrap:
                parts = self._over_stream()
            elif self._tar.file is not None:
                parts = self._over_file(self._tar.file)
            else:
                parts = self._over_ranges()
            follow = self._links != "none"
            yield from (self._linked(found) for found in parts) if follow else parts

    def _linked(self, found: Headers) -> Headers:
        return linked(self._tar, found, in_sample=self._links == "all")

    def _over_file(self, file: OpenFile) -> Iterator[Headers]:
        range_hasher = self._tar.source.range_hasher
        # If a file changed since it was listed, following its references reports that.
        same = file.size_bytes == self._tar.entry.size_bytes
        forward = range_hasher.walk(file, self._tar.entry) if range_hasher is not None and same else None
        total = file.size_bytes if self._stop is None else min(self._stop, file.size_bytes)
        window = Window.over(file, total, forward=forward)
        while not self.cursor.done:
            try:
                found, self.cursor = scan(window, self.cursor)
            except CorruptShard:
                file.check()
                raise
            if len(found):
                yield found
        file.check()

    def _over_ranges(self) -> Iterator[Headers]:
        total = self._tar.entry.size_bytes if self._stop is None else self._stop
        dear, recent = self._tar.source.store.request_bytes, self._tar.source.recent
        recent = recent if is_remote(self._tar.source.store) else None
        small, most = max(BLOCK, min(_SMALL_WINDOW, dear // 32)), _LOOK_WINDOW if self._few else _LARGE_WINDOW
        size, count, window = _FIRST_WINDOW, 0, Window(np.zeros(0, np.uint8), self.cursor.at, total)
        taken = 0  # large windows, one behind the other
        waiting: list[Headers] = []  # the members of a window, until the next windows are asked for
        source = self._tar.source
        info = FileInfo(source.path, self._tar.entry.size_bytes, source.info.version if source.info else "")
        with closing(RangeReader(source.store, source.path, info).within(0, total)) as reader:
            while not self.cursor.done:
                at = self.cursor.at
                if self.cursor.need or at >= window.stop:
                    # Large members so far apart that a request for each is faster than reading the gaps.
                    far = count > 0 and at - window.base >= count * dear
                    size, count = (small if far else min(2 * size, most)), 0
                    # The end of a value is read with the next header, for the fetch of the value.
                    near = recent is not None and at < total and at - window.stop <= size // 2
                    start = stop = window.stop if near else at
                    if near and size == _LARGE_WINDOW:
                        reader.ahead(start, size, min(taken - 1, _WINDOWS_AHEAD))
                        taken += 1
                    else:
                        taken = 0
                    yield from _taken(waiting)
                    parts = [window.data[at - window.base :]] if at < start else []
                    while stop == start or start < stop < min(self.cursor.need, total):
                        data = reader.window(stop, max(self.cursor.need - stop, size))
                        parts.append(_as_array(data))
                        if not parts[-1].size:
                            break
                        if recent is not None:
                            recent.add(self._tar.entry, stop, data)
                        stop += parts[-1].size
                    window = Window(parts[0] if len(parts) == 1 else np.concatenate(parts), min(at, start), total)
                try:
                    found, self.cursor = scan(window, self.cursor)
                except (CorruptShard, LimitExceeded):
                    yield from _taken(waiting)
                    raise
                count += int(np.count_nonzero(found.length > small))
                waiting += [found] if len(found) else []
                if taken <= 1 or len(waiting) > _MOST_WAITING:
                    yield from _taken(waiting)
        yield from _taken(waiting)

    def _over_stream(self) -> Iterator[Headers]:
        stream = Stream(self._tar)
        end = at = self.cursor.at
        while not self.cursor.done:
            window = stream.window(self.cursor.at, max(self.cursor.need, self.cursor.at + BLOCK))
            if window.total is not None and end > window.total:
                raise _cut_stream(at, end, window.total)
            found, self.cursor = scan(window, self.cursor)
            if len(found):
                at, end = int(found.start[-1]), int(found.offset[-1] + found.length[-1])
                yield found
        if not self.cursor.behind:
            stream.drain(self.cursor.at)


def _cut_stream(at: int, end: int, total: int) -> CorruptShard:
    return CorruptShard("a member is cut", offset=at, expected=f"data up to {end}", found=f"the end at {total}")


def _taken(waiting: list[Headers]) -> Iterator[Headers]:
    """Yield what waits, and forget each when it is given."""
    while waiting:
        yield waiting.pop(0)


def _as_array(data: object) -> NDArray[np.uint8]:
    """Return bytes as an array, without a copy."""
    view = memoryview(data)  # type: ignore[arg-type] # a pyarrow buffer is one
    return np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)


class Stream:
    """A compressed tar read forward, with a window of it in memory.

    The buffer is reused, so arrays over a window are valid until the next one. It grows with the actual data, never
    with a size that a header declares. Offsets count in the unpacked stream.
    """

    def __init__(self, tar: TarFile) -> None:
        self._limits = tar.source.limits
        self._byte_ranges = unwrapped(
            tar.source.get_ranges, tar.path, tar.entry.wrap, tar.entry.size_bytes, self._limits
        )
        self._buffer = np.empty(2 * _READ_BYTES, np.uint8)
        self._base = self._stop = 0
        self._ended = False

    def window(self, at: int, stop: int, *, whole: bool = False) -> Window:
        """Return the stream from `at` on, at least up to `stop` if it is that long; earlier bytes are forgotten."""
        if at > self._base:
            kept = self._buffer[at - self._base : max(self._stop - self._base, 0)]
            self._buffer[: len(kept)] = kept
            self._base = at
        while self._stop < stop and not self._ended:
            self._take(next(self._byte_ranges, None))
        size = max(self._stop - at, 0)
        return Window(self._buffer[:size], at, self._stop if self._ended else None, whole)

    def _take(self, piece: bytes | None) -> None:
        if piece is None:
            self._ended = True
            return
        new = np.frombuffer(piece, np.uint8)[max(self._base - self._stop, 0) :]
        self._stop += len(piece)
        at = self._stop - self._base - len(new)
        if len(new) and at + len(new) > len(self._buffer):
            larger = np.empty(2 * (at + len(new)), np.uint8)
            larger[:at] = self._buffer[:at]
            self._buffer = larger
        if len(new):
            self._buffer[at : at + len(new)] = new

    def drain(self, end: int) -> None:
        """Read on from the end of the archive to that of the file, to verify the checksums of the compression.

        Raises:
            CorruptShard: the compressed stream is damaged or cut.
            LimitExceeded: much more than a tar's padding follows the archive.
        """
        while not self._ended:
            if self._stop > end + self._limits.tar_tail_bytes:
                raise self._limits.exceeded(
                    "tar_tail_bytes", "the stream goes on behind the end of the archive", offset=end
                )
            self._base = self._stop
            self._take(next(self._byte_ranges, None))
