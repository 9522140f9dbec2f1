"""Loaders: one shuffled epoch in batches of 64 or by size, as bytes or decoded; the first batch of 5,000 shards.

Peers run in PyTorch's `DataLoader`, without worker processes or with two; lading has threads of its own. Batches of
peers are lists of samples, those of lading dicts of columns. Setting up is timed in the case of the first batch alone.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from harness import Case, Done, Place, Way
from peers_here import mosaicml_streaming

_BATCH = 64
_SIZE = 224
_MANY = 5_000
_TINY = 4
_GROUP = 50 * _BATCH
_CHARACTERS = 16_384
_COUNTED = {"images": "jpg", "texts": "txt", "photos": "jpg", "cameras": "jpg"}
"""The column of which values are counted; all columns are read."""


def _size(value: Any) -> int:
    """Bytes of a value; characters of a text; pixels of an image."""
    return len(value) if isinstance(value, (bytes, str)) else value.size


def _epoch_of_samples(batches: Iterable[list[dict[str, Any]]], name: str) -> Done:
    count = size = 0
    for batch in batches:
        count += len(batch)
        size += sum(_size(sample[name]) for sample in batch)
    return Done(count, size)


def _epoch_of_columns(batches: Iterable[dict[str, Any]], name: str) -> Done:
    count = size = 0
    for batch in batches:
        column = batch[name]
        count += len(column)
        size += column.size if isinstance(column, np.ndarray) else sum(map(_size, column))
    return Done(count, size)


def _decoded(name: str, sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, name: _pixels(sample[name])}


def _pixels(data: bytes) -> np.ndarray:
    """A picture decoded at the nearest larger eighth of its size, and resized: as lading does."""
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (_SIZE, _SIZE))
    return np.array(image.convert("RGB").resize((_SIZE, _SIZE), resample=2, reducing_gap=2.0))


# Sources of peers: datasets that a DataLoader takes


def _streaming(folder: str, *, decode: bool = False) -> Any:
    streaming = mosaicml_streaming()
    base = streaming.StreamingDataset
    kind = type("Decoded", (base,), {"__getitem__": _decoded_item}) if decode else base
    return kind(local=folder, batch_size=_BATCH, shuffle=True, shuffle_seed=7)


def _decoded_item(dataset: Any, at: int) -> dict[str, Any]:
    from streaming import StreamingDataset

    return _decoded("jpg", StreamingDataset.__getitem__(dataset, at))


def _saved(folder: str, *, decode: bool = False) -> Any:
    import datasets

    saved = datasets.load_from_disk(folder, keep_in_memory=False)
    return saved.with_transform(_decoded_columns) if decode else saved


def _decoded_columns(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**columns, "jpg": [_pixels(value) for value in columns["jpg"]]}


def _webdataset(paths: list[str], *, decode: bool = False) -> Any:
    import webdataset

    found = webdataset.WebDataset(paths, shardshuffle=len(paths), seed=7).shuffle(1000)
    return found.map(partial(_decoded, "jpg")) if decode else found


def _torch_loader(dataset: Any, workers: int, **settings: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(dataset, batch_size=_BATCH, num_workers=workers, collate_fn=list, **settings)


def _by_streaming(corpus: str, workers: int, *, decode: bool = False) -> Way:
    def way(place: Place) -> Callable[[], Done]:
        loader = _torch_loader(_streaming(os.path.join(place.data, f"{corpus}-mds"), decode=decode), workers)
        return lambda: _epoch_of_samples(loader, _COUNTED[corpus])

    return way


def _by_datasets(corpus: str, workers: int, *, decode: bool = False) -> Way:
    def way(place: Place) -> Callable[[], Done]:
        saved = _saved(os.path.join(place.data, f"{corpus}-arrow"), decode=decode)
        loader = _torch_loader(saved, workers, shuffle=True)
        return lambda: _epoch_of_samples(loader, _COUNTED[corpus])

    return way


def _by_webdataset(corpus: str, workers: int, *, decode: bool = False) -> Way:
    def way(place: Place) -> Callable[[], Done]:
        loader = _torch_loader(_webdataset(place.files(f"{corpus}/*.tar"), decode=decode), workers)
        return lambda: _epoch_of_samples(loader, _COUNTED[corpus])

    return way


def _by_litdata(corpus: str, workers: int) -> Way:
    """The samples are first written as LitData's chunks."""

    def way(place: Place) -> Callable[[], Done]:
        from litdata import StreamingDataLoader, StreamingDataset
        from litdata.streaming.writer import BinaryWriter

        folder = os.path.join(place.out, "chunks")
        writer = BinaryWriter(folder, chunk_bytes="64MB")
        for i, sample in enumerate(_saved(os.path.join(place.data, f"{corpus}-arrow"))):
            writer[i] = sample
        writer.done()
        writer.merge()
        loader = StreamingDataLoader(
            StreamingDataset(folder, shuffle=True, seed=7), batch_size=_BATCH, num_workers=workers, collate_fn=list
        )
        return lambda: _epoch_of_samples(loader, _COUNTED[corpus])

    return way


