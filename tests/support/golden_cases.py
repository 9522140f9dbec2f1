"""The golden cases: which there are, and what their `expected.json` asks for.

    @pytest.mark.parametrize("case", case_names("wds"))
    def test_reads_what_the_peer_wrote(golden, case):
        for view in load_views(golden("wds") / case):
            assert compare_samples(view.samples, read(view.folder, view.open)) == []

`tests/golden/README.md` says what the families hold.
"""

from __future__ import annotations

import fcntl
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

ARCHIVES = Path(__file__).parents[1] / "golden"

Golden: TypeAlias = Callable[[str], Path]
"""Type of the `golden` fixture: name of a family → folder of its cases."""


@dataclass(frozen=True, slots=True)
class View:
    """One reading of a case.

    Attributes:
        name: empty for a case's only reading.
        folder: the case; paths in `open` are relative to it.
        format: which reader the case is for (`wds`, `interleaved-tar`, …).
        open: options of the reading.
        samples: field → description (`golden_compare.compare`), a dict for each sample, in order.
        error_ok: the peer's own reader fails here: the samples or an error that names the file are both right.
    """

    name: str
    folder: Path
    format: str
    open: dict[str, Any]
    samples: list[dict[str, dict[str, Any]]]
    error_ok: bool


@cache
def unpacked(folder: Path, family: str) -> Path:
    """Return the folder of a family's cases below a folder that the processes of a run share; the first unpacks it."""
    place = folder / f"golden-{family}"
    with (folder / f"golden-{family}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tarfile.open(ARCHIVES / f"{family}.tar.xz") as archive:
                archive.extractall(place.with_suffix(".new"), filter="data")
            place.with_suffix(".new").rename(place)
    return place


@cache
def case_names(family: str) -> tuple[str, ...]:
    """Return names of a family's cases, sorted, without unpacking them (for `parametrize`)."""
    with tarfile.open(ARCHIVES / f"{family}.tar.xz") as archive:
        return tuple(sorted({name.split("/")[0] for name in archive.getnames()}))


def load_spec(folder: Path) -> dict[str, Any]:
    """Return a case's whole `expected.json`."""
    spec: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return spec


def load_views(folder: Path) -> list[View]:
    """Return the readings of a case with a known result; none if the writer's own reader could not read it."""
    spec = load_spec(folder)
    readings = [{"name": "", **spec}] if "samples" in spec else []
    readings += [view for view in spec.get("views", []) if "peer_error" not in view]
    return [
        View(
            name=reading["name"],
            folder=folder,
            format=reading.get("format", spec["format"]),
            open=reading.get("open", {}),
            samples=reading["samples"],
            error_ok=spec.get("error_ok", False),
        )
        for reading in readings
    ]
