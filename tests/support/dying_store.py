"""A store whose process is killed in the middle of a commit."""

from __future__ import annotations

from collections.abc import Sequence

from lading._core.storage.base import FileInfo
from lading._core.storage.objects import ObjectStore

__all__ = ["DyingStore", "Killed"]


class Killed(Exception):
    pass


class DyingStore(ObjectStore):
    """A store whose process is killed before it copies a file of this name."""

    dies_at = "nothing"

    def copy_all(self, copies: Sequence[tuple[FileInfo, str]]) -> None:
        for each in copies:
            if each[1].endswith(self.dies_at):
                raise Killed
            super().copy_all([each])
