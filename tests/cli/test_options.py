from __future__ import annotations

import inspect
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from lading._core.cli.options import (
    CHOOSING,
    READING,
    TYPED,
    WRITING,
    FormatFlags,
    OptionGroup,
    Values,
    column_names,
    flag_aliases,
    name_list,
    named_options,
    one_or_many,
    takes,
)
from lading._core.formats.registry import get_format
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


def reading(**given: Any) -> dict[str, Any]:
    """The arguments of `lading.open` for these options, named as in the signature of a verb."""
    return READING.values(dict.fromkeys(p.name for p in READING.parameters()) | given)


def test_options_of_interleaved_data_are_told_from_those_of_the_format() -> None:
    told = reading(readoptions_options=["unreferenced=drop", "per_image_fields=alt, hash", "on_duplicate=keep_last"])
    assert told["interleaved"] == InterleavedOptions(unreferenced="drop", per_image_fields=("alt", "hash"))
    assert told["options"] == {"on_duplicate": "keep_last"}


def test_no_names_are_another_answer_than_none() -> None:
    assert reading(interleavedoptions_per_image_fields=[""])["interleaved"].per_image_fields == ()
    assert reading(readoptions_options=["per_image_fields="])["interleaved"].per_image_fields == ()
    assert reading(interleavedoptions_fields=["a"])["interleaved"].per_image_fields is None


def test_without_options_of_interleaved_data_the_manifest_s_hold() -> None:
    assert reading(readoptions_options=["mmap=false"]) == {"options": {"mmap": False}}


def test_policies_have_options_of_their_own() -> None:
    told = reading(
        readoptions_format="wds",
        interleavedoptions_unreferenced="drop",
        interleavedoptions_fields="a,b",
        formatflags_on_duplicate="keep_first",
        formatflags_sidecar=True,
    )
    assert told["format"] == "webdataset"
    assert told["interleaved"] == InterleavedOptions(unreferenced="drop", fields=("a", "b"))
    assert told["options"] == {"on_duplicate": "keep_first", "sidecar": "ignore"}


def test_limits_are_named_as_errors_name_them() -> None:
    assert reading() == {}
    told = reading(readoptions_limits=["line_bytes=1GB", "tar_fields=20000"])
    assert told["limits"] == Limits(line_bytes=1 << 30, tar_fields=20_000)
    with pytest.raises(UsageError, match="Did you mean page_bytes"):
        reading(readoptions_limits=["page_byte=1"])
    for wrong in (["lines=1"], ["line_bytes=much"], ["line_bytes=1", "line_bytes=2"], ["line_bytes"]):
        with pytest.raises(UsageError):
            reading(readoptions_limits=wrong)


def test_a_verb_gets_a_group_of_options_as_one_argument() -> None:
    found: list[object] = []

    @takes(READING, replace(WRITING, only=("workers", "format")))
    def verb(*, name: str, reading: Values, writing: Values) -> None:
        found.append((name, reading(), writing()))

    names = inspect.signature(verb).parameters
    assert not {"reading", "writing"} & names.keys()
    assert {name for name in names if name.startswith("write")} == {"writeoptions_format", "writeoptions_workers"}
    context = SimpleNamespace(meta={TYPED: []})
    verb(
        **dict.fromkeys(names)
        | {"context": context, "name": "a", "readoptions_view": "samples", "writeoptions_format": "pq"}
    )
    assert found == [("a", {"view": "samples"}, {"format": "pq"})]
    assert flag_aliases(verb)["format"] == "from"


@pytest.mark.parametrize("group", [READING, CHOOSING, WRITING], ids=lambda group: group.name)
def test_options_of_the_command_line_have_the_defaults_of_their_dataclass(group: OptionGroup) -> None:
    given = {p.name: None if p.default is p.empty else p.default for p in group.parameters()}
    found = group.values(given)
    for kind in group.kinds:
        for one in fields(kind):
            assert one.name not in found or found[one.name] == one.default


def test_flags_are_unique() -> None:
    spelled = [cli for group in (WRITING, CHOOSING, READING) for *_, cli in group.options()]
    flags = [flag for cli in spelled for flag in cli.flag.split("/")]
    assert len({*flags}) == len(flags)
    assert not {alias for cli in spelled for alias in cli.aliases} & {*flags}


def test_flags_of_formats_are_options_of_webdataset() -> None:
    known = {one.name for one in fields(get_format("webdataset").info.read_options)}
    assert {one.name for one in fields(FormatFlags)} <= known


def test_lists_and_null_are_options_of_interleaved_data_too() -> None:
    told = reading(readoptions_options=['fields=["a"]', "sample_id_field=null"])
    assert told["interleaved"] == InterleavedOptions(fields=("a",), sample_id_field=None)


def test_names_are_split_at_commas() -> None:
    assert name_list(" a ,b,, ") == ("a", "b")
    assert name_list("") == ()
    assert name_list('["a, b", " c", ""]') == ("a, b", " c", "")
    assert name_list("[1]") == ("[1]",)


@pytest.mark.parametrize("text", ["", ",", " ", "[]"])
def test_columns_of_which_none_is_named_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no column is selected"):
        column_names(["a", text])
    assert column_names(["a", '["b", "c d"]', "e,f"]) == ("a", "b", "c d", "e", "f")


def test_conditions_hold_together() -> None:
    given = {"rowoptions_where": ["a > 1", "b or c"], "rowoptions_drop_columns": ["a,b", "c"]}
    typed = [name for name, texts in given.items() for _ in texts]
    assert CHOOSING.steps(dict.fromkeys(p.name for p in CHOOSING.parameters()) | given, typed).steps == (
        ("where", {"where": "(a > 1) and (b or c)"}),
        ("drop", {"drop_columns": ("a", "b", "c")}),
    )


def test_one_source_stays_one() -> None:
    assert one_or_many(["out/"]) == "out/"
    assert one_or_many(["a.tar", "b.tar"]) == ["a.tar", "b.tar"]
