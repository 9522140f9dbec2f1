"""Decode every value of a batch, and report the values that cannot be decoded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pyarrow as pa

from lading._core.arrow.views import is_bytes, slices
from lading._core.content.image import image_info
from lading._core.content.media_files import open_image, read_sound
from lading._core.content.media_info import media_info
from lading._core.features.by_ending import feature_of_ending
from lading._core.features.images import BROKEN
from lading._core.features.types import (
    Audio,
    Feature,
    Image,
    Video,
    decode,
    feature_of,
)
from lading._core.jobs.stats.headers import key_of
from lading.errors import DataError, LadingError, MissingExtra

__all__ = ["ValueChecks"]

_LARGE_BYTES = 4096
"""Mean size of values that are worth a thread."""

_MOST_FRAMES = 1000
"""Frames of one image that are decoded."""

_FORMATS: Mapping[str, tuple[str, ...]] = {
    "jpg": ("jpeg",), "jpeg": ("jpeg",), "jfif": ("jpeg",), "png": ("png",), "gif": ("gif",), "webp": ("webp",),
    "bmp": ("bmp",), "tif": ("tiff",), "tiff": ("tiff",), "avif": ("avif", "heif"), "heic": ("heic", "heif"),
    "heif": ("heic", "heif", "avif"), "wav": ("wav",), "flac": ("flac",), "mp3": ("mp3",), "ogg": ("ogg", "opus"),
    "oga": ("ogg", "opus"), "opus": ("ogg", "opus"), "m4a": ("m4a", "mp4"), "mp4": ("mp4", "mov", "m4a"),
    "m4v": ("mp4", "mov"), "mov": ("mov", "mp4"), "mkv": ("mkv",), "webm": ("webm",), "avi": ("avi",),
}  # fmt: skip
"""By an ending, or the subtype of a content type: the formats that `media_info` may find in such a file."""

_NEED_PLUGINS = ("avif", "heic", "heif", "jp2", "jxl")
"""Images that Pillow may be built without."""

_UNKNOWN = ("mpg", "mpeg")
"""Videos whose header `media_info` does not know."""


class ValueChecks:
    """Decodes the values of batches, by as many threads as pyarrow has in this process.

    Memory: one decoded value a thread.

    Attributes:
        undecoded: by column, why its values are not decoded.
    """

    def __init__(self) -> None:
        self.undecoded: dict[str, str] = {}
        self._count = 0
        self._pool = ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="lading-decode")
        self._quiet = warnings.catch_warnings()

    def __enter__(self) -> Self:
        self._quiet.__enter__()
        warnings.simplefilter("ignore")  # Pillow warns of odd metadata
        return self

    def __exit__(self, *_: object) -> None:
        self._quiet.__exit__(None, None, None)
        self._pool.shutdown(cancel_futures=True)

    def take_count(self) -> int:
        """Return how many values were decoded since the last call."""
        count, self._count = self._count, 0
        return count

    def errors(self, batch: pa.RecordBatch, file: str, first: int) -> Iterator[LadingError]:
        """Yield an error for each value that cannot be decoded.

        Args:
            batch: rows with their bytes.
            file: the shard.
            first: number of the batch's first row in the shard.
        """
        for name, check, values in self._columns(batch):
            for row, problem in self._checked(check, values):
                if isinstance(problem, MissingExtra):
                    self.undecoded.setdefault(name, f"{problem.message}. {problem.advice or ''}".strip())
                    continue
                self._count += 1
                if problem is not None:
                    problem.file, problem.row, problem.column = file, first + row, name
                    problem.sample = key_of(batch, row)
                    yield problem

    def _checked(
        self, check: Callable[[Any], LadingError | None], values: Iterable[tuple[int, Any]]
    ) -> Iterator[tuple[int, LadingError | None]]:
        """Yield what was found of each value, in order."""
        there = [(row, value) for row, value in values if value is not None]
        given = [value for _, value in there]
        large = sum(map(_size, given)) >= _LARGE_BYTES * len(given)
        found = self._pool.map(check, given) if large else map(check, given)
        return zip((row for row, _ in there), found, strict=True)

    def _columns(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[str, Callable[[Any], LadingError | None], Iterable[tuple[int, Any]]]]:
        """Yield name, check and values by row, of each column that has something to decode."""
        names = {*batch.schema.names}
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if {"modality", "binary_content"} <= names and field.name == "binary_content" and is_bytes(column.type):
                kinds = batch.column("content_type").to_pylist() if "content_type" in names else [None] * len(batch)
                items = zip(slices(column), batch.column("modality").to_pylist(), kinds, strict=True)
                yield field.name, _item_problem, [(n, item) for n, item in enumerate(items) if item[0] is not None]
                continue
            feature = _feature(field)
            if not _is_decoded(feature, column.type):
                if is_bytes(column.type) and feature.is_bytes:
                    self.undecoded.setdefault(field.name, "bytes of no known format")
                continue
            values: list[Any] = slices(column) if is_bytes(column.type) else column.to_pylist()
            yield field.name, _Check(feature, field.name), enumerate(values)


def _feature(field: pa.Field) -> Feature:
    """Return the feature of a column. Bytes of no known meaning have that of the name's ending."""
    feature, promised = feature_of(field), feature_of_ending(field.name)
    if promised is None or not feature.is_bytes or promised.is_text or promised.is_scalar:
        return feature
    return promised


