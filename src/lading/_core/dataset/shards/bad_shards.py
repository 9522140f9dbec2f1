"""Shards that cannot be read: an error, or skipped, counted and listed, as the caller chose."""

from __future__ import annotations

import errno
import shlex
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lading.errors import (
    BadReference,
    CorruptShard,
    DataError,
    LadingError,
    SchemaMismatch,
    SidecarMismatch,
    StoreError,
    Unrepresentable,
    is_damage,
    without_frames,
)
from lading.options import OnBadShard

__all__ = ["BadShards", "SkippedShard", "is_bad_shard", "naming_salvage"]

_OF_THE_FILE = frozenset((errno.EACCES, errno.EPERM, errno.EIO))
"""Errors of the machine that are of one file: another shard may be readable."""


@dataclass(frozen=True, slots=True)
class SkippedShard:
    """A shard that was left out, with all of its samples.

    Attributes:
        file: its path.
        error: why it cannot be read to its end.
    """

    file: str
    error: LadingError

    def to_dict(self) -> dict[str, Any]:
        """Return the shard as JSON-able values: the file, and the error as `LadingError.to_dict`."""
        return {"file": self.file, "error": self.error.to_dict()}


def is_bad_shard(error: LadingError) -> bool:
    """Return whether an error is of one shard alone.

    Rows of another schema, values that the destination cannot hold, and payload of single rows have policies of their
    own. A store that is down is no fault of a shard.
    """
    if isinstance(error, DataError):
        return not isinstance(error, (SchemaMismatch, Unrepresentable, BadReference))
    return isinstance(error, StoreError) and (is_damage(error) or error.errno in _OF_THE_FILE)


def naming_salvage(error: LadingError, source: str | None) -> LadingError:
    """Return the error, with the command that saves the intact samples where the data are damaged.

    Args:
        error: any error.
        source: arguments of `lading salvage` before DST; empty for the file of the error, None for no advice.
    """
    advice, damaged = error.advice or "", isinstance(error, (CorruptShard, SidecarMismatch))
    if source is not None and damaged:
        command = f"'lading salvage {source or shlex.quote(error.file or 'SRC')} DST'"
        if "lading salvage" in advice:
            error.advice = advice.replace("'lading salvage'", command)
        else:
            sentence = f"{command} saves the intact samples."
            ends = not advice or advice.endswith(".")  # else it ends with a command
            error.advice = f"{advice} {sentence}".strip() if ends else f"{sentence} {advice}"
    return error


class BadShards:
    """The shards of a source that could not be read.

    Args:
        policy: what an error of a shard is.
        source: arguments of `lading salvage`, as `naming_salvage` takes them.

    Attributes:
        policy: see above.
        source: see above.
        warns: whether a warning tells each shard that is skipped.
        skipped: the shards that were skipped, by number.
    """

    def __init__(self, policy: OnBadShard, source: str | None = None) -> None:
        self.policy, self.source, self.warns = policy, source, True
        self.skipped: dict[int, SkippedShard] = {}

    @contextmanager
    def advising(self) -> Iterator[None]:
        """Let errors of the body name the command that saves the intact samples."""
        try:
            yield
        except LadingError as error:
            raise naming_salvage(error, self.source) from None

    @contextmanager
    def skipping(self, shard: int, path: str) -> Iterator[None]:
        """Let an error of a shard end the body without an error, if bad shards are skipped.

        Raises:
            LadingError: the error of the body, with advice.
        """
        try:
            yield
        except LadingError as error:
            naming_salvage(error, self.source)
            if self.policy != "skip" or not is_bad_shard(error):
                raise
            self.add(shard, SkippedShard(path, without_frames(error)))

    def add(self, shard: int, skipped: SkippedShard) -> None:
        """Note that a shard was skipped, and warn of a shard that was not skipped before."""
        new = shard not in self.skipped
        self.skipped[shard] = skipped
        if new and self.warns:
            warnings.warn(f"a bad shard is skipped: {skipped.error.problem}", UserWarning, stacklevel=3)

    def refuse_all(self, shards: int) -> None:
        """Raise the first error if none of so many shards could be read."""
        if shards and len(self.skipped) == shards:
            raise self.skipped[min(self.skipped)].error

    def entries(self) -> list[dict[str, Any]]:
        """Return the skipped shards as lines of a ledger, in order."""
        common = {"reason": "bad shard", "outcome": "skipped"}
        return [{"file": bad.file, **common, "detail": bad.error.problem} for _, bad in sorted(self.skipped.items())]

    def listed(self) -> list[Mapping[str, Any]]:
        """Return the skipped shards as JSON-able values, in order."""
        return [self.skipped[shard].to_dict() for shard in sorted(self.skipped)]
