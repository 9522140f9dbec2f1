"""Every verb, run as a user would; what it should say comes from `tarfile`, Pillow and pyarrow."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner, Result

import lading
from cost import costs_at_most
from counted_files import CountedFiles
from golden_cases import Golden
from lading._core.cli.main import app
from lading._core.cli.other_words import OTHER_VERBS
from lading._core.cli.output import Output
from lading._core.cli.samples import Shown, ShownSample, as_text
from lading._core.cli.text import visible
from lading._core.formats.registry import format_names
from mds_lines import write_lines
from tars import tar_of


@pytest.fixture
def place(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory with the shipped shards in `docs/`; nothing is cached beyond it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def run(*words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(app, list(words), prog_name="lading")
    assert result.exit_code == status, result.output
    return result


def run_json(*words: str, status: int = 0) -> Any:
    return json.loads(run(*words, "--json", status=status).stdout)


def members(folder: Path) -> dict[str, bytes]:
    """Names and bytes of all members of the tars of a folder, in order."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                found[member.name] = file.read()
    return found


def documents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(data) for name, data in members(folder).items() if name.endswith(".json")]


def write_tar(path: Path, values: dict[str, bytes]) -> None:
    path.write_bytes(tar_of(*values.items()))


def test_a_missing_destination_is_named(place: Path) -> None:
    assert run_json("convert", "docs", "--to", "parquet", status=2)["message"] == "Missing argument 'DST'"
    assert "'DST'" in run("salvage", "docs", status=2).stderr


def test_verbs_look_at_the_rows_and_columns_that_are_chosen(place: Path) -> None:
    write_tar(place / "x.tar", {f"{n}.{kind}": str(n).encode() for n in range(10) for kind in ("cls", "txt")})
    few = ["--where", "__key__ >= '6'", "--limit", "3"]
    run("convert", "x.tar", "few.parquet", *few)
    assert run_json("info", "few.parquet")["format"] == "parquet"
    assert run_json("info", "x.tar", *few)["samples"] == 3
    assert run_json("digest", "x.tar", *few)["ordered"] == run_json("digest", "few.parquet")["ordered"]
    assert run_json("diff", "x.tar", "few.parquet", *few)["equal"]
    shown = [
        json.loads(line)
        for line in run("head", "x.tar", "--where", "__key__ >= '6'", "-n", "2", "--json").stdout.splitlines()
    ]
    assert [sample["__key__"] for sample in shown] == ["6", "7"]
    run("convert", "x.tar", "named", "--to", "jsonl", *few, "--rename", "txt=caption", "--drop-columns", "cls")
    assert [c["name"] for c in run_json("info", "named")["columns"]] == ["__key__", "caption"]
    assert "OLD=NEW" in run("info", "x.tar", "--rename", "txt", status=2).stderr


def test_verbs_order_samples(place: Path) -> None:
    write_tar(place / "x.tar", {f"{n:02}.cls": str(n % 4).encode() for n in range(40)})
    order = np.argsort(np.random.PCG64(7).random_raw(40), kind="stable").tolist()
    (place / "keys.txt").write_text("17\n03\n")

    def keys(*options: str) -> list[str]:
        run("convert", "x.tar", "out.tar", "--overwrite", *options)
        with tarfile.open(place / "out.tar") as tar:
            found = [name.removesuffix(".cls") for name in tar.getnames()]
        shown = run("head", "x.tar", "-n", "40", *options, "--json").stdout.splitlines()
        assert [json.loads(line)["__key__"] for line in shown] == found
        assert run_json("digest", "x.tar", *options)["ordered"] == run_json("digest", "out.tar")["ordered"]
        return found

    assert keys("--shuffle", "--seed", "7") == [f"{n:02}" for n in order]
    assert keys("--sample", "0.1", "--seed", "7") == [f"{n:02}" for n in sorted(order[:4])]
    assert keys("--sample", "5", "--seed", "7") == [f"{n:02}" for n in sorted(order[:5])]
    assert keys("--sort", "cls:desc", "--limit", "3") == ["03", "07", "11"]
    assert keys("--sort", "cls", "--sort", "__key__:desc", "--limit", "2") == ["36", "32"]
    assert keys("--take", "keys.txt") == ["17", "03"]
    assert "such as 10%" in run("head", "x.tar", "--sample", "few", status=2).stderr
    assert "above 0" in run("head", "x.tar", "--sample", "1.5", status=2).stderr


def test_a_copy_with_references_says_that_readers_need_the_folder_of_the_source(place: Path) -> None:
    assert "--root" in run("convert", "docs", "lazy.parquet/", "--lazy").stdout
    shown = run("convert", "docs", "deep/er/lazy.parquet/", "--lazy").stdout
    assert f"readersneed--root{place}/docs" in "".join(shown.split())
    assert run_json("head", "lazy.parquet", "--root", "docs", "-n", "1")["items"]


def test_a_destination_without_a_format_is_refused(place: Path) -> None:
    wrong = run("convert", "docs", "out", status=2)
    assert "--to" in wrong.stderr
    assert not (place / "out").exists()


@pytest.mark.soak
def test_options_have_the_names_of_python_too(place: Path) -> None:
    run("convert", "docs", "out", "--source-format", "wds", "--format=pq", "--limits", "tar_fields=500",
        "--shard_size", "1MB", "--on_error", "drop_row")  # fmt: skip
    assert run_json("info", "out", "--format", "parquet")["format"] == "parquet"
    assert "--source-format" not in run("convert", "--help").output
    wrong = run("salvage", "docs", "saved", "--format", "parqet", status=2)
    assert "Did you mean parquet?" in wrong.stderr


# info


def test_info_counts_what_is_there(place: Path) -> None:
    told = run_json("info", "docs")
    expected = documents(place / "docs")
    texts = sum(t is not None for d in expected for t in d["texts"])
    images = sum(i is not None for d in expected for i in d["images"])
    assert (told["format"], told["view"], told["shards"], told["samples"]) == ("webdataset", "interleaved", 2, 13)
    assert told["modalities"] == {"metadata": 13, "text": texts, "image": images}
    assert told["rows"] == 13 + texts + images
    assert told["size_bytes"] == sum(p.stat().st_size for p in (place / "docs").iterdir())
    assert {"name": "title", "type": "string", "kind": "text"} in told["columns"]


def test_info_for_people_has_the_same_numbers(place: Path) -> None:
    shown = " ".join(run("info", "docs/*.tar").stdout.split())
    for part in ("docs/*.tar", "format webdataset", "shards 2", "samples 13", "13 metadata", "manifest none"):
        assert part in shown