def _by_lading(corpus: str, form: str, **settings: Any) -> Way:
    """Batches of columns; of tars the members, found by an index that opening makes once."""

    def way(place: Place) -> Callable[[], Done]:
        import lading

        pattern = "/*.tar" if form == "tar" else f"-{form}"
        dataset = lading.open(os.path.join(place.data, f"{corpus}{pattern}"))
        size = None if "batch_tokens" in settings else _BATCH
        loader = lading.loader(dataset, size, shuffle=True, seed=7, **(settings or {"decode": False}))
        return lambda: _epoch_of_columns(loader, _COUNTED[corpus])

    return way


# Batches by size


def _by_batch_sampler(corpus: str, workers: int) -> Way:
    """Groups of neighbours in a random order, sorted by length and cut by the bound: as trainers write it."""

    def way(place: Place) -> Callable[[], Done]:
        from torch.utils.data import DataLoader

        saved = _saved(os.path.join(place.data, f"{corpus}-arrow"))
        lengths, batches = [*map(len, saved["txt"])], list[list[int]]()
        order = random.Random(7).sample(range(len(lengths)), len(lengths))
        for begin in range(0, len(order), _GROUP):
            batch, longest = list[int](), 0
            for i in sorted(order[begin : begin + _GROUP], key=lengths.__getitem__):
                longest = max(longest, lengths[i])
                if batch and longest * (len(batch) + 1) > _CHARACTERS:
                    batches.append(batch)
                    batch, longest = [], lengths[i]
                batch.append(i)
            batches.append(batch)
        random.Random(7).shuffle(batches)
        loader = DataLoader(saved, batch_sampler=batches, num_workers=workers, collate_fn=list)
        return lambda: _epoch_of_samples(loader, _COUNTED[corpus])

    return way


# Limits


def _values(place: Place, corpus: str) -> list[tuple[Any, ...]]:
    """The values of each sample, text and bytes as memoryviews of a map, in any order."""
    import pyarrow as pa

    found = []
    for path in place.files(f"{corpus}-arrow/*.arrow"):
        with pa.ipc.open_stream(pa.memory_map(path)) as stream:
            for batch in stream:
                columns = []
                for column in batch.columns:
                    if pa.types.is_integer(column.type):
                        columns.append(column.to_pylist())
                        continue
                    _, ends, data = column.buffers()
                    at = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].tolist()
                    columns.append([memoryview(data)[a:b] for a, b in pairwise(at)])
                found += zip(*columns, strict=True)
    random.Random(7).shuffle(found)
    return found


def _slices(corpus: str) -> Way:
    """Slices of maps, in lists of 64: places are known, and taken on trust."""

    def way(place: Place) -> Callable[[], Done]:
        values = _values(place, corpus)

        def batches() -> Iterator[list[dict[str, Any]]]:
            for begin in range(0, len(values), _BATCH):
                some = values[begin : begin + _BATCH]
                if corpus == "texts":
                    yield [{"cls": number, "txt": str(text, "utf-8")} for number, text in some]
                else:
                    yield [{"jpg": bytes(picture), "json": bytes(meta)} for picture, meta in some]

        return lambda: _epoch_of_samples(batches(), _COUNTED[corpus])

    return way


def _cut_by_pillow(data: bytes) -> np.ndarray:
    """A picture decoded as it is, and the middle of it resized."""
    from PIL import Image, ImageOps

    return np.array(ImageOps.fit(Image.open(io.BytesIO(data)), (_SIZE, _SIZE), Image.Resampling.BILINEAR))


