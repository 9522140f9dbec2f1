r"""Plain text: a line of a file is a sample, or a file is. Read-only.

    one line                the sample {"text": "one line"}
                            an empty line is a sample with an empty text
    last line               with an end or without

UTF-8; lines end with LF, CR LF or CR; a byte order mark at the beginning is ignored. Plain, or compressed as a whole
(gzip, zstd, bz2, xz, detected by content). The one column is `text`, as in Hugging Face's builder `text`.

The ending `.txt` claims no file in a folder with others: next to pictures a `.txt` is a caption, next to shards a note.

Source: datasets 5.2.0, packaged_modules/text/text.py.
"""

from __future__ import annotations

from lading._core.codecs import ENDINGS
from lading._core.formats.base import ShardFile
from lading._core.formats.format import Format, FormatInfo, NoOptions
from lading._core.formats.text.reader import ReadOptions, TextReader
from lading._core.formats.text_lines import open_text

__all__ = ["FORMAT", "ReadOptions", "TextFormat", "TextReader"]

_NAMES = tuple(".txt" + packed for packed in ("", *ENDINGS.values()))


class TextFormat(Format[ReadOptions, NoOptions]):
    """Plain text."""

    info = FormatInfo(name="text", extensions=(), when_named=_NAMES, read_options=ReadOptions)

    def matches(self, path: str, head: bytes) -> bool:
        """Return whether the name ends in `.txt`, perhaps with the ending of a compression."""
        return path.lower().endswith(_NAMES)

    def open(self, file: ShardFile, options: ReadOptions) -> TextReader:
        """Open a file; read its first bytes.

        Raises:
            NotFound, StoreError: no such file, or no regular file.
        """
        return TextReader(open_text(file), options)


FORMAT = TextFormat()
"""The format that the registry loads."""
