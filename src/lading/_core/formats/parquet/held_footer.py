"""Row groups of several writers in one Parquet file: pyarrow fixes the codec of a column for all that a writer writes.

The footer of the first writer stays where it is, among row groups, and is not read. Those of later writers are held
back. The last footer lists the row groups of all.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["HeldFooter"]

_MAGIC_BYTES, _ENDING_BYTES = 4, 8
_STEP_BYTES = 16 << 20


class HeldFooter(io.RawIOBase):
    """Pass what a writer writes to a handle; at its end only the page indexes, and not the footer.

    Attributes:
        file: the file for the writer.
    """

    def __init__(self, handle: pa.NativeFile) -> None:
        self._handle, self._held = handle, bytearray()
        self._begun = self._ending = False
        self.file = pa.PythonFile(self, mode="w")

    def begin(self) -> None:
        """Take over where the handle stands; the writer was opened, and has written the magic.

        pyarrow counts the bytes itself, and a writer begins with the first one.
        """
        left, zeros = self._handle.tell() - _MAGIC_BYTES, pa.py_buffer(bytes(_STEP_BYTES))
        while left > 0:
            self.file.write(zeros.slice(0, min(left, _STEP_BYTES)))
            left -= _STEP_BYTES
        self._begun = True

    def end(self) -> None:
        """Hold back everything from now on: the writer is closed next."""
        self._ending = True

    def footer_of(self, metadata: pq.FileMetaData) -> bytes:
        """Return the page indexes of the writer, and a footer with all of the row groups in the metadata."""
        length = int.from_bytes(self._held[-_ENDING_BYTES:][:4], "little")
        sink = pa.BufferOutputStream()
        metadata.write_metadata_file(sink)
        return bytes(self._held[: -_ENDING_BYTES - length]) + bytes(sink.getvalue().to_pybytes()[_MAGIC_BYTES:])

    def writable(self) -> bool:
        """Return true, as pyarrow asks."""
        return True

    def write(self, data: Any) -> int:
        """Take the next bytes of the writer; return their number."""
        if self._ending:
            self._held += data
        elif self._begun:
            self._handle.write(data)
        return len(data)
