"""Options in advice, as Python spells them."""

from __future__ import annotations

import shlex
from dataclasses import fields

import pytest

from lading._core.cli.options import column_names
from lading._core.spelling import in_python, names_value
from lading.options import InterleavedOptions, ReadOptions, RowOptions, WriteOptions


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Mark nulls with --to-option nulls=mask.", "Mark nulls with options={'nulls': 'mask'}."),
        ("Take --option int96_unit=us, or go.", "Take lading.open(…, options={'int96_unit': 'us'}), or go."),
        (
            "Use --type a=string --type 'b c=float64'.",
            "Use lading.open(…, schema_overrides={'a': pa.string(), 'b c': pa.float64()}).",
        ),
        ("Leave out --drop-columns a,b.", "Leave out ds.drop('a', 'b')."),
        ("""Leave out --drop-columns '["a,b"]'.""", "Leave out ds.drop('a,b')."),
        ("""Use --type 'it'"'"'s=string'.""", """Use lading.open(…, schema_overrides={"it's": pa.string()})."""),
        ("""Leave out --drop-columns '["it'"'"'s","b"]'.""", """Leave out ds.drop("it's", 'b')."""),
        ("Rename with --rename a=b --rename c=d, or --drop-columns a.",
         "Rename with ds.rename({'a': 'b', 'c': 'd'}), or ds.drop('a')."),
        ("Keep --where 'a is not null'.", "Keep ds.where('a is not null')."),
        ("Raise --max page_bytes=4GB.", "Raise limits=Limits(page_bytes=4GB), or --max page_bytes=4GB."),
        ("Name it with --root or go.", "Name it with roots= or go."),
        ("Name it with --root DIR.", "Name it with roots=['DIR']."),
        ("Add --root a --root 'b c'.", "Add roots=['a', 'b c']."),
        ("Take --view samples (or not).", "Take view='samples' (or not)."),
        ("Work with --workers 1.", "Work with workers=1."),
        ("Leave out --verify if you must.", "Leave out verify=True if you must."),
        ("Ids: --option sample_id_field=null.", "Ids: interleaved=InterleavedOptions(sample_id_field=None)."),
        ("Use --per-image-fields a,b.", "Use interleaved=InterleavedOptions(per_image_fields=['a', 'b'])."),
        ("None: --per-image-fields ''.", "None: interleaved=InterleavedOptions(per_image_fields=[])."),
        ("Write --to-option 'columns={\"a\": \"bytes\"}'.", "Write options={'columns': {'a': 'bytes'}}."),
        ("Leave out --no-hive-partitioning.", "Leave out hive_partitioning=False."),
        ("Read with --regroup or sort.", "Read with regroup=True or sort."),
        ("Plain text -- with dashes.", "Plain text -- with dashes."),
    ],
)  # fmt: skip
def test_options_become_arguments(text: str, expected: str) -> None:
    assert in_python(text) == expected


def test_every_option_of_the_command_line_has_its_argument() -> None:
    steps = {"columns": "ds.select()", "drop_columns": "ds.drop()", "flatten": "ds.flatten()",
             "rename": "ds.rename()", "where": "ds.where()",
             "media_from": "ds.media_from()"}  # fmt: skip
    for kind in (ReadOptions, InterleavedOptions, RowOptions, WriteOptions):
        for one in fields(kind):
            if "cli" in one.metadata:
                flag = one.metadata["cli"].flag.partition("/")[0]
                name = one.name.removeprefix("join_")  # arguments of ds.join
                expected = {steps.get(one.name, f"{name}="), f"{name}=True"}
                assert in_python(flag) in expected, flag


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a,b", "c"], ["it's", "b c"], ["[x]"], [" a", 'q"'], ["$x"]])
def test_names_in_advice_are_read_back_by_the_shell_and_the_command(names: list[str]) -> None:
    assert column_names(shlex.split(names_value(names))) == tuple(names)
