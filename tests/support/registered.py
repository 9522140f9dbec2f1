"""An extension type of another library, registered in a process or not."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["NamedType"]


class NamedType(pa.ExtensionType):  # type: ignore[misc] # pyarrow has no type information
    """Values stored in any type, under one name."""

    def __init__(self, stored: pa.DataType) -> None:
        super().__init__(stored, "tests.named")

    def __hash__(self) -> int:
        return hash("tests.named")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, stored: pa.DataType, _serialized: bytes) -> NamedType:
        return cls(stored)