def test_shards_named_one_by_one_are_a_dataset(place: Path) -> None:
    assert run_json("info", "docs/docs-00000.tar", "docs/docs-00001.tar")["samples"] == 13


@pytest.mark.parametrize(
    "words, said",
    [
        (["convert", "docs", "out", "--to", "parquet", "--limit", "x"], "--limit"),
        (["info", "docs", "--nonsense"], "--nonsense"),
        (["info"], "SRC"),
        (["convert", "--to", "parquet"], "SRC"),
        (["nonsense"], "nonsense"),
        (["--nonsense", "info", "docs"], "--nonsense"),
    ],
)
def test_a_call_that_is_wrong_is_told_in_json_too(place: Path, words: list[str], said: str) -> None:
    told = run_json(*words, status=2)
    assert told["error"] == "UsageError"
    assert said in told["message"]
    assert told["advice"] in (f"Try 'lading {words[0]} --help'.", "Try 'lading --help'.")
    assert run(*words, status=2).stdout == ""
    assert run(*words, "--", "--json", status=2).stdout == ""


# head


def test_head_gives_what_the_members_hold(place: Path) -> None:
    [told] = [json.loads(line) for line in run("head", "docs", "-n", "1", "--json").stdout.splitlines()]
    first, files = documents(place / "docs")[0], members(place / "docs")
    assert told["sample_id"] == first["sample_id"]
    assert told["n_words"] == first["n_words"]
    assert told["meta"] == first["meta"]
    assert [i.get("text_content") for i in told["items"]] == first["texts"]
    for item, name in zip(told["items"], first["images"], strict=True):
        if name is not None:
            width, height = Image.open(io.BytesIO(files[name])).size
            expected = {"bytes": len(files[name]), "mime": "image/png", "width": width, "height": height}
            assert item["binary_content"] == expected


def test_head_for_people_shows_the_document_in_order(place: Path) -> None:
    lines = run("head", "docs", "-n", "1").stdout.splitlines()
    assert lines[0].startswith("0  README.md ─")
    first = documents(place / "docs")[0]
    kinds = ["text" if text is not None else "image" for text in first["texts"]]
    shown = [
        line.split()[:2] for line in lines if line.split()[1:2] in (["text"], ["image"]) and line.split()[0].isdigit()
    ]
    assert shown == [[str(position), kind] for position, kind in enumerate(kinds)]
    assert all(len(line.rstrip()) <= 100 for line in lines)


@pytest.mark.parametrize("more", [[], ["--view", "samples"], ["--at", "1"], ["--json"]], ids=" ".join)
def test_head_refuses_columns_that_no_shard_has(place: Path, more: list[str]) -> None:
    assert "no such column" in run("head", "docs", "--columns", "titel,title", *more, status=2).output


def test_counts_beyond_all_that_is_there_are_counts(place: Path) -> None:
    many = str(10**30)
    write_tar(place / "a.tar", {"0.txt": b"x", "1.txt": b"x"})
    for words in (["-n", many], ["-n", many, "--at", "0"]):
        assert len(run("head", "a.tar", *words, "--json").stdout.splitlines()) == 2
    assert run_json("verify", "a.tar", "--max-findings", many)["samples"] == 2
    refused = run("convert", "a.tar", "out", "--to", "parquet", "--threads", "99999999999", status=2)
    assert "no machine has as many threads" in refused.stderr


def test_columns_whose_names_hold_commas_are_named_in_json(place: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b, c ": [2], "d": [3]}), place / "in.parquet")
    asked = ["--columns", '["b, c ", "d"]']
    assert json.loads(run("head", "in.parquet", *asked, "--json").stdout) == {"b, c ": 2, "d": 3}
    run("convert", "in.parquet", "out", "--to", "parquet", *asked)
    assert pq.read_schema(place / "out" / "shard-000000.parquet").names == ["b, c ", "d"]
    assert (
        "no column is selected"
        in run("convert", "in.parquet", "no", "--to", "parquet", "--columns", "", status=2).stderr
    )


def test_head_looks_for_a_column_in_every_shard(place: Path) -> None:
    write_tar(place / "a.tar", {"0.txt": b"x", "1.txt": b"x"})
    write_tar(place / "b.tar", {"2.cls": b"1"})
    pq.write_table(pa.table({"a": [None, 1], "b": [1, 2]}), place / "c.parquet")
    keyed = [{"__key__": "0"}, {"__key__": "1"}, {"__key__": "2", "cls": 1}]
    for source, column, found in (("[ab].tar", "cls", keyed), ("c.parquet", "a", [{"a": None}, {"a": 1}])):
        shown = run("head", source, "--columns", column, "--json").stdout.splitlines()
        assert [json.loads(line) for line in shown] == found
    error = run_json("head", "[ab].tar", "--columns", "png", status=2)
    assert (error["message"], error["expected"]) == ("no such column", "__key__, txt")


def test_head_shows_times_that_python_cannot_have_as_arrow_prints_them(place: Path) -> None:
    far, instant = 253_402_300_800_000_000, 1_700_000_000_000_000_001
    columns = {
        "far": pa.array([far, 0], pa.timestamp("us")),
        "zone": pa.array([0, 1], pa.timestamp("us", "Mars/Olympus")),
        "day": pa.array([1 << 23, 0], pa.date32()),
        "long": pa.array([1 << 62, 1], pa.duration("s")),
        "ns": pa.array([instant, None], pa.timestamp("ns", "Europe/Paris")),
        "time": pa.array([1, 2], pa.time64("ns")),
        "took": pa.array([1, 2], pa.duration("ns")),
        "list": pa.array([[instant, None], []], pa.list_(pa.timestamp("ns"))),
        "struct": pa.array([{"t": instant, "b": b"ab"}, None], pa.struct({"t": pa.timestamp("ns"), "b": pa.binary()})),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.time64("ns"))),
        "packed": pa.array([instant, 0], pa.timestamp("ns")).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), place / "in.parquet")
    shown = run("head", "in.parquet", "--json").stdout
    first, second = map(json.loads, shown.splitlines())
    assert first == {
        "far": "10000-01-01 00:00:00.000000",
        "zone": "1970-01-01 00:00:00.000000Z",
        "day": str(columns["day"][0].cast(pa.string())),
        "long": "4611686018427387904",
        "ns": "2023-11-14 23:13:20.000000001+0100",
        "time": "00:00:00.000000001",
        "took": "1",
        "list": ["2023-11-14 22:13:20.000000001", None],
        "struct": {"t": "2023-11-14 22:13:20.000000001", "b": {"bytes": 2}},
        "map": [["a", "00:00:00.000000001"]],
        "packed": "2023-11-14 22:13:20.000000001",
    }
    assert (second["far"], second["zone"]) == ("1970-01-01 00:00:00", "1970-01-01 00:00:00.000001Z")
    assert run("head", "in.parquet", "--json", "--at", "0").stdout == shown
    assert "10000-01-01 00:00:00.000000 " in run("head", "in.parquet").stdout


