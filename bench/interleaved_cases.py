"""Interleaved documents from one format into another, whole and with a filter, in one process."""

from __future__ import annotations

import os
from collections.abc import Callable

from harness import Case, Done, Place, Way, copy_files

_BOUNDS = {"min_aspect_ratio": 1.0, "max_aspect_ratio": 2.0}
_FILES = {"tar": "documents/*.tar", "parquet": "documents/*.parquet", "references": "references/*.parquet"}


def _by_nemo(source: str, target: str, bounds: dict[str, float]) -> Way:
    """NeMo Curator's stages, called shard by shard as one of its workers would, without Ray."""

    def way(place: Place) -> Callable[[], Done]:
        from nemo_curator.stages.interleaved.io import readers, writers
        from nemo_curator.stages.interleaved.stages import InterleavedAspectRatioFilterStage
        from nemo_curator.tasks import FileGroupTask

        if source == "tar":
            read = readers.InterleavedWebdatasetReaderStage(materialize_on_read=True)
        else:
            read = readers.InterleavedParquetReaderStage()
        kind = "InterleavedParquetWriterStage" if target == "parquet" else "InterleavedWebdatasetWriterStage"
        write = getattr(writers, kind)(path=os.path.join(place.out, "new"), mode="overwrite", materialize_on_write=True)
        apply = InterleavedAspectRatioFilterStage(**bounds) if bounds else None
        paths, done = place.files(_FILES[source]), _done(place)

        def work() -> Done:
            for path in paths:
                task = read.process(FileGroupTask(dataset_name="documents", data=[path]))
                write.process(task if apply is None else apply.process(task))
            return done

        return work

    return way


def _by_lading(source: str, target: str, bounds: dict[str, float]) -> Way:
    def way(place: Place) -> Callable[[], Done]:
        import lading
        from lading._core.formats.registry import all_formats

        list(all_formats())  # import them, as the peer's way imports its stages
        paths, done = place.files(_FILES[source]), _done(place)
        format_ = "parquet" if target == "parquet" else "webdataset"
        roots = [os.path.join(place.data, "documents")]

        def work() -> Done:
            lading.convert(paths, os.path.join(place.out, "new"), format=format_, roots=roots, **bounds)
            return done

        return work

    return way


def _copy(source: str) -> Way:
    """All bytes of the documents, read and written; where references are read, those of the tars they lead to."""

    def way(place: Place) -> Callable[[], Done]:
        paths, done = place.files(_FILES["tar" if source == "references" else source]), _done(place)

        def work() -> Done:
            copy_files(paths, place.out)
            return done

        return work

    return way


def _done(place: Place) -> Done:
    facts = place.facts("documents")
    return Done(facts["samples"], facts["payload_bytes"])


def _case(source: str, target: str, bounds: dict[str, float]) -> Case:
    ways = {
        "nemo-curator": _by_nemo(source, target, bounds),
        "lading": _by_lading(source, target, bounds),
        "copy": _copy(source),
    }
    name = f"documents {source} to {target}" + (" filtered" if bounds else "")
    inputs = "documents/*.tar" if source == "references" else _FILES[source]
    return Case(name, inputs, peer="nemo-curator", limit="copy", ways=ways, writes=True)


_DIRECTIONS = (
    ("tar", "parquet"),
    ("parquet", "tar"),
    ("tar", "tar"),
    ("parquet", "parquet"),
    ("references", "tar"),
)
CASES = tuple(_case(source, target, bounds) for bounds in ({}, _BOUNDS) for source, target in _DIRECTIONS)
