"""Lazy output: its manifest keeps the folders that its references lead to, and trusts those near the dataset."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading.errors import DataError, UsageError

PICTURE = b"\xff\xd8\xff" + b"x" * 3000


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Two tars of interleaved documents, in a folder of their own."""
    folder = tmp_path / "work" / "docs"
    folder.mkdir(parents=True)
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            document = json.dumps({"texts": ["a", None], "images": [None, "p.jpg"], "sample_id": f"s{number}"})
            for name, data in (("d.json", document.encode()), ("p.jpg", PICTURE)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return folder


def pictures(source: Path, **opening: object) -> list[bytes]:
    with lading.open(source, **opening) as ds:  # type: ignore[arg-type] # roots alone
        return [item["binary_content"] for sample in ds for item in sample["items"] if item["modality"] == "image"]


def roots_of(folder: Path) -> object:
    return json.loads((folder / "_lading" / "manifest.json").read_text())["options"]["roots"]


@pytest.mark.soak
def test_a_folder_beside_the_dataset_is_found_without_roots(docs: Path, tmp_path: Path) -> None:
    out = docs.parent / "out"
    done = lading.convert(docs, out, format="parquet", lazy=True, verify=True)
    assert (done.roots, done.verified) == ([], True)
    assert roots_of(out) == [{"place": str(docs), "beside": "../docs"}]
    assert pictures(out) == [PICTURE] * 2
    assert lading.digest(out, workers=2).ordered == done.digest
    # Both folders move together; what the references name is gone.
    shutil.move(docs.parent, tmp_path / "elsewhere")
    assert pictures(tmp_path / "elsewhere" / "out") == [PICTURE] * 2
    copy = lading.convert(tmp_path / "elsewhere" / "out", tmp_path / "whole", format="webdataset", workers=2)
    assert copy.samples == 2


@pytest.mark.soak
def test_a_folder_elsewhere_is_asked_for_once_and_by_name(docs: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    done = lading.convert(docs, out, format="parquet", lazy=True, verify=True)
    assert done.roots == [str(docs)]
    for on_error in ("error", "warn", "drop_row"):
        with lading.open(out) as ds, pytest.raises(UsageError, match=rf"add roots=\['{docs}'\]"):
            list(ds.batches(on_error=on_error))
    assert pictures(out, roots=[docs]) == [PICTURE] * 2
    with lading.open(out) as ds:  # texts need no payload
        assert [batch.num_rows for batch in ds.batches(columns=["text_content"])] == [6]
    command = ["convert", str(docs), str(tmp_path / "far" / "out"), "--to", "parquet", "--lazy"]
    shown = "".join(CliRunner().invoke(app, command).stdout.split())
    assert f"readersneed--root{docs}" in shown
    asked = CliRunner().invoke(app, ["head", str(out)])
    assert asked.exit_code == 2
    assert f"--root {docs}" in asked.stderr


@pytest.mark.parametrize("beside", ["..", "../..", "../link", "../../secret", "/", "../.hidden"])
def test_a_manifest_opens_no_folder_that_is_not_near_it(beside: str, docs: Path, tmp_path: Path) -> None:
    out, secret = docs.parent / "out", tmp_path / "secret"
    secret.mkdir()
    (docs.parent / "link").symlink_to(secret)
    lading.convert(docs, out, format="parquet", lazy=True)
    shutil.move(docs, secret / "docs")
    shutil.copytree(secret, docs.parent / ".hidden")
    manifest = out / "_lading" / "manifest.json"
    told = json.loads(manifest.read_text())
    told["options"]["roots"] = [{"place": str(docs), "beside": beside}, {"place": str(secret)}]
    manifest.write_text(json.dumps(told))
    with pytest.raises((UsageError, DataError)):
        pictures(out)


@pytest.mark.parametrize("roots", [{}, ["x"], [{"beside": "../x"}], [{"place": 1}]])
def test_roots_that_are_none_are_no_manifest(roots: object, docs: Path) -> None:
    out = docs.parent / "out"
    lading.convert(docs, out, format="parquet", lazy=True)
    manifest = out / "_lading" / "manifest.json"
    told = json.loads(manifest.read_text())
    told["options"]["roots"] = roots
    manifest.write_text(json.dumps(told))
    with pytest.raises(DataError, match="roots: a list of places"):
        lading.open(out)


def test_datasets_with_different_roots_open_as_one(docs: Path) -> None:
    parts, other, near = docs.parent / "parts", docs.parent / "other", docs.parent / "parts" / "near"
    for number, source in enumerate((other, near)):
        shutil.copytree(docs, source)
        (source / f"{number}.tar").unlink()
    lading.convert(near, parts / "a", format="parquet", lazy=True)
    lading.convert(other, parts / "b", format="parquet", lazy=True)
    both = [parts / "a", parts / "b"]
    with lading.open(both) as ds, pytest.raises(UsageError, match=f"roots=.*{other}"):
        list(ds)
    with lading.open(both, roots=[other]) as ds:
        assert len(list(ds)) == 2


@pytest.mark.soak
@pytest.mark.parametrize("place", ["beside", "far"])
def test_a_payload_folder_that_moved_alone_is_found_by_the_root_that_names_it(
    place: str, docs: Path, tmp_path: Path
) -> None:
    out = docs.parent / "out" if place == "beside" else tmp_path / "deep" / "er" / "out"
    lading.convert(docs, out, format="parquet", lazy=True)
    moved = tmp_path / "moved" / "pictures"
    shutil.copytree(docs, moved)
    if place == "beside":  # a folder that is still there is read, whatever else is named
        (moved / "0.tar").write_bytes(b"another")
        assert pictures(out, roots=[moved]) == [PICTURE] * 2
        shutil.copy(docs / "0.tar", moved)
    shutil.rmtree(docs)
    assert pictures(out, roots=[moved]) == [PICTURE] * 2
    copy = lading.convert(out, tmp_path / "whole", format="webdataset", workers=2, roots=[moved], verify=True)
    assert copy.verified
    assert lading.verify(out, roots=[moved]).ok


def test_folders_of_the_same_names_are_not_mistaken_for_each_other(docs: Path, tmp_path: Path) -> None:
    other = tmp_path / "deep" / "other"
    shutil.copytree(docs, other)
    data = (other / "0.tar").read_bytes()
    (other / "0.tar").write_bytes(data.replace(PICTURE, PICTURE[:-1] + b"y").replace(b"s0", b"t0"))
    out = tmp_path / "even" / "deeper" / "out"
    lading.convert([docs / "0.tar", other / "0.tar"], out, format="parquet", lazy=True)
    assert pictures(out, roots=[other, docs]) == [PICTURE, PICTURE[:-1] + b"y"]


def test_what_helps_where_the_payload_is_missing(docs: Path, tmp_path: Path) -> None:
    """Salvage would save rows without payload."""
    out = docs.parent / "out"
    lading.convert(docs, out, format="parquet", lazy=True)
    shutil.rmtree(docs)
    for words in (["verify", str(out)], ["verify", str(out), "--deep"], ["convert", str(out), str(tmp_path / "o")]):
        told = CliRunner().invoke(app, [*words, *(["--to", "mds"] if words[0] == "convert" else [])])
        assert told.exit_code == 1
        assert "name the folder with --root" in " ".join(told.output.split())
        assert "salvage" not in told.output
    with lading.open(out) as ds, pytest.warns(UserWarning, match="no such file"):
        errors = [row["materialize_error"] for batch in ds.batches(on_error="warn") for row in batch.to_pylist()]
    assert all(text is None or text.endswith("0.tar: no such file") or "1.tar" in text for text in errors)
