"""A conversion as its user asked for it, before its source is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.source import Source, source_names
from lading._core.dataset.steps.base import Step
from lading._core.dataset.transform.concat import Parts
from lading._core.dataset.transform.unlisted_fields import with_needed_fields
from lading._core.formats.registry import get_format
from lading._core.jobs.engine.progress import OnProgress
from lading._core.storage.base import Store
from lading._core.storage.stores import Stores
from lading.options import ReadOptions, WriteOptions

__all__ = ["ConversionJob", "absolute_path"]


@dataclass(frozen=True, slots=True)
class ConversionJob:
    """A conversion as its user asked for it.

    Attributes:
        source: one dataset.
        read: how the source is read.
        write: how the destination is written.
        columns: columns to keep; None keeps all.
        steps: which rows are kept, and how they change.
        on_progress: called after every batch.
        chosen: the samples of the dataset that is converted: what its functions made already.
    """

    source: Source
    read: ReadOptions
    write: WriteOptions
    columns: tuple[str, ...] | None
    steps: tuple[Step, ...]
    on_progress: OnProgress | None = None
    chosen: ChosenSamples | None = None

    @property
    def stores(self) -> Stores:
        """Which store serves which URL."""
        return self.read.stores or Stores()

    @property
    def limit(self) -> int | None:
        """The most samples to convert."""
        return min((step.most_samples for step in self.steps if step.most_samples is not None), default=None)

    @property
    def chooses(self) -> bool:
        """Whether rows are left out or changed, but for those behind a limit."""
        return any(step.most_samples is None for step in self.steps)

    @property
    def opening(self) -> dict[str, Any]:
        """Arguments of `open_shards`."""
        return {each.name: getattr(self.read, each.name) for each in fields(self.read)}

    @property
    def maps_batches(self) -> bool:
        """Whether a function replaces batches."""
        return any(step.replaces_batches for step in self.steps)

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
        as_they_are = shards.types is None and not shards.format_options.get("lists")
        kept = self.keeps_columns(shards) and not self.chooses and as_they_are
        return kept and shards.format == get_format(self.write.format).name and not shards.has_items

    def of(
        self, source: Source, read: ReadOptions, before: tuple[Step, ...], chosen: ChosenSamples | None = None
    ) -> ConversionJob:
        """Return the job for another dataset, whose own steps come before those of the job.

        Fields of documents that the steps need are read, and dropped behind them.

        The last `Repartition` of its steps says where shards end, unless an argument of the job does.
        """
        cuts = [step.cut for step in before if step.cut is not None]
        steps, write = tuple(step for step in before if step.cut is None), self.write
        if cuts and write.shard_size is None and not write.counts_samples:
            write = replace(write, **cuts[-1])
        read, every = with_needed_fields(read, (*steps, *self.steps))
        return replace(self, source=source, read=read, write=write, steps=every, chosen=chosen)

    def with_absolute_paths(self) -> ConversionJob:
        """Return the job as processes of an executor read it, whatever their current folder is."""
        source = self.source
        if not self.write.sharing.leaves_process:
            return self
        if not isinstance(source, Parts):
            names = [absolute_path(name) for name in source_names(source, self.stores)]
            source = names[0] if len(names) == 1 else names
        roots = [absolute_path(os.fspath(root)) for root in self.read.roots]
        return replace(self, source=source, read=replace(self.read, roots=roots))

    def with_store(self, prefix: str, store: Store) -> ConversionJob:
        """Return the job with a store for URLs of a prefix, besides its own."""
        return replace(self, read=replace(self.read, stores=self.stores.and_for({prefix: store})))

    def with_storage_options(self, storage_options: Mapping[str, Any] | None) -> ConversionJob:
        """Return the job with further options of stores, as users give them. Raises UsageError."""
        stores = Stores.of(self.read.stores, storage_options)
        return self if stores is self.read.stores else replace(self, read=replace(self.read, stores=stores))


def absolute_path(name: str) -> str:
    """Return a path from the current folder as one from `/`; URLs, absolute and empty paths stay."""
    here = os.getcwd()
    if not name or name.startswith("/") or "://" in name or any(sign in here for sign in "*?[{"):
        return name
    return os.path.join(here, name)