@pytest.mark.parametrize("inner", ["1", "NaN"])
def test_json_of_many_levels(inner: str, place: Path) -> None:
    text = "[" * 200 + inner + "]" * 200
    Path("a.tar").write_bytes(tar_of(("a.json", text.encode()), ("a.txt", b"x")))
    shown = json.loads(run("head", "a.tar", "--json").stdout)["json"]
    for _ in range(100):
        [shown] = shown
    assert shown == "[" * 100 + inner + "]" * 100
    assert "[[[" in run("head", "a.tar").stdout
    run("verify", "a.tar", "--deep")
    assert "equal when read back" in run("convert", "a.tar", "out", "--to", "parquet", "--verify").output


def test_head_tells_what_mds_holds(place: Path, golden: Golden) -> None:
    source = str(golden("mds") / "all-encodings")
    [sample] = [json.loads(line) for line in run("head", source, "-n", "1", "--json").stdout.splitlines()]
    assert sample["pil"] == {"mode": "RGB", "width": 13, "height": 35}
    assert sample["nd_f32_2x3"] == {"dtype": "float32", "shape": [2, 3]}
    assert sample["str_decimal"] == "0.1000"
    [full] = [json.loads(line) for line in run("head", source, "-n", "1", "--json", "--full").stdout.splitlines()]
    assert len(b64decode(full["pil"]["base64"])) == 3 * 13 * 35
    shown = run("head", source, "-n", "1").stdout
    assert "pixels RGB 13×35" in shown


@pytest.mark.soak
def test_every_verb_takes_a_dataset_of_files_in_pairs(place: Path) -> None:
    pq.write_table(pa.table({"text": ["a, b", "c"], "n": [1, 2]}), "in.parquet")
    write_lines(place / "out", [{"text": "a, b", "n": 1}, {"text": "c", "n": 2}], "xsv", separator="|", newline="\r\n")
    for source in ("out", "out/index.json"):
        assert run_json("verify", source)["samples"] == 2
        assert run_json("info", source)["samples"] == 2
        assert [json.loads(line)["text"] for line in run("head", source, "--json").stdout.splitlines()] == ["a, b", "c"]
        run("diff", "in.parquet", source)


def test_options_of_split_formats_say_what_to_write_instead(place: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), "in.parquet")
    shown = run("convert", "in.parquet", "csv", "--to", "mds", "--to-option", "kind=csv", status=2).output
    assert "Write lines with --to jsonl or --to csv." in " ".join(shown.split())
    assert not (place / "csv").exists()


def test_head_begins_where_it_is_told(place: Path) -> None:
    lines = run("head", "docs", "--at", "11", "-n", "5", "--json").stdout.splitlines()
    expected = [d["sample_id"] for d in documents(place / "docs")][11:]
    assert [json.loads(line)["sample_id"] for line in lines] == expected


def test_head_in_full_has_every_byte(place: Path) -> None:
    write_tar(place / "a.tar", {"k.bin": bytes(range(256)), "k.txt": b"words " * 100})
    [line] = run("head", "a.tar", "--json", "--full").stdout.splitlines()
    told = json.loads(line)
    assert told["bin"]["bytes"] == 256
    assert told["bin"]["base64"].startswith("AAECAwQFBgcICQ")
    assert "words " * 5 in run("head", "a.tar", "--full").stdout.replace("\n", "")


def test_nothing_in_the_data_reaches_the_terminal_as_a_command(place: Path) -> None:
    text = "\x1b[2J\x1b]0;owned\x07\x9b31m \u202egnp.exe [bold]x[/] \x00"
    key = "\x1b[31mkey"
    write_tar(place / "bad.tar", {f"{key}.txt": text.encode(), f"{key}.json": json.dumps({text: text}).encode()})
    for words in (
        ["head", "bad.tar"],
        ["head", "bad.tar", "--full"],
        ["head", "bad.tar", "--json"],
        ["info", "bad.tar"],
    ):
        output = run(*words).output
        assert not set(output) & set("\x1b\x07\x9b\u202e\x00"), words
    assert "[bold]x[/]" in run("head", "bad.tar").stdout
    [line] = run("head", "bad.tar", "--json").stdout.splitlines()
    assert json.loads(line)["txt"] == text


def test_a_value_that_is_not_what_its_name_says_is_shown_with_the_reason(place: Path) -> None:
    write_tar(place / "odd.tar", {"k.json": b"{not json", "k.txt": b"\xff\xfe", "k.jpg": b"no picture", "k.cls": b"7"})
    shown = run("head", "odd.tar").stdout
    assert "broken JSON" in shown
    assert "invalid UTF-8" in shown
    assert '"no picture"' in shown
    [line] = run("head", "odd.tar", "--json").stdout.splitlines()
    told = json.loads(line)
    assert told == {
        "__key__": "k",
        "json": {"bytes": 9, "problem": told["json"]["problem"]},
        "txt": {"bytes": 2, "problem": told["txt"]["problem"]},
        "jpg": {"bytes": 10},
        "cls": 7,
    }
    assert "broken JSON" in told["json"]["problem"]
    assert "invalid UTF-8" in told["txt"]["problem"]


def test_bytes_are_shown_by_how_they_begin(place: Path) -> None:
    write_tar(place / "a.tar", {"k.a": b"", "k.b": b"plain", "k.c": b"0123456789abcdef more", "k.d": b"\x00\xff" * 9})
    lines = [line.split()[2:] for line in run("head", "a.tar").stdout.splitlines()[1:5]]
    assert lines == [
        ['""', "0", "B"],
        ['"plain"', "5", "B"],
        ['"0123456789abcdef"', "…", "21", "B"],
        [*["00", "ff"] * 8, "…", "18", "B"],
    ]