def _cut_at_random_by_pillow(data: bytes) -> np.ndarray:
    """A picture decoded as it is, and 8 % to all of its area resized, as by torchvision's `RandomResizedCrop`."""
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    side = [random.uniform(0.08, 1) ** 0.5 * each for each in image.size]
    left, upper = (random.uniform(0, whole - part) for whole, part in zip(image.size, side, strict=True))
    return np.array(image.resize((_SIZE, _SIZE), 2, (left, upper, left + side[0], upper + side[1])))


def _smallest(data: bytes) -> np.ndarray:
    """A picture decoded at the smallest size that the decoder knows, an eighth, and no more."""
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (1, 1))
    return np.zeros(_SIZE * _SIZE * len(image.convert("RGB").getbands()), np.uint8)


def _by_threads(function: Callable[[bytes], np.ndarray]) -> Way:
    """Pillow alone, in two threads, on members of tars in memory."""

    def way(place: Place) -> Callable[[], Done]:
        from concurrent.futures import ThreadPoolExecutor

        values = []
        for path in place.files("cameras/*.tar"):
            with tarfile.open(path, "r:") as tar:
                values += [tar.extractfile(member).read() for member in tar]

        def work() -> Done:
            with ThreadPoolExecutor(2) as pool:
                return Done(len(values), sum(image.size for image in pool.map(function, values)))

        return work

    return way


def _cut_at_random(place: Place) -> Callable[[], Done]:
    from lading.train import images

    return _by_lading("cameras", "tar", decode={"jpg": images(_SIZE, random_crop=(0.08, 1))})(place)


def _pillow_loop(place: Place) -> Callable[[], Done]:
    """Pillow alone, in two threads, on bytes in memory."""
    from concurrent.futures import ThreadPoolExecutor

    values = [bytes(view) for (view,) in _values(place, "photos")]

    def work() -> Done:
        with ThreadPoolExecutor(2) as pool:
            return Done(len(values), sum(image.size for image in pool.map(_pixels, values)))

    return work


# The first batch of many shards: opened, shuffled, read


def _first(loader: Iterable[Any]) -> Any:
    return next(iter(loader))


def _tiny_rows() -> list[dict[str, Any]]:
    return [{"txt": f"{i:08d}" + "x" * 92, "cls": i} for i in range(_TINY)]


_FIRST = Done(_BATCH, _BATCH * 100)


def _many_mds(place: Place) -> str:
    """5,000 shards of four samples: copies of one."""
    folder = os.path.join(place.out, "many")
    with mosaicml_streaming().MDSWriter(out=folder, columns={"txt": "str", "cls": "int"}) as writer:
        for row in _tiny_rows():
            writer.write(row)
    path = os.path.join(folder, "index.json")
    with open(path, encoding="utf-8") as file:
        index = json.load(file)
    [entry] = index["shards"]
    source = os.path.join(folder, entry["raw_data"]["basename"])
    names = [f"shard.{number:05d}.mds" for number in range(_MANY)]
    for name in names[1:]:
        shutil.copyfile(source, os.path.join(folder, name))
    entries = [{**entry, "raw_data": {**entry["raw_data"], "basename": name}} for name in names]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**index, "shards": entries}, file, sort_keys=True)
    return folder


def _many_arrow(place: Place) -> str:
    import datasets

    folder = os.path.join(place.out, "many")
    datasets.Dataset.from_list(_tiny_rows()).save_to_disk(folder)
    path = os.path.join(folder, "state.json")
    with open(path, encoding="utf-8") as file:
        state = json.load(file)
    source = os.path.join(folder, state["_data_files"][0]["filename"])
    names = [f"data-{number:05d}-of-{_MANY:05d}.arrow" for number in range(_MANY)]
    for name in names:
        shutil.copyfile(source, os.path.join(folder, name))
    os.unlink(source)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**state, "_data_files": [{"filename": name} for name in names]}, file)
    return folder


def _first_by_streaming(place: Place) -> Callable[[], Done]:
    folder = _many_mds(place)

    def work() -> Done:
        return _epoch_of_samples([_first(_torch_loader(_streaming(folder), 0))], "txt")

    return work


def _first_by_datasets(place: Place) -> Callable[[], Done]:
    folder = _many_arrow(place)

    def work() -> Done:
        return _epoch_of_samples([_first(_torch_loader(_saved(folder), 0, shuffle=True))], "txt")

    return work