def _is_decoded(feature: Feature, kind: pa.DataType) -> bool:
    """Return whether values of a feature may be broken. Numbers and texts that Arrow holds are what they are."""
    if feature.item is not None:
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        return is_list and _is_decoded(feature.item, kind.value_type)
    if feature.children is not None:
        return pa.types.is_struct(kind) and any(
            _is_decoded(inner, kind.field(name).type)
            for name, inner in feature.children
            if kind.get_field_index(name) >= 0
        )
    if feature.is_text or feature.is_scalar:
        return is_bytes(kind)
    return not feature.is_bytes


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (bytes, memoryview)) else _LARGE_BYTES


class _Check:
    """Returns the error of a value; None if it can be decoded.

    Args:
        feature: of the column.
        name: of the column.
    """

    def __init__(self, feature: Feature, name: str) -> None:
        self._feature, self._name = feature, name

    def __call__(self, value: Any) -> LadingError | None:
        return _problem(lambda: self._decode(value))

    def _decode(self, value: Any) -> None:
        for name, leaf, inside in self._feature.leaf_values(value, self._name):
            _decode(leaf, inside, name.rpartition(".")[2].lower())


_MODALITIES: Mapping[str, Feature] = {"image": Image(), "audio": Audio(), "video": Video()}


def _item_problem(item: tuple[Any, str, str | None]) -> LadingError | None:
    """Return the error of an item of a document with its modality and content type."""
    data, modality, content_type = item
    feature = _MODALITIES.get(modality)
    ending = (content_type or "").rpartition("/")[2].lower()
    return None if feature is None else _problem(lambda: _decode(feature, data, ending))


def _problem(work: Callable[[], object]) -> LadingError | None:
    try:
        work()
    except LadingError as error:
        if not isinstance(error, MissingExtra):  # whose advice is of use here too; others tell how to read one value
            error.advice = "Mend it at its origin, or leave the sample out: salvage keeps such values."
        return error
    return None


def _decode(feature: Feature, value: Any, ending: str) -> None:
    """Decode a value that is not None, and no list or struct.

    Raises:
        DataError: the value is damaged, or of another format than the ending says.
        MissingExtra: a package is missing.
    """
    found = decode(feature, value)
    if feature.is_media:
        _decode_media(feature, found, ending)
    elif feature.mds_encoding is not None and hasattr(found, "load"):
        _load(found)


def _decode_media(feature: Feature, data: Any, ending: str) -> None:
    if not isinstance(data, (bytes, memoryview)):  # a file of its own
        return
    if not len(data):
        raise DataError("the file is empty", found="0 bytes")
    info, known = media_info(data), _FORMATS.get(ending)
    if info is not None and known is not None and info.format not in known:
        raise DataError("the bytes are of another format than the ending says", expected=ending, found=info.format)
    if feature.medium == "video":
        if info is None and ending in _UNKNOWN:
            raise MissingExtra(f"no header of {ending} is read")
        if info is None:
            raise DataError("the video has no readable header",
                            found=f"{len(data):,} bytes, first {bytes(data[:8]).hex(' ')}")  # fmt: skip
    elif feature.medium == "audio":
        read_sound(bytes(data))
    else:
        _decode_image(bytes(data), ending)


def _decode_image(data: bytes, ending: str) -> None:
    try:
        image = open_image(data, upright=False)
    except DataError as error:
        found = image_info(data)
        kind = ending if found is None else found.mime.removeprefix("image/")
        if kind in _NEED_PLUGINS:
            raise MissingExtra(f"Pillow here does not read {kind}") from error
        raise
    _load(image)


def _load(image: Any) -> None:
    """Decode the pixels of all frames of an image of Pillow's."""
    try:
        for frame in range(min(getattr(image, "n_frames", 1), _MOST_FRAMES)):
            image.seek(frame)
            image.load()
    except BROKEN as error:
        raise DataError("the image cannot be decoded", found=str(error)[:200]) from error
