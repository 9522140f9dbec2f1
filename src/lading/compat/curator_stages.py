"""Stages and tasks of NeMo Curator: its own classes where it is installed, else classes with the same fields.

So the stages of `lading.compat.nemo_curator` stand in a `Pipeline` of the peer, and work without the peer too.

Source: nemo-curator 1.4.0, `stages/base.py`, `tasks/tasks.py`, `tasks/file_group.py`, `tasks/interleaved.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.stores import Stores
from lading.errors import UsageError, missing_extra

__all__ = ["CompositeStage", "FileGroupTask", "InterleavedBatch", "ProcessingStage", "storage_options", "stores_of"]

if TYPE_CHECKING or find_spec("nemo_curator") is None:
    _In = TypeVar("_In")
    _Out = TypeVar("_Out")

    class ProcessingStage(Generic[_In, _Out]):
        """A step that makes tasks of tasks."""

        name = "ProcessingStage"

        def _log_metrics(self, metrics: dict[str, float]) -> None:
            """Take numbers for the report of a pipeline, which only the peer has."""

    class CompositeStage(ProcessingStage[_In, _Out]):
        """Several stages under one name."""

    @dataclass
    class FileGroupTask:
        """Files that are read together."""

        dataset_name: str
        data: list[str] = field(default_factory=list)
        _stage_perf: list[Any] = field(default_factory=list)
        _metadata: dict[str, Any] = field(default_factory=dict)
        task_id: str = field(init=False, default="")
        reader_config: dict[str, Any] = field(default_factory=dict)

        @property
        def num_items(self) -> int:
            """Number of files."""
            return len(self.data)

    @dataclass
    class InterleavedBatch:
        """Rows of interleaved documents: an Arrow table, or a DataFrame of pandas."""

        dataset_name: str
        data: Any = field(default_factory=INTERLEAVED_SCHEMA.empty_table)
        _stage_perf: list[Any] = field(default_factory=list)
        _metadata: dict[str, Any] = field(default_factory=dict)
        task_id: str = field(init=False, default="")

        @property
        def num_items(self) -> int:
            """Number of documents."""
            return len(self.to_pyarrow()["sample_id"].unique())

        def to_pyarrow(self) -> pa.Table:
            """Return the rows as an Arrow table."""
            return self.data if isinstance(self.data, pa.Table) else pa.Table.from_pandas(self.data)

        def to_pandas(self) -> Any:
            """Return the rows as a DataFrame."""
            return self.data.to_pandas() if isinstance(self.data, pa.Table) else self.data

else:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that the peer imports
        try:
            from nemo_curator.stages.base import CompositeStage, ProcessingStage
            from nemo_curator.tasks import FileGroupTask, InterleavedBatch
        except ImportError as error:
            raise missing_extra(error, "these stages are those of NeMo Curator", "nemo_curator", "") from error


def storage_options(given: Mapping[str, Any], argument: str, others: Sequence[str] = ()) -> dict[str, Any]:
    """Return `storage_options` of `read_kwargs` or `write_kwargs`. Raises UsageError for other keys than these."""
    unknown = sorted({*given} - {"storage_options", *others})
    if unknown:
        raise UsageError(f"{argument} has a key that lading does not take", found=", ".join(unknown),
                         expected=", ".join(["storage_options", *others]), advice="Leave it out.")  # fmt: skip
    options = given.get("storage_options") or {}
    if not isinstance(options, Mapping):
        raise UsageError(f"storage_options of {argument} are a dict", found=type(options).__name__)
    return dict(options)


def stores_of(folders: Sequence[str], options: Mapping[str, Any]) -> Stores:
    """Return the stores of folders: by fsspec if there are options for it, and in its memory."""
    remote = [url for url in folders if "://" in url and (options or url.startswith("memory://"))]
    return Stores({url: FsspecStore(url, options=options) for url in remote})