def _first_by_lading(many: Callable[[Place], str]) -> Way:
    def way(place: Place) -> Callable[[], Done]:
        import lading
        from lading._core.formats.registry import all_formats

        list(all_formats())  # import them, as the peers' ways import their modules
        lading.loader  # noqa: B018 - likewise
        folder = many(place)

        def work() -> Done:
            return _epoch_of_columns([_first(lading.loader(folder, _BATCH, shuffle=True, seed=7))], "txt")

        return work

    return way


def _stat_all(place: Place) -> Callable[[], Done]:
    """The list of files parsed, and the size of each asked."""
    import orjson

    folder = _many_mds(place)

    def work() -> Done:
        with open(os.path.join(folder, "index.json"), "rb") as file:
            entries = orjson.loads(file.read())["shards"]
        for entry in entries:
            os.stat(os.path.join(folder, entry["raw_data"]["basename"]))
        return _FIRST

    return work


_LIMIT = "slices of a map"


def _peers(corpus: str, workers: int) -> dict[str, Way]:
    return {
        "datasets": _by_datasets(corpus, workers),
        "litdata": _by_litdata(corpus, workers),
        "mosaicml-streaming": _by_streaming(corpus, workers),
        "webdataset": _by_webdataset(corpus, workers),
    }


_BY_SIZE: dict[str, Any] = {"batch_tokens": _CHARACTERS, "bucket_by": "len(txt)"}
_OURS = {f"lading, {form}": form for form in ("arrow", "mds", "tar")}


def _bytes_case(name: str, corpus: str, workers: int) -> Case:
    ours = {way: _by_lading(corpus, form) for way, form in _OURS.items()}
    ways = {**_peers(corpus, workers), **ours, _LIMIT: _slices(corpus)}
    return Case(name, f"{corpus}*/*", peer="datasets", limit=_LIMIT, ways=ways)


CASES = (
    _bytes_case("loader images", "images", 0),
    _bytes_case("loader images with 2 workers", "images", 2),
    _bytes_case("loader texts", "texts", 0),
    Case(
        "loader texts by size",
        "texts*/*",
        peer="DataLoader, batch_sampler",
        limit=_LIMIT,
        ways={
            "DataLoader, batch_sampler": _by_batch_sampler("texts", 0),
            "DataLoader, batch_sampler, 2 workers": _by_batch_sampler("texts", 2),
            **{way: _by_lading("texts", form, **_BY_SIZE) for way, form in _OURS.items()},
            _LIMIT: _slices("texts"),
        },
    ),
    Case(
        "loader photos decoded with 2 workers",
        "photos*/*",
        peer="datasets",
        limit="Pillow, 2 threads",
        ways={
            "datasets": _by_datasets("photos", 2, decode=True),
            "mosaicml-streaming": _by_streaming("photos", 2, decode=True),
            "webdataset": _by_webdataset("photos", 2, decode=True),
            "lading, arrow": _by_lading("photos", "arrow", decode={"jpg": "numpy"}, image_size=_SIZE),
            "lading, tar": _by_lading("photos", "tar", decode={"jpg": "numpy"}, image_size=_SIZE),
            "Pillow, 2 threads": _pillow_loop,
        },
    ),
    Case(
        "loader 12-megapixel photos cropped",
        "cameras/*",
        peer="Pillow, 2 threads",
        limit="decoder at an eighth, 2 threads",
        ways={
            "Pillow, 2 threads": _by_threads(_cut_by_pillow),
            "Pillow at random, 2 threads": _by_threads(_cut_at_random_by_pillow),
            "lading, tar": _by_lading("cameras", "tar", image_size=_SIZE, fit="crop"),
            "lading at random, tar": _cut_at_random,
            "decoder at an eighth, 2 threads": _by_threads(_smallest),
        },
    ),
    Case(
        "loader first batch of 5,000 shards",
        "facts.json",
        peer="mosaicml-streaming",
        limit="stat",
        ways={
            "mosaicml-streaming": _first_by_streaming,
            "datasets": _first_by_datasets,
            "lading, mds": _first_by_lading(_many_mds),
            "lading, arrow": _first_by_lading(_many_arrow),
            "stat": _stat_all,
        },
    ),
)
