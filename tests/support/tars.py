"""Tars made by Python's own tarfile."""

from __future__ import annotations

import io
import tarfile

__all__ = ["tar_of"]


def tar_of(*members: tuple[str, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar with these members, in this order."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return body.getvalue()
