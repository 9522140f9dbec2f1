"""Options of any format that are of another type are calls that are wrong, never a fault of Python's."""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pyarrow as pa
import pytest

from lading._core.formats.base import ShardFile
from lading._core.formats.format import parse_options
from lading._core.formats.registry import all_formats, get_format
from lading._core.storage.memory import MemoryStore
from lading.errors import UsageError
from lading.options import InterleavedOptions, ReadOptions, RowOptions, WriteOptions, check_types, help_texts

_ODD: list[Any] = ["abc", 5, -1, 2.5, None, True, [1], {"a": 1}, [["x"]], {}, b"x", ..., "\ud800"]
_KINDS = [(one.name, kind) for one in all_formats() for kind in (one.info.read_options, one.info.write_options) if kind]


@pytest.mark.parametrize("value", _ODD, ids=repr)
def test_every_option_of_every_format(value: Any) -> None:
    options = [(name, kind, field.name) for name, kind in _KINDS for field in fields(kind)]
    assert len(options) > 30
    for name, kind, option in options:
        with suppress(UsageError):
            parse_options(name, kind, {option: value})
    for option in fields(InterleavedOptions):
        with suppress(UsageError):
            InterleavedOptions(**{option.name: value})


@pytest.mark.parametrize(
    "kind, given",
    [
        ("media_archive", {"compression_level": "abc"}),
        ("media_archive", {"compression_level": 50}),
        ("media_archive", {"compression_level": -200_000}),
        ("media_archive", {"workers": "abc"}),
        ("media_archive", {"media": 5}),
        ("media_archive", {"offset_byte_size": "x"}),
        ("mds", {"hashes": [["foo"]]}),
        ("mds", {"hashes": "sha1"}),
        ("mds", {"columns": {"a": 1}}),
        ("csv", {"types": ["a"]}),
        ("parquet", {"row_groups": [1.5]}),
        ("webdataset", {"mtime": True}),
    ],
)
def test_options_of_another_type_are_named(kind: str, given: dict[str, Any]) -> None:
    [option] = given
    mine = [one for name, one in _KINDS if name == kind and option in {field.name for field in fields(one)}]
    assert mine
    for one in mine:
        with pytest.raises(UsageError):
            parse_options(kind, one, given)


def test_what_fits() -> None:
    kinds = dict(_KINDS)  # of each format what it writes with
    check_types(kinds["mds"], {"size_limit": "64MB", "nulls": ["a"], "columns": {"a": "int"}, "compression": None})
    check_types(kinds["mds"], {"size_limit": 1 << 20, "nulls": "mask", "hashes": ("sha1",)})
    check_types(InterleavedOptions, {"fields": ("a", "b"), "sample_id_field": None})


def test_a_format_without_options_says_that_it_has_none() -> None:
    source = ShardFile(MemoryStore({"a.jsonl": b"{}\n"}), "a.jsonl")
    with pytest.raises(UsageError, match="no such option of the format jsonl; expected none, found 'mmap'"):
        get_format("jsonl").open(source, get_format("jsonl").read_options({"mmap": True}))


_VALUES = [
    ReadOptions(format="csv", options={"delimiter": ";"}, schema=pa.schema([("a", pa.int64())]), roots=("x",)),
    RowOptions(columns=("a",), where="a > 1", min_side=10),
    WriteOptions(format="parquet", workers=2, on_error="warn"),
    InterleavedOptions(fields=("a",)),
]


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: type(value).__name__)
def test_options_are_values(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert repr(value).startswith(f"{type(value).__name__}(")
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, None)


@pytest.mark.parametrize("kind", [type(value) for value in _VALUES])
def test_every_option_has_a_help_text(kind: type) -> None:
    assert list(help_texts(kind)) == [field.name for field in fields(kind)]  # type: ignore[arg-type] # a dataclass


@pytest.mark.parametrize(
    "kind, given",
    [
        (ReadOptions, {"view": "rows"}),
        (ReadOptions, {"schema": {"a": "int64"}}),
        (ReadOptions, {"roots": "data"}),
        (ReadOptions, {"roots": [1]}),
        (ReadOptions, {"options": ["a=1"]}),
        (ReadOptions, {"interleaved": {}}),
        (ReadOptions, {"limits": None}),
        (WriteOptions, {"format": "parquet", "on_error": "skip"}),
        (WriteOptions, {"format": "parquet", "schema_policy": "first"}),
        (WriteOptions, {"format": "parquet", "workers": 0}),
        (WriteOptions, {"format": "parquet", "threads": 0}),
    ],
)
def test_values_that_are_no_options_are_refused(kind: Any, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        kind(**given)
