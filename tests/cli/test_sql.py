"""`lading sql`: what it prints and writes, and what it says of wrong calls."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lading._core.cli.main import app
from tars import tar_of


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with a tar of 30 samples in `photos/`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "photos").mkdir()
    members = []
    for number in range(30):
        about = {"lang": "en" if number % 3 else "de", "n": number}
        members += [(f"{number:02d}.json", json.dumps(about).encode()), (f"{number:02d}.bin", bytes([number]) * number)]
    (tmp_path / "photos/a.tar").write_bytes(tar_of(*members))
    return tmp_path


def run(*words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(app, ["sql", *words], prog_name="lading")
    assert result.exit_code == status, result.output
    return result


def test_rows_are_a_table(place: Path) -> None:
    shown = run("select json.lang, count(*) n, max(null::text) t from 'photos/*.tar' group by 1 order by 1")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["lang", "n", "t"], ["de", "10", "null"], ["en", "20", "null"],
    ]  # fmt: skip
    assert shown.stderr == ""
    first = run("select __key__, bin from photos", "-n", "2")
    assert first.stdout.splitlines()[1].startswith('00       {"url": "photos/a.tar", "offset": ')
    assert len(first.stdout.splitlines()) == 3
    assert first.stderr == "the first 2 rows: -n N shows more, --json all\n"
    assert run("select * from photos where json.n > 99").stdout == "no rows\n"


def test_wide_rows_fit_the_screen(place: Path) -> None:
    columns = ", ".join(f"'{'x' * 50}' as a{number}" for number in range(12))
    lines = run(f"select json.n, {columns} from photos limit 1").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:2] == ["n", "a0"]
    assert lines[0].rstrip().endswith("columns")


def test_json_is_a_row_a_line(place: Path) -> None:
    lines = run(
        "select json, 'nan'::double x from photos where json.n in (1, 3) order by 1", "--json"
    ).stdout.splitlines()
    assert [*map(json.loads, lines)] == [
        {"json": {"lang": "de", "n": 3}, "x": "NaN"}, {"json": {"lang": "en", "n": 1}, "x": "NaN"},
    ]  # fmt: skip


def test_a_result_is_written_with_its_payload(place: Path) -> None:
    shown = run("select __key__, bin, json.lang as txt from 'photos' where json.n > 27", "out", "--to", "webdataset")
    assert "2 samples" in shown.stdout
    [shard] = (place / "out").glob("*.tar")
    with tarfile.open(shard) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr] # files
    assert found == {"28.bin": bytes([28]) * 28, "28.txt": b"en", "29.bin": bytes([29]) * 29, "29.txt": b"en"}
    run("select json.n from photos", "n.csv")
    assert (place / "n.csv").read_text().splitlines()[:2] == ["n", "0"]


@pytest.mark.parametrize(
    "words, said",
    [
        (("select lang from photos",), "Fields of JSON are named after their column: json.lang"),
        (("select 1", "--to", "mds"), "lading sql QUERY DST --to FORMAT"),
        (("select 1 from nowhere",), "no such table, file or folder; found nowhere"),
        (("copy photos to 'x.csv'", "out"), "SQL here is one SELECT"),
        (("select * from 'photos'", "out", "--to", "nothing"), "nothing"),
    ],
)
def test_wrong_calls_say_what_to_type(place: Path, words: tuple[str, ...], said: str) -> None:
    assert said in run(*words, status=2).stderr
    assert {path.name for path in place.iterdir()} == {"photos"}


def test_other_json_says_how_to_read_it(place: Path) -> None:
    members = [(f"{n:04d}.json", json.dumps({"n": n if n < 1000 else "x"}).encode()) for n in range(1001)]
    (place / "odd.tar").write_bytes(tar_of(*members))
    said = run("select sum(json.n) from 'odd.tar'", status=1).stderr
    assert "sample '1000' column 'json.n'" in said
    assert "--json-as text" in said
    assert run("select count(json) n from 'odd.tar'", "--json-as", "text").stdout.split() == ["n", "1001"]
