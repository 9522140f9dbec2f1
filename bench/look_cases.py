"""Read loose files, and write samples as loose files, beside the loops that people write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import Case, Done, Place, counted

_PATTERN = "images/*.tar"
_SHARDS = 2
_LOOP = "a loop over files"


def _folder(place: Place) -> str:
    """Return a folder with the samples of two tars as loose files; made before the time is taken."""
    from lading._core.jobs.dataset.export import export

    folder = os.path.join(place.out, "loose")
    export(place.files(_PATTERN)[:_SHARDS], folder)
    return folder


def _size(sample: dict) -> int:
    return sum(len(value) for name, value in sample.items() if name != "__key__")


def _read_by_loop(place: Place) -> Callable[[], Done]:
    folder = _folder(place)

    def samples() -> Iterator[dict]:
        groups: dict[str, list[str]] = {}
        for path, _, names in os.walk(folder):
            for name in names:
                groups.setdefault(os.path.join(path, name.partition(".")[0]), []).append(os.path.join(path, name))
        for key in sorted(groups):
            yield {path.rpartition("/")[2].partition(".")[2]: Path(path).read_bytes() for path in groups[key]}

    return lambda: counted(samples(), _size)


def _read_by_lading(place: Place) -> Callable[[], Done]:
    import lading

    folder = _folder(place)

    def work() -> Done:
        with lading.open(folder, format="files") as ds:
            return counted(ds.samples(raw=True), _size)

    return work


def _written_by_loop(place: Place) -> Callable[[], Done]:
    import webdataset as wds

    def work() -> Done:
        folder = Path(place.out, "loop")
        folder.mkdir()
        count = size = 0
        for sample in wds.WebDataset(place.files(_PATTERN)[:_SHARDS], shardshuffle=False):
            count += 1
            for field in ("jpg", "json"):
                size += (folder / f"{sample['__key__']}.{field}").write_bytes(sample[field])
        return Done(count, size)

    return work


def _written_by_lading(place: Place) -> Callable[[], Done]:
    from lading._core.jobs.dataset.export import export

    def work() -> Done:
        done = export(place.files(_PATTERN)[:_SHARDS], os.path.join(place.out, "lading"))
        return Done(done.samples, done.size_bytes)

    return work


CASES = (
    Case("read files", _PATTERN, peer=_LOOP, limit=_LOOP, ways={"lading": _read_by_lading, _LOOP: _read_by_loop}),
    Case(
        "export files", _PATTERN, peer="webdataset, a loop", limit="webdataset, a loop",
        ways={"lading": _written_by_lading, "webdataset, a loop": _written_by_loop},
    ),
)  # fmt: skip
