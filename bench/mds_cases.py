"""MDS: read pictures and texts in order and at random, write texts, open many shards."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from harness import Case, Done, Place, counted
from peers_here import mosaicml_streaming

_PICKED = 20_000
_MANY = 5_000
_FIELDS = {"images": ("jpg", "json"), "texts": ("txt",)}


def _folder(place: Place, corpus: str) -> str:
    return os.path.join(place.data, f"{corpus}-mds")


def _order(count: int) -> list[int]:
    return np.random.default_rng(7).integers(0, count, _PICKED).tolist()


def _size(sample: dict[str, Any], corpus: str) -> int:
    return sum(len(sample[name]) for name in _FIELDS[corpus])


def _peer_dataset(place: Place, corpus: str) -> Any:
    return mosaicml_streaming().StreamingDataset(local=_folder(place, corpus), batch_size=64, shuffle=False)


def _read_by_streaming(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        dataset = _peer_dataset(place, corpus)

        return lambda: counted(dataset, partial(_size, corpus=corpus))

    return way


def _pick_by_streaming(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        dataset = _peer_dataset(place, corpus)
        order = _order(len(dataset))

        def work() -> Done:
            return Done(len(order), sum(_size(dataset[i], corpus) for i in order))

        return work

    return way


def _read_images_by_lading(place: Place) -> Callable[[], Done]:
    """Every value as `bytes`, sample by sample, each let go before the next, as the peer's are."""
    import lading

    dataset = lading.open(_folder(place, "images"))

    return lambda: counted(dataset.samples(raw=True), partial(_size, corpus="images"))


def _read_texts_by_lading(place: Place) -> Callable[[], Done]:
    """Batches of columns."""
    import pyarrow.compute as pc

    import lading

    dataset = lading.open(_folder(place, "texts"))

    def work() -> Done:
        samples = size = 0
        for batch in dataset.batches(max_rows=16_384):
            samples += batch.num_rows
            # The peer's texts are counted in characters.
            size += pc.sum(pc.utf8_length(batch.column("txt"))).as_py()
        return Done(samples, size)

    return work