def test_values_of_every_kind_have_a_line(place: Path) -> None:
    table = pa.table(
        {
            "flag": [True],
            "time": pa.array([datetime(2024, 1, 2, tzinfo=UTC)]),
            "numbers": [[1.5, None]],
            "pair": [{"x": 1, "bytes": b"\xff"}],
            "nothing": pa.array([None], pa.string()),
        }
    )
    pq.write_table(table, place / "a.parquet")
    lines = [line.split() for line in run("head", "a.parquet").stdout.splitlines()[1:-1]]
    assert lines == [
        ["flag", "bool", "true"],
        ["time", "timestamp[us,", "tz=UTC]", "2024-01-02", "00:00:00+00:00"],
        ["numbers", "list<double>", "[1.5,", "null]"],
        ["pair", "struct", '{"x":', "1,", '"bytes":', '{"bytes":', "1}}"],
        ["nothing", "text", "null"],
    ]
    [line] = run("head", "a.parquet", "--json").stdout.splitlines()
    assert json.loads(line)["time"] == "2024-01-02 00:00:00+00:00"


def test_an_empty_dataset_says_so(place: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), place / "empty.parquet")
    assert run("head", "empty.parquet").stdout == "no sample there\n"
    assert run("head", "empty.parquet", "--json").stdout == ""
    assert run_json("info", "empty.parquet")["samples"] == 0


def test_long_documents_are_cut_and_say_how_to_see_the_rest(place: Path) -> None:
    document = {"texts": [f"text {i}" for i in range(30)], "images": [None] * 30}
    write_tar(place / "long.tar", {"k.json": json.dumps(document).encode()})
    assert "… 6 more items (--full shows all)" in run("head", "long.tar").stdout
    assert "text 29" in run("head", "long.tar", "--full").stdout


def test_a_document_s_own_field_called_items_stands_beside_its_items(place: Path) -> None:
    document = {"texts": ["one"], "images": [None], "items": [1, 2], "json.items": "x", "n": 3}
    write_tar(place / "a.tar", {"k.json": json.dumps(document).encode()})
    [line] = run("head", "a.tar", "--json").stdout.splitlines()
    told = json.loads(line)
    assert [item["text_content"] for item in told.pop("items")] == ["one"]
    assert told.pop("json.items") == [1, 2]
    assert [name for name, value in told.items() if value == "x"] == ["json.json.json.items"]
    assert told["n"] == 3


def test_head_shows_long_texts_below_their_row_line_by_line(place: Path) -> None:
    lines = [f"{n}\x1b" for n in range(20_000)]
    write_tar(place / "a.tar", {"k.a.txt": b"short", "k.b.txt": "\n".join(lines).encode(), "k.c.txt": b"last"})
    shown = run("head", "a.tar", "--full").stdout.splitlines()
    at = shown.index("    0\\x1b")
    assert shown[at : at + len(lines)] == [f"    {n}\\x1b" for n in range(len(lines))]
    assert [shown[at - 1].split()[0], *shown[at + len(lines)].split()[:3]] == ["b.txt", "c.txt", "text", "last"]


def test_head_of_a_long_text_costs_little_more_than_its_lines(place: Path) -> None:
    lines = [Shown("txt", "text", "a\n" * 50_000)]

    def spelled() -> list[str]:
        return [visible(line) for line in lines[0].value.splitlines()]

    def shown() -> None:
        with Output(as_json=False, debug=False) as out:
            out.print(as_text(ShownSample(0, "k", lines), full=True))

    assert costs_at_most(10, shown, spelled)


def test_head_looks_at_the_beginning_of_nested_values_only() -> None:
    looked: list[int] = []

    class Numbers(list[int]):
        def __iter__(self) -> Iterator[int]:
            for number in range(len(self)):
                looked.append(number)
                yield number

    shown = Shown("a", "json", {"x": [Numbers([0] * 1_000_000)], "y": "z" * 1_000_000})
    [_, table, _] = as_text(ShownSample(0, "k", [shown]))
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined] # a StringIO
    assert text.split()[:4] == ["a", "json", '{"x":', "[[0,"]
    assert text.split()[-1] == "…"
    assert 100 < len(looked) < 20_000


def test_fields_of_single_items_follow_them(place: Path) -> None:
    shown = run("head", "docs", "-n", "1", "--option", "per_image_fields=alt_text").stdout
    assert "alt_text: Secrets manager screenshot" in shown


def test_numbers_that_json_lacks_are_strings(place: Path) -> None:
    write_tar(place / "nan.tar", {"k.json": b'{"a": [NaN, Infinity, 1.5]}'})
    [line] = run("head", "nan.tar", "--json").stdout.splitlines()
    assert json.loads(line)["json"] == {"a": ["NaN", "Infinity", 1.5]}


# convert


def test_convert_lists_its_source_once(place: Path) -> None:
    CountedFiles.begin()
    lading.convert(f"counted://{place}/docs", "in_python", format="parquet")
    expected = CountedFiles.listings
    CountedFiles.begin()
    run("convert", f"counted://{place}/docs", "typed", "--to", "parquet")
    assert CountedFiles.listings == expected


def test_convert_writes_what_pyarrow_reads(place: Path) -> None:
    told = run_json("convert", "docs", "out", "--to", "parquet", "--verify")
    assert (told["samples"], told["shards"], told["verified"], told["dry_run"]) == (13, 1, True, False)
    rows = pq.read_table(place / "out" / "shard-000000.parquet").to_pylist()
    texts = [row["text_content"] for row in rows if row["modality"] == "text"]
    images = [row["binary_content"] for row in rows if row["modality"] == "image"]
    expected, files = documents(place / "docs"), members(place / "docs")
    assert texts == [t for d in expected for t in d["texts"] if t is not None]
    assert images == [files[name] for d in expected for name in d["images"] if name is not None]
    assert told["rows"] == len(rows)


def test_the_closing_summary_names_what_was_read_and_written(place: Path) -> None:
    shown = " ".join(run("convert", "docs", "out", "--to", "parquet", "--verify").stdout.split())
    assert "read 2 shards of webdataset, as interleaved: 13 samples (103 items)" in shown
    assert "wrote out: 1 shard of parquet" in shown
    assert "verified equal when read back: digest " in shown


def test_the_summary_of_a_filter_says_what_was_read_and_what_was_kept_and_names_no_row(place: Path) -> None:
    table = pa.table({"id": [*range(30)], "lang": ["en", "de", "fr"] * 10})
    pq.write_table(table, place / "in.parquet")
    where = ("--where", "lang == 'en'", "--sample", "0.5", "--to", "jsonl")
    shown = run("convert", "in.parquet", "en", *where).stdout.splitlines()
    assert [" ".join(line.split()) for line in shown if not line.startswith(("wrote", "took"))] == [
        "read 1 shard of parquet, as samples: 30 samples", "kept 5 samples, 50 B",
        "filtered 20 rows: not where lang == 'en'",
    ]  # fmt: skip
    told = run_json("convert", "in.parquet", "parts", *where[:2], "--to", "jsonl", "--split-into", "a=0.5,b=0.5")
    assert (told["source_shards"], told["samples_read"], told["samples"], told["filtered_rows"]) == (1, 30, 10, 20)
    assert told["counts"] == {"not where lang == 'en', filtered": 20}
    assert len(told["filtered"]) == 5


