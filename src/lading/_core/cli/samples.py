"""Samples for people and for programs: what each field is, how large, and how it begins."""

from __future__ import annotations

import base64
import math
import re
import sys
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from lading._core.cli.text import Excerpt, count, visible, whole_lines
from lading._core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa
    from rich.console import RenderableType

    from lading._core.api.dataset import Dataset
    from lading._core.features.row_layout import RowLayout

__all__ = ["Shown", "ShownSample", "as_json", "as_text", "read_samples"]

_KIND_STYLES = dict.fromkeys(("image", "audio", "video"), "not dim magenta")
_BATCH_BYTES = 64 << 20
_SHORT_ITEMS = 24
_PREVIEW_BYTES = 16
_NAME_WIDTH = 24
_KIND_CHARS = 16
_LONG_CHARS = 1000
_MOST_LEAVES = 10_000
_MOST_LEVELS = 100


@dataclass(frozen=True, slots=True)
class Shown:
    """One value.

    Attributes:
        name: of its field.
        kind: what it is: image, text, json, array, bytes, label, int64 …
        value: as `ds[i]` gives it; the stored bytes where they are not what the feature says; None for a null.
        size_bytes: of its stored form; None for plain values.
        problem: why the value could not be read.
        label: name of the number of a label.
    """

    name: str
    kind: str
    value: Any
    size_bytes: int | None = None
    problem: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class ShownSample:
    """One sample.

    Attributes:
        number: its place in the dataset.
        key: what it is called; None if it has no name.
        fields: its own values.
        items: of an interleaved sample, in order: the values of each; None for a plain one.
    """

    number: int
    key: str | None
    fields: Sequence[Shown]
    items: Sequence[Sequence[Shown]] | None = None


def read_samples(dataset: Dataset, number: int, start: int = 0) -> Iterator[ShownSample]:
    """Samples from a place on, payload and all. From the beginning it streams; further on it needs an index.

    Args:
        dataset: the dataset.
        number: samples, at most.
        start: the first one.
    """
    from lading._core.dataset.opened import opened
    from lading._core.dataset.values.python_values import absent_where_null
    from lading._core.features.row_layout import row_layout

    layout, shards = row_layout(dataset.view), opened(dataset).shards
    number = min(number, sys.maxsize)
    if start:
        last = min(start + number, len(dataset))
        batches: Iterator[Any] = (dataset.take([i]) for i in range(start, last))
    else:
        batches = dataset.batches(max_rows=max(number, 1), max_bytes=_BATCH_BYTES, on_error="warn")
    one_by_one = (rows for batch in batches for rows in _samples_of(batch, layout))
    for place, rows in enumerate(islice(one_by_one, number), start):
        absent = absent_where_null(shards, rows)
        yield _document(place, rows) if layout.has_items else _plain_sample(place, rows, absent)


def _samples_of(batch: pa.RecordBatch | pa.Table, layout: RowLayout) -> Iterator[pa.RecordBatch | pa.Table]:
    for first, last in pairwise(layout.bounds(batch).tolist()):
        yield batch.slice(first, last - first)


def _plain_sample(number: int, rows: pa.RecordBatch | pa.Table, absent: Collection[str]) -> ShownSample:
    [values] = _values(rows, absent)
    key = next((shown.value for shown in values if shown.name == "__key__"), None)
    return ShownSample(number, None if key is None else str(key), [s for s in values if s.name != "__key__"])


def _document(number: int, rows: pa.RecordBatch | pa.Table) -> ShownSample:
    own: list[Shown] = []
    items = []
    key = None
    for values in _values(rows, rows.schema.names):
        found = {shown.name: shown.value for shown in values}
        key = found.get("sample_id")
        if found.get("modality") == "metadata":
            own += [s for s in values if s.name not in _BOOKKEEPING]
        else:
            items.append([s for s in values if s.name != "sample_id"])
    return ShownSample(number, None if key is None else str(key), own, items)


_BOOKKEEPING = ("sample_id", "position", "modality", "content_type", "source_ref", "materialize_error")
"""Columns of an item that say what it is and where it came from, not what it holds."""


