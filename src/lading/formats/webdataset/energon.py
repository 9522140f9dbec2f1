"""The list of shards that megatron-energon stores next to tars.

    .nv-meta/.info.json   {"energon_version"?, "shard_counts": {name below the folder: samples}}

Samples are counted by WebDataset's rule, whatever the tars hold; tars without samples are left out. Other files in
`.nv-meta` are ignored: YAML (`split.yaml`, the older `.info.yaml`), and a database (`index.sqlite`).

Source: megatron-energon 7.4.1, flavors/webdataset/prepare.py, structs.py, metadata.py.
"""

from __future__ import annotations

from lading.errors import DataError, errors_at
from lading.formats.base import ListedShard
from lading.formats.index_json import load_index
from lading.formats.webdataset.index import inside
from lading.limits import Limits
from lading.storage.base import Store

__all__ = ["INFO_NAME", "list_energon"]

INFO_NAME = ".nv-meta/.info.json"
"""Path of the list, below the folder of the tars."""


def list_energon(store: Store, path: str, limits: Limits) -> list[ListedShard]:
    """Return the shards in a list, in its order, with the samples of each. Reads no shard.

    Raises:
        NotFound: there is no list.
        DataError: the list is invalid.
        BadReference: a shard outside the folder.
        LimitExceeded: the list is larger than `index_bytes`.
    """
    index = load_index(store, path, limits)
    counts = index.get("shard_counts") if isinstance(index, dict) else None
    with errors_at(file=path, column="shard_counts"):
        if not isinstance(counts, dict):
            raise DataError("not a list of shards", expected="names and counts", found=repr(counts)[:80])
        folder = path.removesuffix(INFO_NAME)
        for name, count in counts.items():
            if type(count) is not int or count < 0:
                raise DataError(f"not a count of the samples in {name}", expected="0 or more", found=repr(count)[:80])
        return [ListedShard(inside(folder, name), count) for name, count in counts.items()]
