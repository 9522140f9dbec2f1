"""What a machine checks before it does another one's task: the version of lading, and that it sees the folders."""

from __future__ import annotations

import os
import platform

from lading._core.manifest.values import own_version
from lading._core.storage.base import native_path
from lading._core.storage.stores import is_local, resolve
from lading.errors import UsageError

__all__ = ["refuse_other_version", "refuse_unseen"]

_SHARED = "Use a folder that all machines share, or an object store such as s3://."


def refuse_other_version(version: str | None, sender: str) -> None:
    """Refuse tasks of another version of lading, whose results may differ.

    Args:
        version: of lading where the task comes from.
        sender: name of that machine.

    Raises:
        UsageError: names both versions, and this machine.
    """
    if version != own_version():
        raise UsageError(
            f"the host {platform.node()} has another version of lading", expected=f"{version}, as on {sender}",
            found=own_version(), advice="Install the same version on all machines.",
        )  # fmt: skip


def refuse_unseen(kind: str, path: str, sender: str, advice: str = _SHARED) -> None:
    """Refuse a task whose file lies in a local folder that this machine does not see.

    Args:
        kind: the file in a word, such as `source`.
        path: of the file, which need not exist.
        sender: name of the machine where the task comes from.
        advice: how machines see the same folder.

    Raises:
        UsageError: names this machine and the folder.
    """
    store, name = resolve(path)
    folder = os.path.dirname(native_path(name))
    if is_local(store) and not os.path.isdir(folder):
        raise UsageError(f"the host {platform.node()} does not see the {kind}", file=folder, found="no such folder",
                         expected=f"the folder that {sender} sees", advice=advice)  # fmt: skip
