"""Rows of samples as the columns of a batch: decoded, transformed, collated.

A column of numbers is an array; values of one shape are stacked; everything else is a list with an entry a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from lading.arrow.types import uncut_values
from lading.arrow.views import is_bytes, is_text
from lading.content.media_files import media_features, open_image, open_media
from lading.errors import DataError, FunctionError, LadingError, MissingExtra, UsageError
from lading.features.items import KEY
from lading.features.types import Audio, Bytes, Feature, Image, Text, Video, decode, feature_of

__all__ = ["Collate", "Columns", "Decode", "Recipe"]

Decode: TypeAlias = Literal["pil", "numpy", "torch"] | Callable[[Any], Any] | None
"""What the value of a column becomes: an image of Pillow's, an array, a tensor, what a function makes of the bytes; or
the bytes themselves for None."""

Collate: TypeAlias = Literal["numpy", "torch", "list", "arrow"] | Callable[[list[dict[str, Any]]], Any]
"""What a batch is: a dict of columns of arrays, or of tensors; a list of samples; an Arrow table; or what a function
makes of the list of samples."""

Columns: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is made of the rows of a batch.

    Attributes:
        decode: by column; other columns are decoded as `ds[i]` does. False decodes no media.
        image_size: height and width of images; a number stands for both. None leaves them as they are.
        transform: is given every sample, a dict, and returns one.
        batch_transform: is given every batch, and returns one.
        collate: what a batch is.
    """

    decode: Mapping[str, Decode] | Literal[False] | None = None
    image_size: int | tuple[int, int] | None = None
    transform: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    batch_transform: Callable[[Any], Any] | None = None
    collate: Collate = "numpy"


class ColumnMaker:
    """Makes batches of rows, as a recipe says.

    Args:
        recipe: what is made.
        as_samples: gives the rows of documents as samples (`Dataset.as_samples`); None where a row is a sample.

    Raises:
        UsageError: a name in the recipe is unknown.
    """

    def __init__(self, recipe: Recipe, as_samples: Callable[[pa.Table], list[dict[str, Any]]] | None) -> None:
        self._recipe, self._as_samples = recipe, as_samples
        _refuse_unknown(recipe)
        self._size = (recipe.image_size, recipe.image_size) if isinstance(recipe.image_size, int) else recipe.image_size

    @property
    def decodes(self) -> bool:
        """Whether batches are made of decoded columns, and not of the Arrow tables themselves."""
        return self._recipe.collate != "arrow"

    @property
    def is_costly(self) -> bool:
        """Whether threads should share the work: functions, and images to be decoded."""
        recipe = self._recipe
        functions = recipe.transform is not None or recipe.batch_transform is not None
        return functions or (self.decodes and recipe.decode is not False)

    def decoded(self, rows: pa.Table, count: int) -> tuple[Columns, dict[int, LadingError]]:
        """The columns of some samples, decoded and transformed, and the errors of those that could not be."""
        failed: dict[int, LadingError] = {}
        if self._as_samples is not None:
            samples = self._as_samples(rows)
            columns: Columns = {name: [each.get(name) for each in samples] for name in _names(samples)}
        else:
            columns = {field.name: self._values(field, rows.column(i), failed) for i, field in enumerate(rows.schema)}
        if self._recipe.transform is not None:
            columns = self._transformed(columns, count, failed)
        return columns, failed

    def batch(self, columns: Columns | pa.Table) -> Any:
        """The batch that a loop is given, of decoded columns; or of a table, if nothing is decoded."""
        collate = self._recipe.collate
        found: Any = columns
        if isinstance(columns, dict) and (collate == "list" or callable(collate)):
            found = samples_of(columns)
            found = collate(found) if callable(collate) else found
        elif isinstance(columns, dict):
            found = {name: _collated(values, str(collate)) for name, values in columns.items()}
        return found if self._recipe.batch_transform is None else self._recipe.batch_transform(found)

    def _values(self, field: pa.Field, column: pa.ChunkedArray, failed: dict[int, LadingError]) -> Any:
        kind, feature = field.type, feature_of(field)
        if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not column.null_count:
            return np.array(column.to_numpy())
        values = [value for chunk in column.chunks for value in uncut_values(_stored(chunk))]
        function = self._function(field, feature)
        if function is None:
            return values
        for i, value in enumerate(values):
            try:
                values[i] = None if value is None else function(value)
            except LadingError as error:
                failed.setdefault(i, error.at(column=field.name))
                values[i] = None
        return values

    def _function(self, field: pa.Field, feature: Feature) -> Callable[[Any], Any] | None:
        given, collate, name = self._recipe.decode, self._recipe.collate, field.name
        media = media_features({name: feature})
        plain = None if _is_stored_as_given(field.type, feature) else partial(decode, feature)
        if given is False or (not media and name not in (given or {})):
            return plain
        how: Decode = "torch" if collate == "torch" else "numpy"
        if given is not None and name in given:
            how = given[name]
        if how is None:
            return plain
        if callable(how):
            return partial(_called, how)
        if not isinstance(feature, Image):
            return lambda value: open_media(feature, decode(feature, value))
        return lambda value: as_pixels(decode(feature, value), how, self._size)

    def _transformed(self, columns: Columns, count: int, failed: dict[int, LadingError]) -> Columns:
        transform = self._recipe.transform
        assert transform is not None, "the caller has looked"
        made: list[dict[str, Any]] = []
        for i, sample in enumerate(samples_of(columns) if columns else [{} for _ in range(count)]):
            if i not in failed:
                try:
                    made.append(_as_dict(transform(sample)))
                    continue
                except Exception as error:  # noqa: BLE001 - whatever the user's function raises
                    failed[i] = _of_function("transform", error, sample.get(KEY))
            made.append({})
        return {name: [each.get(name) for each in made] for name in _names(made)}


