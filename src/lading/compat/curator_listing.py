"""The first stage of a reader in a pipeline of NeMo Curator, which has to be installed.

Source: nemo-curator 1.4.0, stages/file_partitioning.py.
"""

from __future__ import annotations

from typing import Any

from nemo_curator.stages.file_partitioning import FilePartitioningStage

from lading.errors import SourceNotFound

__all__ = ["ListingStage"]


class ListingStage(FilePartitioningStage):  # type: ignore[misc] # the peer has no types
    """Lists the files of a reader, as the peer's stage. If there is no file, that is an error."""

    def process(self, task: Any) -> list[Any]:
        """Return the files as tasks. Raises SourceNotFound if there is none; the peer's pipeline succeeds."""
        found: list[Any] = super().process(task)
        if not found:
            paths = [self.file_paths] if isinstance(self.file_paths, str) else self.file_paths
            raise SourceNotFound("there is no file to read", file=", ".join(paths),
                                 expected=f"files that end in {', '.join(self.file_extensions)}")  # fmt: skip
        return found
