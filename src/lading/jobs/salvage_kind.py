"""How the shards of a damaged source are read, and what beside them may say of them what is not so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lading.errors import LadingError, SidecarMismatch
from lading.formats.base import AnyFormat, Level, ShardFile
from lading.interleaved.references import Follower
from lading.options import InterleavedOptions
from lading.storage.fetch import Fetcher

__all__ = ["Kind", "index_lies", "sidecar_of", "without_sidecar", "wrong_sidecar"]


@dataclass(frozen=True, slots=True)
class Kind:
    """How the shards of a source are read.

    Attributes:
        format: their format.
        view: how rows are taken.
        options: options of the format.
        interleaved: names of fields and policies for interleaved data.
        schema: of the rows, where a manifest keeps it.
        members: of tars: what their members stand for, where that is known.
        fetcher: what references are read with.
        follower: what finds the files that `source_ref` texts name.
        index_file: the index that lists the shards, where it is that which says what is in them, and no manifest.
        example: what other shards say that every sample has, where some can be read; asked of tars.
    """

    format: AnyFormat
    view: str
    options: Mapping[str, Any]
    interleaved: InterleavedOptions
    schema: pa.Schema | None
    members: pa.Schema | None
    fetcher: Fetcher
    follower: Follower
    index_file: str | None = None
    example: Callable[[], pa.Schema | None] = lambda: None


def wrong_sidecar(kind: Kind, source: ShardFile) -> LadingError | None:
    """Return what is wrong with the sidecar of a sound shard."""
    path = sidecar_of(kind, source)
    if path is None:
        return None
    found = kind.format.check(source, kind.format.read_options({**kind.options, **source.options}), Level.QUICK)
    return next((one.error for one in found if one.error is not None and one.error.file == path), None)


def without_sidecar(kind: Kind, source: ShardFile) -> ShardFile:
    """Return the shard with options that ignore its sidecar."""
    return replace(source, options={**source.options, **kind.format.info.without_sidecar})


def sidecar_of(kind: Kind, source: ShardFile) -> str | None:
    """Return the path of a shard's sidecar, if it exists and the options use it."""
    return kind.format.sidecar(source, kind.format.read_options({**kind.options, **source.options}))


def index_lies(index_file: str, source: ShardFile, error: LadingError) -> LadingError:
    """The finding that an index says of a shard what is not so, as reading the shard by it shows."""
    return SidecarMismatch(f"what the index says of {source.place} is not so: {error.message}", file=index_file,
                           expected=error.expected, found=error.found)  # fmt: skip
