"""A small real dataset through every format: what `lading demo` shows; and data to try things on."""

from __future__ import annotations

import io
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

import numpy as np

from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.jobs.convert.convert import convert
from lading._core.jobs.stats.info import info
from lading._core.jobs.verify.digest import dataset_digest
from lading._core.manifest.commit import check_destination
from lading._core.storage.local import LocalStore
from lading.errors import DestinationExists, UsageError

__all__ = ["DemoStep", "demo", "lading_command", "write_trial_data"]

_SOURCE = "docs"
_CHAIN = (
    ("docs-parquet", "parquet"),
    ("docs-mds", "mds"),
    ("docs-arrow", "arrow"),
    ("docs-archive", "media_archive"),
    ("docs-tar", "webdataset"),
    ("docs-parquet-2", "parquet"),
)
"""Folder and format of each conversion, each from the one before it."""


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A dataset of the demo, and how it came about.

    Attributes:
        command: what a user would type for it.
        path: folder of the dataset.
        format: format of the shards.
        shards: number of files.
        samples: number of documents.
        items: number of items, by modality.
        size_bytes: bytes of the files.
        seconds: wall-clock time of the conversion; 0 for the source.
        digest: ordered content digest.
        same: whether this digest is that of the source.
    """

    command: str
    path: str
    format: str
    shards: int
    samples: int
    items: Mapping[str, int]
    size_bytes: int
    seconds: float
    digest: str
    same: bool


def demo(folder: str, *, shown: str | None = None) -> Iterator[DemoStep]:
    """Convert the shipped pages through every format that holds them; give each dataset when it is there.

    Args:
        folder: where the datasets go; made if it is not there. A few MB.
        shown: what commands call this folder; by default they name it as it is, and with `""` not at all.

    Raises:
        DestinationExists: the folder holds something. UsageError: it has no name, or is a file or below one.
    """
    if not folder:
        raise UsageError("the destination names no folder", found=repr(folder), advice="Name one with --to.")
    if os.path.isdir(folder) and os.listdir(folder):
        raise DestinationExists("the folder is not empty", file=folder, advice="Choose another one with --to.")
    prefix = folder if shown is None else shown
    source = os.path.join(folder, _SOURCE)
    check_destination(LocalStore(), source, overwrite=False)
    _unpack(source)
    first = _step(lading_command("digest", os.path.join(prefix, _SOURCE)), source, 0.0, None)
    yield first
    last = _SOURCE
    for name, target in _CHAIN:
        here, there = os.path.join(folder, last), os.path.join(folder, name)
        began = time.perf_counter()
        convert(here, there, format=target)
        seconds = time.perf_counter() - began
        command = lading_command("convert", os.path.join(prefix, last), os.path.join(prefix, name), "--to", target)
        yield _step(command, there, seconds, first.digest)
        last = name


def write_trial_data(folder: str) -> None:
    """Write `photos`, 100 pictures with captions as tars, and `broken`, the pages with one tar cut, into the folder.

    The pages of the documentation use them.
    """
    from PIL import Image

    with DatasetWriter(os.path.join(folder, "photos"), format="webdataset", shard_size="60KB") as writer:
        for number in range(100):
            picture = io.BytesIO()
            Image.fromarray(_sunrise(number)).save(picture, "jpeg")
            caption = {"caption": f"photo {number}", "lang": ("en", "de")[number % 2], "score": number / 100}
            writer.write({"__key__": f"{number:06d}", "jpg": picture.getvalue(), "json": caption})
    broken = os.path.join(folder, "broken")
    _unpack(broken)
    os.truncate(os.path.join(broken, "docs-00001.tar"), 400_000)


def _sunrise(number: int) -> np.ndarray:
    """Return the pixels of a picture: a sun above the sea, which rises with the number."""
    height, width = 96, 64 + number
    down, right = np.mgrid[0:height, 0:width]
    depth = down[..., None] / height
    sky = np.array([250, 120 + number, 60 + number]) * (0.45 + 0.85 * depth)
    sea = np.array([20, 60, 90 + number]) * (1.5 - depth)
    is_sky = down[..., None] < 60  # noqa: PLR2004 - the horizon
    is_sun = ((right - width / 2) ** 2 + (down - 60 + number / 2.2) ** 2 < 120)[..., None] & is_sky  # noqa: PLR2004 - radius
    return np.where(is_sun, [255, 240, 190], np.where(is_sky, sky, sea)).clip(0, 255).astype(np.uint8)


def _unpack(folder: str) -> None:
    os.makedirs(folder)
    for file in resources.files("lading._core.data").iterdir():
        if file.name.endswith(".tar"):
            with open(os.path.join(folder, file.name), "wb") as copy:
                copy.write(file.read_bytes())


def lading_command(*words: str) -> str:
    """A command as a shell takes it, whatever its words hold."""
    return shlex.join(["lading", *words])


def _step(command: str, path: str, seconds: float, expected: str | None) -> DemoStep:
    told = info(path)
    digest = str(dataset_digest(path).ordered)
    return DemoStep(
        command, path, told.format, told.shards, told.samples, dict(told.modalities), told.size_bytes, seconds, digest,
        expected in (None, digest),
    )  # fmt: skip
