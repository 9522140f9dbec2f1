"""The writer of MDS, with the names of MosaicML Streaming.

Source: mosaicml-streaming 0.13.0, base/format/mds/writer.py and base/format/base/writer.py.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.mds_values import parse_array
from lading._core.formats.registry import get_format
from lading._core.units import parse_peer_bytes
from lading.errors import DestinationExists, MissingField, Unrepresentable, UsageError, errors_at

__all__ = ["MDSWriter"]

_USUAL: Final[Mapping[str, Any]] = {"progress_bar": False, "retry": 2, "max_workers": None}
"""Arguments of the peer for its uploads, and their defaults."""


class MDSWriter:
    """Write samples as MDS, as `lading.writer(…, format="mds")` does: shards have the bytes of the peer's.

    The dataset appears when the writer is finished without an error; if the body of the `with` fails, nothing does.

    Example:
        with MDSWriter(out="s3://bucket/set", columns={"image": "jpeg", "label": "int"}) as out:
            out.write({"image": picture, "label": 3})

    Args:
        columns: encoding of each column. Other values of a sample are left out, as in the peer.
            Single numbers in `float16` and `float32` are rounded, as in the peer; arrays never.
        out: folder of the dataset, a path or URL. Shards of a URL are built on this machine, then uploaded.
        keep_local: only False: no local copy is made.
        compression: of whole shards, such as `zstd:7`.
        hashes: names of hashes in the index, sorted.
        size_limit: size of a shard, in bytes or as text; None for shards as large as the format allows.
        exist_ok: replace the dataset in the folder.
        storage_options: as `lading.writer` takes them; the peer has none.
        more: arguments of the peer for its uploads, with their defaults.

    Raises:
        DestinationExists: the folder is not empty, and `exist_ok` is not set (a FileExistsError).
        UsageError: an argument has an invalid value, or one that lading does not do (a ValueError).
    """

    def __init__(
        self,
        *,
        columns: Mapping[str, str],
        out: str | os.PathLike[str],
        keep_local: bool = False,
        compression: str | None = None,
        hashes: Sequence[str] | None = None,
        size_limit: int | str | None = 1 << 26,
        exist_ok: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        for name, value in more.items():
            if name not in _USUAL or value != _USUAL[name]:
                raise UsageError("MDSWriter has no such argument", found=f"{name}={value!r}",
                                 advice="Leave it out: uploads go on while samples are written, and are repeated. "
                                 'storage_options={"retry_s": 180} says how long.')  # fmt: skip
        if not isinstance(out, (str, os.PathLike)):
            raise UsageError("a dataset is written to one place", found=f"out={out!r}",
                             advice="Write to the remote; `LocalCopy(local, remote=remote)` makes a local copy.",
                             )  # fmt: skip
        if keep_local:
            raise UsageError("there is no local copy of what is uploaded", found="keep_local=True",
                             advice="Afterwards, `LocalCopy(local, remote=out)` makes one.")  # fmt: skip
        if list(hashes or ()) != sorted(set(hashes or ())):
            raise UsageError("hashes must be unique and sorted", found=f"hashes={hashes!r}")
        self.columns = dict(columns)
        options = {"columns": self.columns, "compression": compression or None, "hashes": list(hashes or ()),
                   "size_limit": parse_peer_bytes(size_limit) if size_limit else None}  # fmt: skip
        mds = get_format("mds")
        self._rows = 0
        mds.written(pa.schema([]), mds.write_options(options))  # refuses unknown encodings
        try:
            self._writer = DatasetWriter(os.path.expanduser(out), format="mds", shard_size="4gb", options=options,
                                         overwrite=exist_ok, storage_options=storage_options)  # fmt: skip
        except DestinationExists as error:
            error.advice = (error.advice or "").replace("--overwrite", "exist_ok=True")
            raise

    def write(self, sample: Mapping[str, Any]) -> None:
        """Append a sample.

        Raises:
            MissingField: it lacks a column (a KeyError).
            DataError: a value does not fit the encoding of its column, such as an array of another dtype It
                is a ValueError.
        """
        missing = [name for name in self.columns if name not in sample]
        if missing:
            raise MissingField("a sample lacks a column", column=missing[0], found=", ".join(map(str, sample)))
        stored = {}
        for name, encoding in self.columns.items():
            with errors_at(row=self._rows, column=name):
                stored[name] = _stored(encoding, sample[name])
        self._writer.write(stored)
        self._rows += 1

    def finish(self) -> None:
        """Write what is left, and make the dataset appear."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self._writer.abort()


def _stored(encoding: str, value: Any) -> Any:
    """Return a value for lading's writer, which compresses images less, has nulls, and takes arrays of other dtypes."""
    dtype = (parse_array(encoding) or (None,))[0]
    if dtype is not None and isinstance(value, np.ndarray) and value.dtype != np.dtype(dtype):
        raise Unrepresentable("an array of another dtype than its encoding", expected=encoding, found=value.dtype,
                              advice=f'Cast the array first: value.astype("{dtype}").')  # fmt: skip
    if encoding == "list[jpeg]" and isinstance(value, (list, tuple)):
        return [_stored("jpeg", each) for each in value]
    if encoding == "json" and value is None:
        return b"null"
    if encoding != "jpeg" or not hasattr(value, "save"):
        return value
    if getattr(value, "format", None) == "JPEG" and getattr(value, "filename", "") and os.path.exists(value.filename):
        with open(value.filename, "rb") as file:
            return file.read()
    data = io.BytesIO()
    value.save(data, format="JPEG")
    return data.getvalue()
