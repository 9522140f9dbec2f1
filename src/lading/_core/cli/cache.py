"""`lading cache`: what the local copies of remote shards are, their size, and deleting them."""

from __future__ import annotations

import re
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lading._core.cli.options import Debug, Json
from lading._core.cli.output import Output
from lading._core.cli.text import columns, count, facts, visible
from lading._core.units import format_bytes, parse_bytes
from lading.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lading._core.storage.shard_cache import CachedCopy

__all__ = ["cache"]

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def cache(
    action: Annotated[
        Literal["ls", "du", "prune"],
        typer.Argument(metavar="ls|du|prune", show_default=False, help="List, add up, or delete copies."),
    ],
    folder: Annotated[str, typer.Argument(metavar="DIR", show_default=False, help="Folder that cache_dir names.")],
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="SIZE", help="Delete the copies used least recently until so much is left."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", metavar="", help="Delete all copies.")] = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Delete copies unused for so long, such as 12h or 7d."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List or delete the local copies of remote shards.

    They are made by cache_dir. A copy that a process reads or downloads is
    never deleted, and nothing else is.

    Example: lading cache prune /scratch/cache --limit 50GB
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.storage.shard_cache import find_cache

        chosen = [one for one in (limit, every or None, older_than) if one is not None]
        if len(chosen) != (action == "prune"):
            raise UsageError("these options do not fit" if chosen else "nothing says what to delete",
                             expected="one of --limit, --all and --older-than, for prune alone")  # fmt: skip
        found = find_cache(folder)
        if action == "ls":
            copies = found.copies()
            listed = [(visible(one.url or one.path), format_bytes(one.size_bytes), _time(one)) for one in copies]
            out.show([_as_json(one) for one in copies], [columns(("shard", "size", "last used"), listed)])
        elif action == "du":
            copies = found.copies()
            parts = Counter[str]()
            for one in copies:
                parts[one.url.rpartition("/")[0]] += one.size_bytes
            total = {"copies": len(copies), "size_bytes": parts.total(), "folders": dict(parts.most_common())}
            rows = [(format_bytes(size), visible(url or "?")) for url, size in parts.most_common()]
            out.show(total, [facts([*rows, (format_bytes(parts.total()), f"in {count(len(copies), 'shard')}")])])
        else:
            before = None if older_than is None else time.time() - _seconds(older_than)
            gone = found.prune(0 if limit is None else parse_bytes(limit), before=before)
            sizes = {"deleted": _sizes(gone), "left": _sizes(found.copies())}
            rows = [(name, _as_text(**each)) for name, each in sizes.items()]
            out.show(sizes, [facts(rows)])


def _sizes(copies: Sequence[CachedCopy]) -> dict[str, int]:
    return {"copies": len(copies), "size_bytes": sum(one.size_bytes for one in copies)}


def _as_text(copies: int, size_bytes: int) -> str:
    return f"{count(copies, 'shard')}, {format_bytes(size_bytes)}"


def _as_json(copy: CachedCopy) -> dict[str, object]:
    return {"url": copy.url, "path": copy.path, "size_bytes": copy.size_bytes, "used": _time(copy)}


def _time(copy: CachedCopy) -> str:
    return datetime.fromtimestamp(copy.used, UTC).isoformat(timespec="seconds")


def _seconds(age: str) -> float:
    match = _AGE.fullmatch(age.strip())
    if match is None:
        raise UsageError("not a time", expected="a number and s, m, h or d, such as 12h", found=repr(age)[:80])
    return float(match[1]) * _SECONDS[match[2]]
