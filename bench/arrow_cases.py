"""Arrow streams as datasets saves them: read pictures and texts in order and at random, write them."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from harness import Case, Done, Place, counted

_PICKED = 20_000
_BATCH = 64
_FIELDS = {"images": ("jpg", "json"), "texts": ("txt",)}


def _folder(place: Place, corpus: str) -> str:
    return os.path.join(place.data, f"{corpus}-arrow")


def _order(count: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, count, _PICKED)


def _size(sample: dict[str, Any], corpus: str) -> int:
    return sum(len(sample[name]) for name in _FIELDS[corpus])


def _saved(place: Place, corpus: str) -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets.load_from_disk(_folder(place, corpus), keep_in_memory=False)


def _read_by_datasets(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        dataset = _saved(place, corpus)

        return lambda: counted(dataset, partial(_size, corpus=corpus))

    return way


def _read_by_lading(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    """Every value as Python has it, sample by sample, as the peer's are."""

    def way(place: Place) -> Callable[[], Done]:
        import lading

        dataset = lading.open(_folder(place, corpus))

        return lambda: counted(dataset.samples(raw=True), partial(_size, corpus=corpus))

    return way


def _take_by_datasets(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    """One batch, a list of values a column."""

    def way(place: Place) -> Callable[[], Done]:
        dataset = _saved(place, corpus)
        order = _order(len(dataset)).tolist()

        def work() -> Done:
            found = dataset[order]
            return Done(len(order), sum(len(value) for name in _FIELDS[corpus] for value in found[name]))

        return work

    return way


def _take_some_by_datasets(corpus: str) -> Callable[[Place], Callable[[], Done]]:
    """Batches as a loader of torch's asks for them, a dict a sample."""

    def way(place: Place) -> Callable[[], Done]:
        dataset = _saved(place, corpus)
        order = _order(len(dataset)).tolist()

        def work() -> Done:
            size = 0
            for at in range(0, len(order), _BATCH):
                size += sum(_size(sample, corpus) for sample in dataset.__getitems__(order[at : at + _BATCH]))
            return Done(len(order), size)

        return work

    return way


def _take_some_by_lading(corpus: str, folder: str) -> Callable[[Place], Callable[[], Done]]:
    """Batches of as many samples, as Arrow has them."""

    def way(place: Place) -> Callable[[], Done]:
        import lading

        dataset = lading.open(os.path.join(place.data, folder))
        order = _order(len(dataset))

        def work() -> Done:
            size = 0
            for at in range(0, len(order), _BATCH):
                table = dataset.take(order[at : at + _BATCH])
                size += sum(_bytes_of(table.column(name)) for name in _FIELDS[corpus])
            return Done(len(order), size)

        return work

    return way


def _bytes_of(column: Any) -> int:
    """Bytes of text, which has a byte a letter in these corpora."""
    ends = [np.frombuffer(part.buffers()[1], np.int32)[part.offset :][[0, len(part)]] for part in column.chunks]
    return sum(int(stop - start) for start, stop in ends)


def _take_by_lading(corpus: str, folder: str = "") -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import pyarrow.compute as pc

        import lading

        dataset = lading.open(os.path.join(place.data, folder) if folder else _folder(place, corpus))
        order = _order(len(dataset))

        def work() -> Done:
            table = dataset.take(order)
            length = pc.utf8_length if corpus == "texts" else pc.binary_length
            return Done(len(table), sum(pc.sum(length(table.column(name))).as_py() for name in _FIELDS[corpus]))

        return work

    return way


def _pick(opened: Callable[[Place, str], Any]) -> Callable[[str], Callable[[Place], Callable[[], Done]]]:
    """One sample after another, whoever opened them."""

    def of(corpus: str) -> Callable[[Place], Callable[[], Done]]:
        def way(place: Place) -> Callable[[], Done]:
            dataset = opened(place, corpus)
            order = _order(len(dataset)).tolist()

            def work() -> Done:
                return Done(len(order), sum(_size(dataset[i], corpus) for i in order))

            return work

        return way

    return of


def _cache_by_lading(place: Place, _corpus: str) -> Any:
    import lading

    return lading.open(os.path.join(place.data, "texts-cache"))


def _opened_by_lading(place: Place, corpus: str) -> Any:
    import lading

    return lading.open(_folder(place, corpus))


def _table(place: Place, corpus: str) -> Any:
    """All rows, mapped, by pyarrow alone."""
    import pyarrow as pa

    paths = sorted(glob.glob(os.path.join(_folder(place, corpus), "*.arrow")))
    return pa.concat_tables([pa.ipc.open_stream(pa.memory_map(path)).read_all() for path in paths])


def _limit(corpus: str, *, picked: bool) -> Callable[[Place], Callable[[], Done]]:
    """Slices of maps: bytes of each value, by offsets that are taken on trust."""

    def way(place: Place) -> Callable[[], Done]:
        places = []
        for batch in _table(place, corpus).select(_FIELDS[corpus]).to_batches():
            columns = []
            for column in batch.columns:
                _, ends, data = column.buffers()
                at = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].tolist()
                columns.append([(memoryview(data), a, b) for a, b in pairwise(at)])
            places += zip(*columns, strict=True)
        places = [places[i] for i in _order(len(places)).tolist()] if picked else places

        def work() -> Done:
            size = 0
            for row in places:
                for data, begin, end in row:
                    value = bytes(data[begin:end])
                    size += len(value) if corpus == "images" else len(value.decode())
            return Done(len(places), size)

        return work

    return way


