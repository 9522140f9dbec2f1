"""Any format to any other: what both hold comes there and back with one digest; what one cannot hold is refused.

`docs/features.md` has the table of the types that each format keeps. `python tests/property/test_every_pair.py` prints
it.
"""

from __future__ import annotations

import sys
import warnings
from decimal import Decimal
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading._core.features.types import Array, Audio, ClassLabel, Feature, Image, Json, Video, with_feature
from lading._core.formats.registry import format_names, is_installed
from lading.errors import Unrepresentable

_PAGE = Path(lading.__file__).parents[2] / "docs/features.md"
_TENSOR = pa.fixed_shape_tensor(pa.float32(), (2,))


def _column(values: list[Any], kind: pa.DataType, feature: Feature | None = None) -> tuple[pa.Field, pa.Array]:
    field = pa.field("x", kind) if feature is None else with_feature(pa.field("x", kind), feature)
    return field, pa.array(values, kind)


def _tensor() -> tuple[pa.Field, pa.Array]:
    storage = pa.array([[1, 2], [3, 4], [5, 6]], _TENSOR.storage_type)
    return pa.field("x", _TENSOR), pa.ExtensionArray.from_storage(_TENSOR, storage)


_COLUMNS: dict[str, tuple[pa.Field, pa.Array]] = {
    "text": _column(["a", 'ü\n,"', "x"], pa.string()),
    "integers, 64 bits": _column([1, -2, (1 << 63) - 1], pa.int64()),
    "integers, 8 bits": _column([1, 2, 255], pa.uint8()),
    "floats, 64 bits": _column([1.5, -0.0, float("nan")], pa.float64()),
    "floats, 32 bits": _column([0.1, 2, float("inf")], pa.float32()),
    "bools": _column([True, False, True], pa.bool_()),
    "nulls among numbers": _column([1, None, 3], pa.int64()),
    "nulls among texts": _column(["a", None, ""], pa.string()),
    "dates": _column([1, -2, 3], pa.date32()),
    "times with a zone": _column([1, -2, 3], pa.timestamp("us", "UTC")),
    "decimals": _column([Decimal("1.50"), Decimal("-2.00"), Decimal("0.01")], pa.decimal128(5, 2)),
    "lists": _column([[1, 2], [], [3]], pa.list_(pa.int64())),
    "structs": _column([{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": ""}],
                       pa.struct([("a", pa.int64()), ("b", pa.string())])),
    "Json": _column(['{"a": 1}', "[1.0]", '"s"'], pa.string(), Json()),
    "ClassLabel": _column([0, 1, 0], pa.int64(), ClassLabel(("cat", "dog"))),
    "bytes": _column([b"\0\xff", b"", b"a"], pa.large_binary()),
    "Image": _column([b"\xff\xd8\xff", b"\x89PNG", b""], pa.large_binary(), Image()),
    "Audio": _column([b"ID3", b"fLaC", b""], pa.large_binary(), Audio()),
    "Video": _column([b"\0\0\0\x18ftyp", b"\x1aE", b""], pa.large_binary(), Video()),
    "arrays of one shape": _tensor(),
    "Array, bytes": _column([bytes(8), b"12345678", b"\xff" * 8], pa.large_binary(), Array("float32", (2,))),
}  # fmt: skip
_READ_ONLY = {"files", "text", "warc"}
_FORMATS = [name for name in format_names() if is_installed(name) and name not in _READ_ONLY]


def _table(names: list[str]) -> pa.Table:
    """These columns, and one of keys."""
    columns = [(field.with_name(f"c{i:02}"), column) for i, (field, column) in enumerate(_COLUMNS[n] for n in names)]
    fields = [pa.field("name", pa.string()), *(field for field, _ in columns)]
    return pa.table([pa.array(["a", "b", "c"]), *(column for _, column in columns)], schema=pa.schema(fields))


def _written(name: str, names: list[str]) -> str:
    folder = f"memory://pairs/{name}"
    with lading.writer(folder, format="arrow", overwrite=True) as writer:
        writer.write_batch(_table(names))
    return folder


@cache
def held(fmt: str) -> frozenset[str]:
    """The columns that a format takes and gives back."""
    found = set()
    for name in _COLUMNS:
        source = _written("source", [name])
        try:
            lading.convert(source, "memory://pairs/held", format=fmt, overwrite=True)
        except Unrepresentable as error:
            refused = error
        else:
            assert lading.digest("memory://pairs/held").ordered == lading.digest(source).ordered, (fmt, name)
            found.add(name)
            continue
        assert refused.column == "c00"
    return frozenset(found)


@pytest.mark.soak
@pytest.mark.parametrize("one, other", [*product(_FORMATS, _FORMATS)])
def test_there_and_back(one: str, other: str) -> None:
    source = _written("source", [name for name in _COLUMNS if name in held(one) & held(other)])
    digest = lading.digest(source).ordered
    here = source
    for step, fmt in enumerate((one, other, one, "parquet")):
        there = f"memory://pairs/{step}"
        lading.convert(here, there, format=fmt, overwrite=True)
        assert lading.digest(there).ordered == digest, fmt
        here = there


def features_table() -> str:
    """The table of `docs/features.md`."""
    rows = [["", *_FORMATS], ["---"] * (len(_FORMATS) + 1)]
    rows += [[name, *("yes" if name in held(fmt) else "–" for fmt in _FORMATS)] for name in _COLUMNS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


@pytest.mark.soak
def test_the_page_of_features_is_what_formats_do() -> None:
    assert features_table() in _PAGE.read_text()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(features_table())
