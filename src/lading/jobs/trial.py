"""A trial of a conversion: how large its output is, before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from lading.dataset.shards import Shards
from lading.errors import LadingError
from lading.formats.registry import get_format
from lading.interleaved.tar_writer import Roles
from lading.jobs.converter import Converter
from lading.jobs.spec import Conversion
from lading.jobs.tasks import Rates
from lading.manifest.values import FOLDER
from lading.pipeline.cutting import Cut
from lading.pipeline.finished import FinishedShards
from lading.pipeline.open_shard import BuildFolder
from lading.pipeline.shard_kind import ShardKind
from lading.pipeline.write import PartWriter
from lading.storage.background import Background
from lading.storage.memory import MemoryStore

__all__ = ["tried_rates"]

_TRIED_SHARDS = 3
_TRIED_BYTES = 4 << 20
"""Payload of a shard that is converted for the trial."""
_ALL_BYTES = 1 << 62


def tried_rates(shards: Shards, spec: Conversion, sizes: Sequence[int]) -> Rates:
    """Return the bytes that a conversion writes, found by the first rows of a few shards, in memory.

    What is reported and what fails is left to the conversion itself. Peak memory: some 20 MB.
    """
    before = Counter(shards.counts)
    read = written = payload = 0.0
    for number in sorted({round(i * (len(sizes) - 1) / (_TRIED_SHARDS - 1)) for i in range(_TRIED_SHARDS)}):
        with suppress(LadingError):
            found = _tried(shards, spec, sizes, number)
            read, written, payload = read + found[0], written + found[1], payload + found[2]
    shards.counts.clear()
    shards.counts.update(before)
    if not (read and written):
        return Rates()
    return Rates(written / read, written / payload if payload else None)


def _tried(shards: Shards, spec: Conversion, sizes: Sequence[int], number: int) -> tuple[float, int, int]:
    """Bytes of a shard that were read, those that were written, and those of payload."""
    store, write, fmt = MemoryStore(), spec.write, get_format(spec.write.format)
    kind = ShardKind(fmt, spec.view, fmt.write_options(write.options or {}), Roles(dict(spec.plan.roles)), "none")
    share, payload = 0.0, 0
    small = replace(spec, write=replace(write, max_batch_bytes=_TRIED_BYTES))
    background = Background("lading-trial")
    with ExitStack() as held:
        held.callback(background.stop)
        made = FinishedShards(store, "trial", FOLDER)
        writer = PartWriter(
            BuildFolder(store, "trial"), kind, made, closing=background, name="{:06d}".format, cut=Cut(_ALL_BYTES),
            schema=spec.plan.schema_written,
        )  # fmt: skip
        held.callback(writer.abort)
        converter = Converter(shards, small, sizes=sizes)
        for batch in converter.copied(range(number, number + 1), writer):
            share, payload = batch.source_share or 0.0, payload + batch.size_bytes
            if payload >= _TRIED_BYTES:
                break
        else:
            share = 1.0
        writer.end_part(Cut(_ALL_BYTES))
        background.wait()
    written = sum(facts.size_bytes + facts.beside_bytes for _, facts in made.facts)
    return (share * sizes[number] if share else min(payload, sizes[number])), written, payload
