"""A package outside lading adds a format by an entry point; the format is the one that docs/write-a-format.md shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from hashlib import md5
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

import lading
from lading._core.formats import registry
from lading.errors import BadReference, Unrepresentable
from lading.testing.format import write_shard

_PAGE = Path(__file__).parents[2] / "docs" / "write-a-format.md"
_RUN = "from lading._core.cli import run; run()"
_RUN_ALL = """if True:
    import json, sys
    from lading._core.cli import run

    for words in json.loads(sys.argv[1]):
        sys.argv[1:] = words
        try:
            run()
        except SystemExit as ended:
            if ended.code:
                raise
        print("\\n--")
    """
_TARGETS = [("lading_fasta:FORMAT", "fasta"), ("lading_fasta:GONE", "broken"), ("lading_fasta:FORMAT", "other")]


def _install(folder: Path, *points: tuple[str, str]) -> None:
    [module] = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (folder / "lading_fasta.py").write_text(module)
    metadata = folder / "lading_fasta-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lading-fasta\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for value, name in points)
    (metadata / "entry_points.txt").write_text(f"[lading.formats]\n{lines}")


def _run(packages: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


def _lading(packages: Path, *calls: list[str]) -> list[str]:
    """Return what each of the calls printed; one process makes all: each new one loads Arrow again."""
    done = _run(packages, "-c", _RUN_ALL, json.dumps(calls))
    assert done.returncode == 0, done.stdout + done.stderr
    *said, rest = done.stdout.split("\n--\n")
    assert (len(said), rest) == (len(calls), "")
    return said


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    _install(folder, _TARGETS[0])
    return folder


@pytest.fixture
def genomes(tmp_path: Path) -> Path:
    folder = tmp_path / "genomes"
    folder.mkdir()
    for number in range(3):
        records = "".join(f">g{number}.{row} of {number}\nacgt\nAC{'GT' * row}\n" for row in range(5))
        (folder / f"{number}.fasta").write_text(records)
    return folder


def test_the_page_has_a_short_format() -> None:
    [module] = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert module.count("\n") <= 160


@cache
def _fasta() -> ModuleType:
    """Return the module of the page."""
    [text] = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    sys.modules["lading_fasta"] = module = ModuleType("lading_fasta")
    exec(text, module.__dict__)
    return module


@pytest.mark.parametrize(
    "column, value", [("id", "a b"), ("description", "a\n>b"), ("sequence", "AC GT"), ("id", None)]
)
def test_the_writer_of_the_page_refuses_what_it_would_not_read_back(column: str, value: str | None) -> None:
    row = {"id": "a", "description": "of a", "sequence": "ACGT", column: value}
    with pytest.raises(Unrepresentable, match=column):
        write_shard(_fasta().FORMAT, pa.Table.from_pylist([row], _fasta().SCHEMA), {})


def test_the_index_of_the_page_is_written_read_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {**registry._registered, "fasta": _fasta().FORMAT})
    rows = [
        {"id": "a", "description": "", "sequence": "ACGT" * 40},
        {"id": "b", "description": "of é, long", "sequence": ""},
    ]
    out = tmp_path / "out"
    with lading.writer(out, format="fasta") as writer:
        for row in rows:
            writer.write(row)
    [shard] = out.glob("*.fasta")
    assert (out / "md5checksums.txt").read_text() == f"{md5(shard.read_bytes()).hexdigest()}  ./{shard.name}\n"
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in out.glob("*.*"):
        (plain / file.name).write_bytes(file.read_bytes())
    assert [*lading.open(plain)] == rows
    assert not lading.verify(plain).findings
    (plain / shard.name).write_bytes(shard.read_bytes().replace(b"ACGT", b"ACGA", 1))
    [finding] = lading.verify(plain).findings
    assert "md5" in finding["message"]
    (plain / "md5checksums.txt").write_text(f"{'0' * 32}  ./../{shard.name}\n")
    with pytest.raises(BadReference, match="outside"):
        lading.open(plain)


@pytest.mark.soak
def test_every_verb_takes_the_format(packages: Path, genomes: Path, tmp_path: Path) -> None:
    source, upper = str(genomes), tmp_path / "upper"
    formats, info, head, digest, *_ = _lading(
        packages,
        ["formats"],
        ["info", source, "--json"],
        ["head", source, "-n", "3"],
        ["digest", source, "--json"],
        ["verify", source],
        *(
            call
            for workers, out in (("1", f"{tmp_path}/out1"), ("2", f"{tmp_path}/out2"))
            for call in (
                ["convert", source, out, "--to", "parquet", "--workers", workers, "--verify"],
                ["diff", source, out],
            )
        ),
        ["convert", source, str(upper), "--to", "jsonl", "--option", "upper_case=true"],
    )
    assert "fasta" in formats
    assert '"fasta"' in info
    assert "acgtACGTGT" in head
    assert '"count": 15' in digest
    assert '"ACGTACGTGT"' in next(upper.glob("*.jsonl")).read_text()


@pytest.mark.soak
def test_random_access_and_errors(packages: Path, genomes: Path) -> None:
    code = (
        "import lading, sys\n"
        "from lading.errors import CorruptShard, UsageError\n"
        "dataset = lading.open(sys.argv[1])\n"
        "assert len(dataset) == 15\n"
        "assert dataset[7] == {'id': 'g1.2', 'description': 'of 1', 'sequence': 'acgtACGTGT'}, dataset[7]\n"
        "assert dataset.take([14, 0, 0], columns=['id']).column('id').to_pylist() == ['g2.4', 'g0.0', 'g0.0']\n"
        "try:\n"
        "    lading.convert(sys.argv[1], sys.argv[1] + '-out', format='warc')\n"
        "except UsageError as error:\n"
        "    assert 'read-only' in str(error), error\n"
        "else:\n"
        "    raise SystemExit('written')\n"
    )
    done = _run(packages, "-c", code, str(genomes))
    assert done.returncode == 0, done.stderr
    (genomes / "0.fasta").write_bytes(b"acgt\n")
    done = _run(packages, "-c", _RUN, "verify", str(genomes))
    assert "line 1: not a header" in done.stdout + done.stderr


@pytest.mark.soak
def test_a_package_that_does_not_load_costs_its_format_alone(genomes: Path, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    _install(packages, *_TARGETS)
    done = _run(packages, "-c", _RUN, "info", str(genomes), "--json")
    assert done.returncode == 0, done.stderr
    done = _run(packages, "-c", _RUN, "convert", "x", "y", "--to", "csv", "--from", "broken")
    assert "the format broken does not load" in done.stderr, done.stderr


@pytest.mark.soak
def test_no_package_is_searched_where_a_built_in_format_is_named(tmp_path: Path) -> None:
    code = (
        "import lading\n"
        "from lading._core.formats import registry\n"
        "registry.get_format('parquet')\n"
        "assert registry._entry_points.cache_info().currsize == 0\n"
    )
    done = _run(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
