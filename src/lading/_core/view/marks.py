"""Marks that people give samples on the page: keep, drop, a label. A file of the user's keeps them for each source.

The file is a SQLite database to which rows are appended: a kill loses no mark, several servers write at once, and the
marks as they were at any moment can be found again. Its folder is `$XDG_DATA_HOME/lading/marks`, else
`~/.local/share/lading/marks`. A mark belongs to the key of a sample; in data without keys to its number in the source.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from lading._core.content.nested import plain
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.order.numbers import numbers_at
from lading._core.dataset.query import Query
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.rows import Spooled
from lading._core.dataset.steps.base import OrderStep
from lading._core.dataset.transform.concat import Parts
from lading._core.manifest.values import lookup
from lading._core.secret_urls import cleaned
from lading._core.storage.hub import unpinned
from lading._core.units import whole_number
from lading.errors import StoreError, UsageError

if TYPE_CHECKING:
    from lading._core.dataset.order.numbers import Look, Numbers

__all__ = ["Mark", "Marked", "SampleMarks", "TakeMarked", "as_file"]

_MARKS = ("keep", "drop")
_LABEL = "label:"
_LOCK_WAIT_S = 20.0
_MOST_LETTERS = 200
_BLOCK_BYTES = 1 << 20
_TABLES = """
begin;
create table if not exists source (name text not null);
create table if not exists marks (
    id integer primary key autoincrement, sample text not null, mark text not null, label text not null,
    version text not null, at text not null default (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')));
commit;
"""


def _folder() -> str:
    """Return the folder of marks: `$XDG_DATA_HOME/lading/marks`, else `~/.local/share/lading/marks`."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(home, "lading", "marks")


@dataclass(frozen=True, slots=True)
class Mark:
    """What somebody said of a sample.

    Attributes:
        mark: `keep`, `drop`, or empty.
        label: a text of the user's, or empty.
    """

    mark: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse other marks, and labels that are no short line."""
        if self.mark not in ("", *_MARKS):
            raise UsageError("no such mark", expected=" or ".join(_MARKS), found=repr(self.mark[:80]))
        if len(self.label) > _MOST_LETTERS or self.label != self.label.strip() or len(self.label.splitlines()) > 1:
            raise UsageError("a label is one line", expected=f"at most {_MOST_LETTERS} characters",
                             found=repr(self.label[:80]))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Marked:
    """Samples with some mark, as marks were at a moment: later ones do not move what a page shows.

    Attributes:
        mark: `keep`, `drop`, `any` (a mark or a label), `none`, or `label:TEXT`.
        at: the number of the last entry that counts.
    """

    mark: str
    at: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `keep@12` means. Raises UsageError."""
        mark, _, at = text.rpartition("@")
        entry = whole_number(at)
        if not (mark in (*_MARKS, "any", "none") or mark.startswith(_LABEL)) or entry is None:
            raise UsageError("no such choice of marks", expected="keep@N, drop@N, any@N, none@N or label:TEXT@N",
                             found=repr(text[:100]))  # fmt: skip
        return cls(mark, entry)

    @property
    def file(self) -> str:
        """Name of the file that lists these samples, as the page saves it: `keep`, `label-cat`, `marks`."""
        if self.mark in _MARKS:
            return self.mark
        return f"label-{_as_name(self.mark)}" if self.mark.startswith(_LABEL) else "marks"

    def holds(self, mark: Mark) -> bool:
        """Whether a sample with this mark is meant."""
        if self.mark in ("any", "none"):
            return mark != Mark()
        return mark.label == self.mark.removeprefix(_LABEL) if self.mark.startswith(_LABEL) else mark.mark == self.mark


class SampleMarks:
    """The marks of a source.

    Args:
        data: the dataset, perhaps behind steps.

    Attributes:
        path: the file that keeps them. It is there from the first mark on.
    """

    def __init__(self, data: OpenDataset) -> None:
        self._data, self._lock = data, Lock()
        self._known: dict[str, Mark] = {}
        self._versions: dict[str, str] = {}
        self._at = 0

    @cached_property
    def path(self) -> str:
        """The file."""
        names = _identity(self._data.query)
        facts = "\0".join([*names, "by key" if self.by_key else "by number"])
        digest = xxhash.xxh3_64_hexdigest(facts.encode("utf-8", "surrogatepass"))
        return os.path.join(_folder(), f"{_as_name(os.path.basename(names[0]))}-{digest}.sqlite")

    @cached_property
    def _version(self) -> str:
        """A hash of the names, sizes and versions of the shards."""
        table = self._data.shards.listing.table
        paths = [os.path.basename(path) for path in table["path"].to_pylist()]
        facts = [*zip(paths, table["size_bytes"].to_pylist(), table["version"].to_pylist(), strict=True)]
        is_temporary = self._data.query.source.is_temporary  # the identity has their content
        return "" if is_temporary else xxhash.xxh3_64_hexdigest(repr(facts).encode("utf-8", "surrogatepass"))

    # What is marked

    @cached_property
    def by_key(self) -> bool:
        """Whether marks belong to keys; else to numbers of samples in the source."""
        return self._data.key is not None

    def since(self, seen: int) -> dict[str, Any]:
        """Return the marks that were given behind an entry, and what a user should know of them."""
        with self._lock:
            self._read()
            found = self._entries(seen) if seen else [(name, mark) for name, mark in self._known.items()]
            note = self._note()
            at = self._at
        return {
            "at": at, "marks": [[name, mark.mark, mark.label] for name, mark in found],
            "by": "key" if self.by_key else "number", "note": note, "file": self.path,
        }  # fmt: skip

    def set(self, sample: str, mark: Mark) -> int:
        """Mark a sample, and return the number of the entry. An empty mark takes marks away.

        Args:
            sample: its key; of data without keys its number in the source.
            mark: the mark.

        Raises:
            StoreError: the file cannot be written.
        """
        if not self.by_key and whole_number(sample) is None:
            raise UsageError("the samples have no keys", expected="the number of a sample", found=repr(sample[:80]))
        with self._lock, self._open(create=True) as db:
            db.executescript(_TABLES)
            db.execute("insert into source select ? where not exists (select * from source)", [self._source])
            entry = (sample, mark.mark, mark.label, self._version)
            found = db.execute("insert into marks (sample, mark, label, version) values (?, ?, ?, ?)", entry)
            assert found.lastrowid is not None
            return found.lastrowid

    def of_numbers(self, data: OpenDataset, numbers: NDArray[np.int64]) -> list[str]:
        """Return what marks belong to, for samples of data without keys, by their number behind steps."""
        found = numbers if data.chosen is None else numbers_at(data.chosen.numbers, numbers)
        return [str(number) for number in _moved(found, data.fitting, data.shards).tolist()]

    def step(self, marked: Marked, shards: Shards) -> OrderStep:
        """Return the step that takes the samples with a mark.

        Args:
            marked: which.
            shards: those whose samples the step will choose among.
        """
        samples = self._samples(marked)
        if self.by_key:
            return TakeMarked(tuple(samples), marked)
        numbers = _moved(np.array(sorted(map(int, samples)), np.int64), self._data.shards, shards)
        return TakeMarked(tuple(map(str, numbers.tolist())), marked)

    def table(self, marked: Marked) -> pa.Table:
        """Return the marked samples in the order of the source, those that are in the dataset: key, mark, label.

        Of data without keys, the first column is `number`.
        """
        known = self._samples(marked)
        key = self._data.key
        if key is None:
            numbers = np.array(sorted(int(name) for name in known), np.int64)
            numbers = numbers[numbers < int(self._data.shards.sample_ends()[-1])] if len(numbers) else numbers
            found: list[str] = [str(number) for number in numbers.tolist()]
            column: pa.Array = pa.array(numbers)
        else:
            wanted, seen = pa.array(known, pa.large_string()), dict[str, None]()
            for [keys] in self._data.values([key]) if known else ():
                texts = _texts(keys)
                seen |= dict.fromkeys(texts.filter(pc.is_in(texts, value_set=wanted)).to_pylist())
            found = [*seen]
            column = pa.array(found, pa.string())
        marks = [known[name] for name in found]
        columns = {
            key or "number": column, "mark": pa.array([mark.mark or None for mark in marks], pa.string()),
            "label": pa.array([mark.label or None for mark in marks], pa.string()),
        }  # fmt: skip
        return pa.table(columns)

    # The file

    @property
    def _source(self) -> str:
        return cleaned(str(self._data.query.source))

    @contextmanager
    def _open(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """The database in a transaction."""
        try:
            if create:
                os.makedirs(_folder(), mode=0o700, exist_ok=True)
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            with closing(sqlite3.connect(self.path, timeout=_LOCK_WAIT_S)) as db, db:
                yield db
        except (OSError, sqlite3.Error) as error:
            raise StoreError("marks cannot be kept", file=self.path, found=str(error),
                             advice="Set XDG_DATA_HOME to a folder that can be written.") from error  # fmt: skip

    def _entries(self, seen: int, until: int = 2**62) -> list[tuple[str, Mark]]:
        if not os.path.exists(self.path) or not os.path.getsize(self.path):
            return []
        with self._open() as db:
            query = "select sample, mark, label from marks where id > ? and id <= ? order by id"
            return [(name, Mark(mark, label)) for name, mark, label in db.execute(query, (seen, until))]

    def _read(self) -> None:
        """Take over the entries of others."""
        if not os.path.exists(self.path) or not os.path.getsize(self.path):
            return
        with self._open() as db:
            query = "select id, sample, mark, label, version from marks where id > ? order by id"
            for number, name, mark, label, version in db.execute(query, (self._at,)):
                self._known[name] = Mark(mark, label)
                self._versions[name] = version
                self._at = number

    def _samples(self, marked: Marked) -> Mapping[str, Mark]:
        """The samples with a mark, as marks were; for `none` those that have any."""
        return {name: mark for name, mark in dict(self._entries(0, marked.at)).items() if marked.holds(mark)}

    def _note(self) -> str:
        others = sum(mark != Mark() and self._versions[name] != self._version for name, mark in self._known.items())
        if not others:
            return ""
        count = f"{others:,} {'mark is' if others == 1 else 'marks are'} older than the files."
        return f"{count} {'Marks stay with their keys.' if self.by_key else 'They may mean other samples now.'}"


@dataclass(frozen=True, slots=True)
class TakeMarked(OrderStep):
    """Take the samples with a mark, in the order that they have.

    Attributes:
        samples: their keys, or numbers in the source; for `none` those that are left out.
        marked: which they are.
    """

    samples: tuple[str, ...]
    marked: Marked

    phase = "looking for the marks"

    def looked_at(self, known: Collection[str]) -> list[str]:  # noqa: ARG002 - as of all steps
        """Return no column but that of keys."""
        return []

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:
        """Return the numbers of the samples."""
        if look.key is None:
            own = numbers_at(numbers, np.arange(len(numbers)))
            found = [np.isin(own, np.array([int(each) for each in self.samples], np.int64))]
        else:
            wanted = pa.array(self.samples, pa.large_string())
            found = [
                np.asarray(pc.is_in(_texts(keys), value_set=wanted, skip_nulls=True).to_numpy(zero_copy_only=False))
                for [keys] in look([look.key])
            ]
        chosen = np.concatenate([np.zeros(0, bool), *found])
        return numbers_at(numbers, np.flatnonzero(~chosen if self.marked.mark == "none" else chosen))

    def __repr__(self) -> str:
        return f"marked({self.marked.mark!r})"


def as_file(table: pa.Table, kind: str) -> bytes:
    """Return a table of marks as bytes: `txt` (the keys alone, for --take), `csv` or `parquet`.

    Raises:
        UsageError: there is nothing in it, no such kind, or a key that has no line of its own.
    """
    if kind not in ("txt", "csv", "parquet"):
        raise UsageError("no such file of marks", expected="txt, csv or parquet", found=repr(kind[:20]))
    if not len(table):
        raise UsageError("no sample of the dataset has this mark")
    if kind == "parquet":
        import pyarrow.parquet as pq

        made = pa.BufferOutputStream()
        pq.write_table(table, made)
        return bytes(made.getvalue())
    names = [str(name) for name in table.column(0).to_pylist()]
    broken = next((name for name in names if name.splitlines() != [name]), None)
    if broken is not None:
        raise UsageError("a key is not one line", found=repr(broken[:80]), advice="Save the marks as Parquet.")
    if kind == "txt":
        return "\n".join([table.column_names[0], *names, ""]).encode()
    from pyarrow import csv

    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    return bytes(sink.getvalue())


def _identity(query: Query) -> list[str]:
    """What distinguishes a source from others: its names, wherever it is opened, and what of them is read."""
    read, source = query.read, query.absolute().source
    options = [f"{name}={value}" for name in ("split", "config") if (value := getattr(read, name, None))]
    if isinstance(source, Parts):
        return [text for each in source.queries for text in _identity(each)]
    if isinstance(source, Spooled):
        return [source.given, _digest_of_file(source.path), *options]
    names = [source.names] if isinstance(source.names, str | os.PathLike) else [*source.names]
    return [*(unpinned(cleaned(os.fspath(name))).rstrip("/") for name in names), *options]


def _digest_of_file(path: str) -> str:
    digest = xxhash.xxh3_64()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _texts(keys: pa.Array) -> pa.Array:
    return plain(keys).cast(pa.large_string())


def _moved(numbers: NDArray[np.int64], before: Shards, after: Shards) -> NDArray[np.int64]:
    """Numbers of samples in some shards as numbers in others, of which one is a part of the other."""
    if before is after or not len(numbers):
        return numbers
    places = {path: place for place, path in enumerate(after.listing.table["path"].to_pylist())}
    ends = before.sample_ends()
    numbers = numbers[numbers < (int(ends[-1]) if len(ends) else 0)]
    shard, row = lookup(ends, numbers)
    to = np.array([places.get(path, -1) for path in before.listing.table["path"].to_pylist()], np.int64)[shard]
    firsts = np.concatenate(([0], after.sample_ends()))
    return (firsts[to] + row)[to >= 0]


def _as_name(text: str) -> str:
    """A text as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "-", text.removeprefix(_LABEL), flags=re.ASCII).strip("-.")[:60] or "marks"
