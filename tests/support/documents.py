"""Interleaved samples with pictures of known sizes, as tars."""

from __future__ import annotations

import io
import json
from typing import Any

from PIL import Image

from tars import tar_of

__all__ = ["BROKEN", "SAMPLES", "SQUARE", "TALL", "WIDE", "documents", "picture", "tiff_of"]


def picture(width: int, height: int, kind: str = "PNG", **options: Any) -> bytes:
    body = io.BytesIO()
    Image.new("RGB", (width, height)).save(body, kind, **options)
    return body.getvalue()


def tiff_of(*colours: str, size: int = 4) -> bytes:
    """Return a TIFF file with a page a colour."""
    body = io.BytesIO()
    first, *others = (Image.new("RGB", (size, size), colour) for colour in colours)
    first.save(body, "TIFF", save_all=True, append_images=others)
    return body.getvalue()


WIDE, TALL, SQUARE = picture(40, 10), picture(10, 40), picture(20, 20)
BROKEN = b"\x89PNG\r\n\x1a\n broken"


def documents(*samples: tuple[str, list[str | bytes | None], dict[str, Any]]) -> bytes:
    """Return a tar of interleaved samples: name, texts and images by position, further fields."""
    members: list[tuple[str, bytes]] = []
    for name, items, fields in samples:
        images = [f"{name}.{i}.png" if isinstance(item, bytes) else None for i, item in enumerate(items)]
        members += [(f"{name}.{i}.png", item) for i, item in enumerate(items) if isinstance(item, bytes)]
        texts = [item if isinstance(item, str) else None for item in items]
        document = {"sample_id": name, "texts": texts, "images": images, **fields}
        members.append((f"{name}.json", json.dumps(document).encode()))
    return tar_of(*members)


SAMPLES = (
    ("a", ["hello", WIDE, TALL], {"lang": "en", "score": 1.5}),
    ("b", [TALL], {"lang": "de", "score": 0.5}),
    ("c", ["only text"], {"lang": "en"}),
    ("d", [BROKEN, SQUARE], {"lang": None, "score": 3.0}),
    ("e", [], {"lang": "en", "score": 2.0}),
)
