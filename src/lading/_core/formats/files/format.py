"""Loose files: a folder of files is a dataset. Read-only; `lading export` writes such folders.

    sample       files of one folder with one name up to the first dot: `a/1.jpg`, `a/1.txt` → key `a/1`
    column       the rest of the name, in lower case: `jpg`, `txt`, `seg.png`
    shard        a slice of the listing, of up to 1,024 samples and 64 MB

Values are references to whole files, so no file is opened before its bytes are asked for. Samples come in the order of
the paths of their first files.

A folder of labelled media (`cat/1.jpg`, `dog/2.png`: media of one kind alone, in several folders of one depth) has the
columns `image` (or `audio`, `video`) and `label`. A folder with `metadata.csv`, `.jsonl` or `.parquet` has the columns
of that table too, and one media file a sample as `image` (or `audio`, `video`). Both are as Hugging Face's
`imagefolder` and `audiofolder` have them; order and the column `__key__` are lading's own.

Source: webdataset 1.0.2, tariterators.py (keys and fields); datasets 5.2.0, folder_based_builder.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lading._core.formats.base import ShardFile
from lading._core.formats.dataset_index import ListedShard, LooseFiles
from lading._core.formats.files.listing import METADATA_NAMES, ListingSlice, holds_media, list_files
from lading._core.formats.files.reader import FilesReader, ReadOptions
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import Format, FormatInfo, NoOptions
from lading._core.storage.base import FileInfo
from lading._core.storage.zip_store import damaged_files
from lading.errors import UsageError

__all__ = ["FORMAT", "FilesFormat", "FilesReader", "ReadOptions"]


class SampleFiles(LooseFiles):
    """The samples of a folder, in slices."""

    format = "files"
    described_by = METADATA_NAMES

    def claims(self, files: Sequence[FileInfo]) -> bool:
        """Return whether some files are media by their names."""
        return holds_media(files)

    def shards(self, root: str, files: Sequence[FileInfo]) -> tuple[list[ListedShard], Mapping[str, int]]:
        """Return slices of the samples of a folder."""
        return list_files(root, files)


class FilesFormat(Format[ReadOptions, NoOptions]):
    """Folders of loose files."""

    info = FormatInfo(name="files", extensions=(), read_options=ReadOptions)
    loose = SampleFiles()

    def matches(self, path: str, head: bytes) -> bool:
        """Return False: a shard is no file."""
        return False

    def open(self, file: ShardFile, options: ReadOptions) -> FilesReader:
        """Open a slice of a folder; no file is opened.

        Raises:
            UsageError: the source is a file.
        """
        if not file.entry:
            raise UsageError("loose files are read by their folder", file=file.path, advice="Name the folder.")
        return FilesReader(file, options)

    def checks(self, file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
        """Yield the damaged members of a zip archive; with `DEEP` alone."""
        if level is Level.DEEP:
            entry = ListingSlice.of(file.entry)
            yield from map(Finding.of, damaged_files(file.store, [f"{entry.root}{name}" for name in entry.names]))


FORMAT = FilesFormat()
"""The format that the registry loads."""
