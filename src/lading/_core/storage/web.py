"""Files of web servers: `http://` and `https://`.

obstore reads files; it encodes names itself. URLs with a query or with encoded characters, and the pages in which a
server lists a folder, take fsspec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

from lading._core.storage.base import Buffer, FileInfo
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.objects import ObjectStore
from lading.errors import NotFound

__all__ = ["WebStore"]

_PLAIN: Final = re.compile(r"https?://[^/?#]+(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._=+-]+)+")
_CURE: Final = "run: pip install 'lading[http]'."


def _lists() -> bool:
    return find_spec("aiohttp") is not None


class WebStore(FsspecStore):
    """Files of one web server.

    Args:
        place: its URL: `https://host`.
        options: `timeout_s`, `retry_s`, and what obstore's client takes, such as `default_headers`.
    """

    def __init__(self, place: str, *, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(place, options={name: options[name] for name in ("timeout_s", "retry_s") if name in options})
        self._plain = ObjectStore(place, options=options)
        self.request_bytes = self._plain.request_bytes

    def head(self, path: str) -> FileInfo:
        """Return size, and etag or time of the last change as the version. Raises NotFound."""
        if not _PLAIN.fullmatch(path):
            return super().head(path)
        try:
            return self._plain.head(path)
        except NotFound as error:
            error.advice = error.advice or (None if _lists() else f"Name files. To list folders, {_CURE}")
            raise

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield the files that the page of a folder names, by path in code-point order; none without aiohttp."""
        return super().walk(prefix) if _lists() else iter(())

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return one buffer per range, requested concurrently. What failed in a transient way is repeated."""
        if _PLAIN.fullmatch(path):
            return self._plain.get_ranges(path, ranges, version)
        return super().get_ranges(path, ranges, version)
