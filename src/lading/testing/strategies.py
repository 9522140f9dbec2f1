"""Hypothesis strategies: keys, payloads, tables of samples, tables of interleaved items.

Importing this needs Hypothesis; nothing else in the kit does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.features.items import INTERLEAVED_SCHEMA, METADATA_POSITION
from lading.errors import missing_extra

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy
except ImportError as absent:
    advice = "Run: pip install hypothesis."
    raise missing_extra(absent, "the strategies need Hypothesis", "hypothesis", advice) from absent

__all__ = ["interleaved_tables", "keys", "payloads", "sample_tables", "texts"]

_NASTY_KEYS = (
    "a",
    "A",
    "é",
    "e\u0301",
    "日本",
    "🎉",
    " ",
    "-",
    "--help",
    "~",
    "a b",
    "100%",
    "%2E",
    "a\tb",
    "a\nb",
    "quo\"te'",
    "a\\b",
    "$(id)",
    "*?[x]",
    "\u202etxt",
    "\ufeffbom",
    "COM1",
    "null",
    "0",
    "k" * 101,
    "é" * 130,
)
_DOTTED = (".", "..", ".hidden", "a.", "doc.v1", "a..b", "x.jpg", "__index__.json")
_SLASHED = ("a/b", "/a", "a/", "a//b", "__x__/a")
_DOTTED_AND_SLASHED = ("./a", "../a", "a/../b")
_EDGES = (0, 1, 4, 11, 12, 13, 255, 256, 511, 512, 513, 1024, 4095, 4097)
_FIELDS = ("jpg", "png", "txt", "json", "cls", "bin", "seg_png")
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp", None)


def keys(*, dots: bool = True, slashes: bool = True) -> SearchStrategy[str]:
    """Keys of samples: text of 1 to some 130 characters, many of them nasty; no NUL, no lone surrogates.

    Args:
        dots: whether keys may hold dots, at which WebDataset ends a key.
        slashes: whether keys may hold slashes, which make folders.
    """
    nasty = _NASTY_KEYS + (_DOTTED if dots else ()) + (_SLASHED if slashes else ())
    nasty += _DOTTED_AND_SLASHED if dots and slashes else ()
    without = "\0" + ("" if dots else ".") + ("" if slashes else "/")
    some = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=without), min_size=1, max_size=20)
    return st.one_of(st.sampled_from(nasty), some)


def texts() -> SearchStrategy[str]:
    """Text that Arrow can hold: any characters but lone surrogates, empty too."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def payloads() -> SearchStrategy[bytes]:
    """Bytes of values: empty, short, around the sizes at which views and tar blocks change, noise and zeros."""
    edges = st.sampled_from(_EDGES)
    return st.one_of(st.binary(max_size=40), edges.map(_noise), edges.map(bytes))


def sample_tables(
    *,
    fields: Sequence[str] = _FIELDS,
    max_rows: int = 12,
    nulls: bool = True,
    dots: bool = True,
    slashes: bool = True,
) -> SearchStrategy[pa.Table]:
    """Tables of samples: `__key__` (string, unique) and up to four large_binary columns.

    Every row holds at least one value, since some formats know a sample by its values only.

    Args:
        fields: names to take columns from.
        max_rows: most rows; tables may be empty.
        nulls: whether values may be missing.
        dots: as in `keys`.
        slashes: as in `keys`.
    """

    @st.composite
    def table(draw: DrawFn) -> pa.Table:
        names = draw(st.lists(st.sampled_from(fields), min_size=1, max_size=4, unique=True))
        ids = draw(st.lists(keys(dots=dots, slashes=slashes), max_size=max_rows, unique=True))
        value = st.one_of(st.none(), payloads()) if nulls else payloads()
        rows = [[draw(value) for _ in names] for _ in ids]
        for row in rows:
            if all(item is None for item in row):
                row[draw(st.integers(0, len(names) - 1))] = draw(payloads())
        columns = [pa.array([row[i] for row in rows], pa.large_binary()) for i in range(len(names))]
        return pa.table([pa.array(ids, pa.string()), *columns], names=["__key__", *names])

    return table()


def interleaved_tables(
    *, max_samples: int = 5, dots: bool = True, slashes: bool = True, bytes_missing: bool = False
) -> SearchStrategy[pa.Table]:
    """Tables of interleaved items (`_core.features.items.INTERLEAVED_SCHEMA`), rows of a sample together and in order.

    A sample has a metadata row or not, then texts and images at ascending positions, with gaps. `source_ref` and
    `materialize_error` are null.

    Args:
        max_samples: most samples; tables may be empty.
        dots: as in `keys`, for `sample_id`.
        slashes: as in `keys`, for `sample_id`.
        bytes_missing: whether an image may have no bytes, and a text no text.
    """

    @st.composite
    def table(draw: DrawFn) -> pa.Table:
        rows: list[dict[str, Any]] = []
        for sample_id in draw(st.lists(keys(dots=dots, slashes=slashes), max_size=max_samples, unique=True)):
            if draw(st.booleans()):
                rows.append(_item(sample_id, METADATA_POSITION, "metadata", "application/json", None, None))
            positions = draw(st.sets(st.integers(0, 8), max_size=5))
            rows += [_content(draw, sample_id, position, bytes_missing=bytes_missing) for position in sorted(positions)]
        return pa.Table.from_pylist(rows, schema=INTERLEAVED_SCHEMA)

    return table()


def _content(draw: DrawFn, sample_id: str, position: int, *, bytes_missing: bool) -> dict[str, Any]:
    missing = bytes_missing and draw(st.booleans())
    if draw(st.booleans()):
        return _item(sample_id, position, "text", "text/plain", None if missing else draw(texts()), None)
    kind = draw(st.sampled_from(_IMAGE_TYPES))
    return _item(sample_id, position, "image", kind, None, None if missing else draw(payloads()))


def _item(
    sample_id: str, position: int, modality: str, content_type: str | None, text: str | None, body: bytes | None
) -> dict[str, Any]:
    return {
        "sample_id": sample_id,
        "position": position,
        "modality": modality,
        "content_type": content_type,
        "text_content": text,
        "binary_content": body,
    }


def _noise(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)
