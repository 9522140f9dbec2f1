"""Every error a user can meet.

    LadingError                       anything that went wrong; carries file, offset, row, expected, found, advice
    ├── DataError (ValueError)        the data is bad                                    exit status 1
    │   ├── CorruptShard              bytes of a shard break the rules of its format
    │   ├── SidecarMismatch           a sidecar or manifest disagrees with its shard
    │   ├── DuplicateField            one sample holds a field twice
    │   ├── SchemaMismatch            rows or files do not fit the schema of the run
    │   ├── BadReference              bytes of a reference are not there, or not allowed (also a RuntimeError)
    │   │   └── MissingFile (FileNotFoundError)  a reference names a file that does not exist
    │   ├── MissingField (KeyError)   a sample lacks a column that the writer was told
    │   ├── LimitExceeded             a size, count or depth from a file is above its limit
    │   └── Unrepresentable           the target format cannot hold this value or column
    │       ├── UnknownLabel (KeyError)   a label's feature has no such name or number
    │       └── WrongType (TypeError)     a value of a type that the column does not take
    ├── UsageError (ValueError)       the call is wrong                                  exit status 2
    │   ├── SourceNotFound            nothing is at the place, or matches the pattern
    │   ├── MissingTag (KeyError)     a template of file names has a tag that was not given
    │   ├── SeveralSplits             a folder of several datasets, where one is asked for
    │   ├── UnfinishedDataset         a dataset on a store that is being written, or whose job died
    │   ├── DestinationExists         the destination holds something already
    │   ├── UnknownFormat             no registered format has this name or recognises this file
    │   ├── NoSuchSample (IndexError) a number that no sample of the dataset has
    │   ├── MissingExtra              a feature needs a package that is not installed, or cannot be imported
    │   ├── UnknownArgument (TypeError)   an argument that the function lacks
    │   └── WrongFeature (TypeError)  something else than a feature, or one that columns cannot be made for
    ├── FunctionError (RuntimeError)  a function given to map or filter raised an error   exit status 1
    └── StoreError (OSError)          the machine or a store failed                      exit status 3
        ├── DatasetReplaced           another dataset took the place of one that is open
        ├── NotFound                  a file that should be there is not
        └── ShortRead                 a store gave fewer bytes than asked for

Errors are also the builtin that other libraries raise at the same place, so code that catches that goes on working.

Catch `LadingError` for all of them, or `DataError` to go on with the next dataset. Levels add what they know as an
error passes (`error.at(row=…)`) and never replace what a lower level said.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

from lading._core.spelling import in_python
from lading._core.visible import visible_lines

__all__ = [
    "BadReference",
    "CorruptShard",
    "DataError",
    "DatasetReplaced",
    "DestinationExists",
    "DuplicateField",
    "FunctionError",
    "LadingError",
    "LimitExceeded",
    "MissingExtra",
    "MissingField",
    "MissingFile",
    "MissingTag",
    "NoSuchSample",
    "NotFound",
    "SchemaMismatch",
    "SeveralSplits",
    "ShortRead",
    "SidecarMismatch",
    "SourceNotFound",
    "StoreError",
    "UnfinishedDataset",
    "UnknownArgument",
    "UnknownFormat",
    "UnknownLabel",
    "Unrepresentable",
    "UsageError",
    "WrongFeature",
    "WrongType",
    "errors_at",
    "is_damage",
    "missing_extra",
    "suppress_damage",
    "without_frames",
]

_Error = TypeVar("_Error", bound=Exception)
_PLACES = ("file", "offset", "row", "sample", "column")
_NO_FILE = frozenset((errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO))
"""What a StoreError says where something else is in the place of a file."""


class LadingError(Exception):
    """Something went wrong; the text says what, where, and what to do.

    Args:
        message: what went wrong, one clause, no full stop.
        file: path or URL.
        offset: byte in that file (in the unwrapped stream if the file is compressed).
        row: row of a table or ordinal of a sample.
        sample: key of a sample.
        column: column or field.
        expected: what should have been there.
        found: what was there.
        advice: what to do next, a sentence. Options are spelled as on the command line (`--to-option nulls=mask`);
            `str(error)` spells them as Python does.
    """

    exit_status = 1
    details: Sequence[str] = ()
    """Further problems of the same kind, for errors of several columns."""

    def __init__(  # noqa: PLR0913 - the places an error can name, all optional and by keyword
        self,
        message: str,
        *,
        file: str | None = None,
        offset: int | None = None,
        row: int | None = None,
        sample: str | None = None,
        column: str | None = None,
        expected: object = None,
        found: object = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.offset = offset
        self.row = row
        self.sample = sample
        self.column = column
        self.expected = expected
        self.found = found
        self.advice = advice

    def at(self, **places: Any) -> Self:
        """Add places that are not known yet (`file`, `offset`, `row`, `sample`, `column`); give the error back."""
        for name, value in places.items():
            if name not in _PLACES:
                raise TypeError(f"no such place: {name}")
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def to_dict(self) -> dict[str, object]:
        """The error as JSON-able values, for `--json` and ledgers."""
        names = (*_PLACES, "expected", "found", "advice")
        known = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        plain = {k: v if isinstance(v, (int, str)) else str(v) for k, v in known.items()}
        more = {"details": list(self.details)} if self.details else {}
        return {"error": type(self).__name__, "message": self.message, **plain, **more}

    def __str__(self) -> str:
        text = ": ".join([self.problem, "; ".join(self.details)]) if self.details else self.problem
        return visible_lines(f"{text}. {in_python(self.advice)}" if self.advice else text)

    @property
    def problem(self) -> str:
        """Place and problem, without the advice."""
        where = self.file or ""
        if self.offset is not None:
            where += f" @ {self.offset}"
        if self.row is not None:
            where += f" row {self.row}"
        if self.sample is not None:
            where += f" sample {self.sample!r}"
        if self.column is not None:
            where += f" column {self.column!r}"
        text = f"{where.strip()}: {self.message}" if where else self.message
        if self.expected is not None and self.found is not None:
            text += f"; expected {self.expected}, found {self.found}"
        elif self.expected is not None:
            text += f"; expected {self.expected}"
        elif self.found is not None:
            text += f"; found {self.found}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process boundaries with everything they know."""
        return (_rebuild, (type(self), self.message, {k: v for k, v in self.__dict__.items() if k != "message"}))