def samples_of(columns: Columns) -> list[dict[str, Any]]:
    """The samples of a batch, a dict each."""
    lists = [
        values.tolist() if type(values) is np.ndarray and values.ndim == 1 else values for values in columns.values()
    ]
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


def as_pixels(data: bytes, how: Literal["pil", "numpy", "torch"], size: tuple[int, int] | None = None) -> Any:
    """An image in RGB: Pillow's, or `uint8` pixels: (height, width, 3) of numpy, (3, height, width) of torch.

    A JPEG that is to become smaller is decoded at the nearest larger eighth of its size, which is several times faster.

    Args:
        data: the file.
        how: what is given.
        size: height and width; None for those of the image.

    Raises:
        DataError: the image is damaged.
        MissingExtra: Pillow, or torch, is not installed.
    """
    image = open_image(data)
    try:
        if size is not None:
            image.draft("RGB", size[::-1])
        image = image if image.mode == "RGB" else image.convert("RGB")
        if size is not None and image.size != size[::-1]:
            image = image.resize(size[::-1], resample=2, reducing_gap=2.0)
        image.load()
    except (OSError, ValueError, SyntaxError, IndexError, EOFError, ArithmeticError, MemoryError) as error:
        raise DataError("the image cannot be decoded", found=str(error)[:200]) from error
    if how == "pil":
        return image
    pixels = np.array(image)
    return pixels if how == "numpy" else _torch().from_numpy(pixels).permute(2, 0, 1).contiguous()


def _collated(values: Any, collate: str) -> Any:
    first = values[0] if len(values) else None
    if isinstance(values, list) and _are_tensors(first):
        return _torch().stack(values) if len({getattr(value, "shape", None) for value in values}) == 1 else values
    if isinstance(values, list):
        if (
            isinstance(first, np.ndarray)
            and len({(value.shape, value.dtype) for value in values if value is not None}) == 1
        ):
            values = values if any(value is None for value in values) else np.stack(values)
        elif isinstance(first, (int, float, np.generic)) and all(type(value) is type(first) for value in values):
            values = np.array(values)
    if collate == "torch" and isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return _torch().from_numpy(values)
    return values


def _are_tensors(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "shape")


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        advice = 'Install it: pip install torch. Or take arrays: collate="numpy".'
        raise MissingExtra("tensors need PyTorch, which is not installed", advice=advice) from error
    return torch


def _stored(chunk: pa.Array) -> pa.Array:
    return chunk.storage if isinstance(chunk.type, pa.ExtensionType) else chunk


def _is_stored_as_given(kind: pa.DataType, feature: Feature) -> bool:
    """Whether values of a column are what `decode` makes of them."""
    if isinstance(feature, Text):
        return is_text(kind)
    return isinstance(feature, (Bytes, Image, Audio, Video)) and is_bytes(kind)


def _called(function: Callable[[Any], Any], value: Any) -> Any:
    try:
        return function(value)
    except Exception as error:
        raise _of_function("decode", error, None) from error


def _of_function(verb: str, error: Exception, key: Any) -> LadingError:
    if isinstance(error, LadingError):
        return error
    made = FunctionError(
        f"the function of {verb} raised an error", sample=key, found=f"{type(error).__name__}: {error}",
        advice='Correct the function, or take other samples in their place with on_error="skip".',
    )  # fmt: skip
    made.__cause__ = error
    return made


def _as_dict(sample: Any) -> dict[str, Any]:
    if not isinstance(sample, dict):
        raise UsageError("transform must return a dict", found=type(sample).__name__)
    return sample


def _names(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for sample in samples for name in sample))


def _refuse_unknown(recipe: Recipe) -> None:
    kinds = get_args(get_args(Collate)[0])
    if not callable(recipe.collate) and recipe.collate not in kinds:
        raise UsageError("no such collate", expected=f"{', '.join(kinds)} or a function", found=repr(recipe.collate))
    for name, how in (recipe.decode or {}).items():
        if how is not None and not callable(how) and how not in ("pil", "numpy", "torch"):
            raise UsageError(f"no such way to decode {name!r}", expected="pil, numpy, torch, None or a function",
                             found=repr(how))  # fmt: skip
