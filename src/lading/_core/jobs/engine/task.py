"""Tasks of any job: what the engine knows of them, and how they are sent to other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from lading._core.jobs.engine.messages import encode_message

__all__ = ["AnyTask", "SentTask", "TaskType"]


class AnyTask(Protocol):
    """A task of whatever job."""

    @property
    def number(self) -> int:
        """Its place among the tasks."""

    @property
    def source_bytes(self) -> int:
        """Size of what it reads."""


TaskType = TypeVar("TaskType", bound=AnyTask)
"""A task of one job."""


@dataclass(frozen=True, slots=True)
class SentTask:
    """A task as it is sent to another process.

    Attributes:
        message: JSON-able values; `number` is its place among the tasks. Its paths are absolute, if the process that
            does it may have another current folder.
        tables: Arrow tables that follow the message.
        files: the first and the last file that is read, for errors.
    """

    message: Mapping[str, Any]
    tables: Sequence[pa.Table | None] = ()
    files: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Its place among the tasks."""
        number: int = self.message["number"]
        return number

    @property
    def file(self) -> str | None:
        """The files as errors name them."""
        return " to ".join(dict.fromkeys(filter(None, self.files))) or None

    def encode(self) -> bytes:
        """Return the task as `do_task` takes it."""
        return encode_message(self.message, self.tables)
