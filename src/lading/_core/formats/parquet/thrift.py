"""Parse structs of Thrift's compact protocol, in which Parquet writes its footer and page headers.

pyarrow parses the footer too. But asking it for a column chunk of a damaged footer can crash the process with an
uncaught exception. So the required facts of column chunks are parsed here.

Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["parse_struct", "parse_varint", "structs_of_list"]

_MAX_DEPTH = 12
"""Maximum nesting of structs and lists: those of Parquet are seven deep."""
_INTEGER_BITS = 64
_LONG_LIST = 15
_BOOLEANS = (1, 2)
_STRUCT = 12
_MORE = 0x80


def structs_of_list(data: bytes, number: int) -> Iterator[dict[int, Any]]:
    """Yield the structs in the list that is field `number` of the struct at the beginning of `data`.

    Raises:
        IndexError: the data end first.
        ValueError: they are not such structs.
    """
    at = found = 0
    while data[at] != 0:
        found, kind, at = _parse_field(data, at, found)
        if found == number:
            count, kind, at = _parse_list_head(data, at)
            if kind != _STRUCT:
                raise ValueError(f"a list of type {kind}")
            for _ in range(count):
                fields, at = parse_struct(data, at, 1)
                yield fields
            return
        _, at = _parse_value(data, at, kind, 0)


def parse_struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct by number, and the end of the struct.

    Doubles and booleans are None, because they are not needed.

    Raises:
        IndexError: the data end before the struct does.
        ValueError: it is not a struct, or nests deeper than any of Parquet's.
    """
    _check_depth(depth)
    fields: dict[int, Any] = {}
    number = 0
    while data[at] != 0:
        number, kind, at = _parse_field(data, at, number)
        # A boolean field is its type, and has no bytes.
        fields[number], at = (None, at) if kind in _BOOLEANS else _parse_value(data, at, kind, depth)
    return fields, at + 1


def _parse_field(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """Return number and type of a field, and the start of its value."""
    delta, kind = data[at] >> 4, data[at] & 15
    if delta:
        return last + delta, kind, at + 1
    number, at = _parse_integer(data, at + 1)
    return number, kind, at


def _parse_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 4 | 5 | 6:
            return _parse_integer(data, at)
        case 8:
            length, at = parse_varint(data, at)
            return data[at : at + length], at + length
        case 9 | 10:
            return _parse_list(data, at, depth + 1)
        case 12:
            return parse_struct(data, at, depth + 1)
        case 1 | 2 | 3:  # a byte; a boolean of a list
            return data[at], at + 1
        case 7:
            return None, at + 8
    raise ValueError(f"a field of type {kind}")


def _parse_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    _check_depth(depth)
    count, kind, at = _parse_list_head(data, at)
    values = []
    for _ in range(count):
        value, at = _parse_value(data, at, kind, depth)
        if at > len(data):
            raise IndexError("the data end in a list")
        values.append(value)
    return values, at


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deep")


def _parse_list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Return number and type of the elements, and the start of the first."""
    count, kind = data[at] >> 4, data[at] & 15
    if count < _LONG_LIST:
        return count, kind, at + 1
    count, at = parse_varint(data, at + 1)
    return count, kind, at


def _parse_integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = parse_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def parse_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return an integer, seven bits a byte, lowest first; and its end.

    Raises:
        IndexError: the data end first.
        ValueError: it has more than 64 bits.
    """
    byte = data[at]
    if byte < _MORE:
        return byte, at + 1
    value = shift = 0
    while (byte := data[at]) & _MORE:
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift >= _INTEGER_BITS:
            raise ValueError("an integer of more than 64 bits")
    return value | byte << shift, at + 1
