"""Media archives: read records in order and at random, write them."""

from __future__ import annotations

import json
import mmap
import os
import random
from collections.abc import Callable, Iterator

from harness import Case, Done, Place

_SEED = 5


def _places(place: Place, *, shuffled: bool = False) -> list[tuple[str, int, int, int]]:
    """Path, offset, length and unpacked size of each record."""
    with open(os.path.join(place.data, "media/places.json"), encoding="utf-8") as file:
        places = [tuple(found) for found in json.load(file)]
    if shuffled:
        random.Random(_SEED).shuffle(places)
    return places


def _contents(place: Place) -> Iterator[bytes]:
    """The media out of a mapped file, each let go before the next."""
    with open(os.path.join(place.data, "media/contents.bin"), "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    at = 0
    for *_, size in _places(place):
        yield mapped[at : at + size]
        at += size


def _read_by_datatrove(workers: int, *, shuffled: bool = False) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        from datatrove.data import Document, Media
        from datatrove.pipeline.media.media_readers.zstd import ZstdReader

        places, folder = _places(place, shuffled=shuffled), os.path.join(place.data, "media/archive")

        def work() -> Done:
            count = size = 0
            documents = (
                Document("", str(at), [Media(str(at), 0, "", path=path, offset=offset, length=length)])
                for at, (path, offset, length, _) in enumerate(places)
            )
            for document in ZstdReader(folder, workers=workers, preserve_order=True).run(documents):
                count += 1
                size += len(document.media[0].media_bytes)
            return Done(count, size)

        return work

    return way


def _read_by_lading(workers: int, *, shuffled: bool = False) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        from lading.media import MediaReader

        places, folder = _places(place, shuffled=shuffled), os.path.join(place.data, "media/archive")

        def work() -> Done:
            count = size = 0
            documents = (
                {"id": str(at), "media": [{"id": str(at), "path": path, "offset": offset, "length": length}]}
                for at, (path, offset, length, _) in enumerate(places)
            )
            for document in MediaReader(folder, workers=workers, preserve_order=True).run(documents):
                count += 1
                size += len(document["media"][0]["media_bytes"])
            return Done(count, size)

        return work

    return way


def _read_bare(*, shuffled: bool = False) -> Callable[[Place], Callable[[], Done]]:
    """`pread` and one decompressor that is told the size: no documents, nothing checked."""

    def way(place: Place) -> Callable[[], Done]:
        import zstandard

        places = _places(place, shuffled=shuffled)
        files = {path: os.open(os.path.join(place.data, "media/archive", path), os.O_RDONLY) for path, *_ in places}
        unpacker = zstandard.ZstdDecompressor(format=zstandard.FORMAT_ZSTD1_MAGICLESS)

        def work() -> Done:
            total = 0
            for path, offset, length, size in places:
                total += len(unpacker.decompress(os.pread(files[path], length, offset), max_output_size=size))
            return Done(len(places), total)

        return work

    return way


def _write_by_datatrove(place: Place) -> Callable[[], Done]:
    from datatrove.data import Document, Media
    from datatrove.pipeline.media.media_writers.zstd import ZstdWriter

    def work() -> Done:
        count = size = 0
        media = (Media(str(at), 0, "", media_bytes=data) for at, data in enumerate(_contents(place)))
        for document in ZstdWriter(os.path.join(place.out, "new")).run(Document("", one.id, [one]) for one in media):
            count += 1
            size += len(document.media[0].media_bytes)
        return Done(count, size)

    return work


def _write_by_lading(workers: int) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        from lading.media import MediaWriter

        def work() -> Done:
            count = size = 0
            media = ({"id": str(at), "media_bytes": data} for at, data in enumerate(_contents(place)))
            writer = MediaWriter(os.path.join(place.out, "new"), workers=workers)
            for document in writer.run({"id": one["id"], "media": [one]} for one in media):
                count += 1
                size += len(document["media"][0]["media_bytes"])
            return Done(count, size)

        return work

    return way


def _write_bare(place: Place) -> Callable[[], Done]:
    """One compressor, one call a record, one thread."""
    import zstandard

    params = zstandard.ZstdCompressionParameters.from_level(
        3, format=zstandard.FORMAT_ZSTD1_MAGICLESS, write_content_size=False
    )
    packer = zstandard.ZstdCompressor(compression_params=params)

    def work() -> Done:
        count = size = 0
        with open(os.path.join(place.out, "new"), "wb", buffering=0) as file:
            for data in _contents(place):
                file.write(packer.compress(data))
                count += 1
                size += len(data)
        return Done(count, size)

    return work


def _read_case(name: str, *, shuffled: bool) -> Case:
    return Case(
        name,
        "media/archive/*",
        peer="datatrove, 4 workers",
        limit="pread and decompress",
        ways={
            "datatrove, 1 worker": _read_by_datatrove(1, shuffled=shuffled),
            "datatrove, 2 workers": _read_by_datatrove(2, shuffled=shuffled),
            "datatrove, 4 workers": _read_by_datatrove(4, shuffled=shuffled),
            "lading, 1 worker": _read_by_lading(1, shuffled=shuffled),
            "lading, 2 workers": _read_by_lading(2, shuffled=shuffled),
            "pread and decompress": _read_bare(shuffled=shuffled),
        },
    )


CASES = (
    _read_case("read media in order", shuffled=False),
    _read_case("read media at random", shuffled=True),
    Case(
        "write media",
        "media/contents.bin",
        peer="datatrove",
        limit="compress and write",
        ways={
            "datatrove": _write_by_datatrove,
            "lading, 1 worker": _write_by_lading(1),
            "lading, 2 workers": _write_by_lading(2),
            "compress and write": _write_bare,
        },
        writes=True,
    ),
)
