"""A task of a job that only reads: a worker, or another executor's process, looks at some shards."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from lading._core.dataset.query import Query
from lading._core.dataset.shards.shards import Shards
from lading._core.jobs.engine.messages import encode_skipped, plain_value
from lading._core.jobs.engine.progress import Tally
from lading._core.processes.pickled import decode_value
from lading._core.storage.base import store_errors
from lading._core.storage.roots import absolute_path
from lading.errors import StoreError

__all__ = [
    "DIGEST_BYTES",
    "NO_DIGESTS",
    "Look",
    "OnRead",
    "ReadWorker",
    "SentReading",
    "listing_checksum",
    "open_again",
]

DIGEST_BYTES = 16
"""Bytes of a sample's digest."""

OnRead: TypeAlias = Callable[[NDArray[np.uint8], int, int], None]
"""What takes digests, `(samples, 16)`, of samples or of none of them, how many samples these are, and their bytes."""

NO_DIGESTS = np.zeros((0, 16), np.uint8)
"""Digests of no sample."""

Look: TypeAlias = Callable[[Iterable[int], OnRead], Iterator[dict[str, Any]]]
"""What is done with shards, by number: gives JSON-able values for each, in order, once its digests were handed over."""


def open_again(query: Query, known: Mapping[str, Any]) -> Shards:
    """Open the shards of a source as another process did.

    Args:
        query: the source.
        known: options of reading that the other process found out.
    """
    return query.reading(**known).open_shards()


@dataclass(frozen=True, slots=True)
class SentReading:
    """A reading as a worker is sent it: as `Reading`, with what is known of the dataset.

    Attributes:
        begin, open, query, settings: as in `Reading`.
        known: options of reading that were found out.
        listing: a checksum of the shards' paths.
    """

    begin: Callable[..., Look]
    open: Callable[[Query, Mapping[str, Any]], Shards]
    query: Query
    known: Mapping[str, Any]
    settings: Mapping[str, Any]
    listing: str


class ReadWorker:
    """Does tasks of a reading, one after another. The dataset is opened once, for all of them.

    Args:
        sent: the reading, as `Reading.encode` gives it.

    Raises:
        StoreError: the dataset has other shards than the other process found.
    """

    def __init__(self, sent: str) -> None:
        reading: SentReading = decode_value(sent)
        self._dataset = reading.open(reading.query, reading.known)
        self._dataset.bad.warns = False  # the other process does
        if listing_checksum(self._dataset) != reading.listing:
            self._dataset.close()
            raise StoreError("the source changed while it was read", file=self._dataset.listing.folder or None,
                             advice="Do not write to the source while it is read.")  # fmt: skip
        self._look = reading.begin(self._dataset, **reading.settings)

    def do(self, task: Mapping[str, Any], on_tally: Callable[[Tally], None]) -> dict[str, Any]:
        """Look at the shards of a task; return its answer, and give counts on the way.

        Digests go into the file that the task names, or into the answer where the task names none.
        """
        tally, found, path = Tally(), list[Any](), task["digests"]
        digests = bytearray()

        def on_read(more: NDArray[np.uint8], samples: int, size_bytes: int) -> None:
            data = np.ascontiguousarray(more).data
            if path is None:
                digests.extend(data)
            else:
                with store_errors(path), open(path, "ab") as file:
                    file.write(data)
            tally.add(Tally(0, samples, 0, size_bytes))
            on_tally(tally)

        if path is not None:
            with store_errors(path), open(path, "wb"):
                pass  # what a process that died wrote for this task goes
        for one in self._look(task["shards"], on_read):
            found.append(plain_value(one))
            tally.shards += 1
        return {
            "done": task["number"], "found": found, "tally": tally.as_list(),
            "skipped": encode_skipped(self._dataset.bad.skipped), "digests": base64.b64encode(digests).decode(),
        }  # fmt: skip

    def close(self) -> None:
        """Close the dataset."""
        self._dataset.close()


def listing_checksum(dataset: Shards) -> str:
    """Return a checksum of the absolute paths of a dataset's shards."""
    total = xxhash.xxh3_64()
    for chunk in dataset.listing.table["path"].chunks:
        for path in chunk.to_pylist():
            total.update(os.fsencode(absolute_path(path)) + b"\n")
    return total.hexdigest()
