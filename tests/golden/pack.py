"""Pack a family of golden cases into `<name>.tar.xz` beside this file: `python pack.py FOLDER [NAME]`.

The archive holds the family's case folders and is the same bytes for the same cases.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def main() -> None:
    family = Path(sys.argv[1]).resolve()
    name = sys.argv[2] if len(sys.argv) > 2 else family.name
    archive = Path(__file__).with_name(f"{name}.tar.xz")
    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.PAX_FORMAT) as tar:
        for case in sorted(family.iterdir()):
            tar.add(case, arcname=case.name, filter=_plain)


if __name__ == "__main__":
    main()
