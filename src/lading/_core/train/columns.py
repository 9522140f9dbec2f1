"""Rows of samples as the columns of a batch: decoded and transformed.

How a column is decoded depends on its type, and not on the values of a batch. So a column has one type in all batches:
an array where the type says the shape, else a list. A null is None in a list, and NaN among floats. In other arrays
nothing stands for it, and `missing` decides (`_core.train.missing`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from lading._core.arrow.views import total_bytes
from lading._core.features.items import KEY
from lading._core.features.types import (
    FEATURE_KEY,
    Feature,
    Image,
    feature_of,
)
from lading._core.storage.threads import Running
from lading._core.train.collate import Columns, collated, columns_of, samples_of, uncollated
from lading._core.train.decode import Decode, decoder_of, holds_images, holds_media, of_function, takes_rng
from lading._core.train.images import Fit, ImageSize, Pictures, Size, Way, is_several, refuse_wrong_fit, sizes_of
from lading._core.train.missing import (
    Failed,
    Lacking,
    Missing,
    choice_of,
    in_array,
    in_list,
    in_values,
    is_list,
    refuse_wrong_missing,
)
from lading._core.train.values import (
    Making,
    Reader,
    Spread,
    array_reader,
    as_stored,
    each_value,
    holds_arrays,
    holds_lists_of_numbers,
    holds_numbers,
    list_values,
    one_by_one,
    pixels,
    plain,
    scalars,
)
from lading.errors import FunctionError, LadingError, UsageError

__all__ = ["Collate", "ColumnMaker", "Recipe"]

Collate: TypeAlias = Literal["numpy", "torch", "list", "arrow"] | Callable[[list[dict[str, Any]]], Any]
"""What a batch is: a dict of columns of arrays, or of tensors; a list of samples; an Arrow table; or what a function
makes of the list of samples."""

_ITEM = "binary_content"
_ELSEWHERE: Final = "If only other shards have it, name the columns that you use in ds.select(…)."
_AT_ONCE_BYTES: Final = 1 << 20
"""Of files that are decoded before `transform` is given the samples: pixels take ten times as much, or more."""


RngOf: TypeAlias = Callable[[int, str], np.random.Generator]
"""Makes the generator of the sample at a place, for one use of it: `transform` or `decode`."""


def _any_rng(place: int, _: str) -> np.random.Generator:
    return np.random.default_rng(place)


def _no_check() -> None:
    """Values are in memory of their own."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is made of the rows of a batch.

    Attributes:
        decode: by column; other columns are decoded as `ds[i]` does. False decodes no media.
        image_size: height and width of images; a number stands for both. None leaves them as they are. Of several sizes
            each batch has one.
        fit: how images come to the size; by default they are stretched, and cropped where there are several sizes.
        transform: is given every sample, a dict, and returns one; also a generator, if it has an argument `rng`.
        batch_transform: is given every batch, and returns one.
        collate: what a batch is.
        missing: what stands for values that a sample lacks.
    """

    decode: Mapping[str, Decode] | Literal[False] | None = None
    image_size: ImageSize = None
    fit: Fit | None = None
    transform: Callable[..., dict[str, Any]] | None = None
    batch_transform: Callable[[Any], Any] | None = None
    collate: Collate = "numpy"
    missing: Missing = "error"


class ColumnMaker:
    """Makes batches of rows, as a recipe says.

    Args:
        recipe: what is made.
        known: gives the names of all columns; asked once if the recipe names any. None checks no names.

    Raises:
        UsageError: a name in the recipe is unknown.
    """

    def __init__(self, recipe: Recipe, known: Callable[[], Sequence[str]] | None = None) -> None:
        self._recipe, self._known = recipe, known
        _refuse_wrong(recipe)
        self._sizes = sizes_of(recipe.image_size)
        refuse_wrong_fit(recipe.fit, self._sizes)
        self._fit: Fit = recipe.fit or ("crop" if is_several(recipe.image_size) else "stretch")
        self._makes_arrays = recipe.collate in ("numpy", "torch")
        self._readers: dict[Any, tuple[Reader, bool]] = {}
        self._stored = {name for name, way in (recipe.decode or {}).items() if way is None}
        self._lists = {*self._stored}  # of values that batches have as they are
        self._uneven = set[str]()  # lists of arrays, or of numbers
        self._draws = _takes_rng(recipe.transform)
        self._unmade = set[str]()  # names of `missing` that a transform must make

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    @property
    def decodes(self) -> bool:
        """Whether batches are made of decoded columns, and not of the Arrow tables themselves."""
        return self._recipe.collate != "arrow"

    @property
    def has_functions(self) -> bool:
        """Whether functions of the user are called for samples or batches."""
        recipe = self._recipe
        return recipe.transform is not None or recipe.batch_transform is not None or callable(recipe.collate)

    @property
    def is_costly(self) -> bool:
        """Whether threads should share the work: functions, and images to be decoded."""
        return self.has_functions or (self.decodes and self._recipe.decode is not False)

    def decoded(
        self,
        rows: pa.Table,
        count: int,
        as_samples: Callable[[pa.Table], list[dict[str, Any]]] | None = None,
        rng_of: RngOf = _any_rng,
        spread: Spread = one_by_one,
        size: Size | None = None,
        check: Callable[[], None] = _no_check,
    ) -> tuple[Columns, Failed]:
        """The columns of some samples, decoded and transformed, and the errors of those that could not be.

        Args:
            rows: of the samples.
            count: number of samples.
            as_samples: gives the rows of documents as samples (`OpenDataset.as_samples`); None where a row is a sample.
            rng_of: makes generators, for a transform that takes one, and for columns that draw.
            spread: shares the work out to threads.
            size: of the images of this batch; by default that of the recipe.
            check: raises CorruptShard if a file has changed that values are left in. Media are copied one by one, when
                they are decoded.

        Raises:
            UsageError: the recipe has several sizes, and the batch has none of them.
            CorruptShard: as `check`.
        """
        failed: Failed = {}
        recipe = self._recipe
        if self._known is not None and (recipe.decode or isinstance(recipe.missing, Mapping)):
            self._refuse_unknown(self._known())
            self._known = None
        making = Making(spread, self._size_of(size), lambda i: rng_of(i, "decode"), check)
        samples = rows if as_samples is None else as_samples(rows)
        if self._recipe.transform is None:
            columns = self._columns(samples, failed, making)
            self.complete(columns, failed)
            return columns, dict(sorted(failed.items()))
        made: list[dict[str, Any]] = [{}] * count
        at_once = self._at_once(rows, count, making, documents=as_samples is not None)

        def make(group: int) -> None:
            errors: Failed = {}
            places = range(count)[group * at_once : (group + 1) * at_once]
            some = Making(one_by_one, making.size, lambda i: rng_of(places[i], "decode"), check)
            columns = self._columns(samples[places.start : places.stop], errors, some)
            made[places.start : places.stop] = self._transformed(columns, places, errors, rng_of)
            failed.update({places[i]: error for i, error in errors.items()})

        spread(make, -(-count // at_once))
        columns = columns_of(made)
        if unmade := sorted(self._unmade - columns.keys()) if columns else []:
            raise UsageError(
                f"missing names a column that is not there: {unmade[0]!r}", expected=", ".join(columns),
                advice=f"If the transform makes it, it is for every sample, None where it is missing. {_ELSEWHERE}",
            )  # fmt: skip
        self.complete(columns, failed, samples)
        return columns, dict(sorted(failed.items()))

    def _size_of(self, size: Size | None) -> Size | None:
        """The size of the images of a batch."""
        if size is not None:
            return size
        if len(self._sizes) > 1:
            raise UsageError("image_size has several sizes, and these batches are not made by size",
                             expected="one size", found=f"image_size={[*self._sizes]}"[:200])  # fmt: skip
        return self._sizes[0] if self._sizes else None

    def refuse_unused_size(self, features: Mapping[str, Feature], *, all_known: bool) -> None:
        """Raise UsageError for an `image_size`, or a `fit`, that changes nothing of these columns.

        Args:
            features: of the columns that are read.
            all_known: whether there are no others.
        """
        recipe = self._recipe
        if not self._sizes:
            return
        by_shape = is_several(recipe.image_size)  # batches are, of whatever columns
        ways = {name: self._way(name, feature) for name, feature in features.items()}
        images = [
            way for name, way in ways.items()
            if holds_images(features[name]) or (features[name].is_bytes and isinstance(way, (str, Pictures)))
        ]  # fmt: skip
        if not images:
            if all_known and not by_shape:
                raise UsageError("no column holds images", found=f"image_size={recipe.image_size}",
                                 advice='Leave it out; for bytes that are images add decode={"COLUMN": "numpy"}.'
                                 )  # fmt: skip
            return
        sized = [way.size is None if isinstance(way, Pictures) else by_shape or isinstance(way, str) for way in images]
        if not any(sized):
            raise UsageError("image_size changes no image: decode= says how each becomes pixels",
                             found=f"image_size={recipe.image_size}, decode={recipe.decode}"[:200],
                             advice="Leave image_size out, or the size of lading.train.images(…).")  # fmt: skip
        fitted = [way for way in images if not isinstance(way, Pictures) or not (way.fit or way.random_crop)]
        if recipe.fit is not None and not fitted:
            raise UsageError("fit changes no image: lading.train.images has a fit of its own, or a random crop",
                             found=f"fit={recipe.fit!r}, decode={recipe.decode}"[:200], advice="Leave fit out."
                             )  # fmt: skip

    def complete(
        self, columns: Columns, failed: Failed, samples: pa.Table | Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Put what stands for missing values into columns whose values tell their types: those that functions made.

        Args:
            columns: changed.
            failed: takes errors of samples.
            samples: what the columns were made of; None if they have the keys.
        """
        recipe, errors = self._recipe, Failed(failed)
        if not (self._makes_arrays or isinstance(recipe.missing, Mapping)):
            return
        known = {*self._lists, *self._uneven} if recipe.transform is None else {}
        for name, values in columns.items():
            if not isinstance(values, list) or name in known or not (self._makes_arrays or name in recipe.missing):
                continue
            if in_values(name, values, recipe.missing, errors):
                self._uneven.add(name)
        for i in sorted(errors.keys() - failed.keys()):
            failed[i] = errors[i].at(sample=_key_of(columns if samples is None else samples, i))

    def _at_once(self, rows: pa.Table, count: int, making: Making, *, documents: bool) -> int:
        """How many samples are decoded before `transform` is given them: all where no media are decoded."""
        media = [_ITEM] if documents else [field.name for field in rows.schema if self._reader_of(field, making)[1]]
        stored = sum(map(total_bytes, rows.select(media).to_batches())) if media else 0
        return max(count * _AT_ONCE_BYTES // stored, 1) if stored > _AT_ONCE_BYTES else max(count, 1)

    def batch(self, columns: Columns | pa.Table) -> Any:
        """The batch that a loop is given, of decoded columns; or of a table, if nothing is decoded."""
        collate = self._recipe.collate
        found: Any = columns
        if isinstance(columns, dict) and (collate == "list" or callable(collate)):
            found = samples_of(columns)
            found = _called_for_batch("collate", collate, found) if callable(collate) else found
        elif isinstance(columns, dict):
            torch = collate == "torch"
            # A transform may make arrays of such columns.
            lists = self._lists if self._recipe.transform is None else ()
            found = {
                name: values if name in lists
                else uncollated(values, torch=torch) if name in self._uneven
                else collated(values, torch=torch)
                for name, values in columns.items()
            }  # fmt: skip
        last = self._recipe.batch_transform
        return found if last is None else _called_for_batch("batch_transform", last, found)

    def _refuse_unknown(self, known: Sequence[str]) -> None:
        recipe = self._recipe
        missing = recipe.missing if isinstance(recipe.missing, Mapping) else ()
        if recipe.transform is not None:
            self._unmade, missing = {*missing} - {*known}, ()
        for argument, names in (("decode", recipe.decode or ()), ("missing", missing)):
            if unknown := sorted({*names} - {*known}):
                raise UsageError(
                    f"{argument} names a column that is not there: {unknown[0]!r}", expected=", ".join(known),
                    advice=_ELSEWHERE,
                )  # fmt: skip

    def _way(self, name: str, feature: Feature) -> Decode:
        """What the values of a column become."""
        given = self._recipe.decode
        if given is not None and given is not False and name in given:
            return given[name]
        if given is False or not holds_media(name, feature):
            return None
        return self._default

    @property
    def _default(self) -> Way:
        return "torch" if self._recipe.collate == "torch" else "numpy"

    # Columns of samples

    def _columns(self, rows: pa.Table | list[dict[str, Any]], failed: Failed, making: Making) -> Columns:
        """Decoded columns of rows, or of documents."""
        if isinstance(rows, list):
            columns = self._documents(rows, failed, making)
        else:
            columns = {
                field.name: self._values(field, rows.column(i), failed, making) for i, field in enumerate(rows.schema)
            }
        for i, error in failed.items():
            error.at(sample=None if (keys := columns.get(KEY)) is None or keys[i] is None else str(keys[i]))
        return columns

    def _values(self, field: pa.Field, column: pa.ChunkedArray, failed: Failed, making: Making) -> Any:
        chunk = column.chunk(0) if column.num_chunks == 1 else None
        errors: Failed = {}
        read, is_media = self._reader_of(field, making)
        values = plain(column.combine_chunks() if chunk is None else chunk)
        found = read(values, errors, making) if is_media else read(values, errors)
        choice = choice_of(self._recipe.missing, field.name, holds=not isinstance(found, Lacking) or found.holds)
        if isinstance(found, Lacking):
            if is_list(choice):
                self._uneven.add(field.name)
            found = in_array(field.name, found, choice, errors)
        elif isinstance(found, list) and (self._recipe.transform or field.name in {*self._lists, *self._uneven}):
            in_list(field.name, found, choice, errors)  # of values that functions made: `complete`
        for i, error in errors.items():
            failed.setdefault(i, error.at(column=field.name))
        return found

    def _reader_of(self, field: pa.Field, making: Making) -> tuple[Reader, bool]:
        """How a column is read, and whether media are decoded, or a function is called, for each value."""
        key = (field.name, field.type, (field.metadata or {}).get(FEATURE_KEY), making.size)
        found = self._readers.get(key)
        if found is None:
            read = self._reader(field, making.size)
            found = self._readers[key] = read, self._way(field.name, feature_of(field)) is not None
        return found

    def _pictures(self, way: Decode, size: Size | None) -> tuple[Callable[..., Any] | Way | None, Pictures]:
        """What values become, and how images among them become pixels, in a batch with images of a size."""
        if isinstance(way, Pictures):
            return self._default, way.within(size, self._fit)
        return way, Pictures(size, self._fit)

    def _reader(self, field: pa.Field, size: Size | None) -> Reader:
        """How a column is read, in a batch with images of a size."""
        name, feature, kind = field.name, feature_of(field), plain(pa.nulls(0, field.type)).type
        given = self._way(name, feature)
        way, pictures = self._pictures(given, size)
        if feature.medium == "video" and name in (self._recipe.decode or {}) and way in get_args(Way):
            raise UsageError("a video becomes frames by a function", found=f"decode={{{name!r}: {given!r}}}",
                             expected="such as lading.train.frames(count=8), or None")  # fmt: skip
        if isinstance(given, Pictures) and not (holds_images(feature) or feature.is_bytes):
            raise UsageError("lading.train.images is for images and bytes", found=f"decode={{{name!r}: images(…)}} of "
                             f"a column of {type(feature).__name__}")  # fmt: skip
        arrays = self._makes_arrays and self._recipe.transform is None and name not in self._stored
        is_image = feature.medium == "image" or feature.mds_encoding == "pil"
        is_image |= feature.is_bytes and not holds_media(name, feature)
        if arrays and pictures.is_even and way in ("numpy", "torch") and is_image:
            return partial(pixels, feature=feature, pictures=pictures, channels_first=way == "torch")
        if arrays and way is None and (read := array_reader(feature, kind)) is not None:
            return read
        is_numbers = name not in self._stored and holds_lists_of_numbers(feature, kind)
        if arrays and (is_numbers or holds_arrays(feature) or way in get_args(Way)):
            self._uneven.add(name)
        elif arrays and way is None and feature.mds_encoding is None:  # such values are numbers, or others
            self._lists.add(name)
        if way is not None:
            return partial(each_value, function=decoder_of(name, feature, way, pictures), draws=takes_rng(given))
        if is_numbers:
            return list_values
        return scalars if holds_numbers(kind) and name not in self._stored else as_stored(feature, kind)

    # Documents

    def _documents(self, samples: list[dict[str, Any]], failed: Failed, making: Making) -> Columns:
        given = self._way(_ITEM, Image())
        way, pictures = self._pictures(given, making.size)
        if way is not None:
            function, draws = decoder_of(_ITEM, Image(), way, pictures), takes_rng(given)

            def decoded(item: dict[str, Any], rng: list[np.random.Generator]) -> dict[str, Any]:
                named = item.get(_ITEM) is not None and (callable(way) or item.get("modality") == "image")
                return {**item, _ITEM: function(item[_ITEM], *rng)} if named else item

            samples = [*samples]

            def decode_items(i: int) -> None:
                sample = samples[i]
                try:
                    rng = [making.rng_of(i)] if draws else []
                    samples[i] = {**sample, "items": [decoded(item, rng) for item in sample["items"]]}
                except LadingError as error:
                    failed[i] = error.at(column=_ITEM, sample=sample.get("sample_id"))

            making.spread(decode_items, len(samples))
        self._lists |= {"items", "sample_id"}
        return columns_of(samples)

    def _transformed(self, columns: Columns, places: range, failed: Failed, rng_of: RngOf) -> list[dict[str, Any]]:
        """What `transform` makes of the sample at each place; an empty dict for one that failed."""
        transform = self._recipe.transform
        assert transform is not None, "the caller has looked"
        made: list[dict[str, Any]] = []
        for i, sample in enumerate(samples_of(columns) if columns else [{} for _ in places]):
            if i not in failed:
                try:
                    more = {"rng": rng_of(places[i], "transform")} if self._draws else {}
                    with Running(transform):
                        made.append(_as_dict(transform(sample, **more)))
                    continue
                except Exception as error:  # noqa: BLE001 - whatever the user's function raises
                    failed[i] = of_function("transform", error, sample.get(KEY))
            made.append({})
        return made


def _takes_rng(transform: Callable[..., Any] | None) -> bool:
    """Whether a function has an argument `rng` that nobody has set."""
    try:
        argument = None if transform is None else inspect.signature(transform).parameters.get("rng")
    except (TypeError, ValueError):  # a function of C has no signature
        return False
    return argument is not None and argument.default is argument.empty and argument.kind is not argument.VAR_KEYWORD


def _called_for_batch(verb: str, function: Callable[[Any], Any], batch: Any) -> Any:
    try:
        with Running(function):
            return function(batch)
    except LadingError:
        raise
    except Exception as error:
        raise FunctionError(
            f"the function of {verb} raised an error for the batch that begins with this sample",
            found=f"{type(error).__name__}: {error}", advice="Correct the function.",
        ) from error  # fmt: skip


def _key_of(samples: pa.Table | Columns | Sequence[Mapping[str, Any]], i: int) -> str | None:
    """The key of a sample, if it has one."""
    if isinstance(samples, pa.Table):
        key = samples.column(KEY)[i].as_py() if KEY in samples.column_names else None
    elif isinstance(samples, dict):
        key = samples[KEY][i] if KEY in samples else samples["sample_id"][i] if "sample_id" in samples else None
    else:
        key = samples[i].get("sample_id")
    return None if key is None else str(key)


def _as_dict(sample: Any) -> dict[str, Any]:
    if not isinstance(sample, dict):
        raise UsageError(
            "transform must return a dict", found=type(sample).__name__,
            advice='Return columns by name: {"image": image, "label": label}. To make a tuple of each batch, use '
            "batch_transform. To leave samples out, open them with lading.open(…).where(…).",
        )  # fmt: skip
    return sample


def _refuse_wrong(recipe: Recipe) -> None:
    kinds = get_args(get_args(Collate)[0])
    arrays, tables = recipe.collate in ("numpy", "torch"), recipe.collate == "arrow"
    refuse_wrong_missing(recipe.missing, arrays=arrays, tables=tables)
    if not callable(recipe.collate) and recipe.collate not in kinds:
        raise UsageError("no such collate", expected=f"{', '.join(kinds)} or a function", found=repr(recipe.collate))
    for name in ("transform", "batch_transform"):
        if (function := getattr(recipe, name)) is not None and not callable(function):
            raise UsageError(f"{name} must be a function", found=repr(function))
    _refuse_ignored(recipe)
    if recipe.decode not in (None, False) and not isinstance(recipe.decode, Mapping):
        raise UsageError("decode must say what each column becomes", expected='a dict such as {"jpg": "pil"}, or False',
                         found=repr(recipe.decode))  # fmt: skip
    for name, how in (recipe.decode or {}).items():
        if isinstance(how, Pictures):
            _refuse_wrong_pictures(name, how, recipe)
        elif how is not None and not callable(how) and how not in get_args(Way):
            raise UsageError(f"no such way to decode {name!r}", found=repr(how),
                             expected="pil, numpy, torch, lading.train.images(…), None or a function")  # fmt: skip


def _refuse_wrong_pictures(name: str, pictures: Pictures, recipe: Recipe) -> None:
    """Raise UsageError for images of a column that need a size and have none, or a fit that does not suit it."""
    sizes = sizes_of(recipe.image_size) if pictures.size is None else (pictures.size,)
    if pictures.random_crop is None:
        refuse_wrong_fit(pictures.fit or recipe.fit, sizes)
    elif not sizes:
        raise UsageError("a random crop is stretched to a size, and there is none",
                         found=f"decode={{{name!r}: {pictures!r}}}",
                         advice=f"Give it a size: lading.train.images(224, random_crop={pictures.random_crop})."
                         )  # fmt: skip


def _refuse_ignored(recipe: Recipe) -> None:
    """Raise UsageError for what would change nothing: a table has stored values, and images may be left undecoded."""
    given = {"decode": recipe.decode or None, "image_size": recipe.image_size, "transform": recipe.transform}
    if recipe.collate == "arrow":
        for name in (name for name, value in given.items() if value is not None):
            raise UsageError("a table has the stored values", found=f'{name}= with collate="arrow"',
                             advice=f'Leave {name} out, or use collate="numpy", "torch" or "list".')  # fmt: skip
    if recipe.decode is False and recipe.image_size is not None:
        raise UsageError("images are not decoded", found="image_size= with decode=False",
                         advice="Leave one of them out.")  # fmt: skip