def test_a_destination_that_holds_something_is_refused_and_told_how_to_go_on(place: Path) -> None:
    run("convert", "docs", "out", "--to", "mds")
    result = run("convert", "docs", "out", "--to", "parquet", status=2)
    assert "--overwrite" in result.stderr
    run("convert", "docs", "out", "--to", "parquet", "--overwrite")
    assert not [*(place / "out").glob("*.mds")]
    (place / "other").mkdir()
    (place / "other" / "mine.txt").write_text("keep me")
    for more in ([], ["--overwrite"]):
        result = run("convert", "docs", "other", "--to", "parquet", *more, status=2)
        assert "--overwrite" not in result.stderr
        assert "hoose another" in result.stderr
        assert [p.name for p in (place / "other").iterdir()] == ["mine.txt"]


def test_a_dry_run_writes_nothing(place: Path) -> None:
    before = sorted(place.rglob("*"))
    assert "nothing" in run("convert", "docs", "out", "--to", "parquet", "--dry-run").stdout
    assert [p for p in sorted(place.rglob("*")) if p not in before and "cache" not in p.parts] == []


def test_a_limit_and_columns_keep_a_part(place: Path) -> None:
    assert run_json("convert", "docs", "out", "--to", "parquet", "--limit", "3", "--columns", "title")["samples"] == 3
    columns = pq.read_schema(place / "out" / "shard-000000.parquet").names
    assert "title" in columns
    assert "url" not in columns


def test_options_of_formats_and_documents_reach_them(place: Path) -> None:
    run("convert", "docs", "out", "--to", "parquet", "--to-option", "compression=gzip",
        "--per-image-fields", "alt_text,p_hash", "--fields", "url")  # fmt: skip
    shard = pq.ParquetFile(place / "out" / "shard-000000.parquet")
    kinds = {shard.metadata.row_group(0).column(i).compression for i in range(shard.metadata.num_columns)}
    assert "GZIP" in kinds
    rows = [row for row in shard.read().to_pylist() if row["modality"] == "image"]
    expected = documents(place / "docs")
    assert [row["alt_text"] for row in rows] == [a for d in expected for a in d["alt_text"]]
    assert "title" not in shard.schema_arrow.names


@pytest.mark.parametrize(
    "words, expected",
    [
        (["convert", "docs", "out", "--to", "nonsense"], "media_archive, parquet"),
        (["convert", "nowhere", "out", "--to", "parquet"], "nowhere"),
        (["convert", "docs", "docs/out", "--to", "parquet"], "inside the source"),
        (["convert", "docs", "out", "--to", "parquet", "--shard-size", "big"], "256MB"),
        (["convert", "docs", "out", "--to", "parquet", "--to-option", "nonsense=1"], "compression"),
        (["convert", "docs", "out", "--to", "parquet", "--option", "nonsense"], "NAME=VALUE"),
        (["info", "docs", "--view", "sideways"], "interleaved"),
        (["info", "docs", "--from", "nonsense"], "media_archive, parquet"),
        (["info", "docs", "--from", ""], "media_archive, parquet"),
        (["info", ""], "no such file or folder; found ''"),
    ],
)
def test_a_wrong_call_is_told_in_one_line_with_what_would_be_right(
    place: Path, words: list[str], expected: str
) -> None:
    result = run(*words, status=2)
    assert expected in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stdout == ""


@pytest.mark.parametrize("words", [["convert", "docs", "out"], ["head"], ["nonsense"], ["head", "docs", "-n", "x"]])
def test_a_call_that_cannot_be_parsed_has_status_2(place: Path, words: list[str]) -> None:
    assert "Traceback" not in run(*words, status=2).output


