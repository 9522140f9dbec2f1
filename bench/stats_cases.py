"""Statistics of the sizes of images in tars, beside a loop with Pillow, as people write it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable

from harness import Case, Done, Place

_PATTERN = "images/*.tar"
_PEER = "tarfile, Pillow"
_TIMES = 10
"""How often the shards are listed, so that the time is not that of the first call."""


def _done(place: Place, widths: list[int]) -> Done:
    import numpy as np

    np.quantile(widths, [0.05, 0.5, 0.95])
    return Done(len(widths), _TIMES * place.facts("images")["payload_bytes"])


def _sizes(pictures: Iterable[bytes]) -> list[int]:
    from PIL import Image

    return [Image.open(io.BytesIO(picture)).size[0] for picture in pictures]


def _by_tarfile(place: Place) -> Callable[[], Done]:
    import PIL.Image  # noqa: F401 - imported before the time is taken

    def pictures() -> Iterable[bytes]:
        for path in place.files(_PATTERN) * _TIMES:
            with tarfile.open(path, "r:") as tar:
                for member in tar:
                    if member.name.endswith(".jpg"):
                        file = tar.extractfile(member)
                        assert file is not None
                        yield file.read()

    return lambda: _done(place, _sizes(pictures()))


def _by_webdataset(place: Place) -> Callable[[], Done]:
    import PIL.Image  # noqa: F401 - imported before the time is taken
    import webdataset as wds

    def pictures() -> Iterable[bytes]:
        samples = wds.WebDataset(place.files(_PATTERN) * _TIMES, shardshuffle=False, empty_check=False)
        return (sample["jpg"] for sample in samples)

    return lambda: _done(place, _sizes(pictures()))


def _by_lading(place: Place, columns: tuple[str, ...]) -> Callable[[], Done]:
    import lading
    from lading._core.formats.registry import get_format

    get_format("webdataset")  # imported before the time is taken, as Pillow is

    def work() -> Done:
        with lading.open(place.files(_PATTERN) * _TIMES) as dataset:
            chosen = dataset.select(*columns) if columns else dataset
            found = chosen.stats(workers=1)
        assert found.columns["jpg.width"].values == found.samples
        return Done(found.samples, _TIMES * place.facts("images")["payload_bytes"])

    return work


CASES = (
    Case(
        "stats images tar",
        _PATTERN,
        peer=_PEER,
        limit=_PEER,
        ways={
            "lading": lambda place: _by_lading(place, ("jpg",)),
            "lading, JSON too": lambda place: _by_lading(place, ()),
            _PEER: _by_tarfile,
            "webdataset, Pillow": _by_webdataset,
        },
    ),
)
