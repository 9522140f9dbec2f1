"""What `clean` removes inside a destination."""

from __future__ import annotations

from pathlib import Path

import lading
from lading.media import MediaWriter

DEAD = ".{}.lading-0123456789abcdef.tmp"


def test_files_that_dead_writers_of_archives_left_go_and_living_ones_stay(tmp_path: Path) -> None:
    media = {"id": "m", "media_bytes": b"x" * 5000}
    with MediaWriter(tmp_path / "out", "${lang}/${rank}.bin", max_file_size=10) as writer:
        for _ in range(3):
            writer.write(media, rank=1, lang="de")
        left = [
            tmp_path / "out" / folder / DEAD.format(name) for folder, name in (("", "a.bin"), ("fr", "000_00001.bin"))
        ]
        for path in left:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"half")
        building = tmp_path / "out" / ".data.lading-0123456789abcdef"
        building.mkdir()
        (building / DEAD.format("shard")).write_bytes(b"of a build")
        assert lading.clean(tmp_path / "out", dry_run=True).removed == dict.fromkeys(map(str, left), 4)
        assert lading.clean(tmp_path / "out").size_bytes == 8
        assert not any(path.exists() for path in left)
        assert [*building.iterdir()] != []
    assert sorted(path.name for path in (tmp_path / "out/de").iterdir()) == [f"{n:03}_00001.bin" for n in range(3)]
