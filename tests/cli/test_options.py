from __future__ import annotations

import inspect

import pytest

from lading.cli.options import Reading, column_names, name_list, named_options, one_or_many, opening, reads
from lading.errors import UsageError
from lading.limits import Limits
from lading.options import InterleavedOptions


def test_values_that_are_json_are_taken_as_such() -> None:
    given = ["flag=true", "level=3", 'names=["a", "b"]', "size=64MB", "empty=", "text=a=b"]
    assert named_options(given) == {
        "flag": True, "level": 3, "names": ["a", "b"], "size": "64MB", "empty": "", "text": "a=b",
    }  # fmt: skip
    assert named_options(None) == {}


@pytest.mark.parametrize("text", ["1" * 5000, "[" * 100_000, "{"])
def test_what_python_does_not_take_as_json_is_text(text: str) -> None:
    assert named_options([f"a={text}"]) == {"a": text}
    assert name_list(text) == (text,)


@pytest.mark.parametrize("pair", ["flag", "=x", ""])
def test_an_option_without_a_name_or_value_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match="NAME=VALUE"):
        named_options([pair])


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        named_options(["a=1", "a=2"])


def test_options_of_interleaved_data_are_told_from_those_of_the_format() -> None:
    told = opening(option=["unreferenced=drop", "per_image_fields=alt, hash", "on_duplicate=keep_last"])
    assert told["interleaved"] == InterleavedOptions(unreferenced="drop", per_image_fields=("alt", "hash"))
    assert told["options"] == {"on_duplicate": "keep_last"}


def test_without_options_of_interleaved_data_the_manifest_s_hold() -> None:
    told = opening(option=["mmap=false"])
    assert told["interleaved"] is None
    assert told["options"] == {"mmap": False}


def test_policies_have_options_of_their_own() -> None:
    told = opening(source_format="webdataset", unreferenced="drop", on_duplicate="keep_first", ignore_sidecar=True)
    assert told["interleaved"] == InterleavedOptions(unreferenced="drop")
    assert told["options"] == {"on_duplicate": "keep_first", "sidecar": "ignore"}


def test_limits_are_named_as_errors_name_them() -> None:
    assert opening()["limits"] == Limits()
    assert opening(max_=["line_bytes=1GB", "tar_fields=20000"])["limits"] == Limits(
        line_bytes=1 << 30, tar_fields=20_000
    )
    for wrong in (["lines=1"], ["line_bytes=much"], ["line_bytes=1", "line_bytes=2"], ["line_bytes"]):
        with pytest.raises(UsageError):
            opening(max_=wrong)


def test_a_verb_that_reads_gets_the_shared_options_as_one_argument() -> None:
    found: list[object] = []

    @reads
    def verb(*, name: str, reading: Reading) -> None:
        found.append((name, reading()["view"]))

    assert "reading" not in inspect.signature(verb).parameters
    shared = dict.fromkeys(inspect.signature(opening).parameters)
    verb(**{**shared, "name": "a", "view": "samples"})
    assert found == [("a", "samples")]


def test_lists_and_null_are_options_of_interleaved_data_too() -> None:
    told = opening(option=['fields=["a"]', "sample_id_field=null"])
    assert told["interleaved"] == InterleavedOptions(fields=("a",), sample_id_field=None)


def test_names_are_split_at_commas() -> None:
    assert name_list(" a ,b,, ") == ("a", "b")
    assert name_list("") == ()
    assert name_list(None) is None
    assert name_list('["a, b", " c", ""]') == ("a, b", " c", "")
    assert name_list("[1]") == ("[1]",)


@pytest.mark.parametrize("text", ["", ",", " ", "[]"])
def test_columns_of_which_none_is_named_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no column is asked for"):
        column_names(text)
    assert column_names(None) is None
    assert column_names("a") == ("a",)


def test_one_source_stays_one() -> None:
    assert one_or_many(["out/"]) == "out/"
    assert one_or_many(["a.tar", "b.tar"]) == ["a.tar", "b.tar"]
