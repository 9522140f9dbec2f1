"""Damaged images: an answer, or our error; never another exception."""

from __future__ import annotations

import io
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from lading._core.content.image import extract_frame, image_info
from lading.errors import BadReference


def _saved(kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9, 7), (1, 2, 3)).save(file, kind, **options)
    return file.getvalue()


_MORE = [Image.new("L", (5, 5))]
_IMAGES = [_saved(kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")]
_FRAMES = [_saved("TIFF", save_all=True, append_images=_MORE, big_tiff=big) for big in (False, True)]
_HEIF = b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + b"\0\0\0\x40meta\0\0\0\0\0\0\0\x34iprp\0\0\0\x2cipco\0\0\0\x14ispe"
_changes = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6)


@pytest.mark.soak
@settings(max_examples=300)
@given(st.sampled_from([*_IMAGES, *_FRAMES, _HEIF + bytes(30)]), _changes, st.integers(0, 400), st.integers(-1, 3))
@example(_FRAMES[0], [], 8, 1)
def test_damage_is_survived(image: bytes, changes: list[tuple[int, int]], cut: int, index: int) -> None:
    data = bytearray(image[: len(image) - cut] if cut < len(image) else image)
    for at, value in changes:
        data[at % len(data)] = value
    info = image_info(data)
    assert info is None or (info.width > 0 and info.height > 0)
    with suppress(BadReference):
        assert len(extract_frame(data, index)) <= 2 * len(data) + 4096
