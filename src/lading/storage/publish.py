"""Give finished files of a store without atomic folders their final names, so that readers never see half of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lading.storage.base import Store, has_file, name_taken

__all__ = ["publish_by_moves"]

_MANIFEST: Final = "_lading/manifest.json"


def publish_by_moves(
    store: Store,
    move_all: Callable[[Sequence[tuple[str, str]]], None],
    source: str,
    target: str,
    *,
    replace: bool,
) -> None:
    """Give a file or a folder its final name, file by file.

    For a folder, the target's old manifest is deleted first, and the new manifest is moved last. A reader that opens by
    manifest therefore never sees a half-moved folder as complete. Files of the old folder that the new one lacks are
    deleted. Without `replace`, files that appear after the check are not noticed.

    Args:
        store: where both are.
        move_all: moves files, each from one path to another, in any order.
        source: the file or folder.
        target: its new name.
        replace: whether a file or folder of that name may be replaced.

    Raises:
        NotFound: the source does not exist.
        DestinationExists: the target exists, and `replace` is not set.
    """
    old, new = source.rstrip("/"), target.rstrip("/")
    there = [info.path.removeprefix(new + "/") for info in store.walk(new)]
    names = [info.path.removeprefix(old + "/") for info in store.walk(old)]
    if not replace and (there or has_file(store, new)):
        raise name_taken(target)
    if not names:
        store.head(old)
        if there:
            store.delete(new)
        move_all([(old, new)])
        return
    store.delete(f"{new}/{_MANIFEST}" if there else new)
    move_all([(f"{old}/{name}", f"{new}/{name}") for name in names if name != _MANIFEST])
    for name in set(there).difference(names, [_MANIFEST]):
        store.delete(f"{new}/{name}")
    if _MANIFEST in names:
        move_all([(f"{old}/{_MANIFEST}", f"{new}/{_MANIFEST}")])
    store.delete(old)
