"""Options of any format that are of another type are calls that are wrong, never a fault of Python's."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest

from lading.errors import UsageError
from lading.formats.base import ShardSource, parse_options
from lading.formats.registry import all_formats, get_format
from lading.interleaved.options import InterleavedOptions
from lading.options import check_types
from lading.storage.memory import MemoryStore

_ODD: list[Any] = ["abc", 5, -1, 2.5, None, True, [1], {"a": 1}, [["x"]], {}, b"x", ..., "\ud800"]
_KINDS = [
    (one.name, kind) for one in all_formats() for kind in (one.read_options, one.write_options) if kind is not None
]


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
    source = ShardSource(MemoryStore({"a.jsonl": b"{}\n"}), "a.jsonl")
    with pytest.raises(UsageError, match="no such option of the format jsonl; expected none, found 'mmap'"):
        get_format("jsonl").open_shard(source, {"mmap": True})
