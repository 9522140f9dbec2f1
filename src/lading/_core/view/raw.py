"""The answer to a request for the bytes of a value: whole or a range, streamed, with a type that runs nothing.

Source: RFC 9110 §13 (conditions) and §14 (ranges).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lading._core.view.threads import in_thread
from lading._core.view.values import StoredValue
from lading.errors import LadingError

__all__ = ["bytes_of"]

_FIRST_PART, _MOST_PART = 256 << 10, 4 << 20
_DIGITS = 18
_UNKNOWN: Final = "application/octet-stream"
_TYPES = {
    "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp",
    "avif": "image/avif", "wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg",
    "opus": "audio/ogg", "aac": "audio/aac", "m4a": "audio/mp4", "mp4": "video/mp4", "webm": "video/webm",
    "mov": "video/mp4", "mkv": "video/webm",
}  # fmt: skip
"""Content types of bytes by their own header: nothing else is given another type than bytes."""
_SVG_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


def bytes_of(value: StoredValue, asked: Request) -> Response:
    """Return the bytes of a value, or the range of them that is asked for. The first ones are read already.

    SVG has its own type at `as=svg` alone, where a browser says that it shows an image: it runs no scripts then.

    Raises:
        LadingError: the first bytes cannot be read.
    """
    tag = f'"{value.version}"'
    headers = {"Accept-Ranges": "bytes", "ETag": tag}
    if _names(asked.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    wanted = asked.headers.get("range", "") if asked.headers.get("if-range", tag) == tag else ""
    start, stop = _range_of(wanted, value.size) or (0, value.size)
    if start >= stop and value.size + start:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{value.size}"})
    kind = _type_of(value)
    if asked.query_params.get("as") == "svg" and asked.headers.get("sec-fetch-dest") == "image" and _is_svg(value):
        kind, headers["Content-Security-Policy"] = "image/svg+xml", _SVG_POLICY
    headers |= {"Content-Type": kind, "Content-Length": str(stop - start)}
    status = 200
    if _range_of(wanted, value.size) is not None:
        status, headers["Content-Range"] = 206, f"bytes {start}-{stop - 1}/{value.size}"
    if asked.method == "HEAD":
        return Response(status_code=status, headers=headers)
    first = min(stop, start + _FIRST_PART)
    return StreamingResponse(_parts(value, value.read(start, first), first, stop), status, headers)


async def _parts(
    value: StoredValue, head: bytes | memoryview, start: int, stop: int
) -> AsyncIterator[bytes | memoryview]:
    """The first bytes, and the others as the client takes them. An error ends them early, and so the connection."""
    yield head
    size = _FIRST_PART
    while start < stop:
        size = min(2 * size, _MOST_PART)
        end = min(start + size, stop)
        try:
            part = await in_thread(partial(value.read, start, end))
        except LadingError:
            return
        yield part
        start = end


def _type_of(value: StoredValue) -> str:
    return _UNKNOWN if value.info is None else _TYPES.get(value.info.format, _UNKNOWN)


def _is_svg(value: StoredValue) -> bool:
    head = bytes(value.read(0, min(1024, value.size))).lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"<svg") or (head.startswith((b"<?xml", b"<!--", b"<!DOCTYPE svg")) and b"<svg" in head)


def _names(condition: str, tag: str) -> bool:
    return condition.strip() == "*" or tag in [each.strip().removeprefix("W/") for each in condition.split(",")]


def _range_of(header: str, size: int) -> tuple[int, int] | None:
    """The first byte and the byte behind the last one; None for no range, several, or nonsense: all is sent then."""
    unit, _, span = header.partition("=")
    first, dash, last = span.strip().partition("-")
    digits = first + last
    if unit.strip() != "bytes" or not dash or not (digits.isascii() and digits.isdigit()):
        return None
    if max(len(first), len(last)) > _DIGITS or (first and last and int(last) < int(first)):
        return None
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size