def errors_at(*, first_row: int | None = 0, **places: Any) -> AbstractContextManager[None]:
    """Errors of the body that do not know these places yet (`LadingError.at`) know them after.

    The rows that the body counts begin at `first_row` of whatever the caller speaks of; None: they are of several such
    things, and their numbers are left out.
    """
    return _ErrorsAt(first_row, places)


class _ErrorsAt:
    """What `errors_at` does: a generator would take three times as long, and shards are opened by the thousand."""

    __slots__ = ("_first_row", "_places")

    def __init__(self, first_row: int | None, places: dict[str, Any]) -> None:
        self._first_row, self._places = first_row, places

    def __enter__(self) -> None:
        """Nothing is done before an error."""

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, LadingError):
            if error.row is not None:
                error.row = None if self._first_row is None else error.row + self._first_row
            error.at(**self._places).__cause__ = None


def without_frames(error: _Error) -> _Error:
    """The error, for those who keep many, without the frames that it came through: these hold what they worked on."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _rebuild(cls: type[LadingError], message: str, state: dict[str, Any]) -> LadingError:
    error = cls(message)
    error.__dict__.update(state)
    return error


class DataError(LadingError, ValueError):
    """The data is bad."""


class CorruptShard(DataError):
    """Bytes of a shard break the rules of its format."""


class SidecarMismatch(DataError):
    """A sidecar or manifest disagrees with its shard."""


class DuplicateField(DataError):
    """One sample holds a field twice."""


class SchemaMismatch(DataError):
    """Rows or files do not fit the schema of the run."""


class BadReference(DataError, RuntimeError):
    """A reference names bytes that are not there, or that it may not name."""


class MissingFile(BadReference, FileNotFoundError):
    """A reference names a file that does not exist."""


class LimitExceeded(DataError):
    """A size, count or depth that a file declares is above its limit."""


class Unrepresentable(DataError):
    """The target format cannot hold this value or column.

    Attributes:
        columns: the columns, if there are several. `details` says what is wrong with each.
    """

    columns: Sequence[str] = ()


class UnknownLabel(Unrepresentable, KeyError):
    """A label's feature has no such name or number."""


