"""Deletion vectors of Delta Lake: rows of a file that are deleted, although the file still has them.

    file       byte 1 (version), then for each vector: uint32 size, data, uint32 CRC-32 of the data; big-endian
    data       uint32 1681511377, then a 64-bit roaring bitmap in its portable form; little-endian. Or uint32
               1681511376, a count, and each 32-bit bitmap behind its size; big-endian (Spark's native form)
    log        the data in Z85; or the UUID of the file in Z85, perhaps behind the name of a folder; or its path

Source: Delta Lake's PROTOCOL.md, Deletion Vectors (its example of a vector in the log has the native form), Deletion
Vector Format; Delta Lake 3.2, RoaringBitmapArray.scala (native form); ZeroMQ RFC 32 (Z85).
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from lading._core.storage.stores import Stores, resolve
from lading.errors import DataError, MissingExtra, errors_at
from lading.limits import Limits

__all__ = ["check_vector", "deleted_rows", "roaring", "vector_file"]

_PORTABLE, _NATIVE = (1681511377).to_bytes(4, "little"), (1681511376).to_bytes(4, "big")
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = bytes.maketrans(_Z85, _B85)
_IS_Z85 = re.compile(rb"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]*")
_UUID_LETTERS = 20


def roaring(file: str) -> ModuleType:
    """Return the library of the bitmaps. Raises MissingExtra, which names the table's log."""
    try:
        import pyroaring
    except ImportError as error:
        raise MissingExtra("deletion vectors of Delta Lake are read with pyroaring", file=file,
                           advice="Run: pip install 'lading[delta]'.") from error  # fmt: skip
    return pyroaring


def check_vector(told: Mapping[str, Any]) -> None:
    """Raise DataError for what is no descriptor of a deletion vector."""
    kind, place, offset = (told.get(name) for name in ("storageType", "pathOrInlineDv", "offset"))
    sizes = [told.get("sizeInBytes"), told.get("cardinality"), 0 if offset is None else offset]
    if kind not in ("u", "i", "p") or not isinstance(place, str) or not all(
        type(size) is int and size >= 0 for size in sizes
    ):  # fmt: skip
        raise DataError("not a deletion vector", found=repr(dict(told))[:200],
                        expected="storageType u, i or p, pathOrInlineDv, sizeInBytes and cardinality")  # fmt: skip


def vector_file(told: Mapping[str, Any]) -> str:
    """Return the path of the file of a vector, as the log names paths; empty for a vector in the log itself.

    Raises:
        DataError: the path is no UUID.
    """
    place = str(told["pathOrInlineDv"])
    if told["storageType"] == "i":
        return ""
    if told["storageType"] == "p":
        return place
    folder, number = place[:-_UUID_LETTERS], _from_z85(place[-_UUID_LETTERS:])
    if len(number) != 16:  # noqa: PLR2004 - the bytes of a UUID
        raise DataError("the name of a deletion vector is no UUID", found=repr(place)[:80])
    return f"{folder}{'/' if folder else ''}deletion_vector_{UUID(bytes=number)}.bin"


def deleted_rows(
    told: Mapping[str, Any], path: str, num_rows: int, *, log: str, stores: Stores, limits: Limits
) -> NDArray[np.int64]:
    """Return the numbers of the deleted rows of a file, ascending.

    Args:
        told: the descriptor of the vector.
        path: the file of the vector; empty for a vector in the log.
        num_rows: rows of the file with the data.
        log: the file of the log that lists the vector.
        stores: the stores.
        limits: `index_bytes` limits the size of the vector.

    Raises:
        DataError: the vector is damaged.
        MissingExtra: pyroaring is not installed.
    """
    library, size = roaring(log), int(told["sizeInBytes"])
    with errors_at(file=path or log):
        if size > limits.index_bytes:
            raise limits.exceeded("index_bytes", "the deletion vector is too large", found=size)
        data = _stored(path, int(told.get("offset") or 0), size, stores) if path else _from_z85(told["pathOrInlineDv"])
        try:
            bitmaps = _bitmaps(data[:size], library)
        except ValueError as error:
            raise _damaged("the bitmap of a deletion vector is damaged", None, str(error)[:200]) from None
        count = sum(len(bitmap) for _, bitmap in bitmaps)
        if count != told["cardinality"]:
            raise _damaged("the deletion vector has another number of rows", told["cardinality"], count)
        last = max((high + bitmap.max() for high, bitmap in bitmaps if len(bitmap)), default=-1)
        if last >= num_rows:
            raise _damaged("the deletion vector names rows that the file lacks", f"{num_rows} rows", f"row {last}")
        parts = [np.asarray(bitmap.to_array()).astype(np.int64) + high for high, bitmap in bitmaps]
        return np.concatenate([np.zeros(0, np.int64), *parts])


def _bitmaps(data: bytes, library: ModuleType) -> list[tuple[int, Any]]:
    """Return the bitmaps of a vector, each with the number that its values count from. Raises ValueError."""
    if data[:4] == _PORTABLE:
        return [(0, library.BitMap64.deserialize(data[4:]))]
    if data[:4] != _NATIVE:
        raise ValueError(f"begins with {data[:4].hex()}")
    found, at = list[tuple[int, Any]](), 8
    for number in range(int.from_bytes(data[4:8], "big")):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append((number << 32, library.BitMap.deserialize(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return found


def _damaged(what: str, expected: object, found: object) -> DataError:
    return DataError(what, expected=expected, found=found, advice="Restore it from a copy of the table.")


def _stored(path: str, offset: int, size: int, stores: Stores) -> bytes:
    """Return the data of a vector in a file. Raises DataError if their size or checksum differs."""
    store, path = resolve(path, stores)
    [buffer] = store.get_ranges(path, [(offset, size + 8)])
    head, data, crc = bytes(buffer[:4]), bytes(buffer[4:-4]), bytes(buffer[-4:])
    if int.from_bytes(head, "big") != size:
        what = "the size of a deletion vector differs from what the log says"
        raise _damaged(what, size, int.from_bytes(head, "big")).at(offset=offset)
    if int.from_bytes(crc, "big") != zlib.crc32(data):
        what = "the checksum of a deletion vector differs"
        raise _damaged(what, crc.hex(), f"{zlib.crc32(data):08x}").at(offset=offset)
    return data


def _from_z85(text: str) -> bytes:
    letters = text.encode()
    if _IS_Z85.fullmatch(letters):
        with suppress(ValueError):
            return base64.b85decode(letters.translate(_TO_B85))
    raise DataError("a deletion vector is invalid Z85", found=repr(text)[:80])
