"""Functions over single samples, beside `datasets.map` in one process, with a cache of its own that is always new."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from typing import Any

from harness import Case, Done, Place

_PEER = "datasets"
_PHOTOS, _PICTURES, _TEXTS = 2000, 20, 100_000
_Function = Callable[[Any], dict[str, Any]]


def _length(sample: Any) -> dict[str, Any]:
    return {"length": len(sample["txt"])}


def _field(sample: Any) -> dict[str, Any]:
    """As `datasets` gives JSON: text, which the function parses."""
    return {"lang": json.loads(sample["json"])["lang"]}


def _parsed_field(sample: Any) -> dict[str, Any]:
    return {"lang": sample["json"]["lang"]}


def _width(sample: Any) -> dict[str, Any]:
    return {"width": sample["jpg"].size[0]}


def _texts(place: Place) -> str:
    return os.path.join(place.data, "texts-arrow")


def _saved(place: Place, columns: dict[str, list[Any]], features: dict[str, Any]) -> str:
    """Samples that `datasets` saves before the time is taken."""
    import datasets

    datasets.disable_progress_bars()
    folder = os.path.join(place.out, "made")
    datasets.Dataset.from_dict(columns, features=datasets.Features(features)).save_to_disk(folder)
    return folder


def _json(place: Place) -> str:
    import datasets

    texts = [json.dumps({"lang": "en", "score": number / 8}) for number in range(_TEXTS)]
    return _saved(place, {"json": texts}, {"json": datasets.Value("string")})


def _photos(place: Place) -> str:
    import datasets
    import numpy as np
    from PIL import Image

    random, photos = np.random.default_rng(0), []
    for _ in range(_PICTURES):
        out = io.BytesIO()
        Image.fromarray(random.integers(0, 255, (240, 320, 3), np.uint8)).save(out, "JPEG")
        photos.append({"bytes": out.getvalue(), "path": None})
    return _saved(place, {"jpg": [photos[i % _PICTURES] for i in range(_PHOTOS)]}, {"jpg": datasets.Image()})


def _by_datasets(find: Callable[[Place], str], function: _Function) -> Any:
    def way(place: Place) -> Callable[[], Done]:
        import datasets

        datasets.disable_progress_bars()
        source = datasets.load_from_disk(find(place))

        def work() -> Done:
            cache = os.path.join(place.out, "cache.arrow")
            made = source.map(function, cache_file_name=cache, load_from_cache_file=False)
            return Done(len(made), len(made))

        return work

    return way


def _by_lading(find: Callable[[Place], str], function: _Function) -> Any:
    def way(place: Place) -> Callable[[], Done]:
        import lading

        folder = find(place)
        made = os.path.join(place.out, "mapped")

        def work() -> Done:
            with lading.open(folder) as dataset:
                parsed = "json" in dataset.columns
                source = dataset.cast({"json": lading.features.Json()}) if parsed else dataset
                done = source.map(function).write(made, format="arrow", checksums="none")
            return Done(done.samples, done.samples)

        return work

    return way


def _case(name: str, find: Callable[[Place], str], theirs: _Function, ours: _Function) -> Case:
    ways = {"lading": _by_lading(find, ours), _PEER: _by_datasets(find, theirs)}
    return Case(name, "texts-arrow/*.arrow", peer=_PEER, limit=_PEER, ways=ways, writes=True)


CASES = (
    _case("map text length", _texts, _length, _length),
    _case("map json field", _json, _field, _parsed_field),
    _case("map image width", _photos, _width, _width),
)
