"""A job that converts, as its user asked for it, before its source is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.query import Query
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.dataset.transform.unlisted_fields import with_needed_fields
from lading._core.formats.registry import get_format
from lading._core.jobs.engine.progress import OnProgress
from lading._core.storage.base import Store
from lading._core.storage.stores import Stores
from lading.options import ReadOptions, WriteOptions

__all__ = ["Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """A job that converts, as its user asked for it.

    Attributes:
        query: one dataset, and the steps of the job behind its own.
        write: how the destination is written.
        columns: columns to keep; None keeps all.
        on_progress: called after every batch.
        made: what functions of the dataset made already.
    """

    query: Query
    write: WriteOptions
    columns: tuple[str, ...] | None = None
    on_progress: OnProgress | None = None
    made: ChosenSamples | None = None

    @property
    def read(self) -> ReadOptions:
        """How the source is read."""
        return self.query.read

    @property
    def steps(self) -> tuple[Step, ...]:
        """Which rows are kept, and how they change."""
        return self.query.steps

    @property
    def stores(self) -> Stores:
        """Which store serves which URL."""
        return self.query.stores

    @property
    def limit(self) -> int | None:
        """The most samples to convert."""
        return min((step.most_samples for step in self.steps if step.most_samples is not None), default=None)

    @property
    def chooses(self) -> bool:
        """Whether rows are left out or changed, but for those behind a limit."""
        return any(step.most_samples is None for step in self.steps)

    @property
    def maps_batches(self) -> bool:
        """Whether a function replaces batches."""
        return any(step.replaces_batches for step in self.steps)

    @property
    def may_call_ahead(self) -> bool:
        """Whether functions may be called for samples in any order, before the tasks, and what they make be kept."""
        at_once = any(step.counts_samples or step.replaces_batches for step in self.steps)
        functions = any(step.is_spooled for step in self.steps)
        return functions and not (at_once or self.write.dry_run or self.write.max_failures)

    def in_phase(self, phase: str) -> OnProgress | None:
        """A function that reports the progress of a phase of the job; None where nobody looks."""
        report = self.on_progress
        return None if report is None else lambda done: report(replace(done, phase=phase))

    @property
    def looks_at_values(self) -> bool:
        """Whether a condition or a function looks at values."""
        return any(step.calls_function or step.row_condition is not None for step in self.steps)

    def keeps_columns(self, shards: Shards) -> bool:
        """Whether every column of the source is written."""
        return self.columns is None and shards.target is None and self.write.schema_policy == "union"

    def copies(self, shards: Shards) -> bool:
        """Whether samples become samples of the same format, and nothing changes."""
        options, target = self.write.options or {}, get_format(self.write.format)
        changed = any(options.get(name) == value for name, value in target.info.presets.write_changed.items())
        as_they_are = shards.types is None and not shards.format_options.get("lists") and not changed
        kept = self.keeps_columns(shards) and not self.chooses and as_they_are
        return kept and shards.format == target.name and not shards.has_items

    @classmethod
    def of(
        cls,
        query: Query,
        write: WriteOptions,
        columns: Sequence[str] | None = None,
        steps: Sequence[Step] = (),
        on_progress: OnProgress | None = None,
    ) -> Job:
        """Return the job for a dataset, whose own steps come before those of the job.

        Fields of documents that the steps need are read, and dropped behind them.

        The last `Repartition` of its steps says where shards end, unless an argument of the job does.
        """
        cuts = [step.cut for step in query.steps if step.cut is not None]
        before = tuple(step for step in query.steps if step.cut is None)
        if cuts and write.shard_size is None and not write.counts_samples:
            write = replace(write, **cuts[-1])
        read, every = with_needed_fields(query.read, (*before, *steps))
        kept = None if columns is None else tuple(columns)
        return cls(query.replace(read=read, steps=every), write, kept, on_progress, query.made)

    def with_absolute_paths(self) -> Job:
        """Return the job as processes of an executor read it, whatever their current folder is."""
        return replace(self, query=self.query.absolute()) if self.write.sharing.leaves_process else self

    def with_steps(self, steps: Sequence[Step]) -> Job:
        """Return the job with other steps."""
        return replace(self, query=self.query.replace(steps=tuple(steps)))

    def reading(self, **changes: Any) -> Job:
        """Return the job with other values of some options of reading."""
        return replace(self, query=self.query.reading(**changes))

    def with_store(self, prefix: str, store: Store) -> Job:
        """Return the job with a store for URLs of a prefix, besides its own."""
        return self.reading(stores=self.stores.and_for({prefix: store}))

    def with_storage_options(self, storage_options: Mapping[str, Any] | None) -> Job:
        """Return the job with further options of stores, as users give them. Raises UsageError."""
        stores = Stores.of(self.read.stores, storage_options)
        return self if stores is self.read.stores else self.reading(stores=stores)