def test_damaged_data_have_status_1_and_the_place(place: Path) -> None:
    whole = (place / "docs" / "docs-00000.tar").read_bytes()
    (place / "cut.tar").write_bytes(whole[: len(whole) // 2])
    result = run("convert", "cut.tar", "out", "--to", "parquet", status=1)
    assert result.stderr.startswith("error: cut.tar @ ")
    assert not (place / "out").exists()
    told = run_json("convert", "cut.tar", "out", "--to", "parquet", status=1)
    assert (told["error"], told["file"]) == ("CorruptShard", "cut.tar")


# doctor


def test_doctor_finds_no_problems_in_a_good_layout(place: Path) -> None:
    shown = run("doctor", "docs").stdout
    assert shown == "no problems in 2 shards of webdataset, 1.8 MB\n"
    told = run_json("doctor", "docs")
    assert (told["ok"], told["findings"], told["shards"]) == (True, [], 2)


def test_doctor_prints_the_fix_on_a_line_of_its_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    write_tar(place / "a.tar", {"a.jpg": b"1", "\x1b[2Jb.jpg": b"2", "a.txt": b"3", "\x1b[2Jb.txt": b"4"})
    result = run("doctor", "a.tar", "--option", "mmap=false", status=1)
    command = "lading convert a.tar fixed --to webdataset --option mmap=false --option regroup=true"
    lines = result.stdout.splitlines()
    assert lines[0] == "✗ samples in several pieces"
    assert lines[-1] == f"  {command}"
    assert "\x1b" not in result.stdout
    [finding] = run_json("doctor", "a.tar", "--option", "mmap=false", status=1)["findings"]
    assert (finding["shard"], finding["command"], finding["shards"]) == ("a.tar", command, 1)


def test_doctor_names_problems_that_no_command_fixes(place: Path) -> None:
    names = ("a.jpg", "b.jpg", "c.jpg", "a.jpg", "b.txt")
    (place / "a.tar").write_bytes(tar_of(*((name, b"1") for name in names)))
    shown = run("doctor", "a.tar", status=1).stdout
    assert shown.endswith("no command of lading fixes samples in several pieces\n")
    [finding] = run_json("doctor", "a.tar", status=1)["findings"]
    assert finding["command"] is None


# digest, diff, verify, index


def test_the_digest_is_that_of_the_content_not_of_the_format(place: Path) -> None:
    run("convert", "docs", "out", "--to", "parquet")
    one, other = run_json("digest", "docs"), run_json("digest", "out")
    assert one == other
    assert one["count"] == 13
    assert one["ordered"] in run("digest", "out").stdout


@pytest.mark.soak
def test_equal_datasets_do_not_differ(place: Path) -> None:
    run("convert", "docs", "out", "--to", "parquet")
    assert run("diff", "docs", "out").stdout.startswith("equal: 13 samples")
    assert run_json("diff", "docs", "out")["equal"] is True


def test_an_option_may_be_of_one_side_of_a_diff(place: Path) -> None:
    (place / "a.csv").write_text("x;y\na;b\n")
    pq.write_table(pa.table({"x": ["a"], "y": ["b"]}), place / "b.parquet")
    assert run("diff", "a.csv", "b.parquet", "--option-a", "delimiter=;").stdout.startswith("equal")
    assert run("diff", "b.parquet", "a.csv", "--option-b", "delimiter=;").stdout.startswith("equal")
    assert "delimiter" in run("diff", "a.csv", "b.parquet", "--option", "delimiter=;", status=2).stderr
    twice = ["--option", "delimiter=;", "--option-a", "delimiter=;"]
    assert "twice" in run("diff", "a.csv", "b.parquet", *twice, status=2).stderr


def test_lists_are_of_the_side_that_has_them(place: Path) -> None:
    write_tar(place / "a.tar", {"a.image.0.jpg": b"jpeg"})
    run("convert", "a.tar", "b", "--to", "parquet", "--lists", "image")
    for sides in (("a.tar", "b"), ("b", "a.tar"), ("a.tar", "a.tar")):
        assert run("diff", *sides, "--lists", "image").stdout.startswith("equal")
    assert "lists" in run("diff", "b", "b", "--lists", "image", status=2).stderr
    assert "--lists" not in run("salvage", "--help").stdout


def test_a_difference_is_named_by_key_and_field(place: Path) -> None:
    write_tar(place / "one.tar", {"a.txt": b"same", "b.txt": b"one", "b.cls": b"1"})
    write_tar(place / "other.tar", {"a.txt": b"same", "b.txt": b"other", "b.cls": b"1"})
    result = run("diff", "one.tar", "other.tar", status=1)
    assert result.stdout.startswith("different: 1 place differs")
    assert result.stdout.rstrip().splitlines()[-1].split() == ["1", "b", "txt"]
    told = run_json("diff", "one.tar", "other.tar", status=1)
    assert told["differences"] == [{"samples": [1, 1], "keys": ["b", "b"], "fields": ["txt"]}]


def test_another_order_is_a_difference_unless_it_may_be(place: Path) -> None:
    write_tar(place / "one.tar", {"a.txt": b"1", "b.txt": b"2"})
    write_tar(place / "other.tar", {"b.txt": b"2", "a.txt": b"1"})
    different = run("diff", "one.tar", "other.tar", status=1).stdout
    assert different.startswith("different order: the same 2 samples\nIgnore the order with --any-order.\n")
    assert run("diff", "one.tar", "other.tar", "--any-order").stdout == "equal: 2 samples, in another order\n"
    told = run_json("diff", "one.tar", "other.tar", "--any-order")
    assert (told["equal"], told["differing"], told["differences"]) == (True, 0, [])


def test_in_any_order_samples_of_one_key_are_compared(place: Path) -> None:
    write_tar(place / "one.tar", {"a.txt": b"1", "b.txt": b"2", "c.txt": b"3"})
    write_tar(place / "other.tar", {"d.txt": b"4", "c.txt": b"3", "a.txt": b"0"})
    shown = run("diff", "one.tar", "other.tar", "--any-order", status=1).stdout
    assert shown.startswith("different: 3 samples differ")
    assert [line.split() for line in shown.splitlines()[-3:]] == [
        ["0", "/", "2", "a", "txt"], ["1", "b", "only", "in", "A"], ["0", "d", "only", "in", "B"],
    ]  # fmt: skip
    assert "--any-order" in run("diff", "one.tar", "other.tar", status=1).stdout


def test_a_longer_dataset_differs(place: Path) -> None:
    write_tar(place / "one.tar", {"a.txt": b"1"})
    write_tar(place / "other.tar", {"a.txt": b"1", "b.txt": b"2"})
    shown = run("diff", "one.tar", "other.tar", status=1).stdout
    assert "1 sample, digest" in shown
    assert "2 samples, digest" in shown


def test_sound_data_are_verified(place: Path) -> None:
    run("convert", "docs", "out", "--to", "webdataset", "--verify")
    deep = run_json("verify", "out", "--deep", "--sample", "50%")
    assert (deep["ok"], "checksums" in deep["checked"], "digest" in deep["checked"]) == (True, True, True)
    shown = run("verify", "out").stdout
    assert shown.startswith("no problems in 1 shard\nchecksums of 1 shard compared, headers walked; samples were not ")
    assert "none: shards that match their checksums are not read again" in shown
    assert run_json("verify", "out", "--decode")["decoded"] > 0
    assert "checksums were not compared" in run("verify", "out", "--quick").stdout


def test_what_is_wrong_is_listed(place: Path) -> None:
    run("convert", "docs", "out", "--to", "webdataset", "--verify")
    shard = place / "out" / "shard-000000.tar"
    data = bytearray(shard.read_bytes())
    at = data.index(b"Streamlit")
    data[at : at + 1] = b"s"
    shard.write_bytes(data)
    told = run_json("verify", "out", status=1)
    assert told["ok"] is False
    assert told["findings"][0]["error"] == "SidecarMismatch"
    result = run("verify", "out", status=1)
    assert "digest" in result.stdout
    assert "1 problem in 1 shard" in result.stdout
    assert result.stdout.splitlines()[-1] == "  lading salvage out DST"


def test_what_a_shard_that_differs_was_held_against_is_told(place: Path) -> None:
    run("convert", "docs", "out", "--to", "parquet")
    shard = place / "out" / "shard-000000.parquet"
    shard.write_bytes(shard.read_bytes() + b"x")
    told = run_json("verify", "out", status=1)
    assert "what out/_lading says" in told["findings"][0]["message"]
    assert told["checked"] == ["checksums", "counts", "sizes"]
    assert "nothing" not in run("verify", "out", status=1).stdout


def test_a_shard_that_was_cut_is_a_finding_with_its_file(place: Path) -> None:
    cut = place / "docs" / "docs-00001.tar"
    cut.write_bytes(cut.read_bytes()[:100_000])
    told = run_json("verify", "docs", status=1)
    assert [f["file"] for f in told["findings"]] == ["docs/docs-00001.tar"]
    assert told["samples"] > 0


def test_an_index_is_kept_where_it_does_no_harm(place: Path) -> None:
    before = sorted((place / "docs").iterdir())
    told = run_json("index", "docs")
    assert (told["shards"], told["samples"], told["folder"]) == (2, 13, str(place / "cache"))
    assert sorted((place / "docs").iterdir()) == before
    shown = " ".join(run("index", "docs").stdout.split())
    assert "13" in shown
    assert "kept the index of 2 shards in" in shown
    run("convert", "docs", "out", "--to", "parquet")
    assert "the index of 0 shards; the others need none" in " ".join(run("index", "out").stdout.split())


def test_an_index_that_cannot_be_kept_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "file").touch()
    monkeypatch.setenv("LADING_CACHE", str(place / "file" / "cache"))
    shown = run("index", "docs", status=3).output
    assert "indexes are not kept" in shown
    assert "the index of 0 shards; that of 2 could not be kept" in " ".join(shown.split())
    told = json.loads(run("index", "docs", "--json", status=3).stdout)
    assert (told["kept"], told["unkept"], told["samples"]) == (0, 2, 13)


# formats, demo, lading itself


def test_formats_are_listed_with_their_options(place: Path) -> None:
    told = run_json("formats")
    assert [f["name"] for f in told["formats"]] == format_names()
    assert {f["name"]: f["aliases"] for f in told["formats"]}["webdataset"] == ["tar", "wds"]
    names = {f["name"]: [o["name"] for o in f["read_options"]] for f in told["formats"]}
    assert "on_duplicate" in names["webdataset"]
    assert [o["name"] for o in told["interleaved_options"] if not o["text"]] == []
    shown = run("formats").stdout
    assert "*.tar.gz" in shown
    assert "row_group_bytes" in shown


@pytest.mark.soak
def test_the_demo_loses_nothing_and_keeps_what_it_made(place: Path) -> None:
    shown = run("demo", "--to", "demo").stdout
    assert "$ lading convert demo/docs demo/docs-parquet --to parquet" in shown
    assert shown.count("  same") == 6
    assert "Nothing changed: 13 documents, 48 texts and 42 images" in shown
    assert members(place / "demo" / "docs") == members(place / "docs")
    assert pq.read_table(place / "demo" / "docs-parquet").num_rows == 103
    assert run("diff", "docs", "demo/docs-parquet-2")
    assert run_json("info", "demo/photos")["samples"] == 100
    assert run_json("verify", "demo/photos", "--decode")["ok"]
    assert not run_json("verify", "demo/broken", status=1)["ok"]


@pytest.mark.soak
def test_the_demo_without_a_folder_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(place / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    told = run_json("demo")
    assert told["same"] is True
    assert {step["digest"] for step in told["steps"]} == {told["steps"][0]["digest"]}
    assert list((place / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "words, said",
    [
        (["--fields", "a"], "found fields"),
        (["--per-image-fields", "a"], "found per_image_fields"),
        (["--unreferenced", "drop"], "found unreferenced"),
        (["--sample-id-field", "a"], "found sample_id_field"),
        (["--type", "n=int64"], "no such column"),
    ],
)
def test_what_is_said_of_documents_is_refused_where_there_are_none(place: Path, words: list[str], said: str) -> None:
    write_tar(place / "a.tar", {"k.txt": b"x"})
    assert said in run("convert", "a.tar", "out", "--to", "parquet", *words, status=2).stderr
    assert not (place / "out").exists()


def test_the_demo_refuses_a_folder_that_holds_something(place: Path) -> None:
    assert "not empty" in run("demo", "--to", "docs", status=2).stderr


def test_the_demo_refuses_what_is_no_folder(place: Path) -> None:
    (place / "file").touch()
    for folder, said in (
        ("", "names no folder"),
        ("file", "not a folder; found file"),
        ("file/x", "not a folder; found file"),
    ):
        assert said in run("demo", "--to", folder, status=2).stderr.replace("\n", " ")
    assert sorted(path.name for path in place.iterdir()) == ["docs", "file"]


@pytest.mark.soak
def test_commands_of_the_demo_are_what_a_shell_takes(place: Path) -> None:
    shown = run("demo", "--to", "my demo").stdout
    for command in (
        "$ lading convert 'my demo/docs' 'my demo/docs-parquet' --to parquet",
        "$ lading head 'my demo/docs-parquet-2' -n 1",
        "  cd 'my demo'",
    ):
        assert command in shown.splitlines()


def test_the_version_is_that_of_the_package(place: Path) -> None:
    assert run("--version").stdout == f"lading {version('lading')}\n"


def test_help_lists_the_commands_in_groups(place: Path) -> None:
    shown = run("--help").stdout
    lines = ("Look", "  info ", "  plan ", "Write", "  convert ", "Check", "  verify ", "Keep", "  clean ", "Options")
    order = [shown.index(f"\n{line}") for line in lines]
    assert order == sorted(order)


def test_help_of_convert_begins_with_examples_and_shows_every_option(place: Path) -> None:
    shown = run("convert", "--help").stdout
    beginning = shown[: shown.index("\nArguments\n")]
    assert beginning.count("  lading convert ") == 3
    [*options] = re.findall(r"^  (--[a-z-]+)", shown, re.MULTILINE)
    assert len(options) == len({*options}) > 50
    assert max(map(len, shown.splitlines())) <= 100


def test_help_shows_the_options_of_a_verb_alone_first_and_those_of_all_verbs_last(place: Path) -> None:
    titles = re.findall(r"^(\w[\w ]*)$", run("plan", "--help").stdout, re.MULTILINE)
    assert (titles[:2], titles[-3:]) == (["Arguments", "Options"], ["Reading", "Interleaved documents", "Output"])
    assert "Ranks of the job. Default: 1.\n" in run("plan", "--help").stdout


@pytest.mark.parametrize(
    "words, command",
    [
        (["filter", "in", "o p", "--where", "n > 1"], "lading convert in 'o p' --where 'n > 1'"),
        (["where", "in", "out"], "lading convert in out --where EXPR"),
        (["dedup", "in", "out.parquet"], "lading convert in out.parquet --dedup content"),
        (["sample", "in", "out", "--sample=5%"], "lading convert in out --sample=5%"),
        (["filter", "in", "out", "n > 1", "--to", "mds"], "lading convert in out --where 'n > 1' --to mds"),
        (["join", "in", "out", "t.csv", "--on", "id"], "lading convert in out --join t.csv --on id"),
        (["sample", "in", "10%", "out"], "lading convert in out --sample 10%"),
        (["map", "s3://b/in", "out", "f.py:add"], "lading convert s3://b/in out --map f.py:add"),
        (["sort", "in", "out", "json.score"], "lading convert in out --sort json.score"),
        (["split"], "lading convert SRC DST --split-into train=0.9,val=0.1"),
        (["shuffle", "--help"], "lading convert --help"),
        (["ls", "in", "--json"], "lading info in --json"),
        (["compare"], "lading diff A B"),
    ],
)
def test_verbs_that_people_try_name_the_command(words: list[str], command: str, place: Path) -> None:
    refused = run(*words, status=2)
    assert f"Type: {command}" in (json.loads(refused.stdout)["advice"] if "--json" in words else refused.stderr)
    assert not {*OTHER_VERBS} & {*get_command(app).commands}  # type: ignore[attr-defined] # a group has commands


@pytest.mark.parametrize("verb, meant", [("convert", "--columns"), ("head", "--columns"), ("cache", "--all")])
def test_options_that_people_try_name_the_option(verb: str, meant: str, place: Path) -> None:
    said = " ".join(run(verb, "in", "out", "--select", "txt", status=2).stderr.split())
    assert "No such option: --select" in said
    assert (meant in said) == (meant == "--columns")


def test_salvage_saves_what_is_whole_and_lists_the_rest(place: Path) -> None:
    write_tar(place / "a.tar", {f"{key}.bin": bytes([n]) * 3000 for n, key in enumerate("abcde", 1)})
    body = (place / "a.tar").read_bytes()
    at = body.index(b"c.bin")
    (place / "a.tar").write_bytes(body[:at] + b"?" * 600 + body[at + 600 :])
    told = run_json("salvage", "a.tar", "saved", status=1)
    assert (told["ok"], told["samples"], told["lost_entries"]) == (False, 2, 3)
    assert (told["lost"][0]["file"], told["lost"][0]["offset"]) == ("a.tar", at)
    shown = run("salvage", "a.tar", "saved", "--overwrite", status=1).output
    assert "no members can be read here" in shown
    assert "2 samples" in shown
    assert run_json("verify", "saved")["ok"]
    assert run_json("salvage", "saved", "again", "--to", "parquet")["lost"] == []
    assert "columns as they are" in run("salvage", "saved", "more", "--type", "n=int64", status=2).output


def test_salvage_counts_the_findings_that_it_does_not_show(place: Path) -> None:
    (place / "in").mkdir()
    for shard in "ab":
        write_tar(place / "in" / f"{shard}.tar", {f"{n}.jpg": bytes(20) for n in range(60)})
    told = run_json("salvage", "in", "saved")
    assert (told["samples"], len(told["findings"]), told["all_findings"]) == (120, 100, 120)
    assert "and 20 more findings" in run("salvage", "in", "saved", "--overwrite").output


@pytest.mark.parametrize("verb", ["info", "head", "stats", "verify", "digest", "index", "diff", "convert", "salvage"])
def test_verbs_that_read_take_limits(place: Path, verb: str) -> None:
    path = place / "d.jsonl"
    path.write_text(json.dumps({"a": "x" * 1000}) + "\n")
    more = {
        "diff": [str(path)],
        "salvage": [str(place / "saved"), "--overwrite"],
        "convert": [str(place / "out"), "--to", "parquet"],
    }.get(verb, [])
    refused = run(verb, str(path), *more, "--max", "line_bytes=999", status=1)
    assert "raise the limit: --max line_bytes=" in " ".join(refused.stderr.replace("│", "").split())
    run(verb, str(path), *more, "--max", "line_bytes=2KB")
    wrong = run(verb, str(path), *more, "--max", "lines=1", status=2)
    assert "line_bytes" in wrong.stderr


def test_verify_offers_salvage_for_damage_alone(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([[1], ["x"], [2]], names=["a", "b", "a"])
    pq.write_table(twice, tmp_path / "a.parquet")
    said = run("verify", str(tmp_path / "a.parquet"), status=1).stdout
    assert "--columns b" in said
    assert "lading salvage" not in said
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    assert "lading salvage" in run("verify", str(tmp_path / "b.parquet"), status=1).output


def test_stats_are_a_table_or_json(place: Path) -> None:
    table = run("stats", "docs", "--where", "n_words > 0").output
    assert "binary_content.width" in table
    found = run_json("stats", "docs", "--limit", "3", "--top", "1")
    assert found["samples"] == 3
    assert found["columns"]["url"]["distinct"] == 3
    assert len(found["columns"]["modality"]["top"]) == 1


def test_head_shows_facts_of_audio_and_video(place: Path) -> None:
    media = Path(__file__).parents[1] / "content" / "media"
    members = [(f"0.{Path(name).suffix[1:]}", (media / name).read_bytes()) for name in ("a.m4a", "front.mp4")]
    (place / "s.tar").write_bytes(tar_of(*members))
    shown = run("head", "s.tar").output
    assert "m4a 0.77 s, 44.1 kHz, 2 channels" in shown
    assert "mp4 64×48, 0.60 s" in shown
    told = run_json("head", "s.tar")
    assert (told["m4a"]["sample_rate"], told["mp4"]["fps"]) == (44_100, 25)


def test_export_says_which_rows_are_filtered(place: Path) -> None:
    pq.write_table(pa.table({"txt": ["a", "b", None]}), place / "in.parquet")
    shown = run("export", "in.parquet", "out", "--where", "txt == 'a'").output
    assert ["filtered", "2 rows: not where txt == 'a'"] in [
        [part.strip() for part in line.split(maxsplit=1)] for line in shown.splitlines()
    ]
    assert "warning" not in shown


def test_repair_says_what_it_does_and_info_what_was_lost(place: Path) -> None:
    run("convert", "docs", "out", "--to", "webdataset", "--rows-per-shard", "5")
    shutil.copytree(place / "out", place / "copy")
    first, second, *_ = sorted((place / "out").glob("*.tar"))
    for shard in (first, second):
        body = shard.read_bytes()
        shard.write_bytes(body[:600] + bytes([body[600] ^ 1]) + body[601:])
    (place / "copy" / second.name).unlink()
    assert "  lading repair out" in run("verify", "out", status=1).stdout.splitlines()
    planned = run("repair", "out", "--from", "copy", "--dry-run", status=1).stdout
    assert "nothing is changed (--dry-run)" in planned
    told = run_json("repair", "out", "--from", "copy", status=1)
    assert (told["copied"], told["salvaged"], told["lost_samples"]) == ([first.name], [second.name], 1)
    assert "nothing to repair in 3 shards" in run("repair", "out").stdout
    assert "1 sample, before: see _lading/lost.jsonl" in run("info", "out").stdout
    assert run_json("verify", "out", "--deep")["ok"]
