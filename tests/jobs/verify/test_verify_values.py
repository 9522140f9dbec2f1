"""Verify decodes values: each kind of damage is a finding with key and place."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from documents import documents
from lading._core.features.types import Array, with_feature
from tars import tar_of


def picture(kind: str) -> bytes:
    out = io.BytesIO()
    Image.effect_noise((64, 48), 50).convert("RGB").save(out, kind)
    return out.getvalue()


def sound() -> bytes:
    import soundfile

    out = io.BytesIO()
    soundfile.write(out, np.zeros(800, np.float32), 8000, format="WAV")
    return out.getvalue()


def array() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(10))
    return out.getvalue()


BAD: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "HTML as jpg": ("jpg", lambda: b"<html>not found</html>", "the image cannot be opened"),
    "an empty jpg": ("jpg", lambda: b"", "the file is empty"),
    "a cut jpg": ("jpg", lambda: picture("JPEG")[:-400], "the image cannot be decoded"),
    "a cut png": ("png", lambda: picture("PNG")[:-400], "the image cannot be decoded"),
    "a png as jpg": ("jpg", lambda: picture("PNG"), "the bytes are of another format than the ending says"),
    "a cut wav": ("wav", lambda: sound()[:-100], "the audio file is cut"),
    "HTML as wav": ("wav", lambda: b"<html></html>", "the audio cannot be decoded"),
    "HTML as mp4": ("mp4", lambda: b"<html></html>", "the video has no readable header"),
    "broken JSON": ("json", lambda: b'{"a": ', "broken JSON"),
    "a cut array": ("npy", lambda: array()[:-1], "an array of another size"),
    "bytes as text": ("txt", lambda: b"\xff", "invalid UTF-8"),
}
GOOD: dict[str, Callable[[], bytes]] = {
    "jpg": lambda: picture("JPEG"), "png": lambda: picture("PNG"), "wav": sound, "json": lambda: b"{}",
    "npy": array, "txt": lambda: b"text",
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_each_kind_of_damage_is_a_finding_with_its_key_and_place(kind: str, tmp_path: Path) -> None:
    ending, make, said = BAD[kind]
    members = [("a.txt", b"one"), (f"a.{ending}", GOOD[ending]())] if ending in GOOD and ending != "txt" else []
    (tmp_path / "a.tar").write_bytes(tar_of(*members, (f"b.{ending}", make()), ("b.cls", b"1")))
    found = lading.verify(tmp_path, decode=True)
    [finding] = found.findings
    assert said in finding["message"]
    place = [finding[name] for name in ("level", "file", "row", "sample", "column")]
    assert place == ["problem", str(tmp_path / "a.tar"), len(members) // 2, "b", ending]
    assert not found.undecoded


def test_sound_values_are_decoded_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(*((f"a.{ending}", make()) for ending, make in GOOD.items())))
    found = lading.verify(tmp_path, decode=True)
    assert (found.findings, found.decoded, found.undecoded) == ([], len(GOOD), {})
    assert found.digest == lading.digest(tmp_path).ordered


def test_what_nothing_decodes_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.bin", b"\0"), ("a.mpg", b"\0\0\1\xba")))
    found = lading.verify(tmp_path, decode=True)
    assert (found.ok, found.decoded, {*found.undecoded}) == (True, 0, {"bin", "mpg"})


def test_values_in_structs_lists_and_columns_of_bytes_are_decoded(tmp_path: Path) -> None:
    good, cut = picture("PNG"), picture("PNG")[:-400]
    struct = pa.array([{"bytes": good, "path": None}, {"bytes": cut, "path": None}])
    table = pa.table({"jpg": [picture("JPEG"), b"nothing"], "pictures": [[good, cut], [good]], "image": struct})
    schema = table.schema.set(1, with_feature(pa.field("pictures", pa.list_(pa.binary())), lading.features.Sequence(
        lading.features.Image())))  # fmt: skip
    schema = schema.set(2, with_feature(table.schema.field("image"), lading.features.Image()))
    pq.write_table(table.cast(schema), tmp_path / "a.parquet")
    found = lading.verify(tmp_path, decode=True)
    assert [(one["row"], one["column"]) for one in found.findings] == [(1, "jpg"), (0, "pictures"), (1, "image")]


def test_arrays_of_another_size_than_the_column_says_are_findings(tmp_path: Path) -> None:
    field = with_feature(pa.field("v", pa.binary()), Array("float32", (2,)))
    pq.write_table(pa.table([[b"12345678", b"1234"]], schema=pa.schema([field])), tmp_path / "a.parquet")
    [found] = lading.verify(tmp_path, decode=True).findings
    assert (found["row"], found["column"]) == (1, "v")


def test_images_of_documents_are_decoded(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(documents(("page", ["text", picture("PNG")[:-400]], {})))
    [found] = lading.verify(tmp_path, decode=True).findings
    assert (found["sample"], found["column"]) == ("page", "binary_content")


def test_workers_decode_the_same(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.tar").write_bytes(tar_of((f"{name}.jpg", b"<html>"), (f"{name}.json", b"{}")))
    one, threads = (lading.verify(tmp_path, decode=True, **how) for how in ({"workers": 1}, {"executor": "threads"}))
    assert (one.findings, one.decoded) == (threads.findings, 4)
