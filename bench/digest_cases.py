"""The content digest of datasets, beside xxh3 of the bytes of their files: as fast as they can be read and hashed."""

from __future__ import annotations

from collections.abc import Callable

from harness import Case, Done, Place, hash_files

_KINDS = {"tar": "{}/*.tar", "arrow": "{}-arrow/*.arrow", "mds": "{}-mds/*.mds", "parquet": "{}/*.parquet"}


def _by_lading(corpus: str, pattern: str, times: int, workers: int | None) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        paths = place.files(pattern) * times

        def work() -> Done:
            return Done(lading.digest(paths, workers=workers).count, place.facts(corpus)["payload_bytes"] * times)

        return work

    return way


def _by_xxh3(corpus: str, pattern: str, times: int) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import xxhash

        facts = place.facts(corpus)
        paths = place.files(pattern) * times

        def work() -> Done:
            hash_files(paths, xxhash.xxh3_128)
            return Done(facts["samples"] * times, facts["payload_bytes"] * times)

        return work

    return way


_LIMIT = "xxh3 of the files"


def _case(corpus: str, kind: str, times: int = 1) -> Case:
    pattern = _KINDS[kind].format(corpus)
    ways = {
        "lading": _by_lading(corpus, pattern, times, None),
        "lading, one process": _by_lading(corpus, pattern, times, 1),
        _LIMIT: _by_xxh3(corpus, pattern, times),
    }
    name = f"digest {corpus} {kind}" + (f", {times} times" if times > 1 else "")
    return Case(name, pattern, peer=_LIMIT, limit=_LIMIT, ways=ways)


CASES = tuple(
    _case(corpus, kind, times)
    for corpus, kinds in {
        "images": ("tar", "arrow", "mds"),
        "texts": ("tar", "arrow", "mds"),
        "documents": ("tar", "parquet"),
    }.items()
    for kind in kinds
    for times in (1, 10)  # of what takes longer than a few seconds, processes share the shards
)
