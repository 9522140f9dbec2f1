"""Local files by another scheme, `counted://`, as a remote store that counts what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Lock
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

__all__ = ["CountedFiles"]


class CountedFiles(LocalFileSystem):
    """Local files.

    Attributes:
        listings: how often a folder was listed.
        requests: how many ranges were read.
        read_bytes: how many bytes were read.
        behind: reads of bytes behind this one wait for `gate`.
        gate: open unless a test closes it.
    """

    protocol = "counted"
    listings = requests = read_bytes = behind = 0
    gate = Event()
    _counting = Lock()

    @classmethod
    def begin(cls) -> None:
        """Count from zero."""
        fsspec.register_implementation("counted", cls, clobber=True)
        cls.listings = cls.requests = cls.read_bytes = cls.behind = 0
        cls.gate.set()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("counted://")))

    def find(self, *args: Any, **options: Any) -> Any:
        """List a folder and all below it."""
        with self._counting:
            type(self).listings += 1
        return super().find(*args, **options)

    def cat_ranges(self, paths: Any, starts: Sequence[int], ends: Sequence[int], *args: Any, **options: Any) -> Any:
        """Read ranges of files."""
        with self._counting:
            type(self).requests += len(starts)
            type(self).read_bytes += sum(ends) - sum(starts)
        if max(ends) > self.behind:
            self.gate.wait()
        return super().cat_ranges(paths, starts, ends, *args, **options)