class MissingField(DataError, KeyError):
    """A sample lacks a column that the writer was told."""


class WrongType(Unrepresentable, TypeError):
    """A value of a type that the column does not take."""


class UsageError(LadingError, ValueError):
    """The call is wrong."""

    exit_status = 2


class UnknownArgument(UsageError, TypeError):
    """An argument that the function lacks."""


class WrongFeature(UsageError, TypeError):
    """Something else than a feature, or one that columns cannot be made for."""


class FunctionError(LadingError, RuntimeError):
    """A function of the user's raised an error, which is the cause of this one."""


class MissingTag(UsageError, KeyError):
    """A template of file names has a tag that was not given."""


class SeveralSplits(UsageError):
    """A folder of several datasets, where one is asked for.

    Attributes:
        splits: their names. They are folders below that of the file which lists them, unless `by_name`.
        by_name: whether names of files, or a peer's list of files, tell the splits; then the error names the folder.
    """

    splits: Sequence[str] = ()
    by_name: bool = False


class SourceNotFound(UsageError, FileNotFoundError):
    """Nothing is at the place, or nothing matches the pattern."""


class DestinationExists(UsageError, FileExistsError):
    """The destination holds something already."""


class UnfinishedDataset(UsageError):
    """A dataset on a store that is being written, or whose job died while its files got their names."""


class UnknownFormat(UsageError):
    """No registered format has this name, or recognises this file."""


class NoSuchSample(UsageError, IndexError):
    """A number that no sample of the dataset has."""


class MissingExtra(UsageError, ImportError):
    """A feature needs a package that is not installed, or that cannot be imported."""


def missing_extra(
    error: ImportError | OSError, need: str, package: str, advice: str, *, file: str | None = None
) -> MissingExtra:
    """Return the error for a failed import: of an absent package, or of one that is there and cannot be imported.

    Args:
        error: of the import.
        need: what needs the package, which it names last: `videos are decoded with PyAV`.
        package: the module that is imported.
        advice: how to install the package.
        file: path or URL that needs it.
    """
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    if isinstance(cause, ModuleNotFoundError) and cause.name == package:
        return MissingExtra(f"{need}, which is not installed", file=file, advice=advice)
    return MissingExtra(
        f"{need}, which is installed and cannot be imported", file=file, found=str(cause)[:200],
        advice=f"'python -c \"import {package}\"' shows the reason.",
    )  # fmt: skip


class StoreError(LadingError, OSError):
    """The machine or a store failed."""

    exit_status = 3


class DatasetReplaced(StoreError):
    """Another dataset took the place of one that is open: rows of both would be mixed. Open it again."""


class NotFound(StoreError, FileNotFoundError):
    """A file that should be there is not."""


class ShortRead(StoreError):
    """A store gave fewer bytes than asked for."""


def is_damage(error: LadingError) -> bool:
    """Return whether an error tells about the data: bad bytes, or a file that is missing, too short, or no file.

    Any other StoreError is of the machine, of one of its limits, or of a store. It says nothing about the data.
    """
    if isinstance(error, StoreError):
        return isinstance(error, (NotFound, ShortRead)) or error.errno in _NO_FILE
    return isinstance(error, DataError)


class _SuppressDamage(AbstractContextManager[None, bool]):
    def __enter__(self) -> None:
        """Begin the body."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Return whether the error is suppressed."""
        return isinstance(error, LadingError) and is_damage(error)


def suppress_damage() -> AbstractContextManager[None, bool]:
    """Suppress errors of the body that tell about the data (`is_damage`)."""
    return _SuppressDamage()