def _write_by_datasets(place: Place) -> Callable[[], Done]:
    import datasets

    datasets.disable_progress_bars()
    table, facts = _table(place, "images").combine_chunks(), place.facts("images")
    dataset = datasets.Dataset(table)

    def work() -> Done:
        dataset.save_to_disk(os.path.join(place.out, "new"))
        return Done(len(table), facts["payload_bytes"])

    return work


def _write_by_lading(layout: str) -> Callable[[Place], Callable[[], Done]]:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        table, facts = _table(place, "images").combine_chunks(), place.facts("images")

        def work() -> Done:
            new = os.path.join(place.out, "new")
            with lading.writer(new, format="arrow", options={"layout": layout}, shard_size="500MB") as writer:
                writer.write_batch(table)
            return Done(len(table), facts["payload_bytes"])

        return work

    return way


def _limit_write(place: Place) -> Callable[[], Done]:
    """The files of the corpus, written once more."""
    from harness import copy_files

    paths, facts = place.files("images-arrow/*.arrow"), place.facts("images")

    def work() -> Done:
        copy_files(paths, place.out)
        return Done(facts["samples"], facts["payload_bytes"])

    return work


_PEER, _LIMIT = "datasets", "slices of a map"


def _case(name: str, corpus: str, ways: dict[str, Any], *, picked: bool, holds: bool = False) -> Case:
    ways = {**ways, _LIMIT: _limit(corpus, picked=picked)}
    return Case(name, f"{corpus}-arrow/*.arrow", peer=_PEER, limit=_LIMIT, ways=ways, writes=holds)


CASES = (
    *(
        _case(
            f"arrow read {corpus}",
            corpus,
            {_PEER: _read_by_datasets(corpus), "lading": _read_by_lading(corpus)},
            picked=False,
        )
        for corpus in ("images", "texts")
    ),
    *(
        _case(
            f"arrow take {corpus}",
            corpus,
            {_PEER: _take_by_datasets(corpus), "lading": _take_by_lading(corpus)},
            picked=True,
            holds=True,
        )
        for corpus in ("images", "texts")
    ),
    *(
        _case(
            f"arrow pick {corpus}",
            corpus,
            {_PEER: _pick(_saved)(corpus), "lading": _pick(_opened_by_lading)(corpus)},
            picked=True,
        )
        for corpus in ("images", "texts")
    ),
    Case(
        "cache take rows",
        "texts-*/*.arrow",
        peer="datasets, 64 at a time",
        limit=_LIMIT,
        ways={
            "datasets, 64 at a time": _take_some_by_datasets("texts"),
            "datasets, at once": _take_by_datasets("texts"),
            "lading, 64 at a time": _take_some_by_lading("texts", "texts-cache"),
            "lading, at once": _take_by_lading("texts", "texts-cache"),
            _LIMIT: _limit("texts", picked=True),
        },
    ),
    Case(
        "cache pick rows",
        "texts-*/*.arrow",
        peer=_PEER,
        limit=_LIMIT,
        ways={
            _PEER: _pick(_saved)("texts"),
            "lading": _pick(_cache_by_lading)("texts"),
            _LIMIT: _limit("texts", picked=True),
        },
    ),
    Case(
        "arrow write images",
        "images-arrow/*.arrow",
        peer=_PEER,
        limit="copy",
        ways={
            _PEER: _write_by_datasets,
            "lading, a cache": _write_by_lading("cache"),
            "lading, for datasets": _write_by_lading("huggingface"),
            "copy": _limit_write,
        },
        writes=True,
    ),
)
