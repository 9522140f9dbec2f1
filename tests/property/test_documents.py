"""Interleaved documents of every kind, with every option, from tars to Parquet and back: nothing is lost."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lading

_ENDINGS = (".jpg", ".PNG", ".webp", ".bin")
_TYPES = {".jpg": "image/jpeg", ".PNG": "image/png", ".webp": "image/webp", ".bin": "application/octet-stream"}
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
_SCALARS = st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS
_VALUES = st.none() | _SCALARS | st.lists(_SCALARS, max_size=2) | st.dictionaries(_TEXTS, _SCALARS, max_size=2)


@dataclass(frozen=True)
class Tar:
    """A tar of documents, how it is to be read, and the items it holds: id, position, modality, type, text, bytes."""

    body: bytes
    options: dict[str, Any]
    items: list[tuple[str, int, str, str | None, str | None, bytes | None]]


@st.composite
def tars(draw: st.DrawFn) -> Tar:
    texts_field, images_field = draw(st.sampled_from([("texts", "images"), ("passages", "pictures")]))
    id_field = draw(st.sampled_from(["sample_id", "name", None]))
    per_image, per_text = (("alt",) if draw(st.booleans()) else (), ("lang",) if draw(st.booleans()) else ())
    ending = draw(st.sampled_from([".json", ".JSON"]))
    body, items = io.BytesIO(), []
    with tarfile.open(fileobj=body, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for number in range(draw(st.integers(1, 30))):
            stem = f"{number}" + draw(st.text("ab.-_~é %", max_size=4)) + "x"
            sample_id = stem if id_field is None else f"{number} {draw(_TEXTS)}"
            entries = draw(st.lists(st.tuples(st.none() | _TEXTS, st.none() | st.binary(max_size=40)), max_size=6))
            names = [
                None if data is None else f"{stem}.{i}{draw(st.sampled_from(_ENDINGS))}"
                for i, (_, data) in enumerate(entries)
            ]
            fields = draw(st.dictionaries(st.sampled_from(["n", "s", "mixed", "position", "texts2"]), _VALUES))
            document = {texts_field: [text for text, _ in entries], images_field: names, **fields}
            if id_field is not None:
                document[id_field] = sample_id
            for name, count in ((*((n, sum(i is not None for i in names)) for n in per_image),
                                 *((n, sum(t is not None for t, _ in entries)) for n in per_text))):  # fmt: skip
                document[name] = draw(st.lists(st.none() | st.integers(0, 9), min_size=count, max_size=count))
            members = [(name, data) for name, (_, data) in zip(names, entries, strict=True) if name is not None]
            for name, data in draw(st.permutations([*members, (stem + ending, json.dumps(document).encode())])):
                info = tarfile.TarInfo(name)
                info.size = len(data or b"")
                tar.addfile(info, io.BytesIO(data or b""))
            items += _items(sample_id, entries, names)
    options = {
        "texts_field": texts_field,
        "images_field": images_field,
        "sample_id_field": id_field,
        "per_image_fields": per_image,
        "per_text_fields": per_text,
    }
    return Tar(body.getvalue(), options, items)


def _items(
    sample_id: str, entries: list[tuple[str | None, bytes | None]], names: list[str | None]
) -> Iterator[tuple[str, int, str, str | None, str | None, bytes | None]]:
    yield sample_id, -1, "metadata", "application/json", None, None
    for position, ((text, data), name) in enumerate(zip(entries, names, strict=True)):
        if text is not None:
            yield sample_id, position, "text", "text/plain", text, None
        if name is not None:
            yield sample_id, position, "image", _TYPES["." + name.rpartition(".")[2]], None, data


_NAMES = ("sample_id", "position", "modality", "content_type", "text_content", "binary_content")


def _rows(source: Path, **options: Any) -> list[tuple[Any, ...]]:
    with lading.open(source, view="interleaved", **options) as dataset:
        return [tuple(row[n] for n in _NAMES) for batch in dataset.batches(max_rows=50) for row in batch.to_pylist()]


@pytest.mark.soak
@settings(
    max_examples=settings.default.max_examples // 3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(tars(), st.sampled_from([10_000, 1 << 30]), st.sampled_from([5_000, 1 << 20]))
def test_there_and_back_is_one_digest(tar: Tar, shard_size: int, max_batch_bytes: int) -> None:
    """Some hundred documents in 10 tars; in `make soak` in 100."""
    sizes = {"shard_size": shard_size, "max_batch_bytes": max_batch_bytes}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "in.tar").write_bytes(tar.body)
        options = lading.options.InterleavedOptions(**tar.options)
        assert _rows(place / "in.tar", interleaved=options) == tar.items
        first = lading.convert(
            place / "in.tar",
            place / "1",
            format="parquet",
            view="interleaved",
            interleaved=options,
            verify=True,
            **sizes,
        )
        second = lading.convert(place / "1", place / "2", format="webdataset", verify=True, **sizes)
        third = lading.convert(place / "2", place / "3", format="parquet", verify=True, **sizes)
        assert first.digest == second.digest == third.digest
        assert {_digest_count(done) for done in (first, second, third)} == {(len(tar.items), first.samples)}
        assert _rows(place / "3") == tar.items


def _digest_count(done: Any) -> tuple[int, int]:
    return done.rows, done.samples
