"""Dedup by content beside reading the payload: it reads and hashes all of it once."""

from __future__ import annotations

from collections.abc import Callable

from harness import Case, Done, Place

_KINDS = {"tar": "{}/*.tar", "mds": "{}-mds/*.mds", "parquet": "{}/*.parquet"}


def _by_dedup(corpus: str, pattern: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        paths, payload = place.files(pattern), place.facts(corpus)["payload_bytes"]

        def work() -> Done:
            with lading.open(paths, mmap=False) as dataset:
                return Done(len(dataset.dedup(by="content")), payload)

        return work

    return way


def _by_reading(corpus: str, pattern: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        paths, payload = place.files(pattern), place.facts(corpus)["payload_bytes"]

        def work() -> Done:
            with lading.open(paths, mmap=False) as dataset:
                return Done(sum(batch.num_rows for batch in dataset.batches()), payload)

        return work

    return way


_READING = "reading the payload"


def _case(corpus: str, kind: str) -> Case:
    pattern = _KINDS[kind].format(corpus)
    ways = {"lading": _by_dedup(corpus, pattern), _READING: _by_reading(corpus, pattern)}
    return Case(f"dedup {corpus} {kind} by content", pattern, peer=_READING, limit=_READING, ways=ways)


CASES = tuple(_case(corpus, kind) for corpus in ("images", "texts") for kind in ("tar", "mds"))
