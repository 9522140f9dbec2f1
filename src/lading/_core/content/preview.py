"""Values for people in a notebook: a line of text, or a cell of HTML with a thumbnail or a player.

Whatever a value holds, its HTML runs nothing: text is escaped, pictures are drawn again by Pillow, and audio is data of
an `<audio>` element. Work and size are bounded: long values are cut, large pictures are described only.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from typing import Any, Self

import numpy as np

from lading._core.content.media_files import BrokenFile
from lading._core.content.media_info import media_info
from lading._core.features.images import STORED, orientation_of, turned
from lading._core.units import format_bytes

__all__ = ["Previews", "Truncated", "described", "sample_text", "table_html", "value_text"]

_THUMBNAIL, _MOST_PIXELS = 96, 40_000_000
_DATA_BYTES, _CLIP_BYTES = 150_000, 24_000
_CLIP_RATE = 8000
_TEXT, _ITEM_TEXT, _SHORT_TEXT = 240, 120, 80
_LEAVES, _LEVELS, _ITEMS = 24, 4, 8
_COLUMNS = 12
_PREVIEW_BYTES = 12
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_AUDIO = {"wav": "wav", "mp3": "mpeg", "flac": "flac", "ogg": "ogg", "opus": "ogg", "m4a": "mp4", "aac": "aac"}


class Truncated(bytes):
    """The first bytes of a value that is larger.

    Attributes:
        size_bytes: size of the whole value.
    """

    size_bytes: int

    def __new__(cls, data: bytes, size_bytes: int) -> Self:
        """Return the first bytes of a value of this size."""
        made = super().__new__(cls, data)
        made.size_bytes = size_bytes
        return made


# Text


def described(value: Any) -> str | None:
    """Return `<image 640×480 jpeg, 53 KB>` for bytes, pixels and arrays; None for other values."""
    if isinstance(value, BrokenFile):
        return repr(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{_facts(bytes(value) if not isinstance(value, bytes) else value)}>"
    if _is_picture(value):
        if stored := getattr(value, STORED, b""):
            return f"<{_facts(stored)}>"
        kind = str(getattr(value, "format", None) or "pixels").lower()
        return f"<image {value.width}×{value.height} {kind}>"
    if isinstance(value, np.ndarray):
        return f"<array {value.dtype} {_shape(value)}>"
    return None


def _is_picture(value: object) -> bool:
    return all(hasattr(value, name) for name in ("mode", "width", "height", "thumbnail"))


def _shape(value: np.ndarray) -> str:
    return "×".join(map(str, value.shape)) or "scalar"


def _facts(data: bytes) -> str:
    size = format_bytes(data.size_bytes if isinstance(data, Truncated) else len(data))
    info = media_info(data)
    if info is None:
        head = data[:_PREVIEW_BYTES]
        shown = repr(head.decode()) if head.isascii() and head.decode().isprintable() else head.hex(" ")
        return f"bytes {size}: {shown}{' …' if len(data) > _PREVIEW_BYTES else ''}" if data else "bytes 0 B"
    facts = [f"{info.width}×{info.height}"] if info.width else []
    facts += [info.format]
    facts += [f"{info.sample_rate} Hz"] if info.sample_rate else []
    facts += [f"{info.duration_s:.1f} s"] if info.duration_s else []
    return f"{info.kind} {' '.join(facts)}, {size}"


def sample_text(sample: Mapping[str, Any], indent: str = "") -> str:
    """Return a sample as a dict is printed, a field a line; media are described, long values are cut."""
    lines = [f"{key!r}: {value_text(value)}" for key, value in sample.items()]
    return "{" + f",\n{indent} ".join(lines) + "}"


def value_text(value: Any) -> str:
    """Return a value as Python prints it, on one line; media are described, long values are cut."""
    return _text(value, 0)


def _text(value: Any, depth: int) -> str:
    told = described(value)
    if told is not None:
        return told
    if isinstance(value, str):
        return repr(value) if len(value) <= _TEXT else f"{value[:_TEXT]!r}… ({len(value):,} characters)"
    if depth == _LEVELS and isinstance(value, (dict, list, tuple)):
        return "{…}" if isinstance(value, dict) else "[…]"
    if isinstance(value, dict):
        parts = [f"{key!r}: {_text(each, depth + 1)}" for key, each in islice(value.items(), _LEAVES)]
        return "{" + ", ".join(parts + _more(value, _LEAVES)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([_text(each, depth + 1) for each in value[:_ITEMS]] + _more(value, _ITEMS)) + "]"
    return _cut(_repr(value), _TEXT)


def _more(values: Any, shown: int) -> list[str]:
    return [f"… {len(values) - shown} more"] if len(values) > shown else []


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - an object of anybody's
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# HTML


@dataclass(slots=True)
class Previews:
    """What the thumbnails and players of one table may still take.

    Attributes:
        left_bytes: of data in the HTML.
        labels: names of the numbers of a column.
    """

    left_bytes: int = _DATA_BYTES
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def data(self, mime: str, data: bytes) -> str | None:
        """Return data as a URI; None if there is no room for it."""
        text = base64.b64encode(data).decode()
        if len(text) > self.left_bytes:
            return None
        self.left_bytes -= len(text)
        return f"data:{mime};base64,{text}"


_STYLE = "style='text-align:left;vertical-align:top;max-width:24em;overflow-wrap:anywhere;white-space:normal'"

_WIDE = "style='text-align:left;vertical-align:top;min-width:32em;overflow-wrap:anywhere;white-space:normal'"
_BLOCK = "display:inline-block;vertical-align:top;width:10em;margin:0 .6em .4em 0"
_HEAD = "style='text-align:left;white-space:nowrap'"


def table_html(samples: Sequence[Mapping[str, Any]], previews: Previews | None = None, first: int = 0) -> str:
    """Return samples as a table, a row each, with their number in front."""
    previews = previews or Previews()
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    names.sort(key=lambda name: (name not in ("__key__", "sample_id"), name != "items"))
    shown, rest = names[:_COLUMNS], len(names) - _COLUMNS
    heads = "".join(f"<th {_HEAD}>{_escaped(name, _SHORT_TEXT)}</th>" for name in ["", *shown])
    heads += f"<th {_HEAD}>{rest} more columns</th>" if rest > 0 else ""
    rows = []
    for number, sample in enumerate(samples, first):
        cells = "".join(
            f"<td {_WIDE if name == 'items' else _STYLE}>{_cell(name, sample.get(name), previews)}</td>"
            for name in shown
        )
        rows.append(f"<tr><td {_STYLE}>{number:,}</td>{cells}{'<td>…</td>' if rest > 0 else ''}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _escaped(text: Any, most: int) -> str:
    """Return text for HTML, on one line, its beginning alone."""
    text = str(text)
    plain = " ".join(text[: 4 * most].split()) + ("…" if len(text) > 4 * most else "")
    return escape(_CONTROLS.sub("\ufffd", _cut(plain, most)))


def _cell(name: str, value: Any, previews: Previews) -> str:
    try:
        return _shown(name, value, previews)
    except Exception as error:  # noqa: BLE001 - a value of anybody's may not break the page
        return f"<i>{_escaped(f'{type(error).__name__}: {error}', _SHORT_TEXT)}</i>"


def _shown(name: str, value: Any, previews: Previews) -> str:
    if isinstance(value, BrokenFile):
        return f"<i>{_escaped(repr(value)[1:-1], _TEXT)}</i>"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes_html(value if isinstance(value, bytes) else bytes(value), previews)
    told = described(value)
    if told is not None:
        return _with_picture(_thumbnail_of(value), told[1:-1], previews)
    if name == "items" and isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return _items_html(value, previews)
    if isinstance(value, (dict, list, tuple)):
        text = json.dumps(_jsonable(value, iter(range(_LEAVES)), 0), ensure_ascii=False)
        return f"<code style='white-space:normal'>{_escaped(text, _TEXT)}</code>"
    return _plain_html(value, previews.labels.get(name, ()))


def _plain_html(value: Any, labels: Sequence[str]) -> str:
    if value is None:
        return "<span style='opacity:.5'>null</span>"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(labels):
        return f"{_escaped(labels[value], _SHORT_TEXT)} <span style='opacity:.5'>{value}</span>"
    return _escaped(value if isinstance(value, str) else _repr(value), _TEXT)


def _items_html(items: Sequence[Mapping[str, Any]], previews: Previews) -> str:
    """Return the first texts and images of a document."""
    shown = []
    for item in items[:_ITEMS]:
        content = item.get("text_content") if item.get("text_content") is not None else item.get("binary_content")
        if content is None:
            content = item.get("source_ref") or item.get("materialize_error") or item.get("modality")
        cell = _escaped(content, _ITEM_TEXT) if isinstance(content, str) else _cell("", content, previews)
        shown.append(f"<span style='{_BLOCK}'>{cell}</span>")
    more = f"<span style='{_BLOCK}'>… {len(items) - _ITEMS} more items</span>" if len(items) > _ITEMS else ""
    return "".join(shown) + more


def _jsonable(value: Any, left: Iterator[int], depth: int) -> Any:
    """Return the first leaves of nested values, and what is there of others."""
    if isinstance(value, (dict, list, tuple)) and depth > _LEVELS:
        return "…"
    if isinstance(value, dict):
        return {
            str(k)[:_SHORT_TEXT]: _jsonable(v, left, depth + 1) for (k, v), _ in zip(value.items(), left, strict=False)
        }
    if isinstance(value, (list, tuple)):
        return [_jsonable(each, left, depth + 1) for each, _ in zip(value, left, strict=False)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return described(value) or (value[:_TEXT] if isinstance(value, str) else _cut(_repr(value), _SHORT_TEXT))


def _bytes_html(data: bytes, previews: Previews) -> str:
    info = media_info(data)
    if info is not None and info.kind == "image":
        return _with_picture(_drawn(data, info.width, info.height), _facts(data), previews)
    if info is not None and info.kind == "audio" and info.format in _AUDIO:
        mime, clip, part = _clip(data, info.format)
        uri = previews.data(mime, clip)
        told = f"{_facts(data)}{' (the beginning)' if part else ''}"
        player = f"<audio controls preload='metadata' src='{uri}' style='width:16em'></audio><br>" if uri else ""
        return f"{player}<small>{_escaped(told, _SHORT_TEXT)}</small>"
    return f"<small>{_escaped(_facts(data), _SHORT_TEXT)}</small>"


def _with_picture(picture: tuple[str, bytes] | None, told: str, previews: Previews) -> str:
    uri = None if picture is None else previews.data(*picture)
    image = f"<img src='{uri}' style='max-width:{_THUMBNAIL}px;max-height:{_THUMBNAIL}px'><br>" if uri else ""
    return f"{image}<small>{_escaped(told.removeprefix('image '), _SHORT_TEXT)}</small>"


def _drawn(data: bytes, width: int | None, height: int | None) -> tuple[str, bytes] | None:
    """Return a thumbnail of the bytes of a picture; None if it is too large, broken or cut."""
    if isinstance(data, Truncated) or (width or 0) * (height or 0) > _MOST_PIXELS:
        return None
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as opened:
            opened.draft("RGB", (2 * _THUMBNAIL, 2 * _THUMBNAIL))
            return _thumbnail(opened)
    except Exception:  # noqa: BLE001 - Pillow raises whatever a broken file leads it to
        return None


def _thumbnail_of(value: Any) -> tuple[str, bytes] | None:
    """Return a thumbnail of an image of Pillow's, or of an array of pixels."""
    if isinstance(value, np.ndarray):
        is_pixels = value.dtype == np.uint8 and (value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (3, 4)))  # noqa: PLR2004 - height, width, channels
        if not is_pixels or not 0 < value.size <= 4 * _MOST_PIXELS:
            return None
        from PIL import Image

        value = Image.fromarray(value)
    if value.width * value.height > _MOST_PIXELS:
        return None
    if stored := getattr(value, STORED, b""):  # to look at an image does not read its pixels
        return _drawn(stored, value.width, value.height)
    try:
        return _thumbnail(value.copy())
    except Exception:  # noqa: BLE001 - as above
        return None