def _take_by_lading(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import pyarrow.compute as pc

        import lading

        dataset = lading.open(_folder(place, corpus))
        order = _order(len(dataset))

        def work() -> Done:
            if corpus == "texts":
                table = dataset.take(order)
                return Done(len(table), pc.sum(pc.utf8_length(table.column("txt"))).as_py())
            table = dataset.take(order, views=True)
            # Every value as `bytes`, each let go before the next, as the peer's are.
            size = sum(len(value.as_py()) for name in _FIELDS[corpus] for value in table.column(name))
            return Done(len(table), size)

        return work

    return way


def _pick_by_lading(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        dataset = lading.open(_folder(place, corpus))
        order = _order(len(dataset))

        def work() -> Done:
            return Done(len(order), sum(_size(dataset[i], corpus) for i in order))

        return work

    return way


def _shards(folder: str) -> list[tuple[mmap.mmap, np.ndarray]]:
    """Each shard mapped, and where its samples begin."""
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
        entries = json.load(file)["shards"]
    shards = []
    for entry in entries:
        with open(os.path.join(folder, entry["raw_data"]["basename"]), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        shards.append((mapped, np.frombuffer(mapped, "<u4", entry["samples"] + 1, 4)))
    return shards


def _limit(corpus: str, *, picked: bool) -> Callable[[Place], Callable[[], Done]]:
    """A slice of a map for each sample; what its sizes say is taken on trust."""

    def way(place: Place) -> Callable[[], Done]:
        shards = _shards(_folder(place, corpus))
        places = [(m, b, e) for m, at in shards for b, e in zip(at[:-1].tolist(), at[1:].tolist(), strict=True)]
        places = [places[i] for i in _order(len(places))] if picked else places
        head = {"images": 8, "texts": 12}[corpus]

        def work() -> Done:
            size = 0
            for mapped, begin, end in places:
                value = mapped[begin + head : end]
                size += len(value) if corpus == "images" else len(value.decode())
            return Done(len(places), size)

        return work

    return way


def _texts(place: Place) -> Any:
    import pyarrow as pa

    import lading

    with lading.open(_folder(place, "texts")) as dataset:
        return pa.Table.from_batches(dataset.batches(max_rows=16_384))


def _write_by_streaming(place: Place) -> Callable[[], Done]:
    streaming = mosaicml_streaming()
    rows, facts = _texts(place).to_pylist(), place.facts("texts")

    def work() -> Done:
        with streaming.MDSWriter(out=os.path.join(place.out, "new"), columns={"cls": "int", "txt": "str"}) as writer:
            for row in rows:
                writer.write(row)
        return Done(len(rows), facts["payload_bytes"])

    return work


def _write_batches_by_lading(place: Place) -> Callable[[], Done]:
    import lading

    batches, facts = _texts(place).to_batches(), place.facts("texts")

    def work() -> Done:
        with lading.writer(os.path.join(place.out, "new"), format="mds") as writer:
            for batch in batches:
                writer.write_batch(batch)
        return Done(sum(map(len, batches)), facts["payload_bytes"])

    return work


def _write_samples_by_lading(place: Place) -> Callable[[], Done]:
    import lading

    rows, facts = _texts(place).to_pylist(), place.facts("texts")

    def work() -> Done:
        with lading.writer(os.path.join(place.out, "new"), format="mds") as writer:
            for row in rows:
                writer.write(row)
        return Done(len(rows), facts["payload_bytes"])

    return work


def _limit_write(place: Place) -> Callable[[], Done]:
    """The files of the corpus, written once more."""
    from harness import copy_files

    paths, facts = place.files("texts-mds/*.mds"), place.facts("texts")

    def work() -> Done:
        copy_files(paths, place.out)
        return Done(facts["samples"], facts["payload_bytes"])

    return work


def _many_shards(place: Place) -> str:
    """A dataset of 5,000 shards: links to one."""
    source, folder = _folder(place, "texts"), os.path.join(place.out, "many")
    with open(os.path.join(source, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    entry = index["shards"][0]
    os.makedirs(folder)
    entries = []
    for number in range(_MANY):
        name = f"shard.{number:05d}.mds"
        os.symlink(os.path.join(os.path.abspath(source), entry["raw_data"]["basename"]), os.path.join(folder, name))
        entries.append({**entry, "raw_data": {**entry["raw_data"], "basename": name}})
    with open(os.path.join(folder, "index.json"), "w", encoding="utf-8") as file:
        json.dump({**index, "shards": entries}, file, sort_keys=True)
    return folder


def _open_by_streaming(place: Place) -> Callable[[], Done]:
    streaming, folder = mosaicml_streaming(), _many_shards(place)

    def work() -> Done:
        return Done(1, len(streaming.StreamingDataset(local=folder, batch_size=1)[0]["txt"]))

    return work


def _open_by_lading(place: Place) -> Callable[[], Done]:
    import lading
    from lading._core.formats.registry import all_formats

    list(all_formats())  # import them, as the peer's way imports its modules
    folder = _many_shards(place)

    def work() -> Done:
        return Done(1, len(lading.open(folder)[0]["txt"]))

    return work


def _parse(place: Place) -> Callable[[], Done]:
    """The JSON alone, by orjson."""
    import orjson

    path = os.path.join(_many_shards(place), "index.json")
    first = _texts(place).column("txt")[0].as_py()

    def work() -> Done:
        with open(path, "rb") as file:
            orjson.loads(file.read())
        return Done(1, len(first))

    return work


_PEER, _LIMIT = "mosaicml-streaming", "slices of a map"


def _case(name: str, corpus: str, ways: dict[str, Any], *, picked: bool) -> Case:
    ways = {**ways, _LIMIT: _limit(corpus, picked=picked)}
    return Case(name, f"{corpus}-mds/*.mds", peer=_PEER, limit=_LIMIT, ways=ways)


CASES = (
    _case(
        "mds read images",
        "images",
        {_PEER: _read_by_streaming("images"), "lading, sample by sample": _read_images_by_lading},
        picked=False,
    ),
    _case(
        "mds read texts",
        "texts",
        {_PEER: _read_by_streaming("texts"), "lading": _read_texts_by_lading},
        picked=False,
    ),
    _case(
        "mds pick images",
        "images",
        {
            _PEER: _pick_by_streaming("images"),
            "lading, one take": _take_by_lading("images"),
            "lading, one by one": _pick_by_lading("images"),
        },
        picked=True,
    ),
    _case(
        "mds pick texts",
        "texts",
        {
            _PEER: _pick_by_streaming("texts"),
            "lading, one take": _take_by_lading("texts"),
            "lading, one by one": _pick_by_lading("texts"),
        },
        picked=True,
    ),
    Case(
        "mds write texts",
        "texts-mds/*.mds",
        peer=_PEER,
        limit="copy",
        ways={
            _PEER: _write_by_streaming,
            "lading, batches": _write_batches_by_lading,
            "lading, sample by sample": _write_samples_by_lading,
            "copy": _limit_write,
        },
        writes=True,
    ),
    Case(
        "mds open 5,000 shards",
        "texts-mds/*.mds",
        peer=_PEER,
        limit="parse",
        ways={_PEER: _open_by_streaming, "lading": _open_by_lading, "parse": _parse},
    ),
)
