"""A trial of a conversion: how large its output is, before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from lading._core.dataset.order.spooled_order import SpooledOrder
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.transform.function_spool import StepSpool
from lading._core.formats.registry import get_format
from lading._core.interleaved.tar_writer import Roles
from lading._core.jobs.convert.converter import Converter
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.tasks import Piece, Rates
from lading._core.manifest.values import FOLDER
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.cutting import Cut
from lading._core.pipeline.finished import FinishedShards
from lading._core.pipeline.open_shard import BuildFolder
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.pipeline.write import PartWriter
from lading._core.storage.background import Background
from lading._core.storage.memory import MemoryStore
from lading.errors import LadingError

__all__ = ["tried_rates", "tried_ratio"]

_TRIED_SHARDS = 3
_TRIED_BYTES = 4 << 20
"""Payload of a shard that is converted for the trial."""
_ALL_BYTES = 1 << 62
_LEAST_RATIO = 0.001


def tried_rates(
    shards: Shards, spec: JobPlan, pieces: Sequence[Piece], spools: Sequence[StepSpool | None] = ()
) -> Rates:
    """Return the bytes that a conversion writes, found by the first rows of a few pieces of the source, in memory.

    What is reported and what fails is left to the conversion itself. Spools take what functions make. Peak memory:
    some 20 MB.
    """
    read = written = payload = 0.0
    for number in sorted({round(i * (len(pieces) - 1) / (_TRIED_SHARDS - 1)) for i in range(_TRIED_SHARDS)}):
        with suppress(LadingError), shards.reporting_to(Counter()):
            piece = _long_piece(pieces, number)
            found = _tried(shards, spec, range(piece.shard, piece.shard + 1), piece, spools=spools)
            share, size = found[0], piece.size_bytes
            read += share * size if share else min(found[2], size)
            written, payload = written + found[1], payload + found[2]
    if not (read and written):
        return Rates()
    return Rates(written / read, written / payload if payload else None)


def _long_piece(pieces: Sequence[Piece], number: int) -> Piece:
    """Return a piece with those behind it in its shard, until there is enough for a trial."""
    found = pieces[number]
    for more in pieces[number + 1 :]:
        if found.span is None or more.span is None or more.shard != found.shard or found.size_bytes > _TRIED_BYTES:
            break
        found = replace(found, size_bytes=found.size_bytes + more.size_bytes,
                        span=found.span.through(more.span))  # fmt: skip
    return found


def tried_ratio(
    shards: Shards, spec: JobPlan, spooled_order: SpooledOrder, spools: Sequence[StepSpool | None] = ()
) -> float:
    """Return the bytes that a conversion writes for each byte of payload, found by the first samples in a new order."""
    written = payload = 0
    with suppress(LadingError), shards.reporting_to(Counter()):
        _, written, payload = _tried(
            shards, spec, range(spooled_order.count), spooled_order=spooled_order, spools=spools
        )
    return max(written / payload, _LEAST_RATIO) if written and payload else 1.0


def _tried(
    shards: Shards, spec: JobPlan, tried: range, piece: Piece | None = None, spooled_order: SpooledOrder | None = None,
    spools: Sequence[StepSpool | None] = (),
) -> tuple[float, int, int]:  # fmt: skip
    """Share of a piece, or of places, that was read, bytes that were written, and bytes of payload."""
    store, write, fmt = MemoryStore(), spec.write, get_format(spec.write.format)
    kind = ShardKind(fmt, spec.view, fmt.write_options(write.options or {}), Roles(dict(spec.schemas.roles)), "none")
    share, payload = 0.0, 0

    def is_enough(batch: Batch) -> bool:
        nonlocal share, payload
        share, payload = batch.source_share or 0.0, payload + batch.size_bytes
        return payload >= _TRIED_BYTES

    small = replace(spec, write=replace(write, max_batch_bytes=_TRIED_BYTES))
    background = Background("lading-trial")
    with ExitStack() as held:
        held.callback(background.stop)
        made = FinishedShards(store, "trial", FOLDER)
        writer = PartWriter(
            BuildFolder(store, "trial"), kind, made, closing=background, name="{:06d}".format, cut=Cut(_ALL_BYTES),
            schema=spec.schemas.schema_written,
        )  # fmt: skip
        held.callback(writer.abort)
        sizes = {} if piece is None else {piece.shard: piece.size_bytes}
        spans = () if piece is None else [piece.span]
        converter = Converter(shards, small, spooled_order, sizes=sizes, spools=spools)
        if converter.copy(tried, writer, spans, is_enough):
            share = 1.0
        writer.end_part(Cut(_ALL_BYTES))
        background.wait()
    written = sum(facts.size_bytes + facts.beside_bytes for _, facts in made.facts)
    return share, written, payload
