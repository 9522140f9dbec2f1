"""Arrow caches: texts and pictures from dicts and from batches; pictures that are encoded on the way."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from harness import Case, Done, Place
from stable_datasets_way import Image, Value, write_sharded_arrow_cache

_MOST_SHARDS = 4
_DRAWN = 400


def _rows(place: Place, corpus: str) -> list[dict[str, Any]]:
    """Samples as dicts; of pictures those of a few shards, so that they lie in memory."""
    import lading

    pattern = {"texts": "texts/*.tar", "images": "images/*.tar"}[corpus]
    rows = []
    for path in place.files(pattern)[: _MOST_SHARDS if corpus == "images" else None]:
        with lading.open(path) as dataset:
            for sample in dataset.samples(raw=True):
                if corpus == "texts":
                    rows.append({"label": int(sample["cls"]), "text": sample["txt"].decode()})
                else:
                    rows.append({"jpg": sample["jpg"], "json": sample["json"]})
    return rows


def _given(rows: list[dict[str, Any]], corpus: str) -> Callable[[], Iterator[tuple[int, dict[str, Any]]]]:
    """A generator of the rows: texts as they lie there, pictures each as new bytes, as if read from a file."""
    if corpus == "texts":
        return lambda: iter(enumerate(rows))
    held = memoryview(b"".join(row["jpg"] for row in rows))
    ends = list(itertools.accumulate(len(row["jpg"]) for row in rows))
    others = [row["json"] for row in rows]

    def made() -> Iterator[tuple[int, dict[str, Any]]]:
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            yield i, {"jpg": bytes(held[start:end]), "json": others[i]}

    return made


def _size(rows: list[dict[str, Any]]) -> int:
    return sum(len(v) if isinstance(v, (bytes, str)) else 8 for row in rows for v in row.values())


def _features(corpus: str) -> dict[str, Any]:
    from lading._core.features.types import Bytes, Image, Text, Value

    if corpus == "texts":
        return {"label": Value("int64"), "text": Text()}
    return {"jpg": Image(), "json": Bytes()} if corpus == "images" else {"image": Image()}


def _by_stable_datasets(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        rows = _rows(place, corpus)
        size, count, generator = _size(rows), len(rows), _given(rows, corpus)
        if corpus == "texts":
            features = {"label": Value("int64"), "text": Value("string")}
        else:
            features = {"jpg": Image(), "json": Value("large_binary")}

        def work() -> Done:
            write_sharded_arrow_cache(generator(), features, os.path.join(place.out, "new"))
            return Done(count, size)

        return work

    return way


def _by_lading(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        from lading.caches import write_cache

        rows = _rows(place, corpus)
        size, count, generator = _size(rows), len(rows), _given(rows, corpus)

        def work() -> Done:
            write_cache(generator(), _features(corpus), os.path.join(place.out, "new"))
            return Done(count, size)

        return work

    return way


def _batches_by_lading(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import pyarrow as pa

        from lading.caches import write_cache

        rows = _rows(place, corpus)
        kinds = {"label": pa.int64(), "text": pa.string(), "jpg": pa.large_binary(), "json": pa.large_binary()}
        schema = pa.schema([(name, kinds[name]) for name in rows[0]])
        step = {"texts": 16_384, "images": 100}[corpus]
        batches = [pa.RecordBatch.from_pylist(rows[i : i + step], schema) for i in range(0, len(rows), step)]
        size = _size(rows)
        rows.clear()

        def work() -> Done:
            write_cache(iter(batches), _features(corpus), os.path.join(place.out, "new"))
            return Done(sum(map(len, batches)), size)

        return work

    return way


def _limit(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    """The bytes of the values, joined before, written in blocks."""

    def way(place: Place) -> Callable[[], Done]:
        rows = _rows(place, corpus)
        data = memoryview(b"x" * _size(rows))

        def work() -> Done:
            with open(os.path.join(place.out, "new"), "wb", buffering=0) as file:
                file.writelines(data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20))
            return Done(len(rows), len(data))

        return work

    return way


def _drawn() -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(7)
    smooth = chance.integers(0, 200, (32, 32, 3)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
    for i in itertools.islice(itertools.count(), _DRAWN):
        yield {"image": smooth + np.uint8(i % 50)}


def _encode_by_stable_datasets(place: Place) -> Callable[[], Done]:
    def work() -> Done:
        write_sharded_arrow_cache(enumerate(_drawn()), {"image": Image()}, os.path.join(place.out, "new"))
        return Done(_DRAWN, _DRAWN * 256 * 256 * 3)

    return work


def _encode_by_lading(workers: int) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        from lading.caches import write_cache

        def work() -> Done:
            write_cache(_drawn(), _features("drawn"), os.path.join(place.out, "new"), workers=workers)
            return Done(_DRAWN, _DRAWN * 256 * 256 * 3)

        return work

    return way


def _encode_alone(_place: Place) -> Callable[[], Done]:
    """Pillow alone, into memory."""
    from PIL import Image as Pillow

    def work() -> Done:
        for row in _drawn():
            Pillow.fromarray(row["image"]).save(io.BytesIO(), format="PNG")
        return Done(_DRAWN, _DRAWN * 256 * 256 * 3)

    return work


_PEER = "stable-datasets' algorithm"


def _case(corpus: str) -> Case:
    ways = {
        _PEER: _by_stable_datasets(corpus),
        "lading, dicts": _by_lading(corpus),
        "lading, batches": _batches_by_lading(corpus),
        "write": _limit(corpus),
    }
    return Case(f"arrow cache {corpus}", f"{corpus}/*.tar", peer=_PEER, limit="write", ways=ways, writes=True)


CASES = (
    _case("texts"),
    _case("images"),
    Case(
        "arrow cache encode",
        "facts.json",
        peer=_PEER,
        limit="Pillow alone",
        ways={
            _PEER: _encode_by_stable_datasets,
            "lading": _encode_by_lading(1),
            "lading, 2 workers": _encode_by_lading(2),
            "Pillow alone": _encode_alone,
        },
    ),
)
