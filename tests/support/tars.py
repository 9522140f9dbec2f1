"""Tars made by Python's own tarfile."""

from __future__ import annotations

import io
import re
import struct
import tarfile
from pathlib import Path

__all__ = ["energon_index", "tar_of", "write_hollow_tar", "write_long_named_tars"]


def tar_of(*members: tuple[str, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return a tar with these members, in this order."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return body.getvalue()


def energon_index(tar: bytes) -> bytes:
    """Return the `.tar.idx` of a tar as megatron-energon 7.4.1 makes it (webdataset/prepare.py, `_preprocess_tar`)."""
    entries: list[int] = []
    last = None
    with tarfile.open(fileobj=io.BytesIO(tar)) as members:
        for member in members:
            named = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", member.name)
            if not member.isreg() or re.match(r"__[^/]*__($|/)", member.name) or named is None:
                continue
            if named[1] != last:
                entries.append(member.offset)
                last = named[1]
        entries.append(members.offset)
    return struct.pack(f"<{len(entries)}Q", *entries)


def write_long_named_tars(folder: Path) -> list[Path]:
    """Write two tars of a sample each, whose names are longer than `tar_name_bytes` allows."""
    paths = [folder / "0.tar", folder / "1.tar"]
    for path in paths:
        path.write_bytes(tar_of(("n" * 5000 + f"{path.stem}.x", b"1"), form=tarfile.PAX_FORMAT))
    return paths


def write_hollow_tar(path: Path, count: int, size_bytes: int) -> None:
    """Write a tar of sparse members: a file that takes no space, and time to convert."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(count):
            member = tarfile.TarInfo(f"{number:04d}.bin")
            member.size = size_bytes
            assert tar.fileobj is not None
            tar.fileobj.write(member.tobuf(tarfile.USTAR_FORMAT))
            tar.fileobj.seek(member.size, io.SEEK_CUR)
        tar.offset = tar.fileobj.tell()  # type: ignore[attr-defined] # what close() pads from
