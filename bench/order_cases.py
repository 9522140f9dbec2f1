"""Shuffle and sort whole datasets, beside a plain copy of them.

`python order_cases.py` arranges ten million simulated references without payload: seconds, memory, temporary bytes.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

import numpy as np

from harness import Case, Done, Place

_COPY = "lading convert, in order"


def _writes(corpus: str, pattern: str, to: str, order: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        paths, facts = place.files(pattern), place.facts(corpus)

        def work() -> Done:
            with lading.open(paths) as ds:
                chosen = {"shuffle": lambda: ds.shuffle(1), "copy": lambda: ds}[order]()
                done = lading.convert(paths if order == "copy" else chosen, place.out, format=to, checksums="files")
            return Done(done.samples, facts["payload_bytes"])

        return work

    return way


def _case(corpus: str, pattern: str, to: str) -> Case:
    ways = {"lading": _writes(corpus, pattern, to, "shuffle"), _COPY: _writes(corpus, pattern, to, "copy")}
    return Case(f"shuffle {corpus} {to}", pattern, peer=_COPY, limit=_COPY, ways=ways, writes=True)


CASES = (
    _case("images", "images/*.tar", "webdataset"),
    _case("texts", "texts/*.tar", "webdataset"),
    _case("documents", "documents/*.parquet", "parquet"),
)


def arrange_references(count: int = 10_000_000, each: int = 10_000, value: int = 60_000) -> None:
    """Arrange references to values of 60 KB in files of 10,000, in a random order; print what it takes."""
    import pyarrow as pa

    from lading._core.arrow.references import FileEntry, concat, make_refs, unpack, with_files
    from lading._core.dataset.order.numbers import random_order
    from lading._core.dataset.order.spooled_order import Spool

    began = time.perf_counter()
    order = random_order(count, 0)
    places = np.empty(count, np.int64)
    places[order] = np.arange(count)
    offset, length = np.arange(each) * value, np.full(each, value)
    refs = make_refs(offset, length)
    payload = 0
    with Spool(count, "samples", concat) as spool:
        for file in range(count // each):
            schema = with_files(pa.schema([("jpg", refs.type)]), [FileEntry(f"{file}.tar")])
            batch = pa.record_batch([refs], schema=schema)
            spool.add(batch, np.arange(each), places[file * each : file * each + each])
        made = spool.finish()
        tasks = made.bounds(256 << 20)
        for first, stop, _ in tasks:
            for batch in made.batches(first, stop, 16_384, 128 << 20):
                payload += int(unpack(batch.column("jpg")).length.sum())
        spilled = os.path.getsize(os.path.join(made.folder, "rows"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{count:,} references, {len(tasks):,} tasks: {time.perf_counter() - began:.0f} s, peak {peak} MB,")
    print(f"{spilled / 1e6:.0f} MB of temporary files, {payload / count / value:.3f} reads of each byte of payload")


if __name__ == "__main__":
    arrange_references()