def _values(rows: pa.RecordBatch | pa.Table, absent: Collection[str]) -> list[list[Shown]]:
    """The values of each row, without the nulls of columns that are absent where they are null."""
    described = [(field.name, *_column(rows.column(i), field)) for i, field in enumerate(rows.schema)]
    return [
        [
            _shown(name, feature, stored[i])
            for name, feature, stored in described
            if stored[i] is not None or name not in absent
        ]
        for i in range(rows.num_rows)
    ]


def _column(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> tuple[Any, list[Any]]:
    from lading._core.arrow.types import python_values
    from lading._core.features.types import feature_of

    return feature_of(field), python_values(column)


def _shown(name: str, feature: Any, stored: Any) -> Shown:
    from lading._core.features.types import decode
    from lading.errors import DataError

    size = len(stored.encode("utf-8", "surrogatepass")) if isinstance(stored, str) else None
    size = len(stored) if isinstance(stored, (bytes, memoryview)) else size
    kind = feature.kind
    try:
        value = decode(feature, stored)
    except DataError as error:
        return Shown(name, kind, stored, size, str(error))
    if feature.is_value:
        size = None if kind.startswith(_TIMES) else size  # a text in its place is not what is stored
    if size is None and isinstance(value, bytes):
        size = len(value)
    is_named = feature.labels is not None and value is not None and 0 <= value < len(feature.labels)
    return Shown(name, kind, value, size, label=feature.labels[value] if is_named else None)


_TIMES = ("timestamp", "time", "date", "duration")


# For people


def as_text(sample: ShownSample, *, full: bool = False, pictures: str | None = None) -> Iterator[RenderableType]:
    """A sample as lines for a terminal: its name, its fields, its items in order.

    Args:
        sample: the sample.
        full: whole texts, and all items.
        pictures: how images are shown below their lines (`_core.cli.pictures.PROTOCOLS`); None for no pictures.
    """
    from rich.rule import Rule
    from rich.text import Text

    name = "" if sample.key is None else f"  {visible(sample.key)}"
    title = Text.assemble((f"{sample.number:,}", "dim"), (name, "bold"), overflow="ellipsis", no_wrap=True)
    yield Rule(title, align="left", style="dim")
    if sample.fields:
        yield from _tables([_field_row(s, full=full, pictures=pictures) for s in sample.fields], full=full)
    if sample.items is not None:
        if sample.fields:
            yield ""
        shown = sample.items if full else sample.items[:_SHORT_ITEMS]
        yield from _tables([_item_row(item, full=full, pictures=pictures) for item in shown], full=full)
        if len(shown) < len(sample.items):
            left = count(len(sample.items) - len(shown), "more item")
            yield Text(f"  … {left} (--full shows all)", "dim")
    yield ""


@dataclass(frozen=True, slots=True)
class _Row:
    """A value or an item: its name, what it is, texts and their styles, its size, and its picture."""

    name: str
    kind: str
    told: Sequence[tuple[str, str]]
    size: str
    picture: RenderableType | None = None


def _tables(rows: Sequence[_Row], *, full: bool) -> Iterator[RenderableType]:
    """Rows as a table; pictures come below their row.

    In full, long texts come below their row too, since a cell takes a thousand times their memory.
    """
    from rich.cells import cell_len

    wide = (
        max((cell_len(visible(row.name)) for row in rows), default=0),
        max((len(row.kind) for row in rows), default=0),
    )
    above: list[_Row] = []
    for row in rows:
        long = [text for text, _ in row.told if full and len(text) > _LONG_CHARS]
        above.append(replace(row, told=[(text, style) for text, style in row.told if text not in long]))
        if long or row.picture is not None:
            yield _table(above, wide, full=full)
            above = []
        for text in long:
            yield from whole_lines(text, "    ")
        if row.picture is not None:
            yield row.picture
    if above:
        yield _table(above, wide, full=full)


def _table(rows: Iterable[_Row], wide: tuple[int, int], *, full: bool) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="cyan", min_width=min(wide[0], _NAME_WIDTH), max_width=_NAME_WIDTH, overflow="fold")
    table.add_column(style="dim", min_width=wide[1], no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(justify="right", style="dim", no_wrap=True)
    for row in rows:
        told = [Excerpt(text, style, max_lines=0 if full else 2) for text, style in row.told]
        kind = Text(visible(row.kind), _KIND_STYLES.get(row.kind, ""))
        table.add_row(Text(visible(row.name)), kind, Group(*told), Text(row.size))
    return Padding(table, (0, 0, 0, 2))


def _field_row(shown: Shown, *, full: bool, pictures: str | None = None) -> _Row:
    kind = shown.kind if len(shown.kind) <= _KIND_CHARS else shown.kind.partition("<")[0]
    return _Row(shown.name, kind, [_told(shown, full=full)], _size(shown), _picture(shown, pictures))


def _picture(shown: Shown, protocol: str | None) -> RenderableType | None:
    """The picture of a value that is an image, or should be."""
    value = shown.value
    is_file = isinstance(value, bytes) and (shown.kind == "image" or _is_image(value))
    if protocol is None or shown.problem is not None or not (is_file or _is_pixels(value)):
        return None
    from lading._core.cli.pictures import Picture

    return Picture(value, protocol)


def _is_image(data: bytes) -> bool:
    from lading._core.content.image import image_info

    return image_info(data) is not None


def _told(shown: Shown, *, full: bool) -> tuple[str, str]:
    """What a value holds, and its style."""
    if shown.label is not None:
        return f"{shown.label} ({shown.value})", ""
    if shown.value is None:
        return "null", "dim"
    return (_content(shown, full=full), "") if shown.problem is None else (shown.problem, "red")


def _size(shown: Shown) -> str:
    return "" if shown.size_bytes is None else format_bytes(shown.size_bytes)


def _content(shown: Shown, *, full: bool) -> str:
    value = shown.value
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return _media(value) or _preview(value)
    if hasattr(value, "dtype"):
        return f"{value.dtype} {'×'.join(map(str, value.shape)) or 'scalar'}"
    if _is_pixels(value):
        return f"pixels {value.mode} {value.width}×{value.height}"
    if not isinstance(value, (dict, list, tuple, bool)):
        return str(value)
    from lading._core.arrow import json_text

    return json_text.dumps(_jsonable(value if full else _beginning(value, iter(range(_MOST_LEAVES))), full=False))


def _beginning(value: Any, left: Iterator[int], depth: int = 0) -> Any:
    """The first values of lists and dicts, as many as are left, and the beginning of texts.

    They are more than a terminal shows on two lines, so that what is shown says that there is more.
    """
    if isinstance(value, str):
        return value[:_MOST_LEAVES]
    if not isinstance(value, (dict, list, tuple)) or depth == _MOST_LEVELS:
        return value
    if isinstance(value, dict):
        return {k: _beginning(v, left, depth + 1) for (k, v), _ in zip(value.items(), left, strict=False)}
    return [_beginning(v, left, depth + 1) for v, _ in zip(value, left, strict=False)]


def _is_pixels(value: object) -> bool:
    """Whether it is an image of raw pixels, as Pillow has them."""
    return all(hasattr(value, name) for name in ("mode", "width", "height", "tobytes"))


def _media(data: bytes) -> str | None:
    """`png 640×480`, `wav 2.3 s, 16 kHz, 1 channel`; None of anything but media."""
    from lading._core.content.media_info import media_info

    info = media_info(data)
    if info is None:
        return None
    facts = []
    if info.width is not None:
        facts.append(f"{info.width}×{info.height}")
    if info.duration_s is not None:
        facts.append(f"{info.duration_s:.1f} s" if info.duration_s >= 1 else f"{info.duration_s:.2f} s")
    if info.kind == "audio" and info.sample_rate is not None:
        facts.append(f"{info.sample_rate / 1000:g} kHz")
    if info.kind == "audio" and info.channels is not None:
        facts.append(count(info.channels, "channel"))
    if info.kind == "image" and info.frames is not None and info.frames > 1:
        facts.append(count(info.frames, "frame"))
    return f"{info.format} {', '.join(facts)}".rstrip()


def _preview(data: bytes) -> str:
    """The beginning of bytes: as text in quotes if it is plain ASCII text, else in hexadecimal."""
    head = data[:_PREVIEW_BYTES]
    more = " …" if len(data) > _PREVIEW_BYTES else ""
    if head.isascii() and head.decode().isprintable():
        return f'"{head.decode()}"{more}'
    return f"{head.hex(' ')}{more}"


def _item_row(item: Sequence[Shown], *, full: bool, pictures: str | None = None) -> _Row:
    """Position, modality, content and size of one item; what else it has follows the content."""
    found = {shown.name: shown for shown in item}
    values = {name: shown.value for name, shown in found.items()}
    content = found.get("text_content") or found.get("binary_content")
    told = [_absent(values) if content is None else _told(content, full=full)]
    told += [(f"{s.name}: {_content(s, full=full)}", "dim") for s in item if s.name not in _ITEM_COLUMNS]
    if "materialize_error" in values:
        told.append((str(values["materialize_error"]), "red"))
    return _Row(
        str(values.get("position", "")),
        str(values.get("modality", "")),
        told,
        "" if content is None else _size(content),
        None if content is None else _picture(content, pictures),
    )


_ITEM_COLUMNS = (*_BOOKKEEPING, "text_content", "binary_content")


def _absent(values: dict[str, Any]) -> tuple[str, str]:
    source = values.get("source_ref")
    return "nothing here" if source is None else f"not read: {source}", "dim"


# For programs


def as_json(sample: ShownSample, *, full: bool = False) -> dict[str, Any]:
    """A sample as JSON can hold it: fields by name; bytes by their size and what they are, with `full` also in base64.

    The items of a document are `items`; a field of its own that is called so too is `json.items`.

    NaN and infinities become the strings `NaN`, `Infinity`, `-Infinity`; what is deeper than 100 levels its JSON text.
    """
    key = "__key__" if sample.items is None else "sample_id"
    named = {} if sample.key is None else {key: sample.key}
    own = {s.name: _shown_json(s, full=full) for s in sample.fields}
    if sample.items is None:
        return {**named, **own}
    items = [{s.name: _shown_json(s, full=full) for s in item} for item in sample.items]
    return {**named, **{_beside_items(name): value for name, value in own.items()}, "items": items}


def _beside_items(name: str) -> str:
    """The name of a document's field beside `items`, told from it as `json.position` from `position` by the reader."""
    return f"json.{name}" if _ITEMS.fullmatch(name) else name


_ITEMS = re.compile(r"(json\.)*items")


def _shown_json(shown: Shown, *, full: bool) -> Any:
    """A value; one that could not be read as it is stored, with the reason."""
    told = _jsonable(shown.value, full=full)
    if shown.problem is None:
        return told
    return {**(told if isinstance(shown.value, (bytes, memoryview)) else {"value": told}), "problem": shown.problem}


def _jsonable(value: Any, *, full: bool, depth: int = 0) -> Any:
    if isinstance(value, (bytes, memoryview)):
        return _bytes_json(bytes(value), full=full)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (dict, list, tuple)):
        return _nested_json(value, full=full, depth=depth)
    if hasattr(value, "dtype") or _is_pixels(value):
        return _dense_json(value, full=full)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _nested_json(value: dict[Any, Any] | list[Any] | tuple[Any, ...], *, full: bool, depth: int) -> Any:
    if depth == _MOST_LEVELS:
        from lading._core.arrow import json_text

        return json_text.dumps(value)
    if isinstance(value, dict):
        return {str(k): _jsonable(v, full=full, depth=depth + 1) for k, v in value.items()}
    return [_jsonable(v, full=full, depth=depth + 1) for v in value]


def _dense_json(value: Any, *, full: bool) -> dict[str, Any]:
    """An array, or an image of raw pixels."""
    if hasattr(value, "dtype"):
        told = {"dtype": str(value.dtype), "shape": list(value.shape)}
        return {**told, "values": _jsonable(value.tolist(), full=True)} if full else told
    told = {"mode": value.mode, "width": value.width, "height": value.height}
    return {**told, "base64": base64.b64encode(value.tobytes()).decode()} if full else told


def _bytes_json(data: bytes, *, full: bool) -> dict[str, Any]:
    from lading._core.content.image import image_info
    from lading._core.content.media_info import media_info

    told: dict[str, Any] = {"bytes": len(data)}
    info = image_info(data)
    if info is not None:
        told |= {"mime": info.mime, "width": info.width, "height": info.height}
    else:
        media = media_info(data)
        told |= {} if media is None else {k: v for k, v in asdict(media).items() if v is not None}
    if full:
        told["base64"] = base64.b64encode(data).decode()
    return told
