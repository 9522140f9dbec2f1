"""Datasets of Hugging Face's Hub as users name them → URLs of one commit, so that no process reads another one."""

from __future__ import annotations

import re
from typing import Final

from lading._core.dataset.source.source import Source
from lading._core.storage.hub import HubStore
from lading._core.storage.stores import Stores, resolve
from lading._core.storage.wrappers import WrappedStore
from lading.errors import NotFound, SourceNotFound

__all__ = ["of_commits"]

_PAGE: Final = re.compile(
    r"https://(?:huggingface\.co|hf\.co)/datasets/(?P<repo>[^/?#]+/[^/?#]+)"
    r"(?:/(?:tree|blob)/(?P<revision>[^/?#]+)(?P<path>/[^?#]*)?)?/?"
)
"""The page of a dataset, or of a folder or file of it; files themselves are at `/resolve/`."""


def of_commits(source: Source, stores: Stores | None) -> Source:
    """Return a source in which URLs of the Hub's datasets say the commit. Other names stay as they are.

    Raises:
        SourceNotFound: there is no such repository, or no such revision of it.
    """
    if isinstance(source, str):
        names = source.split("::")
        pinned = [_of_commit(name, stores) for name in names]
        return source if pinned == names else "::".join(pinned)
    if isinstance(source, list):
        return [_of_commit(name, stores) if isinstance(name, str) else name for name in source]
    return source


def _of_commit(name: str, stores: Stores | None) -> str:
    page = _PAGE.fullmatch(name)
    if page is not None:
        revision = f"@{page['revision']}" if page["revision"] else ""
        name = f"hf://datasets/{page['repo']}{revision}{page['path'] or ''}"
    if not name.startswith("hf://datasets/"):
        return name
    store, url = resolve(name, stores)
    while isinstance(store, WrappedStore):
        store = store.inner
    try:
        return store.pinned(url) if isinstance(store, HubStore) else name
    except NotFound as error:
        raise SourceNotFound(error.message, file=name, expected=error.expected, found=error.found,
                             advice=error.advice) from error  # fmt: skip
