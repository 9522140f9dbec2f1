"""Where the shards of a dataset come from: files that a user names, or datasets one after another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from lading._core.storage.stores import Stores
from lading.options import ReadOptions

if TYPE_CHECKING:
    from lading._core.dataset.shards.shards import Shards
    from lading._core.dataset.source.source import Source

__all__ = ["ShardSource"]


class ShardSource(ABC):
    """A source of shards: a value that another process can open.

    Attributes:
        repeats_keys: whether samples of equal keys are expected, and counted where keys name the samples written.
    """

    __slots__ = ()
    repeats_keys: ClassVar[bool] = False

    @property
    @abstractmethod
    def names(self) -> Source:
        """The files, folders and patterns whose shards these are, as `lading.open` takes them."""

    @property
    def is_temporary(self) -> bool:
        """Whether the files are there for this process alone, so that no other run or machine can read them."""
        return False

    def pinned(self, stores: Stores | None) -> ShardSource:  # noqa: ARG002 - of names alone
        """Return the source in the version that is there, where a name may come to mean another one."""
        return self

    @abstractmethod
    def open(self, read: ReadOptions) -> Shards:
        """Open the shards, and find the format and the view. Raises as `lading.open`."""

    @abstractmethod
    def absolute(self, stores: Stores) -> ShardSource:
        """Return the source for a process with another current folder."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the source as text for errors and for what shows datasets."""
