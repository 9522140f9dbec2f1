"""Media archives: many records in few large files, each located by path, offset and length.

    with MediaWriter("media/") as writer:
        for document in writer.run(documents, rank=3):   # puts path, offset and length on every media
            ...
    for document in MediaReader("media/", workers=2).run(documents):   # puts media_bytes on every media
        ...

Documents are mappings or objects with `id` and `media`; a media is one with `id`, `path`, `offset`, `length` and
`media_bytes`. Archives are those of datatrove: `docs/formats/media.md`.
"""

from lading._core.media.documents import (
    Location,
    MediaStats,
)
from lading._core.media.reader import (
    MediaReader,
)
from lading._core.media.warc import (
    WarcReader,
)
from lading._core.media.writer import (
    MediaWriter,
)

__all__ = [
    "Location",
    "MediaReader",
    "MediaStats",
    "MediaWriter",
    "WarcReader",
]
