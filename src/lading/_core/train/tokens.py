"""The tokens of documents: texts by a tokenizer, and for each image as many tokens as a function says.

Python handles documents, their texts and images; numpy handles tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import index
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.content.image import image_info
from lading._core.features.items import PAYLOAD
from lading._core.features.row_layout import row_layout
from lading._core.features.types import feature_of
from lading._core.train.collate import Columns, columns_of
from lading._core.train.columns import ColumnMaker, Recipe
from lading._core.train.decode import holds_images
from lading._core.train.images import sizes_of
from lading._core.train.loader import Loader
from lading._core.train.rows import PADDING
from lading.errors import DataError, FunctionError, UsageError

__all__ = ["IMAGES", "DocumentTokens", "Ids", "ImageTokens", "TooLong", "columns_in"]

Ids: TypeAlias = NDArray[np.int64]

TooLong: TypeAlias = Literal["error", "cut", "skip"]
"""For a document that stays whole and is longer than a sequence: raise; keep its beginning; or leave it out."""

IMAGES: Final = "images"
"""Column that packing makes of the images of each document."""

_ITEMS: Final = "items"
_TEXTS: Final = ("text", "txt")
_TOKENS: Final = ("input_ids", "tokens")
_COLORS: Final = 3


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """How images become tokens.

    Attributes:
        token: the id that stands for images.
        count: gives the number of tokens of an image of this height and width.
        columns: of samples, those that hold images.
        in_files: whether files of images say which size batches give them.
        size: that batches give all images whose files are read; None where each has its own.
    """

    token: int
    count: Callable[[int, int], int]
    columns: tuple[str, ...]
    in_files: bool
    size: tuple[int, int] | None

    @classmethod
    def of_loader(cls, loader: Loader, token: int, count: Callable[[int, int], int]) -> Self:
        """How the images of a loader become tokens."""
        recipe = loader.recipe
        ways = () if not recipe.decode else recipe.decode.values()
        sizes = sizes_of(recipe.image_size)
        one_size = len(sizes) < 2 and recipe.fit != "shortest"  # noqa: PLR2004 - none or one
        in_files = recipe.missing in ("error", "list") and one_size and all(isinstance(way, str) for way in ways)
        size = sizes[0] if sizes and recipe.decode is not False else None
        return cls(token, count, _image_columns(loader), in_files, size)

    def of(self, image: Any, size: tuple[int, int] | None = None) -> int:
        """The number of tokens of an image, as batches have it, or of its file; or of one of this size."""
        try:
            found = index(self.count(*(size or _size_of(image))))
        except DataError:
            raise
        except Exception as error:
            raise FunctionError("image_tokens raised an error, or gave no whole number", advice="Correct the function.",
                                found=f"{type(error).__name__}: {error}") from error  # fmt: skip
        if found < 0:
            raise FunctionError("image_tokens gave a number below 0", found=found, advice="Correct the function.")
        return found


class _Piece(NamedTuple):
    """A text or an image of a document.

    Attributes:
        ids: its tokens.
        image: the image; None for a text.
    """

    ids: Ids
    image: Any = None


class DocumentTokens:
    """Gives the token ids of the documents of a batch.

    Args:
        tokenizer: as `lading.pack` takes it.
        column: of the texts or ids; None for one of the usual names.
        end: put behind every document.
        keep: columns whose values go with the ids.
        images: how images become tokens; None where the column has texts or ids alone.
        most: tokens of a document that stays whole; None where documents are cut into several.
        too_long: what is done with a document that has more.
    """

    def __init__(
        self, tokenizer: Any, column: str | None, end: int | None, keep: Sequence[str], images: ImageTokens | None,
        most: int | None, too_long: TooLong,
    ) -> None:  # fmt: skip
        self._tokenizer, self._column = tokenizer, column
        self.keep = tuple(dict.fromkeys([*keep, *([] if images is None else [IMAGES])]))
        self._end = np.array([] if end is None else [end], np.int64)
        self._tokenized = None if tokenizer is None else _by_batch(tokenizer)
        self._images, self._most, self._too_long = images, most, too_long

    @property
    def reads_later(self) -> bool:
        """Whether kept values can be read when the tokens are known."""
        return bool(self.keep) and (self._images is None or self._images.in_files)

    def columns_among(self, known: Sequence[str]) -> tuple[list[str], list[str]]:
        """The columns of texts, ids and images, and those that are kept; none where that is not sure."""
        images = self._images
        usual = [self._column] if self._column is not None else _TOKENS if self._tokenizer is None else _TEXTS
        found = [_ITEMS] if images is not None and _ITEMS in known else [name for name in usual if name in known]
        pictures = [] if images is None or found == [_ITEMS] else [name for name in images.columns if name in known]
        kept = self.keep if images is None else [name for name in self.keep if name != IMAGES]
        if len(found) != 1 or not {*kept} <= {*known}:
            return [], []
        of_images = [] if images is None else pictures or found
        return [*found, *pictures], list(dict.fromkeys([*kept, *of_images]))

    def kept_in(self, columns: Columns) -> Iterator[tuple[Any, ...]]:
        """The kept values of each document of a batch."""
        self._refuse_unknown(columns)
        count = len(next(iter(columns.values()), ()))
        yield from (self._kept(columns, i, [*self._images_of(columns, i)]) for i in range(count))

    def matched(self, ids: Ids, kept: tuple[Any, ...]) -> tuple[Any, ...]:
        """The kept values of a document with as many images as its tokens stand for.

        Raises:
            DataError: an image has another size than its header says.
        """
        if self._images is None:
            return kept
        place, wanted = self.keep.index(IMAGES), int(np.count_nonzero(ids == self._images.token))
        counts = [(self._images.of(image), image) for image in kept[place]]
        images = [image for count, image in counts if count]
        ends = [0, *accumulate(count for count, _ in counts if count)]
        if wanted not in ends:
            raise DataError("an image has another size than its header says", column=IMAGES,
                            expected=f"images of {wanted:,} tokens", found=f"{ends[-1]:,}")  # fmt: skip
        return (*kept[:place], images[: ends.index(wanted)], *kept[place + 1 :])

    def documents(self, batch: Any, counts: Counter[str], first: int | None) -> list[tuple[Ids, Any]]:
        """The tokens and kept values of each document, without padding of the loader; nulls are counted.

        Args:
            batch: of the loader.
            counts: takes what is left out.
            first: position of the first document; positions then come instead of kept values. None gives the values.
        """
        columns = columns_in(batch)
        if first is None:
            self._refuse_unknown(columns)
        count = len(next(iter(columns.values()), ()))
        real = range(count) if PADDING not in columns else np.flatnonzero(~np.array(columns[PADDING])).tolist()
        if self._images is None:
            pieces = self._of_texts(columns, real, counts)
        else:
            size = None if first is None else self._images.size
            pieces = self._with_images(columns, real, counts, size)
        found = []
        for i, document in pieces.items():
            whole = self._fitting(document, counts)
            if whole is None:
                continue
            ids = [piece.ids for piece in whole]
            images = [piece.image for piece in whole if piece.image is not None]
            kept = self._kept(columns, i, images) if first is None else first + i
            found.append((ids[0] if len(ids) == 1 and not len(self._end) else np.concatenate([*ids, self._end]), kept))
        return found

    def _of_texts(self, columns: Columns, real: Sequence[int], counts: Counter[str]) -> dict[int, list[_Piece]]:
        """The tokens of the text, or the ids, of each sample."""
        name = self._name([*columns])
        values = columns[name]
        places = [i for i in real if values[i] is not None]
        if len(places) < len(real):
            counts[f"samples without {name}, left out"] += len(real) - len(places)
        found: Sequence[Any] = [values[i] for i in places]
        if self._tokenized is not None:
            found = self._ids_of(name, found)
        return {i: [_Piece(_as_ids(each, name))] for i, each in zip(places, found, strict=True)}

    def _with_images(
        self, columns: Columns, real: Sequence[int], counts: Counter[str], size: tuple[int, int] | None
    ) -> dict[int, list[_Piece]]:
        """The tokens of the texts and images of each document, in their order; of a sample the images come first."""
        assert self._images is not None, "the caller has looked"
        if _ITEMS not in columns and not {*self._images.columns} & {*columns}:
            raise UsageError("no column of images to pack", expected="items of documents, or a column of images",
                             found=", ".join(columns),
                             advice="Give the transform's samples the names of the dataset. "
                             "Or make token ids in the transform, and leave image_tokens out.")  # fmt: skip
        parts = {i: found for i in real if (found := self._parts(columns, i, counts)) is not None}
        texts = [part for each in parts.values() for part in each if isinstance(part, str)]
        ids = iter(self._ids_of("text_content" if _ITEMS in columns else self._name([*columns]), texts))
        pieces = dict[int, list[_Piece]]()
        for i, each in parts.items():
            pieces[i] = []
            for part in each:
                if isinstance(part, str):
                    pieces[i].append(_Piece(self._of_text(next(ids))))
                elif number := self._images.of(part, size):
                    pieces[i].append(_Piece(np.full(number, self._images.token, np.int64), part))
                else:
                    counts["images of no token, left out"] += 1
        return pieces

    def _parts(self, columns: Columns, i: int, counts: Counter[str]) -> list[Any] | None:
        """The texts and images of a document; None for a sample without text."""
        items = columns[_ITEMS][i] if _ITEMS in columns else None
        if items is None:
            name = self._name([*columns])
            if columns[name][i] is None:
                counts[f"samples without {name}, left out"] += 1
                return None
            return [*self._images_of(columns, i), columns[name][i]]
        parts = []
        for item in items:
            modality = item["modality"]
            if modality not in ("text", "image"):
                raise DataError("only texts and images of documents become tokens", found=f"an item {modality!r}",
                                advice="Leave such items out in the loader's transform=.")  # fmt: skip
            value = item.get("text_content" if modality == "text" else PAYLOAD)
            if value is not None:
                parts.append(value)
            elif modality == "image":
                counts["images without bytes, left out"] += 1
        return parts

    def _images_of(self, columns: Columns, i: int) -> Iterator[Any]:
        """The images of a document."""
        if self._images is None:
            return
        items = columns[_ITEMS][i] if _ITEMS in columns else None
        if items is not None:
            values = (item.get(PAYLOAD) for item in items if item["modality"] == "image")
            yield from (value for value in values if value is not None)
            return
        for name in self._images.columns:
            value: Any = columns[name][i] if name in columns else None
            several = isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > _COLORS
            yield from (image for image in (value if several else [value]) if image is not None)

    def _of_text(self, found: Any) -> Ids:
        ids = _as_ids(found, "text")
        assert self._images is not None, "the caller has looked"
        if (ids == self._images.token).any():
            raise DataError("a text has the token that stands for images", expected=f"texts without the id "
                            f"{self._images.token}", found=f"{np.count_nonzero(ids == self._images.token)} of them",
                            advice="Let the tokenizer split special tokens of texts, or give another image_token."
                            )  # fmt: skip
        return ids

    def _fitting(self, document: list[_Piece], counts: Counter[str]) -> list[_Piece] | None:
        """The document, or as much of it as fits a sequence; None if it is left out.

        A document that stays as it is, with `too_long="error"`, is refused where sequences are made.
        """
        if self._most is None or self._too_long == "error":
            return document
        room = self._most - len(self._end)
        if sum(len(piece.ids) for piece in document) <= room:
            return document
        kept = list[_Piece]()
        for piece in document if self._too_long == "cut" else ():
            if piece.image is not None and len(piece.ids) > room:
                break
            kept.append(_Piece(piece.ids[:room], piece.image))
            room -= len(kept[-1].ids)
        counts[f"documents longer than a sequence, {'cut' if kept else 'left out'}"] += 1
        return kept or None

    def _kept(self, columns: Columns, i: int, images: list[Any]) -> tuple[Any, ...]:
        makes_images = self._images is not None
        return tuple(images if makes_images and name == IMAGES else columns[name][i] for name in self.keep)

    def _ids_of(self, name: str, texts: Sequence[Any]) -> Sequence[Any]:
        """The tokens of texts. Raises UsageError for other values, FunctionError if the tokenizer does."""
        wrong = next((value for value in texts if not isinstance(value, str)), None)
        if wrong is not None:
            raise UsageError(f"the column {name!r} has no texts", expected="str", found=type(wrong).__name__,
                             advice="Name the column of texts: column=…; or leave the tokenizer out.")  # fmt: skip
        assert self._tokenized is not None, "the caller has looked"
        try:
            return self._tokenized([*texts])
        except Exception as error:
            raise FunctionError("the tokenizer raised an error", column=name,
                                found=f"{type(error).__name__}: {error}") from error  # fmt: skip

    def _refuse_unknown(self, columns: Columns) -> None:
        for each in self.keep:
            if each not in columns and (self._images is None or each != IMAGES):
                raise UsageError("no such column to keep", expected=", ".join(columns), found=repr(each))

    def _name(self, columns: Sequence[str]) -> str:
        """The column of texts or ids."""
        usual = _TOKENS if self._tokenizer is None else _TEXTS
        if self._column is not None and self._column in columns:
            return self._column
        found = [name for name in usual if name in columns]
        if self._column is None and len(found) == 1:
            return found[0]
        what = "of token ids" if self._tokenizer is None else "of texts"
        advice = 'Name the column: lading.pack(…, column="…").'
        if len(found) > 1:
            advice += f" Or give it one name in all datasets: ds.rename({{{found[1]!r}: {found[0]!r}}})."
        elif _ITEMS in columns:
            advice = (
                "Say how images become tokens: lading.pack(…, image_token=…, image_tokens=…). "
                "Or make one column of the items of a document: lading.loader(…, transform=…)."
            )
        raise UsageError(
            f"several columns {what} to pack" if len(found) > 1 else f"no column {what} to pack",
            expected=" or ".join(usual) if self._column is None else repr(self._column),
            found=", ".join(columns), advice=advice,
        )  # fmt: skip


def _image_columns(loader: Loader) -> tuple[str, ...]:
    """Return the columns of samples that hold images."""
    schemas = [each.first_schema for each in loader.datasets if not row_layout(each.view).has_items]
    return tuple(dict.fromkeys(field.name for schema in schemas for field in schema if holds_images(feature_of(field))))


def columns_in(batch: Any) -> Columns:
    """Return the columns of a batch of a loader, however it collates."""
    if isinstance(batch, dict):
        return batch
    if isinstance(batch, list) and all(isinstance(sample, dict) for sample in batch):
        return columns_of(batch)
    if isinstance(batch, pa.Table):
        columns, failed = ColumnMaker(Recipe(decode=False)).decoded(batch, batch.num_rows)
        for error in failed.values():
            raise error
        return columns
    raise UsageError("a batch of the loader has no columns", found=type(batch).__name__,
                     advice='Use collate="numpy", "torch", "list" or "arrow".')  # fmt: skip


def _as_ids(values: Any, name: str) -> Ids:
    """Token ids as an array. Raises DataError."""
    try:
        ids = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError("token ids must be a list of whole numbers", column=name, found=str(error)[:80]) from error
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise DataError("token ids must be a list of whole numbers", column=name, found=repr(values)[:80])
    return ids.astype(np.int64, copy=False)


def _size_of(image: Any) -> tuple[int, int]:
    """Height and width of an image of Pillow's, an array with the colors last, a tensor with them first, or a file."""
    if isinstance(image, (bytes, memoryview)):
        info = image_info(image)
        if info is None:
            raise DataError("the header of the image does not say its size", found=repr(bytes(image[:16])))
        return info.height, info.width
    shape = tuple(getattr(image, "shape", ()))
    if len(shape) == _COLORS:
        last = shape[-1] == _COLORS and (shape[0] != _COLORS or isinstance(image, np.ndarray))
        return shape[:2] if last else shape[1:]
    size = getattr(image, "size", None)
    if isinstance(size, tuple):
        return size[1], size[0]
    raise DataError("an image without height and width", expected="pixels, an image of Pillow's, or a file",
                    found=type(image).__name__)  # fmt: skip


def _by_batch(tokenizer: Any) -> Callable[[list[str]], Sequence[Any]]:
    """The function that gives the token ids of each of several texts."""
    if hasattr(tokenizer, "encode_batch"):  # tokenizers, tiktoken
        return lambda texts: [getattr(each, "ids", each) for each in tokenizer.encode_batch(texts)] if texts else []
    if not callable(tokenizer):
        raise UsageError("this is no tokenizer", expected="a function of a text, or an object with encode_batch",
                         found=type(tokenizer).__name__)  # fmt: skip
    if hasattr(tokenizer, "model_input_names"):  # transformers
        return lambda texts: list(tokenizer(texts)["input_ids"]) if texts else []
    return lambda texts: [tokenizer(text) for text in texts]