def _thumbnail(image: Any) -> tuple[str, bytes]:
    image.thumbnail((_THUMBNAIL, _THUMBNAIL))
    image = turned(image, orientation_of(image))
    clear = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    made = io.BytesIO()
    if clear:
        image.convert("RGBA").save(made, "PNG")
        return "image/png", made.getvalue()
    image.convert("RGB").save(made, "JPEG", quality=75)
    return "image/jpeg", made.getvalue()


def _clip(data: bytes, kind: str) -> tuple[str, bytes, bool]:
    """Return the beginning of audio with its MIME type, and whether more follows."""
    whole = not isinstance(data, Truncated) and len(data) <= _CLIP_BYTES
    if kind == "wav" and not whole:
        short = _short_wave(data)
        return ("audio/wav", *short) if short is not None else ("audio/wav", data[:_CLIP_BYTES], True)
    return f"audio/{_AUDIO[kind]}", bytes(data[:_CLIP_BYTES]), not whole


def _short_wave(data: bytes) -> tuple[bytes, bool] | None:
    """Return the first seconds of 16-bit samples as one channel of 8-bit samples at a low rate; None for others."""
    try:
        with wave.open(io.BytesIO(data)) as sound:
            rate, channels, frames = sound.getframerate(), sound.getnchannels(), sound.getnframes()
            if sound.getsampwidth() != 2 or rate <= 0:  # noqa: PLR2004 - bytes of a sample
                return None
            each = max(1, rate // _CLIP_RATE)
            read = sound.readframes(_CLIP_BYTES * each)
    except (wave.Error, EOFError):
        return None
    count = len(read) // (2 * channels * each)
    samples = np.frombuffer(read, "<i2")[: count * channels * each].reshape(count, -1).mean(axis=1)
    made = io.BytesIO()
    with wave.open(made, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(1)
        out.setframerate(rate // each)
        out.writeframes((samples / 256 + 128).astype(np.uint8).tobytes())
    return made.getvalue(), count * each < frames
