"""Tars made by Python's own tarfile."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

__all__ = ["tar_of", "write_hollow_tar", "write_long_named_tars"]


def tar_of(*members: tuple[str, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar with these members, in this order."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return body.getvalue()


def write_long_named_tars(folder: Path) -> list[Path]:
    """Two tars of a sample each, whose names are longer than `tar_name_bytes` allows."""
    paths = [folder / "0.tar", folder / "1.tar"]
    for path in paths:
        path.write_bytes(tar_of(("n" * 5000 + f"{path.stem}.x", b"1"), form=tarfile.PAX_FORMAT))
    return paths


def write_hollow_tar(path: Path, count: int, size_bytes: int) -> None:
    """A tar of members that are holes: a file that takes no room, and time to convert."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(count):
            member = tarfile.TarInfo(f"{number:04d}.bin")
            member.size = size_bytes
            assert tar.fileobj is not None
            tar.fileobj.write(member.tobuf(tarfile.USTAR_FORMAT))
            tar.fileobj.seek(member.size, io.SEEK_CUR)
        tar.offset = tar.fileobj.tell()  # type: ignore[attr-defined] # what close() pads from
