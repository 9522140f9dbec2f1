"""The content digest of datasets, beside xxh3 of the bytes of their files: as fast as they can be read and hashed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from harness import Case, Done, Place, hash_files

_KINDS = {"tar": "{}/*.tar", "arrow": "{}-arrow/*.arrow", "mds": "{}-mds/*.mds", "parquet": "{}/*.parquet"}


def _size(paths: Sequence[str]) -> int:
    return sum(os.path.getsize(path) for path in paths)


def _by_lading(pattern: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        paths = place.files(pattern)

        def work() -> Done:
            return Done(lading.digest(paths).count, _size(paths))

        return work

    return way


def _by_xxh3(corpus: str, pattern: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import xxhash

        paths = place.files(pattern)

        def work() -> Done:
            hash_files(paths, xxhash.xxh3_128)
            return Done(place.facts(corpus)["samples"], _size(paths))

        return work

    return way


_LIMIT = "xxh3 of the files"


def _case(corpus: str, kind: str) -> Case:
    pattern = _KINDS[kind].format(corpus)
    ways = {"lading": _by_lading(pattern), _LIMIT: _by_xxh3(corpus, pattern)}
    return Case(f"digest {corpus} {kind}", pattern, peer=_LIMIT, limit=_LIMIT, ways=ways)


CASES = tuple(
    _case(corpus, kind)
    for corpus, kinds in {
        "images": ("tar", "arrow", "mds"),
        "texts": ("tar", "arrow", "mds"),
        "documents": ("tar", "parquet"),
    }.items()
    for kind in kinds
)
