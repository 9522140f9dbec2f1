"""Formats by name and by what a file looks like."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources

import pytest

from lading._core.formats.registry import all_formats, find_format, format_names, get_format
from lading.errors import UnknownFormat


def test_all_that_are_known_have_their_names() -> None:
    assert sorted(known.name for known in all_formats()) == format_names()
    assert all(get_format(name).name == name for name in format_names())


def test_what_nobody_recognises_is_an_error_that_shows_it() -> None:
    with pytest.raises(UnknownFormat, match=r"odd\.file.*first bytes b'no shard'"):
        find_format("odd.file", b"no shard")


@pytest.mark.soak
def test_nobody_takes_the_name_of_a_built_in_format_before_it_is_loaded() -> None:
    code = (
        "import lading\n"
        "from lading.errors import UsageError\n"
        "from lading._core.formats.registry import get_format, register\n"
        "class Other:\n"
        "    name = 'csv'\n"
        "try:\n"
        "    register(Other())\n"
        "except UsageError as error:\n"
        "    assert 'csv' in str(error), error\n"
        "else:\n"
        "    raise SystemExit('taken')\n"
        "assert not isinstance(get_format('csv'), Other)\n"
        "register(get_format('csv'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.soak
def test_a_tar_costs_no_import_of_the_formats_behind_it() -> None:
    tar = resources.files("lading._core.data") / "docs-00000.tar"
    code = "import sys, lading; lading.open(sys.argv[1]); assert 'lading._core.formats.parquet' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(tar)], check=True)


@pytest.mark.parametrize(
    "alias, name", [("wds", "webdataset"), ("pq", "parquet"), ("ipc", "arrow"), ("mosaic", "mds"), ("ndjson", "jsonl")]
)
def test_names_of_other_tools_are_aliases(alias: str, name: str) -> None:
    assert get_format(alias).name == name
    assert alias not in format_names()


@pytest.mark.parametrize(
    "name, advice",
    [("parqet", "Did you mean parquet?"), ("hf", "'layout': 'huggingface'"), ("tsv", "'delimiter': 'tab'")],
)
def test_a_name_that_is_no_format_comes_with_advice(name: str, advice: str) -> None:
    with pytest.raises(UnknownFormat, match=advice):
        get_format(name)


@pytest.mark.mechanism("what lading imports")
def test_the_import_of_lading_loads_no_format() -> None:
    code = (
        "import sys, lading\n"
        "from lading._core.formats.registry import format_names\n"
        "loaded = [name for name in format_names() if f'lading.formats.{name}' in sys.modules]\n"
        "assert loaded == [], loaded\n"
        "assert lading.compat.mosaicml.MDSShard.__name__ == 'MDSShard'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
